"""What a form becomes, and what is answered: sentences cut in pieces, fields that are checked, runs; no page is needed."""

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

from undertow.app.forms import DRIFT, SPECIFICATION, AllowedModels, Form, LoadedModel, presets, read_form
from undertow.app.model_reply import answer_drift, answer_specification
from undertow.app.probability_curve import drawings, labelled
from undertow.app.run_browser import MAX_RUNS, RunBrowser
from undertow.app.sentence_parser import MAX_SENTENCE_CHARS, MAX_VALUES, read_sentence, read_values
from undertow.errors import UndertowError
from undertow.models import resolve
from undertow.models.base import ModelRequest
from undertow.runs.folder.storage import csv_of

LIMIT_S = 120
EVIL = "</script><img src=x onerror=alert(1)>{{7*7}}${7*7}{0.__class__}%(x)s"


def form(**typed: object) -> Form:
    """A form from what the page would send, some of its fields changed."""
    fields = {
        "sentence": "In DATE, she was a child.", "values": "1801, 1850, 1900, 1950, 2000, 2016", "placeholder": "DATE",
        "model": "toy", "other_model": "", "normalise": True, "degree": 1, "ends": 1,
    }  # fmt: skip
    return Form.from_fields(list((fields | typed).values()))


ALLOWED = AllowedModels({"toy": "toy", "uniform": "uniform"})


def silent(doing: str) -> Any:
    return lambda done, total: None


# A typed sentence.


OPEN = {
    "In W, she was a child.": ["In 1, she was a child.", "In 1, he was a child.", "In 1, they was a child."],
    "SHE met W.": ["SHE met 1.", "HE met 1.", "THEY met 1."],
    "W gave her a book.": ["1 gave her a book.", "1 gave him a book.", "1 gave them a book."],
    "W read her book.": ["1 read her book.", "1 read his book.", "1 read their book."],
    "W knows him.": ["1 knows her.", "1 knows him.", "1 knows them."],
    "W: it is his.": ["1: it is hers.", "1: it is his.", "1: it is theirs."],
    "They hurt themselves in W.": ["She hurt herself in 1.", "He hurt himself in 1.", "They hurt themselves in 1."],
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
        "She " + "x" * MAX_SENTENCE_CHARS, "She ran " + " " * 10_000,
    )),
    *(lambda held=held: read_sentence("She ran.", held) for held in ("she", "___", "x" * 30)),
    *(lambda typed=typed: read_values(typed, 3) for typed in (
        "1801", "", "1, 2, 1", ",".join(map(str, range(MAX_VALUES + 1))), "1, 2, " + "x" * 61, "x" * 100_000, "1, 2, \x1b[31m",
    )),
]  # fmt: skip


@pytest.mark.parametrize("read", CANNOT_BE_READ)
def test_sentence_or_values_that_cannot_be_asked_are_refused(read: Callable[[], object]) -> None:
    with pytest.raises(UndertowError):
        read()


# A form.


@pytest.mark.parametrize("audit_name", [DRIFT, SPECIFICATION])
def test_form_becomes_a_question_and_every_example_can_be_asked(audit_name: str) -> None:
    question = read_form(form(degree=2.0), ALLOWED, audit_name)
    assert (question.model, question.degree, question.normalise) == ("toy", 2, True)
    assert question.sample().splitlines()[:2] == ["In 1801, ___ was a child.", "In 1900, ___ was a child."]
    listed = presets(audit_name)
    # The range of the command's own default.
    assert (listed[0].values[0], listed[0].values[-1]) == ("1801" if audit_name == DRIFT else "1901", "2016")
    for one in listed:
        typed = one.sentence
        question = read_form(
            form(sentence=typed, values=", ".join(one.values), placeholder=one.placeholder), ALLOWED, audit_name
        )
        assert question.values == one.values
        assert question.pattern.n_values == 1


def test_a_sentence_without_a_place_has_values_in_front_for_specification_alone() -> None:
    late = "She was late."
    assert (
        read_form(form(sentence=late), ALLOWED, SPECIFICATION).pattern.with_value("1801").texts()[0]
        == "In 1801: She was late."
    )
    with pytest.raises(UndertowError, match="no place for the values: write the place-holder 'DATE' where they go"):
        read_form(form(sentence=late), ALLOWED, DRIFT)
    with pytest.raises(UndertowError, match="write a place-holder where they go"):
        read_form(form(sentence=late, placeholder=" "), ALLOWED, DRIFT)


@pytest.mark.parametrize(
    ("field", "values", "named"),
    [
        ("sentence", [None, {"path": "/etc/passwd"}], "sentence"),
        ("values", [["1", "2", "3"], "1, 2, 3, 4, 5"], "values"),
        ("placeholder", [7], "place-holder"),
        ("normalise", ["yes"], "normalise"),
        ("degree", [0, 5, 1.5, "x", math.nan], "degree of the fit"),
        ("ends", [10**9], "either end"),
        ("model", ["smollm2", "/etc/passwd", ["toy"], None], "model"),
        ("other_model", ["gpt2", None], "model"),
    ],
)
def test_field_that_is_not_what_it_should_be_is_refused(field: str, values: list[object], named: str) -> None:
    for value in values:
        with pytest.raises(UndertowError, match=named):
            read_form(form(**{"degree": 4, field: value}), ALLOWED, DRIFT)
    with pytest.raises(UndertowError, match="values"):  # for both ends
        read_form(form(ends=4), ALLOWED, SPECIFICATION)


# The allowed models.


def test_typed_model_is_a_hub_id_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    allowed = replace(ALLOWED, any_model=True)
    assert allowed.resolve("toy", " FacebookAI/roberta-base ") == "FacebookAI/roberta-base"
    assert allowed.resolve("toy", "bert-base-uncased") == "bert-base-uncased"
    assert allowed.resolve("toy", "") == "toy"
    names = ["/etc/passwd", "../x/y", "a/../b", "openai:gpt", "a/b/c", "a\\b", "~/m", "a/b?x", "ä/b"]
    (tmp_path / "owner" / "model").mkdir(parents=True)
    for name in [*names, EVIL, "a/b\n/", "x/" + "y" * 200, "owner/model", "owner"]:
        with pytest.raises(UndertowError):
            allowed.resolve("toy", name)


def test_menu_shows_the_last_part_of_a_path_and_keeps_one_model_open(tmp_path: Path) -> None:
    one, other = str(tmp_path / "a" / "m"), str(tmp_path / "b" / "m")
    for path in (one, other):
        Path(path).mkdir(parents=True)
    assert AllowedModels.from_names(["toy", one]).names == {"toy": "toy", "m": one}
    for paths in ([one, other], []):
        with pytest.raises(UndertowError):
            AllowedModels.from_names(paths)
    loaded = LoadedModel()
    first = loaded.load("toy")
    assert first.open() is first.open() is loaded.load("toy").open()
    loaded.load("uniform")
    assert loaded.load("toy").open() is not first.open()


# The answer.


def test_a_planted_drift_is_found_and_told() -> None:
    """The toy's share of she is .30 at 1900 and rises 10 points a century, of .80 that the pronouns have together."""
    question = read_form(form(values=", ".join(map(str, range(1800, 2001, 20)))), ALLOWED, DRIFT)
    reply = answer_drift(question, resolve(ModelRequest("toy")), silent)
    first, last = (100 * (0.30 + (year - 1900) / 1000) / 0.80 for year in (1800, 2000))
    rises = re.findall(r"by the fitted lines.* “she” rises from ([\d.]+) to ([\d.]+)%", reply.sentence)
    told = [float(number) for number in rises[0]]
    assert told == pytest.approx([first, last], abs=0.8)
    assert "the answer drifts with something that does not decide it (p" in reply.sentence
    assert list(reply.table["value"]) == [str(year) for year in range(1800, 2001, 20)]
    np.testing.assert_allclose(reply.table[["female", "male", "neutral"]].sum(axis=1), 100)
    assert [curve.title for curve in reply.curves] == ["Female: she", "Male: he", "Neutral: they"]
    assert (reply.table["female low"] < reply.table["female fit"]).all()


def test_numbers_of_a_visitor_are_fitted_to_the_numbers_whatever_their_order() -> None:
    years = [1800, 1990, 2000, 2005, 2010, 2016]
    shuffled = "2016, 1800, 2005, 1990, 2010, 2000"
    found = [
        answer_drift(read_form(form(values=values), ALLOWED, DRIFT), resolve(ModelRequest("toy")), silent)
        for values in (", ".join(map(str, years)), shuffled)
    ]
    pd.testing.assert_frame_equal(found[0].table, found[1].table)
    assert found[0].sentence == found[1].sentence
    table, (curve, *_) = found[0].table, found[0].curves
    assert curve.axis.tolist() == years
    slope, start = np.polyfit(years, table["female"], 1)
    np.testing.assert_allclose(table["female fit"], slope * np.array(years) + start)
    np.testing.assert_allclose(curve.mean, slope * curve.x + start)
    dots = drawings([curve], found[0].labels)[0].figure.axes[0].lines[1]
    assert np.asarray(dots.get_xdata()).tolist() == years


def test_a_list_of_the_package_keeps_its_places_and_tells_its_order() -> None:
    for one in (*presets(DRIFT), presets(SPECIFICATION)[0]):
        values = ", ".join(one.values)
        question = read_form(form(sentence=one.sentence, values=values, placeholder=one.placeholder), ALLOWED, DRIFT)
        assert question.covariate.axis == tuple(range(len(one.values)))
        reply = answer_drift(question, resolve(ModelRequest("toy")), silent)
        assert one.covariate.order in " ".join([reply.sentence, *reply.notes])
    own = read_form(form(values="Chad, Iran, Mali"), ALLOWED, DRIFT)
    assert (own.covariate.scale, own.covariate.order) == ("index", "as listed")
    with pytest.raises(UndertowError, match="one number"):
        read_form(form(values="1, 2, 2.0"), ALLOWED, DRIFT)


def test_without_a_drift_none_is_claimed() -> None:
    places = "Chad, Iran, Mali, Peru, Cuba, Fiji, Togo, Laos"
    still = form(sentence="She lived in DATE.", values=places)
    reply = answer_drift(read_form(still, ALLOWED, DRIFT), resolve(ModelRequest("toy")), silent)
    assert reply.sentence == "From Chad to Laos, the answer does not move at all."
    behind = form(sentence="In DATE she lived.", values=places)
    reply = answer_drift(read_form(behind, ALLOWED, DRIFT), resolve(ModelRequest("toy")), silent)
    assert reply.sentence.startswith("From Chad to Laos, no drift of the answer stands out from the noise")
    few = answer_drift(
        read_form(form(sentence="In DATE she lived.", values="Chad, Iran, Mali"), ALLOWED, DRIFT),
        resolve(ModelRequest("toy")),
        silent,
    )
    assert "3 values are too few" in few.sentence


def test_bend_is_told_between_its_ends_with_the_steps_of_the_work_and_figures_that_share_a_scale() -> None:
    told: list[tuple[str, int, int]] = []

    def step(doing: str) -> Any:
        return lambda done, total: told.append((doing, done, total))

    bent = form(values="1501, 1601, 1701, 1801, 1901, 2001, 2016", degree=2)
    reply = answer_drift(read_form(bent, ALLOWED, DRIFT), resolve(ModelRequest("toy")), step)
    assert "moves between" in reply.sentence
    assert [counts for _, *counts in (told[0], told[-1])] == [[0, 7], [7, 7]]
    drawn = drawings(reply.curves, [f"$\\frac{{{label}}}$ {EVIL}" for label in reply.labels])
    (least, top), *others = [one.figure.axes[0].get_ylim() for one in drawn]
    assert others == [(least, top)] * 2
    assert least == 0
    assert max(float(curve.mean.max()) for curve in reply.curves) < top
    assert [labelled(np.arange(float(n))) for n in (30, 3)] == [[0, 5, 10, 14, 19, 24, 29], [0, 1, 2]]


def test_not_normalised_is_of_all_words() -> None:
    """Four fifths go to the pronouns, a fifth to words that nobody lists."""
    shares, masses = (
        answer_drift(read_form(form(normalise=on), ALLOWED, DRIFT), resolve(ModelRequest("toy")), silent).table
        for on in (True, False)
    )
    np.testing.assert_allclose(masses["female"], 0.8 * shares["female"], rtol=1e-6)
    np.testing.assert_allclose(masses["other words"], 20, atol=1e-6)


def test_specification_of_a_model_that_decides_nothing_is_not_claimed() -> None:
    """The toy answers by the year alone, so that no verdict on a sentence can be better than chance."""
    question = read_form(form(sentence="The nurse said that she was late."), ALLOWED, SPECIFICATION)
    reply = answer_specification(question, resolve(ModelRequest("toy")), silent)
    assert reply.sentence.startswith(
        "With this model it cannot be determined whether the sentence decides its pronoun: from 1801 to 2016 "
    )
    assert any("hardly better than chance" in note for note in reply.notes)
    assert reply.scores is not None
    moved = reply.table["female"].iloc[-1] - reply.table["female"].iloc[0]
    assert reply.scores["here"].iloc[0] == pytest.approx(moved)


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


# Runs.


def the_run(finished_run: Callable[..., Path], model: str = "toy") -> Path:
    return finished_run("spurious-correlation", model, w="date", limit=150, page=True)


@pytest.fixture
def two_runs(finished_run: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder of its own with copies of two runs."""
    for name, model in (("first", "toy"), ("<b>second", "toy:slope=-5")):
        shutil.copytree(the_run(finished_run, model), tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.mark.page
def test_runs_are_listed_shown_and_compared(two_runs: Path) -> None:
    browser = RunBrowser(two_runs)
    assert {(one.name, one.model, one.n_items) for one in browser.list_runs()} == {
        ("first", "toy", 150),
        ("<b>second", "toy:slope=-5", 150),
    }
    shown = browser.show("first")
    assert "toy" in shown.about[1]
    assert "150" in shown.about[2]
    assert shown.findings
    (figure,) = shown.figures
    assert figure.startswith(b"\x89PNG")
    assert shown.report.lower().startswith(b"<!doctype html>")
    with pytest.raises(UndertowError, match="two different runs"):
        browser.compare("first", "first", silent(""))
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
    with pytest.raises(UndertowError, match="no such run on the list"):
        browser.show("first")


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
    shutil.rmtree(two_runs)
    with pytest.raises(UndertowError, match="cannot be read"):
        browser.list_runs()
    with pytest.raises(UndertowError, match="no such folder"):
        RunBrowser(two_runs)
    assert RunBrowser(None).list_runs() == []


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
        with pytest.raises(UndertowError, match="no such run on the list"):
            browser.show(name)
    # Nor is a file of a run that leads elsewhere.
    run, secret = two_runs / "first", tmp_path / "secret"
    secret.write_bytes(b"\x89PNG\r\n\x1a\nsecret")
    for file in (run / "report.html", *(run / "figures").glob("*.png")):
        file.unlink()
        file.symlink_to(secret)
    (run / "figures" / "x.png").write_bytes(b"<svg onload=alert(1)>")
    shown = RunBrowser(two_runs).show("first")
    assert (shown.report, shown.figures) == (b"", ())
    for number in range(MAX_RUNS + 5):
        (tmp_path / "many" / f"{number:03}").mkdir(parents=True)
        manifest = {"created": f"{number:03}", "counts": {"items": "x"}}
        (tmp_path / "many" / f"{number:03}" / "manifest.json").write_text(json.dumps(manifest))
    listed = RunBrowser(tmp_path / "many").list_runs()
    assert (len(listed), listed[0].name) == (MAX_RUNS, f"{MAX_RUNS + 4:03}")
