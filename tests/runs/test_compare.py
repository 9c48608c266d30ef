from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import undertow
from conftest import make_quick
from helpers.compared_runs import AUDIT, FIRST, SECOND, compare, difference, outside_audit, record, table, written
from helpers.figure_checks import words
from helpers.file_refusal import assert_refused
from undertow import audits
from undertow.audits.base import Observations
from undertow.cli.compare import compare as compare_command
from undertow.errors import UndertowError
from undertow.metrics.drift.covariate_association import measure_association
from undertow.metrics.drift.drift_differences import ALIKE, drift_differences
from undertow.runs.compare import differences
from undertow.runs.compare.compare_folders import JSON, PAGE, TABLE
from undertow.runs.compare.compare_folders import compare as compare_folders
from undertow.runs.compare.comparison_report import digits, drawings
from undertow.runs.compare.equivalence import (
    DIFFERS,
    EQUIVALENT,
    INCONCLUSIVE,
    VERDICTS,
    Margins,
    is_significant,
    verdict,
)
from undertow.runs.compare.resampling import by_key, point_results
from undertow.runs.folder.storage import Record, read_record
from undertow.runs.folder.whole_folder import UNFINISHED
from undertow.stats import point_estimates
from undertow.stats.intervals.cluster_errors import skewed_interval
from undertow.types import Result

ASKED: Mapping[str, dict[str, Any]] = {
    AUDIT: {"w": "date", "limit": 96},
    "task-specification": {"limit": 48},
    "bias-diagnosis": {"limit": 60},
    "bias-identification": {"limit": 60, "wordings": 2},
    "bias-extraction": {"limit": 90, "wordings": 1},
    "bias-rephrasing": {"limit": 60, "wordings": 1},
    "occupation-checklist": {"n_pairs": 6, "contexts": "without", "negated": False, "n_occupations": 6},
}
OF_DIFFERENCE = "w_effect_of_difference"
"""What has no sign."""
RunOf = Callable[[str], Record]


@pytest.fixture
def run_of(finished_run: Callable[..., Path]) -> RunOf:
    return lambda audit: read_record(finished_run(audit, "toy", **ASKED[audit]))


SIX = "abcdef"
LEVELS: dict[str, list[float]] = {name: [40.0 + at, 50, 60] for at, name in enumerate(SIX)}
HIGHER: dict[str, list[float]] = {
    name: [one + by for one in LEVELS[name]] for name, by in zip(SIX, (2, 4, 3, 1, 5, 3), strict=True)
}
"""Higher by 3 on average, with a variance of 2 between six clusters."""


def numbers(result: Result) -> list[float]:
    return [result.value, result.low, result.high, result.p]


def test_a_difference_by_hand() -> None:
    """Two of 64 flips of what lies beyond 0.05 are as far; 2.5706 and 2.0150 are t's quantiles of five degrees of freedom."""
    of = compare(record(table(LEVELS)), record(table(HIGHER, "two")))
    found = difference(of, "mean_mass")
    error = math.sqrt(2 / 6)
    assert numbers(found) == pytest.approx([3, 3 - 2.570582 * error, 3 + 2.570582 * error, 2 / 64])
    inner = [found.extras["inner_low"], found.extras["inner_high"]]
    assert inner == pytest.approx([3 - 2.015048 * error, 3 + 2.015048 * error])
    first = np.mean([one for values in LEVELS.values() for one in values])
    assert [found.extras[name] for name in ("baseline", "candidate", "n_clusters", "margin")] == pytest.approx(
        [first, first + 3, 6, 0.05]
    )
    assert (found.n, found.n_missing, found.null_value, found.unit) == (18, 0, 0.0, "percentage points")
    assert found.group == {"challenge": "set", "prompt": "", "w_name": "date", "pronoun": "female"}
    check_corrected(of.differences)


def check_corrected(differences: Sequence[Result]) -> None:
    """Each q is Benjamini and Hochberg's by scipy, over the slopes, over the effects of W, and over all others."""
    tested = [one for one in differences if math.isfinite(one.q)]
    kinds = [" per " in one.unit or one.measure.removesuffix("_over_prompts") for one in tested]
    kinds = [kind if kind in (True, OF_DIFFERENCE) else "" for kind in kinds]
    for kind in set(kinds):
        some = [one for one, of in zip(tested, kinds, strict=True) if of == kind]
        expected = stats.false_discovery_control([one.p for one in some], method="bh")
        assert [one.q for one in some] == pytest.approx(expected)


def drawn(n: int = 7, n_w: int = 9, seed: int = 0) -> list[Record]:
    """Two runs of n clusters at so many values, each cell drawn again."""
    rng = np.random.default_rng(seed)
    return [
        record(table({str(at): rng.uniform(20, 80, n_w).tolist() for at in range(n)}, name)) for name in ("one", "two")
    ]


def test_the_other_way_round_it_is_the_negative_and_rows_are_paired_wherever_they_stand() -> None:
    first, second = drawn()
    shuffled = second.observations.sample(frac=1, random_state=3).reset_index(drop=True)
    there, back = compare(first, second), compare(record(shuffled), first)
    assert (there.baseline, there.candidate) == (back.candidate, back.baseline) == ("one", "two")
    for one, other in zip(there.differences, back.differences, strict=True):
        signs = [one.value, one.low, one.high] if one.measure == OF_DIFFERENCE else [-one.value, -one.high, -one.low]
        assert [*signs, one.p, one.q] == pytest.approx(
            [other.value, other.low, other.high, other.p, other.q], nan_ok=True
        )
        assert verdict(one) == verdict(other)


@pytest.mark.parametrize(("by", "rounding"), [(0.0, 0.0), (4e-15, 0.0), (0.2, 1e-8)])
def test_a_difference_that_all_clusters_share_has_no_interval(by: float, rounding: float) -> None:
    """What goes to other words is read before the sentences differ, but for rounding: that is no promise for others."""
    noise = np.random.default_rng(0).normal(0, rounding, (2, 18))
    one, two = (
        record(frame.assign(other_words=10.0 + frame["w_index"] + more + noise[at]))
        for at, (frame, more) in enumerate(((table(LEVELS), 0.0), (table(HIGHER, "two"), by)))
    )
    found = difference(compare(one, two), "mean_mass", "other_words")
    assert found.value == (pytest.approx(by) if rounding else 0.0)
    assert np.isnan([found.low, found.high, found.p, found.q]).all()
    assert (verdict(found), is_significant(found)) == (INCONCLUSIVE, False)
    assert "All clusters have the same difference" in found.note


def test_below_six_clusters_nothing_is_claimed_and_the_note_says_why() -> None:
    for n in (1, 5):
        sides = [
            record(table({name: one[name] for name in SIX[:n]}, model))
            for one, model in ((LEVELS, "one"), (HIGHER, "two"))
        ]
        for one in compare(*sides).differences:
            assert np.isnan([one.low, one.high, one.p, one.q]).all()
            assert verdict(one) == INCONCLUSIVE
        found = difference(compare(*sides), "mean_mass")
        assert math.isfinite(found.value)
        assert "single cluster" in found.note if n == 1 else "at least 6" in found.note
        same = compare(sides[0], sides[0])
        assert same.identical
        assert {verdict(one) for one in same.differences} == {INCONCLUSIVE}


def test_what_is_missing_in_one_is_left_out_of_both() -> None:
    more = FIRST | {"c": [10.0, 20, 90]}
    lacking = SECOND | {"c": [10.0, math.nan, 90]}
    of = compare(record(table(more)), record(table(lacking, "two")))
    found = difference(of, "mean_mass")
    # Means over W of the rows that both have: the middle one of c is in neither, and counts at the level of c, 3 below the others.
    first, second = np.mean([30, 50, 70]), np.mean([30, 52, 74])
    assert [found.extras["baseline"], found.extras["candidate"]] == pytest.approx([first, second])
    assert (found.n, found.n_missing) == (8, 1)
    assert (of.n_items, of.n_answered) == (9, 8)
    assert any("1 item without an answer in one of the runs was excluded" in note for note in of.notes)


def test_a_number_that_one_of_them_cannot_have_says_why() -> None:
    flat = record(table({"a": [50.0, 50, 50], "b": [50.0, 50, 50]}))
    found = difference(compare(flat, record(table(SECOND, "two"))), "pearson_r")
    assert math.isnan(found.value)
    assert "one: The mean is the same at every W value" in found.note


def test_many_clusters_are_dealt_into_groups_by_the_seed() -> None:
    sides = drawn(20, 3, 2)
    compared = [compare(*sides, seed=seed) for seed in (0, 0, 1)]
    one, same, other = (difference(of, "mean_mass") for of in compared)
    assert any("20 clusters were assigned" in note for note in compared[0].notes)
    assert one.extras["n_clusters"] == 8
    assert numbers(one) == numbers(same)
    assert one.value == other.value
    assert one.low != other.low


def test_an_interval_of_a_difference_of_rates_stays_within_their_range() -> None:
    """That of t would end at 111 points."""
    nearly = {name: [60.0 if name == SIX[0] else 100.0] * 3 for name in SIX}
    of = compare(record(table(dict.fromkeys(SIX, [0.0] * 3))), record(table(nearly, "two")))
    found = difference(of, "mean_mass")
    assert found.value == pytest.approx(100 - 40 / 6)
    assert (found.high, found.extras["inner_high"]) == (100.0, 100.0)
    assert 0 < found.low < found.value


@pytest.mark.resamples
def test_each_of_thirty_clusters_is_left_out() -> None:
    """The jackknife by hand: a difference of means without each cluster, and t with 29 degrees of freedom."""
    sides = drawn(30, 3, 3)
    found = difference(compare(*sides), "mean_mass")
    first, second = (side.observations.groupby("cluster")["female"].mean() for side in sides)
    without = [(second - first).drop(cluster).mean() for cluster in first.index]
    error = math.sqrt(29 / 30 * np.square(np.array(without) - np.mean(without)).sum())
    value, skewness = (second - first).mean(), stats.skew(second - first, bias=False) / math.sqrt(30)
    assert found.extras["n_clusters"] == 30
    ends = skewed_interval(value, error, stats.t.ppf(0.975, 29), skewness)
    assert [found.value, found.low, found.high] == pytest.approx([value, *ends])


def test_several_models_are_matched_by_name() -> None:
    def run(shift: float, *names: str) -> Record:
        frames = [
            table({"a": [40, 50, 60 + at + shift], "b": [41, 50, 60 + 2 * shift]}, name)
            for at, name in enumerate(names)
        ]
        return record(pd.concat(frames, ignore_index=True))

    of = compare(run(0, "x", "y", "z"), run(3, "y", "x", "v"))
    slopes = {name: difference(of, "slope", model=name).value for name in "xyzv"}
    # x is the first of one run and the second of the other: its last means are 60 and those of 64 and 66.
    assert slopes["x"] == pytest.approx(((64 + 66) / 2 - (60 + 60) / 2) / 2)
    assert slopes["y"] == pytest.approx(((63 + 66) / 2 - (61 + 60) / 2) / 2)
    assert np.isnan([slopes["z"], slopes["v"]]).all()
    assert any("excluded, because the other run lacks it" in note for note in of.notes)
    assert_refused(("no common models (one; x, y)",), compare, record(table(FIRST)), run(0, "x", "y"))


REFUSED: Mapping[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], dict[str, Any], str]] = {
    "audit": (lambda f: f, {"audit": "task-specification"}, "task-specification"),
    "protocol": (lambda f: f, {"protocol": "paper"}, "paper"),
    "groups": (lambda f: f, {"design": {"gaps": []}}, "gaps"),
    "scoring_method": (lambda f: f, {"design": {"scoring_method": "mask"}}, "shares"),
    "options": (lambda f: f, {"challenge_sha256": "b", "settings": {"challenge": "c"}}, "challenge"),
    "file": (lambda f: f, {"challenge_sha256": "b"}, "changed"),
    "seed": (lambda f: f.assign(n_shots=5), {"challenge_sha256": "b", "seed": 4}, "seed 0"),
    "texts": (lambda f: f.assign(text=f["text"] + "!"), {"challenge_sha256": "b", "limit": 3}, "text is 'In 1900"),
    "items": (lambda f: f.assign(item="x" + f["item"]), {"challenge_sha256": "b", "limit": 3}, "no common item"),
    "answers": (lambda f: f.assign(missing_reason="gone"), {}, "answer"),
    "twice": (lambda f: f.assign(item="x"), {}, "item 'x'"),
    "column": (lambda f: f.drop(columns="w_index"), {}, "observations of two have no column 'w_index'"),
    "no rows": (lambda f: f.iloc[:0], {}, "two has no items"),
}


@pytest.mark.parametrize(("change", "changed", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_comparable_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], changed: dict[str, Any], said: str
) -> None:
    second = record(table(SECOND, "two"), **changed)
    second = replace(second, observations=change(second.observations))
    assert_refused(("two", said), compare, record(table(FIRST)), second)


def test_a_run_without_a_scoring_method_has_an_unknown_scale() -> None:
    said, silent = record(table(FIRST)), record(table(SECOND, "two"))
    design = {name: fact for name, fact in silent.manifest["design"].items() if name != "scoring_method"}
    silent = replace(silent, manifest={**silent.manifest, "design": design})
    with pytest.raises(UndertowError, match=r"two.* on an unknown scale .* run the older one again"):
        compare(said, silent)
    assert_refused(("recorded",), compare, said, replace(silent, manifest={**silent.manifest, "recorded": "own.csv"}))
    assert compare(silent, silent).identical


@pytest.mark.parametrize("audit", ASKED)
def test_point_estimates_are_the_values_of_every_audit(run_of: RunOf, audit: str) -> None:
    run = run_of(audit)
    evidence = Observations(run.observations, run.manifest["design"])
    plain = {
        key: one
        for key, one in by_key(run.results).items()
        # Effects of wordings by dimension are many, and told with their tests only.
        if one.group.get("model") != "" and not (one.measure == "slot_effect" and one.group["dimension"] != "all")
    }
    with point_estimates():
        quick = by_key(point_results(audits.load(audit), evidence, 0))
    assert list(quick) == list(plain)
    for key, one in quick.items():
        assert (one.value, one.n, one.n_missing) == pytest.approx(
            (plain[key].value, plain[key].n, plain[key].n_missing), rel=0, abs=0, nan_ok=True
        ), key
        assert np.isnan([one.p, one.q]).all(), key
        assert math.isnan(one.low) or one.low == one.value, key


@pytest.mark.parametrize("audit", ASKED)
def test_every_audit_differs_from_itself_in_nothing(run_of: RunOf, audit: str) -> None:
    run = run_of(audit)
    of = compare(run, run)
    assert of.identical
    finite = [one for one in of.differences if math.isfinite(one.value)]
    assert finite
    assert {(one.value, one.low, one.high) for one in finite} == {(0.0, 0.0, 0.0)}
    assert np.isnan([one.p for one in finite]).all()
    assert {verdict(one) for one in finite} == {EQUIVALENT}
    assert all(one.note for one in of.differences if math.isnan(one.value))


def test_the_checklist_is_clustered_by_pairs_and_by_occupations(run_of: RunOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """One occupation answered otherwise: the pairs agree on it, so that they alone would take it for certain."""
    monkeypatch.setattr(differences, "MAX_CROSSED", 12)
    run = run_of("occupation-checklist")
    frame = run.observations.copy()
    one = frame["occupation"] == frame["occupation"].iloc[0]
    frame.loc[one, "female"], frame.loc[one, "male"] = 90.0, 10.0
    found = next(
        one
        for one in compare(run, replace(run, observations=frame)).differences
        if one.measure == "choice_gap" and one.group == {"occupation": "all", "context": "without attributes"}
    )
    assert found.value > 0
    assert found.low < 0 < found.high


def test_recorded_tables_are_compared_by_what_was_asked(tmp_path: Path) -> None:
    """Their models stand in the names of their items, which are therefore not looked at."""
    rows = "".join(
        f"{{model}},date,{at},{1900 + at},s{s},{30 + 5 * at + s},{60 - 5 * at}\n" for at in range(4) for s in range(6)
    )
    for name, more in (("one", 0), ("two", 2)):
        text = "model,w_name,w_index,w,text,female,male\n" + rows.format(model=name)
        if more:
            text = text.replace(",30,", ",37,").replace(",46,", ",49,")
        (tmp_path / f"{name}.csv").write_text(text)
        undertow.score(tmp_path / f"{name}.csv", audit=AUDIT, out=tmp_path / name)
    of = compare_folders(tmp_path / "one", tmp_path / "two").comparisons[0]
    assert (of.baseline, of.candidate, of.n_items) == ("one", "two", 24)
    found = difference(of, "mean_mass")
    assert found.value == pytest.approx((7 + 3) / 24)
    assert found.low < found.value < found.high


def outside(scores: Sequence[float], model: str = "m") -> Record:
    """A run of an audit from outside, with a score for each of its clusters."""
    rows = [{"item": str(at), "model": model, "cluster": f"c{at}", "score": one} for at, one in enumerate(scores)]
    return record(pd.DataFrame(rows), audit="outside", design={"groups": []})


@pytest.fixture
def load_outside(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes every audit one that knows nothing of point estimates: a mean score, for which a cluster may be needed."""

    def load(needed: str) -> None:
        def measure(observations: Observations, seed: int) -> list[Result]:
            scores = observations.frame["score"]
            if needed == "threshold":
                return [Result("share", {}, float((scores >= 0.5).mean()), n=len(scores))]
            if not set(observations.frame["cluster"]) >= set(needed.split()):
                raise UndertowError("there is too little to be measured; ask more")
            return [Result("mean", {}, float(scores.mean()), n=len(scores))]

        monkeypatch.setattr(audits, "load", lambda name: outside_audit(measure))

    return load


def test_what_cannot_be_measured_without_a_cluster_has_no_interval(load_outside: Callable[[str], None]) -> None:
    load_outside("c3")
    (found,) = compare(outside([1.0, 2, 3, 4, 5, 6]), outside([2.0, 2, 4, 4, 5, 6])).differences
    assert found.value == pytest.approx(1 / 3)
    assert math.isnan(found.low)
    assert "Without some of its clusters" in found.note


def test_answers_that_are_lists_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a difference would be told with an interval from 0 to 0."""

    def measure(observations: Observations, seed: int) -> list[Result]:
        return [Result("mean", {}, float(np.mean([sum(one) for one in observations.frame["picks"]])), n=1)]

    def run(picks: Sequence[Sequence[float]]) -> Record:
        frame = pd.DataFrame({"item": [str(at) for at in range(len(picks))], "picks": list(picks), "model": "m"})
        return record(frame, audit="outside", design={"groups": []})

    monkeypatch.setattr(audits, "load", lambda name: outside_audit(measure))
    first = [[1.0, 2.0], [3.0], [0.5, 1.0]] * 2
    of = compare(run(first), run([[2.0, 2.0], [5.0], [0.5, 1.5]] * 2))
    assert not of.identical
    (found,) = of.differences
    assert found.value == pytest.approx(3.5 / 3)
    assert found.low < found.value < found.high
    assert compare(run(first), run([[one * (1 + 1e-12) for one in row] for row in first])).identical
    assert not compare(run(first), run([row[:1] for row in first])).identical


def leaning(by: float, spread: float, model: str = "two", n: int = 12) -> Record:
    """The run of a model whose share of female words lies higher by `by` on average, not by the same in each cluster."""
    own = np.random.default_rng(8).normal(0, 1, n)
    own = by + spread * (own - own.mean()) / own.std(ddof=1)
    values = {str(at): np.random.default_rng(at).uniform(30, 60, 4) for at in range(n)}
    frame = table({name: (one + own[int(name)]).tolist() for name, one in values.items()}, model)
    return record(frame, run_key=model, design={"groups": ["female"], "gaps": []})


@pytest.mark.parametrize(
    ("by", "spread", "margin", "expected"),
    [
        # With 12 clusters the 95% interval is by +- 2.201 spread / sqrt(12), the 90% interval +- 1.796 spread / sqrt(12).
        (1.0, 1.0, 0.3, DIFFERS),  # 0.365 to 1.635
        (1.0, 1.0, 0.4, INCONCLUSIVE),
        (1.0, 1.0, 1.5, INCONCLUSIVE),  # 90%: 0.482 to 1.518
        (1.0, 1.0, 1.55, EQUIVALENT),
        (-1.0, 1.0, 0.3, DIFFERS),
        (0.0, 0.05, 0.0, INCONCLUSIVE),
        (0.0, 0.05, None, EQUIVALENT),  # 90%: 0.026 to either side
        (0.04, 0.05, None, INCONCLUSIVE),
        (0.09, 0.05, None, DIFFERS),  # 0.058 to 0.122
    ],
)
def test_verdicts_by_hand(
    by: float, spread: float, margin: float | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_quick(monkeypatch, groups=12)  # each cluster is a group of its own
    of = compare(leaning(0, 0, "one"), leaning(by, spread), margin=None if margin is None else {"mean_mass": margin})
    found = difference(of, "mean_mass")
    assert found.value == pytest.approx(by, abs=1e-12)
    # The correction is for tests of other measures too; this one's own q is what is asked here.
    assert (found.p < 0.05) == (expected == DIFFERS)
    assert verdict(replace(found, q=found.p)) == expected
    assert verdict(replace(found, q=0.06)) != DIFFERS
    assert found.extras["margin"] == (0.05 if margin is None else margin)


def test_margins_are_of_their_units() -> None:
    sides = drawn(8, 11)
    margins = {one.measure: one.extras["margin"] for one in compare(*sides).differences}
    # Eleven values are ten steps: 0.1 points and odds times 1.01 over the list.
    assert margins == {
        "mean_mass": 0.05, "slope": 0.01, "slope_gap": 0.01, "slope_log_odds": 0.001, "pearson_r": 0.0, OF_DIFFERENCE: 0.05,
    }  # fmt: skip
    given = {one.measure: one.extras["margin"] for one in compare(*sides, margin={"": 2.0, "slope": 0.5}).differences}
    assert given == dict.fromkeys(margins, 2.0) | {"slope": 0.5}
    assert {one.extras["margin"] for one in compare(*sides, margin=0.25).differences} == {0.25}
    for wrong in (-1.0, math.nan, {"slope": math.inf}):
        assert_refused(("0 or more",), compare, *sides, margin=wrong)
    with pytest.raises(UndertowError, match=r"'slop'.*'slope'"):
        compare(*sides, margin={"slop": 1.0})
    for texts in (["x"], ["slope=x"], ["=1"], ["1", "2"], ["slope=1,slope=2"], ["slope=-1"], [""]):
        assert_refused(("margin",), Margins.from_options, texts)


def test_slopes_are_judged_by_the_differences_of_the_answers() -> None:
    """The slope of the differences is the difference of the slopes, and so are interval and p."""
    sides = drawn(10, 12, 4)
    of = compare(*sides, margin=0)
    frame = sides[0].observations.copy()
    for name in ("female", "male"):
        frame[name] = sides[1].observations[name] - sides[0].observations[name]
    alone = measure_association(frame, ["female", "male"], [("female", "male")], seed=0)
    for measure, pronoun in (("slope", "female"), ("slope", "male"), ("slope_gap", "female-male")):
        found = difference(of, measure, pronoun)
        (expected,) = [one for one in alone if one.measure == measure and one.group["pronoun"] == pronoun]
        assert numbers(found) == pytest.approx(numbers(expected))
        assert found.value == pytest.approx(found.extras["candidate"] - found.extras["baseline"])
        assert found.extras["autocorrelation"] == pytest.approx(expected.extras["autocorrelation"])
    effect = difference(of, OF_DIFFERENCE)
    (expected,) = [one for one in alone if one.measure == "w_effect" and one.group["pronoun"] == "female"]
    assert numbers(effect) == pytest.approx(numbers(expected))
    assert not any(one.measure == "w_effect" for one in of.differences)
    odds = difference(of, "slope_log_odds")
    assert odds.value == pytest.approx(odds.extras["candidate"] - odds.extras["baseline"])
    assert odds.low < odds.value < odds.high
    r = difference(of, "pearson_r")
    assert np.isnan([r.low, r.p]).all()
    assert verdict(r) == INCONCLUSIVE


def test_effects_and_slopes_beyond_a_margin_have_the_p_of_what_exceeds_it() -> None:
    """The p of an effect agrees with its intervals, that of a slope is that of a candidate whose drift is less by the margin."""
    rng = np.random.default_rng(3)
    first, second = (
        table({str(at): rng.normal(40, 1, 12).tolist() for at in range(10)}, name) for name in ("one", "two")
    )
    for side in (first, second):
        side["w_value"] *= 2
    second["female"] += 0.15 * second["w_value"]

    def found(margin: float, candidate: pd.DataFrame, baseline: pd.DataFrame = first) -> dict[str, Result]:
        design = {"groups": ["female"], "gaps": []}
        results = drift_differences((baseline, candidate), design, margin=lambda _: margin, seed=0)
        return {one.measure: one for one in results}

    plain = found(0.0, second)
    effect, slope = plain[OF_DIFFERENCE], plain["slope"]
    each = np.polyfit(2 * np.arange(12), (second["female"] - first["female"]).to_numpy().reshape(10, 12).T, 1)[0]
    skewness = stats.skew(each, bias=False) / math.sqrt(10)
    ends = skewed_interval(each.mean(), stats.sem(each), stats.t.ppf(0.975, 9), skewness)
    found_ends = [slope.value, slope.extras["sentences_low"], slope.extras["sentences_high"]]
    assert found_ends == pytest.approx([each.mean(), *ends])
    assert [slope.extras[name] for name in ("n_clusters", "n_w", "w_span")] == [10, 12, 22]
    for margin, p in ((effect.low, 0.05), (effect.extras["inner_low"], 0.1)):
        assert found(margin, second)[OF_DIFFERENCE].p == pytest.approx(p), (
            "an end of an interval is where p is 1 - level"
        )
    assert found(1.01 * effect.value, second)[OF_DIFFERENCE].p == found(0.3, second)["slope"].p == 1.0
    less = second.assign(female=second["female"] - 0.1 * second["w_value"])
    assert found(0.1, second)["slope"].p == pytest.approx(found(0.0, less)["slope"].p)
    barely = found(0.01, less)[OF_DIFFERENCE]
    assert (barely.low, barely.p > 0.05, barely.extras["inner_low"] > 0) == (0.0, True, True)
    missing = second.assign(missing_reason=["no answer came"] + [""] * 119)
    assert [(one.n, one.n_missing) for one in found(0.0, missing).values()] == [(119, 1)] * len(plain)
    wide = pd.DataFrame({"female.low": 39.0, "female.high": second["female"]})
    hidden = found(0.0, second.join(wide))[OF_DIFFERENCE]
    assert np.isnan([hidden.low, hidden.high, hidden.p]).all()
    same = found(0.0, first)
    assert {(same[name].value, same[name].note) for name in (OF_DIFFERENCE, "slope")} == {(0.0, ALIKE)}
    twice = first["w_index"] % 6 == first["cluster"].astype(int) % 6  # each sentence at two values
    few = found(0.0, second[twice], first[twice])
    assert few[OF_DIFFERENCE].note == ""
    assert "No sentence has 3 W values" in few["slope"].note


def test_of_several_prompts_the_mean_decides() -> None:
    def run(model: str, by: float) -> Record:
        frames = []
        for prompt in ("A", "B"):
            values = {str(at): np.random.default_rng(at).uniform(30, 50, 9) for at in range(8)}
            noise = np.random.default_rng(len(model + prompt) + int(by))
            moved = {name: (one + by + noise.normal(0, 1, 9)).tolist() for name, one in values.items()}
            frame = table(moved, model)
            frames.append(frame.assign(prompt=prompt, item=prompt + frame["item"]))
        return record(pd.concat(frames, ignore_index=True))

    of = compare(run("one", 0.0), run("two", 9.0))
    by_prompt = [one for one in of.differences if not one.measure.endswith("_over_prompts")]
    assert np.isnan([one.q for one in by_prompt]).all()
    assert any(math.isfinite(one.p) for one in by_prompt)
    assert verdict(difference(of, "mean_mass_over_prompts")) == DIFFERS
    assert all(math.isfinite(one.q) for one in of.differences if one not in by_prompt and math.isfinite(one.p))
    check_corrected(of.differences)
    assert math.isfinite(difference(of, "slope_over_prompts").low)


@pytest.mark.parametrize("by", [0.0, 1e-9, 1e-6])
def test_runs_that_hardly_differ_have_no_claimed_difference(by: float) -> None:
    first = drawn(12, 10)[0]
    frame, rng = first.observations.copy(), np.random.default_rng(6)
    for name in ("female", "male"):  # weights that are perturbed a little move each answer by about so many points
        frame[name] += rng.normal(by, by, len(frame))
    of = compare(first, record(frame.assign(model="two")))
    assert of.identical == (by < 1e-8)
    assert not any(map(is_significant, of.differences))
    own = [one for one in of.differences if one.measure != "pearson_r" or of.identical]
    moved = [one for one in own if one.group["pronoun"] != "other_words"]
    assert {verdict(one) for one in moved} == {EQUIVALENT}
    if of.identical:
        assert {one.value for one in of.differences} == {0.0}
        assert {verdict(one) for one in of.differences} == {EQUIVALENT}


@pytest.mark.parametrize(
    ("value", "told"), [(2.2e-8, "2.2e\N{MINUS SIGN}08"), (-4e-6, "\N{MINUS SIGN}0.000004"), (0.0, "0.000000")]
)
def test_a_difference_below_the_last_decimal_has_an_exponent(value: float, told: str) -> None:
    assert digits(value, 6) == told


def test_what_a_rounding_decides_is_not_claimed(load_outside: Callable[[str], None]) -> None:
    load_outside("threshold")
    scores = np.full(8, 0.5)
    (found,) = compare(outside((scores - 1e-12).tolist(), "x"), outside((scores + 1e-12).tolist(), "y")).differences
    assert found.value == 1.0
    assert math.isnan(found.low)
    assert verdict(found) == INCONCLUSIVE


def test_what_a_server_hides_widens_the_interval() -> None:
    """Masses known within 3 points on one side: the interval of the middles, and 3 to either side; nothing within that is claimed."""
    first, second = leaning(0, 0, "one"), leaning(2, 1)
    wide: dict[str, pd.Series[float]] = {}
    for name in ("female", "male"):
        wide |= {f"{name}.low": second.observations[name] - 3, f"{name}.high": second.observations[name] + 3}
    shown, hidden = (
        compare(first, second),
        compare(first, replace(second, observations=second.observations.assign(**wide))),
    )
    one, other = (difference(of, "mean_mass") for of in (shown, hidden))
    assert [other.value, other.low, other.high] == pytest.approx([one.value, one.low - 3, one.high + 3])
    assert (verdict(one), verdict(other)) == (DIFFERS, INCONCLUSIVE)
    assert other.p == 1.0


def test_figures_show_the_differences_by_name_and_count_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = {name: [one + 2 * at for one in FIRST["a"]] for at, name in enumerate(SIX)}
    moved = {name: [one + 3 + at for one in row] for at, (name, row) in enumerate(by_hand.items())}
    of = compare(record(table(by_hand)), record(table(moved, "two")))
    made = {one.name: one for one in drawings([of])}["difference_mean_mass"]
    assert {"female", "male", "other_words (no interval)"} <= set(words(made.figure))
    assert "other_words 0.00 (no interval)" in made.alt
    assert "of 3" not in made.caption
    still = [replace(one, value=0.0) for one in of.differences]
    assert drawings([replace(of, differences=still)]) == []
    monkeypatch.setattr("undertow.runs.compare.comparison_report.MAX_ROWS", 2)
    (fewer,) = [one for one in drawings([of]) if one.name == "difference_mean_mass"]
    assert "2 strongest of 3" in fewer.caption


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    second = record(table(SECOND, "two"), run_key="l")
    return [written(record(table(FIRST)), tmp_path / "a"), written(second, tmp_path / "b")]


@pytest.mark.page
def test_every_pair_of_runs_is_compared_written_and_read(two_runs: list[Path], tmp_path: Path) -> None:
    third = written(record(table(FIRST, "three"), run_key="three"), tmp_path / "c")
    compared = compare_folders(*two_runs, third)
    pairs = [("one", "two"), ("one", "three"), ("two", "three")]
    assert [(one.baseline, one.candidate) for one in compared.comparisons] == pairs
    assert [one.identical for one in compared.comparisons] == [False, True, False]
    page = compared.write(tmp_path / "out")
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {PAGE, TABLE, JSON}
    html = page.read_text(encoding="utf-8")
    assert "two" in html
    assert "undertow compare" in html
    assert html.count("<figure") > 2
    told = pd.read_csv(tmp_path / "out" / TABLE)
    assert list(dict.fromkeys(zip(told["baseline_run"], told["candidate_run"], strict=True))) == pairs
    assert set(told["verdict"]) <= set(VERDICTS)
    assert told["value"].tolist() == pytest.approx(
        [one.value for of in compared.comparisons for one in of.differences], nan_ok=True
    )
    plain = json.loads((tmp_path / "out" / JSON).read_text(encoding="utf-8"))
    assert [(one["baseline"]["name"], one["candidate"]["name"]) for one in plain["comparisons"]] == pairs
    assert [one["verdict"] for of in plain["comparisons"] for one in of["differences"]] == told["verdict"].tolist()
    before = page.read_bytes()
    compared.write(tmp_path / "out")
    assert len(page.read_bytes()) == pytest.approx(len(before), abs=200)
    assert len(list(tmp_path.iterdir())) == 4, "no draft is left"


def test_nothing_else_is_overwritten(two_runs: list[Path], tmp_path: Path) -> None:
    first, second = two_runs
    compared = compare_folders(first, second)
    assert_refused(("not a comparison folder",), compared.write, first)
    assert_refused(("is a file",), compared.write, first / "manifest.json")
    compared.write(tmp_path / "out")
    assert_refused(("another comparison",), compare_folders(second, first).write, tmp_path / "out")
    for held in ("", "[]", "{", '{"comparison_key": 3}'):
        (tmp_path / "out" / JSON).write_text(held, encoding="utf-8")
        assert_refused(("out",), compared.write, tmp_path / "out")
        assert (tmp_path / "out" / JSON).read_text(encoding="utf-8") == held
    (tmp_path / "out" / JSON).unlink()
    (tmp_path / "out" / UNFINISHED).touch()
    (tmp_path / "out" / "notes.txt").touch()
    compared.write(tmp_path / "out")
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {PAGE, TABLE, JSON, "notes.txt"}


def several(names: str) -> Record:
    frames = []
    for at, name in enumerate(names):
        rise = [3 * at * (1 + place / 9) for place in range(len(SIX))]
        frames.append(table({key: [one + by for one in LEVELS[key]] for key, by in zip(SIX, rise, strict=True)}, name))
    return record(pd.concat(frames, ignore_index=True), run_key=names)


def test_models_of_one_run_are_compared_with_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(several("xyz"), tmp_path / "all")
    compared = compare_folders(run)
    assert [(one.baseline, one.candidate) for one in compared.comparisons] == [("x", "y"), ("x", "z"), ("y", "z")]
    frame = several("xyz").observations
    apart = compare(*(record(frame[frame["model"] == name].reset_index(drop=True)) for name in ("x", "z")))
    for one, other in zip(compared.comparisons[1].differences, apart.differences, strict=True):
        assert (one.measure, dict(one.group)) == (other.measure, dict(other.group))
        assert numbers(one) == pytest.approx(numbers(other), nan_ok=True)
    sizes = [difference(of, "mean_mass").value for of in compared.comparisons]
    assert sizes == pytest.approx([3 * (1 + 2.5 / 9), 6 * (1 + 2.5 / 9), 3 * (1 + 2.5 / 9)])
    assert not any("left out" in note for one in compared.comparisons for note in one.notes)
    check_corrected([one for of in compared.comparisons for one in of.differences])
    assert_refused(("several models",), compare_folders, written(several("x"), tmp_path / "x"))
    silent = several("vxyz")
    reasons = silent.observations["model"].map({"v": "no words"}).fillna("")
    run = written(replace(silent, observations=silent.observations.assign(missing_reason=reasons)), tmp_path / "silent")
    with pytest.raises(UndertowError, match=r"v answered none of the common items \(no words\)"):
        compare_command([run], out=tmp_path / "out")
    plain = json.loads((tmp_path / "out" / JSON).read_text(encoding="utf-8"))
    assert [of["differences"][0]["value"] for of in plain["comparisons"]] == pytest.approx(sizes)
    for told in (capsys.readouterr().out, (tmp_path / "out" / PAGE).read_text(encoding="utf-8")):
        assert "Not compared: v answered none of the common items (no words)." in told
