"""Stopped by the user, or out of memory: one sentence, and what was answered is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Cli
from tiny import saved, tiny_llama
from undertow.models import causal
from undertow.models.base import Request, TokenBatch
from undertow.places import store_file
from undertow.scoring.store import AnswerStore
from undertow.types import UndertowError

MAIN = [sys.executable, "-c", "from undertow.cli import main; main()"]


def test_ctrl_c_keeps_the_answers_and_says_so(tmp_path: Path) -> None:
    command = [
        *MAIN,
        "run",
        "spurious-correlation",
        "-m",
        "toy:pause=0.5",
        "--w",
        "date",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        time.sleep(0.05)
        if store_file().is_file():
            break
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    said, complained = process.communicate(timeout=60)
    assert (said, process.returncode) == ("", 130)
    assert complained == "undertow: stopped; all answers so far are kept, run the same command again to go on\n"
    with AnswerStore(store_file()) as store:
        assert sum(shelf.n_answers for shelf in store.shelves()) > 0
    assert not (tmp_path / "run").exists()


def test_memory_that_runs_out_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    np = pytest.importorskip("numpy")
    found = causal.find(Request(saved(tmp_path / "m", tiny_llama())))
    assert found is not None
    model = found.open()
    ones = np.array([0])

    def refuse(*arguments: object, **options: object) -> None:
        torch.empty(2**60)  # more than any machine has: torch's own refusal, not an imitation

    monkeypatch.setattr(causal.CausalModel, "_read", refuse)
    with pytest.raises(UndertowError, match="memory ran out while the model was reading; all answers so far are kept"):
        model.read_batch(TokenBatch(np.array([[1, 2]]), ones, ones, ones))


@pytest.mark.parametrize(("lost", "told"), [("MemoryError", False), ("ValueError('kept')", True)])
def test_what_is_lost_as_something_is_taken_down_is_told_but_for_memory(lost: str, told: bool) -> None:
    """Of memory the one sentence tells, as the command ends; Python would say a second, and a third, of what it could not raise."""
    code = f"""
from undertow import cli
class Ends:
    def __del__(self):
        raise {lost}
def app():
    Ends()
    raise MemoryError
cli.app = app
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("undertow: memory ran out; all answers so far are kept")
    assert ("Exception ignored" in done.stderr, "kept\n" in done.stderr) == (told, told)
    assert told or done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_ends_it_quietly(cli: Cli) -> None:
    code = "from undertow.cli import main; main()"
    piped = f"{sys.executable} -c '{code}' challenge mgt-icml | head -2"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("has_room", [True, False])
def test_an_error_without_a_reason_is_memorys_where_none_is_left(has_room: bool) -> None:
    """CPython's compiler, where it has no room: "error return without exception set"; elsewhere that is a fault to be seen."""
    code = f"""
from undertow import cli
def app():
    raise SystemError("error return without exception set")
cli.app = app
cli.ROOM_BYTES = 2**{20 if has_room else 60}
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr, "undertow: memory ran out" in done.stderr) == (has_room, not has_room)
