"""The server of `undertow app`, `annotate` and `rephrase`: one FastAPI application behind access control, on this machine by default."""

from __future__ import annotations

import io
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stderr, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from undertow.app.access_control import ANNOTATE, REPHRASE, REPORT, REPORT_HEADERS, TOKEN, AccessControl
from undertow.app.annotators import annotation, rephrasing
from undertow.app.forms import AllowedModels
from undertow.app.run_browser import RunBrowser
from undertow.errors import UndertowError

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what an operator may ask for
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_gradio() -> None:
    """Check that the page can be built; raises `UndertowError` if Gradio is not installed."""
    if find_spec("gradio") is None:
        raise UndertowError("the page needs Gradio, which is not installed; run pip install 'undertow[app]'")


def serve(allowed_models: AllowedModels, runs: Path, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the Gradio page until it is interrupted.

    `announce` is called with the address, which contains the token, when the page is ready; port 0 is any free one.
    Raises `UndertowError` if the port cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="undertow-app-") as folder, redirect_stderr(PlainText(sys.stderr)):
        app_server(allowed_models, runs, host, port, Path(folder)).run(announce)


def app_server(allowed_models: AllowedModels, runs: Path, host: str, port: int, files: Path) -> Server:
    """The server of the Gradio page, as `serve` runs it, with an empty folder of its own for downloads and figures."""
    run_browser = RunBrowser(runs)
    server = Server(host, port)
    # Before the import of Gradio: no telemetry, no sharing, and its files in our folder.
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_TEMP_DIR": str(files), "HF_HUB_DISABLE_TELEMETRY": "1"}
    from undertow.app.gradio_page import mount
    from undertow.app.page_jobs import PageJobs

    page = PageJobs(allowed_models, run_browser, files)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        page.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)

    def report(name: str) -> HTMLResponse:
        content = run_browser.report(name)
        return HTMLResponse(content or "This run has no report page.", 200 if content else 404, REPORT_HEADERS)

    app.add_api_route(f"{REPORT}/{{name}}", report, response_class=HTMLResponse)
    server.access.n_functions = mount(page, app, server.access.visitor)
    server.admit(app, "/")
    return server


def annotation_server(folder: Path, annotator: str, port: int) -> Server:
    """The server of the annotation page of a run, for this machine; raises `UndertowError` if run, name or port cannot be used."""
    return _server_of(annotation.pages(annotation.AnnotationStore(folder, annotator)), ANNOTATE, port)


def rephrasing_server(store: rephrasing.RephrasingStore, port: int) -> Server:
    """The server of the page on which a person writes and verifies rephrasings; see `annotation_server`."""
    return _server_of(rephrasing.pages(store), REPHRASE, port)


def _server_of(router: APIRouter, path: str, port: int) -> Server:
    server = Server(LOOPBACK[0], port)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router)
    server.admit(app, path)
    return server


class Server:
    """A socket, and the application that answers on it; raises `UndertowError` if the port cannot be used."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(128)  # early requests wait here until the server has started
        except (OSError, OverflowError) as error:
            self._socket.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise UndertowError(
                f"port {port} of {host} cannot be used ({reason}); name another with --port, or 0 for any that is free"
            ) from error
        self.port = int(self._socket.getsockname()[1])
        self.access = AccessControl(self.port)

    def admit(self, app: FastAPI, path: str) -> None:
        """Serve an application, whose page is at `path`, behind access control."""
        app.add_middleware(BaseHTTPMiddleware, dispatch=self.access)
        hosts = ["127.0.0.1", "localhost", "[::1]"] if self._host in LOOPBACK else ["*"]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        named = socket.gethostname() if self._host in EVERYWHERE else self._host
        name = f"[{named}]" if ":" in named else named
        self.address = f"http://{name}:{self.port}{path}?{TOKEN}={self.access.token}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                log_level="critical",  # the page reports errors of visitors, and Ctrl-C is not an error
                access_log=False,
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=2,
            )
        )

    def run(self, announce: Callable[[str], None]) -> None:
        """Serve until `stop`, or until interrupted."""
        with self._socket, suppress(KeyboardInterrupt):
            announce(self.address)
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


class PlainText(io.TextIOBase):
    """Standard error without control characters, because Gradio prints a visitor's input when a request fails."""

    _CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - set(map(ord, "\t\n\r")), "\N{REPLACEMENT CHARACTER}")

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:  # noqa: D102
        return self._terminal.write(text.translate(self._CONTROLS))
