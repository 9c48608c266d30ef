"""Files and texts that others wrote, read without believing them: no larger, no deeper and no stranger than they may be.

Knows bytes, UTF-8, TOML, JSON and Parquet; knows nothing of what any of them means. A device or a pipe is no file here: it may never end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import platformdirs

from undertow.errors import UndertowError, on_one_line

if TYPE_CHECKING:
    import pyarrow as pa


MAX_DEEP = 100
"""Levels of tables and lists within each other; whoever shows or writes a value goes down as far."""


MAX_PARTS_OF_A_KEY = 64


MAX_SAID_CHARS = 200
"""Of what a library says of a fault."""


CELL_BYTES, LIST_BYTES = 8, 128
"""What a cell takes beside its text, and a list beside what is in it, once the table is in memory."""


_PART_CELLS, _PART_ROWS = 2**22, 2**16
"""Of a Parquet file, read at a time."""


_LONG_KEY = re.compile(
    rf"(?:^|[\[{{,])[ \t]*+(?:(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_PARTS_OF_A_KEY}}}",
    re.ASCII | re.MULTILINE,
)
"""A key in so many parts takes tomllib time by their square, and is none that anybody writes."""


class TooLargeError(ValueError):
    """A table holds more than is read of one."""


def whole_file(path: Path, most_bytes: int, what: str) -> bytes:
    """All of a plain file.

    Args:
        path: the file, or a link to one.
        most_bytes: what is larger is not read.
        what: what it should be, as an error has it: "a text list".

    Raises:
        UndertowError: it is not there, is no plain file, is too large or cannot be read.
    """
    said_bytes = plain_size(path)
    try:
        # A file that grows meanwhile is no larger for it.
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    if len(content) > most_bytes:
        size = max(said_bytes, len(content)) / 2**20
        raise UndertowError(
            f"{path}: {size:.0f} MiB is too large for {what}; at most {most_bytes / 2**20:.0f} MiB is read"
        )
    return content


def is_plain_file(path: Path) -> bool:
    """Whether there is a plain file of this name.

    Raises:
        UndertowError: the system cannot say, as of a name that is too long.
    """
    return _check_path(path, path.is_file)


def is_folder(path: Path) -> bool:
    """Whether there is a folder of this name.

    Raises:
        UndertowError: the system cannot say, as of a name that is too long.
    """
    return _check_path(path, path.is_dir)


def _check_path(path: Path, check: Callable[[], bool]) -> bool:
    try:
        return check()
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error


def is_there(path: Path) -> bool:
    """Whether anything of this name is there; a name that no file can have counts as there, and reading it says why not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def plain_size(path: Path) -> int:
    """Bytes of a plain file, as its system has them.

    Raises:
        UndertowError: it is not there, or is no plain file.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except ValueError as error:
        raise UndertowError(f"{str(path)!r}: cannot be read ({error}); check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise UndertowError(f"{path}: cannot be read (Is a directory); check the path")
    if not stat.S_ISREG(status.st_mode):
        raise UndertowError(
            f"{path}: cannot be read (it is a pipe or a device, and no file); save what it gives as a file first"
        )
    return status.st_size


def text_of(content: bytes, path: Path) -> str:
    """UTF-8 with or without a byte order mark; a line ends as its system has it, and in the text with a line feed.

    Raises:
        UndertowError: it is not UTF-8; names the byte.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UndertowError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    return _with_line_feeds(text)


def lines_of(text: str) -> list[str]:
    """The lines of a text, which ends them as one system or another does; signs that `str.splitlines` takes for ends are none."""
    return _with_line_feeds(text).split("\n")


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def toml_of(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: it is not TOML, is nested too deeply, or has a key or a number that is far too long; names the line if it can.
    """
    long = _LONG_KEY.search(text)
    if long:
        raise ValueError(
            f"a key has more than {MAX_PARTS_OF_A_KEY} parts (at line {text.count(chr(10), 0, long.start()) + 1})"
        )
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_depth(table)
    return table


def json_of(text: str | bytes, *, named_once: bool = True) -> Any:
    """The value of a JSON text. A name that an object has twice is refused: which of the two is meant, nobody knows.

    Args:
        text: all of it.
        named_once: False for files of another tool's, which takes the last of two.

    Raises:
        ValueError: it is not JSON, is nested too deeply, repeats a name, or has a number of thousands of digits.
    """
    try:
        value = json.loads(text, object_pairs_hook=_named_once if named_once else None)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_depth(value)
    return value


def parquet_table(
    file: Path | IO[bytes],
    most_cells: int,
    most_bytes: int,
    check: Callable[[pa.Schema], None],
    *,
    cell_bytes: int = CELL_BYTES,
) -> pa.Table:
    """All of a Parquet file, in chunks, its dictionaries spelled out.

    A value that stands there over and over takes no room in a file, so what it comes to is counted before it is spelled out. The
    sizes that a file tells of itself are held against the limits before anything is read.

    Args:
        file: the file, or its path.
        most_cells: rows times columns.
        most_bytes: of all values, each counted where it stands.
        check: refuses, before anything is read, a table whose columns are not what they must be.
        cell_bytes: what a cell that is no text counts at least.

    Raises:
        TooLargeError: it is too large.
        ArrowException, OSError, ValueError: it is no Parquet file; what `check` raises.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet_file = pq.ParquetFile(file)
    check(parquet_file.schema_arrow)
    about = parquet_file.metadata
    n_cells = about.num_rows * about.num_columns
    if n_cells > most_cells:
        raise TooLargeError(f"holds {n_cells:,} cells, and at most {most_cells:,} are read")
    leaves = [parquet_file.schema.column(at) for at in range(about.num_columns)]
    # A list counts as one cell, whatever is in it.
    chunks = [about.row_group(at).column(leaf) for at in range(about.num_row_groups) for leaf in range(len(leaves))]
    _check_bytes(sum(_min_bytes(chunk) for chunk in chunks), most_bytes)
    texts = [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type in ("STRING", "NONE")
    ]
    kinds = pa.schema([pa.field(field.name, _spelled_out(field.type)) for field in parquet_file.schema_arrow])
    parts, n_bytes = [], 0
    opened = pq.ParquetFile(file, read_dictionary=texts)
    for part in opened.iter_batches(batch_size=max(1, min(_PART_ROWS, _PART_CELLS // max(1, len(leaves))))):
        n_bytes += sum(_value_bytes(column, cell_bytes) for column in part.columns)
        _check_bytes(n_bytes, most_bytes)
        columns = [column.cast(kind) for column, kind in zip(part.columns, kinds.types, strict=True)]
        parts.append(pa.record_batch(columns, schema=kinds))
        parts[-1].validate(full=True)  # a text that is not UTF-8 would be met later, and anywhere
    return pa.Table.from_batches(parts, schema=kinds)


def _min_bytes(chunk: Any) -> int:
    """What part of a column takes at least, by what the file tells of it: pages unpacked, or values one by one."""
    of_one = 8 if chunk.physical_type in ("INT64", "DOUBLE") else 1 if chunk.physical_type == "BOOLEAN" else 4
    return max(int(chunk.total_uncompressed_size), of_one * int(chunk.num_values))


def _check_bytes(n_bytes: int, most_bytes: int) -> None:
    if n_bytes > most_bytes:
        raise TooLargeError(f"its values take more than {most_bytes / 2**20:,.0f} MiB, which is all that is read")


def _spelled_out(kind: pa.DataType) -> pa.DataType:
    """A type without dictionaries, its texts of any length."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(kind):
        return _spelled_out(kind.value_type)
    if types.is_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(_spelled_out(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _spelled_out(field.type)) for field in kind])
    return kind


def _value_bytes(column: pa.Array, cell_bytes: int) -> int:
    """What the values of a column take once dictionaries are spelled out."""
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind) and not _is_bytes(kind.value_type):
        return len(column) * max(cell_bytes, int(kind.value_type.bit_width) // 8)
    if types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary)
        return len(column) * CELL_BYTES + int(pc.sum(lengths.take(column.indices)).as_py() or 0)
    if _is_bytes(kind):
        return len(column) * CELL_BYTES + int(pc.sum(pc.binary_length(column)).as_py() or 0)
    if types.is_struct(kind):
        return len(column) * LIST_BYTES + sum(_value_bytes(inner, cell_bytes) for inner in column.flatten())
    if types.is_nested(kind):
        return len(column) * LIST_BYTES + _value_bytes(column.values, cell_bytes)
    return max(len(column) * cell_bytes, int(column.nbytes))


def _is_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def is_whole_text(value: str) -> bool:
    """Whether a text can be written: half of a character (a lone surrogate), as JSON may spell one, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


FORMULA_SIGNS = (
    "=+-@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
"""Signs that a spreadsheet may take for the beginning of a formula; the last four where it is used in East Asia."""


_FORMULA = re.compile(rf"'*\s*[{re.escape(FORMULA_SIGNS)}]")


def csv_cell(cell: Any) -> Any:
    """A cell as every CSV file of ours has it: text on one line, with an apostrophe before what looks like a formula."""
    if not isinstance(cell, str):
        return cell
    line = on_one_line(cell)
    return f"'{line}" if _FORMULA.match(line) and not re.fullmatch(r"[+-]?\d+(\.\d+)?", line) else line


def csv_value(cell: str) -> str:
    """The text of a cell of a CSV file: without the apostrophe that `csv_cell` puts before a formula."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


HALF_CHARACTER = "holds half of a character (a lone surrogate)"
"""What a text that is not whole does, as an error has it."""


def first_line(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """What a library says of a fault, short enough to stand within a sentence of ours.

    Args:
        error: the fault.
        redact: removes secrets from the line before it is cut, since half of a secret is no longer recognized.
    """
    return redact((str(error).strip().splitlines() or [type(error).__name__])[0])[:MAX_SAID_CHARS]


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    pairs_by_name = dict(pairs)
    if len(pairs_by_name) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:60]!r} is there twice")
    return pairs_by_name


def _check_depth(value: Any) -> None:
    """By levels and not by calls, of which there may be too few left."""
    level: list[Any] = [value]
    for _ in range(MAX_DEEP):
        level = [inner for outer in level for inner in _within(outer)]
        if not level:
            return
    raise ValueError(f"it is nested too deeply: at most {MAX_DEEP} levels are read")


def _within(value: Any) -> Iterable[Any]:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, (dict, list))]


try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and drafts are old before they are removed
    fcntl = None  # type: ignore[assignment]


WAIT_S, SAY_S = 120.0, 4.0
"""How long another process may hold what we need before we give up, and before the user is told that we wait."""


DRAFT_PREFIX = ".undertow-draft-"
"""Begins the name of a draft of a folder that a user named; whoever writes beside it next removes those of killed processes."""


HELD = ".held"
"""Ends the name of a draft folder that is locked for as long as its process lives."""


OLD_S = 24 * 3600.0
"""When a draft that cannot be locked is taken for one of a process that is no more: longer than any of them takes."""


def say(sentence: str) -> None:
    """A line on standard error, for what a user should know while a command goes on."""
    sys.stderr.write(f"undertow: {sentence}\n")
    sys.stderr.flush()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, as long as nobody else locks the folder; a folder that cannot be locked is used as it is.

    Raises:
        TimeoutError: another process held it all the time.
    """
    lock = _descriptor(folder)
    try:
        started, reported = time.monotonic(), False
        while lock is not None and _taken(lock) is False:
            waited_s = time.monotonic() - started
            if waited_s > WAIT_S:
                raise TimeoutError(0, f"another process has held it for {WAIT_S:.0f} seconds", str(folder))
            if waited_s > SAY_S and not reported:
                reported = True
                say(f"{folder}: waiting for another process that holds this folder")
            time.sleep(0.02)
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def draft_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder for what is not finished, gone afterwards. If its process is killed, the next one here removes it."""
    remove_forsaken(parent, prefix)
    with locked(parent):
        made = Path(tempfile.mkdtemp(prefix=prefix, suffix=HELD if fcntl else "", dir=parent))
        lock = _descriptor(made)
        if lock is not None:
            _taken(lock)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_forsaken(parent: Path, prefix: str) -> None:
    """Remove drafts of processes that are no more."""
    drafts = list(parent.glob(f"{prefix}*")) if parent.is_dir() else []
    if not drafts:
        return
    with locked(parent):
        for draft in drafts:
            with suppress(FileNotFoundError):  # another process has just ended
                if _is_forsaken(draft):
                    shutil.rmtree(draft, ignore_errors=True)


def _is_forsaken(draft: Path) -> bool:
    """By its lock, and by its age where locks tell nothing."""
    is_old = time.time() - draft.stat().st_mtime > OLD_S
    lock = _descriptor(draft) if draft.name.endswith(HELD) else None
    if lock is None:
        return is_old
    try:
        is_free = _taken(lock)
    finally:
        os.close(lock)
    return is_old if is_free is None else is_free


def _descriptor(folder: Path) -> int | None:
    """The folder, open to be locked; None where folders cannot be."""
    if fcntl is None:
        return None
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:
        return None


def _taken(lock: int) -> bool | None:
    """Whether the lock is ours now; None where the file system knows no locks, and so nothing is to be waited for."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def cache_folder() -> Path:
    """The folder for models and answers: `UNDERTOW_CACHE` if it is set, else the user's cache folder."""
    chosen = os.environ.get("UNDERTOW_CACHE", "")
    return Path(chosen) if chosen else platformdirs.user_cache_path("undertow")


def cache_file() -> Path:
    """The answer store."""
    return cache_folder() / "answers.sqlite"


def model_folder(name: str) -> Path:
    """The folder that a pulled model lies in."""
    return cache_folder() / "models" / name


def data_folder(name: str) -> Path:
    """The folder that fetched data of this name lie in."""
    return cache_folder() / "data" / name
