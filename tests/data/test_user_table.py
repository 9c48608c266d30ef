from __future__ import annotations

from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.file_refusal import assert_refused, written
from undertow import data
from undertow.data.challenges.sentence_sources import Words, cloze_query, parse_options, read_sentences

PRONOUNS = ["she", "her", "he", "him", "his", "they", "them", "their"]
WEATHER: Words = [("warm", "hot"), ("warm", "mild"), ("cold", "icy")]
GOOD = """\
id,sentence,weather,well_specified
walk,"Later, MASK left.",rain,no
king,"The king said MASK left.",sun,yes
"""


def read(folder: Path, text: str, name: str = "own.csv", options: Words = ()) -> data.SentenceSet:
    return read_sentences(Path(written(folder, text, name)), options)


def one_row(folder: Path, columns: str, cells: str, options: Words = ()) -> data.Sentence:
    """The sentence of a table with one row, its blank for a word after `It was`."""
    (sentence,) = read(folder, f"id,sentence,{columns}\nrow,It was ___.,{cells}\n", options=options).sentences
    return sentence


def test_a_table_is_a_set_of_sentences(tmp_path: Path) -> None:
    chosen = read(tmp_path, GOOD)
    assert (chosen.name, chosen.title, chosen.source) == ("own", "sentences of own.csv", "own.csv")
    words = {"female": ("she", "her"), "male": ("he", "him", "his"), "neutral": ("they", "them", "their")}
    assert chosen.words == words
    walk, king = chosen.sentences
    assert (walk.id, walk.cluster, walk.gold, walk.query.display_text()) == ("walk", "walk", None, "Later, ___ left.")
    assert [one.factors for one in (walk, king)] == [
        {"weather": "rain", "well_specified": False}, {"weather": "sun", "well_specified": True},
    ]  # fmt: skip
    options, path = "warm: hot; cold: icy", tmp_path / "own.csv"
    assert data.load_sentences(str(path), options=options) == read_sentences(path, parse_options(options))
    (item,) = data.SentenceSet("own", "", "", {}, (walk,)).plain()
    assert item.factors.items() >= {"sentence": "walk", "weather": "rain"}.items()


@pytest.mark.parametrize(
    ("case", "forms"),
    [
        ("nominative", ["she", "he", "they"]), ("accusative", ["her", "him", "them"]),
        ("possessive", ["her", "his", "their"]), ("any", PRONOUNS), ("", PRONOUNS),
    ],
)  # fmt: skip
def test_the_case_of_a_pronoun(case: str, forms: list[str], tmp_path: Path) -> None:
    sentence = one_row(tmp_path, "pronoun_case", case)
    assert sentence.query.texts() == [f"It was {form}." for form in forms]
    assert sentence.factors == {"pronoun_case": case}
    # a verb that agrees says that the pronoun is its subject
    (sentence,) = read(tmp_path, "sentence\nThen MASK {verb:was|were} late.\n").sentences
    assert sentence.query.texts() == ["Then she was late.", "Then he was late.", "Then they were late."]
    assert cloze_query("___ {verb:is|are} soup.", WEATHER).texts() == ["Hot is soup.", "Mild is soup.", "Icy is soup."]


@pytest.mark.parametrize(
    ("columns", "cells", "decided", "gold"),
    [
        ("participant_class", "female", True, "female"),
        ("participant_class", "unspecified", False, None),
        ("participant_class,coreferent", "man,1", True, "male"),
        ("participant_class,coreferent", "man,0", False, None),
        ("participant_class,coreferent", "someone,1", False, None),
        ("participant_class,coreferent,well_specified", "someone,1,yes", True, None),
        ("participant_class,coreferent,well_specified", "woman,1,no", False, None),
        ("coreferent", "1", None, None),
        ("gold", "neutral", None, "neutral"),
        ("gold", "", None, None),
        ("gold,well_specified", "female,no", False, "female"),
        ("participant_class,gold", "female,male", True, "male"),
    ],
)
def test_what_a_sentence_decides(
    columns: str, cells: str, decided: bool | None, gold: str | None, tmp_path: Path
) -> None:
    sentence = one_row(tmp_path, columns, cells)
    assert sentence.factors.get("well_specified") is decided
    assert sentence.gold == gold
    assert "gold" not in sentence.factors
    assert one_row(tmp_path, "gold", "cold", WEATHER).gold == "cold"
    assert one_row(tmp_path, "participant_class", "female", WEATHER).gold is None


@pytest.mark.parametrize(
    ("columns", "cells", "cluster"),
    [
        ("cluster", "east", "east"), ("cluster", "", "row"), ("occupation", "potter", "potter"),
        ("cluster,occupation", "east,potter", "east"), ("cluster,occupation", ",potter", "potter"),
        ("weather", "rain", "row"),
    ],
)  # fmt: skip
def test_whose_errors_go_together(columns: str, cells: str, cluster: str, tmp_path: Path) -> None:
    sentence = one_row(tmp_path, columns, cells)
    assert sentence.cluster == cluster
    assert "cluster" not in sentence.factors


@pytest.mark.parametrize(
    "words",
    [
        "hot", {"hot": 1}, {"hot", "mild"}, None, [""], range(2), repeat("hot"), np.array([["hot"]]), np.array([]),
        pd.DataFrame({"hot": ["mild"]}),
    ],
)  # fmt: skip
def test_words_that_are_no_list_of_texts_are_refused(words: Any) -> None:
    assert_refused(("'warm'",), data.single, "mine", "Soup is [MASK].", {"warm": words, "cold": ["icy"]})


@pytest.mark.parametrize(
    ("text", "options", "named"),
    [
        ("Soup\ud800 is MASK.", "", "half of a character"), ("Soup.", "", "'Soup.'"),
        ("Soup is MASK.", {"\ud800": ["x"], "b": ["y"]}, "half of a character"),
        ("{when} MASK left.", "", "{when}"), ("MASK is here.", "a: Sie; b: sie", "'Sie'"),
        *(("Soup is ___.", options, "options '")
          for options in (" ; ", "a: x", "a: x; a: y", "a; b", ": x; b: y", "a: x; b: , ,", "a: x, y; b: z, x")),
    ],
)  # fmt: skip
def test_one_sentence_that_cannot_be_asked_is_refused(text: str, options: Any, named: str) -> None:
    assert_refused((named,), data.single, "mine", text, options)


@pytest.mark.parametrize(
    ("text", "named", "options"),
    [
        ("", "is empty", ()), ("id,sentence\n", "no rows", ()),
        ("id,sentences\na,MASK left.\n", "did you mean 'sentences'", ()),
        ("sentence,mood,mood\nMASK left.,a,b\n", "'mood'", ()), ("sentence,model\nMASK left.,a\n", "'model'", ()),
        ("sentence,mood\nMASK left.,a\nMASK came.\n", "line 3", ()),
        ('sentence\nMASK left.\n"MASK came.\n', "line 3", ()), ('sentence\n"MASK" left.\n', "line 2", ()),
        ('sentence\n"Then\nMASK left."\nNobody left.\n', "line 4", ()),
        ("id,sentence\na,MASK left.\nb,MASK left.\na,MASK came.\n", "line 4", ()),
        ("sentence\nMASK met MASK.\n", "line 2", ()), ("sentence\nIn {w} MASK left.\n", "{w}", ()),
        ("sentence\nMASK left {so.\n", "line 2", ()), ("sentence\nMASK left.\nMASK\x07 came.\n", "line 3", ()),
        ("sentence,pronoun_case\nMASK left.,dative\n", "line 2: pronoun_case 'dative'", ()),
        ("sentence,well_specified\nMASK left.,no\nMASK came.,Perhaps\n", "line 3: well_specified", ()),
        ("sentence,coreferent\nMASK left.,2\n", "line 2: coreferent", ()),
        ("sentence,percent_female\nMASK left.,half\n", "line 2: percent_female", ()),
        ("sentence,gold\nIt is MASK.,female\n", "line 2: gold", WEATHER),
        ("sentence,participant_class\nMASK left.,female\nMASK came.,men\n", "line 3: participant_class", ()),
        ("sentid,sentence\nnurse_female_0,MASK left.\nroofer,MASK left.\n", "line 3: sentid", ()),
        # Of the whole table.
        ("id,sentence,participant_class\na,MASK left.,female\nb,MASK came.,man\n", "well_specified", ()),
        ("id,sentence,female\na,MASK left.,x\n", "'female'", ()),
        ("id,sentence,percent_female\na,MASK left.,900\n", "line 2: percent_female", ()),
    ],
)  # fmt: skip
def test_a_damaged_table_is_refused_by_file_and_place(text: str, named: str, options: Words, tmp_path: Path) -> None:
    assert_refused(("own", named), read, tmp_path, text, "own.csv", options)
    (tmp_path / "own.csv").write_bytes(b"sentence\nMASK l\xe9ft.\n")
    assert_refused(("own.csv", "byte 15"), read_sentences, tmp_path / "own.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("female: she, her; male: he, him", {"female": ["she", "her"], "male": ["he", "him"]}),
        (" warm : hot ,, mild ; cold: icy ; ", {"warm": ["hot", "mild"], "cold": ["icy"]}),
        ("early: 5:00; 他: 他", {"early": ["5:00"], "他": ["他"]}),
    ],
)
def test_word_groups_from_one_line(text: str, expected: dict[str, list[str]]) -> None:
    assert parse_options(text) == [(group, word) for group, words in expected.items() for word in words]
