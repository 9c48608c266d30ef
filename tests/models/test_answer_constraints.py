"""What an answer may consist of: every rule against the plainest way to say it, on random labels, passages and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.models.generation.constraints import (
    END,
    LabelTrie,
    Nexts,
    PassageSpan,
    SpanSearch,
    greedy_label,
    label_nats,
)

Tokens = tuple[int, ...]
Table = Callable[[Tokens], dict[int, float]]
N_TOKENS = 5


def table(seed: int, *, levels: int = 0) -> Table:
    """Log-probabilities of every token and an end after any text, of so many different weights; 0 for any number of them."""

    def after(written: Tokens) -> dict[int, float]:
        draws = np.random.default_rng([seed, len(written), *written])
        weights = draws.integers(1, levels + 1, N_TOKENS + 1) if levels else draws.gamma(0.3, size=N_TOKENS + 1) + 1e-9
        nats = np.log(weights / weights.sum()).tolist()
        return dict(zip([*range(N_TOKENS), END], nats, strict=True))

    return after


TABLES = st.builds(lambda seed, levels: table(seed, levels=levels), st.integers(0, 2**32), st.sampled_from([0, 2, 3]))
LABELS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple), min_size=1, max_size=8, unique=True)
PASSAGES = st.lists(st.integers(0, N_TOKENS - 1), min_size=1, max_size=9).map(tuple)


def nexts_of(trie: LabelTrie, after: Table) -> Nexts:
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


def followers(labels: Sequence[Tokens], written: Tokens) -> list[int]:
    """What may come next: tokens in ascending order, then the end."""
    going_on = {one[len(written)] for one in labels if len(one) > len(written) and one[: len(written)] == written}
    return sorted(going_on) + [END] * (written in labels)


def walked(labels: Sequence[Tokens], after: Table) -> int:
    """The label that greedy decoding comes to, as it is defined: the first of the most probable ones, step by step."""
    written: Tokens = ()
    while True:
        candidates = followers(labels, written)
        if candidates == [END]:
            return labels.index(written)
        nats = after(written)
        token = next(one for one in candidates if nats[one] == max(nats[other] for other in candidates))
        if token == END:
            return labels.index(written)
        written = (*written, token)


@settings(max_examples=60)
@given(LABELS, TABLES)
def test_a_greedy_label_is_the_one_that_a_walk_comes_to(labels: list[Tokens], after: Table) -> None:
    trie = LabelTrie.from_labels(labels)
    assert greedy_label(trie, nexts_of(trie, after))[1] == walked(labels, after)


@settings(max_examples=60)
@given(LABELS, TABLES)
def test_a_label_has_the_probability_of_its_tokens_and_of_an_end_where_it_could_go_on(
    labels: list[Tokens], after: Table
) -> None:
    trie = LabelTrie.from_labels(labels)
    expected = []
    for label in labels:
        nats = [after(label[:at])[token] for at, token in enumerate(label)]
        goes_on = any(other != label and other[: len(label)] == label for other in labels)
        expected.append(math.fsum(nats) + (after(label)[END] if goes_on else 0.0))
    assert label_nats(trie, nexts_of(trie, after)) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60)
@given(LABELS, TABLES)
def test_a_trie_lets_its_labels_through_and_nothing_else(labels: list[Tokens], after: Table) -> None:
    """And what is normalised over what it allows sums to one over the labels."""
    trie = LabelTrie.from_labels(labels)

    def allowed_only(written: Tokens) -> dict[int, float]:
        nats = after(written)
        candidates = followers(labels, written)
        total = math.log(math.fsum(math.exp(nats[token]) for token in candidates))
        return {token: nats[token] - total if token in candidates else -math.inf for token in (*range(N_TOKENS), END)}

    assert math.fsum(map(math.exp, label_nats(trie, nexts_of(trie, allowed_only)))) == pytest.approx(1.0)
    states: list[tuple[Tokens, LabelTrie]] = [((), trie)]
    read = set()
    for written, state in states:
        assert [*state.allowed, *[END] * state.may_end] == followers(labels, written)
        assert state.label == (labels.index(written) if written in labels else None)
        states += [((*written, token), state.after(token)) for token in state.allowed]
        read |= {written} if state.allowed else set()
    assert {written for written, state in states if state.may_end} == set(labels)
    assert list(trie.inner_nodes()) == sorted(read)


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


def whole_nats(passage: Tokens, piece: Tokens, after: Table) -> float:
    """The log-probability of a piece: of its tokens, and of an end unless it is at the end wherever it stands."""
    nats = math.fsum(after(piece[:at])[token] for at, token in enumerate(piece))
    goes_on = any((*piece, token) in pieces(passage) for token in passage)
    return nats + (after(piece)[END] if goes_on else 0.0)


def searched(passage: Tokens, after: Table, most: int) -> tuple[SpanSearch, list[Tokens]]:
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
def test_a_search_finds_the_most_probable_of_all_spans(passage: Tokens, after: Table, most: int) -> None:
    search, asked = searched(passage, after, most)
    nats = {piece: whole_nats(passage, piece, after) for piece in pieces(passage)}
    assert search.best_nats == pytest.approx(max(nats.values()), abs=1e-9)
    assert nats[search.best] == pytest.approx(max(nats.values()), abs=1e-9)
    assert len(set(asked)) == len(asked)
    assert set(asked) <= pieces(passage) | {()}
