"""Processes of the command line that start warm: forked from an interpreter that has read other people's packages.

Each is a process of its own all the same, with its own folder, environment, output and exit status, and reads
what a command needs of `undertow` anew. What it saves is the second that pandas, scipy and matplotlib take, or the four
of torch and transformers.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

LIGHT = (
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pandas",
    "pyarrow.parquet",
    "rich.console",
    "rich.progress",
    "scipy.stats",
    "typer.core",
)
OF_MODELS = (*LIGHT, "torch", "transformers", "transformers.models.llama.modeling_llama", "gguf", "safetensors.torch")

AT_START = dict(os.environ)
SILENT = {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""What `undertow` says before it reads transformers. That it does so in time is for processes that start cold to show."""
OF_A_RUN = {"UNDERTOW_CACHE", "PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR", *SILENT}
"""What may differ from the environment at the start: of a test, or set by torch or a model that this process has loaded."""

# The one that waits never has a thread, so that its children are whole. They leave without taking down what they did not
# build up, and none lives for ever: a worker that waits for it would be ended with all its tests.
WAIT = """
import atexit, gc, importlib, json, os, signal, sys
from undertow.cli import main
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
asked = json.loads(line)
for at, place, flags in ((0, os.devnull, os.O_RDONLY), (1, asked["out"], os.O_WRONLY), (2, asked["err"], os.O_WRONLY)):
    opened = os.open(place, flags)
    os.dup2(opened, at)
    os.close(opened)
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv[1:] = asked["arguments"]
signal.alarm(280)
status = 0
try:
    main()
except SystemExit as left:
    status = left.code or 0
except BaseException:
    sys.excepthook(*sys.exc_info())
    status = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""


class WarmStart:
    """An interpreter with packages read, which forks a process for every command."""

    def __init__(self, packages: Sequence[str]) -> None:
        line = [sys.executable, "-c", WAIT, *packages]
        self._waiting = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=AT_START | SILENT
        )
        assert self._waiting.stdin
        assert self._waiting.stdout
        self._tell, self._hear = self._waiting.stdin, self._waiting.stdout
        if self._hear.readline() != "ready\n":
            raise RuntimeError(f"nothing can be started warm: one of {', '.join(packages)} cannot be imported")

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            places = {"folder": str(folder), "out": out.name, "err": err.name}
            asked = {"arguments": list(arguments), "environment": dict(environment)} | places
            print(json.dumps(asked), file=self._tell, flush=True)
            status = int(self._hear.readline())
            said, complained = (file.read().decode("utf-8") for file in (out, err))
        return subprocess.CompletedProcess(list(arguments), status, said, complained)

    def close(self) -> None:
        self._tell.close()
        self._waiting.wait()
        self._hear.close()


@cache
def _waiting(packages: Sequence[str]) -> WarmStart:
    started = WarmStart(packages)
    atexit.register(started.close)
    return started


def warm(
    folder: Path, *arguments: str, packages: Sequence[str] = LIGHT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this folder: warm, unless something in the environment may be read at a start."""
    chosen = os.environ if environment is None else environment
    if {name for name, _ in dict(chosen).items() ^ AT_START.items()} <= OF_A_RUN:
        return _waiting(tuple(packages)).run(arguments, folder, chosen)
    return cold(folder, *arguments, env=chosen)


def cold(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run it as a user does, in an interpreter that has read nothing yet."""
    command = [sys.executable, "-c", "from undertow.cli import main; main()", *arguments]
    settings: dict[str, object] = {"capture_output": True, "text": True, "cwd": folder, "timeout": 280} | options
    return subprocess.run(command, check=False, **settings)  # type: ignore[call-overload, no-any-return]
