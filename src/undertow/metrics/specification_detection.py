"""Detection of underspecified sentences by scores.

Underspecified is the positive class. Scores are compared with each other and with plain entropy. Intervals resample whole clusters
(occupations), because the sentences of one occupation are not independent. Below six clusters of either kind there is no interval
and no test. The score `combined` and held-out thresholds are refitted in each resample and permutation. McMilin 2024 (AAAI),
section 5.2 and table 3; the ICLR submission "Selection Induced Collider Bias in
LLMs", section 5 (hardest subset, figure 4). AUROC, held-out thresholds, paired differences and the baselines are not in the papers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from undertow.metrics.multiple_testing import adjust_p_values
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
from undertow.stats.anova import one_way, welch_p
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
from undertow.stats.cluster_errors import influence_variance
from undertow.stats.intervals.cluster_bootstrap import cluster_weights, spread_interval
from undertow.stats.regression.logistic import held_out_draws, held_out_log_odds
from undertow.stats.significance.paired_differences import JackknifeReplicates, flip_p_values
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
class _Refits:
    """The held-out score `combined` in refits, in percent; NaN for sentences without it.

    Attributes:
        drawn: in each of the first bootstrap draws [draw, sentence].
        left: without each group of clusters [group, sentence].
    """

    drawn: Floats
    left: Floats


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
        seed: of the permutations.
        refits: of `combined`; None if it is not fitted.
        known_draws: cached AUROC draws of scores over all of `table`.
    """

    table: pd.DataFrame
    positive: Bools
    cluster: Codes
    weights: Floats
    without: Floats
    n_missing: int
    seed: int
    refits: _Refits | None = None
    known_draws: dict[str, Floats] = field(default_factory=dict)

    def values(self, score: str) -> Floats:
        """One score [sentence]."""
        return self.table[score].to_numpy(dtype=np.float64)

    def with_scores(self, *scores: str) -> _ScoreTable:
        """The sentences with these scores; the others count as missing."""
        known = np.isfinite(self.table[list(scores)].to_numpy(dtype=np.float64)).all(axis=1)
        if known.all():
            return self
        return replace(self.where(known), n_missing=self.n_missing + int((~known).sum()))

    def where(self, part: Bools) -> _ScoreTable:
        """A part of the sentences."""
        refits = self.refits and _Refits(self.refits.drawn[:, part], self.refits.left[:, part])
        return replace(
            self, table=self.table[part], positive=self.positive[part], cluster=self.cluster[part], refits=refits,
            known_draws={},
        )  # fmt: skip

    def result(self, name: str, group: Mapping[str, str], value: float, **numbers: Any) -> Result:
        """A result about these sentences."""
        counts: dict[str, Any] = {"n": len(self.positive), "n_missing": self.n_missing, "unit": SHARE}
        return Result(name, group, value, **counts | numbers)

    @property
    def min_clusters(self) -> int:
        """Number of clusters of the kind with fewer clusters."""
        kinds = (self.cluster[kind] for kind in (self.positive, ~self.positive) if kind.any())
        return min((len(np.unique(clusters)) for clusters in kinds), default=0)

    @property
    def why_untested(self) -> str:
        """Reason why there is no test; "" if there is one."""
        noun = cluster_noun(self.table)
        if self.min_clusters < MIN_CLUSTERS:
            return (
                f"an interval or a test needs sentences of each kind from at least {MIN_CLUSTERS} {noun}, but there are "
                f"{self.min_clusters}"
            )
        if 0 < (mixed := n_mixed(self.positive, self.cluster)) < MIN_CLUSTERS:
            return f"{mixed} {noun} have sentences of both kinds, and a test within them needs at least {MIN_CLUSTERS}"
        return ""

    def why(self, low: float) -> str:
        """Reason why there is no interval; "" if there is one."""
        if math.isfinite(low) or only_points():
            return ""
        return self.why_untested if self.min_clusters < MIN_CLUSTERS else ALIKE

    def drawn(self, score: str) -> Floats | None:
        """A fitted score in each draw [draw, sentence]; None for other scores."""
        if score != COMBINED:
            return None
        return np.empty((0, len(self.table))) if self.refits is None else self.refits.drawn

    def area_draws(self, score: str) -> Floats:
        """AUROC of a score in each bootstrap draw [draw]; for a fitted score in the first draws only."""
        if score not in self.known_draws:
            drawn = self.drawn(score)
            values = self.values(score) if drawn is None else drawn
            weights = self.weights if drawn is None else self.weights[: len(drawn)]
            self.known_draws[score] = auroc_draws(values, self.positive, self.cluster, weights)
        return self.known_draws[score]

    def areas_without(self, score: str) -> Floats:
        """AUROC of a score without each group of clusters [group]."""
        values = self.values(score) if score != COMBINED or self.refits is None else self.refits.left
        return auroc_draws(values, self.positive, self.cluster, self.without)

    def mean(
        self,
        name: str,
        group: Mapping[str, str],
        marks: NDArray[np.generic],
        unit: str = SHARE,
        *,
        drawn: NDArray[np.generic] | None = None,
    ) -> Result:
        """The mean of values [sentence] with its interval over clusters; `drawn` has the refitted values of each draw."""
        values = np.asarray(marks, dtype=np.float64)
        if not len(values):
            return self.result(name, group, math.nan, unit=unit, note="there is no such sentence")
        value = float(values.mean())
        if unit == SHARE:
            low, high = self.interval(self._mean_draws(values if drawn is None else drawn), value)
        else:
            low, high = self._interval_of_points(values, value)
        return self.result(name, group, value, low=low, high=high, unit=unit, note=self.why(low))

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
        """p-value of a difference from 0, by flipping the signs of the contributions of groups of clusters.

        Args:
            whole: the difference.
            without: the same without each group [group].
        """
        counting = self.without @ np.bincount(self.cluster, minlength=self.without.shape[1]) < len(self.cluster)
        if self.min_clusters < MIN_CLUSTERS or only_points():
            return math.nan
        (p,) = flip_p_values([whole], JackknifeReplicates(without[:, np.newaxis], counting[:, np.newaxis]), self.seed)
        return float(p)

    def p_of_mean(self, marks: NDArray[np.generic], null_value: float) -> float:
        """p-value of the mean of values [sentence] against its null value."""
        values = np.asarray(marks, dtype=np.float64) - null_value
        return self.exchange_p(float(values.mean()), self._means(values, self.without))

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

    def balanced(self, name: str, group: Mapping[str, str], calls: Bools, drawn: Bools | None = None) -> Result:
        """Balanced accuracy of calls [sentence]; `drawn` as in `mean`."""
        kinds = (self.positive, ~self.positive)
        if not all(kind.any() for kind in kinds):
            return self.result(name, group, math.nan, note=ONE_KIND)
        right = (calls == self.positive).astype(np.float64)
        in_draws = right if drawn is None else (drawn == self.positive).astype(np.float64)
        draws = np.mean([self.where(kind)._mean_draws(in_draws[..., kind]) for kind in kinds], axis=0)
        value = sum(float(right[kind].mean()) for kind in kinds) / 2
        low, high = self.interval(draws, value)
        return self.result(name, group, value, low=low, high=high, null_value=0.5, note=self.why(low))


def cluster_noun(table: pd.DataFrame) -> str:
    """Plural name of the clusters of a table: occupations, sentences, or clusters."""
    cluster = table["cluster"].astype(str)
    for column, noun in (("occupation", "occupations"), ("sentence", "sentences")):
        if column in table and (table[column].astype(str) == cluster).all():
            return noun
    return "clusters"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Threshold above which a score means underspecified.

    Attributes:
        percent: the threshold.
        as_they_come: compare floating-point numbers without a tolerance, as in the papers; otherwise a score that equals the
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
    """Every measure of detection for every model, prompt, set and W list.

    Without labels, only the share of sentences that each score flags.

    Args:
        scored: output of `sentence_scores`, with or without `combined`.
        groups: word groups, the leading one first.
        threshold: threshold of the scores.
        seed: of bootstrap and permutations.
    """
    results: list[Result] = []
    for levels, part in scored.groupby(list(KEYS), sort=False, dropna=False):
        group = _group(dict(zip(KEYS, map(str, levels), strict=True)), scored)
        of_detector = _detector_results if "well_specified" in scored else _flagged_results
        prepared = _score_table(part, groups, seed)
        if _scores(prepared, groups):
            results += of_detector(prepared, group, groups, threshold)
        else:
            n = len(prepared.table) + prepared.n_missing
            note = f"None of the {n:,} sentences has a score."
            name, null_value = ("auroc", 0.5) if "well_specified" in scored else ("flagged", math.nan)
            about = {**group, "score": f"{DELTA}{groups[0]}"}
            results.append(Result(name, about, math.nan, n_missing=n, unit=SHARE, null_value=null_value, note=note))
    return adjust_p_values(results, lambda _: "run")


def _group(levels: Mapping[str, str], scored: pd.DataFrame) -> dict[str, str]:
    """Group keys: model and set, and prompt and W if a model has several in one set."""
    same = (scored["model"].astype(str) == levels["model"]) & (scored["challenge"].astype(str) == levels["challenge"])
    several = [key for key in ("prompt", "w_name") if scored.loc[same, key].astype(str).nunique() > 1]
    return {"model": levels["model"], "set": levels["challenge"], **{key: levels[key] for key in several}}


def _score_table(part: pd.DataFrame, groups: Sequence[str], seed: int) -> _ScoreTable:
    known = (part["missing_reason"] == "").to_numpy()
    table = part[known].reset_index(drop=True)
    names, cluster = np.unique(table["cluster"].astype(str).to_numpy(), return_inverse=True)
    # Too few clusters: no draws, so no interval.
    n_draws = N_DRAWS if len(names) >= MIN_CLUSTERS else 0
    weights = cluster_weights(max(len(names), 1), n_draws, np.random.default_rng(seed))
    known_truth = "well_specified" in table
    positive = ~table["well_specified"].astype(bool).to_numpy() if known_truth else np.ones(len(table), dtype=bool)
    fold = folds(weights.shape[1])
    without = (fold != np.unique(fold)[:, np.newaxis]).astype(np.float64)
    scored = _ScoreTable(table, positive, cluster, weights, without, int((~known).sum()), seed)
    return replace(scored, refits=_refits(scored, groups))


def _refits(scored: _ScoreTable, groups: Sequence[str]) -> _Refits | None:
    """The score `combined` refitted in resamples as in `with_combined`; None without the score or without resamples."""
    if COMBINED not in scored.table or only_points():
        return None
    own = scored.table[COMBINED].notna().to_numpy()
    part = scored.where(own)
    if not own.any() or part.min_clusters < MIN_CLUSTERS_FOR_A_FIT:
        return None
    x, fold = features(part.table, groups), folds(scored.weights.shape[1])
    percent = []
    for weights in (scored.weights[:N_REFITS], scored.without):
        chances = np.full((len(weights), len(own)), math.nan)
        chances[:, own] = 100 * special.expit(held_out_draws(x, part.positive, part.cluster, weights, fold))
        percent.append(chances)
    return _Refits(*percent)


def _detector_results(
    scored: _ScoreTable, group: Mapping[str, str], groups: Sequence[str], threshold: Threshold
) -> Iterator[Result]:
    scores = _scores(scored, groups)
    for score in scores:
        yield from _score_results(
            scored.with_scores(score), {**group, "score": score}, score, groups, threshold.of(score)
        )
    for score in scores:
        yield from _differences(scored, group, score, [name for name in BASELINES if name in scores and name != score])
    yield from _agreement(scored, group, groups)
    for score in scores:
        hard = Threshold(HARDEST_THRESHOLD_PERCENT, threshold.as_they_come).of(score)
        yield from _hardest(scored.with_scores(score), {**group, "score": score}, score, hard)
    for score in scores:
        yield from _occupation_results(scored.with_scores(score), {**group, "score": score}, score)
    yield from _additive_effects(scored, group, groups[0])
    for score in [name for name in scores if name in (f"{DELTA}{groups[0]}", COMBINED)]:
        yield from _cluster_results(scored.with_scores(score), {**group, "score": score}, score, threshold.of(score))


def _flagged_results(
    scored: _ScoreTable, group: Mapping[str, str], groups: Sequence[str], threshold: Threshold
) -> Iterator[Result]:
    for score in _scores(scored, groups):
        part = scored.with_scores(score)
        calls = threshold.flags(part.values(score))
        yield replace(part.mean("flagged", {**group, "score": score}, calls), extras={"threshold": threshold.percent})


def _scores(scored: _ScoreTable, groups: Sequence[str]) -> list[str]:
    return [
        name for name in [*score_names(groups), COMBINED] if name in scored.table and scored.table[name].notna().any()
    ]


def _score_results(
    scored: _ScoreTable, group: Mapping[str, str], score: str, groups: Sequence[str], threshold: Threshold
) -> Iterator[Result]:
    yield from _rates(scored, group, score, threshold)
    values, drawn = scored.values(score), scored.drawn(score)
    above = threshold.flags(values)
    balanced = scored.balanced("balanced_accuracy", group, above, None if drawn is None else threshold.flags(drawn))
    # The AUROC of binary calls is their balanced accuracy.
    p = _p_value(scored, above.astype(np.float64)) if score == f"{DELTA}{groups[0]}" else math.nan
    yield replace(balanced, extras={"threshold": threshold.percent}, p=p)
    if score != COMBINED:  # `combined` is held out already
        yield _held_out(scored, group, values)
    area = _area(scored, score, group)
    p = _p_of_combined(scored, groups) if score == COMBINED else _p_value(scored, values)
    yield replace(area, p=p, note=area.note or scored.why_untested)


def _rates(
    scored: _ScoreTable, group: Mapping[str, str], score: str, threshold: Threshold, before: str = ""
) -> Iterator[Result]:
    above, drawn = threshold.flags(scored.values(score)), scored.drawn(score)
    for name, kind, says in (("tpr", scored.positive, True), ("tnr", ~scored.positive, False)):
        calls = None if drawn is None else (threshold.flags(drawn) == says)[:, kind]
        rate = scored.where(kind).mean(f"{before}{name}", group, (above == says)[kind], drawn=calls)
        yield replace(rate, extras={"threshold": threshold.percent})


def _p_value(scored: _ScoreTable, values: Floats) -> float:
    """p-value of the AUROC of values [sentence]; NaN with too few clusters."""
    if scored.why_untested:
        return math.nan
    rng = np.random.default_rng(scored.seed)
    return auroc_p_value(values, scored.positive, scored.cluster, N_PERMUTATIONS, rng)


def _p_of_combined(scored: _ScoreTable, groups: Sequence[str]) -> float:
    """p-value of the AUROC of `combined`, refitted in each permutation."""
    if scored.why_untested or scored.refits is None:
        return math.nan
    n, rng = min(N_PERMUTATIONS, N_REFITTED_PERMUTATIONS), np.random.default_rng(scored.seed)
    return fitted_auroc_p_value(features(scored.table, groups), scored.positive, scored.cluster, n, rng)


def _held_out(scored: _ScoreTable, group: Mapping[str, str], values: Floats) -> Result:
    """Classify each sentence by the best threshold of the other clusters; excluded if these have one kind only."""
    name, calls, thresholds = "held_out_balanced_accuracy", *held_out_calls(values, scored.positive, scored.cluster)
    known = np.isfinite(thresholds)
    part = replace(scored.where(known), n_missing=scored.n_missing + int((~known).sum()))
    chosen = float(np.median(thresholds[known])) if known.any() else math.nan
    result = part.balanced(name, group, calls[known])
    result = replace(result, low=math.nan, high=math.nan, extras={"threshold": chosen})
    if not known.any() and scored.positive.any() and not scored.positive.all():
        return replace(result, note=f"without one of the {cluster_noun(scored.table)} the others are all of one kind")
    if not math.isfinite(result.value) or part.min_clusters < MIN_CLUSTERS:
        return result
    weights = part.weights[:N_REFITS]
    draws = held_out_balanced_draws(values[known], part.positive, part.cluster, weights, folds(part.weights.shape[1]))
    low, high = part.interval(draws, result.value)
    return replace(result, low=low, high=high, note=part.why(low))


def _area(scored: _ScoreTable, score: str, group: Mapping[str, str], name: str = "auroc") -> Result:
    values = scored.values(score)
    value = auroc(values, scored.positive)
    if math.isnan(value):
        return scored.result(name, group, value, null_value=0.5, note=ONE_KIND)
    low, high = scored.interval(scored.area_draws(score), value)
    return scored.result(name, group, value, low=low, high=high, null_value=0.5, note=scored.why(low))


def _differences(
    scored: _ScoreTable, group: Mapping[str, str], score: str, baselines: Sequence[str]
) -> Iterator[Result]:
    """AUROC of one score minus that of a baseline, on the same sentences and in the same bootstrap draws.

    Tested if a finding needs it: total variation against entropy, and `combined` against either.
    """
    for baseline in baselines:
        both = scored.with_scores(score, baseline)
        value = auroc(both.values(score), both.positive) - auroc(both.values(baseline), both.positive)
        of_score = both.area_draws(score)
        draws = of_score - both.area_draws(baseline)[: len(of_score)]
        low, high = both.interval(draws, value, share=False)
        low, high = max(low, -1.0), min(high, 1.0)
        p = math.nan
        if math.isfinite(value) and (score == COMBINED or (score, baseline) == (TOTAL_VARIATION, ENTROPY)):
            p = both.exchange_p(value, both.areas_without(score) - both.areas_without(baseline))
        note = both.why(low) if math.isfinite(value) else ONE_KIND
        about = {**group, "score": score, "against": baseline}
        yield both.result("auroc_difference", about, value, low=low, high=high, null_value=0.0, p=p, note=note)


def _agreement(scored: _ScoreTable, group: Mapping[str, str], groups: Sequence[str]) -> Iterator[Result]:
    """Whether the right group of a specified sentence has more mass than the other groups that occur as right answers."""
    if "expected" not in scored.table:
        return
    decided = scored.where(~scored.positive & scored.table["expected"].isin(list(groups)).to_numpy())
    rivals = [name for name in groups if (decided.table["expected"] == name).any()]
    if len(rivals) < 2:
        return
    means = decided.table[[f"{MEAN}{name}" for name in rivals]].to_numpy(dtype=np.float64)
    expected = np.array([rivals.index(name) for name in decided.table["expected"]])
    own = means[np.arange(len(means)), expected]
    others = means.copy()
    others[np.arange(len(means)), expected] = -math.inf
    prefers = own > others.max(axis=1)
    result = decided.mean("coreference_agreement", group, prefers)
    yield replace(result, p=decided.p_of_mean(prefers, 0.5))


def _hardest(scored: _ScoreTable, group: Mapping[str, str], score: str, threshold: Threshold) -> Iterator[Result]:
    """Rates on sentences with a man or a woman: flagged if the pronoun refers to the professional, and only then."""
    if not {"participant_class", "coreferent"} <= set(scored.table):
        return
    table = scored.table
    hard = scored.where((table["participant_class"].isin(["man", "woman"]) & table["coreferent"].notna()).to_numpy())
    if hard.table["coreferent"].nunique() < 2:
        return
    yield from _rates(hard, group, score, threshold, "hardest_")


def _occupation_results(scored: _ScoreTable, group: Mapping[str, str], score: str) -> Iterator[Result]:
    if "percent_female" not in scored.table:
        return
    share = scored.table["percent_female"].to_numpy(dtype=np.float64)
    parts = {name: scored.where((share >= least) & (share < below)) for name, (least, below) in OCCUPATIONS.items()}
    parts = {name: part for name, part in parts.items() if part.positive.any() and not part.positive.all()}
    for name, part in parts.items():
        yield _area(part, score, {**group, "occupations": name}, "auroc_by_occupations")
    if score == TOTAL_VARIATION:
        yield from _range_of_areas([part for part in parts.values() if part.min_clusters >= MIN_CLUSTERS], group, score)


def _range_of_areas(parts: Sequence[_ScoreTable], group: Mapping[str, str], score: str) -> Iterator[Result]:
    """Range of the areas over groups of occupations, with a test of their equality.

    The test is Welch's analysis of variance of the jackknife pseudo-values, one per cluster, because groups have different occupations
    and may have different variances.
    """
    if len(parts) < 2:
        return
    areas, pseudo_values = [], []
    for part in parts:
        clusters = np.unique(part.cluster)
        area = auroc(part.values(score), part.positive)
        one_less = (np.arange(part.weights.shape[1]) != clusters[:, np.newaxis]).astype(np.float64)
        left = auroc_draws(part.values(score), part.positive, part.cluster, one_less)
        areas.append(area)
        pseudo_values.append(len(clusters) * area - (len(clusters) - 1) * left)
    clusters_of = [set(part.cluster.tolist()) for part in parts]
    p, note = math.nan, "the same clusters are in several parts"
    if len(set.union(*clusters_of)) == sum(map(len, clusters_of)):
        of = np.repeat(np.arange(len(parts)), [len(one) for one in pseudo_values])
        p = math.nan if only_points() else welch_p(np.concatenate(pseudo_values), of)
        note = "" if math.isfinite(p) or only_points() else "all clusters of one part have the same value"
    yield Result(
        "auroc_range", group, max(areas) - min(areas), n=sum(len(part.positive) for part in parts),
        n_missing=parts[0].n_missing, unit=SHARE, null_value=0.0, p=p, note=note,
    )  # fmt: skip


def _additive_effects(scored: _ScoreTable, group: Mapping[str, str], word_group: str) -> Iterator[Result]:
    """Figure 4 of the ICLR submission as two effects: the occupation moves the level, W the slope.

    Over the underspecified sentences: the share of the variance of levels between occupations, the mean movement, and the share of the
    variance of movements between occupations, which has its chance value if the effects are additive. Occupations and sentence frames
    are confounded, so nothing is tested.
    """
    part = scored.where(scored.positive)
    if len(np.unique(part.cluster)) < 2:
        return
    group = {**group, "pronoun": word_group}
    # Rounded, so that movements of the size of rounding errors have no variance.
    level, shift = (np.round(part.values(f"{kind}{word_group}"), ROUNDING_DECIMALS) + 0.0 for kind in (MEAN, SHIFT))
    for name, y in (("occupation_effect", level), ("interaction", shift)):
        variance = one_way(y, part.cluster)
        yield part.result(name, group, variance.share, null_value=variance.expected_share)
    moved = part.mean("mean_movement", group, shift, POINTS)
    yield replace(moved, null_value=0.0, p=part.p_of_mean(shift, 0.0) if math.isfinite(moved.low) else math.nan)


def _cluster_results(
    scored: _ScoreTable, group: Mapping[str, str], score: str, threshold: Threshold
) -> Iterator[Result]:
    values = scored.values(score)
    right = threshold.flags(values) == scored.positive
    names = scored.table["cluster"].astype(str).to_numpy()
    share = scored.table["percent_female"].to_numpy(dtype=np.float64) if "percent_female" in scored.table else None
    clusters = dict.fromkeys(names)
    if len(clusters) == len(names):
        return
    for name in clusters:
        own = names == name
        detail = {
            kind: float(values[own & marks].mean()) if (own & marks).any() else math.nan
            for kind, marks in (("specified", ~scored.positive), ("unspecified", scored.positive))
        }
        if share is not None:
            detail = {"percent_female": float(share[own][0]) if len(set(share[own])) == 1 else math.nan} | detail
        about, value = {**group, "occupation": name}, float(right[own].mean())
        yield Result("called_right", about, value, n=int(own.sum()), unit=SHARE, extras=detail)


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
