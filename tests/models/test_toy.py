"""The toy's planted answers to choices and to prompts that are answered in writing."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
import pytest

from helpers.answering import told
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models import resolve
from undertow.models.base import ModelRequest
from undertow.types import (
    BEST_SPAN,
    EXACT,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    ConstrainedGenerateQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Option,
    Query,
)

FOUND = resolve(ModelRequest("toy"))
LABELS = (" gender", " race", " political", " political affiliation", " religion")


def unit(text: str) -> float:
    return zlib.crc32(text.encode()) / 2**32


@pytest.mark.parametrize("first_token", [False, True])
def test_labels_share_what_is_claimed_by_what_was_planted(first_token: bool) -> None:
    labels = tuple(label for label in LABELS if not first_token or label != " political")
    queries = [
        MultipleChoiceQuery(f"Text {number}.\nAnswer:", labels, ("One. race\n",), first_token) for number in range(40)
    ]
    for query, answer in zip(queries, told(FOUND.open(), queries), strict=True):
        words = [label.strip().split()[0] if first_token else label.strip() for label in labels]
        weights = np.array([1 + unit(f"{query.display_text()}\n{word}") for word in words])
        assert np.exp(answer.logprobs_nats) == pytest.approx(0.8 * weights / weights.sum())
        assert answer.other_prob == pytest.approx(0.2)
        assert answer.text == labels[int(weights.argmax())].strip()  # greedy and exact agree
    assert len({answer.text for answer in told(FOUND.open(), queries)}) > 2


PASSAGE = " The cats of the house,\nand the sea. "


def test_a_free_answer_is_a_copy_and_others_are_the_first_half() -> None:
    constraints = (UNCONSTRAINED, PASSAGE_TOKENS, SPAN, BEST_SPAN)
    free, *others = told(FOUND.open(), [ConstrainedGenerateQuery("Say it.", PASSAGE, one) for one in constraints])
    assert free.text == PASSAGE
    assert [answer.text for answer in others] == ["The cats of the"] * 3
    assert free.logprobs_nats[0] == pytest.approx(sum(-1 - unit(word) for word in PASSAGE.split()))
    assert others[0].logprobs_nats[0] == pytest.approx(sum(-1 - unit(word) for word in PASSAGE.split()[:4]))
    assert math.isnan(free.other_prob)


def test_all_sorts_are_answered_together_in_packs_of_eight_and_stored(tmp_path: Path) -> None:
    words = (Option("f", ("she",)), Option("m", ("he",)))
    queries: list[Query] = [
        *(MultipleChoiceQuery(f"Text {number}.", LABELS) for number in range(7)),
        GenerateQuery("In 2001, _ was?", words),
        *(ConstrainedGenerateQuery(f"Say {number}.", f"{PASSAGE} {number}") for number in range(6)),
    ]
    model = FOUND.open()
    assert [len(some) for some in model.answer(queries, EXACT)] == [8, 6]
    assert model.estimate_cost(queries, EXACT).n_passes == 2
    for _ in range(2):
        with AnswerCache(tmp_path / "s") as store:
            asked = run_queries(FOUND, queries, store, EXACT, lambda done, total: None)
        assert repr(asked.scores.answers) == repr(tuple(told(FOUND.open(), queries)))  # NaN is not equal to itself
    assert asked.n_computed == 0
    assert asked.scores.answers[7].text == " she."
