"""Values of a crossed design of clusters and W values, and their means without the levels of the sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import Codes, Floats, divide
from undertow.stats.regression.additive_fit import AdditiveFit, additive_fit
from undertow.stats.regression.trend import ClusterSummary, cluster_summary, effect_parts
from undertow.types import RESERVED_COLUMNS

OTHER_INDEX = "other_w_index"
"""Column with the index of the other W of two crossed lists."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums and counts of row values in the cells of the crossed design.

    Attributes:
        x: W on its scale, ascending [w].
        sums, counts: of the values in each cell [cluster, w]. If `adjusted`, the sums are such that their means are those of the
            additive fit, and their distances from these means are the clusters' influences.
        own, own_counts: sums, without levels, and counts of the units with several W values, the only ones that tell effects of W from
            levels [cluster, w]. `sums` and `counts` if not `adjusted`.
        n, n_missing: rows with and without a value.
        connected: whether units with several W values connect all of them.
        fit, places: the additive fit, and the place of each row with a value in its cells [row].
        parts: contributions of the clusters to the effects of W in this fit, each from its own rows [cluster, w].
    """

    x: Floats
    sums: Floats
    counts: Floats
    own: Floats
    own_counts: Floats
    n: int
    n_missing: int
    connected: bool = True
    fit: AdditiveFit | None = None
    places: Codes | None = None
    parts: Floats | None = None

    @classmethod
    def from_rows(cls, rows: pd.DataFrame, values: Floats, is_scored: ArrayLike | None = None) -> Cells:
        """Sum the values [row] of the column `cluster` at the column `w_value`; NaN is no value.

        A unit (column `unit`) is a sentence with a prompt. Clusters without any scored row [row] are excluded. Both axes are sorted,
        so the order of rows does not matter.
        """
        clusters, x = rows["cluster"], rows["w_value"]
        names, seen = np.asarray(clusters), ~np.isnan(values)
        names = names.astype(str) if names.dtype == object else names
        of_row, levels = pd.factorize(names, sort=True, use_na_sentinel=False)
        at, axis = pd.factorize(np.asarray(x, dtype=np.float64), sort=True, use_na_sentinel=False)
        has_rows = np.bincount(of_row[seen if is_scored is None else np.asarray(is_scored)], minlength=len(levels)) > 0
        seen &= has_rows[of_row]
        cell = (np.cumsum(has_rows) - 1)[of_row[seen]] * len(axis) + at[seen]
        shape = int(has_rows.sum()), len(axis)
        sums, counts = (_sums(cell, weights, shape) for weights in (values[seen], np.ones(len(cell))))
        plain = cls(axis, sums, counts, sums, counts, len(cell), len(values) - len(cell))
        return plain._without_levels(pd.factorize(rows["unit"].to_numpy()[seen], sort=True)[0], cell, values[seen])

    def _without_levels(self, unit: Codes, cell: Codes, values: Floats) -> Cells:
        """The cells without the levels of the units [scored row], else of the clusters, if their counts are not proportional."""
        cluster, w = np.divmod(cell, len(self.x))
        for codes in (unit, cluster):
            shape, places = (int(codes.max(initial=-1)) + 1, len(self.x)), codes * len(self.x) + w
            counts = _sums(places, np.ones(len(cell)), shape)
            if (counts * len(cell) == np.outer(counts.sum(axis=1), counts.sum(axis=0))).all():
                return self  # plain means have the same levels
            if (fit := additive_fit(_sums(places, values, shape), counts)) is None:
                continue
            cluster_of = np.zeros(shape[0], dtype=np.int64)
            cluster_of[codes] = cluster
            influences, parts = np.zeros_like(self.sums), np.zeros_like(self.sums)
            np.add.at(influences, cluster_of, fit.influences)
            np.add.at(parts, cluster_of, fit.parts)
            sums = self.counts * fit.means + self.counts.sum(axis=0) * influences
            crossed = (np.count_nonzero(counts, axis=1) > 1)[codes].astype(np.float64)
            own, own_counts = (_sums(cell, one * crossed, sums.shape) for one in (values - fit.levels[codes], crossed))
            return replace(self, sums=sums, own=own, own_counts=own_counts, fit=fit, places=places, parts=parts)
        return replace(self, connected=False)

    @property
    def adjusted(self) -> bool:
        """Whether the counts of units are not proportional, so that the means are those of an additive fit of units and W values."""
        return self.fit is not None

    @property
    def means(self) -> Floats:
        """W means [w]; NaN for W values without observations."""
        return divide(self.sums.sum(axis=0), self.counts.sum(axis=0))

    @property
    def n_clusters(self) -> int:
        """Clusters with observations."""
        return int(np.count_nonzero(self.counts.any(axis=1)))

    @property
    def n_crossed(self) -> int:
        """Clusters from which effects of W can be estimated: those of units with several W values if `adjusted`, else all."""
        return int(np.count_nonzero(self.own_counts.any(axis=1)))

    @property
    def has_shares(self) -> bool:
        """Whether all means are above 0 and below 100; adjusted means may lie outside."""
        return bool(((self.means > 0) & (self.means < 100)).all())

    def effect_parts(self) -> tuple[Floats, Floats]:
        """What each cluster contributes to the effects of W, for `effect_of_parts`, each [cluster, w]."""
        if self.parts is None:
            parts = effect_parts(self.sums, self.counts)
            return parts, parts
        crossed, means = self.own_counts.any(axis=1), self.means
        moved = ((self.sums - self.counts * means) / self.counts.sum(axis=0))[crossed]
        shares = (means - means.mean()) / len(moved)
        return shares + moved - moved.mean(axis=1, keepdims=True), self.parts[crossed]

    def summary(self) -> ClusterSummary:
        """The summary of one series for `trend`."""
        sums, counts, *own = (one[None] for one in (self.sums, self.counts, self.own, self.own_counts))
        return cluster_summary(self.x, sums, counts, (own[0], own[1]))

    def drop_empty(self) -> Cells:
        """The cells of clusters and W values with observations."""
        clusters, values = self.counts.any(axis=1), self.counts.any(axis=0)
        if clusters.all() and values.all():
            return self
        place = np.ix_(clusters, values)
        of_cells = {name: getattr(self, name)[place] for name in ("sums", "counts", "own", "own_counts")}
        return replace(self, x=self.x[values], parts=None if self.parts is None else self.parts[place], **of_cells)

    def log_odds(self) -> Cells:
        """Cells with the log-odds of the means, and the first-order influence of each sentence on them.

        NaN if a mean is 0 or 100.
        """
        means = self.means
        inside = np.where((means > 0) & (means < 100), means, math.nan)
        steepness = 100 / (inside * (100 - inside))
        sums, own = (
            counts * special.logit(inside / 100) + (sums - counts * means) * steepness
            for sums, counts in ((self.sums, self.counts), (self.own, self.own_counts))
        )
        return replace(self, sums=sums, own=own)


def _sums(codes: Codes, weights: Floats, shape: tuple[int, int]) -> Floats:
    summed: Floats = np.bincount(codes, weights=weights, minlength=shape[0] * shape[1]).astype(np.float64)
    return summed.reshape(shape)


def unit_codes(observations: pd.DataFrame) -> Codes:
    """Code of the sentence with its prompt, and with its value of a crossed list, of each row [row]."""
    known = "prompt", "cluster", *sentence_columns(observations), OTHER_INDEX
    names = [name for name in known if name in observations]
    return np.asarray(observations.groupby(names, dropna=False).ngroup(), dtype=np.int64)


def sentence_columns(observations: pd.DataFrame) -> list[str]:
    """Columns that identify a sentence in its cluster: `sentence`, else all factors except those of W (template and slots)."""
    if "sentence" in observations:
        return ["sentence"]
    others = observations.loc[:, [name not in RESERVED_COLUMNS for name in observations]]
    return [str(name) for name in others.select_dtypes(exclude=["number", "bool"])]
