"""A server whose wire a test holds in its hands: what is sent, how far, how slowly, and whether it ends by a reset.

Plain sockets, with or without TLS, so that a client meets what it would meet afar: half a header, a body that is cut, a connection
that is thrown away. Knows HTTP as far as a request goes; knows nothing about what is asked for.
"""

from __future__ import annotations

import gzip
import math
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from pathlib import Path
from time import time
from typing import Any

import pytest

SERVER_ERRORS = (500, 502, 503, 504)
PAGE = b"<!DOCTYPE html><html><title>Sign in to the network</title><body>\x1b[31mPlease pay</body></html>"


@dataclass(frozen=True)
class Wire:
    """One connection with the request that came over it, names of headers in small letters; `ending` is set when the test is over."""

    socket: socket.socket
    path: str
    headers: Mapping[str, str]
    body: bytes
    ending: threading.Event
    url: str

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def reply(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, length: int | None = None
    ) -> None:
        """A response; it says that its body is as long as `length`."""
        self.send(head(status, {"Content-Length": str(len(body) if length is None else length)} | dict(headers or {})))
        self.send(body)

    def reset(self) -> None:
        """Throw the connection away: the client gets RST, not FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def stall(self) -> None:
        """Say nothing more until the test is over."""
        self.ending.wait(60)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "Connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


Handle = Callable[[Wire], None]


@dataclass
class Way:
    """Where a server is, without a path, and what it was asked: path and body of each request, in order."""

    url: str
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    _listen: Callable[[], None] = lambda: None

    def listen(self) -> None:
        """Take connections from now on; until then they are refused."""
        self._listen()


@contextmanager
def way(handle: Handle, tls: ssl.SSLContext | None = None, *, listening: bool = True) -> Iterator[Way]:
    """A server on loopback, each of whose connections is handled as the test says, and then closed."""
    ending, threads = threading.Event(), list[threading.Thread]()
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    bound.settimeout(0.02)
    port = bound.getsockname()[1]
    there = Way(f"{'https' if tls else 'http'}://127.0.0.1:{port}")

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(30)
            spoken = tls.wrap_socket(connection, server_side=True) if tls else connection
            with suppress(OSError), spoken:
                wire = received(spoken, ending, there)
                if wire is not None:
                    handle(wire)

    def accept() -> None:
        while not ending.is_set():
            with suppress(TimeoutError):
                connection, _ = bound.accept()
                threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)

    def listen() -> None:
        bound.listen(64)
        accepting.start()

    there._listen = listen
    if listening:
        listen()
    try:
        yield there
    finally:
        ending.set()
        if accepting.is_alive():
            accepting.join()
        bound.close()
        for thread in threads:
            thread.join(5)


def received(spoken: socket.socket, ending: threading.Event, there: Way) -> Wire | None:
    """The request that comes over a connection; None if none does."""
    said = b""
    while b"\r\n\r\n" not in said:
        came = spoken.recv(65536)
        if not came:
            return None
        said += came
        if not said[:1].isalpha():  # TLS, to a server that speaks none
            spoken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return None
    start, _, body = said.partition(b"\r\n\r\n")
    line, *rest = start.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        came = spoken.recv(65536)
        if not came:
            return None
        body += came
    path = line.split(" ")[1]
    there.asked.append((path, body))
    return Wire(spoken, path, headers, body, ending, there.url)


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server speaks TLS with that nobody vouches for, and the certificate by which one may trust it all the same."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here to sign a certificate with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [openssl, "req", "-x509", *curve, *name, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


def completion(probs: Mapping[str, float], model: str = "some-model") -> dict[str, Any]:
    """What a server of completions replies that shows these probabilities of its one token, of which it says the first."""
    top = {token: math.log(prob) for token, prob in probs.items()}
    said = next(iter(top))
    logprobs = {"tokens": [said], "token_logprobs": [top[said]], "top_logprobs": [top], "text_offset": [0]}
    choice = {"text": said, "index": 0, "logprobs": logprobs, "finish_reason": "length"}
    return {"model": model, "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


# What may happen to a response on its way, by name. Each is given the wire and the right body.

Fault = Callable[[Wire, bytes], None]


def _status(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> Fault:
    return lambda wire, good: wire.reply(body, status, headers)


def _after(sent: Callable[[bytes], bytes], then: Callable[[Wire], None]) -> Fault:
    def fault(wire: Wire, good: bytes) -> None:
        wire.send(sent(good))
        then(wire)

    return fault


def _whole_head(good: bytes) -> bytes:
    return head(200, {"Content-Length": str(len(good))})


def _half(good: bytes) -> bytes:
    return _whole_head(good) + good[: len(good) // 2]


def _chunks(good: bytes) -> bytes:
    half = good[: len(good) // 2]
    return head(200, {"Transfer-Encoding": "chunked"}) + f"{len(half):x}\r\n".encode() + half + b"\r\nff\r\ncut"


def _trickle(wire: Wire, good: bytes) -> None:
    for at in range(len(said := _whole_head(good) + good)):
        wire.send(said[at : at + 1])
        if wire.ending.wait(0.05):
            return


def _endless(wire: Wire, good: bytes) -> None:
    wire.send(head(200, {"Transfer-Encoding": "chunked"}))
    for _ in range(4096):
        wire.send(b"10000\r\n" + bytes(2**16) + b"\r\n")


def _endless_headers(wire: Wire, good: bytes) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(5000):
        wire.send(f"X-{number}: {'x' * 200}\r\n".encode())


@cache
def _packed() -> bytes:
    return gzip.compress(bytes(2**27), 1)


def _hang_up(wire: Wire) -> None:
    wire.socket.shutdown(socket.SHUT_RDWR)


FAULTS: Mapping[str, Fault] = {
    "reset before the headers": lambda wire, good: wire.reset(),
    "closed before the headers": lambda wire, good: None,
    "reset in the headers": _after(lambda good: b"HTTP/1.1 200 OK\r\nContent-Le", Wire.reset),
    "reset in the body": _after(_half, Wire.reset),
    "body shorter than it says": _after(_half, _hang_up),
    "chunks that are cut": _after(_chunks, _hang_up),
    "chunks that are none": _after(lambda good: head(200, {"Transfer-Encoding": "chunked"}) + b"zz\r\n" + good, _hang_up),
    "trickle": _trickle,
    "silence": lambda wire, good: wire.stall(),
    "silence in the body": _after(_half, Wire.stall),
    "429": _status(429),
    "429, seconds": _status(429, {"Retry-After": "0"}),
    "429, a date": lambda wire, good: wire.reply(b"{}", 429, {"Retry-After": formatdate(time(), usegmt=True)}),
    "429, no time": _status(429, {"Retry-After": "Mon, 99 Foo -1 99:99:99 +9999"}),
    **{str(status): _status(status, body=PAGE) for status in (*SERVER_ERRORS, 401, 403, 404, 407)},
    "redirect to itself": lambda wire, good: wire.reply(b"", 302, {"Location": wire.url + wire.path}),
    "redirect to no address": _status(302, {"Location": "http://[nowhere"}),
    "redirect to a file": _status(302, {"Location": "file:///etc/passwd"}),
    "redirect without an address": _status(302),
    "a page": lambda wire, good: wire.reply(PAGE, headers={"Content-Type": "text/html"}),
    "nothing": lambda wire, good: wire.reply(b""),
    "204": _status(204, body=b""),
    "no HTTP": lambda wire, good: wire.send(b"220 mail.example \x1b[31mESMTP\r\n"),
    "half, said to be whole": lambda wire, good: wire.reply(good[: len(good) // 2]),
    "wrong bytes": lambda wire, good: wire.reply(good[: len(good) // 2] + bytes(9) + good[len(good) // 2 + 9 :]),
    "bomb": lambda wire, good: wire.reply(_packed(), headers={"Content-Encoding": "gzip"}),
    "endless body": _endless,
    "endless headers": _endless_headers,
    "long header": lambda wire, good: wire.send(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 2**20 + b"\r\n\r\n"),
}  # fmt: skip
