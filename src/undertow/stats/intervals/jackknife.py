"""Delete-a-group jackknife: intervals of estimates from a sample of clusters.

Each group of clusters is left out once: Kott 2001, "The Delete-a-Group Jackknife" (Journal of Official Statistics).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS
from undertow.stats.numeric_range import usable

Floats = NDArray[np.float64]


def random_groups(n_clusters: int, n_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random group for each cluster; sizes differ by at most one [cluster].

    Raises:
        ValueError: there is no group, or no cluster for one of them.
    """
    if not 1 <= n_groups <= n_clusters:
        raise ValueError(f"{n_clusters} clusters cannot be divided into {n_groups} groups")
    dealt: NDArray[np.int64] = rng.permutation(np.arange(n_clusters) % n_groups)
    return dealt


def jackknife_variance(
    whole: ArrayLike, without: ArrayLike, counting: ArrayLike | None = None
) -> tuple[Floats, NDArray[np.int64]]:
    """Variances of estimates, and the number of groups that each rests on: both [estimate].

    (groups - 1) / groups times the sum of squared deviations from the estimate of all groups. NaN where an estimate is, with all
    groups or without one that counts, or where fewer than two count.

    Args:
        whole: estimates from all groups [estimate].
        without: estimates without one group each [group, estimate].
        counting: whether a group has anything of an estimate [group, estimate]; all have if not given.

    Raises:
        ValueError: the shapes do not go together.
    """
    estimates, left = usable(whole), usable(without)
    counts = np.ones(left.shape, dtype=np.bool_) if counting is None else np.asarray(counting, dtype=np.bool_)
    if left.ndim != 2 or left.shape[1:] != estimates.shape or counts.shape != left.shape:
        raise ValueError(
            f"need [estimate] and [group, estimate]; got {estimates.shape}, {left.shape} and {counts.shape}"
        )
    n_groups = counts.sum(axis=0)
    share = np.where(n_groups > 1, (n_groups - 1) / np.maximum(n_groups, 1), np.nan)
    squares = np.where(counts, (left - estimates) ** 2, 0.0).sum(axis=0)
    return share * squares, n_groups


def jackknife_interval(
    whole: ArrayLike, without: ArrayLike, *, sampled: float = 0.0, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Intervals (low, high) of estimates from a random sample of clusters, each [estimate].

    The variance is (groups - 1) / groups times the sum of squared deviations from the estimate of all groups, less what the sample
    has of the whole: where it has everything, the estimate is what was to be known. Student's t has one degree of freedom
    fewer than there are groups. NaN where an estimate is, with all groups or without one of them, or where there are fewer than six.

    Args:
        whole: estimates from all groups [estimate].
        without: estimates without one group each [group, estimate].
        sampled: share of all clusters that the sample has; 0 if it is of endlessly many.
        level: of the intervals.

    Raises:
        ValueError: the shapes do not go together, or the share is none.
    """
    from scipy.stats import t

    estimates = usable(whole)
    variance, n_groups = jackknife_variance(estimates, without)
    if not 0 <= sampled <= 1:
        raise ValueError(f"a sample has a share between 0 and 1 of the whole, not {sampled}")
    if sampled == 1:
        return estimates.copy(), estimates.copy()
    error = np.where(n_groups >= MIN_CLUSTERS, np.sqrt(variance * (1 - sampled)), np.nan)
    half = t.ppf((1 + level) / 2, np.maximum(n_groups - 1, 1)) * error
    return estimates - half, estimates + half
