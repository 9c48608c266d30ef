"""The HTML page of an audit: findings, figures, tables and provenance.

The page is one file: it loads nothing, runs only its own script, and shows all given text as text.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain
from statistics import median_low
from typing import NamedTuple

from undertow.errors import on_one_line
from undertow.metrics import catalog
from undertow.metrics.catalog import find_metric
from undertow.report.formatting import (
    COLUMNS,
    DETAILS,
    GROUP_KEYS,
    MAX_DIGITS,
    MINUS,
    MISSING,
    NOTES,
    OF_DIFFERENCES,
    TABLE_ONLY,
    MinusSigns,
    measure_title,
    number,
    probability,
    shortest,
    significant,
    significant_decimals,
    spaced,
)
from undertow.report.model import Checklist, ChecklistTest, ReportTable
from undertow.types import Finding, Result

SIGNIFICANT_BELOW_Q = 0.05
UNFOLDED_FINDINGS = 10
"""More than these are folded: a run over several models has dozens, and the strongest come first."""
LONG_TABLE_ROWS = 60
"""A longer table is folded until the reader opens it."""
SHORT_CELL_SIGNS, LONG_CELL_SIGNS = 14, 40
FAILURE_STEPS_PERCENT = (5.0, 20.0, 50.0)
"""Where a check that fails more often than this gets a stronger colour."""
MAX_BASIS_RESULTS = 8
"""Results listed under a finding; the others are in the tables."""
_TALL = 1.2
"""A figure higher than this many times its width gets a printed page of its own."""
_SVG_SIZE = re.compile(r'<svg\b[^>]*\bviewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"')
_NUMERIC = re.compile(rf"[\d\s.,:;+\-{MINUS}±<>≤≥≈%()\[\]/×]+")
"""Numbers and what stands between them: 42.1 ± 0.8, [1.0, 2.0], 12/40, 33%."""


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure as the page holds it.

    Attributes:
        name: what it is called.
        svg: an SVG document, which the page shows as an image, so that nothing in it can run.
        caption: what to see in it.
        alt: what it shows, for those who cannot see it.
    """

    name: str
    svg: str
    caption: str
    alt: str

    @property
    def is_tall(self) -> bool:
        """Whether it needs more height than others to be read where it is printed."""
        size = _SVG_SIZE.search(self.svg)
        return size is not None and float(size[2]) > _TALL * float(size[1])


@dataclass(frozen=True, slots=True)
class PageAssumption:
    """An assumption of the findings.

    Attributes:
        claim: what has to be so.
        holds: whether the graph grants it; None where it is not for a graph to say.
        said: the same in words.
        reason: the path or the arrows that it comes of.
    """

    claim: str
    holds: bool | None
    said: str
    reason: str

    @property
    def look(self) -> str:
        """CSS class of its colour."""
        return {True: "granted", False: "refused", None: "unsaid"}[self.holds]


@dataclass(frozen=True, slots=True)
class PageAssumptions:
    """What the findings of an audit rest on under the causal graph that it names.

    Attributes:
        kind: what kind of findings they are.
        graph: the graph's text.
        about: sentences that say which graph it is and what its nodes are.
        summary: how many assumptions there are, and how many of them are granted.
        assumptions: what all findings rest on that are of this kind.
        caveat: what such a finding carries where an assumption is not granted; "" where all are.
        figure: the graph, drawn.
    """

    kind: str
    graph: str
    about: Sequence[str]
    summary: str
    assumptions: Sequence[PageAssumption]
    caveat: str = ""
    figure: PageFigure | None = None


@dataclass(frozen=True, slots=True)
class PagePrecision:
    """What the reduced precision of a run costs it.

    Attributes:
        sentences: effects of the precision, a sentence each.
        could_change: findings that could change in float32, by their texts; also some that are not there.
        table: results of a sample in both precisions; None where it could not be read again.
    """

    sentences: Sequence[str]
    could_change: Sequence[str] = ()
    table: ReportTable | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Content of a report; all of it is plain text, never markup.

    Attributes:
        title: the name of the audit.
        lead: one sentence that says what was done and what came of it.
        findings: in any order; the page tells the strongest first, and what was not found after what was.
        results: the numbers, one table for each measure.
        figures: in the order to be shown.
        matrices: checklists, after the figures.
        tables: tables of the audit's own, between these and the numbers; one with a warning stays closed until it is opened.
        questions: sentences that say what was asked.
        examples: some of the sentences that were asked.
        identity: the identity of the model, row by row.
        notes: what the numbers rest on and what they do not show.
        command: the shell command that repeats the audit.
        python: the same in Python.
        provenance: versions, hashes, seed, timing, machine, row by row.
        null_prefix: what stands before a measure's neutral value.
        causal_assumptions: what the findings rest on, for an audit that names a graph; None for others.
        precision: what its precision costs a run that had less than float32; None for others.
        basis: what a finding rests on beside the results that it tells, row by row, by the finding's text.
        nothing: what stands where findings would, if not that no effect was found.
        titles: titles of measures that this package does not know by name.
        glossary: meanings of these, and of group keys and further numbers that it does not know by name.
    """

    title: str
    lead: str
    findings: Sequence[Finding]
    results: Sequence[Result]
    figures: Sequence[PageFigure] = ()
    questions: Sequence[str] = ()
    examples: Sequence[str] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = NOTES
    command: str = ""
    python: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    glossary: Mapping[str, str] = field(default_factory=dict)
    null_prefix: str = "no bias would give"
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[Checklist] = ()
    causal_assumptions: PageAssumptions | None = None
    precision: PagePrecision | None = None
    basis: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nothing: str = ""

    @property
    def empty_text(self) -> str:
        """Text in place of findings."""
        if self.results and all(result.n == 0 for result in self.results):
            return "Nothing was scored, so nothing was tested; the notes say why."
        return self.nothing or "No effect in this run survived the correction for the number of tests."


class _PrintedFinding(NamedTuple):
    """A finding, ready to be printed."""

    text: str
    significant: bool
    rests: bool
    mark: str  # whether it survives the correction for the number of tests; "" where nobody says
    basis: dict[str, str]  # what it rests on, row by row
    unsure: bool  # whether float32 could say otherwise


class _Column(NamedTuple):
    head: str
    cells: list[str]  # [row]
    numeric: bool = True

    @property
    def look(self) -> str:
        """Class of its cells: of numbers, or of how much room its texts need not to stand in pieces below each other."""
        if self.numeric:
            return "number"
        longest = max(map(len, self.cells), default=0)
        return "long" if longest > LONG_CELL_SIGNS else "words" if longest > SHORT_CELL_SIGNS else ""


class _Table(NamedTuple):
    """The numbers of one measure, ready to be printed."""

    title: str
    about: str  # unit and neutral value
    columns: list[_Column]
    bold: list[bool]  # [row]
    folded: bool
    warning: str = ""  # beside the title of a table that stays closed until it is opened


class _ChecklistTest(NamedTuple):
    """One test of a checklist, ready to be printed."""

    name: str
    about: str
    said: str  # how often it failed
    look: str  # class of its colour
    opener: str  # what opens the examples; "" where there are none
    examples: Sequence[str]


class _Capability(NamedTuple):
    """A row of a checklist: for each type of test its name and its checks."""

    name: str
    cells: list[tuple[str, list[_ChecklistTest]]]


class _Checklist(NamedTuple):
    title: str
    about: str
    columns: Sequence[str]
    rows: list[_Capability]


def render_page(page: Page) -> str:
    """The page as one HTML document. Equal pages give equal text, and any text is escaped.

    Raises:
        ValueError: a row of a shown table has not as many cells as the table has columns, a checklist has tests of what is none of
            its rows and columns, or one of these failed in more cases than there were.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_packaged),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_on_its_line,
    )
    environment.filters["lines"] = _Lines
    script = _packaged("page.js").strip()
    shared = _shared_group(page.results)
    tables = [_table(results, shared, page) for results in _by_measure(page.results)]
    signs, names = MinusSigns(page.results), _names(page.results)
    printed_text = {finding.text: MinusSigns(finding.results, names).put(finding.text) for finding in page.findings}
    significant_findings, other_findings = (
        [
            _printed_finding(finding, page, shared, names)
            for finding in _strongest_first(page.findings, is_significant=is_significant)
        ]
        for is_significant in (True, False)
    )
    return environment.get_template("page.html.j2").render(
        page=page,
        contents=_contents(page),
        ranked=_ranked(page.findings),
        significant_findings=significant_findings,
        resting=[finding for finding in significant_findings if finding.rests],
        standing=[finding for finding in significant_findings if not finding.rests],
        other_findings=other_findings,
        unfolded=UNFOLDED_FINDINGS,
        images=[_data_uri(figure.svg) for figure in page.figures],
        graph_image=_data_uri(page.causal_assumptions.figure.svg)
        if page.causal_assumptions and page.causal_assumptions.figure
        else "",
        shared={_head(key): level or "none" for key, level in shared.items()},
        tables=tables,
        checklists=[_checklist(matrix) for matrix in page.matrices],
        audit_tables=[_report_table(table, signs) for table in page.tables],
        could_change=[printed_text.get(text, text) for text in page.precision.could_change] if page.precision else [],
        precise=_report_table(page.precision.table, signs) if page.precision and page.precision.table else None,
        glossary=_glossary(page, tables, shared),
        script=Markup(script),  # noqa: S704 - a file of this package, and no text of a run
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


class _Lines(str):
    """Text that keeps its line breaks."""

    __slots__ = ()


def _on_its_line(value: object) -> object:
    """Escape line ends, control characters and lone surrogates in text of a run."""
    if isinstance(value, _Lines):
        return "\n".join(map(on_one_line, value.split("\n")))
    return on_one_line(value) if type(value) is str else value


def _packaged(name: str) -> str:
    return resources.files("undertow.report").joinpath("templates", name).read_text(encoding="utf-8")


def _contents(page: Page) -> dict[str, str]:
    """Sections that the page has, by their names in it."""
    sections = {
        "findings": ("Findings", True),
        "figures": ("Figures", page.figures),
        "causal_assumptions": ("What they rest on", page.causal_assumptions),
        "checklist": ("Checklist", page.matrices),
        "tables": ("Tables and examples", page.tables),
        "precision": ("Precision", page.precision),
        "numbers": ("All numbers", True),
        "questions": ("What was asked", page.questions or page.examples),
        "model": ("Who was asked", page.identity),
        "notes": ("What they do not show", page.notes),
        "repeat": ("How to repeat it", page.command or page.python),
        "provenance": ("Provenance", page.provenance),
    }
    return {name: title for name, (title, there) in sections.items() if there}


def _strongest_first(findings: Sequence[Finding], *, is_significant: bool) -> list[Finding]:
    chosen = [finding for finding in findings if finding.significant is is_significant]
    return sorted(chosen, key=lambda finding: -finding.strength if math.isfinite(finding.strength) else math.inf)


def _ranked(findings: Sequence[Finding]) -> str:
    """How findings are put in order, and what their marks say; "" where no number of tests is known."""
    n_tests = max((finding.n_tests for finding in findings), default=0)
    if n_tests < 2:
        return ""
    return (
        f"Strongest first. {n_tests:,} tests were made, so that some p would be small by chance alone: q is p after Benjamini "
        "and Hochberg's correction for their number. Each sentence says how it was decided, and opens to what it rests on."
    )


def _names(results: Sequence[Result]) -> set[str]:
    """Levels of all results' groups: models, W, word groups."""
    return {level for result in results for level in result.group.values()}


def _printed_finding(finding: Finding, page: Page, shared: Mapping[str, str], names: Iterable[str]) -> _PrintedFinding:
    unsure = page.precision is not None and finding.text in page.precision.could_change
    signs = MinusSigns(finding.results, names)
    text, mark = signs.put(finding.text), signs.put(_mark(finding))
    return _PrintedFinding(text, finding.significant, finding.causal_claim, mark, _basis(finding, page, shared), unsure)


def _mark(finding: Finding) -> str:
    """Whether it survives the correction for the number of tests, or how else it was decided."""
    if finding.decision_rule or not finding.results or not finding.n_tests or not math.isfinite(finding.results[0].q):
        return finding.decision_rule
    if finding.n_tests == 1:
        return f"The only test of the run, so that nothing is corrected: {_equals('p', finding.results[0].p)}."
    q = finding.results[0].q
    if not finding.significant and q < SIGNIFICANT_BELOW_Q:
        # An audit from outside may hold a finding back by its interval, and not say so.
        return f"Survives the correction for {finding.n_tests:,} tests ({_equals('q', q)}), but is not claimed: q alone did not decide."
    if finding.significant and not q < SIGNIFICANT_BELOW_Q:
        return f"Does not survive the correction for {finding.n_tests:,} tests ({_equals('q', q)}), but is claimed all the same."
    does = "Survives" if q < SIGNIFICANT_BELOW_Q else "Does not survive"
    return f"{does} the correction for {finding.n_tests:,} tests: {_equals('q', q)}."


def _basis(finding: Finding, page: Page, shared: Mapping[str, str]) -> dict[str, str]:
    """The results that a finding tells, and whatever else it rests on; nothing where nobody says."""
    rows = {
        _named(one, page, shared): _numbers_text(one, page.null_prefix) for one in finding.results[:MAX_BASIS_RESULTS]
    }
    if len(finding.results) > MAX_BASIS_RESULTS:
        rows["further results"] = f"{len(finding.results) - MAX_BASIS_RESULTS:,} more, under All numbers"
    if finding.n_tests > 1:
        rows["correction"] = f"Benjamini and Hochberg's, for {finding.n_tests:,} tests"
    rows |= page.basis.get(finding.text, {})
    if rows and page.causal_assumptions:
        rows["graph"] = page.causal_assumptions.summary if finding.causal_claim else "none of its assumptions"
    return rows


def _named(result: Result, page: Page, shared: Mapping[str, str]) -> str:
    """A result by its measure, and what it is about but for what all are about."""
    levels = [f"{_head(key)} {level}" for key, level in result.group.items() if level and key not in shared]
    title = page.titles.get(result.measure) or measure_title(result.measure)
    return f"{title}: {', '.join(levels)}" if levels else title


def _numbers_text(result: Result, null_prefix: str) -> str:
    """Value, interval, p and q, and how much is behind them, in words."""
    if not math.isfinite(result.value):
        return result.note or "no number"
    (decimals,) = _decimals([result])
    interval = _interval(result, decimals)
    clusters = result.extras.get("n_clusters", math.nan)
    parts = [
        f"{number(result.value, decimals)} {result.unit}".strip(),
        f"95% interval {interval}" if interval != MISSING else "no interval",
        _null_text(result, null_prefix),
        ", ".join(_equals(name, p) for name, p in (("p", result.p), ("q", result.q)) if math.isfinite(p)),
        f"n = {result.n:,}{f' in {clusters:,.0f} clusters' if math.isfinite(clusters) else ''}, {result.n_missing:,} missing",
        result.note.removesuffix("."),
    ]
    return "; ".join(filter(None, parts))


def _null_text(result: Result, before: str) -> str:
    """The value that says that there is nothing, with what stands before it; "" where there is none."""
    return f"{before} {shortest(result.null_value)}" if math.isfinite(result.null_value) else ""


def _equals(name: str, p: float) -> str:
    text = probability(p)
    return f"{name} {text}" if text.startswith("<") else f"{name} = {text}"


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode('utf-8', 'replace')).decode()}"


def _by_measure(results: Sequence[Result]) -> list[list[Result]]:
    """Results that share a table: same measure, unit and neutral value, in the order of their first row."""
    tables: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        tables.setdefault((result.measure, result.unit, repr(result.null_value)), []).append(result)
    return list(tables.values())


def _shared_group(results: Sequence[Result]) -> dict[str, str]:
    """Group keys with one level in every result: said once instead of in every row."""
    if len(results) < 2:
        return {}
    first = results[0].group
    return {key: level for key, level in first.items() if all(r.group.get(key) == level for r in results)}


def _table(results: Sequence[Result], shared: Mapping[str, str], page: Page) -> _Table:
    first = results[0]
    keys = dict.fromkeys(key for result in results for key in result.group if key not in shared)
    groups = [_Column(_head(key), [r.group.get(key, MISSING) or "none" for r in results], False) for key in keys]
    null_prefix = _null_text(first, page.null_prefix)
    return _Table(
        title=page.titles.get(first.measure) or measure_title(first.measure),
        about="; ".join(part for part in (f"in {first.unit}" if first.unit else "", null_prefix) if part),
        columns=[*groups, *_number_columns(results), *_detail_columns(results), *_note_column(results)],
        bold=[result.q < SIGNIFICANT_BELOW_Q for result in results],
        folded=len(results) > LONG_TABLE_ROWS,
    )


def _report_table(table: ReportTable, signs: MinusSigns) -> _Table:
    """A table of the audit's own, its columns of numbers told from those of text."""
    if any(len(row) != len(table.columns) for row in table.rows):
        raise ValueError(f"every row of {table.title!r} has a cell for each of its {len(table.columns)} columns")
    cells = [[row[place] for row in table.rows] for place in range(len(table.columns))]
    return _Table(
        title=table.title,
        about=table.about,
        columns=[_report_column(head, column, signs) for head, column in zip(table.columns, cells, strict=True)],
        bold=[False] * len(table.rows),
        folded=len(table.rows) > LONG_TABLE_ROWS,
        warning=table.warning,
    )


def _report_column(head: str, cells: list[str], signs: MinusSigns) -> _Column:
    """Columns get true minus signs only if all their negative numbers are of results."""
    numeric = _is_numeric(cells)
    is_of_results = numeric and not any(map(signs.leaves, cells))
    return _Column(head, list(map(signs.put, cells)) if is_of_results else cells, numeric)


def _checklist(matrix: Checklist) -> _Checklist:
    astray = [cell for cell in matrix.cells if cell[0] not in matrix.rows or cell[1] not in matrix.columns]
    if astray:
        raise ValueError(f"{matrix.title!r} has tests of {astray[0]}, which is none of its rows and columns")
    rows = [
        _Capability(
            row,
            [(column, [_check(check) for check in matrix.cells.get((row, column), ())]) for column in matrix.columns],
        )
        for row in matrix.rows
    ]
    return _Checklist(matrix.title, matrix.about, matrix.columns, rows)


def _check(check: ChecklistTest) -> _ChecklistTest:
    if not 0 <= check.failed <= check.n:
        raise ValueError(f"{check.name!r} failed in {check.failed} of {check.n} cases, which cannot be")
    examples = check.examples if check.failed else ()
    return _ChecklistTest(check.name, check.about, _outcome(check), _look(check), _opener(check), examples)


def _outcome(check: ChecklistTest) -> str:
    if not check.n:
        return "no case"
    if check.failed:
        return f"fails in {_failed_percent(check)} of {check.n:,}"
    return f"passes in all {check.n:,}" if check.n > 1 else "passes in its one case"


def _failed_percent(check: ChecklistTest) -> str:
    """A percentage that rounds neither to 0 nor to 100 unless it is exact."""
    percent = 100 * check.failed / check.n
    text = f"{percent:.1f}".removesuffix(".0")
    if text == "0":
        return "less than 0.1%"
    return "more than 99.9%" if text == "100" and check.failed < check.n else f"{text}%"


def _look(check: ChecklistTest) -> str:
    if not check.n:
        return "untried"
    step = bisect_left(FAILURE_STEPS_PERCENT, 100 * check.failed / check.n) + 1
    return f"fails-{step}" if check.failed else "passes"


def _opener(check: ChecklistTest) -> str:
    if not (check.failed and check.examples):
        return ""
    n_examples = len(check.examples)
    if n_examples == check.failed:
        return "Show the failure" if n_examples == 1 else f"Show all {n_examples:,} failures"
    return f"Show {n_examples:,} of {check.failed:,} failures"


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether a column has numbers, and beside them nothing but gaps."""
    said = [cell for cell in cells if cell.strip() not in ("", MISSING)]
    return bool(said) and all(_NUMERIC.fullmatch(cell) and any(map(str.isdigit, cell)) for cell in said)


def _number_columns(results: Sequence[Result]) -> list[_Column]:
    """Value, interval, p, q, n and missing; without those that this measure never has."""
    decimals = _decimals(results)
    value = [number(result.value, places) for result, places in zip(results, decimals, strict=True)]
    interval = [_interval(result, places) for result, places in zip(results, decimals, strict=True)]
    optional = [
        _Column("95% interval", interval),
        _Column("p", [probability(result.p) for result in results]),
        _Column("q", [probability(result.q) for result in results]),
    ]
    return [
        _Column("value", value),
        *(column for column in optional if set(column.cells) != {MISSING}),
        _Column("n", [f"{result.n:,}" for result in results]),
        _Column("missing", [f"{result.n_missing:,}" for result in results]),
    ]


def _decimals(results: Sequence[Result]) -> list[int]:
    """Decimals of each row: what half its interval needs in most rows, and more where that would show nothing."""
    usual = median_low(_wanted_decimals(result, 2) for result in results)
    return [max(usual, _wanted_decimals(result, 1)) for result in results]


def _wanted_decimals(result: Result, digits: int) -> int:
    half = (result.high - result.low) / 2
    if math.isfinite(half) and half > 0:
        # An interval much narrower than its value (a mass that the sentences hardly move) would print noise.
        return min(significant_decimals(half, digits), significant_decimals(result.value, MAX_DIGITS))
    return significant_decimals(result.value, digits)


def _interval(result: Result, decimals: int) -> str:
    if not (math.isfinite(result.low) and math.isfinite(result.high)):
        return MISSING
    return f"[{number(result.low, decimals)}, {number(result.high, decimals)}]"


def _detail_columns(results: Sequence[Result]) -> list[_Column]:
    names = dict.fromkeys(name for result in results for name in result.extras if name not in TABLE_ONLY)
    decimals = _decimals(results)
    return [
        _Column(
            _head(name),
            [
                number(r.extras.get(name, math.nan), places)
                if name in OF_DIFFERENCES
                else significant(r.extras.get(name, math.nan))
                for r, places in zip(results, decimals, strict=True)
            ],
        )
        for name in names
    ]


def _note_column(results: Sequence[Result]) -> list[_Column]:
    notes = [result.note for result in results]
    return [_Column("note", notes, False)] if any(notes) else []


def _head(key: str) -> str:
    return GROUP_KEYS.get(key) or DETAILS.get(key) or spaced(key)


def _glossary(page: Page, tables: Sequence[_Table], shared: Mapping[str, str]) -> dict[str, str]:
    """Meanings of the measures and columns that this page shows, measures first."""
    measures = dict.fromkeys(result.measure for result in page.results)
    titles = {one.title: one.meaning for one in map(find_metric, measures) if one.meaning}
    names = dict.fromkeys(name for result in page.results for name in (*result.group, *result.extras))
    further = {spaced(name): catalog.COLUMNS[name] for name in names if name in catalog.COLUMNS}
    heads = chain(map(_head, shared), (column.head for table in tables for column in table.columns))
    columns = {head: COLUMNS[head] for head in dict.fromkeys(heads) if head in COLUMNS}
    given = {
        page.titles.get(name) or (measure_title(name) if name in measures else spaced(name)): meaning
        for name, meaning in page.glossary.items()
    }
    return titles | columns | further | given
