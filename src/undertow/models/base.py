"""The interface of a model family, and the arrays that carry tokens to it and log-probabilities back.

A family is one file in `families/` with a function `resolve(request) -> ModelHandle | None`. A `ModelHandle` holds the model's
identity without its weights, so that a run whose answers are all cached never loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from undertow.errors import UndertowError
from undertow.types import BLANK, CONTINUATIONS, Answer, Floats, ModelIdentity, Query, ScoredQuery

Ints: TypeAlias = NDArray[np.int64]

DTYPES = ("float32", "bfloat16", "float16")
FLOAT32 = "float32"
EXACT, PAPER = "exact", "paper"
"""Protocols: the whole distribution, or what the papers read: the five most probable tokens, the others as nothing."""
PAPER_TOP = 5
CHAT_TRAINED = "instruction-tuned (has a chat template)"
"""What a chat template says of a model's post-training."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The model that a user asks for.

    Attributes:
        name: a name of the catalog, the toy with its settings, a hub id, or the path of a folder or GGUF file.
        revision: branch, tag or commit of a hub id; "" for the default.
        dtype: one of `DTYPES`.
        device: `auto`, or what torch calls it (`cpu`, `cuda`, `cuda:1`, `mps`).
        settings: a family's own, by name; each family's `Settings` says which, their defaults and their help.
    """

    name: str
    revision: str = ""
    dtype: str = FLOAT32
    device: str = "auto"
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)


class UnsupportedQueryError(UndertowError):
    """A query that this model cannot be asked; the message is the reason that is kept with its answer."""


class OutOfMemoryError(UndertowError):
    """Memory ran out in one pass; fewer queries at a time may have room, and the message is for when not even one has."""


class RequestFailedError(UndertowError):
    """A query that got no answer this time (a server failed); the message is the reason, and it is asked again next time."""


@dataclass(frozen=True, slots=True)
class TokenPath:
    """One text as a model reads it.

    Attributes:
        tokens: what is fed, in order.
        reads: (position, token) pairs: after `tokens[position]`, how probable is `token`?
        source: what an encoder is fed before, where the model has one apart from its decoder.

        text      In  1801  ,   she  was  a  child  .
        tokens    0    1    2    3    4   5    6          <- the last token is read, never fed
        reads               2:she 3:was 4:a 5:child 6:.
    """

    tokens: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    source: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query in tokens.

    Attributes:
        paths: texts to be read; where `options` is empty, one for each option, in the query's order.
        duplicate_options: options that are spelled like an earlier one of their group, and count once.
        options: the paths whose reads make up each option, where an option takes several; its first read is that of the
            first path.
        bidirectional: whether a read depends on the whole text (a masked model) and not on what stands before it only.
    """

    paths: tuple[TokenPath, ...]
    duplicate_options: frozenset[int] = frozenset()
    options: tuple[tuple[int, ...], ...] = ()
    bidirectional: bool = False

    @property
    def option_paths(self) -> tuple[tuple[int, ...], ...]:
        """The paths of each option [option][path]."""
        return self.options or tuple((path,) for path in range(len(self.paths)))

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Tokens that each option takes in its place [option]; () where all are spelled alike, so that nothing tells them apart.

        Where the words behind the blank are read too, the tokens that all options end with are not counted: they are these words.
        """
        read = [tuple(token for path in parts for _, token in self.paths[path].reads) for parts in self.option_paths]
        if len(set(read)) < 2:
            return ()
        # A masked model reads nothing but the options.
        behind = 0 if self.bidirectional else min(common_prefix_length(read[0][::-1], tokens[::-1]) for tokens in read)
        behind = min(behind, min(map(len, read)) - 1)
        return tuple(len(tokens) - behind for tokens in read)


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two paths have in common from the start."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Distinct paths grown into one tree, each shared prefix once, in depth-first order.

    Attributes:
        tokens, depths, ends: as in `PackedTree` [node].
        nodes_of: the nodes of each path, root first, by its tokens.
    """

    tokens: Ints
    depths: Ints
    ends: Ints
    nodes_of: Mapping[tuple[int, ...], Sequence[int]]

    @classmethod
    def from_paths(cls, paths: Iterable[tuple[int, ...]]) -> PrefixTree:
        """Grow the tree."""
        tokens: list[int] = []
        depths: list[int] = []
        ends: list[int] = []
        nodes_of: dict[tuple[int, ...], list[int]] = {}
        open_tokens: tuple[int, ...] = ()
        open_nodes: list[int] = []
        for path in sorted(set(paths)):
            shared = common_prefix_length(open_tokens, path)
            for node in open_nodes[shared:]:
                ends[node] = len(tokens)
            open_nodes = open_nodes[:shared] + list(range(len(tokens), len(tokens) + len(path) - shared))
            tokens += path[shared:]
            depths += range(shared, len(path))
            ends += [0] * (len(path) - shared)
            open_tokens, nodes_of[path] = path, open_nodes
        for node in open_nodes:
            ends[node] = len(tokens)
        columns = [np.array(column, dtype=np.int64) for column in (tokens, depths, ends)]
        return cls(columns[0], columns[1], columns[2], nodes_of)


@dataclass(frozen=True, slots=True)
class PackedTree:
    """Many paths as one tree, each shared prefix once, in depth-first order.

    Attributes:
        tokens: token at each node [node].
        depths: distance from the root, which is the position in the text [node].
        ends: one past the last node of the subtree below [node]. Node j descends from i iff i <= j < ends[i],
            so the attention mask of the whole tree is two comparisons.
        read_nodes, read_tokens: after node `read_nodes[r]`, how probable is `read_tokens[r]`? [read]
    """

    tokens: Ints
    depths: Ints
    ends: Ints
    read_nodes: Ints
    read_tokens: Ints


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Paths of one exact length, so that no padding and no mask is needed.

    Attributes:
        tokens: [row, position].
        read_rows, read_positions, read_tokens: what is read [read].
        sources: distinct encoder inputs of one exact length [source, position]; none for a model without an encoder.
        source_of_row: which of them belongs to each row [row].
    """

    tokens: Ints
    read_rows: Ints
    read_positions: Ints
    read_tokens: Ints
    sources: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    source_of_row: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a loaded model can take.

    Attributes:
        budget_tokens: tokens of one forward pass that use the machine well.
        tree_depth: longest path that the tree reading answers exactly; 0 if this model must read plain batches.
    """

    budget_tokens: int
    tree_depth: int


class TokenModel(Protocol):
    """A loaded model whose tokens we see.

    Attributes:
        identity: the model's identity.
        notes: what a reader of the results must know about how it was read, for the manifest.
        limits: what it can take.
    """

    identity: ModelIdentity
    notes: tuple[str, ...]
    limits: BatchLimits

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query in tokens, or why this model cannot be asked it, in order."""
        ...

    def read_tree(self, tree: PackedTree) -> Floats:
        """Log-probabilities in nats, one for each read of the tree [read]."""
        ...

    def read_batch(self, batch: TokenBatch) -> Floats:
        """Log-probabilities in nats, one for each read of the batch [read]."""
        ...

    def memory_bytes(self, budget_tokens: int) -> int:
        """Memory that weights and one forward pass of so many tokens take, estimated."""
        ...


class TopModel(TokenModel, Protocol):
    """A loaded model that can be read under protocol `paper`."""

    def read_top(self, batch: TokenBatch, top: int) -> Floats:
        """As `read_batch`, minus infinity for tokens that are not among the `top` most probable ones [read]."""
        ...


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What answering takes.

    Attributes:
        n_tokens: tokens read and written, estimated.
        n_passes: forward passes, or requests.
        seconds: estimated; NaN where that cannot be said.
        memory_bytes: of this machine, estimated.
        passes: what `n_passes` counts.
    """

    n_tokens: int
    n_passes: int
    seconds: float
    memory_bytes: int
    passes: str = "forward passes"


class AnsweringModel(Protocol):
    """A loaded model that is asked whole queries: prompts to be answered step by step, or anything, if it has no tokens to show.

    A model may be this and a `TokenModel`: prompts go to `answer`, everything else to `encode` and the reads. One that answers
    several queries in one go, so that rounding depends on which, also has `packs(queries)`: their places, by what goes together,
    the same for the same queries; then a run that is taken up again asks as one that was not cut off. One that keeps something from
    a pack for the next has `sections(queries)` too, lists of the packs that may share it, and `reset_cache()`, which drops it and is
    called before each of them; so a section's answers depend on the section alone, and one that is half done is done again.

    Attributes:
        identity: the model's identity.
        notes: what a reader of the results must know about how it was read; may grow while it answers. A model that reads
            sentences too may have `prompt_notes` beside them.
    """

    identity: ModelIdentity
    notes: tuple[str, ...]

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        """Answers by their places in `queries`, as they arrive: what is yielded is stored before more is asked.

        Raises:
            UndertowError: nothing more can be asked; what was yielded is kept.
        """
        ...

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """What answering these would take."""
        ...


LoadedModel: TypeAlias = Any
"""A `TokenModel`, an `AnsweringModel`, or both.

It may have `facts`: `parameters` (a number), `objective` and `post_training` (words), for comparing models with each other.
"""

TOKEN_CAPABILITIES: Mapping[str, tuple[str, ...]] = {BLANK: (EXACT,), CONTINUATIONS: (EXACT,)}
"""What a model that is read by its tokens can be asked, and under which protocols."""


@dataclass(frozen=True, slots=True)
class ModelHandle:
    """A model that exists, not loaded yet.

    Attributes:
        identity: the model's identity.
        open: loads it.
        capabilities: kinds of query that it answers, each with the protocols that it supports.
    """

    identity: ModelIdentity
    open: Callable[[], LoadedModel]
    capabilities: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: TOKEN_CAPABILITIES)
