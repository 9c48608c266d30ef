"""Users' own files: any groups, several blanks, W lists; and one sentence for each thing that can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from undertow import challenge
from undertow.types import Blank, UndertowError

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


def write(folder: Path, text: str, name: str = "own.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_own_groups_slots_w_and_clusters(tmp_path: Path) -> None:
    chosen = challenge.load(write(tmp_path, GOOD))
    items = chosen.items()
    assert (len(items), chosen.name, chosen.words.groups, chosen.gaps) == (8, "own", ("xe", "ze"), (("xe", "ze"),))
    assert {item.cluster for item in items} == {"lived", "worked"}
    query = items[0].query
    assert isinstance(query, Blank)
    assert [(option.group, option.fills) for option in query.options] == [
        ("xe", ("xe",)),
        ("ze", ("ze",)),
        ("ze", ("zie",)),
    ]


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
    query = challenge.load(write(tmp_path, text)).items()[0].query
    assert isinstance(query, Blank)
    assert query.shown() == "___ said in 1801 that ___ lost ___ keys."
    assert query.text(query.options[1].fills) == "He said in 1801 that he lost his keys."


def test_a_w_file_has_one_value_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffRome\n\n  Paris \nSão Paulo\n东京\n", "town.txt")
    spectrum = challenge.spectrum(path)
    assert (spectrum.name, spectrum.values) == ("town", ("Rome", "Paris", "São Paulo", "东京"))


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
    items = challenge.load(write(tmp_path, text)).items()
    assert items[0].query.shown() == "In 1801 {so} ___ won."  # type: ignore[union-attr]
    assert {item.cluster for item in items} == {"good", "bad"}


def test_a_capital_does_not_depend_on_the_w_value(tmp_path: Path) -> None:
    text = """
    templates = ["In {w} {blank} lived.", "{w}. {blank} lived.", "“{blank} lived in {w}.”", "¿{blank} was in {w}?"]
    words = "pronouns"
    [w]
    town = ["Washington D.C.", "Rome", "Why?"]
    """
    items = challenge.load(write(tmp_path, text)).items()
    by_template: dict[object, set[str]] = {}
    for item in items:
        assert isinstance(item.query, Blank)
        by_template.setdefault(item.factors["template"], set()).add(item.query.options[0].fills[0])
    assert list(by_template.values()) == [{"she"}, {"She"}, {"She"}, {"She"}]


BAD = {
    "one text in two groups": (
        'w = ["date"]\ntemplates = ["{blank} war in {w} hier."]\n[groups]\nshe = ["sie"]\npolite = ["Sie"]',
        "'Sie' would count for 'she' and for 'polite'",
    ),
    "factor of two kinds": (
        'w = ["date"]\nwords = "pronouns"\ntemplates = [{text = "In {w} {blank} won.", factors = {k = "a"}}, '
        '{text = "In {w} {blank} lost.", factors = {k = 2}}]',
        "factor 'k' is a text in one template and a number in another",
    ),
    "empty file": ("", "needs templates"),
    "not toml": ("templates = [", "not valid TOML"),
    "unknown key": (GOOD.replace("title", "titel"), "unknown key 'titel'.*did you mean 'title'"),
    "no templates": (GOOD.replace('["In {w}, {blank} {verb} here."]', "[]"), "needs templates"),
    "empty template": (GOOD.replace("In {w}, {blank} {verb} here.", " "), "template 1: must be a text"),
    "blank missing": (GOOD.replace("{blank} ", ""), "has no blank for the model to fill; write {blank}"),
    "w missing": (GOOD.replace("In {w}, ", ""), "has no place for W; write {w}"),
    "unknown hole": (GOOD.replace("{verb}", "{vreb}"), "hole {vreb} that nothing fills.*did you mean 'verb'"),
    "open brace": (GOOD.replace("{blank}", "{blank"), "for literal braces"),
    "attribute hole": (GOOD.replace("{blank}", "{blank} {w.x}"), "must be a plain name"),
    "unused slot": (GOOD.replace(" {verb}", ""), "slot 'verb' is used by no template"),
    "empty slot": (GOOD.replace('["lived", "worked"]', "[]"), "slot 'verb': must be a list"),
    "one group": (GOOD.replace('xe = ["xe"]', ""), "at least two groups"),
    "word twice": (GOOD.replace('"zie"', '"xe"'), "stands in group 'xe' and in group 'ze'"),
    "two values": (GOOD.replace('"autumn", "winter"', ""), "needs at least 3"),
    "value twice": (GOOD.replace("winter", "spring"), "more than once"),
    "group named like a column": (
        GOOD.replace('xe = ["xe"]', 'model = ["xe"]'),
        "group 'model' has the name of a column",
    ),
    "slot named like a blank": (GOOD.replace("verb", "blank"), "has the name of"),
    "unknown cluster": (GOOD.replace('["verb"]', '["place"]'), "clusters names 'place'"),
    "unknown words": (
        GOOD.partition("[groups]")[0].replace("title", 'words = "pronuns"\ntitle'),
        "did you mean 'pronouns'",
    ),
    "no words": (GOOD.partition("[groups]")[0], "exactly one of words, groups or blanks"),
    "bad gap": (GOOD.replace("clusters", 'gaps = [["xe", "she"]]\nclusters'), "gaps must be pairs"),
    "control character": ("title = 'a\x01'", "line 1: holds a control character"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_in_one_sentence(case: str, tmp_path: Path) -> None:
    text, expected = BAD[case]
    with pytest.raises(UndertowError, match=f"(?s)(own.toml|template).*{expected}") as caught:
        challenge.load(write(tmp_path, text)).items()
    assert "\n" not in str(caught.value).partition("TOML")[0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "holds no W values"),
        (b"\n \n", "holds no W values"),
        (b"a\nb\n", "needs at least 3"),
        (b"a\nb\nc\na\n", "line 4: repeats 'a' of line 1"),
        (b"a\xff\nb\nc\n", "byte 1 is not UTF-8"),
        (b"a\x00b\nb\nc\n", "line 1: holds a control character"),
    ],
)
def test_bad_w_files(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_bytes(content)
    with pytest.raises(UndertowError, match=expected):
        challenge.spectrum(str(path))


def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match=r"no challenge called 'mgtt'.*did you mean 'mgt'"):
        challenge.load("mgtt")
    with pytest.raises(UndertowError, match=r"no W called 'dates'.*did you mean 'date'"):
        challenge.spectrum("dates")
    with pytest.raises(UndertowError, match="no challenge called"):
        challenge.load(str(tmp_path))


@pytest.mark.parametrize(("start", "stop", "count"), [(1801, 2016, 2), (1900, 1905, 30), (1900, 1900, 5)])
def test_date_ranges_that_hold_no_list(start: int, stop: int, count: int) -> None:
    with pytest.raises(UndertowError, match="date"):
        challenge.Dates(start, stop, count).spectrum()


def test_one_w_list_is_named_once() -> None:
    with pytest.raises(UndertowError, match="names one list twice"):
        challenge.load("mgc").items([challenge.spectrum("date"), challenge.spectrum("date")])


def test_a_w_that_no_template_serves() -> None:
    chosen = challenge.load("mgt-icml")
    assert chosen.items([challenge.spectrum("subreddit")])
    only = challenge.ChallengeSet(
        **{name: getattr(chosen, name) for name in chosen.__slots__} | {"templates": chosen.templates[:2]}
    )
    with pytest.raises(UndertowError, match="no template serves the W list 'subreddit'"):
        only.items([challenge.spectrum("subreddit")])
