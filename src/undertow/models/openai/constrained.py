"""Multiple choice and constrained generation with an OpenAI-compatible server.

Servers with grammars (llama.cpp, vLLM) constrain their answers, and show no tokens that they did not generate: a choice has its
label and no log-probabilities, except for labels that are compared by first tokens, if the server shows these. Every answer is
checked against its constraint.

Grammars are `undertow.models.openai.gbnf`, requests `undertow.models.openai.client`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from undertow.errors import UndertowError
from undertow.models.base import EMPTY_PASSAGE, Outcome, RequestFailedError, UnsupportedQueryError, sampling_seed
from undertow.models.openai import client as http
from undertow.models.openai import gbnf, logprobs
from undertow.models.openai.gbnf import LLAMA_CPP, NO_GRAMMAR, VLLM, Spelling
from undertow.types import BEST_SPAN, SPAN, UNCONSTRAINED, Answer, ConstrainedGenerateQuery, MultipleChoiceQuery

ConstrainedQuery: TypeAlias = MultipleChoiceQuery | ConstrainedGenerateQuery
TOKENS_PER_WORD, TOKENS_AROUND = 1.3, 2
"""Estimate of a passage's tokens from its words, for servers that do not count them."""
BYTES_PER_TOKEN = 4
"""Rough estimate for UTF-8: other than Latin letters take several bytes, and often several tokens."""
COLON, LINE = ":", "\n"
"""Stand-ins for the prompt before an answer: some tokenizers treat the beginning of a text differently."""
OUTSIDE_IN_A_ROW = 20
MAX_QUOTED_CHARS = 60
OTHER_SERVER = "read its replies with --protocol text, choose a llama.cpp or vLLM server, or name its grammar with --grammar if it is one"
NO_SEARCH = (
    "a server does not show the probabilities that a search for the most probable span needs; use decoded spans instead"
)
BY_TOKENS = "labels and pieces of a passage are spelled in the server's own tokens"
BY_LETTERS = (
    "some grammars are of letters: pieces of a passage are its words and punctuation marks, not the model's tokens, and a "
    "label or word may be begun with any token that its first letters spell, so that other labels come out than by tokens"
)
ESTIMATED = f"the server does not count tokens; an answer has {TOKENS_PER_WORD} times the passage's words and {TOKENS_AROUND} more, at most"
NO_PENALTY: Mapping[str, Mapping[str, Any]] = {
    LLAMA_CPP: {"repeat_penalty": 1.0},
    VLLM: {"repetition_penalty": 1.0},
    NO_GRAMMAR: {},
}
"""Parameters that disable a server's default penalties."""
FULL_DISTRIBUTION: Mapping[str, Mapping[str, Any]] = {
    LLAMA_CPP: {"top_k": 0, "min_p": 0.0},
    VLLM: {"top_k": -1, "min_p": 0.0},
}
"""Parameters that disable a server's default top-k and min-p sampling."""


class ConstraintViolationError(UnsupportedQueryError):
    """An answer that violates its constraint."""


@dataclass(slots=True)
class ServerDecoder:
    """Multiple choice and constrained generation with one server.

    Attributes:
        server: one of `SERVERS`; "" until it is known.
        tops: number of top log-probabilities of a step, of completions and of chats.
        named_by_user: whether the user named the server.
        owner: the model's owner in the server's list; "" if unknown.
        n_outside: number of answers before the first that keeps to its constraint.
    """

    server: str
    tops: tuple[int, int]
    named_by_user: bool
    owner: str = ""
    n_outside: int = 0
    _kept: bool = False
    _reads_tokens: bool = True
    _seen: set[str] = field(default_factory=set)
    _spellings: dict[str, Spelling] = field(default_factory=dict)
    _notes: tuple[str, ...] = ()

    # Capabilities.

    async def detect(self, client: http.OpenAIClient) -> None:
        """Detect the server from its list of models.

        Raises:
            UndertowError: the server cannot be reached or fails.
        """
        listed = await client.get_json("/models")
        if isinstance(listed, RequestFailedError):
            raise UndertowError(
                f"{listed}; check that {client.address.host} is the right server and is working, and run the same command again"
            )
        self.owner = client.quotable(gbnf.owner_in(listed or {}, client.model))
        self.server = gbnf.OWNERS.get(self.owner, NO_GRAMMAR)

    def prepare(self, host: str, queries: Sequence[ConstrainedQuery]) -> None:
        """Check that the server, which is known, supports the queries, before any other request.

        Raises:
            UndertowError: it does not, with the reason and the fix.
        """
        needs_grammar = any(map(_needs_grammar, queries))
        needs_top_k = any(isinstance(query, ConstrainedGenerateQuery) and query.top_k for query in queries)
        if self.server == NO_GRAMMAR and (needs_grammar or needs_top_k):
            owner = f"its models are owned by {self.owner or 'nobody it names'}"
            why = f"({'by --grammar none' if self.named_by_user else owner})"
            raise UndertowError(
                f"{host}: supports no grammar {why}, so its answers cannot be constrained to labels or a passage; "
                f"{OTHER_SERVER}"
                if needs_grammar
                else f"{host}: supports no top_k {why}, so it cannot sample from the most probable tokens only; choose a "
                "llama.cpp or vLLM server, name its grammar with --grammar if it is one, or sample from all tokens"
            )
        self._notes = tuple(self._notes_on(queries))

    @property
    def ignored(self) -> bool:
        """Whether all of the first answers violate their constraints, so that the server seems to ignore grammars."""
        return not self._kept and self.n_outside >= OUTSIDE_IN_A_ROW

    # Notes.

    def _notes_on(self, queries: Sequence[ConstrainedQuery]) -> Iterator[str]:
        choices = [query for query in queries if isinstance(query, MultipleChoiceQuery)]
        if any(map(_needs_grammar, queries)):
            known = "as --grammar says" if self.named_by_user else f"whose models are owned by {self.owner}"
            yield f"answers are kept to labels or a passage by grammars of {self.server}, {known}"
        if choices:
            yield (
                "a choice is the label that the server comes to under its grammar; it shows no tokens of labels, so that the most "
                "probable label cannot be had beside it"
            )
        if any(choice.first_token for choice in choices):
            yield (
                "labels that are compared by their first tokens are decoded whole; log-probabilities are those of their first "
                "tokens where the server shows them all, from before the grammar, and none elsewhere"
            )
        if any(isinstance(query, ConstrainedGenerateQuery) and query.temperature for query in queries):
            yield "tokens are drawn by the server, from a seed of each query's own"

    def notes(self) -> tuple[str, ...]:
        """Notes on the answers."""
        return (*self._notes, *(note for note in (BY_TOKENS, BY_LETTERS, ESTIMATED) if note in self._seen))

    # Requests.

    async def query(self, client: http.OpenAIClient, query: ConstrainedQuery) -> Outcome:
        """The answer, with as many of the last examples as fit.

        Raises:
            UndertowError: no further request can succeed.
        """
        try:
            if isinstance(query, MultipleChoiceQuery):
                wanted = await self._wanted_label(client, query)
            else:
                wanted = await self._wanted_text(client, query)
        except (UnsupportedQueryError, RequestFailedError) as error:
            return error.with_traceback(None)  # its frames hold the client and the key
        for n_dropped_shots in range(len(query.shots) + 1):
            text = "".join((*query.shots[n_dropped_shots:], query.prompt))
            request = http.HTTPRequest(query.chat, wanted.params(text), n_tokens_of(text) + wanted.max_tokens)
            outcome = await client.send(request, partial(self._read, wanted, client.quotable))
            if isinstance(outcome, http.GrammarError) and wanted.by_tokens:  # of tokens: llama.cpp before December 2025
                self._reads_tokens = False
                return await self.query(client, query)
            if not isinstance(outcome, http.PromptTooLongError):
                return replace(outcome, n_dropped_shots=n_dropped_shots) if isinstance(outcome, Answer) else outcome
        return wanted.too_long

    async def _wanted_text(self, client: http.OpenAIClient, query: ConstrainedGenerateQuery) -> _GenerationRequest:
        pieces = gbnf.pieces_of(query.passage)
        if query.constraint == BEST_SPAN or not pieces:
            raise UnsupportedQueryError(NO_SEARCH if pieces else EMPTY_PASSAGE)
        spelling = await self._spelling(client, _lead(query) + query.passage)
        n_tokens = len(spelling.numbers) or estimated_tokens(query.passage)
        if not spelling.numbers:
            self._seen.add(ESTIMATED)
        fields = dict(NO_PENALTY[self.server])
        if query.temperature and self.server != NO_GRAMMAR:
            fields |= dict(FULL_DISTRIBUTION[self.server]) | ({"top_k": query.top_k} if query.top_k else {})
        if query.constraint == UNCONSTRAINED:
            return _GenerationRequest(query, fields, n_tokens, self.server)
        by_tokens, is_span = self._reads_tokens and bool(spelling.texts), query.constraint == SPAN
        if by_tokens:
            grammar = gbnf.token_span_grammar(spelling) if is_span else gbnf.token_shuffle_grammar(spelling)
        elif is_span:
            grammar = gbnf.span_grammar(pieces, _lead(query))
        else:
            grammar = gbnf.ShuffledGrammar.from_pieces(pieces, _lead(query)).grammar
        fields |= _grammar_params(grammar, self.server)
        passage = spelling.texts if by_tokens else ()
        return _GenerationRequest(query, fields, n_tokens, self.server, by_tokens=by_tokens, passage=passage)

    async def _wanted_label(self, client: http.OpenAIClient, query: MultipleChoiceQuery) -> _GenerationRequest:
        labels, reads_tokens = _labels(query), self.server == LLAMA_CPP and self._reads_tokens
        spellings = [await self._spelling(client, label) for label in labels if reads_tokens]
        by_tokens = bool(spellings) and all(spelling.texts for spelling in spellings)
        if self.server == VLLM and all(map(str.isprintable, labels)):  # not with line breaks
            grammar: dict[str, Any] = {"structured_outputs": {"choice": list(labels)}}
        else:
            spelled = gbnf.token_choice_grammar(spellings) if by_tokens else gbnf.choice_grammar(labels)
            grammar = _grammar_params(spelled, self.server)
        top = self.tops[query.chat] if query.first_token else 0
        fields = dict(NO_PENALTY[self.server]) | grammar
        return _GenerationRequest(query, fields, max_label_tokens(query), self.server, top, by_tokens)

    async def _spelling(self, client: http.OpenAIClient, text: str) -> Spelling:
        """A text in the server's tokens, without generation; empty if the server does not tokenize."""
        if self.server == NO_GRAMMAR:
            return Spelling(())
        if text not in self._spellings:
            opening = COLON if text.startswith(" ") else LINE
            body: dict[str, Any] = {"content": opening + text, "add_special": False, "with_pieces": True}
            if self.server == VLLM:
                body = {"model": client.model, "prompt": text, "add_special_tokens": False}
            reply = await client.get_json(f"{client.address.url.removesuffix(http.V1)}/tokenize", body)
            if isinstance(reply, RequestFailedError):
                raise reply
            self._spellings[text] = Spelling.from_reply(opening if self.server == LLAMA_CPP else "", text, reply or {})
        return self._spellings[text]

    # Responses.

    def _read(self, wanted: _GenerationRequest, quotable: Callable[[object], str], body: Mapping[str, Any]) -> Outcome:
        """The answer in a response."""
        answer = wanted.read(body, quotable)
        if isinstance(answer, ConstraintViolationError):
            self.n_outside += 1
        elif isinstance(answer, Answer) and _needs_grammar(wanted.query):
            self._kept = True
            self._seen.add(BY_TOKENS if wanted.by_tokens else BY_LETTERS)
        return answer


@dataclass(frozen=True, slots=True)
class _GenerationRequest:
    """One query, as a request to one server.

    Attributes:
        fields: parameters beyond OpenAI's API.
        server: one of `SERVERS`.
        top: number of top tokens to show; 0 for none.
        by_tokens: whether the grammar is one of tokens.
        passage: tokens of the passage, if the grammar has them.
    """

    query: ConstrainedQuery
    fields: Mapping[str, Any]
    max_tokens: int
    server: str
    top: int = 0
    by_tokens: bool = False
    passage: tuple[str, ...] = ()

    @property
    def too_long(self) -> http.PromptTooLongError:
        without = ", without any example" if self.query.shots else ""
        return http.PromptTooLongError(f"prompt and answer are longer than the model reads{without}")

    def params(self, text: str) -> dict[str, Any]:
        """Parameters of the request with this text."""
        query = self.query
        params = greedy_params(text, self.max_tokens, self.top, chat=query.chat)
        if isinstance(query, ConstrainedGenerateQuery) and query.temperature:
            seed = int.from_bytes(sampling_seed(query)[:4]) >> 1  # of 31 bits, the servers' limit
            params |= {"temperature": query.temperature, "seed": seed}
            params |= {"top_p": 1.0} if self.server != NO_GRAMMAR else {}
        if isinstance(query, ConstrainedGenerateQuery) and query.line_ends:
            params["stop"] = ["\n"]
        return {**params, **self.fields}

    def read(self, body: Mapping[str, Any], quotable: Callable[[object], str]) -> Outcome:
        """The answer in a response.

        Raises:
            IncompleteResponseError: a piece is missing.
        """
        choice, text, finish = logprobs.answer_in(body, self.max_tokens)
        is_short = finish == logprobs.LENGTH and logprobs.n_written(body, self.max_tokens) < self.max_tokens
        if is_short and self.server == LLAMA_CPP:  # vLLM refuses a prompt that fills the context
            return self.too_long
        if refusal := logprobs.refusal_in(finish, text):
            return refusal
        if isinstance(self.query, MultipleChoiceQuery):
            answer = text.strip()
            if answer not in {label.strip() for label in self.query.labels}:
                return _outside(quotable(text), "none of the labels")
            nats = _first_nats(self.query, choice, text) if self.query.first_token else None
            if nats is None:
                return Answer((math.nan,) * len(self.query.labels), math.nan, text=answer)
            return Answer(nats, max(0.0, 1.0 - sum(map(math.exp, nats))), text=answer)
        return self._read_text(text, quotable(text), cut=finish == logprobs.LENGTH)

    def _read_text(self, text: str, quotable: str, *, cut: bool) -> Outcome:
        """The answer, or why it is invalid; `quotable` is the text for messages."""
        query = self.query
        if not isinstance(query, ConstrainedGenerateQuery) or query.constraint == UNCONSTRAINED:
            return Answer((math.nan,), math.nan, text=text)
        if query.constraint == SPAN:
            kept = gbnf.span_in(query.passage, text, cut=cut and not self.passage)
            what = "no piece of the passage"
        else:
            made = gbnf.ShuffledGrammar.from_pieces(gbnf.pieces_of(query.passage), _lead(query))
            made = gbnf.ShuffledGrammar(self.passage, self.passage) if self.passage else made
            kept, what = made.whole_in(text, cut=cut), "not made of the passage's words"
        if kept is None:
            return _outside(quotable, what)
        if text.strip() and not kept:
            return UnsupportedQueryError(
                f"the server's answer {_brief(quotable)} was cut off in the middle of its first word"
            )
        return Answer((math.nan,), math.nan, text=kept)


def _outside(text: str, what: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"the server's answer {_brief(text)} is {what}, so it did not keep to the grammar; {OTHER_SERVER}"
    )


def _brief(text: str) -> str:
    return repr(text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}...")


def _needs_grammar(query: ConstrainedQuery) -> bool:
    return isinstance(query, MultipleChoiceQuery) or query.constraint not in (UNCONSTRAINED, BEST_SPAN)


def _grammar_params(grammar: str, server: str) -> dict[str, Any]:
    return {"grammar": grammar} if server == LLAMA_CPP else {"structured_outputs": {"grammar": grammar}}


def _lead(query: ConstrainedGenerateQuery) -> str:
    """The space between prompt and answer, if there is none yet."""
    return "" if query.chat or query.display_text()[-1:].isspace() else " "


def _labels(query: MultipleChoiceQuery) -> tuple[str, ...]:
    """The labels in an answer: with their leading space unless the answer is a chat message."""
    return tuple(label.strip() for label in query.labels) if query.chat else query.labels


def _first_nats(query: MultipleChoiceQuery, choice: Mapping[str, Any], text: str) -> tuple[float, ...] | None:
    """Log-probabilities of single-token labels [label] from the first step; None if they are not reliable.

    All labels and one other token must be shown, or the probabilities may be those after the grammar.
    """
    labels = _labels(query)
    steps = logprobs.without_end(logprobs.top_logprobs_of(choice), text, logprobs.STOP)
    if not steps or logprobs.rest_of(steps, text) is None:
        return None
    pairs = (*steps[0].top, (steps[0].token, steps[0].logprob_nats))
    nats_of = {token: nats for token, nats in pairs if nats > logprobs.HIDDEN_NATS}
    is_whole = any(not any(label.startswith(token) for label in labels) for token in nats_of if token)
    return tuple(nats_of[label] for label in labels) if is_whole and all(label in nats_of for label in labels) else None


def greedy_params(text: str, max_tokens: int, top: int, *, chat: bool) -> dict[str, Any]:
    """Parameters of a greedy request to either endpoint, with so many top log-probabilities."""
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    wanted: dict[str, Any] = {"logprobs": True, "top_logprobs": top} if chat else {"logprobs": top}
    return {"max_tokens": max_tokens, "temperature": 0, "seed": 0, **prompt, **(wanted if top else {})}


def n_tokens_of(text: str) -> int:
    """Number of tokens of a text, estimated from its bytes."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def estimated_tokens(passage: str) -> int:
    """Number of tokens of a passage, estimated from its words."""
    return math.ceil(TOKENS_PER_WORD * len(passage.split())) + TOKENS_AROUND


def max_label_tokens(query: MultipleChoiceQuery) -> int:
    """Maximum tokens of a label and the end: a token has at least one byte."""
    return max(len(label.encode("utf-8", "replace")) for label in query.labels) + 1


def effort_tokens(query: ConstrainedQuery) -> int:
    """Estimated tokens of prompt and answer."""
    most = max_label_tokens(query) if isinstance(query, MultipleChoiceQuery) else estimated_tokens(query.passage)
    return n_tokens_of(query.display_text()) + most
