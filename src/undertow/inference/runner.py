"""The runner: queries in, answers out, with the answer cache in between.

Queries that are scored token by token go through the planner, pack by pack; prompts go to the model whole. The engine
opens the model and yields answers as they arrive; only the runner writes to the cache.
"""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import islice
from typing import TypeAlias, TypeVar, cast

import numpy as np

from undertow.errors import LOGGER, UndertowError
from undertow.inference.answer_cache import AnswerCache, UnreadableCacheError
from undertow.inference.free_replies import check_text, read_answer, reply_queries
from undertow.inference.planner import plan, read_pack
from undertow.models.backend.malloc import trim_memory
from undertow.models.base import (
    NOT_A_NUMBER,
    PAPER_TOP,
    AnsweringModel,
    CostEstimate,
    EncodedQuery,
    LoadedModel,
    ModelHandle,
    OutOfMemoryError,
    RequestFailedError,
    TokenModel,
    TopModel,
    UnsupportedQueryError,
)
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXTRACTION,
    GENERATION,
    NOT_SEEN,
    PAPER,
    PROMPT,
    TEXT,
    WRITING,
    Answer,
    ClozeQuery,
    ContinuationQuery,
    Floats,
    GenerateQuery,
    Progress,
    Query,
    ScoredQuery,
    Scores,
    query_digest,
    query_kind,
)

T = TypeVar("T")
MAX_PLANNED = 2**15
"""Queries that one plan covers."""
STORE_EVERY_S = 1.0
"""Seconds from one transaction to the next; passes that are faster share one, because the disk would slow them."""
KIND_WORDS = {
    BLANK: "sentences with a blank",
    CONTINUATIONS: "continuations of a text",
    GENERATION: "prompts to answer",
    CHOICE: "choices between labels",
    WRITING: "constrained answers",
    EXTRACTION: "questions about a passage",
}


@dataclass(frozen=True, slots=True)
class RunnerResult:
    """Answers, and the cost of getting them.

    Attributes:
        scores: in the order of the queries.
        n_distinct: number of distinct queries.
        n_computed: queries that were not in the cache.
        n_tokens: tokens fed for these; an estimate for generated answers.
        seconds: time spent computing, without loading the model.
        notes: notes on how the model was read, now or when its answers were stored.
        facts: facts about the model where known: `parameters`, `objective`, `post_training`.
        n_lost: queries whose request failed; the next run tries them again.
    """

    scores: Scores
    n_distinct: int
    n_computed: int
    n_tokens: int
    seconds: float
    notes: tuple[str, ...]
    facts: Mapping[str, str | float] = field(default_factory=dict)
    n_lost: int = 0


@dataclass(frozen=True, slots=True)
class RunEstimate(CostEstimate):
    """The estimated cost of what is left of a run; 0 seconds if nothing is.

    Attributes:
        n_queries, n_distinct, n_stored: queries, distinct ones, and those in the cache.
        notes: notes on the design: its W lists, and limits of its power.
        n_controls: number of control sentences, which enter no measure.
    """

    n_queries: int = 0
    n_distinct: int = 0
    n_stored: int = 0
    notes: tuple[str, ...] = ()
    n_controls: int = 0

    @classmethod
    def from_cost(cls, cost: CostEstimate, n_queries: int, n_distinct: int, n_stored: int) -> RunEstimate:
        """A run whose unanswered queries cost this."""
        return cls(**asdict(cost), n_queries=n_queries, n_distinct=n_distinct, n_stored=n_stored)

    @classmethod
    def of_models(cls, estimates: Sequence[RunEstimate]) -> RunEstimate:
        """The total over models that run one after another."""
        n_queries, n_distinct, n_stored = (
            sum(getattr(one, name) for one in estimates) for name in ("n_queries", "n_distinct", "n_stored")
        )
        return cls.from_cost(CostEstimate.total(estimates), n_queries, n_distinct, n_stored)


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is loaded; `facts` are as in `RunnerResult`."""

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


Engine: TypeAlias = Callable[
    [ModelHandle, dict[str, Query], Mapping[str, Answer], str], Iterator[ModelLoaded | AnswerBatch]
]
"""Where a model runs. Called with the model, the distinct queries by digest, the stored answers among them and the protocol;
it opens the model, yields one `ModelLoaded`, then batches. The runner stores batches as they arrive."""


def local_engine(
    handle: ModelHandle, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
) -> Iterator[ModelLoaded | AnswerBatch]:
    """The engine that runs the model in this process."""
    model = handle.open()
    yield ModelLoaded(facts_of(model))
    runner = QueryRunner(model, distinct, protocol)
    for unit in runner.work_units(frozenset(stored)):
        if isinstance(unit, AnswerBatch):
            yield unit
        else:
            yield from runner.answers(unit)


def facts_of(model: LoadedModel) -> dict[str, str | float]:
    """Facts about a loaded model: its own `facts`, and `weights`, a fingerprint of its weights."""
    weights = getattr(getattr(model, "network", None), "weights_digest", "")
    return {**getattr(model, "facts", {}), **({"weights": weights} if weights else {})}


def check_weights(name: str, before: Mapping[str, str | float], now: Mapping[str, str | float]) -> None:
    """Refuse a model whose weights differ from those that the same files and version gave before."""
    first, second = (str(facts.get("weights", "")) for facts in (before, now))
    if first != second and first.partition(":")[0] == second.partition(":")[0]:
        raise UndertowError(
            f"{name}: its weights differ from an earlier load of the same files ({first}, then {second}); the files changed during "
            f"loading or are incomplete; check them, and remove the earlier answers with `undertow cache prune -m {name}`"
        )


def run_queries(  # noqa: PLR0913 - model, queries, cache and engine
    handle: ModelHandle,
    queries: Sequence[Query],
    store: AnswerCache,
    protocol: str,
    progress: Progress,
    *,
    engine: Engine = local_engine,
) -> RunnerResult:
    """Answers to all queries, in order, stored as they arrive; those of passes at most every `STORE_EVERY_S`."""
    check_capabilities(handle, queries, protocol)
    free, own = protocol == TEXT, queries
    if free:
        queries, protocol = reply_queries(handle, own)
    digests = [query_digest(query) for query in queries]
    distinct = dict(zip(digests, queries, strict=True))
    key = handle.identity.key(protocol)
    answers, earlier_notes, facts = _with_recovery(
        store, lambda: (store.get(key, list(distinct)), store.notes(key), store.facts(key))
    )
    n_stored, n_tokens, seconds, notes = len(answers), 0, 0.0, earlier_notes
    lost, waiting = dict[str, Answer](), dict[str, Answer]()

    def store_waiting() -> float:
        nonlocal waiting
        fresh, waiting = waiting, {}  # a batch that the disk refuses is not tried twice
        if fresh:
            _with_recovery(store, lambda: store.put(handle.identity, protocol, fresh, notes, facts))
        return time.perf_counter()

    progress(len(answers), len(distinct))
    if n_stored < len(distinct):
        started, stored = time.perf_counter(), -math.inf
        try:
            for arrived in engine(handle, distinct, answers, protocol):
                if isinstance(arrived, ModelLoaded):
                    check_weights(handle.identity.name, facts, arrived.facts)
                    LOGGER.info("score %s", handle.identity.name)
                    started, facts = time.perf_counter(), dict(arrived.facts)
                    continue
                # Notes of earlier answers still apply to them.
                notes = tuple(dict.fromkeys([*earlier_notes, *arrived.notes]))
                fresh = {digest: answer for digest, answer in arrived.answers.items() if digest not in answers}
                waiting |= fresh
                answers |= fresh
                lost |= {digest: Answer.missing(reason) for digest, reason in arrived.lost.items()}
                lost = {digest: answer for digest, answer in lost.items() if digest not in answers}
                n_tokens += arrived.n_tokens
                if not arrived.n_tokens or time.perf_counter() - stored >= STORE_EVERY_S:  # replies are stored at once
                    stored = store_waiting()
                progress(len(answers) + len(lost), len(distinct))
        except BaseException:
            with suppress(UndertowError):  # the error of the model matters more than one of the cache
                store_waiting()
            raise
        store_waiting()
        seconds = time.perf_counter() - started
        forgotten = [digest for digest in distinct if digest not in answers and digest not in lost]
        lost |= dict.fromkeys(forgotten, Answer.missing("the model gave no answer"))
    ordered = tuple(answers.get(digest) or lost[digest] for digest in digests)
    if free:
        ordered = tuple(map(read_answer, own, ordered))
    elif unseen := _unread_options(distinct, answers):
        notes = (*notes, f"{NOT_SEEN}: {', '.join(unseen)}")
    scored = any(isinstance(query, (ClozeQuery, ContinuationQuery)) for query in queries)
    return RunnerResult(
        scores=Scores(ordered, handle.identity.scoring_method if scored else PROMPT),
        n_distinct=len(distinct),
        n_computed=len(answers) - n_stored,
        n_tokens=n_tokens,
        seconds=seconds,
        notes=notes,
        facts=facts,
        n_lost=len(lost),
    )


def _with_recovery(store: AnswerCache, does: Callable[[], T]) -> T:
    """Run an action on the cache; if its file cannot be read, move it aside and continue with a new one."""
    try:
        return does()
    except UnreadableCacheError:
        store.quarantine()
        return does()


def _unread_options(distinct: Mapping[str, Query], answers: Mapping[str, Answer]) -> list[str]:
    """Options without a log-probability that no option of the same spelling covers."""
    unseen: dict[str, None] = {}
    for digest, query in distinct.items():
        answer = answers.get(digest)
        if answer is None or not any(map(math.isnan, answer.logprobs_nats)):
            continue
        if answer.missing_reason or not isinstance(query, (ClozeQuery, GenerateQuery)):
            continue
        alike: set[tuple[str, str]] = set()
        for option, nats in zip(query.options, answer.logprobs_nats, strict=True):
            # As an uncased tokenizer sees it: without capitals and accents.
            signs = unicodedata.normalize("NFKD", " ".join(option.fills).strip().casefold())
            same = option.group, "".join(sign for sign in signs if not unicodedata.combining(sign))
            if math.isnan(nats) and same not in alike:
                unseen[" ".join(option.fills)] = None
            elif not math.isnan(nats):
                alike.add(same)
    return list(unseen)


def check_capabilities(handle: ModelHandle, queries: Sequence[Query], protocol: str) -> None:
    """Refuse kinds of query, or a protocol, that the model does not support."""
    if protocol == TEXT:
        check_text(handle, queries)
        return
    for kind in dict.fromkeys(map(query_kind, queries)):
        if kind not in handle.capabilities:
            supported = " and ".join(KIND_WORDS.get(one, one) for one in handle.capabilities)
            raise UndertowError(f"{handle.identity.name}: does not support {KIND_WORDS[kind]}; it supports {supported}")
        if protocol not in handle.capabilities[kind]:
            how = handle.identity.scoring_method if kind in (BLANK, CONTINUATIONS) else "prompts"
            known = " or ".join(handle.capabilities[kind])
            raise UndertowError(
                f"{handle.identity.name}: is read by {how}, which has no protocol {protocol!r}; use {known}"
            )


def estimate(handle: ModelHandle, queries: Sequence[Query], store: AnswerCache, protocol: str) -> RunEstimate:
    """Estimate the cost of a run. Loads the model and times one pass if any query is left."""
    check_capabilities(handle, queries, protocol)
    if protocol == TEXT:
        queries, protocol = reply_queries(handle, queries)
    distinct = {query_digest(query): query for query in queries}
    stored = store.get(handle.identity.key(protocol), list(distinct))
    counts = len(queries), len(distinct), len(stored)
    if len(stored) == len(distinct):
        return RunEstimate.from_cost(CostEstimate(0, 0, 0.0, 0), *counts)
    model = handle.open()
    read, whole = _by_route(model, distinct)
    costs = [_reading_cost(cast(TokenModel, model), read, stored, protocol)] if read else []
    left = [query for digest, query in whole.items() if digest not in stored]
    if left:
        costs.append(cast(AnsweringModel, model).estimate_cost(left, protocol))
    return RunEstimate.from_cost(CostEstimate.total(costs), *counts)


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


def _by_route(model: LoadedModel, distinct: dict[str, Query]) -> tuple[dict[str, ScoredQuery], dict[str, Query]]:
    """Queries that are scored token by token, and prompts."""
    reads = hasattr(model, "encode")
    read = {
        digest: query
        for digest, query in distinct.items()
        if reads and isinstance(query, (ClozeQuery, ContinuationQuery))
    }
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
    model: TokenModel, distinct: dict[str, ScoredQuery], stored: dict[str, Answer], protocol: str
) -> CostEstimate:
    encoded: dict[str, EncodedQuery] = {}
    passes: list[WorkUnit] = []
    for part in _planned_together(distinct):
        encoded, refused = _encode(model, part)
        passes += _passes(model, encoded, stored | refused)
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
    for first, *_ in filter(None, (*query.option_paths, *query.spaced)):
        path = query.paths[first]
        read = path.reads[0]
        claimed[path.tokens if query.bidirectional else path.tokens[: read[0] + 1], read] = probs[first]
    if query.bidirectional and len({context for context, _ in claimed}) > 1:
        return math.nan
    return max(0.0, 1.0 - sum(claimed.values()))
