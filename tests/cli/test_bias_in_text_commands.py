from __future__ import annotations

import csv
import io
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

import undertow
from conftest import Cli
from helpers.cli_refusal import said

EXTRACTION = "bias-extraction"


def printed(cli: Cli, *arguments: str) -> tuple[list[str], list[dict[str, str]]]:
    """What a command prints as lines, and the rows that it prints alike as JSON and as CSV."""
    rows: list[dict[str, str]] = json.loads(said(cli(*arguments, "--json")))
    assert list(csv.DictReader(io.StringIO(said(cli(*arguments, "--csv"))))) == rows
    return said(cli(*arguments)).splitlines(), rows


def test_the_wordings_of_a_task_are_printed_in_three_ways(cli: Cli) -> None:
    lines, rows = printed(cli, "challenge", EXTRACTION, "--descriptions")
    assert lines[0].split("\t") == ["class", "number", "text", "slots"]
    assert lines[-1] == "163 wordings: statement 36, question 18, completion 108, null 1"
    assert [row["text"] for row in rows] == [line.split("\t")[2] for line in lines[1:-1]]
    assert Counter(row["class"] for row in rows) == {"statement": 36, "question": 18, "completion": 108, "null": 1}


@pytest.mark.parametrize("name", ["undertow-statements", EXTRACTION])
def test_documents_are_printed_in_three_ways(name: str, cli: Cli) -> None:
    lines, rows = printed(cli, "challenge", name)
    assert lines[-1] == "222 documents"
    assert len(lines) == 224
    assert list(rows[0]) == ["id", "split", "biased", "dimension", "span", "rephrasing", "text"]
    assert Counter((row["split"], row["biased"]) for row in rows) == {
        ("evaluation", "yes"): 66, ("evaluation", "no"): 66, ("train", "yes"): 45, ("train", "no"): 45,
    }  # fmt: skip


def test_a_run_with_every_option(cli: Cli, tmp_path: Path) -> None:
    given = [
        "--challenge", "undertow-statements", "--n-documents", "3", "--classes", "statement,null", "--wordings", "2",
        "--shot-wordings", "1", "--shots", "0,2", "--draws", "2",
        "--decoding", "span,span-exact", "--temperature", "0.7", "--top-k", "5", "--line-ends", "--chat",
        "--seed", "4",
    ]  # fmt: skip
    said(cli("run", EXTRACTION, "-m", "toy", *given, "--out", "run"))
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


@pytest.mark.parametrize(
    ("shots", "n", "columns"),
    [("0", "6", "class\tToken F1\tBLEU-4\tMETEOR\tExact match"), ("0,2", "4", "class\tmeasure")],
)
def test_a_long_run_prints_its_first_tables_and_counts_the_others(
    shots: str, n: str, columns: str, cli: Cli, tmp_path: Path
) -> None:
    options = ["--n-documents", n, "--wordings", "1", "--shots", shots, "--out", str(tmp_path / "run")]
    lines = said(cli("run", EXTRACTION, "-m", "toy", "-m", "toy:slope=-1", *options)).splitlines()
    titles = [line for line in lines if line.startswith("By class")]
    assert titles[0].startswith("By class of task description, as Table 6 of Bauer et al. 2022: toy, unconstrained")
    assert lines[lines.index(titles[0]) + 1].startswith(columns)
    assert len(lines) < 70
    further = [line for line in lines if "further tables: " in line]
    assert len(further) == 1
    run = undertow.load_run(tmp_path / "run")
    n_shown = sum(table.title in lines for table in run.tables)
    assert further[0].startswith(
        f"The report has {len(run.tables) - n_shown} further tables: {run.tables[n_shown].title}"
    )
