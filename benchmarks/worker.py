"""Work, and one contender at it in a process of its own, so that its memory is its own; it works only when it is told to."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from contenders import CONTENDERS, ENGINE, ITS_OWN
from gate import Said
from networks import load, random_bert
from rows import ROWS, Row, Sample
from undertow.models.base import FLOAT32, Found, Request
from undertow.types import Blank, Item, Query, UndertowError

MIB = 2**20
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""What getrusage counts the peak in."""


@dataclass(frozen=True, slots=True)
class Work:
    """A row as it is run: its model, all its items, those that are timed, and fewer to warm up and to find batch sizes on."""

    row: Row
    model: str
    items: Sequence[Item]
    sample: Sample
    smaller: Sample
    plan: Namespace

    @classmethod
    def of(cls, row: Row, plan: Namespace, *, alone: bool = False) -> Work:
        """Draw the samples of what the user asked for; larger ones where the engine is alone, which is quick."""
        items = row.items()
        n_sample = len(items) if plan.full else plan.sample or (row.n_alone if alone else row.n_sample)
        smaller = row.draw(items, plan.search_sample or row.n_search, plan.seed)
        model = plan.model
        if row.family == "masked":
            model = plan.masked_model or random_bert(texts_of(items))
        return cls(row, model, items, row.draw(items, n_sample, plan.seed), smaller, plan)

    def told(self) -> dict[str, Any]:
        """What was worked on, for the record."""
        unit, (of, _) = self.row.unit, self.row.covers
        return {
            "row": self.row.name,
            "about": self.row.about,
            "n_items": len(self.sample.places),
            "n_items_in_set": len(self.items),
            "drawn": {
                "unit": unit,
                "n": self.sample.n_units,
                "of": of,
                "levels": self.sample.levels,
                "seed": self.plan.seed,
            },
        }


class Order(NamedTuple):
    """What a worker is started for, by name: processes share no objects. `threads` is 0 for torch's own choice."""

    contender: str
    row: str
    model: str
    threads: int
    dtype: str = FLOAT32


class Ready(NamedTuple):
    """What a worker says once its model is loaded."""

    threads: int
    source: str
    revision: str
    dtype: str


class Loaded(NamedTuple):
    """What a worker holds: the engine's or a peer's model, and all of the row's queries [item]."""

    model: Any
    queries: Sequence[Query]


class Answered(NamedTuple):
    """The numbers, and the time they took."""

    numbers: list[Said]
    seconds: float


class Worker:
    """A contender's process, seen from outside. It loads while others do, and whoever asks for anything waits for it.

    Raises:
        UndertowError: when it is asked for anything: the contender cannot do it, or the process ended before it answered.
    """

    def __init__(self, order: Order) -> None:
        self.name = order.contender
        context = get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, order), daemon=True)
        self._process.start()
        far_end.close()  # so that a worker that dies is an end of file here, not silence

    @classmethod
    def of_engine(cls, work: Work, dtype: str = FLOAT32) -> Worker:
        """The engine alone, loaded and warmed up on the smaller sample."""
        say(f"{work.row.name}: {ENGINE} loads the model ({dtype})")
        worker = cls(Order(ENGINE, work.row.name, work.model, work.plan.threads, dtype))
        worker.score(work.smaller.places)
        return worker

    @cached_property
    def ready(self) -> Ready:
        """What it says once its model is loaded."""
        ready: Ready = self._receive()
        return ready

    @property
    def model(self) -> dict[str, str]:
        """Which weights it holds, for the record."""
        return {"source": self.ready.source, "revision": self.ready.revision, "dtype": self.ready.dtype}

    def score(self, places: Sequence[int], batch_size: int = ITS_OWN) -> Answered:
        """Score, and wait for it: only one worker works at a time."""
        answered: Answered = self.do(None, tuple(places), batch_size)
        return answered

    def do(self, what: Callable[..., Any] | None, *arguments: Any) -> Any:
        """What a function of a module says of the loaded model: `what(loaded, *arguments)`, computed in the process."""
        return self._exchange((what, arguments))

    def close(self) -> dict[str, float]:
        """End the process; returns what memory it took, in MiB: see `_served`."""
        memory: dict[str, float] = self._exchange(None)
        self._process.join()
        return memory

    def _exchange(self, asked: object) -> Any:
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


def _serve(pipe: Connection, order: Order) -> None:
    """What the worker's process does: load, say so, answer until told to stop, tell its memory."""
    os.environ["TQDM_DISABLE"] = "1"
    try:
        pipe.send(_served(pipe, order))
    except UndertowError as error:
        pipe.send(error)


def _served(pipe: Connection, order: Order) -> dict[str, float]:
    """Resident memory before the model was loaded, once it was, and the peaks until then and since."""
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
    model: Any = found.open() if contender.name == ENGINE else load(row.family, found, request)
    prepare = contender.open(replace(found, open=lambda: model) if contender.name == ENGINE else model)
    loaded = Loaded(model, [item.query for item in row.items()])
    gc.collect()
    loaded_mib, loading_peak = _resident_mib(), _peak_mib()
    with suppress(OSError):  # begins the peak anew; only Linux can, elsewhere it is the highest of all
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    pipe.send(Ready(torch.get_num_threads(), model.card.source, model.card.revision, model.card.dtype))
    while (asked := pipe.recv()) is not None:
        what, arguments = asked
        if what is not None:
            pipe.send(what(loaded, *arguments))
            continue
        places, batch_size = arguments
        score = prepare([loaded.queries[place] for place in places], batch_size)
        started = time.perf_counter()
        numbers = score()
        pipe.send(Answered(numbers, time.perf_counter() - started))
    return {
        "before_mib": before,
        "loaded_mib": loaded_mib,
        "loading_peak_mib": loading_peak,
        "scoring_peak_mib": _peak_mib(),
    }


def _resident_mib() -> float:
    return float(psutil.Process().memory_info().rss / MIB)


def _peak_mib() -> float:
    # Linux counts in the process that started this one, up to then; that one holds no model, so it is never the highest.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / MIB


def texts_of(items: Sequence[Item]) -> list[str]:
    """Every text that sentences with a blank stand for."""
    return [text for item in items if isinstance(item.query, Blank) for text in item.query.texts()]


def say(what: str) -> None:
    """What is being done, never how long it took: times wait until the numbers are known to be equal."""
    print(what, file=sys.stderr, flush=True)
