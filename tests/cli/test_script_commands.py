from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import undertow
from conftest import Cli
from helpers.cli_refusal import refused
from helpers.faulty_proxy import wait_until
from helpers.gate_runs import run_folder
from undertow.cli import console
from undertow.errors import LOGGER

RUN = ("run", "spurious-correlation", "-m", "toy:slope=-2", "--w", "date", "--limit", "90")


@pytest.fixture
def drift(finished_run: Callable[..., Path]) -> Path:
    return finished_run("spurious-correlation", ["toy:slope=-1", "toy:slope=-3"], w="date")


def test_show_prints_the_steepest_sentences_with_the_answers_at_both_ends(cli: Cli, drift: Path) -> None:
    said = json.loads(cli("show", str(drift), "--worst", "4", "--json").stdout)
    rows = undertow.load_run(drift).observations
    assert len(said["sentences"]) == 4
    first = said["sentences"][0]
    own = rows[(rows["model"] == first["model"]) & (rows["cluster"] == first["cluster"])].sort_values("w_value")
    lead = own["female"] - own["male"]
    assert first["slope"] == pytest.approx(np.polyfit(own["w_value"], lead, 1)[0])
    assert (first["female first"], first["male last"]) == (own["female"].iloc[0], own["male"].iloc[-1])
    assert [abs(one["effect"]) for one in said["sentences"]] == sorted(
        (abs(one["effect"]) for one in said["sentences"]), reverse=True
    )
    text = cli("show", str(drift), "--worst", "2").stdout
    assert text.startswith("spurious-correlation of toy:slope=-1, toy:slope=-3: ")
    assert first["text"] in text


@pytest.mark.parametrize(
    ("audit", "unit", "note"),
    [("bias-diagnosis", "texts", "these texts may be offensive"), ("occupation-checklist", "questions", "")],
)
def test_show_prints_the_texts_or_questions_of_the_other_audits(
    audit: str, unit: str, note: str, cli: Cli, finished_run: Callable[..., Path]
) -> None:
    folder = finished_run(audit, "toy", limit=60)
    behind = undertow.load_run(folder).sentences()
    text = cli("show", str(folder), "--worst", "3").stdout
    assert f"The 3 {unit} of {len(behind)} that " in text
    assert "Note: " + note in text if note else "Note: " not in text
    assert ("Not tested: no interval" in text) == (audit == "occupation-checklist")
    said = json.loads(cli("show", str(folder), "--worst", "3", "--json").stdout)
    assert [one["text"] for one in said["sentences"]] == behind["text"].tolist()[:3]


def test_runs_are_listed_and_a_corrupt_one_says_so(cli: Cli, tmp_path: Path) -> None:
    run_folder(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "manifest.json").write_text("{", encoding="utf-8")
    rows = {Path(one["run"]).name: one for one in json.loads(cli("list", "runs", "--json").stdout)}
    assert rows["one"]["state"] == "complete"
    assert rows["two"]["state"].startswith("corrupt: ")
    assert "no such folder" in cli("list", "runs", "nosuch").stderr


def test_environment_sets_options_and_a_log_file_has_phases_and_errors(cli: Cli, tmp_path: Path) -> None:
    done = cli(*RUN, "--out", "run", "-v", "--log-file", "log.txt", env={"UNDERTOW_SEED": "7"})
    assert undertow.load_run(tmp_path / "run").manifest["seed"] == 7
    phases = [line.removeprefix("undertow: ") for line in done.stderr.splitlines()]
    assert phases[0] == "load toy:slope=-2"
    assert "statistics of 90 items" in phases
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert all(phase in log for phase in phases)
    cli("show", "nosuch", "--log-file", "log.txt")
    assert "ERROR nosuch: there is no such run folder" in (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert not [one for one in LOGGER.handlers if "log.txt" in str(one)]
    assert cli(*RUN, "--out", "quiet", "-q").stderr == ""


def test_destructive_options_are_not_read_from_the_environment(cli: Cli, tmp_path: Path) -> None:
    assert cli(*RUN, "--out", "run").returncode == 0
    assert cli(*RUN, "--out", "run", "--seed", "3", env={"UNDERTOW_OVERWRITE": "1"}).returncode == 1
    assert undertow.load_run(tmp_path / "run").manifest["seed"] == 0
    assert "name what to delete" in cli("cache", "prune", env={"UNDERTOW_ALL": "1"}).stderr


def test_an_option_at_its_default_beside_a_preset_counts(cli: Cli, tmp_path: Path) -> None:
    options = ("--challenge", "mgt", "--preset", "paper", "--limit", "48", "--w", "date", "-m", "toy")
    assert cli("run", "spurious-correlation", *options, "--out", "paper").returncode == 0
    assert cli("run", "spurious-correlation", *options, "--date-stop", "2016", "--out", "own").returncode == 0
    stops = [undertow.load_run(tmp_path / name).manifest["settings"]["date_stop"] for name in ("paper", "own")]
    assert stops == [2001, 2016]
    assert "--date-stop 2016" in undertow.load_run(tmp_path / "own").manifest["command"]


def test_two_labels_of_one_model_are_refused_by_their_names(cli: Cli) -> None:
    done = cli("run", "spurious-correlation", "-m", "a=toy", "-m", "b=toy")
    refused(done, "model 'toy' is given 2 times, labelled a and b; give it once, with one label")


@pytest.mark.parametrize("closed", ["from the start", "later"])
def test_work_goes_on_where_standard_error_is_closed(
    closed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", None if closed == "from the start" else stream)
        monkeypatch.setattr(console, "LINE_EVERY_S", 0.01)
        with console.progress_bar(as_json=False, steps=True) as progress:
            stream.close()
            LOGGER.info("score")
            progress(1, 2)
            time.sleep(0.05)
            assert any(thread.name.startswith("progress") and thread.is_alive() for thread in threading.enumerate())


def test_without_a_terminal_a_line_comes_every_so_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.01)
    said: list[str] = []

    def heard() -> bool:
        said.append(capsys.readouterr().err)
        return "undertow: score m: 3 of 9, 0 s so far" in "".join(said)

    with console.progress_bar(as_json=True) as progress:
        LOGGER.info("score %s", "m")
        progress(3, 9)
        wait_until(heard)
