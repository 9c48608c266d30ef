"""Locks on folders, drafts of folders that appear whole or not at all, and the cache folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import platformdirs

from undertow.errors import UndertowError

try:
    import fcntl
except ImportError:  # Windows has no folder locks: drafts are removed by age
    fcntl = None  # type: ignore[assignment]


LOCK_TIMEOUT_S, WAIT_NOTICE_S = 120.0, 4.0
"""Seconds to wait for a lock before giving up, and before a message to the user."""

DRAFT_PREFIX = ".undertow-draft-"
"""Prefix of drafts beside a folder that a user named; the next writer there removes those of killed processes."""

LOCKED_SUFFIX = ".locked"
"""Suffix of a draft folder whose process holds a lock on it."""

STALE_AFTER_S = 24 * 3600.0
"""Age in seconds from which a draft without a lock counts as abandoned."""


def notify(sentence: str) -> None:
    """Print a line to standard error while a command runs."""
    sys.stderr.write(f"undertow: {sentence}\n")
    sys.stderr.flush()


@contextmanager
def lock_folder(folder: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a folder; without effect where folders cannot be locked.

    Raises `TimeoutError` if another process holds the lock all the time, by default `LOCK_TIMEOUT_S`.
    """
    timeout_s = LOCK_TIMEOUT_S if timeout_s is None else timeout_s
    lock = _open_folder(folder)
    try:
        started, reported = time.monotonic(), False
        while lock is not None and _try_lock(lock) is False:
            waited_s = time.monotonic() - started
            if waited_s > timeout_s:
                raise TimeoutError(0, f"another process has held it for {timeout_s:.0f} seconds", str(folder))
            if waited_s > WAIT_NOTICE_S and not reported:
                reported = True
                notify(f"{folder}: waiting for another process that uses this folder")
            time.sleep(0.02)
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def draft_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder, removed on exit. If the process is killed, the next draft in `parent` removes it."""
    remove_stale_drafts(parent, prefix)
    with lock_folder(parent):
        made = Path(tempfile.mkdtemp(prefix=prefix, suffix=LOCKED_SUFFIX if fcntl else "", dir=parent))
        lock = _open_folder(made)
        if lock is not None:
            _try_lock(lock)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Write text into a temporary file, which replaces `path` when it is complete."""
    handle, draft = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        Path(draft).chmod(0o666 & ~mask)  # a temporary file is its owner's alone; another program may read this one
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def write_whole(path: Path, text: str, fix: str) -> Path:
    """Write a text file whole, in a new folder if need be, and return its path; `fix` ends the message of an error."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(text)
    except OSError as error:
        raise UndertowError(f"{path}: cannot be written ({error.strerror or error}); {fix}") from error
    return path


def remove_stale_drafts(parent: Path, prefix: str) -> None:
    """Remove the drafts of processes that have ended."""
    if not (drafts := list(parent.glob(f"{prefix}*")) if parent.is_dir() else []):
        return
    with lock_folder(parent):
        for draft in drafts:
            with suppress(FileNotFoundError):  # another process has just ended
                if _is_stale(draft):
                    shutil.rmtree(draft, ignore_errors=True)


def _is_stale(draft: Path) -> bool:
    """Whether no process holds its lock; by age where locks are not supported."""
    is_old = time.time() - draft.stat().st_mtime > STALE_AFTER_S
    lock = _open_folder(draft) if draft.name.endswith(LOCKED_SUFFIX) else None
    if lock is None:
        return is_old
    try:
        is_free = _try_lock(lock)
    finally:
        os.close(lock)
    return is_old if is_free is None else is_free


def _open_folder(folder: Path) -> int | None:
    """A descriptor of the folder to lock; None where folders cannot be locked."""
    if fcntl is None:
        return None
    try:
        return os.open(folder, os.O_RDONLY)
    except PermissionError:
        return None


def _try_lock(lock: int) -> bool | None:
    """Whether this process holds the lock now; None where the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def names_in(folder: Path) -> set[str]:
    """Names in a folder that a command is to write, none if it does not exist yet; refuses one that cannot be written or created."""
    if "\0" in str(folder):
        raise UndertowError(f"{str(folder)!r}: a path cannot hold a zero byte; name another folder with --out")
    try:
        nearest = next(place for place in [folder, *folder.absolute().parents] if place.exists() or place.is_symlink())
        names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    except OSError as error:
        raise UndertowError(f"{folder}: cannot be used ({error.strerror}); name another folder with --out") from error
    if not nearest.is_dir():
        raise UndertowError(
            f"{nearest}: is {'a broken link' if nearest.is_symlink() and not nearest.exists() else 'a file'}; name a folder with --out"
        )
    if not os.access(nearest, os.W_OK):
        raise UndertowError(f"{nearest}: cannot be written to; name another folder with --out")
    return names


def cache_folder() -> Path:
    """The folder for models and answers: `UNDERTOW_CACHE` if it is set, else the user's cache folder."""
    chosen = os.environ.get("UNDERTOW_CACHE", "")
    return Path(chosen) if chosen else platformdirs.user_cache_path("undertow")


def cache_file() -> Path:
    """The file of the answer cache."""
    return cache_folder() / "answers.sqlite"


def model_folder(name: str) -> Path:
    """The folder of a downloaded model."""
    return cache_folder() / "models" / name


def data_folder(name: str) -> Path:
    """The folder of downloaded data."""
    return cache_folder() / "data" / name
