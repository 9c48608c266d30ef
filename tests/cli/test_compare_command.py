from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.cli_refusal import refused
from helpers.workplace import Workplace, shared


@pytest.fixture(scope="module")
def work(shared_base: Path) -> Workplace:
    """A run, the same of a model that leans towards women and drifts more, and a run of another audit."""

    def make(work: Workplace) -> None:
        work("run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "180", "--out", "first")
        leaning(work.folder / "first", work.folder / "second", "other")
        work("run", "task-specification", "-m", "toy", "--limit", "40", "--out", "tasks")

    return shared(shared_base, "compare", make)


def leaning(source: Path, target: Path, model: str) -> None:
    shutil.copytree(source, target)
    for name in ("manifest.json", "results.json"):
        path = target / name
        path.write_text(path.read_text(encoding="utf-8").replace('"toy"', json.dumps(model)), encoding="utf-8")
    manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
    del manifest["results_sha256"]
    (target / "manifest.json").write_text(json.dumps(manifest | {"run_key": f"of {model}"}), encoding="utf-8")
    frame = pd.read_parquet(target / "observations.parquet").assign(model=model)
    own = np.random.default_rng(0).uniform(1.0, 2.0, frame["cluster"].nunique())[pd.factorize(frame["cluster"])[0]]
    moved = frame[["female", "male", "neutral"]].copy()
    moved["female"] = frame["female"] * own * (1 + frame["w_index"] / 20)
    frame[["female", "male", "neutral"]] = moved.mul(100 / moved.sum(axis=1), axis=0)
    frame.to_parquet(target / "observations.parquet", index=False)


@pytest.mark.slow
def test_strongest_differences_are_told_first(work: Workplace) -> None:
    lines = work("compare", "first", "second", "--out", "told").stdout.splitlines()
    found = [at for at, line in enumerate(lines) if line.startswith("* ")]
    assert any("in other than in toy: " in lines[at] for at in found)
    assert all("95% interval of the difference" in lines[at + 1] and "margin" in lines[at + 1] for at in found[:3])
    assert any(line.startswith("- Of ") for line in lines)
    assert "what\ttoy\tother\tdifference\t95% interval\tmargin\tq\tverdict" in lines
    assert lines[-1] == f"Report: {(work.folder / 'told/comparison.html').resolve()}"
    names = {"comparison.html", "comparison.csv", "comparison.json"}
    assert {path.name for path in (work.folder / "told").iterdir()} == names


@pytest.mark.slow
def test_json_is_the_file_and_where_it_is(work: Workplace) -> None:
    told = work.json("compare", "first", "second", "--seed", "3", "--margin", "1", "--margin", "slope=0.5,pearson_r=0")
    assert told["folder"].startswith("runs/comparison_first_second_")
    kept = json.loads((work.folder / told["folder"] / "comparison.json").read_text(encoding="utf-8"))
    assert told["comparisons"] == kept["comparisons"]
    assert told["seed"] == 3
    differences = told["comparisons"][0]["differences"]
    assert {"slope", "slope_gap", "mean_mass", "pearson_r"} <= {one["measure"] for one in differences}
    assert any(one["low"] is None and one["note"] for one in differences)
    assert told["margins"] == ["1", "slope=0.5", "pearson_r=0"]
    margins = {one["measure"]: one["extras"].get("margin") for one in differences if one["value"] is not None}
    assert {name: margins[name] for name in ("slope", "slope_gap", "pearson_r")} == {
        "slope": 0.5, "slope_gap": 1, "pearson_r": 0,
    }  # fmt: skip
    assert all(one["significant"] == (one["verdict"] == "differs by more than the margin") for one in differences)
    html = (work.folder / told["report"]).read_text(encoding="utf-8")
    assert "--margin 1,slope=0.5,pearson_r=0" in html


def test_relate_lists_models_with_drift_and_size(work: Workplace) -> None:
    given = ("scaling", "tasks", "first", "--size", "toy=1e6")
    told = work.json(*given)
    (drift,) = [
        row["value"]
        for row in work.results("first")
        if row["measure"] == "slope_gap" and row["group"]["w_name"] == "date"
    ]
    assert {(row["model"], row["size"], row["slope_gap"]) for row in told["models"]} == {("toy", 1e6, abs(drift))}
    assert {row["rank correlation"] for row in told["relations"]} == {None}
    assert "rank correlation" in work(*given).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "first"], ["two run folders"]),
        (["compare", "first", "second", "--margin", "slop=1"], ["'slop'", "'slope'"]),
        (["compare", "first", "nowhere"], ["nowhere"]),
        (["compare", "first", "second", "--out", "first"], ["first"]),
        (["scaling", "first"], ["AUROC", "task-specification"]),
        (["scaling", "tasks", "--size", "toy"], ["--size 'toy'"]),
        (["scaling", "tasks", "--size", "tay=1"], ["'tay'", "toy"]),
        (["scaling", "tasks", "second", "--size", "other=1"], ["'other'", "no AUROC"]),
    ],
)
def test_what_cannot_be_compared_or_related_is_refused(arguments: list[str], words: list[str], work: Workplace) -> None:
    refused(work.attempt(*arguments), *words)
