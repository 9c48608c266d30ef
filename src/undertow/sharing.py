"""How processes that share a folder keep out of each other's way: locks, and drafts that a killed process leaves behind.

Knows folders; knows nothing about what is in them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and drafts are old before they are removed
    fcntl = None  # type: ignore[assignment]

WAIT_S, SAY_S = 120.0, 4.0
"""How long another process may hold what we need before we give up, and before the user is told that we wait."""
DRAFT_PREFIX = ".undertow-draft-"
"""Begins the name of a draft of a folder that a user named; whoever writes beside it next removes those of killed processes."""
HELD = ".held"
"""Ends the name of a draft folder that is locked for as long as its process lives."""
OLD_S = 24 * 3600.0
"""When a draft that cannot be locked is taken for one of a process that is no more: longer than any of them takes."""


def say(sentence: str) -> None:
    """A line on standard error, for what a user should know while a command goes on."""
    sys.stderr.write(f"undertow: {sentence}\n")
    sys.stderr.flush()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, as long as nobody else locks the folder; a folder that cannot be locked is used as it is.

    Raises:
        TimeoutError: another process held it all the time.
    """
    lock = _descriptor(folder)
    try:
        started, told = time.monotonic(), False
        while lock is not None and _taken(lock) is False:
            waited_s = time.monotonic() - started
            if waited_s > WAIT_S:
                raise TimeoutError(0, f"another process has held it for {WAIT_S:.0f} seconds", str(folder))
            if waited_s > SAY_S and not told:
                told = True
                say(f"{folder}: waiting for another process that holds this folder")
            time.sleep(0.02)
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def draft_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder for what is not finished, gone afterwards. If its process is killed, the next one here removes it."""
    remove_forsaken(parent, prefix)
    with locked(parent):
        made = Path(tempfile.mkdtemp(prefix=prefix, suffix=HELD if fcntl else "", dir=parent))
        lock = _descriptor(made)
        if lock is not None:
            _taken(lock)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_forsaken(parent: Path, prefix: str) -> None:
    """Remove drafts of processes that are no more."""
    drafts = list(parent.glob(f"{prefix}*")) if parent.is_dir() else []
    if not drafts:
        return
    with locked(parent):
        for draft in drafts:
            with suppress(FileNotFoundError):  # another process has just ended
                if _is_forsaken(draft):
                    shutil.rmtree(draft, ignore_errors=True)


def _is_forsaken(draft: Path) -> bool:
    """By its lock, and by its age where locks tell nothing."""
    is_old = time.time() - draft.stat().st_mtime > OLD_S
    lock = _descriptor(draft) if draft.name.endswith(HELD) else None
    if lock is None:
        return is_old
    try:
        is_free = _taken(lock)
    finally:
        os.close(lock)
    return is_old if is_free is None else is_free


def _descriptor(folder: Path) -> int | None:
    """The folder, open to be locked; None where folders cannot be."""
    if fcntl is None:
        return None
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:
        return None


def _taken(lock: int) -> bool | None:
    """Whether the lock is ours now; None where the file system knows no locks, and so nothing is to be waited for."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
