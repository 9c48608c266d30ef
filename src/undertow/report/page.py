"""The HTML page of an audit: findings, figures, tables and provenance.

The page is one file: it loads nothing, runs only its own script, and escapes all given text. Its words are in
`templates/page.html.j2`; `formatting` writes its numbers.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from undertow.errors import on_one_line
from undertow.metrics.groups import KEYS
from undertow.metrics.metric import column_meanings, get_metric
from undertow.report.formatting import (
    FILTERS,
    MINUS,
    MISSING,
    OF_DIFFERENCES,
    TABLE_ONLY,
    decimals_of,
    in_brackets,
    measure_title,
    number,
    probability,
    shortened,
    shortest,
    significant,
    spaced,
)
from undertow.report.page_data import Page, ReportTable, by_strength
from undertow.report.sentence_templates import column_head, sentences, template_text
from undertow.types import ALPHA, Result

SHORT_CELL_SIGNS, LONG_CELL_SIGNS = 14, 40
_NUMERIC = re.compile(rf"[\d\s.,:;+\-{MINUS}±<>≤≥≈%()\[\]/×]+")
"""Numbers and the characters between them: 42.1 ± 0.8, [1.0, 2.0], 12/40, 33%."""


def render_page(page: Page) -> str:
    """The page as one HTML document. Equal pages give equal text, and any text is escaped."""
    # Group keys with the same level in every result, which the page states once.
    first = page.results[0].group if len(page.results) > 1 else {}
    shared = {key: level for key, level in first.items() if all(r.group.get(key) == level for r in page.results)}
    by_measure: dict[tuple[str, str, str], list[Result]] = {}
    for result in page.results:
        by_measure.setdefault((result.measure, result.unit, repr(result.null_value)), []).append(result)
    tables = [_table(results, shared, page) for results in by_measure.values()]
    significant, others = by_strength(page.findings)
    return render_template(
        "page.html.j2",
        page=page,
        verdict=next(iter([*significant, *others]), None),
        significant_findings=significant,
        other_findings=others,
        shared=shared,
        tables=tables,
        glossary=_glossary(page, tables, shared),
        significant_below_q=ALPHA,
    )


def render_template(name: str, **values: Any) -> str:
    """A page of a template of `report/templates`, which has the script of the report and its hash; any text is escaped."""
    from markupsafe import Markup

    script = template_text("page.js").strip()
    values["script"] = Markup(script)  # noqa: S704 - a file of this package, and no text of a run
    values["script_sha256"] = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = _environment().get_template(name).render(**values)
    return html


@cache
def _environment() -> Any:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_on_its_line,
    )
    environment.filters |= dict(FILTERS) | {
        "lines": _Lines,
        "shortened": shortened,
        "head": column_head,
        "looks": _looks,
        "decimals": lambda result: decimals_of([result])[0],
        "markup": Markup,
    }
    environment.tests["finite"] = math.isfinite
    return environment


class _Lines(str):
    """Text that keeps its line breaks."""

    __slots__ = ()


def _on_its_line(value: object) -> object:
    """Escape line ends, control characters and lone surrogates in text of a run."""
    if isinstance(value, _Lines):
        return "\n".join(map(on_one_line, value.split("\n")))
    return on_one_line(value) if type(value) is str else value


def _table(results: Sequence[Result], shared: Mapping[str, str], page: Page) -> ReportTable:
    """The numbers of one measure, without empty columns."""
    first, decimals = results[0], decimals_of(results)
    columns: list[tuple[str, list[str]]] = []  # head and cells
    for key in dict.fromkeys(key for result in results for key in result.group if key not in shared):
        columns.append((column_head(key), [result.group.get(key, MISSING) or "none" for result in results]))
    columns.append(("value", [number(one.value, places) for one, places in zip(results, decimals, strict=True)]))
    optional = [
        ("95% interval", [in_brackets(one.low, one.high, at) for one, at in zip(results, decimals, strict=True)]),
        ("p", [probability(result.p) for result in results]),
        ("q", [probability(result.q) for result in results]),
    ]
    columns += [(head, cells) for head, cells in optional if set(cells) != {MISSING}]
    columns.append(("n", [f"{result.n:,}" for result in results]))
    columns.append(("missing", [f"{result.n_missing:,}" for result in results]))
    for name in dict.fromkeys(name for result in results for name in result.extras if name not in TABLE_ONLY):
        extras = [result.extras.get(name, math.nan) for result in results]
        as_value = [number(*one) for one in zip(extras, decimals, strict=True)]
        columns.append((column_head(name), as_value if name in OF_DIFFERENCES else list(map(significant, extras))))
    if any(result.note for result in results):
        columns.append(("note", [result.note for result in results]))
    about = [f"in {first.unit}" if first.unit else ""]
    about += [f"{page.null_prefix} {shortest(first.null_value)}"] if math.isfinite(first.null_value) else []
    return ReportTable(
        title=page.measure_titles.get(first.measure) or measure_title(first),
        columns=[head for head, _ in columns],
        rows=list(zip(*(cells for _, cells in columns), strict=True)),
        about="; ".join(filter(None, about)),
        bold=[result.q < ALPHA for result in results],
    )


def _looks(table: ReportTable) -> list[str]:
    """CSS class of each column: of numbers, or of the minimum width of its texts."""
    looks = []
    for place, head in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        filled = [cell for cell in cells if cell.strip() not in ("", MISSING)]
        longest = max(map(len, cells), default=0)
        if filled and all(_NUMERIC.fullmatch(cell) and any(map(str.isdigit, cell)) for cell in filled):
            looks.append("number value" if head == "value" else "number")
        else:
            looks.append("long" if longest > LONG_CELL_SIGNS else "words" if longest > SHORT_CELL_SIGNS else "")
    return looks


def _glossary(page: Page, tables: Sequence[ReportTable], shared: Mapping[str, str]) -> dict[str, str]:
    """Meanings of the measures and columns that this page shows, measures first."""
    measures = {result.measure: get_metric(result.measure, result.group) for result in page.results}
    titles = {one.title: one.meaning for one in measures.values() if one.meaning}
    names = dict.fromkeys(name for result in page.results for name in (*result.group, *result.extras))
    # The groups of a checklist are named by its own results, not by those of other packages.
    known = column_meanings(next((result.group for result in page.results if KEYS[0] in result.group), {}))
    further = {spaced(name): known[name] for name in names if name in known}
    heads = chain(map(column_head, shared), *(table.columns for table in tables))
    meanings = sentences("columns").meanings
    columns = {head: meanings[head] for head in dict.fromkeys(heads) if head in meanings}
    given = {
        page.measure_titles.get(name) or (measure_title(name) if name in measures else spaced(name)): meaning
        for name, meaning in page.glossary.items()
    }
    return titles | columns | further | given
