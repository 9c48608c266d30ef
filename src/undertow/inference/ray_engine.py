"""Asking with Ray: workers that each hold the model, on this machine or on a cluster, and portions handed out to them.

    driver (this process)              workers (Ray actors)
    queries, once              ---->   each finds and opens the model itself, once
                               <----   one of them makes the plan
    a portion to whoever is free --->  at most two under way at each
    the store                  <----   answers, as they arrive

The plan is that of a single process, and a portion's answers depend on the portion alone, so it does not matter who
answers what, nor how often it is begun. A worker that is lost is replaced, and what it had not answered is asked again.
Knows Ray, imported when a cluster is joined; knows no model family, and does not touch the store.
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

Find: TypeAlias = Callable[[], ModelHandle]
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
    """A worker has begun to run.

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
    """A worker is at what it was told to do, so if it is lost now, that may be why."""


@dataclass(frozen=True, slots=True)
class WorkerError:
    """A worker cannot go on.

    Attributes:
        sentence: what a user can mend.
    """

    sentence: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """How a cluster is divided among workers.

    Attributes:
        n_workers: how many.
        cpus, gpus: what each asks the cluster for.
        threads: of each.
    """

    n_workers: int
    cpus: int
    gpus: int
    threads: int


def shares(nodes: Sequence[Mapping[str, float]], n_workers: int, *, on_gpu: bool) -> Allocation:
    """Divide a cluster: a worker for every GPU, or else for every machine, if it is not said how many.

    Each worker holds the model, so by default memory is needed once for each GPU or machine, as it is by a single process.

    Args:
        nodes: what each machine has, as Ray says it (`CPU`, `GPU`).
        n_workers: how many are wanted; 0 for as many as fit.
        on_gpu: whether a model is run on GPUs where there are any.

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
    """What runs in each worker's process. Every method yields; what is yielded is sent at once."""

    def __init__(self, folder: str, threads: str) -> None:
        # Before torch is there, which reads it once.
        os.environ[THREADS] = threads
        # A model's path is one from the folder that the user stands in.
        if Path(folder).is_dir():
            os.chdir(folder)
        self.model: Any = None
        self.asker: QueryRunner | None = None

    def open(
        self, find: Find, key: str, versions: Versions, expected: Mapping[str, str]
    ) -> Iterator[WorkerStarted | ModelLoaded | WorkerError]:
        """Find the model, see that it is the driver's, read by the same versions, and open it."""
        placed = WorkerStarted(socket.gethostname(), os.getpid())
        yield placed
        yield from _or_refused(self._opened(find, key, (versions, expected), placed.where))

    def _opened(
        self, find: Find, key: str, versions: tuple[Versions, Mapping[str, str]], where: str
    ) -> Iterator[ModelLoaded]:
        _check_versions(versions[0](), versions[1], where)
        found = find()
        if found.identity.key(EXACT) != key:
            raise UndertowError(
                f"{found.identity.name}: on {where} is another model than where the run was started; put the same files there"
            )
        self.model = found.open()
        yield ModelLoaded(facts_of(self.model))

    def hear(self, queries: dict[str, Query], protocol: str) -> Iterator[WorkerError]:
        """The queries that will be asked."""
        self.asker = QueryRunner(self.model, queries, protocol)
        yield from ()

    def plan(self, stored: frozenset[str]) -> Iterator[TaskStarted | WorkUnit | AnswerBatch | WorkerError]:
        """What there is to ask."""
        yield TaskStarted()
        yield from _or_refused(self._heard().portions(stored, MAX_FREE))

    def answer(self, portion: WorkUnit) -> Iterator[TaskStarted | AnswerBatch | WorkerError]:
        """Ask it."""
        yield TaskStarted()
        yield from _or_refused(self._heard().answers(portion))

    def _heard(self) -> QueryRunner:
        if self.asker is None:
            raise RuntimeError("a worker was told to plan or answer before it heard the queries")
        return self.asker


def _check_versions(there: Mapping[str, str], expected: Mapping[str, str], where: str) -> None:
    """Other versions may round otherwise, or mean something else by the same message.

    Raises:
        UndertowError: a package is another version here than where the run was started.
    """
    for package, wanted in expected.items():
        has = there.get(package, "not installed")
        if has != wanted:
            raise UndertowError(
                f"{package} on {where} is {has}, and {wanted} where the run was started; install the same on both"
            )


def _or_refused(said: Iterator[Any]) -> Iterator[Any]:
    """What a user can mend goes to the driver as a sentence; everything else is an error of ours, or of the machine."""
    try:
        # Not `yield from`: Ray sends values in, which plain iterators do not take.
        for one in said:  # noqa: UP028
            yield one
    except UndertowError as error:
        yield WorkerError(str(error))


@dataclass(slots=True)
class _Call:
    """Something that a worker was told to do.

    Attributes:
        what: the worker's method.
        said: what comes of it, as references that Ray will have.
        portion: that is answered, if it is one.
        begun: whether the worker is at it.
    """

    what: str
    said: Any
    portion: WorkUnit | None = None
    begun: bool = False

    @property
    def subject(self) -> WorkUnit | str:
        """What is to blame if the worker is lost over it."""
        return self.portion or self.what


@dataclass(slots=True, eq=False)
class _WorkerHandle:
    """A worker, as the driver sees it.

    Attributes:
        actor: Ray's.
        calls: what it was told, in the order in which it does it.
        placed: where it runs; None while it waits for a place.
        opened: whether it holds the model.
        notes: what its model said last about how it was read.
        strikes: how many in a row were lost in its place, by what they were told to do.
    """

    actor: Any
    calls: deque[_Call] = field(default_factory=deque)
    placed: WorkerStarted | None = None
    opened: bool = False
    notes: tuple[str, ...] = ()
    strikes: Counter[WorkUnit | str] = field(default_factory=Counter)

    def tell(self, what: str, *given: Any, portion: WorkUnit | None = None) -> None:
        """Have it do something, after all else."""
        said = getattr(self.actor, what).options(num_returns="streaming").remote(*given)
        self.calls.append(_Call(what, said, portion))

    @property
    def portions(self) -> list[WorkUnit]:
        """What it has not answered yet."""
        return [call.portion for call in self.calls if call.portion is not None]

    @property
    def plans(self) -> bool:
        """Whether it makes the plan now."""
        return any(call.what == "plan" for call in self.calls)


@dataclass(slots=True)
class Cluster:
    """Where a run's models are asked: joined when the first question must be asked, left at the end.

    Attributes:
        address: "" for a cluster of this machine's own, which ends with the run; `auto` or host:port to join one.
        n_workers: 0 for as many as there are GPUs or machines.
        on_gpu: whether the models run on GPUs where there are any.
        patience_s: how long no worker at all may find a place.
        versions: what workers must have as this process has it.
        n_hired: workers of the crew, once a cluster was joined: as many as were wanted, less those that were given up.
        n_replaced: lost workers that others took the place of.
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
        """Those that run now."""
        return [worker.placed for worker in (self._crew.hired if self._crew else []) if worker.placed is not None]

    def told(self) -> dict[str, str | int]:
        """What the manifest says of it; no workers where nothing was left to ask."""
        return {"name": "ray", "workers": self.n_hired, "replaced": self.n_replaced}

    def engine(self, find: Find) -> Engine:
        """The engine for one model, which each worker finds by itself."""
        return partial(self._arriving, find)

    def _arriving(
        self, find: Find, found: ModelHandle, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
    ) -> Iterator[ModelLoaded | AnswerBatch]:
        crew = self._crew_for(find, found.identity)
        before = crew.n_replaced
        try:
            yield from _Dispatch(crew, distinct, frozenset(stored), protocol).arriving()
        finally:
            self.n_replaced += crew.n_replaced - before
            self.n_hired = len(crew.hired)

    def _crew_for(self, find: Find, card: ModelIdentity) -> _WorkerPool:
        """Workers that hold this model: those of the round before, or new ones in their place."""
        if self._crew is None or self._crew.card != card:
            self._join()
            self._dismiss()
            self._crew = _WorkerPool((find, card, self.versions), self._shares(), self.patience_s)
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
        """Start a cluster, or join the one that was named; a program that has joined one already stays in it."""
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
    """Start a cluster of this machine and this process alone, of so many processors, which ends with this process.

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
    """Leave the cluster; one that this process has started ends."""
    import ray

    ray.shutdown()
    _read_authentication()


@contextmanager
def _token() -> Iterator[None]:
    """A password for what is started meanwhile, drawn anew, which its processes inherit and this one remembers.

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
    """Workers that hold one model, from round to round."""

    def __init__(self, model: tuple[Find, ModelIdentity, Versions], divided: Allocation, patience_s: float) -> None:
        (self.find, self.card, self.versions), self.shares, self.patience_s = model, divided, patience_s
        self.hired: list[_WorkerHandle] = []
        self.facts: Mapping[str, str | float] | None = None
        self.n_replaced = 0
        self.waits_since = time.monotonic()
        for _ in range(divided.n_workers):
            self.hire()

    def hire(self) -> _WorkerHandle:
        """One more, told to open the model."""
        import ray

        if not any(worker.placed for worker in self.hired):
            self.waits_since = time.monotonic()
        actor = (
            ray.remote(Worker)
            .options(num_cpus=self.shares.cpus, num_gpus=self.shares.gpus, scheduling_strategy="SPREAD")
            .remote(str(Path.cwd()), os.environ.get(THREADS) or str(self.shares.threads))
        )
        worker = _WorkerHandle(actor)
        worker.tell("open", self.find, self.card.key(EXACT), self.versions, dict(self.versions()))
        self.hired.append(worker)
        return worker

    def let_go(self, worker: _WorkerHandle) -> None:
        """End its process, whatever it does."""
        import ray

        self.hired.remove(worker)
        ray.kill(worker.actor)

    def dismiss(self) -> None:
        """End all."""
        for worker in list(self.hired):
            self.let_go(worker)

    def check_patience(self) -> None:
        """Refuse to wait for ever.

        Raises:
            UndertowError: no worker has found a place for too long.
        """
        import ray

        if any(worker.placed for worker in self.hired) or time.monotonic() - self.waits_since < self.patience_s:
            return
        has, free = ray.cluster_resources(), ray.available_resources()
        wanted = {"CPU": self.shares.cpus, "GPU": self.shares.gpus}
        asked = " and ".join(f"{number} {kind}" for kind, number in wanted.items() if number)
        there = " and ".join(
            f"{free.get(kind, 0):g} of {has.get(kind, 0):g} {kind}" for kind, number in wanted.items() if number
        )
        raise UndertowError(
            f"no worker found a place in the cluster within {self.patience_s:.0f} seconds: each asks for {asked}, and {there} are "
            "free; wait until others are done, or ask for less with --workers or --device"
        )


class _Dispatch:
    """Queries, asked of a crew."""

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
            worker.tell("hear", self.queries, protocol)
        self.gone_notes: tuple[str, ...] = ()

    def arriving(self) -> Iterator[ModelLoaded | AnswerBatch]:
        """What comes, until all is answered."""
        if self.crew.facts is not None:
            yield ModelLoaded(self.crew.facts)
        while not self._done():
            self._hand_out()
            for worker in self._with_news():
                # Another's news may have come first, and this one be lost since.
                if worker in self.crew.hired:
                    yield from self._heard(worker)

    def _done(self) -> bool:
        return self.all_planned and not self.waiting and not any(worker.portions for worker in self.crew.hired)

    def _hand_out(self) -> None:
        """The plan to one that is free, and portions to all who have few, each a first one before any a second."""
        ready = [worker for worker in self.crew.hired if worker.opened]
        if not self.all_planned and ready and not any(worker.plans for worker in self.crew.hired):
            min(ready, key=lambda worker: len(worker.calls)).tell("plan", self.stored)
        for n_at_each in range(AT_EACH):
            for worker in ready:
                if self.waiting and len(worker.portions) == n_at_each and not worker.plans and self._may_join(worker):
                    portion = self.waiting.popleft()
                    worker.tell("answer", portion, portion=portion)

    def _may_join(self, worker: _WorkerHandle) -> bool:
        """Whether the next portion may wait behind those of a worker: a suspect is by itself, so that it is known what killed."""
        return not worker.portions or not self.suspects & {self.waiting[0], *worker.portions}

    def _with_news(self) -> list[_WorkerHandle]:
        """Workers that have said something, or are lost; waits a moment for one."""
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
            raise UndertowError(_told_from(worker, said.sentence))
        if isinstance(said, TaskStarted):
            call.begun = True
        elif isinstance(said, WorkerStarted):
            worker.placed = said
        elif isinstance(said, ModelLoaded):
            worker.opened = True
            if self.crew.facts is None:
                self.crew.facts = said.facts
                yield said
            check_weights(self.crew.card.name, self.crew.facts, said.facts)
        elif isinstance(said, WorkUnit):
            self._take_in(said)
        else:
            worker.notes = said.notes
            yield replace(said, notes=self._notes())

    def _take_in(self, portion: WorkUnit) -> None:
        """A part of the plan, less what has been planned: one that is made again, as its maker was lost, may cut otherwise."""
        packs = (tuple(digest for digest in pack if digest not in self.planned) for pack in portion.packs)
        left = replace(portion, packs=tuple(pack for pack in packs if pack))
        if left.packs:
            self.planned.update(digest for pack in left.packs for digest in pack)
            self.waiting.append(left)
            self.strikes["plan"] = 0

    def _notes(self) -> tuple[str, ...]:
        """What any worker has said so far about how it reads."""
        said = (note for worker in self.crew.hired for note in worker.notes)
        return tuple(dict.fromkeys([*self.gone_notes, *said]))

    def _lost(self, worker: _WorkerHandle, error: Exception) -> None:
        """Replace a worker, and put back what it had; what it was at has a strike, or else its place in the crew.

        Raises:
            UndertowError: too many were lost over the same thing.
        """
        call = worker.calls[0]
        # One that was gone before it began, with its machine perhaps, says nothing of what it was to do.
        strikes, subject = (self.strikes, call.subject) if call.begun else (worker.strikes, call.what)
        strikes[subject] += 1
        self.suspects.update(worker.portions)
        self.waiting.extendleft(reversed(worker.portions))
        self.gone_notes = tuple(dict.fromkeys([*self.gone_notes, *worker.notes]))
        self.crew.let_go(worker)
        if strikes[subject] >= STRIKES:
            # One machine where the model does not fit does not keep the others from going on.
            if subject == "open" and any(other.opened for other in self.crew.hired):
                return
            raise UndertowError(_hopeless(subject, error))
        successor = self.crew.hire()
        successor.strikes = worker.strikes
        successor.tell("hear", self.queries, self.protocol)
        self.crew.n_replaced += 1


def _told_from(worker: _WorkerHandle, sentence: str) -> str:
    """What a worker cannot do, with its machine where that is another one."""
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
