"""Detection of underspecified sentences by scores.

Underspecified is the positive class. Scores are compared with each other and with plain entropy. Intervals resample whole clusters
(occupations), because the sentences of one occupation are not independent. Below six clusters of either kind there is no interval
and no test. The score `combined` and held-out thresholds are refitted in each resample and permutation. McMilin 2024 (AAAI),
section 5.2 and table 3; the ICLR submission "Selection Induced Collider Bias in
LLMs", section 5 (hardest subset, figure 4). AUROC, held-out thresholds, paired differences and the baselines are not in the papers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from undertow.metrics.metric import Group, make_result
from undertow.metrics.sentence_scores import (
    COMBINED,
    DELTA,
    ENTROPY,
    KEYS,
    MEAN,
    SHIFT,
    TOTAL_VARIATION,
    features,
    score_names,
)
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Bools, Codes, Floats, divide, t_quantile
from undertow.stats.classification.roc import (
    ROUNDING_DECIMALS,
    auroc,
    auroc_draws,
    auroc_p_value,
    fitted_auroc_p_value,
    folds,
    held_out_balanced_draws,
    held_out_calls,
    n_mixed,
)
from undertow.stats.intervals.cluster_errors import cluster_weights, influence_variance, spread_interval
from undertow.stats.regression.logistic import held_out_draws, held_out_log_odds
from undertow.stats.significance.false_discovery import adjust_p_values
from undertow.stats.significance.sign_flip import JackknifeReplicates, flip_p_values
from undertow.stats.variance_components import one_way, welch_p
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

THRESHOLD_PERCENT = 0.5
"""McMilin 2024: a movement of more than half a percentage point means underspecified."""
HARDEST_THRESHOLD_PERCENT = 1.0
"""The ICLR submission's threshold on its hardest subset."""
EVEN_CHANCE_PERCENT = 50.0
BASELINES = (ENTROPY, TOTAL_VARIATION)
N_DRAWS = 1_000
N_PERMUTATIONS = 2_000
N_REFITS = 400
"""Bootstrap draws with refits; only their standard deviation is used, which 400 draws give within 4%."""
N_REFITTED_PERMUTATIONS = 1_000
MALE_TYPED_BELOW, FEMALE_TYPED_FROM = 30.0, 70.0
OCCUPATIONS = {
    "under 30% women": (-math.inf, MALE_TYPED_BELOW),
    "30 to 70% women": (MALE_TYPED_BELOW, FEMALE_TYPED_FROM),
    "70% women or more": (FEMALE_TYPED_FROM, math.inf),
}
"""Groups of occupations by their share of women: from the first number, below the second."""
MIN_CLUSTERS_FOR_A_FIT = 10
SHARE, POINTS = "share", "percentage points"
ROUNDING = 1e-9
"""Relative width below which an interval comes from equal clusters."""
ONE_KIND = "the sentences are all of one kind"
ALIKE = "all clusters have the same value, so the variance is unknown"


@dataclass(frozen=True, slots=True)
class _ScoreTable:
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

    def of_score(self, score: str, *others: str) -> _ScoreTable:
        """The sentences with this score and these others, for results about the score; other sentences count as missing."""
        known = np.isfinite(self.table[[score, *others]].to_numpy(dtype=np.float64)).all(axis=1)
        part = self if known.all() else replace(self.where(known), n_missing=self.n_missing + int((~known).sum()))
        return replace(part, score=score, group={**self.group, "score": score})

    def where(self, part: Bools) -> _ScoreTable:
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
        self, name: str, marks: NDArray[np.generic], unit: str = SHARE, *, drawn: NDArray[np.generic] | None = None, **numbers: Any
    ) -> Result:  # fmt: skip
        """The mean of values [sentence] with its interval over clusters; `drawn` has the refitted values of each draw."""
        values = np.asarray(marks, dtype=np.float64)
        if not len(values):
            return self.result(name, math.nan, unit=unit, note="there is no such sentence", **numbers)
        value = float(values.mean())
        if unit == SHARE:
            low, high = self.interval(self._mean_draws(values if drawn is None else drawn), value)
        else:
            low, high = self._interval_of_points(values, value)
        return self.result(name, value, low=low, high=high, unit=unit, note=self.why(low), **numbers)

    def interval(self, draws: Floats, value: float, *, share: bool = True) -> tuple[float, float]:
        """95% interval from bootstrap draws; for a share of 0 or 1 the exact bound for that many clusters, if it is wider.

        A bootstrap of hits only has no variance, but if all of k independent clusters hit, a share of 0.025^(1/k) is still possible
        (Clopper and Pearson 1934). Other constant draws give no interval.
        """
        n_clusters = len(np.unique(self.cluster))
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

    def p_of_mean(self, marks: NDArray[np.generic], null_value: float) -> float:
        """p-value of the mean of values [sentence] against its null value."""
        values = np.asarray(marks, dtype=np.float64) - null_value
        return self.exchange_p(float(values.mean()), self._means(values, self.without))

    def p_of_area(self, values: Floats) -> float:
        """p-value of the AUROC of values [sentence]; NaN with too few clusters."""
        if self.why_untested:
            return math.nan
        rng = np.random.default_rng(self.seed)
        return auroc_p_value(values, self.positive, self.cluster, N_PERMUTATIONS, rng)

    def _mean_draws(self, marks: NDArray[np.generic]) -> Floats:
        values = np.asarray(marks, dtype=np.float64)
        return self._means(values, self.weights if values.ndim == 1 else self.weights[: len(values)])

    def _means(self, values: Floats, weights: Floats) -> Floats:
        n_clusters = weights.shape[1]
        if values.ndim == 1:
            sums = weights @ np.bincount(self.cluster, weights=values, minlength=n_clusters)
        else:
            sums = (weights[:, self.cluster] * values).sum(axis=1)
        counts = weights @ np.bincount(self.cluster, minlength=n_clusters).astype(np.float64)
        return divide(sums, counts)

    def balanced(self, name: str, calls: Bools, drawn: Bools | None = None) -> Result:
        """Balanced accuracy of calls [sentence]; `drawn` as in `mean`."""
        kinds = (self.positive, ~self.positive)
        if not self.has_both_kinds:
            return self.result(name, math.nan, null_value=math.nan, note=ONE_KIND)
        right = (calls == self.positive).astype(np.float64)
        in_draws = right if drawn is None else (drawn == self.positive).astype(np.float64)
        draws = np.mean([self.where(kind)._mean_draws(in_draws[..., kind]) for kind in kinds], axis=0)
        value = sum(float(right[kind].mean()) for kind in kinds) / 2
        low, high = self.interval(draws, value)
        return self.result(name, value, low=low, high=high, note=self.why(low))


def cluster_noun(table: pd.DataFrame) -> str:
    """Plural name of the clusters of a table: occupations, sentences, or clusters."""
    cluster = table["cluster"].astype(str)
    for column, noun in (("occupation", "occupations"), ("sentence", "sentences")):
        if column in table and (table[column].astype(str) == cluster).all():
            return noun
    return "clusters"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Threshold in percent above which a score means underspecified.

    With `as_they_come`, floating-point numbers are compared without a tolerance, as in the papers; otherwise a score that equals the
    threshold up to rounding is not above it.
    """

    percent: float = THRESHOLD_PERCENT
    as_they_come: bool = False

    def of(self, score: str) -> Threshold:
        """The threshold for one score: one half for the probability `combined`."""
        return Threshold(EVEN_CHANCE_PERCENT) if score == COMBINED else self

    def flags(self, values: Floats) -> Bools:
        """Whether each value [sentence] is above the threshold."""
        compared = values if self.as_they_come else np.round(values, ROUNDING_DECIMALS)
        above: Bools = compared > self.percent
        return above


def with_combined(scored: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """The scored sentences with the score `combined`, fitted for each to the sentences of other occupations.

    NaN for sentences without scores, and with fewer than ten occupations of either kind, because leave-one-out fits are then biased
    towards the wrong answer.
    """
    chances = np.full(len(scored), math.nan)
    if "well_specified" in scored:
        x = features(scored, groups)
        known = np.isfinite(x).all(axis=1)
        positive: Bools = ~scored["well_specified"].to_numpy(dtype=bool)
        cluster = scored["cluster"].astype(str).to_numpy()
        detector = scored.groupby(list(KEYS), sort=False, dropna=False).ngroup().to_numpy()
        for one in np.unique(detector):
            own = known & (detector == one)
            kinds = [cluster[own & kind] for kind in (positive, ~positive)]
            if all(len(np.unique(kind)) >= MIN_CLUSTERS_FOR_A_FIT for kind in kinds):
                chances[own] = 100 * special.expit(held_out_log_odds(x[own], positive[own], cluster[own]))
    return scored.assign(**{COMBINED: chances})


def detect(scored: pd.DataFrame, groups: Sequence[str], threshold: Threshold, *, seed: int) -> list[Result]:
    """Every measure of detection for every model, prompt, set and W list, from the output of `sentence_scores`.

    Without labels, only the share of sentences that each score flags.
    """
    results: list[Result] = []
    is_labelled = "well_specified" in scored
    for levels, part in scored.groupby(list(KEYS), sort=False, dropna=False):
        of = dict(zip(KEYS, map(str, levels), strict=True))
        # Prompt and W are keys if a model has several in one set.
        same = (scored["model"].astype(str) == of["model"]) & (scored["challenge"].astype(str) == of["challenge"])
        several = [key for key in ("prompt", "w_name") if scored.loc[same, key].astype(str).nunique() > 1]
        group = {"model": of["model"], "set": of["challenge"], **{key: of[key] for key in several}}
        prepared = _score_table(part, group, groups, seed)
        scores = [name for name in [*score_names(groups), COMBINED] if name in prepared.table]
        scores = [name for name in scores if prepared.table[name].notna().any()]
        if not scores:
            n = len(prepared.table) + prepared.n_missing
            name, null_value = ("auroc", 0.5) if is_labelled else ("flagged", math.nan)
            about, note = {**group, "score": f"{DELTA}{groups[0]}"}, f"None of the {n:,} sentences has a score."
            results.append(Result(name, about, math.nan, n_missing=n, unit=SHARE, null_value=null_value, note=note))
        elif is_labelled:
            results += _detector_results(prepared, scores, threshold)
        else:
            for one in map(prepared.of_score, scores):
                calls, extras = threshold.flags(one.values), {"threshold": threshold.percent}
                results.append(one.mean("flagged", calls, extras=extras))
    return adjust_p_values(results, lambda _: "run")


def _score_table(part: pd.DataFrame, group: Group, groups: Sequence[str], seed: int) -> _ScoreTable:
    known = (part["missing_reason"] == "").to_numpy()
    # Each result cuts the table, which is fast in few blocks: texts are objects, and a copy joins columns of one type.
    texts = [str(name) for name in part if str(part[name].dtype) in {"str", "string"}]
    table = part[known].astype(dict.fromkeys(texts, object)).reset_index(drop=True).copy()
    names, cluster = np.unique(table["cluster"].astype(str).to_numpy(), return_inverse=True)
    # Too few clusters: no draws, so no interval.
    n_draws = N_DRAWS if len(names) >= MIN_CLUSTERS else 0
    weights = cluster_weights(max(len(names), 1), n_draws, np.random.default_rng(seed))
    known_truth = "well_specified" in table
    positive = ~table["well_specified"].astype(bool).to_numpy() if known_truth else np.ones(len(table), dtype=bool)
    fold = folds(weights.shape[1])
    without = (fold != np.unique(fold)[:, np.newaxis]).astype(np.float64)
    scored = _ScoreTable(table, positive, cluster, weights, without, int((~known).sum()), group, groups, seed)
    return replace(scored, refits=_refits(scored))


def _refits(scored: _ScoreTable) -> tuple[Floats, Floats] | None:
    """The score `combined` refitted in resamples as in `with_combined`; None without the score or without resamples."""
    if COMBINED not in scored.table or only_points():
        return None
    own = scored.table[COMBINED].notna().to_numpy()
    part = scored.where(own)
    if not own.any() or part.min_clusters < MIN_CLUSTERS_FOR_A_FIT:
        return None
    x, fold = features(part.table, scored.groups), folds(scored.weights.shape[1])

    def percent(weights: Floats) -> Floats:
        chances = np.full((len(weights), len(own)), math.nan)
        chances[:, own] = 100 * special.expit(held_out_draws(x, part.positive, part.cluster, weights, fold))
        return chances

    return percent(scored.weights[:N_REFITS]), percent(scored.without)


def _detector_results(scored: _ScoreTable, scores: Sequence[str], threshold: Threshold) -> Iterator[Result]:
    tables = {score: scored.of_score(score) for score in scores}
    for score, one in tables.items():
        yield from _score_results(one, threshold.of(score))
    for score in scores:
        for baseline in [name for name in BASELINES if name in scores and name != score]:
            yield _difference(scored.of_score(score, baseline), baseline)
    yield from _agreement(scored)
    for score, one in tables.items():
        yield from _hardest(one, Threshold(HARDEST_THRESHOLD_PERCENT, threshold.as_they_come).of(score))
    for one in tables.values():
        yield from _occupation_results(one)
    yield from _additive_effects(scored)
    for score in [name for name in scores if name in (f"{DELTA}{scored.groups[0]}", COMBINED)]:
        yield from _cluster_results(tables[score], threshold.of(score))


def _score_results(scored: _ScoreTable, threshold: Threshold) -> Iterator[Result]:
    yield from _rates(scored, threshold)
    values, drawn = scored.values, scored.fitted_draws
    above = threshold.flags(values)
    balanced = scored.balanced("balanced_accuracy", above, None if drawn is None else threshold.flags(drawn))
    # The AUROC of binary calls is their balanced accuracy.
    is_leading = scored.score == f"{DELTA}{scored.groups[0]}"
    p = scored.p_of_area(above.astype(np.float64)) if is_leading else math.nan
    yield replace(balanced, extras={"threshold": threshold.percent}, p=p)
    area = scored.area()
    if scored.score != COMBINED:
        yield _held_out(scored)
        p = scored.p_of_area(values)
    elif scored.why_untested or scored.refits is None:
        p = math.nan
    else:  # held out already, and refitted in each permutation
        n, rng = min(N_PERMUTATIONS, N_REFITTED_PERMUTATIONS), np.random.default_rng(scored.seed)
        x = features(scored.table, scored.groups)
        p = fitted_auroc_p_value(x, scored.positive, scored.cluster, n, rng)
    yield replace(area, p=p, note=area.note or scored.why_untested)


def _rates(scored: _ScoreTable, threshold: Threshold, before: str = "") -> Iterator[Result]:
    above, drawn, extras = threshold.flags(scored.values), scored.fitted_draws, {"threshold": threshold.percent}
    for name, kind, says in (("tpr", scored.positive, True), ("tnr", ~scored.positive, False)):
        calls = None if drawn is None else (threshold.flags(drawn) == says)[:, kind]
        yield scored.where(kind).mean(f"{before}{name}", (above == says)[kind], drawn=calls, extras=extras)


def _held_out(scored: _ScoreTable) -> Result:
    """Classify each sentence by the best threshold of the other clusters; excluded if these have one kind only."""
    values, (calls, thresholds) = scored.values, held_out_calls(scored.values, scored.positive, scored.cluster)
    known = np.isfinite(thresholds)
    part = replace(scored.where(known), n_missing=scored.n_missing + int((~known).sum()))
    chosen = float(np.median(thresholds[known])) if known.any() else math.nan
    result = part.balanced("held_out_balanced_accuracy", calls[known])
    result = replace(result, low=math.nan, high=math.nan, extras={"threshold": chosen})
    if not known.any() and scored.has_both_kinds:
        return replace(result, note=f"without one of the {cluster_noun(scored.table)} the others are all of one kind")
    if not math.isfinite(result.value) or part.min_clusters < MIN_CLUSTERS:
        return result
    weights = part.weights[:N_REFITS]
    draws = held_out_balanced_draws(values[known], part.positive, part.cluster, weights, folds(part.weights.shape[1]))
    low, high = part.interval(draws, result.value)
    return replace(result, low=low, high=high, note=part.why(low))


def _difference(scored: _ScoreTable, baseline: str) -> Result:
    """AUROC of one score minus that of a baseline, on the same sentences and in the same bootstrap draws.

    Tested if a finding needs it: total variation against entropy, and `combined` against either.
    """
    other = replace(scored, score=baseline)
    value = auroc(scored.values, scored.positive) - auroc(other.values, scored.positive)
    of_score = scored.area_draws()
    low, high = scored.interval(of_score - other.area_draws()[: len(of_score)], value, share=False)
    low, high = max(low, -1.0), min(high, 1.0)
    p = math.nan
    if math.isfinite(value) and (scored.score == COMBINED or (scored.score, baseline) == (TOTAL_VARIATION, ENTROPY)):
        p = scored.exchange_p(value, scored.areas_without() - other.areas_without())
    note = scored.why(low) if math.isfinite(value) else ONE_KIND
    group = {**scored.group, "against": baseline}
    return scored.result("auroc_difference", value, group=group, low=low, high=high, p=p, note=note)


def _agreement(scored: _ScoreTable) -> Iterator[Result]:
    """Whether the right group of a specified sentence has more mass than the other groups that occur as right answers."""
    if "expected" not in scored.table:
        return
    decided = scored.where(~scored.positive & scored.table["expected"].isin(list(scored.groups)).to_numpy())
    rivals = [name for name in scored.groups if (decided.table["expected"] == name).any()]
    if len(rivals) < 2:
        return
    means = decided.table[[f"{MEAN}{name}" for name in rivals]].to_numpy(dtype=np.float64)
    expected = np.array([rivals.index(name) for name in decided.table["expected"]])
    own = means[np.arange(len(means)), expected]
    others = means.copy()
    others[np.arange(len(means)), expected] = -math.inf
    prefers = own > others.max(axis=1)
    yield replace(decided.mean("coreference_agreement", prefers), p=decided.p_of_mean(prefers, 0.5))


def _hardest(scored: _ScoreTable, threshold: Threshold) -> Iterator[Result]:
    """Rates on sentences with a man or a woman: flagged if the pronoun refers to the professional, and only then."""
    table = scored.table
    if not {"participant_class", "coreferent"} <= set(table):
        return
    hard = scored.where((table["participant_class"].isin(["man", "woman"]) & table["coreferent"].notna()).to_numpy())
    if hard.table["coreferent"].nunique() > 1:
        yield from _rates(hard, threshold, "hardest_")


def _occupation_results(scored: _ScoreTable) -> Iterator[Result]:
    if "percent_female" not in scored.table:
        return
    share = scored.table["percent_female"].to_numpy(dtype=np.float64)
    parts = {name: scored.where((share >= least) & (share < below)) for name, (least, below) in OCCUPATIONS.items()}
    parts = {name: part for name, part in parts.items() if part.has_both_kinds}
    for name, part in parts.items():
        yield part.area("auroc_by_occupations", group={**scored.group, "occupations": name})
    if scored.score == TOTAL_VARIATION:
        yield from _range_of_areas([part for part in parts.values() if part.min_clusters >= MIN_CLUSTERS])


def _range_of_areas(parts: Sequence[_ScoreTable]) -> Iterator[Result]:
    """Range of the areas over groups of occupations, with a test of their equality.

    The test is Welch's analysis of variance of the jackknife pseudo-values, one per cluster, because groups have different occupations
    and may have different variances.
    """
    if len(parts) < 2:
        return
    areas, pseudo_values = [], []
    for part in parts:
        clusters = np.unique(part.cluster)
        areas.append(auroc(part.values, part.positive))
        one_less = (np.arange(part.weights.shape[1]) != clusters[:, np.newaxis]).astype(np.float64)
        left = auroc_draws(part.values, part.positive, part.cluster, one_less)
        pseudo_values.append(len(clusters) * areas[-1] - (len(clusters) - 1) * left)
    clusters_of = [set(part.cluster.tolist()) for part in parts]
    p, note = math.nan, "the same clusters are in several parts"
    if len(set.union(*clusters_of)) == sum(map(len, clusters_of)):
        of = np.repeat(np.arange(len(parts)), [len(one) for one in pseudo_values])
        p = math.nan if only_points() else welch_p(np.concatenate(pseudo_values), of)
        note = "" if math.isfinite(p) or only_points() else "all clusters of one part have the same value"
    n = sum(len(part.positive) for part in parts)
    yield parts[0].result("auroc_range", max(areas) - min(areas), n=n, p=p, note=note)


def _additive_effects(scored: _ScoreTable) -> Iterator[Result]:
    """Figure 4 of the ICLR submission as two effects: the occupation moves the level, W the slope.

    Over the underspecified sentences: the share of the variance of levels between occupations, the mean movement, and the share of the
    variance of movements between occupations, which has its chance value if the effects are additive. Occupations and sentence frames
    are confounded, so nothing is tested.
    """
    part = scored.where(scored.positive)
    if len(np.unique(part.cluster)) < 2:
        return
    leading = scored.groups[0]
    part = replace(part, group={**scored.group, "pronoun": leading})
    # Rounded, so that movements of the size of rounding errors have no variance.
    level, shift = (
        np.round(part.table[f"{kind}{leading}"].to_numpy(dtype=np.float64), ROUNDING_DECIMALS) + 0.0
        for kind in (MEAN, SHIFT)
    )
    for name, y in (("occupation_effect", level), ("interaction", shift)):
        variance = one_way(y, part.cluster)
        yield part.result(name, variance.share, null_value=variance.expected_share)
    moved = part.mean("mean_movement", shift, POINTS, null_value=0.0)
    yield replace(moved, p=part.p_of_mean(shift, 0.0) if math.isfinite(moved.low) else math.nan)


def _cluster_results(scored: _ScoreTable, threshold: Threshold) -> Iterator[Result]:
    """Share of right calls in each cluster, with the mean score of either kind; none if each cluster is one sentence."""
    values, names = scored.values, scored.table["cluster"].astype(str).to_numpy()
    right = threshold.flags(values) == scored.positive
    share = scored.table["percent_female"].to_numpy(dtype=np.float64) if "percent_female" in scored.table else None
    clusters = dict.fromkeys(names)
    if len(clusters) == len(names):
        return
    for name in clusters:
        own = names == name
        extras = {
            kind: float(values[own & marks].mean()) if (own & marks).any() else math.nan
            for kind, marks in (("specified", ~scored.positive), ("unspecified", scored.positive))
        }
        if share is not None:
            extras = {"percent_female": float(share[own][0]) if len(set(share[own])) == 1 else math.nan} | extras
        about, value = {**scored.group, "occupation": name}, float(right[own].mean())
        yield Result("called_right", about, value, n=int(own.sum()), unit=SHARE, extras=extras)


def by_cluster(scored: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """One row for each occupation of each model and set: the mean of every score over either kind of sentence."""
    import pandas as pd

    names = [name for name in [*score_names(groups), COMBINED] if name in scored and scored[name].notna().any()]
    keys = [*KEYS, "cluster"]
    kinds = {"specified": True, "unspecified": False}
    known = scored[scored["missing_reason"] == ""]
    base = scored.groupby(keys, sort=False, dropna=False).size().rename("sentences").to_frame()
    if "percent_female" in scored:
        shares = scored.groupby(keys, sort=False, dropna=False)["percent_female"]
        # A cluster of several occupations has no single share of women.
        base["percent_female"] = shares.first().where(shares.nunique() == 1)
    parts = [
        known[known["well_specified"].astype(bool) == decided]
        .groupby(keys, sort=False, dropna=False)[names]
        .mean()
        .add_suffix(f"_{kind}")
        for kind, decided in kinds.items()
    ]
    return pd.concat([base, *parts], axis=1).reset_index()
