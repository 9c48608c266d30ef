"""What sharing the work out rests on, without Ray: portions that stand alone, a cluster's division, choices that are refused."""

from __future__ import annotations

import random
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.file_refusal import assert_refused
from undertow import data
from undertow.errors import UndertowError
from undertow.inference import ray_engine
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.ray_engine import (
    MAX_LOSSES,
    MAX_UNIT_PROMPTS,
    Allocation,
    Cluster,
    TaskStarted,
    Worker,
    check_address,
    shares,
)
from undertow.inference.runner import AnswerBatch, ModelLoaded, QueryRunner, WorkUnit, local_engine, run_queries
from undertow.models.base import EXACT, BatchLimits, ModelHandle, ModelRequest, TokenBatch
from undertow.models.families import toy
from undertow.types import GENERATION, Answer, Floats, GenerateQuery, ModelIdentity, Option, Query, query_digest

PROBE = "spurious-correlation"
SHE = (Option("female", ("she",)),)


def toy_found() -> ModelHandle:
    found = toy.resolve(ModelRequest("toy"))
    assert found is not None
    return found


def by_digest(queries: Sequence[Query]) -> dict[str, Query]:
    return {query_digest(query): query for query in queries}


def sentences(n_items: int = 600) -> dict[str, Query]:
    return by_digest([item.query for item in about_dates()[:n_items]])


@cache
def about_dates() -> Sequence[Any]:
    return data.load("mgc").items([data.load_covariate("date")])


# Portions.


def test_a_portion_has_the_same_answers_wherever_it_is_asked() -> None:
    distinct = sentences()
    planner, other = (QueryRunner(toy_found().open(), distinct, EXACT) for _ in range(2))
    portions = [portion for portion in planner.work_units(frozenset()) if isinstance(portion, WorkUnit)]
    assert len(portions) > 4
    assert [portion.n_tokens for portion in portions] == sorted((one.n_tokens for one in portions), reverse=True)
    random.Random(0).shuffle(portions)
    shared: dict[str, Answer] = {}
    for number, portion in enumerate(portions):
        for said in (planner, other)[number % 2].answers(portion):
            shared |= said.answers
            assert said.n_tokens == portion.n_tokens
    assert shared == alone(distinct)


def test_the_plan_is_that_of_all_queries_whatever_is_stored() -> None:
    distinct = sentences()
    whole = [
        one
        for one in QueryRunner(toy_found().open(), distinct, EXACT).work_units(frozenset())
        if isinstance(one, WorkUnit)
    ]
    kept = frozenset([*whole[1].packs[0], *whole[2].packs[0][:3]])
    rest = list(QueryRunner(toy_found().open(), distinct, EXACT).work_units(kept))
    assert rest == [whole[0], replace(whole[2], packs=(whole[2].packs[0][3:],)), *whole[3:]]


def test_plain_batches_are_cut_as_the_planner_says_whatever_the_readers_budget_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: list[tuple[int, ...]] = []

    def noted(model: toy.ToyModel, batch: TokenBatch) -> Floats:
        shapes.append(batch.tokens.shape)
        return read(model, batch)

    read = toy.ToyModel.read_batch
    monkeypatch.setattr(toy.ToyModel, "read_batch", noted)
    distinct, seen = sentences(300), []
    for budget in (200, 400, 4000):
        reader = QueryRunner(plain_toy(budget), distinct, EXACT)
        for portion in QueryRunner(plain_toy(400), distinct, EXACT).work_units(frozenset()):
            assert isinstance(portion, WorkUnit)
            assert portion.budget_tokens == 400
            list(reader.answers(portion))
        seen.append(tuple(shapes))
        shapes.clear()
    assert len(seen[0]) > 4
    assert len(set(seen)) == 1


def plain_toy(budget_tokens: int) -> Any:
    """One that must be read without trees."""
    model: Any = toy_found().open()
    model.limits = BatchLimits(budget_tokens, 0)
    return model


def test_prompts_that_matter_to_no_other_are_shared_out_evenly() -> None:
    distinct = by_digest([GenerateQuery(f"{number}: who?", SHE) for number in range(2 * MAX_UNIT_PROMPTS + 5)])
    asker = QueryRunner(toy_found().open(), distinct, EXACT)
    portions = [one for one in asker.work_units(frozenset(), MAX_UNIT_PROMPTS) if isinstance(one, WorkUnit)]
    assert [one.n_queries for one in portions] == [MAX_UNIT_PROMPTS, MAX_UNIT_PROMPTS, 5]
    (whole,) = asker.work_units(frozenset())
    assert isinstance(whole, WorkUnit)
    assert whole.packs == (tuple(distinct),)


class Remembering:
    """Answers a prompt by its number and by how many it was asked since it was last told to forget."""

    identity = ModelIdentity("remembering", "tests", "the tests", "1", "float32", "prompt")
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.n_asked = 0

    def sections(self, queries: Sequence[Query]) -> Iterator[list[list[int]]]:
        places = list(range(len(queries)))
        packs = [places[start : start + 2] for start in range(0, len(places), 2)]
        yield from (packs[start : start + 3] for start in range(0, len(packs), 3))

    def reset_cache(self) -> None:
        self.n_asked = 0

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
        for place, query in enumerate(queries):
            assert isinstance(query, GenerateQuery)
            self.n_asked += 1
            yield {place: Answer((-float(query.prompt.partition(":")[0]) - self.n_asked / 100,), 0.5)}


def test_what_a_pack_leaves_to_the_next_is_the_same_in_every_order_and_after_a_stop(tmp_path: Path) -> None:
    queries = [GenerateQuery(f"{number}: who?", SHE) for number in range(20)]
    found = ModelHandle(Remembering.identity, Remembering, {GENERATION: (EXACT,)})

    def stop(done: int, total: int) -> None:
        if done == 9:
            raise KeyboardInterrupt

    def asked(place: str, progress: Any = lambda done, total: None) -> tuple[Answer, ...]:
        with AnswerCache(tmp_path / place) as store:
            return run_queries(found, queries, store, EXACT, progress).scores.answers

    whole = asked("whole")
    assert len({round(answer.logprobs_nats[0] % 1, 2) for answer in whole}) == 6
    with pytest.raises(KeyboardInterrupt):
        asked("cut", stop)
    assert asked("cut") == whole
    distinct = by_digest(queries)
    portions = list(QueryRunner(Remembering(), distinct, EXACT).work_units(frozenset()))
    assert len(portions) == 4
    asker, answers = QueryRunner(Remembering(), distinct, EXACT), dict[str, Answer]()
    for portion in reversed(portions):
        assert isinstance(portion, WorkUnit)
        for said in asker.answers(portion):
            answers |= said.answers
    assert tuple(answers[digest] for digest in distinct) == whole


def test_an_engine_of_ones_own_is_used_and_only_asked_for_what_is_missing(tmp_path: Path) -> None:
    queries = list(sentences(30).values())
    missing: list[int] = []

    def engine(
        found: ModelHandle, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
    ) -> Iterator[ModelLoaded | AnswerBatch]:
        missing.append(len(distinct) - len(stored))
        yield ModelLoaded({"parameters": 5.0})
        for digest in reversed(distinct):
            yield AnswerBatch({digest: Answer((-1.0, -2.0, -3.0), 0.1)}, n_tokens=2, notes=("elsewhere",))

    with AnswerCache(tmp_path / "s") as store:
        run_queries(toy_found(), queries[:10], store, EXACT, lambda done, total: None)
        asked = run_queries(toy_found(), queries, store, EXACT, lambda done, total: None, engine=engine)
    assert missing == [20]
    assert (asked.n_computed, asked.n_tokens, asked.notes) == (20, 60, ("elsewhere",))
    assert dict(asked.facts) == {"parameters": 5.0}


# A worker, in this process.


def test_a_worker_says_where_it_is_before_it_opens_the_model_and_refuses_another(tmp_path: Path) -> None:
    worker = Worker(str(tmp_path / "not there"), "")
    key = toy_found().identity.key(EXACT)
    with pytest.raises(RuntimeError, match="must be called before plan and answer"):
        list(worker.plan(frozenset()))
    placed, opened = worker.open(toy_found, key, dict, {})
    assert isinstance(placed, ray_engine.WorkerStarted)
    assert isinstance(opened, ModelLoaded)
    _, refused = worker.open(toy_found, "0" * 64, dict, {})
    assert isinstance(refused, ray_engine.WorkerError)
    assert refused.sentence.startswith("toy: the model on ")
    list(worker.set_queries(sentences(60), EXACT))
    started, portion = worker.plan(frozenset())
    assert isinstance(started, TaskStarted)
    assert isinstance(portion, WorkUnit)
    _, arrived = worker.answer(portion)
    assert isinstance(arrived, AnswerBatch)
    assert len(arrived.answers) == 60


def test_a_worker_with_other_versions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_engine.THREADS, "1")
    worker = Worker(str(tmp_path / "not there"), "1")
    there = {"undertow": "0.1.0 (files 111111111111)", "torch": "2.9.0"}
    _, said = worker.open(toy_found, toy_found().identity.key(EXACT), lambda: there, there)
    assert isinstance(said, ModelLoaded)
    for name, version in (("torch", "2.8.0"), ("undertow", "0.1.0 (files 222222222222)"), ("transformers", "5.0")):
        _, said = worker.open(toy_found, toy_found().identity.key(EXACT), lambda: there, there | {name: version})
        assert isinstance(said, ray_engine.WorkerError)
        assert name in said.sentence


# A crew, in this process: Ray as it looks from the driver, with actors that die when they are told to.


class RayError(Exception):
    """Of an actor that is dead."""


class RayTaskError(RayError):
    """Of code that failed."""


@dataclass(eq=False)
class Actor:
    """A worker, and when it dies: by method, after how many things it says of it; 0: as it is told."""

    worker: Worker
    dies: dict[str, int] = field(default_factory=dict)
    dead: bool = False

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *given: Said(self, method, given)))


class Said:
    """What comes of a call, as it is asked for."""

    def __init__(self, actor: Actor, method: str, given: Sequence[Any]) -> None:
        self.actor, self.left = actor, actor.dies.get(method, 2**62)
        self.said: Iterator[Any] = getattr(actor.worker, method)(*given)

    def __next__(self) -> Any:
        self.actor.dead = self.actor.dead or self.left == 0
        self.left -= 1
        return RayError("killed") if self.actor.dead else next(self.said)


class Ray:
    """As much of Ray as the driver uses, of one machine with three processors."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    ObjectRefGenerator = Said

    def __init__(self, dies: Sequence[dict[str, int]]) -> None:
        self.dies, self.actors = dies, list[Actor]()

    def remote(self, kind: type[Worker]) -> Any:
        return SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda *given: self.start_worker(kind(*given)))
        )

    def start_worker(self, worker: Worker) -> Actor:
        self.actors.append(Actor(worker, dict(*self.dies[len(self.actors) :][:1])))
        return self.actors[-1]

    def put(self, value: Any) -> Any:
        return value

    def get(self, value: Any) -> Any:
        if isinstance(value, RayError):
            raise value
        return value

    def wait(self, said: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return said, []

    def kill(self, actor: Actor) -> None:
        actor.dead = True

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:6379")

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Resources": {"CPU": 3.0}, "Alive": True}]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a Ray whose first actors die as they are told to."""
    monkeypatch.setenv(ray_engine.THREADS, "1")

    def made(*dies: dict[str, int]) -> Ray:
        ray = Ray(dies)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return made


def asked_of(cluster: Cluster, distinct: dict[str, Query], find: Any = toy_found) -> dict[str, Answer]:
    """What a cluster answers; an error if it answers anything twice."""
    answers: dict[str, Answer] = {}
    for said in cluster.engine(find)(toy_found(), distinct, {}, EXACT):
        if isinstance(said, AnswerBatch):
            assert not answers.keys() & said.answers.keys()
            answers |= said.answers
    return answers


def alone(distinct: dict[str, Query]) -> dict[str, Answer]:
    said = local_engine(toy_found(), distinct, {}, EXACT)
    return {
        digest: one for arrived in said if isinstance(arrived, AnswerBatch) for digest, one in arrived.answers.items()
    }


def test_three_idle_workers_that_die_between_rounds_do_not_end_the_run(pool: Any) -> None:
    ray = pool()
    with Cluster(n_workers=3) as cluster:
        for n_dead in range(MAX_LOSSES + 1):
            for actor in ray.actors:
                actor.dead = n_dead > 0
            assert asked_of(cluster, sentences()) == alone(sentences())
            assert cluster.manifest_entry() == {"name": "ray", "workers": 3, "replaced": 3 * n_dead}


def test_a_machine_lost_while_its_workers_are_idle_does_not_tell_against_what_they_were_to_do(pool: Any) -> None:
    for what in ("plan", "answer"):
        ray = pool(*3 * [{what: 0}])
        with Cluster(n_workers=3) as cluster:
            assert asked_of(cluster, sentences()) == alone(sentences())
            assert [actor.dead for actor in ray.actors] == [True, True, True, False, False, False], what
        assert cluster.n_replaced == 3


@pytest.mark.parametrize(
    "dies",
    [{"open": 1}, {"set_queries": 0}, {"plan": 1}, {"answer": 1}, {"answer": 0}],
    ids=lambda dies: next(iter(dies)),
)
def test_what_kills_every_worker_ends_the_run(pool: Any, dies: dict[str, int]) -> None:
    ray = pool(*20 * [dies])
    with Cluster(n_workers=1) as cluster:
        assert_refused(("RayError: killed",), asked_of, cluster, sentences(60))
    assert len(ray.actors) == MAX_LOSSES


def test_a_place_where_no_worker_can_open_the_model_is_given_up_and_told(pool: Any) -> None:
    pool({}, {}, {"open": 1}, {"open": 1}, {"open": 1})
    with Cluster(n_workers=3) as cluster:
        assert asked_of(cluster, sentences()) == alone(sentences())
        assert cluster.manifest_entry() == {"name": "ray", "workers": 2, "replaced": 2}
    assert cluster.manifest_entry()["workers"] == 2


def test_a_planner_that_is_replaced_by_one_with_another_budget_hands_nothing_out_twice(pool: Any) -> None:
    budgets = Counter[str]()

    def resolve() -> ModelHandle:
        def opened() -> Any:
            budgets["opened"] += 1
            model: Any = toy_found().open()
            model.limits = replace(model.limits, budget_tokens=model.limits.budget_tokens // budgets["opened"])
            return model

        return replace(toy_found(), open=opened)

    pool({"plan": 3}, {"plan": 5})
    with Cluster(n_workers=1) as cluster:
        assert asked_of(cluster, sentences(), resolve) == alone(sentences())
    assert (cluster.n_replaced, budgets["opened"]) == (2, 3)


def test_another_address_than_that_of_the_cluster_a_program_is_in_is_refused(pool: Any) -> None:
    pool()
    for address in ("", "auto", "localhost:6379", "127.0.0.1:6379"):
        with Cluster(address, 1) as cluster:
            assert len(asked_of(cluster, sentences(30))) == 30
    with Cluster("127.0.0.1:6380", 1) as cluster, pytest.raises(UndertowError, match=r"127.0.0.1:6380"):
        asked_of(cluster, sentences(30))


@pytest.mark.parametrize(
    ("address", "words"),
    [("", "No space left"), ("auto", "nothing there"), ("127.0.0.1:1", "127.0.0.1:1"), ("mute", "is not Ray")],
)
def test_a_cluster_that_cannot_be_started_or_joined_is_one_sentence(
    pool: Any, address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(n_cpus: int) -> None:
        raise OSError("No space left on device.")

    pool().is_initialized = lambda: False
    monkeypatch.setattr(ray_engine, "start", full)
    monkeypatch.setattr(ray_engine, "leave", lambda: None)
    monkeypatch.setattr(ray_engine, "JOIN_TIMEOUT_S", 0.5 if address == "mute" else 120.0)
    tried = "import time; time.sleep(600)" if address == "mute" else "import sys; sys.exit('OSError: nothing there')"
    monkeypatch.setattr(ray_engine, "TRY", tried)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}" if address == "mute" else address
        with Cluster(address, 1) as cluster:
            assert_refused((words,), asked_of, cluster, sentences(30))


def test_files_of_the_users_folder_are_not_run_as_ray(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool().is_initialized = lambda: False
    (tmp_path / "no_ray.py").write_text("raise SystemExit('OSError: this file was run')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_engine, "leave", lambda: None)
    monkeypatch.setattr(ray_engine, "TRY", "import no_ray")
    with Cluster("auto", 1) as cluster, pytest.raises(UndertowError, match="No module named 'no_ray'"):
        asked_of(cluster, sentences(30))


# A cluster, divided.

LAPTOP = [{"CPU": 8.0, "memory": 1e9}]
RACK = [{"CPU": 16.0}, {"CPU": 16.0}, {"CPU": 8.0}]
GPUS = [{"CPU": 4.0}, {"CPU": 48.0, "GPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}]


@pytest.mark.parametrize(
    ("nodes", "n_workers", "on_gpu", "expected"),
    [
        (LAPTOP, 0, True, Allocation(1, 8, 0, 8)),
        (LAPTOP, 3, True, Allocation(3, 2, 0, 2)),
        (RACK, 0, True, Allocation(3, 8, 0, 8)),
        (RACK, 2, True, Allocation(2, 16, 0, 16)),
        (RACK, 6, True, Allocation(6, 5, 0, 5)),
        (GPUS, 0, True, Allocation(6, 8, 1, 8)),
        (GPUS, 3, True, Allocation(3, 8, 1, 8)),
        (GPUS, 0, False, Allocation(3, 16, 0, 16)),
        ([{"CPU": 0.0, "GPU": 1.0}], 0, True, Allocation(1, 0, 1, 1)),
    ],
)
def test_a_cluster_is_divided(
    nodes: list[dict[str, float]], n_workers: int, on_gpu: bool, expected: Allocation
) -> None:
    assert shares(nodes, n_workers, on_gpu=on_gpu) == expected


def test_address_is_a_host_and_a_port() -> None:
    for address in ("", "auto", "10.0.0.1:6379", "head.example.org:1"):
        check_address(address)
    for address in ("head", ":6379", "head:", "head:port", "head:0", "head:65536", "http://head:6379/"):
        assert_refused(("HOST:PORT",), check_address, address)


# Choices that are refused before anything is asked.


def test_a_cluster_that_others_can_reach_is_refused_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside no cluster of this process: what ends one forgets its password."""
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    started: list[str] = []
    monkeypatch.setattr(ray, "init", lambda *_, **__: started.append("init"))
    monkeypatch.setattr(ray, "shutdown", lambda: started.append("shutdown"))
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeManagerAddress": "127.0.0.1"}, {"NodeManagerAddress": "10.0.0.7"}])
    monkeypatch.delattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER")
    with pytest.raises(UndertowError, match=r"listens on 10\.0\.0\.7, where others can reach it"):
        ray_engine.start(n_cpus=1)
    assert started == ["init", "shutdown"]
