"""Plan forward passes: the queries of each pass, and the positions of each answer's log-probabilities.

Pure and torch-free. A pack holds whole queries, so a computed pack is a batch of complete answers. The plan depends
on the queries alone, so an interrupted run that resumes packs the same way and gives bit-identical numbers.

    queries -> packs (token budget, longest first) -> one PackedTree, or TokenBatches of one exact length
            -> reads, each distinct one once -> log-probabilities back per path
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
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
    TokenPath,
)
from undertow.types import Floats

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
    # A tree cannot hold encoder inputs.
    depths = [max([2**62 if path.source else len(path.tokens) for path in query.paths]) for query in encoded]
    tree = [index for index, depth in enumerate(depths) if depth <= limits.tree_depth]
    plain = [index for index, depth in enumerate(depths) if depth > limits.tree_depth]
    # Neighbours in this order share prefixes, or lengths.
    tree.sort(key=lambda index: min([path.tokens for path in encoded[index].paths]))
    plain.sort(key=lambda index: _shapes(encoded[index]))
    packs = _cut(encoded, tree, limits.budget_tokens, as_tree=True)
    packs += _cut(encoded, plain, limits.budget_tokens, as_tree=False)
    return sorted(packs, key=lambda pack: (-pack.n_tokens, pack.queries))


def _shapes(query: EncodedQuery) -> tuple[list[tuple[int, int]], list[tuple[int, ...]]]:
    """Lengths of encoder and decoder input, the longest first; and the encoder inputs."""
    lengths = sorted(((len(path.source), len(path.tokens)) for path in query.paths), reverse=True)
    return lengths, [path.source for path in query.paths]


def _cut(encoded: Sequence[EncodedQuery], order: Sequence[int], budget_tokens: int, *, as_tree: bool) -> list[Pack]:
    """Fill packs query by query; a query that would overflow a pack opens the next one."""
    packs: list[Pack] = []
    members: list[int] = []
    new_numbers = partial(defaultdict[Hashable, int], count().__next__)
    fed, n_tokens = new_numbers(), 0
    feed = _feed_branches if as_tree else _feed_rows
    for index in order:
        added = feed(fed, encoded[index])
        if members and n_tokens + added > budget_tokens:
            packs.append(Pack(tuple(members), n_tokens, as_tree))
            members, fed, n_tokens = [], new_numbers(), 0
            added = feed(fed, encoded[index])
        members.append(index)
        n_tokens += added
    return [*packs, Pack(tuple(members), n_tokens, as_tree)] if members else packs


def _feed_branches(nodes: dict[Hashable, int], query: EncodedQuery) -> int:
    """Add a query to a tree, which numbers each prefix (its parent and its token) on first use; returns the number of new ones."""
    before = len(nodes)
    for path in query.paths:
        node = -1
        for token in path.tokens:
            node = nodes[node, token]
    return len(nodes) - before


def _feed_rows(rows: dict[Hashable, int], query: EncodedQuery) -> int:
    """Add a query to plain batches, which hold each path and each encoder input once; returns the number of new tokens."""
    needed: dict[Hashable, int] = {(path.source, path.tokens): len(path.tokens) for path in query.paths}
    needed |= {path.source: len(path.source) for path in query.paths if path.source}
    added = sum(cost for need, cost in needed.items() if need not in rows)
    rows |= needed
    return added


def grow_tree(queries: Sequence[EncodedQuery]) -> tuple[PackedTree, Ints]:
    """All paths of the queries as one tree, and for each of their reads its index among the tree's reads [read]."""
    paths, path_of_read, positions, tokens = _flat_reads(queries)
    branches = PrefixTree.from_paths([path.tokens for path in paths])
    nodes = branches.nodes[path_of_read, positions].astype(np.int64)
    (nodes, tokens), lookup = _distinct(nodes, tokens)
    return PackedTree(branches.tokens, branches.depths, branches.ends, nodes, tokens), lookup


def cut_batches(queries: Sequence[EncodedQuery], budget_tokens: int) -> tuple[list[TokenBatch], Ints]:
    """The distinct paths of the queries in batches of one exact length, longest first, and the index of each read [read].

    Encoder inputs of a batch have one length too, each is stored once. Reads are numbered across batches in order, as if the
    results were concatenated.
    """
    paths, path_of_read, positions, tokens = _flat_reads(queries)
    fed = [(path.source, path.tokens) for path in paths]
    rows: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = []  # encoder input, () for none, and decoder input
    for row in sorted(set(fed), key=lambda row: (-len(row[0]), -len(row[1]), row)):
        other = rows and tuple(map(len, rows[-1][0])) != tuple(map(len, row))
        # Rows of one encoder input stay in one batch, so the encoder runs once.
        full = rows and (len(rows[-1]) + 1) * sum(map(len, row)) > budget_tokens
        if other or not rows or (full and not (row[0] and rows[-1][-1][0] == row[0])):
            rows.append([])
        rows[-1].append(row)
    place_of = {row: (number, at) for number, batch in enumerate(rows) for at, row in enumerate(batch)}
    places = np.array([place_of[row] for row in fed], dtype=np.int64)[path_of_read]
    columns, lookup = _distinct(*places.T, positions, tokens)
    by_batch = columns[0].argsort(kind="stable")
    numbers, *reads = (column[by_batch] for column in columns)
    starts = numbers.searchsorted(np.arange(1, len(rows)))
    batches = []
    for batch, *read in zip(rows, *(np.split(column, starts) for column in reads), strict=True):
        batches.append(TokenBatch(np.array([own for _, own in batch], dtype=np.int64), *read))
        if sources := {source: at for at, source in enumerate(dict.fromkeys(source for source, _ in batch if source))}:
            source_of_row = np.array([sources[source] for source, _ in batch], dtype=np.int64)
            inputs = np.array(list(sources), dtype=np.int64)
            batches[-1] = replace(batches[-1], sources=inputs, source_of_row=source_of_row)
    return batches, by_batch.argsort()[lookup]


def _flat_reads(queries: Sequence[EncodedQuery]) -> tuple[list[TokenPath], Ints, Ints, Ints]:
    """The paths of all queries; and of every read its path, position and token [read]."""
    paths = [path for query in queries for path in query.paths]
    flat = chain.from_iterable(chain.from_iterable(path.reads for path in paths))
    reads = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
    return paths, np.repeat(np.arange(len(paths)), [len(path.reads) for path in paths]), reads[:, 0], reads[:, 1]


def _distinct(*columns: Ints) -> tuple[list[Ints], Ints]:
    """The distinct rows of a table in the order they are met, by column, and the index of each row among them [row]."""
    # Below 2**63: a batch has at most 2**15 rows, a context 2**17 positions, a vocabulary 2**18 tokens, and a pack few batches.
    key = columns[0]
    for column in columns[1:]:
        key = key * (column.max(initial=0) + 1) + column
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    order = first.argsort()
    return [column[first[order]] for column in columns], order.argsort()[inverse]


def read_pack(queries: Sequence[EncodedQuery], budget_tokens: int, readers: Readers, *, as_tree: bool) -> Floats:
    """Log-probabilities of all reads, in the order of queries, their paths and the paths' reads [read].

    If memory runs out, read each half by itself, down to single queries.

    Raises:
        OutOfMemoryError: a single query does not fit.
    """
    read_tree, read_batch = readers
    try:
        if as_tree:
            tree, lookup = grow_tree(queries)
            return read_tree(tree)[lookup]
        batches, lookup = cut_batches(queries, budget_tokens)
        return np.concatenate([read_batch(batch) for batch in batches])[lookup]
    except OutOfMemoryError:
        if len(queries) == 1:
            raise
    halves = queries[: len(queries) // 2], queries[len(queries) // 2 :]
    return np.concatenate([read_pack(half, budget_tokens, readers, as_tree=as_tree) for half in halves])
