"""Tables of sentences: what a column means, what marks a blank, and one sentence for each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from undertow import challenge
from undertow.challenge.schemas import own_shares
from undertow.challenge.tables import Words, blank_of, marked, parse_options, read_sentences
from undertow.types import UndertowError

PRONOUNS = ["she", "her", "he", "him", "his", "they", "them", "their"]
WEATHER: Words = [("warm", "hot"), ("warm", "mild"), ("cold", "icy")]
GOOD = """\
id,sentence,weather,well_specified
walk,"Later, MASK left.",rain,no
king,"The king said MASK left.",sun,yes
"""


def read(folder: Path, text: str, name: str = "own.csv", options: Words = ()) -> challenge.SentenceSet:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_sentences(path, options)


def one_row(folder: Path, columns: str, cells: str, options: Words = ()) -> challenge.Sentence:
    """The sentence of a table with one row, its blank for a word after `It was`."""
    (sentence,) = read(folder, f"id,sentence,{columns}\nrow,It was ___.,{cells}\n", options=options).sentences
    return sentence


def refusal(folder: Path, text: str, name: str = "own.csv", options: Words = ()) -> str:
    """What is said of a bad table: one line that begins with the file's path."""
    with pytest.raises(UndertowError) as caught:
        read(folder, text, name, options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(folder / name))
    return message.removeprefix(str(folder / name))


@pytest.mark.parametrize("mark", ["MASK", "[MASK]", "<mask>", "___", "__", "______", "{blank}"])
@pytest.mark.parametrize("name", ["own.csv", "own.tsv"])
def test_what_marks_the_blank(mark: str, name: str, tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, f"sentence\nThen {mark} left.\n", name).sentences
    assert sentence.query.pieces == ("Then ", " left.")
    assert sentence.query.texts() == [f"Then {form} left." for form in PRONOUNS]


@pytest.mark.parametrize("text", ["Then MASKED left.", "UNMASK it.", "Then [mask] left.", "Then _ left.", "They left."])
def test_what_marks_no_blank(text: str) -> None:
    with pytest.raises(UndertowError) as caught:
        marked(text)
    assert str(caught.value) == f"{text!r}: has no blank; mark one, as {{blank}}, [MASK] or ___"


@pytest.mark.parametrize(
    ("text", "count"), [("MASK met ___.", 2), ("[MASK] and [MASK] and <mask> left.", 3), ("{blank}{blank} left.", 2)]
)
def test_a_sentence_has_one_blank(text: str, count: int) -> None:
    with pytest.raises(UndertowError) as caught:
        marked(text)
    assert str(caught.value) == f"{text!r}: has {count} blanks; mark one, as {{blank}}, [MASK] or ___"


def test_a_table_is_a_set_of_sentences(tmp_path: Path) -> None:
    chosen = read(tmp_path, GOOD)
    assert (chosen.name, chosen.title, chosen.source) == ("own", "sentences of own.csv", "own.csv")
    assert chosen.words == {
        "female": ("she", "her"),
        "male": ("he", "him", "his"),
        "neutral": ("they", "them", "their"),
    }
    walk, king = chosen.sentences
    assert (walk.id, walk.cluster, walk.gold, walk.query.shown()) == ("walk", "walk", None, "Later, ___ left.")
    assert walk.factors == {"weather": "rain", "well_specified": False}
    assert king.factors == {"weather": "sun", "well_specified": True}


@pytest.mark.parametrize("name", ["own.csv", "own.tsv"])
def test_a_table_is_found_by_its_path(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(GOOD if name.endswith("csv") else "sentence\tmood\nSoup is MASK.\tcalm\n", encoding="utf-8")
    options = "warm: hot; cold: icy"
    chosen = challenge.sentences(str(path), options=options)
    assert chosen == read_sentences(path, parse_options(options))
    assert chosen.words == {"warm": ("hot",), "cold": ("icy",)}


def test_quotes_mean_nothing_in_tsv(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, 'sentence\tmood\n"Well, MASK left\t"calm"\n', "own.tsv").sentences
    assert (sentence.query.shown(), sentence.factors) == ('"Well, ___ left', {"mood": '"calm"'})


def test_quotes_keep_commas_and_line_ends_together_in_csv(tmp_path: Path) -> None:
    text = 'sentence,mood\n"One, ""two"",\nMASK left.",calm\n___ came.,loud\n'
    first, second = read(tmp_path, text).sentences
    assert (first.query.shown(), first.factors) == ('One, "two",\n___ left.', {"mood": "calm"})
    assert second.id == "line 4"


def test_space_around_cells_and_empty_lines_are_nothing(tmp_path: Path) -> None:
    text = "\ufeff id , sentence \r\n\r\n walk , MASK left. \r\n\r\n"
    (sentence,) = read(tmp_path, text).sentences
    assert (sentence.id, sentence.query.pieces) == ("walk", ("", " left."))


def test_a_sentence_without_an_id_is_called_by_its_line(tmp_path: Path) -> None:
    chosen = read(tmp_path, "sentence\nMASK left.\n\nMASK came.\n")
    assert [(sentence.id, sentence.cluster) for sentence in chosen.sentences] == [("line 2",) * 2, ("line 4",) * 2]
    assert [item.id for item in chosen.plain()] == ["own/none/line 2", "own/none/line 4"]


def test_either_id_column_will_do(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, "sentid,sentence,mood\nany name\tat all,MASK left.,calm\n").sentences
    assert (sentence.id, sentence.factors) == ("any name\tat all", {"mood": "calm"})


def test_options_fill_the_blank_and_are_the_words(tmp_path: Path) -> None:
    chosen = read(tmp_path, "sentence\nSoup is MASK.\nMASK is soup.\n", options=WEATHER)
    assert chosen.words == {"warm": ("hot", "mild"), "cold": ("icy",)}
    assert chosen.groups == ("warm", "cold")
    first, second = chosen.sentences
    assert [(option.group, option.fills) for option in first.query.options] == [
        ("warm", ("hot",)),
        ("warm", ("mild",)),
        ("cold", ("icy",)),
    ]
    assert second.query.texts() == ["Hot is soup.", "Mild is soup.", "Icy is soup."]


@pytest.mark.parametrize(
    ("case", "forms"),
    [
        ("nominative", ["she", "he", "they"]),
        ("accusative", ["her", "him", "them"]),
        ("possessive", ["her", "his", "their"]),
        ("any", PRONOUNS),
        ("", PRONOUNS),
    ],
)
def test_the_case_of_a_pronoun(case: str, forms: list[str], tmp_path: Path) -> None:
    sentence = one_row(tmp_path, "pronoun_case", case)
    assert sentence.query.texts() == [f"It was {form}." for form in forms]
    assert sentence.factors == {"pronoun_case": case}


def test_a_verb_that_agrees_says_that_the_pronoun_is_its_subject(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, "sentence\nThen MASK {verb:was|were} late.\n").sentences
    assert sentence.query.texts() == ["Then she was late.", "Then he was late.", "Then they were late."]
    assert blank_of("___ {verb:is|are} soup.", WEATHER).texts() == ["Hot is soup.", "Mild is soup.", "Icy is soup."]


def test_other_columns_are_factors_and_stay_text(tmp_path: Path) -> None:
    sentence = one_row(tmp_path, "weather,degrees,empty", "rain,12,")
    assert sentence.factors == {"weather": "rain", "degrees": "12", "empty": ""}
    (item,) = challenge.SentenceSet("own", "", "", {}, (sentence,)).plain()
    assert {name: item.factors[name] for name in ("sentence", "weather", "degrees")} == {
        "sentence": "row",
        "weather": "rain",
        "degrees": "12",
    }


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("yes", True),
        ("Yes", True),
        ("TRUE", True),
        ("true", True),
        ("1", True),
        ("no", False),
        ("NO", False),
        ("False", False),
        ("0", False),
    ],
)
def test_whether_a_sentence_decides_is_said_in_many_ways(said: str, meant: bool, tmp_path: Path) -> None:
    assert one_row(tmp_path, "well_specified", said).factors["well_specified"] is meant


@pytest.mark.parametrize(
    ("columns", "cells", "decided", "gold"),
    [
        ("participant_class", "female", True, "female"),
        ("participant_class", "male", True, "male"),
        ("participant_class", "unspecified", False, None),
        ("participant_class", "man", None, None),
        ("participant_class,coreferent", "man,1", True, "male"),
        ("participant_class,coreferent", "woman,1", True, "female"),
        ("participant_class,coreferent", "man,0", False, None),
        ("participant_class,coreferent", "someone,1", False, None),
        ("participant_class,coreferent,well_specified", "someone,1,yes", True, None),
        ("participant_class,coreferent,well_specified", "woman,1,no", False, None),
        ("coreferent", "1", None, None),
        ("weather", "rain", None, None),
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


def test_gold_may_be_any_group_that_is_asked(tmp_path: Path) -> None:
    assert one_row(tmp_path, "gold", "cold", WEATHER).gold == "cold"
    assert one_row(tmp_path, "participant_class", "female", WEATHER).gold is None


@pytest.mark.parametrize(("said", "meant"), [("0", 0), ("1", 1)])
def test_whose_the_pronoun_is_is_a_number(said: str, meant: int, tmp_path: Path) -> None:
    coreferent = one_row(tmp_path, "coreferent", said).factors["coreferent"]
    assert (coreferent, type(coreferent)) == (meant, int)


@pytest.mark.parametrize(
    ("columns", "cells", "cluster"),
    [
        ("cluster", "east", "east"),
        ("cluster", "", "row"),
        ("occupation", "potter", "potter"),
        ("cluster,occupation", "east,potter", "east"),
        ("cluster,occupation", ",potter", "potter"),
        ("weather", "rain", "row"),
    ],
)
def test_whose_errors_go_together(columns: str, cells: str, cluster: str, tmp_path: Path) -> None:
    sentence = one_row(tmp_path, columns, cells)
    assert sentence.cluster == cluster
    assert "cluster" not in sentence.factors


def test_the_share_of_women_is_a_number_or_known_by_occupation(tmp_path: Path) -> None:
    assert one_row(tmp_path, "percent_female", "12.5").factors == {"percent_female": 12.5}
    assert one_row(tmp_path, "occupation", "nurse").factors == {
        "occupation": "nurse",
        "percent_female": own_shares()["nurse"],
    }
    assert one_row(tmp_path, "occupation,percent_female", "nurse,50").factors["percent_female"] == 50
    assert one_row(tmp_path, "occupation", "roofer").factors == {"occupation": "roofer"}


def test_ids_of_the_published_form_say_what_the_sentence_is(tmp_path: Path) -> None:
    text = "sentid\tsentence\nnurse_female_0\tThe female nurse said MASK won.\nroofer_unspecified_0\tThe roofer met MASK.\n"
    chosen = read(tmp_path, text, "any.tsv")
    assert (chosen.name, chosen.source) == ("simplified", "any.tsv")
    nurse, roofer = chosen.sentences
    assert (nurse.id, nurse.cluster, nurse.gold) == ("nurse_female_0", "nurse", "female")
    assert nurse.factors == {
        "occupation": "nurse",
        "participant": "female",
        "participant_class": "female",
        "coreferent": 0,
        "percent_female": own_shares()["nurse"],
        "well_specified": True,
    }
    assert (roofer.cluster, roofer.gold, roofer.factors["well_specified"]) == ("roofer", None, False)


def test_one_sentence_alone() -> None:
    chosen = challenge.single("mine", "The roofer said ___ fell.")
    (sentence,) = chosen.sentences
    assert (chosen.name, sentence.id, sentence.cluster, sentence.gold) == ("text", "mine", "mine", None)
    assert sentence.factors == {}
    assert sentence.query.texts() == [f"The roofer said {form} fell." for form in PRONOUNS]
    case = challenge.single("mine", "The roofer said ___ fell.", case="nominative")
    assert case.words == {"female": ("she",), "male": ("he",), "neutral": ("they",)}
    assert [option.fills for option in case.sentences[0].query.options] == [("she",), ("he",), ("they",)]


@pytest.mark.parametrize(
    "options", ["warm: hot, mild; cold: icy", {"warm": ["hot", "mild"], "cold": ["icy"]}], ids=["text", "table"]
)
def test_one_sentence_with_words_of_its_own(options: str | dict[str, list[str]]) -> None:
    own = challenge.single("mine", "Soup is [MASK].", options)
    assert own.words == {"warm": ("hot", "mild"), "cold": ("icy",)}
    assert own.sentences[0].query.texts() == ["Soup is hot.", "Soup is mild.", "Soup is icy."]


def test_words_may_stand_in_whatever_holds_them_in_order() -> None:
    words = ["hot", "mild"]
    for held in (tuple(words), np.array(words), pd.Series(words), pd.Index(words)):
        own = challenge.single("mine", "Soup is [MASK].", {"warm": held, "cold": ["icy"]})
        assert own.words == {"warm": ("hot", "mild"), "cold": ("icy",)}
        assert {type(word) for forms in own.words.values() for word in forms} == {str}


def test_words_that_somebody_else_gives_out_are_not_asked_for() -> None:
    def given() -> Iterator[str]:
        raise AssertionError("it was asked")
        yield "hot"

    with pytest.raises(UndertowError, match="group 'warm' needs a list of words"):
        challenge.single("mine", "Soup is [MASK].", {"warm": given(), "cold": ["icy"]})


@pytest.mark.parametrize(
    "words",
    [
        "hot", b"hot", {"hot": 1}, {"hot", "mild"}, 3, None, [""], range(2), iter(["hot"]), repeat("hot"),
        np.array("hot"), np.array([["hot"]]), np.array([1, 2]), np.array([]),
        pd.DataFrame({"hot": ["mild"]}), pd.MultiIndex.from_tuples([("hot", "mild")]),
    ],
)  # fmt: skip
def test_words_that_are_no_list_of_them_are_refused(words: Any) -> None:
    with pytest.raises(UndertowError, match="group 'warm' needs a list of words"):
        challenge.single("mine", "Soup is [MASK].", {"warm": words, "cold": ["icy"]})


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Soup\ud800 is MASK.", ""),
        ("Soup is MASK.", "a: x\ud800; b: y"),
        ("Soup is MASK.", {"a": ["x\ud800"], "b": ["y"]}),
        ("Soup is MASK.", {"\ud800": ["x"], "b": ["y"]}),
    ],
)
def test_half_of_a_character_is_refused(text: str, options: Any) -> None:
    with pytest.raises(UndertowError, match="the sentence holds half of a character"):
        challenge.single("mine", text, options)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Soup.", "", "'Soup.': has no blank; mark one"),
        ("Soup is ___.", "warm: hot", "needs at least two groups"),
        ("{when} MASK left.", "", "has a hole {when} that nothing fills"),
        ("MASK is here.", "a: Sie; b: sie", "'Sie' would count for 'a' and for 'b'"),
    ],
)
def test_one_sentence_that_is_refused(text: str, options: str, expected: str) -> None:
    with pytest.raises(UndertowError) as caught:
        challenge.single("mine", text, options)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


BAD = {
    "no sentences": ("id,sentence\n", ": holds no sentences"),
    "nothing": ("", ": has no column 'sentence'; a table of sentences needs one, with the blank marked as MASK"),
    "no such column": ("id,sentences\na,MASK left.\n", ": has no column 'sentence' (did you mean 'sentences'?);"),
    "no header": ("MASK left.\nMASK came.\n", ": has no column 'sentence'; a table"),
    "tabs in csv": ("id\tsentence\na\tMASK left.\n", ": has no column 'sentence'"),
    "column twice": ("sentence,mood,mood\nMASK left.,a,b\n", ": has two columns called 'mood'; give each column"),
    "sentence twice": ("sentence,sentence\nMASK left.,b\n", ": has two columns called 'sentence'"),
    "column of every table": ("sentence,model\nMASK left.,a\n", ": column 'model' cannot be called so; use another"),
    "column of w": ("sentence,w_index\nMASK left.,1\n", ": column 'w_index' cannot be called so"),
    "column that is no name": ("sentence,how it is\nMASK left.,a\n", ": column 'how it is' cannot be called so"),
    "column without a name": ("sentence,\nMASK left.,a\n", ": column '' cannot be called so"),
    "cell too few": ("sentence,mood\nMASK left.,a\nMASK came.\n", ", line 3: has 1 cells, but the header has 2"),
    "cell too many": ("sentence,mood\nWell, MASK left.,a\n", ", line 2: has 3 cells, but the header has 2"),
    "open quote": ('sentence\nMASK left.\n"MASK came.\n', ", line 3: is not CSV that can be read ("),
    "text behind a quote": ('sentence\n"MASK" left.\n', ", line 2: is not CSV that can be read ("),
    "id twice": (
        "id,sentence\na,MASK left.\nb,MASK left.\na,MASK came.\n",
        ", line 4: repeats the id 'a' of line 2; give each sentence its own",
    ),
    "no blank": ("sentence\nMASK left.\nShe left.\n", ", line 3: 'She left.': has no blank; mark one, as {blank}"),
    "two blanks": ("sentence\nMASK met MASK.\n", ", line 2: 'MASK met MASK.': has 2 blanks; mark one"),
    "other hole": ("sentence\nIn {w} MASK left.\n", ", line 2: 'In {w} {blank} left.': has a hole {w} that nothing"),
    "open brace": ("sentence\nMASK left {so.\n", ", line 2: template '{blank} left {so.': "),
    "case unknown": (
        "sentence,pronoun_case\nMASK left.,dative\n",
        ", line 2: pronoun_case 'dative' is not known; use nominative, accusative, possessive, any",
    ),
    "perhaps": (
        "sentence,well_specified\nMASK left.,no\nMASK came.,Perhaps\n",
        ", line 3: well_specified is 'Perhaps'; write yes or no, or drop the column",
    ),
    "not said": ("sentence,well_specified\nMASK left.,\n", ", line 2: well_specified is ''; write yes or no"),
    "coreferent": (
        "sentence,coreferent\nMASK left.,2\n",
        ", line 2: coreferent is '2'; it must be 0 (the professional) or 1 (the participant)",
    ),
    "coreferent of a class": (
        "sentence,participant_class,coreferent\nMASK left.,man,x\n",
        ", line 2: coreferent is 'x'",
    ),
    "share": ("sentence,percent_female\nMASK left.,half\n", ", line 2: percent_female 'half' is not a number"),
    "gold": (
        "sentence,gold\nMASK left.,woman\n",
        ", line 2: gold 'woman' is none of the groups female, male, neutral",
    ),
    "participant class": (
        "sentence,participant_class\nMASK left.,female\nMASK came.,men\n",
        ", line 3: participant_class 'men' is not known; use man, woman, someone, other, female, male, unspecified",
    ),
    "published id": (
        "sentid,sentence\nnurse_female_0,MASK left.\nroofer,MASK left.\n",
        ", line 3: sentid 'roofer' should be like doctor_female_0; or add columns, such as occupation",
    ),
    "published id of another class": (
        "sentid,sentence\nnurse_woman_0,MASK left.\n",
        ", line 2: sentid 'nurse_woman_0'",
    ),
    "published id without occupation": (
        "sentid,sentence\n_female_0,MASK left.\n",
        ", line 2: sentid '_female_0' should",
    ),
    "published id of nobody": ("sentid,sentence\nnurse_male_2,MASK left.\n", ", line 2: coreferent is '2'"),
    "control character": ("sentence\nMASK left.\nMASK\x07 came.\n", ", line 3: holds a control character"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_in_one_sentence_with_its_place(case: str, tmp_path: Path) -> None:
    text, expected = BAD[case]
    assert refusal(tmp_path, text).startswith(expected)


def test_what_is_wrong_in_tsv_has_its_line_too(tmp_path: Path) -> None:
    said = refusal(tmp_path, "sentence\tmood\nMASK left.\tcalm\n\nMASK, who came.\n", "own.tsv")
    assert said == ", line 4: has 1 cells, but the header has 2"


def test_a_line_end_in_quotes_does_not_shift_the_lines_below(tmp_path: Path) -> None:
    assert refusal(tmp_path, 'sentence\n"Then\nMASK left."\nNobody left.\n').startswith(", line 4: 'Nobody left.'")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (
            "id,sentence,participant_class\na,MASK left.,female\nb,MASK came.,man\n",
            (),
            "own: some sentences say whether they decide their blank and some do not",
        ),
        ("id,sentence,female\na,MASK left.,x\n", (), "own: a word group cannot be called 'female', as a column is"),
        ("id,sentence,cold\na,It is MASK.,x\n", WEATHER, "own: a word group cannot be called 'cold'"),
        ("id,sentence\na,It is MASK.\n", [("model", "x"), ("b", "y")], "own: a word group cannot be called 'model'"),
        ("id,sentence,percent_female\na,MASK left.,nan\n", (), "own, a: percent_female is nan"),
        ("id,sentence,percent_female\na,MASK left.,900\n", (), "own, a: percent_female is 900.0"),
    ],
)
def test_what_is_wrong_with_the_set_names_the_set(text: str, options: Words, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UndertowError) as caught:
        read_sentences(path, options)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ("MASK is here.", [("polite", "Sie"), ("she", "sie")], "'Sie' would count for 'polite' and for 'she'"),
        ("MASK is {here}.", WEATHER, "has a hole {here} that nothing fills"),
    ],
)
def test_options_that_a_sentence_cannot_take(row: str, options: Words, expected: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, f"sentence\nIt is MASK.\n{row}\n", options=options)
    assert said.startswith(", line 3: ")
    assert expected in said


def test_gold_is_one_of_the_users_own_groups(tmp_path: Path) -> None:
    said = refusal(tmp_path, "sentence,gold\nIt is MASK.,female\n", options=WEATHER)
    assert said == ", line 2: gold 'female' is none of the groups cold, warm"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(b"sentence\nMASK l\xe9ft.\n")
    with pytest.raises(UndertowError) as caught:
        read_sentences(path)
    assert str(caught.value) == f"{path}: byte 15 is not UTF-8; save the file as UTF-8 text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("female: she, her; male: he, him", [("female", "she"), ("female", "her"), ("male", "he"), ("male", "him")]),
        ("yes:is;no:is not", [("yes", "is"), ("no", "is not")]),
        (" warm : hot ,, mild ; cold: icy ; ", [("warm", "hot"), ("warm", "mild"), ("cold", "icy")]),
        ("a: x; b: y; a: z, x", [("a", "x"), ("a", "z"), ("b", "y")]),
        ("early: 5:00; late: 9:00", [("early", "5:00"), ("late", "9:00")]),
        ("xe: xe; 他: 他", [("xe", "xe"), ("他", "他")]),
    ],
)
def test_word_groups_from_one_line(text: str, expected: list[tuple[str, str]]) -> None:
    assert parse_options(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("female: she", "needs at least two groups to choose between"),
        ("a: x; a: y", "needs at least two groups"),
        ("she; he", "'she; he': write each group as 'name: word, word', with ; between groups"),
        ("a: x; b", "'a: x; b': write each group as"),
        (": x; b: y", "': x; b: y': write each group as"),
        ("a: x; b:", "group 'b' needs a list of words"),
        ("a: x; b: , ,", "group 'b' needs a list of words"),
        ("a: x, y; b: z, x", "'x' stands in two groups; choose one"),
    ],
)
def test_word_groups_that_are_refused(text: str, expected: str) -> None:
    with pytest.raises(UndertowError) as caught:
        parse_options(text)
    assert str(caught.value).startswith("options '")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
