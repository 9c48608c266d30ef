"""What a notebook shows of a run: its findings, then its numbers. Every text in it is shown as text.

Knows results and findings; asks, measures and reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from undertow.errors import on_one_line
from undertow.report.formatting import minus_signs, number
from undertow.types import Finding, Result

MAX_FINDINGS, MAX_RESULTS = 10, 40
"""Maximum numbers of findings and of results in a notebook; the report has all."""


def run_html(head: str, findings: Sequence[Finding], results: Sequence[Result], report: Path) -> str:
    """Findings with those that were made in bold, a table of results, and where the whole report is.

    Args:
        head: of what, and whose answers.
        findings: the strongest first.
        results: the measures.
        report: the page.
    """
    items = "".join(f"<li>{_finding_html(finding)}</li>" for finding in findings[:MAX_FINDINGS])
    keys = list(dict.fromkeys(key for result in results[:MAX_RESULTS] for key in result.group))
    heads = ["measure", *keys, "value", "95% interval", "n", "missing", "q", "unit"]
    table = "".join(_row(result, keys) for result in results[:MAX_RESULTS])
    left = [_left(len(findings), MAX_FINDINGS, "findings"), _left(len(results), MAX_RESULTS, "results")]
    more = f"{', '.join(filter(None, left))}; the whole" if any(left) else "The whole"
    return (
        f"<div><p><b>{escape(on_one_line(head))}</b></p><ul>{items}</ul>"
        f"<table><thead><tr>{_cells(heads, 'th')}</tr></thead><tbody>{table}</tbody></table>"
        f"<p>{escape(on_one_line(f'{more} report: {report}'))}</p></div>"
    )


def _finding_html(finding: Finding) -> str:
    text = escape(minus_signs(finding.text))
    return f"<b>{text}</b>" if finding.significant else text


def _row(result: Result, keys: Sequence[str]) -> str:
    about = [result.group.get(key, "") for key in keys]
    interval = f"{number(result.low)} to {number(result.high)}" if math.isfinite(result.low) else ""
    numbers = [
        number(result.value),
        interval,
        f"{result.n:,}",
        f"{result.n_missing:,}",
        number(result.q, 3),
        result.unit,
    ]
    return f"<tr>{_cells([result.measure, *about, *numbers], 'td')}</tr>"


def _cells(texts: Iterable[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(on_one_line(text))}</{tag}>" for text in texts)


def _left(n_all: int, n_listed: int, what: str) -> str:
    return f"{n_listed} of {n_all:,} {what}" if n_all > n_listed else ""
