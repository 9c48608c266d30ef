"""The interface of a model family, and the arrays that carry tokens to it and log-probabilities back.

A family is one file in `families/` with a function `resolve(request) -> ModelHandle | None`. A `ModelHandle` holds the model's
identity without its weights, so that a run whose answers are all cached never loads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, count
from operator import ne
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from undertow.errors import UndertowError
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXACT,
    GENERATION,
    PAPER,
    WRITING,
    Answer,
    ConstrainedGenerateQuery,
    Floats,
    ModelIdentity,
    Query,
    ScoredQuery,
)

Ints: TypeAlias = NDArray[np.int64]
Capabilities: TypeAlias = Mapping[str, tuple[str, ...]]
"""Protocols by supported kind of query."""
T = TypeVar("T")

DTYPES = ("float32", "bfloat16", "float16")
FLOAT32 = "float32"
PAPER_TOP = 5
IN_MEMORY = "in memory"
"""Source of a network that was not loaded from files."""
CHAT_TRAINED = "instruction-tuned (has a chat template)"
"""The post-training that a chat template implies."""


@runtime_checkable
class Network(Protocol):
    """A network of transformers that is loaded already, such as one of `AutoModelForCausalLM`."""

    config: Any
    """Its configuration."""

    def state_dict(self) -> Any:
        """Its weights by name."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The model that a user names.

    Attributes:
        name: a registry name, the toy with its settings, a hub id, or the path of a folder or GGUF file.
        revision: branch, tag or commit of a hub id; "" for the default.
        dtype: one of `DTYPES`.
        device: `auto`, or torch's name (`cpu`, `cuda`, `cuda:1`, `mps`).
        settings: settings of the family, by name; see its `Settings`.
        network, tokenizer: of transformers, loaded already; then `name` is what reports call them, and there are no files.
        label: what reports call the model; "" for its name.
        system_prompt: the system message of every chat; "" for none.
    """

    name: str
    revision: str = ""
    dtype: str = FLOAT32
    device: str = "auto"
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    network: Any = field(default=None, repr=False, compare=False)
    tokenizer: Any = field(default=None, repr=False, compare=False)
    label: str = ""
    system_prompt: str = ""

    @property
    def report_name(self) -> str:
        """What findings, tables and figures call the model."""
        return self.label or self.name


def split_label(text: str) -> tuple[str, str]:
    """Split `label=NAME` into label and name, without surrounding white space; the label is "" if there is none.

    A label has neither slash nor colon, so that `toy:slope=-1` and `runs/lr=0.1` are names; so is the name of a folder that exists.
    """
    if Path(text).exists():
        return "", text
    label, equals, name = text.partition("=")
    if not equals or not label.strip() or not name.strip() or set(label) & set("/\\:"):
        return "", text.strip()
    return label.strip(), name.strip()


class UnsupportedQueryError(UndertowError):
    """The model does not support this query; the message is stored as the answer's `missing_reason`."""


def attempt(encode: Callable[..., T], *arguments: Any) -> T | UnsupportedQueryError:
    """What `encode` returns for a query, or why the query is not supported."""
    try:
        return encode(*arguments)
    except UnsupportedQueryError as error:
        return error.with_traceback(None)


def sampling_seed(query: ConstrainedGenerateQuery) -> bytes:
    """A seed that depends on the query only, not on its batch (32 bytes)."""
    return hashlib.sha256(f"{query.seed}\n{query.display_text()}".encode("utf-8", "replace")).digest()


class OutOfMemoryError(UndertowError):
    """Memory ran out in one pass. A smaller pass may fit; the message is for a pass of a single query."""


class RequestFailedError(UndertowError):
    """A request failed, for example at a server; the next run tries it again. The message is the reason."""


Outcome: TypeAlias = Answer | UnsupportedQueryError | RequestFailedError
"""An answer, or why there is none."""
CONTENT_FILTER = "the server's content filter"
"""A part of the reason of an answer that a server withheld, which is a refusal of the service."""
NOT_A_NUMBER = "the model gave a probability that is not a number"
EMPTY_PASSAGE = "the passage that the answer is to be made of is empty"
"""Reasons that several families give."""


@dataclass(frozen=True, slots=True)
class TokenPath:
    """One text in tokens, and where to read probabilities.

    Attributes:
        tokens: input tokens, in order.
        reads: (position, token) pairs: after `tokens[position]`, how probable is `token`?
        source: input of the encoder, if the model has one.

            text      In  1801  ,   she  was  a  child  .
            tokens    0    1    2    3    4   5    6          <- the last token is read, not fed
            reads               2:she 3:was 4:a 5:child 6:.
    """

    tokens: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    source: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query in tokens.

    Attributes:
        paths: texts to read; one per option in the query's order if `options` is empty.
        duplicate_options: options with the tokens of an earlier one of their group; they count once.
        options: indices of the paths of each option, if an option needs several; () for one that the tokenizer does not know.
        spaced: indices of the paths of each option with a space before it, which are a second way to write it; () if none.
        bidirectional: whether a read depends on the whole text (a masked model), not only on what precedes it.
    """

    paths: tuple[TokenPath, ...]
    duplicate_options: frozenset[int] = frozenset()
    options: tuple[tuple[int, ...], ...] = ()
    spaced: tuple[tuple[int, ...], ...] = ()
    bidirectional: bool = False

    @property
    def n_tokens(self) -> tuple[int, ...]:
        """Number of tokens of each option [option]; () where all options have the same tokens.

        Without the tokens that all options end with, which are the words behind the blank.
        """
        of_path = [[token for _, token in path.reads] for path in self.paths]
        by_option = [[token for path in parts for token in of_path[path]] for parts in self.options] or of_path
        from_behind = [tokens[::-1] for tokens in by_option if tokens]
        first, last = min(from_behind, default=[]), max(from_behind, default=[])
        if first == last:
            return ()
        # The common prefix of the first and the last in order is that of all. A masked model reads the options only.
        behind = 0 if self.bidirectional else common_prefix_length(first, last)
        behind = min(behind, min(map(len, from_behind)) - 1)
        return tuple([len(tokens) - behind if tokens else 0 for tokens in by_option])


@dataclass(frozen=True, slots=True)
class IndexedQuery:
    """A query encoded as its family answers it, and its index among the queries."""

    place: int


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two token sequences."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Paths as one tree, each shared prefix once, in depth-first order.

    Attributes:
        tokens, depths, ends: as in `PackedTree` [node].
        nodes: the nodes of each path, root first; without meaning behind its end [path, position].
    """

    tokens: Ints
    depths: Ints
    ends: Ints
    nodes: NDArray[np.int32]

    @classmethod
    def from_paths(cls, paths: Sequence[tuple[int, ...]]) -> PrefixTree:
        """Build the tree.

        Paths are in lexicographic order, and a path has nodes of its own from where it differs from the one before:

            1 2 3        nodes  0 1 2        ends  5 4 3
            1 2 4               0 1 3              5 4 4
            1 5                 0 4                5 5
        """
        lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
        inside = np.arange(lengths.max(initial=1)) < lengths[:, None]
        table = np.zeros(inside.shape, dtype=">i8")  # as bytes, big-endian numbers have the order of their values
        table[inside] = np.fromiter(chain.from_iterable(paths), dtype=np.int64) + 1
        order = table.view(f"V{table.strides[0]}").ravel().argsort(kind="stable")
        rows, differs = table[order], np.ones_like(inside)
        np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1, out=differs[1:])
        is_new = differs & inside[order]
        numbers = is_new.cumsum(dtype=np.int32).reshape(is_new.shape) - 1
        nodes = np.empty_like(numbers)
        nodes[order] = np.maximum.accumulate(np.where(is_new, numbers, 0), axis=0)
        # A subtree ends before the first node of the next path that differs at its root or above.
        n_nodes = np.count_nonzero(is_new)
        nexts = np.full_like(numbers, n_nodes)
        nexts[:-1] = np.where(differs[1:], numbers[:-1, -1:] + 1, n_nodes)
        ends = np.minimum.accumulate(nexts[::-1], axis=0)[::-1]
        return cls(rows[is_new].astype(np.int64) - 1, is_new.nonzero()[1], ends[is_new].astype(np.int64), nodes)


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
    """Paths of one length, without padding or mask.

    Attributes:
        tokens: [row, position].
        read_rows, read_positions, read_tokens: where to read which token [read].
        sources: distinct encoder inputs of one length [source, position]; none without an encoder.
        source_of_row: encoder input of each row [row].
    """

    tokens: Ints
    read_rows: Ints
    read_positions: Ints
    read_tokens: Ints
    sources: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    source_of_row: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Batch limits of a loaded model.

    Attributes:
        budget_tokens: efficient number of tokens of one forward pass.
        tree_depth: longest path that a tree reads exactly; 0 if the model needs plain batches.
    """

    budget_tokens: int
    tree_depth: int


class TokenModel(Protocol):
    """A loaded model that scores tokens; `notes` say for the manifest how it was read."""

    identity: ModelIdentity
    notes: tuple[str, ...]
    limits: BatchLimits

    def encode(self, queries: Sequence[ScoredQuery]) -> list[EncodedQuery | UnsupportedQueryError]:
        """Each query in tokens, or why it is not supported, in order."""

    def read_tree(self, tree: PackedTree) -> Floats:
        """Log-probabilities in nats, one for each read of the tree [read]."""

    def read_batch(self, batch: TokenBatch) -> Floats:
        """Log-probabilities in nats, one for each read of the batch [read]."""

    def memory_bytes(self, budget_tokens: int) -> int:
        """Estimated memory of the weights and one forward pass of this many tokens."""


class TopModel(TokenModel, Protocol):
    """A loaded model that can be read under protocol `paper`."""

    def read_top(self, batch: TokenBatch, top: int) -> Floats:
        """As `read_batch`, minus infinity for tokens that are not among the `top` most probable ones [read]."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of answering.

    Attributes:
        n_tokens: tokens read and written, estimated.
        n_passes: forward passes, or requests.
        seconds: estimated; NaN where unknown.
        memory_bytes: of this machine, estimated.
        passes: the unit of `n_passes`.
    """

    n_tokens: int
    n_passes: int
    seconds: float
    memory_bytes: int
    passes: str = "forward passes"

    @classmethod
    def total(cls, costs: Sequence[CostEstimate]) -> CostEstimate:
        """The cost of all of them, one after the other."""
        return CostEstimate(
            sum(one.n_tokens for one in costs),
            sum(one.n_passes for one in costs),
            sum(one.seconds for one in costs),
            max(one.memory_bytes for one in costs),
            " and ".join(dict.fromkeys(one.passes for one in costs if one.n_passes)) or costs[0].passes,
        )


class AnsweringModel(Protocol):
    """A loaded model that answers whole queries.

    A model may be this and a `TokenModel`: then prompts go to `answer` and all other queries to `encode` and the reads. Models that
    answer queries in packs implement `packs(queries)`, the indices of each pack, equal for equal queries, so a resumed run packs
    as before. Models that reuse a cache across packs also implement `sections(queries)` (groups of packs that may share it) and
    `reset_cache()`, which is called before each section. Results depend on the section only; an interrupted one is computed again.

    Attributes:
        notes: notes on how it was read; may grow while it answers. A model that also scores tokens may have `prompt_notes`.
        SYSTEM_PROMPTS: whether its chats begin with `identity.system_prompt`; a model without the attribute refuses one.
    """

    identity: ModelIdentity
    notes: tuple[str, ...]

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """Answers by index in `queries`, as they arrive; the runner stores them, and replaces one that arrives again.

        Raises:
            UndertowError: the model cannot continue; earlier answers stay valid.
        """

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The estimated cost of these queries."""


LoadedModel: TypeAlias = Any
"""A `TokenModel`, an `AnsweringModel`, or both.

It may have `facts` for model comparison: `parameters` (a number), `objective` and `post_training` (words).
"""

TOKEN_CAPABILITIES: Capabilities = {BLANK: (EXACT,), CONTINUATIONS: (EXACT,)}
"""Query kinds and protocols of a model that scores tokens."""
PROMPT_CAPABILITIES: Capabilities = {GENERATION: (EXACT, PAPER), CHOICE: (EXACT, PAPER), WRITING: (EXACT,)}
"""Those of a model that answers prompts and shows all probabilities."""


@dataclass(frozen=True, slots=True)
class ModelHandle:
    """A resolved model that `open` loads, and its protocols by supported kind of query."""

    identity: ModelIdentity
    open: Callable[[], LoadedModel]
    capabilities: Capabilities = field(default_factory=lambda: TOKEN_CAPABILITIES)
