"""Display of a run in a notebook: a progress bar, then findings and numbers; all text is escaped."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from undertow.errors import on_one_line
from undertow.report.formatting import decimals_of, measure_title, minus_signs, number, probability
from undertow.report.sentence_templates import column_head, template_text
from undertow.types import Finding, Progress, Result

MIN_SECONDS = 0.3
"""Minimum time between two updates of the bar."""
MAX_FINDINGS, MAX_RESULTS = 10, 40
"""Maximum numbers of findings and results in a notebook; the report has all."""
HEADS = ("value", "95% interval", "n", "missing", "q", "unit")


def notebook_progress() -> Progress | None:
    """A progress bar in the running cell of a notebook; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    display = importlib.import_module("IPython.display")
    cell = display.display(display.HTML(""), display_id=True)
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        if done >= total or time.monotonic() - last > MIN_SECONDS:
            last = time.monotonic()
            cell.update(display.HTML(f'<progress value="{done}" max="{total}"></progress> {done:,} of {total:,}'))

    return progress


def run_html(head: str, findings: Sequence[Finding], results: Sequence[Result], report: Path) -> str:
    """Findings, significant ones in bold, a table of the results that they name, and the path of the report.

    `results` are those of the table if no finding names any.
    """
    import jinja2

    by_id = {id(result): result for finding in findings for result in finding.results}
    results = list(by_id.values()) or results
    first, decimals = results[:MAX_RESULTS], decimals_of(results[:MAX_RESULTS])
    keys = list(dict.fromkeys(key for result in first for key, level in result.group.items() if level))
    rows = []
    for one, at in zip(first, decimals, strict=True):
        ends = f"{number(one.low, at)} to {number(one.high, at)}" if math.isfinite(one.low) else ""
        group = [one.group.get(key, "") for key in keys]
        counts = [f"{one.n:,}", f"{one.n_missing:,}"]
        rows.append([measure_title(one), *group, number(one.value, at), ends, *counts, probability(one.q), one.unit])
    lengths = ((len(findings), MAX_FINDINGS, "findings"), (len(results), MAX_RESULTS, "results"))
    cut = [f"{limit} of {n_all:,} {noun}" for n_all, limit, noun in lengths if n_all > limit]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"line": on_one_line, "minus": minus_signs}
    return environment.from_string(template_text("notebook.html.j2")).render(
        head=head,
        findings=findings[:MAX_FINDINGS],
        heads=["measure", *map(column_head, keys), *HEADS],
        rows=rows,
        last=f"{', '.join(cut)}; the whole report: {report}" if cut else f"The whole report: {report}",
    )
