"""What an answer may consist of: every rule against the plainest way to say it, on random labels, passages and tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.reference_answers import NatsAfter, Rules, Tokens, chosen
from undertow.models.generation.constraints import (
    END,
    LabelTrie,
    Nexts,
    PassageSpan,
    SpanSearch,
    greedy_label,
    label_nats,
)
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
LABELS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=8, unique=True)
PASSAGES = st.lists(st.integers(0, N_TOKENS - 1), min_size=1, max_size=9).map(tuple)


def nexts_of(trie: LabelTrie, after: NatsAfter) -> Nexts:
    """What is read of a table: the allowed tokens and the end, at every state that has anything to read."""
    found = {}
    for written in trie.inner_nodes():
        state = trie
        for token in written:
            state = state.after(token)
        nats = after(written)
        found[written] = {token: nats[token] for token in (*state.allowed, END)}
    return found


# Labels.


@settings(max_examples=120)
@given(LABELS, TABLES, st.booleans())
def test_labels_are_chosen_and_have_probabilities_as_one_at_a_time(
    labels: list[Tokens], after: NatsAfter, early: bool
) -> None:
    trie = LabelTrie.from_labels(labels)
    nexts = nexts_of(trie, after)
    written, values, _ = chosen(labels, after, {END}, early=early)
    found = (written, labels.index(written) if written in labels else None)
    assert greedy_label(trie, nexts, ends_early=early) == found
    assert label_nats(trie, nexts) == pytest.approx(values, abs=1e-12)


@settings(max_examples=60)
@given(LABELS)
def test_a_trie_lets_its_labels_through_and_nothing_else(labels: list[Tokens]) -> None:
    trie = LabelTrie.from_labels(labels)
    states: list[tuple[Tokens, LabelTrie]] = [((), trie)]
    for written, state in states:
        n = len(written)
        assert list(state.allowed) == sorted({one[n] for one in labels if len(one) > n and one[:n] == written})
        assert state.label == (labels.index(written) if written in labels else None)
        assert state.may_end == (written in labels)
        states += [((*written, token), state.after(token)) for token in state.allowed]
    assert {written for written, state in states if state.may_end} == set(labels)
    assert list(trie.inner_nodes()) == sorted(written for written, state in states if state.allowed)


def test_labels_that_cannot_be_told_apart_are_no_trie() -> None:
    with pytest.raises(ValueError, match="label 2 has the tokens of another"):
        LabelTrie.from_labels([(1, 2), (1,), (1, 2)])
    with pytest.raises(ValueError, match="label 1 has the tokens of another"):
        LabelTrie.from_labels([(1,), ()])


# Passages.


def pieces(passage: Tokens) -> set[Tokens]:
    """All that stands in a passage in one piece."""
    return {passage[start:end] for start in range(len(passage)) for end in range(start + 1, len(passage) + 1)}


@settings(max_examples=60)
@given(PASSAGES)
def test_a_span_goes_through_every_piece_of_its_passage_and_nothing_else(passage: Tokens) -> None:
    states: list[tuple[Tokens, PassageSpan]] = [((), PassageSpan.from_passage(passage))]
    for written, state in states:
        longer = {piece[-1] for piece in pieces(passage) if piece[:-1] == written}
        assert state.allowed == tuple(sorted(longer))
        assert state.may_end == bool(written)
        states += [((*written, token), state.after(token)) for token in state.allowed]
    assert sorted(written for written, state in states if state.may_end) == sorted(pieces(passage))


# The most probable span.


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
