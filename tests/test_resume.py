"""Kill the process at any moment, run the same command again: nothing answered is asked again, and nothing differs.

`make test` kills a run in tests/reliability/test_crashes.py; these kill the toy many times, and the default model.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import command_line
from test_stopping import n_stored, wait_for_more

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]


def environment(hash_seed: int) -> dict[str, str]:
    """What hangs on the order of a set differs between two seeds; one thread waits for no other's core."""
    return os.environ | {"PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}


def finish(command: list[str], folder: Path, hash_seed: int) -> tuple[bytes, dict[str, int]]:
    words = [*command, "--out", str(folder), "--json"]
    done = command_line.process(folder.parent, *words, env=environment(hash_seed))
    assert done.returncode == 0, done.stderr
    return (folder / "results.json").read_bytes(), json.loads(done.stdout)["counts"]


def kill_once(command: list[str], folder: Path) -> None:
    """Kill the command as soon as it has stored an answer more."""
    before = n_stored()
    with command_line.started(folder.parent, *command, "--out", str(folder), env=environment(2)) as process:
        wait_for_more(before, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def test_toy_killed_many_times_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", "spurious-correlation", "-m", "toy:pause=0.3", "--w", "date", "--limit", "600"]
    whole, counts = finish(command, tmp_path / "whole", hash_seed=1)
    assert counts["computed"] == 600
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "other cache"))
    kept = [0]
    for _ in range(3):
        kill_once(command, tmp_path / "killed")
        kept.append(n_stored())
    assert kept == sorted(kept)
    assert 0 < kept[-1] < 600
    resumed, counts = finish(command, tmp_path / "killed", hash_seed=3)
    assert (resumed, counts["computed"]) == (whole, 600 - kept[-1])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".killed")] == []


@pytest.mark.model
def test_default_model_killed_ends_as_if_it_had_not_been(
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
    kill_once(command, tmp_path / "killed")
    kept = n_stored()
    assert 0 < kept < 450
    resumed, counts = finish(command, tmp_path / "killed", hash_seed=3)
    assert (resumed, counts["computed"]) == (whole, 450 - kept)
    repeated, counts = finish(command, tmp_path / "again", hash_seed=3)
    assert (repeated, counts["computed"]) == (whole, 0)
