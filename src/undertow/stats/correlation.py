"""Pearson correlation: over columns that stand in clusters, and streaming, with an interval for data that are not normal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import (
    ROUNDING_SHARE,
    Codes,
    Floats,
    as_floats,
    check_finite,
    is_constant,
    t_p_value,
    t_quantile,
)
from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.point_estimates import only_points
from undertow.stats.significance.permutation import permutation_p_value

MAX_KEPT = 10_000
"""Up to so many pairs are kept for the jackknife; beyond them its interval is that of the moments to within a thousandth."""
MIN_PAIRS = 4
"""Fewer pairs have no interval; of three columns r says nothing, and leaving one of them out leaves a line."""
N_SHUFFLES = 10_000
"""Permutations behind a p-value."""
_NEARLY_ONE = 1 - 1e-15


class Pearson(NamedTuple):
    """A correlation and its interval.

    Attributes:
        r: NaN where x or y does not vary.
        low, high: -1 and 1 where the pairs leave everything open; NaN where r is.
    """

    r: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums over pairs, about their own mean, so that nothing cancels when pieces are put together.

    Attributes:
        products: sums of all products of two of 1, x, y, x^2, xy, y^2, which are all moments to the fourth [6, 6].
    """

    n: int
    x: float
    y: float
    products: Floats

    def about(self, x: float, y: float) -> Floats:
        """The products with another point in the place of the mean."""
        by_x, by_y = self.x - x, self.y - y
        # (x + a)^2 = x^2 + 2ax + a^2, and likewise: a row for each new term, a column for each old one.
        moved = np.array(
            [
                [1, 0, 0, 0, 0, 0],
                [by_x, 1, 0, 0, 0, 0],
                [by_y, 0, 1, 0, 0, 0],
                [by_x**2, 2 * by_x, 0, 1, 0, 0],
                [by_x * by_y, by_y, by_x, 0, 1, 0],
                [by_y**2, 0, 2 * by_y, 0, 0, 1],
            ]
        )
        turned: Floats = moved @ self.products @ moved.T
        return turned

    def with_more(self, other: _Moments) -> _Moments:
        n = self.n + other.n
        x = self.x + (other.x - self.x) * other.n / n
        y = self.y + (other.y - self.y) * other.n / n
        return _Moments(n, x, y, self.about(x, y) + other.about(x, y))


class RunningPearson:
    """Pearson's r of all pairs that were added."""

    def __init__(self) -> None:
        self._scale = (1.0, 1.0)
        self._moments: _Moments | None = None
        self._kept: list[Floats] = []  # each [x and y, pair]
        self._farthest: list[Floats] = []  # the same, of the pairs at the ends of x and of y

    def add(self, x: ArrayLike, y: ArrayLike) -> None:
        """Add pairs x [pair] and y [pair]; one that is not finite leaves no r."""
        both = np.array([x, y], dtype=np.float64)
        xs, ys = np.where(np.isfinite(both), both, math.nan)
        if not xs.size:
            return
        if self._moments is None:  # fourth powers of very large and very small numbers are no floats
            self._scale = (float(np.abs(xs).max()) or 1.0, float(np.abs(ys).max()) or 1.0)
        xs, ys = xs / self._scale[0], ys / self._scale[1]
        ends = [int(pick(one)) for one in (xs, ys) for pick in (np.argmin, np.argmax)]
        self._farthest.append(np.stack([xs[ends], ys[ends]]))
        x_mean, y_mean = float(xs.mean()), float(ys.mean())
        by_x, by_y = xs - x_mean, ys - y_mean
        terms = np.stack([np.ones_like(by_x), by_x, by_y, by_x * by_x, by_x * by_y, by_y * by_y])
        new = _Moments(len(xs), x_mean, y_mean, terms @ terms.T)
        self._moments = new if self._moments is None else self._moments.with_more(new)
        if self._moments.n <= MAX_KEPT:
            self._kept.append(np.stack([xs, ys]))
        else:
            self._kept.clear()

    def result(self, level: float = 0.95) -> Pearson:
        """The correlation so far, and its interval on Fisher's z scale.

        The standard error is the jackknife's, and beyond `MAX_KEPT` pairs that of the fourth moments; neither takes the
        pairs for normal. The quantile is Student's with two degrees of freedom fewer than there are pairs.
        """
        moments = self._moments
        if moments is None or moments.n < 2 or not np.isfinite(moments.products).all():
            return Pearson(math.nan, math.nan, math.nan, 0 if moments is None else moments.n)
        spread_x, spread_y = (math.sqrt(moments.products[at, at] / moments.n) for at in (1, 2))
        if spread_x <= ROUNDING_SHARE * abs(moments.x) or spread_y <= ROUNDING_SHARE * abs(moments.y):
            return Pearson(math.nan, math.nan, math.nan, moments.n)
        r = float(np.clip(moments.products[1, 2] / moments.n / spread_x / spread_y, -1.0, 1.0))
        if moments.n < MIN_PAIRS:
            return Pearson(r, -1.0, 1.0, moments.n)
        if abs(r) >= _NEARLY_ONE:
            return Pearson(r, r, r, moments.n)
        if self._kept:
            error = _jackknife_error(np.concatenate(self._kept, axis=1))
        else:
            weights = _influence(moments, r)
            error = math.sqrt(max(float(weights @ moments.products @ weights), 0.0)) / moments.n / (1 - r * r)
        if not math.isfinite(error):
            return Pearson(r, -1.0, 1.0, moments.n)
        half = t_quantile(moments.n - 2, level) * error
        return Pearson(r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), moments.n)

    def heaviest_share(self) -> float:
        """How much of the variance of r comes from one pair, in 0 to 1: the largest squared influence of all, over their sum.

        Near 0 where an interval of fourth moments can be trusted; NaN where there is no r.
        """
        moments, r = self._moments, self.result().r
        if moments is None or not math.isfinite(r) or abs(r) >= _NEARLY_ONE:
            return math.nan
        weights = _influence(moments, r)
        x, y = np.concatenate(self._farthest, axis=1) - np.array([[moments.x], [moments.y]])
        influences = weights[3] * x * x + weights[4] * x * y + weights[5] * y * y
        whole = float(weights @ moments.products @ weights)
        return float((influences**2).max() / whole) if whole > 0 else math.nan


def _influence(moments: _Moments, r: float) -> Floats:
    """What one pair adds to r, as weights of the terms: with x and y in standard units, xy - r (x^2 + y^2) / 2."""
    square_x, square_y = moments.products[1, 1] / moments.n, moments.products[2, 2] / moments.n
    return np.array([0, 0, 0, -r / 2 / square_x, 1 / math.sqrt(square_x * square_y), -r / 2 / square_y])


def _jackknife_error(pairs: Floats) -> float:
    """Standard error of Fisher's z from leaving out each pair [x and y, pair]; NaN where one pair alone makes x or y vary."""
    n = pairs.shape[1]
    x, y = pairs - pairs.mean(axis=1, keepdims=True)
    left = [float(a @ b) - n / (n - 1) * a * b for a, b in ((x, x), (y, y), (x, y))]  # sums without each pair [pair]
    if any(np.any(squares <= ROUNDING_SHARE * float(a @ a)) for squares, a in ((left[0], x), (left[1], y))):
        return math.nan
    r = np.clip(left[2] / np.sqrt(left[0]) / np.sqrt(left[1]), -_NEARLY_ONE, _NEARLY_ONE)
    z = np.arctanh(r)
    return math.sqrt((n - 1) / n * float(((z - z.mean()) ** 2).sum()))


@dataclass(frozen=True, slots=True)
class ClusterCorrelation:
    """A correlation over columns that stand in clusters.

    Attributes:
        r: Pearson correlation; NaN below four columns or clusters, or where a side is constant.
        low, high: 95% interval of r over clusters like these; NaN where r is NaN or 1 or -1, or hangs on one cluster, and of
            fewer than `MIN_CLUSTERS` clusters.
        p: two-sided, the larger one of the interval's own test and of shuffling whole clusters, which alone decides where r is 1
            or -1; NaN where r is NaN or hangs on one cluster, and of fewer than `MIN_CLUSTERS` clusters.
        n: columns that have both numbers.
    """

    r: float
    low: float
    high: float
    p: float
    n: int


def cluster_correlation(x: ArrayLike, y: ArrayLike, clusters: ArrayLike, seed: int) -> ClusterCorrelation:
    """Pearson correlation over columns, some of which belong together; columns without both numbers are left out.

    The interval is Fisher's z with the variance of leaving out each cluster in turn (jackknife), at a t quantile of one
    degree of freedom less than there are clusters: cluster-wise bootstrap percentiles fall short with 20 columns. p is the larger one of
    two: that of the same z and error, so that no p below .05 stands beside an interval that holds 0, and that of shuffled clusters. For
    this, whole clusters of y change places with others of as many columns, and columns change places within their cluster, so that no
    cluster is torn apart and none must be filled up; a cluster that is the only one of its size is shuffled within itself alone, which
    finds less and never too much.

    Args:
        x: one number for each column, NaN where there is none [column].
        y: likewise [column].
        clusters: cluster of each column, as codes [column].
        seed: of the permutations.

    Raises:
        ValueError: a number is infinite.
    """
    check_finite("numbers", x, y, allow_nan=True)
    xs, ys = as_floats(x), as_floats(y)
    seen = ~np.isnan(xs) & ~np.isnan(ys)
    xs, ys = xs[seen], ys[seen]
    _, of, sizes = np.unique(np.asarray(clusters)[seen], return_inverse=True, return_counts=True)
    n, nan = len(xs), math.nan
    if n < MIN_PAIRS or len(sizes) < MIN_PAIRS or is_constant(xs) or is_constant(ys):
        return ClusterCorrelation(nan, nan, nan, nan, n)
    in_x, in_y = ((one - one.mean()) / np.linalg.norm(one - one.mean()) for one in (xs, ys))
    r = float(np.clip(in_x @ in_y, -1.0, 1.0))
    if only_points() or len(sizes) < MIN_CLUSTERS:
        return ClusterCorrelation(r, nan, nan, nan, n)
    shuffled = np.abs(in_y[_cluster_orders(of, np.random.default_rng(seed))] @ in_x)  # [order]
    low, high, p = _jackknife_interval(in_x, in_y, of)
    return ClusterCorrelation(r, low, high, max(p, permutation_p_value(abs(r), shuffled, tolerance=ROUNDING_SHARE)), n)


def _cluster_orders(of: Codes, rng: np.random.Generator) -> Codes:
    """Random orders [order, column] that put whole clusters in the places of clusters of their size, in any inner order.

    clusters  a a b c c        a <-> c, within themselves as well; b stays, being the only one of its size
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
    """95% interval of r and p of no correlation, by leaving out each cluster, on the scale of Fisher's z, where r is about normal.

    NaN if z is not finite; but where r is 1 or -1 p is 0, which leaves it to the shuffled clusters.
    """
    n_clusters = int(of.max()) + 1
    keeps = of != np.arange(n_clusters)[:, np.newaxis]  # [cluster, column]
    n = keeps.sum(axis=1)
    mean_x, mean_y = keeps @ in_x / n, keeps @ in_y / n
    squares_x = keeps @ in_x**2 - n * mean_x**2
    squares_y = keeps @ in_y**2 - n * mean_y**2
    products = keeps @ (in_x * in_y) - n * mean_x * mean_y
    # Columns were standardised to a sum of squares of 1, so what is left of a constant side is rounding.
    if min(squares_x.min(), squares_y.min()) <= ROUNDING_SHARE:
        return math.nan, math.nan, math.nan
    without = products / np.sqrt(squares_x * squares_y)
    r = float(in_x @ in_y)
    if max(abs(r), float(np.abs(without).max())) >= 1 - ROUNDING_SHARE:
        return math.nan, math.nan, 0.0 if abs(r) >= 1 - ROUNDING_SHARE else math.nan
    z = np.arctanh(without)
    error = math.sqrt((n_clusters - 1) / n_clusters * float(((z - z.mean()) ** 2).sum()))
    half = t_quantile(n_clusters - 1, 0.95) * error
    p = t_p_value(math.atanh(r) / error, n_clusters - 1) if error > 0 else 0.0
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half), p
