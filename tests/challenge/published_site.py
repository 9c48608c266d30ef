"""A site on this machine that gives published files, in place of the one on the net."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Site:
    """Files by the last part of their address, the announced length, the status, and the requests so far."""

    files: dict[str, bytes] = field(default_factory=dict)
    length: int | None = None
    status: int = 200
    asked: list[str] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)


class Handler(BaseHTTPRequestHandler):
    """Gives a file of the site, or an error."""

    def __init__(self, site: Site, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.site.asked.append(name)
        self.site.agents.add(str(self.headers["User-Agent"]))
        if self.site.status != 200 or name not in self.site.files:
            self.send_error(self.site.status if self.site.status != 200 else 404)
            return
        content = self.site.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(self.site.length or len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, module: str, path: str) -> Iterator[Site]:
    """A site at which this module looks for what it fetches, whatever proxy the user has."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, site))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    reach(monkeypatch, module, server.server_address[1], path)
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reach(monkeypatch: pytest.MonkeyPatch, module: str, port: int, path: str) -> None:
    monkeypatch.setattr(f"{module}.SOURCE_URL", f"http://127.0.0.1:{port}{path}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


@contextlib.contextmanager
def hanging_up(answer: bytes | None) -> Iterator[int]:
    """The port of a server that says this to whoever asks first, and hangs up; of no server at all for None."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if answer is not None:

            def say() -> None:
                asking, _ = listening.accept()
                with asking:
                    asking.recv(4096)
                    asking.sendall(answer)

            thread = threading.Thread(target=say, daemon=True)
            thread.start()
            yield port
            thread.join()
            return
    yield port
