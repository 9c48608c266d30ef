"""Differences of two estimates from the same clusters: intervals that know the clusters, and a test that exchanges the two.

A difference is measured again without each group of clusters, both sides losing the same ones. The interval is that of the
delete-a-group jackknife; the test flips the signs of what the groups contribute, which is what exchanging the two sides of a
group does. A difference is tested against a margin, the smallest that is of interest: 0 asks whether there is any. Arrays in,
arrays out; knows nothing about what is estimated, or how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.intervals.jackknife import jackknife_variance
from undertow.stats.numeric_range import usable
from undertow.stats.significance.ratio_exchange import AT_ONCE, MAX_EXACT, exchange_patterns

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]

ROUNDING_SHARE = 1e-9
"""Sums that are nearer than this share of what they add up are equal, which errs on the side of not finding. Contributions are small
differences of large numbers, so that they have fewer digits than values as they were read; those below this share of the values
are ties."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is left of differences without each group of clusters, in one way of putting items into clusters.

    Attributes:
        without: the differences [group, difference].
        counting: whether a group has anything of a difference; one that has not leaves it as it is [group, difference].
    """

    without: Floats
    counting: Bools


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """The errors of differences, each [difference].

    Attributes:
        low, high: of the interval; NaN where there is none.
        inner_low, inner_high: of the interval that leaves out twice as much, for two one-sided tests of equivalence.
        p: of a difference that is no larger than its margin; NaN where nothing can be exchanged.
        n_clusters: groups of clusters that it rests on; where items are in clusters in two ways, of the way that has fewer.
    """

    low: Floats
    high: Floats
    inner_low: Floats
    inner_high: Floats
    p: Floats
    n_clusters: Counts


def paired_errors(  # noqa: PLR0913 - the ways, their cells, and how they are judged
    whole: ArrayLike,
    ways: Sequence[LeftOut],
    cells: LeftOut | None = None,
    *,
    seed: int = 0,
    level: float = 0.95,
    margins: ArrayLike = 0.0,
    sizes: ArrayLike = 0.0,
) -> PairedErrors:
    """Intervals and p-values of differences, clustered in one way or in two.

    One way: the interval is t with one degree of freedom fewer than there are groups (Kott 2001, as in
    `stats.intervals.jackknife`). Two ways: the variance is that of the cells (clusters of items that are alike in both), and what rows
    and columns add to it (Cameron, Gelbach and Miller 2011, "Robust Inference With Multiway Clustering"), with
    Satterthwaite's degrees of freedom; a way of a single cluster adds nothing. p is that of `flip_p_values`; of two ways it is the
    larger of both, and never below that of the t interval, since flipping whole rows does not know that columns differ too.

    NaN where a difference rests on fewer than six groups. One that no group changes has an interval without width.

    Args:
        whole: differences with all clusters [difference].
        ways: without each group of clusters, in one way or in two.
        cells: without each group of cells; needed for two ways.
        seed: of the flips, where there are too many groups to try all.
        level: of the intervals; the inner ones have 2 * level - 1.
        margins: smallest differences of interest, 0 or more; one number, or [difference].
        sizes: of the values that were subtracted from each other; one number, or [difference].

    Raises:
        ValueError: there are other than one or two ways, two without cells, or shapes do not go together.
    """
    from scipy.stats import t

    differences = usable(whole)
    beyond = _beyond(differences, margins)
    if len(ways) not in (1, 2) or (len(ways) == 2) != (cells is not None):
        raise ValueError(f"need one way, or two and their cells; got {len(ways)} ways")
    parts = [jackknife_variance(differences, one.without, one.counting) for one in ways]
    ps = np.stack([flip_p_values(differences, one, seed, margins=margins, sizes=sizes) for one in ways])
    if cells is None:
        (variance, n_clusters), (p,) = parts[0], ps
        df = n_clusters - 1.0
    else:
        of_cells = jackknife_variance(differences, cells.without, cells.counting)
        variance, df = _crossed(parts, of_cells)
        n_clusters = _fewest([n for _, n in parts])
        far = np.divide(beyond, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
        of_interval = np.where((variance > 0) | (beyond == 0), 2 * t.sf(far, np.maximum(df, 1)), 0.0)
        p = np.maximum(np.where(np.isnan(ps), -np.inf, ps).max(axis=0), of_interval)
        p = np.where(np.isnan(variance) | np.isnan(ps).all(axis=0), np.nan, p)
    enough = n_clusters >= MIN_CLUSTERS
    error = np.where(enough, np.sqrt(variance), math.nan)
    half, inner = (t.ppf(share, np.maximum(df, 1)) * error for share in ((1 + level) / 2, level))
    return PairedErrors(
        low=differences - half,
        high=differences + half,
        inner_low=differences - inner,
        inner_high=differences + inner,
        p=np.where(enough, p, math.nan),
        n_clusters=n_clusters,
    )


def _beyond(differences: Floats, margins: ArrayLike) -> Floats:
    """How far differences are beyond their margins; 0 within."""
    excess: Floats = np.maximum(np.abs(differences) - np.asarray(margins, dtype=np.float64), 0.0)
    return excess


def flip_p_values(
    whole: ArrayLike, left: LeftOut, seed: int = 0, *, margins: ArrayLike = 0.0, sizes: ArrayLike = 0.0
) -> Floats:
    """Two-sided p-values of differences [difference]: how often flipped signs of the groups' contributions add up to as much.

    If the two sides do not differ, they can be exchanged within each cluster. Of a difference of sums or means that flips the sign
    of what the cluster contributes; of others it does so as far as they are sums near their value. What a group contributes is its
    pseudo-value, all of them moved so that their mean is the difference itself. All flips where a difference rests on 13 groups
    or fewer; else random ones, the observed signs counted in, so that p is never 0. NaN where fewer than two groups count, or
    one without which there is no difference.

    With a margin, what is flipped is how far each contribution lies beyond it: the null is a difference as large as the margin on the
    side that was seen, of contributions that spread as far to either side. A difference within its margin has p = 1.

    Args:
        whole: differences with all groups [difference].
        left: without each group.
        seed: of random flips.
        margins: smallest differences of interest, 0 or more; one number, or [difference].
        sizes: of the values that were subtracted; contributions below 1e-9 of them are ties, which count as 0.
    """
    differences = usable(whole)
    contributions = _contributions(differences, LeftOut(usable(left.without), left.counting))
    smallest = ROUNDING_SHARE * np.asarray(sizes, dtype=np.float64)
    contributions = np.where(np.abs(contributions) <= smallest, 0.0, contributions)
    margin = np.broadcast_to(np.asarray(margins, dtype=np.float64), differences.shape)
    contributions = np.where(left.counting, contributions - np.sign(differences) * margin, 0.0)
    p = np.full(contributions.shape[1], math.nan)
    masks, of = np.unique(left.counting.T, axis=0, return_inverse=True)
    of = of.reshape(-1)
    for at, mask in enumerate(masks):
        if mask.sum() > 1:
            chosen = of == at
            p[chosen] = _flipped(contributions[np.ix_(mask, chosen)], seed)
    within = (np.abs(differences) <= margin) & (margin > 0)
    return np.where(np.isfinite(p) & within, 1.0, p)


def _contributions(whole: Floats, left: LeftOut) -> Floats:
    """What each group contributes to a difference; 0 where it does not count [group, difference]."""
    n_groups = left.counting.sum(axis=0)
    sums = np.where(left.counting, left.without, 0.0).sum(axis=0)
    means = np.divide(sums, n_groups, out=np.full(len(whole), math.nan), where=n_groups > 0)
    contributions: Floats = np.where(left.counting, whole + (n_groups - 1) * (means - left.without), 0.0)
    return contributions


def _flipped(contributions: Floats, seed: int) -> Floats:
    """p-values of the sums of contributions [group, difference]: [difference]."""
    n_groups = len(contributions)
    observed = np.abs(contributions.sum(axis=0)) - ROUNDING_SHARE * np.abs(contributions).sum(axis=0)
    patterns, hits = exchange_patterns(n_groups, seed), np.zeros(contributions.shape[1])
    for start in range(0, len(patterns), AT_ONCE):
        signs = 1 - 2 * patterns[start : start + AT_ONCE]
        hits += np.count_nonzero(np.abs(signs @ contributions) >= observed, axis=0)
    extra = 0 if n_groups <= MAX_EXACT else 1
    return np.where(np.isnan(observed), math.nan, (hits + extra) / (len(patterns) + extra))


def _crossed(parts: Sequence[tuple[Floats, Counts]], of_cells: tuple[Floats, Counts]) -> tuple[Floats, Floats]:
    """Variances, and their degrees of freedom, of items in clusters in two ways."""
    base, n_cells = of_cells
    added = [np.where(n > 1, np.maximum(variance - base, 0.0), 0.0) for variance, n in parts]
    missing = [np.isnan(variance) & (n > 1) for variance, n in parts]
    variance = base + sum(added)
    squares = base**2 / np.maximum(n_cells - 1, 1)
    squares = squares + sum(part**2 / np.maximum(n - 1, 1) for part, (_, n) in zip(added, parts, strict=True))
    df = np.divide(variance**2, squares, out=np.full_like(variance, math.inf), where=squares > 0)
    unknown = np.logical_or.reduce([*missing, _fewest([n for _, n in parts]) < 2])
    return np.where(unknown, math.nan, variance), df


def _fewest(counts: Sequence[Counts]) -> Counts:
    """The smaller of both numbers of clusters; a way of one cluster leaves it to the other [difference]."""
    first, second = counts
    either = np.where(first < 2, second, np.where(second < 2, first, np.minimum(first, second)))
    return either.astype(np.int64)
