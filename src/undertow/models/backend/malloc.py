"""Tune glibc malloc: keep freed arrays within a forward pass, return holes to the system between passes.

Pages that are returned after each use must be cleared again, which takes a sixth of a pass. But freed arrays of one size leave
holes that later arrays do not fit into, so memory would grow with the number of passes. Only on Linux with glibc.
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
"""Constants of glibc's malloc.h."""
KEPT_BYTES, MAX_OF_OLDER_BYTES = 2**29, 2**25
"""Maximum size of an array to keep; the second value is the limit of older glibc versions."""
SECONDS_BETWEEN = 0.2
"""Minimum time between trims, since a trim takes milliseconds."""

_due_s = math.inf
"""Monotonic time of the next trim; infinity if disabled."""


def keep_freed_memory() -> None:
    """Trim once, then keep freed memory for the next pass."""
    global _due_s  # noqa: PLW0603  # malloc is global to the process
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    _due_s = time.monotonic() + SECONDS_BETWEEN
    libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    if not libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES):
        libc.mallopt(M_MMAP_THRESHOLD, MAX_OF_OLDER_BYTES)


def trim_memory() -> None:
    """Return holes to the system, unless this was done just before."""
    global _due_s  # noqa: PLW0603
    if time.monotonic() >= _due_s:
        _glibc().malloc_trim(0)
        _due_s = time.monotonic() + SECONDS_BETWEEN


@cache
def _glibc() -> Any:
    """glibc, if the C library is glibc; musl lacks these functions."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            _ = libc.malloc_trim, libc.mallopt
            return libc
    return None
