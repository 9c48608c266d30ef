"""The annotation page (`undertow annotate`): a server for one annotator on this machine.

The page shows one rephrasing at a time, without its model and prompt. A request must name this server as its host and carry the
token of the address that the command line prints.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from undertow.app.annotations import CATEGORIES, AnnotationStore
from undertow.errors import UndertowError

MAX_BODY_BYTES, MAX_NOTE_CHARS = 16_384, 2_000
MAX_DISCARDED_BYTES = 1 << 20
"""Limit of a too large request body that is read and discarded, so that the browser gets the response."""
TOKEN_HEADER = "X-Undertow-Token"  # noqa: S105 - the header's name
_HOST = "127.0.0.1"
_QUIET_S = 20.0


def serve(folder: Path, annotator: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the page of a run to this machine, until it is interrupted.

    Args:
        folder: of a finished run of `AUDIT`.
        annotator: the annotator.
        port: to listen at; 0 for any that is free.
        on_ready: called with the page's address once it can be opened; the address holds the token that lets one in.

    Raises:
        UndertowError: the folder holds no such run, or its annotations are corrupt; the name or the port cannot be used.
    """
    with AnnotationServer(folder, annotator, port) as server:
        with suppress(KeyboardInterrupt):
            on_ready(server.address)
            server.serve_forever()
        with server.store.write_lock:  # wait until the last annotation is written
            return


class AnnotationServer(ThreadingHTTPServer):
    """Serves the page at an address that only this machine reaches, to those who have the address's token.

    Attributes:
        store: the rephrasings and the annotations.
        token: what a request must carry.
        request_queue_size: connections that may wait; of five, a busy machine would turn the sixth away.
    """

    request_queue_size = 128

    def __init__(self, folder: Path, annotator: str, port: int) -> None:
        self.store = AnnotationStore(folder, annotator)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((_HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UndertowError(
                f"port {port} of {_HOST} cannot be used ({reason}); name another with --port, or 0 for any that is free"
            ) from error

    @property
    def address(self) -> str:
        """Address of the page, with its token."""
        return f"http://{_HOST}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> set[str]:
        """Host names that a local browser uses for this server; any other one is DNS rebinding."""
        names = (_HOST, "localhost")
        return {f"{name}:{self.server_port}" for name in names} | (set(names) if self.server_port == 80 else set())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection."""
        import sys

        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _RefusalError(Exception):
    """A refused request, with the reason."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: AnnotationServer
    timeout = _QUIET_S  # a request that never ends must not keep its thread

    def do_GET(self) -> None:
        self._answer({"/": self._page, "/sources": self._sources})

    def do_POST(self) -> None:
        self._answer({"/annotations": self._annotate})

    def _answer(self, places: Mapping[str, Callable[[], None]]) -> None:
        try:
            self._admit()
            place = places.get(self._address().path)
            if place is None:
                raise _RefusalError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
            place()
        except _RefusalError as refusal:
            self._send(refusal.status, str(refusal))

    def _admit(self) -> None:
        """Refuse a request whose host or origin is not this page."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            raise _RefusalError(HTTPStatus.FORBIDDEN, "This page is served to this machine alone, by its own address.")
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise _RefusalError(HTTPStatus.FORBIDDEN, "Requests from other pages are refused.")
        given = self.headers.get(TOKEN_HEADER) or self._query_value("token")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode()):
            raise _RefusalError(
                HTTPStatus.FORBIDDEN, "The address lacks its token: open it as the command line shows it."
            )

    def _query_value(self, name: str) -> str:
        return parse_qs(self._address().query).get(name, [""])[0]

    def _address(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError as error:
            raise _RefusalError(HTTPStatus.BAD_REQUEST, "This is no address.") from error

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._send(HTTPStatus.OK, _render(self.server, nonce), "text/html", {"Content-Security-Policy": policy})

    def _sources(self) -> None:
        self._send_json(self.server.store.sources(self._known(self._query_value("item"))))

    def _known(self, item: str) -> str:
        if item not in self.server.store.rephrasings:
            raise _RefusalError(HTTPStatus.NOT_FOUND, "This run has no such rephrasing.")
        return item

    def _annotate(self) -> None:
        said = _checked_annotation(self._body())
        store = self.server.store
        try:
            store.add(self._known(said["item"]), said["category"], said["note"])
        except OSError as error:
            reason = f"The annotation could not be written to {store.path.name} ({error.strerror})."
            raise _RefusalError(HTTPStatus.INTERNAL_SERVER_ERROR, reason) from error
        self._send_json({"annotated": len(store.annotations)})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _RefusalError(HTTPStatus.BAD_REQUEST, "An annotation comes with its length.")
        if len(length) > len(str(MAX_DISCARDED_BYTES)) or int(length) > MAX_BODY_BYTES:
            self._discard(int(length[:20]))
            raise _RefusalError(HTTPStatus.BAD_REQUEST, f"An annotation has {MAX_BODY_BYTES:,} bytes at most.")
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":
            raise _RefusalError(HTTPStatus.BAD_REQUEST, "An annotation is JSON.")
        return body

    def _discard(self, n_bytes: int) -> None:
        """Read and discard the body, since closing the connection early would lose the response."""
        left = min(n_bytes, MAX_DISCARDED_BYTES)
        while left > 0 and (piece := self.rfile.read(min(left, MAX_BODY_BYTES))):
            left -= len(piece)

    def _send_json(self, value: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(value), "application/json")

    def _send(self, status: int, text: str, kind: str = "text/plain", more: Mapping[str, str] | None = None) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "default-src 'none'",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        for name, value in (headers | dict(more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the server's own errors in the same form, without text of the request."""
        del message, explain
        self._send(code, f"{HTTPStatus(code).phrase}.")

    def version_string(self) -> str:
        """Do not reveal the server software."""
        return "undertow"

    def log_message(self, *said: object) -> None:
        """Do not log requests."""


def _checked_annotation(body: bytes) -> dict[str, str]:
    try:
        value = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "An annotation is JSON.") from error
    if not isinstance(value, dict) or set(value) != {"item", "category", "note"}:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "An annotation has item, category and note, and nothing else.")
    if not all(isinstance(part, str) for part in value.values()):
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "Item, category and note are texts.")
    if value["category"] not in CATEGORIES:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "There is no such category.")
    if len(value["note"]) > MAX_NOTE_CHARS:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, f"A note has {MAX_NOTE_CHARS:,} characters at most.")
    return value | {"note": value["note"].encode("utf-8", "replace").decode()}  # half a sign cannot be written


def _render(server: AnnotationServer, nonce: str) -> str:
    """The page; every text in it is data to its script, which shows it as text."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = resources.files("undertow.app").joinpath("annotation_page.html.j2").read_text(encoding="utf-8")
    store = server.store
    return environment.from_string(template).render(
        nonce=nonce,
        annotator=store.annotator,
        categories=CATEGORIES,
        max_note_chars=MAX_NOTE_CHARS,
        data={
            "token": server.token,
            "header": TOKEN_HEADER,
            "categories": list(CATEGORIES),
            "rephrasings": [asdict(one) for one in store.rephrasings.values()],
            "annotations": dict(store.annotations),
        },
    )
