"""Memory that glibc keeps for the next array, and when it is handed back to the system.

An array that is handed back after each use has to be cleared page by page for its next one, which takes a sixth of a pass. But
arrays of one size leave holes that those of the next do not fit into, and what is kept so grows with the number of passes. So
everything is kept within a pass, and the holes are handed back between passes. Elsewhere than on Linux with glibc nothing is done.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from contextlib import suppress
from functools import cache
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's malloc.h."""
KEPT_BYTES, MAX_OF_OLDER_BYTES = 2**29, 2**25
"""Arrays smaller than this are kept for the next; older versions of glibc allow no more than the second."""
SECONDS_BETWEEN = 0.2
"""Looking through all of the memory takes milliseconds: short passes share one look."""

_due_s = math.inf
"""When holes are next handed back, by the monotonic clock: never where nothing is kept."""


def keep_freed_memory() -> None:
    """From here on what one pass leaves is there for the next; the holes that loading left are handed back first."""
    global _due_s  # noqa: PLW0603  # memory is the process's, and so is when it was last looked through
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    _due_s = time.monotonic() + SECONDS_BETWEEN
    libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    if not libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES):
        libc.mallopt(M_MMAP_THRESHOLD, MAX_OF_OLDER_BYTES)


def trim_memory() -> None:
    """Hand the holes back, unless it was done a moment ago."""
    global _due_s  # noqa: PLW0603
    if time.monotonic() >= _due_s:
        _glibc().malloc_trim(0)
        _due_s = time.monotonic() + SECONDS_BETWEEN


@cache
def _glibc() -> Any:
    """The library where it is glibc; musl has neither function."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            _ = libc.malloc_trim, libc.mallopt
            return libc
    return None
