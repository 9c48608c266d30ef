"""Stopped by the user, or out of memory: one sentence, and what was answered is kept."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.answering import n_stored
from helpers.command_line import UNDERTOW, started
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest, TokenBatch
from undertow.models.families import causal


def wait_for_more(before: int, command: subprocess.Popen[str], guard_s: float = 240.0) -> None:
    """Until the command has stored an answer more; the guard is for one that never does."""
    until = time.monotonic() + guard_s
    while n_stored() <= before:
        assert command.poll() is None, command.communicate()
        assert time.monotonic() < until, "no answer was stored"
        time.sleep(0.02)


@pytest.mark.slow
def test_ctrl_c_keeps_the_answers_and_says_so(tmp_path: Path) -> None:
    arguments = ["run", "spurious-correlation", "-m", "toy:pause=0.3", "--w", "date", "--out", "run"]
    with started(tmp_path, *arguments) as command:
        wait_for_more(0, command)
        command.send_signal(signal.SIGINT)
        said, complained = command.communicate(timeout=240)
    assert (said, command.returncode) == ("", 130)
    assert complained == "undertow: stopped; all answers so far are cached; run the same command again to continue\n"
    assert n_stored() > 0
    assert not (tmp_path / "run").exists()


def test_memory_that_runs_out_while_reading_is_one_sentence(
    network: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    np = pytest.importorskip("numpy")
    found = causal.resolve(ModelRequest(network("tiny_llama")))
    assert found is not None
    model = found.open()
    ones = np.array([0])

    def refuse(*arguments: object, **options: object) -> None:
        torch.empty(2**60)  # more than any machine has: torch's own refusal, not an imitation

    monkeypatch.setattr(causal.CausalModel, "_read", refuse)
    with pytest.raises(UndertowError, match="out of memory in a forward pass; all answers so far are cached"):
        model.read_batch(TokenBatch(np.array([[1, 2]]), ones, ones, ones))


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    piped = f"{shlex.join(UNDERTOW)} challenge mgt-icml | head -2"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
