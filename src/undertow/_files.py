"""Bounded readers of untrusted files: size limits, nesting limits, UTF-8, TOML, JSON and Parquet.

Devices and pipes are refused, since they may never end.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from undertow.errors import UndertowError, on_one_line

if TYPE_CHECKING:
    import pyarrow as pa


MAX_DEPTH = 100
"""Levels of nested tables and lists."""

_CHUNK_BYTES = 2**20

MAX_REASON_CHARS = 200
"""Length of a quoted library error."""

MAX_KEY_PARTS = 64
_LONG_KEY = re.compile(rf"(?<![^\s.=])(?:[^\s.=]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")
"""A dotted key or name with too many parts: tomllib takes quadratic time for it."""


class TooLargeError(ValueError):
    """A table is larger than its limit."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Refuse a path that the system cannot read, for example because its name is too long."""
    try:
        yield
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except ValueError as error:
        raise UndertowError(f"{str(path)!r}: cannot be read ({error}); check the path") from error


def read_file(path: Path, max_bytes: int, what: str) -> bytes:
    """The bytes of a regular file.

    Args:
        path: the file, or a link to one.
        max_bytes: size limit.
        what: noun for the error message: "a text list".

    Raises:
        UndertowError: the file is missing, not regular, too large or unreadable.
    """
    n_bytes = file_size(path)
    # Read in pieces: a growing file stays within the limit, and a single `read` would allocate the whole limit.
    with readable(path), path.open("rb") as file:
        content = b"".join(islice(iter(lambda: file.read(_CHUNK_BYTES), b""), max_bytes // _CHUNK_BYTES + 1))
    if len(content) > max_bytes:
        size = max(n_bytes, len(content)) / 2**20
        raise UndertowError(f"{path}: {size:.0f} MiB is too large for {what}; the limit is {max_bytes / 2**20:.0f} MiB")
    return content


def is_plain_file(path: Path) -> bool:
    """Whether the path is a regular file; errors are those of `readable`."""
    with readable(path):
        return path.is_file()


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; errors are those of `readable`."""
    with readable(path):
        return path.is_dir()


def path_exists(path: Path) -> bool:
    """Whether the path exists; True for an invalid name too, so that reading it reports the error."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def file_size(path: Path) -> int:
    """Size of a regular file in bytes; a missing file, a folder, a pipe and a device are refused."""
    with readable(path):
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise UndertowError(f"{path}: cannot be read (Is a directory); check the path")
    if not stat.S_ISREG(status.st_mode):
        raise UndertowError(f"{path}: is a pipe or a device; save its content to a file first")
    return status.st_size


def decode_text(content: bytes, path: Path) -> str:
    """Decode UTF-8 with or without a byte order mark; every line ends with a line feed.

    Raises:
        UndertowError: the content is not UTF-8, or has a zero byte; the message names the line.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text, bad, problem = content.decode(), content.find(b"\0"), "a zero byte is not text"
    except UnicodeDecodeError as error:
        text, bad, problem = "", error.start, f"byte {error.start} is not UTF-8"
    if bad >= 0:
        line = content.count(b"\n", 0, bad) + 1
        raise UndertowError(f"{path}, line {line}: {problem}; save the file as plain UTF-8 text")
    return with_line_feeds(text)


def split_lines(text: str) -> list[str]:
    """Split at line feeds and carriage returns only; `str.splitlines` also splits at other characters."""
    return with_line_feeds(text).split("\n")


def with_line_feeds(text: str) -> str:
    """The text with line feeds in place of Windows and old Mac line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def toml_text(text: str) -> str:
    """A text as a TOML string on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; a `ValueError`, with the line if possible, for other text, deep nesting and a key of too many parts."""
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts")
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_depth(table)
    return table


def toml_table(text: str, where: str) -> dict[str, Any]:
    """Parse TOML; raises `UndertowError` where `parse_toml` raises; `where` names the file."""
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UndertowError(f"{where}: is not valid TOML: {first_line(error)}") from error


def parse_json(text: str | bytes, *, unique_names: bool = True) -> Any:
    """Parse JSON; with `unique_names`, an object that repeats a name is refused.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, repeats a name, or has a number of thousands of digits.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_names if unique_names else None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    _check_depth(value)
    return value


def read_parquet(
    file: Path | IO[bytes], max_cells: int, max_bytes: int, check: Callable[[pa.Schema], None]
) -> pa.Table:
    """Read a Parquet file without dictionary columns.

    A text that many rows repeat takes no space in a file, so dictionaries are expanded only if the result is small enough.

    Args:
        file: the file, or its path.
        max_cells: number of values, those of lists included.
        max_bytes: size of all values, repeated ones counted each time.
        check: raises if the columns are wrong; called before anything is read.

    Raises:
        TooLargeError: the file exceeds a limit.
        ArrowException, OSError, ValueError: the file is not Parquet; also what `check` raises.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    head = pq.ParquetFile(file)
    check(head.schema_arrow)
    groups = [head.metadata.row_group(at) for at in range(head.metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > max_bytes:  # without repetitions, as the file declares
        raise TooLargeError(f"its values take more than the limit of {max_bytes / 2**20:,.0f} MiB")
    n_cells = sum(group.column(at).num_values for group in groups for at in range(group.num_columns))
    if n_cells > max_cells:
        raise TooLargeError(f"holds {n_cells:,} cells; the limit is {max_cells:,}")
    texts = [field.name for field in head.schema_arrow if _plain_type(field.type) == pa.large_string()]
    table = pq.ParquetFile(file, read_dictionary=texts).read()
    n_bytes = 0
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        if pa.types.is_dictionary(chunk.type) and _plain_type(chunk.type) == pa.large_string():
            n_bytes += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        else:
            n_bytes += chunk.nbytes
    if n_bytes > max_bytes:
        raise TooLargeError(f"its values take more than the limit of {max_bytes / 2**20:,.0f} MiB")
    table = table.cast(pa.schema([(field.name, _plain_type(field.type)) for field in table.schema]))
    table.validate(full=True)  # finds text that is not UTF-8
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries and with large strings."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    return pa.large_string() if types.is_string(kind) or types.is_string_view(kind) else kind


def sha256_of(path: Path) -> str:
    """SHA-256 of a file (64 hex digits)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_encodable(value: str) -> bool:
    """Whether a text can be encoded; JSON may hold a lone surrogate, which cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


FORMULA_SIGNS = (
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
"""Signs that may begin a formula in a spreadsheet; the last four in East Asian versions."""

_FORMULA = re.compile(rf"'*\s*[{re.escape(FORMULA_SIGNS)}]")


def csv_cell(cell: Any) -> Any:
    """A cell of a CSV file: text on one line, with an apostrophe before text that looks like a formula."""
    if not isinstance(cell, str):
        return cell
    line = on_one_line(cell)
    return f"'{line}" if _FORMULA.match(line) and not re.fullmatch(r"[+-]?\d+(\.\d+)?", line) else line


def csv_value(cell: str) -> str:
    """The text of a cell of a CSV file: without the apostrophe that `csv_cell` puts before a formula."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


LONE_SURROGATE = "holds half of a character (a lone surrogate)"
"""Description of a lone surrogate for error messages."""


def first_line(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """The first line of an error, and the next where that ends in a colon, short enough to quote in a sentence.

    `redact` removes secrets before the line is shortened, because it would not recognise half a secret.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return redact(" ".join(lines[:2] if lines[0].endswith(":") else lines[:1]))[:MAX_REASON_CHARS]


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    pairs_by_name = dict(pairs)
    if len(pairs_by_name) < len(pairs):
        twice = next(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise ValueError(f"{twice[:60]!r} occurs twice")
    return pairs_by_name


def _check_depth(value: Any) -> None:
    """Refuse deep nesting; level by level, since recursion could exhaust the stack."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        inner = (one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer))
        level = [one for one in inner if isinstance(one, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested too deeply: the limit is {MAX_DEPTH} levels")
