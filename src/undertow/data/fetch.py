"""Download a published file, with limits on size and time. The caller checks the hash."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from undertow._folders import DRAFT_PREFIX, draft_folder
from undertow.errors import UndertowError

SILENT_S, TOTAL_S = 30.0, 900.0
"""Seconds without data, and in all, until a download fails."""
CHUNK_BYTES = 2**16


class DownloadError(Exception):
    """A download failed; the message says why in a few words, and quotes neither a proxy nor a server."""


def download(url: str, max_bytes: int) -> bytes:
    """Download a file; returns `max_bytes` + 1 bytes of a longer one.

    Raises:
        DownloadError: the download is not complete.
    """
    # Some sites refuse the default user agents of Python.
    request = urllib.request.Request(url, headers={"User-Agent": f"undertow/{version('undertow')}"})  # noqa: S310 - a fixed address
    end, content = time.monotonic() + TOTAL_S, bytearray()
    try:
        with urllib.request.urlopen(request, timeout=SILENT_S) as answer:  # noqa: S310
            if urlsplit(answer.url).scheme != urlsplit(url).scheme:
                raise DownloadError("it redirects to an address of another kind")
            while len(content) <= max_bytes and (chunk := answer.read1(CHUNK_BYTES)):
                content += chunk
                if time.monotonic() > end:
                    raise DownloadError(f"it was not done within {TOTAL_S:g} s")
            # When read in chunks, http.client does not report a truncated body.
            if len(content) <= max_bytes and answer.length:
                raise DownloadError("it was cut short")
    except urllib.error.HTTPError as error:
        raise DownloadError(f"status {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        raise DownloadError(getattr(cause, "strerror", None) or type(cause).__name__) from error
    return bytes(content[: max_bytes + 1])


def save_download(content: bytes, path: Path) -> None:
    """Write a downloaded file into the cache, whole or not at all."""
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
