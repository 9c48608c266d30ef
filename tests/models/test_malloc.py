"""Memory that is kept between arrays and handed back between passes."""

from __future__ import annotations

import subprocess
import sys

CALLS = """
import numpy as np
from undertow.models.backend import malloc as pages

pages.trim_memory()
pages.SECONDS_BETWEEN = 0.0
pages.keep_freed_memory()
kept = np.ones(2**19)
for _ in range(3):
    assert np.ones(2**19).sum() == kept.sum()
    pages.trim_memory()
print(int(kept.sum()))
"""


def test_keeping_and_giving_back_pages_changes_no_array() -> None:
    """In a process of its own, since what malloc was told holds to the end of one."""
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 2**19
