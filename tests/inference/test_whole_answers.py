from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import RunEstimate, RunnerResult, estimate, run_queries
from undertow.inference.work_units import AnswerBatch, ModelLoaded
from undertow.models import resolve
from undertow.models.base import (
    CostEstimate,
    ModelHandle,
    ModelRequest,
    OutOfMemoryError,
    RequestFailedError,
    UnsupportedQueryError,
)
from undertow.types import (
    EXACT,
    GENERATION,
    LIKELIHOOD,
    PAPER,
    PROMPT,
    Answer,
    ClozeQuery,
    GenerateQuery,
    ModelIdentity,
    Option,
    Query,
    query_digest,
)

CARD = ModelIdentity("m", "server", "somewhere", "abc123", "as served", "prompt")
PRONOUNS = Option("female", ("she",)), Option("male", ("he",)), Option("neutral", ("they",))
PROMPTS = [GenerateQuery(f"{number}: who?", PRONOUNS) for number in range(7)]
Reply = Answer | UnsupportedQueryError | RequestFailedError


def said(number: int) -> Answer:
    """An answer of its own for every prompt, with something that was not shown."""
    logprobs_nats = (-1.0 - number, -2.0, -math.inf)
    return Answer(logprobs_nats, 0.25, text=f"she {number}", upper_bound_prob=(0.1, 0.0, 0.2), truncated_prob=0.2)


@dataclass
class Server:
    """Answers prompts by their number, two at a time, the last ones first.

    Attributes:
        replies: what it says instead of an answer, by number.
        dies_at: the number that it raises at, instead of answering.
        asked: numbers of the prompts that it was asked, each time.
    """

    identity: ModelIdentity = CARD
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    replies: dict[int, Reply] = field(default_factory=dict)
    dies_at: dict[int, BaseException] = field(default_factory=dict)
    asked: list[list[int]] = field(default_factory=list)
    n_opened: int = 0

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Reply]]:
        numbers = [int(query.prompt.partition(":")[0]) for query in queries if isinstance(query, GenerateQuery)]
        assert len(numbers) == len(queries)
        self.asked.append(numbers)
        for start in reversed(range(0, len(numbers), 2)):
            pair = dict(enumerate(numbers[start : start + 2], start))
            self.notes = (*self.notes, f"pair {start}")
            for number in pair.values():
                if number in self.dies_at:
                    raise self.dies_at.pop(number)
            yield {place: self.replies.get(number, said(number)) for place, number in pair.items()}

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        return CostEstimate(100 * len(queries), len(queries), math.nan, 7, passes="requests")

    @property
    def found(self) -> ModelHandle:
        def opened() -> Server:
            self.n_opened += 1
            return self

        return ModelHandle(self.identity, opened, {GENERATION: (EXACT, PAPER)})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite"


def asked(server: Server, place: Path, queries: Sequence[Query] = PROMPTS, protocol: str = EXACT) -> RunnerResult:
    with AnswerCache(place) as store:
        return run_queries(server.found, queries, store, protocol, lambda done, total: None)


def stored(place: Path, queries: Sequence[Query] = PROMPTS, identity: ModelIdentity = CARD) -> dict[int, Answer]:
    """What is in the file, by number of the prompt."""
    with AnswerCache(place) as store:
        kept = store.get(identity.key(EXACT), [query_digest(query) for query in queries])
    return {number: kept[query_digest(query)] for number, query in enumerate(queries) if query_digest(query) in kept}


@pytest.mark.parametrize(("every_s", "n_transactions"), [(0.0, 3), (math.inf, 2)])
def test_fast_passes_share_a_transaction_and_none_is_lost_with_the_engine(
    place: Path, monkeypatch: pytest.MonkeyPatch, every_s: float, n_transactions: int
) -> None:
    """Each of three passes answers two queries, the first is stored at once, then the engine ends with an error."""
    sizes: list[int] = []
    put = AnswerCache.put

    def counted(self: AnswerCache, *given: Any) -> None:
        sizes.append(len(given[2]))
        put(self, *given)

    def engine(handle: ModelHandle, distinct: Mapping[str, Query], *_: Any) -> Iterator[ModelLoaded | AnswerBatch]:
        yield ModelLoaded()
        digests = list(distinct)
        for start in (0, 2, 4):
            answers = {digest: said(start + at) for at, digest in enumerate(digests[start : start + 2])}
            yield AnswerBatch(answers, n_tokens=9)
        raise UndertowError("the engine cannot go on")

    monkeypatch.setattr(AnswerCache, "put", counted)
    monkeypatch.setattr("undertow.inference.runner.STORE_EVERY_S", every_s)
    with pytest.raises(UndertowError, match="cannot go on"), AnswerCache(place) as store:
        run_queries(Server().found, PROMPTS, store, EXACT, lambda done, total: None, engine=engine)
    assert (len(sizes), sum(sizes)) == (n_transactions, 6)
    assert stored(place).keys() == set(range(6))


def test_answers_come_back_in_the_order_of_the_queries(place: Path) -> None:
    server = Server(facts={"parameters": 7.0, "objective": "next word"})
    queries = [PROMPTS[number] for number in (5, 0, 3, 0, 1)]
    first = asked(server, place, queries)
    assert first.scores.answers == tuple(said(number) for number in (5, 0, 3, 0, 1))
    assert (first.n_distinct, first.n_computed, first.n_lost) == (4, 4, 0)
    assert first.scores.scoring_method == PROMPT
    assert server.asked == [[5, 0, 3, 1]]
    again = asked(server, place, queries)
    assert again.scores == first.scores
    assert (again.n_computed, again.seconds, server.n_opened) == (0, 0.0, 1)
    assert (again.notes, dict(again.facts)) == (first.notes, {"parameters": 7.0, "objective": "next word"})
    assert first.notes == ("pair 2", "pair 0")
    asked(server, place, protocol=PAPER)
    asked(server, place)
    assert server.asked[1:] == [list(range(7)), [2, 4, 6]]


@pytest.mark.parametrize("error", [UndertowError("the server is gone"), KeyboardInterrupt(), MemoryError()])
def test_what_arrived_before_a_death_is_kept_and_not_asked_again(error: BaseException, place: Path) -> None:
    """The last pairs come first: 6, then 4 and 5, then death at 2."""
    server = Server(dies_at={2: error})
    with pytest.raises(type(error)):
        asked(server, place)
    assert stored(place) == {number: said(number) for number in (4, 5, 6)}
    finished = asked(server, place)
    assert finished.scores.answers == tuple(map(said, range(7)))
    assert finished.n_computed == 4
    assert server.asked == [list(range(7)), [0, 1, 2, 3]]


@dataclass
class Crowded(Server):
    """Has room for three prompts in one go, and answers the first of a larger pack before it notices."""

    room: int = 3

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Reply]]:
        if len(queries) <= self.room:
            yield from Server.answer(self, queries, protocol)
            return
        yield from Server.answer(self, queries[:1], protocol)
        raise OutOfMemoryError("memory ran out while the model was reading")


def test_prompts_that_have_no_room_are_asked_in_halves_and_none_twice(place: Path, tmp_path: Path) -> None:
    """One that has no room by itself ends the run, and the others are kept."""
    crowded = Crowded()
    found = asked(crowded, tmp_path / "crowded")
    assert found.scores.answers == tuple(map(said, range(7)))
    assert sorted(number for numbers in crowded.asked for number in numbers) == list(range(7))
    assert found.n_lost == 0
    with pytest.raises(UndertowError, match="memory"):
        asked(Crowded(room=0), place)
    assert stored(place)


def test_what_is_lost_is_not_stored_and_is_asked_again(place: Path) -> None:
    errors = {1: "the server said 503", 4: "no answer in 60 seconds"}
    server = Server(replies={number: RequestFailedError(error) for number, error in errors.items()})
    calls: list[tuple[int, int]] = []
    with AnswerCache(place) as store:
        first = run_queries(server.found, PROMPTS, store, EXACT, lambda done, total: calls.append((done, total)))
    assert calls == [(0, 7), (1, 7), (3, 7), (5, 7), (7, 7)]
    assert (first.n_lost, first.n_computed) == (2, 5)
    assert first.scores.missing_reasons == ["", "the server said 503", "", "", "no answer in 60 seconds", "", ""]
    assert first.scores.answers[1].logprobs_nats == ()
    assert stored(place).keys() == {0, 2, 3, 5, 6}
    server.replies = {4: RequestFailedError("still none")}
    second = asked(server, place)
    assert (second.n_lost, second.n_computed) == (1, 1)
    assert second.scores.answers[1] == said(1)
    assert second.scores.missing_reasons[4] == "still none"
    server.replies = {}
    assert asked(server, place).scores.answers == tuple(map(said, range(7)))
    assert server.asked == [list(range(7)), [1, 4], [4]]


SENTENCES: list[Query] = [ClozeQuery((f"In {year}, ", " was a child."), PRONOUNS) for year in (1801, 1900, 2001)]
FIRST, LAST = (GenerateQuery(f"In {year}, _ was?", PRONOUNS) for year in (1801, 2001))
ASKED_BOTH: list[Query] = [FIRST, *SENTENCES, LAST]


def test_blanks_and_prompts_go_their_own_ways_and_come_back_in_order(tmp_path: Path) -> None:
    def answers(queries: Sequence[Query], name: str) -> RunnerResult:
        with AnswerCache(tmp_path / name) as store:
            return run_queries(resolve(ModelRequest("toy")), queries, store, EXACT, lambda done, total: None)

    both = answers(ASKED_BOTH, "both")
    apart = [answers(SENTENCES, "blanks"), answers(ASKED_BOTH[::4], "prompts")]
    blanks, prompts = (one.scores.answers for one in apart)
    assert both.scores.answers == (prompts[0], *blanks, prompts[1])
    assert both.n_tokens == apart[0].n_tokens > 0
    assert [answer.text for answer in both.scores.answers] == [" he.", "", "", "", " she."]
    assert [one.scores.scoring_method for one in (both, *apart)] == [LIKELIHOOD, LIKELIHOOD, PROMPT]
    # Half of either is stored already: the rest is asked.
    answers(ASKED_BOTH[:2], "half")
    rest = answers(ASKED_BOTH, "half")
    assert rest.scores == both.scores
    assert rest.n_computed == 3


def test_a_model_refuses_what_it_cannot_be_asked_before_it_is_opened(place: Path) -> None:
    server = Server()
    with pytest.raises(UndertowError, match=r"^m: .*blank"):
        asked(server, place, ASKED_BOTH)
    with pytest.raises(UndertowError, match=r"^m: .*'exactly'"):
        asked(server, place, protocol="exactly")
    assert server.n_opened == 0


def test_an_estimate_asks_nothing_and_counts_what_is_left(place: Path) -> None:
    server = Server()
    asked(server, place, PROMPTS[:3])
    with AnswerCache(place) as store:
        left = estimate(server.found, [*PROMPTS, PROMPTS[6]], store, EXACT)
        assert (left.n_queries, left.n_distinct, left.n_stored) == (8, 7, 3)
        assert (left.n_tokens, left.n_passes, left.passes, left.memory_bytes) == (400, 4, "requests", 7)
        assert math.isnan(left.seconds)
        opened = server.n_opened
        nothing = RunEstimate(0, 0, 0.0, 0, n_queries=3, n_distinct=3, n_stored=3)
        assert estimate(server.found, PROMPTS[:3], store, EXACT) == nothing
    assert server.n_opened == opened
    assert server.asked == [[0, 1, 2]]
    assert stored(place).keys() == {0, 1, 2}


TEXTS = ["", "two\nlines\t", "élan 她 \N{NERD FACE}", "nul \0 in it", "x" * 70_000]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_text_and_what_was_not_shown_come_back_bit_for_bit(text: str, place: Path) -> None:
    answers = {
        "shown": Answer((-1 / 3, -math.inf), 0.1, text=text),
        "hidden": Answer((-1 / 3, -2.0), 0.1, text=text, upper_bound_prob=(1 / 7, 5e-324), truncated_prob=1 / 3),
        "nothing hidden": Answer((-1.0, -2.0), 0.1, text=text, upper_bound_prob=(0.0, 0.0), truncated_prob=0.0),
        "no number": Answer((-1.0, math.nan), 0.1, upper_bound_prob=(0.1, 0.0), truncated_prob=0.1),
        "missing_reason": Answer.missing("the answer is empty"),
        "cut": Answer((-1.0, -2.0), 0.1, text=text, cut_at_tokens=256, served_as="m (fingerprint \u00e9)"),
    }
    with AnswerCache(place) as store:
        store.put(CARD, EXACT, answers, facts={"parameters": 1.5e9, "objective": "next word"})
    with AnswerCache(place) as store:
        kept = store.get(CARD.key(EXACT), list(answers))
        assert store.notes_and_facts(CARD.key(EXACT))[1] == {"parameters": 1.5e9, "objective": "next word"}
        assert store.notes_and_facts(CARD.key(PAPER))[1] == {}
    assert repr(kept) == repr({name: answers[name] for name in kept})
    assert kept.keys() == answers.keys()


def test_half_a_character_becomes_a_question_mark(place: Path) -> None:
    """A server may cut an emoji in two: JSON can hold one half of it, SQLite cannot."""
    with AnswerCache(place) as store:
        store.put(CARD, EXACT, {"q": Answer((-1.0,), 0.1, text="she \ud83d")})
        assert store.get(CARD.key(EXACT), ["q"])["q"].text == "she ?"
