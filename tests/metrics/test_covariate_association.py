from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from undertow.errors import UndertowError
from undertow.metrics.drift.cells import Cells
from undertow.metrics.drift.covariate_association import ADJUSTED, line_of, measure_association, with_adjusted_means
from undertow.stats.intervals.cluster_errors import share_interval, skewed_interval
from undertow.stats.regression.trend import cluster_summary, covariate_effect, trend, trend_of_other_values
from undertow.types import Result

Masses = dict[str, np.ndarray]  # group: [cluster, w]
RUN = {"model": "m", "challenge": "c", "prompt": "", "w_name": "date"}


def table(masses: Masses, **run: str) -> pd.DataFrame:
    """A crossed design: one row per cluster and W value; NaN in the first group is a missing row."""
    n_clusters, n_w = next(iter(masses.values())).shape
    cluster, w_index = np.divmod(np.arange(n_clusters * n_w), n_w)
    columns: dict[str, Any] = {name: [level] * len(cluster) for name, level in (RUN | run).items()}
    columns |= {"w": [f"w{index}" for index in w_index], "w_index": w_index, "cluster": [f"k{k}" for k in cluster]}
    columns |= {group: np.asarray(values, dtype=float).ravel() for group, values in masses.items()}
    frame = pd.DataFrame(columns)
    frame["other_words"] = 100 - frame[list(masses)].sum(axis=1, skipna=False)
    frame["missing_reason"] = np.where(frame[next(iter(masses))].isna(), "too long", "")
    return frame


def audit(
    frame: pd.DataFrame, groups: tuple[str, ...] = ("she", "he"), **options: Any
) -> dict[tuple[str, str], Result]:
    """Results of a table with one run, by measure and pronoun."""
    gaps = options.pop("gaps", [groups[:2]] if len(groups) > 1 else [])
    results = measure_association(frame, groups, gaps, **({"seed": 0} | options))
    by_name = {(result.measure, result.group["pronoun"]): result for result in results}
    assert len(by_name) == len(results)
    return by_name


def some_masses(seed: int = 0, n_clusters: int = 12, n_w: int = 10) -> Masses:
    rng = np.random.default_rng(seed)
    she = 30 + 2 * np.arange(n_w) + rng.normal(0, 3, (n_clusters, 1)) + rng.normal(0, 2, (n_clusters, n_w))
    return {"she": she, "he": 40 + rng.normal(0, 3, (n_clusters, n_w))}


def numbers(result: Result) -> list[float]:
    """All but q, and what is corrected like it, which depend on the other results of a table."""
    corrected = ("values_q", "corrected_low", "corrected_high")
    extras = [number for name, number in result.extras.items() if name not in corrected]
    return [result.value, result.low, result.high, result.p, *extras]


def same(found: Result, expected: Result) -> bool:
    return np.array_equal(numbers(found), numbers(expected), equal_nan=True)


def test_a_table_of_six_sentences_at_eight_values_by_other_means() -> None:
    """Each number from numpy, scipy and the functions of the statistics, whose own tests hold them against others."""
    masses = some_masses(2, 6, 8)
    results, she, gap = audit(table(masses)), masses["she"], masses["she"] - masses["he"]
    x, levels = np.arange(8), she.mean(axis=1)
    parts = cluster_summary(x, she[None], np.ones((1, 6, 8)))
    found, of_values, slope = trend(x, parts), trend_of_other_values(x, parts), results["slope", "she"]
    assert slope.value == pytest.approx(np.polyfit(x, she.mean(axis=0), 1)[0])
    assert (slope.low, slope.high, slope.p) == pytest.approx((found.low[0], found.high[0], found.p[0]))
    assert (slope.extras["autocorrelation"], slope.extras["values_sd"]) == pytest.approx(
        (found.autocorrelation[0], found.values_sd[0])
    )
    assert [slope.extras[f"values_{name}"] for name in ("low", "high", "p")] == pytest.approx(
        [one[0] for one in of_values]
    )
    assert (slope.extras["n_w"], slope.extras["n_clusters"], slope.n) == (8, 6, 48)
    assert results["pearson_r", "she"].value == pytest.approx(np.corrcoef(x, she.mean(axis=0))[0, 1])
    assert results["slope_gap", "she-he"].value == pytest.approx(np.polyfit(x, gap.mean(axis=0), 1)[0])
    for name, mass in {**masses, "other_words": 100 - she - masses["he"]}.items():
        assert results["mean_mass", name].value == pytest.approx(mass.mean())
    slopes = np.polyfit(x, she.T, 1)[0]
    t, skewness = stats.t.ppf(0.975, slope.extras["sentences_df"]), stats.skew(slopes, bias=False) / math.sqrt(6)
    assert [slope.extras["sentences_low"], slope.extras["sentences_high"]] == pytest.approx(
        skewed_interval(slopes.mean(), stats.sem(slopes), t, skewness)
    )
    effect, told = covariate_effect(she, np.ones_like(she)), results["w_effect", "she"]
    assert (told.value, told.low, told.high, told.p) == pytest.approx((effect.value, effect.low, effect.high, effect.p))
    ols = stats.linregress(x, she.mean(axis=0))
    assert slope.extras["ols_high"] - slope.value == pytest.approx(stats.t.ppf(0.975, 6) * ols.stderr)
    ends = [slope.extras[name] for name in ("intercept", "first", "last")]
    assert ends == pytest.approx(ols.intercept + ols.slope * np.array([0, 0, 7]))
    of_gap = trend(x, cluster_summary(x, gap[None], np.ones((1, 6, 8))))
    assert results["slope_gap", "she-he"].p == pytest.approx(of_gap.p[0])
    kurtosis = stats.kurtosis(levels, bias=False) + 3
    df = min(2 * 6 / (kurtosis - 3 / 5), 5)
    expected = share_interval(levels.mean() / 100, (stats.sem(levels) / 100) ** 2, df)
    assert (results["mean_mass", "she"].low, results["mean_mass", "she"].high) == pytest.approx(
        tuple(100 * end for end in expected)
    )
    # To first order each sentence moves the log-odds of a mean as far as the mean, over p (1 - p).
    means = she.mean(axis=0)
    moved = special.logit(means / 100) + (she - means) * 100 / (means * (100 - means))
    odds = trend(x, cluster_summary(x, moved[None], np.ones((1, 6, 8))))
    told = results["slope_log_odds", "she"]
    assert (told.value, told.low, told.high) == pytest.approx((odds.slope[0], odds.low[0], odds.high[0]))
    assert told.value == pytest.approx(np.polyfit(x, special.logit(means / 100), 1)[0])
    assert math.isnan(told.p), "the slope has its test"


def test_results_come_in_order_of_appearance_with_their_keys_and_units() -> None:
    frames = [table(some_masses(seed), model=model) for seed, model in enumerate(("zeta", "alpha"))]
    results = measure_association(pd.concat(frames), ["she", "he"], [("he", "she")], seed=0)
    pronouns = {
        "mean_mass": "she he other_words", "w_effect": "she he he-she", "slope": "she he", "pearson_r": "she he",
        "slope_log_odds": "she he", "slope_gap": "he-she",
    }  # fmt: skip
    names = [(measure, name) for measure, some in pronouns.items() for name in some.split()]
    assert [(one.group["model"], one.measure, one.group["pronoun"]) for one in results] == [
        (model, *name) for model in ("zeta", "alpha") for name in names
    ]
    assert list(results[0].group) == ["model", "challenge", "prompt", "w_name", "pronoun"]
    units = {one.measure: (one.unit, one.null_value) for one in results if one.measure != "mean_mass"}
    assert results[0].unit == "percent"
    step = "percent per step"
    assert units == {
        "w_effect": ("percentage points", 0), "slope": (step, 0), "pearson_r": ("", 0), "slope_log_odds": ("log-odds per step", 0),
        "slope_gap": (step, 0),
    }  # fmt: skip
    untested = [one for one in results if one.measure in ("mean_mass", "pearson_r", "slope_log_odds")]
    assert np.isnan([[one.p, one.q] for one in untested]).all()
    assert np.isnan([[one.low, one.high] for one in untested if one.measure == "pearson_r"]).all()


def test_q_is_adjusted_over_the_tests_of_one_kind_in_the_whole_table() -> None:
    frames = [table(some_masses(seed), model=f"model {seed}") for seed in range(3)]
    results = measure_association(pd.concat(frames), ["she", "he"], [("she", "he")], seed=0)
    for measures in (("slope", "slope_gap"), ("w_effect",)):
        tested = [result for result in results if result.measure in measures]
        assert len(tested) == 9
        assert [result.q for result in tested] == pytest.approx(
            list(stats.false_discovery_control([result.p for result in tested]))
        )
    others = [result.extras for result in results if result.measure in ("slope", "slope_gap")]
    assert [extras["values_q"] for extras in others] == pytest.approx(
        list(stats.false_discovery_control([extras["values_p"] for extras in others]))
    )


def test_a_corrected_interval_leaves_out_zero_where_q_is_small_and_nowhere_else() -> None:
    """Of eight tests; its level is that at which the least of those that are claimed, or the next one, would be rejected."""
    frames = []
    for seed, slope in enumerate((0.0, 0.0, 0.5, 0.5, 0.6, 0.7, 2.0, 0.0)):
        masses = some_masses(seed)
        masses["he"] = masses["he"] + slope * np.arange(10)
        frames.append(table(masses, model=f"model {seed}"))
    results = [one for one in measure_association(pd.concat(frames), ["he"], [], seed=0) if one.measure == "slope"]
    q, p = (np.array([getattr(one, name) for one in results]) for name in ("q", "p"))
    assert 0 < np.sum(q < 0.05) < np.sum(p < 0.05) < 8
    for at, result in enumerate(results):
        low, high = (result.extras[f"corrected_{end}"] for end in ("low", "high"))
        assert (low > 0 or high < 0) == (result.q < 0.05)
        level = 1 - 0.05 * (np.sum(q < 0.05) + (result.q >= 0.05)) / 8
        y = frames[at].pivot_table(index="cluster", columns="w_index", values="he").to_numpy()[None]
        found = trend(np.arange(10), cluster_summary(np.arange(10), y, np.ones_like(y)))
        assert (low, high) == pytest.approx(tuple(end[0] for end in found.interval(level)))
    alone = audit(frames[4], ("he",))["slope", "he"]
    assert (alone.extras["corrected_low"], alone.extras["corrected_high"]) == pytest.approx((alone.low, alone.high))


def test_of_several_prompts_their_mean_decides_and_nothing_else() -> None:
    """Two prompts of one model and none of another: no model has one try for each prompt."""
    masses = {prompt: some_masses(seed) for seed, prompt in enumerate("AB")}
    prompted = [table(of_prompt, prompt=prompt) for prompt, of_prompt in masses.items()]
    results = measure_association(pd.concat([*prompted, table(some_masses(9), model="other")]), ["she"], [], seed=0)
    of = {(result.measure, result.group["model"], result.group.get("prompt")): result for result in results}
    decided = {key for key, result in of.items() if math.isfinite(result.q)}
    assert decided == {
        ("slope_over_prompts", "m", None), ("w_effect_over_prompts", "m", None), ("slope", "other", ""), ("w_effect", "other", ""),
    }  # fmt: skip
    over, alone = of["slope_over_prompts", "m", None], [of["slope", "m", prompt] for prompt in "AB"]
    assert over.value == pytest.approx(np.mean([result.value for result in alone]))
    assert all(0 < result.p < 1 for result in alone)
    mean = np.asarray(sum(one["she"] for one in masses.values())) / 2
    found = trend(np.arange(10), cluster_summary(np.arange(10), mean[None], np.ones((1, 12, 10))))
    assert (over.low, over.high, over.p) == pytest.approx((found.low[0], found.high[0], found.p[0]), rel=1e-6)
    p = {key: of[key].p for key in decided if key[0].startswith("slope")}
    # Two tests, of which the larger p stands as it is.
    assert of[max(p, key=lambda key: p[key])].q == pytest.approx(max(p.values()))


def test_a_slope_is_per_unit_where_w_counts_by_its_number() -> None:
    """Years at uneven distances: a step of the list is another thing than a year."""
    masses, years = some_masses(4), np.array([1900, 1901, 1903, 1904, 1910, 1920, 1950, 1990, 1991, 2000])
    frame = table(masses).assign(w_value=lambda rows: years[rows["w_index"]])
    of_index = audit(frame.drop(columns="w_value"), covariates={"date": {"scale": "index"}})["slope", "she"]
    of_year = audit(frame, covariates={"date": {"scale": "value", "unit": "year"}})["slope", "she"]
    means = masses["she"].mean(axis=0)
    assert (of_index.unit, of_year.unit) == ("percent per step", "percent per year")
    assert of_index.value == pytest.approx(np.polyfit(range(10), means, 1)[0])
    assert of_year.value == pytest.approx(np.polyfit(years, means, 1)[0])
    found = trend(years, cluster_summary(years, masses["she"][None], np.ones((1, 12, 10))))
    assert (of_year.low, of_year.high, of_year.p) == pytest.approx((found.low[0], found.high[0], found.p[0]))
    assert (of_year.extras["first"], of_year.extras["last"]) == pytest.approx(
        tuple(np.polyval(np.polyfit(years, means, 1), [1900, 2000]))
    )
    effects = [audit(frame, covariates={"date": {"scale": scale}})["w_effect", "she"] for scale in ("index", "value")]
    assert same(*effects), "an effect knows no order"


@pytest.mark.parametrize(("n_clusters", "told"), [(5, "5 sentences"), (1, "1 sentence")])
def test_fewer_than_six_sentences_have_no_interval_and_claim_nothing(n_clusters: int, told: str) -> None:
    results = audit(table(some_masses(n_clusters=n_clusters)))
    for (measure, _), result in results.items():
        # An effect is told apart from noise by other sentences.
        assert math.isnan(result.value) == (measure == "w_effect" and n_clusters == 1)
        assert np.isnan([result.low, result.high, result.p, result.q]).all()
        assert "ols_low" in result.extras or not {"sentences_low", "values_low", "values_p"} & result.extras.keys()
        assert measure == "pearson_r" or (told in result.note and "at least 6" in result.note)
    assert results["slope", "she"].extras["n_clusters"] == n_clusters
    assert not math.isnan(results["slope", "she"].extras["ols_low"])
    six = audit(table(some_masses(n_clusters=6)))
    assert not np.isnan([six["slope", "she"].low, six["slope", "she"].p, six["w_effect", "she"].p]).any()


def test_what_a_design_could_have_found_is_asked_where_it_found_nothing() -> None:
    results = audit(table(some_masses()))
    assert results["slope", "she"].p < 0.01
    assert "detectable_slope" not in results["slope", "she"].extras
    assert results["slope", "he"].p > 0.05
    assert results["slope", "he"].extras["detectable_slope"] > abs(results["slope", "he"].value)


def test_line_of_is_the_line_of_the_results() -> None:
    frame = table(some_masses())
    line, result = line_of(frame, "she"), audit(frame)["slope", "she"]
    ends = (result.extras["ols_low"], result.extras["ols_high"])
    assert (line.slope, line.slope_low, line.slope_high) == (result.value, *ends)
    low, high = line.band([0, 5])
    assert (low < line.at([0, 5])).all()
    assert (line.at([0, 5]) < high).all()
    assert math.isnan(line_of(frame[frame["w_index"] < 2], "she").slope)


def test_missing_rows_are_counted_and_left_out_and_zeros_stay() -> None:
    she = np.array([[10.0, 20, 30, 40], [0, 0, 0, 0], [math.nan, math.nan, 10, 10]])
    results = audit(table({"she": she}), ("she",))
    slope = results["slope", "she"]
    assert (slope.n, slope.n_missing) == (10, 2)
    of, w = np.nonzero(~np.isnan(she))
    effects = np.linalg.lstsq(np.column_stack([np.eye(4)[w], np.eye(3)[of]]), she[of, w])[0]
    means = effects[:4] + effects[4:].mean()
    assert results["mean_mass", "she"].value == pytest.approx(means.mean())
    assert slope.value == pytest.approx(np.polyfit(range(4), means, 1)[0])
    assert ADJUSTED in slope.note
    assert slope.extras["n_clusters"] == 3


@pytest.mark.parametrize("levels_of", ["sentences", "prompts", "sentences in clusters", "slots in clusters"])
def test_what_is_missing_at_later_values_is_no_drift(levels_of: str) -> None:
    """Levels of 20 and 60 and no drift; those of 60 are missing later."""
    noise = np.random.default_rng(0).normal(0, 1, (2, 10, 16))
    low, high = table({"she": 20 + noise[0]}), table({"she": 60 + noise[1]})
    names = {
        "sentences": "cluster",
        "prompts": "prompt",
        "sentences in clusters": "sentence",
        "slots in clusters": "place",
    }
    low[names[levels_of]], high[names[levels_of]] = low["cluster"] + "a", high["cluster"] + "b"
    whole = pd.concat([low, high], ignore_index=True)
    if levels_of == "prompts":
        whole["prompt"] = whole["prompt"].str[-1]
    frame = whole[(whole["she"] < 40) | (whole["w_index"] < 6 + whole.index % 3)]
    ending = "_over_prompts" if levels_of == "prompts" else ""
    found = [{one.measure: one for one in measure_association(rows, ["she"], [], seed=0)} for rows in (frame, whole)]
    slope, complete = (results[f"slope{ending}"] for results in found)
    effect = found[0][f"w_effect{ending}"]
    assert abs(slope.value * 15) < 1 < abs(frame.groupby("w_index")["she"].mean().diff().sum())
    assert slope.low < 0 < slope.high
    assert effect.p > 0.05
    assert (slope.note, complete.note) == (ADJUSTED, "")
    if levels_of != "prompts":
        shown = with_adjusted_means(frame, ["she"]).groupby("w_index")["she"].mean()
        assert np.polyfit(range(16), shown, 1)[0] == pytest.approx(slope.value)
        assert shown.mean() == pytest.approx(audit(frame, ("she",))["mean_mass", "she"].value)
    assert complete.value == pytest.approx(np.polyfit(range(16), whole.groupby("w_index")["she"].mean(), 1)[0])


def lacking(seed: int, sd: float = 0.0, share: float = 0.15) -> np.ndarray:
    """Noise of 12 sentences at 16 values, with levels of this standard deviation; NaN where a reply is missing."""
    rng = np.random.default_rng(seed)
    y = 50 + rng.normal(0, 1, (12, 16))
    return np.asarray(np.where(rng.random((12, 16)) < share, math.nan, y) + sd * rng.normal(0, 1, (12, 1)))


def test_levels_of_sentences_do_not_enter_the_noise_of_their_cells() -> None:
    """Noise of variance 1 in a mean of about 10 of 12 sentences."""
    whites = []
    for sd in (0.0, 20.0):
        rows = [table({"she": lacking(seed, sd)}).assign(unit=lambda one: one["cluster"]) for seed in range(30)]
        cells = [Cells.from_rows(one.assign(w_value=one["w_index"]), one["she"].to_numpy()) for one in rows]
        assert all(one.adjusted for one in cells)
        whites.append([float(one.summary().white_variance[0]) for one in cells])
    assert whites[1] == pytest.approx(whites[0])
    assert np.mean(whites[0]) == pytest.approx(0.099, abs=0.006)


def test_only_sentences_with_several_values_count_for_slopes_and_effects() -> None:
    """A sentence with one value has a level and nothing else."""
    she = np.random.default_rng(1).normal(50, 3, (14, 16))
    few = np.full((16, 16), math.nan)
    few[np.arange(16), np.arange(16)] = 90
    alone, among = (audit(table({"she": one}), ("she",)) for one in (she, np.vstack([she, few])))
    for measure in ("slope", "w_effect"):
        assert numbers(among[measure, "she"])[:4] == pytest.approx(numbers(alone[measure, "she"])[:4])
        assert among[measure, "she"].extras["n_clusters"] == 14
    assert among["slope", "she"].extras["sentences_df"] == alone["slope", "she"].extras["sentences_df"]
    assert among["slope", "she"].extras["values_sd"] == pytest.approx(alone["slope", "she"].extras["values_sd"])
    untested = audit(table({"she": np.vstack([she[:5], few])}), ("she",))
    for measure in ("slope", "w_effect"):
        assert math.isnan(untested[measure, "she"].p)
        assert "5 sentences with values at several W values" in untested[measure, "she"].note


def test_an_adjusted_effect_is_that_of_the_values() -> None:
    """Half of the sentences lack the later values of a trend without noise to speak of."""
    she = np.arange(16.0) + np.random.default_rng(0).normal(50, 0.1, (12, 16))
    she[::2, 8:] = math.nan
    effect = audit(table({"she": she}), ("she",))["w_effect", "she"]
    assert effect.value == pytest.approx(np.std(np.arange(16), ddof=1), rel=0.02)
    assert (effect.p < 0.05, effect.note) == (True, ADJUSTED)
    constant = audit(table({"she": np.where(np.isnan(she), she, 33.3)}), ("she",))
    assert (constant["w_effect", "she"].value, constant["w_effect", "she"].p) == pytest.approx((0, 1))
    assert "same at every W value" in constant["slope", "she"].note


def test_adjusted_means_beyond_0_and_100_have_no_mean_mass_and_no_log_odds() -> None:
    """Where effects of W differ between sentences: they rise in some, and the others are low and seen early."""
    she = np.vstack([np.tile(np.linspace(90, 2, 10), (6, 1)), np.tile(np.linspace(1, 1, 10), (30, 1))])
    she[6:, 2:] = math.nan
    results = audit(table({"she": she + np.random.default_rng(0).uniform(0, 1, she.shape)}), ("she",))
    for measure in ("mean_mass", "slope_log_odds"):
        assert math.isnan(results[measure, "she"].value)
        assert "effects of W differ" in results[measure, "she"].note
    assert math.isfinite(results["slope", "she"].p)


def test_sentences_that_do_not_connect_the_values_have_no_test() -> None:
    she = np.random.default_rng(0).normal(30, 1, (12, 16))
    she[:6, 8:] = she[6:, :8] = math.nan
    slope = audit(table({"she": she}), ("she",))["slope", "she"]
    assert math.isnan(slope.p)
    assert "Sentences do not connect" in slope.note


def test_clusters_without_a_scored_row_take_no_part() -> None:
    masses = some_masses(n_clusters=6)
    missing_reason = {group: np.vstack([mass, np.full((20, 10), math.nan)]) for group, mass in masses.items()}
    for name, result in audit(table(masses)).items():
        among = audit(table(missing_reason))[name]
        assert same(among, result)
        assert (among.n, among.n_missing) == (60, 200)


def test_a_w_value_without_scored_rows_is_left_out_and_the_note_says_so() -> None:
    masses = some_masses(n_w=9)
    masses["she"][:, 0] = math.nan
    results = audit(table(masses))
    slope = results["slope", "she"]
    assert "1 of 9 W values" in slope.note
    assert slope.value == pytest.approx(np.polyfit(range(1, 9), masses["she"][:, 1:].mean(axis=0), 1)[0])
    assert slope.extras["n_w"] == 8
    assert slope.extras["first"] == pytest.approx(slope.extras["intercept"] + slope.value)
    assert slope.n_missing == 12
    assert not np.isnan(numbers(slope)).any()
    assert results["w_effect", "she"].value == pytest.approx(
        covariate_effect(masses["she"][:, 1:], np.ones((12, 8))).value
    )


def test_nothing_scored_gives_nothing_and_says_so() -> None:
    results = audit(table({group: np.full((3, 4), math.nan) for group in ("she", "he")}))
    assert len(results) == 13
    for result in results.values():
        assert np.isnan([result.value, result.low, result.high, result.p, result.q]).all()
        assert (result.n, result.n_missing) == (0, 12)
        assert result.note.startswith("None of the 12 rows has a value for ")


@pytest.mark.parametrize("mass", [0.0, 33.3])
def test_a_constant_mass_has_slope_zero_and_no_test(mass: float) -> None:
    # Three rows a cell: the means of equal numbers, added up in threes and more, differ by rounding.
    frame = pd.concat([table({"she": np.full((7, 9), mass)})] * 3)
    results = audit(frame, ("she",))
    slope, r, effect = (results[name, "she"] for name in ("slope", "pearson_r", "w_effect"))
    assert slope.value == 0
    assert np.isnan([slope.low, slope.high, slope.p, slope.q, r.value, r.low, r.p]).all()
    assert "the same at every W value" in slope.note
    assert (effect.value, effect.p) == (0, 1)
    mean = results["mean_mass", "she"]
    assert mean.value == pytest.approx(mass)
    assert math.isnan(mean.low), "sentences that agree tell nothing of others"
    assert mean.note


def test_means_on_a_line_exactly_have_no_error() -> None:
    she = np.tile(10.0 + 2 * np.arange(9), (7, 1))
    slope = audit(table({"she": she}), ("she",))["slope", "she"]
    assert slope.value == pytest.approx(2)
    assert np.isnan([slope.low, slope.high, slope.p]).all()
    assert "on the line exactly" in slope.note
    frame = table(some_masses())
    for name, one in audit(frame.assign(cluster=frame.index.astype(str))).items():
        if name[0] in {"slope", "w_effect", "slope_gap"}:
            assert "No sentence has" in one.note
            assert (math.isnan(one.p), math.isnan(one.value)) == (True, name[0] == "w_effect")


def test_log_odds_of_nothing_and_of_everything_are_none() -> None:
    masses = some_masses()
    for value in (0.0, 100.0):
        masses["she"][:, 4] = value
        results = audit(table(masses))
        told = results["slope_log_odds", "she"]
        assert np.isnan([told.value, told.low, told.high]).all()
        assert "infinite" in told.note
        assert not math.isnan(results["slope", "she"].value)


def test_an_empty_table_gives_no_results_and_empty_text_may_be_missing() -> None:
    columns = list(table(some_masses()).columns)
    assert measure_association(pd.DataFrame(columns=columns), ["she", "he"], [("she", "he")], seed=0) == []
    frame = table(some_masses())
    results = audit(frame.assign(prompt=math.nan, missing_reason=math.nan))
    assert repr(results) == repr(audit(frame))


@pytest.mark.parametrize(
    "column", ["model", "challenge", "prompt", "w_name", "w_index", "cluster", "missing_reason", "she"]
)
def test_a_missing_column_is_named(column: str) -> None:
    with pytest.raises(UndertowError, match=f"no column '{column}'"):
        audit(table(some_masses()).drop(columns=column))


def test_an_infinite_mass_is_refused_by_its_row() -> None:
    frame = table(some_masses())
    frame.loc[3, "he"] = math.inf
    with pytest.raises(UndertowError, match="'he', row 4"):
        audit(frame)


def test_the_seed_is_of_the_flips_of_effects_alone() -> None:
    frame = table(some_masses(n_clusters=20))
    assert repr(audit(frame, seed=5)) == repr(audit(frame, seed=5))
    first, second = audit(frame, seed=5), audit(frame, seed=6)
    changed = {key for key, result in first.items() if not same(result, second[key])}
    assert {measure for measure, _ in changed} <= {"w_effect"}
    # Of twelve sentences all flips are made.
    few = [audit(table(some_masses()), seed=seed) for seed in (5, 6)]
    assert repr(few[0]) == repr(few[1])


def test_other_groups_gaps_models_and_names_change_no_number_but_q() -> None:
    masses = some_masses() | {"xe": some_masses(9)["he"]}
    alone = audit(table(masses), ("she",))
    others = pd.concat([table(some_masses(4), model="another").assign(xe=1.0), table(masses)])
    results = measure_association(others, ["xe", "he", "she"], [("xe", "she")], seed=0)
    among = {(r.measure, r.group["pronoun"]): r for r in results if r.group["model"] == "m"}
    renamed = audit(table(masses, model="of another name"), ("she",))
    for name, result in alone.items():
        assert same(among[name], result)
        assert same(renamed[name], result), "no draw depends on what a model is called"


@settings(max_examples=4)
@given(order=st.permutations(range(120)))
def test_the_order_of_the_rows_changes_nothing(order: list[int]) -> None:
    frame = table(some_masses())
    assert repr(audit(frame.iloc[order], ("she",))) == repr(audit(frame, ("she",)))


def test_sentences_that_agree_but_for_rounding_have_no_interval() -> None:
    frame = table(some_masses())
    read_once = 95 + frame["w_index"] / 10 + 1e-6 * np.random.default_rng(4).standard_normal(len(frame))
    found = audit(frame.assign(other_words=read_once))
    other_words = found["mean_mass", "other_words"]
    assert other_words.value == pytest.approx(95.45)
    assert math.isnan(other_words.low)
    assert "same value" in other_words.note
    assert found["mean_mass", "she"].low < found["mean_mass", "she"].value
