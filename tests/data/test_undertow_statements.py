from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

import undertow
from helpers.file_refusal import rows_of
from undertow.data.documents.document_set import CATEGORIES, DIMENSIONS

TABLE = Path(undertow.__file__).parent / "data" / "resources" / "sets" / "undertow-statements.tsv"
TRAINED = {"identity": 3, "affiliation": 7}
"""Biased rows of a dimension in the train split, by its category; the evaluation split has six of each."""
SENTENCES = re.compile(r"[A-Z][^.?!]*[.?!]( [A-Z][^.?!]*[.?!])?")
END = re.compile(r"[.?!,]?$")

Row = dict[str, str]


@cache
def rows() -> list[Row]:
    return rows_of(TABLE)


def biased(said: str = "yes") -> list[Row]:
    return [row for row in rows() if row["biased"] == said]


def words(text: str) -> list[str]:
    """Lower-case words, each with its apostrophe."""
    return re.findall(r"[a-z0-9']+", text.lower())


def rephrased(row: Row) -> str:
    return row["text"].replace(row["span"], row["rephrasing"])


def test_counts_and_ids() -> None:
    neutral = biased("no")
    of_dimensions = Counter((row["split"], row["dimension"]) for row in biased())
    for category, members in CATEGORIES.items():
        for dimension in members:
            assert (of_dimensions["evaluation", dimension], of_dimensions["train", dimension]) == (6, TRAINED[category])
    assert {dimension for _, dimension in of_dimensions} == {*DIMENSIONS}
    assert Counter(row["split"] for row in neutral) == {"evaluation": 66, "train": 45}
    assert len(biased()) == len(neutral) == 111
    assert {(row["dimension"], row["span"], row["rephrasing"]) for row in neutral} == {("", "", "")}
    numbers: Counter[str] = Counter()
    for row in rows():
        stem = ("train-" if row["split"] == "train" else "") + (row["dimension"] or "neutral").replace(" ", "-")
        numbers[stem] += 1
        assert row["id"] == f"{stem}-{numbers[stem]}"


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


def test_a_text_is_one_or_two_sentences_and_no_other_row_s_and_length_says_nothing() -> None:
    for row in rows():
        assert 8 <= len(words(row["text"])) <= 25, row["id"]
        assert SENTENCES.fullmatch(row["text"]), row["id"]
    texts = [rephrased(row) for row in biased()] + [row["text"] for row in rows()]
    assert len(set(texts)) == len(texts)
    lengths = [np.mean([len(words(row["text"])) for row in biased(said)]) for said in ("yes", "no")]
    assert abs(lengths[0] - lengths[1]) < 2.5
    seen: dict[tuple[str, ...], str] = {}
    for row in rows():
        said = words(row["text"])
        for start in range(len(said) - 5):
            assert seen.setdefault(tuple(said[start : start + 6]), row["id"]) == row["id"]


def accuracy(texts: Sequence[str]) -> float:
    """How often naive Bayes with add-one smoothing is right of one split that has read the other, on average."""
    counted = [Counter(words(text)) for text in texts]
    vocabulary = sorted({word for count in counted for word in count})
    bags = np.array([[count[word] for word in vocabulary] for count in counted])  # [text, word]
    is_biased = np.array([row["biased"] == "yes" for row in rows()])
    right = []
    for split in ("evaluation", "train"):
        known = np.array([row["split"] == split for row in rows()])
        counts = np.stack([bags[known & ~is_biased].sum(axis=0), bags[known & is_biased].sum(axis=0)])  # [label, word]
        logprobs_nats = np.log((counts + 1) / (counts + 1).sum(axis=1, keepdims=True))
        # a word that it has not seen says nothing
        evidence = bags[~known] @ np.where(counts.any(axis=0), logprobs_nats[1] - logprobs_nats[0], 0.0)
        right.append(np.mean((evidence > 0) == is_biased[~known]))
    return float(np.mean(right))


def test_words_of_one_split_hardly_tell_bias_in_the_other() -> None:
    assert accuracy([row["text"] for row in rows()]) < 0.75
