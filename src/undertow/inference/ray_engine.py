"""Inference with Ray: workers on this machine or a cluster each hold the model and compute work units.

    driver (this process)              workers (Ray actors)
    queries, once              ---->   each resolves and opens the model itself, once
                               <----   one of them makes the plan
    a work unit, if free       ---->   at most two in progress at each
    the cache                  <----   answers, as they arrive

The plan is that of a single process, and the answers of a work unit depend on the unit alone, so any worker may compute
it, and more than once. A lost worker is replaced, and its unfinished work units are computed again.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from undertow.errors import UndertowError
from undertow.inference.runner import AnswerBatch, Engine, ModelLoaded, QueryRunner, WorkUnit, check_weights, facts_of
from undertow.models.base import EXACT, ModelHandle
from undertow.types import Answer, ModelIdentity, Query

Resolve: TypeAlias = Callable[[], ModelHandle]
"""Resolves the model on a worker; must be picklable."""
Versions: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns versions by package, which must be equal on all workers; must be picklable."""

UNITS_PER_WORKER = 2
"""Work units queued at a worker: one in progress, one waiting, so that it never idles."""
MAX_LOSSES = 3
"""Workers in a row that may be lost over the same work unit, or in the same place of the pool."""
SCHEDULE_TIMEOUT_S = 120.0
"""Seconds until Ray must schedule the first worker."""
JOIN_TIMEOUT_S = 30.0
"""Seconds until a cluster must be joined."""
POLL_S = 1.0
MAX_UNIT_PROMPTS = 32
"""Prompts of a work unit, if the model has no packs."""
OBJECT_STORE_BYTES = 128 * 2**20
"""Size of Ray's object store on this machine, which holds the queries and answers in transit."""
THREADS = "OMP_NUM_THREADS"

ON_IMPORT = {
    # Ray would print lost workers to standard output, among our results.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
ON_START = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment variables of Ray. Its servers execute what they receive, so those of a local cluster listen on the loopback only."""
LOOPBACK_SWITCH = "ENABLE_RAY_CLUSTER"
"""Ray's constant for the same, read from the environment when Ray is imported."""


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker has started.

    Attributes:
        host: machine.
        pid: process id.
    """

    host: str
    pid: int

    @property
    def where(self) -> str:
        """Machine and process, in words."""
        return f"{self.host}, process {self.pid}"


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker has started a call; if it is lost now, that call may be the cause."""


@dataclass(frozen=True, slots=True)
class WorkerError:
    """A worker cannot continue.

    Attributes:
        sentence: the error, and how to fix it.
    """

    sentence: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """The share of the cluster of each worker.

    Attributes:
        n_workers: number of workers.
        cpus, gpus: resources of each worker.
        threads: threads of each worker.
    """

    n_workers: int
    cpus: int
    gpus: int
    threads: int


def shares(nodes: Sequence[Mapping[str, float]], n_workers: int, *, on_gpu: bool) -> Allocation:
    """Divide a cluster: by default one worker for every GPU, or else for every machine.

    Each worker holds the model, so the default needs its memory once for each GPU or machine.

    Args:
        nodes: resources of each machine, by Ray's names (`CPU`, `GPU`).
        n_workers: requested number; 0 for the default.
        on_gpu: whether models use GPUs where there are any.

    Raises:
        UndertowError: there are fewer GPUs or processors than workers.
    """
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    if on_gpu and any(gpus):
        wanted = n_workers or sum(gpus)
        if wanted > sum(gpus):
            raise UndertowError(
                f"{wanted} workers are more than the {_pluralize(sum(gpus), 'GPU')} of the cluster; give --workers {sum(gpus)} or "
                "fewer, or --device cpu"
            )
        share = min(n_cpus // n_gpus for n_cpus, n_gpus in zip(cpus, gpus, strict=True) if n_gpus)
        return Allocation(wanted, share, 1, max(1, share))
    if not any(cpus):
        raise UndertowError("the cluster has no processor for a worker; join another with --ray-address")
    wanted = n_workers or sum(1 for n_cpus in cpus if n_cpus)
    if wanted > sum(cpus):
        raise UndertowError(
            f"{wanted} workers are more than the {_pluralize(sum(cpus), 'processor')} of the cluster; give --workers {sum(cpus)} or "
            "fewer, or join a larger one"
        )
    share = max(size for size in range(1, max(cpus) + 1) if sum(n_cpus // size for n_cpus in cpus) >= wanted)
    return Allocation(wanted, share, 0, share)


def _pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Worker:
    """The actor in each worker's process. Every method is a generator whose items are sent at once."""

    def __init__(self, folder: str, threads: str) -> None:
        # Before torch is imported, which reads it once.
        os.environ[THREADS] = threads
        # Paths of models are relative to the user's working folder.
        if Path(folder).is_dir():
            os.chdir(folder)
        self.model: Any = None
        self.runner: QueryRunner | None = None

    def open(
        self, resolve: Resolve, key: str, versions: Versions, expected: Mapping[str, str]
    ) -> Iterator[WorkerStarted | ModelLoaded | WorkerError]:
        """Resolve the model, check its identity and versions against the driver's, and open it."""
        placed = WorkerStarted(socket.gethostname(), os.getpid())
        yield placed
        yield from _send_errors(self._open_model(resolve, key, (versions, expected), placed.where))

    def _open_model(
        self, resolve: Resolve, key: str, versions: tuple[Versions, Mapping[str, str]], where: str
    ) -> Iterator[ModelLoaded]:
        _check_versions(versions[0](), versions[1], where)
        handle = resolve()
        if handle.identity.key(EXACT) != key:
            raise UndertowError(
                f"{handle.identity.name}: the model on {where} differs from the driver's; put the same files there"
            )
        self.model = handle.open()
        yield ModelLoaded(facts_of(self.model))

    def set_queries(self, queries: dict[str, Query], protocol: str) -> Iterator[WorkerError]:
        """Receive the queries."""
        self.runner = QueryRunner(self.model, queries, protocol)
        yield from ()

    def plan(self, stored: frozenset[str]) -> Iterator[TaskStarted | WorkUnit | AnswerBatch | WorkerError]:
        """Yield the work units that are left."""
        yield TaskStarted()
        yield from _send_errors(self._runner().work_units(stored, MAX_UNIT_PROMPTS))

    def answer(self, unit: WorkUnit) -> Iterator[TaskStarted | AnswerBatch | WorkerError]:
        """Compute a work unit."""
        yield TaskStarted()
        yield from _send_errors(self._runner().answers(unit))

    def _runner(self) -> QueryRunner:
        if self.runner is None:
            raise RuntimeError("set_queries must be called before plan and answer")
        return self.runner


def _check_versions(there: Mapping[str, str], expected: Mapping[str, str], where: str) -> None:
    """Refuse other versions, which may round differently or change the protocol.

    Raises:
        UndertowError: a package has another version on this worker.
    """
    for package, wanted in expected.items():
        has = there.get(package, "not installed")
        if has != wanted:
            raise UndertowError(
                f"{package} is {has} on {where} and {wanted} on the driver; install the same version on both"
            )


def _send_errors(said: Iterator[Any]) -> Iterator[Any]:
    """Send an `UndertowError` to the driver as a sentence; every other exception propagates."""
    try:
        # Not `yield from`: Ray sends values in, which plain iterators do not accept.
        for one in said:  # noqa: UP028
            yield one
    except UndertowError as error:
        yield WorkerError(str(error))


@dataclass(slots=True)
class _Call:
    """A call to a worker.

    Attributes:
        what: the worker's method.
        said: its results, as Ray references.
        unit: the work unit that it computes, if any.
        started: whether the worker has started it.
    """

    what: str
    said: Any
    unit: WorkUnit | None = None
    started: bool = False

    @property
    def subject(self) -> WorkUnit | str:
        """The work unit or method that counts a loss if the worker is lost."""
        return self.unit or self.what


@dataclass(slots=True, eq=False)
class _WorkerHandle:
    """A worker, as the driver sees it.

    Attributes:
        actor: the Ray actor.
        calls: its calls, in order.
        placed: where it runs; None until Ray schedules it.
        opened: whether it holds the model.
        notes: the latest notes on how its model is read.
        losses: consecutive losses in its place, by call.
    """

    actor: Any
    calls: deque[_Call] = field(default_factory=deque)
    placed: WorkerStarted | None = None
    opened: bool = False
    notes: tuple[str, ...] = ()
    losses: Counter[WorkUnit | str] = field(default_factory=Counter)

    def send(self, what: str, *given: Any, unit: WorkUnit | None = None) -> None:
        """Queue a call after all others."""
        said = getattr(self.actor, what).options(num_returns="streaming").remote(*given)
        self.calls.append(_Call(what, said, unit))

    @property
    def work_units(self) -> list[WorkUnit]:
        """Its unfinished work units."""
        return [call.unit for call in self.calls if call.unit is not None]

    @property
    def plans(self) -> bool:
        """Whether it is planning."""
        return any(call.what == "plan" for call in self.calls)


@dataclass(slots=True)
class Cluster:
    """The cluster of a run: joined when the first query must be computed, left at the end.

    Attributes:
        address: "" for a cluster of this machine's own, which ends with the run; `auto` or host:port to join one.
        n_workers: 0 for as many as there are GPUs or machines.
        on_gpu: whether the models run on GPUs where there are any.
        schedule_timeout_s: longest wait until Ray schedules the first worker.
        versions: package versions that workers must share with this process.
        n_workers_started: number of workers: those requested, less those given up.
        n_replaced: number of lost workers that were replaced.
    """

    address: str = ""
    n_workers: int = 0
    on_gpu: bool = True
    schedule_timeout_s: float = SCHEDULE_TIMEOUT_S
    versions: Versions = dict
    n_workers_started: int = 0
    n_replaced: int = 0
    _joined: bool = False
    _pool: _WorkerPool | None = None

    def __enter__(self) -> Self:
        check_address(self.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop_all()
        finally:
            if self._joined:
                leave()
                self._joined = False

    @property
    def workers(self) -> list[WorkerStarted]:
        """The workers that run now."""
        return [worker.placed for worker in (self._pool.handles if self._pool else []) if worker.placed is not None]

    def manifest_entry(self) -> dict[str, str | int]:
        """The `engine` entry of the manifest; 0 workers where every answer was cached."""
        return {"name": "ray", "workers": self.n_workers_started, "replaced": self.n_replaced}

    def engine(self, resolve: Resolve) -> Engine:
        """The engine for one model, which each worker resolves itself."""
        return partial(self._arriving, resolve)

    def _arriving(
        self,
        resolve: Resolve,
        handle: ModelHandle,
        distinct: dict[str, Query],
        stored: Mapping[str, Answer],
        protocol: str,
    ) -> Iterator[ModelLoaded | AnswerBatch]:
        pool = self._pool_for(resolve, handle.identity)
        before = pool.n_replaced
        try:
            yield from _Dispatch(pool, distinct, frozenset(stored), protocol).arriving()
        finally:
            self.n_replaced += pool.n_replaced - before
            self.n_workers_started = len(pool.handles)

    def _pool_for(self, resolve: Resolve, identity: ModelIdentity) -> _WorkerPool:
        """Workers that hold this model: the current pool, or a new one."""
        if self._pool is None or self._pool.identity != identity:
            self._join()
            self._stop_all()
            self._pool = _WorkerPool((resolve, identity, self.versions), self._shares(), self.schedule_timeout_s)
            self.n_workers_started = self._pool.shares.n_workers
        return self._pool

    def _stop_all(self) -> None:
        if self._pool is not None:
            self._pool.stop_all()
            self._pool = None

    def _shares(self) -> Allocation:
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return shares(nodes, self.n_workers, on_gpu=self.on_gpu)

    def _join(self) -> None:
        """Start a cluster, or join the named one; a program that has already joined one stays in it."""
        with _environment(ON_IMPORT):
            import ray

        if self._joined:
            return
        if ray.is_initialized():
            _check_same(self.address, ray.get_runtime_context().gcs_address)
            return
        try:
            if self.address:
                with _environment(ON_START):
                    _try_to_join(self.address)
                    ray.init(self.address, log_to_driver=False, logging_level=logging.CRITICAL)
            else:
                start(_cores())
        except (ray.exceptions.RayError, ImportError, OSError, RuntimeError, ValueError) as error:
            leave()
            raise UndertowError(_join_error(self.address, error)) from error
        self._joined = True


def start(n_cpus: int) -> None:
    """Start a local cluster with this number of processors, which ends with this process.

    Raises:
        UndertowError: it can be reached from elsewhere.
    """
    import ray
    from ray._private import ray_constants

    before = getattr(ray_constants, LOOPBACK_SWITCH, True)
    setattr(ray_constants, LOOPBACK_SWITCH, False)
    try:
        with _environment(ON_START | LOOPBACK), _token():
            ray.init(
                "local",
                num_cpus=n_cpus,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
            )
    finally:
        setattr(ray_constants, LOOPBACK_SWITCH, before)
    beyond = [node["NodeManagerAddress"] for node in ray.nodes() if not _is_loopback(node["NodeManagerAddress"])]
    if beyond:
        leave()
        raise UndertowError(
            f"this version of Ray ({ray.__version__}) listens on {beyond[0]}, where others can reach it, and not on the loopback "
            "only; run `pip install ray==2.55.1`, or leave --engine out"
        )


def leave() -> None:
    """Leave the cluster; stop it if this process started it."""
    import ray

    ray.shutdown()
    _read_authentication()


@contextmanager
def _token() -> Iterator[None]:
    """Set a random token for a cluster that starts within the context; its processes inherit it.

    A token in the user's environment takes precedence. Ray before 2.52 has no tokens.
    """
    if not _read_authentication():
        yield
        return
    with _environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
        _read_authentication()
        yield


def _read_authentication() -> bool:
    """Make Ray read the environment again, which it reads when imported; False if this version has no tokens."""
    inside = importlib.import_module("ray._raylet")
    if not hasattr(inside, "AuthenticationTokenLoader") or not hasattr(inside, "Config"):
        return False
    inside.Config.initialize("")
    inside.AuthenticationTokenLoader.instance().reset_cache()
    return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class _WorkerPool:
    """Workers that hold one model, kept between batches of items."""

    def __init__(
        self, model: tuple[Resolve, ModelIdentity, Versions], divided: Allocation, schedule_timeout_s: float
    ) -> None:
        (self.resolve, self.identity, self.versions), self.shares, self.schedule_timeout_s = (
            model,
            divided,
            schedule_timeout_s,
        )
        self.handles: list[_WorkerHandle] = []
        self.facts: Mapping[str, str | float] | None = None
        self.n_replaced = 0
        self.waits_since = time.monotonic()
        for _ in range(divided.n_workers):
            self.start_worker()

    def start_worker(self) -> _WorkerHandle:
        """Start one more worker, which opens the model."""
        import ray

        if not any(worker.placed for worker in self.handles):
            self.waits_since = time.monotonic()
        actor = (
            ray.remote(Worker)
            .options(num_cpus=self.shares.cpus, num_gpus=self.shares.gpus, scheduling_strategy="SPREAD")
            .remote(str(Path.cwd()), os.environ.get(THREADS) or str(self.shares.threads))
        )
        worker = _WorkerHandle(actor)
        worker.send("open", self.resolve, self.identity.key(EXACT), self.versions, dict(self.versions()))
        self.handles.append(worker)
        return worker

    def stop_worker(self, worker: _WorkerHandle) -> None:
        """Kill its process."""
        import ray

        self.handles.remove(worker)
        ray.kill(worker.actor)

    def stop_all(self) -> None:
        """Kill all workers."""
        for worker in list(self.handles):
            self.stop_worker(worker)

    def check_schedule_timeout(self) -> None:
        """Stop waiting after `schedule_timeout_s`.

        Raises:
            UndertowError: Ray has scheduled no worker in that time.
        """
        import ray

        if (
            any(worker.placed for worker in self.handles)
            or time.monotonic() - self.waits_since < self.schedule_timeout_s
        ):
            return
        has, free = ray.cluster_resources(), ray.available_resources()
        wanted = {"CPU": self.shares.cpus, "GPU": self.shares.gpus}
        needs = " and ".join(f"{number} {kind}" for kind, number in wanted.items() if number)
        there = " and ".join(
            f"{free.get(kind, 0):g} of {has.get(kind, 0):g} {kind}" for kind, number in wanted.items() if number
        )
        raise UndertowError(
            f"Ray could not schedule a worker within {self.schedule_timeout_s:.0f} seconds: each needs {needs}, and {there} are free; "
            "wait until other jobs end, or change --workers or --device"
        )


class _Dispatch:
    """The queries of one engine call, dispatched to a worker pool."""

    def __init__(self, pool: _WorkerPool, distinct: dict[str, Query], stored: frozenset[str], protocol: str) -> None:
        import ray

        self.pool, self.protocol = pool, protocol
        self.queries, self.stored = ray.put(distinct), ray.put(stored)
        self.waiting: deque[WorkUnit] = deque()
        self.planned: set[str] = set()
        self.all_planned = False
        self.losses: Counter[WorkUnit | str] = Counter()
        self.suspects: set[WorkUnit] = set()
        for worker in pool.handles:
            worker.notes = ()
            worker.send("set_queries", self.queries, protocol)
        self.gone_notes: tuple[str, ...] = ()

    def arriving(self) -> Iterator[ModelLoaded | AnswerBatch]:
        """Yield results until every query has an answer."""
        if self.pool.facts is not None:
            yield ModelLoaded(self.pool.facts)
        while not self._done():
            self._dispatch()
            for worker in self._wait_for_results():
                # An earlier result may have shown that this worker is lost.
                if worker in self.pool.handles:
                    yield from self._runner(worker)

    def _done(self) -> bool:
        return self.all_planned and not self.waiting and not any(worker.work_units for worker in self.pool.handles)

    def _dispatch(self) -> None:
        """Send the plan to a free worker, and work units to all that have few: a first unit to each before any second."""
        ready = [worker for worker in self.pool.handles if worker.opened]
        if not self.all_planned and ready and not any(worker.plans for worker in self.pool.handles):
            min(ready, key=lambda worker: len(worker.calls)).send("plan", self.stored)
        for n_at_each in range(UNITS_PER_WORKER):
            for worker in ready:
                if self.waiting and len(worker.work_units) == n_at_each and not worker.plans and self._may_join(worker):
                    unit = self.waiting.popleft()
                    worker.send("answer", unit, unit=unit)

    def _may_join(self, worker: _WorkerHandle) -> bool:
        """Whether the next work unit may queue at a worker: a suspect runs alone, so that the cause of a loss is known."""
        return not worker.work_units or not self.suspects & {self.waiting[0], *worker.work_units}

    def _wait_for_results(self) -> list[_WorkerHandle]:
        """Workers with new results, or lost ones; waits a moment for the first."""
        import ray

        fronts = {id(worker.calls[0].said): worker for worker in self.pool.handles if worker.calls}
        said = [worker.calls[0].said for worker in fronts.values()]
        ready, _ = ray.wait(said, num_returns=1, timeout=POLL_S)
        if not ready:
            self.pool.check_schedule_timeout()
            return []
        # All workers, so that the first of the list gets no preference.
        ready, _ = ray.wait(said, num_returns=len(said), timeout=0)
        return [fronts[id(one)] for one in ready]

    def _runner(self, worker: _WorkerHandle) -> Iterator[ModelLoaded | AnswerBatch]:
        import ray

        call = worker.calls[0]
        try:
            said = ray.get(next(call.said))
        except StopIteration:
            worker.calls.popleft()
            worker.losses[call.what] = 0
            self.all_planned = self.all_planned or call.what == "plan"
            return
        except ray.exceptions.RayTaskError:
            raise  # an error in our code, or memory ran out: another worker would fail too
        except ray.exceptions.RayError as error:
            self._lost(worker, error)
            return
        if isinstance(said, WorkerError):
            raise UndertowError(_with_machine(worker, said.sentence))
        if isinstance(said, TaskStarted):
            call.started = True
        elif isinstance(said, WorkerStarted):
            worker.placed = said
        elif isinstance(said, ModelLoaded):
            worker.opened = True
            if self.pool.facts is None:
                self.pool.facts = said.facts
                yield said
            check_weights(self.pool.identity.name, self.pool.facts, said.facts)
        elif isinstance(said, WorkUnit):
            self._add_work_unit(said)
        else:
            worker.notes = said.notes
            yield replace(said, notes=self._notes())

    def _add_work_unit(self, unit: WorkUnit) -> None:
        """Add a part of the plan, less what is planned already: a plan repeated after a loss may cut differently."""
        packs = (tuple(digest for digest in pack if digest not in self.planned) for pack in unit.packs)
        left = replace(unit, packs=tuple(pack for pack in packs if pack))
        if left.packs:
            self.planned.update(digest for pack in left.packs for digest in pack)
            self.waiting.append(left)
            self.losses["plan"] = 0

    def _notes(self) -> tuple[str, ...]:
        """The notes of all workers so far."""
        said = (note for worker in self.pool.handles for note in worker.notes)
        return tuple(dict.fromkeys([*self.gone_notes, *said]))

    def _lost(self, worker: _WorkerHandle, error: Exception) -> None:
        """Replace a lost worker and queue its work units again; the current call (or the place in the pool) counts a loss.

        Raises:
            UndertowError: too many workers were lost over the same call.
        """
        call = worker.calls[0]
        # A worker that was lost before it started the call does not implicate the call.
        losses, subject = (self.losses, call.subject) if call.started else (worker.losses, call.what)
        losses[subject] += 1
        self.suspects.update(worker.work_units)
        self.waiting.extendleft(reversed(worker.work_units))
        self.gone_notes = tuple(dict.fromkeys([*self.gone_notes, *worker.notes]))
        self.pool.stop_worker(worker)
        if losses[subject] >= MAX_LOSSES:
            # A machine where the model does not fit does not stop the others.
            if subject == "open" and any(other.opened for other in self.pool.handles):
                return
            raise UndertowError(_hopeless(subject, error))
        successor = self.pool.start_worker()
        successor.losses = worker.losses
        successor.send("set_queries", self.queries, self.protocol)
        self.pool.n_replaced += 1


def _with_machine(worker: _WorkerHandle, sentence: str) -> str:
    """A worker's error, with its machine where that is another one."""
    placed = worker.placed
    return sentence if placed is None or placed.host == socket.gethostname() else f"{sentence} (on {placed.where})"


def _hopeless(subject: WorkUnit | str, error: Exception) -> str:
    doing = {
        "open": "while it opened the model",
        "plan": "while it planned the work units",
        "set_queries": "while it received the queries",
        "answer": "before its first answer",
    }
    where = doing[subject] if isinstance(subject, str) else f"over the same {_pluralize(subject.n_queries, 'query')}"
    return (
        f"a worker was lost {MAX_LOSSES} times in a row {where} ({type(error).__name__}: {_reason(error)}); all answers so far are "
        "stored; if memory ran out, lower --workers; run the same command again"
    )


def _reason(error: Exception) -> str:
    """The reason in Ray's error message, on one line."""
    text = str(error)
    exit_detail = re.search(r"Worker exit detail: (.*?)(?:\. Some common|\. There are some|$)", text, re.DOTALL)
    lines = [line.strip() for line in (exit_detail[1] if exit_detail else text).splitlines() if line.strip()]
    return (
        (lines[0] if exit_detail or len(lines) < 2 else f"{lines[0]} {lines[-1]}").rstrip(".")
        if lines
        else "no reason given"
    )


# Joining.


def check_ray() -> None:
    """Check that Ray is installed, without importing it.

    Raises:
        UndertowError: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise UndertowError("--engine ray needs Ray: run `pip install 'undertow[ray]'`")


def check_address(address: str) -> None:
    """Check a cluster address.

    Raises:
        UndertowError: the address is invalid, or is one of Ray's client, which cannot stream.
    """
    if address.startswith("ray://"):
        raise UndertowError(
            f"--ray-address {address} is an address of Ray's client, which cannot stream answers; run the command on a machine of the "
            "cluster with --ray-address auto"
        )
    host, _, port = address.rpartition(":")
    if address not in ("", "auto") and not (host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UndertowError(
            f"--ray-address {address!r} is not an address; use auto, or HOST:PORT as `ray start --head` prints it"
        )


def _check_same(address: str, joined: str) -> None:
    """Check that the cluster that this program has joined is the requested one.

    Raises:
        UndertowError: it is another cluster.
    """
    if address not in ("", "auto") and _numeric(address) != _numeric(joined):
        raise UndertowError(
            f"this program has joined the Ray cluster at {joined}, and --ray-address {address} is another; leave the address out, or "
            "call ray.shutdown() before the run"
        )


def _numeric(address: str) -> str:
    """The address with the host's IP number."""
    host, _, port = address.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{int(port)}"
    except OSError:
        return address


# Ray retries for minutes and prints each attempt, so a subprocess tries first.
TRY = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=50)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _try_to_join(address: str) -> None:
    """Check in a subprocess that a cluster can be joined.

    Raises:
        OSError: it cannot be joined, or not in time.
    """
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=JOIN_TIMEOUT_S / 3).close()
    try:
        tried = subprocess.run(
            # Without the working folder on the import path: a ray.py there would be executed.
            [sys.executable, "-P", "-c", TRY, address],
            capture_output=True,
            text=True,
            timeout=JOIN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the server there is not Ray, or did not answer for {JOIN_TIMEOUT_S:.0f} seconds") from error
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
        raise OSError((said[0].partition(": ")[2] if said else "no reason given").rstrip("."))


def _join_error(address: str, error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
    if not address:
        return (
            f"Ray cannot be started on this machine ({first}); run `pip install --upgrade 'undertow[ray]'`, free disk "
            "space and shared memory for it, or leave --engine out"
        )
    if address == "auto":
        return (
            f"no Ray cluster was found on this machine ({first}); start it with `ray start`, or leave --ray-address out"
        )
    return f"no Ray cluster can be joined at {address} ({first}); start one there with `ray start --head`, or leave --ray-address out"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context; those that the user has set take precedence."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _cores() -> int:
    """Number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
