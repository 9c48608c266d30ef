"""The labelled and scored sentences of one detector, and the results of a score on them.

Intervals resample whole clusters (occupations), because the sentences of one occupation are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.metric import Group, make_result
from undertow.metrics.sentence_scores import COMBINED
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Bools, Codes, Floats, divide, t_quantile
from undertow.stats.classification.roc import auroc, auroc_draws, auroc_p_value, n_mixed
from undertow.stats.intervals.cluster_errors import influence_variance, mean_interval, spread_interval
from undertow.stats.significance.sign_flip import JackknifeReplicates, flip_p_values
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd


SHARE, POINTS = "share", "percentage points"
N_PERMUTATIONS = 2_000
ROUNDING = 1e-9
"""Relative width below which an interval comes from equal clusters."""
ONE_KIND = "the sentences are all of one kind"
ALIKE = "all clusters have the same value, so the variance is unknown"


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The labelled and scored sentences of one detector.

    Attributes:
        table: [sentence].
        positive: whether the sentence is underspecified [sentence].
        cluster: index of its cluster [sentence].
        weights: count of each cluster in each bootstrap draw [draw, cluster], shared by all scores.
        without: 0 for the clusters that each jackknife group omits, else 1 [group, cluster].
        n_missing: sentences without a score.
        group, groups: keys of the results; word groups, the leading one first.
        seed: of the permutations.
        score: the score of the results.
        refits: the held-out score `combined` in percent, NaN for sentences without it, in each of the first draws [draw, sentence] and
            without each group of clusters [group, sentence]; None if it is not fitted.
        known_draws: cached AUROC draws of scores over all of `table`.
    """

    table: pd.DataFrame
    positive: Bools
    cluster: Codes
    weights: Floats
    without: Floats
    n_missing: int
    group: Group
    groups: Sequence[str]
    seed: int
    score: str = ""
    refits: tuple[Floats, Floats] | None = None
    known_draws: dict[str, Floats] = field(default_factory=dict)

    @property
    def values(self) -> Floats:
        """The score [sentence]."""
        return self.table[self.score].to_numpy(dtype=np.float64)

    def of_score(self, score: str, *others: str) -> ScoreTable:
        """The sentences with this score and these others, for results about the score; other sentences count as missing."""
        known = np.isfinite(self.table[[score, *others]].to_numpy(dtype=np.float64)).all(axis=1)
        part = self if known.all() else replace(self.where(known), n_missing=self.n_missing + int((~known).sum()))
        return replace(part, score=score, group={**self.group, "score": score})

    def where(self, part: Bools) -> ScoreTable:
        """A part of the sentences."""
        refits = self.refits and (self.refits[0][:, part], self.refits[1][:, part])
        return replace(
            self, table=self.table[part], positive=self.positive[part], cluster=self.cluster[part], refits=refits,
            known_draws={},
        )  # fmt: skip

    def result(self, name: str, value: float, **numbers: Any) -> Result:
        """A result about these sentences."""
        fields: dict[str, Any] = {"n": len(self.positive), "n_missing": self.n_missing, "unit": SHARE} | numbers
        return make_result(name, fields.pop("group", self.group), value, **fields)

    @property
    def has_both_kinds(self) -> bool:
        """Whether there are specified and underspecified sentences."""
        return bool(self.positive.any() and not self.positive.all())

    @property
    def min_clusters(self) -> int:
        """Number of clusters of the kind with fewer clusters."""
        kinds = (self.cluster[kind] for kind in (self.positive, ~self.positive) if kind.any())
        return min((len(np.unique(clusters)) for clusters in kinds), default=0)

    @property
    def why_untested(self) -> str:
        """Reason why there is no test; "" if there is one."""
        if (n_clusters := self.min_clusters) < MIN_CLUSTERS:
            return (
                f"an interval or a test needs sentences of each kind from at least {MIN_CLUSTERS} {cluster_noun(self.table)}, "
                f"and one kind has {n_clusters}"
            )
        if 0 < (mixed := n_mixed(self.positive, self.cluster)) < MIN_CLUSTERS:
            return f"{mixed} {cluster_noun(self.table)} have sentences of both kinds, and a test within them needs at least {MIN_CLUSTERS}"
        return ""

    def why(self, low: float) -> str:
        """Reason why there is no interval; "" if there is one."""
        if math.isfinite(low) or only_points():
            return ""
        return self.why_untested if self.min_clusters < MIN_CLUSTERS else ALIKE

    @property
    def fitted_draws(self) -> Floats | None:
        """A fitted score in each draw [draw, sentence]; None for other scores."""
        if self.score != COMBINED:
            return None
        return np.empty((0, len(self.table))) if self.refits is None else self.refits[0]

    def area_draws(self) -> Floats:
        """AUROC of the score in each bootstrap draw [draw]; for a fitted score in the first draws only."""
        if self.score not in self.known_draws:
            drawn = self.fitted_draws
            weights = self.weights if drawn is None else self.weights[: len(drawn)]
            values = self.values if drawn is None else drawn
            self.known_draws[self.score] = auroc_draws(values, self.positive, self.cluster, weights)
        return self.known_draws[self.score]

    def areas_without(self) -> Floats:
        """AUROC of the score without each group of clusters [group]."""
        values = self.values if self.score != COMBINED or self.refits is None else self.refits[1]
        return auroc_draws(values, self.positive, self.cluster, self.without)

    def area(self, name: str = "auroc", **numbers: Any) -> Result:
        """AUROC of the score, with its interval."""
        value = auroc(self.values, self.positive)
        if math.isnan(value):
            return self.result(name, value, note=ONE_KIND, **numbers)
        low, high = self.interval(self.area_draws(), value)
        return self.result(name, value, low=low, high=high, note=self.why(low), **numbers)

    def mean(
        self, name: str, marks: Floats | Bools, unit: str = SHARE, *, drawn: Bools | None = None, **numbers: Any
    ) -> Result:
        """The mean of values [sentence] with its interval over clusters; `drawn` has the refitted values of each draw."""
        values = np.asarray(marks, dtype=np.float64)
        if not len(values):
            return self.result(name, math.nan, unit=unit, note="there is no such sentence", **numbers)
        value = float(values.mean())
        if unit == SHARE:
            low, high = self.interval(self._means(values if drawn is None else drawn, self.weights), value)
        else:
            low, high = self._interval_of_points(values, value)
        return self.result(name, value, low=low, high=high, unit=unit, note=self.why(low), **numbers)

    def interval(self, draws: Floats, value: float, *, share: bool = True) -> tuple[float, float]:
        """95% interval from bootstrap draws; for a share of 0 or 1 the exact bound for the clusters of the smaller kind, if it is wider.

        A bootstrap of hits only has no variance, but if all of k independent clusters hit, a share of 0.025^(1/k) is still possible
        (Clopper and Pearson 1934). Other constant draws give no interval.
        """
        n_clusters = self.min_clusters if share else len(np.unique(self.cluster))
        if self.min_clusters < MIN_CLUSTERS or not len(draws):
            return math.nan, math.nan
        if share and value in (0.0, 1.0):
            bound = min(0.025 ** (1 / n_clusters), 1 - abs(spread_interval(value, draws, n_clusters)[0] - value))
            return (max(bound, 0.0), 1.0) if value else (0.0, min(1 - bound, 1.0))
        low, high = spread_interval(value, draws, n_clusters, share=share)
        return (low, high) if low < high else (math.nan, math.nan)

    def _interval_of_points(self, values: Floats, mean: float) -> tuple[float, float]:
        """95% t interval of an unbounded mean, with fewer degrees of freedom if a few clusters are extreme."""
        has_data = np.bincount(self.cluster) > 0
        influences = np.bincount(self.cluster, weights=values - mean) / len(values)
        variance, df = influence_variance(influences, has_data)
        if self.min_clusters < MIN_CLUSTERS or only_points() or not variance > 0:
            return math.nan, math.nan
        half = t_quantile(float(df)) * math.sqrt(variance)
        return (mean - half, mean + half) if half > ROUNDING * abs(mean) else (math.nan, math.nan)

    def exchange_p(self, whole: float, without: Floats) -> float:
        """p-value of a difference from 0, by flipping the signs of the contributions of groups; `without` each of these [group]."""
        counting = self.without @ np.bincount(self.cluster, minlength=self.without.shape[1]) < len(self.cluster)
        if self.min_clusters < MIN_CLUSTERS or only_points():
            return math.nan
        (p,) = flip_p_values([whole], JackknifeReplicates(without[:, np.newaxis], counting[:, np.newaxis]), self.seed)
        return float(p)

    def p_of_mean(self, marks: Floats | Bools, null_value: float) -> float:
        """p-value of the mean of values [sentence] against its null value."""
        values = np.asarray(marks, dtype=np.float64) - null_value
        return self.exchange_p(float(values.mean()), self._means(values, self.without))

    def p_of_area(self, values: Floats) -> float:
        """p-value of the AUROC of values [sentence]; NaN with too few clusters."""
        if self.why_untested:
            return math.nan
        rng = np.random.default_rng(self.seed)
        return auroc_p_value(values, self.positive, self.cluster, N_PERMUTATIONS, rng)

    def _means(self, values: Floats | Bools, weights: Floats) -> Floats:
        """Mean of values [sentence] by weights [draw, cluster]; refitted values are those of the first draws [draw, sentence]."""
        n_clusters = weights.shape[1]
        if values.ndim == 1:
            sums = weights @ np.bincount(self.cluster, weights=values, minlength=n_clusters)
        else:
            weights = weights[: len(values)]
            sums = (weights[:, self.cluster] * values).sum(axis=1)
        counts = weights @ np.bincount(self.cluster, minlength=n_clusters).astype(np.float64)
        return divide(sums, counts)

    def balanced_draws(self, calls: Bools) -> Floats:
        """Balanced accuracy in each draw [draw] of calls that were refitted in it [draw, sentence]."""
        kinds = ((self.positive, calls), (~self.positive, ~calls))
        first, second = (self.where(kind)._means(right[:, kind], self.weights) for kind, right in kinds)
        return (first + second) / 2

    def balanced(self, name: str, calls: Bools, refitted: Floats | None = None, **numbers: Any) -> Result:
        """Balanced accuracy of calls [sentence], with the interval of the mean of two rates, or that of its `refitted` draws if wider."""
        if not self.has_both_kinds:
            return self.result(name, math.nan, null_value=math.nan, note=ONE_KIND, **numbers)
        right = (calls == self.positive).astype(np.float64)
        parts = [(self.where(kind), right[kind]) for kind in (self.positive, ~self.positive)]
        rates = [float(hits.mean()) for _, hits in parts]
        draws = [part._means(hits, self.weights) for part, hits in parts]
        ends = [part.interval(drawn, rate) for (part, _), drawn, rate in zip(parts, draws, rates, strict=True)]
        low, high = mean_interval(rates, ends, draws, unknown=float(n_mixed(self.positive, self.cluster) > 0))
        value = sum(rates) / 2
        if refitted is not None:
            others = spread_interval(value, refitted, self.min_clusters, share=0 < value < 1)
            low, high = np.clip([np.minimum(low, others[0]), np.maximum(high, others[1])], 0.0, 1.0).tolist()
        return self.result(name, value, low=low, high=high, note=self.why(low), **numbers)


def cluster_noun(table: pd.DataFrame) -> str:
    """Plural name of the clusters of a table: occupations, sentences, or clusters."""
    cluster = table["cluster"].astype(str)
    for column, noun in (("occupation", "occupations"), ("sentence", "sentences")):
        if column in table and (table[column].astype(str) == cluster).all():
            return noun
    return "clusters"
