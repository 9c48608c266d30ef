"""`undertow dag` as a user types it: what it says of a graph, as words, as JSON and as a figure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli
from refusal import refused
from undertow.causal import paths, questions
from undertow.causal.assumptions import DRIFT, SPECIFICATION, assumptions
from undertow.causal.graphs import read_graph
from undertow.causal.in_words import as_plain, in_words
from undertow.causal.published import published
from undertow.report import drawing
from undertow.types import UndertowError

PAGE = ROOT / "docs" / "causal-graphs.md"


def said(cli: Cli, *arguments: str) -> str:
    done = cli("dag", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def sections(text: str) -> dict[str, tuple[str, ...]]:
    return {section.title: section.lines for section in in_words(read_graph(text))}


def granted(text: str, audit: str) -> list[bool | None]:
    return [row.holds for row in assumptions(read_graph(text), audit)]


def test_a_graph_in_words(cli: Cli) -> None:
    told = said(cli, "unspecified")
    assert told.startswith("A task whose features say nothing of its label (McMilin 2024 (AAAI), figures 2b and 3a;")
    assert "\nW -> X; W -> S; G -> S; G -> Y; [S]\n" in told
    assert "  X <- W -> S <- G -> Y: closed in the population; opened by selection at S\n" in told


def test_a_file_and_a_graph_in_place_of_one_say_the_same(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("W -> X -> Y\n[S] <- W  # selection", encoding="utf-8")
    assert said(cli, "mine.txt") == said(cli, "W -> X -> Y; W -> [S]")


def test_json_holds_the_same_on_one_line(cli: Cli) -> None:
    told = said(cli, "well-specified", "--json")
    assert told.count("\n") == 1
    answer: dict[str, Any] = json.loads(told)
    assert answer == json.loads(json.dumps(as_plain(published()["well-specified"].graph)))
    assert read_graph(answer["graph"]) == published()["well-specified"].graph
    assert answer["recoverability"] == {
        "recoverable": False,
        "left_open": ["S <- G -> Y", "S <- W -> X <- G -> Y"],
        "with_known": ["G"],
        "with_label_shares": False,
    }
    assert [
        path["path"] for path in answer["paths"] if not path["population"]["is_open"] and path["selected"]["is_open"]
    ] == ["X <- W -> S <- G -> Y"]
    assert {one["node"]: one["qualifies"] for one in answer["candidates"]} == {"W": True, "G": False}
    assert [row["holds"] for row in answer["assumptions"][SPECIFICATION]] == [True, True, True, True, None]


def test_questions_of_independence(cli: Cli) -> None:
    told = said(cli, "access", "--separated", "W,G", "--separated", "W, G | S, X").splitlines()
    paths = ["W -> Z <- G", "W -> X <- Z <- G", "W -> X -> Y <- G", "W -> Z -> X -> Y <- G"]
    assert [line.strip().partition(":")[0] for line in told] == [
        *("W and G", "Independent", *paths),
        *("", "W and G given S, X", "Dependent", *paths),
    ]
    assert [line.partition(": ")[2].partition(" ")[0] for line in told if "->" in line] == [
        *["closed"] * 4,
        *["open", "open", "closed", "closed"],
    ]
    (answer,) = json.loads(said(cli, "access", "--separated", "W,G|S", "--json"))
    assert (answer["independent"], answer["given"]) == (False, ["S"])
    assert [path["is_open"] for path in answer["paths"]] == [True, False, False, False]


def test_drawing(cli: Cli, tmp_path: Path) -> None:
    told = said(cli, "access-masked", "--out", "graph.svg")
    assert told.endswith(f"\nDrawn: {(tmp_path / 'graph.svg').resolve()}\n")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<?xml")
    json.loads(said(cli, "access-masked", "--json", "--out", "graph.PNG"))
    assert (tmp_path / "graph.PNG").read_bytes().startswith(b"\x89PNG")


def test_signs_that_no_font_has_are_said(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drawing, "_installed_fonts", lambda: ())
    graph = "出生 -> X; Y; varied 出生"
    done = cli("dag", graph, "--out", "graph.png")
    assert done.returncode == 0
    assert "graph.png" in done.stderr
    assert "出, 生" in done.stderr
    assert (tmp_path / "graph.png").exists()
    said(cli, graph, "--out", "graph.svg")
    assert "出生" in (tmp_path / "graph.svg").read_text(encoding="utf-8"), "left to the reader's fonts"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing.txt"], "nothing.txt"),
        (["W -> X; X -> W"], "cycle"),
        (["unspecifed"], "unspecified"),
        (["Well_specified"], "well-specified"),
        (["unspecified", "--separated", "W"], "--separated 'W'"),
        (["unspecified", "--separated", "W,G,S"], "two nodes"),
        (["unspecified", "--separated", "W,Q"], "'Q'"),
        (["unspecified", "--separated", "W,W"], "W"),
        (["unspecified", "--out", "graph.pdf"], ".png or .svg"),
        (["unspecified", "--out", "taken.png"], "taken.png"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str], word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken.png").write_bytes(b"mine")
    refused(cli("dag", *arguments), word)
    assert (tmp_path / "taken.png").read_bytes() == b"mine"
    assert [file.name for file in tmp_path.iterdir()] == ["taken.png"]


# What the sentences rest on.


def test_what_selection_does_is_said_of_every_case() -> None:
    cases = {
        "X -> Y": "Nothing is selected",
        "X -> [S]; Y": "X and Y are independent in the population, and in selected data too.",
        "X -> [S]; Y -> S": "independent in the population and dependent in selected data",
        "X -> Y; X -> [S]": "selection opens no further path",
        "X <- A -> C <- B -> Y; C -> X -> [S]": "selection opens X <- A -> C <- B -> Y. It does not distort P(Y | X)",
        "X -> Y; X -> [S] <- Y": "selection adds to it by X -> S <- Y.",
    }
    for text, words in cases.items():
        assert words in sections(text)["What selection does"][0], text


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("W -> X; X -> Y; Y -> [S]", "S depends on Y itself, by S <- Y."),
        ("X; Y -> A -> [S]", "S depends on Y itself, by S <- A <- Y."),
        ("X -> M -> Y; M -> [S]", "S and Y stay connected, by S <- M -> Y."),
        ("C -> X; C -> Y; C -> [S]", "S and Y stay connected, by S <- C -> Y."),
        ("X -> Y; X -> [S]", ""),
        ("C -> X; C -> Y; X -> [S]", ""),
        ("X -> [S]; Y", ""),
    ],
)
def test_selection_that_opens_no_path_distorts_all_the_same_if_it_depends_on_the_label(text: str, stays: str) -> None:
    first, *more = sections(text)["What selection does"]
    assert "opens no further path" in first or first.endswith("and in selected data too.")
    assert more == ([f"Selection distorts P(Y | X) all the same: X given, {stays}"] if stays else [])
    assert bool(stays) is sections(text)["P(Y | X) from selected data"][0].startswith("Not recoverable")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("W -> X; X -> Y; Y -> S", "[S]"),
        ("X -> Y; X -> selected; Y -> in_corpus", "[selected] or [in_corpus]"),
        ("X -> Y; Y -> (S)", ""),
        ("X -> S; S -> Y", ""),
        ("text -> S; features text; label S", ""),
    ],
)
def test_selection_without_brackets_is_asked_about(text: str, hint: str) -> None:
    (line,) = sections(text)["What selection does"]
    w = assumptions(read_graph(f"{text}; W"), DRIFT)[3]
    for said_of in (line, w.because):
        assert "othing is selected" in said_of
        assert ("write [" in said_of) is bool(hint)
        assert hint in said_of
    assert "write [" not in " ".join(sections(f"{text}; Y2 -> [Q]")["What selection does"])


def test_what_is_recoverable_and_what_is_well_specified_are_two_claims() -> None:
    title = "P(Y | X) from selected data"
    # All four combinations there are.
    well_not = sections(published()["well-specified"].graph.text())[title]
    assert well_not[0].startswith("Not recoverable from selected data alone")
    assert well_not[1].startswith("It is with G recorded in the selected data and, beside X, in the whole population")
    assert well_not[2].startswith("That the task is well specified is another claim")
    assert sections("X -> Y; X -> [S]")[title] == (
        "Recoverable from selected data alone: X given, S and Y are independent.",
    )
    assert sections("C -> X; C -> Y; X -> [S]")[title][0].startswith("Recoverable")
    assert len(sections(published()["unspecified"].graph.text())[title]) == 2
    assert any("It is with P(Y) known" in line for line in sections("X -> Y -> [S]")[title])
    assert "No recorded nodes besides" in sections(published()["access-masked"].graph.text())[title][1]
    assert sections("X -> Y")[title] == ("Nothing is selected, so nothing is to be recovered.",)


def test_what_would_specify_a_task_is_said() -> None:
    assert sections("A; B; Y; features A, B")["Specification"] == (
        "Unspecified: no arrows lead from A, B to Y. A -> Y or B -> Y would specify it.",
    )
    anticausal = sections("Y -> X")["Specification"]
    assert anticausal[0] == "Unspecified: no arrows lead from X to Y, and none can, since Y causes X."
    assert anticausal[1].startswith("But Y causes a feature, which can tell it all the same")


def test_why_nodes_are_no_w_is_said() -> None:
    told = "\n".join(
        sections("W -> X; (L) -> X; C -> X; C -> Y; Y -> E; D; W -> [S]; G -> Y; G -> S; L -> S")["Who can be a W"]
    )
    for line in (
        "W: qualifies; it causes X",
        "L: does not qualify: nobody recorded it",
        "C: does not qualify: it causes Y past X",
        "E: does not qualify: no arrows lead from it to X; Y causes it",
        "D: does not qualify: no arrows lead from it to X; selection does not connect it with Y",
    ):
        assert re.search(rf"^{re.escape(line)}", told, re.MULTILINE), line
    assert (
        "E: does not qualify: it is connected with Y without any selection, by E <- H -> Y"
        in sections("E -> X; H -> E; H -> Y")["Who can be a W"]
    )


def test_many_paths_are_not_all_shown() -> None:
    names = "XABCDEY"
    text = "; ".join(f"{one} -> {other}" for place, one in enumerate(names) for other in names[place + 1 :])
    shown = sections(text)["Paths from X to Y"]
    assert len(shown) == 31
    assert re.fullmatch(r"\.\.\. and \d+ longer ones", shown[-1])


def test_assumptions_are_granted_by_the_graphs_they_were_made_for() -> None:
    texts = {name: one.graph.text() for name, one in published().items()}
    assert granted(texts["unspecified"], DRIFT) == [True] * 6
    # Their texts decide the label, and tell it by what both come from: X <- G -> Y, X <- Z <- G -> Y, X <- Z <-> Y.
    for name in ("well-specified", "access", "access-masked"):
        assert granted(texts[name], DRIFT) == [True, True, True, True, False, False], name
    for text in texts.values():
        assert granted(text, SPECIFICATION) == [True, True, True, True, None]


@pytest.mark.parametrize(
    ("text", "place", "because"),
    [
        ("(W) -> X; W -> S; G -> S; G -> Y; [S]", 0, "W is latent"),
        ("X; W -> S; G -> S; G -> Y; [S]", 0, "no arrows lead from W to X"),
        ("W -> X; W -> S; G -> S; G -> Y; W -> Y; [S]", 1, "W -> Y"),
        ("W -> X; Y -> W; G -> Y; W -> [S]", 1, "W <- Y"),
        ("W -> X; W -> S; G -> S; G -> Y; G -> W; [S]", 2, "W <- G -> Y"),
        ("W -> X; W -> S; G -> S; G -> Y; (U) -> W; U -> Y; [S]", 2, "W <- U -> Y"),
        ("W -> X; W -> S; G -> S; G -> Y; W <-> Y; [S]", 2, "W <-> Y"),
        ("W -> X; W -> S; G -> S; G -> Y; W <-> Y; [S]", 3, "W <-> Y is open without it"),
        ("W -> X; W -> [S]; G -> Y", 3, "S opens no path between them"),
        ("W -> X; G -> Y", 3, "nothing is selected"),
        ("W -> X; W -> S; G -> S; G -> Y; X -> Y; [S]", 4, "X -> Y"),
        ("W -> X; W -> S; G -> S; G -> X; G -> Y; [S]", 5, "X <- G -> Y is open in the population"),
        ("Y -> X; W -> X; W -> S; Y -> S; [S]", 5, "X <- Y is open in the population"),
    ],
)
def test_an_assumption_that_fails_says_by_which_arrows(text: str, place: int, because: str) -> None:
    rows = assumptions(read_graph(text), DRIFT)
    assert rows[place].holds is False
    assert rows[place].because.startswith(because)


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("W -> X; X -> S; G -> S; G -> Y; [S]", "W -> X -> S <- G -> Y"),
        ("W -> X -> C; G -> C; C -> [S]; G -> Y", "W -> X -> C <- G -> Y"),
        ("W -> X; X -> [S] <- Y", "W -> X -> S <- Y"),
    ],
)
def test_texts_that_are_selected_for_what_they_say_are_evidence_of_selection(text: str, way: str) -> None:
    rows = assumptions(read_graph(text), DRIFT)
    assert [row.holds for row in rows] == [True] * 6
    assert rows[3].because.startswith(f"{way} is opened at ")
    little = assumptions(read_graph(text), SPECIFICATION)[-1]
    assert (little.holds, little.because.startswith(f"{way} is open in selected data; how much")) == (None, True)
    assert any(line.endswith(f"by {way}") for line in sections(text)["Who can be a W"])


def test_what_is_granted_does_not_depend_on_the_paths_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples do, and say so."""
    texts = [
        *(one.graph.text() for one in published().values()),
        "W -> X; W -> Y; W <-> Y; W -> [S] <- Y",
        "W -> X; Y -> W; E <-> Y; E -> X",
    ]

    def told(text: str) -> list[tuple[str, bool | None]]:
        return [
            (row.claim, row.holds) for audit in (DRIFT, SPECIFICATION) for row in assumptions(read_graph(text), audit)
        ]

    with_paths = [told(text) for text in texts]
    faults = [line.partition(", by ")[0] for text in texts for line in sections(text)["Who can be a W"]]
    monkeypatch.setattr(paths, "MAX_PATHS", 0)
    monkeypatch.setattr(questions, "MAX_PATHS", 0)
    monkeypatch.setattr(paths, "MAX_STEPS", 0)
    assert [told(text) for text in texts] == with_paths
    assert [line.partition(", by ")[0] for text in texts for line in sections(text)["Who can be a W"]] == faults
    assert [row.because for row in assumptions(read_graph(texts[1]), DRIFT)[:4]] == [
        "W -> X",
        "no arrows lead from W to Y past X, and none back",
        "no path with arrows into both is open in the population",
        "a path that was not found in 0 steps is opened by S",
    ]


def test_a_specified_text_leaves_nothing_to_a_w_that_is_connected_by_nothing_else() -> None:
    rows = assumptions(read_graph("W -> X -> Y; W -> [S]"), SPECIFICATION)
    assert rows[-1].holds is True
    assert "through the features alone" in rows[-1].because


def test_assumptions_need_a_w_and_an_audit() -> None:
    (row,) = assumptions(read_graph("A -> X -> Y"), DRIFT)
    assert (row.holds, "no node is called W" in row.because) == (False, True)
    assert assumptions(read_graph("A -> X -> Y; varied A"), DRIFT)[0].because == "A -> X"
    with pytest.raises(UndertowError, match=f"ask for one of: {DRIFT}, {SPECIFICATION}"):
        assumptions(read_graph("X -> Y"), "drift")


def test_the_page_prints_what_the_command_prints(cli: Cli) -> None:
    page = PAGE.read_text(encoding="utf-8")
    command, shown = re.findall(r"^```text\n\$ undertow dag (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    assert said(cli, command) == shown
    (graph,) = re.findall(r"^```dag\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert read_graph(graph).meanings
