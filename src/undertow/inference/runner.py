"""The runner: queries in, answers out, with the answer cache in between.

The engine opens the model and yields answers as they arrive; only the runner writes to the cache.
"""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TypeAlias, TypeVar

from undertow.errors import LOGGER, UndertowError
from undertow.inference.answer_cache import AnswerCache, UnreadableCacheError
from undertow.inference.free_replies import REPLY_TOKENS, check_text, read_answer, reply_queries
from undertow.inference.work_units import AnswerBatch, ModelLoaded, QueryRunner, facts_of, remaining_cost
from undertow.models.base import CostEstimate, ModelHandle
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXTRACTION,
    GENERATION,
    NOT_SEEN,
    PROMPT,
    TEXT,
    WRITING,
    Answer,
    ClozeQuery,
    ContinuationQuery,
    GenerateQuery,
    Progress,
    Query,
    Scores,
    query_digest,
    query_kind,
)

T = TypeVar("T")
KEPT = ("cut_at_tokens", "served_as", "stored_s")
"""Facts about a reply that its answer has too."""
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
"""Names of the kinds of query; `doctor` prints another kind by its own name."""


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
        n_controls: number of control sentences, which enter no measure; the cost includes them.
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
        names = ("n_queries", "n_distinct", "n_stored", "n_controls")
        counts = {name: sum(getattr(one, name) for one in estimates) for name in names}
        notes = dict.fromkeys(note for one in estimates for note in one.notes)
        return cls(**asdict(CostEstimate.total(estimates)), **counts, notes=tuple(notes))


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
    reply_tokens: int = REPLY_TOKENS,
) -> RunnerResult:
    """Answers to all queries, in order, stored as they arrive; those of passes at most every `STORE_EVERY_S`.

    `reply_tokens` is the token limit of a reply under protocol `text`.
    """
    check_capabilities(handle, queries, protocol)
    free, own = protocol == TEXT, queries
    if free:
        queries, protocol = reply_queries(handle, own, reply_tokens)
    digests = [query_digest(query) for query in queries]
    distinct = dict(zip(digests, queries, strict=True))
    key = handle.identity.key(protocol)
    answers, (earlier_notes, facts) = _with_recovery(
        store, lambda: (store.get(key, list(distinct)), store.notes_and_facts(key))
    )
    earlier, n_tokens, seconds, notes = frozenset(answers), 0, 0.0, earlier_notes
    lost, waiting = dict[str, Answer](), dict[str, Answer]()

    def store_waiting() -> float:
        nonlocal waiting
        fresh, waiting = waiting, {}  # a batch that the disk refuses is not tried twice
        if fresh:
            _with_recovery(store, lambda: store.put(handle.identity, protocol, fresh, notes, facts))
        return time.perf_counter()

    progress(len(answers), len(distinct))
    if len(earlier) < len(distinct):
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
                # A later answer to the same query takes the place of the first.
                fresh = {digest: answer for digest, answer in arrived.answers.items() if digest not in earlier}
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
    forgotten = Answer.missing("the model gave no answer")
    ordered = tuple(answers.get(digest) or lost.get(digest, forgotten) for digest in digests)
    if free:
        ordered = tuple(
            replace(read_answer(*pair), **{name: getattr(pair[1], name) for name in KEPT})
            for pair in zip(own, ordered, strict=True)
        )
    elif unseen := _unread_options(distinct, answers):
        notes = (*notes, f"{NOT_SEEN}: {', '.join(unseen)}")
    scored = any(isinstance(query, (ClozeQuery, ContinuationQuery)) for query in queries)
    return RunnerResult(
        scores=Scores(ordered, handle.identity.scoring_method if scored else PROMPT),
        n_distinct=len(distinct),
        n_computed=len(answers) - len(earlier),
        n_tokens=n_tokens,
        seconds=seconds,
        notes=notes,
        facts=facts,
        n_lost=len(distinct) - len(answers),
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


def distinct_and_stored(
    handle: ModelHandle, queries: Sequence[Query], store: AnswerCache, protocol: str, reply_tokens: int = REPLY_TOKENS
) -> tuple[str, dict[str, Query], dict[str, Answer]]:
    """The protocol by which the model is queried, the distinct queries by digest, and the stored answers among them."""
    check_capabilities(handle, queries, protocol)
    if protocol == TEXT:
        queries, protocol = reply_queries(handle, queries, reply_tokens)
    distinct = {query_digest(query): query for query in queries}
    return protocol, distinct, store.get(handle.identity.key(protocol), list(distinct))


def estimate(
    handle: ModelHandle, queries: Sequence[Query], store: AnswerCache, protocol: str, reply_tokens: int = REPLY_TOKENS
) -> RunEstimate:
    """Estimate the cost of a run. Loads the model and times one pass if any query is left."""
    protocol, distinct, stored = distinct_and_stored(handle, queries, store, protocol, reply_tokens)
    counts = len(queries), len(distinct), len(stored)
    if len(stored) == len(distinct):
        return RunEstimate.from_cost(CostEstimate(0, 0, 0.0, 0), *counts)
    return RunEstimate.from_cost(remaining_cost(handle.open(), distinct, stored, protocol), *counts)
