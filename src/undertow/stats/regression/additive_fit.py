"""Means of the values of a covariate without the levels of the sentences, for designs with missing cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import Floats, divide

CONNECTED = 1e-9
"""Share of the largest eigenvalue above which an eigenvalue of the graph of units and values is not 0."""


@dataclass(frozen=True, slots=True)
class AdditiveFit:
    """Cells as the level of a unit plus the effect of a value.

    Attributes:
        means: of the values, at the mean level of the units [value].
        influences: of the units on these means; they sum to 0 [unit, value].
        inverse: maps the values' sums without levels to effects [value, value].
        shares: of the observations of a unit [unit, value].
        weights, sizes: of the levels of the units, and their numbers of observations [unit].
    """

    means: Floats
    influences: Floats
    inverse: Floats
    shares: Floats
    weights: Floats
    sizes: Floats

    def gradient(self, of_means: Floats) -> Floats:
        """Derivative of a weighted sum of the means [value] with respect to an observation in each cell [unit, value]."""
        total, of_level = of_means.sum(), self.weights / self.sizes
        moved = self.inverse @ (of_means - total * (self.weights @ self.shares))
        gradient: Floats = (total * of_level - self.shares @ moved)[:, None] + moved
        return gradient


def is_proportional(counts: Floats) -> bool:
    """Whether the units have the same distribution over the values [unit, value], so that plain means have their levels in common."""
    return np.array_equal(counts * counts.sum(), np.outer(counts.sum(axis=1), counts.sum(axis=0)))


def additive_fit(sums: ArrayLike, counts: ArrayLike) -> AdditiveFit | None:
    """Least squares of levels of units and effects of values, weighted by counts (Scheffe 1959, "The Analysis of Variance", chapter 4).

    With proportional counts the means are the plain means. A unit counts with its mean number of observations in a cell, so a missing
    cell does not reduce its weight.

    Sums and counts are those of the observations in each cell [unit, value]; each unit and each value has some.

    Returns:
        None if the values are not connected by units that have several of them: then levels and effects cannot be separated.
    """
    totals, sizes = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    roots, axes = np.linalg.eigh(np.diag(sizes.sum(axis=0)) - sizes.T @ shares)
    if not (roots[1:] > CONNECTED * roots[-1]).all():
        return None
    inverse = (axes[:, 1:] / roots[1:]) @ axes[:, 1:].T
    of_unit = totals.sum(axis=1, keepdims=True)
    effects = inverse @ (totals - shares * of_unit).sum(axis=0)
    levels = of_unit[:, 0] / sizes.sum(axis=1) - shares @ effects
    weights = divide(sizes.sum(axis=1), (sizes > 0).sum(axis=1))
    weights /= weights.sum()
    influences = (totals - sizes * (levels[:, None] + effects)) @ inverse
    of_levels = weights * (levels - weights @ levels) - influences @ (weights @ shares)
    means = weights @ levels + effects
    return AdditiveFit(means, influences + of_levels[:, None], inverse, shares, weights, sizes.sum(axis=1))
