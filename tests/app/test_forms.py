from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import undertow
from helpers.file_refusal import assert_refused, refusal, written
from undertow import data
from undertow.app import model_reply
from undertow.app.audit_request import TASKS, limit_of, of_challenge, of_documents, of_occupations, read_challenge
from undertow.app.forms import DRIFT, SPECIFICATION, AllowedModels, Form, LoadedModel, Question, presets, read_form
from undertow.app.model_reply import ModelReply, answer_drift, answer_specification
from undertow.app.probability_curve import drawings
from undertow.app.run_browser import MAX_RUNS, RunBrowser
from undertow.app.sentence_parser import MAX_SENTENCE_CHARS, MAX_VALUES, read_sentence, read_values
from undertow.models import resolve
from undertow.models.base import ModelRequest
from undertow.runs.folder.storage import csv_of

EVIL = "</script><img src=x onerror=alert(1)>{{7*7}}${7*7}{0.__class__}%(x)s"


def form(**typed: object) -> Form:
    """A form from what the page would send, some of its fields changed."""
    fields = {
        "sentence": "In DATE, she was a child.", "placeholder": "DATE", "words": "",
        "values": "1801, 1850, 1900, 1950, 2000, 2016", "model": "toy", "beside": "", "other_model": "",
        "normalise": True, "degree": 1, "ends": 1,
    }  # fmt: skip
    return Form.from_fields(list((fields | typed).values()))


ALLOWED = AllowedModels({"toy": "toy", "uniform": "uniform"})

TOY = resolve(ModelRequest("toy"))


def silent(doing: str) -> Any:
    return lambda done, total: None


def question(audit_name: str = DRIFT, /, **typed: object) -> Question:
    return read_form(form(**typed), ALLOWED, audit_name)


def drift(step: Any = silent, /, **typed: object) -> ModelReply:
    return answer_drift(question(DRIFT, **typed), TOY, step)


OPEN = {
    "In W, she was a child.": ["In 1, she was a child.", "In 1, he was a child.", "In 1, they was a child."],
    "SHE met W.": ["SHE met 1.", "HE met 1.", "THEY met 1."],
    "W gave her a book.": ["1 gave her a book.", "1 gave him a book.", "1 gave them a book."],
    "W read her book.": ["1 read her book.", "1 read his book.", "1 read their book."],
    "W knows him.": ["1 knows her.", "1 knows him.", "1 knows them."],
    "W: it is his.": ["1: it is hers.", "1: it is his.", "1: it is theirs."],
    "They hurt themselves in W.": ["She hurt herself in 1.", "He hurt himself in 1.", "They hurt themselves in 1."],
    "W gave her his book.": ["1 gave her her book.", "1 gave him his book.", "1 gave them their book."],
    "W told her their name.": ["1 told her her name.", "1 told him his name.", "1 told them their name."],
    "W gave her/him flowers.": ["1 gave her flowers.", "1 gave him flowers.", "1 gave them flowers."],
    "W: Her/His/Their dog ran.": ["1: Her dog ran.", "1: His dog ran.", "1: Their dog ran."],
    "W: She said her son saw her.": [
        "1: She said her son saw her.", "1: He said his son saw him.", "1: They said their son saw them.",
    ],
}  # fmt: skip


@pytest.mark.parametrize("typed", OPEN)
def test_pronouns_are_left_open_in_the_case_that_they_stand_in(typed: str) -> None:
    assert read_sentence(typed, "W").with_value("1").texts() == OPEN[typed]


def test_a_blank_is_what_is_left_open_and_pronouns_beside_it_stay() -> None:
    for mark in ("___", "[MASK]", "MASK", "<mask>", "{blank}", "__"):
        pattern = read_sentence(f"In W she said that {mark} was late.", "W")
        query = pattern.with_value("1801")
        assert query.display_text() == "In 1801 she said that ___ was late."
        assert " ".join(option.fills[0] for option in query.options) == "she her he him his they them their"
    first = read_sentence("___ was here in W.", "W").with_value("May")
    assert first.texts()[0] == "She was here in May."
    assert read_sentence("In W: ___ ran.", "W").with_value("1").texts()[0] == "In 1: she ran."


def test_place_holder_is_a_whole_word_and_all_else_is_text_as_it_is_written() -> None:
    pattern = read_sentence("When W came, she met w at W.", "W")
    assert pattern.n_values == 2
    assert pattern.with_value("Ann").texts()[1] == "When Ann came, he met w at Ann."
    assert read_sentence("In (.*), she ran.", "(.*)").with_value("May").texts()[0] == "In May, she ran."
    typed = EVIL.replace("__", "")  # two underscores are a blank; what looks like a template or markup is text
    assert read_sentence(f"In W, she said {typed}.", "W").with_value(EVIL).texts()[1] == f"In {EVIL}, he said {typed}."
    assert read_values("1801, 1900,,\n 2016 ,New   York", 3) == ("1801", "1900", "2016", "New York")


CANNOT_BE_READ: list[Callable[[], object]] = [
    *(lambda typed=typed: read_sentence(typed, "W") for typed in (
        "", "The shed in W.", "___ and ___ in W", "She, he, she, he and she in W", "She \x00 ran.", "She \ud800 ran.",
        "She " + "x" * MAX_SENTENCE_CHARS, "She ran " + " " * 10_000, "W saw her/he.",
    )),
    *(lambda held=held: read_sentence("She ran.", held) for held in ("she", "___", "x" * 30)),
    *(lambda typed=typed: read_values(typed, 3) for typed in (
        "1801", "", "1, 2, 1", ",".join(map(str, range(MAX_VALUES + 1))), "1, 2, " + "x" * 61, "x" * 100_000, "1, 2, \x1b[31m",
    )),
]  # fmt: skip


@pytest.mark.parametrize("read", CANNOT_BE_READ)
def test_sentence_or_values_that_cannot_be_asked_are_refused(read: Callable[[], object]) -> None:
    assert_refused((), read)


@pytest.mark.parametrize(("audit_name", "first"), [(DRIFT, "1801"), (SPECIFICATION, "1901")])
def test_form_becomes_a_question_and_every_example_can_be_asked(audit_name: str, first: str) -> None:
    asked = question(audit_name, degree=2.0)
    assert (asked.models, asked.degree, asked.normalise) == ({"toy": "toy"}, 2, True)
    assert asked.reading().splitlines() == [f"In {year}, [she/he/they] was a child." for year in (1801, 1900, 2016)]
    listed = presets(audit_name)
    # The range of the command's own default.
    assert (listed[0].covariate.values[0], listed[0].covariate.values[-1]) == (first, "2016")
    for one in listed:
        values = one.covariate.values
        asked = question(audit_name, sentence=one.sentence, values=", ".join(values), placeholder=one.placeholder)
        assert asked.covariate.values == values
        assert asked.patterns[0].n_values == 1


def test_a_sentence_without_a_place_has_values_in_front_for_specification_alone() -> None:
    (pattern,) = question(SPECIFICATION, sentence="She was late.").patterns
    assert pattern.with_value("1801").texts()[0] == "In 1801: She was late."
    for placeholder, said in (("DATE", "write the placeholder 'DATE' there"), (" ", "write a placeholder there")):
        with_no_place = {"sentence": "She was late.", "placeholder": placeholder}
        assert_refused((f"no place for the values: {said}",), question, **with_no_place)


@pytest.mark.parametrize(
    ("field", "values", "named"),
    [
        ("sentence", [None, {"path": "/etc/passwd"}], "sentence"),
        ("values", [["1", "2", "3"], "1, 2, 3, 4, 5"], "values"),
        ("placeholder", [7], "placeholder"),
        ("normalise", ["yes"], "normalise"),
        ("degree", [0, 5, 1.5, "x", math.nan], "degree of the fit"),
        ("ends", [10**9], "endpoint window"),
        ("model", ["smollm2", "/etc/passwd", ["toy"], None], "model"),
        ("other_model", ["gpt2", None], "model"),
        ("beside", ["gpt2", 1], "model"),
        ("words", [["a"], "good", "good: kind", "good: kind\nbad: kind", "item: a\nb: c", "x" * 10_000], "word"),
        ("words", ["good: kind\nbad: mean"], "blank for words"),
        ("sentence", ["She ran in DATE.\n" * 2, "\n".join(f"She ran {n} in DATE." for n in range(21))], "sentence"),
    ],
)
def test_field_that_is_not_what_it_should_be_is_refused(field: str, values: list[object], named: str) -> None:
    for value in values:
        assert_refused((named,), question, DRIFT, **{"degree": 4, field: value})
    assert_refused(("values",), question, SPECIFICATION, ends=4)  # for both ends


def test_typed_model_is_a_hub_id_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    allowed = replace(ALLOWED, any_model=True)
    hub_id = "FacebookAI/roberta-base"
    assert allowed.choose("toy", "", f" {hub_id} ") == {hub_id: hub_id}
    assert list(allowed.choose("toy", "uniform", "bert-base-uncased, gpt2")) == ["bert-base-uncased", "gpt2", "uniform"]
    assert allowed.choose("toy", "", "") == {"toy": "toy"}
    assert_refused(("5 models; the limit is 4",), allowed.choose, "toy", "uniform", "a, b, c, d")
    names = ["/etc/passwd", "../x/y", "a/../b", "openai:gpt", "a/b/c", "a\\b", "~/m", "a/b?x", "ä/b"]
    (tmp_path / "owner" / "model").mkdir(parents=True)
    for name in [*names, EVIL, "a/b\n/", "x/" + "y" * 200, "owner/model", "owner"]:
        assert_refused((), allowed.choose, "toy", "", name)


def test_menu_shows_the_last_part_of_a_path_and_keeps_one_model_open(tmp_path: Path) -> None:
    one, other = str(tmp_path / "a" / "m"), str(tmp_path / "b" / "m")
    for path in (one, other):
        Path(path).mkdir(parents=True)
    assert AllowedModels.from_names(["toy", one]).names == {"toy": "toy", "m": one}
    for paths in ([one, other], []):
        assert_refused((), AllowedModels.from_names, paths)
    loaded = LoadedModel()
    first = loaded.load("toy")
    assert first.open() is first.open() is loaded.load("toy").open()
    loaded.load("uniform")
    assert loaded.load("toy").open() is not first.open()


def test_a_planted_drift_is_found_and_told() -> None:
    """The toy's share of she is .30 at 1900 and rises 10 points a century, of .80 that the pronouns have together."""
    reply = drift(values=", ".join(map(str, range(1800, 2001, 20))))
    first, last = (100 * (0.30 + (year - 1900) / 1000) / 0.80 for year in (1800, 2000))
    (ends,) = re.findall(r"by the fitted lines.* “she” rises from ([\d.]+) to ([\d.]+)%", reply.sentence)
    assert [float(end) for end in ends] == pytest.approx([first, last], abs=0.8)
    assert "the answer drifts with something that does not determine it (p" in reply.sentence
    assert list(reply.table["value"]) == [str(year) for year in range(1800, 2001, 20)]
    np.testing.assert_allclose(reply.table[["female", "male", "neutral"]].sum(axis=1), 100)
    assert [curve.title for curve in reply.curves] == ["Female: she", "Male: he", "Neutral: they"]
    assert (reply.table["female low"] < reply.table["female fit"]).all()


def test_numbers_of_a_visitor_are_fitted_to_the_numbers_whatever_their_order() -> None:
    years, shuffled = [1800, 1990, 2000, 2005, 2010, 2016], "2016, 1800, 2005, 1990, 2010, 2000"
    one, other = (drift(values=values) for values in (", ".join(map(str, years)), shuffled))
    pd.testing.assert_frame_equal(one.table, other.table)
    assert one.sentence == other.sentence
    table, curve = one.table, one.curves[0]
    assert curve.axis.tolist() == years
    slope, start = np.polyfit(years, table["female"], 1)
    np.testing.assert_allclose(table["female fit"], slope * np.array(years) + start)
    np.testing.assert_allclose(curve.mean, slope * curve.x + start)
    (drawing,) = drawings({"toy": [curve]}, question(values=shuffled).covariate)
    assert np.asarray(drawing.figure.axes[0].lines[1].get_xdata()).tolist() == years


def test_without_a_drift_none_is_claimed() -> None:
    places = "Chad, Iran, Mali, Peru, Cuba, Fiji, Togo, Laos"
    still = drift(sentence="She lived in DATE.", values=places)
    assert still.sentence == "From Chad to Laos, the answer is the same at every value."
    behind = drift(sentence="In DATE she lived.", values=places)
    assert behind.sentence.startswith("From Chad to Laos, the answer does not drift significantly")
    few = drift(sentence="In DATE she lived.", values="Chad, Iran, Mali")
    assert "3 values are too few" in few.sentence


def test_bend_is_told_between_its_ends_with_the_steps_of_the_work_and_figures_that_share_a_scale() -> None:
    told: list[tuple[str, int, int]] = []

    def step(doing: str) -> Any:
        return lambda done, total: told.append((doing, done, total))

    reply = drift(step, values="1501, 1601, 1701, 1801, 1901, 2001, 2016", degree=2)
    assert "moves between" in reply.sentence
    assert [counts for _, *counts in (told[0], told[-1])] == [[0, 7], [7, 7]]
    hostile = data.Covariate("value", tuple(f"$\\frac{{{label}}}$ {EVIL}" for label in reply.table["value"]), EVIL)
    drawn = drawings({EVIL: reply.curves, "toy": reply.curves}, hostile)
    limits = [one.figure.axes[0].get_ylim() for one in drawn]
    assert np.ptp(limits, axis=1) == pytest.approx(np.ptp(limits[0]), rel=0.01)
    for (least, top), curve in zip(limits, reply.curves, strict=True):
        assert least <= curve.percent.min()
        assert curve.percent.max() <= top <= 106
    years = ("2000", "2005", "2010", "2016")
    small = drift(step, values=", ".join(years))
    axes = drawings({"toy": small.curves}, data.Covariate("value", years))[0].figure.axes[0]
    assert axes.get_ylim()[0] > 40, "an axis begins where the data do, so that a small effect is seen"
    assert axes.get_ylabel() == "percent (axis does not start at 0)"
    assert tuple(label.get_text() for label in axes.get_xticklabels()) == years


def test_not_normalised_is_of_all_words() -> None:
    """Four fifths go to the pronouns, a fifth to words that nobody lists."""
    shares, masses = (drift(normalise=on).table for on in (True, False))
    np.testing.assert_allclose(masses["female"], 0.8 * shares["female"], rtol=1e-6)
    np.testing.assert_allclose(masses["other words"], 20, atol=1e-6)


def test_a_group_that_the_tokenizer_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unscored = {"female": 60.0, "male": 40.0, "neutral": math.nan, "other words": 0.0}
    monkeypatch.setattr(
        model_reply, "_percent", lambda frame, *_, **__: pd.DataFrame(unscored, index=range(len(frame)))
    )
    assert_refused(("tokenizer does not know the words of neutral",), drift)


def test_specification_of_a_model_that_decides_nothing_is_not_claimed() -> None:
    """The toy answers by the year alone, so that no verdict on a sentence can be better than chance."""
    asked = question(SPECIFICATION, sentence="The nurse said that she was late.")
    reply = answer_specification(asked, TOY, silent)
    cannot = "This model cannot show whether the sentence determines its pronoun: from 1801 to 2016 "
    assert reply.sentence.startswith(cannot)
    assert any("hardly better than chance" in caveat for caveat in reply.caveats)
    assert reply.scores is not None
    moved = reply.table["female"].iloc[-1] - reply.table["female"].iloc[0]
    assert reply.scores["this sentence"].iloc[0] == pytest.approx(moved)


def test_the_table_is_harmless_in_a_spreadsheet() -> None:
    table = pd.DataFrame({"value": ["=1+1", "@x", "-5", "+3.5", "-x", EVIL], "n": [1.0, 2.0, -3.0, 4.0, 5.0, math.nan]})
    lines = csv_of(table, "%.6g").splitlines()
    assert [line.split(",")[0] for line in lines[1:6]] == ["'=1+1", "'@x", "-5", "+3.5", "'-x"]
    assert lines[3] == "-5,-3"
    signs = ["\t=1", "\r=1", " =1", "\uff1d1+1", "\uff201"]
    written = csv_of(pd.DataFrame({"=1+1": [*signs, "a\r=1", "", "-7"]}))
    head, *rows = written.splitlines()  # at a lone carriage return too
    assert head == "'=1+1"
    assert [row[:1] for row in rows[: len(signs)]] == ["'"] * len(signs)
    assert rows[len(signs) :] == ["a =1", '""', "-7"]


@pytest.fixture
def two_runs(finished_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of its own with copies of two runs."""
    for name, model in (("first", "toy"), ("<b>second", "toy:slope=-5")):
        run = finished_run("spurious-correlation", model, w="date", limit=150, page=True)
        shutil.copytree(run, tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.mark.page
def test_runs_are_listed_shown_and_compared(two_runs: Path) -> None:
    browser = RunBrowser(two_runs)
    listed = {(one.name, *one.models, one.n_items) for one in browser.list_runs()}
    assert listed == {("first", "toy", 150), ("<b>second", "toy:slope=-5", 150)}
    about, results = browser.show("first")
    assert "toy" in about[1]
    assert "150" in about[2]
    assert "slope" in set(results["measure"])
    assert browser.report("first").lower().startswith(b"<!doctype html>")
    assert b'<div id="files" hidden>' in browser.report("first")
    assert_refused(("two different runs",), browser.compare, "first", "first", silent(""))
    told, table = browser.compare("first", "<b>second", silent(""))
    assert "slope" in set(table["measure"])
    assert told


@pytest.mark.parametrize("name", ["results.json", "manifest.json", "precision.csv"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_run_with_a_file_that_is_a_link_or_a_pipe_is_not_on_the_list(
    name: str, kind: str, two_runs: Path, tmp_path: Path
) -> None:
    run, elsewhere = two_runs / "first", tmp_path / name
    elsewhere.write_text("")
    if (run / name).exists():
        (run / name).replace(elsewhere)
    if kind == "link":
        (run / name).symlink_to(elsewhere)
    else:
        os.mkfifo(run / name)  # whoever reads it waits for ever
    browser = RunBrowser(two_runs)
    assert [one.name for one in browser.list_runs()] == ["<b>second"]
    assert_refused(("no such run on the list",), browser.show, "first")


def test_folders_that_cannot_be_named_or_looked_into_do_not_hide_the_others(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two_runs / "<b>second").rename(two_runs / "locked")
    shutil.copytree(two_runs / "first", two_runs / os.fsdecode(b"\xff\xfe"))
    as_it_is = Path.exists

    def refuse(path: Path) -> bool:
        if "locked" in path.parts:
            raise PermissionError(13, "Permission denied")
        return as_it_is(path)

    monkeypatch.setattr(Path, "exists", refuse)  # the account of the tests may be root, whom nothing is refused
    browser = RunBrowser(two_runs)
    assert [one.name for one in browser.list_runs()] == ["first"]
    monkeypatch.undo()
    shutil.rmtree(two_runs)
    assert RunBrowser(two_runs).list_runs() == []


def test_nothing_outside_the_list_is_opened_and_the_list_is_bounded(two_runs: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    for folder in ("half", "damaged", "broken"):
        (inside / folder).mkdir(parents=True)
    (inside / "link").symlink_to(two_runs / "first")
    (inside / "half" / "manifest.json").symlink_to(two_runs / "first" / "manifest.json")
    (inside / "damaged" / "manifest.json").write_text("[1, 2]")
    (inside / "broken" / "manifest.json").write_text("{")
    browser = RunBrowser(inside)
    assert browser.list_runs() == []
    for name in ("link", "half", "..", ".", "", "../runs", str(two_runs / "first"), "first", None, 3, ["half"], "a\0b"):
        assert_refused(("no such run on the list",), browser.show, name)
        assert browser.report(name) == b""
    # Nor is a file of a run that leads elsewhere.
    run, secret = two_runs / "first", tmp_path / "secret"
    secret.write_bytes(b"\x89PNG\r\n\x1a\nsecret")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(secret)
    assert RunBrowser(two_runs).report("first") == b""
    manifest = json.loads((run / "manifest.json").read_text())
    for name in (f"{number:03}" for number in range(MAX_RUNS + 5)):
        (tmp_path / "many" / name).mkdir(parents=True)
        written(tmp_path / "many" / name, json.dumps(manifest | {"created": name}), "manifest.json")
    listed = RunBrowser(tmp_path / "many").list_runs()
    assert (len(listed), listed[0].name) == (MAX_RUNS, f"{MAX_RUNS + 4:03}")


def test_only_runs_that_asked_the_same_are_comparable(two_runs: Path, finished_run: Callable[..., Path]) -> None:
    shutil.copytree(finished_run("task-specification", "toy", limit=80), two_runs / "other")
    listed = {one.name: one for one in RunBrowser(two_runs).list_runs()}
    assert listed["first"].is_comparable(listed["<b>second"])
    assert not listed["first"].is_comparable(listed["first"])
    assert not listed["first"].is_comparable(listed["other"])
    for name in ("one", "two"):  # tables of one content whose files have other names
        rows = [f"{name},date,{w},{w},{s},{40 + w},{30 - w}" for s in range(6) for w in range(8)]
        table = two_runs.parent / f"{name}.csv"
        table.write_text("\n".join(["model,w_name,w_index,w,cluster,female,male", *rows]), encoding="utf-8")
        undertow.score(table, audit="spurious-correlation", out=two_runs / name)
    recorded = {one.name: one for one in RunBrowser(two_runs).list_runs()}
    assert recorded["one"].is_comparable(recorded["two"])
    assert not recorded["one"].is_comparable(recorded["first"])


WORDS = {
    "sentence": "In DATE, the man was ___.\nIn DATE, the woman was ___.\nDATE: the child is ___ again.",
    "words": "good: kind, honest\nbad: mean, cruel",
}


def test_own_words_in_several_sentences_are_averaged_and_the_same_question_is_a_challenge(tmp_path: Path) -> None:
    wanted, reply, runs = question(**WORDS), drift(**WORDS), tmp_path / "new" / "runs"
    assert [curve.title for curve in reply.curves] == ["Good: kind, honest", "Bad: mean, cruel"]
    np.testing.assert_allclose(reply.table[["good", "bad"]].sum(axis=1), 100)
    assert reply.sentences is not None
    assert sorted(set(reply.sentences["text"])) == sorted(WORDS["sentence"].replace("DATE", "1801").split("\n"))
    asked, preview = of_challenge(wanted.challenge(), wanted.models, 100)
    assert asked.audit == DRIFT
    assert "18 texts" in preview
    assert "good: kind, honest; bad: mean, cruel" in preview
    run = asked.run(runs, ModelRequest(""), lambda done, total: None)
    assert run.folder.parent == runs
    assert set(run.observations["text"]) == {
        pattern.with_value(value).display_text() for pattern in wanted.patterns for value in wanted.covariate.values
    }
    np.testing.assert_allclose(
        run.observations.groupby("w_index")["good"].mean(), reply.table["good"], err_msg="the page and the audit agree"
    )
    assert [one.name for one in RunBrowser(runs).list_runs()] == [run.folder.name]


def test_pronouns_of_every_case_become_blanks_of_a_challenge() -> None:
    challenge = question(sentence="In DATE, she {met} her.\nHis dog ran to him in DATE.").challenge()
    assert challenge["templates"] == [
        "In {w}, {nominative} {{met}} {accusative}.", "{possessive} dog ran to {accusative} in {w}.",
    ]  # fmt: skip
    assert "In 1801, ___ {met} ___." in of_challenge(challenge, {}, 100)[1]
    mixed = question(sentence="She ran in DATE.\n___ ran in DATE.")
    assert_refused(("blank ___ in every sentence or in none",), mixed.challenge)


CHALLENGE = 'templates = ["In {w}, {blank} ran {where}."]\nwords = "pronouns"\n[slots]\nwhere = ["home", "away"]\n'


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ("", "no challenge yet"),
        ("x = [", "not valid TOML"),
        ("a = 1", "the challenge"),
        (f'w = ["/etc/passwd"]\n{CHALLENGE}', "names the W list '/etc/passwd'"),
        (f'w = "towns.txt"\n{CHALLENGE}', "names the W list 'towns.txt'"),
        (f'{CHALLENGE}[w]\ntowns = "towns.txt"', "the challenge"),
        (f"{CHALLENGE}# {'x' * 70_000}", "the limit here is 60,000"),
        (f"{CHALLENGE.replace('home', '{}')}[w]\nn = {list(range(9_000))}\nm = {list(range(1))}", "the challenge"),
    ],
)
def test_challenge_that_cannot_be_used_is_refused_and_no_file_is_named(typed: str, wrong: str) -> None:
    said = refusal(lambda: of_challenge(read_challenge(typed), {}, 100))
    assert (wrong in said, "challenges/" in said) == (True, False)


def test_values_of_a_challenge_are_put_in_front_of_templates_without_a_place() -> None:
    given = 'templates = ["{blank} ran home.", "In {w}, {blank} slept."]\nwords = "pronouns"\n'
    values = '[w]\nera = ["old times", "the middle ages", "modern times"]\n'
    wanted, preview = of_challenge(read_challenge(given + values), {}, 100)
    assert wanted.audit == DRIFT
    for text in ("In the middle ages: ___ ran home.", "In the middle ages, ___ slept.", "era"):
        assert text in preview
    assert "In 1801: ___ ran home." in of_challenge(read_challenge(given), {}, 100)[1]


SLOTS = {f"slot{n}": [f"{n}{m}" for m in range(30)] for n in range(6)}
CROSSED = {"templates": [f"In {{w}}, {{blank}} ran {' '.join(f'{{{name}}}' for name in SLOTS)}."], "slots": SLOTS}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (CROSSED, "the limit here is 50,000"),
        ({"controls": [{"text": f"{n} {{blank}}.", "gold": "a"} for n in range(101)]}, "101 control sentences"),
        ({"groups": {"a": [f"a{n}" for n in range(200)], "b": ["b"]}}, "201 words"),
    ],
)
def test_items_controls_and_words_of_a_challenge_are_bounded_before_they_are_made(
    more: dict[str, object], wrong: str
) -> None:
    given = {"templates": ["In {w}, {blank} ran."], "groups": {"a": ["a"], "b": ["b"]}}
    assert_refused((wrong,), of_challenge, given | more, {}, 100)


@pytest.mark.parametrize(
    ("ask", "given", "wrong"),
    [
        (of_documents, ("x", 3, {}), "tasks"), (of_documents, (next(iter(TASKS)), 1000, {}), "texts"),
        (of_documents, (next(iter(TASKS)), True, {}), "texts"), (of_occupations, (3, 1.5, {}), "occupations"),
        (of_occupations, ("3", 1, {}), "pairs"), (limit_of, (10**9,), "texts"),
    ],
)  # fmt: skip
def test_size_of_an_audit_is_bounded(ask: Callable[..., object], given: tuple[object, ...], wrong: str) -> None:
    assert_refused((wrong,), ask, *given)


def test_small_audits_write_run_folders(tmp_path: Path) -> None:
    for asked in (of_documents(next(iter(TASKS)), 2, {"toy": "toy"}), of_occupations(1, 1, {"a name": "toy"})):
        run = asked.run(tmp_path, ModelRequest(""), lambda done, total: None)
        assert run.folder.parent == tmp_path
        assert run.report.is_file()
    assert run.manifest["model"] == "a name"
