"""Where things lie on this machine.

Knows folders; knows nothing about what is in them.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """The folder for models and answers: `UNDERTOW_CACHE` if it is set, else the user's cache folder."""
    chosen = os.environ.get("UNDERTOW_CACHE", "")
    return Path(chosen) if chosen else platformdirs.user_cache_path("undertow")


def store_file() -> Path:
    """The answer store."""
    return cache_folder() / "answers.sqlite"


def model_folder(name: str) -> Path:
    """The folder that a pulled model lies in."""
    return cache_folder() / "models" / name


def data_folder(name: str) -> Path:
    """The folder that fetched data of this name lie in."""
    return cache_folder() / "data" / name
