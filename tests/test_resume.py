"""Kill the process at any moment, run the same command again: nothing answered is asked again, and nothing differs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from undertow.places import store_file
from undertow.scoring.store import AnswerStore
from warm import COLD, cold, warm

MAIN = [sys.executable, "-c", COLD]


def stored() -> int:
    if not store_file().is_file():
        return 0
    with AnswerStore(store_file()) as store:
        return sum(shelf.n_answers for shelf in store.shelves())


def wait_for_more(than: int, process: subprocess.Popen[str], patience_s: float) -> None:
    """Until the store has grown, so that the kill falls into the middle of asking."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and process.poll() is None and stored() <= than:
        time.sleep(0.02)


def environment(hash_seed: int) -> dict[str, str]:
    """One thread, so that cores that others use do not make it wait."""
    return os.environ | {"PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}


def finish(command: list[str], folder: Path, hash_seed: int | None = None) -> tuple[bytes, dict[str, int]]:
    """With a hash seed it starts cold: what hangs on the order of a set differs between two seeds, and never warm."""
    words = [*command, "--out", str(folder), "--json"]
    done = warm(folder.parent, *words) if hash_seed is None else cold(folder.parent, *words, env=environment(hash_seed))
    assert done.returncode == 0, done.stderr
    return (folder / "results.json").read_bytes(), json.loads(done.stdout)["counts"]


def kill_once(command: list[str], folder: Path, moment: random.Random, longest_s: float) -> None:
    before = stored()
    process = subprocess.Popen(
        [*MAIN, *command, "--out", str(folder)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(hash_seed=2),
    )
    wait_for_more(before, process, patience_s=120)
    time.sleep(moment.uniform(0, longest_s))
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.soak
@pytest.mark.slow
def test_killed_many_times_the_toy_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", "spurious-correlation", "-m", "toy:pause=0.3", "--w", "date", "--limit", "600"]
    whole, counts = finish(command, tmp_path / "whole", hash_seed=1)
    assert counts["computed"] == 600
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "other cache"))
    moment, kept = random.Random(0), [0]
    for _ in range(5):
        kill_once(command, tmp_path / "killed", moment, longest_s=0.3)
        kept.append(stored())
    assert kept == sorted(kept)
    assert 0 < kept[-1] < 600
    resumed, counts = finish(command, tmp_path / "killed")
    assert resumed == whole
    assert counts["computed"] == 600 - kept[-1]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".killed")] == []


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.model
def test_killed_the_default_model_ends_as_if_it_had_not_been(
    smollm2_found: object, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "spurious-correlation", "-m", "smollm2", "--w", "date", "--limit", "450"]
    whole, counts = finish(command, tmp_path / "whole", hash_seed=1)
    assert counts["computed"] == 450
    other = tmp_path / "other cache"
    other.mkdir()
    (other / "models").symlink_to(cache / "models")
    monkeypatch.setenv("UNDERTOW_CACHE", str(other))
    # At the first pack of two: a moment later, a fast machine may have read them all.
    kill_once(command, tmp_path / "killed", random.Random(0), longest_s=0)
    kept = stored()
    assert 0 < kept < 450
    resumed, counts = finish(command, tmp_path / "killed", hash_seed=3)
    assert (resumed, counts["computed"]) == (whole, 450 - kept)
    repeated, counts = finish(command, tmp_path / "again")
    assert (repeated, counts["computed"]) == (whole, 0)
