"""What a notebook shows of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import undertow
from helpers.hostile_text import PAYLOADS
from undertow.report.notebook import MAX_FINDINGS, MAX_RESULTS, run_html
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
    html = run_html("p: m", [told], [known, Result("slope", {}, float("nan")), falls], Path("report.html"))
    assert "<b>It falls (−0.50).</b>" in html
    assert "<td>−0.50</td><td>−1.50 to 0.50</td>" in html
    cells = re.findall(r"<td>(.*?)</td>", html)
    assert cells[:8] == ["slope", "female", "0.50", "0.25 to 0.75", "1,200", "0", "0.012", "percent per step"]
    assert "nan" not in html


def test_a_run_shows_its_findings_above_its_results(finished_run: Callable[..., Path]) -> None:
    run = undertow.load_run(finished_run("spurious-correlation", "toy", w="date", limit=150))
    html = run._repr_html_()
    assert html.index("<li>") < html.index("<table>")
    assert "spurious-correlation: toy" in html
    assert html.count("<li>") == min(len(run.findings), MAX_FINDINGS)
    assert html.count("<tr>") == 1 + min(len(run.record.results), MAX_RESULTS)
