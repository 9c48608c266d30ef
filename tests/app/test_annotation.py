from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from helpers.file_refusal import assert_refused
from helpers.served_app import Reply, Visitor, in_a_thread, json_lines
from undertow import audit, gate, load_run, score
from undertow import compare as compare_runs
from undertow.app.access_control import MAX_BODY_BYTES
from undertow.app.annotators.annotation import AnnotationStore, summary
from undertow.app.server import annotation_server
from undertow.cli.app import annotate
from undertow.metrics.text.judgements import CATEGORIES, JUDGEMENT_MEASURES, judgement_results
from undertow.metrics.text.judgements import summary as judgement_summary
from undertow.runs import pipeline
from undertow.runs.folder.annotations import ANNOTATIONS, AUDIT, MAX_NOTE_CHARS, read_annotations, read_answers
from undertow.runs.folder.storage import Record, write_record
from undertow.runs.score import render_report

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


def write_run(folder: Path, audit: str = AUDIT, rows: Sequence[Sequence[str]] = OBSERVATIONS, seed: int = 7) -> Path:
    table = pd.DataFrame(rows, columns=["model", "description_class", "passage", "answer", "gold", "missing_reason"])
    table.insert(0, "item", [f"i{place}" for place in range(len(table))])
    return write_table(folder, table.assign(dimension="gender", shots=5, cluster=table["passage"]), audit, seed)


def write_table(folder: Path, table: pd.DataFrame, audit: str = AUDIT, seed: int = 7) -> Path:
    manifest: dict[str, Any] = {"schema_version": 1, "audit": audit, "model": "m", "design": {}, "run_key": "k"}
    manifest |= {"request_key": "a", "seed": seed, "protocol": "exact", "command": "c", "python": "p", "created": "now"}
    manifest |= {"versions": {}, "machine": {}}
    write_record(Record(manifest, table, []), folder, lambda _: None)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


class Annotator(Visitor):
    def judge(self, item: str, category: str = "correct", note: str = "", **headers: str) -> Reply:
        return self.ask("/judgements", {"item": item, "category": category, "note": note}, **headers)

    def data(self) -> dict[str, Any]:
        """What the page's script is given."""
        page = self.ask("").text
        (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        value: dict[str, Any] = json.loads(found)
        return value

    def first(self) -> str:
        return str(self.data()["rephrasings"][0]["id"])


@contextmanager
def visited(folder: Path, annotator: str = "ann") -> Iterator[Annotator]:
    with in_a_thread(annotation_server(folder, annotator, 0)) as server:
        yield Annotator(server.port, server.access.token, "/annotate")


def test_page_shows_each_pair_of_texts_once_and_does_not_say_who_wrote_it_until_it_is_asked(run: Path) -> None:
    with visited(run) as visitor:
        assert not re.search("secret-model|statement", visitor.ask("").text)
        shown = visitor.data()["rephrasings"]
        (first,) = [one for one in shown if one["answer"] == "first answer"]
        sources = visitor.ask(f"/sources?item={first['id']}")
    assert sorted((one["span"], one["answer"]) for one in shown) == [
        ("one span", "first answer"),
        ("one span", "second answer\nof two lines"),
        ("other span", ""),
        ("other span", EVIL),
    ]
    assert first["references"] == ["one reference", "another reference"]
    assert first["dimensions"] == ["gender"]
    asked = ("secret-model-a: statement", "secret-model-a: question", "secret-model-b: null")
    assert json.loads(sources.text) == [f"{one}, 5 shots" for one in asked]


def test_the_order_is_shuffled_by_the_seed_and_the_same_on_every_visit(tmp_path: Path) -> None:
    rows = [("m", "statement", f"span {n:02}", "answer", "", "") for n in range(40)]
    stores = [
        AnnotationStore(write_run(tmp_path / f"{n}", rows=rows, seed=seed), "ann") for n, seed in enumerate((1, 1, 2))
    ]
    orders = [[one.span for one in store.rephrasings.values()] for store in stores]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[0]


def test_texts_reach_the_page_as_data(run: Path) -> None:
    with visited(run, annotator="<b>ann</b>") as visitor:
        html = visitor.ask("").text
    assert html.count("<script") == html.count("</script>") == 2
    assert not [one for one in (EVIL, "<img", "<b>ann") if one in html]
    assert "49" not in re.sub(r'token[^,]*,|nonce="[^"]*"|"id": "[^"]*"', "", html)
    assert "&lt;b&gt;ann&lt;/b&gt;" in html


def test_the_page_runs_its_own_script_alone_and_fetches_nothing_from_elsewhere(run: Path) -> None:
    with visited(run) as visitor:
        first, second = (visitor.ask("") for _ in range(2))
    html, policy = first.text, first.headers["Content-Security-Policy"]
    script = html.rpartition("<script nonce=")[2]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)
    (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
    assert html.count(f'nonce="{nonce}"') == 2, "the style and the script"
    assert nonce not in second.text
    own = {f"script-src 'nonce-{nonce}'", f"style-src 'nonce-{nonce}'", "connect-src 'self'", "img-src data:"}
    nothing = {f"{kind} 'none'" for kind in ("default-src", "base-uri", "form-action", "frame-ancestors")}
    assert set(policy.split("; ")) == own | nothing
    assert not re.search(r"https?://|@import|url\(| on[a-z]+=| style=", html.replace("onerror=", ""))
    said = {
        name: first.headers[name] for name in ("Cache-Control", "Referrer-Policy", "X-Content-Type-Options", "Server")
    }
    assert list(said.values()) == ["no-store", "no-referrer", "nosniff", None]


def test_judgement_is_a_line_at_once_with_every_sign_of_its_note(run: Path) -> None:
    notes = ("Ein «Wort» 日本\nand a line", "\x01" * MAX_NOTE_CHARS)
    with visited(run) as visitor:
        item = visitor.first()
        for count, note in enumerate(notes, 1):
            reply = visitor.judge(item, "cannot say", note)
            assert (reply.status, json.loads(reply.text)) == (200, {"judged": 1})
            line = json_lines(run / ANNOTATIONS)[-1]
            assert len(json_lines(run / ANNOTATIONS)) == count
            assert line | {"time": ""} == {
                "item": item, "category": "cannot say", "note": note, "annotator": "ann", "time": "",
            }  # fmt: skip
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", line["time"])


def test_it_is_on_the_disk_before_it_is_answered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bytes]] = []

    def fsync(number: int) -> None:
        assert stat.S_ISREG(os.fstat(number).st_mode)
        synced.append((number, (run / ANNOTATIONS).read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    book = AnnotationStore(run, "ann")
    first, second, *_ = book.rephrasings
    book.judge(first, "correct", "")
    ((_, content),) = synced
    assert content.endswith(b"\n")
    assert json.loads(content)["category"] == "correct"
    (run / ANNOTATIONS).write_bytes(content.rstrip(b"\n"))  # a file whose last line has lost its end gets it back
    book.judge(second, "cannot say", "")
    assert [line["item"] for line in json_lines(run / ANNOTATIONS)] == [first, second]


def test_last_judgement_of_each_person_counts_and_outlives_the_server_and_the_run(run: Path) -> None:
    last = {"category": "rationale paraphrase", "note": "n"}
    with visited(run, "ann") as ann, visited(run, "bea") as bea:
        item = ann.first()
        assert ann.data()["judged"] == {}
        for category in ("correct", "cannot say", last["category"]):
            assert ann.judge(item, category, "n").status == 200
        bea.judge(item, "cannot say")
        assert ann.data()["judged"] == {item: last}
        assert bea.data()["judged"][item]["category"] == "cannot say"
    assert [line["annotator"] for line in json_lines(run / ANNOTATIONS)] == ["ann", "ann", "ann", "bea"]
    categories = read_annotations(run).set_index("annotator")["category"]
    assert categories.to_dict() == {"ann": last["category"], "bea": "cannot say"}
    write_run(run)
    for annotator, judged in (("ann", {item: last}), ("cid", {})):
        with visited(run, annotator) as visitor:
            assert (visitor.data()["judged"], visitor.first()) == (judged, item)


def test_many_at_once_are_each_a_whole_line(run: Path) -> None:
    with visited(run) as visitor:
        items = [one["id"] for one in visitor.data()["rephrasings"]]
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda item: visitor.judge(item, note="x" * 1000).status, items * 6))
    assert replies == [200] * 24
    assert len(json_lines(run / ANNOTATIONS)) == 24


CHANGES: list[dict[str, Any]] = [
    {"category": 3},
    {"note": "x" * (MAX_NOTE_CHARS + 1)},
    {"annotator": "else"},
    {"item": ["a"]},
]
BODIES = [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 16_000, b"NaN", b"1" * 9_000, b" " * (MAX_BODY_BYTES + 1)]


def test_what_is_no_annotation_is_refused_and_the_server_goes_on(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        good = {"item": item, "category": "correct", "note": ""}
        for body in (*(json.dumps(good | change).encode() for change in CHANGES), *BODIES):
            assert visitor.ask("/judgements", body).status in (400, 413, 422), body[:40]
        for reply in (visitor.judge("0" * 16), *map(visitor.ask, ("/sources?item=i0", "/sources", "/other"))):
            assert reply.status == 404
        assert not (run / ANNOTATIONS).exists()
        with suppress(OSError):  # what is far too large may cost the connection
            assert visitor.ask("/judgements", b" " * 4_000_000).status == 413
        assert visitor.judge(item).status == 200
    assert len(json_lines(run / ANNOTATIONS)) == 1


def test_its_server_has_the_access_control_of_the_app(run: Path) -> None:
    with visited(run) as visitor, visited(run) as other:
        port, item, token = visitor.port, visitor.first(), visitor.cookie.partition("=")[2]
        for name, value, status in (
            ("Cookie", "", 403), ("Cookie", other.cookie, 403), ("Host", "evil.example", 400), ("Origin", "https://evil.example", 403),
        ):  # fmt: skip
            for path, body in (("/judgements", b"{}"), (f"/sources?item={item}", None), ("", None)):
                reply = visitor.ask(path, body, **{name: value})
                assert (reply.status, "one span" in reply.text) == (status, False), (name, value, path)
        assert visitor.judge(item, Content_Type="text/plain").status == 415
        assert token not in visitor.ask("").text
        assert not (run / ANNOTATIONS).exists()
        assert visitor.judge(item, Host=f"localhost:{port}", Origin=f"http://localhost:{port}").status == 200


def test_a_judgement_that_cannot_be_written_is_not_said_to_be(run: Path) -> None:
    with visited(run) as visitor:
        item = visitor.first()
        (run / ANNOTATIONS).mkdir()
        reply = visitor.judge(item)
        assert (reply.status, str(run) in reply.text) == (500, False)
        assert visitor.data()["judged"] == {}
        (run / ANNOTATIONS).rmdir()
        assert visitor.judge(item).status == 200


def test_run_name_or_port_that_cannot_be_served_is_refused(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", audit="spurious-correlation")
    damaged = write_table(tmp_path / "damaged", pd.DataFrame({"item": ["i"], "model": ["m"]}))
    unscored = write_run(tmp_path / "missing_reason", rows=[("m", "c", "s", "", "", "why")])
    none = tmp_path / "none"
    for folder, named in ((none, "none"), (other, AUDIT), (damaged, "dimension"), (unscored, "missing_reason")):
        assert_refused((named,), annotation_server, folder, "ann", 0)
    for read in (read_annotations, summary):
        assert_refused(("none",), read, none)
    assert_refused(("spurious-correlation",), summary, other)
    for annotator in ("", "  ", "all", "a\nb", "x" * 81, "\ud800"):
        assert_refused(("--annotator",), annotation_server, run, annotator, 0)
    with visited(run) as visitor:
        for port in (visitor.port, 70_000):
            assert_refused((f"port {port} of 127.0.0.1 cannot be used", "--port"), annotation_server, run, "ann", port)


GOOD = {"item": "a", "category": "correct", "note": "", "annotator": "ann", "time": "t"}

DAMAGED = ["{", "[]", json.dumps(GOOD | {"category": "fine"}), '{"item": "a"}', "[" * 9_000, "\x80"]


@pytest.mark.parametrize("line", DAMAGED, ids=lambda line: line[:12])
def test_damaged_line_is_refused_by_its_number(run: Path, line: str) -> None:
    content = f"{json.dumps(GOOD)}\n{line}\n".encode("latin-1")
    (run / ANNOTATIONS).write_bytes(content)
    for ask in (read_annotations, summary, partial(annotation_server, annotator="ann", port=0)):
        assert_refused((ANNOTATIONS, "line 2"), ask, run)
    assert (run / ANNOTATIONS).read_bytes() == content


def test_run_without_judgements_has_an_empty_table_and_summary(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = read_annotations(run)
    assert (list(table.columns), len(table)) == (["item", "category", "note", "annotator", "time"], 0)
    assert summary(run) == ([], [])
    annotate(run, summary=True)
    assert "--summary" in capsys.readouterr().out
    annotate(run, summary=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"annotations": [], "agreement": []}
    (run / ANNOTATIONS).write_text(json.dumps(GOOD) + "\n", encoding="utf-8")
    assert summary(run) == ([], []), "nor of what the run no longer has"
    assert AnnotationStore(run, "ann").judged == {}
    assert len(read_annotations(run)) == 1


def test_the_summary_counts_a_models_distinct_rephrasings_by_person(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, other = AnnotationStore(run, "ann"), AnnotationStore(run, "bea")
    by_answer = {one.answer: one.id for one in book.rephrasings.values()}
    book.judge(by_answer["first answer"], "correct", "")
    book.judge(by_answer["second answer\nof two lines"], "rationale paraphrase", "")
    book.judge(by_answer[EVIL], "correct", "")
    other.judge(by_answer["first answer"], "cannot say", "")
    rows, _ = summary(run)
    assert len(rows) == 4 * len(CATEGORIES)
    names = ("model", "annotator", "category", "count", "n", "n_all")
    assert {tuple(row[name] for name in names) for row in rows if row["count"]} == {
        ("secret-model-a", "ann", "correct", 1, 2, 2),
        ("secret-model-a", "ann", "rationale paraphrase", 1, 2, 2),
        ("secret-model-a", "bea", "cannot say", 1, 1, 2),
        ("secret-model-b", "ann", "correct", 2, 2, 3),
        ("secret-model-b", "bea", "cannot say", 1, 1, 3),
    }
    for row in rows:
        assert row["percent"] == pytest.approx(100 * row["count"] / row["n"])
    assert {(row["low"], row["high"]) for row in rows} == {(None, None)}, "of two texts"
    annotate(run, summary=True)
    said = capsys.readouterr().out
    assert "correct\t1\t2\t2\t50.0\t–\t–\n" in said
    assert "ann and bea chose the same for 0.0% of 1 rephrasing; Cohen's kappa 0.00" in said


def test_agreement_of_two_people_is_cohens_kappa(run: Path) -> None:
    ann, bea, cy = (AnnotationStore(run, name) for name in ("ann", "bea", "cy"))
    judged = (("correct", "correct"), ("correct", "cannot say"), ("cannot say", "cannot say"))
    for item, (one, two) in zip(list(ann.rephrasings)[:3], judged, strict=True):
        ann.judge(item, one, "")
        bea.judge(item, two, "")
    cy.judge(next(iter(ann.rephrasings)), "correct", "")
    # By hand: 2 of 3 alike; by chance 2/3 x 1/3 + 1/3 x 2/3 = 4/9; (2/3 - 4/9) / (1 - 4/9) = 0.4.
    assert summary(run)[1] == [
        {"annotators": ["ann", "bea"], "n": 3, "same_percent": pytest.approx(200 / 3), "kappa": pytest.approx(0.4)},
        *({"annotators": [one, "cy"], "n": 1, "same_percent": 100.0, "kappa": None} for one in ("ann", "bea")),
    ]


def test_annotations_become_results_a_table_of_the_report_and_numbers_of_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    before = audit("bias-rephrasing", "toy", n_documents=4, wordings=1, out=folder).results
    (folder / ANNOTATIONS).write_text(json.dumps(GOOD) + "\n", encoding="utf-8")  # of another text: no result
    assert "Table 10" not in render_report(folder).read_text(encoding="utf-8")
    assert load_run(folder).results.equals(before)
    (folder / ANNOTATIONS).unlink()
    first, second, third = read_answers(folder)[0]["pair"].drop_duplicates().iloc[:3]
    for who, judged in (
        ("ann", {first: "correct", second: "cannot say", third: "correct"}),
        ("bea", {first: "correct", second: "correct"}),
    ):
        store = AnnotationStore(folder, who)
        for item, category in judged.items():
            store.judge(item, category, "")
    AnnotationStore(folder, "=cmd|' /C calc'!A0").judge(first, "correct", "")
    page = render_report(folder).read_text(encoding="utf-8")
    results = load_run(folder).results
    kept = results[~results["measure"].isin(JUDGEMENT_MEASURES)]
    pd.testing.assert_frame_equal(kept[before.columns].reset_index(drop=True), before)
    own = results[(results["measure"] == "judged_percent") & (results["category"] == "correct")]
    own = own[own["description_class"] == "all"].set_index("annotator")
    assert own["value"].round(2).to_dict() == {"ann": 66.67, "bea": 100.0, "=cmd|' /C calc'!A0": 100.0, "all": 83.33}
    assert own["n"].to_dict() == {"ann": 3, "bea": 2, "=cmd|' /C calc'!A0": 1, "all": 3}
    assert own[["low", "high"]].isna().all(axis=None)
    assert set(own["note"]) == {"no interval: fewer than 6 texts"}
    kappa = results[results["measure"] == "annotator_kappa"].set_index("annotator")
    assert kappa.loc["ann and bea", "value"] == 0.0  # they agree on one of two, as chance does
    assert kappa.loc["=cmd|' /C calc'!A0 and ann", "note"] == "both annotators always chose one category"
    assert not kappa.loc["ann and bea", "note"]
    assert "as Table 10 of Bauer et al. 2022" in page
    assert ">66.7<" in page
    assert "\n=cmd" not in (folder / "results.csv").read_text(encoding="utf-8").replace(",=cmd", "\n=cmd")
    rules = tmp_path / "rules.toml"
    where = '{ annotator = "all", category = "correct", description_class = "all" }'
    for least, passed in (("83", True), ("84", False)):
        rule = f'[[rule]]\nname = "a"\nmeasure = "judged_percent"\nat_least = {least}\nwhere = {where}\n'
        rules.write_text(f"schema = 1\n{rule}", encoding="utf-8")
        assert gate([folder], rules).status == (0 if passed else 1)
    score(folder)  # measured again: the annotations stay
    assert load_run(folder).results.equals(results)
    other = score(folder, out=tmp_path / "other").folder  # and go with the results
    monkeypatch.setattr("undertow.runs.score.write_report", pipeline.write_report)
    render_report(other)
    assert load_run(other).results.equals(results)
    assert not {*JUDGEMENT_MEASURES} & {*compare_runs(folder, other).table()["measure"]}
    assert (results.loc[results["measure"] == "annotator_kappa", "null_value"] == 0).all()


def test_rephrasings_of_one_text_are_one_cluster() -> None:
    """Twelve texts of four rephrasings, half of the texts all right: a t interval of the log-odds with 11 degrees of freedom."""
    answers = pd.DataFrame({"pair": [str(at) for at in range(48)], "cluster": [at // 4 for at in range(48)]})
    answers = answers.assign(model="m", description_class="statement")
    annotations = pd.DataFrame({"item": answers["pair"], "annotator": "ann"})
    annotations["category"] = ["correct" if at < 24 else "cannot say" for at in range(48)]
    result = next(iter(judgement_results(answers, annotations)))
    half = 2.200985 * (12 * (2 / 48) ** 2 * 12 / 11) ** 0.5 / 0.25
    assert (result.low, result.high) == pytest.approx((100 / (1 + math.exp(half)), 100 / (1 + math.exp(-half))))
    assert (result.extras["n_clusters"], result.note) == (12, "")
    (row, *_) = judgement_summary(answers, annotations)
    assert (row["low"], row["high"]) == pytest.approx((result.low, result.high))
