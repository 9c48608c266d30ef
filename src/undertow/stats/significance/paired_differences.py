"""Differences of two estimates from the same clusters: clustered intervals and exchange tests.

Jackknife replicates omit a group of clusters on both sides. The interval is that of the delete-a-group jackknife; the test flips the
signs of the groups' contributions, which exchanges the two sides of a group. A difference is tested against a margin, the smallest
difference of interest; 0 tests for any difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import Bools, Codes, Floats, as_floats, divide
from undertow.stats.interruption import check_interrupted
from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.intervals.jackknife import jackknife_variance
from undertow.stats.significance.sign_flip import exchange_p_values

CONTRIBUTION_ROUNDING = 1e-9
"""Relative difference below which sums are equal, which is conservative. Contributions are small differences of large numbers and
have fewer significant digits than the values; contributions below this share of the values are ties."""


@dataclass(frozen=True, slots=True)
class JackknifeReplicates:
    """Jackknife replicates of differences, for one clustering of the items.

    Attributes:
        without: the differences without each group of clusters [group, difference].
        counting: whether a group has data for a difference [group, difference].
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
    level: float = 0.95,
    margins: ArrayLike = 0.0,
    sizes: ArrayLike = 0.0,
) -> PairedErrors:
    """Intervals and p-values of differences, clustered in one way or in two.

    One way: the interval is t with one degree of freedom fewer than there are groups (Kott 2001, as in
    `stats.intervals.jackknife`). Two ways: the variance is that of the cells (items with the same clusters in both ways), plus the
    contributions of rows and columns (Cameron, Gelbach and Miller 2011, "Robust Inference With Multiway Clustering"), with
    Satterthwaite's degrees of freedom; a way with a single cluster contributes nothing. p is that of `flip_p_values`; with two ways it is
    the larger of both and at least that of the t interval, because flipping whole rows ignores the variance of columns.

    NaN for a difference with fewer than six groups. The interval has no width if no group changes the difference.

    Args:
        whole: differences with all clusters [difference].
        ways: without each group of clusters, in one way or in two.
        cells: without each group of cells; needed for two ways.
        seed: of random flips.
        level: of the intervals; the inner ones have 2 * level - 1.
        margins: smallest differences of interest, 0 or more; one number, or [difference].
        sizes: size of the subtracted values; one number, or [difference].
    """
    check_interrupted()
    differences = as_floats(whole)
    parts = [jackknife_variance(differences, one.without, one.counting) for one in ways]
    ps = np.stack([flip_p_values(differences, one, seed, margins=margins, sizes=sizes) for one in ways])
    if cells is None:
        (variance, n_clusters), (p,) = parts[0], ps
        df = n_clusters - 1.0
    else:
        of_cells = jackknife_variance(differences, cells.without, cells.counting)
        (_, n_rows), (_, n_columns) = parts
        # A way with one cluster is ignored.
        n_clusters = np.where(n_rows < 2, n_columns, np.where(n_columns < 2, n_rows, np.minimum(n_rows, n_columns)))
        variance, df = _add_ways(parts, of_cells, n_clusters)
        beyond = np.maximum(np.abs(differences) - np.asarray(margins, dtype=np.float64), 0.0)  # 0 within the margin
        far = np.divide(beyond, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
        of_interval = np.where((variance > 0) | (beyond == 0), 2 * special.stdtr(np.maximum(df, 1), -far), 0.0)
        p = np.maximum(np.where(np.isnan(ps), -np.inf, ps).max(axis=0), of_interval)
        p = np.where(np.isnan(variance) | np.isnan(ps).all(axis=0), np.nan, p)
    enough = n_clusters >= MIN_CLUSTERS
    error = np.where(enough, np.sqrt(variance), math.nan)
    half, inner = (special.stdtrit(np.maximum(df, 1), share) * error for share in ((1 + level) / 2, level))
    return PairedErrors(
        low=differences - half,
        high=differences + half,
        inner_low=differences - inner,
        inner_high=differences + inner,
        p=np.where(enough, p, math.nan),
        n_clusters=n_clusters,
    )


def flip_p_values(
    whole: ArrayLike, left: JackknifeReplicates, seed: int = 0, *, margins: ArrayLike = 0.0, sizes: ArrayLike = 0.0
) -> Floats:
    """Two-sided p-values of differences [difference], by flipping the signs of the groups' contributions.

    If the two sides do not differ, they are exchangeable within each cluster. For a difference of sums or means, an exchange flips the
    sign of the cluster's contribution; for other statistics this holds approximately, as far as they are linear. The contribution of a
    group is its pseudo-value, shifted so that the mean is the difference itself. All flips for up to 13 groups; else random ones
    including the observed signs, so p is never 0. NaN if fewer than two groups count, or if the difference is undefined without one.

    With a margin, contributions beyond the margin are flipped: the null is a difference equal to the margin on the observed side, with
    symmetric contributions. A difference within its margin has p = 1.

    Args:
        whole: differences with all groups [difference].
        left: without each group.
        seed: of random flips.
        margins: smallest differences of interest, 0 or more; one number, or [difference].
        sizes: size of the subtracted values; contributions below 1e-9 of them are ties and count as 0.
    """
    differences, without = as_floats(whole), as_floats(left.without)
    n_groups = left.counting.sum(axis=0)
    means = divide(np.where(left.counting, without, 0.0).sum(axis=0), n_groups)
    contributions = differences + (n_groups - 1) * (means - without)  # [group, difference]
    smallest = CONTRIBUTION_ROUNDING * np.asarray(sizes, dtype=np.float64)
    contributions = np.where(np.abs(contributions) <= smallest, 0.0, contributions)
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


def _flip_sums(contributions: Floats, seed: int) -> Floats:
    """p-values of the sums of contributions [group, difference]: [difference]."""
    observed = np.abs(contributions.sum(axis=0)) - CONTRIBUTION_ROUNDING * np.abs(contributions).sum(axis=0)

    def is_extreme(patterns: Floats) -> Bools:
        return np.asarray(np.abs((1 - 2 * patterns) @ contributions) >= observed)

    return np.where(np.isnan(observed), math.nan, exchange_p_values(len(contributions), seed, is_extreme))


def _add_ways(
    parts: Sequence[tuple[Floats, Codes]], of_cells: tuple[Floats, Codes], n_clusters: Codes
) -> tuple[Floats, Floats]:
    """Variances and their degrees of freedom for items with two clusterings."""
    base, n_cells = of_cells
    added = [np.where(n > 1, np.maximum(variance - base, 0.0), 0.0) for variance, n in parts]
    missing = [np.isnan(variance) & (n > 1) for variance, n in parts]
    variance = base + sum(added)
    squares = base**2 / np.maximum(n_cells - 1, 1)
    squares = squares + sum(part**2 / np.maximum(n - 1, 1) for part, (_, n) in zip(added, parts, strict=True))
    df = np.divide(variance**2, squares, out=np.full_like(variance, math.inf), where=squares > 0)
    return np.where(np.logical_or.reduce([*missing, n_clusters < 2]), math.nan, variance), df
