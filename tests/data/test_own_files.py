from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data
from undertow.types import ClozeQuery

GOOD = """
title = "Own"
templates = ["In {w}, {blank} {verb} here."]
clusters = ["verb"]

[w]
season = ["spring", "summer", "autumn", "winter"]

[slots]
verb = ["lived", "worked"]

[groups]
xe = ["xe"]
ze = ["ze", "zie"]
"""

write = partial(written, name="own.toml")


def test_several_blanks_are_filled_together(tmp_path: Path) -> None:
    text = """
    templates = ["{name} said in {w} that {name} lost {own} keys."]
    w = "date"
    [blanks.name]
    female = ["she"]
    male = ["he"]
    [blanks.own]
    female = ["her"]
    male = ["his"]
    """
    query = data.load(write(tmp_path, text)).items()[0].query
    assert isinstance(query, ClozeQuery)
    assert query.display_text() == "___ said in 1801 that ___ lost ___ keys."
    assert query.text(query.options[1].fills) == "He said in 1801 that he lost his keys."


def test_template_factors_and_literal_braces(tmp_path: Path) -> None:
    text = """
    clusters = ["valence"]
    w = ["date"]
    words = "pronouns"
    [[templates]]
    text = "In {w} {{so}} {blank} won."
    factors = { valence = "good" }
    [[templates]]
    text = "In {w} {blank} lost."
    factors = { valence = "bad" }
    """
    items = data.load(write(tmp_path, text)).items()
    assert items[0].query.display_text() == "In 1801 {so} ___ won."  # type: ignore[union-attr]
    assert {item.cluster for item in items} == {"good", "bad"}


def test_a_capital_does_not_depend_on_the_w_value(tmp_path: Path) -> None:
    text = """
    templates = ["In {w} {blank} lived.", "{w}. {blank} lived.", "“{blank} lived in {w}.”", "¿{blank} was in {w}?"]
    words = "pronouns"
    [w]
    town = ["Washington D.C.", "Rome", "Why?"]
    """
    items = data.load(write(tmp_path, text)).items()
    by_template: dict[object, set[str]] = {}
    for item in items:
        assert isinstance(item.query, ClozeQuery)
        by_template.setdefault(item.factors["template"], set()).add(item.query.options[0].fills[0])
    assert list(by_template.values()) == [{"she"}, {"She"}, {"She"}, {"She"}]


HEAD, _, GROUPS = GOOD.partition("[groups]")
KINDS = """
w = ["date"]
words = "pronouns"
templates = [
    {text = "In {w} {blank} won.", factors = {k = "a"}},
    {text = "In {w} {blank} lost.", factors = {k = 2}},
]
"""
SIE = 'w = ["date"]\ntemplates = ["{blank} war in {w} hier."]\n[groups]\nshe = ["sie"]\npolite = ["Sie"]'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD.replace("{blank}", "{blank"), "{{"), ("", "templates"), ("templates = [", "TOML"), ("title = 'a\x01'", "line 1"),
        (SIE, "'Sie'"), (KINDS, "'k'"), (HEAD, "groups"), (GOOD.replace("title", "titel"), "did you mean 'title'"),
        (GOOD.replace('["In {w}, {blank} {verb} here."]', "[]"), "templates"),
        (GOOD.replace("In {w}, {blank} {verb} here.", " "), "templates 1"), (GOOD.replace("{blank} ", ""), "{blank}"),
        (GOOD.replace("In {w}, ", ""), "{w}"), (GOOD.replace("{verb}", "{vreb}"), "did you mean 'verb'"),
        (GOOD.replace(" {verb}", ""), "slot 'verb'"), (GOOD.replace('["lived", "worked"]', "[]"), "slots.verb"),
        (GOOD.replace('xe = ["xe"]', ""), "groups"), (GOOD.replace('"zie"', '"xe"'), "'xe'"),
        (GOOD.replace('"autumn", "winter"', ""), "season"), (GOOD.replace("winter", "spring"), "season"),
        (GOOD.replace('xe = ["xe"]', 'answer = ["xe"]'), "group 'answer'"), (GOOD.replace("verb", "blank"), "'blank'"),
        (GOOD.replace("verb", "truncated_prob"), "slot 'truncated_prob'"),
        (GOOD.replace('xe = ["xe"]', '"ze.low" = ["xe"]'), "group 'ze.low' ends like a column of bounds"),
        (GOOD.replace('["verb"]', '["place"]'), "'place'"),
        (GOOD.replace("clusters", 'gaps = [["xe", "she"]]\nclusters'), "gaps"),
        *((f'{GOOD}\n{key} = {value}', f"{key} is in [groups]") for key, value in (("gaps", [["xe", "she"]]), ("clusters", ["verb"]))),
        (GOOD.replace("[groups]", "source = 'x'\n[groups]"), "[slots]"),
        (HEAD.replace("title", 'words = "pronuns"\ntitle'), "did you mean 'pronouns'"),
        (GOOD.replace("winter", "nan"), "'nan' is not a finite number"), (KINDS.replace("2}", "[2]}"), "must be a text or a number"),
        (KINDS.replace("2}", "1e300}"), "too large"), (KINDS.replace('["date"]', "3"), "must name W lists"),
        (KINDS.replace('["date"]', '["date", "date"]'), "'date' is listed more than once"),
        (GOOD.replace('here."]', 'here.", "In {w}, {blank} {verb} here."]'), "is listed more than once"),
        (GOOD.replace("verb =", '"a-verb" =').replace("verb}", "a-verb}"), "'a-verb'"),
        (f'{GOOD}[[controls]]\ntext = "In {{w}}, {{blank}} sat."\ngold = "xe"', "has a place for W"),
        (f'{GOOD}[[controls]]\ntext = "{{blank}} sat."\ngold = "xer"', "did you mean 'xe'"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_its_key(text: str, named: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    assert_refused((named,), lambda: data.load(path).items())


def test_damaged_w_files_unknown_names_and_dates_that_hold_no_list_are_refused(tmp_path: Path) -> None:
    for content, named in (
        (b"\n \n", "no W values"),
        (b"a\nb\n", "3"),
        (b"a\nb\nc\na\n", "line 4"),
        (b"a\xff\nb", "byte 1"),
    ):
        path = written(tmp_path, content, "w.txt")
        assert_refused((path, named), data.load_covariate, path)
    cases: list[tuple[Callable[..., object], tuple[Any, ...], tuple[str, ...]]] = [
        (data.load, ("mgc", "AAAI"), ("did you mean 'aaai'",)),
        (data.load_prompts, ("a",), ("did you mean 'A'",)),
        (data.load, (str(tmp_path),), (str(tmp_path),)),
        *(
            (data.Dates(*span).to_covariate, (), ("date",))
            for span in ((1801, 2016, 2), (1900, 1905, 30), (1900, 1900, 5))
        ),
    ]
    for read, given, said in cases:
        assert_refused(said, read, *given)


def test_a_w_list_that_is_named_twice_or_that_no_template_serves_is_refused() -> None:
    date = data.load_covariate("date")
    assert_refused(("two lists called 'date'",), data.load("mgc").items, [date, date])
    # The results call a sentence without W so.
    assert_refused(("'none'",), data.load("mgc").items, [replace(date, name="none")])
    chosen = data.load("mgt-icml")
    assert chosen.items([data.load_covariate("subreddit")])
    only = replace(chosen, templates=chosen.templates[:2])
    assert_refused(("'subreddit'",), only.items, [data.load_covariate("subreddit")])
