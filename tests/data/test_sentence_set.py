from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data
from undertow.data.challenges.sentence_sources import names
from undertow.data.sentences.sentence_set import group_blank, pronoun_blank
from undertow.types import RESERVED_COLUMNS, Factor

SEASONS = data.Covariate("season", ("spring", "fall"))
TOWNS = data.Covariate("town", ("Rome",))
TEXTS = ("___ left early.", "The woman lost ___ coat.")
LEFT = pronoun_blank("{blank} left early.", "nominative")
COAT = pronoun_blank("The woman lost {blank} coat.", "possessive")
PAIR = data.SentenceSet(
    "pair",
    "Two sentences",
    "this test",
    {"female": ("she", "her"), "male": ("he", "his"), "neutral": ("they", "their")},
    (data.Sentence("left", LEFT, {"depth": 2}, "walks"), data.Sentence("coat", COAT, {"depth": 3}, "coats", "female")),
)

OWN = """
title = "Own"
source = "this test"
templates = [
    { text = "{blank} {verb} alone.", factors = { decided = false } },
    { text = "The king said that {blank} {verb}.", factors = { decided = true, gold = "male" } },
]
clusters = ["verb"]

[slots]
verb = ["sang", "slept"]

[groups]
female = ["she", "the queen"]
male = ["he"]
"""

write = partial(written, name="own.toml")


def test_injected_sentences_go_by_list_then_value_then_sentence() -> None:
    items = PAIR.inject(data.Injection.parse("In {w}: "), [SEASONS, TOWNS])
    texts = [f"In {w}: {text}" for w in ("spring", "fall", "Rome") for text in TEXTS]
    assert [item.query.display_text() for item in items] == texts  # type: ignore[union-attr]
    ids = ["pair/season/spring/coat", "pair/season/fall/left", "pair/season/fall/coat", "pair/town/Rome/left"]
    assert [item.id for item in items[1:5]] == ids
    told = {"challenge": "pair", "w_name": "season", "w_index": 1, "w_value": 1.0, "w": "fall"}
    assert items[3].factors == told | {"sentence": "coat", "depth": 3}
    assert [(item.cluster, item.gold) for item in items[:2]] == [("walks", None), ("coats", "female")]
    assert PAIR.inject(data.Injection.parse("In {w}: "), []) == []


@pytest.mark.parametrize("named", ["season", "none"])
def test_w_lists_that_results_could_not_tell_apart_are_refused(named: str) -> None:
    lists = [SEASONS, TOWNS, data.Covariate(named, ("1801", "2016"))]
    assert_refused((repr(named),), PAIR.inject, data.Injection.parse("In {w}: "), lists)


def made(words: tuple[str, ...], *sentences: tuple[dict[str, Factor], str | None]) -> data.SentenceSet:
    forms = {group: (f"a {group}",) for group in words}
    query = group_blank("It is {blank}.", [(group, form) for group, (form,) in forms.items()])
    numbered = enumerate(sentences, 1)
    asked = [data.Sentence(f"number {number}", query, factors, "", gold) for number, (factors, gold) in numbered]
    return data.SentenceSet("made", "", "", forms, tuple(asked))


def test_a_word_group_called_like_a_column_or_a_factor_of_any_sentence_is_refused() -> None:
    for name in sorted(RESERVED_COLUMNS):
        assert_refused(("made", repr(name)), made, ("other", name), ({}, None))
    assert_refused(("made", "'mood'"), made, ("mood", "other"), ({}, None), ({"mood": "calm"}, None))
    assert made(("mood", "other"), ({"moods": "calm"}, None)).groups == ("mood", "other")


def test_a_factor_that_measures_read_is_refused_unless_it_is_what_they_expect() -> None:
    odd: dict[str, tuple[Factor, ...]] = {
        "well_specified": ("yes", 1),
        "coreferent": (2, "1"),
        "percent_female": ("12", 100.5, -1, float("nan"), True),
    }
    for name, levels in odd.items():
        first: dict[str, Factor] = {"well_specified": True} if name == "well_specified" else {}
        for level in levels:
            assert_refused(("made, number 2", name), made, ("a", "b"), (first, None), ({name: level}, None))
    assert_refused(("made, number 2", "gold"), made, ("a", "b"), ({}, None), ({}, "c"))
    assert_refused(("made",), made, ("a", "b"), ({"well_specified": True}, "a"), ({}, None))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("In {w}: ", "In fall: ___ left early."),
        ("{w}. ", "fall. ___ left early."),
        ("{text} It was {w}.", "___ left early. It was fall."),
        ("In {w}, they said: '{text}'", "In fall, they said: '___ left early.'"),
        ("{{{w}}} ", "{fall} ___ left early."),
    ],
)
def test_where_a_value_goes(template: str, expected: str) -> None:
    query = PAIR.sentences[0].query
    (injected,) = data.Injection.parse(template).into([query], "fall")
    assert injected.display_text() == expected
    assert injected.options == query.options
    (injected,) = data.Injection.parse(template).into([query], "{text}")
    assert injected.display_text() == expected.replace("fall", "{text}")


def test_an_injection_without_one_place_for_w_is_refused() -> None:
    for template, named in (
        ("", "{w}"), ("In 1901: ", "{w}"), ("{text} It was so.", "{w}"), ("{{w}}: ", "{w}"), ("In {year}: ", "{year}"),
        ("In {w}, {blank}", "{blank}"), ("{text} {w} {text}", "{text}"), ("In {w: ", "{{"), ("In {w.x}: ", "placeholder"),
        ("In {}: ", "placeholder"), ("In {w!r}: ", "placeholder"),
    ):  # fmt: skip
        assert_refused((repr(template), named), data.Injection.parse, template)


def test_a_sentence_with_other_holes_is_refused() -> None:
    for text, named in (
        ("She left.", "{blank}"), ("{{blank}} left.", "{blank}"), ("The cook {verb:was|were} late.", "{blank}"),
        ("{blank} met {w}.", "{w}"), ("{blank} {verb:was}.", "placeholder"), ("{blank} {verb:was|were|be}.", "placeholder"),
        ("{blank left.", "{{"),
    ):  # fmt: skip
        assert_refused((named,), pronoun_blank, text, "nominative")


def test_a_challenge_file_without_w_is_a_set_of_sentences(tmp_path: Path) -> None:
    chosen = data.load_sentences(write(tmp_path, OWN))
    assert (chosen.name, chosen.title, chosen.source) == ("own", "Own", "this test")
    assert chosen.words == {"female": ("she", "the queen"), "male": ("he",)}
    ids = [f"template {template}/{verb}" for template in (0, 1) for verb in ("sang", "slept")]
    assert [sentence.id for sentence in chosen.sentences] == ids
    assert chosen.sentences[0].query.texts() == ["She sang alone.", "The queen sang alone.", "He sang alone."]
    assert [sentence.gold for sentence in chosen.sentences] == [None, None, "male", "male"]
    assert [sentence.cluster for sentence in chosen.sentences] == ["sang", "slept", "sang", "slept"]
    told = {"template": "The king said that {blank} {verb}.", "verb": "slept", "decided": True}
    assert chosen.sentences[3].factors == told
    none = data.load_sentences(write(tmp_path, OWN.replace('gold = "male"', 'gold = ""')))
    assert {sentence.gold for sentence in none.sentences} == {None}
    path = write(tmp_path, OWN.replace('gold = "male"', 'gold = "king"'))
    assert_refused(("own, template 1/sang", "'king'"), data.load_sentences, path)


def test_a_place_for_w_is_either_in_the_challenge_or_in_the_injection(tmp_path: Path) -> None:
    without = data.load(write(tmp_path, OWN))
    assert_refused(("'own'", "'{blank} {verb} alone.'"), without.items, [SEASONS])
    within = write(tmp_path, OWN.replace("said that", "said in {w} that"))
    for name in ("mgc", within):
        assert_refused(("{w}", "--inject"), data.load_sentences, name)


def test_a_challenge_that_cannot_be_found_or_takes_no_such_option_is_refused(tmp_path: Path) -> None:
    assert_refused(("rows.jsonl", ".toml, .csv or .tsv"), data.load, written(tmp_path, "{}", "rows.jsonl"))
    column = written(tmp_path, "sentence\tmy factor\n{blank} ran.\ta\n")
    assert_refused(("'my factor'", "underscores"), data.load_sentences, column)
    for arguments, named in (
        (("winogendre",), ("'winogendre'", "did you mean 'winogender'", *names())),
        (("absent.toml",), ("'absent.toml'",)),
        (("simplified", "folder"), ("'simplified'", "--data-dir")),
        (("simplified", "", "a: x; b: y"), ("'simplified'", "--options")),
    ):
        assert_refused(named, data.load_sentences, *arguments)
