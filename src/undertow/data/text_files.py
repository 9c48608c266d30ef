"""Read a user's text and TOML files, and text tables (CSV or TSV, optionally gzipped); errors are one sentence.

Cells of a .tsv are literal; those of a .csv may be quoted.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from undertow._files import csv_value, decode_text, file_size, read_file, readable, toml_table
from undertow._schemas import check
from undertow.errors import UndertowError, closest, counted

RESOURCES = Path(__file__).with_name("resources")
"""Files that come with the package."""
MAX_BYTES = 16 * 2**20
"""Size limit of a list or template file, against model or data files given by accident."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")


@contextmanager
def error_place(where: str) -> Iterator[None]:
    """Name the place of an invalid entry: `where` precedes the message of an error."""
    try:
        yield
    except UndertowError as error:
        raise UndertowError(f"{where}: {error}") from error


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    text = decode_text(read_file(path, MAX_BYTES, "a text list"), path)
    if control := _CONTROL.search(text):
        number = text.count("\n", 0, control.start()) + 1
        raise UndertowError(f"{path}, line {number}: holds a control character; save the file as plain text")
    return text


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return toml_table(read_text(path), str(path))


def add_group(groups: dict[str, list[str]], typed: str) -> str:
    """Parse a word group `name: word, word`, add it to `groups`, which has none of this name yet, and return its name."""
    name, _, listed = typed.partition(":")
    name, words = name.strip(), [word.strip() for word in listed.split(",") if word.strip()]
    if not name or not words:
        raise UndertowError(f"group {typed.strip()!r}: write a name, a colon and words, for example old: old, elderly")
    if name in groups:
        raise UndertowError(f"group {name!r} is given twice; write it once, with all its words")
    groups[name] = words
    return name


def number_between(low: float, high: float, text: str) -> float:
    """The number that a cell holds; NaN where it holds none, or one outside the bounds."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if low <= number <= high else math.nan


def separator(header: str) -> str:
    """The delimiter of a CSV: `;` or a tab if the first line has some and no comma, as many spreadsheets write it."""
    return next((one for one in ";\t" if one in header and "," not in header), ",")


def first_repeat(words: Iterable[str]) -> str | None:
    """The first word that occurs twice; None if all are distinct."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    return None


ENDINGS = (".tsv", ".csv", ".tsv.gz", ".csv.gz")
MAX_TABLE_BYTES = 64 * 2**20
"""Maximum size of a table of documents or names, unpacked; CAD is much smaller."""
MAX_HEADER_BYTES = 2**16
Rows = list[tuple[int, dict[str, str]]]
"""Line number and cells by column of each row."""
Record = TypeVar("Record", bound="TableRow")
_GZIP = b"\x1f\x8b"
_TABLE_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except tabs and line feeds."""
MAX_CELLS = 10_000_000
EMPTY = "{path}: is empty; its first line should name the columns"


class TableRow(BaseModel):
    """A row of a table: numbers and booleans are parsed from text, other columns ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


def read_records(path: Path, schema: type[Record], endings: Sequence[str] = ENDINGS) -> list[tuple[int, Record]]:
    """The rows of a table by a schema, each with its first line; empty cells have the default value, if any. Errors name the line."""
    needed = [field.alias or name for name, field in schema.model_fields.items() if field.is_required()]
    own = {*schema.model_fields, *(field.alias for field in schema.model_fields.values())}
    rows = read_rows(path, needed, endings)
    columns, records = [name for name in rows[0][1] if name in own], []
    for line, row in rows:
        cells = {name: cell for name in columns if (cell := row[name].strip()) or name in needed}
        records.append((line, check(schema, cells, f"{path}, line {line}")))
    return records


def plain_name(path: Path) -> str:
    """The file's name without the suffix of a table."""
    ends = [end for end in ENDINGS if path.name.lower().endswith(end)]
    return path.name[: -max(map(len, ends))] if ends else path.name


def header(path: Path) -> tuple[str, ...]:
    """The names of a table's columns, from its first 64 KiB."""
    first = _read_bytes(path, MAX_HEADER_BYTES).partition(b"\n")[0]
    columns = tuple(cell.strip() for _, cells in _records(path, decode_text(first, path)) for cell in cells)
    if not columns:
        raise UndertowError(EMPTY.format(path=path))
    return columns


def read_rows(
    path: Path, needed: Sequence[str] = (), endings: Sequence[str] = ENDINGS, *, may_hold_controls: bool = False
) -> Rows:
    """The rows of a table by column name, each as long as the header, without control characters unless these are allowed."""
    if not path.name.lower().endswith(tuple(endings)):
        raise UndertowError(f"{path}: is not a supported table; name a file that ends in {', '.join(endings)}")
    columns, rows = read_cells(path)
    if (absent := next((name for name in needed if name not in columns), None)) is not None:
        given = [name.strip('"') for name in columns]
        raise UndertowError(f"{path}: has no column {absent!r}{closest(absent, given)}; it has {', '.join(given)}")
    if not rows:
        raise UndertowError(f"{path}: has no rows below its header; add some")
    for line, cells in () if may_hold_controls else rows:
        if control := next(filter(None, map(_TABLE_CONTROL.search, cells)), None):
            raise UndertowError(f"{path}, line {line}: has the control character {control[0]!r}; remove it")
    return [(line, dict(zip(columns, cells, strict=True))) for line, cells in rows]


def read_cells(path: Path, max_bytes: int = 0) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The columns of a table, and the line and the cells of each row; empty lines are skipped.

    Raises:
        UndertowError: the file is too large or not text, two columns have the same name, or a row differs in length from the header.
    """
    max_bytes = max_bytes or MAX_TABLE_BYTES
    content = _read_bytes(path, max_bytes + 1)
    if len(content) > max_bytes:
        raise UndertowError(f"{path}: is too large for a table; the limit is {max_bytes // 2**20} MiB")
    text = decode_text(content, path)
    del content
    records: list[tuple[int, list[str]]] = []
    n_cells = 0
    for line, cells in _records(path, text):
        n_cells += len(cells)
        if n_cells > MAX_CELLS:
            raise UndertowError(f"{path}, line {line}: is too large for a table; the limit is {MAX_CELLS:,} cells")
        records.append((line, cells))
    if not records:
        raise UndertowError(EMPTY.format(path=path))
    columns = [cell.strip() for cell in records[0][1]]
    if (twice := first_repeat(columns)) is not None:
        raise UndertowError(f"{path}: has two columns called {twice!r}; rename one")
    for line, cells in records[1:]:
        if len(cells) != len(columns):
            raise UndertowError(
                f"{path}, line {line}: has {counted(len(cells), 'cell')}; the header has {len(columns)}"
            )
    return columns, records[1:]


def _read_bytes(path: Path, n_bytes: int) -> bytes:
    file_size(path)
    with readable(path), path.open("rb") as file:
        is_packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        try:
            return gzip.GzipFile(fileobj=file).read(n_bytes) if is_packed else file.read(n_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UndertowError(f"{path}: is not a whole gzip file ({error}); fetch or pack it again") from error


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The first line and the cells of each row, from the header."""
    if path.name.lower().removesuffix(".gz").endswith((".tsv", ".txt")):
        # Only a line break ends a row.
        for number, line in enumerate(text.split("\n"), 1):
            if line:
                yield number, line.split("\t")
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator(text.partition("\n")[0]), strict=True)
    begins = 1
    try:
        for cells in reader:
            if cells:
                yield begins, list(map(csv_value, cells))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise UndertowError(
            f"{path}, line {begins}: is not CSV ({error}); fix its quotes, or shorten the cell"
        ) from error
