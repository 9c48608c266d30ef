"""Slopes of the recorded models, of tables that a hand can work out, of tables that say nothing, and their intervals' honesty."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.measures.correlation import correlate, line_of
from undertow.types import Result, UndertowError

Masses = dict[str, np.ndarray]  # group: [cluster, w]
RUN = {"model": "m", "challenge": "c", "prompt": "", "w_name": "date"}


def table(masses: Masses, **run: str) -> pd.DataFrame:
    """A crossed design: one row per cluster and W value; NaN in the first group is an unscored row."""
    n_clusters, n_w = next(iter(masses.values())).shape
    cluster, w_index = np.divmod(np.arange(n_clusters * n_w), n_w)
    columns: dict[str, Any] = {name: [level] * len(cluster) for name, level in (RUN | run).items()}
    columns |= {"w": [f"w{index}" for index in w_index], "w_index": w_index, "cluster": [f"k{k}" for k in cluster]}
    columns |= {group: np.asarray(values, dtype=float).ravel() for group, values in masses.items()}
    frame = pd.DataFrame(columns)
    frame["unclaimed"] = 100 - frame[list(masses)].sum(axis=1, skipna=False)
    frame["unscored"] = np.where(frame[next(iter(masses))].isna(), "too long", "")
    return frame


def audit(
    frame: pd.DataFrame, groups: tuple[str, ...] = ("she", "he"), **options: Any
) -> dict[tuple[str, str], Result]:
    """Results of a table with one run, by measure and pronoun."""
    gaps = options.pop("gaps", [groups[:2]] if len(groups) > 1 else [])
    given_options = {"seed": 0, "n_bootstrap": 200, "n_permutations": 200} | options
    results = correlate(frame, groups, gaps, **given_options)
    by_name = {(result.measure, result.group["pronoun"]): result for result in results}
    assert len(by_name) == len(results)
    return by_name


def some_masses(seed: int = 0, n_clusters: int = 12, n_w: int = 6) -> Masses:
    rng = np.random.default_rng(seed)
    she = 30 + 2 * np.arange(n_w) + rng.normal(0, 3, (n_clusters, 1)) + rng.normal(0, 2, (n_clusters, n_w))
    return {"she": she, "he": 40 + rng.normal(0, 3, (n_clusters, n_w))}


def numbers(result: Result) -> list[float]:
    return [result.value, result.low, result.high, result.p, *result.detail.values()]


# The recorded models ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(reference_data: Path) -> dict[tuple[str, ...], Result]:
    frame = pd.read_csv(reference_data / "recorded" / "mgc_pronoun_mass.csv.gz")
    groups = ["female", "male", "neutral"]
    frame = frame.assign(
        challenge="mgc",
        cluster=frame["text_index"].astype(str),
        unclaimed=100 - frame[groups].sum(axis=1),
        unscored="",
    )
    results = correlate(frame, groups, [("female", "male")], seed=0, n_bootstrap=2000, n_permutations=1000)
    return {(result.measure, *result.group.values()): result for result in results}


@pytest.mark.parametrize(
    ("run", "group", "slope", "r"),
    [
        (("bert-base-uncased", "", "date"), "female", 0.550, 0.934),
        (("bert-base-uncased", "", "date"), "male", -0.194, -0.701),
        (("bert-base-uncased", "", "place"), "male", -0.388, -0.583),
        (("roberta-base", "", "date"), "female", 0.208, 0.845),
        (("text-davinci-002", "A", "date"), "male", -1.190, -0.873),
    ],
)
def test_recorded_models_have_their_known_slopes(
    recorded: dict[tuple[str, ...], Result], run: tuple[str, str, str], group: str, slope: float, r: float
) -> None:
    model, prompt, w_name = run
    about = (model, "mgc", prompt, w_name, group)
    assert recorded["slope", *about].value == pytest.approx(slope, abs=0.001)
    assert recorded["pearson_r", *about].value == pytest.approx(r, abs=0.001)
    assert recorded["slope", *about].q < 0.05
    assert recorded["slope", *about].n == (1800 if w_name == "date" else 1200)
    assert recorded["slope", *about].detail["n_clusters"] == 60


def test_every_recorded_run_is_told_of(recorded: dict[tuple[str, ...], Result]) -> None:
    # 16 runs, each with 3 means and the unclaimed one, 3 slopes, 3 correlations and a gap.
    assert len(recorded) == 16 * (4 + 3 + 3 + 1)
    for key, result in recorded.items():
        # A single text has all the neutral mass of one run: a draw without it is all zeros.
        one_text = key == ("pearson_r", "roberta-base", "mgc", "", "date", "neutral")
        assert ("37% of the bootstrap draws" in result.note) if one_text else (result.low <= result.high)
        if key[0] == "slope_gap":
            parts = [recorded["slope", *key[1:5], group].value for group in ("female", "male")]
            assert result.value == pytest.approx(parts[0] - parts[1], abs=1e-9)


# By hand ------------------------------------------------------------------------------------------------------------


def test_a_table_that_a_hand_can_work_out() -> None:
    # Means of she are 10 20 30, of he 30 30 27: slopes 10 and -1.5.
    she, he = np.array([[8, 18, 28], [12, 22, 32]]), np.array([[30, 30, 27], [30, 30, 27]])
    results = audit(table({"she": she, "he": he}))
    assert results["mean_mass", "she"].value == 20
    assert results["mean_mass", "he"].value == 29
    assert results["mean_mass", "unclaimed"].value == pytest.approx(100 - 49)
    assert results["slope", "she"].value == pytest.approx(10)
    assert results["slope", "he"].value == pytest.approx(-1.5)
    assert results["slope_gap", "she-he"].value == pytest.approx(11.5)
    assert results["pearson_r", "she"].value == pytest.approx(1)
    assert results["pearson_r", "he"].value == pytest.approx(-math.sqrt(3) / 2)
    # The clusters differ in level and not in slope: every draw has slope 10, and a mean of 18, 20 or 22.
    assert (results["slope", "she"].low, results["slope", "she"].high) == pytest.approx((10, 10))
    assert (results["mean_mass", "she"].low, results["mean_mass", "she"].high) == pytest.approx((18, 22))
    assert results["slope", "she"].p == pytest.approx(2 / 6)
    detail = results["slope", "she"].detail
    assert (detail["intercept"], detail["first"], detail["last"]) == pytest.approx((10, 10, 30))
    assert (detail["n_w"], detail["n_clusters"], results["slope", "she"].n) == (3, 2, 6)
    assert results["slope", "he"].detail["ols_low"] < -1.5 < results["slope", "he"].detail["ols_high"]
    assert (results["pearson_r", "he"].detail["fisher_low"], results["pearson_r", "he"].detail["fisher_high"]) == (
        -1,
        1,
    )


def test_results_come_in_order_of_appearance_with_their_keys_and_units() -> None:
    frames = [table(some_masses(seed), model=model) for seed, model in enumerate(("zeta", "alpha"))]
    results = correlate(pd.concat(frames), ["she", "he"], [("he", "she")], seed=0, n_bootstrap=20, n_permutations=20)
    names = [(result.measure, result.group["pronoun"]) for result in results]
    assert names[: len(names) // 2] == [
        ("mean_mass", "she"),
        ("mean_mass", "he"),
        ("mean_mass", "unclaimed"),
        ("slope", "she"),
        ("slope", "he"),
        ("pearson_r", "she"),
        ("pearson_r", "he"),
        ("slope_gap", "he-she"),
    ]
    assert [result.group["model"] for result in results] == ["zeta"] * 8 + ["alpha"] * 8
    assert list(results[0].group) == ["model", "challenge", "prompt", "w_name", "pronoun"]
    units = {result.measure: (result.unit, result.neutral) for result in results}
    assert units.pop("mean_mass")[0] == "percent"
    step = "percent per step"
    assert units == {"slope": (step, 0), "pearson_r": ("", 0), "slope_gap": (step, 0)}
    means = [result for result in results if result.measure == "mean_mass"]
    assert np.isnan([[result.neutral, result.p, result.q] for result in means]).all()
    assert set(results[3].detail) == set(results[7].detail)


def test_q_is_adjusted_over_the_slopes_and_gaps_of_all_models_and_r_shares_it() -> None:
    frames = [table(some_masses(seed), model=f"model {seed}") for seed in range(3)]
    results = correlate(pd.concat(frames), ["she", "he"], [("she", "he")], seed=0, n_bootstrap=20, n_permutations=999)
    tested = [result for result in results if result.measure in ("slope", "slope_gap")]
    p = np.array([result.p for result in tested])
    assert len(p) == 9
    # Benjamini-Hochberg from its definition: the least bound over all levels at which the test would be rejected.
    expected = [min(min(1.0, len(p) * level / np.sum(p <= level)) for level in p if level >= own) for own in p]
    assert [result.q for result in tested] == pytest.approx(expected)
    slopes = {tuple(result.group.items()): result for result in results if result.measure == "slope"}
    for result in results:
        if result.measure == "pearson_r":
            slope = slopes[tuple(result.group.items())]
            assert (result.p, result.q) == (slope.p, slope.q)


def test_the_index_of_w_is_what_counts_and_not_its_place() -> None:
    frame = table({"she": np.array([[1.0, 2, 3], [3, 4, 5]])})
    frame["w_index"] = frame["w_index"].map({0: 10, 1: 12, 2: 14})
    result = audit(frame, ("she",))["slope", "she"]
    assert result.value == pytest.approx(0.5)
    assert (result.detail["intercept"], result.detail["first"], result.detail["last"]) == pytest.approx((-3, 2, 4))


def test_line_of_is_the_line_of_the_results() -> None:
    frame = table(some_masses())
    line, result = line_of(frame, "she"), audit(frame)["slope", "she"]
    assert (line.slope, line.slope_low, line.slope_high) == (
        result.value,
        result.detail["ols_low"],
        result.detail["ols_high"],
    )
    low, high = line.band([0, 5])
    assert (low < line.at([0, 5])).all()
    assert (line.at([0, 5]) < high).all()
    assert math.isnan(line_of(frame[frame["w_index"] < 2], "she").slope)


# Missing and degenerate ---------------------------------------------------------------------------------------------


def test_unscored_rows_are_counted_and_left_out_and_zeros_stay() -> None:
    she = np.array([[10.0, 20, 30, 40], [0, 0, 0, 0], [math.nan, math.nan, 10, 10]])
    results = audit(table({"she": she}), ("she",), n_bootstrap=2000)
    slope = results["slope", "she"]
    assert (slope.n, slope.n_unscored) == (10, 2)
    # Means over the scored rows: 5, 10, 40/3, 50/3; a zero left out would give 10, 20, 20, 25.
    assert results["mean_mass", "she"].value == pytest.approx(np.mean([5, 10, 40 / 3, 50 / 3]))
    assert slope.value == pytest.approx(np.polyfit(range(4), [5, 10, 40 / 3, 50 / 3], 1)[0])
    assert slope.detail["n_clusters"] == 3
    assert slope.low < slope.value < slope.high
    assert slope.note == ""


def test_a_row_with_a_reason_is_unscored_whatever_its_masses_say() -> None:
    masses = some_masses()
    frame = table(masses)
    frame.loc[:5, "unscored"] = "not asked"
    emptied = frame.copy()
    emptied.loc[:5, ["she", "he", "unclaimed"]] = math.nan
    assert repr(audit(frame)) == repr(audit(emptied))
    assert audit(frame)["mean_mass", "unclaimed"].n_unscored == 6


def test_clusters_without_a_scored_row_take_no_part_in_the_draws() -> None:
    masses = some_masses(n_clusters=6)
    unscored = {group: np.vstack([mass, np.full((20, 6), math.nan)]) for group, mass in masses.items()}
    for name, result in audit(table(masses)).items():
        among = audit(table(unscored))[name]
        assert np.array_equal(numbers(among), numbers(result), equal_nan=True)
        assert (among.n, among.n_unscored) == (36, 120)


def test_a_w_value_without_scored_rows_is_left_out_and_the_note_says_so() -> None:
    masses = some_masses(n_w=8)
    masses["she"][:, 0] = math.nan
    slope = audit(table(masses))["slope", "she"]
    assert slope.note == "1 of 8 W values has no scored row and is left out of the line."
    assert slope.value == pytest.approx(np.polyfit(range(1, 8), masses["she"][:, 1:].mean(axis=0), 1)[0])
    assert slope.detail["n_w"] == 7
    assert slope.detail["first"] == pytest.approx(slope.detail["intercept"] + slope.value)
    assert slope.n_unscored == 12
    assert not np.isnan(numbers(slope)).any()


def test_two_w_values_have_means_and_no_slope() -> None:
    results = audit(table(some_masses(n_w=2)))
    for measure, pronoun in (("slope", "she"), ("pearson_r", "she"), ("slope_gap", "she-he")):
        result = results[measure, pronoun]
        assert np.isnan([result.value, result.low, result.high, result.p, result.q]).all()
        assert result.note == "Only 2 W values have scored rows, and a line needs at least 3, so no slope is given."
    assert results["slope", "she"].detail["n_w"] == 2
    assert math.isnan(results["slope", "she"].detail["detectable_slope"])
    mean = results["mean_mass", "she"]
    assert mean.low < mean.value < mean.high


def test_a_single_w_value_has_a_mean_and_no_slope() -> None:
    results = audit(table(some_masses(n_w=1)))
    assert math.isnan(results["slope", "she"].value)
    assert "Only 1 W value has" in results["slope", "she"].note
    assert not math.isnan(results["mean_mass", "she"].low)


def test_a_single_cluster_has_a_slope_and_claims_nothing() -> None:
    results = audit(table(some_masses(n_clusters=1)))
    for result in results.values():
        assert not math.isnan(result.value)
        assert np.isnan([result.low, result.high, result.p, result.q]).all()
        assert "single cluster" in result.note
    assert results["slope", "she"].detail["n_clusters"] == 1
    assert not math.isnan(results["slope", "she"].detail["ols_low"])


def test_a_single_scored_cluster_among_unscored_ones_claims_nothing() -> None:
    masses = some_masses(n_clusters=4)
    masses["she"][1:] = math.nan
    slope = audit(table(masses))["slope", "she"]
    assert slope.detail["n_clusters"] == 1
    assert np.isnan([slope.low, slope.p]).all()
    assert "single cluster" in slope.note


def test_nothing_scored_gives_nothing_and_says_so() -> None:
    results = audit(table({group: np.full((3, 4), math.nan) for group in ("she", "he")}))
    assert len(results) == 8
    for result in results.values():
        assert np.isnan([result.value, result.low, result.high, result.p, result.q]).all()
        assert (result.n, result.n_unscored) == (0, 12)
        assert result.note.startswith("None of the 12 rows has a number for ")


def test_unclaimed_that_cannot_be_read_leaves_the_groups_alone() -> None:
    frame = table(some_masses())
    results = audit(frame.assign(unclaimed=math.nan))
    assert math.isnan(results["mean_mass", "unclaimed"].value)
    assert results["mean_mass", "unclaimed"].n_unscored == len(frame)
    assert numbers(results["slope", "she"]) == numbers(audit(frame)["slope", "she"])


@pytest.mark.parametrize("mass", [0.0, 33.3])
def test_a_constant_mass_has_slope_zero_and_no_test(mass: float) -> None:
    # Three rows a cell: the means of equal numbers, added up in threes and more, differ by rounding.
    frame = pd.concat([table({"she": np.full((7, 5), mass)})] * 3)
    results = audit(frame, ("she",))
    slope, r = results["slope", "she"], results["pearson_r", "she"]
    assert (slope.value, slope.low, slope.high) == (0, 0, 0)
    assert np.isnan([slope.p, slope.q, r.value, r.low, r.high, r.p]).all()
    assert "the same at every W value" in slope.note
    assert (results["mean_mass", "she"].value, results["mean_mass", "she"].low) == pytest.approx((mass, mass))


def test_a_correlation_that_most_draws_cannot_have_gets_no_interval() -> None:
    she = np.zeros((10, 4))
    she[0] = [1, 2, 3, 5]  # a draw without this cluster, one in three, is all zeros
    results = audit(table({"she": she}), ("she",))
    assert math.isnan(results["pearson_r", "she"].low)
    assert "bootstrap draws" in results["pearson_r", "she"].note
    assert results["slope", "she"].low == 0 < results["slope", "she"].value < results["slope", "she"].high


def test_an_empty_table_gives_no_results() -> None:
    columns = list(table(some_masses()).columns)
    assert correlate(pd.DataFrame(columns=columns), ["she", "he"], [("she", "he")], seed=0) == []


def test_a_table_read_from_a_file_may_write_empty_text_as_missing() -> None:
    frame = table(some_masses())
    results = audit(frame.assign(prompt=math.nan, unscored=math.nan))
    assert repr(results) == repr(audit(frame))


@pytest.mark.parametrize("column", ["model", "challenge", "prompt", "w_name", "w_index", "cluster", "unscored", "she"])
def test_a_missing_column_is_named(column: str) -> None:
    with pytest.raises(UndertowError, match=f"no column '{column}'"):
        audit(table(some_masses()).drop(columns=column))


@pytest.mark.parametrize(
    ("column", "cell", "wanted"),
    [
        ("she", "12,5", "a number"),
        ("unclaimed", "n/a", "a number"),
        ("he", True, "a number"),
        ("he", math.inf, "a finite number"),
        ("w_index", 0.5, "a whole number"),
        ("w_index", math.nan, "a whole number"),
        ("w_index", "1801", "a number"),
        ("cluster", None, "filled in"),
        ("model", math.nan, "filled in"),
    ],
)
def test_a_cell_that_cannot_be_measured_is_named_with_its_row(column: str, cell: object, wanted: str) -> None:
    frame = table(some_masses()).astype({column: object})
    frame[column] = [*frame[column][:3], cell, *frame[column][4:]]
    with pytest.raises(UndertowError, match=rf"column '{column}' .* in row 4 of 72; it must be {wanted}"):
        audit(frame)


def test_a_column_of_booleans_or_text_is_no_mass() -> None:
    frame = table(some_masses())
    with pytest.raises(UndertowError, match="column 'she'"):
        audit(frame.assign(she=frame["she"] > 30))
    with pytest.raises(UndertowError, match="column 'she'"):
        audit(frame.assign(she=frame["she"].astype(str)))


def test_arguments_that_make_no_sense_are_refused() -> None:
    frame = table(some_masses())
    with pytest.raises(UndertowError, match="compares 'they'"):
        audit(frame, gaps=[("she", "they")])
    with pytest.raises(UndertowError, match="rename the group"):
        audit(frame, ("she", "unclaimed"))
    with pytest.raises(UndertowError, match="n_bootstrap is 0"):
        audit(frame, n_bootstrap=0)
    with pytest.raises(UndertowError, match="n_permutations is -1"):
        audit(frame, n_permutations=-1)


# What must not matter -----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    frame = table(some_masses())
    assert repr(audit(frame, seed=5)) == repr(audit(frame, seed=5))
    first, second = audit(frame, seed=5)["slope", "she"], audit(frame, seed=-6)["slope", "she"]
    assert first.value == second.value
    assert (first.low, first.high) != (second.low, second.high)


def test_other_groups_gaps_and_models_change_no_number_but_q() -> None:
    masses = some_masses() | {"xe": some_masses(9)["he"]}
    alone = audit(table(masses), ("she",))
    others = pd.concat([table(some_masses(4), model="another").assign(xe=1.0), table(masses)])
    results = correlate(others, ["xe", "he", "she"], [("xe", "she")], seed=0, n_bootstrap=200, n_permutations=200)
    among = {(r.measure, r.group["pronoun"]): r for r in results if r.group["model"] == "m"}
    for name, result in alone.items():
        assert np.array_equal(numbers(result), numbers(among[name]), equal_nan=True)


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table(some_masses())
    whole = repr(audit(frame))
    monkeypatch.setattr("undertow.measures.correlation.BATCH_NUMBERS", 1)
    assert repr(audit(frame)) == whole


def test_runs_that_differ_in_one_key_have_draws_of_their_own() -> None:
    masses = some_masses()
    intervals = {audit(table(masses, **{key: "other"}))["slope", "she"].low for key in RUN}
    assert len(intervals | {audit(table(masses))["slope", "she"].low}) == 5


@settings(max_examples=15)
@given(order=st.permutations(range(72)))
def test_the_order_of_the_rows_changes_nothing(order: list[int]) -> None:
    frame = table(some_masses())
    assert repr(audit(frame.iloc[order])) == repr(audit(frame))


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), shift=st.floats(-50, 50))
def test_adding_a_constant_mass_changes_no_slope(seed: int, shift: float) -> None:
    masses = some_masses(seed)
    plain, shifted = audit(table(masses)), audit(table({group: mass + shift for group, mass in masses.items()}))
    for name, result in plain.items():
        other = shifted[name]
        move = shift if name[0] == "mean_mass" and name[1] != "unclaimed" else 0
        if name[1] != "unclaimed":
            expected = [result.value + move, result.low + move, result.high + move]
            assert [other.value, other.low, other.high] == pytest.approx(expected, abs=1e-9)
            assert other.p == pytest.approx(result.p, nan_ok=True)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), factor=st.sampled_from([0.001, 0.3, 7.0]))
def test_scaling_the_mass_scales_slopes_and_leaves_r_and_p(seed: int, factor: float) -> None:
    masses = some_masses(seed)
    plain, scaled = audit(table(masses)), audit(table({group: mass * factor for group, mass in masses.items()}))
    for name, result in plain.items():
        if name[1] != "unclaimed":
            by = 1 if name[0] == "pearson_r" else factor
            other = scaled[name]
            expected = [result.value * by, result.low * by, result.high * by]
            assert [other.value, other.low, other.high] == pytest.approx(expected, rel=1e-9)
            assert other.p == pytest.approx(result.p, nan_ok=True)


def test_a_gap_turned_round_is_the_gap_with_its_sign_turned() -> None:
    results = audit(table(some_masses()), gaps=[("she", "he"), ("he", "she")])
    there, back = results["slope_gap", "she-he"], results["slope_gap", "he-she"]
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))
    assert there.p == back.p


def test_a_gap_keeps_the_rows_paired() -> None:
    # What moves both groups of a sentence alike is no gap: the interval must not carry it.
    rng = np.random.default_rng(3)
    both = rng.normal(0, 2, (30, 1)) * np.arange(5)
    masses = {"she": 40 + both + rng.normal(0, 0.1, (30, 5)), "he": 40 + both}
    results = audit(table(masses))
    gap, slope = results["slope_gap", "she-he"], results["slope", "she"]
    assert gap.high - gap.low < 0.1 * (slope.high - slope.low)


@pytest.mark.parametrize("names", [("женщина", "мужчина"), ("warm", "cold"), ("xe", "they-them")])
def test_groups_may_have_any_name(names: tuple[str, str]) -> None:
    masses = dict(zip(names, some_masses().values(), strict=True))
    plain, named = audit(table(some_masses())), audit(table(masses), names)
    assert numbers(named["slope", names[0]]) == numbers(plain["slope", "she"])
    assert numbers(named["slope_gap", "-".join(names)]) == numbers(plain["slope_gap", "she-he"])


# Honesty by simulation ----------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """300 audits of 50 clusters drawn from a population whose slopes are known; the W values are fixed, as the bootstrap has them."""
    n_audits, n_clusters, n_w = 300, 50, 6
    rng = np.random.default_rng(11)
    index = np.arange(n_w)
    bends = np.array([0, 3, -2, 4, 1, -1])  # the population's own departures from a line
    curves = {"she": 30 + 0.5 * index + bends, "he": 40 - 0.2 * index - bends}
    truth = {("slope", group): np.polyfit(index, curve, 1)[0] for group, curve in curves.items()}
    truth |= {("mean_mass", group): curve.mean() for group, curve in curves.items()}
    truth["slope_gap", "she-he"] = truth["slope", "she"] - truth["slope", "he"]
    covered = dict.fromkeys(truth, 0)
    for seed in range(n_audits):
        noise = rng.normal(0, 5, (n_clusters, 1)) + rng.normal(0, 0.8, (n_clusters, 1)) * index
        masses = {
            group: curve + sign * noise + rng.exponential(2, (n_clusters, n_w)) - 2
            for (group, curve), sign in zip(curves.items(), (1, -1), strict=True)
        }
        results = audit(table(masses), seed=seed, n_bootstrap=400, n_permutations=10)
        for name, value in truth.items():
            covered[name] += results[name].low <= value <= results[name].high
    for name, times in covered.items():
        assert 0.90 <= times / n_audits <= 0.99, name
