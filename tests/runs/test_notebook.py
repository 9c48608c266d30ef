from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import undertow
from conftest import ROOT
from helpers.hostile_text import PAYLOADS
from undertow.report.notebook import MAX_FINDINGS, MAX_RESULTS, notebook_progress, run_html
from undertow.types import Finding, Result


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_every_text_is_shown_as_text(payload: str) -> None:
    result = Result(payload, {payload: payload}, 1.0, unit=payload)
    html = run_html(payload, [Finding(payload, significant=True, strength=1.0)], [result], Path(payload))
    tags = set(re.findall(r"</?([a-z0-9]+)[^>]*>", html))
    assert tags == {"div", "p", "b", "ul", "li", "table", "thead", "tr", "th", "tbody", "td"}
    assert not re.search(r"<(?!/?[a-z0-9]+>)", html), "no tag has an attribute"
    assert html.count("<table>") == html.count("</table>") == 1


def test_numbers_are_shown_and_missing_ones_are_not_nan() -> None:
    known = Result("slope", {"pronoun": "female"}, 0.5, 0.25, 0.75, n=1200, unit="percent per step", q=0.0123)
    falls = Result("slope", {"pronoun": "male"}, -0.5, low=-1.5, high=0.5)
    told = Finding("It falls (-0.50).", significant=True, strength=1.0, results=(falls,))
    html = run_html("p: m", [told], [known, falls], Path("report.html"))
    assert "<b>It falls (−0.50).</b>" in html
    assert "<td>−0.5</td><td>−1.5 to 0.5</td>" in html
    assert "1,200" not in html, "the table has what the findings tell"
    html = run_html("p: m", [], [known, Result("slope", {}, float("nan")), falls], Path("report.html"))
    cells = re.findall(r"<td>(.*?)</td>", html)
    assert cells[:8] == ["Slope", "female", "0.50", "0.25 to 0.75", "1,200", "0", ".012", "percent per step"]
    assert "nan" not in html
    assert "<tbody></tbody>" in run_html("p: m", [], [], Path("report.html")), "a run without results"


def test_a_run_shows_its_findings_above_its_results(finished_run: Callable[..., Path]) -> None:
    run = undertow.load_run(finished_run("spurious-correlation", "toy", w="date", limit=150))
    html = run._repr_html_()
    assert html.index("<li>") < html.index("<table>")
    assert "spurious-correlation: toy" in html
    assert html.count("<li>") == min(len(run.findings), MAX_FINDINGS)
    told = {id(result) for finding in run.findings for result in finding.results}
    assert html.count("<tr>") == 1 + min(len(told), MAX_RESULTS)


def test_tour_runs_from_its_first_cell_to_its_last(in_folder: Path) -> None:
    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "tour", "exec"), names)
    assert names["run"].findings[0].significant
    assert (in_folder / "tour" / "drift.pdf").read_bytes().startswith(b"%PDF")


def test_bar_is_shown_in_a_notebook_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook_progress() is None
    shell = type("ZMQInteractiveShell", (), {})()
    updates: list[str] = []
    cell = SimpleNamespace(update=updates.append)
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: cell)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    progress = notebook_progress()
    assert progress is not None
    progress(1, 4)
    progress(2, 4)
    progress(4, 4)
    assert [text.split("> ")[1] for text in updates] == ["1 of 4", "4 of 4"]
