"""The package's own statements are well formed, balanced, told apart by no keyword, and nobody else's twice.

Knows the table as text; knows nothing about how documents are loaded or asked about.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from numpy.typing import NDArray

import undertow
from undertow.challenge.documents import CATEGORIES, DIMENSIONS

TABLE = Path(undertow.__file__).parent / "challenge" / "sets" / "undertow-statements.tsv"
COLUMNS = ["id", "split", "text", "biased", "dimension", "span", "rephrasing"]
SPLITS = ("evaluation", "train")
TRAINED = {"identity": 3, "affiliation": 7}
"""Biased rows of a dimension in the train split, by its category; the evaluation split has six of each."""
RUN_WORDS = 6
"""So many words in a row would be a copy."""
CLOSING = " .,?!"
SENTENCES = re.compile(r"[A-Z][^.?!]*[.?!]( [A-Z][^.?!]*[.?!])?")
END = re.compile(r"[.?!,]?$")

Row = dict[str, str]


@cache
def rows() -> tuple[Row, ...]:
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def biased() -> list[Row]:
    return [row for row in rows() if row["biased"] == "yes"]


def neutral() -> list[Row]:
    return [row for row in rows() if row["biased"] == "no"]


def of(split: str) -> list[Row]:
    return [row for row in rows() if row["split"] == split]


def words(text: str) -> list[str]:
    """Lower-case words, each with its apostrophe."""
    return re.findall(r"[a-z0-9']+", text.lower())


def runs(text: str) -> set[tuple[str, ...]]:
    """Every run of `RUN_WORDS` words."""
    said = words(text)
    return {tuple(said[start : start + RUN_WORDS]) for start in range(len(said) - RUN_WORDS + 1)}


def rephrased(row: Row) -> str:
    return row["text"].replace(row["span"], row["rephrasing"])


def place(row: Row) -> float:
    """Where the span stands: 0 at the beginning of the text, 1 at its end; 0.5 where it is the whole text."""
    before, after = row["text"].split(row["span"])
    room = len(before) + len(after.rstrip(CLOSING))
    return len(before) / room if room else 0.5


def test_plain_text_in_seven_columns() -> None:
    text = TABLE.read_text(encoding="utf-8")
    lines = text.split("\n")
    assert lines[0].split("\t") == COLUMNS
    assert {line.count("\t") for line in lines[:-1]} == {len(COLUMNS) - 1}
    assert text.isascii()
    assert text.endswith("\n")
    assert not {'"', "\r", "[", "]", "{", "}"} & set(text)
    assert all(value == " ".join(value.split()) for row in rows() for value in row.values())


def test_counts_and_ids() -> None:
    category = {dimension: name for name, members in CATEGORIES.items() for dimension in members}
    expected = Counter(
        {("evaluation", dimension): 6 for dimension in DIMENSIONS}
        | {("train", dimension): TRAINED[category[dimension]] for dimension in DIMENSIONS}
    )
    assert Counter((row["split"], row["dimension"]) for row in biased()) == expected
    assert Counter(row["split"] for row in neutral()) == {"evaluation": 66, "train": 45}
    assert len(biased()) == len(neutral()) == 111
    assert {(row["dimension"], row["span"], row["rephrasing"]) for row in neutral()} == {("", "", "")}
    numbers: Counter[str] = Counter()
    for row in rows():
        stem = ("train-" if row["split"] == "train" else "") + (row["dimension"] or "neutral").replace(" ", "-")
        numbers[stem] += 1
        assert row["id"] == f"{stem}-{numbers[stem]}"


def test_a_text_is_one_or_two_sentences() -> None:
    for row in rows():
        assert 8 <= len(words(row["text"])) <= 25, row["id"]
        assert SENTENCES.fullmatch(row["text"]), row["id"]


def test_a_span_is_words_of_its_text_and_its_rephrasing_takes_its_place() -> None:
    for row in biased():
        text, span, rephrasing = row["text"], row["span"], row["rephrasing"]
        assert text.count(span) == 1, row["id"]
        assert re.search(rf"(?<![\w']){re.escape(span)}(?![\w'])", text), row["id"]
        assert 2 <= len(words(span)) <= 15, row["id"]
        assert rephrasing, row["id"]
        assert words(rephrasing) != words(span), row["id"]
        assert END.findall(rephrasing)[0] == END.findall(span)[0], row["id"]
        assert SENTENCES.fullmatch(rephrased(row)), row["id"]
        assert not any(left == right for left, right in pairwise(words(rephrased(row)))), row["id"]


def test_spans_stand_at_the_beginning_in_the_middle_and_at_the_end() -> None:
    places = [place(row) for row in biased()]
    assert 0.3 < median(places) < 0.9
    for somewhere in ([at == 0 for at in places], [0 < at < 1 for at in places], [at == 1 for at in places]):
        assert 0.15 < np.mean(somewhere) < 0.5
    whole = np.mean([row["span"] == row["text"] for row in biased()])
    assert 0 < whole <= 0.1


def test_no_two_rows_share_a_run_of_words() -> None:
    seen: dict[tuple[str, ...], str] = {}
    for row in rows():
        for run in runs(row["text"]):
            assert seen.setdefault(run, row["id"]) == row["id"], run


def test_a_rephrased_text_is_no_other_row_s_and_length_says_nothing() -> None:
    texts = [rephrased(row) for row in biased()] + [row["text"] for row in rows()]
    assert len(set(texts)) == len(texts)
    lengths = [np.mean([len(words(row["text"])) for row in kind]) for kind in (biased(), neutral())]
    assert abs(lengths[0] - lengths[1]) < 2.5


Bags = NDArray[np.float64]
Labels = NDArray[np.bool_]


def bags(texts: Iterable[str]) -> Bags:
    """How often each word stands in each text [text, word]."""
    counted = [Counter(words(text)) for text in texts]
    vocabulary = sorted({word for count in counted for word in count})
    return np.array([[count[word] for word in vocabulary] for count in counted], dtype=np.float64)


def labels(of_rows: Sequence[Row]) -> Labels:
    return np.array([row["biased"] == "yes" for row in of_rows])


def guessed(known: Bags, is_biased: Labels, asked: Bags) -> Labels:
    """What naive Bayes with add-one smoothing says of each text; a word it has not seen says nothing."""
    counts = np.stack([known[~is_biased].sum(axis=0), known[is_biased].sum(axis=0)])  # [label, word]
    smooth = counts + 1
    logprobs_nats = np.log(smooth / smooth.sum(axis=1, keepdims=True))
    return asked @ np.where(counts.any(axis=0), logprobs_nats[1] - logprobs_nats[0], 0.0) > 0


def accuracy(known: Labels, texts: Bags, is_biased: Labels) -> float:
    """The share of right guesses about the texts that are not among the known ones."""
    guesses = guessed(texts[known], is_biased[known], texts[~known])
    return float(np.mean(guesses == is_biased[~known]))


@pytest.mark.parametrize("split", SPLITS)
def test_words_of_one_split_hardly_tell_bias_in_the_other(split: str) -> None:
    known = np.array([row["split"] == split for row in rows()])
    assert accuracy(known, bags(row["text"] for row in rows()), labels(rows())) < 0.75


def test_words_of_all_other_rows_hardly_tell_bias() -> None:
    texts, is_biased = bags(row["text"] for row in rows()), labels(rows())
    known = ~np.eye(len(rows()), dtype=bool)
    assert np.mean([accuracy(others, texts, is_biased) for others in known]) < 0.75


def test_a_tell_tale_word_would_be_found() -> None:
    told = [f"{row['text']} {'honestly honestly' if row['biased'] == 'yes' else 'today today'}" for row in rows()]
    known = np.array([row["split"] == "train" for row in rows()])
    assert accuracy(known, bags(told), labels(rows())) > 0.9


def test_no_single_word_tells_bias() -> None:
    is_biased = labels(rows())
    present = bags(row["text"] for row in rows()) > 0
    right = (present == is_biased[:, None]).mean(axis=0)  # [word]
    assert np.maximum(right, 1 - right).max() < 0.6


@pytest.mark.parametrize("split", SPLITS)
def test_both_kinds_name_groups_and_generalise(split: str) -> None:
    """Words that a keyword list would hold stand in neutral rows too."""
    said = set(words(" ".join(row["text"] for row in neutral() if row["split"] == split)))
    groups = {"evaluation": "women black muslims pensioners germans roma deaf gay smokers conservatives teachers"}
    groups["train"] = "girls black muslims grandmother french maori hearing bisexual homeless democrats builders"
    assert set(groups[split].split()) <= said
    everywhere = set(words(" ".join(row["text"] for row in neutral())))
    assert {"all", "always", "never", "just", "simply", "every", "cannot", "because", "people"} <= everywhere
