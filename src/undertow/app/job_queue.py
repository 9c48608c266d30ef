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
"""Jobs that may wait; one more runs."""


class StoppedError(UndertowError):
    """The visitor stopped the job, or left the page."""


@dataclass(slots=True, eq=False)
class Job:
    """A job that waits, runs or is done.

    Attributes:
        owner: the visitor.
        doing: the current step, for example "asking the model".
        done, total: progress of the step; a total of 0 where it is not known.
        started: when it began to run, in seconds of the monotonic clock; 0 while it waits.
    """

    owner: str
    doing: str = "waiting"
    done: int = 0
    total: int = 0
    started: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _future: Future[Any] = field(default_factory=Future)

    def step(self, doing: str) -> Callable[[int, int], None]:
        """Begin the next step; returns its `Progress` callback.

        Raises:
            StoppedError: the job was stopped; also raised by the callback.
        """

        def progress(done: int, total: int) -> None:
            self.done, self.total = done, total
            self.check()

        self.doing, self.done, self.total = doing, 0, 0
        self.check()
        return progress

    def check(self) -> None:
        """Raise if the job was stopped.

        Raises:
            StoppedError: the job was stopped.
        """
        if self._stop.is_set():
            raise StoppedError("Stopped. Answers so far are cached; ask again to continue.")

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
        return time.monotonic() - self.started if self.started else 0.0

    def result(self) -> Any:
        """Return the result of a finished job.

        Raises:
            StoppedError: it was stopped.
            UndertowError: or another error of the job.
        """
        try:
            return self._future.result(timeout=0)
        except CancelledError as error:
            raise StoppedError("Stopped before it began.") from error


class JobQueue:
    """The queue of jobs."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="undertow-app")
        self._jobs: list[Job] = []
        self._lock = threading.Lock()

    def submit(self, owner: str, function: Callable[[Job], Any]) -> Job:
        """Add a job to the queue.

        Args:
            owner: the visitor, who may have one job at a time.
            function: runs in another thread; calls `Job.step` and `Job.check` as it goes.

        Raises:
            UndertowError: the queue is full, or the owner has a job in it.
        """
        with self._lock:
            self._jobs = [job for job in self._jobs if not job.is_done]
            if any(job.owner == owner for job in self._jobs):
                raise UndertowError("Your last question is still being worked on; wait for it, or press Stop first.")
            if len(self._jobs) > self._max_waiting:
                raise UndertowError(
                    f"{len(self._jobs)} others are waiting for the model already; try again in a while."
                )
            job = Job(owner)
            self._jobs.append(job)
            # The pool's future replaces the job's before any other thread knows the job.
            job._future = self._worker.submit(_run, job, function)
            return job

    def n_before(self, job: Job) -> int:
        """Number of jobs before this one, including the running one."""
        with self._lock:
            jobs = [one for one in self._jobs if one is job or not one.is_done]
        return jobs.index(job) if job in jobs else 0

    def stop(self, owner: str) -> bool:
        """Stop the owner's job; returns whether there was one."""
        with self._lock:
            own = [job for job in self._jobs if job.owner == owner and not job.is_done]
        for job in own:
            job.stop()
        return bool(own)

    def close(self) -> None:
        """Cancel all jobs and wait for the running one."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.stop()
        self._worker.shutdown(wait=True, cancel_futures=True)


def _run(job: Job, function: Callable[[Job], Any]) -> Any:
    job.started = time.monotonic()
    job.check()
    return function(job)
