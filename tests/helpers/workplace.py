"""A folder for several commands in a row, each run in this process; and runs that all workers share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import make_quick
from helpers import command_line
from helpers.shared_folders import made_once


class Workplace:
    """A folder with a cache of its own; runs take few resamples, and write figures and a page only if asked for (`page`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def attempt(self, *arguments: str, page: bool = False) -> command_line.Done:
        """Run a command that may be refused."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNDERTOW_CACHE", str(self.folder / "cache"))
            make_quick(patch, page=page)
            return command_line.in_process(self.folder, *arguments)

    def __call__(self, *arguments: str, page: bool = False) -> command_line.Done:
        """Run a command that must go well and say nothing on standard error."""
        done = self.attempt(*arguments, page=page)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done

    def json(self, *arguments: str, page: bool = False) -> Any:
        """What a command prints with --json: one JSON text on one line."""
        said = self(*arguments, "--json", page=page).stdout
        assert said.count("\n") == 1
        return json.loads(said)

    def results(self, run: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads((self.folder / run / "results.json").read_text("utf-8"))["results"]
        return rows


def shared(base: Path, name: str, make: Callable[[Workplace], object]) -> Workplace:
    """A workplace that is filled once for all workers; a test writes only to names of its own in it."""
    return Workplace(made_once(base, f"workplace-{name}", lambda folder: make(Workplace(folder))))
