"""Plan forward passes: the queries of each pass, and the positions of each answer's log-probabilities.

Pure and torch-free. A pack holds whole queries, so a computed pack is a batch of complete answers. The plan depends
on the queries alone, so an interrupted run that resumes packs the same way and gives bit-identical numbers.

    queries -> packs (token budget, longest first) -> one PackedTree, or TokenBatches of one exact length
            -> reads, each distinct one once -> log-probabilities back per path (inverse permutation)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np

from undertow.models.base import (
    BatchLimits,
    EncodedQuery,
    Ints,
    OutOfMemoryError,
    PackedTree,
    PrefixTree,
    TokenBatch,
    common_prefix_length,
)
from undertow.types import Floats

Lookup: TypeAlias = list[list[list[int]]]
"""Indices into the reads, by query of the pack, then path [query][path][read]."""

Readers: TypeAlias = tuple[Callable[[PackedTree], Floats], Callable[[TokenBatch], Floats]]
"""A model's two ways to read: a tree, and a plain batch."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Queries of one forward pass.

    Attributes:
        queries: indices into the planned list [query].
        n_tokens: number of tokens to feed.
        as_tree: whether the pack is one prefix tree, or plain batches.
    """

    queries: tuple[int, ...]
    n_tokens: int
    as_tree: bool


def plan(encoded: Sequence[EncodedQuery], limits: BatchLimits) -> list[Pack]:
    """Packs that cover every query exactly once, the largest first, so that a lack of memory shows early."""
    tree = [index for index, query in enumerate(encoded) if _depth(query) <= limits.tree_depth]
    plain = [index for index, query in enumerate(encoded) if _depth(query) > limits.tree_depth]
    # Neighbours in this order share prefixes, or lengths.
    tree.sort(key=lambda index: (min(path.tokens for path in encoded[index].paths), index))
    plain.sort(key=lambda index: (*_shapes(encoded[index]), index))
    packs = _cut(encoded, tree, limits.budget_tokens, as_tree=True)
    packs += _cut(encoded, plain, limits.budget_tokens, as_tree=False)
    return sorted(packs, key=lambda pack: (-pack.n_tokens, pack.queries))


def _depth(query: EncodedQuery) -> int:
    """Tokens of the longest path; unlimited for encoder inputs, which a tree cannot hold."""
    return max(2**62 if path.source else len(path.tokens) for path in query.paths)


def _shapes(query: EncodedQuery) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
    """Lengths of encoder and decoder input, the longest first; and the encoder inputs."""
    lengths = sorted(((len(path.source), len(path.tokens)) for path in query.paths), reverse=True)
    return lengths, [path.source for path in query.paths]


def _cut(encoded: Sequence[EncodedQuery], order: Sequence[int], budget_tokens: int, *, as_tree: bool) -> list[Pack]:
    """Fill packs query by query; a query that would overflow a pack opens the next one."""
    packs: list[Pack] = []
    members: list[int] = []
    fed: dict[Hashable, int] = {}
    n_tokens = 0
    feed = _feed_branches if as_tree else _feed_rows
    for index in order:
        added = feed(fed, encoded[index])
        if members and n_tokens + added > budget_tokens:
            packs.append(Pack(tuple(members), n_tokens, as_tree))
            members, fed, n_tokens = [], {}, 0
            added = feed(fed, encoded[index])
        members.append(index)
        n_tokens += added
    return [*packs, Pack(tuple(members), n_tokens, as_tree)] if members else packs


def _feed_branches(nodes: dict[Hashable, int], query: EncodedQuery) -> int:
    """Add a query to a tree, which numbers the prefixes of all paths; returns the number of new nodes."""
    before = len(nodes)
    last: tuple[int, ...] = ()
    along: list[int] = []
    for path in query.paths:
        shared = common_prefix_length(last, path.tokens)
        del along[shared:]
        node = along[-1] if along else -1
        for token in path.tokens[shared:]:
            node = nodes.setdefault((node, token), len(nodes))
            along.append(node)
        last = path.tokens
    return len(nodes) - before


def _feed_rows(rows: dict[Hashable, int], query: EncodedQuery) -> int:
    """Add a query to plain batches, which hold each path and each encoder input once; returns the number of new tokens."""
    needed: dict[Hashable, int] = {(path.source, path.tokens): len(path.tokens) for path in query.paths}
    needed |= {path.source: len(path.source) for path in query.paths if path.source}
    added = sum(cost for need, cost in needed.items() if need not in rows)
    rows |= needed
    return added


_Reads: TypeAlias = dict[tuple[int, ...], int]
"""Numbers of distinct (place, token) reads, in the order they are met."""


def _columns(reads: _Reads, width: int) -> list[Ints]:
    table = np.fromiter(chain.from_iterable(reads), dtype=np.int64).reshape(-1, width)
    return [table[:, column].copy() for column in range(width)]


def grow_tree(queries: Sequence[EncodedQuery]) -> tuple[PackedTree, Lookup]:
    """All paths of the queries as one tree, and where each path's reads are in it."""
    branches = PrefixTree.from_paths(path.tokens for query in queries for path in query.paths)
    reads: _Reads = {}
    lookup: Lookup = []
    for query in queries:
        nodes = [branches.nodes_of[path.tokens] for path in query.paths]
        lookup.append(
            [
                [reads.setdefault((at[position], token), len(reads)) for position, token in path.reads]
                for at, path in zip(nodes, query.paths, strict=True)
            ]
        )
    read_nodes, read_tokens = _columns(reads, 2)
    return PackedTree(branches.tokens, branches.depths, branches.ends, read_nodes, read_tokens), lookup


def cut_batches(queries: Sequence[EncodedQuery], budget_tokens: int) -> tuple[list[TokenBatch], Lookup]:
    """The distinct paths of the queries in batches of one exact length, longest first, and where the reads are.

    Encoder inputs of a batch have one length too, each is stored once. Reads are numbered across batches in order, as if the
    results were concatenated.
    """
    fed_inputs = {(path.source, path.tokens) for query in queries for path in query.paths}
    distinct = sorted(fed_inputs, key=lambda fed: (-len(fed[0]), -len(fed[1]), fed))
    rows: list[list[_Row]] = []
    for source, tokens in distinct:
        cost = len(source) + len(tokens)
        other = rows and tuple(map(len, rows[-1][0])) != (len(source), len(tokens))
        # Rows of one encoder input stay in one batch, so the encoder runs once.
        full = rows and (len(rows[-1]) + 1) * cost > budget_tokens and not (source and rows[-1][-1][0] == source)
        if other or full or not rows:
            rows.append([])
        rows[-1].append((source, tokens))
    place_of = {fed: (number, row) for number, batch in enumerate(rows) for row, fed in enumerate(batch)}
    reads: list[_Reads] = [{} for _ in rows]
    local: list[list[tuple[int, list[int]]]] = []
    for query in queries:
        numbered = []
        for path in query.paths:
            number, row = place_of[path.source, path.tokens]
            own = reads[number]
            numbered.append((number, [own.setdefault((row, *read), len(own)) for read in path.reads]))
        local.append(numbered)
    starts = np.cumsum([0, *map(len, reads)]).tolist()
    lookup = [[[starts[number] + one for one in numbers] for number, numbers in query] for query in local]
    batches = []
    for batch, read in zip(rows, reads, strict=True):
        batches.append(TokenBatch(np.array([tokens for _, tokens in batch], dtype=np.int64), *_columns(read, 3)))
        if sources := {source: at for at, source in enumerate(dict.fromkeys(source for source, _ in batch if source))}:
            source_of_row = np.array([sources[source] for source, _ in batch], dtype=np.int64)
            fed = np.array(list(sources), dtype=np.int64)
            batches[-1] = replace(batches[-1], sources=fed, source_of_row=source_of_row)
    return batches, lookup


_Row: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Encoder input, () for none, and decoder input."""


def read_pack(
    queries: Sequence[EncodedQuery], budget_tokens: int, readers: Readers, *, as_tree: bool
) -> list[list[list[float]]]:
    """Log-probabilities of every read of every path, in the order of the queries [query][path][read].

    If memory runs out, read each half by itself, down to single queries.

    Raises:
        OutOfMemoryError: a single query does not fit.
    """
    read_tree, read_batch = readers
    try:
        if as_tree:
            tree, lookup = grow_tree(queries)
            values = read_tree(tree).tolist()
        else:
            batches, lookup = cut_batches(queries, budget_tokens)
            values = np.concatenate([read_batch(batch) for batch in batches]).tolist()
        return [[[values[number] for number in path] for path in query] for query in lookup]
    except OutOfMemoryError:
        if len(queries) == 1:
            raise
    halves = queries[: len(queries) // 2], queries[len(queries) // 2 :]
    return [values for half in halves for values in read_pack(half, budget_tokens, readers, as_tree=as_tree)]
