"""Detection in small tables that a hand can work out, what they leave unsaid, and what must not change a number."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from undertow.metrics import score_table, specification_detection
from undertow.metrics.sentence_scores import features, sentence_scores
from undertow.metrics.specification_detection import Threshold, by_cluster, detect, with_combined
from undertow.stats import MIN_CLUSTERS
from undertow.stats.classification import roc as areas
from undertow.stats.classification.roc import auroc, auroc_p_value, held_out_calls
from undertow.stats.intervals import cluster_errors
from undertow.stats.intervals.cluster_errors import share_interval
from undertow.stats.regression.logistic import held_out_log_odds
from undertow.types import Result

pytestmark = pytest.mark.resamples

GROUPS = ["warm", "cold"]
SPECIFIED = [0.2, 1.0, 0.4, 0.1]
UNSPECIFIED = [3.0, 2.0, 0.5, 4.0]
"""Movements of either kind in four clusters. Of the 16 pairs the unspecified one wins all but 0.5 against 1."""
LEAST_OF_FOUR = 0.025 ** (1 / 4)
"""That all of four clusters hit leaves so small a share possible."""


def sentence(cluster: str, decided: bool, delta: float, **more: Any) -> dict[str, Any]:
    """A scored sentence whose entropy tells the kinds apart and whose total variation is always the same."""
    own = {"model": "m", "prompt": "", "challenge": "c", "w_name": "date", "cluster": cluster, "missing_reason": ""}
    scores = {"shift_warm": delta, "delta_warm": delta, "total_variation": 7.0, "entropy": 20.0 if decided else 80.0}
    return own | scores | {"well_specified": decided, "mean_warm": 50.0, "mean_cold": 50.0} | more


def four_clusters(**changes: Sequence[Any]) -> pd.DataFrame:
    """The eight sentences, specified ones first; a change gives one column for all eight."""
    rows = [sentence(f"k{number % 4}", number < 4, delta) for number, delta in enumerate([*SPECIFIED, *UNSPECIFIED])]
    return pd.DataFrame(rows).assign(**changes)


def found(
    table: pd.DataFrame, threshold: Threshold | None = None, groups: Sequence[str] = GROUPS, seed: int = 0
) -> dict[tuple[str, ...], Result]:
    """Results by measure and whatever of their group is not model or set."""
    results = detect(table, groups, threshold or Threshold(), seed=seed)
    own = [[level for key, level in one.group.items() if key not in ("model", "set")] for one in results]
    named = {(one.measure, *levels): one for one, levels in zip(results, own, strict=True)}
    assert len(named) == len(results)
    return named


@pytest.fixture(autouse=True)
def few_clusters_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand can work out four clusters, which are too few to be told of."""
    for module in (specification_detection, score_table, cluster_errors, areas):
        monkeypatch.setattr(module, "MIN_CLUSTERS", 2)


def interval(result: Result) -> tuple[float, float]:
    return result.low, result.high


# By hand -------------------------------------------------------------------------------------------------------------


def test_rates_at_the_threshold() -> None:
    """The movement of 0.5 is at the threshold, not above it; that of 1 is above."""
    results = found(four_clusters())
    for name in ("tpr", "tnr", "balanced_accuracy"):
        result = results[name, "delta_warm"]
        assert result.value == 0.75
        assert result.extras == {"threshold": 0.5}
        assert result.unit == "share"
        assert result.n == (8 if name == "balanced_accuracy" else 4)
    assert results["balanced_accuracy", "delta_warm"].null_value == 0.5
    # Of four clusters three hit: the variance of their mean is 3/16 / 4 in the draws, and 3/16 / 3 made good.
    assert interval(results["tpr", "delta_warm"]) == pytest.approx(share_interval(0.75, 3 / 16 / 3, 3), abs=0.02)


def test_held_out_accuracy() -> None:
    """Without the third cluster 1.5 is best, with it 0.45: so the third's 0.5 is missed, and the second's 1 is flagged."""
    result = found(four_clusters())["held_out_balanced_accuracy", "delta_warm"]
    assert result.value == 0.75
    assert result.extras == {"threshold": pytest.approx(0.45)}
    assert result.null_value == 0.5


def test_areas() -> None:
    results = found(four_clusters())
    assert results["auroc", "delta_warm"].value == 15 / 16
    assert results["auroc", "entropy"].value == 1
    assert results["auroc", "total_variation"].value == 0.5
    assert {results["auroc", score].null_value for score in ("delta_warm", "entropy")} == {0.5}
    assert results["auroc", "total_variation"].p == 1
    # Only marks within a cluster are shuffled: of 16 ways, two are as far from one half as entropy is.
    assert results["auroc", "entropy"].p == pytest.approx(2 / 16, abs=0.03)


def test_all_hits_leave_what_as_many_clusters_cannot_exclude() -> None:
    results = found(four_clusters())
    assert interval(results["tpr", "entropy"]) == (LEAST_OF_FOUR, 1)
    assert interval(results["tnr", "entropy"]) == (0, 1 - LEAST_OF_FOUR)
    assert interval(results["auroc", "entropy"]) == (LEAST_OF_FOUR, 1)
    assert interval(results["held_out_balanced_accuracy", "entropy"]) == (LEAST_OF_FOUR, 1)
    # A half is a half in every draw: it is no bound of anything.
    assert np.isnan(interval(results["auroc", "total_variation"])).all()
    assert results["auroc", "total_variation"].note
    turned = found(four_clusters(entropy=[80.0] * 4 + [20.0] * 4))
    assert interval(turned["auroc", "entropy"]) == (0, 1 - LEAST_OF_FOUR)
    doubled = pd.concat([four_clusters()] * 3, ignore_index=True)
    assert interval(found(doubled)["tpr", "entropy"]) == (LEAST_OF_FOUR, 1)


def test_differences_are_told_against_both_baselines() -> None:
    results = found(four_clusters())
    of_entropy = results["auroc_difference", "delta_warm", "entropy"]
    assert of_entropy.value == -1 / 16
    assert results["auroc_difference", "delta_warm", "total_variation"].value == 7 / 16
    assert results["auroc_difference", "entropy", "total_variation"].value == 0.5
    assert dict(of_entropy.group) == {"model": "m", "set": "c", "score": "delta_warm", "against": "entropy"}
    assert (of_entropy.null_value, of_entropy.n, of_entropy.unit) == (0, 8, "share")
    assert not any(key[1] == key[2] for key in results if key[0] == "auroc_difference")
    differences = {key[1:] for key in results if key[0] == "auroc_difference"}
    assert len(differences) == 4


def test_a_difference_is_taken_in_the_same_draws() -> None:
    """The same score in another unit: the area of neither is sure, that they are the same is."""
    table = four_clusters(total_variation=[10 * value for value in [*SPECIFIED, *UNSPECIFIED]])
    results = found(table)
    low, high = interval(results["auroc", "delta_warm"])
    assert high - low > 0.1
    result = results["auroc_difference", "delta_warm", "total_variation"]
    assert result.value == 0
    assert np.isnan([result.low, result.high]).all()  # equal in every draw: of other sentences that says nothing


def test_a_difference_is_over_the_sentences_that_have_both_scores() -> None:
    """Without the specified sentence that moves by 1 the movement is perfect too."""
    entropy = [20.0, math.nan, 20, 20, 80, 80, 80, 80]
    result = found(four_clusters(entropy=entropy))["auroc_difference", "delta_warm", "entropy"]
    assert (result.value, result.n, result.n_missing) == (0, 7, 1)


def test_agreement_is_with_the_group_that_the_sentence_decides_on() -> None:
    """Right, right, wrong, and a tie, which prefers nothing. The third group takes most, and no sentence decides on it."""
    table = four_clusters(
        expected=["warm", "cold", "warm", "cold", "", "", "", ""],
        mean_warm=[10.0, 5, 4, 8, 0, 0, 0, 0],
        mean_cold=[5.0, 10, 6, 8, 90, 90, 90, 90],
        mean_mild=[85.0, 85, 90, 84, 10, 10, 10, 10],
    )
    result = found(table, groups=[*GROUPS, "mild"])["coreference_agreement",]
    assert (result.value, result.n) == (0.5, 4)
    assert dict(result.group) == {"model": "m", "set": "c"}


@pytest.mark.parametrize("expected", [["warm"] * 4, ["chef", "cook", "warm", "warm"]])
def test_agreement_needs_two_groups_that_sentences_decide_on(expected: list[str]) -> None:
    table = four_clusters(expected=[*expected, "", "", "", ""])
    assert not any(key[0] == "coreference_agreement" for key in found(table))
    assert not any(key[0] == "coreference_agreement" for key in found(four_clusters()))


def test_the_hardest_sentences_have_a_man_or_a_woman_in_them_who_may_be_the_pronoun() -> None:
    """At 1 point, and the movement of 1 is not above it. The others move most and count for nothing."""
    people: dict[str, list[Any]] = {"participant_class": ["man", "woman"] * 4, "coreferent": [1] * 4 + [0] * 4}
    others = [
        sentence(f"k{number}", False, 50.0, participant_class=kind, coreferent=number % 2)
        for number, kind in enumerate(["someone", "other", "someone", "other"])
    ]
    table = pd.concat([four_clusters(**people), pd.DataFrame(others)], ignore_index=True)
    results = found(table)
    hard = results["hardest_tpr", "delta_warm"]
    assert (hard.value, hard.n, hard.extras) == (0.75, 4, {"threshold": 1.0})
    assert (results["hardest_tnr", "delta_warm"].value, results["hardest_tnr", "delta_warm"].n) == (1, 4)
    assert interval(results["hardest_tnr", "delta_warm"]) == (LEAST_OF_FOUR, 1)
    assert results["tpr", "delta_warm"].value == 7 / 8
    # The threshold of the hardest is the papers', whatever that of the others is.
    assert found(table, Threshold(9))["hardest_tpr", "delta_warm"].value == 0.75
    table = four_clusters(participant_class=["man", "woman"] * 4, coreferent=[0] * 8)
    assert not any(key[0].startswith("hardest") for key in found(table))


def test_areas_by_the_share_of_women_are_of_parts_of_both_kinds() -> None:
    """30 and 70 belong to the part above. In the last part 0.5 loses to 0.6, and the other three pairs are won."""
    table = four_clusters(
        percent_female=[29.9, 30.0, 70.0, 95.0] * 2, delta_warm=[0.2, 1.0, 0.4, 0.6, 3.0, 1.0, 0.5, 4.0]
    )
    results = found(table)
    areas = {key[2]: result for key, result in results.items() if key[:2] == ("auroc_by_occupations", "delta_warm")}
    assert {name: (result.value, result.n) for name, result in areas.items()} == {
        "under 30% women": (1, 2),
        "30 to 70% women": (0.5, 2),
        "70% women or more": (0.75, 4),
    }
    group = areas["under 30% women"].group
    assert dict(group) == {"model": "m", "set": "c", "score": "delta_warm", "occupations": "under 30% women"}
    # A single cluster says nothing about others.
    assert np.isnan(interval(areas["under 30% women"])).all()
    table = four_clusters(percent_female=[10.0, 10, 80, 80, 10, 10, math.nan, math.nan])
    names = {key[2] for key in found(table) if key[0] == "auroc_by_occupations"}
    assert names == {"under 30% women"}
    assert not any(key[0] == "auroc_by_occupations" for key in found(four_clusters()))


def additive(levels: Sequence[float], shifts: Sequence[float]) -> dict[tuple[str, ...], Result]:
    """Two clusters of two unspecified sentences; the specified ones would upset every number."""
    rows = [
        sentence("ab"[number // 2], False, abs(shift), mean_warm=level, shift_warm=shift)
        for number, (level, shift) in enumerate(zip(levels, shifts, strict=True))
    ]
    decided = [sentence(name, True, 99.0, mean_warm=99.0, shift_warm=-99.0) for name in "ab"]
    return found(pd.DataFrame([*rows, *decided]))


def test_effects_of_occupation_and_w_and_the_mean_movement() -> None:
    """Levels: 400 of 500 squares lie between the clusters. Movements: the same in either cluster."""
    results = additive([10, 20, 30, 40], [-1, 3, -1, 3])
    effect, interaction = results["occupation_effect", "warm"], results["interaction", "warm"]
    assert effect.value == pytest.approx(0.8)
    assert effect.null_value == interaction.null_value == pytest.approx(1 / 3)
    assert math.isnan(effect.p)  # an occupation comes with its wording, so nothing is tested
    assert interaction.value == pytest.approx(0)
    moved = results["mean_movement", "warm"]
    assert (moved.value, moved.n, moved.null_value, moved.unit) == (1, 4, 0, "percentage points")
    assert np.isnan(interval(moved)).all()  # both clusters move by 1: that says nothing about others
    assert moved.note
    assert dict(moved.group) == {"model": "m", "set": "c", "pronoun": "warm"}
    # Clusters of -3 and -1: a standard error of 1, and one degree of freedom.
    moved = additive([10, 20, 30, 40], [-2, -4, 0, -2])["mean_movement", "warm"]
    assert moved.value == -2
    half = stats.t.ppf(0.975, 1)
    assert interval(moved) == pytest.approx((-2 - half, -2 + half))


def test_what_is_called_right_in_each_occupation_that_has_several_sentences() -> None:
    results = found(four_clusters(percent_female=[10.0, 20, 30, 40] * 2))
    right = {key[2]: result for key, result in results.items() if key[:2] == ("called_right", "delta_warm")}
    assert {name: result.value for name, result in right.items()} == {"k0": 1, "k1": 0.5, "k2": 0.5, "k3": 1}
    assert {result.n for result in right.values()} == {2}
    assert right["k1"].extras == {"percent_female": 20, "specified": 1, "unspecified": 2}
    assert dict(right["k1"].group) == {"model": "m", "set": "c", "score": "delta_warm", "occupation": "k1"}
    # For the score that is read first, not for every one.
    assert {key[1] for key in results if key[0] == "called_right"} == {"delta_warm"}
    table = four_clusters(cluster=list("abcdefgh"))
    assert not any(key[0] == "called_right" for key in found(table))
    assert found(table)["tpr", "delta_warm"].value == 0.75
    table = four_clusters(cluster=["a", "a", "a", "a", "b", "b", "b", "b"])
    extras = found(table)["called_right", "delta_warm", "a"].extras
    assert extras["specified"] == pytest.approx(np.mean(SPECIFIED))
    assert math.isnan(extras["unspecified"])
    assert "percent_female" not in extras


def test_what_is_flagged_where_nobody_said_what_decides() -> None:
    results = found(four_clusters().drop(columns="well_specified"))
    assert set(results) == {("flagged", "delta_warm"), ("flagged", "total_variation"), ("flagged", "entropy")}
    flagged = results["flagged", "delta_warm"]
    assert (flagged.value, flagged.n, flagged.extras) == (0.5, 8, {"threshold": 0.5})
    # Each cluster flags 1, 2, 0 or 1 of its two: the draws have no less than none and no more than all.
    assert 0 <= flagged.low < 0.5 < flagged.high <= 1
    assert interval(results["flagged", "entropy"]) == (LEAST_OF_FOUR, 1)


# Thresholds ----------------------------------------------------------------------------------------------------------

AT_THRESHOLD = 1.1 - 0.6
"""0.5 on paper, a little above it as a double."""


def test_a_movement_that_is_the_threshold_on_paper_is_not_above_it() -> None:
    assert AT_THRESHOLD > 0.5
    values = np.array([AT_THRESHOLD, 0.5, 0.500001, 0.499999])
    assert Threshold(0.5).flags(values).tolist() == [False, False, True, False]
    assert Threshold(0.5, as_they_come=True).flags(values).tolist() == [True, False, True, False]


@pytest.mark.parametrize(("as_they_come", "tpr", "right"), [(False, 0.75, 0.5), (True, 1.0, 1.0)])
def test_the_papers_numbers_take_doubles_as_they_come(as_they_come: bool, tpr: float, right: float) -> None:
    deltas = [*SPECIFIED, 3.0, 2.0, AT_THRESHOLD, 4.0]
    threshold = Threshold(0.5, as_they_come)
    results = found(four_clusters(delta_warm=deltas), threshold)
    assert results["tpr", "delta_warm"].value == tpr
    assert results["called_right", "delta_warm", "k2"].value == right
    flagged = found(four_clusters(delta_warm=deltas).drop(columns="well_specified"), threshold)
    assert flagged["flagged", "delta_warm"].value == (5 if as_they_come else 4) / 8
    # The area takes what is equal on paper for equal, either way.
    assert results["auroc", "delta_warm"].value == 15 / 16


def test_a_chance_is_divided_at_one_half_whatever_the_threshold() -> None:
    combined = [10.0, 20, 60, 50, 90, 80, 40, 50.1]
    for threshold in (Threshold(0.5), Threshold(99, as_they_come=True)):
        results = found(four_clusters(combined=combined), threshold)
        assert (results["tpr", "combined"].value, results["tnr", "combined"].value) == (0.75, 0.75)
        assert results["tpr", "combined"].extras == {"threshold": 50}
        assert results["called_right", "combined", "k2"].value == 0
    people: dict[str, list[Any]] = {"participant_class": ["man"] * 8, "coreferent": [1] * 4 + [0] * 4}
    results = found(four_clusters(combined=combined, **people))
    assert results["hardest_tpr", "combined"].extras == {"threshold": 50}


# Groups --------------------------------------------------------------------------------------------------------------


def test_prompt_and_w_are_told_only_where_a_model_and_a_set_have_several() -> None:
    one = four_clusters()
    tables = [
        one, *(one.assign(model="n", prompt=prompt) for prompt in "AB"), one.assign(challenge="d", w_name="date"),
        one.assign(challenge="d", w_name="place"), *(one.assign(challenge="e", prompt=at, w_name=at) for at in "AB"),
    ]  # fmt: skip
    areas = [one for one in detect(pd.concat(tables), GROUPS, Threshold(), seed=0) if one.measure == "auroc"]
    assert [dict(one.group) for one in areas if one.group["score"] == "entropy"] == [
        {"model": "m", "set": "c", "score": "entropy"},
        {"model": "n", "set": "c", "prompt": "A", "score": "entropy"},
        {"model": "n", "set": "c", "prompt": "B", "score": "entropy"},
        {"model": "m", "set": "d", "w_name": "date", "score": "entropy"},
        {"model": "m", "set": "d", "w_name": "place", "score": "entropy"},
        {"model": "m", "set": "e", "prompt": "A", "w_name": "A", "score": "entropy"},
        {"model": "m", "set": "e", "prompt": "B", "w_name": "B", "score": "entropy"},
    ]


def test_q_is_adjusted_over_every_test_of_the_run() -> None:
    rows = [
        sentence(f"k{number % 5}", number % 3 == 0, float(value), mean_warm=float(level), model=model)
        for model in "mn"
        for number, (value, level) in enumerate(np.random.default_rng(len(model)).random((30, 2)))
    ]
    results = detect(pd.DataFrame(rows), GROUPS, Threshold(), seed=0)
    tested = [result for result in results if math.isfinite(result.p)]
    # Every area, and each other number that a finding rests on: one of each, of either model.
    counts = Counter(result.measure for result in tested)
    assert counts == {"auroc": 2 * 3, "auroc_difference": 2, "balanced_accuracy": 2, "mean_movement": 2}
    expected = stats.false_discovery_control([result.p for result in tested])
    assert [result.q for result in tested] == pytest.approx(list(expected))
    assert all(math.isnan(result.q) for result in results if math.isnan(result.p))


# What is missing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decided", "known", "unknown"), [(True, "tnr", "tpr"), (False, "tpr", "tnr")])
def test_sentences_of_one_kind_have_one_rate_and_no_area(decided: bool, known: str, unknown: str) -> None:
    results = found(four_clusters(well_specified=[decided] * 8))
    assert (results[known, "delta_warm"].value, results[known, "delta_warm"].n) == (0.5, 8)
    assert math.isnan(results[unknown, "delta_warm"].value)
    assert results[unknown, "delta_warm"].note == "there is no such sentence"
    for name in ("auroc", "balanced_accuracy", "held_out_balanced_accuracy"):
        result = results[name, "delta_warm"]
        assert np.isnan([result.value, result.low, result.high, result.p, result.q]).all(), name
        assert result.note == "the sentences are all of one kind"
    assert math.isnan(results["auroc_difference", "delta_warm", "entropy"].value)


def test_a_single_cluster_has_numbers_and_no_intervals() -> None:
    results = found(four_clusters(cluster=["k"] * 8))
    assert results["auroc", "delta_warm"].value == 15 / 16
    assert results["tpr", "entropy"].value == 1
    for key, result in results.items():
        assert np.isnan(interval(result)).all(), key
    # No threshold could be chosen without it, so no sentence is called anything.
    held_out = results["held_out_balanced_accuracy", "delta_warm"]
    assert math.isnan(held_out.value)
    assert held_out.n_missing == 8
    assert math.isnan(held_out.extras["threshold"])


def test_sentences_without_one_score_are_missing_for_that_score_alone() -> None:
    deltas = [0.2, math.nan, 0.4, 0.1, 3.0, 2.0, math.nan, 4.0]
    results = found(four_clusters(delta_warm=deltas, missing_reason=["", "", "", "too long", "", "", "", ""]))
    assert (results["auroc", "delta_warm"].n, results["auroc", "delta_warm"].n_missing) == (5, 3)
    assert (results["auroc", "entropy"].n, results["auroc", "entropy"].n_missing) == (7, 1)
    results = found(four_clusters(slope_warm=[math.nan] * 8))
    assert not any("slope_warm" in key for key in results)
    assert ("auroc", "delta_warm") in results


def test_where_nothing_is_scored_one_row_says_so() -> None:
    results = found(four_clusters(missing_reason=["too long"] * 8))
    ((key, told),) = results.items()
    assert key == ("auroc", "delta_warm")
    assert math.isnan(told.value)
    assert (told.n, told.n_missing) == (0, 8)
    assert told.note == "None of the 8 sentences has a score."


# Combined ------------------------------------------------------------------------------------------------------------


def many(seed: int = 0, n: int = 60) -> pd.DataFrame:
    """Scored sentences made of random masses; unspecified ones move more."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        decided = bool(number % 2)
        warm = rng.uniform(30, 70) if not decided else rng.uniform(0, 25)
        for index, value in enumerate((warm, warm + rng.normal(0, 2 if decided else 10))):
            rows.append(
                {"model": "m", "prompt": "", "challenge": "c", "w_name": "date", "sentence": f"s{number}"}
                | {"cluster": f"k{number // 5}", "well_specified": decided, "w_index": index, "missing_reason": ""}
                | {"warm": value, "cold": 100 - value}
            )
    return sentence_scores(pd.DataFrame(rows), GROUPS)


def test_a_combined_score_is_a_chance_that_tells_the_kinds_apart_and_never_saw_its_own_cluster() -> None:
    scored = many()
    told = with_combined(scored, GROUPS)
    assert told["combined"].between(0, 100).all()
    assert auroc(told["combined"], ~told["well_specified"]) > 0.9
    assert {key[2] for key in found(told) if key[:2] == ("auroc_difference", "combined")} == {
        "entropy",
        "total_variation",
    }
    own = (scored["cluster"] == "k2").to_numpy()
    turned = scored.assign(well_specified=np.where(own, ~scored["well_specified"], scored["well_specified"]))
    before, after = (with_combined(table, GROUPS)["combined"].to_numpy() for table in (scored, turned))
    np.testing.assert_array_equal(after[own], before[own])
    assert (after[~own] != before[~own]).all()


def test_a_combined_score_is_fitted_to_each_model_alone_and_to_both_kinds() -> None:
    scored, other = many(), many(1).assign(model="n")
    alone = with_combined(scored, GROUPS)["combined"]
    together = with_combined(pd.concat([scored, other], ignore_index=True), GROUPS)["combined"]
    np.testing.assert_array_equal(together[:60], alone)
    blank = scored.assign(total_variation=scored["total_variation"].where(scored.index != 7))
    without = with_combined(scored.drop(index=7), GROUPS)["combined"]
    found_with_blank = with_combined(blank, GROUPS)["combined"]
    assert math.isnan(found_with_blank[7])
    np.testing.assert_array_equal(found_with_blank.drop(index=7), without)
    assert with_combined(many().assign(well_specified=True), GROUPS)["combined"].isna().all()
    assert with_combined(many().drop(columns="well_specified"), GROUPS)["combined"].isna().all()


# A row for each occupation -------------------------------------------------------------------------------------------


def test_the_table_of_occupations() -> None:
    table = four_clusters(
        percent_female=[10.0, 10, 30, 40] * 2,
        missing_reason=["", "", "", "too long", "", "", "", ""],
        cluster=list("aabb") * 2,
    )
    rows = by_cluster(table, GROUPS).set_index("cluster")
    assert rows.index.tolist() == ["a", "b"]
    assert rows["sentences"].tolist() == [4, 4]
    # A cluster of two occupations has no one share of women.
    assert rows["percent_female"].tolist() == pytest.approx([10, math.nan], nan_ok=True)
    assert rows["delta_warm_specified"].tolist() == pytest.approx([0.6, 0.4])
    assert rows["delta_warm_unspecified"].tolist() == pytest.approx([2.5, 2.25])
    assert not any(str(name).startswith("slope") for name in rows)


# What must not change a number ---------------------------------------------------------------------------------------


# Few clusters ---------------------------------------------------------------------------------------------------------


def clusters_of_four(n_clusters: int, seed: int = 0) -> pd.DataFrame:
    """Two sentences of either kind in each cluster; unspecified ones move more."""
    rng = np.random.default_rng(seed)
    rows = [
        sentence(
            f"k{cluster}", decided, float(rng.exponential(1 if decided else 3)), entropy=float(rng.uniform(20, 80))
        )
        for cluster in range(n_clusters)
        for decided in (True, True, False, False)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("n_clusters", [1, 5])
def test_with_fewer_than_six_clusters_there_is_no_interval_and_no_test(
    n_clusters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert MIN_CLUSTERS == 6
    results = found(clusters_of_four(n_clusters))
    for key, result in results.items():
        assert np.isnan([result.low, result.high, result.p, result.q]).all(), key
    # The numbers themselves stay, and say why they stand alone.
    for name in ("tpr", "balanced_accuracy", "auroc"):
        assert math.isfinite(results[name, "delta_warm"].value)
        assert results[name, "delta_warm"].note


def test_the_kind_that_comes_from_fewer_clusters_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole clusters of one kind: fifteen unspecified ones and five others say as little as five of either."""
    monkeypatch.undo()
    table = clusters_of_four(20)
    few, enough = (table.assign(well_specified=table["cluster"].isin([f"k{at}" for at in range(n)])) for n in (5, 6))
    results = found(few)
    for name in ("tnr", "balanced_accuracy", "held_out_balanced_accuracy", "auroc"):
        assert np.isnan([results[name, "delta_warm"].low, results[name, "delta_warm"].p]).all(), name
    assert math.isfinite(results["tpr", "delta_warm"].low)  # of the fifteen alone
    assert math.isfinite(found(enough)["auroc", "delta_warm"].p)
    # Fourteen and six clusters that are all right: each kind has its exact bound, and so has their mean.
    results = found(enough.assign(delta_warm=np.where(enough["well_specified"], 0.1, 3.0)))
    of_many, of_six = (0.025 ** (1 / n) for n in (14, 6))
    assert interval(results["auroc", "delta_warm"]) == interval(results["tnr", "delta_warm"]) == (of_six, 1)
    least = 1 - math.hypot(1 - of_many, 1 - of_six) / 2
    for name in ("balanced_accuracy", "held_out_balanced_accuracy"):
        assert interval(results[name, "delta_warm"]) == pytest.approx((least, 1)), name


def test_a_test_within_clusters_needs_six_that_hold_both_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = clusters_of_four(20)
    number = table["cluster"].str.removeprefix("k").astype(int)
    for n_mixed, tested in ((5, False), (6, True)):
        marks = table["well_specified"].where(number < n_mixed, number % 2 == 0)
        area = found(table.assign(well_specified=marks))["auroc", "delta_warm"]
        assert math.isfinite(area.p) is tested
        assert bool(area.note) is not tested


def test_equal_clusters_have_no_interval_of_zero_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = pd.concat([four_clusters().assign(cluster=f"k{number}") for number in range(8)], ignore_index=True)
    for key, result in found(table).items():
        assert result.low != result.high, key


# What decides a finding -----------------------------------------------------------------------------------------------


def test_the_mean_movement_is_tested_by_exchanging_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2^7 signs of seven equal clusters that move by 1 to 7 points, two are as far from nothing."""
    monkeypatch.undo()
    rows = [sentence(f"k{number // 2}", number % 2 == 0, 1.0, shift_warm=1.0 + number // 2) for number in range(14)]
    assert found(pd.DataFrame(rows))["mean_movement", "warm"].p == 2 / 2**7


def test_agreement_is_tested_against_one_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven clusters of eight agree: of the 2^8 signs, those with none or one of the eight turned are as far, either way."""
    monkeypatch.undo()
    rows = [
        sentence(f"k{number}", decided, 1.0, expected=("warm", "cold")[number % 2] if decided else "")
        | {"mean_warm": 80.0 if right else 20.0, "mean_cold": 20.0 if right else 80.0}
        for number in range(8)
        for decided in (True, False)
        for right in [(number % 2 == 0) == (number != 5)]
    ]
    agreed = found(pd.DataFrame(rows))["coreference_agreement",]
    assert agreed.value == 7 / 8
    assert agreed.p == 2 * (1 + 8) / 2**8


def test_balanced_accuracy_is_tested_as_the_area_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = clusters_of_four(10)
    calls = table["delta_warm"].to_numpy() > 1.5
    balanced = found(table, Threshold(1.5))["balanced_accuracy", "delta_warm"]
    assert balanced.value == pytest.approx(auroc(calls, ~table["well_specified"]))
    expected = auroc_p_value(calls, ~table["well_specified"], table["cluster"], 20_000, np.random.default_rng(1))
    assert balanced.p == pytest.approx(expected, abs=0.02)
    assert math.isnan(found(table)["balanced_accuracy", "entropy"].p)  # no finding rests on it


def test_a_difference_is_tested_by_what_its_clusters_contribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave-one-out differences by hand, and all 2^9 signs of the pseudo-values."""
    monkeypatch.undo()
    table = clusters_of_four(9)
    table["total_variation"] = np.random.default_rng(4).random(len(table)) + 0.4 * ~table["well_specified"]
    positive, cluster = ~table["well_specified"].to_numpy(), table["cluster"].to_numpy()

    def gap(kept: np.ndarray[Any, Any]) -> float:
        one, other = (auroc(table[name].to_numpy()[kept], positive[kept]) for name in ("total_variation", "entropy"))
        return one - other

    whole = gap(np.ones(len(table), dtype=bool))
    left = np.array([gap(cluster != name) for name in np.unique(cluster)])
    contributions = whole + 8 * (left.mean() - left)
    sums = [abs(np.dot(signs, contributions)) for signs in itertools.product([1, -1], repeat=9)]
    expected = np.mean(np.array(sums) >= abs(contributions.sum()) * (1 - 1e-9))
    results = found(table)
    assert results["auroc_difference", "total_variation", "entropy"].p == pytest.approx(expected)
    assert math.isnan(results["auroc_difference", "entropy", "total_variation"].p)  # the same difference, turned round


def test_the_range_of_areas_is_tested_by_welch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts of eight occupations; the movement tells the kinds apart in the first only."""
    monkeypatch.undo()
    rng, n = np.random.default_rng(2), 24 * 4
    number, decided = np.arange(n) // 4, np.arange(n) % 2 == 0
    moved = rng.normal(0, 1, n) + 1.5 * ((number < 8) & ~decided)
    table = clusters_of_four(24).assign(
        well_specified=decided, total_variation=moved, percent_female=np.where(number < 8, 10.0, np.where(number < 16, 50.0, 90.0))
    )  # fmt: skip
    results = found(table)
    areas_of, pseudo_values = [], []
    for part in range(3):
        own = number // 8 == part
        area = auroc(moved[own], ~decided[own])
        left = [auroc(moved[own & (number != one)], ~decided[own & (number != one)]) for one in np.unique(number[own])]
        areas_of.append(area)
        pseudo_values.append(8 * area - 7 * np.array(left))
    spread = results["auroc_range", "total_variation"]
    assert spread.value == pytest.approx(max(areas_of) - min(areas_of))
    assert spread.p == pytest.approx(anova_oneway(pseudo_values, use_var="unequal").pvalue)
    assert spread.n == n
    # With five occupations in a part, that part is not compared.
    few = found(table[(number < 16) | (number > 18)])
    assert few["auroc_range", "total_variation"].n == 64
    assert ("auroc_range", "total_variation") not in found(table[(number < 8) | (number > 18)])


# Fitted again ----------------------------------------------------------------------------------------------------------


def masses(n_clusters: int, size: int, rng: np.random.Generator, effect: float = 0.0) -> pd.DataFrame:
    """Scored sentences with levels and movements of their clusters."""
    n, cluster = n_clusters * size, np.repeat(np.arange(n_clusters), size)
    decided = np.arange(n) % size < size // 4
    level = rng.normal(0, 1, (n_clusters, 3))[cluster] + rng.normal(0, 0.7, (n, 3))
    moved = np.exp(rng.normal(-3, 0.7, n_clusters)[cluster] + rng.normal(0, 0.8, n) + effect * (~decided - 0.5))
    way = rng.normal(0, 1, (n, 3)) * moved[:, np.newaxis]
    ends = [np.exp(level + sign * way) for sign in (-1, 1)]
    rows = [
        pd.DataFrame(100 * end / end.sum(axis=1, keepdims=True), columns=["a", "b", "c"]).assign(
            model="m", prompt="", challenge="c", w_name="date", sentence=[f"s{at}" for at in range(n)],
            cluster=[f"k{at}" for at in cluster], well_specified=decided, w_index=index, missing_reason="",
        )
        for index, end in enumerate(ends)
    ]  # fmt: skip
    return with_combined(sentence_scores(pd.concat(rows, ignore_index=True), ["a", "b", "c"]), ["a", "b", "c"])


def resampled(cluster: np.ndarray[Any, Any], n: int, seed: int) -> Iterator[np.ndarray[Any, Any]]:
    """Sentences of resamples of whole clusters, those drawn twice standing twice."""
    rng, names = np.random.default_rng(seed), np.unique(cluster)
    for _ in range(n):
        drawn = rng.choice(names, len(names))
        yield np.concatenate([np.flatnonzero(cluster == name) for name in drawn])


@pytest.mark.slow
def test_intervals_are_of_resamples_in_which_all_is_done_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Areas, thresholds chosen again, and fits made to the end again without each cluster; a fit that is kept would vary less."""
    monkeypatch.undo()
    table = masses(12, 8, np.random.default_rng(5), effect=1.0)
    positive, cluster = ~table["well_specified"].to_numpy(), table["cluster"].to_numpy()
    x = features(table, ["a", "b", "c"])
    values, kept = table["total_variation"].to_numpy(), table["combined"].to_numpy()
    drawn: dict[str, list[float]] = {"area": [], "held out": [], "combined": [], "kept": []}
    for at in resampled(cluster, 300, 4):
        marks = positive[at]
        calls = held_out_calls(values[at], marks, cluster[at])[0]
        drawn["area"].append(auroc(values[at], marks))
        drawn["held out"].append((calls[marks].mean() + (~calls[~marks]).mean()) / 2)
        drawn["combined"].append(auroc(held_out_log_odds(x[at], marks, cluster[at]), marks))
        drawn["kept"].append(auroc(kept[at], marks))
    assert np.std(drawn["combined"]) > 1.2 * np.std(drawn["kept"])
    results = found(table, groups=["a", "b", "c"])
    keys = {"area": "auroc", "held out": "held_out_balanced_accuracy", "combined": "auroc"}
    for name, measure in keys.items():
        result = results[measure, "combined" if name == "combined" else "total_variation"]
        low, high = share_interval(result.value, float(np.var(drawn[name])) * 12 / 11, 11)
        assert result.high - result.low == pytest.approx(high - low, rel=0.12), name
        assert interval(result) == pytest.approx((low, high), abs=0.06), name


def test_what_combined_finds_is_tested_with_fits_to_shuffled_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(specification_detection, "N_REFITTED_PERMUTATIONS", 99)
    planted, null = (masses(12, 8, np.random.default_rng(7), effect=effect) for effect in (3.0, 0.0))
    groups = ["a", "b", "c"]
    assert found(planted, groups=groups)["auroc", "combined"].p == 1 / 100
    assert found(null, groups=groups)["auroc", "combined"].p > 0.05


def test_a_fit_to_nine_clusters_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    table = masses(9, 8, np.random.default_rng(0))
    assert not any("combined" in key for key in found(table, groups=["a", "b", "c"]))
