from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from helpers.file_refusal import assert_refused
from undertow import audits
from undertow.integrations.column_mapping import read_mapped

pytestmark = pytest.mark.usefixtures("in_folder")

OWN = "model,w_name,w_index,w,cluster,female,male"
THEIRS = "checkpoint,year,sentence,p_she,p_he,remark"
CELLS = [
    (year, text, 10 + 3 * at + text, 40 - 2 * at) for at, year in enumerate((1900, 1950, 2000)) for text in range(3)
]
MAPPING = """
unit = "probability"
[columns]
model = "checkpoint"
w = "year"
cluster = "sentence"
[groups]
female = "p_she"
male = "p_he"
"""


def own() -> str:
    rows = [f"m,year,{(year - 1900) // 50},{year},{text},{she},{he}" for year, text, she, he in CELLS]
    return "\n".join([OWN, *rows, ""])


def theirs(shape: Any = lambda percent: percent / 100) -> str:
    rows = [f"m,{year},{text},{shape(she)!r},{shape(he)!r},x" for year, text, she, he in CELLS]
    return "\n".join([THEIRS, *rows, ""])


def score(table: str, mapping: str | None, name: str = "table.csv") -> undertow.Run:
    Path(name).write_text(table, encoding="utf-8")
    if mapping is not None:
        Path("names.toml").write_text(mapping, encoding="utf-8")
    out = f"out-{name}-{mapping is None}"
    return undertow.score(
        name, audit="spurious-correlation", columns="names.toml" if mapping is not None else "", out=out, overwrite=True
    )


@pytest.mark.parametrize(
    ("unit", "shape"),
    [
        ("percent", float),
        ("probability", lambda percent: percent / 100),
        ("", lambda percent: percent / 100),
        ("logprob", lambda percent: math.log(percent / 100)),
    ],
)
def test_a_mapped_table_is_measured_like_our_own(unit: str, shape: Any) -> None:
    expected = score(own(), None, "own.csv").results
    mapping = MAPPING.replace("probability", unit) if unit else MAPPING.replace('unit = "probability"', "")
    mapped = score(theirs(shape), mapping)
    keys = ["measure", "model", "w_name", "pronoun"]
    pd.testing.assert_frame_equal(mapped.results[keys], expected[keys])
    for column in ("value", "low", "high", "p"):
        assert mapped.results[column].to_numpy() == pytest.approx(expected[column].to_numpy(), nan_ok=True, abs=1e-9)
    assert mapped.manifest["design"]["title"] == "recorded outputs (table.csv)"
    assert "--columns names.toml" in mapped.manifest["command"]
    notes = " ".join(mapped.manifest["design"]["w_notes"])
    assert ("which were multiplied by 100" in notes) == (unit != "percent")
    assert ("are log-probabilities" in notes) == (unit == "logprob")


def frame_of(table: str, mapping: str, name: str = "table.csv", audit: str = "spurious-correlation") -> pd.DataFrame:
    Path(name).write_text(table, encoding="utf-8")
    Path("names.toml").write_text(mapping, encoding="utf-8")
    return read_mapped(Path(name), Path("names.toml"), audits.load(audit), "")[0].frame


GROUPS = '[groups]\na = "p"\n'


@pytest.mark.parametrize(
    ("values", "places"),
    [
        (["9", "10", "2"], [1, 2, 0]),
        (["late", "early", "late"], [0, 1, 0]),
        (["1950-06-30", "1790-06-30", "1950-06-30"], [1, 0, 1]),
        (["30.06.1950", "30.06.1790"], [0, 1]),
    ],
)
def test_the_place_of_w_is_by_size_or_by_first_appearance(values: list[str], places: list[int]) -> None:
    rows = [f"{value},{at},5" for at, value in enumerate(values)]
    frame = frame_of("\n".join(["v,text_index,p", *rows]), f'[columns]\nw = "v"\n[constants]\nmodel = "m"\n{GROUPS}')
    assert list(frame["w_index"]) == places
    assert set(frame["w_name"]) == {"v"}
    design = read_mapped(Path("table.csv"), Path("names.toml"), audits.load("spurious-correlation"), "")[0].design
    unordered = not all(re.fullmatch("[0-9]+(-[0-9]+)*", value) for value in values)
    assert any("order is that of their first rows" in note for note in design["w_notes"]) == unordered
    assert (design["covariates"]["v"]["order"] == "dates, earliest first") == ("1790-06-30" in values)


@pytest.mark.parametrize(("rest", "column"), [("other_words", ""), ("rest", 'other_words = "rest"\n')])
def test_the_mass_of_other_words_is_in_the_unit_of_the_masses(rest: str, column: str) -> None:
    mapping = f'unit = "probability"\n[columns]\nw = "v"\n{column}[constants]\nmodel = "m"\n{GROUPS}'
    frame = frame_of(f"v,p,{rest}\n1,0.25,0.5\n2,0.5,\n", mapping)
    assert frame["other_words"].iloc[0] == 50.0
    assert math.isnan(frame["other_words"].iloc[1])


def test_task_specification_has_a_column_at_either_end() -> None:
    rows = (
        "job,who,kind,ref,s0,s1,h0,h1\nnurse,someone,someone,1,0.5,0.1,0.2,0.3\nnurse,woman,woman,0,0.5,0.5,0.2,0.2\n"
    )
    mapping = """
unit = "probability"
[columns]
occupation = "job"
participant = "who"
participant_class = "kind"
coreferent = "ref"
[groups]
female = ["s0", "s1"]
male = ["h0", "h1"]
[constants]
model = "m"
"""
    frame = frame_of(rows, mapping, audit="task-specification")
    assert list(frame["female"]) == pytest.approx([50.0, 50.0, 10.0, 50.0])
    assert list(frame["male"]) == pytest.approx([20.0, 20.0, 30.0, 20.0])
    assert list(frame["w"]) == ["first", "first", "last", "last"]


def test_tables_without_word_groups_are_renamed_whole() -> None:
    rows = "doc,right,said,llm\n1,gender,gender,m\n2,race,gender,m\n"
    mapping = '[columns]\ndocument = "doc"\ngold = "right"\nanswer = "said"\nmodel = "llm"\n'
    frame = frame_of(rows, mapping, audit="bias-identification")
    assert list(frame["document"]) == ["1", "2"]
    assert set(frame["model"]) == {"m"}


ALL = '[groups]\nfemale = "p_she"\nmale = "p_he"\n'


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"p_she"', '"p_shee"', "did you mean 'p_she'"), ('"year"', '"yeer"', "columns.w"),
        ('w = "year"', 'ww = "year"', "columns.ww"), ('w = "year"', "w = 3", "columns.w"), ('w = "year"\n', "", "'w'"),
        ('model = "checkpoint"\n', "", "'model'"), ('"probability"', '"percents"', "did you mean 'percent'"),
        ('"probability"', "[1]", "unit"), ("[columns]", "[colums]", "'columns'"), ("unit", "= unit", "TOML"),
        ("[groups]", '[constants]\nmodel = "x"\n[groups]', "'model'"),
        ("[groups]", "[constants]\nprompt = true\n[groups]", "constants.prompt"),
        ('female = "p_she"', 'w = "p_she"', "'w'"), ('female = "p_she"', 'female = ["p_she", "p_he"]', "groups"),
        ('female = "p_she"', 'female = ["p_she"]', "groups.female"), (ALL, "", "unit"),
    ],
)  # fmt: skip
def test_a_bad_mapping_is_refused_by_its_key(old: str, new: str, named: str) -> None:
    assert old in MAPPING
    assert_refused(("names.toml", named), score, theirs(), MAPPING.replace(old, new))
    options = {"audit": "spurious-correlation", "columns": "nowhere.toml"}
    assert_refused(("nowhere.toml",), undertow.score, "table.csv", **options)


@pytest.mark.parametrize(
    ("unit", "cell", "named"),
    [
        ("probability", "1.2", "p_she"), ("probability", "-0.1", "p_she"), ("probability", "abc", "p_she"),
        ("logprob", "0.5", "p_she"), ("percent", "101", "female"),
    ],
)  # fmt: skip
def test_a_bad_mass_is_refused_by_its_line(unit: str, cell: str, named: str) -> None:
    rows = theirs(lambda _: -1.0 if unit == "logprob" else 0.5).splitlines()
    rows[3] = rows[3].replace("0.5" if unit != "logprob" else "-1.0", cell, 1)
    named = f"table.csv, line 4: {named} is '{cell}'"
    assert_refused((named,), score, "\n".join(rows), MAPPING.replace("probability", unit))


def test_a_unit_that_cannot_be_inferred_can_be_written_in_the_mapping() -> None:
    mapping = MAPPING.replace('unit = "probability"', "")
    advice = 'or write unit = "percent" or "probability" in it'
    assert_refused(("add a column unit", f"names.toml, {advice}"), score, theirs(lambda _: 0.1), mapping)
