from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.file_refusal import assert_refused
from undertow import data
from undertow.errors import UndertowError
from undertow.inference import ray_connection, ray_engine
from undertow.inference.engines import RAY, EngineChoice
from undertow.inference.ray_connection import check_address
from undertow.inference.ray_engine import Allocation, Cluster, ModelSource, Round, Worker, shares
from undertow.inference.runner import local_engine
from undertow.inference.work_units import AnswerBatch, QueryRunner, WorkUnit
from undertow.models import resolve
from undertow.models.base import IN_MEMORY, BatchLimits, ModelRequest, TokenBatch
from undertow.models.families import toy
from undertow.types import EXACT, Answer, Floats, ModelIdentity, Query, query_digest

TOY = resolve(ModelRequest("toy"))


def sentences(n_items: int = 600) -> dict[str, Query]:
    items = data.load("mgc").items([data.load_covariate("date")])
    return {query_digest(item.query): item.query for item in items[:n_items]}


def test_a_portion_has_the_same_answers_wherever_it_is_asked() -> None:
    distinct = sentences()
    planner, other = (QueryRunner(TOY.open(), distinct, EXACT) for _ in range(2))
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


def test_plain_batches_are_cut_as_the_planner_says_whatever_the_readers_budget_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In models that must be read without trees."""
    shapes: list[tuple[int, ...]] = []

    def noted(model: toy.ToyModel, batch: TokenBatch) -> Floats:
        shapes.append(batch.tokens.shape)
        return read(model, batch)

    def plain(budget_tokens: int) -> QueryRunner:
        model: Any = TOY.open()
        model.limits = BatchLimits(budget_tokens, 0)
        return QueryRunner(model, distinct, EXACT)

    read = toy.ToyModel.read_batch
    monkeypatch.setattr(toy.ToyModel, "read_batch", noted)
    distinct, seen = sentences(300), []
    for budget in (200, 400, 4000):
        reader = plain(budget)
        for portion in plain(400).work_units(frozenset()):
            assert isinstance(portion, WorkUnit)
            assert portion.budget_tokens == 400
            list(reader.answers(portion))
        seen.append(tuple(shapes))
        shapes.clear()
    assert len(seen[0]) > 4
    assert len(set(seen)) == 1


def worker_of(folder: Path, versions: Any = dict, expected: Any = None, key: str = "", **source: str) -> Worker:
    model = ModelSource(lambda: TOY, key or TOY.identity.key(EXACT), versions, expected or {}, **source)
    return Worker(0, model, str(folder / "there"), "1")


def test_a_worker_opens_its_model_with_the_first_call_and_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ray_engine.THREADS, "1")
    distinct = sentences(60)
    asked = Round(1, EXACT, lambda: distinct)
    worker = worker_of(tmp_path)
    (unit,) = worker.plan(asked, frozenset())
    assert isinstance(unit, WorkUnit)
    place, (arrived,) = worker.answer(asked, unit)
    assert place == worker.open()[0]
    assert arrived.answers == alone(distinct)
    assert worker.plan(asked, frozenset(distinct)) == []
    assert worker.plan(Round(2, EXACT, lambda: {}), frozenset()) == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    other = worker_of(tmp_path, key="0" * 64, driver="another machine")
    assert Path.cwd() == tmp_path / "there"
    machine = f"(on {socket.gethostname()}, process "
    assert_refused(("toy: the model on ", "differs from the driver's", machine), other.open)


def test_a_worker_with_other_versions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_engine.THREADS, "1")
    there = {"undertow": "0.1.0 (files 111111111111)", "torch": "2.9.0"}
    assert worker_of(tmp_path, versions=lambda: there, expected=there).open()
    for name, version in (("torch", "2.8.0"), ("undertow", "0.1.0 (files 222222222222)"), ("transformers", "5.0")):
        worker = worker_of(tmp_path, versions=lambda: there, expected=there | {name: version})
        assert_refused((name,), worker.open)


def alone(distinct: dict[str, Query]) -> dict[str, Answer]:
    said = local_engine(TOY, distinct, {}, EXACT)
    return {
        digest: one for arrived in said if isinstance(arrived, AnswerBatch) for digest, one in arrived.answers.items()
    }


class RayError(Exception):
    """Of Ray."""


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Ray in a program that has joined a cluster."""
    fake = SimpleNamespace(
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayError, RaySystemError=RayError),
        is_initialized=lambda: True,
        get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:6379"),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return fake


def join(cluster: Cluster) -> None:
    """Ask for anything, as far as the cluster."""
    list(cluster.engine(lambda: TOY)(TOY, sentences(30), {}, EXACT))


def test_another_address_than_that_of_the_cluster_a_program_is_in_is_refused(
    fake_ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "_start", lambda *_: pytest.fail("joined"))
    for address in ("", "auto", "localhost:6379", "127.0.0.1:6379"):
        with Cluster(address, 1) as cluster, pytest.raises(pytest.fail.Exception, match="joined"):
            join(cluster)
    with Cluster("127.0.0.1:6380", 1) as cluster, pytest.raises(UndertowError, match=r"127.0.0.1:6380"):
        join(cluster)


def test_ray_imported_without_a_token_starts_no_cluster(
    fake_ray: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ray.is_initialized = lambda: False
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setattr(ray_connection, "local_environment", ray_connection.local_environment.__wrapped__)
    with Cluster("", 1) as cluster:
        assert_refused(("has imported Ray before the run", "RAY_AUTH_MODE"), join, cluster)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "No space left"),
        ("auto", "nothing there"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("mute", "is not Ray"),
        ("own file", "No module named 'no_ray'"),  # files of the user's folder are not run as Ray
    ],
)
def test_a_cluster_that_cannot_be_started_or_joined_is_one_sentence(
    fake_ray: SimpleNamespace, address: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(n_cpus: int) -> None:
        raise OSError("No space left on device.")

    fake_ray.is_initialized = lambda: False
    monkeypatch.setattr(ray_connection, "start", full)
    monkeypatch.setattr(ray_connection, "leave", lambda: None)
    monkeypatch.setattr(ray_connection, "JOIN_TIMEOUT_S", 0.5 if address == "mute" else 120.0)
    (tmp_path / "no_ray.py").write_text("raise SystemExit('OSError: this file was run')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    tries = {"mute": "import time; time.sleep(600)", "own file": "import no_ray"}
    monkeypatch.setattr(ray_connection, "TRY", tries.get(address, "import sys; sys.exit('OSError: nothing there')"))
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        addresses = {"mute": f"127.0.0.1:{mute.getsockname()[1]}", "own file": "auto"}
        with Cluster(addresses.get(address, address), 1) as cluster:
            assert_refused((words,), join, cluster)


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


@pytest.mark.parametrize("ending", ["dismiss(witness)", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_driver_that_ray_ends_leaves_one_sentence(ending: str) -> None:
    script = f"import os\nfrom undertow.inference.ray_connection import *\nwitness = start_witness()\n{ending}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    sentences = ended.stderr.splitlines()
    assert len(sentences) == bool(ended.returncode)
    assert all("Ray whose raylet or GCS server died" in one and "answers so far are stored" in one for one in sentences)


def test_address_is_a_host_and_a_port() -> None:
    for address in ("", "auto", "10.0.0.1:6379", "head.example.org:1"):
        check_address(address)
    for address in ("head", ":6379", "head:", "head:port", "head:0", "head:65536", "http://head:6379/"):
        assert_refused(("HOST:PORT",), check_address, address)


def test_a_cluster_that_others_can_reach_is_refused_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    started: list[str] = []
    monkeypatch.setattr(ray, "init", lambda *_, **__: started.append("init"))
    monkeypatch.setattr(ray, "shutdown", lambda: started.append("shutdown"))
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeManagerAddress": "127.0.0.1"}, {"NodeManagerAddress": "10.0.0.7"}])
    monkeypatch.setattr(ray_connection, "local_environment", dict)
    with pytest.raises(UndertowError, match=r"listens on 10\.0\.0\.7, where others can reach it"):
        ray_connection.start(n_cpus=1)
    assert started == ["init", "shutdown"]


@pytest.mark.parametrize(
    ("choice", "family", "source", "device", "words"),
    [
        (EngineChoice("spark"), "toy", "", "cpu", "engine 'spark' is not known"),
        (EngineChoice(RAY, workers=-1), "toy", "", "cpu", "workers -1 is negative"),
        (EngineChoice(workers=2), "toy", "", "cpu", "--workers is for --engine ray"),
        (EngineChoice(RAY), "causal", IN_MEMORY, "cpu", "this network is in memory"),
        (EngineChoice(RAY), "openai", "", "cpu", "raise --concurrency"),
        (EngineChoice(RAY), "causal", "hub", "cuda:1", "use cuda"),
    ],
)
def test_what_workers_cannot_run_is_refused(
    choice: EngineChoice, family: str, source: str, device: str, words: str
) -> None:
    def check() -> None:
        choice.check()
        choice.check_models([ModelIdentity("m", family, source, "r", "float32", "likelihood")], device)

    assert_refused((words,), check)
