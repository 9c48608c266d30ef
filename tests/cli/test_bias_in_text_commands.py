"""The audits of bias in text as a user types them: what is printed of wordings and documents, runs of the toy, refusals."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from test_commands import Workplace

from conftest import Cli
from refusal import refused
from undertow import audit, probes
from undertow import cli as command_line
from undertow.challenge.descriptions import TASKS

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = TASKS
COUNTS = {
    DIAGNOSIS: "3 wordings: question 2, null 1",
    IDENTIFICATION: "109 wordings: statement 24, question 12, completion 72, null 1",
    EXTRACTION: "163 wordings: statement 36, question 18, completion 108, null 1",
    REPHRASING: "109 wordings: statement 12, question 6, completion 36, null 1, dimension 54",
}
OWN = '[bias-identification.instruction]\ntext = "Name the {noun}.\\nAnswer:"\nslots = { noun = ["bias", "slur, here"] }\n'

Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Main:
    """A command in this process, in an empty folder, without figures and page: status, and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "tell_with", lambda *_: lambda folder: None)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["undertow", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def said(printed: tuple[int, str, str]) -> str:
    assert (printed[0], printed[2]) == (0, ""), printed[2]
    return printed[1]


def one_sentence(printed: tuple[int, str, str], *words: str) -> None:
    status, out, error = printed
    assert (status, out) == (1, "")
    assert error.startswith("undertow: ")
    assert error.count("\n") == 1
    for word in words:
        assert word in error, error


# Wordings and documents.


@pytest.mark.parametrize("task", TASKS)
def test_the_wordings_of_a_task_are_printed_in_three_ways(task: str, main: Main) -> None:
    lines = said(main("challenge", task, "--descriptions")).splitlines()
    assert lines[0].split("\t") == ["class", "number", "text", "slots"]
    assert lines[-1] == COUNTS[task]
    rows = json.loads(said(main("challenge", task, "--descriptions", "--json")))
    assert [row["text"] for row in rows] == [line.split("\t")[2] for line in lines[1:-1]]
    counts = Counter(row["class"] for row in rows)
    assert COUNTS[task].partition(": ")[2] == ", ".join(f"{name} {n}" for name, n in counts.items())
    table = list(csv.DictReader(io.StringIO(said(main("challenge", task, "--descriptions", "--csv")))))
    assert table == rows


def test_wordings_of_ones_own_are_printed_behind_the_papers(main: Main, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    given = ["challenge", IDENTIFICATION, "--descriptions", "--description-file", "own.toml"]
    assert said(main(*given)).splitlines()[-1] == f"{COUNTS[IDENTIFICATION].replace('109', '111')}, instruction 2"
    rows = json.loads(said(main(*given, "--json")))
    assert rows[-2:] == [
        {"class": "instruction", "number": "1", "text": "Name the bias. / Answer:", "slots": "noun: bias"},
        {"class": "instruction", "number": "2", "text": "Name the slur, here. / Answer:", "slots": "noun: slur, here"},
    ]
    (tmp_path / "own.toml").write_text("[bias-identification")
    one_sentence(main(*given), "own.toml")


@pytest.mark.parametrize("name", ["undertow-statements", *TASKS])
def test_documents_are_printed_in_three_ways(name: str, main: Main) -> None:
    lines = said(main("challenge", name)).splitlines()
    assert lines[-1] == "222 documents"
    assert len(lines) == 224
    rows = json.loads(said(main("challenge", name, "--json")))
    assert list(rows[0]) == ["id", "split", "biased", "dimension", "span", "rephrasing", "text"]
    assert Counter((row["split"], row["biased"]) for row in rows) == {
        ("evaluation", "yes"): 66, ("evaluation", "no"): 66, ("train", "yes"): 45, ("train", "no"): 45,
    }  # fmt: skip
    assert list(csv.DictReader(io.StringIO(said(main("challenge", name, "--csv"))))) == rows


def test_a_table_of_ones_own_is_printed(main: Main, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("text,biased,dimension\nTall people win.,yes,height\nRain.,no,\n")
    lines = said(main("challenge", "own.csv")).splitlines()
    assert lines[1].split("\t") == ["line 2", "evaluation", "yes", "height", "", "", "Tall people win."]
    assert lines[-1] == "2 documents"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["undertow-statments"], ["'undertow-statments'"]),
        (["undertow-statements", "--descriptions"], ["no task called 'undertow-statements'", DIAGNOSIS]),
        (["bias-identificaton", "--descriptions"], ["'bias-identificaton'", IDENTIFICATION]),
        ([IDENTIFICATION, "--descriptions", "--w", "date"], ["--w is for sentences with a blank"]),
        (["undertow-statements", "--options", "a: b"], ["--options is for sentences with a blank"]),
        ([IDENTIFICATION, "--descriptions", "--description-file", "nosuch.toml"], ["nosuch.toml"]),
    ],
)
def test_what_cannot_be_printed_is_refused(arguments: list[str], words: list[str], main: Main) -> None:
    one_sentence(main("challenge", *arguments), *words)


def test_the_audits_and_documents_are_listed(main: Main) -> None:
    rows = json.loads(said(main("ls", "probes", "--json")))
    assert {row["probe"] for row in rows} >= set(TASKS)
    challenges = json.loads(said(main("ls", "challenges", "--json")))
    assert "undertow-statements" in {row["challenge"] for row in challenges}


@pytest.mark.parametrize("task", TASKS)
def test_help_has_every_option_of_the_task(task: str, main: Main) -> None:
    printed = " ".join(said(main("run", task, "--help")).split())
    for option in fields(probes.load(task).Settings):
        assert f"--{option.name.replace('_', '-')}" in printed


# Runs.


@pytest.mark.parametrize(
    ("task", "n_items"), [(DIAGNOSIS, 12), (IDENTIFICATION, 436), (EXTRACTION, 156), (REPHRASING, 68)]
)
def test_a_run_of_the_toy(task: str, n_items: int, main: Main, tmp_path: Path) -> None:
    lines = said(main("run", task, "-m", "toy", "--documents", "4", "--out", "run")).splitlines()
    assert lines[0] == f"Asked {n_items} items ({n_items} of {n_items} queries computed now, 0 unscored)."
    assert lines[1].startswith(("* ", "- "))
    assert "Without examples, decoding" in lines[1]
    assert any("of the paper: toy" in line for line in lines)
    frame = pd.read_parquet(tmp_path / "run/observations.parquet")
    assert frame["document"].nunique() == 4
    assert set(frame["task"]) == {task}
    again = json.loads(said(main("run", task, "-m", "toy", "--documents", "4", "--out", "again", "--json")))
    assert again["counts"]["computed"] == 0
    assert again["counts"]["items"] == n_items
    assert (tmp_path / "again/results.json").read_bytes() == (tmp_path / "run/results.json").read_bytes()


def test_a_run_with_every_option(main: Main, tmp_path: Path) -> None:
    given = [
        "--challenge", "undertow-statements", "--documents", "3", "--classes", "statement,null", "--wordings", "2", "--shot-wordings", "1",
        "--shots", "0,2", "--draws", "2", "--decoding", "span,span-exact", "--temperature", "0.7", "--top-k", "5", "--line-ends", "--chat",
        "--seed", "4",
    ]  # fmt: skip
    said(main("run", EXTRACTION, "-m", "toy", *given, "--out", "run"))
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    words = manifest["command"].split()
    for option, value in pairwise(given):
        if option.startswith("--") and option not in ("--challenge", "--line-ends", "--chat"):
            assert words[words.index(option) + 1] == value
    assert {"--line-ends", "--chat"} <= set(words)
    assert manifest["design"]["sampled"] is True
    frame = pd.read_parquet(tmp_path / "run/observations.parquet")
    assert set(frame["decoding"]) == {"span, T 0.7", "span-exact"}
    # Two statements and none without examples; one statement and none behind two, drawn twice.
    assert len(frame) == 3 * 2 * (3 + 2 * 2)
    assert set(frame["draw"]) == {0, 1}


def test_two_models_in_one_run(main: Main, tmp_path: Path) -> None:
    said(main("run", DIAGNOSIS, "-m", "toy", "-m", "toy:slope=3", "--documents", "6", "--out", "run"))
    results = json.loads((tmp_path / "run/results.json").read_text())["results"]
    assert {row["group"]["model"] for row in results if row["measure"] == "accuracy"} == {"toy", "toy:slope=3", ""}


@pytest.mark.parametrize("task", TASKS)
def test_a_dry_run_says_what_it_takes_and_keeps_nothing(task: str, main: Main, tmp_path: Path) -> None:
    estimate = json.loads(said(main("run", task, "-m", "toy", "--documents", "2", "--dry-run", "--json")))
    assert estimate["n_queries"] == estimate["n_distinct"] > 0
    assert estimate["n_stored"] == 0
    assert list(tmp_path.iterdir()) == []
    lines = said(main("run", task, "-m", "toy", "--documents", "2", "--dry-run")).splitlines()
    assert lines[0].startswith(f"{estimate['n_queries']:,} queries")


@pytest.mark.parametrize(
    ("task", "arguments", "words"),
    [
        (DIAGNOSIS, ["--shots", "many"], ["--shots 'many'", "0,5,10,20"]),
        (IDENTIFICATION, ["--classes", "statments"], ["--classes 'statments'", "statement, question, completion, null"]),
        (IDENTIFICATION, ["--sampling", "oracle"], ["--sampling 'oracle'"]),
        (EXTRACTION, ["--decoding", "spans"], ["--decoding 'spans'", "unconstrained, document, span, span-exact"]),
        (EXTRACTION, ["--temperature", "-1"], ["--temperature -1.0"]),
        (REPHRASING, ["--top-k", "-1"], ["--top-k -1"]),
        (REPHRASING, ["--draws", "0"], ["--draws 0"]),
        (REPHRASING, ["--rephrasings", "nosuch.tsv"], ["nosuch.tsv"]),
        (DIAGNOSIS, ["--description-file", "nosuch.toml"], ["nosuch.toml"]),
        (DIAGNOSIS, ["--challenge", "nosuch"], ["'nosuch'"]),
        (DIAGNOSIS, ["--protocol", "paper"], ["'paper'"]),
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_refused(
    task: str, arguments: list[str], words: list[str], main: Main, tmp_path: Path
) -> None:
    one_sentence(main("run", task, "-m", "toy", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_answers_from_elsewhere_are_measured(main: Main, tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("document,gold,answer\na,Yes,Yes\nb,No,Yes\nc,No,\n")
    lines = said(main("score", "answers.csv", "--probe", DIAGNOSIS, "--out", "run")).splitlines()
    assert lines[0].startswith("- Without examples, decoding recorded: Accuracy is 33.3%")
    results = json.loads((tmp_path / "run/results.json").read_text())["results"]
    (accuracy,) = [row for row in results if row["measure"] == "accuracy" and row["group"]["model"]]
    assert math.isclose(accuracy["value"], 100 / 3)
    one_sentence(main("score", "answers.csv", "--probe", EXTRACTION, "--protocol", "paper"), "leave --protocol out")
    (tmp_path / "answers.csv").write_text("document,gold\na,Yes\n")
    one_sentence(main("score", "answers.csv", "--probe", DIAGNOSIS), "has no column answer")


@pytest.mark.soak
def test_a_whole_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    """With figures, page and tables, as a user has it; then told and measured anew."""
    work = Workplace(tmp_path)
    printed = work.json(
        "run", DIAGNOSIS, "-m", "toy", "--documents", "6", "--shots", "0,2", "--draws", "1", "--out", "run"
    )
    assert printed["counts"]["items"] == 6 * 3 * 2
    names = ["figures", "manifest.json", "observations.parquet", "report.html", "results.csv", "results.json", "tables"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    assert sorted(path.name for path in (tmp_path / "run/tables").iterdir()) == ["confusion.csv", "slots.csv"]
    assert (
        len(list((tmp_path / "run/figures").glob("*.svg"))) == len(list((tmp_path / "run/figures").glob("*.png"))) == 5
    )
    results = (tmp_path / "run/results.json").read_bytes()
    work("score", "run")
    assert (tmp_path / "run/results.json").read_bytes() == results
    work("report", "run")
    assert "Table 4 of the paper" in (tmp_path / "run/report.html").read_text()


def test_a_refusal_in_a_process_of_its_own(cli: Cli) -> None:
    refused(cli("run", EXTRACTION, "-m", "toy", "--temperature", "nan"), "--temperature nan")
