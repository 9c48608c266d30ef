"""Asking: queries in, answers out, whatever is stored not asked again.

Texts to be read go through the plan, pack by pack; prompts to be answered go to the model whole. Where the model runs is
the engine's business: it opens the model and yields what arrives, and only here is anything stored. Knows the plan, the
store and what a model offers; knows nothing about any model family or challenge.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar, cast

import numpy as np

from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache, CorruptCacheError
from undertow.inference.planner import plan, read_pack
from undertow.models.backend.malloc import give_back_pages
from undertow.models.base import (
    PAPER,
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
    CONTINUATIONS,
    NOT_SEEN,
    PROMPT,
    Answer,
    ClozeQuery,
    ContinuationQuery,
    Floats,
    GenerateQuery,
    Query,
    ScoredQuery,
    Scores,
    kind_of,
    query_digest,
)

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with (queries done, queries in all)."""
KIND_WORDS = {
    "blank": "a sentence with a blank",
    "continuations": "how a text goes on",
    "generation": "a prompt to answer",
    "choice": "which of several labels answers a prompt",
    "writing": "to write an answer within limits",
    "extraction": "a question about a passage",
}


@dataclass(frozen=True, slots=True)
class RunnerResult:
    """Answers, and what it took to get them.

    Attributes:
        scores: in the order of the queries.
        n_distinct: different queries among them.
        n_computed: queries that were not in the store.
        n_tokens: tokens fed for these; of whole answers, an estimate.
        seconds: time spent asking, loading the model not counted.
        notes: what the model said about how it was read, now or when its answers were stored.
        facts: what is known of the model: `parameters`, `objective`, `post_training`; without those that are not.
        n_lost: queries that got no answer this time, and are asked again next time.
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
class RunEstimate:
    """What a run will take.

    Attributes:
        n_queries, n_distinct, n_stored: queries, different ones, and those already answered.
        n_tokens: tokens to feed for the rest.
        n_passes: forward passes, or requests.
        seconds: estimated from one timed pass; 0 if nothing is left to ask, NaN where it cannot be said.
        memory_bytes: weights and the largest pass, estimated.
        passes: what `n_passes` counts.
        notes: sentences on the design: its W lists, and what keeps it from finding anything.
        n_controls: queries beside these, that are in no measure: sentences that decide their answer, for comparison.
    """

    n_queries: int
    n_distinct: int
    n_stored: int
    n_tokens: int
    n_passes: int
    seconds: float
    memory_bytes: int
    passes: str = "forward passes"
    notes: tuple[str, ...] = ()
    n_controls: int = 0

    @classmethod
    def of_all(cls, estimates: Sequence[RunEstimate]) -> RunEstimate:
        """Of several models, asked one after another."""
        return cls(
            n_queries=sum(one.n_queries for one in estimates),
            n_distinct=sum(one.n_distinct for one in estimates),
            n_stored=sum(one.n_stored for one in estimates),
            n_tokens=sum(one.n_tokens for one in estimates),
            n_passes=sum(one.n_passes for one in estimates),
            seconds=sum(one.seconds for one in estimates),
            memory_bytes=max(one.memory_bytes for one in estimates),
            passes=" and ".join(dict.fromkeys(one.passes for one in estimates)),
        )


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is loaded, and asking begins.

    Attributes:
        facts: what is known of it; see `Asked`.
    """

    facts: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """What came back at once.

    Attributes:
        answers: by query digest.
        lost: why others got none this time, by query digest.
        n_tokens: tokens fed for the answers.
        notes: what the model says about how it was read, so far.
    """

    answers: dict[str, Answer]
    lost: dict[str, str] = field(default_factory=dict)
    n_tokens: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Queries whose answers depend on no others: a pack, or several that are answered one behind another.

    Attributes:
        packs: the queries that are asked in one go, by digest [pack][query].
        n_tokens: tokens to feed; 0 where queries are answered whole.
        as_tree: whether one tree is read, or plain batches; None where queries are answered whole.
        budget_tokens: of a plain batch, as the planner has it, so that every reader cuts the same ones.
    """

    packs: tuple[tuple[str, ...], ...]
    n_tokens: int = 0
    as_tree: bool | None = None
    budget_tokens: int = 0

    @property
    def n_queries(self) -> int:
        """How many."""
        return sum(map(len, self.packs))


Engine: TypeAlias = Callable[
    [ModelHandle, dict[str, Query], Mapping[str, Answer], str], Iterator[ModelLoaded | AnswerBatch]
]
"""Where a model runs. Called with the model, the distinct queries by digest, the stored answers among them and the protocol;
it opens the model, says so once, and yields what arrives. What is yielded is stored before more is asked for."""


def local_engine(
    found: ModelHandle, distinct: dict[str, Query], stored: Mapping[str, Answer], protocol: str
) -> Iterator[ModelLoaded | AnswerBatch]:
    """The engine that runs the model in this process."""
    model = found.open()
    yield ModelLoaded(facts_of(model))
    asker = QueryRunner(model, distinct, protocol)
    for portion in asker.portions(frozenset(stored)):
        if isinstance(portion, AnswerBatch):
            yield portion
        else:
            yield from asker.answers(portion)


def facts_of(model: LoadedModel) -> dict[str, str | float]:
    """What is known of a loaded model: its own `facts`, and `weights`, a fingerprint of those that answer."""
    weights = getattr(getattr(model, "network", None), "weights_digest", "")
    return {**getattr(model, "facts", {}), **({"weights": weights} if weights else {})}


def check_weights(name: str, before: Mapping[str, str | float], now: Mapping[str, str | float]) -> None:
    """Refuse a model whose weights are others than those of the same files before, read by the same version.

    Raises:
        UndertowError: they differ.
    """
    first, second = (str(facts.get("weights", "")) for facts in (before, now))
    if first != second and first.partition(":")[0] == second.partition(":")[0]:
        raise UndertowError(
            f"{name}: was loaded with other weights than before, from the same files ({first}, then {second}); they changed while they "
            f"were read, or are not all there; check the files, and remove what was answered with `undertow cache prune -m {name}`"
        )


def run_queries(  # noqa: PLR0913 - what is asked of whom, and where
    found: ModelHandle,
    queries: Sequence[Query],
    store: AnswerCache,
    protocol: str,
    progress: Progress,
    *,
    engine: Engine = local_engine,
) -> RunnerResult:
    """Answers to all queries, in order. What arrives is stored before more is asked."""
    check_asks(found, queries, protocol)
    digests = [query_digest(query) for query in queries]
    distinct = dict(zip(digests, queries, strict=True))
    key = found.identity.key(protocol)
    answers, said, facts = _with_recovery(
        store, lambda: (store.get(key, list(distinct)), store.notes(key), store.facts(key))
    )
    n_stored, n_tokens, seconds = len(answers), 0, 0.0
    lost: dict[str, Answer] = {}
    notes = said
    progress(len(answers), len(distinct))
    if n_stored < len(distinct):
        started = time.perf_counter()
        for arrived in engine(found, distinct, answers, protocol):
            if isinstance(arrived, ModelLoaded):
                check_weights(found.identity.name, facts, arrived.facts)
                started, facts = time.perf_counter(), dict(arrived.facts)
                continue
            # What was said of earlier answers still holds of them.
            notes = tuple(dict.fromkeys([*said, *arrived.notes]))
            fresh = {digest: answer for digest, answer in arrived.answers.items() if digest not in answers}
            if fresh:
                _with_recovery(store, partial(store.put, found.identity, protocol, fresh, notes, facts))
            answers |= fresh
            lost |= {digest: Answer.none(reason) for digest, reason in arrived.lost.items()}
            lost = {digest: answer for digest, answer in lost.items() if digest not in answers}
            n_tokens += arrived.n_tokens
            progress(len(answers) + len(lost), len(distinct))
        seconds = time.perf_counter() - started
        forgotten = [digest for digest in distinct if digest not in answers and digest not in lost]
        lost |= dict.fromkeys(forgotten, Answer.none("the model gave no answer to this"))
    given = answers | lost
    unseen = _never_seen(distinct, answers)
    if unseen:
        notes = (*notes, f"{NOT_SEEN}: {', '.join(unseen)}")
    readout = (
        found.identity.scoring_method
        if any(isinstance(query, (ClozeQuery, ContinuationQuery)) for query in queries)
        else PROMPT
    )
    return RunnerResult(
        scores=Scores(tuple(given[digest] for digest in digests), readout),
        n_distinct=len(distinct),
        n_computed=len(answers) - n_stored,
        n_tokens=n_tokens,
        seconds=seconds,
        notes=notes,
        facts=facts,
        n_lost=len(lost),
    )


def _with_recovery(store: AnswerCache, does: Callable[[], T]) -> T:
    """What is asked can be asked anew: a store that turns out to be damaged is set aside, and asking goes on."""
    try:
        return does()
    except CorruptCacheError:
        store.quarantine()
        return does()


def _never_seen(distinct: Mapping[str, Query], answers: Mapping[str, Answer]) -> list[str]:
    """Words that have no number in an answer, though no word that is spelled like them counts for them."""
    unseen: dict[str, None] = {}
    for digest, query in distinct.items():
        answer = answers.get(digest)
        if answer is None or answer.missing_reason or not isinstance(query, GenerateQuery):
            continue
        alike: set[tuple[str, str]] = set()
        for option, nats in zip(query.options, answer.logprobs_nats, strict=True):
            same = option.group, option.fills[0].strip().casefold()
            if math.isnan(nats) and same not in alike:
                unseen[option.fills[0]] = None
            elif not math.isnan(nats):
                alike.add(same)
    return list(unseen)


def check_asks(found: ModelHandle, queries: Sequence[Query], protocol: str) -> None:
    """Refuse queries that this model cannot be asked, and a protocol that it cannot be read under.

    Raises:
        UndertowError: says what it can be.
    """
    for kind in dict.fromkeys(map(kind_of, queries)):
        if kind not in found.capabilities:
            can = " and ".join(KIND_WORDS.get(one, one) for one in found.capabilities)
            raise UndertowError(f"{found.identity.name}: cannot be asked {KIND_WORDS[kind]}; it can be asked {can}")
        if protocol not in found.capabilities[kind]:
            how = found.identity.scoring_method if kind in (BLANK, CONTINUATIONS) else "prompts"
            raise UndertowError(
                f"{found.identity.name}: is read by {how}, which has no protocol {protocol!r}; use {' or '.join(found.capabilities[kind])}"
            )


def estimate(found: ModelHandle, queries: Sequence[Query], store: AnswerCache, protocol: str) -> RunEstimate:
    """What asking would take. Loads the model and times a little of it if anything is left to ask."""
    check_asks(found, queries, protocol)
    distinct = {query_digest(query): query for query in queries}
    stored = store.get(found.identity.key(protocol), list(distinct))
    if len(stored) == len(distinct):
        return RunEstimate(len(queries), len(distinct), len(stored), 0, 0, 0.0, 0)
    model = found.open()
    read, whole = _by_route(model, distinct)
    efforts = [_effort_of_reading(cast(TokenModel, model), read, stored, protocol)] if read else []
    left = [query for digest, query in whole.items() if digest not in stored]
    if left:
        efforts.append(cast(AnsweringModel, model).estimate_cost(left, protocol))
    return RunEstimate(
        len(queries),
        len(distinct),
        len(stored),
        n_tokens=sum(effort.n_tokens for effort in efforts),
        n_passes=sum(effort.n_passes for effort in efforts),
        seconds=sum(effort.seconds for effort in efforts),
        memory_bytes=max(effort.memory_bytes for effort in efforts),
        passes=efforts[-1].passes,
    )


@dataclass(slots=True)
class QueryRunner:
    """A loaded model and the queries that it is asked: what there is to ask, and asking it.

    Attributes:
        model: loaded.
        distinct: the queries, by digest.
        protocol: how they are read.
    """

    model: LoadedModel
    distinct: dict[str, Query]
    protocol: str
    _encoded: dict[str, EncodedQuery] = field(default_factory=dict)

    def portions(self, stored: Collection[str], most_free: int = 2**62) -> Iterator[WorkUnit | AnswerBatch]:
        """What is left to ask, in the order of the plan; of queries that cannot be asked, their answers.

        The plan is over all queries, whatever is stored. So it is the same wherever it is made.

        Args:
            stored: queries that are answered.
            most_free: queries of one portion, at most, where the model has no packs, so that none matters to another.
        """
        read, whole = _by_route(self.model, self.distinct)
        if read:
            self._encoded, refused = _encode(cast(TokenModel, self.model), read)
            if refused:
                yield AnswerBatch(refused, notes=self.model.notes)
            yield from _passes(cast(TokenModel, self.model), self._encoded, {*stored, *refused})
        yield from map(WorkUnit, _left_to_answer(self.model, whole, stored, most_free))

    def answers(self, portion: WorkUnit) -> Iterator[AnswerBatch]:
        """What the model says to it, as it arrives; an asker that has not planned can be asked too."""
        if portion.as_tree is None:
            if hasattr(self.model, "forget"):
                self.model.forget()
            for pack in portion.packs:
                yield from self._answered_whole(pack)
                give_back_pages()
            return
        model, (members,) = cast(TokenModel, self.model), portion.packs
        unknown = {
            digest: cast(ScoredQuery, self.distinct[digest]) for digest in members if digest not in self._encoded
        }
        encoded = self._encoded | _encode(model, unknown)[0] if unknown else self._encoded
        fresh = _read(model, encoded, portion, self.protocol)
        give_back_pages()
        yield AnswerBatch(fresh, n_tokens=portion.n_tokens, notes=model.notes)

    def _answered_whole(self, pack: Sequence[str]) -> Iterator[AnswerBatch]:
        """Where memory runs out, what has no answer yet is asked in halves, down to single queries."""
        queries = [self.distinct[digest] for digest in pack]
        left = dict.fromkeys(pack)
        try:
            for arrived in cast(AnsweringModel, self.model).answer(queries, self.protocol):
                # A model that reads sentences too says apart how it answers prompts.
                notes = getattr(self.model, "prompt_notes", self.model.notes)
                yield _sorted_out({pack[place]: answer for place, answer in arrived.items()}, notes)
                for place in arrived:
                    left.pop(pack[place], None)
            return
        except OutOfMemoryError:
            if len(left) < 2:
                raise
        rest = list(left)
        for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
            yield from self._answered_whole(half)


def _by_route(model: LoadedModel, distinct: dict[str, Query]) -> tuple[dict[str, ScoredQuery], dict[str, Query]]:
    """Queries that are read token by token, and those that the model answers whole."""
    reads = hasattr(model, "encode")
    read = {
        digest: query
        for digest, query in distinct.items()
        if reads and isinstance(query, (ClozeQuery, ContinuationQuery))
    }
    return read, {digest: query for digest, query in distinct.items() if digest not in read}


def _left_to_answer(
    model: LoadedModel, whole: dict[str, Query], stored: Collection[str], most_free: int
) -> Iterator[tuple[tuple[str, ...], ...]]:
    """The packs of each portion, by a plan over all queries, less what is answered, as for sentences."""
    digests = list(whole)
    if all(digest in stored for digest in digests):
        return
    if hasattr(model, "sections"):
        for section in model.sections(list(whole.values())):
            packs = tuple(tuple(digests[place] for place in places) for places in section)
            # What one pack leaves is there for the next, so a section that is half done is done again.
            if any(digest not in stored for pack in packs for digest in pack):
                yield packs
        return
    if hasattr(model, "packs"):
        found: Iterable[list[str]] = (
            [digests[place] for place in places] for places in model.packs(list(whole.values()))
        )
    else:
        free = [digest for digest in digests if digest not in stored]
        found = (free[start : start + most_free] for start in range(0, len(free), most_free))
    for pack in found:
        left = tuple(digest for digest in pack if digest not in stored)
        if left:
            yield (left,)


def _sorted_out(
    arrived: Mapping[str, Answer | UnsupportedQueryError | RequestFailedError], notes: tuple[str, ...]
) -> AnswerBatch:
    answers, lost = {}, {}
    for digest, answer in arrived.items():
        if isinstance(answer, RequestFailedError):
            lost[digest] = str(answer)
        else:
            answers[digest] = Answer.none(str(answer)) if isinstance(answer, UnsupportedQueryError) else answer
    return AnswerBatch(answers, lost, notes=notes)


def _effort_of_reading(
    model: TokenModel, distinct: dict[str, ScoredQuery], stored: dict[str, Answer], protocol: str
) -> CostEstimate:
    encoded, refused = _encode(model, distinct)
    passes = _passes(model, encoded, stored | refused)
    n_tokens = sum(left.n_tokens for left in passes)
    largest = max((left.n_tokens for left in passes), default=0)
    seconds = 0.0
    if passes:
        timed = passes[len(passes) // 2]
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
            refused[digest] = Answer.none(str(result))
        else:
            encoded[digest] = result
    return encoded, refused


def _passes(model: TokenModel, encoded: dict[str, EncodedQuery], answered: Collection[str]) -> list[WorkUnit]:
    """The plan over all queries, less what is answered."""
    digests = list(encoded)
    left = []
    for pack in plan(list(encoded.values()), model.limits):
        members = tuple(digests[index] for index in pack.queries if digests[index] not in answered)
        if members:
            left.append(WorkUnit((members,), pack.n_tokens, pack.as_tree, model.limits.budget_tokens))
    return left


def _read(model: TokenModel, encoded: dict[str, EncodedQuery], portion: WorkUnit, protocol: str) -> dict[str, Answer]:
    (members,) = portion.packs
    queries = [encoded[digest] for digest in members]
    read_batch = partial(cast(TopModel, model).read_top, top=PAPER_TOP) if protocol == PAPER else model.read_batch
    readers = model.read_tree, read_batch
    values = read_pack(queries, portion.budget_tokens, readers, as_tree=bool(portion.as_tree))
    return {digest: _answer(query, reads) for digest, query, reads in zip(members, queries, values, strict=True)}


def _answer(query: EncodedQuery, reads_nats: Sequence[Floats]) -> Answer:
    """An option's log-likelihood is the sum over its paths; what the first tokens at the blank leave is unclaimed."""
    logprobs = [float(sum(reads_nats[path].sum() for path in parts)) for parts in query.option_paths]
    # Minus infinity is an answer: nothing, since the token was not among those that the protocol looks at.
    if any(math.isnan(value) or value == math.inf for value in logprobs):
        return Answer.none("the model gave a probability that is not a number")
    counted = tuple(math.nan if option in query.duplicate_options else value for option, value in enumerate(logprobs))
    return Answer(counted, _unclaimed(query, reads_nats), n_tokens=query.n_tokens)


def _unclaimed(query: EncodedQuery, reads_nats: Sequence[Floats]) -> float:
    """One less the probability of the options' first tokens; NaN where these do not share a distribution.

    A masked model gives a word of two tokens another text to look at (two masks) than a word of one.
    """
    claimed: dict[tuple[tuple[int, ...], int, int], float] = {}
    for first, *_ in query.option_paths:
        path = query.paths[first]
        position, token = path.reads[0]
        context = path.tokens if query.bidirectional else path.tokens[: position + 1]
        claimed[context, position, token] = float(np.exp(reads_nats[first][0]))
    if query.bidirectional and len({context for context, _, _ in claimed}) > 1:
        return math.nan
    return max(0.0, 1.0 - sum(claimed.values()))
