"""Sign-flip tests: without a difference, two paired conditions are exchangeable within each cluster.

An exchange flips the sign of a cluster's difference. The test assumes that clusters are a sample, and allows any dependence within a
cluster. An exchange of name pairs generalises to other names with these occupations: if occupations differ, its error rate for other
sets of occupations is far above 5%. Paired differences come from jackknife replicates that omit a group of clusters on both sides; their
margin is the smallest difference of interest, 0 for any difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from undertow.stats.arrays import Bools, Codes, Floats, as_floats, divide
from undertow.stats.context import check_interrupted, only_points
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, jackknife_variance, skewed_interval, skewness_of_sum

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

    Random exchanges include the observed one, so p is never 0. `is_extreme` maps patterns [pattern, cluster] to whether they are as
    extreme [pattern, test].
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
    clusters have counts, and within `point_estimates`. Either side has sums and counts [cluster, test], 0 for clusters without data.
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

    One exchanges whole rows, the other whole columns (codes [item]); a side with one cluster is ignored. Each ignores the variance of the
    other side, so this p is a lower bound if both vary; `undertow.stats.intervals.multiway_cluster` has a test that is valid then.
    Numerators and denominators are [item], 0 for items without data.
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

    Sums and numbers of the differences in each cluster are 0 without data [cluster, effect]. Equal seeds give equal signs for an equal
    number of clusters.
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

    Give absolute values for a two-sided test. Statistics of shuffled orders within `tolerance` of the observed one are ties; NaN counts as
    at least as large [order].
    """
    statistics = np.asarray(shuffled, dtype=np.float64)
    n_large = np.count_nonzero(~(statistics < observed - tolerance))
    return float((n_large + 1) / (len(statistics) + 1))


CONTRIBUTION_ROUNDING = 1e-9
"""Relative difference below which sums are equal, which is conservative. Contributions are small differences of large numbers and
have fewer significant digits than the values; contributions below this share of the values are ties."""


@dataclass(frozen=True, slots=True)
class JackknifeReplicates:
    """Jackknife replicates of differences, for one clustering of the items: without each group of clusters [group, difference].

    `counting` is whether a group has data for a difference [group, difference].
    """

    without: Floats
    counting: Bools


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """Intervals and tests of differences, each [difference].

    Attributes:
        low, high: of the interval; NaN without one.
        inner_low, inner_high: of the interval with twice the error rate, for two one-sided tests of equivalence.
        p: for the null of a difference within the margin; NaN without exchangeable groups.
        n_clusters: number of groups of clusters; with two clusterings, of the one with fewer.
    """

    low: Floats
    high: Floats
    inner_low: Floats
    inner_high: Floats
    p: Floats
    n_clusters: Codes


def paired_errors(  # noqa: PLR0913 - the ways, their cells, and the test
    whole: ArrayLike,
    ways: Sequence[JackknifeReplicates],
    cells: JackknifeReplicates | None = None,
    *,
    seed: int = 0,
    margins: ArrayLike = 0.0,
    sizes: ArrayLike = 0.0,
) -> PairedErrors:
    """Intervals and p-values of differences, clustered in one way or in two.

    One way: the interval is t with one degree of freedom fewer than there are groups (Kott 2001, as in
    `jackknife_variance`), and longer on the side of the tail of skewed contributions (`skewed_interval`). Two ways: the variance is
    that of the cells (items with the same clusters in both ways), plus the contributions of rows and columns (Cameron, Gelbach and
    Miller 2011, "Robust Inference With Multiway Clustering"), with Satterthwaite's degrees of freedom; a way with a single cluster
    contributes nothing. p is that of `flip_p_values`; with two ways it is the larger of both and at least that of the t interval,
    because flipping whole rows ignores the variance of columns.

    NaN for a difference with fewer than six groups. The interval has no width if no group changes the difference.

    Args:
        whole: differences with all clusters [difference].
        ways: without each group of clusters, in one way or in two.
        cells: without each group of cells; needed for two ways.
        seed: of random flips.
        margins: smallest differences of interest, 0 or more; one number, or [difference].
        sizes: size of the subtracted values; one number, or [difference].
    """
    check_interrupted()
    differences = as_floats(whole)
    parts = [jackknife_variance(differences, one.without, one.counting) for one in ways]
    ps = np.stack([flip_p_values(differences, one, seed, margins=margins, sizes=sizes) for one in ways])
    skews = [
        skewness_of_sum((_contributions(differences, one, sizes) - differences).T, one.counting.T)
        for one in (*ways, *filter(None, [cells]))
    ]
    if cells is None:
        (variance, n_clusters), (p,), (skewness,) = parts[0], ps, skews
        df = n_clusters - 1.0
    else:
        of_cells = jackknife_variance(differences, cells.without, cells.counting)
        (_, n_rows), (_, n_columns) = parts
        # A way with one cluster is ignored.
        n_clusters = np.where(n_rows < 2, n_columns, np.where(n_columns < 2, n_rows, np.minimum(n_rows, n_columns)))
        variance, df, skewness = _add_ways(parts, of_cells, n_clusters, skews)
        beyond = np.maximum(np.abs(differences) - np.asarray(margins, dtype=np.float64), 0.0)  # 0 within the margin
        far = np.divide(beyond, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
        of_interval = np.where((variance > 0) | (beyond == 0), 2 * special.stdtr(np.maximum(df, 1), -far), 0.0)
        p = np.maximum(np.where(np.isnan(ps), -np.inf, ps).max(axis=0), of_interval)
        p = np.where(np.isnan(variance) | np.isnan(ps).all(axis=0), np.nan, p)
    enough = n_clusters >= MIN_CLUSTERS
    error = np.where(enough, np.sqrt(variance), math.nan)
    t = (special.stdtrit(np.maximum(df, 1), share) for share in (0.975, 0.95))
    (low, high), (inner_low, inner_high) = (skewed_interval(differences, error, one, skewness) for one in t)
    p = np.where(enough, p, math.nan)
    return PairedErrors(low, high, inner_low, inner_high, p, n_clusters)


def flip_p_values(
    whole: ArrayLike, left: JackknifeReplicates, seed: int = 0, *, margins: ArrayLike = 0.0, sizes: ArrayLike = 0.0
) -> Floats:
    """Two-sided p-values of differences [difference], by flipping the signs of the groups' contributions.

    If the two sides do not differ, they are exchangeable within each cluster. For a difference of sums or means, an exchange flips the
    sign of the cluster's contribution; for other statistics this holds approximately, as far as they are linear. The contribution of a
    group is its pseudo-value, shifted so that the mean is the difference itself. All flips for up to 13 groups; else random ones
    including the observed signs, so p is never 0. NaN if fewer than two groups count, or if the difference is undefined without one.

    With a margin, contributions beyond the margin are flipped: the null is a difference equal to the margin on the observed side, with
    symmetric contributions. A difference within its margin has p = 1. `margins` and `sizes` are those of `paired_errors`; contributions
    below 1e-9 of the sizes are ties and count as 0.
    """
    differences = as_floats(whole)
    contributions = _contributions(differences, left, sizes)
    margin = np.broadcast_to(np.asarray(margins, dtype=np.float64), differences.shape)
    contributions = np.where(left.counting, contributions - np.sign(differences) * margin, 0.0)
    p = np.full(contributions.shape[1], math.nan)
    masks, of = np.unique(left.counting.T, axis=0, return_inverse=True)
    of = of.reshape(-1)
    for at, mask in enumerate(masks):
        if mask.sum() > 1:
            chosen = of == at
            p[chosen] = _flip_sums(contributions[np.ix_(mask, chosen)], seed)
    within = (np.abs(differences) <= margin) & (margin > 0)
    return np.where(np.isfinite(p) & within, 1.0, p)


def _contributions(differences: Floats, left: JackknifeReplicates, sizes: ArrayLike) -> Floats:
    """Pseudo-values of the groups, shifted so that their mean is the difference [group, difference]."""
    without, n_groups = as_floats(left.without), left.counting.sum(axis=0)
    means = divide(np.where(left.counting, without, 0.0).sum(axis=0), n_groups)
    contributions = differences + (n_groups - 1) * (means - without)
    smallest = CONTRIBUTION_ROUNDING * np.asarray(sizes, dtype=np.float64)
    return np.where(np.abs(contributions) <= smallest, 0.0, contributions)


def _flip_sums(contributions: Floats, seed: int) -> Floats:
    """p-values of the sums of contributions [group, difference]: [difference]."""
    observed = np.abs(contributions.sum(axis=0)) - CONTRIBUTION_ROUNDING * np.abs(contributions).sum(axis=0)

    def is_extreme(patterns: Floats) -> Bools:
        return np.asarray(np.abs((1 - 2 * patterns) @ contributions) >= observed)

    return np.where(np.isnan(observed), math.nan, exchange_p_values(len(contributions), seed, is_extreme))


def _add_ways(
    parts: Sequence[tuple[Floats, Codes]], of_cells: tuple[Floats, Codes], n_clusters: Codes, skews: Sequence[Floats]
) -> tuple[Floats, Floats, Floats]:
    """Variances, their degrees of freedom, and skewness (from that of the ways and the cells), for items with two clusterings."""
    base, _ = of_cells
    added = [np.where(n > 1, np.maximum(variance - base, 0.0), 0.0) for variance, n in parts]
    missing = [np.isnan(variance) & (n > 1) for variance, n in parts]
    summands, sizes = [*added, base], [n for _, n in (*parts, of_cells)]
    variance = np.asarray(sum(summands))
    squares = np.asarray(sum(one**2 / np.maximum(n - 1, 1) for one, n in zip(summands, sizes, strict=True)))
    df = np.divide(variance**2, squares, out=np.full_like(variance, math.inf), where=squares > 0)
    skewness = sum(skew * divide(one, variance) ** 1.5 for skew, one in zip(skews, summands, strict=True))
    unknown = np.logical_or.reduce([*missing, n_clusters < 2])
    return np.where(unknown, math.nan, variance), df, np.asarray(skewness)
