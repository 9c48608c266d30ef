"""Access control of the page: checks every request before Gradio handles it.

Any browser tab and any account on this machine can reach a local server. So a request must name this server as its host, come from
this page, carry the token that the command line printed (later a cookie), use a known path, be small, and hold only strings, numbers
and booleans. Responses load nothing from other servers.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

MAX_BODY_BYTES = 128 * 1024
MAX_QUERY_BYTES = 2_048
BODY_TIMEOUT_S = 20.0
TOKEN = "token"  # noqa: S105 - the name under which an address carries it
API = "/gradio_api"
FILE = f"{API}/file="
FIELDS = "data"
"""Key of a request's field values."""
FUNCTION = "fn_index"
"""Key of the index of the handler function."""
READ = (
    "/",
    "/config",
    "/theme.css",
    "/favicon.ico",
    f"{API}/queue/data",
)
READ_BELOW = ("/assets/", "/static/", "/svelte/", f"{API}/heartbeat/")
SENT = (f"{API}/queue/join", f"{API}/cancel", f"{API}/reset")
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
ELSEWHERE = re.compile(
    rb"<script\b[^>]*\bsrc=\"https?://[^>]*>\s*</script>|<(?:link|meta)\b[^>]*\"https?://[^>]*>|<link\b[^>]*rel=\"manifest\"[^>]*>",
    re.IGNORECASE,
)
"""Tags of Gradio's page that fetch from other servers, or name them; and its manifest, which browsers ask for without cookies."""

WELCOME = b"""<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>Undertow</title><a href="/">Undertow</a>
"""
"""Leads on to the page. A redirection would not do: after a link on another page, browsers send no strict cookie along with it."""

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class _RefusalError(Exception):
    """A refused request, with the reason."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class AccessControl:
    """Lets requests in to an ASGI application.

    Args:
        inside: the application.
        hosts: names with port that this server goes by; empty where any is good, since it is served to others.
        token: what a visitor shows once.
        cookie: the name under which the browser shows it from then on.
        files: the folder that downloads lie in.
    """

    def __init__(  # noqa: PLR0913 - what is behind it, and who gets in
        self, inside: App, *, hosts: frozenset[str], token: str, cookie: str, files: Path, n_functions: int
    ) -> None:
        self._inside, self._hosts, self._token, self._cookie = inside, hosts, token, cookie
        self._files, self._n_functions = files.resolve(), n_functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks websocket, and a connection that is not accepted is closed
        try:
            headers = _headers(scope)
            self._check_sender(scope, headers)
            if self._shows_token(scope):
                await self._welcome(send)
                return
            self._check_cookie(headers)
            self._check_request(scope)
            body = await _body(scope, headers, receive, self._n_functions)
        except _RefusalError as refusal:
            await _say(send, refusal.status, str(refusal).encode())
            return
        await self._inside(scope, _again(body, receive), _Answer(scope, send))

    def _check_sender(self, scope: Scope, headers: dict[str, list[str]]) -> None:
        """Refuse a request whose host or origin is not this page."""
        hosts = headers.get("host", [])
        if len(hosts) != 1 or (self._hosts and hosts[0] not in self._hosts):
            raise _RefusalError(HTTPStatus.FORBIDDEN, "This page is served by its own address alone.")
        origins = headers.get("origin", [])
        fetched = headers.get("sec-fetch-site", ["same-origin"])
        if origins not in ([], [f"http://{hosts[0]}"]) or (scope["method"] == "POST" and fetched != ["same-origin"]):
            raise _RefusalError(HTTPStatus.FORBIDDEN, "Requests from other pages are refused.")

    def _shows_token(self, scope: Scope) -> bool:
        if scope["method"] != "GET" or scope["path"] != "/":
            return False
        query = parse_qs(scope["query_string"][:MAX_QUERY_BYTES].decode("latin-1"))
        return self._is_token(query.get(TOKEN, [""])[0])

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    async def _welcome(self, send: Send) -> None:
        """Move the token from the address into a cookie that scripts and other sites cannot read."""
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        more = {"content-type": "text/html; charset=utf-8", "set-cookie": cookie}
        await _say(send, HTTPStatus.OK, WELCOME, more)

    def _check_cookie(self, headers: dict[str, list[str]]) -> None:
        # Other servers of this machine set cookies too, of a form that http.cookies gives up on, with all that stand behind.
        pairs = [one.strip().partition("=") for one in "; ".join(headers.get("cookie", [])).split(";")]
        if not any(name == self._cookie and self._is_token(value) for name, _, value in pairs):
            raise _RefusalError(
                HTTPStatus.FORBIDDEN,
                "Open this page by the address that `undertow app` shows; it holds the token that lets you in.",
            )

    def _check_request(self, scope: Scope) -> None:
        """Allow only the paths that the page needs; Gradio also serves uploads and a proxy."""
        method, path = scope["method"], scope["path"]
        if len(scope["query_string"]) > MAX_QUERY_BYTES:
            raise _RefusalError(HTTPStatus.REQUEST_URI_TOO_LONG, "That address is too long.")
        if method in ("GET", "HEAD"):
            known = path in READ or path.startswith(READ_BELOW) or self._is_download(path)
        else:
            known = method == "POST" and path in SENT
        if not known or ".." in path:
            raise _RefusalError(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _is_download(self, path: str) -> bool:
        if not path.startswith(FILE) or "\0" in path:
            return False
        place = Path(path.removeprefix(FILE))
        return place.is_absolute() and place.resolve().is_relative_to(self._files) and place.is_file()


def _headers(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


async def _body(scope: Scope, headers: dict[str, list[str]], receive: Receive, n_functions: int) -> bytes:
    """Read the body of a request, within limits of size and time."""
    if scope["method"] != "POST":
        return b""
    kind = headers.get("content-type", [""])[0].partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _RefusalError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Requests must be JSON.")
    body = b""
    too_large = _RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {MAX_BODY_BYTES:,} bytes.")
    length = headers.get("content-length", ["0"])[0]
    if not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES:
        raise too_large
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise _RefusalError(HTTPStatus.BAD_REQUEST, "The request is incomplete.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError as error:
        raise _RefusalError(HTTPStatus.REQUEST_TIMEOUT, "The request took too long.") from error
    _check_said(body, n_functions)
    return body


def _check_said(body: bytes, n_functions: int) -> None:
    """Allow only strings, numbers and booleans: Gradio would fetch an object that claims to be a file."""
    try:
        said = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "Requests must be JSON.") from error
    fields = said.get(FIELDS, []) if isinstance(said, dict) else None
    if not isinstance(fields, list) or not all(map(_is_plain, [*fields, *_beside(said)])):
        raise _RefusalError(
            HTTPStatus.BAD_REQUEST, "A request is an object whose fields are strings, numbers and booleans."
        )
    function = said.get(FUNCTION, 0)
    if not isinstance(function, int) or not 0 <= function < n_functions:
        raise _RefusalError(HTTPStatus.BAD_REQUEST, "This page has no such function.")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse duplicate keys, which a later parser could resolve differently."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError
    return fields


def _beside(said: dict[str, object]) -> list[object]:
    """The keys of a request beside its fields."""
    return [*said, *(value for name, value in said.items() if name != FIELDS)]


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)  # halves of signs
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _again(body: bytes, receive: Receive) -> Receive:
    """Replay the body that was already read, then forward further messages."""
    left = [body]

    async def read() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


async def _say(send: Send, status: HTTPStatus, body: bytes, more: dict[str, str] | None = None) -> None:
    headers = {
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "connection": "close",
    }
    # A body that was not read must not be taken for the next request, so a refusal ends the connection.
    said = headers | HEADERS | (more or {})
    await send(
        {
            "type": "http.response.start",
            "status": int(status),
            "headers": [(k.encode(), v.encode()) for k, v in said.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})


class _Answer:
    """Forward a response with security headers; strips from a page what it would load from other servers."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send, self._is_file = send, scope["path"].startswith(FILE)
        self._is_page = scope["path"] == "/" and scope["method"] == "GET"
        self._start: MutableMapping[str, Any] = {}
        self._parts: list[bytes] = []

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": self._with_own(message.get("headers", []))}
            if self._is_page:
                self._start = message
                return
        elif self._is_page:
            self._parts.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            await self._send_page()
            return
        await self._send(message)

    def _with_own(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        own = dict(HEADERS)
        if self._is_file:
            own["content-disposition"] = "attachment"
        replaced = {name.encode() for name in own if name != "content-disposition"} | {
            b"server",
            b"access-control-allow-origin",
        }
        kept = [(name, value) for name, value in headers if name.lower() not in replaced]
        if any(
            name.lower() == b"content-disposition" and value.lower().startswith(b"attachment") for name, value in kept
        ):
            own.pop("content-disposition", None)
        kept = [
            (name, value)
            for name, value in kept
            if "content-disposition" not in own or name.lower() != b"content-disposition"
        ]
        return [*kept, *((name.encode(), value.encode()) for name, value in own.items())]

    async def _send_page(self) -> None:
        page = ELSEWHERE.sub(b"", b"".join(self._parts))
        headers = [(name, value) for name, value in self._start["headers"] if name.lower() != b"content-length"]
        headers += [(b"content-length", str(len(page)).encode())]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": page})
