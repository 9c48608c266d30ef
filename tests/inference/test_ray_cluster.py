"""Asking in workers of a real Ray cluster on this machine: the same results, whoever is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from helpers.file_refusal import assert_refused
from undertow.inference import ray_connection, ray_engine
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.ray_engine import Cluster
from undertow.inference.runner import RunnerResult, run_queries
from undertow.models.base import ModelHandle
from undertow.types import EXACT, GENERATION, Answer, GenerateQuery, ModelIdentity, Option, Query

with ray_connection.environment(
    ray_connection.ON_START | ray_connection.local_environment()
):  # Ray reads its token as it is imported
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [
    pytest.mark.slow,
    # Ray leaves the servers that it starts to the end of the process.
    pytest.mark.filterwarnings(r"ignore:subprocess \d+ is still running:ResourceWarning"),
]
GUARD_S = 120.0
PROBE = "spurious-correlation"
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[None]:
    """A cluster of this machine with two processors, that the runs of this file find this program in."""
    before = os.environ.get("OMP_NUM_THREADS")
    ray_connection.start(n_cpus=2)
    yield
    ray_connection.leave()
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_what_is_stored_needs_no_cluster(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"w": "date", "limit": 90}
    undertow.audit(PROBE, "toy", out=tmp_path / "alone", **asked)
    run = undertow.audit(PROBE, "toy", out=tmp_path / "shared", engine="ray", ray_address="10.0.0.1:6379", **asked)
    assert run.manifest["engine"] == {"name": "ray", "workers": 0, "replaced": 0}
    assert run.manifest["counts"]["computed"] == 0


# Models that misbehave in their workers. They are made in functions, so that Ray sends them as they are.

PROMPTS = [GenerateQuery(f"{number}: who?", (Option("female", ("she",)),)) for number in range(24)]


def opened(folder: Path) -> int:
    return len(list(folder.glob("opened by *")))


def made(folder: Path, says: Callable[[int, Path], float]) -> Any:
    """Finds a model that answers prompts by their number, eight in a pack; each opening is noted down."""
    identity = ModelIdentity("made", "tests", "the tests", "1", "float32", "prompt")

    class Made:
        def __init__(self) -> None:
            self.identity, self.facts = identity, {"parameters": 3.0}
            self.notes: tuple[str, ...] = ("made by hand",)
            (folder / f"opened by {os.getpid()}").write_text("once", encoding="utf-8")

        def packs(self, queries: Sequence[Query]) -> list[list[int]]:
            places = list(range(len(queries)))
            return [places[start : start + 8] for start in range(0, len(places), 8)]

        def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
            numbers = [int(query.prompt.partition(":")[0]) for query in queries if isinstance(query, GenerateQuery)]
            for half in (range(4), range(4, len(numbers))):
                yield {place: Answer((says(numbers[place], folder),), 0.5, text="she") for place in half}

    return lambda: ModelHandle(identity, Made, {GENERATION: (EXACT,)})


def asked_of(find: Any, cluster: Cluster, folder: Path, queries: Sequence[Query] = PROMPTS) -> RunnerResult:
    with AnswerCache(folder / "answers.sqlite") as store:
        return run_queries(find(), queries, store, EXACT, lambda done, total: None, engine=cluster.engine(find))


def test_a_killed_worker_is_replaced_and_the_answers_are_those_of_one_process(
    own_cluster: None, tmp_path: Path
) -> None:
    """A model is opened once in each worker, and once more where one was killed in the middle of a pack."""

    def says(number: int, folder: Path) -> float:
        if number == 13 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -1.0 - number

    find = made(tmp_path, says)
    with Cluster(n_workers=2) as cluster:
        first = asked_of(find, cluster, tmp_path, PROMPTS[:8])
        assert 1 <= opened(tmp_path) <= 2
        second = asked_of(find, cluster, tmp_path)
        assert cluster.manifest_entry() == {"name": "ray", "workers": 2, "replaced": 1}
    assert cluster.workers == []
    assert (tmp_path / "killed").exists()
    assert opened(tmp_path) <= 3
    assert (first.n_computed, second.n_computed) == (8, 16)
    assert [answer.logprobs_nats for answer in second.scores.answers] == [(-1.0 - number,) for number in range(24)]
    assert (second.notes, dict(second.facts)) == (("made by hand",), {"parameters": 3.0})


def test_a_query_that_kills_every_worker_ends_the_run_and_what_was_answered_is_stored(
    own_cluster: None, tmp_path: Path
) -> None:
    def says(number: int, folder: Path) -> float:
        if number == 21:
            os.kill(os.getpid(), signal.SIGKILL)
        return -1.0 - number

    words = ("lost 3 times", "run the same command again")
    with Cluster(n_workers=1) as cluster:
        assert_refused(words, asked_of, made(tmp_path, says), cluster, tmp_path)
    assert 1 <= opened(tmp_path) <= ray_engine.MAX_LOSSES  # a busy machine may lose a worker before it opens
    with AnswerCache(tmp_path / "answers.sqlite") as store:
        assert sum(shelf.n_answers for shelf in store.summary()) == 16


def test_a_worker_that_cannot_open_the_model_does_not_stop_the_other(own_cluster: None, tmp_path: Path) -> None:
    """The worker that opens it first is killed whenever it does."""
    find = made(tmp_path, lambda number, folder: -1.0 - number)

    def dies_or_finds() -> ModelHandle:
        own, unlucky = ray.get_runtime_context().get_actor_id(), tmp_path / "unlucky"
        with contextlib.suppress(FileExistsError), unlucky.open("x", encoding="utf-8") as file:
            file.write(own)
        if unlucky.read_text("utf-8") == own:
            os.kill(os.getpid(), signal.SIGKILL)
        handle: ModelHandle = find()
        return handle

    with Cluster(n_workers=2) as cluster, AnswerCache(tmp_path / "answers.sqlite") as store:
        engine = cluster.engine(dies_or_finds)
        run = run_queries(find(), PROMPTS, store, EXACT, lambda done, total: None, engine=engine)
        assert int(cluster.manifest_entry()["workers"]) in (1, 2)
    assert [answer.logprobs_nats for answer in run.scores.answers] == [(-1.0 - number,) for number in range(24)]
    assert opened(tmp_path) == 1


@pytest.mark.soak
def test_the_cluster_is_for_this_machine_and_this_process_alone(own_cluster: None) -> None:
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == [LOOPBACK]
    assert ray.get(ray.remote(lambda: len(os.environ["RAY_AUTH_TOKEN"])).remote()) == 64
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys()
    address = ray.get_runtime_context().gcs_address
    command = [str(Path(sys.executable).parent / "ray"), "status", f"--address={address}"]
    for token, enters in ((ray_connection.local_environment(), True), (ray_connection.ON_LOOPBACK, False)):
        done = subprocess.run(
            command, env=os.environ | token, capture_output=True, text=True, timeout=GUARD_S, check=False
        )
        assert (done.returncode == 0) is enters, done.stderr
    assert "token" in done.stderr


TOY = ("run", PROBE, "-m", "toy", "--w", "date", "--limit", "180", "--json")


@pytest.mark.usefixtures("own_cluster")
def test_a_run_in_workers_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = undertow.audit(PROBE, "toy", w="date", limit=60, out=tmp_path / "alone")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "other cache"))
    run = undertow.audit(PROBE, "toy", w="date", limit=60, out=tmp_path / "shared", engine="ray", workers=2)
    assert run.manifest["engine"] == {"name": "ray", "workers": 2, "replaced": 0}
    assert run.manifest["counts"] == alone.manifest["counts"]
    assert (run.folder / "results.json").read_bytes() == (alone.folder / "results.json").read_bytes()


Head = tuple[str, dict[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def head(cache: Path) -> Iterator[Head]:
    """A cluster that somebody else has started: its address, the environment to join it in, and its process."""
    # One on the loopback is joined by those alone who hold that for their machine's address, as on a laptop.
    environment = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        port = int(one.getsockname()[1])
    options = ["--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    command = [str(Path(sys.executable).parent / "ray"), "start", *options, f"--node-ip-address={LOOPBACK}"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout
            assert any("runtime started" in line for line in process.stdout)
            yield f"{LOOPBACK}:{port}", environment, process
        finally:
            process.terminate()
            process.communicate(timeout=GUARD_S)


@pytest.mark.soak
def test_a_cluster_that_is_there_is_joined_and_left_running(head: Head, cli_process: Cli, tmp_path: Path) -> None:
    address, environment, process = head
    words = (*TOY, "--engine", "ray", "--ray-address", address, "--workers", "2", "--out", "joined")
    done = cli_process(*words, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["computed"] == 180
    assert undertow.load_run(tmp_path / "joined").manifest["engine"] == {"name": "ray", "workers": 2, "replaced": 0}
    assert process.poll() is None
