from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import undertow
from conftest import make_quick
from helpers.planted_precision import Err, Plant, moved, nothing, unit, with_probs, year_of
from helpers.sampled_cases import briefly
from undertow import audits
from undertow.audits.base import Observations
from undertow.audits.spurious_correlation.drift_findings import comparison_findings
from undertow.models.backend import dtype as precisions
from undertow.runs import dtype_check
from undertow.runs.dtype_check.rescore_sample import gaps, preferred, sample_clusters
from undertow.runs.dtype_check.stability import moved_by
from undertow.runs.folder.storage import PRECISION, read_record
from undertow.runs.pipeline import Run
from undertow.stats import percentile_interval
from undertow.types import (
    Answer,
    ClozeQuery,
    ConstrainedGenerateQuery,
    ContinuationQuery,
    Finding,
    Item,
    Option,
    Query,
    Result,
    query_digest,
)

AUDIT = "spurious-correlation"
NONE_TURNED = "No finding changes if any single result moves within the 95% interval of its error."
YEARS = 12
SMALL: dict[str, Any] = {"w": "date", "date_count": YEARS, "dtype": "bfloat16"}
N_ITEMS, N_CONTROLS = 60 * YEARS, 8 + 5  # as yardstick, and to see whether the model reads
STEP = (2016 - 1801) / (YEARS - 1)
"""Years from one date to the next."""


def step_of(query: Query) -> float:
    assert isinstance(query, ClozeQuery)
    return float(round((year_of(query.display_text()) - 1801) / STEP))


def sentence_of(query: Query) -> float:
    """A number in 0 to 1, of a sentence without its year."""
    assert isinstance(query, ClozeQuery)
    return unit(query.display_text()[len("In 1801") :])


def steeper(points: float) -> Any:
    """An error in the slope: so many points a step, the same in every sentence."""
    return lambda query, answer: moved(query, answer, points * step_of(query))


def run(tmp_path: Path, name: str = "run", **options: Any) -> Run:
    return undertow.audit(AUDIT, options.pop("model", "planted"), out=tmp_path / name, **SMALL | options)


def errors(of: Run, measure: str = "slope") -> dict[str, Mapping[str, Any]]:
    table = of.record.precision
    assert table is not None
    return {str(row["pronoun"]): row for row in table.to_dict("records") if row["measure"] == measure}  # type: ignore[misc]


def part(of: Run) -> dict[str, Any]:
    (found,) = of.manifest["precision"]["models"]
    return dict(found)


@pytest.mark.parametrize(
    ("kind", "instructions", "cuda", "expected", "limit"),
    [
        ("cpu", {"AuthenticAMD", "avx512f", "avx512_bf16"}, False, "bfloat16", ""),
        ("cpu", {"GenuineIntel", "avx512f", "avx512_bf16"}, False, "float32", ""),
        ("cpu", {"GenuineIntel", "avx512_bf16", "amx_bf16"}, False, "bfloat16", ""),
        ("cpu", {"asimd", "bf16"}, False, "bfloat16", ""),
        ("cpu", {"avx512f", "avx2"}, True, "float32", ""),
        ("cuda", {"avx512_bf16"}, True, "bfloat16", ""),
        ("cuda", {"avx512_bf16"}, False, "float32", ""),
        ("mps", {"bf16"}, False, "float32", ""),
        ("cpu", {"amx_bf16", "avx512_bf16"}, True, "float32", "AVX2"),
    ],
)
def test_auto_is_bfloat16_where_the_machine_is_fast_at_it(  # noqa: PLR0917 - a column each
    kind: str, instructions: set[str], cuda: bool, expected: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where oneDNN may use what the processor has."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert precisions.auto_dtype(kind, instructions, cuda_has_bfloat16=cuda) == expected


def test_what_has_no_room_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the files of a model it is unpacked beside its packed weights; on a card it is loaded through memory."""
    room = precisions.free_bytes("cpu", "cpu")
    assert room is None or 2**26 < room < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "some, and not all"
    monkeypatch.setattr(precisions, "free_bytes", lambda kind, device: {"cpu": 10, "cuda": 5}.get(kind, 0) * 10**9)
    assert precisions.memory_shortage(1.2e9, "cpu", gguf=False) == ""
    for n_parameters, place, gguf, needed in (
        (7e9, "cpu", False, "56.0 GB"),
        (1.2e9, "cpu", True, "14.4 GB"),
        (1.2e9, "cuda:1", False, "5.3 GB"),
        (1.2e9, "cuda:1", True, "14.4 GB"),
    ):
        assert needed in precisions.memory_shortage(n_parameters, place, gguf=gguf)
    assert precisions.memory_shortage(1.1e9, "cuda:1", gguf=False) == ""
    monkeypatch.setattr(precisions, "free_bytes", lambda kind, device: None)
    assert precisions.memory_shortage(7e12, "mps", gguf=True) == ""


@pytest.mark.parametrize(
    ("n_clusters", "size", "n_items", "expected"),
    [
        (60, 50, 0, 10),  # a tenth would be six clusters
        (300, 10, 0, 30),  # a tenth
        (60, 10, 0, 20),  # 200 items
        (2, 50, 0, 2),
        (3, 5000, 0, 3),
        (13, 5000, 0, 4),  # a quarter
        (60, 50, 10, 2),  # one would say nothing of the others
        (60, 50, 10**6, 60),
    ],
)
def test_how_much_is_drawn(n_clusters: int, size: int, n_items: int, expected: int) -> None:
    query = ContinuationQuery("a", ("b", "c"))
    items = [Item(f"c{of}-{at}", query, {}, cluster=f"c{of}") for of in range(n_clusters) for at in range(size)]
    drawn = sample_clusters(items, n_items, 0)
    assert len(drawn) == expected
    assert drawn == [name for name in dict.fromkeys(item.cluster for item in items) if name in drawn]
    assert drawn == sample_clusters(items, n_items, 0)
    if expected < n_clusters:
        assert drawn != sample_clusters(items, n_items, 1)


BLANK = ClozeQuery(("", " ran."), (Option("f", ("she",)), Option("f", ("her",)), Option("m", ("he",))))


def test_a_group_is_preferred_by_all_its_words() -> None:
    nats = tuple(np.log([0.3, 0.3, 0.4]).tolist())
    assert preferred(BLANK, Answer(nats, 0.0)) == "f"
    assert preferred(ContinuationQuery("a", ("b", "c")), Answer((-2.0, -1.0), 0.0)) == 1
    assert preferred(ConstrainedGenerateQuery("a", "b"), Answer((-2.0,), 0.0, text="so")) == "so"


def test_gaps_are_over_what_both_were_asked() -> None:
    queries = [ContinuationQuery(text, ("b", "c")) for text in "xyzuv"]
    items = [Item(query.context, query, {}, "one") for query in queries]
    reduced = [Answer(nats, 0.0) for nats in [(-1.0, -2.0), (-1.0, -2.0), (-math.inf, -1.0)]] + [
        Answer.missing("no")
    ] * 2
    full = [Answer(nats, 0.0) for nats in [(-1.0, -2.2), (-3.0, -2.0), (-5.0, -1.0), (-1.0, -1.0)]]
    told = gaps(list(zip(items, reduced, strict=True)), list(zip(items[:4], full, strict=True)))
    assert told["queries"] == 4, "the last was asked in one precision only"
    assert told["rms_nats"] == pytest.approx(math.sqrt((0.2**2 + 2.0**2) / 5))
    assert told["largest_nats"] == pytest.approx(2.0)
    assert told["turned_percent"] == pytest.approx(100 / 3)
    assert told["one_sided"] == 2, "a word that only one gives any probability, and a query that only one answers"


def test_a_planted_shift_of_the_slope_is_found_again(plant: Plant, tmp_path: Path) -> None:
    """The same in every sentence: it is found to the digit, whatever the sample."""
    planted = plant(steeper(0.25))
    found = run(tmp_path)
    of = errors(found)
    assert [of[words]["difference"] for words in ("female", "male", "neutral")] == pytest.approx(
        [0.25, -0.25, 0.0], abs=1e-9
    )
    assert errors(found, "slope_gap")["female-male"]["difference"] == pytest.approx(0.5, abs=1e-9)
    assert (of["female"]["low"], of["female"]["high"]) == pytest.approx((0.25, 0.25), abs=1e-9)
    assert part(found)["items"] == len(planted.asked["float32"]) == 200 + 4, "whole sentences"
    assert len(planted.asked["bfloat16"]) == N_ITEMS + N_CONTROLS
    assert planted.opened == ["bfloat16", "float32"], "one after the other, each once"


def test_where_both_precisions_answer_alike_nothing_could_change(plant: Plant, tmp_path: Path) -> None:
    plant(nothing)
    found = run(tmp_path)
    table, told = found.record.precision, found.manifest["precision"]
    assert table is not None
    assert set(table.loc[table["difference"].notna(), "measure"]) >= {"slope", "slope_gap"}
    assert (table[["difference", "low", "high"]].fillna(0) == 0).all(axis=None)
    assert not table["unstable"].any()
    assert (told["unstable"], told["sentences"][-1]) == ([], NONE_TURNED)
    assert not any("Warning" in sentence for sentence in told["sentences"])
    assert (part(found)["rms_nats"], part(found)["turned_percent"], part(found)["one_sided"]) == (0, 0, 0)


def test_an_error_that_differs_between_sentences_has_its_interval(plant: Plant, tmp_path: Path) -> None:
    """Of ten sentences: the t interval of their mean, less what they are of all sixty; and it covers the error of all."""
    plant(lambda query, answer: moved(query, answer, 0.5 * sentence_of(query) * step_of(query)))
    found = run(tmp_path, float32_sample=10 * YEARS)
    frame = found.observations
    slopes = {
        str(cluster): 0.5 * unit(str(rows["text"].iloc[0])[len("In 1801") :])
        for cluster, rows in frame.groupby("cluster")
    }
    drawn = sample_clusters([Item("", BLANK, {}, str(one)) for one in frame["cluster"]], 10 * YEARS, 0)
    own = np.array([slopes[name] for name in drawn])
    of = errors(found)["female"]
    half = stats.t.ppf(0.975, 9) * stats.sem(own) * math.sqrt(1 - 10 / 60)
    assert of["difference"] == pytest.approx(own.mean(), abs=1e-9)
    assert (of["low"], of["high"]) == pytest.approx((own.mean() - half, own.mean() + half), abs=1e-9)
    assert of["low"] < np.mean(list(slopes.values())) < of["high"]


def hidden(query: Query, answer: Answer) -> Answer:
    """All of the drift is lost, and chance is all that is left."""
    assert isinstance(query, ClozeQuery)
    return moved(query, answer, -0.1 * STEP * step_of(query) + 4 * unit(query.display_text()))


def pretended(query: Query, answer: Answer) -> Answer:
    """Neutral words, which do not drift, rise with the date."""
    assert isinstance(query, ClozeQuery)
    of_year = unit(query.display_text()[:7])
    drift = (0.003 * step_of(query) + 0.001 * of_year) * (0.8 + 0.4 * sentence_of(query))
    probs = {option.group: math.exp(nats) for option, nats in zip(query.options, answer.logprobs_nats, strict=True)}
    if "neutral" not in probs:  # a sentence of the sanity check
        return answer
    return with_probs(query, {**probs, "neutral": probs["neutral"] + drift, "male": probs["male"] - drift})


@pytest.mark.parametrize(
    ("err", "words", "claimed"), briefly([(hidden, "female", False), (pretended, "neutral", True)])
)
def test_an_error_as_large_as_the_effect_is_warned_of(
    err: Err, words: str, claimed: bool, plant: Plant, tmp_path: Path
) -> None:
    plant(err)
    found = run(tmp_path)
    told = found.manifest["precision"]

    def slope(of: Run) -> Result:
        (one,) = [one for one in of.record.results if one.measure == "slope" and one.group["pronoun"] == words]
        return one

    (finding,) = [one for one in found.findings if any(part is slope(found) for part in one.results)]
    assert (slope(found).q < 0.05) is claimed
    assert finding.text in told["unstable"]
    assert set(told["unstable"]) <= {one.text for one in found.findings}
    assert any("could change" in sentence and "Warning" in sentence for sentence in told["sentences"])
    assert errors(found)[words]["unstable"]
    # And so it does.
    full = run(tmp_path, "full", dtype="float32")
    assert (slope(full).q < 0.05) is not claimed


def drift(**parts: Any) -> Result:
    given: dict[str, Any] = {"value": 1.0, "low": 0.6, "high": 1.4, "null_value": 0.0, "p": 0.001, "q": 0.003}
    return Result("slope", {"model": "m"}, **given | parts)


def test_a_result_moves_with_its_interval_and_its_tests() -> None:
    half = moved_by(drift(), 0.5)
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.1, 0.9))
    z = stats.norm.isf(0.001 / 2)
    assert half.p == pytest.approx(2 * stats.norm.sf(z / 2))
    assert half.q == pytest.approx(3 * half.p)
    assert moved_by(drift(), 0.0).q == pytest.approx(drift().q)
    assert moved_by(drift(), -1.0).p < 1e-9
    assert moved_by(drift(), 1.0).q == 1.0
    untested = moved_by(drift(p=math.nan, q=math.nan, extras={"above_low": 0.2, "n_w": 30.0}), 0.5)
    assert math.isnan(untested.p)
    assert untested.extras == {"above_low": pytest.approx(-0.3), "n_w": 30.0}
    even = moved_by(drift(value=0.0, low=-0.4, high=0.4, p=1.0, q=1.0), 0.4)
    assert even.p == pytest.approx(0.05, abs=0.001), "on the scale of its interval, where p tells none"
    ends = {
        f"{of}_{end}": at for of in ("corrected", "sentences", "values") for end, at in (("low", 0.5), ("high", 1.5))
    }
    tests = {"values_p": 0.02, "values_q": 0.03}
    found = moved_by(drift(extras={**ends, **tests, "n_w": 30.0}), 0.5).extras
    assert {name: found[name] for name in ends} == pytest.approx({name: at - 0.5 for name, at in ends.items()})
    assert found["values_p"] == pytest.approx(2 * stats.norm.sf(stats.norm.isf(0.02 / 2) / 2))
    assert found["values_q"] == pytest.approx(1.5 * found["values_p"])
    # Half an interval that is that of its test is as sure at its end as any other, however few the clusters are.
    of_trend = {"n_clusters": 7.0, "sentences_df": 5.2, "values_p": 1.0, "values_q": 1.0}
    moved = moved_by(drift(value=0.0, low=-0.4, high=0.4, p=1.0, q=1.0, extras=of_trend), 0.4)
    assert (moved.p, moved.extras["values_p"]) == pytest.approx((0.05, 0.05), abs=1e-4)


@pytest.mark.parametrize("n_clusters", [6, 7, 20])
def test_of_few_clusters_half_an_interval_is_as_many_standard_errors_as_it_has_on_average(n_clusters: int) -> None:
    rng = np.random.default_rng(0)
    standard_errors = []
    for _ in range(40):
        sample = rng.normal(size=n_clusters)
        drawn = rng.choice(sample, size=(1_000, n_clusters)).mean(axis=1)
        low, high = percentile_interval(drawn, n_clusters=n_clusters)
        standard_errors.append((high - low) / 2 / (sample.std(ddof=1) / math.sqrt(n_clusters)))
    even = drift(value=0.0, low=-0.4, high=0.4, p=1.0, q=1.0, extras={"n_clusters": float(n_clusters)})
    assumed = stats.norm.isf(moved_by(even, 0.4).p / 2)
    assert assumed == pytest.approx(np.mean(standard_errors), rel=0.02)


CLAIMS: Any = SimpleNamespace(
    findings=lambda _, results: [
        Finding(f"{one.group['w']} drifts by {one.value:.2f}", one.low > 0 or one.high < 0, 1.0) for one in results
    ]
)
"""An audit that claims a drift where its interval excludes 0."""


def judged(
    results: list[Result], rows: list[dict[str, Any]], audit: Any = CLAIMS
) -> tuple[dict[str, Any], pd.DataFrame]:
    """What is said of results, of which the rows have the errors."""
    known = {"items": 9, "of_items": 90, "turned_percent": 0.0, "rms_nats": 0.01, "largest_nats": 0.02}
    manifest = {"precision": {"models": [{"model": "m", "dtype": "bfloat16", **known}]}}
    empty = {"model": "m", "measure": "slope", "reduced_value": 1.0, "float32_value": 1.0}
    table = pd.DataFrame([{**empty, **row} for row in rows])
    evidence = Observations(
        pd.DataFrame({"model": [one.group["model"] for one in results]}), {"task": "bias-extraction"}
    )
    told, found = dtype_check.flag_unstable(audit, evidence, results, manifest, table)
    assert found is not None
    return told["precision"], found


def of_w(w: str, value: float, half: float) -> Result:
    return Result("slope", {"model": "m", "w": w}, value, value - half, value + half, null_value=0.0)


def test_findings_are_named_that_turn_at_either_end_of_an_error() -> None:
    results = [of_w("date", 1.0, 0.5), of_w("place", 0.3, 0.4), of_w("month", 1.0, 0.5), of_w("day", 1.0, 0.5)]
    errors = {"date": (-0.1, 0.6), "place": (-0.3, 0.1), "month": (-0.1, 0.3), "day": (1.9, 2.1)}
    rows = [{"w": w, "difference": sum(ends) / 2, "low": ends[0], "high": ends[1]} for w, ends in errors.items()]
    told, table = judged(results, rows)
    assert told["unstable"] == ["date drifts by 1.00", "place drifts by 0.30", "day drifts by 1.00"]
    assert table["unstable"].tolist() == [True, True, False, True]
    assert table["difference_over_halfwidth"].tolist() == pytest.approx([1.2, 0.75, 0.6, 4.2])
    assert "3 findings could change" in told["sentences"][-1]
    assert "420%" in told["sentences"][0]


def of_dimension(name: str, value: float, half: float) -> Result:
    group = {"model": "m", "dimension": name, "shots": "0", "sampling": "none", "decoding": "greedy"}
    detail = {"cells": 1.0}
    return Result("token_f1", group, value, value - half, value + half, null_value=9.0, n=400, extras=detail)


def row_of(result: Result, error: float) -> dict[str, Any]:
    return {"measure": result.measure, **result.group, "difference": error, "low": error, "high": error}


@pytest.mark.parametrize(("error", "turns"), [(0.3, False), (25.0, True), (-25.0, False)])
def test_a_finding_of_the_best_and_the_worst_turns_where_their_difference_does(error: float, turns: bool) -> None:
    """Both are many half intervals from what the best baseline has, before and after."""
    best, worst = of_dimension("age", 60.0, 5.0), of_dimension("gender", 40.0, 3.0)
    group = {**best.group, "dimension": "all"}
    detail = {"n_dimensions": 2.0, "claim_low": 12.0, "claim_high": 28.0}
    gap = Result(
        "dimension_gap", group, 20.0, 12.0, 28.0, null_value=0.0, p=1e-6, q=1e-6, extras=detail, note="age less gender"
    )
    rows = [row_of(best, 0.0), row_of(worst, 0.0), row_of(gap, error)]
    told, table = judged([best, worst, gap], rows, audits.load("bias-extraction"))
    named = [text for text in told["unstable"] if "age (60.0%) scores higher than gender" in text]
    assert bool(named) is turns
    assert table["unstable"].tolist() == [False, False, turns]
    assert (told["sentences"][-1] == NONE_TURNED) is not turns


@pytest.mark.parametrize(("error", "turns"), [(0.4, False), (0.6, True)])
def test_a_finding_that_ranks_models_turns_where_their_order_does(error: float, turns: bool) -> None:
    """A drift of either is claimed all the time; which model has the larger one is not."""
    group = {"challenge": "mgc", "w_name": "date", "pronoun": "female-male", "prompt": ""}
    gaps = [
        Result("slope_gap", {"model": name, **group}, value, value - 0.1, value + 0.1, null_value=0.0, p=1e-9, q=1e-9)
        for name, value in (("m-70m", 2.0), ("m-160m", 1.5))
    ]
    ranks = SimpleNamespace(findings=lambda seen, results: comparison_findings(results, seen.frame, seen.design))
    told, _ = judged(gaps, [row_of(gaps[0], error), row_of(gaps[1], 0.0)], ranks)
    assert [text.partition(" percentage")[0] for text in told["unstable"]] == [
        "Over 2 models, female-male moves most with date in m-70m, by 2.0"
    ] * turns


def test_models_of_one_slope_share_the_place_and_a_single_prompt_is_named() -> None:
    group = {"challenge": "mgc", "w_name": "date", "pronoun": "female-male"}
    a, b, c = (
        Result("slope_gap", {"model": name, **group, "prompt": prompt}, value, null_value=0.0, p=1e-9, q=1e-9)
        for name, value, prompt in (("a", 2.0, ""), ("b", -2.0, "A"), ("c", 0.5, ""))
    )

    def told(*gaps: Result) -> str:
        (finding,) = comparison_findings(gaps, pd.DataFrame({"model": list("abc")[: len(gaps)]}), {})
        return finding.text

    assert "moves most with date in a and b by prompt A, by 2" in told(a, b, c)
    assert "and least in c, by 0.5" in told(a, b, c)
    # Of other lists, the change over its own list ranks a model; one without a test is left out.
    text = told(a, replace(c, extras={"first": 0.0, "last": 9.0}), replace(b, value=99.0, p=math.nan))
    assert "moves most with date in c, by 9.0 percentage points over the whole list, and least in a, by 2" in text
    assert "moves equally far with date" in told(a, b)
    assert "but not in the same direction" in told(a, b)
    assert "most" not in told(a, b)


def test_a_result_that_the_sample_lacks_has_the_largest_error_of_its_measure() -> None:
    missing = math.nan
    rows = [
        {"w": "date", "difference": 0.1, "low": -0.1, "high": 0.3},
        {"w": "place", "difference": 0.7, "low": missing, "high": missing},
    ]
    told, table = judged([of_w("date", 1.0, 0.5), of_w("place", 1.0, 0.5), of_w("month", 1.0, 0.5)], rows)
    assert told["unstable"] == ["place drifts by 1.00", "month drifts by 1.00"]
    assert table["unstable"].tolist() == [False, True]
    assert told["unknown_results"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("audit", briefly(sorted(audits.names(), key="spurious-correlation".__ne__)))
def test_every_audit_can_be_read_again_in_part(audit: str, plant: Plant, tmp_path: Path) -> None:
    """The sample is of whole clusters, and each precision follows its own answers, which are kept."""
    small: dict[str, Any] = {"wordings": 1, "limit": 100} if audit.startswith("bias-") else {"limit": 200}
    if audit == "occupation-checklist":
        small = {"n_pairs": 4, "n_occupations": 3, "wordings": 1}
    planted = plant(lambda query, answer: replace(answer, logprobs_nats=answer.logprobs_nats[::-1]))
    found = undertow.audit(audit, "planted", dtype="bfloat16", float32_sample=40, out=tmp_path / "run", **small)
    told = part(found)
    assert not told.get("unknown")
    assert 2 <= told["clusters"] < told["of_clusters"]
    asked = {query_digest(query) for query in planted.asked["bfloat16"]}
    again = {query_digest(query) for query in planted.asked["float32"]}
    assert len(planted.asked["float32"]) == len(again)
    assert planted.opened[0] == "bfloat16"
    assert "bfloat16" not in planted.opened[planted.opened.index("float32") :], "its answers are in the store"
    table = found.record.precision
    assert table is not None
    assert table["difference"].notna().any()
    planted.asked["float32"].clear()
    full = undertow.audit(audit, "planted", out=tmp_path / "full", **small)
    assert full.record.precision is None
    assert "precision" not in full.manifest
    fresh = {query_digest(query) for query in planted.asked["float32"]}
    assert not fresh & again, "answers in float32 were kept, and are not asked for again"
    if audit == "occupation-checklist":  # what is asked in its second round depends on the first
        assert again - asked
        assert len(fresh) + len(again) == full.manifest["counts"]["queries"]
    else:
        assert again < asked


@pytest.mark.page
@pytest.mark.slow
def test_a_run_keeps_what_its_precision_costs(plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(steeper(-4.2))
    first = run(tmp_path)
    before = (tmp_path / "run" / PRECISION).read_bytes()
    html = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert '<section id="precision">' in html
    assert read_record(tmp_path / "run").precision is not None

    # Opened again: nobody is asked or measured.
    make_quick(monkeypatch)
    planted = plant(steeper(-4.2))
    opened = run(tmp_path)
    assert planted.opened == []
    assert opened.manifest["precision"]["sentences"] == first.manifest["precision"]["sentences"]
    kept_block = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))["precision"]
    assert opened.manifest["precision"] == kept_block

    # Measured again, with another seed, and told again: what was read again stays.
    again = undertow.score(tmp_path / "run", seed=3, out=tmp_path / "again")
    # But for how it stands to the intervals of the run, which another seed draws again.
    of_interval = {"difference_over_halfwidth": None}
    assert part(again) | of_interval == part(opened) | of_interval
    kept, own = again.record.precision, first.record.precision
    assert kept is not None
    assert own is not None
    numbers = ["reduced_value", "float32_value", "difference", "low", "high"]
    pd.testing.assert_frame_equal(kept[["measure", "pronoun", *numbers]], own[["measure", "pronoun", *numbers]])
    undertow.score(tmp_path / "run")
    assert (tmp_path / "run" / PRECISION).read_bytes() == before
    make_quick(monkeypatch, page=True)
    undertow.render_report(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").read_text("utf-8") == html


@pytest.mark.page
@pytest.mark.parametrize("how", briefly(["no room", "refused"]))
def test_what_cannot_be_read_again_is_warned_of(
    how: str, plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "free_bytes", lambda kind, device: 10**9)
    parameters = 7e9 if how == "no room" else 1e6
    planted = plant(
        steeper(0.2), facts={"parameters": parameters}, refused="planted: does not fit into memory; free some"
    )
    found = run(tmp_path)
    why = "loading it takes about 56.0 GB in float32, and 1.0 GB are free" if how == "no room" else planted.refused
    assert part(found)["unknown"] == why
    sentence = f"planted ran in bfloat16, and the effect on the results is unknown: {why}"
    assert found.manifest["precision"]["sentences"] == [f"Warning: {sentence}."]
    assert sentence in found.manifest["notes"]
    assert found.record.precision is None
    assert planted.opened == ["bfloat16"] + ["float32"] * (how == "refused")
    assert sentence.replace("'", "&#39;") in (tmp_path / "run" / "report.html").read_text("utf-8")
    make_quick(monkeypatch)
    again = undertow.score(tmp_path / "run")
    assert again.manifest["precision"] == found.manifest["precision"]


@pytest.mark.slow
def test_a_tiny_network_in_bfloat16(network: Callable[[str], str], tmp_path: Path) -> None:
    """All of it is read again: the errors are those of two runs, one in each precision."""
    name = network("tiny_llama")
    small: dict[str, Any] = {"w": "date", "date_count": 4, "limit": 48, "device": "cpu"}
    found = undertow.audit(AUDIT, name, dtype="bfloat16", float32_sample=48, out=tmp_path / "run", **small)
    told = part(found)
    assert (found.manifest["model_identity"]["dtype"], told["items"]) == ("bfloat16", 48)
    assert 0 < told["rms_nats"] <= told["largest_nats"] < 5
    full = undertow.audit(AUDIT, name, out=tmp_path / "full", **small)
    assert full.manifest["counts"]["computed"] == 0, "what was read again is kept for it"
    assert full.manifest["model_identity"]["dtype"] == "float32"
    both = found.results["value"] - full.results["value"]
    table = found.record.precision
    assert table is not None
    assert table["difference"].to_numpy() == pytest.approx(both.to_numpy(), abs=1e-9, nan_ok=True)
    assert table["difference"].abs().max() > 0
    known = table["difference"].notna()
    assert (table["low"] == table["difference"])[known].all()
    assert "all 48 items were scored again" in found.manifest["precision"]["sentences"][0]
