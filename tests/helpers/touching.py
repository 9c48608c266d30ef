"""Work for other processes, in a module that is quickly imported."""

from __future__ import annotations

from pathlib import Path

from undertow.errors import UndertowError


def touch(work: str) -> None:
    if work == "recurrent":
        raise UndertowError("'recurrent' is no file to be made")
    Path(work).touch()
