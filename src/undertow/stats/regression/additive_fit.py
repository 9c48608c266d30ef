"""Means of the values of a covariate without the levels of the sentences, for designs with missing cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undertow.stats.arrays import Floats

CONNECTED = 1e-9
"""Share of the largest count above which an eigenvalue of the graph of units and values is not 0."""


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
    roots, axes = np.linalg.eigh(np.diag(of_value) - counts.T @ shares)
    known = roots > CONNECTED * of_value.max(initial=1)
    if known.sum() < np.count_nonzero(of_value) - 1:
        return None
    inverse = (axes[:, known] / roots[known]) @ axes[:, known].T
    own = sums.sum(axis=1) / sizes
    effects = inverse @ (sums - counts * own[:, None]).sum(axis=0)
    levels = own - shares @ effects
    weights = counts.sum(axis=1) / np.maximum((counts > 0).sum(axis=1), 1)
    weights /= weights.sum()
    influences = (sums - counts * (levels[:, None] + effects)) @ inverse
    of_levels = weights * (levels - weights @ levels) - influences @ (weights @ shares)
    return AdditiveFit(weights @ levels + effects, influences + of_levels[:, None], inverse, shares, weights, sizes)
