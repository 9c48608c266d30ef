"""`--graph` as a user types it: what `run`, `score` and `report` say of the graph that an audit names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from undertow import audits
from undertow.causal.assumptions import DRIFT

PROBE = "spurious-correlation"
RUN = ["run", PROBE, "-m", "toy:slope=20", "--w", "date", "--date-count", "12", "--limit", "120"]
DOUBT = "W causes Y other than through the features"


@pytest.fixture
def main(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """What a command prints that ends well, in a folder of the test's own; without other figures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audits.load(PROBE), "draw", lambda *_: iter(()))

    def run(*arguments: str) -> str:
        done = cli(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_json_holds_the_assumptions_and_which_findings_rest_on_them(main: Callable[..., str]) -> None:
    plain = json.loads(main(*RUN, "--out", "run", "--json"))
    assert set(plain) == {"folder", "report", "counts", "findings"}
    assert all({"text", "significant", "strength", "results"} <= set(finding) for finding in plain["findings"])
    named = json.loads(main(*RUN, "--graph", "W -> X; W -> Y; G -> Y", "--out", "run", "--json"))
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
def test_the_manual_prints_what_the_command_prints(main: Callable[..., str]) -> None:
    page = (ROOT / "docs/causal-graphs.md").read_text(encoding="utf-8")
    (command, shown), *others = re.findall(
        r"^```text\n\$ undertow (run [^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert not others
    said = main(*command.split()).splitlines()
    lines = shown.splitlines()
    assert len(lines) >= 5
    for line in lines:
        assert line == "..." or line in said, line
