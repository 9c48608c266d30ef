"""Bootstrap over clusters: draws, percentile intervals, and t intervals from the spread of draws.

Items of one cluster are not independent, so clusters are drawn whole.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import Floats, as_floats, t_quantile
from undertow.stats.cluster_errors import share_interval
from undertow.stats.interruption import check_interrupted
from undertow.stats.point_estimates import only_points

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
    values = as_floats(draws)
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(defined) < (1 - MAX_UNDEFINED_SHARE) * len(values):
        return math.nan, math.nan
    tail = (1 - level) / 2
    if math.isfinite(n_clusters):
        tail = float(special.ndtr(-t_quantile(n_clusters - 1, level) * math.sqrt(n_clusters / (n_clusters - 1))))
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def spread_interval(
    value: float, draws: ArrayLike, n_clusters: int, *, share: bool = False, level: float = 0.95
) -> tuple[float, float]:
    """Student's t interval (low, high) of a number, from how far it spreads in bootstrap draws [draw].

    The middle is the estimate and not that of the draws: draws that repeat clusters are fitted better than samples are. The variance is
    made good for k clusters as in `undertow.stats.percentile_interval`. A share has its interval on the scale of its log-odds: AUROC
    of .62, .78 and .94 are held in 94 to 97 of 100 samples of 6 to 60 clusters, where percentiles hold .94 in 86 to 91 of up to
    20; rates and accuracies of .3 to .94 in 93 to 99. Where fits and thresholds are held out and made again in each draw, their AUROC and
    accuracy are held in 94 to 99 of 100 samples, with something to find or nothing; percentiles of held-out scores that stay as they are
    hold them in 70 to 93.

    Args:
        value: the estimate.
        draws: NaN where a draw does not have it; with more than 5 in 100 of these there is no interval (NaN).
        n_clusters: how many clusters were resampled; below six there is no interval.
        share: whether it lies between 0 and 1; at either end there is no interval.
        level: confidence level, in 0 to 1.
    """
    numbers = as_floats(draws)
    defined = numbers[~np.isnan(numbers)]
    if n_clusters < MIN_CLUSTERS or len(defined) < max(2, (1 - MAX_UNDEFINED_SHARE) * len(numbers)):
        return math.nan, math.nan
    variance = float(defined.var()) * n_clusters / (n_clusters - 1)
    if share:
        return share_interval(value, variance, n_clusters - 1, level)
    half = t_quantile(n_clusters - 1, level) * math.sqrt(variance)
    return value - half, value + half


def cluster_weights(n_clusters: int, n_draws: int, rng: np.random.Generator) -> Floats:
    """How often each cluster is drawn when as many as there are are drawn with replacement [draw, cluster].

    No draws within `point_estimates`.
    """
    check_interrupted()
    size = 0 if only_points() else n_draws
    return rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=size).astype(np.float64)
