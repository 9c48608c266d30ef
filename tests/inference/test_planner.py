from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.inference.planner import cut_batches, grow_tree, plan, read_pack
from undertow.models.base import BatchLimits, EncodedQuery, OutOfMemoryError, PackedTree, TokenBatch, TokenPath
from undertow.types import Floats

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=7).map(tuple)


@st.composite
def encoded_queries(draw: st.DrawFn, *, with_sources: bool = False) -> list[EncodedQuery]:
    """Queries, with what an encoder is fed: of some of them nothing."""
    sources = draw(st.lists(st.just(()) | TOKENS, min_size=1, max_size=4)) if with_sources else [()]
    queries = []
    for _ in range(draw(st.integers(1, 8))):
        paths = []
        for tokens in draw(st.lists(TOKENS, min_size=1, max_size=4)):
            positions = draw(st.lists(st.integers(0, len(tokens) - 1), min_size=1, max_size=4))
            reads = tuple((position, draw(st.integers(0, 3))) for position in positions)
            paths.append(TokenPath(tokens, reads, draw(st.sampled_from(sources))))
        queries.append(EncodedQuery(tuple(paths)))
    return queries


def value(before: Sequence[int], token: int, source: Sequence[int] = ()) -> float:
    """A stand-in for log P(token | before): any function of the whole prefix shows a read that went astray."""
    signs = (*source, 97, *before, 98, token)
    return math.fsum((index + 1) * math.sin(7.0 * earlier + index) for index, earlier in enumerate(signs))


def values_of(queries: Sequence[EncodedQuery]) -> list[float]:
    """The values of all reads, each by itself."""
    paths = [path for query in queries for path in query.paths]
    return [value(path.tokens[: at + 1], token, path.source) for path in paths for at, token in path.reads]


def read_tree(tree: PackedTree) -> Floats:
    """Each node's prefix is found through the mask alone, as a model's attention would."""
    prefixes = [
        tuple(int(tree.tokens[i]) for i in range(j + 1) if i <= j < tree.ends[i]) for j in range(len(tree.tokens))
    ]
    for node, prefix in enumerate(prefixes):
        assert len(prefix) == tree.depths[node] + 1
    return np.array(
        [value(prefixes[node], int(token)) for node, token in zip(tree.read_nodes, tree.read_tokens, strict=True)]
    )


def read_batch(batch: TokenBatch) -> Floats:
    values = []
    for row, position, token in zip(batch.read_rows, batch.read_positions, batch.read_tokens, strict=True):
        source = batch.sources[batch.source_of_row[row]].tolist() if len(batch.sources) else ()
        values.append(value(batch.tokens[row, : position + 1].tolist(), int(token), source))
    return np.array(values)


@settings(max_examples=150)
@given(encoded_queries(), st.integers(1, 40), st.integers(0, 8))
def test_any_plan_returns_the_original_order_and_the_values_of_one_at_a_time(
    queries: list[EncodedQuery], budget: int, tree_depth: int
) -> None:
    limits = BatchLimits(budget, tree_depth)
    packs = plan(queries, limits)
    assert sorted(index for pack in packs for index in pack.queries) == list(range(len(queries)))
    assert [pack.n_tokens for pack in packs] == sorted((pack.n_tokens for pack in packs), reverse=True)
    for pack in packs:
        members = [queries[index] for index in pack.queries]
        readers: Any = (read_tree, None) if pack.as_tree else (None, read_batch)
        values = read_pack(members, budget, readers, as_tree=pack.as_tree)
        if pack.as_tree:
            assert pack.n_tokens == len(grow_tree(members)[0].tokens)
        assert len(pack.queries) == 1 or pack.n_tokens <= budget
        for query in members:
            assert pack.as_tree == (max(len(path.tokens) for path in query.paths) <= tree_depth)
        assert values.tolist() == values_of(members)


def test_queries_of_one_length_or_one_beginning_share_a_pack() -> None:
    queries = [EncodedQuery((TokenPath((sign,) * n, ((0, 1),)),)) for sign, n in enumerate((3, 5, 3, 5))]
    assert [pack.queries for pack in plan(queries, BatchLimits(budget_tokens=10, tree_depth=0))] == [(1, 3), (0, 2)]
    queries = [EncodedQuery((TokenPath((start,) * 4 + (n,), ((4, 1),)),)) for n, start in enumerate((8, 9, 8, 9))]
    assert [pack.queries for pack in plan(queries, BatchLimits(budget_tokens=6, tree_depth=9))] == [(0, 2), (1, 3)]


def test_a_batch_is_filled_to_the_budget() -> None:
    queries = [EncodedQuery((TokenPath((sign,) * 3, ((0, 1),)),)) for sign in range(4)]
    batches, _ = cut_batches(queries, 6)
    assert [batch.tokens.shape for batch in batches] == [(2, 3), (2, 3)]


@settings(max_examples=60)
@given(encoded_queries(), st.integers(1, 30), st.booleans())
def test_what_has_no_room_is_read_in_halves(queries: list[EncodedQuery], room: int, as_tree: bool) -> None:
    """A device with room for so many tokens: the values are those of one that holds all, or one query has no room."""

    def tree_with_room(tree: PackedTree) -> Floats:
        if len(tree.tokens) > room:
            raise OutOfMemoryError("memory ran out")
        return read_tree(tree)

    def batch_with_room(batch: TokenBatch) -> Floats:
        if batch.tokens.size > room:
            raise OutOfMemoryError("memory ran out")
        return read_batch(batch)

    expected = read_pack(queries, 40, (read_tree, read_batch), as_tree=as_tree)
    try:
        found = read_pack(queries, 40, (tree_with_room, batch_with_room), as_tree=as_tree)
    except OutOfMemoryError:
        assert any(sum(len(tokens) for tokens in {path.tokens for path in query.paths}) > room for query in queries)
        return
    assert found.tolist() == expected.tolist()


@settings(max_examples=100)
@given(encoded_queries(with_sources=True), st.integers(1, 40))
def test_an_encoder_is_fed_each_source_once_and_every_read_comes_back(queries: list[EncodedQuery], budget: int) -> None:
    batches, lookup = cut_batches(queries, budget)
    values = np.concatenate([read_batch(batch) for batch in batches])
    assert values[lookup].tolist() == values_of(queries)
    fed: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    homes: dict[tuple[tuple[int, ...], int], int] = {}
    for at, batch in enumerate(batches):
        sources = [tuple(source) for source in batch.sources.tolist()]
        assert len(set(sources)) == len(sources)
        assert sorted(set(batch.source_of_row.tolist())) == list(range(len(sources)))
        assert len(batch.source_of_row) == (len(batch.tokens) if sources else 0)
        for row, tokens in enumerate(batch.tokens.tolist()):
            source = sources[batch.source_of_row[row]] if sources else ()
            fed.append((source, tuple(tokens)))
            if source:  # rows of one source and length are never torn apart
                assert homes.setdefault((source, len(tokens)), at) == at
        # Too many tokens only for a single row, or for the rows of a single source that fill what another began.
        cost = batch.tokens.shape[1] + (batch.sources.shape[1] if sources else 0)
        if len(batch.tokens) > 1 and not sources:
            assert len(batch.tokens) * cost <= budget
        if len(sources) > 1:
            last = int((batch.source_of_row == len(sources) - 1).sum())
            assert (len(batch.tokens) - last + 1) * cost <= budget
    assert len(set(fed)) == len(fed)
    assert set(fed) == {(path.source, path.tokens) for query in queries for path in query.paths}
    shapes = [(len(source), len(tokens)) for source, tokens in fed]
    assert shapes == sorted(shapes, reverse=True)
