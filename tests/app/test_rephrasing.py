from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.file_refusal import assert_refused, written
from helpers.served_app import Visitor, in_a_thread, json_lines
from undertow.app.access_control import MAX_BODY_BYTES
from undertow.app.annotators.rephrasing import ANSWERS, MAX_TEXT_CHARS, TABLE, RephrasingStore
from undertow.app.server import rephrasing_server
from undertow.data.documents.document_sources import load_documents

EVIL = "</script><script>alert(1)</script>{{7*7}}"
DOCUMENTS = f"""id,text,biased,dimension,span,rephrasing
a,They said that nurses are all women. Then they left.,yes,gender,nurses are all women,
b,=old people cannot learn {EVIL} at all,yes,age,=old people cannot learn {EVIL},
c,The weather is fine.,no,,,
d,Done before by somebody.,yes,age,Done before,Known
e,He wrote: nurses are   all women!,yes,gender,nurses are   all women,
"""


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return Path(written(tmp_path, DOCUMENTS, "documents.csv"))


class Person(Visitor):
    def next(self, *skipped: str) -> dict[str, Any]:
        item: dict[str, Any] = json.loads(self.ask(f"/next?skipped={','.join(skipped)}").text)["item"]
        return item

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = json.loads(self.ask("/next").text)["counts"]
        return counts

    def send(self, item: dict[str, Any], action: str, text: str = "") -> tuple[int, str]:
        said = {"item": item["id"], "n_seen": item["n_seen"], "action": action, "text": text}
        reply = self.ask("/answers", said)
        return reply.status, reply.text


@contextmanager
def visited(documents: Path, annotator: str) -> Iterator[Person]:
    store = RephrasingStore(load_documents(str(documents)), documents.parent / "answers", annotator)
    with in_a_thread(rephrasing_server(store, 0)) as server:
        yield Person(server.port, server.access.token, "/rephrase")


def test_a_span_is_written_refused_refined_accepted_and_becomes_a_row_that_rephrasings_takes(
    documents: Path, cli: Callable[..., Any]
) -> None:
    with visited(documents, "ann") as ann, visited(documents, "bob") as bob:
        assert ann.counts() == {"write": 2, "verify": 0, "refine": 0, "accepted": 0}
        items = [ann.next(), ann.next(ann.next()["id"])]
        nurses, old = sorted(items, key=lambda one: str(one["dimension"]), reverse=True)
        assert nurses["passage"] == "They said that nurses are all women. Then they left."
        assert (nurses["step"], nurses["span"]) == ("write", "nurses are all women")
        assert ann.send(nurses, "write", " nurses are women ")[0] == 200
        given = bob.next()
        assert given["step"] == "verify"
        assert given["history"] == [{"action": "write", "text": "nurses are women"}]
        assert "ann" not in json.dumps(given)
        assert bob.send(given, "refuse", "still all of them")[0] == 200
        refused = ann.next()
        assert (refused["step"], refused["n_seen"]) == ("refine", 2)
        assert refused["history"][-1] == {"action": "refuse", "text": "still all of them"}
        assert ann.send(refused, "write", "nurses are people")[0] == 200
        assert bob.send(bob.next(), "accept")[0] == 200
        assert ann.send(old, "write", f"=many people learn {EVIL}")[0] == 200
        assert bob.send(bob.next(), "accept")[0] == 200
        assert ann.counts() == {"write": 0, "verify": 0, "refine": 0, "accepted": 2}
        assert ann.next() is None
    folder = documents.parent / "answers"
    done = cli("rephrase", str(documents), "--out", str(folder), "--annotator", "carl", "--summary")
    assert "2 rephrasings accepted; 0 spans to write" in done.stdout
    assert "\n'=old" in (folder / TABLE).read_text(encoding="utf-8")
    rephrased = load_documents(str(documents), str(folder / TABLE)).evaluation
    assert [one.rephrasing for one in rephrased] == [
        "nurses are people", f"=many people learn {EVIL}", "", "Known", "nurses are people",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["ann", " ANN ", "\N{FULLWIDTH LATIN SMALL LETTER A}nn"])
def test_nobody_verifies_their_own_rephrasing_in_any_spelling_of_their_name(name: str, documents: Path) -> None:
    with visited(documents, "ann") as ann:
        item = ann.next()
        assert ann.send(item, "write", "better")[0] == 200
    with visited(documents, name) as again:
        assert again.next()["id"] != item["id"]
        for action in ("accept", "refuse"):
            status, said = again.send(item | {"n_seen": 1}, action, "why")
            assert (status, "somebody else verifies" in said) == (409, True)
    assert [line["action"] for line in json_lines(documents.parent / "answers" / ANSWERS)] == ["write"]


def test_an_answer_to_what_has_changed_is_refused_and_changes_nothing(documents: Path) -> None:
    with visited(documents, "ann") as ann, visited(documents, "bob") as bob:
        item = ann.next()
        people = [(ann, f"a{n}") for n in range(10)] + [(bob, f"b{n}") for n in range(10)]
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda one: one[0].send(item, "write", one[1]), people))
        assert sorted(status for status, _ in answers) == [200, *[409] * 19]
        (written,) = json_lines(documents.parent / "answers" / ANSWERS)
        assert answers[[text for _, text in people].index(written["text"])][0] == 200
        for other in ({"n_seen": 0}, {"n_seen": 1}, {"n_seen": 7}):
            assert ann.send(item | other, "write", "later")[0] == 409
        assert ann.send(item | {"id": "none"}, "write", "x")[0] == 409
    assert len(json_lines(documents.parent / "answers" / ANSWERS)) == 1


def test_a_process_that_ends_while_it_writes_loses_that_answer_alone(documents: Path) -> None:
    with visited(documents, "ann") as ann:
        first = ann.next()
        assert ann.send(first, "write", "better")[0] == 200
    path = documents.parent / "answers" / ANSWERS
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with visited(documents, "bob") as bob:
        assert bob.next()["history"][0]["text"] == "better"
        assert bob.send(bob.next(), "accept")[0] == 200
    assert [line["action"] for line in json_lines(documents.parent / "answers" / ANSWERS)] == ["write", "accept"]
    path.write_bytes(whole.rstrip(b"\n"))  # an editor removed the end
    with visited(documents, "bob") as bob:
        assert bob.send(bob.next(), "accept")[0] == 200
    assert [line["action"] for line in json_lines(documents.parent / "answers" / ANSWERS)] == ["write", "accept"]
    accepted = whole.replace(b'"write"', b'"accept"')
    for damaged, number in ((whole[:40] + b"\n" + whole, 1), (accepted, 1), (whole + whole, 2)):
        path.write_bytes(damaged)
        assert_refused(
            (f"{ANSWERS}, line {number}: ",), RephrasingStore, load_documents(str(documents)), path.parent, "ann"
        )


def test_empty_unchanged_and_endless_answers_and_refusals_without_a_reason_are_refused(documents: Path) -> None:
    with visited(documents, "ann") as ann, visited(documents, "bob") as bob:
        item = ann.next()
        for text, said in (("  ", "Write a rephrasing"), (f" {item['span']} ", "is the biased phrase itself")):
            status, answer = ann.send(item, "write", text)
            assert (status, said in answer) == (400, True)
        assert ann.send(item, "write", "x" * (MAX_TEXT_CHARS + 1))[0] == 422
        assert ann.send(item, "delete", "x")[0] == 422
        assert ann.send(item, "accept")[0] == 409
        assert ann.send(item, "write", "x" * MAX_TEXT_CHARS)[0] == 200
        assert bob.send(bob.next(), "refuse", "  ")[0] == 400
        assert bob.send(bob.next(), "refuse", "still says it")[0] == 200
        status, answer = ann.send(ann.next(), "write", "x" * MAX_TEXT_CHARS)
        assert (status, "rephrasing that was refused" in answer) == (400, True)
    assert len(json_lines(documents.parent / "answers" / ANSWERS)) == 2


def test_a_full_disk_leaves_the_file_as_it_was(documents: Path) -> None:
    with visited(documents, "ann") as ann:
        first = ann.next()
        assert ann.send(first, "write", "better")[0] == 200
        path = documents.parent / "answers" / ANSWERS
        before, (soft, hard) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
        try:
            status, answer = ann.send(ann.next(first["id"]), "write", "another")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (status, "could not be written" in answer) == (500, True)
        assert path.read_bytes() == before


def test_only_the_page_itself_gets_in_and_texts_reach_it_as_data(documents: Path) -> None:
    with visited(documents, "ann") as ann:
        page = ann.ask("")
        assert page.status == 200
        assert "alert(1)" not in page.text
        assert "Assume nothing about who speaks" in page.text
        for path, body in (("", None), ("/next", None), ("/answers", b"{}")):
            assert ann.ask(path, body, Cookie="").status == 403
            assert ann.ask(path, body, Host="evil.example").status == 400
            assert ann.ask(path, body, Origin="http://evil.example").status == 403
        assert ann.ask("/answers", b" " * (MAX_BODY_BYTES + 1)).status == 413
        assert ann.ask("/none").status == 404


def test_documents_without_open_spans_and_invalid_names_are_refused(documents: Path) -> None:
    own, path, none = load_documents(str(documents)), documents.parent / "answers" / ANSWERS, documents.parent / "none"
    with visited(documents, "ann") as ann:
        assert ann.send(ann.next(), "write", "better")[0] == 200
    path.write_text(
        path.read_text().replace(json_lines(documents.parent / "answers" / ANSWERS)[0]["item"], "of another set")
    )
    for given, folder, name, said in (
        (load_documents("undertow-statements"), none, "ann", "no biased span without a rephrasing"),
        (own, path.parent, "ann", "answers to other documents"),
        (own, none, "a\nb", "--annotator"),
    ):
        assert_refused((said,), RephrasingStore, given, folder, name)
    assert not none.exists()
