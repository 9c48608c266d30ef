"""Sign-flip test of a mean paired difference, and the interval that inverts it.

If two paired conditions do not differ, exchanging them flips the sign of a cluster's difference and changes nothing else. The
interval is made of the means of random subsets of the clusters (Hartigan 1969, "Using Subsample Values as Typical Values", JASA 64). It
excludes 0 exactly where the p-value is at most 1 - level. Both are exact for differences that are distributed symmetrically about
their mean, whatever the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.intervals.point_estimates import only_points
from undertow.stats.numeric_range import usable

Floats = NDArray[np.float64]

N_FLIPS = 20_000
AT_ONCE = 1000
EFFECTS_AT_ONCE = 32
ROUNDING = 1e-9
"""Sums that differ by less count as equal, which errs towards finding nothing."""
MAX_ALPHA = 0.05
"""1 - level of the narrowest interval."""


@dataclass(frozen=True, slots=True)
class SignFlipTest:
    """The sign-flip test of one mean difference.

    Attributes:
        value: the mean difference; NaN where no cluster has one.
        p: two-sided p-value, with the observed signs counted; NaN below `MIN_CLUSTERS` clusters.
        n_clusters: clusters that have a difference.
        n_differing: clusters whose difference is not 0. With five of them p cannot be below 0.05.
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
        # p is (1 + hits) / (1 + N_FLIPS), and each hit is a subset whose mean is on the other side of 0.
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
    """The sign-flip test of each mean difference, the sum of sums over the sum of sizes [effect].

    Args:
        sums: sum of the differences in each cluster, 0 where it has none [cluster, effect].
        sizes: number of these differences, 0 where it has none [cluster, effect].
        seed: of the signs. Equal seeds give equal signs for an equal number of clusters.

    Raises:
        ValueError: the shapes differ.
    """
    totals, counts = usable(sums), usable(sizes)
    if totals.ndim != 2 or totals.shape != counts.shape:
        raise ValueError(f"sums and sizes must both be [cluster, effect]; got {totals.shape} and {counts.shape}")
    flips: list[SignFlipTest] = []
    for start in range(0, totals.shape[1], EFFECTS_AT_ONCE):
        part = slice(start, start + EFFECTS_AT_ONCE)
        flips += _flipped(totals[:, part], counts[:, part], seed)
    return flips


def _flipped(sums: Floats, sizes: Floats, seed: int) -> list[SignFlipTest]:
    whole, n_all = sums.sum(axis=0), sizes.sum(axis=0)
    values = np.divide(whole, n_all, out=np.full(len(whole), math.nan), where=n_all > 0)
    n_clusters = np.count_nonzero(sizes > 0, axis=0)
    n_differing = np.count_nonzero(np.abs(sums) > ROUNDING, axis=0)
    none = np.empty(0)
    if only_points() or (n_clusters < MIN_CLUSTERS).all():
        nothing = zip(values, n_clusters, n_differing, strict=True)
        return [SignFlipTest(float(value), math.nan, int(n), int(k), none, none) for value, n, k in nothing]
    signs = _signs(len(sums), seed)
    halves = np.empty((2 * N_FLIPS, len(whole)))  # means of the clusters that keep their sign, and of those that do not
    hits = np.zeros(len(whole))
    for start in range(0, N_FLIPS, AT_ONCE):
        drawn = signs[start : start + AT_ONCE].astype(np.float64)
        flipped, of_sizes = drawn @ sums, drawn @ sizes
        hits += np.count_nonzero(np.abs(flipped) >= np.abs(whole) - ROUNDING, axis=0)
        for side, at in ((1, start), (-1, N_FLIPS + start)):
            kept = (n_all + side * of_sizes) / 2
            some = np.divide(
                (whole + side * flipped) / 2, kept, out=np.full_like(kept, math.nan), where=kept > ROUNDING
            )
            halves[at : at + len(drawn)] = some
    p = (1 + hits) / (1 + N_FLIPS)
    wide = math.floor(MAX_ALPHA * (1 + N_FLIPS) + ROUNDING)
    # An empty subset excludes no mean.
    lowest, highest = (
        np.sort(np.partition(np.where(np.isnan(halves), -math.inf, side * halves), wide - 1, axis=0)[:wide], axis=0)
        for side in (1, -1)
    )
    enough = n_clusters >= MIN_CLUSTERS
    return [
        SignFlipTest(
            float(values[at]),
            float(p[at]) if enough[at] else math.nan,
            int(n_clusters[at]),
            int(n_differing[at]),
            lowest[:, at] if enough[at] else none,
            -highest[:, at] if enough[at] else none,
        )
        for at in range(len(whole))
    ]


@lru_cache(maxsize=4)
def _signs(n_clusters: int, seed: int) -> NDArray[np.int8]:
    """Random signs [flip, cluster], cached because many effects share their clusters."""
    draws = np.random.default_rng(seed).integers(0, 2, size=(N_FLIPS, n_clusters), dtype=np.int8)
    signs: NDArray[np.int8] = 2 * draws - 1
    signs.flags.writeable = False
    return signs
