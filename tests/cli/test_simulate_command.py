from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli
from helpers.cli_refusal import refused, said
from helpers.shared_folders import contents
from undertow.causal import example_scms
from undertow.causal.graph import read_graph
from undertow.causal.scm import StructuralCausalModel
from undertow.causal.simulate import simulate
from undertow.report import style as drawing
from undertow.report.page_data import Drawing

PAGE = (ROOT / "docs/simulation.md").read_text(encoding="utf-8")
MINE = """
strength = 2
U := normal()            # nobody recorded it
ill := bernoulli(sigmoid(U))
seen := strength * ill + U + normal() > 1
test := U + normal()
select seen
compare ill, test
"""


def json_of(cli: Cli, *arguments: str) -> Any:
    printed = said(cli("simulate", *arguments, "--json"))
    assert printed.count("\n") == 1
    return json.loads(printed)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.scm").write_text(MINE, encoding="utf-8")
    return "mine.scm"


@pytest.mark.slow
def test_the_numbers_of_the_page_are_printed(cli: Cli) -> None:
    """At a million draws, the default."""
    lines = [line.split("\t") for line in said(cli("simulate")).splitlines()]
    assert lines[0] == ["model", "case", "pair", "r before", "r after selection", "selected"]
    assert len(lines) == 1 + 24 + 1
    assert lines[-1] == ["1,000,000 simulated people per case, seed 0; brackets are 95% intervals."]
    printed = {tuple(line[:3]): [cell.split()[0] for cell in line[3:]] for line in lines[1:-1]}
    rows = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("| W ")]
    assert len(rows) == 8
    for selected_on, pair, case, before, after, exact in rows:
        model = {"W + G": example_scms.SUM, "W - G": example_scms.DIFFERENCE}[selected_on]
        assert printed[model, case, pair] == [before, after, "3.74%"]
        assert float(after) == pytest.approx(float(exact), abs=0.01)
    for line in lines[1:-1]:
        for cell in line[3:5]:
            r, low, high = map(float, re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", cell).groups())  # type: ignore[union-attr]
            assert low <= r <= high


def test_the_model_of_the_page_is_the_shipped_one() -> None:
    (block,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    told, shipped = StructuralCausalModel.from_text(block), example_scms.load(example_scms.SUM)
    assert {name: equation.expression for name, equation in told.variables.items()} == {
        name: equation.expression for name, equation in shipped.variables.items()
    }
    assert told.constants() == shipped.constants()
    assert (told.pairs, told.selection, dict(told.cases)) == (shipped.pairs, shipped.selection, dict(shipped.cases))


def test_json_holds_what_the_library_gives(cli: Cli, mine: str, tmp_path: Path) -> None:
    said = json_of(cli, mine, "--draws", "5e3", "--seed", "4", "--set", "strength=3")
    assert (said["draws"], said["seed"], said["files"]) == (5000, 4, [])
    (case,) = said["cases"]
    found = simulate(StructuralCausalModel.from_text(MINE), 5000, 4, {"strength": 3})
    assert (case["model"], case["case"], case["settings"]) == ("mine", "", {"strength": 3.0})
    selected = (found.n_selected, found.share, found.share_low, found.share_high)
    assert tuple(case["selected"][name] for name in ("n", "share", "low", "high")) == selected
    assert [(row["selection"], row["r"], row["n"]) for row in case["correlations"]] == [
        ("after" if one.selected else "before", one.r, one.n) for one in found.correlations
    ]
    arrows = {("U", "ill"), ("U", "seen"), ("ill", "seen"), ("U", "test")}
    assert set(read_graph(case["graph"] + "; label ill; features test").arrows) == arrows
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine], "nothing was written"


def test_what_is_undefined_is_null_and_an_empty_cell(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.scm").write_text(MINE.replace("ill, test", "flat, test\nflat := 3"), encoding="utf-8")
    (case,) = json_of(cli, "mine.scm", "--draws", "2000", "--out", "made")["cases"]
    assert [row["r"] for row in case["correlations"]] == [None, None]
    with (tmp_path / "made/correlations.csv").open(encoding="utf-8", newline="") as stream:
        assert [(row["r"], row["low"]) for row in csv.DictReader(stream)] == [("", ""), ("", "")]
    assert "\tundefined: flat is constant\t" in cli("simulate", "mine.scm", "--draws", "2000").stdout


def test_graphs_are_printed_for_dag(cli: Cli, mine: str) -> None:
    assert cli("simulate", mine, "--show-graph").stdout == "U -> ill; U -> seen; U -> test; ill -> seen; [seen]\n"
    rows = json_of(cli, example_scms.SUM, "--show-graph", "--set", "alpha=5")
    assert [row["case"] for row in rows] == list(example_scms.load(example_scms.SUM).cases)
    assert rows[1]["graph"] == "G -> S; G -> Y; W -> S; W -> X; [S]"
    off = json_of(cli, mine, "--show-graph", "--set", "strength=0")
    assert off[0]["graph"] == "U -> ill; U -> seen; U -> test; [seen]"


class CutOffError(Exception):
    pass


WRITE = ("simulate", "mine.scm", "--draws", "1000", "--out", "made", "--overwrite")


def write_words(drawing: Drawing, folder: Path) -> None:
    """Stands for the files of a figure, which take long to draw."""
    for suffix in (".png", ".svg"):
        (folder / f"{drawing.name}{suffix}").write_text(drawing.alt, encoding="utf-8")


def test_simulation_that_is_stopped_while_it_is_written_is_none(
    cli: Cli, mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that is: the table comes last, every file is whole, and the same command may write again."""
    move = Path.replace
    monkeypatch.setattr(drawing, "save_drawing", write_words)
    assert cli(*WRITE).returncode == 0
    whole = contents(tmp_path / "made")
    refused(cli(*WRITE[:-1]), "made", "--overwrite")
    for stop in range(len(whole)):
        moved: list[str] = []

        def stopping(self: Path, target: Path, stop: int = stop, moved: list[str] = moved) -> Path:
            if len(moved) == stop:
                raise CutOffError
            moved.append(self.name)
            return move(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", stopping)
            with pytest.raises(CutOffError):
                cli(*WRITE, "--set", "strength=4")
        left = contents(tmp_path / "made")
        assert left.keys() == whole.keys() - {"correlations.csv"}
        assert {name for name in left if left[name] != whole[name]} == set(moved)
        assert cli(*WRITE[:-1]).returncode == 0, "without a table it is no simulation, so that nothing is overwritten"
        assert contents(tmp_path / "made") == whole


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine.scm", "--set", "strength"], ["--set 'strength'"]),
        (["mine.scm", "--set", "strength=2", "--set", " strength = 3"], ["--set strength", "twice"]),
        (["mine.scm", "--show-graph", "--out", "made"], ["--show-graph", "--out made"]),
        (["mine.scm", "--set", "length=1"], ["'length'", "'strength'"]),
        (["--set", "gamma=1"], ["--set gamma"]),
        (["mine.scm", "--draws", "1e12"], ["1,000,000,000"]),
        (["mine.scm", "--out", "mine.scm"], ["mine.scm"]),
        (["bad.scm"], ["bad.scm, line 2"]),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    arguments: list[str], words: list[str], cli: Cli, mine: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.scm").write_text("G := normal()\nX := G.x", encoding="utf-8")
    refused(cli("simulate", *arguments), *words)
    assert (tmp_path / mine).read_text(encoding="utf-8") == MINE
