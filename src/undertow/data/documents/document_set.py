"""Documents that are biased on a known dimension, or not, for the four tasks of bias in text.

A document has a biased span, the dimension of its bias and a rephrasing of the span, if its source has them. A user's file is a table
with the columns `id split text biased dimension span rephrasing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from undertow._schemas import Text
from undertow.data.text_files import RESOURCES, TableRow, header, plain_name, read_records
from undertow.errors import UndertowError, closest, shorten_list

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "identity": ("disability", "ethnicity", "nationality", "gender", "race", "age", "religion", "sexuality"),
    "affiliation": ("profession", "perceived negative groups", "political affiliation"),
}
"""Dimensions of bias by their coarse category, in the order of Bauer et al., section 4.1."""
DIMENSIONS = (
    "sexuality", "gender", "race", "religion", "age", "nationality", "ethnicity", "disability", "profession",
    "political affiliation", "perceived negative groups",
)  # fmt: skip
"""The eleven dimensions, in the order of the paper's tables."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text.

    Attributes:
        id: unique in its set.
        text: the whole text.
        biased: whether the text is biased.
        dimension: dimension of the bias, one of `DIMENSIONS` (or a user's own); "" if not biased or unknown.
        span: biased substring of the text; "" if there is none or it is unknown.
        rephrasing: the span without its bias; "" if unknown.
    """

    id: str
    text: Text
    biased: bool
    dimension: str = ""
    span: str = ""
    rephrasing: str = ""

    @property
    def category(self) -> str:
        """The coarse category of its dimension; "" if there is none."""
        return next((name for name, members in CATEGORIES.items() if self.dimension in members), "")


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents for evaluation, and documents for few-shot examples."""

    name: str
    title: str
    source: str
    evaluation: tuple[Document, ...]
    training: tuple[Document, ...]
    notes: tuple[str, ...] = ()


OWN = "undertow-statements"
OWN_TITLE = "Undertow's own statements"
EVALUATION, TRAINING = "evaluation", "train"
"""Values of the column `split`."""


def own_set() -> DocumentSet:
    """The package's own statements."""
    return replace(read_documents(RESOURCES / "sets" / f"{OWN}.tsv"), name=OWN, title=OWN_TITLE, source=OWN_TITLE)


def read_documents(path: Path) -> DocumentSet:
    """A user's table of documents: `text` and `biased`, and any of `id split dimension span rephrasing`.

    Cells of a .tsv are literal, those of a .csv may be quoted. Dimensions other than the eleven are allowed.
    """
    return _document_set(path, DocumentRow, "documents")


def read_rephrase_pairs(path: Path) -> DocumentSet:
    """A user's table of biased spans and their unbiased rephrasings: `span` and `rephrasing`.

    Optional columns are `id split text dimension`; by default the text is the span. All are biased.
    """
    return _document_set(path, RephrasePair, "rephrase pairs")


def distinct_texts(documents: Iterable[Document]) -> tuple[Document, ...]:
    """One document for each text, in the order of first appearance.

    A text with both labels is kept as biased: one annotator who finds bias is enough.
    """
    kept: dict[str, Document] = {}
    for document in documents:
        first = kept.setdefault(document.text, document)
        if document.biased and not first.biased:
            kept[document.text] = document
    return tuple(kept.values())


def seen_in_training(evaluation: Iterable[Document], training: Iterable[Document]) -> tuple[str, ...]:
    """A note on evaluation texts that are also training texts; () without any."""
    both = {document.text for document in evaluation} & {document.text for document in training}
    return (f"{len(both):,} of the evaluation texts are also training texts",) if both else ()


def is_reserved_name(name: str) -> bool:
    """Whether results reserve a name: `all` for all levels, brackets for levels that are not the user's."""
    name = name.strip()
    return name.casefold() == "all" or (name.startswith("(") and name.endswith(")"))


def unused_columns(columns: Iterable[str], known: Collection[str]) -> list[str]:
    """A note on each unused column of a table."""
    return [f"column {name!r} is not used{closest(name, known)}" for name in columns if name not in known]


class _Row(TableRow):
    id: str = ""
    split: Annotated[Literal["evaluation", "train"], BeforeValidator(str.lower)] = "evaluation"
    text: str = ""
    biased: bool = True
    dimension: str = ""
    span: str = ""
    rephrasing: str = ""

    @model_validator(mode="after")
    def _check_bias(self) -> Self:
        extra = next((name for name in ("dimension", "span", "rephrasing") if getattr(self, name)), "")
        if extra and not self.biased:
            raise ValueError(f"has a {extra} but is not biased; empty that cell, or set biased to yes")
        if is_reserved_name(self.dimension):
            raise ValueError(f"results reserve the name {self.dimension!r}; rename this dimension")
        if self.text and self.span not in self.text:
            raise ValueError(f"the span {self.span!r} is not in the text; copy it from there")
        if self.rephrasing and not self.span:
            raise ValueError("has a rephrasing but no span; add the span, or empty that cell")
        return self


class DocumentRow(_Row):
    """A row of a table of documents."""

    text: Text
    biased: bool


class RephrasePair(_Row):
    """A row of a table of rephrase pairs."""

    span: Text
    rephrasing: Text


def _document_set(path: Path, schema: type[_Row], what: str) -> DocumentSet:
    ids, texts, notes = dict[str, int](), dict[str, int](), unused_columns(header(path), _Row.model_fields)
    repeats: list[str] = []
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    for line, row in read_records(path, schema):
        name = row.id or f"line {line}"
        if ids.setdefault(name, line) != line:
            raise UndertowError(f"{path}, line {line}: repeats the id {name!r} of line {ids[name]}; give each its own")
        dimension = row.dimension.lower() if row.dimension.lower() in DIMENSIONS else row.dimension
        if near := closest(dimension, DIMENSIONS) if dimension not in ("", *DIMENSIONS) else "":
            notes.append(f"line {line} has the dimension {dimension!r}, which is a label of its own{near}")
        if schema is DocumentRow and texts.setdefault(row.text, line) != line:
            repeats.append(f"{line} (that of line {texts[row.text]})")
        parts[row.split].append(Document(name, row.text or row.span, row.biased, dimension, row.span, row.rephrasing))
    if not parts[EVALUATION]:
        raise UndertowError(f"{path}: all rows are for training; set some to split {EVALUATION}")
    evaluation, training = map(tuple, parts.values())
    if repeats:
        notes.append(
            f"bias-diagnosis asks each text once, as biased if one of its rows is; repeated in line {shorten_list(repeats, 4)}"
        )
    notes += seen_in_training(evaluation, training)
    return DocumentSet(plain_name(path), f"{what} of {path.name}", path.name, evaluation, training, tuple(notes))
