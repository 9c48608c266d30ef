"""Means of the values of a covariate without the levels of the sentences, for designs with missing cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from undertow.stats.arrays import ROUNDING_SHARE, Floats

CONNECTED = 1e-9
"""Share of the largest eigenvalue below which an eigenvalue is 0."""


@dataclass(frozen=True, slots=True)
class AdditiveFit:
    """Cells as the level of a unit plus the effect of a value.

    Attributes:
        means: of the values, at the mean level of the units [value].
        influences: of the units on these means; they sum to 0 [unit, value].
        parts: of the units in the effects of the values, each from the unit's own observations [unit, value].
        levels: of the units, minus their weighted mean [unit].
        inverse: maps the values' sums without levels to effects [value, value].
        shares: of the observations of a unit [unit, value].
        weights, sizes: of the levels of the units, and their numbers of observations [unit].
    """

    means: Floats
    influences: Floats
    parts: Floats
    levels: Floats
    inverse: Floats
    shares: Floats
    weights: Floats
    sizes: Floats

    def gradient(self, of_means: Floats) -> Floats:
        """Derivative of a weighted sum of the means [value] with respect to an observation in each cell [unit, value]."""
        total = of_means.sum()
        moved = self.inverse @ (of_means - total * (self.weights @ self.shares))
        gradient: Floats = (total * self.weights / self.sizes - self.shares @ moved)[:, None] + moved
        return gradient


def additive_fit(sums: Floats, counts: Floats) -> AdditiveFit | None:
    """Least squares of levels of units and effects of values, weighted by counts (Scheffe 1959, "The Analysis of Variance", chapter 4).

    With proportional counts the means are the plain means. A unit counts with its mean number of observations in a cell, so a missing
    cell does not reduce its weight. Sums and counts are those of the observations in each cell [unit, value]. None if units with several
    values do not connect all values that have observations: then levels and effects cannot be separated.
    """
    of_value, sizes = counts.sum(axis=0), np.maximum(counts.sum(axis=1), 1)
    shares = counts / sizes[:, None]
    inverse, rank = linalg.pinvh(np.diag(of_value) - counts.T @ shares, rtol=CONNECTED, return_rank=True)
    if rank < np.count_nonzero(of_value) - 1:
        return None
    own = sums.sum(axis=1) / sizes
    least = ROUNDING_SHARE * np.abs(sums).max()

    def without_rounding(deviations: Floats) -> Floats:
        return np.where(np.abs(deviations) > least, deviations, 0.0)

    parts = without_rounding(sums - counts * own[:, None]) @ inverse
    effects = parts.sum(axis=0)
    levels = own - shares @ effects
    weights = counts.sum(axis=1) / np.maximum((counts > 0).sum(axis=1), 1)
    weights /= weights.sum()
    influences = without_rounding(sums - counts * (levels[:, None] + effects)) @ inverse
    level = float(weights @ levels)
    of_levels = weights * (levels - level) - influences @ (weights @ shares)
    influences += of_levels[:, None]
    return AdditiveFit(level + effects, influences, parts, levels - level, inverse, shares, weights, sizes)
