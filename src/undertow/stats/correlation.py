"""Pearson correlation, with intervals for non-normal data and for clustered columns."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import ROUNDING_SHARE, Codes, Estimate, Floats, as_floats, is_constant, t_p_value, t_quantile
from undertow.stats.context import check_interrupted, only_points
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS
from undertow.stats.significance.sign_flip import permutation_p_value

MIN_PAIRS = 4
"""Minimum number of pairs for an interval; without one of three columns, r is always 1 or -1."""
N_SHUFFLES = 10_000
"""Permutations behind a p-value."""
_NEARLY_ONE = 1 - 1e-15


class Pearson(NamedTuple):
    """A correlation and its interval.

    Attributes:
        r: NaN if x or y is constant.
        low, high: -1 and 1 if the pairs do not bound it; NaN if r is.
        heaviest_share: largest share of one pair in the variance of r, in 0 to 1; near 0 for a reliable interval, NaN without one.
    """

    r: float
    low: float
    high: float
    n: int
    heaviest_share: float = math.nan


def pearson(x: ArrayLike, y: ArrayLike) -> Pearson:
    """Pearson's r of pairs x [pair] and y [pair]; NaN if a value is not finite.

    The 95% interval is on Fisher's z scale, with the standard error of the delete-one jackknife, which does not assume normal pairs, and a
    Student quantile with n - 2 degrees of freedom.
    """
    both = np.array([x, y], dtype=np.float64)
    n = both.shape[1]
    if n < 2 or not np.isfinite(both).all():
        return Pearson(math.nan, math.nan, math.nan, n)
    sizes = np.abs(both).max(axis=1, keepdims=True)
    both /= np.where(sizes > 0, sizes, 1.0)  # fourth powers of very large and very small numbers overflow or vanish
    if is_constant(both[0]) or is_constant(both[1]):
        return Pearson(math.nan, math.nan, math.nan, n)
    by_x, by_y = both - both.mean(axis=1, keepdims=True)
    pairs = ((by_x, by_x), (by_y, by_y), (by_x, by_y))
    whole = [float(one @ other) for one, other in pairs]
    r = float(np.clip(whole[2] / math.sqrt(whole[0]) / math.sqrt(whole[1]), -1.0, 1.0))
    if abs(r) >= _NEARLY_ONE:
        return Pearson(r, r, r, n) if n >= MIN_PAIRS else Pearson(r, -1.0, 1.0, n)
    # Influence of a pair on r: with x and y in standard units, xy - r (x^2 + y^2) / 2.
    influences = (by_x * by_y / math.sqrt(whole[0] * whole[1]) - r * (by_x**2 / whole[0] + by_y**2 / whole[1]) / 2) ** 2
    total = float(influences.sum())
    heaviest = float(influences.max()) / total if total > 0 else math.nan
    # Sums without each pair [pair].
    left = [in_all - n / (n - 1) * one * other for in_all, (one, other) in zip(whole, pairs, strict=True)]
    if n < MIN_PAIRS or any(np.any(left[at] <= ROUNDING_SHARE * whole[at]) for at in (0, 1)):
        return Pearson(r, -1.0, 1.0, n, heaviest)
    z = np.arctanh(np.clip(left[2] / np.sqrt(left[0]) / np.sqrt(left[1]), -_NEARLY_ONE, _NEARLY_ONE))
    half = t_quantile(n - 2) * math.sqrt((n - 1) / n * float(((z - z.mean()) ** 2).sum()))
    return Pearson(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), n, heaviest)


def cluster_correlation(x: ArrayLike, y: ArrayLike, clusters: ArrayLike, seed: int) -> Estimate:
    """Pearson correlation over clustered columns [column]; columns without both values (NaN) are excluded.

    The interval is Fisher's z with the variance of a delete-one-cluster jackknife, at a t quantile with one degree of freedom fewer than
    clusters, because cluster bootstrap percentiles are too narrow with 20 columns. p is the larger of two: that of the same z and error,
    so that p agrees with the interval, and that of shuffled clusters. The shuffle exchanges whole clusters of y with others of the same
    size, and columns within their cluster. A cluster with a unique size is shuffled only within itself, which is conservative.

    Returns:
        r, NaN below four columns or clusters, or if a side is constant. No interval and no p if r is NaN or depends on one cluster, and
        for fewer than `MIN_CLUSTERS` clusters; if r is 1 or -1, no interval, and the shuffle alone decides p.
    """
    check_interrupted()
    xs, ys = as_floats(x), as_floats(y)
    seen = ~np.isnan(xs) & ~np.isnan(ys)
    xs, ys = xs[seen], ys[seen]
    _, of, sizes = np.unique(np.asarray(clusters)[seen], return_inverse=True, return_counts=True)
    n = len(xs)
    if n < MIN_PAIRS or len(sizes) < MIN_PAIRS or is_constant(xs) or is_constant(ys):
        return Estimate(math.nan, n=n)
    in_x, in_y = ((one - one.mean()) / np.linalg.norm(one - one.mean()) for one in (xs, ys))
    r = float(np.clip(in_x @ in_y, -1.0, 1.0))
    if only_points() or len(sizes) < MIN_CLUSTERS:
        return Estimate(r, n=n)
    shuffled = np.abs(in_y[_cluster_orders(of, np.random.default_rng(seed))] @ in_x)  # [order]
    low, high, p = _jackknife_interval(in_x, in_y, of)
    return Estimate(r, low, high, n, max(p, permutation_p_value(abs(r), shuffled, tolerance=ROUNDING_SHARE)))


def _cluster_orders(of: Codes, rng: np.random.Generator) -> Codes:
    """Random orders [order, column] that exchange whole clusters of equal size, in any inner order.

    clusters  a a b c c        a <-> c, also shuffled within; b stays, because its size is unique
    columns   0 1 2 3 4   -->  4 3 2 0 1
    """
    by_cluster = np.argsort(of, kind="stable")
    sizes = np.bincount(of)
    starts = np.cumsum(sizes) - sizes
    orders = np.empty((N_SHUFFLES, len(of)), dtype=np.int64)
    for size in np.unique(sizes):
        alike = starts[sizes == size]
        places = by_cluster[alike[:, np.newaxis] + np.arange(size)]  # [cluster, member]
        drawn = rng.permuted(np.tile(np.arange(len(alike)), (N_SHUFFLES, 1)), axis=1)  # [order, cluster]
        moved = rng.permuted(places[drawn], axis=2)  # [order, cluster, member]
        orders[:, places.ravel()] = moved.reshape(N_SHUFFLES, -1)
    return orders


def _jackknife_interval(in_x: Floats, in_y: Floats, of: Codes) -> tuple[float, float, float]:
    """95% interval of r and p of no correlation, by a cluster jackknife on the scale of Fisher's z, where r is about normal.

    NaN if z is not finite; p is 0 if r is 1 or -1, so that the shuffled clusters decide.
    """
    n_clusters = int(of.max()) + 1
    keeps = of != np.arange(n_clusters)[:, np.newaxis]  # [cluster, column]
    n = keeps.sum(axis=1)
    mean_x, mean_y = keeps @ in_x / n, keeps @ in_y / n
    squares_x = keeps @ in_x**2 - n * mean_x**2
    squares_y = keeps @ in_y**2 - n * mean_y**2
    products = keeps @ (in_x * in_y) - n * mean_x * mean_y
    # Columns have a sum of squares of 1, so smaller sums are rounding errors of a constant side.
    if min(squares_x.min(), squares_y.min()) <= ROUNDING_SHARE:
        return math.nan, math.nan, math.nan
    without = products / np.sqrt(squares_x * squares_y)
    r = float(in_x @ in_y)
    if max(abs(r), float(np.abs(without).max())) >= 1 - ROUNDING_SHARE:
        return math.nan, math.nan, 0.0 if abs(r) >= 1 - ROUNDING_SHARE else math.nan
    z = np.arctanh(without)
    error = math.sqrt((n_clusters - 1) / n_clusters * float(((z - z.mean()) ** 2).sum()))
    half = t_quantile(n_clusters - 1) * error
    p = t_p_value(math.atanh(r) / error, n_clusters - 1) if error > 0 else 0.0
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), p
