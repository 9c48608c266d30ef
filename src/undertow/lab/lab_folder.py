"""The files of a lab: written at once or not at all, checked as they are read, and locked by one command at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from undertow._files import read_file
from undertow._folders import lock_folder
from undertow._schemas import first_problem
from undertow.errors import UndertowError

MAX_BYTES = 16 * 2**20
"""A plan or a record that is larger than this was not written by the lab."""


@contextmanager
def lab_lock(folder: Path) -> Iterator[None]:
    """One command at a time in this lab.

    Raises:
        UndertowError: another one is running.
    """
    with ExitStack() as held:
        try:
            held.enter_context(lock_folder(folder, timeout_s=0))
        except TimeoutError as error:
            raise UndertowError(f"{folder}: another command is running in this lab; wait until it ends") from error
        yield


def write_text(path: Path, text: str) -> None:
    """Replace a file at once or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def write_lab_json(path: Path, kind: Any, value: Any) -> None:
    """Write a value of a type, with null for a number that is missing."""
    write_text(path, TypeAdapter(kind).dump_json(value, indent=1).decode())


def read_lab_json(path: Path, kind: Any, fix: str) -> Any:
    """A value of a type (as `pydantic.TypeAdapter` takes it) from its file; `fix` says what fixes a corrupt one.

    Raises:
        UndertowError: the file cannot be read or holds something else; names the key.
    """
    try:
        return TypeAdapter(kind).validate_json(read_file(path, MAX_BYTES, "a file of the lab"), strict=True)
    except ValidationError as error:
        raise UndertowError(f"{path}: is corrupt ({first_problem(error, is_json=True)}); {fix}") from error
