"""Contents of a report as data: texts, tables, checklists, figures, and the whole page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from undertow.report.formatting import NOTES
from undertow.types import Finding, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from undertow.causal.assumptions import Assumption


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of an audit for the page: a paper's layout, or examples.

    Attributes:
        rows: text of the cells [row][column].
        about: note on the table; "" for none.
        warning: warning shown before the table, which is then folded; "" for none.
        bold: whether the value of each row is in bold [row]; () for none.

    Raises:
        ValueError: a row has more or fewer cells than there are columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: str = ""
    warning: str = ""
    bold: Sequence[bool] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of {self.title!r} needs a cell for each of its {len(self.columns)} columns")

    def named_rows(self) -> list[dict[str, str]]:
        """Each row by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class ChecklistTest:
    """One test of a checklist.

    Attributes:
        about: the tested property, in a sentence.
        examples: texts of some failures, with their line breaks.
    """

    name: str
    about: str
    n: int
    failed: int
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """A checklist for the page: capabilities by types of test (Ribeiro et al. 2020, "Beyond Accuracy").

    Attributes:
        cells: tests by capability and type; missing pairs have none.
        about: note on the checklist; "" for none.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Sequence[ChecklistTest]]
    about: str = ""


@dataclass(frozen=True, slots=True)
class ReportText:
    """Texts of a report in addition to findings, figures and tables.

    Attributes:
        lead: aim of the audit, in one sentence.
        questions: sentences on the design.
        examples: texts of some items.
        caveats: two or three sentences beside the verdict.
        notes: assumptions and limits of the numbers.
        glossary: meanings of group keys and further numbers, by name.
        null_prefix: words before a measure's null value.
        tables: tables of the audit, in the order of the page, before those of the measures.
        matrices: checklists, before these tables.
        of_words: whether masses of word groups are compared, which adds the common notes.
    """

    title: str
    lead: str
    questions: Sequence[str] = ()
    examples: Sequence[str] = ()
    notes: Sequence[str] = ()
    caveats: Sequence[str] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    null_prefix: str = "no bias would give"
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[Checklist] = ()
    of_words: bool = True


@dataclass(frozen=True)
class Drawing:
    """A figure with its texts.

    Attributes:
        name: any text; `style.file_stem` turns it into a file name.
        figure: figure drawn under `style.lettering`.
        caption: caption for all readers.
        alt: alternative text.
        of: group keys and levels of its results; {} for all results.
    """

    name: str
    figure: Figure
    caption: str
    alt: str
    of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure of the page.

    Attributes:
        svg: SVG element of `inline_svg`.
        alt: alternative text.
        narrow: SVG element for narrow screens; "" for the same.
    """

    name: str
    svg: str
    caption: str
    alt: str
    narrow: str = ""


@dataclass(frozen=True, slots=True)
class PageAssumptions:
    """Assumptions of an audit's findings under its causal graph.

    Attributes:
        about: sentences that name the graph and its nodes.
        summary: number of assumptions, and of those that the graph grants.
        assumptions: assumptions of all findings of this kind.
        caveat: caveat of such a finding if an assumption is not granted; "" if all are.
    """

    kind: str
    graph: str
    about: Sequence[str]
    summary: str
    assumptions: Sequence[Assumption]
    caveat: str = ""
    figure: PageFigure | None = None


@dataclass(frozen=True, slots=True)
class PagePrecision:
    """Effects of the reduced precision of a run.

    Attributes:
        sentences: effects, one sentence each.
        unstable: texts of findings that could change or appear in float32.
        table: results of a sample in both precisions; None if it could not be scored again.
    """

    sentences: Sequence[str]
    unstable: Sequence[str] = ()
    table: ReportTable | None = None


@dataclass(frozen=True, slots=True)
class Page(ReportText):
    """Content of a report as plain text without markup: the audit's text, findings, figures, tables and provenance.

    Attributes:
        findings: findings in any order; the page shows significant ones first, each part from the strongest.
        results: the numbers, with one table for each measure.
        facts: rows beside the verdict: model, data, prompts.
        main: figure beside the verdict; None for the first of `figures`.
        sentences: the sentences behind the findings, with their answers; None if the audit has none.
        sentences_title: of their section.
        files: descriptions of the files beside the page, by name.
        identity: rows with the identity of the model.
        command, python: shell command and Python code that repeat the audit.
        provenance: rows with versions, hashes, seed, timing and machine.
        measure_titles: titles of measures that are not a `Metric`; `glossary` has their meanings, too.
        causal_assumptions: assumptions of the findings under the audit's graph; None without a graph.
        precision: effects of a precision below float32; None for float32.
        basis: rows with the basis of a finding in addition to its results, by the finding's text.
        nothing: text in place of findings if there are none; "" for "no effect was found".
        tested: whether tests decide the findings; the page calls none significant otherwise.
    """

    notes: Sequence[str] = NOTES
    findings: Sequence[Finding] = ()
    results: Sequence[Result] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    main: PageFigure | None = None
    figures: Sequence[PageFigure] = ()
    sentences: ReportTable | None = None
    sentences_title: str = "Sentences"
    files: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    python: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)
    measure_titles: Mapping[str, str] = field(default_factory=dict)
    causal_assumptions: PageAssumptions | None = None
    precision: PagePrecision | None = None
    basis: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nothing: str = ""
    tested: bool = True


def by_strength(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Significant findings and others, each from the strongest."""
    ordered = sorted(findings, key=lambda one: -one.strength if math.isfinite(one.strength) else math.inf)
    return [one for one in ordered if one.significant], [one for one in ordered if not one.significant]
