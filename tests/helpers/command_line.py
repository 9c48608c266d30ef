"""The command line for tests: in this process, or as a user starts it, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

UNDERTOW = (sys.executable, "-c", "from undertow.cli import main; main()")
"""The command, whether or not the `undertow` script is on the path."""
LIMIT_S = 1200.0
"""How long a command may take: less than pytest gives a test."""

Done = subprocess.CompletedProcess[str]


def in_process(folder: Path, *arguments: str, env: Mapping[str, str] | None = None, typed: str = "") -> Done:
    """Run a command in this process; an exception that a user would see as a traceback is raised.

    Environment, hooks and standard streams are afterwards what they were before. `typed` is standard input. `env` adds to the
    environment; what is read as a package is imported (HF_ENDPOINT, OMP_NUM_THREADS) needs a process of its own.
    """
    from undertow import cli

    hook, fd_of_output = sys.unraisablehook, os.dup(1)
    try:
        with (
            contextlib.chdir(folder),
            mock.patch.dict(os.environ, env or {}),
            mock.patch.object(sys, "argv", ["undertow", *arguments]),
            CliRunner().isolation(typed) as (output, errors, _),
        ):
            status: object = 0
            try:
                cli.main()
            except SystemExit as left:
                status = left.code
            sys.stdout.flush()
            sys.stderr.flush()
            texts = output.getvalue().decode(), errors.getvalue().decode()
    finally:
        sys.unraisablehook = hook
        os.dup2(fd_of_output, 1)
        os.close(fd_of_output)
    assert status is None or isinstance(status, int)
    return Done(list(arguments), status or 0, *texts)


def process(folder: Path, *arguments: str, **options: Any) -> Done:
    """Run a command in an interpreter of its own; `options` are those of `subprocess.run`."""
    settings: dict[str, Any] = {"cwd": folder, "capture_output": True, "timeout": LIMIT_S}
    return subprocess.run([*UNDERTOW, *arguments], text=True, check=False, **settings | options)


@contextlib.contextmanager
def started(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test; killed, with all that it started, when the test is done with it."""
    import psutil

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = subprocess.Popen([*UNDERTOW, *arguments], cwd=folder, env=env, text=True, **pipes | options)
    try:
        yield command
    finally:
        family = [command]
        with contextlib.suppress(psutil.NoSuchProcess):
            family += psutil.Process(command.pid).children(recursive=True)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        with contextlib.suppress(ValueError):  # its pipes were closed by the test
            command.communicate()
        command.wait()
