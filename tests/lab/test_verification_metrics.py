"""From a table of trained models to what they say about the audit: each number by hand, and nobody dropped in silence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers.trained_models import along_dates, drift_lab, lab, model_rows
from undertow.lab.verification.metrics import GROUP_KEYS, fitted_lines, intervals, results
from undertow.lab.verification.promises import strongest, verdicts
from undertow.types import ALPHA, Result


def one(found: Sequence[Result], measure: str, *levels: str) -> Result:
    """The number of an architecture, W and strength; "all" where not given."""
    wanted = (*levels, "all", "all", "all")[:3]
    (result,) = [r for r in found if r.measure == measure and tuple(r.group[key] for key in GROUP_KEYS) == wanted]
    return result


def changed(frame: pd.DataFrame, chosen: pd.Series[bool], **values: object) -> pd.DataFrame:
    """The table with other values in some of its rows."""
    table = frame.copy()
    for name, value in values.items():
        table[name] = table[name].mask(chosen, value)
    return table


def moved(frame: pd.DataFrame, chosen: pd.Series[bool], by: float) -> pd.DataFrame:
    """The table with other readings in some of its rows, their intervals with them."""
    return changed(frame, chosen, **{end: frame[end] + by for end in ("measured_slope", "low", "high")})


def of(frame: pd.DataFrame, *names: str) -> pd.Series[bool]:
    return frame["model"].isin(names)


@cache
def usual() -> list[Result]:
    """What the usual lab says; measured once, since many tests compare with it."""
    return results(lab())


@cache
def usual_drift() -> list[Result]:
    """What a lab says whose dates are biased, either way, and whose places are not."""
    return results(drift_lab())


def test_what_training_lost_is_told_from_what_the_audit_did() -> None:
    frame = lab(noise=0.0)
    learned = frame.assign(learned_slope=0.8 * frame["planted_slope"], measured_slope=0.72 * frame["planted_slope"])
    found = results(learned)
    assert one(found, "calibration_slope").value == pytest.approx(0.72)
    assert one(found, "training_slope").value == pytest.approx(0.8)
    assert one(found, "reading_slope").value == pytest.approx(0.9)
    assert one(found, "training_slope").low == pytest.approx(0.8)  # it is known without sentences
    assert one(found, "reading_slope").low < 0.9
    unknown = results(changed(learned, of(learned, "masked-2-0"), learned_slope=math.nan))
    assert one(unknown, "training_slope").n == one(found, "training_slope").n - 2
    assert one(unknown, "calibration_slope").n == one(found, "calibration_slope").n


@pytest.mark.parametrize(("slope", "met"), [(0.79, False), (0.81, True), (1.19, True), (1.21, False)])
def test_the_calibration_slope_is_judged_by_its_target(slope: float, met: bool) -> None:
    frame = lab([0, 1], 1, noise=0)
    frame = frame.assign(measured_slope=slope * frame["planted_slope"])
    found = results(frame)
    assert one(found, "calibration_slope").value == pytest.approx(slope)
    assert one(found, "attenuation", "all", "all", "1").value == pytest.approx(slope)
    (what, target, said, is_met), *_ = verdicts(found)
    assert (what, target) == ("Measured slopes follow planted slopes", "calibration slope of 0.8 to 1.2")
    assert (said.startswith(f"{slope:.2f}"), is_met) == (True, met)


def test_coverage_counts_the_intervals_that_hold_what_was_planted() -> None:
    frame = lab(architectures=["masked"])
    missed = of(frame, "masked-2-0", "masked-1-1")
    frame = changed(frame, missed, measured_slope=frame["planted_slope"] + 0.5)
    frame = frame.assign(low=frame["measured_slope"] - 0.1, high=frame["measured_slope"] + 0.1)
    found = results(frame)
    own = one(found, "coverage_sentences_only")
    assert (own.value, own.n) == (20 / 24, 24)
    assert (own.low, own.high) == pytest.approx((0.6262, 0.9526), abs=1e-4)  # Clopper and Pearson, of 20 in 24
    table = intervals(frame)
    inside = (table["seed_low"] <= table["planted_slope"]) & (table["planted_slope"] <= table["seed_high"])
    assert one(found, "coverage").value == pytest.approx(inside.mean())
    assert one(found, "coverage", "all", "all", "0").value == 1
    assert own.extras["biased"] == pytest.approx(14 / 18)
    assert f"; {inside[~table['unbiased']].mean():.0%} of the biased ones" in verdicts(found)[1][2]


def test_degrees_of_freedom_that_are_known_count_before_the_number_of_clusters() -> None:
    """Skewed sentences leave fewer; a table that was written is read again as it was."""
    plain = intervals(lab().assign(n_clusters=12))
    skewed = intervals(lab().assign(n_clusters=12, sentence_df=4.5))
    assert skewed["standard_error"].to_numpy() == pytest.approx(
        plain["standard_error"].to_numpy() * stats.t.ppf(0.975, 11) / stats.t.ppf(0.975, 4.5)
    )
    assert set(skewed["sentence_df"]) == {4.5}
    for written in (intervals(lab()), skewed):
        again = intervals(written)
        assert again["standard_error"].tolist() == written["standard_error"].tolist()
        assert again["sentence_df"].tolist() == written["sentence_df"].tolist()


def test_readings_without_an_interval_or_of_too_few_sentences_are_left_out_with_their_reason() -> None:
    table = intervals(lab().assign(n_clusters=5))
    assert set(table["left_out"]) == {"too few sentences for an error"}
    assert table[["standard_error", "seed_low"]].isna().to_numpy().all()
    frame = changed(lab(), of(lab(), "masked-1-0") & (lab()["w_name"] == "date"), low=math.nan)
    table = intervals(frame)
    assert list(table.loc[table["left_out"] != "", "left_out"]) == ["the audit gave no slope with an interval"]
    coverage = one(results(frame), "coverage")
    assert (coverage.n, coverage.n_missing) == (47, 1)


def test_widths_are_relative_to_the_largest_slope_planted_in_their_own_w() -> None:
    found, table = usual(), intervals(lab())
    width = table["seed_high"] - table["seed_low"]
    largest = table["w_name"].map({"date": 2.4, "place": 1.6})
    pooled = one(found, "interval_width")
    assert pooled.value == pytest.approx(width.median())
    assert pooled.extras["of_largest"] == pytest.approx((width / largest).median())
    assert pooled.extras["audit_width"] == pytest.approx(0.2)
    assert pooled.low <= pooled.value <= pooled.high
    wide = lab().assign(
        low=lambda frame: frame["measured_slope"] - 0.8, high=lambda frame: frame["measured_slope"] + 0.8
    )
    assert [met for *_, met in verdicts(results(wide))] == [True, True, False, True]


def test_a_w_in_which_nothing_was_planted_has_no_relative_width() -> None:
    found = usual_drift()
    assert math.isnan(one(found, "interval_width", "masked", "place").extras["of_largest"])
    assert one(found, "interval_width").extras["of_largest"] < 0.5
    assert "No biased model" in one(found, "calibration_slope", "masked", "place").note


def test_models_that_are_biased_either_way_are_one_strength() -> None:
    found = usual_drift()
    for measure in ("power", "attenuation", "coverage"):
        strengths = [r.group["strength"] for r in found if r.measure == measure and r.group["architecture"] == "all"]
        assert set(strengths) - {"0", "all"} == {"0.35", "0.65"}, measure
        assert one(found, measure, "all", "all", "0.65").n == 12, measure
    assert one(found, "attenuation", "all", "all", "0.65").value == pytest.approx(1, abs=0.02)
    assert strongest(found).group["strength"] == "0.65"
    assert verdicts(found)[3][2].startswith("100% of 12 slopes")


def test_the_area_of_a_model_counts_where_it_is_biased_and_not_with_its_unbiased_w() -> None:
    found = usual_drift()
    strongest_area, none = (one(found, "auroc_delta", "all", "all", strength) for strength in ("0.65", "0"))
    assert (strongest_area.n, none.n) == (12, 6)
    assert strongest_area.value == pytest.approx(0.5 + 0.2 * 0.65)
    assert none.value == pytest.approx(0.5)


def test_coverage_is_judged_of_one_slope_a_model_and_places_are_told_beside() -> None:
    frame = drift_lab()
    far = of(frame, "masked-0.35-0", "masked-0-1", "causal-0.35-1") & (frame["w_name"] == "date")
    found = results(moved(frame, far, 3))
    for measure in ("coverage", "coverage_sentences_only"):
        assert (one(found, measure).value, one(found, measure).n) == (21 / 24, 24), measure
    assert (one(found, "coverage", "all", "all", "0").n, one(found, "coverage_beside").n) == (6, 24)
    _, target, said, met = verdicts(found)[1]
    assert (target, met) == ("for at least 90% of models, and of the biased ones alone", False)
    assert said.startswith("88% of 24 models along date (")
    assert said.endswith("; not judged: 100% of 24 slopes along place")


def test_what_is_missed_along_places_is_told_and_breaks_no_promise() -> None:
    frame = drift_lab()
    found = results(changed(frame, frame["w_name"] == "place", low=1.0, high=1.2, q=0.01))
    assert [met for *_, met in verdicts(found)][1] is True
    assert one(found, "coverage").value == 1
    assert one(found, "coverage_sentences_only").n == 24
    assert one(found, "false_alarms", "all", "all", "0").value == 0
    assert (one(found, "false_alarms_beside", "all", "all", "0").value, strongest(found).value) == (1, 1)


def test_many_unbiased_models_do_not_hide_that_biased_ones_are_missed() -> None:
    frame = drift_lab([0] * 1 + [1, 2], 20)
    missed = [f"masked-{strength}-{seed}" for strength in (1, 2) for seed in range(5)]
    found = results(moved(frame, of(frame, *missed) & (frame["w_name"] == "date"), 0.5))
    coverage = one(found, "coverage")
    assert coverage.value >= 0.9 > coverage.extras["biased"]
    assert not verdicts(found)[1][3]


def test_power_counts_what_is_found_on_the_planted_side() -> None:
    frame = lab()
    frame = changed(frame, of(frame, "masked-2-0"), q=0.2, found=False)
    frame = changed(frame, of(frame, "causal-2-1"), measured_slope=-1.0)  # found, the other way round
    found = results(frame)
    power = one(found, "power", "all", "all", "2")
    assert (power.value, power.n) == (8 / 12, 12)
    assert one(found, "power", "masked", "all", "2").value == pytest.approx(4 / 6)
    assert power.extras["planted"] == pytest.approx(2.0)
    assert one(found, "power", "all", "all", "1").value == 1
    errors = one(found, "direction_errors")
    assert (errors.value, errors.n) == (2 / 36, 36)
    _, target, said, met = verdicts(found)[3]
    assert (target, met) == ("at least 80% of slopes", False)
    assert said.startswith("67% of 12 slopes")


def test_what_is_found_and_what_the_audit_claims_are_told_apart() -> None:
    frame = lab()
    found = results(changed(frame, of(frame, "masked-2-0"), found=False))
    power = one(found, "power", "masked", "all", "2")
    assert power.value == 1
    assert power.extras["claimed"] == pytest.approx(4 / 6)


def with_unbiased(n: int, n_alarms: int) -> pd.DataFrame:
    """A lab with more unbiased models, some of which have a false alarm along dates."""
    rows = [row for place in range(n - 6) for row in model_rows(f"unbiased-{place}", "masked", 0.0)]
    frame = pd.concat([lab(), pd.DataFrame(rows)], ignore_index=True)
    alarmed = of(frame, *(f"unbiased-{place}" for place in range(n_alarms))) & (frame["w_name"] == "date")
    return changed(frame, alarmed, q=0.01, found=True)


@pytest.mark.parametrize(("n_alarms", "met"), [(2, True), (3, False)])  # of 40 slopes, 4 would be few enough
def test_twenty_unbiased_models_are_judged_by_their_false_alarms(n_alarms: int, met: bool) -> None:
    found = results(with_unbiased(20, n_alarms))
    alarms = one(found, "false_alarms", "all", "all", "0")
    assert (alarms.value, alarms.n, alarms.null_value) == (n_alarms / 40, 40, ALPHA)
    assert alarms.extras == {"claimed": n_alarms / 40, "models": 20, "models_alarmed": n_alarms / 20}
    *_, (what, _, said, is_met) = verdicts(found)
    assert "false alarms" in what  # the last of five
    assert len(verdicts(results(with_unbiased(19, 0)))) == 4
    assert is_met is met
    assert "of 40 slopes" in said


@pytest.mark.parametrize(("n_alarms", "met"), [(2, True), (3, False)])
def test_false_alarms_are_judged_of_one_slope_a_model_where_only_dates_are_biased(n_alarms: int, met: bool) -> None:
    found = results(along_dates(with_unbiased(20, n_alarms)))
    alarms = one(found, "false_alarms", "all", "all", "0")
    assert (alarms.value, alarms.n, alarms.extras["models"]) == (n_alarms / 20, 20, 20)
    assert one(found, "false_alarms_beside", "all", "all", "0").n == 38  # the places of all models
    *_, (_, target, said, is_met) = verdicts(found)
    assert target == "at most 10% of models, and of models along any W, over 20 unbiased models or more"
    assert said.startswith(f"{n_alarms / 20:.0%} of 20 models along date (")
    assert said.endswith(f"; {n_alarms / 20:.0%} of 20 unbiased models have one along any W")
    assert is_met is met


def test_an_alarm_along_a_w_that_is_not_judged_is_an_alarm_of_its_model() -> None:
    frame = along_dates(with_unbiased(20, 0))
    alarmed = of(frame, *(f"unbiased-{place}" for place in range(3))) & (frame["w_name"] == "place")
    found = results(changed(frame, alarmed, q=0.01, found=True))
    alarms = one(found, "false_alarms", "all", "all", "0")
    assert (alarms.value, alarms.extras["models_alarmed"]) == (0, 3 / 20)
    *_, (_, _, said, met) = verdicts(found)
    assert "15% of 20 unbiased models have one along any W" in said
    assert not met


def test_a_selection_that_bends_without_a_slope_makes_no_unbiased_model() -> None:
    frame = along_dates(with_unbiased(20, 1))
    bent = changed(frame, of(frame, "unbiased-0"), selected=True)
    alarms = one(results(bent), "false_alarms", "all", "all", "0")
    assert (alarms.value, alarms.n, alarms.extras["models"]) == (0, 19, 19)


def test_the_unbiased_w_of_a_biased_model_is_no_unbiased_model() -> None:
    frame = lab()
    half = of(frame, "masked-2-0") & (frame["w_name"] == "place")
    none = {"strength": 0.0, "planted_slope": 0.0, "population_slope": 0.0}
    found = results(changed(frame, half, q=0.01, **none))
    alarms, beside = (one(found, name, "all", "all", "0") for name in ("false_alarms", "false_alarms_beside"))
    assert (alarms.value, alarms.n, alarms.extras["models"]) == (0, 12, 6)
    assert (beside.value, beside.n) == (1, 1)


def test_a_corpus_that_was_not_selected_is_unbiased_whatever_its_strength() -> None:
    frame = changed(lab(), of(lab(), "masked-2-0"), selected=False, planted_slope=0.0, measured_slope=0.0)
    table = intervals(frame)
    assert set(table.loc[of(table, "masked-2-0"), "planted_strength"]) == {"0"}
    found = results(frame)
    assert one(found, "power", "all", "all", "2").n == 10
    assert one(found, "false_alarms", "all", "all", "0").n == 14


def test_models_that_did_not_converge_count_nowhere_and_are_counted_everywhere() -> None:
    frame = changed(lab(), of(lab(), "masked-2-0", "causal-0-1"), converged=False, measured_slope=9.0)
    found = results(frame)
    for measure in ("calibration_slope", "calibration_intercept", "coverage", "interval_width"):
        result = one(found, measure)
        assert (result.n, result.n_missing) == (44, 4), measure
    assert one(found, "calibration_slope").value == pytest.approx(1, abs=0.03)
    assert (one(found, "power", "all", "all", "2").n, one(found, "power", "all", "all", "2").n_missing) == (10, 2)
    assert one(found, "false_alarms", "all", "all", "0").n_missing == 2
    assert (one(found, "auroc_delta").n, one(found, "auroc_delta").n_missing) == (22, 2)
    table = intervals(frame)
    assert set(table.loc[of(table, "masked-2-0"), "left_out"]) == {"training did not converge"}
    assert table.loc[of(table, "masked-2-0"), "seed_low"].isna().all()


def test_a_strength_of_which_no_model_converged_is_not_forgotten() -> None:
    frame = lab()
    found = results(changed(frame, frame["strength"] == 2, converged=False))
    power = one(found, "power", "all", "all", "2")
    assert (power.n, power.n_missing) == (0, 12)
    assert "No model that converged" in power.note
    assert math.isnan(power.value)
    assert strongest(found).group["strength"] == "1"
    assert "0.95" not in verdicts(found)[3][2]
    assert "planted slope is 1.00" in verdicts(found)[3][2]


def test_a_slope_that_was_not_tested_is_missing_in_power_alone() -> None:
    frame = changed(lab(), of(lab(), "masked-1-0") & (lab()["w_name"] == "date"), q=math.nan, found=False)
    found = results(frame)
    power = one(found, "power", "all", "all", "1")
    assert (power.n, power.n_missing, power.value) == (11, 1, 1)
    assert one(found, "calibration_slope").n == 48


def test_areas_are_means_over_models_at_each_strength() -> None:
    frame = lab()
    frame = changed(frame, of(frame, "masked-2-0"), auroc_delta=0.6, auroc_entropy=0.9)
    found = results(frame)
    delta = one(found, "auroc_delta", "masked", "all", "2")
    assert delta.value == pytest.approx((0.6 + 0.9 + 0.9) / 3)
    assert delta.n == 3
    assert delta.high == 1.0  # the t interval of three models would go beyond
    difference = one(found, "auroc_difference", "masked", "all", "2")
    assert difference.value == pytest.approx((-0.3 + 0.3 + 0.3) / 3)
    assert (delta.null_value, difference.null_value) == (0.5, 0)
    assert one(found, "auroc_delta", "causal", "all", "0").value == pytest.approx(0.5)
    assert not [r for r in found if r.measure == "auroc_delta" and r.group["w_name"] != "all"]


def test_promises_that_fewer_than_five_models_cannot_support_are_not_judged() -> None:
    found = results(lab([0, 2], 2, ["masked"]))
    assert "it takes 5 converged models" in one(found, "coverage").note
    assert [met for *_, met in verdicts(found)] == [True, None, None, True]
    assert verdicts(found)[1][2].startswith("no number: 8 slopes have no interval")
    unbiased = verdicts(results(lab([0], 6)))
    assert [met for *_, met in unbiased][2] is None
    assert unbiased[2][2].startswith("undefined, because no bias was planted")


def test_fitted_lines_run_from_the_lowest_to_the_highest_planted_slope() -> None:
    lines = fitted_lines(lab(), n_points=5)
    assert list(dict.fromkeys(lines["architecture"])) == ["masked", "causal"]
    own = lines[lines["architecture"] == "masked"]
    assert list(own["planted_slope"]) == pytest.approx([0, 0.6, 1.2, 1.8, 2.4])
    slope = one(usual(), "calibration_slope", "masked")
    assert np.polyfit(own["planted_slope"], own["fitted"], 1)[0] == pytest.approx(slope.value)
    assert (own["low"] < own["fitted"]).all()
    assert (own["fitted"] < own["high"]).all()
    none = fitted_lines(lab([0], 6))
    assert none.empty
    assert set(none.dtypes[1:]) == {np.dtype(float)}  # which can be drawn
