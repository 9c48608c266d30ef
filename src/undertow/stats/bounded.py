"""Intervals and tests of the mean of numbers that lie between known bounds, such as scores of 0 to 100, from few clusters.

The method is Gaffke's as Learned-Miller and Thomas tell it (2019, "A New Confidence Interval for the Mean of a Bounded Random
Variable", arXiv 1905.06208). Every cluster is weighted at random (by exponentials, which is a Bayesian bootstrap), together with one
more cluster that has not been seen and lies at the bound. The limit is the mean that these weights exceed in 2.5 of 100 draws. Of
numbers that all lie at one bound or the other it is the interval of Clopper and Pearson (1934). It assumes no shape, keeps a width
where all numbers agree, and is not smaller than its level in any simulation known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from undertow.stats.bootstrap import FEWEST_CLUSTERS
from undertow.stats.doubles import usable
from undertow.stats.points import only_points

Floats = NDArray[np.float64]

STEP, FIRST, LAST = 0.08, -18.0, 40.0
"""Step of the integration, on the logarithm of the frequency, and between what it lies; below, the integrand is a straight line."""
NEGLIGIBLE = 60.0
"""Minus twice the logarithm of a characteristic function that is none any more."""
ROUNDING_SHARE = 1e-12


def positive_chance(coefficients: ArrayLike) -> float:
    """Probability that a sum of independent standard exponentials, each times its coefficient [term], is above 0.

    By inversion of the characteristic function (Gil-Pelaez 1951), to some 1e-10; 0 where no coefficient is above 0.

    Args:
        coefficients: finite numbers of either sign [term].
    """
    given = np.asarray(coefficients, dtype=np.float64)
    given = given[np.abs(given) > ROUNDING_SHARE * np.abs(given).max(initial=0.0)]
    if not len(given) or given.max() < 0:
        return 0.0
    if given.min() > 0:
        return 1.0
    values, counts = np.unique(given / np.sqrt((given**2).sum()), return_counts=True)
    # The integrand is smooth and falls at both ends, so that the trapezoidal rule converges faster than any power of its step.
    step = min(STEP, 0.9 / math.sqrt(len(given)))
    square = float(np.abs(values).max()) ** 2
    last = 0.5 * (NEGLIGIBLE * square + math.log(-math.expm1(-NEGLIGIBLE * square)) - math.log(square))
    frequency = np.exp(np.arange(FIRST, min(last, LAST) + step, step))
    points = frequency[:, np.newaxis] * values  # [frequency, value]
    waves = np.sin(np.arctan(points) @ counts) * np.exp(-0.5 * (np.log1p(points**2) @ counts))
    below = float(values @ counts) * math.exp(FIRST)  # of the straight line, from a frequency of 0
    area = step * (float(waves.sum()) - float(waves[0] + waves[-1]) / 2) + below
    return min(max(0.5 + area / math.pi, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class BoundedMean:
    """The mean of numbers between bounds, sum over sums of sizes, over clusters that are a sample of others.

    Attributes:
        sums: what each cluster adds to the numerator [cluster].
        sizes: what it adds to the denominator [cluster]; above 0.
        low, high: the bounds of each number.
    """

    sums: Floats
    sizes: Floats
    low: float
    high: float

    @property
    def value(self) -> float:
        """The mean; NaN of no clusters."""
        total = float(self.sizes.sum())
        return float(self.sums.sum()) / total if total > 0 else math.nan

    @property
    def is_known(self) -> bool:
        """Whether there are clusters enough to say anything of others."""
        return len(self.sums) >= FEWEST_CLUSTERS and not only_points()

    def p_above(self, null: float) -> float:
        """One-sided p-value against a mean of at most `null`; NaN where there are too few clusters."""
        return self._chance(null, self.low, -1.0) if self.is_known else math.nan

    def p_below(self, null: float) -> float:
        """One-sided p-value against a mean of at least `null`; NaN where there are too few clusters."""
        return self._chance(null, self.high, 1.0) if self.is_known else math.nan

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Both limits: the means at which either one-sided p-value is half of what the level leaves; NaN of too few clusters."""
        if not self.is_known:
            return math.nan, math.nan
        tail = (1 - level) / 2
        value = min(max(self.value, self.low), self.high)
        return self._limit(self.p_above, value, self.low, tail), self._limit(self.p_below, value, self.high, tail)

    def _chance(self, null: float, bound: float, sign: float) -> float:
        """How often random weights put the mean, with an unseen cluster at the bound, on the side of it."""
        unseen = float(self.sizes.mean()) * (bound - null)
        return positive_chance(sign * np.append(self.sums - null * self.sizes, unseen))

    def _limit(self, p: Callable[[float], float], value: float, bound: float, tail: float) -> float:
        if abs(value - bound) <= ROUNDING_SHARE * (self.high - self.low) or p(bound) > tail:
            return bound
        return float(optimize.brentq(lambda null: p(null) - tail, value, bound, xtol=1e-9 * (self.high - self.low)))


def bounded_mean(values: ArrayLike, bounds: tuple[float, float], clusters: ArrayLike | None = None) -> BoundedMean:
    """The mean over cells of each cell's mean over its documents, as sums over clusters of documents.

    Args:
        values: numbers between the bounds; NaN where there is none [document, cell]. A cell without any is left out, as is a document.
        bounds: the least and the largest number there can be.
        clusters: documents with the same entry are one cluster [document]; each is its own if not given.

    Raises:
        ValueError: a number is outside the bounds, or the shapes differ.
    """
    numbers = usable(values)
    codes = np.arange(len(numbers)) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    if numbers.ndim != 2 or codes.shape != (len(numbers),):
        raise ValueError(
            f"values must be [document, cell], with a cluster for each document; got shape {numbers.shape}"
        )
    seen = ~np.isnan(numbers)
    room = 1e-9 * (bounds[1] - bounds[0])
    if seen.any() and not bounds[0] - room <= np.nanmin(numbers) <= np.nanmax(numbers) <= bounds[1] + room:
        raise ValueError(f"values must be between {bounds[0]:g} and {bounds[1]:g}")
    counts = seen.sum(axis=0)  # [cell]
    weights = np.where(counts > 0, 1 / np.maximum(counts, 1), 0.0) / max(int((counts > 0).sum()), 1)
    of_documents = np.where(seen, numbers, 0.0) @ weights, seen @ weights
    n_clusters = int(codes.max(initial=-1)) + 1
    sums, sizes = (
        np.bincount(codes, weights=one, minlength=n_clusters).astype(np.float64) for one in of_documents
    )  # fmt: skip
    known = sizes > 0
    return BoundedMean(sums[known], sizes[known], *bounds)
