"""Files and texts that others wrote, read without believing them: no larger, no deeper and no stranger than they may be.

Knows bytes, UTF-8, TOML and JSON; knows nothing of what any of them means. A device or a pipe is no file here: it may never end.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from undertow.types import UndertowError

MOST_DEEP = 100
"""Levels of tables and lists within each other; whoever shows or writes a value goes down as far."""
MOST_PARTS_OF_A_KEY = 64
MOST_SAID_SIGNS = 200
"""Of what a library says of a fault."""
_LONG_KEY = re.compile(
    rf"(?:^|[\[{{,])[ \t]*+(?:(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MOST_PARTS_OF_A_KEY}}}",
    re.ASCII | re.MULTILINE,
)
"""A key in so many parts takes tomllib time by their square, and is none that anybody writes."""


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
    return _told(path, path.is_file)


def is_folder(path: Path) -> bool:
    """Whether there is a folder of this name.

    Raises:
        UndertowError: the system cannot say, as of a name that is too long.
    """
    return _told(path, path.is_dir)


def _told(path: Path, asked: Callable[[], bool]) -> bool:
    try:
        return asked()
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
        found = path.stat()
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except ValueError as error:
        raise UndertowError(f"{str(path)!r}: cannot be read ({error}); check the path") from error
    if stat.S_ISDIR(found.st_mode):
        raise UndertowError(f"{path}: cannot be read (Is a directory); check the path")
    if not stat.S_ISREG(found.st_mode):
        raise UndertowError(
            f"{path}: cannot be read (it is a pipe or a device, and no file); save what it gives as a file first"
        )
    return found.st_size


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
            f"a key has more than {MOST_PARTS_OF_A_KEY} parts (at line {text.count(chr(10), 0, long.start()) + 1})"
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


def is_whole_text(value: str) -> bool:
    """Whether a text can be written: half of a character (a lone surrogate), as JSON may spell one, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


HALF_CHARACTER = "holds half of a character (a lone surrogate)"
"""What a text that is not whole does, as an error has it."""


def first_line(error: BaseException, shown: Callable[[str], str] = str) -> str:
    """What a library says of a fault, short enough to stand within a sentence of ours.

    Args:
        error: the fault.
        shown: takes out of the line what nobody should see; before it is cut, since half of a secret is no longer known for one.
    """
    return shown((str(error).strip().splitlines() or [type(error).__name__])[0])[:MOST_SAID_SIGNS]


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice[:60]!r} is there twice")
    return found


def _check_depth(value: Any) -> None:
    """By levels and not by calls, of which there may be too few left."""
    level: list[Any] = [value]
    for _ in range(MOST_DEEP):
        level = [inner for outer in level for inner in _within(outer)]
        if not level:
            return
    raise ValueError(f"it is nested too deeply: at most {MOST_DEEP} levels are read")


def _within(value: Any) -> Iterable[Any]:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, (dict, list))]
