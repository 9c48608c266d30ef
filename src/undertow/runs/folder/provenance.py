"""The provenance of a run: its command, its Python call, versions and machine."""

from __future__ import annotations

import ast
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from undertow.inference.engines import code_sha256, installed_versions
from undertow.models.backend.execution import gpu_name, n_cores

PACKAGES = ("numpy", "scipy", "pandas", "torch", "transformers", "tokenizers", "gguf")


def command_line(words: Sequence[str], options: Mapping[str, Any]) -> str:
    """A command of `undertow` with options; a boolean is a flag without a value."""
    flags = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        flags += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return shlex.join(["undertow", *words, *flags])


def python_call(function: str, arguments: str, options: Mapping[str, Any]) -> str:
    """A call of a function of `undertow` with options."""
    return f"undertow.{function}({', '.join([arguments, *(f'{name}={value!r}' for name, value in options.items())])})"


def command_with(command: str, name: str, value: str) -> str:
    """A command line with this option last, and only once; "" stays "". Other text is a `ValueError`."""
    if not command:
        return ""
    words, flag = shlex.split(command), f"--{name}"
    if flag in words:
        at = words.index(flag)
        del words[at : at + 2]
    return shlex.join([*words, flag, value])


def call_with(call: str, name: str, value: str) -> str:
    """A Python call with this argument last, and only once. Other text is a `ValueError`."""
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"no Python call: {error.msg}") from error
    if not isinstance(tree, ast.Call):
        raise ValueError("no Python call")
    others = [keyword for keyword in tree.keywords if keyword.arg != name]
    tree.keywords = [*others, ast.keyword(name, ast.Constant(value))]
    return ast.unparse(tree)


def circumstances(device: str = "cpu") -> dict[str, Any]:
    """Time, package versions and machine, for repeating a run; with the GPU, if networks are on one."""
    versions = {"undertow": version("undertow"), "python": platform.python_version(), **installed_versions(PACKAGES)}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    processor = next(names, platform.processor() or platform.machine())
    machine = {"system": platform.system(), "release": platform.release(), "processor": processor, "cores": n_cores()}
    if gpu := gpu_name(device):
        machine["gpu"] = gpu
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"created": created, "versions": versions, "code_sha256": code_sha256(), "machine": machine}
