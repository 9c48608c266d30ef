"""Folders that all workers of a test run share, made once, to be read or copied; and what a folder holds."""

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


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder by their path from there; those that a link leads to left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
