"""Multiple choice and constrained generation with an OpenAI-compatible server.

Servers with grammars (llama.cpp, vLLM) constrain their answers, and show no tokens that they did not generate: a choice has its
label and no log-probabilities, except for labels that are compared by first tokens, if the server shows these. Every answer is
checked against its constraint.

Grammars are `undertow.models.openai.gbnf`, requests `undertow.models.openai.client`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from undertow.errors import UndertowError
from undertow.models.base import RequestFailedError, UnsupportedQueryError
from undertow.models.openai import client as http
from undertow.models.openai.address import OPENAI_URL
from undertow.models.openai.gbnf import (
    LLAMA_CPP,
    NO_GRAMMAR,
    OWNERS,
    VLLM,
    Piece,
    ShuffledGrammar,
    Spelling,
    choice_grammar,
    owner_in,
    pieces_of,
    span_grammar,
    span_in,
    token_choice_grammar,
    token_shuffle_grammar,
    token_span_grammar,
)
from undertow.models.openai.logprobs import (
    FILTERED,
    HIDDEN_NATS,
    SPENT,
    IncompleteResponseError,
    TopLogprobs,
    answer_in,
    text_of,
    top_logprobs_of,
)
from undertow.types import (
    BEST_SPAN,
    PASSAGE_TOKENS,
    SPAN,
    UNCONSTRAINED,
    Answer,
    ConstrainedGenerateQuery,
    MultipleChoiceQuery,
)

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


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Top log-probabilities of a server's two endpoints.

    Attributes:
        chat_top, plain_top: number of tokens per step.
    """

    chat_top: int
    plain_top: int


@dataclass(slots=True)
class ServerDecoder:
    """Multiple choice and constrained generation with one server.

    Attributes:
        server: one of `SERVERS`; "" until it is known.
        endpoints: top log-probabilities of the endpoints.
        named_by_user: whether the user named the server.
        owner: the model's owner in the server's list; "" if unknown.
        n_outside: number of answers before the first that keeps to its constraint.
    """

    server: str
    endpoints: Endpoints
    named_by_user: bool = field(init=False)
    owner: str = ""
    n_outside: int = 0
    _kept: bool = False
    _estimated: bool = False
    _reads_tokens: bool = True
    _by_tokens: bool = False
    _by_letters: bool = False
    _spellings: dict[str, Spelling] = field(default_factory=dict)
    _notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.named_by_user = bool(self.server)

    # Capabilities.

    async def detect_server(self, client: http.OpenAIClient) -> None:
        """Detect the server from its list of models.

        Raises:
            UndertowError: the server cannot be reached, or fails.
        """
        if self.server:
            return
        if client.address.url == OPENAI_URL:
            self.server, self.owner = NO_GRAMMAR, "openai"
            return
        listed = await client.get_json("/models")
        if isinstance(listed, RequestFailedError):
            raise UndertowError(
                f"{listed}; check that {client.address.host} is the right server and is working, and run the same command again"
            )
        self.owner = client.quotable(owner_in(listed or {}, client.model))
        self.server = OWNERS.get(self.owner, NO_GRAMMAR)

    def check(self, queries: Sequence[ConstrainedQuery], host: str) -> None:
        """Refuse queries that the server does not support, before any request.

        Raises:
            UndertowError: names the query, the reason and the fix.
        """
        if self.server != NO_GRAMMAR:
            return
        why = (
            "by --grammar none" if self.named_by_user else f"its models are owned by {self.owner or 'nobody it names'}"
        )
        if any(_needs_grammar(query) for query in queries):
            raise UndertowError(
                f"{host}: supports no grammar ({why}), so its answers cannot be constrained to labels or a passage; {OTHER_SERVER}"
            )
        if any(isinstance(query, ConstrainedGenerateQuery) and query.top_k for query in queries):
            raise UndertowError(
                f"{host}: supports no top_k ({why}), so it cannot sample from the most probable tokens only; choose a llama.cpp "
                "or vLLM server, name its grammar with --grammar if it is one, or sample from all tokens"
            )

    @property
    def ignored(self) -> bool:
        """Whether all of the first answers violate their constraints, so that the server seems to ignore grammars."""
        return not self._kept and self.n_outside >= OUTSIDE_IN_A_ROW

    # Notes.

    def note(self, queries: Sequence[ConstrainedQuery]) -> None:
        """Collect notes on the answers to these queries."""
        choices = [query for query in queries if isinstance(query, MultipleChoiceQuery)]
        written = [query for query in queries if isinstance(query, ConstrainedGenerateQuery)]
        notes = []
        if any(map(_needs_grammar, queries)):
            known = "as --grammar says" if self.named_by_user else f"whose models are owned by {self.owner}"
            notes.append(f"answers are kept to labels or a passage by grammars of {self.server}, {known}")
        if choices:
            notes.append(
                "a choice is the label that the server comes to under its grammar; it shows no tokens of labels, so that the most "
                "probable label cannot be had beside it"
            )
        if any(choice.first_token for choice in choices):
            notes.append(
                "labels that are compared by their first tokens are decoded whole; log-probabilities are those of their first "
                "tokens where the server shows them all, from before the grammar, and none elsewhere"
            )
        if any(query.temperature for query in written):
            notes.append("tokens are drawn by the server, from a seed of each query's own")
        self._notes = tuple(notes)

    def notes(self) -> tuple[str, ...]:
        """Notes on the answers."""
        notes = list(self._notes)
        if self._by_tokens:
            notes.append("labels and pieces of a passage are spelled in the server's own tokens")
        if self._by_letters:
            notes.append(
                "some grammars are of letters: pieces of a passage are its words and punctuation marks, not the model's tokens, and a "
                "label or word may be begun with any token that its first letters spell, so that other labels come out than by tokens"
            )
        if self._estimated:
            notes.append(
                f"the server does not count tokens; an answer has {TOKENS_PER_WORD} times the passage's words and {TOKENS_AROUND} "
                "more, at most"
            )
        return tuple(notes)

    # Requests.

    async def query(
        self, client: http.OpenAIClient, query: ConstrainedQuery, note_model: Callable[[Mapping[str, Any]], None]
    ) -> Answer | UnsupportedQueryError | RequestFailedError:
        """The answer, with as many of the last examples as fit; calls `note_model` with each response.

        Raises:
            UndertowError: no further request can succeed.
        """
        wanted = await self._wanted(client, query)
        if not isinstance(wanted, _GenerationRequest):
            return wanted
        outcome = await self._with_room(client, wanted, note_model)
        if isinstance(outcome, http.GrammarError) and wanted.by_tokens:  # of tokens: llama.cpp before December 2025
            self._reads_tokens = False
            return await self.query(client, query, note_model)
        return outcome

    async def _with_room(
        self, client: http.OpenAIClient, wanted: _GenerationRequest, note_model: Callable[[Mapping[str, Any]], None]
    ) -> Answer | UnsupportedQueryError | RequestFailedError:
        query = wanted.query
        for n_dropped in range(len(query.shots) + 1):
            text = "".join((*query.shots[n_dropped:], query.prompt))
            request = http.HTTPRequest(query.chat, wanted.params(text), n_tokens_of(text) + wanted.max_tokens)
            outcome = await client.send(request, lambda body: self._read(client, wanted, body, note_model))
            if not isinstance(outcome, http.PromptTooLongError):
                return replace(outcome, n_dropped_shots=n_dropped) if isinstance(outcome, Answer) else outcome
        return wanted.too_long

    async def _wanted(
        self, client: http.OpenAIClient, query: ConstrainedQuery
    ) -> _GenerationRequest | UnsupportedQueryError | RequestFailedError:
        if isinstance(query, MultipleChoiceQuery):
            return await self._wanted_label(client, query)
        pieces = pieces_of(query.passage)
        if query.constraint == BEST_SPAN or not pieces:
            return UnsupportedQueryError(
                NO_SEARCH if pieces else "the passage that the answer is to be made of is empty"
            )
        spelling = await self._spelling(client, _lead(query) + query.passage)
        if isinstance(spelling, RequestFailedError):
            return spelling
        n_tokens = len(spelling.numbers) or estimated_tokens(query.passage)
        self._estimated = self._estimated or not spelling.numbers
        fields = dict(NO_PENALTY[self.server]) | self._drawing(query)
        if query.constraint == UNCONSTRAINED:
            return _GenerationRequest(query, fields, n_tokens, self.server)
        by_tokens = spelling if self._reads_tokens and spelling.texts else None
        fields |= _grammar_params(_grammar_of(query, pieces, by_tokens), self.server)
        return _GenerationRequest(query, fields, n_tokens, self.server, passage=by_tokens.texts if by_tokens else ())

    async def _wanted_label(
        self, client: http.OpenAIClient, query: MultipleChoiceQuery
    ) -> _GenerationRequest | RequestFailedError:
        labels = _labels(query)
        spellings: list[Spelling] = []
        for label in labels if self.server == LLAMA_CPP and self._reads_tokens else ():
            spelling = await self._spelling(client, label)
            if isinstance(spelling, RequestFailedError):
                return spelling
            spellings.append(spelling)
        by_tokens = bool(spellings) and all(spelling.texts for spelling in spellings)
        grammar = (
            _grammar_params(token_choice_grammar(spellings), self.server)
            if by_tokens
            else _label_params(labels, self.server)
        )
        top = (self.endpoints.chat_top if query.chat else self.endpoints.plain_top) if query.first_token else 0
        fields = dict(NO_PENALTY[self.server]) | grammar
        return _GenerationRequest(query, fields, max_label_tokens(query), self.server, top, by_tokens)

    def _drawing(self, query: ConstrainedGenerateQuery) -> dict[str, Any]:
        if not query.temperature or self.server == NO_GRAMMAR:
            return {}
        return dict(FULL_DISTRIBUTION[self.server]) | ({"top_k": query.top_k} if query.top_k else {})

    async def _spelling(self, client: http.OpenAIClient, text: str) -> Spelling | RequestFailedError:
        """A text in the server's tokens, without generation; empty if the server does not tokenize."""
        if text not in self._spellings:
            tokens = await self._tokens(client, text)
            if isinstance(tokens, RequestFailedError):
                return tokens
            self._spellings[text] = tokens
        return self._spellings[text]

    async def _tokens(self, client: http.OpenAIClient, text: str) -> Spelling | RequestFailedError:
        if self.server == NO_GRAMMAR:
            return Spelling(())
        opening = COLON if text.startswith(" ") else LINE
        body: dict[str, Any] = {"content": opening + text, "add_special": False, "with_pieces": True}
        if self.server == VLLM:
            body = {"model": client.model, "prompt": text, "add_special_tokens": False}
        reply = await client.get_json(f"{client.root}/tokenize", body)
        if isinstance(reply, RequestFailedError):
            return reply
        tokens = reply.get("tokens") if reply is not None else None
        if not isinstance(tokens, list) or not all(map(_is_token, tokens)):
            return Spelling(())
        return Spelling(tuple(tokens)) if self.server == VLLM else Spelling.from_reply(opening, text, tokens)

    # Responses.

    def _read(
        self,
        client: http.OpenAIClient,
        wanted: _GenerationRequest,
        body: Mapping[str, Any],
        note_model: Callable[[Mapping[str, Any]], None],
    ) -> Answer | UnsupportedQueryError:
        """The answer in a response.

        Raises:
            IncompleteResponseError: a piece is missing.
        """
        answer = wanted.read(body, client.quotable)
        if isinstance(answer, ConstraintViolationError):
            self.n_outside += 1
        elif isinstance(answer, Answer) and _needs_grammar(wanted.query):
            self._kept = True
            self._by_tokens = self._by_tokens or wanted.by_tokens
            self._by_letters = self._by_letters or not wanted.by_tokens
        note_model(body)
        return answer


@dataclass(frozen=True, slots=True)
class _GenerationRequest:
    """One query, as a request to one server.

    Attributes:
        query: the query.
        fields: parameters beyond OpenAI's API.
        max_tokens: maximum length of the answer.
        server: one of `SERVERS`.
        top: number of top tokens to show; 0 for none.
        spelled: whether the grammar has labels as tokens.
        passage: tokens of the passage, if the grammar has them.
    """

    query: ConstrainedQuery
    fields: Mapping[str, Any]
    max_tokens: int
    server: str
    top: int = 0
    spelled: bool = False
    passage: tuple[str, ...] = ()

    @property
    def by_tokens(self) -> bool:
        """Whether the grammar is one of tokens."""
        return self.spelled or bool(self.passage)

    @property
    def too_long(self) -> http.PromptTooLongError:
        without = ", without any example" if self.query.shots else ""
        return http.PromptTooLongError(f"prompt and answer are longer than the model reads{without}")

    def params(self, text: str) -> dict[str, Any]:
        """Parameters of the request with this text."""
        query = self.query
        params: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": 0, "seed": 0} | prompt_in(
            text, chat=query.chat
        )
        if isinstance(query, ConstrainedGenerateQuery) and query.temperature:
            params |= {"temperature": query.temperature, "seed": _seed(query)}
            params |= {"top_p": 1.0} if self.server != NO_GRAMMAR else {}
        if isinstance(query, ConstrainedGenerateQuery) and query.line_ends:
            params["stop"] = ["\n"]
        if self.top:
            params |= {"logprobs": True, "top_logprobs": self.top} if query.chat else {"logprobs": self.top}
        return params | ({"extra_body": dict(self.fields)} if self.fields else {})

    def read(self, body: Mapping[str, Any], quotable: Callable[[object], str]) -> Answer | UnsupportedQueryError:
        """The answer in a response.

        Raises:
            IncompleteResponseError: a piece is missing.
        """
        choice = answer_in(body)
        text, finish = text_of(choice), str(choice.get("finish_reason"))
        if finish == "content_filter":
            return UnsupportedQueryError(FILTERED)
        if finish == "length" and self._ran_out(body):
            return self.too_long
        if not text and finish == "length":
            return UnsupportedQueryError(SPENT)
        if not text and finish != "stop":
            raise IncompleteResponseError("a response with nothing in it")
        if isinstance(self.query, MultipleChoiceQuery):
            return _chosen_label(self.query, text, choice) or _outside(quotable(text), "none of the labels")
        return self._read_text(text, quotable(text), cut=finish == "length")

    def _ran_out(self, body: Mapping[str, Any]) -> bool:
        """Whether the context was full before the answer ended; vLLM refuses such a prompt, llama.cpp starts to answer."""
        usage = body.get("usage")
        n_tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
        return self.server == LLAMA_CPP and isinstance(n_tokens, int) and n_tokens < self.max_tokens

    def _read_text(self, text: str, quotable: str, *, cut: bool) -> Answer | UnsupportedQueryError:
        """The answer, or why it is invalid; `quotable` is the text for messages."""
        query = self.query
        if not isinstance(query, ConstrainedGenerateQuery) or query.constraint == UNCONSTRAINED:
            return _answer_of(text)
        if query.constraint == SPAN:
            kept = span_in(query.passage, text, cut=cut and not self.passage)
            what = "no piece of the passage"
        else:
            made = ShuffledGrammar.from_pieces(pieces_of(query.passage), _lead(query))
            made = ShuffledGrammar(self.passage, self.passage) if self.passage else made
            kept, what = made.whole_in(text, cut=cut), "not made of the passage's words"
        if kept is None:
            return _outside(quotable, what)
        if text.strip() and not kept:
            return UnsupportedQueryError(
                f"the server's answer {_brief(quotable)} was cut off in the middle of its first word"
            )
        return _answer_of(kept)


def _answer_of(text: str) -> Answer:
    return Answer((math.nan,), math.nan, text=text)


def _outside(text: str, what: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"the server's answer {_brief(text)} is {what}, so it did not keep to the grammar; {OTHER_SERVER}"
    )


def _brief(text: str) -> str:
    return repr(text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}...")


def _needs_grammar(query: ConstrainedQuery) -> bool:
    return isinstance(query, MultipleChoiceQuery) or query.constraint in (PASSAGE_TOKENS, SPAN)


def _grammar_of(query: ConstrainedGenerateQuery, pieces: Sequence[Piece], spelling: Spelling | None) -> str:
    """The grammar of a constrained answer: of tokens if given, else of words."""
    if spelling is not None:
        return token_span_grammar(spelling) if query.constraint == SPAN else token_shuffle_grammar(spelling)
    lead = _lead(query)
    return span_grammar(pieces, lead) if query.constraint == SPAN else ShuffledGrammar.from_pieces(pieces, lead).grammar


def _grammar_params(grammar: str, server: str) -> dict[str, Any]:
    return {"grammar": grammar} if server == LLAMA_CPP else {"structured_outputs": {"grammar": grammar}}


def _is_token(given: Any) -> bool:
    """Whether a value is a token: a number, or a number with its text (bytes for a part of a character)."""
    number = given.get("id") if isinstance(given, Mapping) else given
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _label_params(labels: Sequence[str], server: str) -> dict[str, Any]:
    """VLLM accepts labels directly, but not with line breaks."""
    if server == VLLM and all(map(str.isprintable, labels)):
        return {"structured_outputs": {"choice": list(labels)}}
    return _grammar_params(choice_grammar(labels), server)


def _lead(query: ConstrainedGenerateQuery) -> str:
    """The space between prompt and answer, if there is none yet."""
    return "" if query.chat or query.display_text()[-1:].isspace() else " "


def _labels(query: MultipleChoiceQuery) -> tuple[str, ...]:
    """The labels in an answer: with their leading space unless the answer is a chat message."""
    return tuple(label.strip() for label in query.labels) if query.chat else query.labels


def _chosen_label(query: MultipleChoiceQuery, text: str, choice: Mapping[str, Any]) -> Answer | None:
    """The chosen label; None if the text is not a label."""
    said = text.strip()
    if said not in {label.strip() for label in query.labels}:
        return None
    nats = first_nats(query, top_logprobs_of(choice)[:1]) if query.first_token else None
    if nats is None:
        return Answer((math.nan,) * len(query.labels), math.nan, text=said)
    return Answer(nats, max(0.0, 1.0 - sum(map(math.exp, nats))), text=said)


def first_nats(query: MultipleChoiceQuery, steps: Iterable[TopLogprobs]) -> tuple[float, ...] | None:
    """Log-probabilities of single-token labels [label] from the first step; None if they are not reliable.

    All labels and one other token must be shown, or the probabilities may be those after the grammar.
    """
    labels = _labels(query)
    for step in steps:
        pairs = (*step.top, (step.token, step.logprob_nats))
        nats_of = {token: nats for token, nats in pairs if nats > HIDDEN_NATS}
        is_whole = any(not any(label.startswith(token) for label in labels) for token in nats_of if token)
        if is_whole and all(label in nats_of for label in labels):
            return tuple(nats_of[label] for label in labels)
    return None


def prompt_in(text: str, *, chat: bool) -> dict[str, Any]:
    """The prompt as a parameter of an endpoint."""
    return {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}


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


def _seed(query: ConstrainedGenerateQuery) -> int:
    """A seed of 31 bits, the servers' limit, that depends on the query only."""
    seed_digest = hashlib.sha256(f"{query.seed}\n{query.display_text()}".encode("utf-8", "replace")).digest()
    return int.from_bytes(seed_digest[:4]) >> 1
