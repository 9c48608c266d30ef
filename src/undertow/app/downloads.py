"""Files for download, in a private folder with generated names and a size limit."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MAX_FILES, MAX_FILES_BYTES = 60, 256 * 2**20


class Files:
    """The files that are kept; where there is no more room, the oldest go first.

    Args:
        folder: that holds them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def keep(self, name: str, content: bytes) -> str:
        """Write a file; returns its path."""
        with self._lock:
            self._make_room(len(content))
            place = self._folder / f"kept-{secrets.token_hex(12)}"
            place.mkdir()
            (place / name).write_bytes(content)
        return str(place / name)

    def _make_room(self, n_bytes: int) -> None:
        room = MAX_FILES_BYTES - n_bytes
        for number, (_, size, kept) in enumerate(sorted(self._kept(), reverse=True), 1):
            room -= size
            if number >= MAX_FILES or room < 0:
                shutil.rmtree(kept.parent, ignore_errors=True)

    def _kept(self) -> Iterator[tuple[int, int, Path]]:
        """When each file was written, how large it is, and which."""
        for kept in self._folder.glob("kept-*/*"):
            with suppress(FileNotFoundError):  # the server tidies its temporary files away, too
                status = kept.stat()
                yield status.st_mtime_ns, status.st_size, kept
