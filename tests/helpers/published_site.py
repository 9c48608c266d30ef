"""A site on this machine that gives published files, in place of the one on the net."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class Site:
    """Files by the last part of their address, the status, and the requests so far."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    asked: list[str] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.site.asked.append(name)
        if self.site.status != 200 or name not in self.site.files:
            self.send_error(self.site.status if self.site.status != 200 else 404)
            return
        content = self.site.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def kept(cache: Path) -> dict[str, bytes]:
    """All that lies in the cache of data, by its path from there."""
    folder = cache / "data"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, module: str, path: str) -> Iterator[Site]:
    """A site at which this module looks for what it fetches, whatever proxy the user has."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, site))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    monkeypatch.setattr(f"{module}.SOURCE_URL", f"http://127.0.0.1:{server.server_address[1]}{path}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
