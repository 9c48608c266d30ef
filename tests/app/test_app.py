from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import HTMLResponse

from helpers.faulty_proxy import wait_until
from helpers.file_refusal import assert_refused
from helpers.served_app import Reply, ServedApp, Visitor
from undertow.app.access_control import HEADERS, MAX_BODY_BYTES
from undertow.app.server import Server, check_gradio

FORM: list[object] = ["In DATE, she was a child.", "DATE", "", "1801, 1900, 2000", "toy", "", "", True, 1, 1]
PAGE = """<head><base href="./"><link rel="preconnect" href="https://fonts.example">
<script src="https://cdn.example/x.js" async></script>
<meta content="https://elsewhere.example/x.png" />
<link rel="manifest" href="/manifest.json" /><script src="/static/a.js"></script></head>"""
FILE = "/gradio_api/file="
MAX_WAITING = 4


class Doorway:
    """Access control with nothing but a page behind it, and what came through."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.passed: list[tuple[str, str, bytes]] = []
        self.server = Server(host, 0)
        self.server.access.n_functions = 10
        self.host = f"127.0.0.1:{self.server.port}"
        self.cookie = f"undertow-{self.server.port}={self.server.access.token}"
        self.app = FastAPI()
        methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"]
        self.app.add_api_route("/{path:path}", self._inside, methods=methods)
        self.server.admit(self.app, "/")
        self.server._socket.close()

    async def _inside(self, request: Request) -> HTMLResponse:
        self.passed.append((request.method, request.scope["path"], await request.body()))
        return HTMLResponse(PAGE)

    def ask(self, method: str, path: str, body: bytes = b"", query: str = "", **headers: str) -> Reply:
        given = {"host": self.host, "cookie": self.cookie, "content-type": "application/json"}
        given |= {"content-length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": path, "root_path": "",
            "query_string": query.encode("latin-1"),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value != "-"],
        }  # fmt: skip
        sent: list[MutableMapping[str, Any]] = []
        first = {"type": "http.request", "body": body[:50_000], "more_body": True}
        left = [first, {"type": "http.request", "body": body[50_000:], "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return left.pop(0) if left else await asyncio.Future()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        said = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], said, b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.fixture
def doorway() -> Doorway:
    return Doorway()


@pytest.mark.parametrize("path", ["/", "/annotate", "/rephrase"])
def test_the_token_lets_one_in_and_goes_into_a_cookie(doorway: Doorway, path: str) -> None:
    token = doorway.server.access.token
    shown = doorway.ask("GET", path, query=f"token={token}", cookie="-")
    assert (shown.status, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'http-equiv="refresh" content="0; url={path}"'.encode() in shown.body
    assert token.encode() not in shown.body
    said = shown.headers["set-cookie"].lower().split("; ")
    assert shown.headers["set-cookie"].startswith(f"{doorway.cookie}; ")
    assert {"httponly", "path=/", "samesite=strict"} <= set(said)
    assert doorway.ask("GET", path).status == 200
    assert [(method, path) for method, path, _ in doorway.passed] == [("GET", path)]


def test_cookie_of_another_server_does_not_keep_its_owner_out(doorway: Doorway) -> None:
    for other in ('theme={"dark": true}', "a b=1", "=;;", "y=\xfc"):
        for cookie in (f"{other}; {doorway.cookie}", f"{doorway.cookie}; {other}"):
            assert doorway.ask("GET", "/", cookie=cookie).status == 200
        assert doorway.ask("GET", "/", cookie=other).status == 403


JOIN = "/gradio_api/queue/join"
CANNOT_ASK: list[dict[str, str]] = [
    *({"cookie": one} for one in ("-", "{cookie}x", "undertow-7001={token}", "\x01;;=")),
    *({"host": host} for host in ("-", "127.0.0.1.evil.example", "evil.example", "127.0.0.1/config?")),
    *({"origin": one} for one in ("null", "http://127.0.0.1:1", "https://{host}")),
    *({"sec_fetch_site": site} for site in ("cross-site", "same-site", "none")),
]


@pytest.mark.parametrize("headers", CANNOT_ASK, ids=str)
def test_request_without_the_token_or_from_another_page_is_refused(doorway: Doorway, headers: dict[str, Any]) -> None:
    token = doorway.server.access.token
    headers = {
        name: value.format(host=doorway.host, cookie=doorway.cookie, token=token) for name, value in headers.items()
    }
    status = 400 if "host" in headers else 403
    assert doorway.ask("POST", JOIN, b"{}", **headers).status == status
    if "cookie" in headers or "host" in headers:
        for path in ("/", "/annotate", "/config", "/assets/a.js"):
            assert doorway.ask("GET", path, **headers).status == status
        assert doorway.ask("GET", "/", query="token=wrong", **headers).status == status
        assert doorway.ask("GET", "/config", query=f"token={token}", **headers).status == status
    assert doorway.passed == []


def test_page_itself_can_ask_and_one_served_to_others_still_needs_the_token_and_its_own_origin() -> None:
    doorway = Doorway()
    fields = ["x" * 60_000, "<b>日本</b>\n\x1b", True, 1, 0.5, None]
    body = json.dumps({"data": fields, "event_data": None, "fn_index": 5, "session_hash": "s"}).encode()
    assert doorway.ask("POST", JOIN, body, origin=f"http://{doorway.host}", sec_fetch_site="same-origin").status == 200
    assert doorway.passed == [("POST", JOIN, body)]
    doorway = Doorway("0.0.0.0")
    assert doorway.ask("GET", "/", host="me.example:7000").status == 200
    assert doorway.ask("GET", "/gradio_api/upload", host="me.example/config?").status == 404
    assert doorway.ask("POST", JOIN, b"{}", host="me.example:7000", origin="http://evil.example").status == 403
    assert doorway.ask("GET", "/", host="me.example:7000", cookie="-").status == 403


NOT_THERE = {
    "GET": ["proxy=http://127.0.0.1:22/", "openapi.json", "runs", "deep_link", "../static/../../etc/passwd"],
    "POST": ["upload", "api/answer", "call/answer", "component_server", "vibe-edit"],
    "PUT": [""], "DELETE": [""], "OPTIONS": ["queue/join"], "TRACE": [""],
}  # fmt: skip


def test_what_the_page_has_no_use_for_is_not_there(doorway: Doorway) -> None:
    for method, paths in NOT_THERE.items():
        for path in paths:
            assert doorway.ask(method, f"/gradio_api/{path}").status == 404, (method, path)
    for method, path in (("GET", "/monitoring"), ("POST", "/login"), ("GET", "/static/../../etc/passwd"), ("PUT", "/")):
        assert doorway.ask(method, path).status == 404, (method, path)
    assert doorway.passed == []


def test_a_request_is_small_and_json(doorway: Doorway) -> None:
    assert doorway.ask("POST", JOIN, b"x" * (MAX_BODY_BYTES + 1)).status == 413
    assert doorway.ask("POST", JOIN, b"{}", transfer_encoding="chunked").status == 413
    for length in ("9" * 5000, "-1", "-"):
        assert doorway.ask("POST", JOIN, b"{}", content_length=length).status == 413
    for kind in ("text/plain", "multipart/form-data; boundary=x", "-"):
        assert doorway.ask("POST", JOIN, b"{}", content_type=kind).status == 415
    assert doorway.ask("GET", "/config", query="x" * 3000).status == 414
    for function in (-1, 10, 10**30, 1.5, "0", None):
        body = json.dumps({"data": [], "fn_index": function}).encode()
        assert doorway.ask("POST", JOIN, body).status == 400, function
    assert doorway.passed == []


FILE_DATA = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize(
    "body",
    [
        *(json.dumps({"data": data, "fn_index": 1}) for data in ([FILE_DATA], [[FILE_DATA]], FILE_DATA, "x")),
        *(json.dumps({"data": [], "fn_index": 1, "event_data": data}) for data in (FILE_DATA, [FILE_DATA])),
        *(f'{{"data": [{data}], "fn_index": 1}}' for data in ('"\\ud800"', "1e400", "NaN", "9" * 5000)),
        '{"data": [{"path": "/etc/passwd"}], "data": [], "fn_index": 1}',
        '{"data": [], "fn_index": 1, "session_hash": "\\udfff"}',
        '{"data": [], "fn_index": 1, "\\udfff": 1}',
        *("[" * 60_000, "[]", "null", "3", "{", "", "\xff"),
    ],
    ids=lambda body: body[:40],
)
def test_question_of_more_than_texts_numbers_and_truth_values_is_refused(doorway: Doorway, body: str) -> None:
    """Of what says that it is a file, Gradio makes a copy among the downloads, wherever it lies."""
    for path in (JOIN, "/gradio_api/run/predict", "/gradio_api/cancel", "/annotate/judgements", "/rephrase/answers"):
        reply = doorway.ask("POST", path, body.encode("latin-1"))
        assert (reply.status, len(reply.body) < 200) == (400, True)
    assert doorway.passed == []


def test_page_fetches_nothing_from_elsewhere_and_is_framed_by_nobody(doorway: Doorway) -> None:
    reply = doorway.ask("GET", "/")
    assert not re.search(b"https://|manifest", reply.body)
    assert b'<script src="/static/a.js"></script>' in reply.body
    assert int(reply.headers["content-length"]) == len(reply.body)
    policy = reply.headers["content-security-policy"]
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert not re.search("unsafe-eval|http", policy)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "server" not in reply.headers


POSTED = [
    JOIN,
    *(f"/gradio_api/{one}" for one in ("run/", "cancel", "reset")),
    "/annotate/judgements",
    "/rephrase/answers",
]
KNOWN_PATHS = ["/", "/report/", "/annotate", "/annotate/sources", "/rephrase", "/rephrase/next", "/config",
               "/theme.css", "/gradio_api/queue/data", "/assets/",
               "/static/", "/svelte/", "/gradio_api/heartbeat/", f"{FILE}/", *POSTED]  # fmt: skip
ODD_PATHS = ["", "a.js", "..", "/../", "%2e%2e/", "\\..\\", "//", "/etc/passwd", "\0", "?", "#", ";", "upload"]
BODIES = st.sampled_from(
    [
        json.dumps({"data": FORM, "fn_index": 5, "session_hash": "s"}).encode(),
        *(b"", b"{}", b"[]", b'{"data": [{}], "fn_index": 5}', b'{"data": ["' + b"x" * MAX_BODY_BYTES + b'"]}'),
    ]
)
LINES = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=20)


def mostly(good: str, others: list[str]) -> st.SearchStrategy[str]:
    """Nine of ten times what a browser says."""
    odd = st.sampled_from(others) | LINES
    return st.integers(0, 9).flatmap(lambda drawn: odd if drawn == 9 else st.just(good))


@pytest.mark.parametrize("n", [60, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_whatever_is_asked_gets_through_only_as_a_request_of_the_page(n: int, doorway: Doorway) -> None:
    """Each part of a request is drawn: most are good, so that one bad part alone is often what is left to find."""
    host, cookie, token = doorway.host, doorway.cookie, doorway.server.access.token
    n_passed, n_refused = 0, 0

    @settings(max_examples=n, database=None, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        method=mostly("POST", ["GET", "HEAD", "PUT", "OPTIONS", "DELETE"]) | mostly("GET", ["HEAD", "TRACE"]),
        start=mostly(JOIN, KNOWN_PATHS) | st.sampled_from(KNOWN_PATHS),
        rest=mostly("", ODD_PATHS),
        query=mostly("", [f"token={token}", "token=x", "x" * 3000]),
        host=mostly(host, ["-", "evil.example", f"{host}.evil.example", f"{host}/config?"]),
        cookie=mostly(cookie, ["-", "undertow-7000=", f"x; {cookie}", f"undertow-1={token}"]),
        origin=mostly("-", [f"http://{host}", f"https://{host}", "null"]),
        sec_fetch_site=mostly("-", ["same-origin", "cross-site", "none"]),
        content_type=mostly(
            "application/json", ["text/plain", "application/json; charset=utf-16", "multipart/form-data"]
        ),
        body=BODIES,
    )
    def asked(method: str, start: str, rest: str, query: str, body: bytes, **said: str) -> None:
        nonlocal n_passed, n_refused
        doorway.passed.clear()
        reply = doorway.ask(method, start + rest, body, query, **said)
        if not doorway.passed:
            n_refused += 1
            assert reply.status in (400, 403, 404, 405, 413, 414, 415) or b"refresh" in reply.body
            assert len(reply.body) < 200
            return
        n_passed += 1
        ((_, path, came),) = doorway.passed
        assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
        assert said["host"] in (host, "127.0.0.1", "localhost") or said["host"].startswith("127.0.0.1:")
        assert said["origin"] in ("-", f"http://{said['host']}")
        assert cookie in [one.strip() for one in said["cookie"].split(";")]
        assert path.startswith(tuple(KNOWN_PATHS))
        assert ".." not in path
        if method == "POST":
            assert path.startswith(tuple(POSTED))
            assert said["sec_fetch_site"] in ("-", "same-origin")
            assert (came, len(came) <= MAX_BODY_BYTES) == (body, True)
            question = json.loads(came)
            told = [*question.get("data", []), *(value for name, value in question.items() if name != "data")]
            assert not any(isinstance(value, list | dict) for value in told)
        else:
            assert method in ("GET", "HEAD")

    asked()
    assert min(n_passed, n_refused) > n / 20, (n_passed, n_refused)


@pytest.fixture(scope="module")
def visitor(served_app: ServedApp) -> Gradio:
    """Of the page, with a report of somebody else and what nobody may read beside it."""
    folder, runs = served_app.folder, served_app.folder / "runs"
    (runs / "link").symlink_to(folder)
    (runs / RUN_NAME).mkdir()
    (runs / RUN_NAME / "manifest.json").write_text("{}")
    (runs / RUN_NAME / "report.html").write_text(FOREIGN)
    (folder / "secret").write_text(SECRET)
    parts = urlsplit(served_app.address)
    return Gradio(parts.port or 0, parse_qs(parts.query)["token"][0])


class Gradio(Visitor):
    """A browser that knows how Gradio's page asks."""

    def handlers(self) -> list[tuple[int, str, int]]:
        """Everything that can be asked for: its number, its name, how many fields it reads."""
        listed = [one for one in json.loads(self.ask("/config").body)["dependencies"] if one["backend_fn"]]
        self._quick = {one["id"] for one in listed if one["queue"] is False}
        return [(one["id"], one["api_name"], len(one["inputs"])) for one in listed]

    def send(self, name: str, data: list[object], session: str) -> Reply:
        number = next(number for number, known, _ in self.handlers() if known == name)
        path = "/gradio_api/run/predict" if number in self._quick else JOIN
        return self.ask(path, {"data": data, "fn_index": number, "session_hash": session})

    def said(self, session: str) -> Iterator[str]:
        """What is answered to a session, until an answer is complete."""
        with self.asking(f"/gradio_api/queue/data?session_hash={session}") as reply:
            for line in reply:
                yield line.decode()
                if b"process_completed" in line or b"unexpected_error" in line:
                    return

    def answer(self, name: str, data: list[object], session: str) -> str:
        reply = self.send(name, data, session)
        assert reply.status == 200
        return "".join(self.said(session)) if b"event_id" in reply.body else reply.body.decode()


SECRET = "nobody may read this"
RUN_NAME, FOREIGN = "a run & <b>", "<script>document.title = 'a report of somebody else'</script>"
TOLD = "From 1801 to 2000, "


def form(**typed: object) -> list[object]:
    """A form for the first tab, some of its fields changed."""
    names = ("sentence", "placeholder", "words", "values", "model", "beside", "other", "normalise", "degree", "ends")
    return list((dict(zip(names, FORM, strict=True)) | typed).values())


def test_page_is_there_and_a_visitor_without_a_browser_gets_an_answer_or_a_sentence(visitor: Gradio) -> None:
    page = visitor.ask("/")
    assert page.status == 200
    outside = page.body.partition(b"window.gradio_config")[0]
    assert b"//" not in outside.replace(b"<!--", b""), "it names no other server"
    config = json.loads(visitor.ask("/config").body)
    assert config["analytics_enabled"] is False
    assert {one["api_visibility"] for one in config["dependencies"]} == {"private"}
    assert TOLD in visitor.answer("answer", FORM, "plain")
    for number, (field, typed) in enumerate(
        (("sentence", "She \x1b[31m ran in DATE."), ("sentence", None), ("normalise", "yes"))
    ):
        told = visitor.answer("answer", form(**{field: typed}), f"mistake{number}")
        assert "process_completed" in told, typed
        assert not re.search(f"{TOLD}|Traceback", told), typed


def test_no_file_is_reached_by_any_spelling_and_none_is_fetched_for_a_field_that_says_it_is_one(
    visitor: Gradio, served_app: ServedApp
) -> None:
    secret = served_app.folder / "secret"
    own = next(secret.parent.glob("tmp/undertow-app-*"))
    up = "/".join([".."] * 12)
    for place in (str(secret), f"{own}/{up}{secret}", f"{own}/%2e%2e/%2e%2e/secret", f"%2F{str(secret)[1:]}"):
        for way in ("/gradio_api/file=", "/file=", "/gradio_api/file/", "/static/", "/assets/", "//gradio_api/file="):
            reply = visitor.ask(f"{way}{quote(place, safe='/%')}")
            assert reply.status in (403, 404), (way, place)
            assert SECRET.encode() not in reply.body
    for number, name, n_fields in visitor.handlers():
        fields = [{"path": str(secret), "meta": {"_type": "gradio.FileData"}}] * max(n_fields, 1)
        question = {"data": fields, "fn_index": number, "session_hash": f"file{number}"}
        assert visitor.ask("/gradio_api/queue/join", question).status == 400, name
    kept = secret.parent.glob("tmp/**/*")
    assert [path for path in kept if path.is_file() and SECRET in path.read_text("latin-1")] == []


def test_fields_of_wrong_kinds_are_answered_everywhere_and_nothing_is_told(visitor: Gradio) -> None:
    reading = [(number, name, n_fields) for number, name, n_fields in visitor.handlers() if n_fields]
    assert reading
    for number, name, n_fields in reading:
        wrong = ["\x1b]0;obeyed\x07..", -1e300, None][number % 3]
        told = visitor.answer(name, [wrong] * n_fields, f"wrong{number}")
        assert "Traceback" not in told, (name, wrong)
    for number, run in enumerate(("..", "link", "/etc")):
        told = visitor.answer("show", [run], f"run{number}")
        assert "There is no such run on the list" in told
        assert SECRET not in told, run
    # Fewer fields than it reads: Gradio prints what came instead, on a terminal that must not obey it.
    visitor.answer("answer", ["\x1b[2J\x9b2J"], "few")
    assert TOLD in visitor.answer("answer", FORM, "still-there")


def test_a_table_is_downloaded_and_nothing_else_of_its_folder(visitor: Gradio) -> None:
    path = re.findall(r"/gradio_api/file=([^\"]*\.csv)", visitor.answer("answer", FORM, "downloads"))[0]
    reply = visitor.ask(f"{FILE}{path}")
    assert (reply.status, reply.headers["content-disposition"].partition(";")[0]) == (200, "attachment")
    assert reply.body.startswith(b"value,female")
    for other in (str(Path(path).parent), f"{path}x", "kept.csv", "http://x.example/"):
        assert visitor.ask(f"{FILE}{other}").status in (403, 404), other


def test_a_report_is_served_to_visitors_alone_and_without_an_origin(visitor: Gradio) -> None:
    address = f"/report/{quote(RUN_NAME, safe='')}"
    reply = visitor.ask(address)
    assert (reply.status, reply.body.decode()) == (200, FOREIGN)
    policy = reply.headers["content-security-policy"].split("; ")
    assert policy[0].split()[0] == "sandbox"
    assert not {"allow-same-origin", "allow-top-navigation", "allow-forms"} & set(policy[0].split())
    assert {"default-src 'none'", "frame-ancestors 'self'"} <= set(policy)
    assert "connect-src" not in reply.headers["content-security-policy"]
    assert visitor.ask(address, Cookie="").status == 403
    for name in ("link", "..", "%2e%2e", "..%2Fsecret", "%2Fetc%2Fpasswd", "no such run", "x" * 1000, ""):
        refused = visitor.ask(f"/report/{quote(name, safe='%')}")
        assert (refused.status, SECRET.encode() in refused.body) == (404, False), name
        assert refused.headers["content-security-policy"]


def slow_form(number: int) -> list[object]:
    """A hundred years that nobody asked before, of a model that takes more than a second for each."""
    years = ", ".join(str(1000 + 100 * number + place) for place in range(100))
    return form(sentence=f"In DATE, she {'went on and ' * 29}slept.", values=years, model="toy:pause=1.3")


def test_one_works_four_wait_and_more_are_turned_away_until_a_stop_or_a_closed_window_ends_them(
    visitor: Gradio,
) -> None:
    sessions = [f"crowd{number}" for number in range(MAX_WAITING + 5)]
    replies = {one: visitor.send("answer", slow_form(number), one) for number, one in enumerate(sessions)}
    statuses = [reply.status for reply in replies.values()]
    assert statuses == [200] * (MAX_WAITING + 1) + [503] * 4
    assert b"Queue is full" in replies["crowd7"].body
    (number,) = {number for number, name, _ in visitor.handlers() if name == "answer"}
    for session in reversed(sessions[: MAX_WAITING + 1]):
        assert visitor.send("halt", [], session).status == 200
        event = json.loads(replies[session].body)["event_id"]
        cancelled = {"session_hash": session, "fn_index": number, "event_id": event}
        assert visitor.ask("/gradio_api/cancel", cancelled).status == 200
    wait_until(lambda: TOLD in visitor.answer("answer", FORM, f"after{time.monotonic_ns()}"))
    # A closed window stops its work too, which would take longer than anything may here.
    with visitor.asking("/gradio_api/heartbeat/gone"):
        assert visitor.send("answer", slow_form(20), "gone").status == 200
        for said in visitor.said("gone"):
            if "Asking the model" in said:
                break
    wait_until(lambda: TOLD in visitor.answer("answer", FORM, f"after{time.monotonic_ns()}"))


def test_slow_clients_do_not_block_others(visitor: Gradio) -> None:
    with ExitStack() as stack:
        for number in range(80):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", visitor.port)))
            line.sendall([b"", b"GET / HTTP/1.1\r\nHost: ", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{"][number % 3])
        assert visitor.ask("/config").status == 200
        assert TOLD in visitor.answer("answer", FORM, "beside")


def test_without_gradio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr("undertow.app.server.find_spec", lambda name: None)
    assert_refused(("pip install 'undertow[app]'",), check_gradio)
