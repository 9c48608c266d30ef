"""Percentile intervals of bootstrap distributions over clusters.

Items of one cluster are not independent, so clusters are drawn whole.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from undertow.stats.numeric_range import usable

Floats = NDArray[np.float64]

# Percentiles are taken over the draws that gave a number. With more than this share missing they would describe
# only the convenient draws, and no interval is given.
MAX_UNDEFINED_SHARE = 0.05

MIN_CLUSTERS = 6
"""Clusters behind a 95% interval or a claim, at least. Of 5, 4, 3 and 2 the intervals of the usual methods hold the truth in 93, 88,
74 and 45 of 100 samples, and no exchange of the signs of five clusters has p below .05."""


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
    if n_clusters < MIN_CLUSTERS:
        return math.nan, math.nan
    values = usable(draws)
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(defined) < (1 - MAX_UNDEFINED_SHARE) * len(values):
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
