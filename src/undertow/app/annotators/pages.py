"""What the pages for annotators share: names of people, files that lose no answer, HTML with a strict policy."""

from __future__ import annotations

import errno
import os
import re
import secrets
from pathlib import Path
from typing import Any

import jinja2
from starlette.responses import HTMLResponse, Response

from undertow.app.access_control import POLICY
from undertow.errors import UndertowError

MAX_NAME_CHARS = 80
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def annotator_name(given: str) -> str:
    """The name of a person, stripped; raises `UndertowError` if it is empty, too long, or has control characters."""
    name = given.strip()
    if not 0 < len(name) <= MAX_NAME_CHARS or _CONTROL.search(name):
        raise UndertowError(
            f"{given[:100]!r}: is not a valid name of an annotator; give 1 to {MAX_NAME_CHARS} characters with --annotator"
        )
    return name


def append_line(path: Path, line: str) -> None:
    """Append a line to a file; it is on the disk when this returns.

    Raises:
        OSError: it could not be written whole; the file is as it was.
    """
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else f"\n{line}"  # an editor removed the last line's end
        content = f"{line}\n".encode()
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def html_page(name: str, **context: Any) -> Response:
    """A page of a template of this folder, with a policy that runs its own script alone."""
    files, strict = jinja2.PackageLoader("undertow.app.annotators", "."), jinja2.StrictUndefined
    environment = jinja2.Environment(
        autoescape=True, loader=files, undefined=strict, trim_blocks=True, lstrip_blocks=True
    )
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    html = environment.get_template(name).render(nonce=nonce, **context)
    return HTMLResponse(html, headers={POLICY: policy, "cache-control": "no-store"})
