"""Two runs beside each other: differences by hand, what is refused and why, and how often the intervals hold what was planted."""

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
from made_once import made_once
from scripted import tell_nothing
from undertow import audit, probes
from undertow.comparing import Comparison, compare, differences
from undertow.comparing.pairing import Names, pair
from undertow.comparing.replicates import by_key, point_results
from undertow.comparing.runs import JSON, PAGE, TABLE, Runs
from undertow.comparing.runs import compare as compare_folders
from undertow.probes.base import Evidence
from undertow.records import Record, read_record, write_record
from undertow.stats import point_estimates
from undertow.types import Result, UndertowError

PROBE = "spurious-correlation"
pytestmark = pytest.mark.usefixtures("few_resamples")


DESIGN: dict[str, Any] = {
    "groups": ["female", "male"], "gaps": [["female", "male"]], "words": {"female": ["she"], "male": ["he"]}, "title": "A set",
    "source": "", "protocol": "exact", "readout": "likelihood", "normalised": True, "prompts": {},
}  # fmt: skip
ASKED: Mapping[str, dict[str, Any]] = {
    PROBE: {"limit": 240},
    "task-specification": {"limit": 80},
    "bias-diagnosis": {"limit": 60},
    "bias-identification": {"limit": 60, "wordings": 2},
    "bias-extraction": {"limit": 120},
    "bias-rephrasing": {"limit": 60},
    "occupation-checklist": {"pairs": 3, "only": "nurse,pilot,cook", "contexts": "without", "negated": False},
}
"""Every audit, asked little."""
RunOf = Callable[..., Record]


@pytest.fixture
def run_of(shared_base: Path) -> RunOf:
    """Reads a run of an audit, made once and without a page."""

    def read(probe: str, model: str = "toy") -> Record:
        def make(folder: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("UNDERTOW_CACHE", str(folder / "cache"))
                patch.setattr(audit, "tell_with", tell_nothing)
                undertow.run(probe, model, out=folder / "run", **ASKED[probe])

        return read_record(made_once(shared_base, f"compared-{probe}-{model}", make) / "run")

    return read


def table(female: Mapping[str, Sequence[float]], model: str = "one", w_name: str = "date") -> pd.DataFrame:
    """A row for each cluster and W value, from percents of female words by cluster; NaN is unscored."""
    rows = [
        {
            "item": f"{w_name}/{cluster}/{at}",
            "model": model,
            "challenge": "set",
            "prompt": "",
            "w_name": w_name,
            "w_index": at,
            "w": str(1900 + at),
            "cluster": cluster,
            "text": f"In {1900 + at}, ___ was at {cluster}.",
            "female": value,
            "male": 100 - value,
            "unclaimed": math.nan if math.isnan(value) else 10.0,
            "unscored": "no answer came" if math.isnan(value) else "",
        }
        for cluster, values in female.items()
        for at, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def record(frame: pd.DataFrame, **changed: Any) -> Record:
    """A run with this table, measured."""
    design = DESIGN | changed.pop("design", {})
    names = list(dict.fromkeys(frame["model"]))
    manifest = {
        "schema_version": 1, "probe": PROBE, "model": ", ".join(names), "design": design, "run_key": "k", "asked_key": "a", "seed": 0,
        "limit": 0, "protocol": "exact", "command": "undertow run", "python": "undertow.run()", "created": "2026-01-02",
        "versions": {"undertow": "1"}, "machine": {}, "challenge_sha256": "asked", "settings": {"challenge": "set"},
        "model_card": {"dtype": "float32", "source": "here", "revision": "1", "readout": "likelihood"},
        "counts": {"items": len(frame)},
    } | changed  # fmt: skip
    results = probes.load(PROBE).measure(Evidence(frame, design), 0) if manifest["probe"] == PROBE else []
    return Record(manifest, frame, results)


FIRST: dict[str, list[float]] = {"a": [40.0, 50, 60], "b": [40, 50, 60]}
SECOND: dict[str, list[float]] = {"a": [40.0, 52, 64], "b": [40, 54, 68]}


def difference(of: Comparison, measure: str, pronoun: str = "female", **group: str) -> Result:
    wanted = {"pronoun": pronoun} | group
    (found,) = [
        one
        for one in of.differences
        if one.measure == measure and all(one.group.get(key) == level for key, level in wanted.items())
    ]
    return found


def numbers(result: Result) -> list[float]:
    return [result.value, result.low, result.high, result.p]


# What a difference is.


def test_a_difference_by_hand() -> None:
    """Slopes are 10 and 13; without a they are 10 and 14, without b 10 and 12."""
    of = compare(record(table(FIRST)), record(table(SECOND, "two")))
    found = difference(of, "slope")
    half = stats.t.ppf(0.975, 1)
    assert numbers(found) == pytest.approx([3, 3 - half, 3 + half, 0.5])
    assert found.detail == {"baseline": pytest.approx(10), "candidate": pytest.approx(13), "n_clusters": 2}
    assert (found.n, found.n_unscored, found.neutral, found.unit) == (6, 0, 0.0, "percentage points per step")
    assert found.group == {"challenge": "set", "prompt": "", "w_name": "date", "pronoun": "female"}
    tested = [one for one in of.differences if math.isfinite(one.p)]
    expected = stats.false_discovery_control([one.p for one in tested], method="bh")
    assert [one.q for one in tested] == pytest.approx(expected)
    gap = difference(of, "slope_gap", "female-male")
    assert numbers(gap) == pytest.approx([6, 6 - 2 * half, 6 + 2 * half, 0.5])


def test_the_other_way_round_it_is_the_negative() -> None:
    rng = np.random.default_rng(0)
    sides = [
        record(table({str(at): rng.uniform(20, 80, 5).tolist() for at in range(7)}, name)) for name in ("one", "two")
    ]
    there, back = compare(*sides), compare(*sides[::-1])
    assert (there.baseline, there.candidate) == (back.candidate, back.baseline) == ("one", "two")
    for one, other in zip(there.differences, back.differences, strict=True):
        assert [one.value, one.low, one.high, one.p, one.q] == pytest.approx(
            [-other.value, -other.high, -other.low, other.p, other.q], nan_ok=True
        )


def test_equal_numbers_of_other_answers_have_no_interval() -> None:
    """The mean mass that was not claimed is 10 in both, in every cluster: that is no promise for others."""
    found = difference(compare(record(table(FIRST)), record(table(SECOND, "two"))), "mean_mass", "unclaimed")
    assert (found.value, found.p) == (0.0, 1.0)
    assert math.isnan(found.low)
    assert "says little about others" in found.note


def test_the_same_difference_everywhere_is_found_without_an_interval() -> None:
    rng = np.random.default_rng(1)
    values = {str(at): rng.integers(20, 60, 4).astype(float) for at in range(12)}
    first = record(table({name: own.tolist() for name, own in values.items()}))
    second = record(table({name: (own + 8.0).tolist() for name, own in values.items()}, "two"))
    found = difference(compare(first, second), "mean_mass")
    assert found.value == pytest.approx(8.0)
    assert found.p == pytest.approx(2 / 2**12)
    assert math.isnan(found.low)


def test_one_cluster_has_no_interval_and_says_why() -> None:
    found = difference(compare(record(table({"a": FIRST["a"]})), record(table({"a": SECOND["a"]}, "two"))), "slope")
    assert found.value == pytest.approx(2)
    assert np.isnan([found.low, found.high, found.p]).all()
    assert "single cluster" in found.note


def test_what_is_unscored_in_one_is_left_out_of_both() -> None:
    more = FIRST | {"c": [10.0, 20, 90]}
    lacking = SECOND | {"c": [10.0, math.nan, 90]}
    of = compare(record(table(more)), record(table(lacking, "two")))
    found = difference(of, "mean_mass")
    # Means over W of the rows that both have: the middle one of c is in neither.
    first, second = np.mean([30, 50, 70]), np.mean([30, 53, 74])
    assert [found.detail["baseline"], found.detail["candidate"]] == pytest.approx([first, second])
    assert (found.n, found.n_unscored) == (8, 1)
    assert (of.n_items, of.n_answered) == (9, 8)
    assert any("1 item that one of them has no answer to was left out" in note for note in of.notes)


def test_rows_are_paired_by_item_wherever_they_stand() -> None:
    shuffled = table(SECOND, "two").sample(frac=1, random_state=3).reset_index(drop=True)
    there = compare(record(table(FIRST)), record(table(SECOND, "two")))
    again = compare(record(table(FIRST)), record(shuffled))
    assert [numbers(one) for one in there.differences] == [
        pytest.approx(numbers(one), nan_ok=True) for one in again.differences
    ]


def test_results_that_one_run_has_alone_are_listed() -> None:
    both = pd.concat([table(FIRST), table({"a": [1.0, 2, 5], "b": [2.0, 3, 5]}, w_name="place")], ignore_index=True)
    first, second = record(both, limit=12), record(table(SECOND, "two"), challenge_sha256="less", limit=6)
    of = compare(first, second)
    place = [one for one in of.differences if one.group["w_name"] == "place"]
    assert {one.measure for one in place} == {one.measure for one in first.results}
    assert all(math.isnan(one.value) and "two has no such number" in one.note for one in place)
    assert of.n_alone == (6, 0)
    assert any("6 items that only one was asked were left out" in note for note in of.notes)
    assert math.isfinite(difference(of, "slope", w_name="date").value)


def test_a_number_that_one_of_them_cannot_have_says_why() -> None:
    flat = record(table({"a": [50.0, 50, 50], "b": [50.0, 50, 50]}))
    found = difference(compare(flat, record(table(SECOND, "two"))), "pearson_r")
    assert math.isnan(found.value)
    assert "one: The mean is the same at every W value" in found.note


def test_many_clusters_are_dealt_into_groups_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MOST_GROUPS", 8)
    rng = np.random.default_rng(2)
    sides = [
        record(table({str(at): rng.uniform(20, 80, 3).tolist() for at in range(20)}, name)) for name in ("one", "two")
    ]
    one, same, other = (difference(compare(*sides, seed=seed), "slope") for seed in (0, 0, 1))
    assert one.detail["n_clusters"] == 8
    assert numbers(one) == numbers(same)
    assert one.value == other.value
    assert one.low != other.low


def test_several_models_are_matched_by_name() -> None:
    def run(shift: float, *names: str) -> Record:
        frames = [
            table({"a": [40, 50, 60 + at + shift], "b": [41, 50, 60 + 2 * shift]}, name)
            for at, name in enumerate(names)
        ]
        return record(pd.concat(frames, ignore_index=True))

    of = compare(run(0, "x", "y", "z"), run(3, "y", "x", "v"))
    slopes = {
        one.group["model"]: one.value
        for one in of.differences
        if one.measure == "slope" and one.group["pronoun"] == "female"
    }
    # x is the first of one run and the second of the other: its last means are 60 and those of 64 and 66.
    assert slopes["x"] == pytest.approx(((64 + 66) / 2 - (60 + 60) / 2) / 2)
    assert slopes["y"] == pytest.approx(((63 + 66) / 2 - (61 + 60) / 2) / 2)
    assert np.isnan([slopes["z"], slopes["v"]]).all()
    assert any("z was left out, whom the other run did not ask" in note for note in of.notes)


def test_one_of_several_models_is_compared_by_its_name() -> None:
    several = pd.concat([table(FIRST, "x"), table(FIRST, "two")], ignore_index=True)
    of = compare(record(several), record(table(SECOND, "two")))
    found = [one for one in of.differences if one.measure == "slope" and one.group["pronoun"] == "female"]
    assert [(one.group.get("model"), math.isfinite(one.value)) for one in found] == [(None, True), ("x", False)]
    assert found[0].value == pytest.approx(3)


def test_precision_tells_runs_of_one_model_apart() -> None:
    half = {"dtype": "bfloat16", "source": "here", "revision": "1", "readout": "likelihood"}
    of = compare(record(table(FIRST)), record(table(SECOND), model_card=half))
    assert (of.baseline, of.candidate) == ("one (float32)", "one (bfloat16)")


# What is refused.


def other_text(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(text=frame["text"].str.replace("at", "in"))


SHOTS = {"given_shots": 5}
REFUSED: Mapping[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], dict[str, Any], str]] = {
    "probe": (lambda f: f, {"probe": "task-specification"}, "task-specification"),
    "protocol": (lambda f: f, {"protocol": "paper"}, "paper"),
    "groups": (lambda f: f, {"design": {"gaps": []}}, "gaps"),
    "readout": (lambda f: f, {"design": {"readout": "mask"}}, "shares"),
    "options": (lambda f: f, {"challenge_sha256": "b", "settings": {"challenge": "c"}}, "challenge"),
    "file": (lambda f: f, {"challenge_sha256": "b"}, "changed"),
    "seed": (lambda f: f.assign(**SHOTS), {"challenge_sha256": "b", "seed": 4}, "seed 0"),
    "texts": (other_text, {"challenge_sha256": "b", "limit": 3}, "text is 'In 1900, ___ was at a"),
    "items": (lambda f: f.assign(item="x" + f["item"]), {"challenge_sha256": "b", "limit": 3}, "no item"),
    "answers": (lambda f: f.assign(unscored="gone"), {}, "answer"),
    "twice": (lambda f: f.assign(item="x"), {}, "item 'x'"),
}


@pytest.mark.parametrize(("change", "changed", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_not_comparable_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], changed: dict[str, Any], said: str
) -> None:
    second = record(table(SECOND, "two"), **changed)
    second = replace(second, observations=change(second.observations))
    with pytest.raises(UndertowError, match=said) as refusal:
        compare(record(table(FIRST)), second)
    assert "two" in str(refusal.value)


def test_a_run_that_does_not_say_how_masses_were_read_is_not_taken_for_a_recorded_table() -> None:
    said, silent = record(table(FIRST)), record(table(SECOND, "two"))
    design = {name: fact for name, fact in silent.manifest["design"].items() if name != "readout"}
    silent = replace(silent, manifest={**silent.manifest, "design": design})
    with pytest.raises(UndertowError, match="does not say how") as refusal:
        compare(said, silent)
    assert "recorded" not in str(refusal.value)
    with pytest.raises(UndertowError, match="recorded"):
        compare(said, replace(silent, manifest={**silent.manifest, "recorded": "own.csv"}))
    assert compare(silent, silent).identical


def test_one_run_and_a_negative_seed_are_refused(tmp_path: Path) -> None:
    run = record(table(FIRST))
    with pytest.raises(UndertowError, match="seed -1"):
        compare(run, run, seed=-1)
    for folders in ([tmp_path], [tmp_path / "a", tmp_path / "b"]):
        with pytest.raises(UndertowError, match="run folder"):
            compare_folders(*folders)


def test_several_models_without_a_common_name_are_refused() -> None:
    several = pd.concat([table(FIRST, "x"), table(SECOND, "y")], ignore_index=True)
    with pytest.raises(UndertowError, match=r"none in common \(one; x, y\)"):
        compare(record(table(FIRST)), record(several))


def test_ways_of_reading_do_not_matter_where_shares_are_measured(run_of: RunOf) -> None:
    """Detection of unspecified sentences takes shares between groups: the toy gives likelihoods, uniform probabilities."""
    first, second = run_of("task-specification"), run_of("task-specification", "uniform")
    assert [run.manifest["design"]["normalised"] for run in (first, second)] == [True, False]
    paired = pair(first, second, probes.load("task-specification"), Names("x", "y"))
    assert paired.n_answered == len(first.observations)


# Runs of models.


@pytest.mark.parametrize("probe", ASKED)
def test_point_estimates_are_the_values_of_every_audit(run_of: RunOf, probe: str) -> None:
    run = run_of(probe)
    evidence = Evidence(run.observations, run.manifest["design"])
    plain = {key: one for key, one in by_key(run.results).items() if one.group.get("model") != ""}
    with point_estimates():
        quick = by_key(point_results(probes.load(probe), evidence, 0))
    assert list(quick) == list(plain)
    for key, one in quick.items():
        assert (one.value, one.n, one.n_unscored) == pytest.approx(
            (plain[key].value, plain[key].n, plain[key].n_unscored), rel=0, abs=0, nan_ok=True
        ), key
        assert np.isnan([one.p, one.q]).all(), key
        assert math.isnan(one.low) or one.low == one.value, key


@pytest.mark.parametrize("probe", ASKED)
def test_every_audit_differs_from_itself_in_nothing(run_of: RunOf, probe: str) -> None:
    run = run_of(probe)
    of = compare(run, run)
    assert of.identical
    assert (of.baseline, of.candidate) == ("toy (baseline)", "toy (candidate)")
    finite = [one for one in of.differences if math.isfinite(one.value)]
    assert finite
    assert {(one.value, one.low, one.high, one.p) for one in finite} == {(0.0, 0.0, 0.0, 1.0)}
    assert all(one.note for one in of.differences if math.isnan(one.value))


def changed_answers(run: Record) -> Record:
    """The run of a model that answers a little otherwise."""
    rng, frame = np.random.default_rng(0), run.observations.copy()
    for name in ("yes", "female", "male"):
        if name in frame:
            frame[name] = np.clip(frame[name] + rng.normal(0, 10, len(frame)), 0, 100)
    if "gold" in frame and "answer" in frame:
        frame["answer"] = rng.permutation(frame["answer"].to_numpy(dtype=object))
    return replace(run, observations=frame)


@pytest.mark.parametrize(
    ("probe", "column"),
    [
        ("task-specification", "prompt"),
        ("bias-diagnosis", "dimension"),
        ("occupation-checklist", "stage"),
        ("occupation-checklist", "pair"),
    ],
)
def test_a_column_of_an_audit_that_runs_lack_is_named(run_of: RunOf, probe: str, column: str) -> None:
    whole = run_of(probe)
    lacking = replace(whole, observations=whole.observations.drop(columns=column))
    for first, place in ((whole, "two"), (lacking, "one")):
        with pytest.raises(UndertowError, match=f"^{place}.*{column!r}"):
            compare(first, lacking, names=("one", "two"))


@pytest.mark.parametrize("probe", ["bias-diagnosis", "bias-extraction", "occupation-checklist"])
def test_other_answers_differ_in_every_audit(run_of: RunOf, probe: str) -> None:
    run = run_of(probe)
    of = compare(run, changed_answers(run))
    assert not of.identical
    finite = [one for one in of.differences if math.isfinite(one.low)]
    assert len(finite) > 3
    for one in finite:
        assert one.low <= one.value <= one.high
        assert one.value == pytest.approx(one.detail["candidate"] - one.detail["baseline"])
        assert 0 < one.p <= 1
    assert not any(one.group.get("description_class", "").startswith("(") for one in of.differences), (
        "baselines are of nobody"
    )


def test_the_checklist_is_clustered_by_pairs_and_by_occupations(run_of: RunOf) -> None:
    """One occupation answered otherwise: the pairs agree on it, so that they alone would take it for certain."""
    run = run_of("occupation-checklist")
    frame = run.observations.copy()
    one = frame["soc_code"] == next(code for code in frame["soc_code"] if code)
    frame.loc[one, "female"], frame.loc[one, "male"] = 90.0, 10.0
    found = next(
        one
        for one in compare(run, replace(run, observations=frame)).differences
        if one.measure == "choice_gap" and one.group == {"occupation": "all", "context": "without attributes"}
    )
    assert found.value > 0
    assert found.low < 0 < found.high


def test_a_part_of_a_run_is_compared_on_the_items_of_both(run_of: RunOf, untold: None, tmp_path: Path) -> None:
    part = undertow.run(PROBE, "toy", limit=120, out=tmp_path / "part").record
    of = compare(run_of(PROBE), part)
    assert of.identical
    assert of.n_items + of.n_alone[0] == 240
    assert of.n_items + of.n_alone[1] == len(part.observations)
    assert any("was asked were left out" in note for note in of.notes)


def test_recorded_tables_are_compared_by_what_was_asked(untold: None, tmp_path: Path) -> None:
    """Their models stand in the names of their items, which are therefore not looked at."""
    rows = "".join(
        f"{{model}},date,{at},{1900 + at},s{s},{30 + 5 * at + s},{60 - 5 * at}\n" for at in range(4) for s in range(5)
    )
    for name, more in (("one", 0), ("two", 2)):
        text = "model,w_name,w_index,w,text,female,male\n" + rows.format(model=name)
        if more:
            text = text.replace(",30,", ",37,").replace(",46,", ",49,")
        (tmp_path / f"{name}.csv").write_text(text)
        undertow.score(tmp_path / f"{name}.csv", probe=PROBE, out=tmp_path / name)
    of = compare_folders(tmp_path / "one", tmp_path / "two").comparisons[0]
    assert (of.baseline, of.candidate, of.n_items) == ("one", "two", 20)
    found = difference(of, "mean_mass")
    assert found.value == pytest.approx((7 + 3) / 20)
    assert found.low < found.value < found.high


def outside(scores: Sequence[float], model: str = "m") -> Record:
    """A run of a probe from outside, with a score for each of its clusters."""
    rows = [{"item": str(at), "model": model, "cluster": f"c{at}", "score": one} for at, one in enumerate(scores)]
    return record(pd.DataFrame(rows), probe="outside", design={"groups": []})


@pytest.fixture
def load_outside(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes every probe one that knows nothing of point estimates: a mean score, for which a cluster may be needed."""

    def load(needed: str) -> None:
        class Outside:
            Settings = dict

            @staticmethod
            def design(settings: Any) -> Mapping[str, Any]:
                return {}

            @staticmethod
            def measure(evidence: Evidence, seed: int) -> list[Result]:
                if not set(evidence.frame["cluster"]) >= set(needed.split()):
                    raise UndertowError("there is too little to be measured; ask more")
                return [Result("mean", {}, float(evidence.frame["score"].mean()), n=len(evidence.frame))]

        monkeypatch.setattr(probes, "load", lambda name: Outside)

    return load


def test_a_probe_from_outside_is_compared_too(load_outside: Callable[[str], None]) -> None:
    load_outside("")
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=10), rng.normal(1.0, size=10)
    (found,) = compare(outside(first.tolist(), "x"), outside(second.tolist(), "y")).differences
    expected = stats.ttest_rel(second, first)
    assert found.value == pytest.approx((second - first).mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.p == pytest.approx(expected.pvalue, abs=0.03)


def test_what_cannot_be_measured_without_a_cluster_has_no_interval(load_outside: Callable[[str], None]) -> None:
    load_outside("c3")
    (found,) = compare(outside([1.0, 2, 3, 4, 5]), outside([2.0, 2, 4, 4, 5])).differences
    assert found.value == pytest.approx(0.4)
    assert math.isnan(found.low)
    assert "Without some of its clusters" in found.note


@pytest.mark.slow
def test_float32_and_bfloat16_differ_a_little(network: Callable[[str], str], untold: None, tmp_path: Path) -> None:
    folder = network("tiny_llama")
    for dtype in ("float32", "bfloat16"):
        undertow.run(PROBE, folder, dtype=dtype, w="date", date_count=3, limit=18, out=tmp_path / dtype)
    compared = compare_folders(tmp_path / "float32", tmp_path / "bfloat16")
    (of,) = compared.comparisons
    assert (of.baseline, of.candidate) == ("float32", "bfloat16")
    assert not of.identical
    slopes = [one for one in of.differences if one.measure in ("slope", "slope_gap")]
    assert all(0 < abs(one.value) < 0.5 and one.low < one.value < one.high for one in slopes)
    assert all(one.high - one.low < 1.0 for one in slopes)


# Coverage.


def simulated(rng: np.random.Generator, n: int, planted: float, model: str, sentences: pd.DataFrame) -> pd.DataFrame:
    """Many small audits in one table: the sentences' own slopes are shared by both runs, what the models make of them is not."""
    clusters, levels = sentences["cluster"].nunique(), sentences["w_index"].nunique()
    own = rng.normal(planted, 1.0, size=(n, clusters, 1)) * np.arange(levels) + rng.normal(0, 3, size=(n, clusters, 1))
    masses = sentences["female"].to_numpy() + (own + rng.normal(0, 1, size=(n, clusters, levels))).ravel()
    return sentences.assign(model=model, female=masses, male=100 - masses)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("planted", [pytest.param(0.0, marks=pytest.mark.soak), 1.5])
def test_a_planted_difference_is_held_by_95_of_100_intervals(planted: float) -> None:
    """240 pairs of runs of 10 sentence patterns at 4 dates each, through the measures of the audit, as sets of one run."""
    rng, n, clusters, levels = np.random.default_rng(11), 240, 10, 4
    base = rng.normal(50, 8, size=(n, clusters, 1)) + rng.normal(1, 1, size=(n, clusters, 1)) * np.arange(levels)
    index = pd.MultiIndex.from_product([range(n), range(clusters), range(levels)], names=["set", "cluster", "w_index"])
    sentences = index.to_frame(index=False)
    sentences = sentences.assign(
        item=["/".join(map(str, one)) for one in index], challenge="set " + sentences["set"].astype(str), prompt="", w_name="date",
        w=sentences["w_index"].astype(str), cluster="c" + sentences["cluster"].astype(str), unclaimed=0.0, unscored="",
        female=base.ravel(),
    )  # fmt: skip
    design = {"groups": ["female"], "gaps": []}
    runs = []
    for at, name in enumerate(("one", "two")):
        frame = simulated(rng, n, planted * at, name, sentences)
        runs.append(replace(record(table(FIRST, name), design=design), observations=frame, results=[]))
    slopes = [one for one in compare(*runs).differences if one.measure == "slope"]
    assert len(slopes) == n
    held = np.mean([one.low <= planted <= one.high for one in slopes])
    error = math.sqrt(0.95 * 0.05 / n)
    assert abs(held - 0.95) < 3 * error, held
    p = np.array([one.p for one in slopes])
    if planted:
        assert np.mean([one.value for one in slopes]) == pytest.approx(planted, abs=4 * 0.45 / math.sqrt(n))
        assert np.mean(p < 0.05) > 0.7
    else:
        for level in (0.05, 0.2, 0.5):
            assert abs(np.mean(p <= level) - level) < 3 * math.sqrt(level * (1 - level) / n), level


# Folders.


def written(run: Record, folder: Path) -> Path:
    write_record(run, folder, lambda place: None)
    return folder


@pytest.fixture
def two_runs(tmp_path: Path) -> list[Path]:
    """The folders of two runs, in tmp_path."""
    second = record(table(SECOND, "two"), run_key="l")
    return [written(record(table(FIRST)), tmp_path / "a"), written(second, tmp_path / "b")]


def test_a_comparison_is_written_and_read(two_runs: list[Path], tmp_path: Path) -> None:
    first, second = two_runs
    compared = compare_folders(first, second)
    page = compared.write(tmp_path / "out")
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {PAGE, TABLE, JSON}
    html = page.read_text(encoding="utf-8")
    assert "two" in html
    assert "undertow compare" in html
    told = pd.read_csv(tmp_path / "out" / TABLE)
    assert set(told["candidate_run"]) == {"two"}
    assert told["value"].tolist() == pytest.approx(
        [one.value for one in compared.comparisons[0].differences], nan_ok=True
    )
    plain = json.loads((tmp_path / "out" / JSON).read_text(encoding="utf-8"))
    assert plain["comparisons"][0]["baseline"]["name"] == "one"
    assert len(plain["comparisons"][0]["differences"]) == len(told)
    before = page.read_bytes()
    compare_folders(first, second).write(tmp_path / "out")
    assert len(page.read_bytes()) == pytest.approx(len(before), abs=200)
    assert len(list(tmp_path.iterdir())) == 3, "no draft is left"


def test_nothing_else_is_overwritten(two_runs: list[Path], tmp_path: Path) -> None:
    first, second = two_runs
    compared = compare_folders(first, second)
    with pytest.raises(UndertowError, match="holds no comparison"):
        compared.write(first)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(UndertowError, match="holds no comparison"):
        compared.write(tmp_path / "notes")
    with pytest.raises(UndertowError, match="is a file"):
        compared.write(tmp_path / "notes" / "mine.txt")
    compared.write(tmp_path / "out")
    with pytest.raises(UndertowError, match="holds another comparison"):
        compare_folders(second, first).write(tmp_path / "out")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


def test_names_are_models_or_folders_and_never_alike(tmp_path: Path) -> None:
    places = [written(record(table(FIRST)), tmp_path / name / "run") for name in ("a", "b")]
    assert Runs.read([places[0], places[1]]).names == [str(place) for place in places]
    assert Runs.read([places[0], places[0]]).names == [str(places[0]), f"{places[0]} (again)"]
    other = written(record(table(SECOND, "two")), tmp_path / "c")
    assert Runs.read([places[0], other]).names == ["one", "two"]
    assert Runs.read([places[0], other, places[1]]).names[1] == "two"
    assert Runs.read([places[0], other]).folder(0).name.startswith("comparison_run_c_")


def test_more_runs_are_held_against_the_first(two_runs: list[Path], tmp_path: Path) -> None:
    third = written(record(table(FIRST, "three"), run_key="three"), tmp_path / "c")
    compared = compare_folders(*two_runs, third)
    assert [(one.baseline, one.candidate) for one in compared.comparisons] == [("one", "two"), ("one", "three")]
    assert [one.identical for one in compared.comparisons] == [False, True]
    assert set(compared.table()["candidate_run"]) == {"two", "three"}
    assert any("three against one" in one.text for one in compared.findings)
    assert "three" in compared.write(tmp_path / "out").read_text(encoding="utf-8")


def test_a_notebook_shows_a_table(two_runs: list[Path], tmp_path: Path) -> None:
    html = compare_folders(written(record(table(FIRST, "<b>one</b>")), tmp_path / "c"), two_runs[1])._repr_html_()
    assert "<table" in html
    assert "<b>one" not in html
    assert "&lt;b&gt;one" in html
