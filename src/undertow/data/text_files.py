"""Read a user's text and TOML files; errors are one sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from undertow._files import decode_text, parse_toml, read_file
from undertow.errors import UndertowError, closest

__all__ = [
    "RESOURCES",
    "add_group",
    "closest",
    "find_repeat",
    "number_between",
    "parse_yes",
    "read_text",
    "read_toml",
    "separator",
]

RESOURCES = Path(__file__).with_name("resources")
"""Files that come with the package."""
MAX_BYTES = 16 * 2**20
"""Size limit of a list or template file, against model or data files given by accident."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f]")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    text = decode_text(read_file(path, MAX_BYTES, "a text list"), path)
    control = _CONTROL.search(text)
    if control:
        number = text.count("\n", 0, control.start()) + 1
        raise UndertowError(f"{path}, line {number}: holds a control character; save the file as plain text")
    return text


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    text = read_text(path)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UndertowError(f"{path}: is not valid TOML: {error}") from error


def parse_yes(said: str, column: str, where: str) -> bool:
    """Whether a cell says yes."""
    if said.lower() not in ("yes", "true", "1", "no", "false", "0"):
        raise UndertowError(f"{where}: {column} is {said!r}; write yes or no")
    return said.lower() in ("yes", "true", "1")


def add_group(groups: dict[str, list[str]], typed: str) -> str:
    """Parse a word group `name: word, word`, add it to `groups`, and return its name.

    Raises:
        UndertowError: it has no name or no words, or there is a group of this name.
    """
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


def find_repeat(words: Iterable[str]) -> str | None:
    """The first word that occurs twice; None if all are distinct."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    return None
