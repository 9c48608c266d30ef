from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli
from helpers.cli_refusal import refused, said
from helpers.file_refusal import assert_refused
from undertow import audits
from undertow.causal.assumptions import DRIFT, SPECIFICATION, assumptions
from undertow.causal.describe import describe_graph, graph_json
from undertow.causal.graph import read_graph
from undertow.causal.published import published

PAGE = ROOT / "docs" / "causal-graphs.md"


def test_a_file_and_a_graph_in_place_of_one_say_the_same(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("W -> X -> Y\n[S] <- W  # selection", encoding="utf-8")
    assert said(cli("graph", "mine.txt")) == said(cli("graph", "W -> X -> Y; W -> [S]"))


def test_json_holds_the_same_on_one_line(cli: Cli) -> None:
    told = said(cli("graph", "well-specified", "--json"))
    assert told.count("\n") == 1
    answer: dict[str, Any] = json.loads(told)
    assert answer == json.loads(json.dumps(graph_json(published()["well-specified"].graph)))
    assert read_graph(answer["graph"]) == published()["well-specified"].graph
    assert answer["recoverability"] == {
        "recoverable": False,
        "open_paths": ["S <- G -> Y", "S <- W -> X <- G -> Y"],
        "external_covariates": ["G"],
        "with_label_distribution": False,
    }
    opened = [one["path"] for one in answer["paths"] if one["selected"]["is_open"] > one["population"]["is_open"]]
    assert opened == ["X <- W -> S <- G -> Y"]
    assert {one["node"]: one["qualifies"] for one in answer["candidates"]} == {"W": True, "G": False}
    assert [row["holds"] for row in answer["assumptions"][SPECIFICATION]] == [True, True, True, True, None]


def test_questions_of_independence(cli: Cli) -> None:
    told = said(cli("graph", "access", "--d-separated", "W,G", "--d-separated", "W, G | S, X")).splitlines()
    paths = ["W -> Z <- G", "W -> X <- Z <- G", "W -> X -> Y <- G", "W -> Z -> X -> Y <- G"]
    assert [line.strip().partition(":")[0] for line in told] == [
        *("W and G", "Independent", *paths),
        *("", "W and G given S, X", "Dependent", *paths),
    ]
    assert [line.partition(": ")[2].partition(" ")[0] for line in told if "->" in line] == [
        *["closed"] * 4,
        *["open", "open", "closed", "closed"],
    ]
    (answer,) = json.loads(said(cli("graph", "access", "--d-separated", "W,G|S", "--json")))
    assert (answer["independent"], answer["given"]) == (False, ["S"])
    assert [path["is_open"] for path in answer["paths"]] == [True, False, False, False]


def test_drawing(cli: Cli, tmp_path: Path) -> None:
    told = said(cli("graph", "access-masked", "--out", "graph.svg"))
    assert told.endswith(f"\nDrawn: {(tmp_path / 'graph.svg').resolve()}\n")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<?xml")
    json.loads(said(cli("graph", "access-masked", "--json", "--out", "graph.PNG")))
    assert (tmp_path / "graph.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nothing.txt"], "nothing.txt"),
        (["W -> X; X -> W"], "cycle"),
        (["unspecifed"], "unspecified"),
        (["unspecified", "--d-separated", "W"], "--d-separated 'W'"),
        (["unspecified", "--d-separated", "W,Q"], "'Q'"),
        (["unspecified", "--out", "graph.txt"], ".svg or .png"),
        (["unspecified", "--out", "taken.png"], "taken.png"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str], word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken.png").write_bytes(b"mine")
    refused(cli("graph", *arguments), word)
    assert (tmp_path / "taken.png").read_bytes() == b"mine"
    assert [file.name for file in tmp_path.iterdir()] == ["taken.png"]


DOES, RECOVERY, WHO = "What selection does", "P(Y | X) from selected data", "Valid W"
CANDIDATES = "W -> X; (L) -> X; C -> X; C -> Y; Y -> E; D; W -> [S]; G -> Y; G -> S; L -> S"
MANY = "; ".join(f"{one} -> {other}" for place, one in enumerate("XABCDEY") for other in "XABCDEY"[place + 1 :])
SAID = [
    ("A; B; Y; features A, B", "Specification", "no arrows lead from A, B to Y. A -> Y or B -> Y would specify it."),
    (MANY, "Paths from X to Y", "\n... and "),
    ("X -> [S]; Y", DOES, "X and Y are independent in the population, and in selected data too."),
    ("X -> [S]; Y -> S", DOES, "independent in the population and dependent in selected data"),
    ("X <- A -> C <- B -> Y; C -> X -> [S]", DOES, "opens X <- A -> C <- B -> Y. It does not distort P(Y | X)"),
    ("W -> X; X -> Y; Y -> [S]", DOES, "still distorts P(Y | X): given X, S depends on Y itself, by S <- Y."),
    ("X -> Y; X -> [S]", RECOVERY, "Recoverable from selected data alone: given X, S and Y are independent."),
    ("X -> Y -> [S]", RECOVERY, "Recoverable if P(Y) is known"),
    (CANDIDATES, WHO, "W: qualifies; it causes X"),
    (CANDIDATES, WHO, "\nL: does not qualify: it is not observed"),
]


@pytest.mark.parametrize(("text", "title", "words"), SAID)
def test_section_of_a_graph_says_what_follows_from_it(text: str, title: str, words: str) -> None:
    lines = describe_graph(read_graph(text))[title]
    assert words in "\n".join(lines)
    assert len(lines) == 31 or text != MANY


@pytest.mark.parametrize(
    ("text", "place", "because"),
    [
        ("(W) -> X; W -> S; G -> S; G -> Y; [S]", 0, "W is latent"),
        ("X; W -> S; G -> S; G -> Y; [S]", 0, "no arrows lead from W to X"),
        ("W -> X; W -> S; G -> S; G -> Y; W -> Y; [S]", 1, "W -> Y"),
        ("W -> X; Y -> W; G -> Y; W -> [S]", 1, "W <- Y"),
        ("W -> X; W -> S; G -> S; G -> Y; (U) -> W; U -> Y; [S]", 2, "W <- U -> Y"),
        ("W -> X; W -> S; G -> S; G -> Y; W <-> Y; [S]", 3, "W <-> Y is open without it"),
        ("W -> X; W -> [S]; G -> Y", 3, "S opens no path between them"),
        ("W -> X; W -> S; G -> S; G -> Y; X -> Y; [S]", 4, "X -> Y"),
        ("W -> X; W -> S; G -> S; G -> X; G -> Y; [S]", 5, "X <- G -> Y is open in the population"),
    ],
)
def test_an_assumption_that_fails_says_by_which_arrows(text: str, place: int, because: str) -> None:
    row = assumptions(read_graph(text), DRIFT)[place]
    assert row.holds is False
    assert row.reason.startswith(because)


def test_assumptions_need_a_w_and_an_audit() -> None:
    (row,) = assumptions(read_graph("A -> X -> Y"), DRIFT)
    assert (row.holds, "no node is called W" in row.reason) == (False, True)
    assert assumptions(read_graph("A -> X -> Y; covariate A"), DRIFT)[0].reason == "A -> X"
    assert assumptions(read_graph("W -> X -> Y; W -> [S]"), SPECIFICATION)[-1].holds is True
    assert_refused((f"use one of: {DRIFT}, {SPECIFICATION}",), assumptions, read_graph("X -> Y"), "drift")


def test_the_page_prints_what_the_command_prints(cli: Cli) -> None:
    page = PAGE.read_text(encoding="utf-8")
    command, shown = re.findall(r"^```text\n\$ undertow graph (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    lines = said(cli("graph", command)).splitlines()
    assert all(line == "..." or line in lines for line in shown.splitlines())
    (graph,) = re.findall(r"^```dag\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert read_graph(graph).meanings


PROBE = "spurious-correlation"
RUN = ["run", PROBE, "-m", "toy:slope=20", "--w", "date", "--date-count", "12", "--limit", "120"]
DOUBT = "W causes Y other than through the features"


@pytest.fixture
def no_other_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits.load(PROBE), "draw", lambda *_: iter(()))


@pytest.mark.slow
@pytest.mark.usefixtures("no_other_figures")
def test_json_of_a_run_holds_the_assumptions_and_which_findings_rest_on_them(cli: Cli) -> None:
    plain = json.loads(said(cli(*RUN, "--out", "run", "--json")))
    assert set(plain) == {"folder", "report", "counts", "findings"}
    assert all({"text", "significant", "strength", "results"} <= set(finding) for finding in plain["findings"])
    named = json.loads(said(cli(*RUN, "--graph", "W -> X; W -> Y; G -> Y", "--out", "run", "--json")))
    for with_graph, without in zip(named["findings"], plain["findings"], strict=True):
        assert with_graph == {**without, "causal_claim": DRIFT if without["significant"] else ""}
    graph = named["graph"]
    assert {name: graph[name] for name in ("name", "text", "causal_claim", "w_names")} == {
        "name": "", "text": "W -> X; W -> Y; G -> Y", "causal_claim": DRIFT, "w_names": ["date"],
    }  # fmt: skip
    assert "not evidence of selection" in graph["caveat"]
    assert DOUBT in graph["caveat"]
    assert [row["holds"] for row in graph["assumptions"]] == [True, False, True, False, True, True]
    assert set(graph["assumptions"][0]) == {"claim", "holds", "reason", "violation"}


@pytest.mark.slow
@pytest.mark.usefixtures("no_other_figures")
def test_the_manual_prints_what_a_run_prints(cli: Cli) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (command, shown), *others = re.findall(
        r"^```text\n\$ undertow (run [^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert not others
    printed = said(cli(*command.split())).splitlines()
    lines = shown.splitlines()
    assert len(lines) >= 5
    for line in lines:
        assert line == "..." or line in printed, line
