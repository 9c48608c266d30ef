"""What a report shows, as data: texts, tables and checklists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
else:
    # numpy takes longer to load than everything else that `undertow --help` needs.
    Floats: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table for the page, beside those of the measures: a paper's layout, or examples.

    Attributes:
        title: of the table.
        columns: heads.
        rows: cells, as text [row][column].
        about: what to keep in mind while reading it; "" for nothing.
        warning: what a reader must know before opening it, which folds the table away; "" for nothing.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    about: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ChecklistTest:
    """One test of a checklist.

    Attributes:
        name: a few words.
        about: what must hold, in a sentence.
        n: cases that it was tried in.
        failed: those in which it did not hold.
        examples: some of the failures, each a text of its own; lines are kept.
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
        title: of the matrix.
        rows: capabilities.
        columns: types of test.
        cells: the tests of each capability and type; a pair that is not here has none.
        about: what to keep in mind while reading it; "" for nothing.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Sequence[ChecklistTest]]
    about: str = ""


@dataclass(frozen=True, slots=True)
class ReportText:
    """Text of a report beside findings, figures and tables.

    Attributes:
        title: of the page.
        lead: one sentence: what this audit looks for.
        questions: sentences that say what was asked.
        examples: a few of the texts.
        notes: what the numbers rest on and do not show.
        titles: titles of the audit's own measures, by name.
        glossary: meanings of its own measures, group keys and further numbers, by name.
        null_prefix: what stands before a measure's neutral value.
        tables: tables of its own, in the order of the page, before those of the measures.
        matrices: checklists, before these tables.
        of_words: whether masses of word groups are compared, so that what holds of these is said too.
    """

    title: str
    lead: str
    questions: Sequence[str]
    examples: Sequence[str]
    notes: Sequence[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    glossary: Mapping[str, str] = field(default_factory=dict)
    null_prefix: str = "no bias would give"
    tables: Sequence[ReportTable] = ()
    matrices: Sequence[Checklist] = ()
    of_words: bool = True
