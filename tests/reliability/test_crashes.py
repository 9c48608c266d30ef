"""Killed at any moment (SIGKILL), the same command ends as if it had not been: no answer is lost, and nothing differs by a byte.

A command kills itself at an event that is counted: a statement of the store, or a file that is opened, made, moved or removed.
So every moment can be named, and comes on a slow machine as on a fast one. In `make soak` moments are drawn.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import Done, command, forks, run
from undertow._folders import cache_file
from undertow.data.documents.task_wordings import TASKS
from undertow.inference import runner
from undertow.runs.folder.storage import MANIFEST
from undertow.runs.folder.whole_folder import UNFINISHED

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("UNDERTOW_CRASH_SEED", "20261122"))
TEXTS = ["--n-documents", "8", "--wordings", "1", "-m", "toy"]
COMMANDS = {
    "spurious-correlation": ["--w", "date", "--limit", "90", "-m", "toy"],
    "task-specification": ["--limit", "40", "-m", "toy"],
    **dict.fromkeys(TASKS, TEXTS),
    "occupation-checklist": ["--n-pairs", "1", "--n-occupations", "2", "-m", "toy"],
}
"""Every audit, small."""
STORE, FILES = 0, 1
"""What is counted: statements of the store, and events of files."""
OF_FILES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")

Moment = tuple[int, float]
"""The kind of an event, and its place among those of its kind in a whole run: 0 is the first, 1 the last."""


def suicidal(words: Sequence[str], cache: str, seen: Any, kind: int, place: int) -> None:
    """The command line, which counts its events and kills itself at one of them, in a process of its own."""
    above = str(Path(words[words.index("--out") + 1]).parent)

    def happens(what: int) -> None:
        seen[what] += 1
        if (what, seen[what]) == (kind, place):
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in OF_FILES and str(given[0]).startswith(above):
            happens(FILES)

    connect = sqlite3.connect

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*given, **options)
        made.set_trace_callback(lambda statement: happens(STORE))
        return made

    sys.addaudithook(hook)
    runner.STORE_EVERY_S = 0.0  # a transaction for each batch, however fast this machine is
    sqlite3.connect = connected  # type: ignore[assignment]
    command(words, cache)


def stored_in(cache: Path) -> int:
    """Answers in a cache, read by a connection that cannot write; 0 where it is not made yet."""
    try:
        path = cache / cache_file().name
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as reader:
            return int(reader.execute("SELECT count(*) FROM answers").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


class KilledAudit:
    """An audit that is killed and taken up, in a folder and a cache of its own: `words` are the command, without its folder.

    A run that nobody killed had `n_events` of each kind, and came to the results `whole` with `n_whole` answers.
    """

    def __init__(self, words: Sequence[str], place: Path) -> None:
        self.words, self.place = list(words), place
        self.folder, self.cache = place / "killed" / "run", place / "cache"
        done, self.n_events = self.run(place / "whole" / "run", place / "whole cache")
        assert done.returncode == 0, done.stderr
        self.whole = (place / "whole" / "run" / "results.json").read_bytes()
        self.n_whole = json.loads(done.stdout)["counts"]["computed"]
        assert self.n_whole > 0
        self.n_stored = stored_in(place / "whole cache")  # sentences that decide their answer among them

    def run(self, folder: Path, cache: Path, kind: int = STORE, place: int = 0) -> tuple[Done, list[int]]:
        seen = forks.Array("i", 2, lock=False)
        line = ["run", *self.words, "--out", str(folder), "--json"]
        done = run(folder.parent, suicidal, line, str(cache), seen, kind, place)
        return done, list(seen)

    def kill(self, moment: Moment) -> None:
        kept, finished = stored_in(self.cache), (self.folder / MANIFEST).is_file()
        kind, share = moment
        done, _ = self.run(self.folder, self.cache, kind, 1 + round(share * (self.n_events[kind] - 1)))
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        assert (n := stored_in(self.cache)) >= kept, f"answers were lost: {n} of {kept}"
        assert not finished or (self.folder / MANIFEST).is_file() or (self.folder / UNFINISHED).is_file()
        assert done.returncode, "the command ended before the event came"

    def resume(self) -> None:
        kept, finished = stored_in(self.cache), (self.folder / MANIFEST).is_file()
        done, _ = self.run(self.folder, self.cache)
        assert (done.returncode, done.stderr) == (0, "")
        assert (self.folder / "results.json").read_bytes() == self.whole
        if not finished:
            assert json.loads(done.stdout)["counts"]["computed"] == max(self.n_whole - kept, 0)
        assert stored_in(self.cache) == self.n_stored
        assert names(self.folder.parent) == {"run"}
        assert names(self.folder) == names(self.place / "whole" / "run")
        # Whoever only reads leaves the log and its index where they are.
        assert names(self.cache) <= {f"{cache_file().name}{ending}" for ending in ("", "-wal", "-shm")}


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


@pytest.mark.parametrize(
    ("audit", "moments"),
    [
        ("spurious-correlation", [(STORE, 0.9), (FILES, 0.6)]),
        *(pytest.param(audit, [], marks=[pytest.mark.soak, pytest.mark.timeout(1800)]) for audit in COMMANDS),
    ],
)
def test_an_audit_that_is_killed_goes_on_where_it_was(
    audit: str, moments: list[Moment], tmp_path: Path, measured: Callable[[str], None]
) -> None:
    killed, draw = KilledAudit([audit, *COMMANDS[audit]], tmp_path), random.Random(f"{SEED} {audit}")
    moments = moments or [(STORE, draw.uniform(0, 0.9)), *((FILES, draw.random()) for _ in range(5))]
    for moment in moments:
        killed.kill(moment)
    killed.resume()
    measured(f"{len(moments)} kills of {audit}")
