"""Challenges and W lists in memory (dicts or a table of sentences), saved as files so that commands can name them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from undertow._files import toml_text
from undertow._folders import cache_folder, write_whole
from undertow.data.text_files import error_place
from undertow.errors import UndertowError
from undertow.types import to_utf8

MAX_TITLE_CHARS = 40
"""Of a title, in the name of its file."""


@runtime_checkable
class Table(Protocol):
    """A table of pandas."""

    columns: Any
    """The names of its columns."""

    def convert_dtypes(self) -> Any:
        """The table with the narrowest types."""


def save_challenge(given: Mapping[str, Any] | Table) -> Path:
    """Write a challenge to the cache under a name derived from its title and content, and return its path.

    It is the content of a challenge file as a dict, or a table with one row per sentence or document as in a CSV file.

    Raises:
        UndertowError: a value is not allowed in such a file, or the file cannot be written.
    """
    title = ""
    if isinstance(given, Mapping):
        lines = [f"{toml_text(str(key))} = {_toml(value, str(key))}\n" for key, value in given.items()]
        text, suffix = "".join(lines), ".toml"
        title = str(given.get("title") or "")
    else:
        suffix = ".csv"
        try:
            # pandas stores integers with missing values as floats: 1 would be written as 1.0.
            text = str(given.convert_dtypes().to_csv(index=False))
        except UnicodeEncodeError as error:
            text = error.object  # which `_digest` refuses
    digest = _digest(text, "challenge")
    name = re.sub(r"[^a-z0-9]+", "-", title[:MAX_TITLE_CHARS].lower()).strip("-") or "challenge"
    return write_whole(cache_folder() / "challenges" / f"{name}-{digest}{suffix}", text, "free space")


def save_lists(given: Mapping[str, Sequence[str | int | float]]) -> list[Path]:
    """Write W lists, each a name with its values, to files of one value a line in the cache, and return their paths.

    Raises:
        UndertowError: a name or a value cannot stand in such a file, or the file cannot be written.
    """
    if not given:
        raise UndertowError("w: the dict is empty; give each list a name and its values, or leave w out")
    paths = []
    for name, values in given.items():
        if not isinstance(name, str) or not re.fullmatch(rf"\w[\w -]{{,{MAX_TITLE_CHARS}}}", name):
            raise UndertowError(f"w: {name!r:.60} cannot name a list; use a few letters, digits, spaces and hyphens")
        if isinstance(values, str | bytes | Set | Mapping) or not isinstance(values, Iterable):
            raise UndertowError(f"w: {name} is {values!r:.60}; give a list of values, in order")
        lines = [str(value).strip() for value in values]
        if wrong := [line for line in lines if len(line.splitlines()) != 1]:
            raise UndertowError(f"w: {name} has the value {wrong[0]!r}; write each value on one line")
        text = "".join(f"{line}\n" for line in lines)
        path = cache_folder() / "lists" / _digest(text, "w") / f"{name}.txt"
        if "," in str(path):
            raise UndertowError(
                f"w: the cache folder {cache_folder()} has a comma; set UNDERTOW_CACHE to another folder"
            )
        paths.append(write_whole(path, text, "free space"))
    return paths


def _digest(text: str, where: str) -> str:
    with error_place(where):
        return hashlib.sha256(to_utf8(text)).hexdigest()[:8]


def _toml(value: Any, where: str) -> str:
    """A value of a dict as TOML on one line."""
    if isinstance(value, Mapping):
        pairs = [f"{toml_text(str(key))} = {_toml(inner, f'{where}.{key}')}" for key, inner in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(inner, where) for inner in value) + "]"
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UndertowError(f"challenge: {where} is {value!r}; write a finite number, or remove it")
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise UndertowError(f"challenge: {where} is {value!r}; write a text, a number, a list or a dict")
