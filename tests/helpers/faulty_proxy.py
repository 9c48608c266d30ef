"""A server that replies by a script, and fails on purpose.

Real sockets, so that what is cut short, late or dropped reaches the client as it would from afar.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GUARD_S = 120.0
"""How long a test waits for an event before it fails."""
NEVER_S = 900.0
"""A reply after so long does not arrive while a test runs; a server that ends sends it no more."""


@dataclass(frozen=True)
class Asked:
    """A request as it arrived: names of headers in small letters, an empty body for GET; attempts of a prompt begin at 1."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    attempt: int

    @property
    def prompt(self) -> str:
        return prompt_of(self.body)


@dataclass(frozen=True)
class Reply:
    """What is sent back: bytes or what becomes JSON; `short_by` bytes are announced and never sent."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    short_by: int = 0
    after_s: float = 0.0

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass
class Seen:
    """What a server was asked so far, in the order of arrival; how much of it at once, at most; and its base URL."""

    url: str
    requests: list[Asked] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def prompts(self) -> Counter[str]:
        return Counter(asked.prompt for asked in self.requests)

    def to(self, end: str) -> list[Asked]:
        """The requests whose path ends so."""
        return [asked for asked in self.requests if asked.path.endswith(end)]

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        """Of the requests for an answer."""
        return [asked.body for asked in self.to("completions")]


def prompt_of(body: Mapping[str, Any]) -> str:
    """The prompt of a request, chat or not; "" if it has none."""
    return str(body["messages"][-1]["content"] if "messages" in body else body.get("prompt", ""))


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll until something is so; fails after `GUARD_S`."""
    until = time.monotonic() + GUARD_S
    while not is_so():
        assert time.monotonic() < until, "the event did not happen"
        time.sleep(0.01)


@contextmanager
def serving(reply: Callable[[Asked], Reply]) -> Iterator[Seen]:
    """A server on loopback that replies as it is told."""
    lock, ending = threading.Lock(), threading.Event()
    counts: Counter[tuple[str, str]] = Counter()
    now = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Mapping[str, Any]) -> None:
            nonlocal now
            with lock:
                which = (self.path, prompt_of(body))
                counts[which] += 1
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.path, headers, body, counts[which])
                seen.requests.append(asked)
                now += 1
                seen.most_at_once = max(seen.most_at_once, now)
            try:
                self._send(reply(asked))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client has given up
            finally:
                with lock:
                    now -= 1

        def _send(self, sent: Reply) -> None:
            ending.wait(sent.after_s)
            self.send_response(sent.status)
            for name, value in sent.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(sent.content) + sent.short_by))
            self.end_headers()
            self.wfile.write(sent.content)
            if sent.short_by:
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the name in http.server
            """Tests read what was asked from `Seen`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen = Seen(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
