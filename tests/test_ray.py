"""Asking in workers of a real Ray cluster on this machine: the same results, whoever is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from undertow import engines
from undertow.models.base import EXACT, Found
from undertow.scoring import distributed
from undertow.scoring.ask import Asked, ask
from undertow.scoring.distributed import Cluster
from undertow.scoring.store import AnswerStore
from undertow.types import (
    GENERATION,
    Answer,
    Generation,
    ModelCard,
    Option,
    Query,
    UndertowError,
    query_digest,
)

ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [
    pytest.mark.slow,
    # Ray hands /dev/null to the servers that it starts and leaves it, and them, to the end of the process.
    pytest.mark.filterwarnings("ignore:unclosed file <_io.*'/dev/null':ResourceWarning"),
    pytest.mark.filterwarnings(r"ignore:subprocess \d+ is still running:ResourceWarning"),
]
PROBE = "spurious-correlation"
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[None]:
    """A cluster of this machine with two processors, that the runs of this file find this program in."""
    before = os.environ.get("OMP_NUM_THREADS")
    distributed.start(n_cpus=2)
    yield
    distributed.leave()
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert not asks_for_a_password()


def asks_for_a_password() -> bool:
    """Whether Ray, as it is in this process, does."""
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    return bool(is_token_auth_enabled())


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """Those that audits have made in this test."""
    made: list[Cluster] = []

    def make(*given: Any, **named: Any) -> Cluster:
        made.append(Cluster(*given, **named))
        return made[-1]

    monkeypatch.setattr(engines, "Cluster", make)
    return made


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small network with room for prompts."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    from transformers import LlamaConfig, LlamaForCausalLM

    from tiny import saved

    config = LlamaConfig(
        vocab_size=320, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return saved(tmp_path_factory.mktemp("network"), LlamaForCausalLM(config))


# Whole runs.


class CutOffError(Exception):
    """The user has ended a run."""


def cut_off(done: int, total: int) -> None:
    if done:
        raise CutOffError


SENTENCES = {"probe": PROBE, "w": "date", "limit": 1200}
PROMPTED = {"probe": PROBE, "w": "date", "limit": 780, "prompts": "A"}
CHOICES = {"probe": "bias-identification", "documents": 24, "wordings": 1}


@pytest.mark.usefixtures("own_cluster", "one_thread")
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(SENTENCES, id="sentences", marks=pytest.mark.soak),
        pytest.param(PROMPTED, id="prompts", marks=pytest.mark.soak),
        pytest.param(CHOICES, id="choices", marks=pytest.mark.soak),
    ],
)
def test_a_run_cut_off_and_taken_up_by_workers_of_which_one_is_killed_is_that_of_one_process(
    asked: dict[str, Any], network: str, clusters: list[Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = undertow.run(model=network, out=tmp_path / "alone", **asked)
    assert not alone.observations["unscored"].any()
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "other cache"))
    with pytest.raises(CutOffError):
        undertow.run(model=network, out=tmp_path / "shared", progress=cut_off, **asked)
    killer = Killer(clusters)
    run = undertow.run(model=network, engine="ray", workers=2, out=tmp_path / "shared", progress=killer, **asked)
    assert killer.killed
    assert results(run.folder) == results(alone.folder)
    # To the letter: what is missing inside of lists equals nothing, itself included.
    assert run.observations.map(repr).equals(alone.observations.map(repr))
    assert run.manifest["engine"] == {"name": "ray", "workers": 2, "replaced": 1}
    assert "engine" not in alone.manifest
    for name in ("run_key", "notes", "facts", "model_card"):
        assert run.manifest[name] == alone.manifest[name], name
    n_kept = killer.seen[0]
    assert n_kept > 0
    assert run.manifest["counts"]["computed"] == alone.manifest["counts"]["computed"] - n_kept
    assert run.manifest["command"].endswith("--engine ray --workers 2")
    assert run.manifest["python"].endswith("engine='ray', workers=2)")
    assert killer.seen == sorted(killer.seen)


@dataclass
class Killer:
    """Kills a worker as soon as both are there and one has had a pack stored; told of progress."""

    clusters: list[Cluster]
    seen: list[int] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)

    def __call__(self, done: int, total: int) -> None:
        self.seen.append(done)
        there = self.clusters[0].workers
        if done > self.seen[0] and len(there) == 2 and not self.killed:
            assert done < total
            self.killed.append(there[0].pid)
            os.kill(there[0].pid, signal.SIGKILL)


def results(folder: Path) -> bytes:
    return (folder / "results.json").read_bytes()


def test_what_is_stored_needs_no_cluster(tmp_path: Path, clusters: list[Cluster]) -> None:
    asked: dict[str, Any] = {"w": "date", "limit": 90}
    undertow.run(PROBE, "toy", out=tmp_path / "alone", **asked)
    run = undertow.run(PROBE, "toy", out=tmp_path / "shared", engine="ray", address="10.0.0.1:6379", **asked)
    assert run.manifest["engine"] == {"name": "ray", "workers": 0, "replaced": 0}
    assert run.manifest["counts"]["computed"] == 0


# Models that misbehave in their workers. They are made in functions, so that Ray sends them as they are.

PROMPTS = [Generation(f"{number}: who?", (Option("female", ("she",)),)) for number in range(24)]


def made(folder: Path, says: Callable[[int, Path], float], opens: Callable[[Path], None] = lambda _: None) -> Any:
    """Finds a model that answers prompts by their number, eight in a pack; each opening is noted down."""
    card = ModelCard("made", "tests", "the tests", "1", "float32", "prompt")

    class Made:
        def __init__(self) -> None:
            self.card, self.facts = card, {"parameters": 3.0}
            self.notes: tuple[str, ...] = ("made by hand",)
            (folder / f"opened by {os.getpid()}").write_text("once", encoding="utf-8")
            opens(folder)

        def packs(self, queries: Sequence[Query]) -> list[list[int]]:
            places = list(range(len(queries)))
            return [places[start : start + 8] for start in range(0, len(places), 8)]

        def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Answer]]:
            numbers = [int(query.prompt.partition(":")[0]) for query in queries if isinstance(query, Generation)]
            for half in (range(4), range(4, len(numbers))):
                yield {place: Answer((says(numbers[place], folder),), 0.5, text="she") for place in half}

    return lambda: Found(card, Made, {GENERATION: (EXACT,)})


def asked_of(find: Any, cluster: Cluster, folder: Path, queries: Sequence[Query] = PROMPTS) -> Asked:
    with AnswerStore(folder / "answers.sqlite") as store:
        return ask(find(), queries, store, EXACT, lambda done, total: None, engine=cluster.engine(find))


def stored(find: Any, folder: Path) -> int:
    with AnswerStore(folder / "answers.sqlite") as store:
        return len(store.get(find().card.key(EXACT), [query_digest(query) for query in PROMPTS]))


def opened(folder: Path) -> int:
    return len(list(folder.glob("opened by *")))


def test_a_model_is_opened_once_in_each_worker(own_cluster: None, tmp_path: Path) -> None:
    find = made(tmp_path, lambda number, _: -1.0 - number)
    with Cluster(n_workers=2) as cluster:
        first = asked_of(find, cluster, tmp_path, PROMPTS[:16])
        pids = [worker.pid for worker in cluster.workers]
        second = asked_of(find, cluster, tmp_path)
        assert [worker.pid for worker in cluster.workers][: len(pids)] == pids
    assert opened(tmp_path) <= 2
    assert (first.n_computed, second.n_computed) == (16, 8)
    assert [answer.logprobs_nats for answer in second.scores.answers] == [(-1.0 - number,) for number in range(24)]
    assert (second.notes, dict(second.facts)) == (("made by hand",), {"parameters": 3.0})
    assert cluster.told() == {"name": "ray", "workers": 2, "replaced": 0}
    assert cluster.workers == []


def test_what_the_model_refuses_is_said_in_its_words(own_cluster: None, tmp_path: Path) -> None:
    def says(number: int, _: Path) -> float:
        if number == 13:
            raise UndertowError("the weights have gone; fetch them again")
        return -1.0

    find = made(tmp_path, says)
    with Cluster(n_workers=1) as cluster, pytest.raises(UndertowError) as error:
        asked_of(find, cluster, tmp_path)
    assert str(error.value) == "the weights have gone; fetch them again"
    assert stored(find, tmp_path) == 12


def test_an_error_of_the_model_is_not_hidden(own_cluster: None, tmp_path: Path) -> None:
    find = made(tmp_path, lambda number, _: -1.0 / (number - 3))
    with Cluster(n_workers=1) as cluster, pytest.raises(ZeroDivisionError):
        asked_of(find, cluster, tmp_path)


def test_questions_that_kill_every_worker_end_the_run_and_the_others_are_kept(
    own_cluster: None, tmp_path: Path
) -> None:
    def says(number: int, _: Path) -> float:
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        return -1.0

    find = made(tmp_path, says)
    with Cluster(n_workers=1) as cluster, pytest.raises(UndertowError) as error:
        asked_of(find, cluster, tmp_path)
    assert str(error.value) == (
        "a worker was lost 3 times in a row over the same 8 questions (ActorDiedError: Worker unexpectedly exits with a "
        "connection error code 2. End of file); all answers so far are kept, so if memory ran out, give fewer --workers, and run "
        "the same command again"
    )
    # Once it may have been the pack before that was blamed.
    assert cluster.n_replaced in (2, 3)
    # Those of the pack that were answered before its deadly one too.
    assert stored(find, tmp_path) == 12


@pytest.mark.soak
def test_a_worker_lost_as_it_opens_the_model_is_replaced_three_times_at_most(own_cluster: None, tmp_path: Path) -> None:
    def opens(folder: Path) -> None:
        """The first process has room, all others have none."""
        if len(list(folder.glob("opened by *"))) > 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def says(number: int, folder: Path) -> float:
        # Not before the others have been tried.
        while len(list(folder.glob("opened by *"))) < 4:
            time.sleep(0.05)
        return -1.0

    with Cluster(n_workers=2) as cluster:
        asked = asked_of(made(tmp_path, says, opens), cluster, tmp_path)
    assert asked.n_computed == 24
    assert opened(tmp_path) == 4
    none = tmp_path / "none"
    none.mkdir()

    def opens_never(_: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        Cluster(n_workers=1) as cluster,
        pytest.raises(UndertowError, match="3 times in a row while it opened the model"),
    ):
        asked_of(made(none, lambda number, _: -1.0, opens_never), cluster, none)
    assert opened(none) == 3


def test_another_model_where_the_worker_is_is_refused(own_cluster: None, tmp_path: Path) -> None:
    find = made(tmp_path, lambda number, _: -1.0)
    here = find()
    card = ModelCard("made", "tests", "the tests", "2", "float32", "prompt")
    with Cluster(n_workers=1) as cluster, AnswerStore(tmp_path / "s") as store:
        found = Found(card, here.open, here.asks)
        with pytest.raises(
            UndertowError, match=r"made: on .*, process \d+ is another model than where the run was started"
        ):
            ask(found, PROMPTS, store, EXACT, lambda done, total: None, engine=cluster.engine(find))
    assert opened(tmp_path) == 0


def test_a_cluster_without_room_is_not_waited_for(own_cluster: None, tmp_path: Path) -> None:
    class Other:
        def is_there(self) -> bool:
            return True

    other = ray.remote(Other).options(num_cpus=1).remote()
    assert ray.get(other.is_there.remote())
    with Cluster(n_workers=1, patience_s=2.0) as cluster, pytest.raises(UndertowError) as error:
        asked_of(made(tmp_path, lambda number, _: -1.0), cluster, tmp_path)
    ray.kill(other)
    assert str(error.value).startswith(
        "no worker found a place in the cluster within 2 seconds: each asks for 2 CPU, and 1 of 2 CPU are free"
    )


STRANGER = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1])
except Exception as error:
    sys.exit(type(error).__name__)
"""


def test_the_cluster_is_for_this_machine_and_this_process_alone(own_cluster: None) -> None:
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == [LOOPBACK]
    assert asks_for_a_password()
    assert ray.get(ray.remote(lambda: len(os.environ["RAY_AUTH_TOKEN"])).remote()) == 64
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys()
    address = ray.get_runtime_context().gcs_address
    stranger = subprocess.run(
        [sys.executable, "-c", STRANGER, address], capture_output=True, text=True, timeout=60, check=False
    )
    assert stranger.stderr.splitlines()[-1] == "AuthenticationError"


def test_a_cluster_that_others_can_reach_is_refused_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(ray, "init", lambda *_, **__: started.append("init"))
    monkeypatch.setattr(ray, "shutdown", lambda: started.append("shutdown"))
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeManagerAddress": LOOPBACK}, {"NodeManagerAddress": "10.0.0.7"}])
    monkeypatch.delattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER")
    with pytest.raises(UndertowError, match=r"listens on 10\.0\.0\.7, where others can reach it"):
        distributed.start(n_cpus=1)
    assert started == ["init", "shutdown"]


# The command line: a cluster of its own, and one that is there.

TOY = ("run", PROBE, "-m", "toy", "--w", "date", "--limit", "600", "--json")


def left_of(cache: Path) -> list[str]:
    """Processes that were started with this cache folder."""
    mark, found = f"UNDERTOW_CACHE={cache}\0".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue  # it has ended meanwhile, or is another user's
    return found


def test_a_command_starts_a_cluster_and_ends_it(cli_process: Cli, tmp_path: Path, cache: Path) -> None:
    alone = undertow.run(PROBE, "toy", w="date", limit=600, out=tmp_path / "alone")
    environment = os.environ | {"UNDERTOW_CACHE": str(cache / "other")}
    done = cli_process(*TOY, "--out", "shared", "--engine", "ray", "--workers", "2", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"] == alone.manifest["counts"]
    assert results(tmp_path / "shared") == results(tmp_path / "alone")
    assert left_of(cache / "other") == []


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])


Head = tuple[str, dict[str, str], "subprocess.Popen[str]"]
"""An address, the environment to join it in, and the process that holds it."""


@pytest.fixture
def head(cache: Path) -> Iterator[Head]:
    """A cluster that somebody else has started."""
    # One on the loopback is joined by those alone who hold that for their machine's address, as on a laptop.
    environment = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    port = free_port()
    options = ["--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    command = [str(Path(sys.executable).parent / "ray"), "start", *options, f"--node-ip-address={LOOPBACK}"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout
            said = ""
            while "runtime started" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield f"{LOOPBACK}:{port}", environment, process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_a_cluster_that_is_there_is_joined_and_left_running(head: Head, cli_process: Cli, tmp_path: Path) -> None:
    address, environment, process = head
    words = (*TOY, "--engine", "ray", "--address", address, "--workers", "2", "--out", "joined")
    done = cli_process(*words, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["computed"] == 600
    assert undertow.open_run(tmp_path / "joined").manifest["engine"] == {"name": "ray", "workers": 2, "replaced": 0}
    assert process.poll() is None


def test_an_address_where_nothing_is_is_a_sentence(cli_process: Cli) -> None:
    done = cli_process(*TOY, "--engine", "ray", "--address", f"{LOOPBACK}:{free_port()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "no Ray cluster can be joined at 127.0.0.1:" in done.stderr
    assert "start one there with `ray start --head`" in done.stderr


def test_what_answers_but_is_no_ray_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "JOIN_S", 4.0)
    # Whatever lies in the user's folder is not Ray.
    (tmp_path / "ray.py").write_text("raise SystemExit('this file was run')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as mute:
        mute.bind((LOOPBACK, 0))
        mute.listen()
        with pytest.raises(OSError, match="what answers there is no Ray, or was silent for 4 seconds"):
            distributed._try_to_join(f"{LOOPBACK}:{mute.getsockname()[1]}")
