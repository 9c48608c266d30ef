"""Sign-flip tests: without a difference, two paired conditions are exchangeable within each cluster.

An exchange flips the sign of a cluster's difference. The test assumes that clusters are a sample, and allows any dependence within a
cluster. An exchange of name pairs generalises to other names with these occupations: if occupations differ, its error rate for other
sets of occupations is far above 5%.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.arrays import Bools, Floats, as_floats, divide
from undertow.stats.interruption import check_interrupted
from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.point_estimates import only_points

MAX_EXACT = 13
"""Maximum number of clusters with exact enumeration of all exchanges (2 to this power)."""
N_EXCHANGES = 10_000
N_FLIPS = 20_000
AT_ONCE = 1000
EFFECTS_AT_ONCE = 32
ROUNDING = 1e-9
"""Tolerance for ties of differences, which is conservative."""
MAX_ALPHA = 0.05
"""1 - level of the narrowest interval."""


@lru_cache(maxsize=2)
def exchange_patterns(n_clusters: int, seed: int) -> Floats:
    """Which clusters are exchanged, 1 or 0: all patterns of up to `MAX_EXACT` of them, else random ones [pattern, cluster]."""
    check_interrupted()
    if n_clusters <= MAX_EXACT:
        patterns = np.arange(2**n_clusters)[:, None] >> np.arange(n_clusters)[None, :] & 1
    else:
        patterns = np.random.default_rng(seed).integers(0, 2, size=(N_EXCHANGES, n_clusters))
    exchanges: Floats = patterns.astype(np.float64)
    exchanges.flags.writeable = False  # shared by all tests of a report
    return exchanges


def exchange_p_values(n_clusters: int, seed: int, is_extreme: Callable[[Floats], Bools]) -> Floats:
    """Share of exchanges that are at least as extreme as the observed data [test].

    Random exchanges include the observed one, so p is never 0.

    Args:
        n_clusters: number of clusters.
        seed: of random exchanges.
        is_extreme: maps patterns [pattern, cluster] to whether they are as extreme [pattern, test].
    """
    patterns = exchange_patterns(n_clusters, seed)
    starts = range(0, len(patterns), 2 * AT_ONCE)
    hits = sum((is_extreme(patterns[at : at + 2 * AT_ONCE]).sum(axis=0) for at in starts), np.zeros(()))
    own = 0 if n_clusters <= MAX_EXACT else 1
    return np.asarray((hits + own) / (len(patterns) + own), dtype=np.float64)


def sign_flip_pvalues(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike], seed: int = 0) -> Floats:
    """Two-sided p-values of the difference of two ratios, each the sum of sums over the sum of counts [test].

    The share of exchanges whose absolute difference is at least the observed one; all exchanges for few clusters, else random ones
    including the observed one. An exchange with a count of 0 on a side counts as extreme. NaN if a side has no counts, fewer than two
    clusters have counts, and within `point_estimates`.

    Args:
        first: sums [cluster, test] and counts [cluster, test] of one side; 0 for clusters without data.
        second: those of the other side.
        seed: of the random exchanges.
    """
    check_interrupted()
    y1, d1, y2, d2 = (as_floats(one) for one in (*first, *second))
    if only_points():
        return np.full(y1.shape[1], math.nan)
    counting = (d1 + d2 > 0).any(axis=1)
    y1, d1, y2, d2 = (one[counting] for one in (y1, d1, y2, d2))

    def differences(patterns: Floats) -> Floats:
        moved_y, moved_d = patterns @ (y2 - y1), patterns @ (d2 - d1)
        sides = (
            (y1.sum(axis=0) + moved_y, d1.sum(axis=0) + moved_d),
            (y2.sum(axis=0) - moved_y, d2.sum(axis=0) - moved_d),
        )
        one, other = (divide(sums, np.where(counts > ROUNDING, counts, 0.0)) for sums, counts in sides)
        return np.abs(one - other)

    def is_extreme(patterns: Floats) -> Bools:
        moved = differences(patterns)
        return np.asarray((moved >= observed - ROUNDING) | np.isnan(moved))

    observed = differences(np.zeros((1, len(y1))))[0]  # [test]
    too_few = np.count_nonzero(d1 + d2 > 0, axis=0) < 2
    return np.where(np.isnan(observed) | too_few, math.nan, exchange_p_values(len(y1), seed, is_extreme))


def crossed_exchange_p(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    rows: ArrayLike,
    columns: ArrayLike,
    seed: int = 0,
) -> float:
    """Two-sided p-value of the difference of two ratios over a crossed design: the larger of two exchange tests.

    One exchanges whole rows, the other whole columns; a side with one cluster is ignored. Each ignores the variance of the other side, so
    this p is a lower bound if both vary; `undertow.stats.intervals.multiway_cluster` has a test that is valid then.

    Args:
        first: numerator and denominator of one side [item]; 0 for items without data.
        second: those of the other side.
        rows: cluster of each item on one side, as codes [item].
        columns: cluster of each item on the other side, as codes [item].
        seed: of random exchanges.
    """
    check_interrupted()
    p_values = []
    for codes in (rows, columns):
        names, of = np.unique(np.asarray(codes), return_inverse=True)
        if len(names) > 1:
            sums = [np.bincount(of, weights=as_floats(one))[:, None] for one in (*first, *second)]
            p_values.append(float(sign_flip_pvalues((sums[0], sums[1]), (sums[2], sums[3]), seed)[0]))
    return math.nan if not p_values or any(map(math.isnan, p_values)) else max(p_values)


@dataclass(frozen=True, slots=True)
class SignFlipTest:
    """The sign-flip test of one mean difference, and the interval that inverts it.

    The interval uses the means of random subsets of the clusters (Hartigan 1969, "Using Subsample Values as Typical Values",
    JASA 64). It excludes 0 exactly if the p-value is at most 1 - level. Both are exact for symmetric distributions of differences.

    Attributes:
        value: the mean difference; NaN without data.
        p: two-sided p-value, including the observed signs; NaN below `MIN_CLUSTERS` clusters.
        n_clusters: clusters with a difference.
        n_differing: clusters with a difference other than 0. With five of them p cannot be below 0.05.
        lowest, highest: the most extreme means of random subsets, most extreme first [subset].
    """

    value: float
    p: float
    n_clusters: int
    n_differing: int
    lowest: Floats
    highest: Floats

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Lower and upper limit at a level of at least 0.95; NaN for too few clusters, infinite if the level excludes no mean."""
        if not len(self.lowest):
            return math.nan, math.nan
        # p is (1 + hits) / (1 + N_FLIPS); each hit is a subset with a mean on the other side of 0.
        place = math.floor((1 - level) * (1 + N_FLIPS) + ROUNDING)
        if place < 1:
            return -math.inf, math.inf
        at = min(place, len(self.lowest)) - 1
        return float(self.lowest[at]), float(self.highest[at])

    @property
    def p_above(self) -> float:
        """One-sided p-value against a mean of at most 0."""
        return self.p / 2 if self.value > 0 or math.isnan(self.p) else 1.0

    @property
    def p_below(self) -> float:
        """One-sided p-value against a mean of at least 0."""
        return self.p / 2 if self.value < 0 or math.isnan(self.p) else 1.0


def flip_means(sums: ArrayLike, sizes: ArrayLike, seed: int) -> list[SignFlipTest]:
    """The sign-flip test of each mean difference (sum of sums divided by sum of sizes) [effect].

    Args:
        sums: sum of the differences in each cluster, 0 without data [cluster, effect].
        sizes: number of these differences, 0 without data [cluster, effect].
        seed: of the signs. Equal seeds give equal signs for an equal number of clusters.
    """
    totals, counts = as_floats(sums), as_floats(sizes)
    flips: list[SignFlipTest] = []
    for start in range(0, totals.shape[1], EFFECTS_AT_ONCE):
        part = slice(start, start + EFFECTS_AT_ONCE)
        flips += _flip_some_means(totals[:, part], counts[:, part], seed)
    return flips


def _flip_some_means(sums: Floats, sizes: Floats, seed: int) -> list[SignFlipTest]:
    check_interrupted()
    whole, n_all = sums.sum(axis=0), sizes.sum(axis=0)
    n_clusters = np.count_nonzero(sizes > 0, axis=0)
    enough = (n_clusters >= MIN_CLUSTERS) & (not only_points())
    p, lowest, highest = np.full(len(whole), math.nan), np.empty((0, len(whole))), np.empty((0, len(whole)))
    if enough.any():
        signs = _random_signs(len(sums), seed)
        halves = np.empty((2 * N_FLIPS, len(whole)))  # means of the clusters with and without flipped signs
        hits = np.zeros(len(whole))
        for start in range(0, N_FLIPS, AT_ONCE):
            drawn = signs[start : start + AT_ONCE].astype(np.float64)
            flipped, of_sizes = drawn @ sums, drawn @ sizes
            hits += np.count_nonzero(np.abs(flipped) >= np.abs(whole) - ROUNDING, axis=0)
            for side, at in ((1, start), (-1, N_FLIPS + start)):
                size = (n_all + side * of_sizes) / 2
                halves[at : at + len(drawn)] = divide(
                    (whole + side * flipped) / 2, np.where(size > ROUNDING, size, 0.0)
                )
        p = np.where(enough, (1 + hits) / (1 + N_FLIPS), math.nan)
        n_extreme = math.floor(MAX_ALPHA * (1 + N_FLIPS) + ROUNDING)
        # An empty subset excludes no mean.
        ends = (np.where(np.isnan(halves), -math.inf, side * halves) for side in (1, -1))
        lowest, highest = (np.sort(np.partition(end, n_extreme - 1, axis=0)[:n_extreme], axis=0) for end in ends)
    return [
        SignFlipTest(
            value, float(p[at]), int(n_clusters[at]), int(np.count_nonzero(np.abs(sums[:, at]) > ROUNDING)),
            lowest[:, at] if enough[at] else lowest[:0, at], -highest[:, at] if enough[at] else highest[:0, at],
        )
        for at, value in enumerate(divide(whole, n_all).tolist())
    ]  # fmt: skip


@lru_cache(maxsize=4)
def _random_signs(n_clusters: int, seed: int) -> NDArray[np.int8]:
    """Random signs [flip, cluster], cached because many effects share their clusters."""
    draws = np.random.default_rng(seed).integers(0, 2, size=(N_FLIPS, n_clusters), dtype=np.int8)
    signs: NDArray[np.int8] = 2 * draws - 1
    signs.flags.writeable = False
    return signs


# p-value of a permutation test, which assumes only exchangeable labels under the null.


def permutation_p_value(observed: float, shuffled: ArrayLike, *, tolerance: float = 0.0) -> float:
    """Share of orders whose statistic is at least the observed one, which is included, so p is never 0.

    Give absolute values for a two-sided test.

    Args:
        observed: the statistic of the observed order.
        shuffled: statistics of other orders [order]; NaN counts as at least as large.
        tolerance: statistics within this distance of the observed one are ties.
    """
    statistics = np.asarray(shuffled, dtype=np.float64)
    n_large = np.count_nonzero(~(statistics < observed - tolerance))
    return float((n_large + 1) / (len(statistics) + 1))
