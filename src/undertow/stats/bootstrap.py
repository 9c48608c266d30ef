"""Cluster bootstrap over a crossed design: clusters are resampled whole, the same draw for every W value.

Items of one cluster are not independent, so a row-wise bootstrap would promise too much. The W values are
the design and are not resampled: the intervals are about these W values and other clusters like these.
Knows nothing about what a cluster or a W value is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.points import only_points

Floats = NDArray[np.float64]

# Draws are made in chunks of about this many (draw, cluster) cells, so that memory does not grow with clusters.
CHUNK_CELLS = 1_000_000

# Percentiles are taken over the draws that gave a number. With more than this share missing they would describe
# only the convenient draws, and no interval is given.
MOST_UNDEFINED_SHARE = 0.05


def bootstrap_means(sums: ArrayLike, counts: ArrayLike, n_draws: int, rng: np.random.Generator) -> Floats:
    """Bootstrap distribution of the W means, by resampling clusters with replacement.

    The mean of a W value in a draw is the sum of its drawn observations over their count, so that unbalanced
    designs, missing cells and unscored rows need no filling in. A W value that has no observation in a draw
    is NaN there, never zero. Fewer than two clusters with observations say nothing about other
    clusters: everything is NaN.

    Args:
        sums: sum of the observations in each cell [..., cluster, w]; 0 where there are none.
        counts: number of observations in each cell, same shape.
        n_draws: bootstrap draws.
        rng: source of randomness. One cluster draw serves all W values and all leading axes.

    Returns:
        W means [..., draw, w]; no draws within `point_estimates`.

    Raises:
        ValueError: shapes differ, or there is no cluster or w axis.
    """
    totals, sizes = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if totals.shape != sizes.shape or totals.ndim < 2:
        raise ValueError(f"sums and counts must both be [..., cluster, w]; got {totals.shape} and {sizes.shape}")
    *leading, n_clusters, n_w = totals.shape
    if only_points():
        n_draws = 0
    means = np.full((*leading, n_draws, n_w), math.nan)
    observed_clusters = np.count_nonzero((sizes > 0).any(axis=-1), axis=-1)  # [...]
    if n_clusters < 2:
        return means
    done = 0
    for weights in _cluster_weights(n_clusters, n_draws, rng):
        chunk = slice(done, done + len(weights))
        done += len(weights)
        drawn = weights @ sizes  # [..., draw, w]
        np.divide(weights @ totals, drawn, out=means[..., chunk, :], where=drawn > 0)
    means[observed_clusters < 2] = math.nan
    return means


def percentile_interval(draws: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval (low, high) of a bootstrap distribution [draw].

    Undefined (NaN) draws are left out while they are at most 5 in 100; with more there is no interval (NaN).
    """
    values = np.asarray(draws, dtype=np.float64)
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(defined) < (1 - MOST_UNDEFINED_SHARE) * len(values):
        return math.nan, math.nan
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _cluster_weights(n_clusters: int, n_draws: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often each cluster is in each draw, in chunks [draw, cluster] whose rows sum to `n_clusters`."""
    chunk = max(1, CHUNK_CELLS // n_clusters)
    for start in range(0, n_draws, chunk):
        size = min(chunk, n_draws - start)
        drawn = rng.integers(n_clusters, size=(size, n_clusters))
        # One bincount for the whole chunk: draw d counts its clusters in bins d * n_clusters ... + n_clusters - 1.
        drawn += np.arange(size)[:, np.newaxis] * n_clusters
        weights = np.bincount(drawn.ravel(), minlength=size * n_clusters)
        yield weights.reshape(size, n_clusters).astype(np.float64)
