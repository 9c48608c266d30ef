"""`undertow relate` through the command line, on runs of the toy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_commands import Workplace

from conftest import Cli
from refusal import refused

TOY = ("-m", "toy", "--limit", "90")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of either audit."""
    work = Workplace(tmp_path_factory.mktemp("runs"))
    for probe in ("task-specification", "spurious-correlation"):
        work("run", probe, *TOY, "--out", probe)
    return work.folder


def test_models_are_listed_with_drift_and_size(runs: Path, cli: Cli, cli_process: Cli) -> None:
    given = ("relate", "task-specification", "spurious-correlation", "--size", "toy=1e6")
    told = json.loads(cli_process(*given, "--json", cwd=runs).stdout)
    rows = json.loads((runs / "spurious-correlation/results.json").read_text(encoding="utf-8"))["results"]
    (drift,) = [row["value"] for row in rows if row["measure"] == "slope_gap" and row["group"]["w_name"] == "date"]
    assert {row["model"] for row in told["models"]} == {"toy"}
    assert {row["size"] for row in told["models"]} == {1e6}
    assert {row["slope_gap"] for row in told["models"]} == {abs(drift)}
    assert {row["rank correlation"] for row in told["relations"]} == {None}
    assert "rank correlation" in cli(*given, cwd=runs).stdout


def test_what_cannot_be_related_is_refused(runs: Path, cli: Cli) -> None:
    refused(cli("relate", "spurious-correlation", cwd=runs), "none of these runs holds an AUROC", "task-specification")
    refused(cli("relate", "task-specification", "--size", "toy", cwd=runs), "--size 'toy'", "model=number")
    refused(cli("relate", "task-specification", "--size", "tay=1", cwd=runs), "--size names 'tay'", "they asked toy")
    refused(cli("relate", "nowhere", cwd=runs), "nowhere")
