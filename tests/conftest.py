"""What several tests share: a cache of their own, the default model where it is, the reference data where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from undertow import places
from undertow.models.base import Found, Request, TokenModel
from undertow.models.pull import location

ROOT = Path(__file__).parent.parent
SMOLLM2 = location("smollm2")
"""Where the default model lies in the user's cache, before any test changes the cache."""

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, with the default model linked into it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("UNDERTOW_CACHE", str(folder))
    if SMOLLM2.is_file():
        location("smollm2").parent.mkdir(parents=True)
        location("smollm2").symlink_to(SMOLLM2)
    return places.cache_folder()


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Real reference data, which a user's clone does not have."""
    folder = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the reference data are not here: no folder {folder} (UNDERTOW_REFERENCE_DATA names another)")
    return folder


@pytest.fixture(scope="session")
def smollm2_found() -> Found:
    """The default model, not loaded."""
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    from undertow.models import causal

    found = causal.find(Request(str(SMOLLM2)))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def smollm2(smollm2_found: Found) -> TokenModel:
    """The default model, loaded once."""
    model: TokenModel = smollm2_found.open()
    return model


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run the command line in a process of its own, as a user does."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from undertow.cli import main; main()", *arguments]
        settings: dict[str, object] = {"capture_output": True, "text": True, "cwd": tmp_path, "timeout": 280} | options
        return subprocess.run(command, check=False, **settings)  # type: ignore[call-overload, no-any-return]

    return run
