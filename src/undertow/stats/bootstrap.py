"""Cluster bootstrap over a crossed design: clusters are resampled whole, the same draw for every W value.

Items of one cluster are not independent, so a row-wise bootstrap would promise too much. The W values are
the design and are not resampled: the intervals are about these W values and other clusters like these.
Knows nothing about what a cluster or a W value is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from undertow.stats.doubles import usable
from undertow.stats.points import only_points

Floats = NDArray[np.float64]

# Draws are made in chunks of about this many (draw, cluster) cells, so that memory does not grow with clusters.
CHUNK_CELLS = 1_000_000

# Percentiles are taken over the draws that gave a number. With more than this share missing they would describe
# only the convenient draws, and no interval is given.
MOST_UNDEFINED_SHARE = 0.05

FEWEST_CLUSTERS = 6
"""Clusters behind a 95% interval or a claim, at least. Of 5, 4, 3 and 2 the intervals of the usual methods hold the truth in 93, 88,
74 and 45 of 100 samples, and no exchange of the signs of five clusters has p below .05."""


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
    totals, sizes = usable(sums), np.asarray(counts, dtype=np.float64)
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


def percentile_interval(draws: ArrayLike, level: float = 0.95, n_clusters: float = math.inf) -> tuple[float, float]:
    """Percentile interval (low, high) of a bootstrap distribution [draw].

    A bootstrap over k clusters has (k - 1) / k of the variance that it should have, and takes it for known where it is estimated
    from k - 1 differences. Percentiles further out make both good: those at which a normal distribution with the
    bootstrap's variance holds what Student's t with k - 1 degrees of freedom holds (Hesterberg 2015, "What Teachers Should
    Know About the Bootstrap", section 4.3). Of 5, 10 and 20 clusters the plain percentiles hold the truth in 84, 90 and 92 of
    100 samples instead of 95. Of fewer than six clusters there is no interval (NaN).

    Args:
        draws: NaN where the number is not defined. These are left out while they are at most 5 in 100; with more there is no
            interval (NaN).
        level: confidence level, in 0 to 1.
        n_clusters: how many clusters were resampled; infinite for plain percentiles.
    """
    if n_clusters < FEWEST_CLUSTERS:
        return math.nan, math.nan
    values = usable(draws)
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(defined) < (1 - MOST_UNDEFINED_SHARE) * len(values):
        return math.nan, math.nan
    tail = _tail(level, n_clusters)
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


@lru_cache(maxsize=256)
def _tail(level: float, n_clusters: float) -> float:
    """The share of draws beyond either end of an interval."""
    if math.isinf(n_clusters):
        return (1 - level) / 2
    quantile = float(special.stdtrit(n_clusters - 1, (1 + level) / 2))
    return float(special.ndtr(-quantile * math.sqrt(n_clusters / (n_clusters - 1))))


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
