"""Holes that passes leave in memory are handed back between them, not within them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOLES = """
import sys, time
import numpy as np
from undertow import pages

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def passes():
    # Arrays of 4 MB with something small that stays after each.
    arrays, small = [], []
    for _ in range(25):
        arrays.append(np.ones(2**19))
        small.append(np.ones(3000))
    return small

if sys.argv[1] == "keep":
    pages.keep_pages()
before = resident()
small = passes()
after = resident()
pages.give_back_pages()
at_once = resident()
time.sleep(pages.SECONDS_BETWEEN)
pages.give_back_pages()
print(*((number - before) / 2**20 for number in (after, at_once, resident())))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what is resident in /proc")
def test_what_is_kept_is_handed_back_between_passes() -> None:
    kept = _resident("keep")
    if kept[0] < 90:
        pytest.skip("this C library is not glibc, and keeps nothing")
    assert kept[1] > 90, "a moment later nothing is done"
    assert kept[2] < 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what is resident in /proc")
def test_nothing_is_done_where_nothing_was_kept() -> None:
    after, at_once, later = _resident("leave")
    assert at_once == pytest.approx(after, abs=1)
    assert later == pytest.approx(after, abs=1)


def _resident(what: str) -> list[float]:
    """MiB beyond what there was: after arrays were freed, after being asked at once, and later."""
    said = subprocess.run([sys.executable, "-c", HOLES, what], capture_output=True, text=True, check=True, timeout=60)
    return [float(number) for number in said.stdout.split()]
