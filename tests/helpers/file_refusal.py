"""Files of a user, and what every refusal of one or of a choice looks like: one line, which names what is wrong."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from undertow.errors import UndertowError


def written(folder: Path, content: str | bytes, name: str = "own.tsv") -> str:
    """The path of a file with this content, which is packed where the name says so."""
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(folder / name)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a table of the package or of the reference data, by their columns."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def refusal(read: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The one line that refuses these arguments."""
    with pytest.raises(UndertowError) as caught:
        read(*arguments, **options)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def assert_refused(names: tuple[object, ...], read: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """The line names all of this: the file, and the key, the line or the value that is wrong."""
    message = refusal(read, *arguments, **options)
    for name in names:
        assert str(name) in message, message
