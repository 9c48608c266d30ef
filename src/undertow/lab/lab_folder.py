"""The files of a lab: written whole or not at all, checked when they are read, and locked by one command at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from undertow._files import read_file
from undertow._folders import lock_folder, whole_file
from undertow._schemas import first_problem
from undertow.errors import UndertowError

MAX_BYTES = 16 * 2**20
"""Maximum size of a plan or record."""


@contextmanager
def lab_lock(folder: Path) -> Iterator[None]:
    """One command at a time in this lab; raises `UndertowError` if another one is running."""
    with ExitStack() as held:
        try:
            held.enter_context(lock_folder(folder, timeout_s=0))
        except TimeoutError as error:
            raise UndertowError(f"{folder}: another command is running in this lab; wait until it ends") from error
        yield


def write_text(path: Path, text: str) -> None:
    """Replace a file whole or not at all; its folder is created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text)


def write_lab_json(path: Path, kind: Any, value: Any) -> None:
    """Write a value of a type, with null for a number that is missing."""
    write_text(path, TypeAdapter(kind).dump_json(value, indent=1).decode())


def read_lab_json(path: Path, kind: Any, fix: str) -> Any:
    """A value of a type (as `pydantic.TypeAdapter` takes it) from its file; `fix` says what fixes a corrupt one."""
    try:
        return TypeAdapter(kind).validate_json(read_file(path, MAX_BYTES, "a file of the lab"), strict=True)
    except ValidationError as error:
        raise UndertowError(f"{path}: is corrupt ({first_problem(error, is_json=True)}); {fix}") from error
