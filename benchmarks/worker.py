"""One contender in a process of its own, so that its memory is its own; it works only when it is told to.

Knows processes, clocks and memory; knows nothing about what is compared.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from contenders import CONTENDERS
from gate import Numbers
from rows import ROWS
from undertow.models.base import Found, Request
from undertow.types import UndertowError

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
    """

    contender: str
    row: str
    model: str
    threads: int


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
class Answered:
    """The numbers, and the time they took."""

    numbers: Numbers
    seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of one contender's process, in MiB.

    Attributes:
        loaded_mib: once the model was loaded and the contender imported.
        loading_peak_mib: the highest until then; unpacking the weights takes more than holding them.
        scoring_peak_mib: the highest since then; the highest of all where the system cannot tell them apart.
    """

    loaded_mib: float
    loading_peak_mib: float
    scoring_peak_mib: float


class Worker:
    """A contender's process, seen from outside.

    Raises:
        UndertowError: the contender cannot do it, or the process ended before it answered.
    """

    def __init__(self, order: Order) -> None:
        self.name = order.contender
        context = get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=serve, args=(far_end, order), daemon=True)
        self._process.start()
        far_end.close()  # so that a worker that dies is an end of file here, not silence
        self.ready: Ready = self._receive()

    def score(self, places: tuple[int, ...], batch_size: int) -> Answered:
        """Score, and wait for it: only one worker works at a time."""
        answered: Answered = self._exchange(Ask(places, batch_size))
        return answered

    def close(self) -> Memory:
        """End the process; returns what memory it took."""
        memory: Memory = self._exchange(None)
        self._process.join()
        return memory

    def _exchange(self, asked: Ask | None) -> Any:
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


def _as_transformers_loads_it(found: Found) -> Any:
    """The model of a peer: the same weights in the layout that transformers has them in, not in our own."""
    from undertow.models import packing

    def leave(network: Any) -> list[Callable[[], None]]:
        return []

    pack, packing.pack = packing.pack, leave
    try:
        return found.open()
    finally:
        packing.pack = pack


def _serve(pipe: Connection, order: Order) -> None:
    row = ROWS[order.row]
    found: Found | None = import_module(f"undertow.models.{row.family}").find(Request(order.model, device="cpu"))
    if found is None:
        raise UndertowError(f"{order.model}: is no {row.family} model; name another, see --help")
    import torch  # takes seconds, so not before a wrong model is found out

    if order.threads:
        torch.set_num_threads(order.threads)
    contender = next(one for one in CONTENDERS[row.name] if one.name == order.contender)
    model = found.open() if contender.name == "undertow" else _as_transformers_loads_it(found)
    prepare = contender.open(replace(found, open=lambda: model))
    queries = [item.query for item in row.items()]
    gc.collect()
    loaded, loading_peak = _resident_mib(), _peak_mib()
    _forget_peak()
    pipe.send(Ready(torch.get_num_threads(), model.card.source, model.card.revision, model.card.dtype))
    while (asked := pipe.recv()) is not None:
        score = prepare([queries[place] for place in asked.places], asked.batch_size)
        started = time.perf_counter()
        numbers = score()
        pipe.send(Answered(numbers, time.perf_counter() - started))
    pipe.send(Memory(loaded, loading_peak, _peak_mib()))


def _resident_mib() -> float:
    return float(psutil.Process().memory_info().rss / MIB)


def _peak_mib() -> float:
    # Linux counts in the process that started this one, up to then; that one holds no model, so it is never the highest.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / MIB


def _forget_peak() -> None:
    """Begin the peak anew from what is resident now; only Linux can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
