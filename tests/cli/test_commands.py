from __future__ import annotations

import csv
import io
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from helpers.cli_refusal import refused
from helpers.planted_guard import OCCUPATIONS, planted_table
from helpers.workplace import Workplace
from undertow import data, models
from undertow.cli.console import print_table
from undertow.data.challenges.challenge_file import packs

slow = pytest.mark.slow
RUN = ["run", "spurious-correlation", "-m"]
TOY = [*RUN, "toy", "--w", "date", "--limit", "90"]
CHALLENGES = [
    "mgc", "mgt", "mgt-icml", *packs(), "undertow-schemas", "simplified", "winogender", "undertow-statements", "cad",
    "occupation-checklist", "occupations", "name-pairs",
]  # fmt: skip
EXAMPLES = {
    "neopronouns": (["xe", "ze", "they"], "date", ["xe-they", "ze-they"]),
    "adjectives": (["warm", "cold"], "month", ["warm-cold"]),
    "french": (["il", "elle", "iel"], "date", ["elle-il", "iel-il"]),
}


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("audits", [*sorted(data.TASKS), "occupation-checklist", "spurious-correlation", "task-specification"]),
        ("challenges", CHALLENGES),
        ("models", ["smollm2", *(f"({name})" for name in models.families())]),
    ],
)
def test_ls_prints_a_table_and_json(what: str, names: list[str], work: Workplace) -> None:
    rows = work.json("list", what)
    assert [row[what.removesuffix("s")] for row in rows] == names
    lines = work("list", what).stdout.splitlines()
    assert lines[0].split("\t") == list(rows[0])
    assert [line.split("\t")[0] for line in lines[1:]] == names


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_without_rows_prints_nothing_and_one_with_markup_prints_it(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "dumb")
    print_table([])
    assert not capsys.readouterr().out
    print_table([{"[red]a": "[bold]1", "b\x1b[31m": "\x1b[2J"}, {"[red]a": None, "b\x1b[31m": math.nan}])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["[red]a", r"b\x1b[31m"], ["[bold]1", r"\x1b[2J"], []]
    assert all("\x1b" not in line for line in lines)


def test_challenge_is_printed_as_text_json_and_csv(work: Workplace) -> None:
    arguments = ["challenge", "mgc", "--w", "date"]
    items = data.load("mgc").items([data.load_covariate("date")])
    assert len(items) == 1800
    texts = [item.query.display_text() for item in items]  # type: ignore[union-attr]
    as_json = work.json(*arguments)
    assert [row["text"] for row in as_json["items"]] == texts
    assert as_json["groups"] == {"female": ["she"], "male": ["he"], "neutral": ["they"]}
    as_csv = list(csv.DictReader(io.StringIO(work(*arguments, "--csv").stdout)))
    assert [row["text"] for row in as_csv] == texts
    assert {"item", "w_name", "w", "w_index", "w_value", "template", "verb", "stage"} <= set(as_csv[0])
    lines = work(*arguments).stdout.splitlines()
    assert len(lines) == 1803
    assert lines[0] == "w_name\tw\ttext"
    assert lines[-1].startswith("1,800 texts; ")


ORDER_OF_PLACES = "Global Gender Gap Report 2021, largest gap first"


def test_challenge_and_a_dry_run_tell_order_and_scale_of_each_w_list_and_what_was_done_to_it(work: Workplace) -> None:
    years = ["2015", "1800", "2005", "1990", "2010", "2000", "1950", "1900"]
    (work.folder / "year.txt").write_text("\n".join(years), encoding="utf-8")
    (work.folder / "sorted.txt").write_text("\n".join(sorted(years)), encoding="utf-8")
    found: dict[Any, Any] = {}
    for w, scale, n_notes in (("place,year.txt", "", 1), ("sorted.txt", "index", 1), ("sorted.txt", "value", 0)):
        options = ["--w", w, *(["--w-scale", scale] if scale else [])]
        shown = work.json("challenge", "mgc", *options)
        found |= {(name, scale): covariate for name, covariate in shown["covariates"].items()}
        assert len(shown["w_notes"]) == n_notes
        asked = work.json(*RUN, "toy", *options, "--dry-run")
        lists = len(w.split(","))
        assert asked["notes"][lists:] == shown["w_notes"]
        lines = work("challenge", "mgc", *options).stdout.splitlines()
        assert lines[-1 - len(asked["notes"]) : -1] == asked["notes"]
        if lists == 2:
            assert [ORDER_OF_PLACES in line for line in asked["notes"][:2]] == [True, False]
    by_size = {"order": "numbers, smallest first", "unit": "", "uneven": True}
    assert found == {
        ("place", ""): {"order": ORDER_OF_PLACES, "scale": "index", "unit": "", "uneven": False},
        ("year", ""): {"order": "years, earliest first", "scale": "value", "unit": "year", "uneven": True},
        ("sorted", "index"): by_size | {"scale": "index"},
        ("sorted", "value"): by_size | {"scale": "value"},
    }
    refused(work.attempt("challenge", "mgc", "--w", "year.txt", "--w-scale", "index"), "year.txt")
    refused(work.attempt(*RUN, "toy", "--w", "place", "--w-scale", "value", "--dry-run"), "--w-scale", "place")
    refused(work.attempt("challenge", "undertow-schemas", "--w-scale", "value"), "--w-scale")


@slow
def test_run_prints_one_json_object_and_the_same_run_again_computes_nothing(work: Workplace) -> None:
    first = work.json(*TOY, "--out", "first", page=True)
    assert (first["folder"], first["report"]) == ("first", "first/report.html")
    counts = {name: first["counts"][name] for name in ("items", "queries", "computed", "missing")}
    assert counts == {"items": 90, "queries": 90, "computed": 90, "missing": 0}
    assert first["counts"]["tokens"] > 90
    assert all({"text", "significant", "strength", "results"} <= set(finding) for finding in first["findings"])
    assert (work.folder / "first/report.html").is_file()
    said = work(*TOY, "--out", "second").stdout.splitlines()
    assert said[0] == "Scored 90 items (0 of 90 queries computed now, 0 missing)."
    assert said[-1] == f"Report: {(work.folder / 'second/report.html').resolve()}"
    assert [line[2:] for line in said if line.startswith(("* ", "- "))] == [
        finding["text"] for finding in first["findings"]
    ]
    for name in ("results.json", "results.csv"):
        assert (work.folder / "second" / name).read_bytes() == (work.folder / "first" / name).read_bytes()
    # Without --out the run gets a folder named after its audit and model.
    folder = Path(work.json(*TOY)["folder"])
    assert folder.parent == Path("runs")
    assert folder.name.startswith("spurious-correlation_toy_")
    assert (work.folder / folder / "manifest.json").is_file()
    # A challenge file is in the name.
    shutil.copy(ROOT / "examples/adjectives.toml", work.folder / "my words.toml")
    named = Path(work.json(*RUN, "toy", "--challenge", "my words.toml", "--limit", "60")["folder"]).name
    assert named.startswith("spurious-correlation_toy_my-words_")


def test_dry_run_says_what_it_takes_and_does_nothing(work: Workplace) -> None:
    command = [*RUN, "toy:slope=3", "--w", "date", "--limit", "90", "--dry-run"]
    estimate = work.json(*command)
    assert (estimate["n_queries"], estimate["n_distinct"], estimate["n_stored"]) == (90, 90, 0)
    assert estimate["n_tokens"] > 90
    assert min(estimate[name] for name in ("n_passes", "seconds", "memory_bytes")) > 0
    said = work(*command).stdout.splitlines()
    assert said[0] == "90 queries, 90 of them distinct, 0 cached."
    assert f"To compute: {estimate['n_tokens']:,} tokens" in said[1]
    assert [path.name for path in work.folder.iterdir() if path.name != "cache"] == []
    assert work.json("cache", "info") == []
    work(*command[:-1], "-m", "toy", "--out", "two")
    assert "All answers are cached" in work(*command, "-m", "toy").stdout
    again = work.json(*command, "-m", "toy")
    assert (again["n_queries"], again["n_stored"], again["n_tokens"]) == (180, 180, 0)


def test_store_tells_and_forgets_what_was_named(work: Workplace) -> None:
    assert work.json("cache", "info") == []
    work(*TOY, "--out", "a")
    work(*RUN, "toy:slope=3", "--w", "date", "--limit", "60", "--out", "b")
    shelves = work.json("cache", "info")
    # Eight sentences that decide their answer are asked besides.
    assert [(shelf["model"], shelf["answers"]) for shelf in shelves] == [("toy:slope=3", 68), ("toy", 98)]
    assert work("cache", "info").stdout.startswith(str(work.folder / "cache/answers.sqlite"))
    assert work("cache", "prune", "-m", "toy").stdout == "Deleted 98 answers of 1 model\n"
    assert [shelf["model"] for shelf in work.json("cache", "info")] == ["toy:slope=3"]
    # What was written stays, and is opened; only asking again needs what was forgotten.
    assert work.json(*TOY, "--out", "a", "--overwrite")["counts"]["computed"] == 90
    assert work("cache", "prune", "-m", shelves[0]["key"]).stdout == "Deleted 68 answers of 1 model\n"
    assert work("cache", "prune", "--all").stdout == "Deleted 98 answers of 1 model\n"
    assert work.json("cache", "info") == []
    assert (work.folder / "b" / "results.json").is_file()


@slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_challenge_is_measured_and_drawn(name: str, work: Workplace) -> None:
    groups, w_name, gaps = EXAMPLES[name]
    path = str(ROOT / "examples" / f"{name}.toml")
    chosen = data.load(path)
    printed = work.json(*RUN, "toy", "--challenge", path, "--out", name, page=name == "neopronouns")
    assert printed["counts"]["items"] == printed["counts"]["computed"] == len(chosen.items())
    assert printed["counts"]["missing"] == 0
    rows = work.results(name)
    assert {(row["group"]["w_name"], row["group"]["challenge"]) for row in rows} == {(w_name, name)}
    for measure, named in (("slope", groups), ("slope_gap", gaps)):
        assert [row["group"]["pronoun"] for row in rows if row["measure"] == measure] == named
    frame = pd.read_parquet(work.folder / name / "observations.parquet")
    assert frame[groups].sum(axis=1).to_numpy() == pytest.approx(np.full(len(frame), 100.0))
    assert frame["cluster"].nunique() == len(chosen.items()) / frame["w"].nunique()
    if name == "neopronouns":
        assert (work.folder / name / "figures" / f"{w_name}_{name}_toy.svg").is_file()
        page = (work.folder / name / "report.html").read_text(encoding="utf-8")
        assert all(word in page for word in (chosen.title, *groups))


@slow
def test_task_specification_of_planted_sentences_is_told_drawn_and_written(work: Workplace) -> None:
    """The toy moves *she* and *he* with the date, and *her* and *his* not: the table has the kinds so."""
    planted_table(work.folder)
    command = ("run", "task-specification", "-m", "toy", "--challenge", "planted.csv")
    lines = work(*command, "--out", "run", page=True).stdout.splitlines()
    assert lines[0].startswith(f"Scored {4 * len(OCCUPATIONS)} items (")
    assert "in 100% of pairs" in lines[1]
    whole = [row for row in work.results("run") if not {"against", "occupations", "occupation"} & set(row["group"])]
    (moved,) = (row["value"] for row in whole if row["measure"] == "mean_movement")
    assert f"{moved:+.1f} points" in "\n".join(lines)
    folder = work.folder / "run"
    table = pd.read_csv(folder / "tables/sentences.csv")
    assert table[["delta_female", "total_variation", "combined", "delta_neutral"]].notna().all(axis=None)
    assert table[["slope_female", "entropy_plain", "missing_reason"]].isna().all(axis=None)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    drawn = {f"figures/{kind}_toy_planted_date.{form}" for kind in ("occupations", "roc") for form in ("png", "svg")}
    tables = {f"tables/{name}.csv" for name in ("occupations", "sentence_slopes", "sentences")}
    assert files == drawn | tables | {
        "challenge.csv",
        "manifest.json",
        "observations.parquet",
        "report.html",
        "results.csv",
        "results.json",
    }
