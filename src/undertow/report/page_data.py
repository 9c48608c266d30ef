"""What a report shows, as data: texts, tables, checklists, figures, and the page of all these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from undertow.report.formatting import NOTES
from undertow.types import Finding, Result

if TYPE_CHECKING:
    from undertow.causal.assumptions import Assumption


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table for the page, beside those of the measures: a paper's layout, or examples.

    Attributes:
        rows: cells, as text [row][column].
        about: what to keep in mind while reading it; "" for nothing.
        warning: what a reader must know before opening it, which folds the table away; "" for nothing.
        bold: whether the value of each row is in bold [row]; () for none.

    Raises:
        ValueError: a row has not as many cells as the table has columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: str = ""
    warning: str = ""
    bold: Sequence[bool] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of {self.title!r} has a cell for each of its {len(self.columns)} columns")

    def named_rows(self) -> list[dict[str, str]]:
        """Each row by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class ChecklistTest:
    """One test of a checklist.

    Attributes:
        about: what must hold, in a sentence.
        examples: some of the failures, each a text of its own; lines are kept.

    Raises:
        ValueError: it failed in more cases than there were.
    """

    name: str
    about: str
    n: int
    failed: int
    examples: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.failed <= self.n:
            raise ValueError(f"{self.name!r} failed in {self.failed} of {self.n} cases, which cannot be")


@dataclass(frozen=True, slots=True)
class Checklist:
    """A checklist for the page: capabilities by types of test (Ribeiro et al. 2020, "Beyond Accuracy").

    Attributes:
        cells: the tests of each capability and type; a pair that is not here has none.
        about: what to keep in mind while reading it; "" for nothing.

    Raises:
        ValueError: it has tests of what is none of its rows and columns.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Sequence[ChecklistTest]]
    about: str = ""

    def __post_init__(self) -> None:
        for row, column in self.cells:
            if row not in self.rows or column not in self.columns:
                raise ValueError(f"{self.title!r} has tests of {(row, column)}, which is none of its rows and columns")


@dataclass(frozen=True, slots=True)
class ReportText:
    """Text of a report beside findings, figures and tables.

    Attributes:
        lead: one sentence: what this audit looks for.
        caveats: the two or three that a reader needs beside the verdict, a sentence each.
        notes: what the numbers rest on and do not show.
        glossary: meanings of its own group keys and further numbers, by name.
        null_prefix: what stands before a measure's null value.
        tables: tables of its own, in the order of the page, before those of the measures.
        matrices: checklists, before these tables.
        of_words: whether masses of word groups are compared, so that what holds of these is said too.
    """

    title: str
    lead: str
    questions: Sequence[str]
    examples: Sequence[str]
    notes: Sequence[str] = ()
    caveats: Sequence[str] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)
    null_prefix: str = "no bias would give"
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[Checklist] = ()
    of_words: bool = True


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A figure as the page holds it.

    Attributes:
        svg: an SVG element of `inline_svg`, which becomes a part of the page.
        alt: what it shows, for those who cannot see it.
        narrow: the same for a narrow screen; "" where `svg` serves there, too.
    """

    name: str
    svg: str
    caption: str
    alt: str
    narrow: str = ""


@dataclass(frozen=True, slots=True)
class PageAssumptions:
    """What the findings of an audit rest on under the causal graph that it names.

    Attributes:
        about: sentences that say which graph it is and what its nodes are.
        summary: how many assumptions there are, and how many of them are granted.
        assumptions: what all findings rest on that are of this kind.
        caveat: what such a finding carries where an assumption is not granted; "" where all are.
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
        lead: one sentence that says what was done and what came of it.
        facts: what stands beside the verdict, row by row: whose model, what was asked.
        caveats: two or three sentences below it.
        main: the figure beside it; None for the first of `figures`.
        findings: in any order; the page tells the strongest first, and what is not significant after what is.
        sentences: the sentences behind the findings, with their answers; None where the audit has none.
        sentences_title: of their section.
        files: files that lie beside the page, and what they are, by name.
        results: the numbers, one table for each measure.
        matrices: checklists, after the figures.
        tables: tables of the audit's own, between these and the numbers; one with a warning stays closed until it is opened.
        identity: the identity of the model, row by row.
        notes: what the numbers rest on and what they do not show.
        command: the shell command that repeats the audit.
        provenance: versions, hashes, seed, timing, machine, row by row.
        null_prefix: what stands before a measure's null value.
        causal_assumptions: what the findings rest on, for an audit that names a graph; None for others.
        precision: what its precision costs a run that had less than float32; None for others.
        basis: what a finding rests on beside the results that it tells, row by row, by the finding's text.
        nothing: what stands where findings would, if not that no effect was found.
        measure_titles: titles of measures that are no `Metric`.
        glossary: meanings of these, and of group keys and further numbers that it does not know by name.
    """

    title: str
    lead: str
    findings: Sequence[Finding]
    results: Sequence[Result]
    facts: Mapping[str, str] = field(default_factory=dict)
    caveats: Sequence[str] = ()
    main: PageFigure | None = None
    figures: Sequence[PageFigure] = ()
    sentences: ReportTable | None = None
    sentences_title: str = "Sentences"
    files: Mapping[str, str] = field(default_factory=dict)
    questions: Sequence[str] = ()
    examples: Sequence[str] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = NOTES
    command: str = ""
    python: str = ""
    provenance: Mapping[str, str] = field(default_factory=dict)
    measure_titles: Mapping[str, str] = field(default_factory=dict)
    glossary: Mapping[str, str] = field(default_factory=dict)
    null_prefix: str = "no bias would give"
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[Checklist] = ()
    causal_assumptions: PageAssumptions | None = None
    precision: PagePrecision | None = None
    basis: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nothing: str = ""


def ranked(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Findings that are significant, and others, the strongest first."""
    by_strength = sorted(findings, key=lambda one: -one.strength if math.isfinite(one.strength) else math.inf)
    return [one for one in by_strength if one.significant], [one for one in by_strength if not one.significant]
