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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from undertow.metrics import score_table
from undertow.metrics.metric import Group
from undertow.metrics.score_table import ONE_KIND, POINTS, SHARE, ScoreTable, cluster_noun
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
from undertow.stats.arrays import Bools, Floats
from undertow.stats.classification.roc import (
    ROUNDING_DECIMALS,
    auroc,
    auroc_draws,
    fitted_auroc_p_value,
    folds,
    held_out_balanced_draws,
    held_out_calls,
)
from undertow.stats.intervals.cluster_errors import cluster_weights
from undertow.stats.regression.logistic import held_out_draws, held_out_log_odds
from undertow.stats.significance.false_discovery import adjust_p_values
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
        return compared > self.percent


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


def _score_table(part: pd.DataFrame, group: Group, groups: Sequence[str], seed: int) -> ScoreTable:
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
    scored = ScoreTable(table, positive, cluster, weights, without, int((~known).sum()), group, groups, seed)
    return replace(scored, refits=_refits(scored))


def _refits(scored: ScoreTable) -> tuple[Floats, Floats] | None:
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


def _detector_results(scored: ScoreTable, scores: Sequence[str], threshold: Threshold) -> Iterator[Result]:
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


def _score_results(scored: ScoreTable, threshold: Threshold) -> Iterator[Result]:
    yield from _rates(scored, threshold)
    values, drawn = scored.values, scored.fitted_draws
    above = threshold.flags(values)
    # The AUROC of binary calls is their balanced accuracy.
    is_leading = scored.score == f"{DELTA}{scored.groups[0]}"
    p = scored.p_of_area(above.astype(np.float64)) if is_leading else math.nan
    refitted = None if drawn is None else scored.balanced_draws(threshold.flags(drawn))
    yield scored.balanced("balanced_accuracy", above, refitted, extras={"threshold": threshold.percent}, p=p)
    area = scored.area()
    if scored.score != COMBINED:
        yield _held_out(scored)
        p = scored.p_of_area(values)
    elif scored.why_untested or scored.refits is None:
        p = math.nan
    else:  # held out already, and refitted in each permutation
        n, rng = min(score_table.N_PERMUTATIONS, N_REFITTED_PERMUTATIONS), np.random.default_rng(scored.seed)
        x = features(scored.table, scored.groups)
        p = fitted_auroc_p_value(x, scored.positive, scored.cluster, n, rng)
    yield replace(area, p=p, note=area.note or scored.why_untested)


def _rates(scored: ScoreTable, threshold: Threshold, before: str = "") -> Iterator[Result]:
    above, drawn, extras = threshold.flags(scored.values), scored.fitted_draws, {"threshold": threshold.percent}
    for name, kind, says in (("tpr", scored.positive, True), ("tnr", ~scored.positive, False)):
        calls = None if drawn is None else (threshold.flags(drawn) == says)[:, kind]
        yield scored.where(kind).mean(f"{before}{name}", (above == says)[kind], drawn=calls, extras=extras)


def _held_out(scored: ScoreTable) -> Result:
    """Classify each sentence by the best threshold of the other clusters; excluded if these have one kind only."""
    values, (calls, thresholds) = scored.values, held_out_calls(scored.values, scored.positive, scored.cluster)
    known = np.isfinite(thresholds)
    part = replace(scored.where(known), n_missing=scored.n_missing + int((~known).sum()))
    chosen = float(np.median(thresholds[known])) if known.any() else math.nan
    weights = part.weights[: N_REFITS if part.min_clusters >= MIN_CLUSTERS else 0]
    draws = held_out_balanced_draws(values[known], part.positive, part.cluster, weights, folds(part.weights.shape[1]))
    result = part.balanced("held_out_balanced_accuracy", calls[known], draws, extras={"threshold": chosen})
    if not known.any() and scored.has_both_kinds:
        return replace(result, note=f"without one of the {cluster_noun(scored.table)} the others are all of one kind")
    return result


def _difference(scored: ScoreTable, baseline: str) -> Result:
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


def _agreement(scored: ScoreTable) -> Iterator[Result]:
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


def _hardest(scored: ScoreTable, threshold: Threshold) -> Iterator[Result]:
    """Rates on sentences with a man or a woman: flagged if the pronoun refers to the professional, and only then."""
    table = scored.table
    if not {"participant_class", "coreferent"} <= set(table):
        return
    hard = scored.where((table["participant_class"].isin(["man", "woman"]) & table["coreferent"].notna()).to_numpy())
    if hard.table["coreferent"].nunique() > 1:
        yield from _rates(hard, threshold, "hardest_")


def _occupation_results(scored: ScoreTable) -> Iterator[Result]:
    if "percent_female" not in scored.table:
        return
    share = scored.table["percent_female"].to_numpy(dtype=np.float64)
    parts = {name: scored.where((share >= least) & (share < below)) for name, (least, below) in OCCUPATIONS.items()}
    parts = {name: part for name, part in parts.items() if part.has_both_kinds}
    for name, part in parts.items():
        yield part.area("auroc_by_occupations", group={**scored.group, "occupations": name})
    if scored.score == TOTAL_VARIATION:
        yield from _range_of_areas([part for part in parts.values() if part.min_clusters >= MIN_CLUSTERS])


def _range_of_areas(parts: Sequence[ScoreTable]) -> Iterator[Result]:
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


def _additive_effects(scored: ScoreTable) -> Iterator[Result]:
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


def _cluster_results(scored: ScoreTable, threshold: Threshold) -> Iterator[Result]:
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
    known = scored[scored["missing_reason"] == ""]
    base = scored.groupby(keys, sort=False, dropna=False).size().rename("sentences").to_frame()
    if "percent_female" in scored:
        shares = scored.groupby(keys, sort=False, dropna=False)["percent_female"]
        # A cluster of several occupations has no single share of women.
        base["percent_female"] = shares.first().where(shares.nunique() == 1)
    parts = [base]
    for kind, decided in (("specified", True), ("unspecified", False)):
        rows = known[known["well_specified"].astype(bool) == decided]
        parts.append(rows.groupby(keys, sort=False, dropna=False)[names].mean().add_suffix(f"_{kind}"))
    return pd.concat(parts, axis=1).reset_index()
