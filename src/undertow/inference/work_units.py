"""The work of one loaded model: queries are planned as units, and units become answers.

Queries that are scored token by token go through the planner, pack by pack; prompts go to the model whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import cast

import numpy as np

from undertow.inference.planner import plan, read_pack
from undertow.models.backend.malloc import trim_memory
from undertow.models.base import (
    NOT_A_NUMBER,
    PAPER_TOP,
    AnsweringModel,
    CostEstimate,
    EncodedQuery,
    LoadedModel,
    OutOfMemoryError,
    RequestFailedError,
    TokenModel,
    TopModel,
    UnsupportedQueryError,
)
from undertow.types import PAPER, Answer, Floats, Query, ScoredQuery

MAX_PLANNED = 2**15
"""Queries that one plan covers."""


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is loaded; `facts` has what is known of `parameters`, `objective`, `post_training` and `weights`."""

    facts: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """Answers that arrive together.

    Attributes:
        answers: by query digest.
        lost: why requests failed, by query digest.
        n_tokens: tokens fed for the answers.
        notes: notes on how the model was read, so far.
    """

    answers: dict[str, Answer]
    lost: dict[str, str] = field(default_factory=dict)
    n_tokens: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Queries whose answers depend on no others: one pack, or several that are computed in order.

    Attributes:
        packs: query digests of each pass [pack][query].
        n_tokens: tokens to feed; 0 for prompts.
        as_tree: whether the pack is one tree, or plain batches; None for prompts.
        budget_tokens: token budget of a plain batch, so that every worker cuts the same batches.
    """

    packs: tuple[tuple[str, ...], ...]
    n_tokens: int = 0
    as_tree: bool | None = None
    budget_tokens: int = 0


def facts_of(model: LoadedModel) -> dict[str, str | float]:
    """Facts about a loaded model: its own `facts`, and `weights`, a fingerprint of its weights."""
    weights = getattr(getattr(model, "network", None), "weights_digest", "")
    return {**getattr(model, "facts", {}), **({"weights": weights} if weights else {})}


@dataclass(slots=True)
class QueryRunner:
    """A loaded model and its queries by digest: plans work units and computes them."""

    model: LoadedModel
    distinct: dict[str, Query]
    protocol: str
    _encoded: dict[str, EncodedQuery] = field(default_factory=dict)

    def work_units(self, stored: Collection[str], max_free: int = 2**62) -> Iterator[WorkUnit | AnswerBatch]:
        """Work units that are left, in the order of the plan; answers for queries that the model cannot score.

        The plan covers all queries, stored ones too, so it is the same on every worker. Tokens are held for `MAX_PLANNED` queries.

        Args:
            stored: digests of answered queries.
            max_free: most queries of a work unit, where the model has no packs.
        """
        read, whole = _by_route(self.model, self.distinct)
        for part in _planned_together(read):
            if all(digest in stored for digest in part):
                continue
            self._encoded, refused = _encode(cast(TokenModel, self.model), part)
            if refused:
                yield AnswerBatch(refused, notes=self.model.notes)
            yield from _passes(cast(TokenModel, self.model), self._encoded, {*stored, *refused})
        yield from map(WorkUnit, _left_to_answer(self.model, whole, stored, max_free))

    def answers(self, unit: WorkUnit) -> Iterator[AnswerBatch]:
        """Answers of a work unit, as they arrive; `work_units` need not have been called before."""
        if unit.as_tree is None:
            if hasattr(self.model, "reset_cache"):
                self.model.reset_cache()
            for pack in unit.packs:
                yield from self._answered_whole(pack)
                trim_memory()
            return
        model, (members,) = cast(TokenModel, self.model), unit.packs
        unknown = [digest for digest in members if digest not in self._encoded]
        encoded = self._encoded
        if unknown:
            encoded = encoded | _encode(model, {one: cast(ScoredQuery, self.distinct[one]) for one in unknown})[0]
        fresh = _read(model, encoded, unit, self.protocol)
        trim_memory()
        yield AnswerBatch(fresh, n_tokens=unit.n_tokens, notes=model.notes)

    def _answered_whole(self, pack: Sequence[str]) -> Iterator[AnswerBatch]:
        """Answers to prompts; if memory runs out, compute the rest in halves, down to single queries."""
        queries = [self.distinct[digest] for digest in pack]
        left = dict.fromkeys(pack)
        try:
            for arrived in cast(AnsweringModel, self.model).answer(queries, self.protocol):
                # A model that also scores tokens has separate notes on prompts.
                notes = getattr(self.model, "prompt_notes", self.model.notes)
                answers: dict[str, Answer] = {}
                lost: dict[str, str] = {}
                for place, answer in arrived.items():
                    left.pop(pack[place], None)
                    if isinstance(answer, RequestFailedError):
                        lost[pack[place]] = str(answer)
                    elif isinstance(answer, UnsupportedQueryError):
                        answers[pack[place]] = Answer.missing(str(answer))
                    else:
                        answers[pack[place]] = answer
                yield AnswerBatch(answers, lost, notes=notes)
            return
        except OutOfMemoryError:
            if len(left) < 2:
                raise
        rest = list(left)
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            yield from self._answered_whole(half)


def remaining_cost(
    model: LoadedModel, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
) -> CostEstimate:
    """Estimate the cost of the queries that are not stored; times one pass."""
    read, whole = _by_route(model, distinct)
    costs = [_reading_cost(cast(TokenModel, model), read, stored, protocol)] if read else []
    left = [query for digest, query in whole.items() if digest not in stored]
    if left:
        costs.append(cast(AnsweringModel, model).estimate_cost(left, protocol))
    return CostEstimate.total(costs)


def _by_route(model: LoadedModel, distinct: dict[str, Query]) -> tuple[dict[str, ScoredQuery], dict[str, Query]]:
    """Queries that are scored token by token, and prompts."""
    reads = hasattr(model, "encode")
    read = {digest: query for digest, query in distinct.items() if reads and isinstance(query, ScoredQuery)}
    return read, {digest: query for digest, query in distinct.items() if digest not in read}


def _left_to_answer(
    model: LoadedModel, whole: dict[str, Query], stored: Collection[str], max_free: int
) -> Iterator[tuple[tuple[str, ...], ...]]:
    """The packs of each work unit, by a plan over all prompts, less those that are answered."""
    digests, queries = list(whole), list(whole.values())
    free = [digest for digest in digests if digest not in stored]
    if not free:
        return
    if hasattr(model, "sections"):
        for section in model.sections(queries):
            packs = tuple(tuple(digests[place] for place in places) for places in section)
            # Packs share a cache, so an interrupted section is computed again.
            if any(digest not in stored for pack in packs for digest in pack):
                yield packs
        return
    if hasattr(model, "packs"):
        planned: Iterable[list[str]] = ([digests[place] for place in places] for places in model.packs(queries))
    else:
        planned = (free[start : start + max_free] for start in range(0, len(free), max_free))
    for pack in planned:
        if left := tuple(digest for digest in pack if digest not in stored):
            yield (left,)


def _planned_together(read: dict[str, ScoredQuery]) -> Iterator[dict[str, ScoredQuery]]:
    """The queries in parts that are planned one after the other, so that the tokens of a few are held at a time."""
    queries = iter(read.items())
    while part := dict(islice(queries, MAX_PLANNED)):
        yield part


def _reading_cost(
    model: TokenModel, distinct: dict[str, ScoredQuery], stored: Mapping[str, Answer], protocol: str
) -> CostEstimate:
    encoded: dict[str, EncodedQuery] = {}
    passes: list[WorkUnit] = []
    for part in _planned_together(distinct):
        encoded, refused = _encode(model, part)
        passes += _passes(model, encoded, {*stored, *refused})
    timed_passes = [left for left in passes if left.packs[0][0] in encoded]  # of the last part
    n_tokens = sum(left.n_tokens for left in passes)
    largest = max((left.n_tokens for left in passes), default=0)
    seconds = 0.0
    if timed_passes:
        timed = timed_passes[len(timed_passes) // 2]
        _read(model, encoded, timed, protocol)  # the first pass also sets up kernels and threads
        started = time.perf_counter()
        _read(model, encoded, timed, protocol)
        seconds = (time.perf_counter() - started) * n_tokens / timed.n_tokens
    return CostEstimate(n_tokens, len(passes), seconds, model.memory_bytes(max(largest, 1)))


def _encode(model: TokenModel, distinct: dict[str, ScoredQuery]) -> tuple[dict[str, EncodedQuery], dict[str, Answer]]:
    encoded: dict[str, EncodedQuery] = {}
    refused: dict[str, Answer] = {}
    for digest, result in zip(distinct, model.encode(list(distinct.values())), strict=True):
        if isinstance(result, UnsupportedQueryError):
            refused[digest] = Answer.missing(str(result))
        else:
            encoded[digest] = result
    return encoded, refused


def _passes(model: TokenModel, encoded: dict[str, EncodedQuery], answered: Collection[str]) -> list[WorkUnit]:
    """The plan over all queries, less those that are answered."""
    digests = list(encoded)
    left = []
    for pack in plan(list(encoded.values()), model.limits):
        members = tuple(digests[index] for index in pack.queries if digests[index] not in answered)
        if members:
            left.append(WorkUnit((members,), pack.n_tokens, pack.as_tree, model.limits.budget_tokens))
    return left


def _read(model: TokenModel, encoded: dict[str, EncodedQuery], unit: WorkUnit, protocol: str) -> dict[str, Answer]:
    (members,) = unit.packs
    queries = [encoded[digest] for digest in members]
    read_batch = partial(cast(TopModel, model).read_top, top=PAPER_TOP) if protocol == PAPER else model.read_batch
    nats = read_pack(queries, unit.budget_tokens, (model.read_tree, read_batch), as_tree=bool(unit.as_tree))
    return dict(zip(members, answers_of(queries, nats), strict=True))


def answers_of(queries: Sequence[EncodedQuery], nats: Floats) -> list[Answer]:
    """Answers to queries [query], from the log-probability of each read, in the order of queries, paths and their reads [read]."""
    n_reads = [len(path.reads) for query in queries for path in query.paths]
    sums = np.bincount(np.repeat(np.arange(len(n_reads)), n_reads), nats, len(n_reads)).tolist()
    firsts = np.append(nats, 0.0)[np.cumsum([0, *n_reads[:-1]])]
    probs = list(map(math.exp, np.minimum(firsts, 0.0).tolist()))
    ends = np.cumsum([len(query.paths) for query in queries]).tolist()
    return [
        _answer(query, sums[start:end], probs[start:end])
        for query, start, end in zip(queries, [0, *ends], ends, strict=False)
    ]


def _answer(query: EncodedQuery, sums: Sequence[float], probs: Sequence[float]) -> Answer:
    """An answer, from the log-likelihood of each path and the probability of its first read."""
    # The sum is NaN or infinite if one of them is. Minus infinity is an answer: the token is outside those that the protocol uses.
    if not sum(sums) < math.inf:
        return Answer.missing(NOT_A_NUMBER)
    logprobs, spaced = _nats_of(sums, query.options) if query.options else list(sums), _nats_of(sums, query.spaced)
    if spaced:
        logprobs = list(map(_log_sum, logprobs, spaced))
    for option in query.duplicate_options:
        logprobs[option] = math.nan
    n_tokens = _shared(query.n_tokens)
    return Answer(tuple(logprobs), _other_prob(query, probs), n_tokens=n_tokens, spaced_nats=tuple(spaced))


@lru_cache
def _shared(counts: tuple[int, ...]) -> tuple[int, ...]:
    """The first of equal tuples: a million answers have few numbers of tokens."""
    return counts


def _log_sum(nats: float, more: float) -> float:
    """Logarithm of the sum of two probabilities, of which the second may be missing."""
    high = max(nats, more) if not math.isnan(more) else nats
    return high if math.isnan(more) or high == -math.inf else high + math.log1p(math.exp(min(nats, more) - high))


def _nats_of(sums: Sequence[float], options: Sequence[Sequence[int]]) -> list[float]:
    """The log-probability of each option from those of its paths; NaN without paths."""
    return [sum(sums[path] for path in parts) if parts else math.nan for parts in options]


def _other_prob(query: EncodedQuery, probs: Sequence[float]) -> float:
    """One minus the probability of the options' first tokens; NaN if these are from different distributions.

    A masked model reads a word of two tokens in a text with two masks.
    """
    claimed: dict[tuple[tuple[int, ...], tuple[int, int]], float] = {}
    options = query.options or [(path,) for path in range(len(query.paths))]
    for first, *_ in filter(None, (*options, *query.spaced)):
        path = query.paths[first]
        read = path.reads[0]
        claimed[path.tokens if query.bidirectional else path.tokens[: read[0] + 1], read] = probs[first]
    if query.bidirectional and len({context for context, _ in claimed}) > 1:
        return math.nan
    return max(0.0, 1.0 - sum(claimed.values()))
