"""Versions of the code and packages that determine answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def code_sha256() -> str:
    """SHA-256 over the package's own files: the code behind a run (64 hex digits)."""
    package = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix not in (".pyc", ".pyo"):
            whole.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()


def versions_that_answer() -> dict[str, str]:
    """Versions that all workers of a run must share: this code, and the packages that run models."""
    own = f"{version('undertow')} (files {code_sha256()[:12]})"
    return {"undertow": own, **_versions(("torch", "transformers"))}


def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of the installed ones."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
