from __future__ import annotations

import fcntl
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pandas as pd
import pytest

from helpers.gate_runs import MANIFEST
from helpers.processes import LIMIT_S, Done, Job, command, forks, run_together
from helpers.tiny_wheel import MODEL, build_wheel, pulls
from undertow import _folders
from undertow._folders import draft_folder, lock_folder, remove_stale_drafts
from undertow.errors import UndertowError
from undertow.inference import answer_cache as store_module
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.base import ModelHandle
from undertow.runs.folder.storage import Record, read_record, write_record
from undertow.types import EXACT, GENERATION, Answer, GenerateQuery, ModelIdentity, Option, Query, Result

pytestmark = pytest.mark.slow


def complaints(done: Done) -> list[str]:
    """Lines on standard error, without those that say that it waits or how far it is: on a busy machine they may come."""
    return [
        line for line in done.stderr.splitlines() if not re.search(r": waiting for another process| s so far", line)
    ]


def all_went_well(ended: Sequence[Done]) -> None:
    assert [(one.returncode, complaints(one)) for one in ended] == [(0, [])] * len(ended)


def files_of(folder: Path) -> dict[str, bytes]:
    """What a run folder says, without what tells when and how long."""
    figures = [f"figures/{one.name}" for one in sorted((folder / "figures").glob("*.svg"))]
    return {name: (folder / name).read_bytes() for name in ("results.json", "observations.parquet", *figures)}


TOY = ["run", "spurious-correlation", "--w", "date", "--limit", "60"]
AUDITS = {
    "a": [*TOY, "-m", "toy:pause=0.02"],
    "c": ["run", "task-specification", "--limit", "24", "-m", "toy:pause=0.02"],
}


def test_three_audits_in_one_cache_and_one_folder_end_as_they_do_alone(tmp_path: Path) -> None:
    """Two of them the very same, another audit beside them; all at once."""
    jobs: list[Job] = [
        (command, ([*words, "--out", name], str(tmp_path / f"cache of {name}"))) for name, words in AUDITS.items()
    ]
    all_went_well(run_together(tmp_path / "alone", *jobs))
    cache, ready = tmp_path / "cache", forks.Barrier(3)
    outs = {"a": "a", "again": "a", "c": "c"}
    jobs = [(command, ([*AUDITS[of], "--out", of, "--json"], str(cache), ready)) for of in outs.values()]
    ended = run_together(tmp_path / "together", *jobs)
    all_went_well(ended)
    for name in AUDITS:
        assert files_of(tmp_path / "together" / name) == files_of(tmp_path / "alone" / name), name
    assert sorted(one.name for one in (tmp_path / "together").iterdir()) == sorted(AUDITS)
    computed = {out: json.loads(one.stdout)["counts"]["computed"] for out, one in zip(outs, ended, strict=True)}
    with closing(sqlite3.connect(cache / "answers.sqlite")) as reader:
        # The two that ask the same may both have asked some of it; nothing is there twice, and nothing is missing.
        assert reader.execute("SELECT count(*) FROM answers").fetchone()[0] == 60 + 8 + 24  # 8 sentences that decide
    assert computed["c"] == 24
    # One that starts late, on a busy machine, finds what the other has asked.
    assert all(0 <= computed[name] <= 60 for name in ("a", "again"))
    assert computed["a"] + computed["again"] >= 60


def record_of(key: str) -> Record:
    rows = pd.DataFrame({"item": [f"{key} {number}" for number in range(50)]})
    named = {"model": key, "run_key": key, "request_key": key}
    return Record({**MANIFEST, **named}, rows, [Result(key, {"model": key}, 1.0)])


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


@pytest.mark.parametrize("n", [1, pytest.param(15, marks=pytest.mark.soak)])
@pytest.mark.parametrize("keys", ["different", "same"])
def test_folders_are_moved_into_place_one_by_one(keys: str, n: int, tmp_path: Path) -> None:
    names = ["one"] * 3 if keys == "same" else ["one", "two", "three"]
    for number in range(n):
        place = tmp_path / str(number)
        ready = forks.Barrier(3)
        ended = run_together(place, *[(write_at_once, (key, str(place / "run"), ready)) for key in names])
        all_went_well(ended)
        there = whole(place / "run")
        refused = [one.stdout for one in ended if one.stdout]
        assert len(refused) == (0 if keys == "same" else 2)
        assert all("another run" in said for said in refused)
        assert there in names
        assert [one.name for one in place.iterdir()] == ["run"]


def said(model: str, number: int) -> Answer:
    return Answer((-float(number) - 1,), 0.5, text=f"{model} {number}")


def found(model: str) -> ModelHandle:
    identity = ModelIdentity(model, "tests", "the tests", model, "float32", "prompt")

    class Made:
        notes = ()

        def __init__(self) -> None:
            self.identity = identity

        def packs(self, queries: Sequence[Query]) -> list[list[int]]:
            return [list(range(start, min(start + 7, len(queries)))) for start in range(0, len(queries), 7)]

        def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
            for place, query in enumerate(queries):
                assert isinstance(query, GenerateQuery)
                yield {place: said(model, int(query.prompt.partition(":")[0]))}

    return ModelHandle(identity, Made, {GENERATION: (EXACT,)})


def numbers_of(seed: int) -> list[int]:
    return random.Random(seed).sample(range(300), 150)


def asks(model: str, seed: int, path: str, ready: Barrier) -> None:
    numbers = numbers_of(seed)
    prompts = [GenerateQuery(f"{number}: who?", (Option("female", ("she",)),)) for number in numbers]
    ready.wait(LIMIT_S)
    with AnswerCache(Path(path)) as store:
        asked = run_queries(found(model), prompts, store, EXACT, lambda done, total: None)
    assert list(asked.scores.answers) == [said(model, number) for number in numbers]


@pytest.mark.parametrize("n", [1, pytest.param(8, marks=pytest.mark.soak)])
@pytest.mark.parametrize("begins", ["with nothing", "with a corrupt store"])
def test_answers_of_four_processes_are_neither_lost_nor_crossed(begins: str, n: int, tmp_path: Path) -> None:
    """Four that make the store, or set a corrupt one aside, at the same moment: it is done once."""
    for turn in range(n):
        place = tmp_path / str(turn)
        place.mkdir()
        path, ready = place / "answers.sqlite", forks.Barrier(4)
        if begins != "with nothing":
            path.write_bytes(b"no database " * 1000)
        ended = run_together(place, *[(asks, (f"m{seed % 2}", seed, str(path), ready)) for seed in range(4)])
        assert [one.returncode for one in ended] == [0] * 4, [one.stderr for one in ended]
        said = [line for one in ended for line in complaints(one)]
        assert len(said) == (0 if begins == "with nothing" else 1), said
        assert all("answers.sqlite.corrupt" in one for one in said)
        asked = {(f"m{seed % 2}", number) for seed in range(4) for number in numbers_of(seed)}
        with AnswerCache(path) as store:
            assert sum(shelf.n_answers for shelf in store.summary()) == len(asked)
        assert len(list(place.iterdir())) == (1 if begins == "with nothing" else 2)


@contextmanager
def held_store(path: Path) -> Iterator[Callable[[], object]]:
    """By another connection; gives what lets it go."""
    AnswerCache(path).close()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield lambda: holder.in_transaction and holder.execute("COMMIT")


@contextmanager
def held_folder(folder: Path) -> Iterator[Callable[[], object]]:
    """By another open file, as another process has it; gives what lets it go."""
    with ExitStack() as held:
        opened = os.open(folder, os.O_RDONLY)
        held.callback(os.close, opened)
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield held.close


CARD = ModelIdentity("m", "tests", "the tests", "1", "float32", "prompt")


def put(folder: Path) -> None:
    with AnswerCache(folder / "answers.sqlite") as store:
        store.put(CARD, EXACT, {"q": said("m", 1)})
        assert store.get(CARD.key(EXACT), ["q"]) == {"q": said("m", 1)}


def write(folder: Path) -> None:
    write_record(record_of("key"), folder / "run", lambda draft: None)


def lock(folder: Path) -> None:
    with lock_folder(folder):
        pass


Held = Callable[[Path], AbstractContextManager[Callable[[], object]]]
WAITS: Mapping[str, tuple[Held, Callable[[Path], None], type[Exception]]] = {
    "the store": (lambda folder: held_store(folder / "answers.sqlite"), put, UndertowError),
    "a run's folder": (held_folder, write, UndertowError),
    "a model's folder": (held_folder, lock, OSError),
}


@pytest.mark.parametrize("what", WAITS)
def test_a_long_wait_is_told_once_and_then_goes_on(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held, wants, _ = WAITS[what]
    with held(tmp_path) as stop_worker:
        notify = _folders.notify

        def notify_and_stop(sentence: str) -> None:
            notify(sentence)
            stop_worker()

        for module in (store_module, _folders):
            monkeypatch.setattr(module, "WAIT_NOTICE_S", 0.0)
            monkeypatch.setattr(module, "notify", notify_and_stop)
        monkeypatch.setattr(store_module, "LOCK_RETRY_S", 0.05)
        wants(tmp_path)
    heard = capsys.readouterr().err
    assert heard.count("\n") == 1
    assert str(tmp_path) in heard
    assert "waiting for another process" in heard


@pytest.mark.parametrize("what", WAITS)
def test_what_is_never_free_is_a_sentence(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, wants, error = WAITS[what]
    for module in (store_module, _folders):
        monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(store_module, "LOCK_RETRY_S", 0.05)
    with held(tmp_path), pytest.raises(error, match="another process has held") as refused:
        wants(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_drafts_of_living_processes_are_left_alone(tmp_path: Path) -> None:
    with draft_folder(tmp_path, "pull-") as draft:
        remove_stale_drafts(tmp_path, "pull-")
        assert draft.is_dir()
        copy = draft.with_name(f"pull-of-a-killed-one{_folders.LOCKED_SUFFIX}")
        copy.mkdir()
        remove_stale_drafts(tmp_path, "pull-")
        assert list(tmp_path.iterdir()) == [draft]
    assert list(tmp_path.iterdir()) == []


def test_three_pull_the_same_model_at_once(tmp_path: Path) -> None:
    hashes, cache, ready = build_wheel(tmp_path / "wheels"), tmp_path / "cache", forks.Barrier(3)
    forsaken = cache / f"pull-of-a-killed-one{_folders.LOCKED_SUFFIX}"
    forsaken.mkdir(parents=True)
    ended = run_together(tmp_path / "place", *[(pulls, (str(tmp_path / "wheels"), hashes, str(cache), ready))] * 3)
    all_went_well(ended)
    model = cache / "models" / "tiny" / "model.gguf"
    assert all(str(model) in one.stdout for one in ended)
    assert model.read_bytes() == MODEL
    assert {str(one.relative_to(cache)) for one in cache.rglob("*") if one.is_file()} == {"models/tiny/model.gguf"}
    assert sorted(one.name for one in cache.iterdir()) == ["models"]
