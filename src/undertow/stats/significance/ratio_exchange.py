"""Exchange test of two ratios from the same clusters.

Under no effect the two sides of a cluster (a pair's woman and man, its answers with knowledge and without) could as well have been
the other way round. Nothing is assumed about how items of a cluster hang together; that clusters are a sample of others is. So
an exchange of name pairs speaks of other names and these occupations: where occupations differ, it finds a difference of their mean
in far more than 5 of 100 other sets of occupations.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.intervals.point_estimates import only_points
from undertow.stats.numeric_range import usable

Floats = NDArray[np.float64]

MAX_EXACT = 13
"""Clusters up to which all exchanges are tried: 2 to this power of them."""
N_EXCHANGES = 10_000
AT_ONCE = 2_000
ROUNDING = 1e-9
"""Differences nearer than this count as equal, which errs on the side of not finding."""


def sign_flip_pvalues(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike], seed: int = 0) -> Floats:
    """Two-sided p-values of the difference of two ratios, each the sum of sums over the sum of counts [test].

    The share of exchanges whose difference is at least as large as the observed one, in absolute value; all exchanges where
    there are few clusters, else random ones with the observed one counted in. An exchange in which a side counts nothing is
    counted as one that differs as much. NaN where a side counts nothing, or fewer than two clusters count anything, and within
    `point_estimates`.

    Args:
        first: sums [cluster, test] and counts [cluster, test] of one side; 0 where a cluster has none.
        second: those of the other side.
        seed: of the random exchanges.

    Raises:
        ValueError: the four have not one shape of two axes.
    """
    y1, d1, y2, d2 = (usable(one) for one in (*first, *second))
    if y1.ndim != 2 or not y1.shape == d1.shape == y2.shape == d2.shape:
        raise ValueError(f"need four [cluster, test] of one shape; got {y1.shape}, {d1.shape}, {y2.shape}, {d2.shape}")
    if only_points():
        return np.full(y1.shape[1], math.nan)
    counting = (d1 + d2 > 0).any(axis=1)
    y1, d1, y2, d2 = (one[counting] for one in (y1, d1, y2, d2))
    exact = len(y1) <= MAX_EXACT
    exchanged, hits = _exchanges(len(y1), seed), np.zeros(y1.shape[1])
    observed = np.abs(_difference(y1, d1, y2, d2, np.zeros((1, len(y1)))))[0]  # [test]
    for start in range(0, len(exchanged), AT_ONCE):
        differences = np.abs(_difference(y1, d1, y2, d2, exchanged[start : start + AT_ONCE]))
        hits += np.count_nonzero((differences >= observed - ROUNDING) | np.isnan(differences), axis=0)
    extra = 0 if exact else 1
    p = (hits + extra) / (len(exchanged) + extra)
    too_few = np.count_nonzero(d1 + d2 > 0, axis=0) < 2
    return np.where(np.isnan(observed) | too_few, math.nan, p)


def crossed_exchange_p(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    rows: ArrayLike,
    columns: ArrayLike,
    seed: int = 0,
) -> float:
    """Two-sided p-value of the difference of two ratios over a crossed design: the larger one of two exchange tests.

    One exchanges the sides of whole rows, the other those of whole columns; a side of the design that is one cluster decides
    nothing. Neither knows that the other side of the design differs too, so that this p is a lower bound where both do:
    `undertow.stats.intervals.multiway_cluster` has the test that is valid then.

    Args:
        first: numerator and denominator of one side [item]; 0 where an item has none.
        second: those of the other side.
        rows: cluster of each item on one side, as codes [item].
        columns: cluster of each item on the other side, as codes [item].
        seed: of random exchanges.
    """
    p_values = []
    for codes in (rows, columns):
        names, of = np.unique(np.asarray(codes), return_inverse=True)
        if len(names) > 1:
            sums = [np.bincount(of, weights=usable(one))[:, None] for one in (*first, *second)]
            p_values.append(float(sign_flip_pvalues((sums[0], sums[1]), (sums[2], sums[3]), seed)[0]))
    return math.nan if not p_values or any(map(math.isnan, p_values)) else max(p_values)


def exchange_patterns(n_clusters: int, seed: int) -> Floats:
    """Which clusters have their sides exchanged: all patterns of up to `MAX_EXACT` of them, else random ones [pattern, cluster].

    1 for those that are exchanged, and 0 for the others; it cannot be written to.
    """
    return _exchanges(n_clusters, seed)


def _difference(y1: Floats, d1: Floats, y2: Floats, d2: Floats, exchanged: Floats) -> Floats:
    """The difference after each exchange [exchange, test]."""
    moved_y, moved_d = exchanged @ (y2 - y1), exchanged @ (d2 - d1)
    return _ratio(y1.sum(axis=0) + moved_y, d1.sum(axis=0) + moved_d) - _ratio(
        y2.sum(axis=0) - moved_y, d2.sum(axis=0) - moved_d
    )


def _ratio(sums: Floats, counts: Floats) -> Floats:
    ratio: Floats = np.divide(sums, counts, out=np.full(sums.shape, math.nan), where=counts > ROUNDING)
    return ratio


@lru_cache(maxsize=2)
def _exchanges(n_clusters: int, seed: int) -> Floats:
    """Which clusters have their sides exchanged [exchange, cluster]; all patterns where there are few, none among them."""
    if n_clusters <= MAX_EXACT:
        patterns = np.arange(2**n_clusters)[:, None] >> np.arange(n_clusters)[None, :] & 1
    else:
        patterns = np.random.default_rng(seed).integers(0, 2, size=(N_EXCHANGES, n_clusters))
    exchanges: Floats = patterns.astype(np.float64)
    exchanges.flags.writeable = False  # it is shared by all tests of a report
    return exchanges
