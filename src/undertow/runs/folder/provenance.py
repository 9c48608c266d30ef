"""The provenance of a run: its command, its Python call, versions and machine."""

from __future__ import annotations

import ast
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from undertow.inference.versions import _versions, code_sha256

PACKAGES = ("numpy", "scipy", "pandas", "torch", "transformers", "tokenizers", "gguf")


def shell_command(audit: str, models: Sequence[str], changed: Mapping[str, Any]) -> str:
    """The command line of a run, with options that differ from their defaults."""
    flags = [part for name, value in changed.items() for part in _flag(name.replace("_", "-"), value)]
    return shlex.join(["undertow", "run", audit, *(part for model in models for part in ("-m", model)), *flags])


def _flag(name: str, value: Any) -> list[str]:
    """One option; a boolean is a flag without a value."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def python_call(audit: str, models: Sequence[str], changed: Mapping[str, Any]) -> str:
    """The Python call of a run."""
    arguments = "".join(f", {name}={value!r}" for name, value in changed.items())
    argument = models[0] if len(models) == 1 else list(models)
    return f"undertow.audit({audit!r}, model={argument!r}{arguments})"


def score_command(source: str, changed: Mapping[str, Any]) -> str:
    """The command line that measures a run or table, with the options that were given."""
    flags = [part for name, value in changed.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["undertow", "score", source, *flags])


def score_call(source: str, changed: Mapping[str, Any]) -> str:
    """The Python call that measures a run or table."""
    arguments = "".join(f", {name}={value!r}" for name, value in changed.items())
    return f"undertow.score({source!r}{arguments})"


def command_with(command: str, name: str, value: str) -> str:
    """A command line with this option last, and only once.

    Raises:
        ValueError: the text is not a command line.
    """
    words, flag = shlex.split(command), f"--{name}"
    if flag in words:
        at = words.index(flag)
        del words[at : at + 2]
    return shlex.join([*words, flag, value])


def call_with(call: str, name: str, value: str) -> str:
    """A Python call with this argument last, and only once.

    Raises:
        ValueError: the text is not a call.
    """
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"no Python call: {error.msg}") from error
    if not isinstance(tree, ast.Call):
        raise ValueError("no Python call")
    others = [keyword for keyword in tree.keywords if keyword.arg != name]
    tree.keywords = [*others, ast.keyword(name, ast.Constant(value))]
    return ast.unparse(tree)


def circumstances() -> dict[str, Any]:
    """Time, package versions and machine, for repeating a run."""
    versions = {"undertow": version("undertow"), "python": platform.python_version(), **_versions(PACKAGES)}
    machine = {"system": platform.system(), "release": platform.release(), "processor": _processor(), "cores": _cores()}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"created": created, "versions": versions, "code_sha256": code_sha256(), "machine": machine}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
