"""Chromium, for pages that are tested as their readers see them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), "")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
LIMIT_MS = 400_000
"""How long anything of a page may take, on a machine that has much else to do."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser; every test has a window of its own, with cookies of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra dev, is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()
