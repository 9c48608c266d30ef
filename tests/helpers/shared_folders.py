"""Folders that are costly to make, made once for all workers of a test run. Tests read them; one that changes its folder copies it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def made_once(base: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `base`/`name`, filled by `make` unless another worker has done so; waits while another does."""
    folder, draft = base / name, base / f"{name}.draft"
    with FileLock(base / f"{name}.lock"):
        if not folder.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            make(draft)
            draft.rename(folder)
    return folder


def named(*what: object) -> str:
    """A folder name for what is asked for."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
