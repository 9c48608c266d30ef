"""The page for judging rephrasings: it keeps every judgement, shows every text as text, and serves this machine alone."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib import request
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

import pandas as pd
import pytest

from undertow.cli.annotate import annotate
from undertow.records import Record, write_record
from undertow.types import UndertowError
from undertow.web.annotation import (
    ANNOTATIONS,
    CATEGORIES,
    MOST_BODY_BYTES,
    MOST_NOTE_SIGNS,
    PROBE,
    TOKEN_HEADER,
    AnnotationServer,
    Book,
    read_annotations,
    serve,
    summary,
)

EVIL = "</script><script>alert(1)</script>{{7*7}}<img src=x onerror=alert(1)>"
OBSERVATIONS = [
    # model, class, span, answer, gold, unscored
    ("secret-model-a", "statement", "one span", "first answer", "one reference", ""),
    ("secret-model-a", "question", "one span", "first answer", "another reference", ""),
    ("secret-model-b", "null", "one span", "first answer", "one reference", ""),
    ("secret-model-a", "statement", "one span", "second answer\nof two lines", "one reference", ""),
    ("secret-model-b", "statement", "other span", EVIL, EVIL, ""),
    ("secret-model-b", "question", "other span", "", "", ""),
    ("secret-model-b", "question", "lost span", "never shown", "", "too long"),
]


def write_run(folder: Path, probe: str = PROBE, rows: Sequence[Sequence[str]] = OBSERVATIONS, seed: int = 7) -> Path:
    table = pd.DataFrame(rows, columns=["model", "description_class", "passage", "answer", "gold", "unscored"])
    table.insert(0, "item", [f"i{place}" for place in range(len(table))])
    return write_table(folder, table.assign(dimension="gender", shots=5), probe, seed)


def write_table(folder: Path, table: pd.DataFrame, probe: str = PROBE, seed: int = 7) -> Path:
    manifest: dict[str, Any] = {"schema_version": 1, "probe": probe, "model": "m", "design": {}, "run_key": "k"}
    manifest |= {"asked_key": "a", "seed": seed, "protocol": "exact", "command": "c", "python": "p", "created": "now"}
    manifest |= {"versions": {}, "machine": {}}
    write_record(Record(manifest, table, []), folder, lambda _: None)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


class Reply(NamedTuple):
    status: int
    text: str
    headers: Any


class Visitor:
    """A browser, as far as a server can tell."""

    def __init__(self, server: AnnotationServer) -> None:
        self.server = server
        self.address = server.address

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> Reply:
        given = {TOKEN_HEADER: self.server.token, "Content-Type": "application/json"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = path if path.startswith("http") else f"http://127.0.0.1:{self.server.server_port}{path}"
        asked = request.Request(url, data=body, headers=given | named)
        try:
            with request.build_opener(request.ProxyHandler({})).open(asked, timeout=20) as reply:
                return Reply(reply.status, reply.read().decode(), reply.headers)
        except HTTPError as error:
            with error:
                return Reply(error.code, error.read().decode(), error.headers)

    def judge(self, item: str, category: str = "correct", note: str = "", **headers: str) -> Reply:
        body = json.dumps({"item": item, "category": category, "note": note}).encode()
        return self.ask("/judgements", body, **headers)

    def page(self) -> str:
        reply = self.ask(self.address)
        assert reply.status == 200, reply.text
        return reply.text

    def data(self) -> dict[str, Any]:
        """What the page's script is given."""
        (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', self.page(), re.DOTALL)
        value: dict[str, Any] = json.loads(found)
        return value

    def first(self) -> str:
        return str(self.data()["rephrasings"][0]["id"])


@contextmanager
def visited(folder: Path, who: str = "ann") -> Iterator[Visitor]:
    with AnnotationServer(folder, who, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Visitor(server)
        finally:
            server.shutdown()
            thread.join()


def lines(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / ANNOTATIONS).read_text(encoding="utf-8").splitlines()]


# The page.


def test_each_pair_of_texts_is_shown_once_and_unscored_ones_never(run: Path) -> None:
    with visited(run) as visitor:
        shown = visitor.data()["rephrasings"]
    assert {(one["span"], one["answer"]) for one in shown} == {
        ("one span", "first answer"),
        ("one span", "second answer\nof two lines"),
        ("other span", EVIL),
        ("other span", ""),
    }
    assert len(shown) == 4
    (first,) = [one for one in shown if one["answer"] == "first answer"]
    assert first["references"] == ["one reference", "another reference"]
    assert first["dimensions"] == ["gender"]


def test_the_page_does_not_say_who_wrote_what_until_it_is_asked(run: Path) -> None:
    with visited(run) as visitor:
        html = visitor.page()
        assert "secret-model" not in html
        assert "statement" not in html
        (first,) = [one for one in visitor.data()["rephrasings"] if one["answer"] == "first answer"]
        sources = visitor.ask(f"/sources?item={first['id']}")
    assert json.loads(sources.text) == [
        "secret-model-a: statement, 5 shots",
        "secret-model-a: question, 5 shots",
        "secret-model-b: null, 5 shots",
    ]


def test_the_order_is_shuffled_by_the_seed_and_the_same_on_every_visit(tmp_path: Path) -> None:
    rows = [("m", "statement", f"span {n:02}", "answer", "", "") for n in range(40)]
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        book = Book(write_run(tmp_path / name, rows=rows, seed=seed), "ann")
        orders.append([one.span for one in book.rephrasings.values()])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])
    assert orders[0] != sorted(orders[0])


def test_texts_reach_the_page_as_data_and_no_markup(run: Path) -> None:
    with visited(run, who="<b>ann</b>") as visitor:
        html = visitor.page()
    assert html.count("<script") == html.count("</script>") == 2
    assert EVIL not in html
    assert "<img" not in html
    assert "49" not in re.sub(r'token[^,]*,|nonce="[^"]*"|"id": "[^"]*"', "", html)
    assert "<b>ann" not in html
    assert "&lt;b&gt;ann&lt;/b&gt;" in html
    script = html.rpartition("<script nonce=")[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_the_page_runs_its_own_script_alone_and_fetches_nothing_from_elsewhere(run: Path) -> None:
    with visited(run) as visitor:
        first, second = (visitor.ask(visitor.address) for _ in range(2))
    policy = first.headers["Content-Security-Policy"]
    (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
    assert first.text.count(f'nonce="{nonce}"') == 2, "the style and the script"
    assert nonce not in second.text
    assert set(policy.split("; ")) == {
        "default-src 'none'",
        f"script-src 'nonce-{nonce}'",
        f"style-src 'nonce-{nonce}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    }
    assert not re.search(r"https?://|@import|url\(| on[a-z]+=| style=", first.text.replace("onerror=", ""))
    assert first.headers["Cache-Control"] == "no-store"
    assert first.headers["Referrer-Policy"] == "no-referrer"
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    assert first.headers["Server"] == "undertow"


def test_texts_are_behind_a_warning(run: Path) -> None:
    with visited(run) as visitor:
        html = visitor.page()
    assert re.search(
        r'<section id="warning".*?<button type="button" id="open">.*?</section>\s*<main id="work" hidden>', html, re.S
    )


def test_every_category_has_a_button_and_a_key(run: Path) -> None:
    with visited(run) as visitor:
        html = visitor.page()
        assert visitor.data()["categories"] == list(CATEGORIES)
    for place, (name, meaning) in enumerate(CATEGORIES.items(), 1):
        assert f"<kbd>{place}</kbd><span>{name}<small>{meaning}</small></span>" in html


# Judging.


def test_a_judgement_is_a_line_at_once(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        reply = visitor.judge(item, "cannot say", "Ein «Wort» 日本\nand a line")
        assert reply.status == 200
        assert json.loads(reply.text) == {"judged": 1}
        (line,) = lines(run)
    assert line | {"time": ""} == {
        "item": item, "category": "cannot say", "note": "Ein «Wort» 日本\nand a line", "who": "ann", "time": "",
    }  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["time"])


def test_it_is_on_the_disk_before_it_is_answered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bytes]] = []

    def fsync(number: int) -> None:
        assert stat.S_ISREG(os.fstat(number).st_mode)
        synced.append((number, (run / ANNOTATIONS).read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    book = Book(run, "ann")
    book.judge(next(iter(book.rephrasings)), "correct", "")
    ((_, content),) = synced
    assert content.endswith(b"\n")
    assert json.loads(content)["category"] == "correct"


def test_a_reload_knows_what_was_judged_and_so_does_a_new_server(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        assert visitor.data()["judged"] == {}
        visitor.judge(item, "correct", "n")
        assert visitor.data()["judged"] == {item: {"category": "correct", "note": "n"}}
    with visited(run) as visitor:
        assert visitor.data()["judged"] == {item: {"category": "correct", "note": "n"}}
        assert visitor.first() == item


def test_the_last_judgement_counts_and_the_others_stay_in_the_file(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        for category in ("correct", "cannot say", "rationale paraphrase"):
            assert visitor.judge(item, category).status == 200
        assert visitor.data()["judged"][item]["category"] == "rationale paraphrase"
    assert len(lines(run)) == 3
    table = read_annotations(run)
    assert table[["item", "category", "who"]].values.tolist() == [[item, "rationale paraphrase", "ann"]]


def test_two_people_do_not_see_or_replace_each_other(run: Path) -> None:
    with visited(run, "ann") as ann, visited(run, "bea") as bea:
        item = ann.first()
        ann.judge(item, "correct")
        bea.judge(item, "cannot say")
        assert ann.data()["judged"][item]["category"] == "correct"
        assert bea.data()["judged"][item]["category"] == "cannot say"
    assert read_annotations(run).set_index("who")["category"].to_dict() == {"ann": "correct", "bea": "cannot say"}
    with visited(run, "cid") as cid:
        assert cid.data()["judged"] == {}


def test_many_at_once_are_each_a_whole_line(run: Path) -> None:
    with visited(run) as visitor:
        items = [one["id"] for one in visitor.data()["rephrasings"]]
        replies: list[int] = []
        threads = [
            threading.Thread(target=lambda item=item: replies.append(visitor.judge(item, note="x" * 1000).status))
            for item in items * 6
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert replies == [200] * 24
    assert len(lines(run)) == 24


def test_a_file_whose_last_line_has_lost_its_end_gets_it_back(run: Path) -> None:
    book = Book(run, "ann")
    first, second, *_ = book.rephrasings
    book.judge(first, "correct", "")
    path = run / ANNOTATIONS
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    book.judge(second, "cannot say", "")
    assert [line["item"] for line in lines(run)] == [first, second]


# What is refused.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"category": "fine"}, "no such category"),
        ({"category": 3}, "are texts"),
        ({"note": None}, "are texts"),
        ({"note": "x" * (MOST_NOTE_SIGNS + 1)}, "2,000 characters"),
        ({"who": "someone else"}, "nothing else"),
        ({"item": ["a"]}, "are texts"),
    ],
)
def test_a_judgement_that_is_none_is_refused(run: Path, change: dict[str, Any], said: str) -> None:
    with visited(run) as visitor:
        body = {"item": visitor.first(), "category": "correct", "note": ""} | change
        reply = visitor.ask("/judgements", json.dumps(body).encode())
    assert reply.status == 400
    assert said in reply.text
    assert not (run / ANNOTATIONS).exists()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b'"x"', b"{}", b"\xff\xfe", b"[" * 16_000, b"NaN", b"1" * 9_000],
    ids=lambda body: body[:8],
)
def test_what_is_no_json_object_is_refused(run: Path, body: bytes) -> None:
    with visited(run) as visitor:
        reply = visitor.ask("/judgements", body)
        assert reply.status == 400
        assert re.fullmatch(r"[A-Z][^.\n]*\.", reply.text)
        assert visitor.judge(visitor.first()).status == 200, "and the server goes on"


@pytest.mark.parametrize("size", [MOST_BODY_BYTES + 1, 4_000_000])
def test_a_body_that_is_too_large_is_refused(run: Path, size: int) -> None:
    with visited(run) as visitor:
        try:
            reply = visitor.ask("/judgements", b" " * size)
        except OSError:
            assert size > 1 << 20, "only what is far too large may cost the connection"
        else:
            assert reply.status == 400
            assert "16,384 bytes" in reply.text
        assert visitor.judge(visitor.first()).status == 200
    assert len(lines(run)) == 1


@pytest.mark.parametrize("length", [None, "-1", "ten", "1e3", "９", "0" * 30 + "99999999", "9" * 5_000])
def test_a_body_of_no_said_length_is_refused(run: Path, length: str | None) -> None:
    with visited(run) as visitor:
        wire = http.client.HTTPConnection("127.0.0.1", visitor.server.server_port, timeout=20)
        wire.putrequest("POST", "/judgements")
        wire.putheader(TOKEN_HEADER, visitor.server.token)
        wire.putheader("Content-Type", "application/json")
        if length is not None:
            wire.putheader("Content-Length", length.encode())
        wire.endheaders()
        assert wire.sock is not None
        wire.sock.shutdown(socket.SHUT_WR)
        reply = wire.getresponse()
        assert reply.status == 400
        reply.read()
        wire.close()
    assert not (run / ANNOTATIONS).exists()


def test_a_note_of_the_longest_kind_fits(run: Path) -> None:
    with visited(run) as visitor:
        reply = visitor.judge(visitor.first(), note="\x01" * MOST_NOTE_SIGNS)
    assert reply.status == 200, reply.text
    assert lines(run)[0]["note"] == "\x01" * MOST_NOTE_SIGNS


def test_half_a_sign_in_a_note_is_kept_as_a_question_mark(run: Path) -> None:
    with visited(run) as visitor:
        assert visitor.judge(visitor.first(), note="a\ud800b").status == 200
    assert lines(run)[0]["note"] == "a?b"


def test_a_rephrasing_that_is_not_there_is_not_found(run: Path) -> None:
    with visited(run) as visitor:
        for reply in (
            visitor.judge("0" * 16),
            visitor.ask("/sources?item=i0"),
            visitor.ask("/sources"),
            visitor.ask("/other"),
        ):
            assert reply.status == 404
            assert re.fullmatch(r"[A-Z][^.\n]*\.", reply.text)
    assert not (run / ANNOTATIONS).exists()


def test_only_who_has_the_token_gets_in(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        for token in ("", "x", visitor.server.token[:-1], visitor.server.token + "x", "é"):
            named: Any = {TOKEN_HEADER: token}
            assert visitor.judge(item, **named).status == 403
            assert visitor.ask(f"/sources?item={item}", **named).status == 403
            reply = visitor.ask(f"/?token={quote(token)}", **named)
            assert reply.status == 403
            assert "one span" not in reply.text
            assert visitor.server.token not in reply.text
    assert not (run / ANNOTATIONS).exists()


def test_every_server_has_its_own_token(run: Path) -> None:
    with visited(run) as one, visited(run) as other:
        assert one.server.token != other.server.token
        assert len(one.server.token) >= 32


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
def test_a_page_elsewhere_that_was_pointed_here_gets_nothing(run: Path, host: str) -> None:
    with visited(run) as visitor:
        named = host.format(port=visitor.server.server_port)
        for reply in (visitor.ask(visitor.address, Host=named), visitor.judge(visitor.first(), Host=named)):
            assert reply.status == 403
            assert "one span" not in reply.text
    assert not (run / ANNOTATIONS).exists()


def test_localhost_is_this_machine_too(run: Path) -> None:
    with visited(run) as visitor:
        port = visitor.server.server_port
        assert visitor.ask(visitor.address, Host=f"localhost:{port}").status == 200
        item = visitor.first()
        assert visitor.judge(item, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_page_cannot_judge(run: Path, origin: str) -> None:
    with visited(run) as visitor:
        assert visitor.judge(visitor.first(), Origin=origin).status == 403
    assert not (run / ANNOTATIONS).exists()


def test_a_form_cannot_judge(run: Path) -> None:
    with visited(run) as visitor:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert visitor.judge(visitor.first(), Content_Type=kind).status == 400
    assert not (run / ANNOTATIONS).exists()


def test_it_listens_to_this_machine_alone(run: Path) -> None:
    with AnnotationServer(run, "ann", 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert urlsplit(server.address).hostname == "127.0.0.1"


@pytest.mark.parametrize(
    "wire",
    [
        b"GET http://[ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: {host}\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\r\n",
    ],
)
def test_other_requests_are_refused_in_words_and_repeat_nothing(
    run: Path, wire: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with visited(run) as visitor:
        port = visitor.server.server_port
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(wire.replace(b"{host}", f"127.0.0.1:{port}".encode()))
            connection.shutdown(socket.SHUT_WR)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        assert visitor.judge(visitor.first()).status == 200
    assert b"<" not in reply
    assert b"nonsense" not in reply
    assert re.search(rb"[A-Z][^.]*\.$", reply)
    assert capfd.readouterr().err == ""


def test_a_browser_that_goes_away_is_no_error(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with visited(run) as visitor:
        for _ in range(3):
            connection = socket.create_connection(("127.0.0.1", visitor.server.server_port), timeout=20)
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
            )  # reset on close
            connection.sendall(b"GET / HTTP/1.1\r\n")
            connection.close()
        assert visitor.judge(visitor.first()).status == 200
    assert capfd.readouterr().err == ""


def test_a_judgement_that_cannot_be_written_is_not_said_to_be(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        (run / ANNOTATIONS).mkdir()
        reply = visitor.judge(item)
        assert reply.status == 500
        assert "could not be written" in reply.text
        assert str(run) not in reply.text
        assert visitor.data()["judged"] == {}
        (run / ANNOTATIONS).rmdir()
        assert visitor.judge(item).status == 200


# Starting and ending.


def one_sentence(ask: Callable[[], object], *words: str) -> None:
    with pytest.raises(UndertowError) as caught:
        ask()
    said = str(caught.value)
    assert "\n" not in said
    for word in words:
        assert word in said, said


def unused(_: str) -> None:
    pytest.fail("nothing was to be opened")


def test_a_folder_that_holds_no_rephrasings_is_refused(tmp_path: Path) -> None:
    one_sentence(lambda: serve(tmp_path / "none", "ann", 0, unused), "no such run folder")
    one_sentence(lambda: read_annotations(tmp_path / "none"), "no such run folder")
    one_sentence(lambda: summary(tmp_path / "none"), "no such run folder")
    other = write_run(tmp_path / "other", probe="spurious-correlation")
    one_sentence(lambda: serve(other, "ann", 0, unused), "spurious-correlation", PROBE)
    one_sentence(lambda: summary(other), "spurious-correlation")
    unscored = write_run(tmp_path / "unscored", rows=[("m", "c", "s", "", "", "why")])
    one_sentence(lambda: serve(unscored, "ann", 0, unused), "unscored")
    damaged = write_table(tmp_path / "damaged", pd.DataFrame({"item": ["i"], "model": ["m"]}))
    one_sentence(lambda: serve(damaged, "ann", 0, unused), "damaged", "dimension")


@pytest.mark.parametrize("who", ["", "  ", "a\nb", "x" * 81, "\ud800"])
def test_a_name_that_is_none_is_refused(run: Path, who: str) -> None:
    one_sentence(lambda: serve(run, who, 0, unused), "--who")


def test_a_port_that_cannot_be_had_is_refused(run: Path) -> None:
    with AnnotationServer(run, "ann", 0) as server:
        one_sentence(lambda: serve(run, "ann", server.server_port, unused), "--port")
    one_sentence(lambda: serve(run, "ann", 70_000, unused), "--port")


GOOD = {"item": "a", "category": "correct", "note": "", "who": "ann", "time": "t"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        json.dumps(GOOD | {"category": "fine"}),
        json.dumps(GOOD | {"note": 3}),
        json.dumps({"item": "a"}),
        "[" * 9_000,
        "\x80",
    ],
    ids=lambda line: line[:12],
)
def test_a_damaged_line_is_said_with_its_number(run: Path, line: str) -> None:
    content = f"{json.dumps(GOOD)}\n{line}\n".encode("latin-1")
    (run / ANNOTATIONS).write_bytes(content)
    for ask in (lambda: read_annotations(run), lambda: summary(run), lambda: serve(run, "ann", 0, unused)):
        one_sentence(ask, ANNOTATIONS, "line 2", "mend")
    assert (run / ANNOTATIONS).read_bytes() == content


def test_a_run_without_judgements_has_an_empty_table(run: Path) -> None:
    table = read_annotations(run)
    assert list(table.columns) == ["item", "category", "note", "who", "time"]
    assert table.empty
    assert summary(run) == []


def test_a_summary_of_nothing_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotate(run, summary=True)
    assert capsys.readouterr().out == f"{run}: nothing has been judged yet; leave --summary out to begin\n"
    annotate(run, summary=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == []


def test_judgements_outlive_the_run_being_written_again(run: Path) -> None:
    book = Book(run, "ann")
    item = next(iter(book.rephrasings))
    book.judge(item, "correct", "")
    write_run(run)
    assert Book(run, "ann").judged == {item: {"category": "correct", "note": ""}}


def test_an_interrupt_ends_it_and_what_was_judged_is_there(run: Path) -> None:
    code = "\n".join(
        [
            "from pathlib import Path",
            "from undertow.web.annotation import serve",
            f"serve(Path({str(run)!r}), 'ann', 0, lambda url: print(url, flush=True))",
        ]
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with request.build_opener(request.ProxyHandler({})).open(url, timeout=60) as reply:
            assert b"Rephrasings to judge" in reply.read()
        item = next(iter(Book(run, "ann").rephrasings))
        body = json.dumps({"item": item, "category": "correct", "note": ""}).encode()
        token = url.partition("token=")[2]
        asked = request.Request(
            f"{url.partition('?')[0]}judgements", body, {TOKEN_HEADER: token, "Content-Type": "application/json"}
        )
        with request.build_opener(request.ProxyHandler({})).open(asked, timeout=60) as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert [line["item"] for line in lines(run)] == [item]


# The summary.


def test_the_summary_counts_a_models_distinct_rephrasings_by_person(run: Path) -> None:
    book, other = Book(run, "ann"), Book(run, "bea")
    by_answer = {one.answer: one.id for one in book.rephrasings.values()}
    book.judge(by_answer["first answer"], "correct", "")
    book.judge(by_answer["second answer\nof two lines"], "rationale paraphrase", "")
    book.judge(by_answer[EVIL], "correct", "")
    other.judge(by_answer["first answer"], "cannot say", "")
    rows = summary(run)
    assert len(rows) == 4 * len(CATEGORIES)
    counted = {(row.model, row.who, row.category): (row.count, row.n, row.n_all) for row in rows if row.count}
    assert counted == {
        ("secret-model-a", "ann", "correct"): (1, 2, 2),
        ("secret-model-a", "ann", "rationale paraphrase"): (1, 2, 2),
        ("secret-model-a", "bea", "cannot say"): (1, 1, 2),
        ("secret-model-b", "ann", "correct"): (2, 2, 3),
        ("secret-model-b", "bea", "cannot say"): (1, 1, 3),
    }
    for row in rows:
        assert row.percent == pytest.approx(100 * row.count / row.n)


def test_the_interval_is_wilsons(tmp_path: Path) -> None:
    rows = [("m", "statement", f"span {n}", "answer", "", "") for n in range(10)]
    folder = write_run(tmp_path / "run", rows=rows)
    book = Book(folder, "ann")
    for place, item in enumerate(book.rephrasings):
        book.judge(item, "correct" if place < 3 else "cannot say", "")
    (correct,) = [row for row in summary(folder) if row.category == "correct"]
    # By hand, z = 1.959964: centre (0.3 + z²/20) / (1 + z²/10), half z sqrt(0.021 + z²/400) / (1 + z²/10).
    assert [correct.low, correct.high] == pytest.approx([10.7789, 60.3222], abs=1e-3)


def test_judgements_of_what_the_run_no_longer_has_are_left_out(run: Path) -> None:
    (run / ANNOTATIONS).write_text(json.dumps(GOOD) + "\n", encoding="utf-8")
    assert summary(run) == []
    assert Book(run, "ann").judged == {}
    assert len(read_annotations(run)) == 1
