"""Write a folder whole, or not at all, and refuse places that hold something else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from undertow._folders import DRAFT_PREFIX, draft_folder, lock_folder, names_in, remove_stale_drafts
from undertow.errors import UndertowError

UNFINISHED = ".unfinished"
"""Marks a folder whose files are being replaced."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of folder that is written as a whole, and the files in it.

    Attributes:
        noun: its noun in messages.
        last: the file with its key, written last, so that a folder with this file is complete.
        parts: names that it may contain.
        key: reads the key of a folder.
        stale: files of an older folder to remove, because the new one may lack them.
        replace: how to replace another folder, for messages; "" if impossible.
        kept: what survives a failed write, for messages; "" for nothing.
        whole: whether to replace a folder with all its files, because its file names vary.
    """

    noun: str
    last: str
    parts: Sequence[str]
    key: Callable[[Path], str]
    stale: Sequence[str] = ()
    replace: str = ""
    kept: str = ""
    whole: bool = False


def write_folder(folder: Path, key: str, fill: Callable[[Path], None], kind: Kind, *, overwrite: bool = False) -> None:
    """Write a folder, all or nothing.

    Args:
        folder: the folder; one with the same key is replaced.
        key: its key.
        fill: writes all files into the folder it is given.
        kind: its kind.
        overwrite: replace a folder with another key too.

    Raises:
        UndertowError: the place is taken by something else, or cannot be written.
    """
    check_place(folder, key, kind, overwrite=overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder.absolute().parent, DRAFT_PREFIX) as beside:
            draft = beside / "run"
            draft.mkdir()
            fill(draft)
            for place in [draft, *draft.rglob("*")]:  # a power cut must not leave a manifest without data
                _sync(place)
            with lock_folder(folder.parent):
                _refuse_place(folder, key, kind, overwrite=overwrite)  # it may be taken meanwhile
                _move(draft, folder, kind)
                _sync(folder.absolute().parent)
    except OSError as error:
        raise UndertowError(
            f"{folder}: the {kind.noun} folder cannot be written ({error.strerror or error}); {kind.kept}"
            "free space or name another --out and run the same command again"
        ) from error


def check_place(folder: Path, key: str, kind: Kind, *, overwrite: bool = False) -> None:
    """Refuse, before any work, a place with other content than the folder with this key, or where none can be created."""
    with suppress(OSError, ValueError):  # an unwritable folder is refused below
        # Here, because a run that was complete when its process was killed is not written again.
        remove_stale_drafts(folder.absolute().parent, DRAFT_PREFIX)
    _refuse_place(folder, key, kind, overwrite=overwrite)


def _refuse_place(folder: Path, key: str, kind: Kind, *, overwrite: bool) -> None:
    held = names_in(folder)
    if not held:
        return
    if kind.last not in held and UNFINISHED in held and (held == {UNFINISHED} or held.intersection(kind.parts)):
        return  # a replacement that was allowed has started
    if kind.last not in held and not held <= set(kind.parts):
        raise UndertowError(f"{folder}: is not empty and not a {kind.noun} folder; name another folder with --out")
    if not overwrite:
        with suppress(UndertowError):  # a corrupt folder
            if kind.key(folder) == key:
                return
        raise UndertowError(
            f"{folder}: contains another {kind.noun}, or a corrupt one; name another folder with --out{kind.replace}"
        )


def _move(draft: Path, folder: Path, kind: Kind) -> None:
    if kind.whole and folder.exists():
        shutil.rmtree(folder)
    if not folder.exists():
        draft.rename(folder)
        return
    # The old manifest is removed first and the new one comes last, so an incomplete folder is not taken for a run.
    (folder / UNFINISHED).touch()
    for name in (kind.last, *kind.stale):
        (folder / name).unlink(missing_ok=True)
    for entry in sorted(draft.iterdir(), key=lambda entry: entry.name == kind.last):
        target = folder / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        entry.replace(target)
    (folder / UNFINISHED).unlink()


def _sync(place: Path) -> None:
    """Flush a file or folder to disk."""
    if place.is_dir() and sys.platform == "win32":  # which opens no folders
        return
    with suppress(OSError) if place.is_dir() else nullcontext():  # some file systems do not sync folders
        opened = os.open(place, os.O_RDONLY if place.is_dir() else os.O_RDWR)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
