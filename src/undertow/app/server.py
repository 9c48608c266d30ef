"""The server of `undertow app`: binds to this machine by default, behind access control, with a private folder."""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from undertow.app.access_control import TOKEN, AccessControl, App
from undertow.app.forms import AllowedModels
from undertow.app.run_browser import RunBrowser
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.app.ui import Page

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what an operator may ask for
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_CONNECTIONS, QUIET_S = 64, 5
"""Connections at once, past which visitors are turned away, and how long one may say nothing before and between two requests."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What an operator offers.

    Attributes:
        allowed_models: the models that may be asked.
        runs: a folder that holds run folders; None for none.
        host, port: where the page is served; port 0 for any that is free.
    """

    allowed_models: AllowedModels
    runs: Path | None = None
    host: str = LOOPBACK[0]
    port: int = 0


def check_gradio() -> None:
    """Refuse where the page cannot be made.

    Raises:
        UndertowError: Gradio is not installed.
    """
    if find_spec("gradio") is None or find_spec("uvicorn") is None:
        raise UndertowError("the page needs Gradio, which is not installed; run pip install 'undertow[app]'")


def serve(config: ServerConfig, opened: Callable[[str], None]) -> None:
    """Serve the page until it is interrupted.

    Args:
        config: what is on it.
        opened: given its address once it can be opened; the address holds the token that lets one in.

    Raises:
        UndertowError: Gradio is not installed, the folder of runs is not there, or the port cannot be used.
    """
    check_gradio()
    with (
        tempfile.TemporaryDirectory(prefix="undertow-app-") as folder,
        redirect_stderr(PlainText(sys.stderr)),
        suppress(KeyboardInterrupt),
    ):
        RunningServer(config, Path(folder)).run(opened)


class PlainText(io.TextIOBase):
    """A terminal that is told nothing that it would obey: where a question fails, Gradio prints there what a visitor sent.

    Args:
        terminal: where the rest goes.
    """

    _OBEYED = dict.fromkeys({*range(32), *range(127, 160)} - set(map(ord, "\t\n\r")), "\N{REPLACEMENT CHARACTER}")

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str) -> int:  # noqa: D102
        return self._terminal.write(text.translate(self._OBEYED))

    def flush(self) -> None:  # noqa: D102
        self._terminal.flush()

    def isatty(self) -> bool:  # noqa: D102
        return self._terminal.isatty()


class RunningServer:
    """The page with its server.

    Args:
        config: what is on it.
        files: an empty folder of its own, for what is downloaded and drawn.
    """

    def __init__(self, config: ServerConfig, files: Path) -> None:
        run_browser = RunBrowser(config.runs)
        self.token = secrets.token_urlsafe(24)
        self._socket = _bound(config.host, config.port)
        _tame_gradio(files)
        import uvicorn

        from undertow.app.ui import Page

        self.page = Page(config.allowed_models, run_browser, files)
        self.port = int(self._socket.getsockname()[1])
        named = socket.gethostname() if config.host in EVERYWHERE else config.host
        name = f"[{named}]" if ":" in named else named
        self.address = f"http://{name}:{self.port}/?{TOKEN}={self.token}"
        hosts = frozenset(f"{host}:{self.port}" for host in ("127.0.0.1", "localhost", "[::1]"))
        mounted = _mounted(self.page, files)
        self.app: App = AccessControl(
            mounted,
            hosts=hosts if config.host in LOOPBACK else frozenset(),
            token=self.token,
            cookie=f"undertow-{self.port}",
            files=files,
            n_functions=self.page.n_functions,
        )
        timed_protocol: Any = _h11_with_timeout  # uvicorn asks for a class, and only calls it
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                http=timed_protocol,
                log_level="critical",  # what a visitor can fix the page says, and an end by Ctrl-C is no error
                access_log=False,
                ws="none",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_keep_alive=QUIET_S,
                timeout_graceful_shutdown=2,
            )
        )

    def run(self, opened: Callable[[str], None]) -> None:
        """Serve until `stop`, or until interrupted."""
        try:
            opened(self.address)
            self._server.run(sockets=[self._socket])
        finally:
            self.page.jobs.close()
            self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


def _h11_with_timeout(**given: Any) -> Any:
    """HTTP for one connection, which is closed if it asks for nothing.

    uvicorn by itself waits for a first request for ever, so that whoever reaches the port could take all connections that there are.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    protocol = H11Protocol(**given)

    def end_silence() -> None:
        if protocol.scope is None and protocol.transport is not None:  # no request has been read yet
            protocol.transport.close()

    asyncio.get_running_loop().call_later(QUIET_S, end_silence)
    return protocol


def _tame_gradio(files: Path) -> None:
    """Before Gradio is imported: nothing calls home, nothing is shared, and what it keeps lies in our folder."""
    os.environ |= {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(files),
        "GRADIO_SSR_MODE": "False",
        "GRADIO_MCP_SERVER": "False",
        "GRADIO_SHARE": "False",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _bound(host: str, port: int) -> socket.socket:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(kind, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)  # who comes before the server has begun waits here
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise UndertowError(
            f"port {port} of {host} cannot be used ({reason}); name another with --port, or 0 for any that is free"
        ) from error
    return bound


def _mounted(page: Page, files: Path) -> Any:
    from fastapi import FastAPI

    from undertow.app.ui import mounted

    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    return mounted(outer, page, files)


def default_models() -> Sequence[str]:
    """The named models that are on this machine, and the toy."""
    from undertow.models.loading.download import PACKAGES, location

    return [*(name for name in PACKAGES if location(name).is_file()), "toy"]
