"""A queue that runs one job at a time, with progress and cancellation.

One model fills the memory, so visitors take turns: one job runs, a few wait, and further ones are refused. A job reports progress
through the `Progress` callback that Undertow calls between passes of the model; cancellation happens there too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from undertow.errors import UndertowError

MAX_WAITING = 4
"""Pieces of work that may wait; one more runs."""


class StoppedError(UndertowError):
    """The visitor stopped the work, or went away."""


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work in line, running or done.

    Attributes:
        owner: whose it is.
        doing: what is done at the moment, for example "asking the model".
        done, total: how far that is; a total of 0 where it is not known.
        began: when it began to run, in seconds of the monotonic clock; 0 while it waits.
    """

    owner: str
    doing: str = "waiting"
    done: int = 0
    total: int = 0
    began: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _future: Future[Any] = field(default_factory=Future)

    def step(self, doing: str) -> Callable[[int, int], None]:
        """Begin the next step; returns the `Progress` that it is to call.

        Raises:
            StoppedError: the work is to stop, here or whenever the progress is called.
        """

        def progress(done: int, total: int) -> None:
            self.done, self.total = done, total
            self.check()

        self.doing, self.done, self.total = doing, 0, 0
        self.check()
        return progress

    def check(self) -> None:
        """Raise if the job was cancelled.

        Raises:
            StoppedError: the work is to stop.
        """
        if self._stop.is_set():
            raise StoppedError("Stopped. What the model answered so far is kept, so asking again goes on from there.")

    def stop(self) -> None:
        """Cancel the job at its next progress report, or at once if it has not begun."""
        self._stop.set()
        self._future.cancel()

    @property
    def is_done(self) -> bool:
        """Whether the job ended, with or without a result."""
        return self._future.done()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began if self.began else 0.0

    def result(self) -> Any:
        """Return the result of a finished job.

        Raises:
            StoppedError: it was stopped.
            UndertowError: or whatever else the work raised.
        """
        try:
            return self._future.result(timeout=0)
        except CancelledError as error:
            raise StoppedError("Stopped before it began.") from error


class JobQueue:
    """The queue of jobs."""

    def __init__(self, most_waiting: int = MAX_WAITING) -> None:
        self._most_waiting = most_waiting
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="undertow-app")
        self._line: list[Job] = []
        self._lock = threading.Lock()

    def begin(self, owner: str, job: Callable[[Job], Any]) -> Job:
        """Add a job to the queue.

        Args:
            owner: whose it is; nobody has two.
            job: what is to be done, in another thread; it calls `Work.step` and `Work.check` as it goes.

        Raises:
            UndertowError: the line is full, or the owner has work in it.
        """
        with self._lock:
            self._line = [work for work in self._line if not work.is_done]
            if any(work.owner == owner for work in self._line):
                raise UndertowError("Your last question is still being worked on; wait for it, or press Stop first.")
            if len(self._line) > self._most_waiting:
                raise UndertowError(
                    f"{len(self._line)} others are waiting for the model already; try again in a while."
                )
            work = Job(owner)
            self._line.append(work)
            # The future is exchanged for the pool's before anyone but this thread knows the work.
            work._future = self._worker.submit(_run, work, job)
            return work

    def n_before(self, work: Job) -> int:
        """Number of jobs before this one, including the running one."""
        with self._lock:
            line = [one for one in self._line if one is work or not one.is_done]
        return line.index(work) if work in line else 0

    def stop(self, owner: str) -> bool:
        """Stop the owner's work; returns whether there was any."""
        with self._lock:
            mine = [work for work in self._line if work.owner == owner and not work.is_done]
        for work in mine:
            work.stop()
        return bool(mine)

    def close(self) -> None:
        """Cancel all jobs and wait for the running one."""
        with self._lock:
            line = list(self._line)
        for work in line:
            work.stop()
        self._worker.shutdown(wait=True, cancel_futures=True)


def _run(work: Job, job: Callable[[Job], Any]) -> Any:
    work.began = time.monotonic()
    work.check()
    return job(work)
