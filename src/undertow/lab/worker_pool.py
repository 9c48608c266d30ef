"""Pieces of work in parallel, one process and one thread each, with progress from all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any, TypeVar

from undertow.errors import UndertowError
from undertow.models.backend.execution import n_cores
from undertow.types import Progress

Done = TypeVar("Done")
Work = TypeVar("Work")

POLL_S = 0.2
_units_done: Any = None


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM acts as Ctrl-C, so that the pool's processes end and its semaphores are freed; else it would end this process at once."""
    is_own = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_own:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if is_own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@_sigterm_as_ctrl_c()
def side_by_side(  # noqa: PLR0913 - what is done, and by whom
    do: Callable[[Work], Done], works: Sequence[Work], units: int, *, jobs: int, cache: Path, progress: Progress
) -> list[Done]:
    """The results of `do` for each piece of work, in order.

    Args:
        do: a function of a module, since other processes import it; it may call `report_units`.
        works: the pieces, which are pickled.
        units: number of units of work in all pieces.
        jobs: number of processes; 0 for one per processor.
        cache: folder of their answer cache.
        progress: called with (units done, units in all).

    Raises:
        UndertowError: a process died; no further piece is started.
        Exception: that of the first piece that failed, after the others are done, so that it does not stop them each time.
    """
    if not works:
        return []
    context = multiprocessing.get_context("spawn")
    units_done = context.Queue()
    pool = ProcessPoolExecutor(
        min(jobs or n_cores(), len(works)), mp_context=context, initializer=_begin, initargs=(units_done, str(cache))
    )
    n_worked = 0
    progress(0, units)
    try:
        futures = [pool.submit(do, work) for work in works]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=POLL_S)
            for future in done:
                if isinstance(future.exception(), BrokenProcessPool):
                    future.result()
            with suppress(Empty):
                while True:
                    n_worked += units_done.get_nowait()
            progress(min(n_worked, units), units)
        return [future.result() for future in futures]
    except BrokenProcessPool as error:
        raise UndertowError("a process of the lab died, probably of too little memory; try --jobs 1") from error
    finally:
        # Running pieces are not waited for: what they have saved is taken up again.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(units_done: Any, cache: str) -> None:
    """In each process: one thread, so that results do not depend on the number of processes; and the lab's answer cache."""
    # Ctrl-C reaches every process of the terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _units_done  # noqa: PLW0603 - what a process of a pool is told it can only keep so
    _units_done = units_done
    os.environ["UNDERTOW_CACHE"] = cache
    # Before torch is imported, which reads it then.
    os.environ["OMP_NUM_THREADS"] = "1"

    def end_with_parent() -> None:
        """End when the parent is killed, instead of working on unseen."""
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def report_units(units: int) -> None:
    """Report the number of units done, from within a piece of work."""
    if _units_done is not None:
        _units_done.put(units)


def step_progress() -> Callable[[int, int, float], None]:
    """Progress of a training within a piece of work, one unit per step; steps of an earlier call count, too."""
    reached = 0

    def progress(done: int, total: int, loss: float) -> None:
        nonlocal reached
        report_units(done - reached)
        reached = done

    return progress
