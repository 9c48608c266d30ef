"""The page's door, its server and its command: who gets in, with what, and what is never reached."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib import request
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import pytest

from conftest import Cli
from served_app import serving
from undertow.types import UndertowError
from undertow.web.app import Offer, Served, check_gradio, default_models
from undertow.web.asking import Menu
from undertow.web.door import FILE, MOST_BODY_BYTES, Door

HOST = "127.0.0.1:7000"
COOKIE = "undertow-7000=secret"
PAGE = b"""<head><base href="./"><link rel="preconnect" href="https://fonts.example">
<script src="https://cdn.example/x.js" async></script>
<meta content="https://elsewhere.example/x.png" />
<link rel="manifest" href="/manifest.json" /><script src="/static/a.js"></script></head>"""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Doorway:
    """A door with nothing but a page behind it, and what came through."""

    def __init__(self, files: Path, hosts: frozenset[str] = frozenset({HOST})) -> None:
        self.passed: list[tuple[str, str, bytes]] = []
        self.door = Door(self._inside, hosts=hosts, token="secret", cookie="undertow-7000", files=files)

    async def _inside(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.passed.append((scope["method"], scope["path"], message.get("body", b"")))
        headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(PAGE)), (b"server", b"x")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": PAGE[:50], "more_body": True})
        await send({"type": "http.response.body", "body": PAGE[50:]})

    def ask(self, method: str, path: str, body: bytes = b"", query: str = "", **headers: str) -> Reply:
        given = {"host": HOST, "cookie": COOKIE, "content-type": "application/json", "content-length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value != "-"],
        }  # fmt: skip
        sent: list[MutableMapping[str, Any]] = []
        parts = [body[at : at + 50_000] for at in range(0, len(body), 50_000)] or [b""]
        left = [
            {"type": "http.request", "body": part, "more_body": place < len(parts) - 1}
            for place, part in enumerate(parts)
        ]

        async def receive() -> MutableMapping[str, Any]:
            return left.pop(0)

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.door(scope, receive, send))
        said = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], said, b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.fixture
def doorway(tmp_path: Path) -> Doorway:
    return Doorway(tmp_path)


def test_the_token_lets_one_in_and_goes_into_a_cookie(doorway: Doorway) -> None:
    shown = doorway.ask("GET", "/", query="token=secret", cookie="-")
    assert (shown.status, shown.headers["location"]) == (303, "/")
    assert shown.headers["set-cookie"] == "undertow-7000=secret; Path=/; HttpOnly; SameSite=Strict"
    assert doorway.ask("GET", "/").status == 200
    assert [(method, path) for method, path, _ in doorway.passed] == [("GET", "/")]


@pytest.mark.parametrize(
    "cookie", ["-", "undertow-7000=wrong", "undertow-7001=secret", "undertow-7000=", "\x01;;=", "undertow-7000=sécret"]
)
def test_without_it_nobody_is_let_in(doorway: Doorway, cookie: str) -> None:
    for method, path in (("GET", "/"), ("POST", "/gradio_api/queue/join"), ("GET", "/assets/a.js")):
        reply = doorway.ask(method, path, cookie=cookie)
        assert reply.status == 403
        assert b"address that `undertow app` shows" in reply.body
    assert doorway.ask("GET", "/", query="token=wrong", cookie="-").status == 403
    assert doorway.ask("GET", "/config", query="token=secret", cookie="-").status == 403
    assert doorway.passed == []


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "-"},
        {"host": "127.0.0.1"},
        {"host": f"{HOST}.evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:7001"},
        {"origin": f"https://{HOST}"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
    ],
)
def test_another_page_cannot_ask_this_one(doorway: Doorway, headers: dict[str, str]) -> None:
    assert doorway.ask("POST", "/gradio_api/queue/join", b"{}", **headers).status == 403
    assert doorway.passed == []


def test_the_page_itself_can_ask(doorway: Doorway) -> None:
    body = json.dumps({"data": ["x" * 60_000]}).encode()
    assert (
        doorway.ask(
            "POST", "/gradio_api/queue/join", body, origin=f"http://{HOST}", sec_fetch_site="same-origin"
        ).status
        == 200
    )
    assert doorway.passed == [("POST", "/gradio_api/queue/join", body)]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/proxy=http://127.0.0.1:22/"),
        ("POST", "/gradio_api/run/predict"),
        ("POST", "/gradio_api/api/answer"),
        ("POST", "/gradio_api/call/answer"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/runs"),
        ("POST", "/login"),
        ("POST", "/gradio_api/vibe-edit"),
        ("GET", "/gradio_api/deep_link"),
        ("GET", "/static/../../etc/passwd"),
        ("PUT", "/"),
        ("DELETE", "/"),
        ("OPTIONS", "/gradio_api/queue/join"),
        ("TRACE", "/"),
    ],
)
def test_what_the_page_has_no_use_for_is_not_there(doorway: Doorway, method: str, path: str) -> None:
    assert doorway.ask(method, path).status == 404
    assert doorway.passed == []


def test_downloads_come_from_their_folder_alone(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "kept.csv").write_text("a")
    (tmp_path / "secret.csv").write_text("b")
    (files / "link.csv").symlink_to(tmp_path / "secret.csv")
    doorway = Doorway(files)
    reply = doorway.ask("GET", f"{FILE}{files / 'kept.csv'}")
    assert (reply.status, reply.headers["content-disposition"]) == (200, "attachment")
    bad = [
        tmp_path / "secret.csv",
        files / "link.csv",
        files / ".." / "secret.csv",
        "kept.csv",
        "/etc/passwd",
        files,
        "http://x.example/",
        "\0",
    ]
    for path in bad:
        assert doorway.ask("GET", f"{FILE}{path}").status == 404, path
    assert len(doorway.passed) == 1


def test_a_question_is_small_and_json(doorway: Doorway) -> None:
    large = b"x" * (MOST_BODY_BYTES + 1)
    join = "/gradio_api/queue/join"
    assert doorway.ask("POST", join, large).status == 413
    assert doorway.ask("POST", join, large, content_length="10").status == 413, "it is counted, whatever it says"
    assert doorway.ask("POST", join, b"{}", content_length="9" * 5000).status == 413
    assert doorway.ask("POST", join, b"{}", content_length="-1").status == 413
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "-"):
        assert doorway.ask("POST", join, b"{}", content_type=kind).status == 415
    assert doorway.ask("GET", "/config", query="x" * 3000).status == 414
    assert doorway.passed == []


def test_a_page_fetches_nothing_from_elsewhere_and_is_framed_by_nobody(doorway: Doorway) -> None:
    reply = doorway.ask("GET", "/")
    assert b"https://" not in reply.body
    assert b"manifest" not in reply.body
    assert b'<base href="./">' in reply.body
    assert b'<script src="/static/a.js"></script>' in reply.body
    assert int(reply.headers["content-length"]) == len(reply.body)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "server" not in reply.headers


def test_served_to_others_any_host_is_good_and_the_token_still_needed(tmp_path: Path) -> None:
    doorway = Doorway(tmp_path, hosts=frozenset())
    assert doorway.ask("GET", "/", host="me.example:7000").status == 200
    assert (
        doorway.ask(
            "POST", "/gradio_api/queue/join", b"{}", host="me.example:7000", origin="http://evil.example"
        ).status
        == 403
    )
    assert doorway.ask("GET", "/", host="me.example:7000", cookie="-").status == 403


def test_websockets_are_not_answered(doorway: Doorway) -> None:
    sent: list[object] = []

    async def call() -> None:
        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "websocket.connect"}

        await doorway.door({"type": "websocket", "path": "/"}, receive, send)

    asyncio.run(call())
    assert sent == []


# The server, with Gradio.


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page in a process of its own, and its address."""
    with serving(tmp_path_factory.mktemp("served")) as address:
        yield address


class Visitor:
    """A browser, as far as a server can tell."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._base = f"http://{parts.netloc}"
        self._cookie = f"undertow-{parts.port}={parse_qs(parts.query)['token'][0]}"

    def ask(self, path: str, value: object = None, **headers: str) -> Reply:
        body = None if value is None else json.dumps(value).encode()
        named = {"Cookie": self._cookie, "Content-Type": "application/json"} | {
            k.replace("_", "-"): v for k, v in headers.items()
        }
        asked = request.Request(self._base + path, data=body, headers=named)
        try:
            with request.build_opener(request.ProxyHandler({})).open(asked, timeout=20) as reply:
                return Reply(reply.status, dict(reply.headers), reply.read())
        except HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read())


def test_the_page_is_there_and_names_no_other_server(served: str) -> None:
    page = Visitor(served).ask("/")
    assert page.status == 200
    outside = page.body.partition(b"window.gradio_config")[0]
    assert b"//" not in outside.replace(b"<!--", b"")
    config = json.loads(Visitor(served).ask("/config").body)
    assert config["analytics_enabled"] is False
    assert {one["api_visibility"] for one in config["dependencies"]} == {"private"}


def test_events_cannot_be_called_past_the_queue(served: str) -> None:
    visitor = Visitor(served)
    for path in ("/gradio_api/run/answer", "/gradio_api/api/answer", "/gradio_api/call/answer", "/gradio_api/upload"):
        assert visitor.ask(path, {"data": []}).status == 404


def test_a_form_with_the_wrong_kinds_is_answered_in_a_sentence(served: str) -> None:
    """A client of its own sends what no page would."""
    visitor = Visitor(served)
    config = json.loads(visitor.ask("/config").body)
    (number, *_) = [one["id"] for one in config["dependencies"] if one["api_name"] == "answer"]
    data = [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "1,2,3", "DATE", "toy", "", True, 1, 1]
    joined = visitor.ask("/gradio_api/queue/join", {"data": data, "fn_index": number, "session_hash": "mine"})
    assert joined.status in (200, 400, 422)
    if joined.status == 200:
        said = visitor.ask("/gradio_api/queue/data?session_hash=mine").body.decode()
        assert "root:" not in said
    unknown = visitor.ask("/gradio_api/queue/join", {"data": [], "fn_index": 10**6, "session_hash": "mine"})
    assert unknown.status >= 400
    assert b"Traceback" not in unknown.body


# The command.


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UndertowError, match=f"port {port} of 127.0.0.1 cannot be used"):
            Served(Offer(Menu.of(["toy"]), port=port), tmp_path)


def test_without_gradio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr("undertow.web.app.find_spec", lambda name: None)
    with pytest.raises(UndertowError, match=r"pip install 'undertow\[app\]'"):
        check_gradio()


def test_an_end_by_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        assert Visitor(address).ask("/").status == 200
        assert [place.name for place in tmp_path.glob("tmp/undertow-app-*")] != []
    assert list(tmp_path.glob("tmp/*")) == []


def test_the_toy_is_always_offered() -> None:
    assert default_models()[-1] == "toy"


def test_the_command_is_listed(cli: Cli) -> None:
    shown = cli("app", "--help")
    if "No such command" in shown.stderr:
        pytest.skip("the command is not wired to the command line yet")
    assert shown.returncode == 0
    for option in ("--host", "--port", "--models", "--allow-any-model", "--runs", "--no-browser"):
        assert option in shown.stdout


def test_serving_loads_neither_gradio_nor_torch_until_it_must() -> None:
    code = "import sys; import undertow.cli.app; print([m for m in ('gradio', 'torch', 'numpy', 'uvicorn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
