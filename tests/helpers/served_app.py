"""The page of `undertow app`, served by a process of its own as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import pytest

START = """
import sys
from pathlib import Path
from undertow.cli.app import app
models, runs = sys.argv[1:]
app(models=models, allow_any_model=False, runs=Path(runs), host="127.0.0.1", port=0, browser=False)
"""
LIMIT_S = 400
"""How long anything of the page may take, on a machine that has much else to do."""


class ServedApp(NamedTuple):
    """A page that is served: its address, with the token; its folder, with `runs` and `tmp`; what it complains of."""

    address: str
    folder: Path
    complaints: Path


@contextmanager
def serving(folder: Path, models: str) -> Iterator[ServedApp]:
    """The page while it is served; then it is interrupted, and leaves nothing behind.

    It may complain where it is attacked: visitors send what no page would.
    """
    pytest.importorskip("gradio", reason="the app extra is not installed")
    for name in ("tmp", "runs"):
        (folder / name).mkdir()
    environment = os.environ | {"UNDERTOW_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    command = [sys.executable, "-W", "ignore", "-c", START, models, str(folder / "runs")]
    with (
        (folder / "complaints").open("wb") as errors,  # nobody reads while it runs, and a pipe would fill up
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            served = ServedApp(first.partition("Open ")[2].partition(" ")[0], folder, folder / "complaints")
            assert served.address.startswith("http://127.0.0.1:"), first + served.complaints.read_text()
            yield served
            before = served.complaints.read_text()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert (said, served.complaints.read_text()) == ("", before), "it ends without a word"
    assert before.replace("\n", "").isprintable(), "what a visitor sent is not obeyed by the operator's terminal"
    assert list((folder / "tmp").iterdir()) == []


@contextmanager
def in_a_thread(server: Any) -> Iterator[Any]:
    """A server of one page, while it serves."""
    thread = threading.Thread(target=server.run, args=(lambda address: None,))
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


class Reply(NamedTuple):
    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Visitor:
    """A browser, as far as a server of this machine can tell, on one of its pages."""

    def __init__(self, port: int, token: str, page: str = "") -> None:
        self.port, self.page = port, page
        self.cookie = f"undertow-{port}={token}"

    def ask(self, path: str, body: object = None, **headers: str) -> Reply:
        with self.asking(path, body, **headers) as reply:
            return Reply(reply.status, reply.headers, reply.read())

    @contextmanager
    def asking(self, path: str, body: object = None, **headers: str) -> Iterator[HTTPResponse]:
        """A reply that is read as it comes; whoever leaves before its end hangs up. A body is bytes, or becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        given = {"Cookie": self.cookie, "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        line = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            line.request("GET" if data is None else "POST", self.page + path, data, given | named)
            yield line.getresponse()
        finally:
            line.close()


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
