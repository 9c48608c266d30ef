"""Download a published file, with limits on size and time, and without redirects from https to http.

The caller checks the hash. Error messages quote neither proxies, which may hold a password, nor server texts.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from http.client import HTTPMessage
from importlib.metadata import version
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from undertow._folders import DRAFT_PREFIX, draft_folder
from undertow.errors import UndertowError

SILENT_S = 30.0
"""Seconds without data until a download fails."""
WHOLE_S = 900.0
"""Seconds until a download must be complete."""
CHUNK_BYTES = 2**16
TOO_LATE = "it was not done within {:g} s"


class DownloadError(Exception):
    """A download failed; the message says why in a few words."""


def download(url: str, max_bytes: int) -> bytes:
    """Download a file; returns `max_bytes` + 1 bytes of a longer one. Raises `DownloadError` if the download is not complete."""
    done: Future[bytes] = Future()
    end = time.monotonic() + WHOLE_S

    def work() -> None:
        try:
            # Some sites refuse the default user agents of Python.
            request = urllib.request.Request(url, headers={"User-Agent": f"undertow/{version('undertow')}"})  # noqa: S310 - of a fixed address
            content = bytearray()
            with urllib.request.build_opener(_SafeRedirects).open(request, timeout=SILENT_S) as answer:
                while len(content) <= max_bytes and (chunk := answer.read1(CHUNK_BYTES)):
                    content += chunk
                    if time.monotonic() > end:
                        raise DownloadError(TOO_LATE.format(WHOLE_S))
                # When read in chunks, http.client does not report a truncated body.
                if len(content) <= max_bytes and answer.length:
                    raise DownloadError("it was cut short")
            done.set_result(bytes(content[: max_bytes + 1]))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    # A thread, because the limit also covers the connection.
    threading.Thread(target=work, daemon=True).start()
    try:
        return done.result(end - time.monotonic())
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(f"status {error.code}") from error
    except TimeoutError as error:
        raise DownloadError(_reason(error) if done.done() else TOO_LATE.format(WHOLE_S)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(_reason(error)) from error


def fetch(url: str, max_bytes: int, name: str, by_hand: str) -> bytes:
    """Download a file of a published set, or say how to do so by hand."""
    try:
        return download(url, max_bytes)
    except DownloadError as error:
        raise UndertowError(f"{name}: {url} cannot be downloaded ({error}); go online once, or {by_hand}") from error


def save_download(content: bytes, path: Path) -> None:
    """Write a downloaded file into the cache atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(path.parent, DRAFT_PREFIX) as aside:
            part = aside / path.name
            part.write_bytes(content)
            part.replace(path)
    except OSError as error:
        raise UndertowError(
            f"{path}: cannot be written ({error.strerror}); free some space, or set UNDERTOW_CACHE to another folder"
        ) from error


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to https only, unless the first address was http."""

    def redirect_request(  # noqa: PLR0913, PLR0917 - as urllib calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            fp.close()
            raise urllib.error.URLError("it redirects to an address that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, str):
        return cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if str(cause).startswith("Tunnel connection failed"):
        return "the proxy refuses the connection"
    known = {
        TimeoutError: "the server sent nothing for too long",
        http.client.RemoteDisconnected: "the server closed the connection",
        http.client.IncompleteRead: "it was cut short",
    }
    of_kind = next((reason for kind, reason in known.items() if isinstance(cause, kind)), "")
    return of_kind or getattr(cause, "strerror", None) or f"its response is not HTTP: {type(cause).__name__}"
