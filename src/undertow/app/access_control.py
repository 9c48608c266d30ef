"""Access control of the server: checks of requests, and headers of responses.

Any browser tab and any account on this machine can reach a local server. `TrustedHostMiddleware` refuses other host names; here a
request must come from the server's own page, carry the token that the command line printed (once in the address, later in a
cookie), use a known path, be small, and hold only strings, numbers and booleans. Responses load nothing from other servers.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from undertow._files import parse_json

MAX_BODY_BYTES = 128 * 1024
MAX_QUERY_BYTES = 2_048
TOKEN = "token"  # noqa: S105 - the name under which an address carries it
ANNOTATE, REPHRASE = "/annotate", "/rephrase"
API = "/gradio_api"
PAGES = ("/", ANNOTATE, REPHRASE)
READ = (*PAGES, f"{ANNOTATE}/sources", f"{REPHRASE}/next", "/config", "/theme.css", "/favicon.ico", f"{API}/queue/data")
REPORT = "/report"
READ_BELOW = (f"{REPORT}/", "/assets/", "/static/", "/svelte/", f"{API}/heartbeat/", f"{API}/file=/")
RUN = f"{API}/run/"
RESET = f"{API}/reset"
SENT = (f"{ANNOTATE}/judgements", f"{REPHRASE}/answers", f"{API}/queue/join", f"{API}/cancel", RESET)
POLICY = "content-security-policy"
HEADERS = {
    POLICY: "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; frame-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Default headers of responses."""
REPORT_HEADERS = {
    POLICY: "sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "cross-origin-opener-policy": "unsafe-none",  # browsers open no sandboxed page under another
    "x-frame-options": "SAMEORIGIN",
    "cache-control": "no-store",
}
"""Headers of a run's report: its scripts run without an origin, so the file reaches neither page nor server."""
_ELSEWHERE = re.compile(
    rb"<script\b[^>]*\bsrc=\"https?://[^>]*>\s*</script>|<(?:link|meta)\b[^>]*\"https?://[^>]*>|<link\b[^>]*rel=\"manifest\"[^>]*>",
    re.IGNORECASE,
)
"""Tags of Gradio's page that name other servers (no policy stops a preconnect), and its manifest, fetched without cookies."""
_WELCOME = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><link rel="icon" href="data:,">
<title>Undertow</title><a href="{0}">Undertow</a>
"""
"""Page that loads the app. A redirect would not work: after a link on another page, browsers do not send a strict cookie with it."""

Next = Callable[[Request], Awaitable[Response]]


class AccessControl:
    """The checks of one server, as an HTTP middleware.

    Attributes:
        token: admits a visitor once, in the address of a page.
        n_functions: handlers of the Gradio page; set once that is built.
    """

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.n_functions = 0
        self._cookie = f"undertow-{port}"

    def visitor(self, request: Request) -> str | None:
        """Name of a visitor with the cookie, None for others: Gradio's `auth_dependency`."""
        return "visitor" if self._is_token(request.cookies.get(self._cookie, "")) else None

    async def __call__(self, request: Request, call_next: Next) -> Response:
        """Refuse a request, or pass it on and complete the headers of the response."""
        refused = self._refused(request) or await self._refused_body(request)
        if refused is not None:
            status, sentence = refused
            # A refusal closes the connection, because the unread body must not be parsed as the next request.
            response: Response = PlainTextResponse(
                sentence, status, {"cache-control": "no-store", "connection": "close"}
            )
        elif self._shows_token(request):
            response = HTMLResponse(_WELCOME.format(request.scope["path"]), headers={"cache-control": "no-store"})
            response.set_cookie(self._cookie, self.token, httponly=True, samesite="strict")
        else:
            response = await call_next(request)
            if request.scope["path"] == "/" and request.method == "GET":
                page = b"".join([part async for part in response.body_iterator])  # type: ignore[attr-defined]
                response = HTMLResponse(_ELSEWHERE.sub(b"", page), response.status_code)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _shows_token(self, request: Request) -> bool:
        is_page = request.method == "GET" and request.scope["path"] in PAGES
        return is_page and self._is_token(request.query_params.get(TOKEN, ""))

    def _refused(self, request: Request) -> tuple[HTTPStatus, str] | None:
        """Reason to refuse a request, without its body; None to accept it."""
        method, path, headers = request.method, request.scope["path"], request.headers
        own = f"http://{headers.get('host')}"
        if headers.get("origin", own) != own or (
            method == "POST" and headers.get("sec-fetch-site", "same-origin") != "same-origin"
        ):
            return HTTPStatus.FORBIDDEN, "Requests of other pages are refused."
        if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
            return HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long."
        if self._shows_token(request):
            return None
        if self.visitor(request) is None:
            return (
                HTTPStatus.FORBIDDEN,
                "Open this page with the address from the command line, which contains a token.",
            )
        if method in ("GET", "HEAD"):
            known = path in READ or path.startswith(READ_BELOW)
        else:
            known = method == "POST" and (path in SENT or path.startswith(RUN))
        return None if known and ".." not in path else (HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    async def _refused_body(  # noqa: PLR0911 - a check, an answer
        self, request: Request
    ) -> tuple[HTTPStatus, str] | None:
        """Reason to refuse the body of a request; None to accept it."""
        if request.method != "POST":
            return None
        headers = request.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A request must be JSON."
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES or "transfer-encoding" in headers:
            return (
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A request must state its length, at most {MAX_BODY_BYTES:,} bytes.",
            )
        try:
            # Repeated names, which a later parser could resolve differently, are refused.
            content = parse_json(await request.body())
        except ValueError:
            return HTTPStatus.BAD_REQUEST, "A request must be JSON."
        fields = content.pop("data", []) if isinstance(content, dict) else None
        # Gradio would copy any file named by an object that claims to be a file.
        if not isinstance(fields, list) or not all(map(_is_plain, [*fields, *content, *content.values()])):
            return HTTPStatus.BAD_REQUEST, "The fields of a request must be texts, numbers or booleans."
        path, function = request.scope["path"], content.get("fn_index")
        of_function = path.startswith(API) and path != RESET
        if of_function and not (isinstance(function, int) and function in range(self.n_functions)):
            return HTTPStatus.BAD_REQUEST, "This page has no such function."
        return None


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= sign <= "\udfff" for sign in value)  # half of a surrogate pair
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
