"""Documents that are biased on a known dimension, or not, for the four tasks of bias in text.

A document has its biased span, the dimension of its bias and a rephrasing of the span, as far as its source gives them. Files of
one's own are tables with the columns `id split text biased dimension span rephrasing`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, cast

from undertow._files import csv_value, file_size
from undertow.data.text_files import closest, repeated, separator
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
ENDINGS = (".tsv", ".csv", ".tsv.gz", ".csv.gz")
"""Endings of the tables that are read, gzipped or not."""
EVALUATION, TRAINING = "evaluation", "train"
"""What the column `split` may say."""
COLUMNS = ("id", "split", "text", "biased", "dimension", "span", "rephrasing")
MAX_BYTES = 64 * 2**20
"""A table larger than this, unpacked, is a mistake; all of CAD is a fraction of it."""
MAX_HEADER_BYTES = 2**16

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
_GZIP = b"\x1f\x8b"
Rows = list[tuple[int, dict[str, str]]]
"""Line number and cells by column of each row."""


def own_set() -> DocumentSet:
    """The package's own statements.

    Raises:
        UndertowError: their file is not what it should be.
    """
    with resources.as_file(resources.files("undertow.data").joinpath("resources", "sets", f"{OWN}.tsv")) as path:
        documents = read_documents(path)
    return DocumentSet(OWN, OWN_TITLE, OWN_TITLE, documents.evaluation, documents.training, documents.notes)


def read_documents(path: Path) -> DocumentSet:
    """A user's table of documents: `text` and `biased`, and any of `id split dimension span rephrasing`.

    A .tsv holds its cells as they stand, a .csv may quote them. Dimensions beyond the eleven are the user's own.

    Raises:
        UndertowError: the file cannot be read, or a row is not what it must be; names the line.
    """
    return _document_set(path, ("text", "biased"), "documents")


def read_rephrase_pairs(path: Path) -> DocumentSet:
    """A user's table of biased spans and what each becomes without its bias: `span` and `rephrasing`.

    `id split text dimension` may stand beside them; without a text the span is the whole of it. All are biased.

    Raises:
        UndertowError: the file cannot be read, or a row is not what it must be; names the line.
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


def plain_name(path: Path) -> str:
    """The file's name without the ending of a table."""
    ends = [end for end in ENDINGS if path.name.lower().endswith(end)]
    return path.name[: -max(map(len, ends))] if ends else path.name


def file_text(path: Path) -> str:
    """A UTF-8 file, with or without a byte order mark, unpacked if its bytes are gzip's.

    Raises:
        UndertowError: it cannot be read, is too large, is not UTF-8 or holds a zero byte; the last two name the line.
    """
    content = _bytes(path, lambda file: file.read(MAX_BYTES + 1))
    if len(content) > MAX_BYTES:
        raise UndertowError(f"{path}: is too large for a table of documents; at most {MAX_BYTES // 2**20} MiB are read")
    return _decoded(content, path)


def header(path: Path) -> tuple[str, ...]:
    """The names of a table's columns, of which no more than the first line is read.

    Raises:
        UndertowError: the file cannot be read as a table.
    """
    first = _decoded(_bytes(path, lambda file: file.readline(MAX_HEADER_BYTES)), path)
    return tuple(cell.strip() for cell in _lines(first, path)[0][1])


def read_rows(path: Path, needed: Sequence[str] = ()) -> Rows:
    """The rows of a table by its column names, every one as long as the header.

    Raises:
        UndertowError: the file cannot be read as a table that has rows and the needed columns; names the line.
    """
    lines = _lines(file_text(path), path)
    columns = [cell.strip() for cell in lines[0][1]]
    twice = repeated(columns)
    if twice is not None:
        raise UndertowError(f"{path}: has two columns called {twice!r}; give each column a name of its own")
    problem = missing(path, needed, columns)
    if problem:
        raise problem
    for line, cells in lines[1:]:
        if len(cells) != len(columns):
            raise UndertowError(
                f"{path}, line {line}: has {len(cells)} cell{'s' if len(cells) > 1 else ''}, but the header has {len(columns)};"
                " look for a tab, a comma or a line break too many or too few"
            )
    if len(lines) < 2:
        raise UndertowError(f"{path}: holds no rows below its header; add some")
    return [(line, dict(zip(columns, cells, strict=True))) for line, cells in lines[1:]]


def missing(path: Path, needed: Sequence[str], there: Sequence[str]) -> UndertowError | None:
    """What to say where a column is missing."""
    absent = next((name for name in needed if name not in there), None)
    if absent is None:
        return None
    return UndertowError(
        f"{path}: has no column {absent!r}{closest(absent, there)}; it needs {', '.join(needed)} and has {', '.join(there)}"
    )


def _bytes(path: Path, read: Callable[[IO[bytes]], bytes]) -> bytes:
    """What is read of a file, unpacked."""
    file_size(path)
    try:
        with path.open("rb") as file:
            is_packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            return read(cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_packed else file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UndertowError(f"{path}: is not a whole gzip file ({error}); fetch or pack it again") from error
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def _decoded(content: bytes, path: Path) -> str:
    content = content.removeprefix(codecs.BOM_UTF8)
    zero = content.find(b"\0")
    if zero >= 0:
        raise UndertowError(
            f"{path}, line {_line(content, zero)}: holds a zero byte; save the file as plain UTF-8 text"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UndertowError(
            f"{path}, line {_line(content, error.start)}: byte {error.start} is not UTF-8; save the file as UTF-8 text"
        ) from error


def _line(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


def _lines(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Line number and cells of every row, the header's first; there is one at least."""
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith(ENDINGS):
        raise UndertowError(f"{path}: is not a table that is read; name a file that ends in {', '.join(ENDINGS)}")
    lines = _quoted(text, path) if name.endswith(".csv") else _split(text)
    if not lines:
        raise UndertowError(f"{path}: is empty; its first line should name the columns")
    return lines


def _split(text: str) -> list[tuple[int, list[str]]]:
    """Lines of a .tsv: no quoting, so a line break always ends a row, and no other character does."""
    ends = [line.removesuffix("\r") for line in text.split("\n")]
    return [(number, line.split("\t")) for number, line in enumerate(ends, 1) if line]


def _quoted(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Records of a .csv, by the line each begins in."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator(text.partition("\n")[0]), strict=True)
    records, begins = [], 1
    try:
        for cells in reader:
            if cells:
                records.append((begins, list(map(csv_value, cells))))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise UndertowError(f"{path}, line {begins}: is not CSV that can be read ({error}); fix the quotes") from error
    return records


def _document_set(path: Path, needed: Sequence[str], what: str) -> DocumentSet:
    rows = read_rows(path, needed)
    columns = list(rows[0][1])
    ids: dict[str, int] = {}
    parts: dict[str, list[Document]] = {EVALUATION: [], TRAINING: []}
    for line, cells in rows:
        where = f"{path}, line {line}"
        row = {"id": f"line {line}"} | {name: cell.strip() for name, cell in cells.items()}
        document = _document(row if "biased" in needed else _of_pair(row, where), where)
        if ids.setdefault(document.id, line) != line:
            raise UndertowError(
                f"{where}: repeats the id {document.id!r} of line {ids[document.id]}; give each its own"
            )
        parts[_split_of(row, where)].append(document)
    if not parts[EVALUATION]:
        raise UndertowError(f"{path}: all rows are for training; set some to split {EVALUATION}")
    evaluation, training = tuple(parts[EVALUATION]), tuple(parts[TRAINING])
    notes = (*_unused(columns), *seen_in_training(evaluation, training))
    return DocumentSet(plain_name(path), f"{what} of {path.name}", path.name, evaluation, training, notes)


def _unused(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"column {name!r} is not used{closest(name, COLUMNS)}" for name in columns if name not in COLUMNS)


def _split_of(row: Mapping[str, str], where: str) -> str:
    split = (row.get("split") or EVALUATION).lower()
    if split not in (EVALUATION, TRAINING):
        raise UndertowError(f"{where}: split is {row['split']!r}; write {EVALUATION} or {TRAINING}, or drop the column")
    return split


def _of_pair(row: Mapping[str, str], where: str) -> dict[str, str]:
    """The row of a document that a rephrase pair makes."""
    empty = next((name for name in ("span", "rephrasing") if not row[name]), "")
    if empty:
        raise UndertowError(f"{where}: the {empty} is empty; write it, or drop the row")
    return {**row, "biased": _YES[0], "text": row.get("text") or row["span"]}


def _document(row: Mapping[str, str], where: str) -> Document:
    document = Document(
        id=row["id"],
        text=row["text"],
        biased=_is_biased(row["biased"], where),
        dimension=_dimension(row.get("dimension", "")),
        span=row.get("span", ""),
        rephrasing=row.get("rephrasing", ""),
    )
    control = next((char for cell in row.values() for char in cell if char < " " and char not in "\t\r\n"), "")
    problem = f"holds the control character {control!r}; save the file as plain text" if control else _problem(document)
    if problem:
        raise UndertowError(f"{where}: {problem}")
    return document


def _problem(document: Document) -> str:  # noqa: PLR0911 - one for each rule
    """What is wrong with a document and how to fix it; "" for a valid one."""
    if not document.id:
        return "the id is empty; give each document its own, or drop the column"
    if not document.text:
        return "the text is empty; write it, or drop the row"
    if not document.biased:
        extra = next((name for name in ("dimension", "span", "rephrasing") if getattr(document, name)), "")
        return extra and f"has a {extra} and is not biased; empty that cell, or say that it is biased"
    if is_reserved_name(document.dimension):
        return f"results reserve the name {document.dimension!r}; rename this dimension"
    if document.span not in document.text:
        return f"the span {document.span!r} does not stand in the text; copy it from there, letter by letter"
    if document.rephrasing and not document.span:
        return "has a rephrasing and no span; add the span that is rephrased, or empty that cell"
    return ""


def _is_biased(said: str, where: str) -> bool:
    if said.lower() not in _YES + _NO:
        raise UndertowError(f"{where}: biased is {said!r}; write yes or no")
    return said.lower() in _YES


def _dimension(said: str) -> str:
    """One of the eleven, however its letters are cased; a user's own as it stands."""
    return said.lower() if said.lower() in DIMENSIONS else said
