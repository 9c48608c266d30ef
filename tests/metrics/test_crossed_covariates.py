from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import undertow
from conftest import make_quick
from undertow import data
from undertow.audits.base import Observations, Sampling
from undertow.audits.spurious_correlation import items
from undertow.audits.spurious_correlation.audit import SpuriousCorrelation, with_margins
from undertow.errors import UndertowError
from undertow.metrics.drift.covariate_association import HIDDEN
from undertow.metrics.drift.crossed_covariates import measure_interactions
from undertow.report.figures.surface import describe_surface, surface
from undertow.types import Result

YEARS, PLACES = ("1801", "1901", "2001", "2016"), ("Mali", "Peru", "Iran")
N_SENTENCES = 8


def covariate(scale: str = "index") -> dict[str, Any]:
    facts = {"order": "as listed", "scale": scale, "unit": "", "uneven": False}
    parts = [
        {"name": "date", "values": list(YEARS), "axis": [0.0, 1.0, 2.0, 3.0], **facts},
        {"name": "place", "values": list(PLACES), "axis": [0.0, 1.0, 2.0], **facts},
    ]
    return {"date x place": {"order": "in no order", "scale": "none", "unit": "", "uneven": False, "parts": parts}}


def table(y: Any) -> pd.DataFrame:
    """A row for each sentence and combination, of masses [sentence, date, place]."""
    cells = itertools.product(range(N_SENTENCES), range(len(YEARS)), range(len(PLACES)))
    run = {"model": "m", "challenge": "c", "prompt": "", "w_name": "date x place", "missing_reason": ""}
    rows = []
    for s, i, j in cells:
        at, mass = i * len(PLACES) + j, float(y[s, i, j])
        w = {"w": f"{YEARS[i]} in {PLACES[j]}", "w_index": at, "w_value": float(at)}
        rows.append(run | w | {"item": f"{s}/{at}", "cluster": f"sentence {s}", "female": mass, "male": 100 - mass})
    return pd.DataFrame(rows).assign(other_words=0.0)


def masses(interaction: float, noise: float = 0.5) -> Any:
    rng = np.random.default_rng(0)
    s, i, j = np.ogrid[:N_SENTENCES, : len(YEARS), : len(PLACES)]
    planted = 40 + s + 2.0 * i - j + interaction * (i - 1.5) * (j - 1)
    return planted + rng.normal(0, noise, planted.shape)


def interactions(frame: pd.DataFrame, *others: str, scale: str = "index", **covariates: Any) -> list[Result]:
    gaps = [("female", other) for other in others]
    return measure_interactions(frame, ["female", *others], gaps, covariates=covariates or covariate(scale), seed=0)


def of(results: Any, measure: str, pronoun: str = "female") -> Any:
    (one,) = (one for one in results if one.measure == measure and one.group["pronoun"] == pronoun)
    return one


def test_the_interaction_slope_is_the_mean_of_one_least_squares_estimate_for_each_sentence() -> None:
    y = masses(0.8)
    results = interactions(table(y), "male")
    slope = of(results, "interaction_slope")
    x, z = np.arange(4) - 1.5, np.arange(3) - 1.0
    i, j = np.indices((4, 3))
    design = np.column_stack([np.ones(12), i.ravel(), j.ravel(), np.outer(x, z).ravel()])
    by_sentence = np.linalg.lstsq(design, y.reshape(-1, 12).T, rcond=None)[0][3]
    test = stats.ttest_1samp(by_sentence, 0.0)
    low, high = test.confidence_interval(0.95)
    assert (slope.value, slope.p) == pytest.approx((np.mean(by_sentence), test.pvalue))
    assert (slope.low, slope.high) == pytest.approx((low, high))
    assert slope.value == pytest.approx(0.8, abs=0.3)
    assert of(results, "interaction_slope", "female-male").value == pytest.approx(2 * slope.value)
    assert slope.unit == "percent per step of date and step of place"


def test_the_interaction_is_what_combinations_add() -> None:
    """Without noise its standard deviation is that of the planted effects, (i - 1.5)(j - 1), over 6 degrees of freedom."""
    exact = of(interactions(table(masses(0.8, 0.0))), "w_interaction")
    planted = 0.8 * np.outer(np.arange(4) - 1.5, np.arange(3) - 1.0)
    assert exact.value == pytest.approx(math.sqrt((planted**2).sum() / 6))
    noisy = of(interactions(table(masses(0.8))), "w_interaction")
    assert noisy.value == pytest.approx(exact.value, abs=0.25)
    # All sentences agree: only both patterns of one sign are as extreme.
    assert noisy.p == pytest.approx(2 / 2**N_SENTENCES)
    assert noisy.low < noisy.value < noisy.high


def test_without_an_interaction_nothing_is_claimed() -> None:
    y = masses(0.0)
    assert min(one.q for one in interactions(table(y), "male")) > 0.05
    assert [one.measure for one in interactions(table(y), scale="none")] == ["w_interaction"]


def test_sentences_that_lack_a_combination_are_left_out_and_five_are_too_few() -> None:
    y = masses(0.8)
    y[:3, 0, 0] = np.nan
    for one in interactions(table(y)):
        assert math.isfinite(one.value)
        assert math.isnan(one.p)
        assert "5 sentences have every combination" in one.note
        assert (one.n, one.n_missing) == (12 * N_SENTENCES - 3, 3)


def test_hidden_masses_and_one_value_of_a_list_have_no_test() -> None:
    whole = table(masses(0.8))
    hidden = whole.assign(**{"female.low": whole["female"] - 1, "female.high": whole["female"] + 1})
    for one in interactions(hidden):
        assert np.isnan([one.low, one.high, one.p]).all()
        assert (math.isfinite(one.value), one.note) == (True, HIDDEN)
    single = whole[whole["w_index"] % len(PLACES) == 0]
    for one in interactions(single):
        assert math.isnan(one.value)
        assert one.note == "An interaction needs at least two values of either list."


def test_either_w_is_measured_over_the_values_of_the_other() -> None:
    y = masses(0.8)
    observations = crossed_run(y)
    whole = with_margins(observations)
    assert list(whole.frame["w_name"].unique()) == ["date x place", "date over place", "place over date"]
    results = SpuriousCorrelation().measure(observations, 0)
    of_female = [one for one in results if one.measure == "slope" and one.group["pronoun"] == "female"]
    by_date, by_place = (np.polyfit(range(n), y.mean(axis=(0, axis)), 1)[0] for n, axis in ((4, 2), (3, 1)))
    slopes = {one.group["w_name"]: one.value for one in of_female}
    assert slopes == pytest.approx({"date over place": by_date, "place over date": by_place})
    texts = [one.text for one in SpuriousCorrelation().findings(observations, results)]
    assert any("effect of date on the" in text and "depends on place" in text for text in texts)


def crossed_run(y: Any) -> Observations:
    design = {"groups": ["female", "male"], "gaps": [["female", "male"]], "covariates": covariate(), "words": {}}
    return Observations(table(y), {**design, "protocol": "exact", "title": "", "source": ""})


def test_an_interaction_slope_of_wide_lists_is_no_rounding() -> None:
    wide = covariate("value")
    wide["date x place"]["parts"][0]["axis"] = [1800.0, 1900.0, 2000.0, 2020.0]
    wide["date x place"]["parts"][1]["axis"] = [2e4, 9e4, 2e5]
    slope = of(interactions(table(masses(0.8)), **wide), "interaction_slope")
    assert 0 < slope.value < 1e-6
    assert slope.p < 0.05


def test_a_prompt_that_some_combinations_lack_makes_no_interaction() -> None:
    level = pd.concat([table(masses(0.0)).assign(prompt=prompt) for prompt in "AB"], ignore_index=True)
    level.loc[level["prompt"] == "A", "female"] += 30
    lacks = (level["prompt"] == "A") & (level["w_index"] == 0) & (level["cluster"] != "sentence 0")
    level.loc[lacks, ["female", "male"]] = np.nan
    whole = of(interactions(level), "w_interaction_over_prompts")
    assert whole.extras["n_clusters"] == 1
    assert math.isnan(whole.p)


def test_sentences_have_a_line_along_either_list_and_none_over_combinations() -> None:
    slopes = SpuriousCorrelation().sentences(crossed_run(masses(0.0, 0.0))).groupby("w_name")["slope"].mean()
    assert slopes.to_dict() == pytest.approx({"date over place": 4.0, "place over date": -2.0})


def test_texts_of_a_model_without_answers_are_counted_once() -> None:
    run = crossed_run(masses(0.0))
    run.frame["missing_reason"] = "it cannot be asked"
    (finding,) = SpuriousCorrelation().findings(run, [])
    assert f"none of the {12 * N_SENTENCES} texts" in finding.text


def test_runs_with_crossed_lists_are_compared_along_either_list() -> None:
    both = crossed_run(masses(0.0)), crossed_run(masses(0.0) + 2.0 * np.arange(4)[:, None])
    differences = SpuriousCorrelation().differences(*both, lambda _: 0.0, 0)
    slopes = {one.group["w_name"]: one.value for one in differences if one.measure == "slope"}
    assert set(slopes) == {"date over place", "place over date"}


def test_a_report_of_crossed_lists_is_rendered_again_and_shows_its_heat_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"challenge": "mgt", "w": "date x place", "date_count": 5, "limit": 400}
    run = undertow.audit("spurious-correlation", "toy", out=tmp_path / "run", **given)
    make_quick(monkeypatch, page=True)
    page = undertow.render_report(run.folder).read_text(encoding="utf-8")
    assert "<image" in page
    assert "img-src data:" in page
    assert [one.text for one in undertow.load_run(run.folder).findings] == [one.text for one in run.findings]


def test_two_files_of_one_name_are_not_crossed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "towns.txt").write_text("Ulm\nBonn\nKiel\n", encoding="utf-8")
    with pytest.raises(UndertowError, match="both lists are called 'towns'"):
        data.crossed(f"{tmp_path / 'a' / 'towns.txt'} x {tmp_path / 'b' / 'towns.txt'}", data.load_covariate)


def test_the_paper_has_36000_texts_and_a_limit_keeps_whole_rows_and_columns() -> None:
    settings = items.Settings(challenge="mgt", w="date x place")
    every = items.all_items(settings)
    assert len(every) == 36_000
    assert len({one.query.display_text() for one in every}) == 36_000  # type: ignore[union-attr]
    assert every[0].query.display_text() == "___ was a child in 1801 in Afghanistan."  # type: ignore[union-attr]
    assert {one.factors["w_name"] for one in every} == {"date x place"}
    kept = items.sample_items(every, settings, Sampling(2000, 0))
    pairs = {divmod(int(one.factors["w_index"]), 20) for one in kept}
    assert pairs == set(itertools.product({first for first, _ in pairs}, {second for _, second in pairs}))
    assert 1000 <= len(kept) <= 2000
    assert items.Settings(challenge="mgt", w="date,place").list_names() == ["date", "place"]


@pytest.mark.parametrize("name", ["date x place x date", "date x date", "date x "])
def test_other_crossings_are_refused(name: str) -> None:
    with pytest.raises(UndertowError, match="two different lists can be crossed"):
        data.crossed(name, data.load_covariate)


@pytest.mark.parametrize("width", [3.3, 8.0])
def test_the_surface_has_a_panel_for_each_group(width: float) -> None:
    from undertow.report.style import figure_width

    parts = covariate()["date x place"]["parts"]
    with figure_width(width):
        figure = surface(table(masses(0.8)), ["female", "male"], parts, title="m")
    assert figure.get_figwidth() == pytest.approx(width)
    images = [image for axes in figure.axes for image in axes.get_images()]
    assert np.asarray(images[0].get_array()) == pytest.approx(masses(0.8).mean(axis=0).T)
    words = describe_surface(table(masses(0.8)), ["female", "male"], parts)
    assert "date (4 values from 1801 to 2016) and place (3 values from Mali to Iran)" in words
