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
"""Finds the model where it is called; it is sent to the workers, so it must be picklable."""
Versions: TypeAlias = Callable[[], Mapping[str, str]]
"""Tells the versions, by package, that must be the same wherever a model is asked; picklable too."""

AT_EACH = 2
"""Portions under way at a worker: one that it answers, and one that waits, so that it is never without."""
STRIKES = 3
"""So many workers in a row may be lost over the same questions, or in the same place of the crew."""
PLACED_S = 120.0
"""How long no worker at all may find a place in the cluster."""
JOIN_S = 30.0
"""How long a cluster may take to be joined."""
LOOK_S = 1.0
MAX_FREE = 32
"""Prompts of one portion, where the model answers each by itself."""
STORE_BYTES = 128 * 2**20
"""Ray's own store on this machine: it holds the queries, and answers that are on their way."""
THREADS = "OMP_NUM_THREADS"

ON_IMPORT = {
    # What Ray says of lost workers would go to standard output, among what we print.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
ON_START = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""What Ray reads in the environment. Its servers run what they are sent, so those for this machine alone listen on its loopback
alone, as Ray has it on systems that it does not build clusters of."""
LOOPBACK_SWITCH = "ENABLE_RAY_CLUSTER"
"""Ray's own constant for the same, read from the environment when Ray was imported."""


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker runs.

    Attributes:
        host: its machine.
        pid: its process there.
    """

    host: str
    pid: int

    @property
    def where(self) -> str:
        """In words."""
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
        cpus, gpus: resources that each requests.
        threads: threads of each.
    """

    n_workers: int
    cpus: int
    gpus: int
    threads: int


def shares(nodes: Sequence[Mapping[str, float]], n_workers: int, *, on_gpu: bool) -> Allocation:
    """Divide a cluster: by default one worker for every GPU, or else for every machine.

    Each worker holds the model, so the default needs its memory once for each GPU or machine.

    Args:
        nodes: what each machine has, as Ray says it (`CPU`, `GPU`).
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
                f"{wanted} workers are more than the {_counted(sum(gpus), 'GPU')} of the cluster; give --workers {sum(gpus)} or "
                "fewer, or --device cpu"
            )
        share = min(n_cpus // n_gpus for n_cpus, n_gpus in zip(cpus, gpus, strict=True) if n_gpus)
        return Allocation(wanted, share, 1, max(1, share))
    if not any(cpus):
        raise UndertowError("the cluster has no processor for a worker; join another with --ray-address")
    wanted = n_workers or sum(1 for n_cpus in cpus if n_cpus)
    if wanted > sum(cpus):
        raise UndertowError(
            f"{wanted} workers are more than the {_counted(sum(cpus), 'processor')} of the cluster; give --workers {sum(cpus)} or "
            "fewer, or join a larger one"
        )
    share = max(size for size in range(1, max(cpus) + 1) if sum(n_cpus // size for n_cpus in cpus) >= wanted)
    return Allocation(wanted, share, 0, share)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class Worker:
    """The actor in each worker's process. Every method is a generator whose items are sent at once."""

    def __init__(self, folder: str, threads: str) -> None:
        # Before torch is there, which reads it once.
        os.environ[THREADS] = threads
        # A model's path is one from the folder that the user stands in.
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
        yield from _or_refused(self._opened(resolve, key, (versions, expected), placed.where))

    def _opened(
        self, resolve: Resolve, key: str, versions: tuple[Versions, Mapping[str, str]], where: str
    ) -> Iterator[ModelLoaded]:
        _check_versions(versions[0](), versions[1], where)
        handle = resolve()
        if handle.identity.key(EXACT) != key:
            raise UndertowError(
                f"{handle.identity.name}: on {where} is another model than where the run was started; put the same files there"
            )
        self.model = handle.open()
        yield ModelLoaded(facts_of(self.model))

    def hear(self, queries: dict[str, Query], protocol: str) -> Iterator[WorkerError]:
        """Receive the queries."""
        self.runner = QueryRunner(self.model, queries, protocol)
        yield from ()

    def plan(self, stored: frozenset[str]) -> Iterator[TaskStarted | WorkUnit | AnswerBatch | WorkerError]:
        """Yield the work units that are left."""
        yield TaskStarted()
        yield from _or_refused(self._heard().work_units(stored, MAX_FREE))

    def answer(self, unit: WorkUnit) -> Iterator[TaskStarted | AnswerBatch | WorkerError]:
        """Compute a work unit."""
        yield TaskStarted()
        yield from _or_refused(self._heard().answers(unit))

    def _heard(self) -> QueryRunner:
        if self.runner is None:
            raise RuntimeError("a worker was told to plan or answer before it heard the queries")
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
                f"{package} on {where} is {has}, and {wanted} where the run was started; install the same on both"
            )


def _or_refused(said: Iterator[Any]) -> Iterator[Any]:
    """Send an `UndertowError` to the driver as a sentence; every other exception propagates."""
    try:
        # Not `yield from`: Ray sends values in, which plain iterators do not take.
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
        begun: whether the worker has started it.
    """

    what: str
    said: Any
    unit: WorkUnit | None = None
    begun: bool = False

    @property
    def subject(self) -> WorkUnit | str:
        """The work unit or method that counts a strike if the worker is lost."""
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
        strikes: consecutive losses in its place, by call.
    """

    actor: Any
    calls: deque[_Call] = field(default_factory=deque)
    placed: WorkerStarted | None = None
    opened: bool = False
    notes: tuple[str, ...] = ()
    strikes: Counter[WorkUnit | str] = field(default_factory=Counter)

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
        patience_s: longest wait until Ray schedules the first worker.
        versions: package versions that workers must share with this process.
        n_hired: number of workers: those requested, less those given up.
        n_replaced: number of lost workers that were replaced.
    """

    address: str = ""
    n_workers: int = 0
    on_gpu: bool = True
    patience_s: float = PLACED_S
    versions: Versions = dict
    n_hired: int = 0
    n_replaced: int = 0
    _joined: bool = False
    _crew: _WorkerPool | None = None

    def __enter__(self) -> Self:
        check_address(self.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._dismiss()
        finally:
            if self._joined:
                leave()
                self._joined = False

    @property
    def workers(self) -> list[WorkerStarted]:
        """The workers that run now."""
        return [worker.placed for worker in (self._crew.hired if self._crew else []) if worker.placed is not None]

    def manifest_entry(self) -> dict[str, str | int]:
        """The `engine` entry of the manifest; 0 workers where every answer was cached."""
        return {"name": "ray", "workers": self.n_hired, "replaced": self.n_replaced}

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
        crew = self._crew_for(resolve, handle.identity)
        before = crew.n_replaced
        try:
            yield from _Dispatch(crew, distinct, frozenset(stored), protocol).arriving()
        finally:
            self.n_replaced += crew.n_replaced - before
            self.n_hired = len(crew.hired)

    def _crew_for(self, resolve: Resolve, identity: ModelIdentity) -> _WorkerPool:
        """Workers that hold this model: the current pool, or a new one."""
        if self._crew is None or self._crew.identity != identity:
            self._join()
            self._dismiss()
            self._crew = _WorkerPool((resolve, identity, self.versions), self._shares(), self.patience_s)
            self.n_hired = self._crew.shares.n_workers
        return self._crew

    def _dismiss(self) -> None:
        if self._crew is not None:
            self._crew.dismiss()
            self._crew = None

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
            raise UndertowError(_not_joined(self.address, error)) from error
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
                object_store_memory=STORE_BYTES,
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
    """A password for what is started meanwhile, drawn again, which its processes inherit and this one remembers.

    What the user says of passwords in the environment stays. A Ray that has none, before 2.52, starts without.
    """
    if not _read_authentication():
        yield
        return
    with _environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
        _read_authentication()
        yield


def _read_authentication() -> bool:
    """Have Ray read the environment again, which it does once, when it is imported; False if this Ray cannot."""
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

    def __init__(self, model: tuple[Resolve, ModelIdentity, Versions], divided: Allocation, patience_s: float) -> None:
        (self.resolve, self.identity, self.versions), self.shares, self.patience_s = model, divided, patience_s
        self.hired: list[_WorkerHandle] = []
        self.facts: Mapping[str, str | float] | None = None
        self.n_replaced = 0
        self.waits_since = time.monotonic()
        for _ in range(divided.n_workers):
            self.hire()

    def hire(self) -> _WorkerHandle:
        """Start one more worker, which opens the model."""
        import ray

        if not any(worker.placed for worker in self.hired):
            self.waits_since = time.monotonic()
        actor = (
            ray.remote(Worker)
            .options(num_cpus=self.shares.cpus, num_gpus=self.shares.gpus, scheduling_strategy="SPREAD")
            .remote(str(Path.cwd()), os.environ.get(THREADS) or str(self.shares.threads))
        )
        worker = _WorkerHandle(actor)
        worker.send("open", self.resolve, self.identity.key(EXACT), self.versions, dict(self.versions()))
        self.hired.append(worker)
        return worker

    def let_go(self, worker: _WorkerHandle) -> None:
        """Kill its process."""
        import ray

        self.hired.remove(worker)
        ray.kill(worker.actor)

    def dismiss(self) -> None:
        """Kill all workers."""
        for worker in list(self.hired):
            self.let_go(worker)

    def check_patience(self) -> None:
        """Stop waiting after `patience_s`.

        Raises:
            UndertowError: Ray has scheduled no worker in that time.
        """
        import ray

        if any(worker.placed for worker in self.hired) or time.monotonic() - self.waits_since < self.patience_s:
            return
        has, free = ray.cluster_resources(), ray.available_resources()
        wanted = {"CPU": self.shares.cpus, "GPU": self.shares.gpus}
        needs = " and ".join(f"{number} {kind}" for kind, number in wanted.items() if number)
        there = " and ".join(
            f"{free.get(kind, 0):g} of {has.get(kind, 0):g} {kind}" for kind, number in wanted.items() if number
        )
        raise UndertowError(
            f"no worker found a place in the cluster within {self.patience_s:.0f} seconds: each asks for {needs}, and {there} are "
            "free; wait until others are done, or ask for less with --workers or --device"
        )


class _Dispatch:
    """The queries of one engine call, dispatched to a worker pool."""

    def __init__(self, crew: _WorkerPool, distinct: dict[str, Query], stored: frozenset[str], protocol: str) -> None:
        import ray

        self.crew, self.protocol = crew, protocol
        self.queries, self.stored = ray.put(distinct), ray.put(stored)
        self.waiting: deque[WorkUnit] = deque()
        self.planned: set[str] = set()
        self.all_planned = False
        self.strikes: Counter[WorkUnit | str] = Counter()
        self.suspects: set[WorkUnit] = set()
        for worker in crew.hired:
            worker.notes = ()
            worker.send("hear", self.queries, protocol)
        self.gone_notes: tuple[str, ...] = ()

    def arriving(self) -> Iterator[ModelLoaded | AnswerBatch]:
        """Yield results until every query has an answer."""
        if self.crew.facts is not None:
            yield ModelLoaded(self.crew.facts)
        while not self._done():
            self._dispatch()
            for worker in self._with_news():
                # Another's news may have come first, and this one be lost since.
                if worker in self.crew.hired:
                    yield from self._heard(worker)

    def _done(self) -> bool:
        return self.all_planned and not self.waiting and not any(worker.work_units for worker in self.crew.hired)

    def _dispatch(self) -> None:
        """Send the plan to a free worker, and work units to all that have few: a first unit to each before any second."""
        ready = [worker for worker in self.crew.hired if worker.opened]
        if not self.all_planned and ready and not any(worker.plans for worker in self.crew.hired):
            min(ready, key=lambda worker: len(worker.calls)).send("plan", self.stored)
        for n_at_each in range(AT_EACH):
            for worker in ready:
                if self.waiting and len(worker.work_units) == n_at_each and not worker.plans and self._may_join(worker):
                    unit = self.waiting.popleft()
                    worker.send("answer", unit, unit=unit)

    def _may_join(self, worker: _WorkerHandle) -> bool:
        """Whether the next work unit may queue at a worker: a suspect runs alone, so that the cause of a loss is known."""
        return not worker.work_units or not self.suspects & {self.waiting[0], *worker.work_units}

    def _with_news(self) -> list[_WorkerHandle]:
        """Workers with new results, or lost ones; waits a moment for the first."""
        import ray

        fronts = {id(worker.calls[0].said): worker for worker in self.crew.hired if worker.calls}
        said = [worker.calls[0].said for worker in fronts.values()]
        ready, _ = ray.wait(said, num_returns=1, timeout=LOOK_S)
        if not ready:
            self.crew.check_patience()
            return []
        # All of them: the first of the list must not be preferred to the others.
        ready, _ = ray.wait(said, num_returns=len(said), timeout=0)
        return [fronts[id(one)] for one in ready]

    def _heard(self, worker: _WorkerHandle) -> Iterator[ModelLoaded | AnswerBatch]:
        import ray

        call = worker.calls[0]
        try:
            said = ray.get(next(call.said))
        except StopIteration:
            worker.calls.popleft()
            worker.strikes[call.what] = 0
            self.all_planned = self.all_planned or call.what == "plan"
            return
        except ray.exceptions.RayTaskError:
            raise  # an error in our own code, or memory that ran out: no other worker would do better
        except ray.exceptions.RayError as error:
            self._lost(worker, error)
            return
        if isinstance(said, WorkerError):
            raise UndertowError(_with_machine(worker, said.sentence))
        if isinstance(said, TaskStarted):
            call.begun = True
        elif isinstance(said, WorkerStarted):
            worker.placed = said
        elif isinstance(said, ModelLoaded):
            worker.opened = True
            if self.crew.facts is None:
                self.crew.facts = said.facts
                yield said
            check_weights(self.crew.identity.name, self.crew.facts, said.facts)
        elif isinstance(said, WorkUnit):
            self._take_in(said)
        else:
            worker.notes = said.notes
            yield replace(said, notes=self._notes())

    def _take_in(self, unit: WorkUnit) -> None:
        """Add a part of the plan, less what is planned already: a plan repeated after a loss may cut differently."""
        packs = (tuple(digest for digest in pack if digest not in self.planned) for pack in unit.packs)
        left = replace(unit, packs=tuple(pack for pack in packs if pack))
        if left.packs:
            self.planned.update(digest for pack in left.packs for digest in pack)
            self.waiting.append(left)
            self.strikes["plan"] = 0

    def _notes(self) -> tuple[str, ...]:
        """The notes of all workers so far."""
        said = (note for worker in self.crew.hired for note in worker.notes)
        return tuple(dict.fromkeys([*self.gone_notes, *said]))

    def _lost(self, worker: _WorkerHandle, error: Exception) -> None:
        """Replace a lost worker and queue its work units again; the current call (or the place in the pool) gets a strike.

        Raises:
            UndertowError: too many workers were lost over the same call.
        """
        call = worker.calls[0]
        # One that was gone before it began, with its machine perhaps, says nothing of what it was to do.
        strikes, subject = (self.strikes, call.subject) if call.begun else (worker.strikes, call.what)
        strikes[subject] += 1
        self.suspects.update(worker.work_units)
        self.waiting.extendleft(reversed(worker.work_units))
        self.gone_notes = tuple(dict.fromkeys([*self.gone_notes, *worker.notes]))
        self.crew.let_go(worker)
        if strikes[subject] >= STRIKES:
            # One machine where the model does not fit does not keep the others from going on.
            if subject == "open" and any(other.opened for other in self.crew.hired):
                return
            raise UndertowError(_hopeless(subject, error))
        successor = self.crew.hire()
        successor.strikes = worker.strikes
        successor.send("hear", self.queries, self.protocol)
        self.crew.n_replaced += 1


def _with_machine(worker: _WorkerHandle, sentence: str) -> str:
    """A worker's error, with its machine where that is another one."""
    placed = worker.placed
    return sentence if placed is None or placed.host == socket.gethostname() else f"{sentence} (on {placed.where})"


def _hopeless(subject: WorkUnit | str, error: Exception) -> str:
    doing = {
        "open": "while it opened the model",
        "plan": "while it planned what to ask",
        "hear": "as it was sent the queries",
        "answer": "before it could answer anything",
    }
    where = doing[subject] if isinstance(subject, str) else f"over the same {_counted(subject.n_queries, 'question')}"
    return (
        f"a worker was lost {STRIKES} times in a row {where} ({type(error).__name__}: {_reason(error)}); all answers so far are "
        "kept, so if memory ran out, give fewer --workers, and run the same command again"
    )


def _reason(error: Exception) -> str:
    """The part of Ray's page that says what happened, on one line."""
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
    """See that Ray is installed, without importing it.

    Raises:
        UndertowError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise UndertowError("--engine ray needs Ray: run `pip install 'undertow[ray]'`")


def check_address(address: str) -> None:
    """See that an address is one.

    Raises:
        UndertowError: it is none, or of Ray's client, which cannot stream.
    """
    if address.startswith("ray://"):
        raise UndertowError(
            f"--ray-address {address} is of Ray's client, which cannot stream answers; run the command on a machine of the cluster, "
            "with --ray-address auto"
        )
    host, _, port = address.rpartition(":")
    if address not in ("", "auto") and not (host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16):
        raise UndertowError(
            f"--ray-address {address!r} is no address; write auto, or HOST:PORT as `ray start --head` prints it"
        )


def _check_same(address: str, joined: str) -> None:
    """See that the cluster that a program is in is the one that was named, if any was.

    Raises:
        UndertowError: it is another.
    """
    if address not in ("", "auto") and _numeric(address) != _numeric(joined):
        raise UndertowError(
            f"this program has joined the Ray cluster at {joined}, and --ray-address {address} is another; leave the address out, or "
            "call ray.shutdown() before the run"
        )


def _numeric(address: str) -> str:
    """With the number of a machine in place of its name."""
    host, _, port = address.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{int(port)}"
    except OSError:
        return address


# Ray tries for minutes, each time with a line on the terminal, so another process tries first.
TRY = """
import sys, ray
try:
    ray.init(sys.argv[1], log_to_driver=False, logging_level=50)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _try_to_join(address: str) -> None:
    """See that a cluster can be joined.

    Raises:
        OSError: it cannot, or takes too long.
    """
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), timeout=JOIN_S / 3).close()
    try:
        tried = subprocess.run(
            # Not with the user's folder among those that Python imports from: a ray.py there would be run.
            [sys.executable, "-P", "-c", TRY, address],
            capture_output=True,
            text=True,
            timeout=JOIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"what answers there is no Ray, or was silent for {JOIN_S:.0f} seconds") from error
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
        raise OSError((said[0].partition(": ")[2] if said else "no reason given").rstrip("."))


def _not_joined(address: str, error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
    if not address:
        return (
            f"Ray cannot be started on this machine ({first}); run `pip install --upgrade 'undertow[ray]'`, see that there is room for "
            "its files and its shared memory, or leave --engine out"
        )
    if address == "auto":
        return (
            f"no Ray cluster was found on this machine ({first}); start it with `ray start`, or leave --ray-address out"
        )
    return f"no Ray cluster can be joined at {address} ({first}); start one there with `ray start --head`, or leave --ray-address out"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for a while; those that the user has set stay."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
