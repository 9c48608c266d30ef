"""Work, and a contender in a process of its own, so that its memory is its own; it computes only when it is called."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from threading import local
from typing import Any, NamedTuple

import psutil

from contenders import CONTENDERS, ENGINE, ITS_OWN, Prepare
from gate import Output
from networks import load, random_bert
from rows import ROWS, Places, Row
from tables import MEGA
from undertow.errors import UndertowError
from undertow.models.backend.execution import gpu_name
from undertow.models.base import FLOAT32, ModelHandle, ModelRequest
from undertow.types import ClozeQuery, Item, Query

MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit in which getrusage counts the peak."""
HELD = local()
"""`loaded`, what a worker holds: its process has one thread."""


@dataclass(frozen=True, slots=True)
class Work:
    """A row as it is run: its model, all its items, those that are timed, and fewer to warm up and to find batch sizes on."""

    row: Row
    model: str
    items: Sequence[Item]
    sample: Places
    smaller: Places
    plan: Namespace

    @classmethod
    def of(cls, row: Row, plan: Namespace, *, alone: bool = False) -> Work:
        """Draw the samples that the command line names; larger ones where the engine is alone, which is quick."""
        items, model = row.items(), plan.model
        n_sample = len(items) if plan.full else plan.sample or (row.n_alone if alone else row.n_sample)
        smaller = row.draw(items, plan.search_sample or row.n_search, plan.seed)
        if row.family == "masked":
            model = plan.masked_model or random_bert(texts_of(items))
        return cls(row, model, items, row.draw(items, n_sample, plan.seed), smaller, plan)

    def note(self) -> str:
        """The sample in words."""
        drawn = f"whole {self.row.unit}s drawn with seed {self.plan.seed}"
        return f"{len(self.sample):,} of {len(self.items):,} items ({drawn}), each {self.row.about}"


class Ready(NamedTuple):
    """The model that a worker has loaded."""

    source: str
    revision: str
    dtype: str
    threads: int
    gpu: str

    def note(self) -> str:
        """The model in words."""
        where = f"on {self.gpu}" if self.gpu else f"{self.threads} torch threads in each process"
        return f"{self.source}, {self.dtype}, {where}"


class Loaded(NamedTuple):
    """What a worker holds: the engine's or a peer's model, how it scores, and all of the row's queries [item]."""

    model: Any
    prepare: Prepare
    queries: Sequence[Query]
    memory: dict[str, float]


class Timed(NamedTuple):
    """The numbers, and the time they took."""

    outputs: list[Output]
    seconds: float


class Worker:
    """A contender's process, seen from outside. It loads while others do, and whoever calls it waits for that.

    Raises:
        UndertowError: from any call: the contender cannot do it.
        BrokenProcessPool: from any call: the process ended, for want of memory perhaps.
    """

    def __init__(self, work: Work, contender: str = ENGINE, dtype: str = FLOAT32) -> None:
        self.work = work
        self._process = ProcessPoolExecutor(1, get_context("spawn"))
        request = ModelRequest(work.model, dtype=dtype, device=work.plan.device)
        self._loading = self._process.submit(_load, contender, work.row.name, request, work.plan.threads)

    @classmethod
    def of_engine(cls, work: Work, dtype: str = FLOAT32) -> Worker:
        """The engine alone, loaded and warmed up on the smaller sample."""
        say(f"{work.row.name}: {ENGINE} loads the model ({dtype})")
        worker = cls(work, dtype=dtype)
        worker.score(work.smaller)
        return worker

    @property
    def ready(self) -> Ready:
        """The model, once it is loaded."""
        return self._loading.result()

    def score(self, places: Places, batch_size: int = ITS_OWN) -> Timed:
        """Score, and wait for it: only one worker computes at a time."""
        timed: Timed = self.do(_score, places, batch_size)
        return timed

    def do(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `what(loaded, *arguments)`, a function of a module, in the process."""
        _ = self.ready
        return self._process.submit(_apply, what, *arguments).result()

    def close(self) -> dict[str, float]:
        """End the process; returns its resident memory in MB: of its libraries, of all once loaded, and two peaks."""
        memory: dict[str, float] = self.do(_memory)
        self._process.shutdown()
        return memory


def _load(contender: str, row_name: str, request: ModelRequest, threads: int) -> Ready:
    os.environ["TQDM_DISABLE"] = "1"
    row = ROWS[row_name]
    found: ModelHandle | None = import_module(f"undertow.models.families.{row.family}").resolve(request)
    if found is None:
        raise UndertowError(f"{request.name}: is no {row.family} model; name another, see --help")
    import torch  # takes seconds, so not before a wrong model is found out
    import transformers.modeling_utils  # noqa: F401 - so that libraries are counted before the model is

    if threads:
        torch.set_num_threads(threads)
    memory = {"libraries MB": _resident()}
    opener = next(one.open for one in CONTENDERS[row_name] if one.name == contender)
    model: Any = found.open() if contender == ENGINE else load(row.family, found, request)
    prepare = opener(replace(found, open=lambda: model) if contender == ENGINE else model)
    queries = [item.query for item in row.items()]
    gc.collect()
    memory |= {"loaded MB": _resident(), "peak while loading MB": _peak()}
    HELD.loaded = Loaded(model, prepare, queries, memory)
    with suppress(OSError):  # resets the peak; only Linux can, elsewhere it is the highest of all
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    if gpu_name(request.device):
        torch.cuda.reset_peak_memory_stats(model.network.device)
    return Ready(
        model.identity.source,
        model.identity.revision,
        model.identity.dtype,
        torch.get_num_threads(),
        gpu_name(request.device),
    )


def _apply(what: Callable[..., Any], *arguments: Any) -> Any:
    return what(HELD.loaded, *arguments)


def _score(loaded: Loaded, places: Places, batch_size: int) -> Timed:
    score = loaded.prepare([loaded.queries[place] for place in places], batch_size)
    started = time.perf_counter()
    outputs = score()
    return Timed(outputs, time.perf_counter() - started)


def _memory(loaded: Loaded) -> dict[str, float]:
    import torch

    device, peaks = loaded.model.network.device, {"peak while scoring MB": _peak()}
    if device.type == "cuda":
        peaks["peak on the GPU MB"] = torch.cuda.max_memory_allocated(device) / MEGA
    return loaded.memory | peaks


def _resident() -> float:
    return float(psutil.Process().memory_info().rss / MEGA)


def _peak() -> float:
    # Linux counts in the process that started this one, up to then; that one holds no model, so it is never the highest.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES / MEGA


def texts_of(items: Sequence[Item]) -> list[str]:
    """Every text that sentences with a blank stand for."""
    return [text for item in items if isinstance(item.query, ClozeQuery) for text in item.query.texts()]


def say(what: str) -> None:
    """Progress without times: those wait until the numbers are known to be equal."""
    print(what, file=sys.stderr, flush=True)
