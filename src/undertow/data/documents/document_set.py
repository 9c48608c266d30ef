"""Documents that are biased on a known dimension, or not, for the four tasks of bias in text.

A document has its biased span, the dimension of its bias and a rephrasing of the span, as far as its source gives them. Files of
one's own are tables with the columns `id split text biased dimension span rephrasing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from undertow.data.tables import plain_name, read_rows
from undertow.data.text_files import RESOURCES, closest, is_yes
from undertow.errors import UndertowError

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
        text: the whole of it.
        biased: whether it is.
        dimension: of the bias, one of `DIMENSIONS` (or a user's own); "" where it is not biased, or not known.
        span: the biased piece, a true substring of the text; "" where there is none, or it is not known.
        rephrasing: what the span becomes without its bias; "" where it is not known.
    """

    id: str
    text: str
    biased: bool
    dimension: str = ""
    span: str = ""
    rephrasing: str = ""

    @property
    def category(self) -> str:
        """The coarse category of its dimension; "" where there is none."""
        return next((name for name, members in CATEGORIES.items() if self.dimension in members), "")


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Documents for evaluation, and documents for few-shot examples.

    Attributes:
        name, title, source: for the report.
        evaluation: documents to query.
        training: documents to draw few-shot examples from.
        notes: what a reader must know about how they were read, for example how many of the paper's documents are there.
    """

    name: str
    title: str
    source: str
    evaluation: tuple[Document, ...]
    training: tuple[Document, ...]
    notes: tuple[str, ...] = ()


OWN = "undertow-statements"
OWN_TITLE = "Undertow's own statements"
EVALUATION, TRAINING = "evaluation", "train"
"""What the column `split` may say."""
COLUMNS = ("id", "split", "text", "biased", "dimension", "span", "rephrasing")


def own_set() -> DocumentSet:
    """The package's own statements."""
    return replace(read_documents(RESOURCES / "sets" / f"{OWN}.tsv"), name=OWN, title=OWN_TITLE, source=OWN_TITLE)


def read_documents(path: Path) -> DocumentSet:
    """A user's table of documents: `text` and `biased`, and any of `id split dimension span rephrasing`.

    A .tsv holds its cells as they stand, a .csv may quote them. Dimensions beyond the eleven are the user's own.
    """
    return _document_set(path, ("text", "biased"), "documents")


def read_rephrase_pairs(path: Path) -> DocumentSet:
    """A user's table of biased spans and what each becomes without its bias: `span` and `rephrasing`.

    `id split text dimension` may stand beside them; without a text the span is the whole of it. All are biased.
    """
    return _document_set(path, ("span", "rephrasing"), "rephrase pairs")


def distinct_texts(documents: Iterable[Document]) -> tuple[Document, ...]:
    """One document for each text, in the order of first appearance.

    A text that stands there both as biased and as not biased is kept as biased: one reader who found bias in it is enough.
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
    return (f"{len(both):,} of the evaluation texts stand among the training ones too",) if both else ()


def is_reserved_name(name: str) -> bool:
    """Whether results reserve a name: `all` for all levels, brackets for levels that are not the user's."""
    name = name.strip()
    return name.casefold() == "all" or (name.startswith("(") and name.endswith(")"))


def _document_set(path: Path, needed: Sequence[str], what: str) -> DocumentSet:
    rows = read_rows(path, needed)
    ids: dict[str, int] = {}
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    for line, cells in rows:
        where = f"{path}, line {line}"
        row = {"id": f"line {line}"} | {name: cell.strip() for name, cell in cells.items()}
        if "biased" not in needed:
            empty = next((name for name in needed if not row[name]), "")
            if empty:
                raise UndertowError(f"{where}: the {empty} is empty; write it, or drop the row")
            row |= {"biased": "yes", "text": row.get("text") or row["span"]}
        document = _document(row, where)
        if ids.setdefault(document.id, line) != line:
            raise UndertowError(
                f"{where}: repeats the id {document.id!r} of line {ids[document.id]}; give each its own"
            )
        split = (row.get("split") or EVALUATION).lower()
        if split not in parts:
            raise UndertowError(
                f"{where}: split is {row['split']!r}; write {EVALUATION} or {TRAINING}, or drop the column"
            )
        parts[split].append(document)
    if not parts[EVALUATION]:
        raise UndertowError(f"{path}: all rows are for training; set some to split {EVALUATION}")
    evaluation, training = map(tuple, parts.values())
    notes = (*unused_columns(rows[0][1], COLUMNS), *seen_in_training(evaluation, training))
    return DocumentSet(plain_name(path), f"{what} of {path.name}", path.name, evaluation, training, notes)


def unused_columns(columns: Iterable[str], known: Sequence[str]) -> list[str]:
    """A note on each column of a table that is not used."""
    return [f"column {name!r} is not used{closest(name, known)}" for name in columns if name not in known]


def _document(row: Mapping[str, str], where: str) -> Document:
    """The document of a row, or what is wrong with it."""
    biased, dimension = is_yes(row["biased"], "biased", where), row.get("dimension", "")
    if dimension.lower() in DIMENSIONS:
        dimension = dimension.lower()
    document = Document(row["id"], row["text"], biased, dimension, row.get("span", ""), row.get("rephrasing", ""))
    extra = next((name for name in ("dimension", "span", "rephrasing") if getattr(document, name)), "")
    for is_wrong, problem in (
        (not document.id, "the id is empty; give each document its own, or drop the column"),
        (not document.text, "the text is empty; write it, or drop the row"),
        (extra and not biased, f"has a {extra} and is not biased; empty that cell, or say that it is biased"),
        (is_reserved_name(dimension), f"results reserve the name {dimension!r}; rename this dimension"),
        (
            document.span not in document.text,
            f"the span {document.span!r} does not stand in the text; copy it from there",
        ),
        (document.rephrasing and not document.span, "has a rephrasing and no span; add the span, or empty that cell"),
    ):
        if is_wrong:
            raise UndertowError(f"{where}: {problem}")
    return document
