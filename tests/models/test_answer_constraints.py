from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.reference_answers import NatsAfter, Rules, Tokens
from undertow.models.generation.constraints import END, PassageSpan, SpanSearch
from undertow.types import BEST_SPAN, ConstrainedGenerateQuery

N_TOKENS = 5


def table(seed: int, *, levels: int = 0) -> NatsAfter:
    """Log-probabilities of every token and an end after any text, of so many different weights; 0 for any number of them."""

    def after(written: Tokens) -> Any:
        draws = np.random.default_rng([seed, len(written), *written])
        weights = draws.integers(1, levels + 1, N_TOKENS + 1) if levels else draws.gamma(0.3, size=N_TOKENS + 1) + 1e-9
        return np.log(weights / weights.sum())  # the end is the last one

    return after


TABLES = st.builds(lambda seed, levels: table(seed, levels=levels), st.integers(0, 2**32), st.sampled_from([0, 2, 3]))
PASSAGES = st.lists(st.integers(0, N_TOKENS - 1), min_size=1, max_size=9).map(tuple)


def pieces(passage: Tokens) -> set[Tokens]:
    """All that stands in a passage in one piece."""
    return {passage[start:end] for start in range(len(passage)) for end in range(start + 1, len(passage) + 1)}


def searched(passage: Tokens, after: NatsAfter, most: int) -> tuple[SpanSearch, list[Tokens]]:
    """A search to its end, and what it asked about, in order."""
    search = SpanSearch.from_passage(passage)
    asked: list[Tokens] = []
    while wanted := search.next_spans(most):
        assert len(wanted) <= most
        bounds = []
        for written, state in wanted:
            reached = PassageSpan.from_passage(passage)
            for token in written:
                reached = reached.after(token)
            assert state == reached
            assert all(written[:end] in asked for end in range(len(written)))
            bounds.append(math.fsum(after(written[:at])[token] for at, token in enumerate(written)))
        # Nothing is asked that cannot be better than what is found already, and the likeliest comes first.
        assert min(bounds) > search.best_nats - 1e-12
        assert bounds == pytest.approx(sorted(bounds, reverse=True), abs=1e-9)
        asked += [written for written, _ in wanted]
        for written, state in wanted:
            nats = after(written)
            search.extend(written, {token: nats[token] for token in (*state.allowed, END)})
    assert not search.running
    return search, asked


@settings(max_examples=60)
@given(PASSAGES, TABLES, st.integers(1, 6))
def test_a_search_finds_the_most_probable_of_all_spans(passage: Tokens, after: NatsAfter, most: int) -> None:
    search, asked = searched(passage, after, most)
    nats = Rules(ConstrainedGenerateQuery("What?", "It.", BEST_SPAN), passage, {END}, after).spans()
    assert search.best_nats == pytest.approx(max(nats.values()), abs=1e-9)
    assert nats[search.best] == pytest.approx(max(nats.values()), abs=1e-9)
    assert len(set(asked)) == len(asked)
    assert set(asked) <= pieces(passage) | {()}
