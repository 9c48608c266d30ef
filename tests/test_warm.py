"""A command that starts warm is the command that starts cold: in status, output, folder, environment and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warm import AT_START, LIGHT, OF_A_RUN, OF_MODELS, ONE_THREADED, WarmStart, cold

FORKS = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="nothing is forked where threads are not told")
COMMANDS = {
    "nothing": "",
    "output": "print('said', end='\\r\\n'); print('ünsaid', file=sys.stderr)",
    "unflushed": "sys.stdout.write('x' * 100_000)",
    "arguments": "print(sys.argv)",
    "folder": "print(os.getcwd()); open('made', 'w').close()",
    "environment": "print({name: zlib.crc32(value.encode()) for name, value in sorted(os.environ.items())})",
    "environment of a child": "os.system('env | cut -d= -f1 | sort; env | sort | cksum')",
    "input": "print(repr(sys.stdin.read()))",
    "status": "sys.exit(3)",
    "status below zero": "sys.exit(-1)",
    "status none": "sys.exit(None)",
    "status in words": "print('half', end=''); sys.exit('in words')",
    "status of another kind": "sys.exit(['a', 'list'])",
    "exception": "print('half', end=''); raise ValueError('uncaught')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "print('half', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "left at once": "os._exit(7)",
    "thread": "threading.Thread(target=lambda: (time.sleep(0.2), print('at last'))).start()",
    "at exit": "threading.Timer(0.1, print, ['first']).start(); atexit.register(print, 'then')",
}
STAND_IN = "import atexit, os, signal, sys, threading, time, zlib\n\n\ndef main():\n    pass; {}\n"
"""A command line of a folder's own, which an interpreter that is given its program as words finds before any other."""

pytestmark = FORKS


def command(folder: Path, does: str) -> Path:
    (folder / "undertow").mkdir(parents=True)
    (folder / "undertow" / "__init__.py").touch()
    (folder / "undertow" / "cli.py").write_text(STAND_IN.format(does), encoding="utf-8")
    return folder


def started(warmly: WarmStart, folder: Path, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    done = warmly.run(arguments, folder, os.environ, limit_s)
    assert done is not None, "it has threads"
    return done


def without_the_start(traceback: str) -> list[str]:
    """Two programs differ in the line that they call a command from."""
    return [line for line in traceback.splitlines() if not line.startswith('  File "<string>"')]


@pytest.fixture(scope="module")
def light() -> Iterator[WarmStart]:
    start = WarmStart(LIGHT)
    yield start
    start.end()


@pytest.mark.parametrize("name", COMMANDS)
def test_warm_is_as_cold(name: str, light: WarmStart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTOW_CACHE", "a test's own")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    folder = command(tmp_path, COMMANDS[name])
    told = [
        (done.returncode, done.stdout, without_the_start(done.stderr), sorted(path.name for path in folder.iterdir()))
        for done in (cold(folder, "a", "--b", stdin=subprocess.DEVNULL), started(light, folder, "a", "--b"))
    ]
    assert told[0] == told[1]


def test_what_they_agree_on(light: WarmStart, tmp_path: Path) -> None:
    """That the comparison could fail: endings that must not be alike."""
    words = started(light, command(tmp_path / "words", COMMANDS["status in words"]))
    assert (words.returncode, words.stdout, words.stderr) == (1, "half", "in words\n")
    uncaught = started(light, command(tmp_path / "uncaught", COMMANDS["exception"]))
    assert (uncaught.returncode, uncaught.stdout) == (1, "half")
    assert uncaught.stderr.startswith("Traceback (most recent call last):\n")
    assert uncaught.stderr.endswith("ValueError: uncaught\n")
    assert started(light, command(tmp_path / "killed", COMMANDS["killed"])).returncode == -signal.SIGKILL
    assert started(light, command(tmp_path / "thread", COMMANDS["thread"])).stdout == "at last\n"


def test_the_command_line_is_read_anew(light: WarmStart, tmp_path: Path) -> None:
    folder = command(tmp_path, "print('once')")
    assert started(light, folder).stdout == "once\n"
    (folder / "undertow" / "cli.py").write_text("def main():\n    print('and again')\n", encoding="utf-8")
    assert started(light, folder).stdout == "and again\n"
    (real := tmp_path / "real").mkdir()
    assert started(light, real, "--version").stdout == cold(real, "--version").stdout != ""


def test_what_the_one_that_waits_is_told_does_not_reach_a_command(light: WarmStart, tmp_path: Path) -> None:
    folder = command(tmp_path, f"print([os.environ.get(name) for name in {list(ONE_THREADED)}])")
    environment = {name: value for name, value in os.environ.items() if name not in ONE_THREADED}
    done = light.run([], folder, environment | {"OMP_NUM_THREADS": "7"})
    assert done is not None
    assert done.stdout == "['7', None, None, None]\n"


def test_a_command_that_takes_too_long(light: WarmStart, tmp_path: Path) -> None:
    folder = command(tmp_path, "time.sleep(60 * (len(sys.argv) > 1))")
    with pytest.raises(subprocess.TimeoutExpired):
        cold(folder, "long", timeout=0.3)
    with pytest.raises(subprocess.TimeoutExpired):
        started(light, folder, "long", limit_s=0.3)
    assert started(light, folder).returncode == 0


def test_a_test_that_is_cut_off_leaves_no_answer_to_the_next(tmp_path: Path) -> None:
    def cut_off(*_: object) -> None:
        raise InterruptedError

    def cut_off_when_it_runs() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (pid.is_file() and pid.read_text()):
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGUSR1)

    pid = tmp_path / "pid"
    does = "open('pid', 'w').write(str(os.getpid())); time.sleep(60 * (len(sys.argv) > 1)); sys.exit(4)"
    folder, main, start = command(tmp_path, does), threading.main_thread().ident or 0, WarmStart(["json"])
    before = signal.signal(signal.SIGUSR1, cut_off)
    threading.Thread(target=cut_off_when_it_runs).start()
    try:
        with pytest.raises(InterruptedError):
            started(start, folder, "long")
    finally:
        signal.signal(signal.SIGUSR1, before)
    cut = int(pid.read_text())
    assert started(start, folder).returncode == 4
    assert cut != int(pid.read_text())
    assert not alive(cut)
    start.end()


def alive(process: int) -> bool:
    """Until a second has passed; whoever inherits a process that was killed may take a moment to bury it."""
    until = time.monotonic() + 1
    while (status := Path(f"/proc/{process}/status")).exists() and "State:\tZ" not in status.read_text():
        if time.monotonic() > until:
            return True
        time.sleep(0.01)
    return False


def test_nothing_is_forked_from_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    start = WarmStart(["threaded"])
    assert start.run(["--version"], tmp_path, os.environ) is None
    assert start.run(["--version"], tmp_path, os.environ) is None
    start.end()


@pytest.mark.parametrize("package", ["matplotlib.pyplot", "ray", "statsmodels.api", "torch", "transformers"])
def test_a_package_that_a_test_reads_sends_no_command_to_a_cold_start(package: str) -> None:
    """One that sets something in the environment, for itself, would do so for all commands of a whole run of the tests."""
    pytest.importorskip(package)
    assert {name for name, _ in os.environ.items() ^ AT_START.items()} <= OF_A_RUN


def test_packages_that_are_not_there_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="has ended"):
        WarmStart(["no_such_package"]).run(["--version"], tmp_path, os.environ)
    assert "No module named 'no_such_package'" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.model
def test_torch_is_forked_from_one_thread(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    start = WarmStart(OF_MODELS)
    folder = command(
        tmp_path,
        "import torch; print(torch.get_num_threads(), torch.ones(9, 9).mm(torch.ones(9, 9)).sum().item())",
    )
    assert started(start, folder).stdout == "1 729.0\n"
    start.end()
