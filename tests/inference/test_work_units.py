from __future__ import annotations

import math

import numpy as np
import pytest

from undertow.inference.work_units import answers_of
from undertow.models.base import EncodedQuery, TokenPath
from undertow.types import Floats


def path(*tokens: int, start: int) -> TokenPath:
    return TokenPath(tokens[:-1], tuple((at - 1, tokens[at]) for at in range(start, len(tokens))))


def logs(*probs: float) -> Floats:
    return np.array([math.log(prob) for prob in probs])


@pytest.mark.parametrize(
    ("paths", "probs", "other_prob"),
    [
        ([path(1, 7, 4, start=1), path(1, 7, 5, start=1), path(1, 8, 5, start=1)], [(0.3, 0.5), (0.3, 0.1), (0.2, 0.25)], 0.5),
        # `the man` and `the woman`: what counts is the first token at the blank.
        ([path(1, 3, 7, start=1), path(1, 3, 8, start=1)], [(0.9, 0.3), (0.9, 0.2)], 0.1),
        ([path(1, 7, start=1), path(1, 7, start=1)], [(0.3,), (0.3,)], 0.7),
        ([path(1, 7, start=1)], [(0.3,)], 0.7),
    ],
)  # fmt: skip
def test_first_token_that_options_share_counts_once(
    paths: list[TokenPath], probs: list[tuple[float, ...]], other_prob: float
) -> None:
    (answer,) = answers_of([EncodedQuery(tuple(paths))], logs(*(prob for of_path in probs for prob in of_path)))
    assert answer.other_prob == pytest.approx(other_prob)


def test_an_option_spelled_like_an_earlier_one_has_no_number_of_its_own() -> None:
    query = EncodedQuery((path(1, 7, start=1), path(1, 7, start=1), path(1, 8, start=1)), frozenset({1}))
    (answer,) = answers_of([query], logs(0.3, 0.3, 0.2))
    assert math.isnan(answer.logprobs_nats[1])
    assert answer.missing_reason == ""
    assert answer.other_prob == pytest.approx(0.5)


def test_tokens_of_an_option_are_those_of_its_place() -> None:
    """Of whole texts the words behind the blank (9, 3) are none of the option's; a masked model reads nothing but the option."""
    in_text = EncodedQuery((path(1, 7, 9, 3, start=1), path(1, 8, 5, 6, 9, 3, start=1), path(1, 8, 2, 9, 3, start=1)))
    assert in_text.n_tokens == (1, 3, 2)
    (answer,) = answers_of([in_text], logs(*[0.5] * sum(len(one.reads) for one in in_text.paths)))
    assert answer.n_tokens == (1, 3, 2)
    chains = (path(1, 7, start=1), path(1, 8, start=1), path(1, 8, 9, start=2))
    assert EncodedQuery(chains, options=((0,), (1, 2)), bidirectional=True).n_tokens == (1, 2)
    assert EncodedQuery((path(1, 9, start=1), path(1, 8, 9, start=1))).n_tokens == (1, 2), "an option has one at least"
    assert EncodedQuery((path(1, 7, 9, start=1),) * 2, frozenset({1})).n_tokens == (), (
        "nothing tells one from the other"
    )
