"""Download a published file, with limits on size and time, and without redirects from https to http.

The caller checks the hash. Error messages quote neither proxies, which may hold a password, nor server texts.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import Future
from http.client import HTTPMessage
from importlib.metadata import version
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.request import _UrlopenRet

SILENT_S = 30.0
"""Seconds without data until a download fails."""
WHOLE_S = 900.0
"""Seconds until a download must be complete."""
CHUNK_BYTES = 2**16
WORDS: Mapping[type[BaseException], str] = {
    TimeoutError: "the server sent nothing for too long",
    http.client.IncompleteRead: "it was cut short",
    http.client.RemoteDisconnected: "the server closed the connection",
}


class DownloadError(Exception):
    """A download failed; the message says why in a few words."""


def download(url: str, max_bytes: int) -> bytes:
    """Download a file; returns `max_bytes` + 1 bytes of a longer one.

    Raises:
        DownloadError: the download is not complete.
    """
    coming: Future[bytes] = Future()
    # A thread, since a server that sends a byte now and then, of its headers too, keeps every time limit of a socket.
    threading.Thread(target=_work, args=(coming, url, max_bytes), name="undertow-download", daemon=True).start()
    try:
        return coming.result(WHOLE_S)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # The last is what urllib says of a redirect to something that is no address.
        why = f"it was not done within {WHOLE_S:g} s" if not coming.done() else _why(error)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
    raise DownloadError(why)


def _work(coming: Future[bytes], url: str, max_bytes: int) -> None:
    try:
        coming.set_result(_read(url, max_bytes))
    except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
        coming.set_exception(error)


def _read(url: str, max_bytes: int) -> bytes:
    # Some sites refuse the default user agents of Python.
    request = urllib.request.Request(url, headers={"User-Agent": f"undertow/{version('undertow')}"})  # noqa: S310 - of a fixed address
    content = bytearray()
    with urllib.request.build_opener(_SafeRedirects).open(request, timeout=SILENT_S) as answer:
        while len(content) <= max_bytes and (chunk := answer.read(min(CHUNK_BYTES, max_bytes + 1 - len(content)))):
            content += chunk
        # When read in chunks, http.client does not report a truncated body.
        if len(content) <= max_bytes and answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
    return bytes(content)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to https only, unless the first address was http."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> _UrlopenRet | None:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (OSError, ValueError):
            fp.close()
            raise

    def redirect_request(  # noqa: PLR0913, PLR0917 - as urllib calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise urllib.error.URLError("it redirects to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _why(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if isinstance(cause, str):
        return cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, OSError) and str(cause).startswith("Tunnel connection failed"):
        return "the proxy refuses the connection"
    known = next((words for kind, words in WORDS.items() if isinstance(cause, kind)), "")
    return (
        known or (isinstance(cause, OSError) and cause.strerror) or f"its response is not HTTP: {type(cause).__name__}"
    )
