"""Reading a user's text files so that what is wrong with them is said in one sentence.

Knows about files and encodings; knows nothing about what the files mean.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from undertow.types import UndertowError

MAX_BYTES = 16 * 2**20
"""A list or template file larger than this is a mistake (a model or data file given by accident)."""


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises:
        UndertowError: the file cannot be read, is not UTF-8, holds control characters or is far too large.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UndertowError(f"{path}: {size / 2**20:.0f} MiB is too large for a text list; at most 16 MiB is read")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UndertowError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UndertowError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    for number, line in enumerate(text.split("\n"), 1):
        if any(char < " " and char not in "\t\r" for char in line):
            raise UndertowError(f"{path}, line {number}: holds a control character; save the file as plain text")
    return text


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        UndertowError: the file cannot be read or is not TOML; the message names the line.
    """
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UndertowError(f"{path}: is not valid TOML: {error}") from error
    except RecursionError as error:
        raise UndertowError(f"{path}: is nested too deeply to be a challenge file") from error


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, ready to append to a sentence; "" if nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
