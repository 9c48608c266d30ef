from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow import audits
from undertow.audits.base import Observations
from undertow.metrics.drift.covariate_association import measure_association
from undertow.stats.regression.trend import cluster_summary, covariate_effect, trend
from undertow.types import Floats, Result

RUN = {"model": "m", "challenge": "c", "prompt": "A", "w_name": "date"}
GROUPS = ("she", "he")
Masses = Mapping[str, tuple[Floats, Floats]]
"""Group: least and greatest mass, each [cluster, w]."""


def table(masses: Masses, index: Sequence[int] = (), **run: str) -> pd.DataFrame:
    """A row per cluster and W value, a group's mass the middle of its bounds; NaN is a missing row."""
    n_clusters, n_w = next(iter(masses.values()))[0].shape
    cluster, at = np.divmod(np.arange(n_clusters * n_w), n_w)
    columns: dict[str, Any] = {name: [level] * len(at) for name, level in (RUN | run).items()}
    columns |= {"w": [f"w{w}" for w in at], "w_index": np.array(index or range(n_w))[at]}
    columns["cluster"] = [f"k{k}" for k in cluster]
    for group, (low, high) in masses.items():
        columns |= {group: ((low + high) / 2).ravel(), f"{group}.low": low.ravel(), f"{group}.high": high.ravel()}
    frame = pd.DataFrame(columns)
    frame["other_words"] = 100 - frame[list(masses)].sum(axis=1, skipna=False)
    frame["missing_reason"] = np.where(frame[next(iter(masses))].isna(), "lost", "")
    return frame


def whole(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table without bounds."""
    return frame.drop(columns=[name for name in frame.columns if str(name).endswith((".low", ".high"))])


def audit(frame: pd.DataFrame, groups: Sequence[str] = GROUPS) -> list[Result]:
    gaps = [(groups[0], other) for other in groups[1:]]
    return measure_association(frame, groups, gaps, seed=3)


def by_name(results: Sequence[Result]) -> dict[tuple[str, str], Result]:
    return {(result.measure, result.group["pronoun"]): result for result in results}


def noisy(seed: int = 0, n_clusters: int = 8, n_w: int = 9, width: float = 4.0, slope: float = 2.0) -> Masses:
    """Masses that rise with W (she), or do not (he), each seen but for up to `width` points."""
    rng = np.random.default_rng(seed)
    shape = n_clusters, n_w
    she = 20 + slope * np.arange(n_w) + rng.normal(0, 2, (n_clusters, 1)) + rng.normal(0, 1, shape)
    he = 40 + rng.normal(0, 1, shape)
    return {name: (low, low + rng.uniform(0, width, shape)) for name, low in (("she", she), ("he", he))}


def test_bounds_without_width_change_nothing_at_all() -> None:
    frame = table(noisy(width=0.0))
    frame.loc[3, [*GROUPS, "other_words", "she.low", "she.high", "he.low", "he.high"]] = math.nan
    frame.loc[3, "missing_reason"] = "lost"
    assert (frame["she.low"].dropna() == frame["she"].dropna()).all()
    assert repr(audit(frame)) == repr(audit(whole(frame)))


def test_a_group_that_was_shown_whole_has_its_own_numbers_beside_one_that_was_not() -> None:
    masses = dict(noisy())
    masses["he"] = (masses["he"][0], masses["he"][0])
    frame = table(masses)
    found, bare = by_name(audit(frame)), by_name(audit(whole(frame)))
    for measure in ("mean_mass", "slope"):
        one, other = found[measure, "he"], bare[measure, "he"]
        assert (one.value, one.low, one.high, one.p) == (other.value, other.low, other.high, other.p)
        assert one.extras.get("bound_low", one.value) == pytest.approx(one.value)
        assert one.extras.get("bound_high", one.value) == pytest.approx(one.value)


def extremes(low: Floats, high: Floats, x: Floats | None = None) -> tuple[float, float]:
    """The least and the greatest slope on x (else mean) of the W means, each mass at one of its ends [cluster, w].

    By least squares of the masses on sentences and W, whose sentences' levels count equally; a sentence alone with a W value has its own.
    """
    cluster, w = np.nonzero(~np.isnan(low))
    places, at = np.unique(w, return_inverse=True)
    sentences, of = np.unique(cluster, return_inverse=True)
    design = np.column_stack([np.eye(len(places))[at], np.eye(len(sentences))[of]])
    to_means, sizes = (np.eye(len(places))[at] / np.bincount(at)).T, np.bincount(of)
    if np.linalg.matrix_rank(design) == len(places) + len(sentences) - 1 and sizes.min() < len(places):
        inverse = np.linalg.pinv(design)
        to_means = inverse[: len(places)] + inverse[len(places) :].mean(axis=0)
    centred = np.ones(len(places)) if x is None else x[places] - x[places].mean()
    weights = centred / (len(places) if x is None else (centred**2).sum()) @ to_means
    ends = low[cluster, w], high[cluster, w]
    return tuple(float(np.where(weights >= 0, *pair) @ weights) for pair in (ends, ends[::-1]))  # type: ignore[return-value]


@st.composite
def small_designs(draw: st.DrawFn) -> tuple[Masses, list[int]]:
    """Up to three clusters, up to five W values at uneven places, some rows missing."""
    n_clusters, n_w = draw(st.integers(2, 3)), draw(st.integers(3, 5))
    index = sorted(draw(st.sets(st.integers(-10, 10), min_size=n_w, max_size=n_w)))
    numbers = st.lists(st.integers(0, 40), min_size=n_clusters * n_w, max_size=n_clusters * n_w)
    missing = np.array(
        draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=n_clusters * n_w, max_size=n_clusters * n_w))
    )
    missing = missing.reshape(n_clusters, n_w).astype(bool)
    masses = {}
    for group in GROUPS:
        low, width = (np.array(draw(numbers), dtype=float).reshape(n_clusters, n_w) for _ in range(2))
        low[missing] = math.nan
        masses[group] = (low, low + width)
    return masses, index  # fmt: skip


@settings(max_examples=15)
@given(small_designs())
def test_bounds_are_those_of_a_search_over_all_corners(design: tuple[Masses, list[int]]) -> None:
    masses, index = design
    frame = table(masses, index)
    found = by_name(measure_association(frame, GROUPS, [("she", "he"), ("he", "she")], seed=0))
    x, n_w = np.array(index, dtype=float), int((~np.isnan(masses["she"][0])).any(axis=0).sum())
    shown_whole = all(np.array_equal(low, high, equal_nan=True) for low, high in masses.values())
    for group, ends in masses.items():
        if n_w:
            check(found["mean_mass", group], extremes(*ends), shown_whole=shown_whole)
        if n_w >= 3:
            check(found["slope", group], extremes(*ends, x), shown_whole=shown_whole)
    for a, b in (GROUPS, GROUPS[::-1]):
        if n_w >= 3:
            (least, most), (other_least, other_most) = masses[a], masses[b]
            expected = extremes(least - other_most, most - other_least, x)
            check(found["slope_gap", f"{a}-{b}"], expected, shown_whole=shown_whole)
        else:
            assert math.isnan(found["slope_gap", f"{a}-{b}"].value)
            assert "bound_low" not in found["slope_gap", f"{a}-{b}"].extras


def check(result: Result, expected: tuple[float, float], *, shown_whole: bool) -> None:
    bounds = [result.extras.get(name, result.value) for name in ("bound_low", "bound_high")]
    assert bounds == pytest.approx(expected, abs=1e-9)
    assert ("bound_low" not in result.extras) == shown_whole
    assert bounds[0] - 1e-9 <= result.value <= bounds[1] + 1e-9


@pytest.mark.parametrize("seed", range(2))
def test_an_interval_covers_both_ends_and_the_interval_of_the_middle(seed: int) -> None:
    frame = table(noisy(seed))
    bare = by_name(audit(whole(frame)))
    bounded = {key: result for key, result in by_name(audit(frame)).items() if "bound_low" in result.extras}
    assert {measure for measure, _ in bounded} == {"mean_mass", "slope", "slope_gap", "slope_log_odds"}
    assert len(bounded) == 7
    for key, result in bounded.items():
        other = bare[key]
        assert result.low <= result.extras["bound_low"] < result.value < result.extras["bound_high"] <= result.high
        assert result.low <= other.low
        assert other.high <= result.high
        for kind in ("sentences", "values", "corrected"):
            if f"{kind}_low" in result.extras:
                assert result.extras[f"{kind}_low"] < result.extras["bound_low"]
                assert result.extras["bound_high"] < result.extras[f"{kind}_high"]
        assert math.isnan(other.p) or result.p >= other.p
        assert math.isnan(other.p) or result.extras["values_p"] >= other.extras["values_p"]
        assert "most probable tokens" in result.note


def test_an_interval_is_that_of_the_least_and_of_the_greatest() -> None:
    """By hand for a slope: the masses before the middle at one end, those after it at the other."""
    masses = noisy()
    low, high = masses["she"]
    result = by_name(audit(table(masses)))["slope", "she"]
    x = np.arange(9)
    least, greatest = np.where(x < 4, high, low), np.where(x < 4, low, high)
    ends = [trend(x, cluster_summary(x, y[None], np.ones((1, 8, 9)))) for y in (least, greatest)]
    assert (result.extras["bound_low"], result.extras["bound_high"]) == pytest.approx(
        tuple(np.polyfit(x, y.mean(axis=0), 1)[0] for y in (least, greatest))
    )
    assert (result.low, result.high) == pytest.approx((ends[0].low[0], ends[1].high[0]))
    assert result.p == pytest.approx(max(end.p[0] for end in ends))


def test_where_clusters_do_not_differ_there_are_bounds_and_no_interval() -> None:
    low = np.tile(10.0 + 10 * np.arange(8), (6, 1))
    found = by_name(audit(table({"she": (low, low + 2), "he": (low * 0, low * 0 + 1)})))
    for key in (("mean_mass", "she"), ("slope", "she"), ("slope", "he"), ("slope_gap", "she-he")):
        assert found[key].extras["bound_low"] < found[key].extras["bound_high"]
        assert math.isnan(found[key].p)


def test_masses_that_may_be_none_end_at_zero() -> None:
    """No sentence shows anything of a group: it may be nothing, or all that was hidden."""
    hidden = np.random.default_rng(0).uniform(5, 15, (8, 9))
    found = by_name(audit(table({"she": (hidden * 0, hidden), "he": (hidden * 0 + 20, hidden * 0 + 20)})))
    mean = found["mean_mass", "she"]
    assert (mean.extras["bound_low"], mean.low) == (0, 0)
    assert mean.extras["bound_high"] < mean.high < 100
    assert found["slope", "she"].p == 1


def test_an_effect_of_w_is_tested_where_bounds_leave_the_least_of_it() -> None:
    masses = noisy(width=1.0)
    low, high = masses["she"]
    frame = table(masses)
    result, bare = by_name(audit(frame))["w_effect", "she"], by_name(audit(whole(frame)))["w_effect", "she"]
    assert result.value == bare.value
    assert np.isnan([result.low, result.high]).all(), "nobody knows how large it may be"
    # Every mean goes as far towards one number as it may.
    least, greatest = low.mean(axis=0), high.mean(axis=0)
    towards = np.clip((least.max() + greatest.min()) / 2, least, greatest)
    moved = low + (towards - least) / (greatest - least) * (high - low)
    assert result.p == pytest.approx(covariate_effect(moved, np.ones_like(moved)).p)
    # Where one number lies within all bounds, nothing need depend on W.
    open_to_all = {name: (low, low + 20.0) for name, (low, _) in noisy(width=0.0).items()}
    assert by_name(audit(table(open_to_all)))["w_effect", "she"].p == 1


def test_a_missing_reply_leaves_effects_untested_and_log_odds_without_bounds() -> None:
    """Two prompts, bounds of 0.02 and effects of 11 points: one missing reply of 144 decides nothing."""
    low = np.random.default_rng(0).normal(0, 1, (9, 8)) + 20 + 11 * np.resize([1, -1], 8)
    prompts = [
        table({"she": (low + level, low + level + 0.02)}, prompt=prompt) for level, prompt in ((0, "A"), (9, "B"))
    ]
    frame = pd.concat(prompts, ignore_index=True)
    lost = frame.copy()
    lost.loc[5, "missing_reason"] = "lost"
    whole_, missing = ({one.measure: one for one in audit(rows, ("she",))} for rows in (frame, lost))
    name = "w_effect_over_prompts"
    assert whole_[name].p < 0.05
    assert missing[name].value == pytest.approx(whole_[name].value, rel=0.05)
    assert math.isnan(missing[name].p)
    assert missing[name].note.endswith("leaves this effect untested.")
    odds = missing["slope_log_odds_over_prompts"]
    assert math.isnan(odds.low + odds.p)
    assert "bound_low" not in odds.extras
    assert "bound_low" in whole_["slope_log_odds_over_prompts"].extras
    assert "bound_low" in missing["slope_over_prompts"].extras


def test_values_and_correlations_are_those_of_the_middle() -> None:
    frame = table(noisy())
    found, bare = by_name(audit(frame)), by_name(audit(whole(frame)))
    assert found.keys() == bare.keys()
    for key, result in found.items():
        other = bare[key]
        kept = [(one.value, one.n, one.n_missing, one.unit, one.null_value, one.group) for one in (result, other)]
        assert repr(kept[0]) == repr(kept[1])
        own = ("ols_low", "ols_high", "intercept", "n_w", "n_clusters", "first", "last", "autocorrelation", "values_sd")
        assert [result.extras.get(name) for name in own] == [other.extras.get(name) for name in own]
        if key[0] == "pearson_r":
            assert repr(result) == repr(other)


def test_models_that_show_everything_are_not_touched_by_one_that_does_not() -> None:
    shown, hidden = whole(table(noisy(1), model="shown")), table(noisy(2), model="hidden")
    both = pd.concat([shown, hidden], ignore_index=True)
    assert both["she.low"].isna().sum() == len(shown)
    together = audit(both)
    for frame, model in ((shown, "shown"), (hidden, "hidden")):
        alone = audit(frame)
        of_model = [result for result in together if result.group["model"] == model]
        assert repr([uncorrected(one) for one in of_model]) == repr([uncorrected(one) for one in alone])
    assert not any("bound_low" in result.extras for result in together if result.group["model"] == "shown")


def uncorrected(result: Result) -> Result:
    """All but q, and what is corrected like it, which depend on the other results of a table."""
    corrected = ("values_q", "corrected_low", "corrected_high")
    kept = {name: number for name, number in result.extras.items() if name not in corrected}
    return replace(result, q=math.nan, extras=kept)


def test_rows_shown_whole_and_rows_that_were_not_make_one_mean() -> None:
    """A server that shows everything of some answers: their ends are their masses."""
    masses = noisy()
    frame = table(masses)
    full = frame["cluster"] == "k0"
    frame.loc[full, [f"{group}{end}" for group in GROUPS for end in (".low", ".high")]] = math.nan
    found = by_name(audit(frame))
    for group in GROUPS:
        ends = [
            frame[f"{group}{end}"].fillna(frame[group]).groupby(frame["w_index"]).mean() for end in (".low", ".high")
        ]
        low, high = (end.to_numpy()[None] for end in ends)
        expected = extremes(low, high, np.arange(9.0))
        extras = found["slope", group].extras
        assert (extras["bound_low"], extras["bound_high"]) == pytest.approx(expected)  # fmt: skip


def findings(frame: pd.DataFrame) -> dict[str, bool]:
    """Each slope and gap of the finding: whether a drift is claimed."""
    evidence = Observations(frame, {"groups": list(GROUPS), "gaps": [list(GROUPS)], "words": {}})
    told = audits.load("spurious-correlation").findings(evidence, audit(frame))
    (finding,) = told
    slopes = [one for one in finding.results if one.measure in ("slope", "slope_gap")]
    assert finding.significant is any(one.q < 0.05 for one in slopes)
    return {"gap" if one.measure == "slope_gap" else one.group["pronoun"]: one.q < 0.05 for one in slopes}


def test_a_drift_is_claimed_where_no_hidden_mass_could_undo_it_and_there_alone() -> None:
    """The middle rises as before and its test is as sure; but the slope may be anything, falling too."""
    masses = {name: (low, low + 20.0) for name, (low, _) in noisy(width=0.0).items()}
    frame = table(masses)
    slope, bare = (by_name(audit(one))["slope", "she"] for one in (frame, whole(frame)))
    assert bare.q < 0.05 < slope.q
    assert slope.extras["bound_low"] < 0 < slope.extras["bound_high"]
    assert findings(whole(frame)) == {"she": True, "he": False, "gap": True}
    assert findings(frame) == {"she": False, "he": False, "gap": False}
    frame = table(noisy(width=1.0))
    assert findings(frame) == {"she": True, "he": False, "gap": True}


def test_one_cluster_has_bounds_and_no_interval() -> None:
    masses = {name: (low[:1], high[:1]) for name, (low, high) in noisy().items()}
    found = by_name(audit(table(masses)))
    for key in (("mean_mass", "she"), ("slope", "she"), ("slope_gap", "she-he")):
        assert found[key].extras["bound_low"] < found[key].value < found[key].extras["bound_high"]
        assert math.isnan(found[key].low)
        assert math.isnan(found[key].high)
        assert "1 sentence" in found[key].note
    assert not any(findings(table(masses)).values())


def test_missing_rows_have_no_bounds_whatever_their_columns_say() -> None:
    frame = table(noisy())
    frame.loc[2, "missing_reason"] = "lost"
    cleared = frame.copy()
    cleared.loc[2, [*GROUPS, "other_words", "she.low", "she.high", "he.low", "he.high"]] = math.nan
    assert repr(audit(frame)) == repr(audit(cleared))
