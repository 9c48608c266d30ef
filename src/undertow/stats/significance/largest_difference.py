"""The two groups of clusters whose means differ most relative to their standard errors, and a test that allows for their choice.

The statistic is Welch's t of each pair, as the z with the same p, so that groups of different sizes
and spreads are comparable; the largest of all pairs counts. p is the larger of two. Random assignment of clusters to groups is exact if
groups have equal distributions, and with a studentised statistic for large groups with equal means (Chung and Romano 2013, "Exact and
Asymptotically Robust Permutation Tests"; Pauly, Brunner and Konietschke 2015, "Asymptotic Permutation Tests in General Factorial
Designs"). Normal errors with the variances of the groups (Games and Howell 1976) protect many groups of different spreads. In
simulations of 2 to 11 groups of 6 to 60 clusters with equal means and spreads that differ up to sixfold, p is below .05 in at most 6%, and
in 7 to 8% if the scores of ten clusters are skewed or clusters differ in size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import ROUNDING_SHARE, Codes, Floats, as_floats
from undertow.stats.context import check_interrupted

N_DRAWS = 20_000
AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class LargestDifference:
    """The mean of one group minus that of another, with the largest z of all pairs.

    Attributes:
        pair: codes of the group with the larger mean and of the other.
        value: the difference, above 0.
        error, df: its standard error and degrees of freedom.
        p: two-sided, over all pairs.
        references: largest z of all pairs in each draw, sorted, by random assignment and by normal errors [kind, draw].
    """

    pair: tuple[int, int]
    value: float
    error: float
    df: float
    p: float
    references: Floats

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Limits of the difference, which exclude 0 exactly if p is below 1 - level; infinite if no draw is so rare."""
        # p is (1 + hits) / (1 + draws), so the level cannot be smaller than that of no hits.
        place = math.floor((1 - level) * (1 + N_DRAWS) + 1e-9)
        if place < 1:
            return -math.inf, math.inf
        z = float(self.references[:, N_DRAWS - place].max())
        exponent = (z * (8 * self.df + 3) / (8 * self.df + 1)) ** 2 / self.df  # the inverse of `_z_values`
        reach = self.error * math.sqrt(self.df * math.expm1(min(exponent, 500.0)))
        return self.value - reach, self.value + reach


def largest_difference(
    sums: ArrayLike, sizes: ArrayLike, groups: ArrayLike, bounds: tuple[float, float], seed: int
) -> LargestDifference | None:
    """Test the pair of groups whose means, sums over sizes of their clusters, differ most relative to their standard errors.

    The variance of a mean is k / (k - 1) times the sum of squared influences of its k clusters. A group without variation has the
    variance that one more cluster at the farther bound would give it, since it shows only that other values are rare.

    Args:
        sums: sum of the values of each cluster [cluster].
        sizes: number of values, or their weight, above 0 [cluster].
        groups: code of its group, from 0, each with at least two clusters [cluster].
        bounds: smallest and largest possible value.
        seed: of the draws.

    Returns:
        The test; None with fewer than two groups or if all means are equal.
    """
    check_interrupted()
    codes, weights = np.asarray(groups, dtype=np.int64), as_floats(sizes)
    counts = np.bincount(codes).astype(np.float64)
    overall = float(as_floats(sums).sum() / weights.sum())
    centred = as_floats(sums) - overall * weights
    room = bounds[0] - overall, bounds[1] - overall
    means, variances = _means(codes[np.newaxis], centred, weights, counts, room)
    if np.ptp(means) <= ROUNDING_SHARE * (bounds[1] - bounds[0]):
        return None
    z, errors, df = _z_values(means, variances, counts)
    at = int(z[0].argmax())
    pair = [int(one[at]) for one in np.triu_indices(len(counts), 1)]
    higher, lower = sorted(pair, key=lambda one: -means[0, one])
    rng = np.random.default_rng(seed)
    references = np.empty((2, N_DRAWS))
    for start in range(0, N_DRAWS, AT_ONCE):
        shuffled = rng.permuted(np.tile(codes, (AT_ONCE, 1)), axis=1)
        noise = rng.standard_normal((AT_ONCE, len(counts))) * np.sqrt(variances)
        spread = variances * rng.chisquare(counts - 1, noise.shape) / (counts - 1)
        for row, drawn in enumerate((_means(shuffled, centred, weights, counts, room), (noise, spread))):
            references[row, start : start + AT_ONCE] = _z_values(*drawn, counts)[0].max(axis=1)
    references.sort(axis=1)
    hits = int(np.count_nonzero(references >= z[0, at] - 1e-9, axis=1).max())
    value = float(means[0, higher] - means[0, lower])
    p = (1 + hits) / (1 + N_DRAWS)
    return LargestDifference((higher, lower), value, float(errors[0, at]), float(df[0, at]), p, references)


def _means(
    codes: Codes, sums: Floats, sizes: Floats, counts: Floats, room: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Means of the groups and their variances, each [draw, group], from the group of each cluster [draw, cluster]."""
    parts = np.stack([sums, sizes, sums**2, sums * sizes, sizes**2], axis=1)
    totals = np.stack([(codes == group).astype(np.float64) @ parts for group in range(len(counts))], axis=1)
    total, size, *squares = np.moveaxis(totals, 2, 0)
    means = total / size
    spread = squares[0] - 2 * means * squares[1] + means**2 * squares[2]
    farthest = np.maximum(means - room[0], room[1] - means)
    unseen = farthest**2 / (counts * (counts + 1))
    variances = np.maximum(spread, 0.0) / size**2 * counts / (counts - 1)
    return means, np.where(spread <= ROUNDING_SHARE * (sums @ sums), unseen, variances)


def _z_values(means: Floats, variances: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Welch's t of each pair as a z (Wallace 1959), its standard error and degrees of freedom [draw, pair]."""
    one, other = np.triu_indices(len(counts), 1)
    first, second = variances[:, one], variances[:, other]
    total = first + second
    df = total**2 / (first**2 / (counts[one] - 1) + second**2 / (counts[other] - 1))
    squares = (means[:, one] - means[:, other]) ** 2 / total
    return (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(squares / df)), np.sqrt(total), df
