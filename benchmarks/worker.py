"""One contender in a process of its own, so that its memory is its own; it works only when it is told to.

Knows processes, clocks and memory; knows nothing about what is compared.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from contenders import CONTENDERS, ENGINE, Prepare
from gate import Numbers
from plain import load
from rows import ROWS
from undertow.models.base import FLOAT32, Found, Request
from undertow.types import Query, UndertowError

MIB = 2**20
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""What getrusage counts the peak in."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is started for, by name: processes share no objects.

    Attributes:
        contender, row: of `CONTENDERS` and `ROWS`.
        model: of `undertow.models`.
        threads: for torch; 0 for its own choice.
        dtype: of the weights.
    """

    contender: str
    row: str
    model: str
    threads: int
    dtype: str = FLOAT32


@dataclass(frozen=True, slots=True)
class Ready:
    """What a worker says once its model is loaded."""

    threads: int
    source: str
    revision: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Score these items of the row, with this batch size."""

    places: tuple[int, ...]
    batch_size: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a worker holds.

    Attributes:
        model: the engine's, or a peer's.
        queries: of all the row's items [item].
    """

    model: Any
    queries: Sequence[Query]


@dataclass(frozen=True, slots=True)
class Do:
    """Call this with what is loaded and these arguments; a function of a module, since processes share no objects."""

    what: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The numbers, and the time they took."""

    numbers: Numbers
    seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of one contender's process, in MiB.

    Attributes:
        before_mib: before the model was loaded: the interpreter, and the libraries that load it.
        loaded_mib: once the model was loaded and the contender imported.
        loading_peak_mib: the highest until then; unpacking the weights takes more than holding them.
        scoring_peak_mib: the highest since then; the highest of all where the system cannot tell them apart.
    """

    before_mib: float
    loaded_mib: float
    loading_peak_mib: float
    scoring_peak_mib: float


class Worker:
    """A contender's process, seen from outside. It loads while others do, and whoever asks for anything waits for it.

    Raises:
        UndertowError: when it is asked for anything: the contender cannot do it, or the process ended before it answered.
    """

    def __init__(self, order: Order) -> None:
        self.name = order.contender
        context = get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=serve, args=(far_end, order), daemon=True)
        self._process.start()
        far_end.close()  # so that a worker that dies is an end of file here, not silence

    @cached_property
    def ready(self) -> Ready:
        """What it says once its model is loaded."""
        ready: Ready = self._receive()
        return ready

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        """Score, and wait for it: only one worker works at a time."""
        answered: Answered = self._exchange(Ask(places, batch_size))
        return answered

    def do(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """What a function says of the loaded model: `what(loaded, *arguments)`, computed in the process."""
        return self._exchange(Do(what, arguments))

    def close(self) -> Memory:
        """End the process; returns what memory it took."""
        memory: Memory = self._exchange(None)
        self._process.join()
        return memory

    def _exchange(self, asked: Ask | Do | None) -> Any:
        _ = self.ready
        with suppress(BrokenPipeError):  # whatever it said before it ended is still there to be received
            self._pipe.send(asked)
        return self._receive()

    def _receive(self) -> Any:
        try:
            said = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise UndertowError(
                f"{self.name}: its process ended (exit code {self._process.exitcode}) before it answered; "
                "what it said is above, and it needs about 1.5 GiB of memory"
            ) from None
        if isinstance(said, UndertowError):
            raise said
        return said


def serve(pipe: Connection, order: Order) -> None:
    """What the worker's process does: load, say so, answer until told to stop, tell its memory."""
    os.environ["TQDM_DISABLE"] = "1"
    try:
        _serve(pipe, order)
    except UndertowError as error:
        pipe.send(error)


def _serve(pipe: Connection, order: Order) -> None:
    row = ROWS[order.row]
    request = Request(order.model, dtype=order.dtype, device="cpu")
    found: Found | None = import_module(f"undertow.models.{row.family}").find(request)
    if found is None:
        raise UndertowError(f"{order.model}: is no {row.family} model; name another, see --help")
    import torch  # takes seconds, so not before a wrong model is found out
    import transformers.modeling_utils  # noqa: F401 - so that what a model takes is told from what its libraries take

    if order.threads:
        torch.set_num_threads(order.threads)
    contender = next(one for one in CONTENDERS[row.name] if one.name == order.contender)
    before = _resident_mib()
    model = found.open() if contender.name == ENGINE else load(row.family, found, request)
    prepare = contender.open(replace(found, open=lambda: model))
    loaded = Loaded(model, [item.query for item in row.items()])
    gc.collect()
    loaded_mib, loading_peak = _resident_mib(), _peak_mib()
    _forget_peak()
    pipe.send(Ready(torch.get_num_threads(), model.card.source, model.card.revision, model.card.dtype))
    while (asked := pipe.recv()) is not None:
        pipe.send(asked.what(loaded, *asked.arguments) if isinstance(asked, Do) else _score(loaded, prepare, asked))
    pipe.send(Memory(before, loaded_mib, loading_peak, _peak_mib()))


def _score(loaded: Loaded, prepare: Prepare, asked: Ask) -> Answered:
    score = prepare([loaded.queries[place] for place in asked.places], asked.batch_size)
    started = time.perf_counter()
    numbers = score()
    return Answered(numbers, time.perf_counter() - started)


def _resident_mib() -> float:
    return float(psutil.Process().memory_info().rss / MIB)


def _peak_mib() -> float:
    # Linux counts in the process that started this one, up to then; that one holds no model, so it is never the highest.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / MIB


def _forget_peak() -> None:
    """Begin the peak anew from what is resident now; only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
