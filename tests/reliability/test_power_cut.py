"""The power goes while answers are written: what was committed is there, the rest is asked again, and nothing differs.

The files are copied as the machine would leave them. A disk keeps what was synced; of what was written since, any sectors in any
order. SQLite syncs the log at each commit, the log's new head before anything behind it, and the database before the log begins again.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from helpers.shared_folders import contents
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import ModelHandle
from undertow.types import EXACT, GENERATION, Answer, GenerateQuery, ModelIdentity, Option, Query, query_digest

SECTOR = 512
FRAME = 24 + 4096
HEAD = 32
"""Bytes of a log's frame, with its page, and of the log's head."""
CARD = ModelIdentity("made", "tests", "the tests", "1", "float32", "prompt")
SIZES = (3, 40, 1, 17, 90, 8, 60, 2, 33, 75, 5, 28)
"""Answers in a batch."""
PROMPTS = [GenerateQuery(f"{number}: who?", (Option("female", ("she",)),)) for number in range(sum(SIZES))]
DIGESTS = [query_digest(prompt) for prompt in PROMPTS]
STARTS = [sum(SIZES[:batch]) for batch in range(len(SIZES) + 1)]


def said(number: int) -> Answer:
    return Answer((-1.0 - number / 7,), 0.25, text="she " * (number % 50))


class Made:
    card, notes = CARD, ()

    def packs(self, queries: Sequence[Query]) -> list[list[int]]:
        return [list(range(start, end)) for start, end in pairwise(STARTS)]

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
        numbers = [int(query.prompt.partition(":")[0]) for query in queries if isinstance(query, GenerateQuery)]
        yield {place: said(number) for place, number in enumerate(numbers)}


FOUND = ModelHandle(CARD, Made, {GENERATION: (EXACT,)})
WHOLE = tuple(map(said, range(len(PROMPTS))))


@pytest.fixture(scope="module")
def quick() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of syncs to a disk show nothing more."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    yield place
    shutil.rmtree(place)


Files = Mapping[str, bytes]
"""What the store's files hold, by name."""
DATABASE, LOG, INDEX = (f"answers.sqlite{ending}" for ending in ("", "-wal", "-shm"))


def files_of(database: bytes | None, log: bytes | None, index: bytes | None) -> Files:
    named = {DATABASE: database, LOG: log, INDEX: index}
    return {name: content for name, content in named.items() if content is not None}


def placed(files: Files, folder: Path) -> Path:
    """The store in a folder that holds these files and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / DATABASE


class Moment(NamedTuple):
    """What the power cut may leave: in words, on the disk, and how many batches may be there."""

    what: str
    files: Files
    batches: tuple[int, ...]


@contextmanager
def small_logs(n_pages: int) -> Iterator[list[sqlite3.Connection]]:
    """Databases take over what is in the log every few pages, so that there is much to interrupt; gives those that are open."""
    connect = sqlite3.connect
    made: list[sqlite3.Connection] = []

    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*given, **options))
        made[-1].execute(f"PRAGMA wal_autocheckpoint={n_pages}")
        return made[-1]

    with mock.patch("sqlite3.connect", connected):
        yield made


States = Sequence[Files]
"""The files of a run's store before and after each commit: [0] before the first."""


@pytest.fixture(scope="module")
def answer_words(quick: Path) -> States:
    path = quick / "watched" / "answers.sqlite"
    states: list[Files] = []
    with small_logs(12), AnswerCache(path) as store:
        run_queries(FOUND, PROMPTS, store, EXACT, lambda done, total: states.append(contents(path.parent)))
    states.append(contents(path.parent))
    assert len(states) == len(SIZES) + 2
    assert LOG not in states[-1]
    return states


def mixed(before: bytes, after: bytes, draw: random.Random, whole: int = 0) -> bytes:
    """Any sectors of what was written over the old; the first bytes for sure."""
    content = bytearray(before.ljust(len(after), b"\0"))
    content[:whole] = after[:whole]
    share = draw.random()
    for start in range(0, len(after), SECTOR):
        if draw.random() < share:
            content[max(start, whole) : start + SECTOR] = after[max(start, whole) : start + SECTOR]
    # What the file has grown by may not be there either.
    return bytes(content[: draw.choice((len(content), max(len(before), whole, draw.randint(0, len(content)))))])


def moments(answer_words: States, draw: random.Random, n: int) -> Iterator[Moment]:
    """What may be on the disk when the power goes, somewhere in the run."""
    for _ in range(n):
        batch = draw.randrange(len(SIZES) + 1)
        before, after = answer_words[batch], answer_words[batch + 1]
        index = draw.choice((None, before.get(INDEX), after.get(INDEX), draw.randbytes(32768)))
        if before.get(DATABASE) != after.get(DATABASE) and draw.random() < 0.4:
            # The log is whole and synced; the database has taken over any part of it.
            log = after.get(LOG) or before.get(LOG)
            taken = mixed(before.get(DATABASE, b""), after.get(DATABASE, b""), draw)
            done = min(batch + 1, len(SIZES))
            yield Moment(f"taking over batch {batch}", files_of(taken, log, index), (done,))
        elif batch == len(SIZES):
            yield Moment(
                "closing", files_of(after.get(DATABASE), draw.choice((before.get(LOG), None)), index), (batch,)
            )
        else:
            yield _while_logging(batch, before, after, index, draw)


def _while_logging(batch: int, before: Files, after: Files, index: bytes | None, draw: random.Random) -> Moment:
    old, new = before.get(LOG, b""), after.get(LOG, b"")
    grows = new.startswith(old) and len(old) > 0
    kind = draw.choice(("sectors", "bytes", "frames"))
    first = len(old) if grows else HEAD
    if kind == "sectors":
        log = mixed(old, new, draw, whole=first)
    else:
        frames = (len(new) - HEAD) // FRAME
        at = HEAD + FRAME * draw.randint(0, frames) if kind == "frames" else draw.randint(0, len(new))
        log = new[: max(at, len(old) if grows else 0)]
        log += old[len(log) :]
    return Moment(f"logging batch {batch} by {kind}", files_of(before.get(DATABASE), log, index), (batch, batch + 1))


def held(store: AnswerCache) -> tuple[int, ...]:
    found = store.get(CARD.key(EXACT), DIGESTS)
    for digest, answer in found.items():
        assert answer == WHOLE[DIGESTS.index(digest)]
    batches = []
    for batch, (start, end) in enumerate(pairwise(STARTS)):
        there = sum(digest in found for digest in DIGESTS[start:end])
        assert there in (0, end - start), f"{there} of the {end - start} answers of batch {batch}"
        batches += [batch] if there else []
    return tuple(batches)


def check(moment: Moment, folder: Path) -> int:
    """Open what is left and run the same again; returns how many batches were there."""
    path = placed(moment.files, folder)
    try:
        with AnswerCache(path) as store:
            there = held(store)
            assert there in [tuple(range(n)) for n in moment.batches], f"{there}, not one of {moment.batches}"
            asked = run_queries(FOUND, PROMPTS, store, EXACT, lambda done, total: None)
        assert asked.n_computed == len(PROMPTS) - STARTS[len(there)]
        assert asked.scores.answers == WHOLE
        with AnswerCache(path) as store:
            assert len(held(store)) == len(SIZES)
        assert sorted(one.name for one in folder.iterdir()) == ["answers.sqlite"]
    except Exception as error:
        error.add_note(f"while {moment.what}")
        raise
    return len(there)


@pytest.mark.parametrize("n", [60, pytest.param(2000, marks=pytest.mark.soak)])
def test_what_was_committed_survives(
    n: int, answer_words: States, quick: Path, capsys: pytest.CaptureFixture[str], measured: Callable[[str], None]
) -> None:
    draw = random.Random(20261122)
    counts = [check(moment, quick / "copy") for moment in moments(answer_words, draw, n)]
    assert set(counts) == set(range(len(SIZES) + 1))
    # All of this SQLite sets right by itself.
    assert capsys.readouterr().err == ""
    measured(f"{len(counts):,} copies after a power cut, with {min(counts)} to {max(counts)} batches in them")


def test_damage_that_shows_as_answers_are_written_is_moved_aside_too(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = placed({}, quick / "later")
    with AnswerCache(path) as store:
        store.put(CARD, EXACT, dict(zip(DIGESTS[: STARTS[6]], WHOLE, strict=False)))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    with small_logs(1000) as opened, AnswerCache(path) as store:
        assert len(store.get(CARD.key(EXACT), DIGESTS)) == STARTS[6]
        path.write_bytes(content)
        opened[-1].execute("PRAGMA cache_size=0")
        asked = run_queries(FOUND, PROMPTS, store, EXACT, lambda done, total: None)
    assert asked.scores.answers == WHOLE
    assert "answers.sqlite.corrupt" in capsys.readouterr().err
    # A second corrupt store does not replace the first.
    path.write_bytes(b"no database " * 500)
    with AnswerCache(path) as store:
        assert run_queries(FOUND, PROMPTS, store, EXACT, lambda done, total: None).n_computed == len(PROMPTS)
    assert sorted(contents(path.parent)) == [f"answers.sqlite{ending}" for ending in ("", ".corrupt", ".corrupt-2")]


def test_a_store_that_is_removed_under_a_run_is_begun_anew(quick: Path) -> None:
    path = placed({}, quick / "removed")
    with AnswerCache(path) as store:
        store.put(CARD, EXACT, {DIGESTS[0]: WHOLE[0]})
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
        store.put(CARD, EXACT, {DIGESTS[1]: WHOLE[1]})
    with AnswerCache(path) as store:
        assert store.get(CARD.key(EXACT), DIGESTS) == {DIGESTS[1]: WHOLE[1]}


def test_every_commit_is_synced(quick: Path) -> None:
    """What all of the above rests on: 2 is FULL, which syncs the log before a commit is done. Other tests do not wait for the disk."""
    code = (
        "import sys; from pathlib import Path; from undertow.inference.answer_cache import AnswerCache\n"
        "with AnswerCache(Path(sys.argv[1])) as cache:\n"
        "    print(*(cache._rows(f'PRAGMA {name}')[0][0] for name in ('synchronous', 'journal_mode')))"
    )
    command = [sys.executable, "-c", code, str(quick / "synced.sqlite")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["2", "wal"]
    assert sqlite3.sqlite_version_info >= (3, 35)
