"""The commands as a user types them: what they print, what they write, what they leave alone."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT, SMOLLM2, Cli
from undertow import challenge, models
from warm import warm

slow = pytest.mark.slow
TOY = ["run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90"]
EXAMPLES = {
    "neopronouns": (["xe", "ze", "they"], "date", [["xe", "they"], ["ze", "they"]]),
    "adjectives": (["warm", "cold"], "month", [["warm", "cold"]]),
    "french": (["il", "elle", "iel"], "date", [["elle", "il"], ["iel", "il"]]),
}


class Workplace:
    """A folder with a cache of its own, for several commands in a row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must go well and say nothing on standard error."""
        environment = os.environ | {"UNDERTOW_CACHE": str(self.folder / "cache")}
        done = warm(self.folder, *arguments, environment=environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json: one JSON text on one line."""
        said = self(*arguments, "--json").stdout
        assert said.count("\n") == 1
        return json.loads(said)

    def results(self, run: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.folder / run / "results.json").read_text("utf-8"))["results"]
        return rows


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def first(work: Workplace) -> dict[str, Any]:
    """What the first run of the toy prints."""
    printed: dict[str, Any] = work.json(*TOY, "--out", "first")
    return printed


# Lists.


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("probes", [*sorted(challenge.TASKS), "occupation-checklist", "spurious-correlation", "task-specification"]),
        (
            "challenges",
            [
                *(
                    "mgc",
                    "mgt",
                    "mgt-icml",
                    "undertow-schemas",
                    "simplified",
                    "winogender",
                    "undertow-statements",
                    "cad",
                ),
                *("occupation-checklist", "occupations", "name-pairs"),
            ],
        ),
        ("models", ["smollm2", *(f"({name})" for name in models.families())]),
    ],
)
def test_lists_are_tables_and_json(what: str, names: list[str], work: Workplace) -> None:
    rows = work.json("ls", what)
    key = what.removesuffix("s")
    assert [row[key] for row in rows] == names
    lines = work("ls", what).stdout.splitlines()
    assert lines[0].split("\t") == list(rows[0])
    assert [line.split("\t")[0] for line in lines[1:]] == names


def test_a_challenge_is_printed_in_three_ways(work: Workplace) -> None:
    arguments = ["challenge", "mgc", "--w", "date"]
    items = challenge.load("mgc").items([challenge.spectrum("date")])
    assert len(items) == 1800
    texts = [item.query.shown() for item in items]  # type: ignore[union-attr]
    as_json = work.json(*arguments)
    assert [row["text"] for row in as_json["items"]] == texts
    assert as_json["groups"] == {"female": ["she"], "male": ["he"], "neutral": ["they"]}
    as_csv = list(csv.DictReader(io.StringIO(work(*arguments, "--csv").stdout)))
    assert [row["text"] for row in as_csv] == texts
    assert {"item", "w_name", "w", "w_index", "template", "verb", "stage"} <= set(as_csv[0])
    lines = work(*arguments).stdout.splitlines()
    assert len(lines) == 1802
    assert lines[0] == "w_name\tw\ttext"
    assert lines[-1] == "1,800 texts; the blank takes female: she; male: he; neutral: they"


# Runs.


def test_a_run_prints_one_json_object_and_nothing_else(first: dict[str, Any], work: Workplace) -> None:
    assert (first["folder"], first["report"]) == ("first", "first/report.html")
    counts = {name: first["counts"][name] for name in ("items", "queries", "computed", "unscored")}
    assert counts == {"items": 90, "queries": 90, "computed": 90, "unscored": 0}
    assert first["counts"]["tokens"] > 90
    assert all(set(finding) == {"text", "found", "strength"} for finding in first["findings"])
    assert (work.folder / "first/report.html").is_file()


def test_the_same_run_again_computes_nothing_and_gives_the_same_bytes(first: dict[str, Any], work: Workplace) -> None:
    said = work(*TOY, "--out", "second").stdout.splitlines()
    assert said[0] == "Asked 90 items (0 of 90 queries computed now, 0 unscored)."
    assert said[-1] == f"Report: {(work.folder / 'second/report.html').resolve()}"
    assert [line[2:] for line in said[1:-1]] == [finding["text"] for finding in first["findings"]]
    for name in ("results.json", "results.csv"):
        assert (work.folder / "second" / name).read_bytes() == (work.folder / "first" / name).read_bytes()


@pytest.mark.soak
@slow
def test_a_seed_moves_the_monte_carlo_only_slightly(work: Workplace) -> None:
    """Permutation p-values and bootstrap intervals differ a little; estimates do not."""
    command = ["run", "spurious-correlation", "-m", "toy", "--w", "place"]
    for seed in ("0", "1"):
        work(*command, "--seed", seed, "--out", f"seed{seed}")
    work("score", "seed0", "--seed", "1", "--out", "scored1")
    one, other, scored = (work.results(name) for name in ("seed0", "seed1", "scored1"))
    for before, after in zip(one, other, strict=True):
        assert (before["group"], before["value"]) == (after["group"], after["value"])
        for name in ("p", "q"):
            assert (before[name] is None) == (after[name] is None)
            if before[name] is not None:
                assert after[name] == pytest.approx(before[name], abs=0.03)
    assert [row["p"] for row in one] != [row["p"] for row in other]
    assert scored == other


def test_a_dry_run_says_what_it_takes_and_does_nothing(work: Workplace) -> None:
    command = ["run", "spurious-correlation", "-m", "toy:slope=3", "--w", "date", "--limit", "90", "--dry-run"]
    before = sorted(work.folder.iterdir())
    estimate = work.json(*command)
    assert (estimate["n_queries"], estimate["n_distinct"], estimate["n_stored"]) == (90, 90, 0)
    assert estimate["n_tokens"] > 90
    assert estimate["n_passes"] > 0
    assert estimate["seconds"] > 0
    assert estimate["memory_bytes"] > 0
    said = work(*command).stdout.splitlines()
    assert said[0] == "90 queries, 90 of them different, 0 answered already."
    assert f"To ask: {estimate['n_tokens']:,} tokens" in said[1]
    assert "seconds" in said[1]
    assert "MiB" in said[1]
    assert [path for path in sorted(work.folder.iterdir()) if path.name != "cache"] == [
        path for path in before if path.name != "cache"
    ]
    assert all(shelf["model"] != "toy:slope=3" for shelf in work.json("store", "info"))


@slow
def test_a_run_finds_its_own_folder(work: Workplace) -> None:
    printed = work.json(*TOY)
    folder = Path(printed["folder"])
    assert folder.parent == Path("runs")
    assert folder.name.startswith("spurious-correlation_toy_")
    assert (work.folder / folder / "manifest.json").is_file()


# The store.


@pytest.mark.soak
@slow
def test_the_store_tells_and_forgets_what_was_named(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    assert work.json("store", "info") == []
    work(*TOY, "--out", "a")
    work("run", "spurious-correlation", "-m", "toy:slope=3", "--w", "date", "--limit", "60", "--out", "b")
    shelves = work.json("store", "info")
    assert [(shelf["model"], shelf["answers"]) for shelf in shelves] == [("toy:slope=3", 60), ("toy", 90)]
    said = work("store", "info").stdout
    assert said.startswith(str(tmp_path / "cache/answers.sqlite"))
    assert work("store", "prune", "-m", "toy").stdout == "forgot 90 answers of 1 model\n"
    assert [shelf["model"] for shelf in work.json("store", "info")] == ["toy:slope=3"]
    # What was written stays, and is opened; only asking anew needs what was forgotten.
    assert work.json(*TOY, "--out", "a")["counts"]["computed"] == 0
    assert work.json(*TOY, "--out", "a", "--overwrite")["counts"]["computed"] == 90
    assert work("store", "prune", "-m", shelves[0]["key"]).stdout == "forgot 60 answers of 1 model\n"
    assert work("store", "prune", "--all").stdout == "forgot 90 answers of 1 model\n"
    assert work.json("store", "info") == []
    assert (tmp_path / "b" / "results.json").is_file()


# A user's own files, from the examples.


@pytest.mark.parametrize(
    "name", ["neopronouns", pytest.param("adjectives", marks=slow), pytest.param("french", marks=slow)]
)
def test_an_example_is_measured_and_drawn(name: str, work: Workplace) -> None:
    groups, w_name, gaps = EXAMPLES[name]
    chosen = challenge.load(str(ROOT / "examples" / f"{name}.toml"))
    printed = work.json(
        "run",
        "spurious-correlation",
        "-m",
        "toy",
        "--challenge",
        str(ROOT / "examples" / f"{name}.toml"),
        "--out",
        name,
    )
    assert printed["counts"]["items"] == printed["counts"]["computed"] == len(chosen.items())
    assert printed["counts"]["unscored"] == 0
    rows = work.results(name)
    assert {row["group"]["w_name"] for row in rows} == {w_name}
    assert {row["group"]["challenge"] for row in rows} == {name}
    slopes = [row["group"]["pronoun"] for row in rows if row["measure"] == "slope"]
    assert slopes == groups
    assert [row["group"]["pronoun"] for row in rows if row["measure"] == "slope_gap"] == ["-".join(gap) for gap in gaps]
    frame = pd.read_parquet(work.folder / name / "observations.parquet")
    assert frame[groups].sum(axis=1).to_numpy() == pytest.approx(np.full(len(frame), 100.0))
    assert frame["cluster"].nunique() == len(chosen.items()) / frame["w"].nunique()
    for kind in ("svg", "png"):
        assert (work.folder / name / "figures" / f"{w_name}_{name}_toy.{kind}").stat().st_size > 1000
    page = (work.folder / name / "report.html").read_text(encoding="utf-8")
    assert chosen.title in page
    assert all(group in page for group in groups)


def test_every_example_is_tested() -> None:
    """But for what is said of models, which tests/docs reads, and for rules, which tests/test_gates.py reads."""
    assert {path.stem for path in (ROOT / "examples").glob("*.toml")} == {*EXAMPLES, "about", "rules"}


@pytest.mark.soak
@pytest.mark.model
@slow
def test_the_default_model_reads_another_language(cli: Cli, tmp_path: Path) -> None:
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    example = str(ROOT / "examples/french.toml")
    done = cli(
        "run",
        "spurious-correlation",
        "-m",
        "smollm2",
        "--challenge",
        example,
        "--limit",
        "60",
        "--out",
        "run",
        "--json",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["unscored"] == 0
    frame = pd.read_parquet(tmp_path / "run/observations.parquet")
    assert frame[["il", "elle", "iel"]].sum(axis=1).to_numpy() == pytest.approx(np.full(len(frame), 100.0))
    assert frame["unclaimed"].between(0, 100).all()
    # The pronoun that grammars list first is the likelier one in what the model has read.
    assert frame["il"].mean() > frame["iel"].mean()
