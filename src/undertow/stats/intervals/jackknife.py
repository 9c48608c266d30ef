"""Delete-a-group jackknife: intervals of estimates from a sample of clusters.

Each group of clusters is left out once: Kott 2001, "The Delete-a-Group Jackknife" (Journal of Official Statistics).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import Codes, Floats, as_floats
from undertow.stats.interruption import check_interrupted
from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS


def random_groups(n_clusters: int, n_groups: int, rng: np.random.Generator) -> Codes:
    """A random group for each cluster; sizes differ by at most one [cluster].

    Raises:
        ValueError: there is no group, or no cluster for one of them.
    """
    if not 1 <= n_groups <= n_clusters:
        raise ValueError(f"{n_clusters} clusters cannot be divided into {n_groups} groups")
    groups: Codes = rng.permutation(np.arange(n_clusters) % n_groups)
    return groups


def jackknife_variance(whole: ArrayLike, without: ArrayLike, counting: ArrayLike | None = None) -> tuple[Floats, Codes]:
    """Variances of estimates, and the number of groups that each rests on: both [estimate].

    (groups - 1) / groups times the sum of squared deviations from the estimate of all groups. NaN if an estimate is NaN, with all groups
    or without one that counts, or if fewer than two count.

    Args:
        whole: estimates from all groups [estimate].
        without: estimates without one group each [group, estimate].
        counting: whether a group contributes to an estimate [group, estimate]; all if not given.
    """
    estimates, left = as_floats(whole), as_floats(without)
    counts = np.ones(left.shape, dtype=np.bool_) if counting is None else np.asarray(counting, dtype=np.bool_)
    n_groups = counts.sum(axis=0)
    share = np.where(n_groups > 1, (n_groups - 1) / np.maximum(n_groups, 1), np.nan)
    squares = np.where(counts, (left - estimates) ** 2, 0.0).sum(axis=0)
    return share * squares, n_groups


def jackknife_interval(
    whole: ArrayLike, without: ArrayLike, *, sampled: float = 0.0, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Intervals (low, high) of estimates from a random sample of clusters, each [estimate].

    The variance is (groups - 1) / groups times the sum of squared deviations from the estimate of all groups, with a finite population
    correction. Student's t has one degree of freedom fewer than groups. NaN if an estimate is NaN, with all groups or without one of
    them, or for fewer than six groups.

    Args:
        whole: estimates from all groups [estimate].
        without: estimates without one group each [group, estimate].
        sampled: share of the population of clusters in the sample; 0 for an infinite population.
        level: of the intervals.
    """
    check_interrupted()
    estimates = as_floats(whole)
    variance, n_groups = jackknife_variance(estimates, without)
    if sampled == 1:
        return estimates.copy(), estimates.copy()
    error = np.where(n_groups >= MIN_CLUSTERS, np.sqrt(variance * (1 - sampled)), np.nan)
    half = special.stdtrit(np.maximum(n_groups - 1, 1), (1 + level) / 2) * error
    return estimates - half, estimates + half
