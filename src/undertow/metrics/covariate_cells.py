"""Observations of a covariate W as cells of a crossed design: sentences (clusters) by W values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats import MIN_CLUSTERS
from undertow.stats.arrays import Floats, divide
from undertow.stats.regression.trend import MIN_VALUES

UNORDERED = "none"
"""The scale of a W list without an order."""
STEP = "step"
"""Unit of slopes if W is the index in the list."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums and counts of row values in the cells of the crossed design.

    Attributes:
        x: W on its scale, ascending [w].
        sums, counts: of the values in each cell [cluster, w].
        n, n_missing: rows with and without a value.
    """

    x: Floats
    sums: Floats
    counts: Floats
    n: int
    n_missing: int

    @classmethod
    def from_rows(cls, clusters: ArrayLike, x: ArrayLike, values: Floats, is_scored: ArrayLike | None = None) -> Cells:
        """Sum the values [row] of clusters [row] at W values [row]; NaN is no value.

        Clusters without any scored row [row] are excluded. Both axes are sorted, so the order of rows does not matter.
        """
        names, at = np.asarray(clusters), np.asarray(x, dtype=np.float64)
        if names.dtype == object:
            names = names.astype(str)
        seen = ~np.isnan(values)
        of_cluster, axis = np.unique(names[seen if is_scored is None else np.asarray(is_scored)]), np.unique(at)
        cell = np.searchsorted(of_cluster, names[seen]) * len(axis) + np.searchsorted(axis, at[seen])
        shape = len(of_cluster), len(axis)
        sums, counts = (
            np.bincount(cell, weights=weights, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)
            for weights in (values[seen], np.ones(len(cell)))
        )
        return cls(axis, sums, counts, len(cell), len(values) - len(cell))

    @property
    def means(self) -> Floats:
        """W means [w]; NaN for W values without observations."""
        return divide(self.sums.sum(axis=0), self.counts.sum(axis=0))

    @property
    def n_clusters(self) -> int:
        """Clusters with observations."""
        return int(np.count_nonzero(self.counts.any(axis=1)))

    def seen(self) -> Cells:
        """The cells of clusters and W values with observations."""
        clusters, values = self.counts.any(axis=1), self.counts.any(axis=0)
        place = np.ix_(clusters, values)
        return replace(self, x=self.x[values], sums=self.sums[place], counts=self.counts[place])

    def log_odds(self) -> Cells:
        """Cells with the log-odds of the means, and the first-order influence of each sentence on them.

        NaN if a mean is 0 or 100.
        """
        means = self.means
        inside = np.where((means > 0) & (means < 100), means, math.nan)
        steepness = 100 / (inside * (100 - inside))
        sums = self.counts * special.logit(inside / 100) + (self.sums - self.counts * means) * steepness
        return replace(self, sums=sums)


def slope_unit(covariate: Mapping[str, Any]) -> str:
    """Unit of W in slopes, from the design entry of a W list."""
    return STEP if covariate.get("scale") != "value" else str(covariate.get("unit", "")) or "unit"


def why_few(n_clusters: int, n_values: int = MIN_VALUES) -> str:
    """Reason why too few sentences or W values have no interval and no test; "" if there are enough."""
    if n_clusters < MIN_CLUSTERS:
        has = "1 sentence" if n_clusters == 1 else f"{n_clusters} sentences"
        return f"There is no interval and no test with {has}; both need at least {MIN_CLUSTERS}."
    if n_values < MIN_VALUES:
        return f"With {n_values} W values there is no test of a trend; it needs at least {MIN_VALUES}."
    return ""


def why_not_crossed(counts: Floats, least: int) -> str:
    """Reason why these counts [cluster, w] do not allow a test; "" if a sentence has at least `least` W values."""
    if (counts > 0).sum(axis=1).max(initial=0) >= least:
        return ""
    return (
        f"No sentence has {least} W values or more, so effects of sentences and values cannot be separated; give rows of one sentence "
        "the same text_index or cluster."
    )
