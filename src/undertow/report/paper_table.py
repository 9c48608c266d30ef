"""Tables of a run for papers, as data frame, text, LaTeX (booktabs), Markdown or CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from undertow.errors import UndertowError, closest, on_one_line
from undertow.metrics.metric import OVER_PROMPTS, get_metric
from undertow.report.formatting import (
    MINUS,
    MISSING,
    correlation,
    decimals_of,
    in_brackets,
    in_markdown,
    inline_markdown,
    number,
    probability,
    significant,
    uncapitalized,
)
from undertow.report.page_data import ReportTable
from undertow.report.sentence_templates import column_head, sentences
from undertow.types import ALPHA, ALPHA_TEXT, Result

if TYPE_CHECKING:
    import pandas as pd

LATEX, MARKDOWN, CSV = "latex", "markdown", "csv"
FORMATS = (LATEX, MARKDOWN, CSV)
_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    MINUS: "$-$",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
    MISSING: "--",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "\N{ZERO WIDTH SPACE}": "{}",
}
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_NUMERIC = re.compile(rf"[{MINUS}+<.\d\s,%\[\]±{MISSING}-]*")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Selection of results for a table of an audit.

    Attributes:
        name: what `undertow table RUN --table NAME` calls it.
        rows: measures with one row per result: value, interval, p, q and n. Results over all prompts replace those of single prompts.
        columns: further measures of the same groups, with one column each.
        where: required levels of the rows' groups, if they have the key.
    """

    name: str
    rows: Sequence[str]
    columns: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table with its numbers.

    Attributes:
        name: what `undertow table RUN --table NAME` calls it.
        frame: numbers, with one column each.
        estimate: title of the column whose significant values are in bold.
        text: the table for readers, with decimals according to the intervals; its `about` is the caption.
    """

    name: str
    frame: pd.DataFrame
    text: ReportTable
    estimate: str = ""

    @property
    def caption(self) -> str:
        """The caption, with an explanation of bold values."""
        return f"{self.text.about} Bold: q < {ALPHA_TEXT}." if any(self.text.bold) else self.text.about

    def to_latex(self) -> str:
        """A `table` environment for the package booktabs, values with q below .05 in bold."""
        numeric = self._numeric
        rows = [" & ".join(row) for row in self._rows(r"\textbf{", "}", escape_latex)]
        heads = [f"${head}$" if head in ("p", "q", "r") else escape_latex(head) for head in self.text.columns]
        # LaTeX reads a bracket as an option of the previous line.
        body = "\n".join(rf"{'{}' * row.startswith('[')}{row} \\" for row in rows)
        return rf"""\begin{{table}}
\centering
\caption{{{escape_latex(self.caption)}}}
\label{{tab:{self.name.replace("_", "-")}}}
\begin{{tabular}}{{{"".join("r" if one else "l" for one in numeric)}}}
\toprule
{" & ".join(heads)} \\
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{table}}"""

    def to_markdown(self) -> str:
        """A table in GitHub's Markdown, with its caption below."""
        rows = [list(map(_markdown_cell, self.text.columns)), *self._rows("**", "**", _markdown_cell)]
        heads, *lines = [f"| {' | '.join(row)} |" for row in rows]
        rule = f"|{'|'.join('---:' if one else '---' for one in self._numeric)}|"
        return "\n".join([heads, rule, *lines, "", in_markdown(self.caption)])

    @property
    def _numeric(self) -> list[bool]:
        """Whether each column holds numbers."""
        columns = zip(*self.text.rows, strict=True)
        return [all(map(_NUMERIC.fullmatch, own)) and any(map(str.isdigit, "".join(own))) for own in columns]

    def _rows(self, begin: str, end: str, escape: Callable[[str], str]) -> list[list[str]]:
        """The cells, with significant estimates between these marks."""
        rows = [[escape(cell) for cell in row] for row in self.text.rows]
        if self.estimate and self.text.bold:
            at = list(self.text.columns).index(self.estimate)
            for row, bold in zip(rows, self.text.bold, strict=True):
                row[at] = f"{begin}{row[at]}{end}" if bold else row[at]
        return rows


def _markdown_cell(text: str) -> str:
    """A cell of a table; numbers and intervals need no escapes."""
    return text if _NUMERIC.fullmatch(text) and on_one_line(text) == text else inline_markdown(text)


def escape_latex(text: str) -> str:
    """The text on one line, with the signs that LaTeX reads as commands escaped."""
    apart = on_one_line(text).replace("--", "-\N{ZERO WIDTH SPACE}-")  # two hyphens would become a dash
    return "".join(_ESCAPES.get(sign, sign) for sign in apart)


def paper_tables(
    results: Sequence[Result], layouts: Sequence[TableLayout], others: Sequence[ReportTable], about: str
) -> dict[str, PaperTable]:
    """Tables of a run by name; the first is the main one.

    Args:
        results: results of the run.
        layouts: layouts of the audit's tables.
        others: tables in a paper's layout; they become `paper-1`, `paper-2`, ...
        about: description of the run for captions, in a sentence.
    """
    wanted = [*layouts, *(TableLayout(measure, [measure]) for measure in dict.fromkeys(one.measure for one in results))]
    own = {layout.name: _of_results(layout, results, about, averaged=layout in layouts) for layout in wanted}
    own_tables = {name: one for name, one in own.items() if one is not None}
    given = {f"paper-{at}": _of_report(f"paper-{at}", table, about) for at, table in enumerate(others, 1)}
    return {**own_tables, **given} if layouts else {**given, **own_tables}


def choose(tables: Mapping[str, PaperTable], name: str) -> PaperTable:
    """The table of this name, or the first one for ""; raises `UndertowError` if there is none."""
    if not tables:
        raise UndertowError("the run has no results, so it has no table")
    if name and name not in tables:
        raise UndertowError(f"there is no table {name!r}{closest(name, tables)}; there is {', '.join(tables)}")
    return tables[name or next(iter(tables))]


def _of_results(layout: TableLayout, results: Sequence[Result], about: str, *, averaged: bool) -> PaperTable | None:
    """A table of results, over all prompts if `averaged` and there are such; None where the run has none of them."""
    import pandas as pd

    over_prompts = [f"{row}{OVER_PROMPTS}" for row in layout.rows]
    measures = over_prompts if averaged and any(one.measure in over_prompts for one in results) else layout.rows
    where = layout.where.items()
    rows = [one for one in results if one.measure in measures and all(one.group.get(k, v) == v for k, v in where)]
    if not rows:
        return None
    suffix = OVER_PROMPTS if measures is over_prompts else ""
    columns = [f"{column}{suffix}" for column in layout.columns]
    beside = {(one.measure, frozenset(one.group.items())): one.value for one in results if one.measure in columns}
    levels = {key: [one.group.get(key, "") for one in rows] for key in dict.fromkeys(k for r in rows for k in r.group)}
    same = {key: own[0] for key, own in levels.items() if key != "model" and len({*own}) == 1}
    keys = [key for key in levels if key not in same]
    frame = pd.DataFrame({key: levels[key] for key in keys}).assign(
        measure=[one.measure for one in rows],
        **{name: [getattr(one, name) for one in rows] for name in ("value", "low", "high")},
        **{name: [beside.get((name, frozenset(one.group.items())), math.nan) for one in rows] for name in columns},
        **{name: [getattr(one, name) for one in rows] for name in ("p", "q", "n", "n_missing", "unit")},
    )
    frame["significant"] = frame["q"] < ALPHA
    cells = {column_head(key): [level or "none" for level in frame[key]] for key in keys}
    main, decimals = get_metric(rows[0].measure, rows[0].group), decimals_of(rows)
    cells[main.title] = [number(one.value, at) for one, at in zip(rows, decimals, strict=True)]
    cells["95% interval"] = [in_brackets(one.low, one.high, at) for one, at in zip(rows, decimals, strict=True)]
    for column in columns:
        is_r = column.startswith("pearson_r")
        title = "r" if is_r else get_metric(column).title
        cells[title] = [correlation(one) if is_r else significant(one) for one in frame[column]]
    cells |= {"p": [probability(one.p) for one in rows], "q": [probability(one.q) for one in rows]}
    cells["n"] = [f"{one.n:,}" for one in rows]
    cells = {head: column for head, column in cells.items() if {*column} != {MISSING}}
    units = list(dict.fromkeys(one.unit for one in rows if one.unit))
    caption = sentences("papers").caption(main.title, units, same, about, n_tests=int(frame["q"].notna().sum()))
    beside_main = [get_metric(column).title for column in layout.columns]
    title = f"{main.title}, with {', '.join(map(uncapitalized, beside_main))}" if beside_main else main.title
    lines = list(zip(*cells.values(), strict=True))
    text = ReportTable(title, list(cells), lines, caption, bold=list(frame["significant"]))
    return PaperTable(layout.name, frame, text, main.title)


def _of_report(name: str, table: ReportTable, about: str) -> PaperTable:
    """A table in a paper's layout; columns of numbers become numeric."""
    import pandas as pd

    frame = pd.DataFrame(table.named_rows(), columns=list(table.columns))
    for column in frame:
        given = [cell.replace(MINUS, "-") for cell in frame[column] if cell not in ("", MISSING)]
        if given and all(_PLAIN_NUMBER.fullmatch(cell) for cell in given):
            cells = [cell.replace(MINUS, "-") for cell in frame[column]]
            frame[column] = [float(cell) if cell in given else math.nan for cell in cells]
    caption = " ".join(filter(None, [f"{table.title.rstrip('.')}.", table.about, about]))
    return PaperTable(name, frame, ReportTable(table.title, table.columns, table.rows, caption, bold=table.bold))
