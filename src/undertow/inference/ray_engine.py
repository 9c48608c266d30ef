"""Inference with Ray: workers on this machine or a cluster each hold the model and compute work units.

    driver (this process)              workers (Ray actors)
    queries, once              ---->   each resolves and opens the model itself, once
                               <----   one of them makes the plan
    a work unit, if free       ---->   one in progress at each
    the cache                  <----   answers of the unit

The plan is that of a single process, and the answers of a work unit depend on the unit alone, so any worker may compute
it, and more than once. Ray restarts a lost worker and repeats what it was doing; the worker then opens its model again.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any, Self, TypeAlias

from undertow.errors import UndertowError, counted
from undertow.inference.ray_connection import dismiss, join, leave, start_witness
from undertow.inference.runner import Engine, check_weights
from undertow.inference.work_units import AnswerBatch, ModelLoaded, QueryRunner, WorkUnit, facts_of
from undertow.models.base import LoadedModel, ModelHandle
from undertow.types import EXACT, Answer, ModelIdentity, Query

Resolve: TypeAlias = Callable[[], ModelHandle]
"""Resolves the model on a worker; must be picklable."""
Versions: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns versions by package, which must be equal on all workers; must be picklable."""
Facts: TypeAlias = Mapping[str, str | float]
Place: TypeAlias = tuple[int, int]
"""Number of a worker, and its process."""

MAX_LOSSES = 3
"""Workers that may be lost over the same call."""
SCHEDULE_TIMEOUT_S = 120.0
"""Seconds until Ray must schedule the first worker."""
POLL_S = 1.0
MAX_UNIT_PROMPTS = 32
"""Prompts of a work unit, if the model has no packs."""
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Number of workers, and the processors, GPUs and threads of each."""

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
    takes_gpu = on_gpu and any(gpus)
    has, kind, other = (
        (sum(gpus), "GPU", "--device cpu") if takes_gpu else (sum(cpus), "processor", "join a larger one")
    )
    if not has:
        raise UndertowError("the cluster has no processor for a worker; join another with --ray-address")
    wanted = n_workers or (has if takes_gpu else sum(map(bool, cpus)))
    if wanted > has:
        raise UndertowError(
            f"{wanted} workers are more than the {counted(has, kind)} of the cluster; give --workers {has} or fewer, or {other}"
        )
    if takes_gpu:
        share = min(n_cpus // n_gpus for n_cpus, n_gpus in zip(cpus, gpus, strict=True) if n_gpus)
        return Allocation(wanted, share, 1, max(1, share))
    share = max(size for size in range(1, max(cpus) + 1) if sum(n_cpus // size for n_cpus in cpus) >= wanted)
    return Allocation(wanted, share, 0, share)


@dataclass(frozen=True, slots=True)
class Round:
    """One engine call: its number, its protocol, and what fetches its queries by digest."""

    number: int
    protocol: str
    fetch: Callable[[], dict[str, Query]]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a worker's model is from: what resolves it and returns versions there, and the driver's key, versions and machine."""

    resolve: Resolve
    key: str
    versions: Versions
    expected: Mapping[str, str]
    driver: str = ""


class Worker:
    """The actor in each worker's process. It opens its model with the first call, also after Ray has restarted it."""

    def __init__(self, number: int, source: ModelSource, folder: str, threads: str) -> None:
        # Before torch is imported, which reads it once.
        os.environ[THREADS] = threads
        # Paths of models are relative to the user's working folder.
        if Path(folder).is_dir():
            os.chdir(folder)
        self.place = number, os.getpid()
        self.source = source
        self.model: LoadedModel | None = None
        self.runner: tuple[int, QueryRunner] | None = None

    def open(self) -> tuple[Place, Facts]:
        """Facts about the model.

        Raises:
            UndertowError: model or versions differ from the driver's.
        """
        with self._naming():
            return self.place, facts_of(self._opened())

    def plan(self, given: Round, stored: frozenset[str]) -> list[WorkUnit | AnswerBatch]:
        """The work units that are left, and answers for queries that the model cannot score."""
        with self._naming():
            return list(self._runner(given).work_units(stored, MAX_UNIT_PROMPTS))

    def answer(self, given: Round, unit: WorkUnit) -> tuple[Place, list[AnswerBatch]]:
        """The answers of a work unit."""
        with self._naming():
            return self.place, list(self._runner(given).answers(unit))

    def _opened(self) -> LoadedModel:
        if self.model is None:
            there = self.source.versions()
            for package, wanted in self.source.expected.items():  # others may round differently or change the protocol
                if (has := there.get(package, "not installed")) != wanted:
                    raise UndertowError(
                        f"{package} is {has} on {self._where} and {wanted} on the driver; install the same version on both"
                    )
            handle = self.source.resolve()
            if handle.identity.key(EXACT) != self.source.key:
                raise UndertowError(
                    f"{handle.identity.name}: the model on {self._where} differs from the driver's; put the same files there"
                )
            self.model = handle.open()
        return self.model

    def _runner(self, given: Round) -> QueryRunner:
        if self.runner is None or self.runner[0] != given.number:
            self.runner = given.number, QueryRunner(self._opened(), given.fetch(), given.protocol)
        return self.runner[1]

    @property
    def _where(self) -> str:
        """Machine and process, in words."""
        return f"{socket.gethostname()}, process {os.getpid()}"

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Add the machine to errors, where that is not the driver's."""
        try:
            yield
        except UndertowError as error:
            elsewhere = self.source.driver not in ("", socket.gethostname())
            raise UndertowError(f"{error} (on {self._where})" if elsewhere else str(error)) from None


@dataclass(slots=True)
class Cluster:
    """The cluster of a run: joined when the first query must be computed, left at the end.

    Attributes:
        address: "" for a cluster of this machine's own, which ends with the run; `auto` or host:port to join one.
        n_workers, on_gpu: as for `shares`.
        schedule_timeout_s: longest wait until Ray schedules the first worker.
        versions: package versions that workers must share with this process.
        workers: those of the current model, as Ray actors.
        n_workers_started: those requested, less those given up.
        n_replaced: lost workers that Ray has restarted.
    """

    address: str = ""
    n_workers: int = 0
    on_gpu: bool = True
    schedule_timeout_s: float = SCHEDULE_TIMEOUT_S
    versions: Versions = dict
    workers: list[Any] = field(default_factory=list)
    n_workers_started: int = 0
    n_replaced: int = 0
    _joined: bool = False
    _witness: Popen[bytes] | None = None
    _identity: ModelIdentity | None = None
    _process_of: dict[int, int] = field(default_factory=dict)
    _n_calls: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._stop(*self.workers)
        finally:
            if self._witness is not None:
                dismiss(self._witness)
                self._witness = None
            if self._joined:
                leave()
                self._joined = False

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
        if not self._joined:
            self._joined = join(self.address)
        self._witness = self._witness or start_witness()
        import ray

        try:
            self._start(resolve, handle.identity)
            self._n_calls += 1
            given = Round(self._n_calls, protocol, partial(ray.get, ray.put(distinct)))
            yield from self._answers(handle.identity.name, given, frozenset(stored))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UndertowError):
                raise UndertowError(str(error.cause)) from None
            if isinstance(error.cause, OSError):  # as of a pipe to Ray's servers, or of a file
                raise UndertowError(
                    f"a worker failed ({type(error.cause).__name__}: {_reason(error.cause)}); all answers so far are stored; remove the "
                    "cause, and run the same command again"
                ) from error
            raise  # an error in our code, or memory ran out: another worker would fail too
        except (ray.exceptions.RaySystemError, ConnectionError) as error:
            raise UndertowError(
                f"Ray's servers were lost ({type(error).__name__}: {_reason(error)}); all answers so far are stored; restart a cluster of "
                "your own, and run the same command again"
            ) from error
        except ray.exceptions.RayError as error:
            raise UndertowError(
                f"a worker was lost {MAX_LOSSES} times over the same queries ({type(error).__name__}: {_reason(error)}); all answers so "
                "far are stored; if memory ran out, lower --workers; run the same command again"
            ) from error

    def _answers(self, name: str, given: Round, stored: frozenset[str]) -> Iterator[ModelLoaded | AnswerBatch]:
        """What workers answer, from the first that holds the model on."""
        import ray
        from ray.util import ActorPool

        opening = {worker.open.remote(): worker for worker in self.workers}
        opened = None
        while opened is None:
            opened = self._opened(opening, ray.wait(list(opening), num_returns=1)[0][0])
        first, facts = opened
        yield ModelLoaded(facts)
        planned = ray.get(first.plan.remote(given, stored))
        yield from (one for one in planned if isinstance(one, AnswerBatch))
        pool = ActorPool([first])
        for unit in planned:
            if isinstance(unit, WorkUnit):
                pool.submit(lambda worker, unit: worker.answer.remote(given, unit), unit)
        notes: dict[str, None] = {}
        while pool.has_next():
            ready, _ = ray.wait(list(opening), num_returns=len(opening), timeout=0) if opening else ([], [])
            for worker, others in filter(None, (self._opened(opening, one) for one in ready)):
                check_weights(name, facts, others)
                pool.push(worker)
            try:
                place, batches = pool.get_next_unordered(timeout=POLL_S)
            except TimeoutError:
                continue
            self._count(place)
            for batch in batches:
                notes |= dict.fromkeys(batch.notes)
                yield replace(batch, notes=tuple(notes))

    def _opened(self, opening: dict[Any, Any], call: Any) -> tuple[Any, Facts] | None:
        """A worker that has opened its model; None, and one worker less, where it was lost over that and others are left."""
        import ray

        worker = opening.pop(call)
        try:
            place, facts = ray.get(call)
        except ray.exceptions.RayActorError:
            if len(self.workers) == 1:
                raise
            self._stop(worker)
            self.n_workers_started -= 1
            return None
        self._count(place)
        return worker, facts

    def _count(self, place: Place) -> None:
        """Count a replacement where a worker has another process than before."""
        number, process = place
        self.n_replaced += self._process_of.get(number, process) != process
        self._process_of[number] = process

    def _start(self, resolve: Resolve, identity: ModelIdentity) -> None:
        """Start workers for this model, unless those that run hold it."""
        import ray

        if self.workers and self._identity == identity:
            return
        self._stop(*self.workers)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        divided = shares(nodes, self.n_workers, on_gpu=self.on_gpu)
        source = ModelSource(resolve, identity.key(EXACT), self.versions, dict(self.versions()), socket.gethostname())
        threads = os.environ.get(THREADS) or str(divided.threads)
        kind = ray.remote(Worker).options(
            num_cpus=divided.cpus,
            num_gpus=divided.gpus,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=MAX_LOSSES - 1,
        )
        self.workers = [kind.remote(number, source, str(Path.cwd()), threads) for number in range(divided.n_workers)]
        self._identity, self._process_of, self.n_workers_started = identity, {}, divided.n_workers
        started = [worker.__ray_ready__.remote() for worker in self.workers]
        if ray.wait(started, num_returns=1, timeout=self.schedule_timeout_s)[0]:
            return
        has, free = ray.cluster_resources(), ray.available_resources()
        wanted = {kind: number for kind, number in (("CPU", divided.cpus), ("GPU", divided.gpus)) if number}
        needs = " and ".join(f"{number} {kind}" for kind, number in wanted.items())
        there = " and ".join(f"{free.get(kind, 0):g} of {has.get(kind, 0):g} {kind}" for kind in wanted)
        raise UndertowError(
            f"Ray could not schedule a worker within {self.schedule_timeout_s:.0f} seconds: each needs {needs}, and {there} are free; "
            "wait until other jobs end, or change --workers or --device"
        )

    def _stop(self, *workers: Any) -> None:
        import ray

        for worker in workers:
            self.workers.remove(worker)
            ray.kill(worker)


def _reason(error: Exception) -> str:
    """The reason in Ray's error message, on one line."""
    detail = re.search(r"Worker exit detail: (.*?)(?:\. Some common|\. There are some|$)", str(error), re.DOTALL)
    lines = [line.strip() for line in (detail[1] if detail else str(error)).splitlines() if line.strip()]
    reasons = lines[:1] if detail else dict.fromkeys([*lines[:1], *lines[-1:]])
    return " ".join(reasons).rstrip(".") or "no reason given"
