"""Start-up: how long a command takes that has nothing to compute, as a whole process.

Knows the command line; knows nothing about models or numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from telling import Promise, grid, middle, spread
from undertow.places import cache_folder
from undertow.types import UndertowError
from work import Plan, say

NAME = "startup"
HELP_RUNS, REPEATS = 10, 5
PROMISED_HELP_S, PROMISED_REPEAT_S = 0.3, 2.0
PROBE, LIMIT = "spurious-correlation", 300
SHARED = "models"
"""What a run with an empty answer store takes from the user's cache."""


def measure(plan: Plan) -> dict[str, Any]:
    """The record.

    Raises:
        UndertowError: a command failed.
    """
    model = str(Path(plan.model).resolve()) if Path(plan.model).exists() else plan.model
    run = ["run", PROBE, "-m", model, "--limit", str(plan.sample or LIMIT)]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder()) as folder:
        here = _Place.of(Path(folder))
        say(f"{NAME}: undertow --help")
        helped = [here.seconds(["--help"]) for _ in range(HELP_RUNS + 1)][1:]  # the first reads files from the disk
        say(f"{NAME}: undertow {' '.join(run)}")
        first = here.seconds(run)
        say(f"{NAME}: the same again")
        again = [here.seconds(run) for _ in range(REPEATS)]
    return {
        "command": f"undertow {' '.join([*run[:3], plan.model, *run[4:]])}",
        "help_s": helped,
        "first_s": first,
        "repeat_s": again,
        "promised_help_s": PROMISED_HELP_S,
        "promised_repeat_s": PROMISED_REPEAT_S,
    }


class _Place:
    """A folder to run in, with an answer store of its own and the user's models."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    @classmethod
    def of(cls, folder: Path) -> _Place:
        """Make it."""
        cache = folder / "cache"
        cache.mkdir()
        (cache / SHARED).symlink_to(cache_folder() / SHARED)
        return cls(folder, {**os.environ, "UNDERTOW_CACHE": str(cache)})

    def seconds(self, arguments: Sequence[str]) -> float:
        """How long a command takes, from its start to its end.

        Raises:
            UndertowError: it failed.
        """
        command = [str(Path(sys.executable).with_name("undertow")), *arguments]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise UndertowError(
                f"{command[0]}: cannot be started ({error}); install Undertow beside this Python"
            ) from error
        seconds = time.perf_counter() - started
        if done.returncode:
            raise UndertowError(f"undertow {' '.join(arguments)}: ended with {done.returncode}: {done.stderr.strip()}")
        return seconds


def promises(entry: dict[str, Any]) -> list[Promise]:
    """Both commands."""
    told = [
        ("start-up: `undertow --help` in less than", "help_s", "promised_help_s"),
        ("start-up: repeating a finished run in less than", "repeat_s", "promised_repeat_s"),
    ]
    return [
        Promise(
            f"{what} {entry[promised]:g} s", f"{middle(spread(entry[name]))} s", median(entry[name]) < entry[promised]
        )
        for what, name, promised in told
    ]


def section(entry: dict[str, Any], _: dict[str, Any]) -> str:
    """The part of the page."""
    heads = ["command", "processes", "seconds, median", "min to max"]
    rows = []
    named = [
        ("undertow --help", entry["help_s"]),
        (entry["command"], [entry["first_s"]]),
        ("the same again", entry["repeat_s"]),
    ]
    for name, seconds in named:
        of = spread(seconds)
        rows.append(
            [
                f"`{name}`" if name.startswith("undertow") else name,
                len(seconds),
                f"{of['median']:.2f}",
                f"{of['min']:.2f} to {of['max']:.2f}",
            ]
        )
    about = "Whole processes, from start to end, in a folder of their own with an empty answer store."
    return "\n\n".join([about, grid(heads, rows)])
