"""What a notebook shows of a run: its findings, then its numbers, every text as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

from undertow.errors import on_one_line
from undertow.report.formatting import minus_signs, number
from undertow.types import Finding, Result

MAX_FINDINGS, MAX_RESULTS = 10, 40
"""Maximum numbers of findings and of results in a notebook; the report has all."""


def run_html(head: str, findings: Sequence[Finding], results: Sequence[Result], report: Path) -> str:
    """Findings, significant ones in bold, a table of results, and the place of the report.

    Args:
        head: audit and model.
        findings: the strongest first.
        results: the measures.
        report: the page.
    """
    import jinja2

    keys = list(dict.fromkeys(key for result in results[:MAX_RESULTS] for key in result.group))
    rows = [
        [
            result.measure,
            *(result.group.get(key, "") for key in keys),
            number(result.value),
            f"{number(result.low)} to {number(result.high)}" if math.isfinite(result.low) else "",
            f"{result.n:,}",
            f"{result.n_missing:,}",
            number(result.q, 3),
            result.unit,
        ]
        for result in results[:MAX_RESULTS]
    ]
    lengths = ((len(findings), MAX_FINDINGS, "findings"), (len(results), MAX_RESULTS, "results"))
    cut = [f"{limit} of {n_all:,} {noun}" for n_all, limit, noun in lengths if n_all > limit]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["line"] = on_one_line
    template = resources.files("undertow.report").joinpath("templates", "notebook.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        head=head,
        findings=[
            SimpleNamespace(text=minus_signs(one.text), significant=one.significant) for one in findings[:MAX_FINDINGS]
        ],
        heads=["measure", *keys, "value", "95% interval", "n", "missing", "q", "unit"],
        rows=rows,
        last=f"{', '.join(cut)}; the whole report: {report}" if cut else f"The whole report: {report}",
    )
