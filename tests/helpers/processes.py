"""Processes for tests of failures: forked by multiprocessing's fork server, which has imported the slow packages, and ended here."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest import mock

from undertow.errors import UndertowError

LIMIT_S = 240.0
"""How long a process may take: less than pytest gives a test."""
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload([
    "jinja2", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure", "pandas", "pyarrow.parquet",
    "pydantic.types", "scipy.stats", "typer._adapters", "undertow.runs.pipeline", "undertow.cli", "undertow.models.families.causal",
    "undertow.models.families.openai", "undertow.audits.spurious_correlation.audit", "undertow.runs.run_report",
])  # fmt: skip
ONE_THREADED = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ONE_THREADED["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
"""Keeps packages from starting threads in the fork server, which a fork would not copy."""

Done = subprocess.CompletedProcess[str]
Job = tuple[Callable[..., object], tuple[Any, ...]]


@dataclass(frozen=True)
class Running:
    """A process of a test, and the files that hold what it has said."""

    process: ForkServerProcess
    out: Path
    err: Path

    def ended(self) -> Done:
        """How it ended; fails where it does not end."""
        self.process.join(LIMIT_S)
        assert self.process.exitcode is not None, "the process does not end"
        return Done([], self.process.exitcode, self.out.read_text(), self.err.read_text())


@contextmanager
def running(folder: Path, call: Callable[..., object], *given: Any, namespace: int = 0) -> Iterator[Running]:
    """A call in a process of its own, in this folder; killed when the test is done with it.

    `namespace` is the id of a process whose mounts it shall see.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack, mock.patch.dict(os.environ, ONE_THREADED):
        heard = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heard-")))
        out, err = heard / "out", heard / "err"
        told = (str(out), str(err), str(folder), namespace)
        forkserver.ensure_running()
        process = forks.Process(target=_inside, args=(told, dict(os.environ), call, given))
        process.start()
        stack.callback(process.close)
        stack.callback(process.join)
        stack.callback(process.kill)
        for path in (out, err):
            path.touch()
        yield Running(process, out, err)


def run(folder: Path, call: Callable[..., object], *given: Any, namespace: int = 0) -> Done:
    """A call in a process of its own, to its end."""
    with running(folder, call, *given, namespace=namespace) as one:
        return one.ended()


def run_together(folder: Path, *jobs: Job) -> list[Done]:
    """Calls in processes of their own, all at once, to their ends."""
    with ExitStack() as stack:
        started = [stack.enter_context(running(folder, call, *given)) for call, given in jobs]
        return [one.ended() for one in started]


def command(words: Sequence[str], cache: str, ready: Barrier | None = None) -> None:
    """The command line, in this process, with this cache; when all others are ready too."""
    os.environ["UNDERTOW_CACHE"] = cache
    sys.argv[1:] = words
    from undertow.cli import main

    if ready is not None:
        ready.wait(LIMIT_S)
    main()


def _inside(
    told: tuple[str, str, str, int], environment: Mapping[str, str], call: Callable[..., object], given: Sequence[Any]
) -> None:
    out, err, folder, namespace = told
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    if namespace:
        _enter(namespace)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    call(*given)


def _enter(pid: int) -> None:
    """See the mounts of another process; of another user namespace, this is entered first."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "mnt"):
        there = f"/proc/{pid}/ns/{kind}"
        if Path(there).samefile(f"/proc/self/ns/{kind}"):
            continue
        opened = os.open(there, os.O_RDONLY)
        if libc.setns(opened, 0):
            raise OSError(ctypes.get_errno(), "the mounts of another process cannot be seen", there)
        os.close(opened)


def touch(work: str) -> None:
    """Work for another process: makes a file, unless it is called *recurrent*."""
    if work == "recurrent":
        raise UndertowError("'recurrent' is no file to be made")
    Path(work).touch()
