"""Processes of the command line that start warm: forked from an interpreter that has read other people's packages.

Each is a process of its own, with its own folder, environment, output and exit status, and reads all of `undertow` anew.
What it saves is the second that pandas, scipy and matplotlib take, or the four of torch and transformers.

Four things are not as in a process that starts cold. All children of one interpreter share its hash seed and the state
that packages have once they are read. Native libraries have one thread. What is left at the end is not taken down: an
open file that nobody closed is not flushed. And what only a start can show (how long it takes, what is imported, what
is said before it) is for `cold` to show.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

LIGHT = (
    "asyncio",
    "filelock",
    "http.client",
    "huggingface_hub.utils",
    "httpx2",
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pandas",
    "platformdirs",
    "pyarrow.parquet",
    "pydantic.types",
    "rich.console",
    "rich.progress",
    "scipy.stats",
    "sqlite3",
    "typer",
    "typer._adapters",
    "typer.core",
    "yaml",
)
OF_MODELS = (*LIGHT, "torch", "transformers", "transformers.models.llama.modeling_llama", "gguf", "safetensors.torch")

AT_START = dict(os.environ)
SILENT = {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""What `undertow` says before it reads transformers. That it does so in time is for processes that start cold to show."""
OF_PACKAGES = {"KMP_INIT_AT_FORK", "RAY_CLIENT_MODE", "TORCHINDUCTOR_CACHE_DIR"}
"""What packages set in a process that reads them: statsmodels (for Intel's OpenMP), ray, torch. No command starts otherwise for it."""
OF_A_RUN = {"UNDERTOW_CACHE", "PYTEST_CURRENT_TEST", *OF_PACKAGES, *SILENT}
"""What may differ from the environment at the start: of a test, or set by a package or model that this process has read."""

ONE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""What keeps packages from starting threads as they are read; the last is for the allocator of pyarrow."""
LIMIT_S = 280.0
"""How long a command may take: less than pytest gives a test."""
COLD = "from undertow.cli import main; main()"

# A fork copies one thread, and the locks of all. So the one that waits looks before each whether it has a single one, and
# forks none where it cannot look. Children leave by os._exit, after what the interpreter does first of all at its end: to take
# down pandas or torch takes up to a second. An exception or a reason in words is left to the interpreter, at its leisure.
WAIT = """
import atexit, gc, importlib, json, os, signal, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
tasks = "/proc/self/task"
print("ready", flush=True)
for line in sys.stdin:
    if not os.path.isdir(tasks) or len(os.listdir(tasks)) != 1:
        print("cold", flush=True)
        continue
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
asked = json.loads(line)
signal.setitimer(signal.ITIMER_REAL, asked["limit_s"])
for at, place, flags in ((0, os.devnull, os.O_RDONLY), (1, asked["out"], os.O_WRONLY), (2, asked["err"], os.O_WRONLY)):
    opened = os.open(place, flags)
    os.dup2(opened, at)
    os.close(opened)
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv[1:] = asked["arguments"]
importlib.invalidate_caches()
status = 0
try:
    from undertow.cli import main; main()
except SystemExit as left:
    if not isinstance(left.code, int | None):
        raise
    status = left.code or 0
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status & 0xFF)
"""


class WarmStart:
    """An interpreter with packages read, which forks a process for every command; started when the first is run."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)
        self._waiting: subprocess.Popen[str] | None = None

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str] | None:
        """What `subprocess.run` gives; None where a fork would not be sound."""
        with tempfile.NamedTemporaryFile("w+") as out, tempfile.NamedTemporaryFile("w+") as err:
            places = {"folder": str(folder), "out": out.name, "err": err.name, "limit_s": limit_s}
            heard = self._ask({"arguments": list(arguments), "environment": dict(environment)} | places)
            said, complained = out.read(), err.read()
        if heard == "cold":
            return None
        if int(heard) == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(list(arguments), limit_s, said, complained)
        return subprocess.CompletedProcess(list(arguments), int(heard), said, complained)

    def end(self) -> None:
        """With a child that may still run."""
        if self._waiting is None:
            return
        os.killpg(self._waiting.pid, signal.SIGKILL)
        self._waiting.communicate()
        self._waiting = None

    def _ask(self, asked: Mapping[str, object]) -> str:
        """If a test is cut off meanwhile, what comes would be taken for the answer to the next question; so all ends."""
        try:
            self._waiting = self._waiting or self._start()
            return _said(self._waiting, json.dumps(asked))
        except BaseException:
            self.end()
            raise

    def _start(self) -> subprocess.Popen[str]:
        self._waiting = subprocess.Popen(
            [sys.executable, "-c", WAIT, *self._packages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=AT_START | SILENT | ONE_THREADED,
            process_group=0,
        )
        _said(self._waiting)
        return self._waiting


def _said(process: subprocess.Popen[str], question: str = "") -> str:
    assert process.stdin
    assert process.stdout
    if question:
        print(question, file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the interpreter that forks commands has ended, and says above why")
    return line.rstrip()


@cache
def _waiting(packages: Sequence[str]) -> WarmStart:
    started = WarmStart(packages)
    atexit.register(started.end)
    return started


def warm(
    folder: Path, *arguments: str, packages: Sequence[str] = LIGHT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this folder: warm, unless something in the environment may be read at a start."""
    chosen = os.environ if environment is None else environment
    done = None
    if {name for name, _ in dict(chosen).items() ^ AT_START.items()} <= OF_A_RUN:
        done = _waiting(tuple(packages)).run(arguments, folder, chosen)
    return done or cold(folder, *arguments, env=chosen)


def cold(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run it as a user does, in an interpreter that has read nothing yet."""
    command = [sys.executable, "-c", COLD, *arguments]
    settings: dict[str, object] = {"cwd": folder, "env": os.environ, "capture_output": True, "timeout": LIMIT_S}
    return subprocess.run(command, check=False, text=True, **settings | options)  # type: ignore[call-overload, no-any-return]
