"""`undertow compare` through the command line, on runs of the toy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_commands import Workplace

from conftest import Cli
from refusal import refused

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %}",
    "</title><b>bold</b>",
    "=cmd|' /C calc'!A0 & co",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and the same of a model that leans towards women and drifts more."""
    work = Workplace(tmp_path_factory.mktemp("runs"))
    work("run", "spurious-correlation", "-m", "toy", "--limit", "300", "--out", "first")
    renamed(work.folder / "first", work.folder / "second", "other")
    lean(work.folder / "second")
    work("run", "spurious-correlation", "-m", "toy", "--challenge", "mgt", "--limit", "90", "--out", "another")
    work("run", "task-specification", "-m", "toy", "--limit", "40", "--out", "tasks")
    return work.folder


def renamed(source: Path, target: Path, model: str) -> None:
    """The run of a model of another name."""
    shutil.copytree(source, target)
    for name in ("manifest.json", "results.json"):
        path = target / name
        path.write_text(path.read_text(encoding="utf-8").replace('"toy"', json.dumps(model)), encoding="utf-8")
    manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
    (target / "manifest.json").write_text(json.dumps(manifest | {"run_key": f"of {model}"}), encoding="utf-8")
    frame = pd.read_parquet(target / "observations.parquet")
    frame.assign(model=model).to_parquet(target / "observations.parquet", index=False)


def lean(folder: Path) -> None:
    path = folder / "observations.parquet"
    frame = pd.read_parquet(path)
    own = np.random.default_rng(0).uniform(1.0, 2.0, frame["cluster"].nunique())[pd.factorize(frame["cluster"])[0]]
    moved = frame[["female", "male", "neutral"]].mul([1, 1, 1])
    moved["female"] = frame["female"] * own * (1 + frame["w_index"] / 20)
    frame[["female", "male", "neutral"]] = moved.mul(100 / moved.sum(axis=1), axis=0)
    frame.to_parquet(path, index=False)


def test_the_strongest_differences_are_told_first(runs: Path, cli: Cli) -> None:
    told = cli("compare", "first", "second", "--out", "told", cwd=runs)
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    lines = told.stdout.splitlines()
    found = [line for line in lines if line.startswith("* ")]
    assert found
    assert "in other (" in found[0]
    assert "than in toy (" in found[0]
    assert "95% interval of the difference" in found[0]
    assert any(line.startswith("- Of ") and "cannot be told from zero" in line for line in lines)
    assert "what\ttoy\tother\tdifference\t95% interval\tq\tfound" in lines
    assert lines[-1] == f"Report: {(runs / 'told/comparison.html').resolve()}"
    assert {path.name for path in (runs / "told").iterdir()} == {"comparison.html", "comparison.csv", "comparison.json"}


def test_json_is_the_file_and_where_it_is(runs: Path, cli: Cli) -> None:
    told = json.loads(cli("compare", "first", "second", "--json", "--seed", "3", cwd=runs).stdout)
    assert told["folder"].startswith("runs/comparison_first_second_")
    kept = json.loads((runs / told["folder"] / "comparison.json").read_text(encoding="utf-8"))
    assert told["comparisons"] == kept["comparisons"]
    assert told["seed"] == 3
    differences = told["comparisons"][0]["differences"]
    assert {"slope", "slope_gap", "mean_mass", "pearson_r"} <= {one["measure"] for one in differences}
    assert any(one["low"] is None and one["note"] for one in differences)


def test_a_run_with_itself_reports_no_difference(runs: Path, cli: Cli) -> None:
    told = cli("compare", "first", "first", "--out", "itself", cwd=runs)
    assert told.returncode == 0, told.stderr
    assert "differences are 0." in told.stdout
    assert "* " not in told.stdout
    rows = json.loads((runs / "itself/comparison.json").read_text(encoding="utf-8"))["comparisons"][0]["differences"]
    assert {(one["value"], one["low"], one["high"], one["p"]) for one in rows if one["value"] is not None} == {
        (0, 0, 0, 1)
    }


def test_more_than_two_are_held_against_the_first(runs: Path, cli: Cli) -> None:
    told = json.loads(cli("compare", "first", "second", "first", "--out", "three", "--json", cwd=runs).stdout)
    names = [(one["baseline"]["name"], one["candidate"]["name"]) for one in told["comparisons"]]
    assert names == [("first", "other"), ("first", "first (again)")]
    assert [one["identical"] for one in told["comparisons"]] == [False, True]


def test_what_cannot_be_compared_is_refused(runs: Path, cli: Cli) -> None:
    refused(cli("compare", "first", cwd=runs), "two run folders or more")
    refused(cli("compare", "first", "nowhere", cwd=runs), "nowhere", "there is no such run folder")
    refused(cli("compare", "first", "tasks", cwd=runs), "a run of spurious-correlation", "one of task-specification")
    refused(cli("compare", "first", "another", cwd=runs), "cannot be compared", "challenge")
    refused(cli("compare", "first", "second", "--seed", "-1", cwd=runs), "seed -1 is negative")
    refused(cli("compare", "first", "second", "--out", "first", cwd=runs), "holds no comparison")
    refused(cli("compare", "first", "second", "--out", "x" * 300, cwd=runs), "File name too long", "--out")
    assert not (runs / "runs" / "comparison_first_another").exists()


def test_a_folder_whose_name_is_no_text_is_compared(runs: Path, cli: Cli, tmp_path: Path) -> None:
    odd = tmp_path / "r\udcff"
    shutil.copytree(runs / "first", odd)
    told = cli("compare", str(runs / "first"), str(odd), "--out", str(tmp_path / "out"))
    assert told.returncode == 0, told.stderr
    assert "differences are 0." in told.stdout
    assert "r?" in (tmp_path / "out/comparison.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_names_are_shown_as_text(payload: str, runs: Path, cli: Cli, tmp_path: Path) -> None:
    renamed(runs / "first", tmp_path / "odd", payload)
    lean(tmp_path / "odd")
    told = cli("compare", str(runs / "first"), str(tmp_path / "odd"), "--out", str(tmp_path / "out"))
    assert told.returncode == 0, told.stderr
    assert payload in told.stdout
    html = (tmp_path / "out/comparison.html").read_text(encoding="utf-8")
    for tag in ("<script>alert", "<img src=x", "<b>bold"):
        assert tag not in html
    assert "49 {" not in html, "a template in a name is not filled in"
