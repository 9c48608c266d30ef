"""Intervals and tests of the mean of bounded numbers, such as scores of 0 to 100, for few clusters and any distribution.

The method is Gaffke's bound in the form of Learned-Miller and Thomas (2019, "A New Confidence Interval for the Mean of a Bounded
Random Variable", arXiv 1905.06208). It gives each cluster a random exponential weight, as a Bayesian bootstrap does, and adds one
unseen cluster whose numbers all equal the bound. The upper limit is the 97.5th percentile of this weighted mean. For numbers that are
all 0 or 1 the interval equals that of Clopper and Pearson (1934). It assumes nothing about the distribution and has a width even where
all numbers are equal. Its coverage is conjectured, not proven, to reach its level everywhere; our simulations found no exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from undertow.stats.arrays import ROUNDING_SHARE, Floats, as_floats
from undertow.stats.context import only_points
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS

STEP, FIRST, LAST = 0.08, -18.0, 40.0
"""Step and range of the integration over the logarithm of the frequency; below the range the integrand is linear."""
NEGLIGIBLE = 60.0
"""Minus twice the logarithm of a characteristic function at which the integration stops."""


def positive_chance(coefficients: ArrayLike) -> float:
    """Probability that a sum of independent standard exponentials, each times its finite coefficient [term], is above 0.

    The characteristic function is inverted numerically (Gil-Pelaez 1951), with an error of some 1e-10.
    """
    given = np.asarray(coefficients, dtype=np.float64)
    given = given[np.abs(given) > ROUNDING_SHARE * np.abs(given).max(initial=0.0)]
    if not len(given) or given.max() < 0:
        return 0.0
    if given.min() > 0:
        return 1.0
    values, counts = np.unique(given / np.sqrt((given**2).sum()), return_counts=True)
    # The integrand is analytic and vanishes at both ends, so the trapezoidal rule converges exponentially.
    step = min(STEP, 0.9 / math.sqrt(len(given)))
    square = float(np.abs(values).max()) ** 2
    last = 0.5 * (NEGLIGIBLE * square + math.log(-math.expm1(-NEGLIGIBLE * square)) - math.log(square))
    frequency = np.exp(np.arange(FIRST, min(last, LAST) + step, step))
    points = frequency[:, np.newaxis] * values  # [frequency, value]
    waves = np.sin(np.arctan(points) @ counts) * np.exp(-0.5 * (np.log1p(points**2) @ counts))
    below = float(values @ counts) * math.exp(FIRST)  # the integral from frequency 0 to the range
    area = step * (float(waves.sum()) - float(waves[0] + waves[-1]) / 2) + below
    return min(max(0.5 + area / math.pi, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class BoundedMean:
    """A mean of bounded numbers over sampled clusters: the sum of `sums` over the sum of `sizes`.

    Attributes:
        sums: the contribution of each cluster to the numerator [cluster].
        sizes: its contribution to the denominator, above 0 [cluster].
        low, high: the bounds of each number.
    """

    sums: Floats
    sizes: Floats
    low: float
    high: float

    @property
    def value(self) -> float:
        """The mean; NaN without clusters."""
        total = float(self.sizes.sum())
        return float(self.sums.sum()) / total if total > 0 else math.nan

    @property
    def is_known(self) -> bool:
        """Whether there are at least `MIN_CLUSTERS` clusters, outside `point_estimates`."""
        return len(self.sums) >= MIN_CLUSTERS and not only_points()

    def p_above(self, null: float) -> float:
        """One-sided p-value against a mean of at most `null`; NaN for too few clusters."""
        return self._chance(null, self.low, -1.0) if self.is_known else math.nan

    def p_below(self, null: float) -> float:
        """One-sided p-value against a mean of at least `null`; NaN for too few clusters."""
        return self._chance(null, self.high, 1.0) if self.is_known else math.nan

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Lower and upper limit: the means at which the one-sided p-value is (1 - level) / 2; NaN for too few clusters."""
        if not self.is_known:
            return math.nan, math.nan
        tail = (1 - level) / 2
        value = min(max(self.value, self.low), self.high)
        return self._limit(self.p_above, value, self.low, tail), self._limit(self.p_below, value, self.high, tail)

    def _chance(self, null: float, bound: float, sign: float) -> float:
        """Probability that the weighted mean, with the unseen cluster at `bound`, is on the far side of `null`."""
        unseen = float(self.sizes.mean()) * (bound - null)
        return positive_chance(sign * np.append(self.sums - null * self.sizes, unseen))

    def _limit(self, p: Callable[[float], float], value: float, bound: float, tail: float) -> float:
        if abs(value - bound) <= ROUNDING_SHARE * (self.high - self.low) or p(bound) > tail:
            return bound
        return float(optimize.brentq(lambda null: p(null) - tail, value, bound, xtol=1e-9 * (self.high - self.low)))


def bounded_mean(values: ArrayLike, bounds: tuple[float, float], clusters: ArrayLike | None = None) -> BoundedMean:
    """The mean over cells of each cell's mean over its documents, summed by cluster of documents.

    Values are between the bounds, NaN if missing [document, cell]; cells and documents without values are excluded. Documents with the
    same entry in `clusters` are one cluster [document]; each is its own if not given. A number outside the bounds is a `ValueError`.
    """
    numbers = as_floats(values)
    codes = np.arange(len(numbers)) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    seen = ~np.isnan(numbers)
    room = 1e-9 * (bounds[1] - bounds[0])
    if seen.any() and not bounds[0] - room <= np.nanmin(numbers) <= np.nanmax(numbers) <= bounds[1] + room:
        raise ValueError(f"values must be between {bounds[0]:g} and {bounds[1]:g}")
    counts = seen.sum(axis=0)  # [cell]
    weights = np.where(counts > 0, 1 / np.maximum(counts, 1), 0.0) / max(int((counts > 0).sum()), 1)
    of_documents = np.where(seen, numbers, 0.0) @ weights, seen @ weights
    sums, sizes = (np.bincount(codes, weights=one).astype(np.float64) for one in of_documents)
    known = sizes > 0
    return BoundedMean(sums[known], sizes[known], *bounds)


Z_95 = 1.959963984540054
"""The standard normal quantile of a two-sided 95% interval."""


def wilson_interval(rate: float, n: float, quantile: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval (Wilson 1927), low and high, which stays within 0 and 1 and has a width at rates of 0 and 1.

    The number of independent items may be an effective number, a fraction above 0; the quantile is of the normal distribution, or of
    Student's t for estimated variances. The rate, in 0 to 1, lies between the ends.
    """
    middle = (rate + quantile**2 / (2 * n)) / (1 + quantile**2 / n)
    half = quantile / (1 + quantile**2 / n) * math.sqrt(rate * (1 - rate) / n + quantile**2 / (4 * n**2))
    # Near 0 and 1 the limit equals the rate up to rounding.
    return max(0.0, min(middle - half, rate)), min(1.0, max(middle + half, rate))
