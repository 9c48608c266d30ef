"""Models behind an OpenAI-compatible server: prompts, choices and constrained answers. `openai:MODEL`.

A server shows only the most probable tokens of each step. Under protocol `exact` an answer has bounds for the hidden
probability; under protocol `paper` only the five most probable tokens count.

Requests are in `undertow.models.openai.client`, how they are read `undertow.models.openai.logprobs`, and how answers are kept
within limits `undertow.models.openai.constrained`.
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, cast

from undertow._folders import notify
from undertow.errors import UndertowError
from undertow.models.base import (
    FLOAT32,
    PAPER_TOP,
    CostEstimate,
    ModelHandle,
    ModelRequest,
    Outcome,
    RequestFailedError,
    UnsupportedQueryError,
)
from undertow.models.generation.prompt_encoder import OPEN_THOUGHT
from undertow.models.openai import client as http
from undertow.models.openai import constrained, logprobs
from undertow.models.openai.gbnf import NO_GRAMMAR, SERVERS
from undertow.types import (
    AS_SERVED,
    CHOICE,
    EXACT,
    GENERATION,
    PAPER,
    TEXT,
    WRITING,
    Answer,
    GeneratedQuery,
    GenerateQuery,
    ModelIdentity,
    Query,
    option,
)

SUMMARY = "a model behind an OpenAI-compatible server, as openai:MODEL; read by prompts"
CAPABILITIES = {GENERATION: (EXACT, PAPER, TEXT), CHOICE: (EXACT,), WRITING: (EXACT,)}
TOP, OPENAI_COMPLETIONS_TOP = 20, 5
"""As many top log-probabilities as the endpoints give: 5 for completions of the OpenAI service, 20 elsewhere."""
LOST_IN_A_ROW = 20
ONE_HOT = "shows only the token that it chose at each step, with probability 1"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server."""

    base_url: str = option("", "Address of the server, up to /v1; the OpenAI service if not given.")
    concurrency: int = option(8, "Number of concurrent requests.")
    timeout_s: float = option(60.0, "Time limit of a request in seconds.")
    retries: int = option(5, "Number of further attempts if a request fails.")
    max_requests: int = option(0, "Stop after this many requests, failed ones included; 0 for no limit.")
    max_api_tokens: int = option(
        0,
        "Stop after this many tokens of prompts and answers; requests that have started are finished. 0 for no limit.",
    )
    top_logprobs: int = option(
        0, "Number of most probable tokens to request at each step; 0 for as many as the server gives."
    )
    grammar: str = option("", f"How the server constrains an answer: {', '.join(SERVERS)}; detected if not given.")


LEAST: Mapping[str, int] = {"concurrency": 1, "retries": 0, "max_requests": 0, "max_api_tokens": 0, "top_logprobs": 0}


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model, if the request is for one behind a server. Nothing is contacted.

    Raises:
        UndertowError: a setting that cannot be; the message never quotes an address, which may hold a password.
    """
    family, _, model = request.name.partition(":")
    if family != "openai":
        return None
    if not model.strip():
        raise UndertowError("openai: needs the model's name after the colon, as in -m openai:gpt-4.1-mini")
    if request.dtype != FLOAT32:
        raise UndertowError(f"{request.name}: the server sets the precision; leave --dtype out")
    settings = _settings(request.settings)
    address = http.address_of(settings.base_url)
    plain, chat = _tops(settings, address)
    scoring_method = f"top log-probabilities, {chat}" + ("" if chat == plain else f" in chat, {plain} else")
    if settings.grammar:  # part of the cache key, so another grammar computes answers again
        scoring_method += f"; grammar {settings.grammar}"
    version = f"?{http.API_VERSION}={address.version}" if address.version else ""
    identity = ModelIdentity(
        name=request.name,
        family="openai",
        source=f"{address.host}{address.path}{version} {model}",  # the name alone is not part of what an answer is stored under
        revision=request.revision or AS_SERVED,
        dtype=AS_SERVED,
        scoring_method=scoring_method,
    )
    budget = http.Budget(settings.max_requests, settings.max_api_tokens)
    return ModelHandle(identity, partial(OpenAIModel, identity, model, address, settings, budget), CAPABILITIES)


def _settings(given: Mapping[str, str | int | float | bool]) -> Settings:
    """Our own among the settings of a run, which may ask models of other families too."""
    own: dict[str, Any] = {one.name: given[one.name] for one in fields(Settings) if one.name in given}
    settings = Settings(**own)
    for name, least in LEAST.items():
        if (value := getattr(settings, name)) < least:
            raise UndertowError(f"openai: --{name.replace('_', '-')} must be {least} or more, not {value}")
    if settings.grammar not in ("", *SERVERS):
        raise UndertowError(f"openai: --grammar must be one of {', '.join(SERVERS)}, or left out to find out")
    if not 0 < settings.timeout_s < math.inf:
        raise UndertowError(f"openai: --timeout-s must be a number of seconds above 0, not {settings.timeout_s}")
    return settings


def _tops(settings: Settings, address: http.Address) -> tuple[int, int]:
    """Number of top log-probabilities to request for completions and for chats."""
    plain = OPENAI_COMPLETIONS_TOP if address.url == http.OPENAI_URL else TOP
    return settings.top_logprobs or plain, settings.top_logprobs or TOP


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read in a response.

    Attributes:
        answer: were each word one token.
        shared: the mass that several options may have.
        is_one_hot: whether each step shows one token, with all of the probability; not to be believed of every server.
    """

    answer: Answer
    shared: logprobs.SharedMass
    is_one_hot: bool


@dataclass(slots=True)
class OpenAIModel:
    """A model behind a server; see `undertow.models.base.AnsweringModel`."""

    SYSTEM_PROMPTS: ClassVar[bool] = True
    identity: ModelIdentity
    model: str
    address: http.Address
    settings: Settings
    budget: http.Budget
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    _shows: bool = False
    _how: tuple[str, ...] = ()
    _sightings: logprobs.LogprobCoverage = field(default_factory=logprobs.LogprobCoverage)
    _served_as: dict[str, None] = field(default_factory=dict)
    _tops: tuple[int, int] = field(init=False)
    _writer: constrained.ServerDecoder = field(init=False)

    def __post_init__(self) -> None:
        self._tops = _tops(self.settings, self.address)
        server, owner = (NO_GRAMMAR, "openai") if self.address.url == http.OPENAI_URL else ("", "")
        grammar = self.settings.grammar
        self._writer = constrained.ServerDecoder(grammar or server, self._tops, bool(grammar), owner)

    @contextmanager
    def _connected(self) -> Iterator[tuple[http.OpenAIClient, http.Submit]]:
        """A client of the server, and how to submit requests to it."""
        key, settings = http.key_for(self.address), self.settings
        with http.background() as submit:
            client = http.OpenAIClient(self.address, self.model, key, settings.timeout_s, settings.retries, self.budget)
            client.system_prompt = self.identity.system_prompt
            client.on_answer = partial(self._note_model, client.quotable)
            try:
                yield client, submit
            finally:
                submit(client.close()).result()

    def _prepare(self, queries: Sequence[constrained.ConstrainedQuery]) -> None:
        """Detect the server's grammar if it is not known; refuse queries that need one if it has none."""
        if not self._writer.server:
            with self._connected() as (client, submit):
                submit(self._writer.detect(client)).result()
        self._writer.prepare(self.address.host, queries)

    def supported(self) -> Mapping[str, tuple[str, ...]]:
        """The kinds of query that this server supports, each with its protocols, after it has answered prompts.

        Raises:
            UndertowError: the server cannot be reached or fails.
        """
        self._prepare(())
        limited = (TEXT,) if self._writer.server == NO_GRAMMAR else (EXACT, TEXT)
        return {GENERATION: (EXACT, PAPER, TEXT) if self._shows else (TEXT,), CHOICE: limited, WRITING: limited}

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """Answers by their places, as they arrive; see `undertow.models.base.AnsweringModel`.

        Raises:
            UndertowError: the server refuses, cannot be reached, shows no log-probabilities, or the budget is spent.
        """
        prompts = cast(Sequence[GeneratedQuery], queries)  # the runner refuses others
        tops = {self._tops[query.chat] for query in prompts if isinstance(query, GenerateQuery)}
        if protocol == PAPER and min(tops, default=PAPER_TOP) < PAPER_TOP:
            raise UndertowError(
                f"protocol {PAPER} reads {PAPER_TOP} tokens of each step; give --top-logprobs {PAPER_TOP} or more"
            )
        many = " or ".join(map(str, sorted(tops)))
        others = f"all but the first {PAPER_TOP} count as nothing" if protocol == PAPER else "what it hides is bounded"
        read = f"read by the {many} most probable tokens that the server shows of each step; {others}"
        if protocol == TEXT:
            read = "answers are read in the text of free replies, one to each prompt"
        where = f"served at {self.address.host}: the model is what was served under that name at the time"
        self.notes = self._how = (read, where) if tops or protocol == TEXT else (where,)
        if constrained_queries := [query for query in prompts if isinstance(query, constrained.ConstrainedQuery)]:
            self._prepare(constrained_queries)
            self._update_notes()
        with self._connected() as (client, submit):
            for arrived in self._arriving(client, submit, prompts, protocol):
                self.notes = tuple(dict.fromkeys((*self.notes, *client.notes)))
                yield arrived

    def _arriving(
        self, client: http.OpenAIClient, submit: http.Submit, prompts: Sequence[GeneratedQuery], protocol: str
    ) -> Iterator[Mapping[int, Outcome]]:
        """Keep a few requests in flight; send the next ones after the answers that arrived are stored."""
        left = iter(enumerate(prompts))
        under_way: dict[concurrent.futures.Future[Any], int] = {}
        losses = _Losses()
        doubted: dict[int, Outcome | _Reading] = {}
        undecided: dict[int, tuple[_Reading, Answer]] = {}
        stop: UndertowError | None = None
        while True:
            while stop is None and len(under_way) < self.settings.concurrency and (following := next(left, None)):
                place, prompt = following
                under_way[submit(self._query(client, prompt, protocol))] = place
            if not under_way:
                break
            done, _ = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
            arrived: dict[int, Outcome | _Reading] = {}
            for future in done:
                place = under_way.pop(future)
                try:
                    outcome = future.result()
                except UndertowError as error:
                    stop = stop or error
                    continue
                is_doubted = isinstance(outcome, _Reading) and outcome.is_one_hot
                (doubted if is_doubted else arrived)[place] = outcome
            losses.count(arrived.values())
            if self._sightings.spreads:
                arrived |= doubted
                doubted.clear()
            if arrived:
                yield self._add_bounds(arrived, undecided)
            if stop is None and (stop := self._stop_reason(losses, len(prompts), len(doubted), reached=client.reached)):
                submit(client.drain()).result()
        yield from self._update_bounds(undecided)
        if stop is not None:
            raise stop
        if doubted:
            yield dict.fromkeys(doubted, RequestFailedError(f"{self.address.host}: {ONE_HOT}"))

    def _add_bounds(
        self, arrived: Mapping[int, Outcome | _Reading], undecided: dict[int, tuple[_Reading, Answer]]
    ) -> Mapping[int, Outcome]:
        """What arrived, with bounds that allow for words of several tokens; readings that have such bounds are noted as undecided."""
        whole = self._sightings.whole
        bounded: dict[int, Outcome] = {}
        for place, outcome in arrived.items():
            if not isinstance(outcome, _Reading):
                bounded[place] = outcome
                continue
            bounded[place] = given = outcome.shared.with_bounds(outcome.answer, whole)
            if outcome.shared.undecided(whole):
                undecided[place] = outcome, given
        return bounded

    def _update_bounds(self, undecided: Mapping[int, tuple[_Reading, Answer]]) -> Iterator[Mapping[int, Outcome]]:
        """Answers that came before one that showed a word as one token, with the bounds of those that came after it."""
        changed: dict[int, Outcome] = {
            place: answer
            for place, (reading, given) in undecided.items()
            if (answer := reading.shared.with_bounds(reading.answer, self._sightings.whole)) != given
        }
        if changed:
            yield changed

    def _stop_reason(self, losses: _Losses, n_prompts: int, n_doubted: int, *, reached: bool) -> UndertowError | None:
        """Why the run must stop, if so; a single one-hot answer may be genuine."""
        patience = LOST_IN_A_ROW if losses.answered else min(self.settings.concurrency, LOST_IN_A_ROW)
        if losses.in_a_row >= patience or (not reached and losses.in_a_row == n_prompts):
            many = f"{losses.in_a_row} prompts in a row" if losses.in_a_row > 1 else "the prompt"
            return UndertowError(
                f"{many} got no answer ({losses.reason}); answers so far are kept, so check that {self.address.host} is the right "
                "server and is working, and run the same command again"
            )
        if self._writer.ignored:
            return UndertowError(
                f"{self.address.host}: ignores grammars: all of {self._writer.n_outside} answers violate their "
                f"constraints; {constrained.OTHER_SERVER}"
            )
        if n_doubted >= min(LOST_IN_A_ROW, max(n_prompts, 2)):
            return UndertowError(
                f"{self.address.host}: {ONE_HOT}; start it so that it gives log-probabilities before sampling (vLLM: "
                "--logprobs-mode raw_logprobs), or give the --base-url of a server that does"
            )
        return None

    async def _query(self, client: http.OpenAIClient, query: GeneratedQuery, protocol: str) -> Outcome | _Reading:
        if not isinstance(query, GenerateQuery):
            return await self._writer.query(client, query)
        top, optional = self._tops[query.chat], tuple[str, ...]()
        if protocol == TEXT:
            top, optional = top if query.options else 0, (*http.LOGPROBS, "temperature")
            read: Any = partial(self._read_reply, query)
        else:
            words = logprobs.words_of(query)
            if isinstance(words, UnsupportedQueryError):
                return words
            read = partial(self._read, query, logprobs.WantedWords(words, top, protocol))
        params = constrained.greedy_params(query.prompt, query.max_tokens, top, chat=query.chat)
        request = http.HTTPRequest(query.chat, params, _n_tokens(query), optional)
        outcome: Outcome | _Reading = await client.send(request, read)
        return outcome

    def _read(self, prompt: GenerateQuery, wanted: logprobs.WantedWords, body: Mapping[str, Any]) -> Outcome | _Reading:
        """Probabilities of the options in a response.

        Raises:
            IncompleteResponseError: a piece is missing.
            UndertowError: this server does not show what is read.
        """
        choice, text, finish = logprobs.answer_in(body, prompt.max_tokens)
        top_logprobs = logprobs.top_logprobs_of(choice)
        if refusal := logprobs.refusal_in(finish, text):
            return refusal
        if text.lstrip().startswith(OPEN_THOUGHT):
            return self._unreadable(logprobs.THINKS)
        if text and not top_logprobs:
            if self._shows:
                raise logprobs.IncompleteResponseError("an answer without log-probabilities")
            raise UndertowError(
                f"{self.address.host}: does not give log-probabilities with the answers of {self.model}; read its replies "
                f"with --protocol {TEXT}, or choose a server and a model that do"
            )
        written = logprobs.without_end(top_logprobs, text, finish)
        rest = logprobs.rest_of(written, text)
        if rest is None:
            return self._unreadable(logprobs.TOKEN_IDS if logprobs.has_token_ids(written) else logprobs.OTHER_TOKENS)
        one_hot = logprobs.is_one_hot(written)
        n_top = max((len(step.top) for step in top_logprobs), default=PAPER_TOP)
        if wanted.protocol == PAPER and not one_hot and n_top < PAPER_TOP:
            raise UndertowError(
                f"{self.address.host}: shows fewer than the {PAPER_TOP} tokens of each step that protocol {PAPER} reads; use "
                f"--protocol {EXACT}"
            )
        self._shows = self._shows or bool(top_logprobs)
        self._sightings.add(written, wanted)
        following = [*top_logprobs[1:], None]
        ended = finish == logprobs.STOP and not rest
        steps: Sequence[logprobs.ServedStep] = [
            logprobs.step_of(*pair, wanted, ended=ended) for pair in zip(written, following, strict=False)
        ]
        steps = logprobs.add_spaces(steps, text)
        if rest:
            place = logprobs.place_that_decides(steps, rest, prompt.options)
            if place is None:
                return UnsupportedQueryError(logprobs.UNDECIDED)
            steps = [steps[place]]
        answer, shared = logprobs.served_answer(prompt, steps, text, wanted.words)
        return _Reading(answer, shared, one_hot)

    def _unreadable(self, reason: str) -> UnsupportedQueryError:
        """Why one answer has no probabilities, if others of the run have some.

        Raises:
            UndertowError: none has so far.
        """
        if not self._shows:
            raise UndertowError(f"{self.address.host}: {reason}")
        return UnsupportedQueryError(reason)

    def _read_reply(self, query: GenerateQuery, body: Mapping[str, Any]) -> Outcome:
        """A free reply, with bounds from its first token where the server shows log-probabilities."""
        choice, text, finish = logprobs.answer_in(body, query.max_tokens)
        cut_at_tokens = logprobs.n_written(body, query.max_tokens) if finish == logprobs.LENGTH else 0
        if refusal := logprobs.refusal_in(finish, text):
            return replace(Answer.missing(str(refusal)), cut_at_tokens=cut_at_tokens)
        written: Sequence[logprobs.TopLogprobs] = []
        with suppress(logprobs.IncompleteResponseError):
            written = logprobs.without_end(logprobs.top_logprobs_of(choice), text, finish)
        if logprobs.rest_of(written, text) is None:
            written = []
        self._shows = self._shows or (bool(written) and not logprobs.is_one_hot(written))
        return replace(logprobs.first_token_bounds(query, written, text), cut_at_tokens=cut_at_tokens)

    def _note_model(self, quotable: Callable[[object], str], body: Mapping[str, Any], outcome: Any) -> Any:
        """What was read, with the name of the served model and its fingerprint; each is noted once."""
        model, fingerprint = (quotable(body.get(name)) for name in ("model", "system_fingerprint"))
        if model.startswith("/"):
            model = model.rpartition("/")[2]  # omit the path on the server
        name = f"{model} (fingerprint {fingerprint})" if fingerprint else model
        if name and name not in self._served_as:
            self._served_as[name] = None
            if model and not model.startswith(self.model) and self.model not in model:
                notify(
                    f"{self.address.host} answers as {model}, and not as {self.model}; check -m if that is another model"
                )
        self._update_notes()
        if isinstance(outcome, _Reading):
            return replace(outcome, answer=replace(outcome.answer, served_as=name))
        return replace(outcome, served_as=name) if isinstance(outcome, Answer) else outcome

    def _update_notes(self) -> None:
        served = (f"served as {one}" for one in self._served_as)
        self.notes = (*self._how, *self._writer.notes(), *served, *self._sightings.notes())

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """Requests, and tokens by the length of the prompts. No prompt is sent; the server is asked whether it supports labels and spans.

        Raises:
            UndertowError: it does not, or cannot be reached.
        """
        if constrained_queries := [query for query in queries if isinstance(query, constrained.ConstrainedQuery)]:
            self._prepare(constrained_queries)
        n_system = constrained.n_tokens_of(self.identity.system_prompt)
        n_tokens = sum(_n_tokens(query) + n_system for query in queries if isinstance(query, GeneratedQuery))
        return CostEstimate(n_tokens, len(queries), math.nan, 0, passes="requests")


@dataclass(slots=True)
class _Losses:
    """Prompts without an answer, one after the other; patience ends sooner where nothing was answered at all."""

    in_a_row: int = 0
    answered: bool = False
    reason: str = ""

    def count(self, arrived: Iterable[Outcome | _Reading]) -> None:
        for answer in arrived:
            if isinstance(answer, RequestFailedError):
                self.in_a_row, self.reason = self.in_a_row + 1, str(answer)
            else:
                self.in_a_row, self.answered = 0, True


def _n_tokens(query: GeneratedQuery) -> int:
    if isinstance(query, GenerateQuery):
        return constrained.n_tokens_of(query.prompt) + query.max_tokens
    return constrained.effort_tokens(query)
