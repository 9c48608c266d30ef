"""Choices among labels, and answers written within limits, by a server: what is asked for, and what came back.

A server that takes grammars (llama.cpp, vLLM) keeps its answers to them, and shows no tokens of what it did not write: a choice
has its label and no log-probabilities, but for labels that are compared by their first tokens, where the server shows these.
Whether it kept to the grammar is checked in every answer.

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
"""A passage's tokens by its words, where the server does not count them."""
BYTES_PER_TOKEN = 4
"""Of text in UTF-8, roughly: a letter that is not Latin takes several bytes, and often several tokens."""
COLON, LINE = ":", "\n"
"""What stands before an answer, with a space after the former: some tokenizers spell the beginning of a text otherwise."""
OUTSIDE_IN_A_ROW = 20
MAX_QUOTED_CHARS = 60
OTHER_SERVER = "choose a llama.cpp or vLLM server, tell by --grammar if it is one, or ask for unconstrained answers"
NO_SEARCH = (
    "a server does not show what a search for the most probable span must see; ask for spans that are decoded instead"
)
STEADY: Mapping[str, Mapping[str, Any]] = {
    LLAMA_CPP: {"repeat_penalty": 1.0},
    VLLM: {"repetition_penalty": 1.0},
    NO_GRAMMAR: {},
}
"""What servers may do to probabilities by their own settings or the model's, and is not wanted."""
WHOLE: Mapping[str, Mapping[str, Any]] = {LLAMA_CPP: {"top_k": 0, "min_p": 0.0}, VLLM: {"top_k": -1, "min_p": 0.0}}
"""What keeps a server from drawing among few tokens of its own accord, as both names do unless they are told otherwise."""


class ConstraintViolationError(UnsupportedQueryError):
    """An answer that does not keep to its constraint."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What a server's two endpoints show.

    Attributes:
        chat_top, plain_top: most probable tokens of a step.
    """

    chat_top: int
    plain_top: int


@dataclass(slots=True)
class ServerDecoder:
    """How one server is asked for choices and writing.

    Attributes:
        server: one of `SERVERS`, "" until it is known.
        endpoints: what they show.
        named_by_user: whether the user named the server.
        owner: whose the model is, by the server's list; "" if that is not known.
        n_outside: answers in a row, from the first on, that did not keep to their constraint.
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

    # What can be asked.

    async def detect_server(self, client: http.OpenAIClient) -> None:
        """Which server it is, from its list of models; of the OpenAI service it is known.

        Raises:
            UndertowError: it cannot be reached, or fails.
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
        """Refuse what this server is known not to take, before anything is spent.

        Raises:
            UndertowError: says what, why, and what to do.
        """
        if self.server != NO_GRAMMAR:
            return
        why = (
            "by --grammar none" if self.named_by_user else f"its models are owned by {self.owner or 'nobody it names'}"
        )
        if any(_needs_grammar(query) for query in queries):
            raise UndertowError(
                f"{host}: takes no grammar ({why}), so its answers cannot be kept to labels or a passage; {OTHER_SERVER}"
            )
        if any(isinstance(query, ConstrainedGenerateQuery) and query.top_k for query in queries):
            raise UndertowError(
                f"{host}: takes no top_k ({why}), so it cannot draw among the most probable tokens alone; choose a llama.cpp "
                "or vLLM server, tell by --grammar if it is one, or draw among all tokens"
            )

    @property
    def ignored(self) -> bool:
        """Whether so many answers, and all, did not keep to their constraints that nothing else is to be hoped for."""
        return not self._kept and self.n_outside >= OUTSIDE_IN_A_ROW

    # Notes.

    def note(self, queries: Sequence[ConstrainedQuery]) -> None:
        """Take up what a reader of the answers to these must know."""
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
        """What a reader of the answers must know."""
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

    # Asking.

    async def ask(
        self, client: http.OpenAIClient, query: ConstrainedQuery, seen: Callable[[Mapping[str, Any]], None]
    ) -> Answer | UnsupportedQueryError | RequestFailedError:
        """The answer, after as many of the last examples as there is room for; `seen` is shown each response.

        Raises:
            UndertowError: nothing more can be asked.
        """
        wanted = await self._wanted(client, query)
        if not isinstance(wanted, _DecodingRequest):
            return wanted
        outcome = await self._with_room(client, wanted, seen)
        if isinstance(outcome, http.GrammarError) and wanted.by_tokens:  # of tokens: llama.cpp before December 2025
            self._reads_tokens = False
            return await self.ask(client, query, seen)
        return outcome

    async def _with_room(
        self, client: http.OpenAIClient, wanted: _DecodingRequest, seen: Callable[[Mapping[str, Any]], None]
    ) -> Answer | UnsupportedQueryError | RequestFailedError:
        query = wanted.query
        for n_dropped in range(len(query.shots) + 1):
            text = "".join((*query.shots[n_dropped:], query.prompt))
            request = http.HTTPRequest(query.chat, wanted.params(text), n_tokens_of(text) + wanted.max_tokens)
            outcome = await client.ask(request, lambda body: self._read(client, wanted, body, seen))
            if not isinstance(outcome, http.PromptTooLongError):
                return replace(outcome, n_dropped_shots=n_dropped) if isinstance(outcome, Answer) else outcome
        return wanted.too_long

    async def _wanted(
        self, client: http.OpenAIClient, query: ConstrainedQuery
    ) -> _DecodingRequest | UnsupportedQueryError | RequestFailedError:
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
        fields = dict(STEADY[self.server]) | self._drawing(query)
        if query.constraint == UNCONSTRAINED:
            return _DecodingRequest(query, fields, n_tokens, self.server)
        by_tokens = spelling if self._reads_tokens and spelling.texts else None
        fields |= _grammar_params(_grammar_of(query, pieces, by_tokens), self.server)
        return _DecodingRequest(query, fields, n_tokens, self.server, passage=by_tokens.texts if by_tokens else ())

    async def _wanted_label(
        self, client: http.OpenAIClient, query: MultipleChoiceQuery
    ) -> _DecodingRequest | RequestFailedError:
        labels = _spelled(query)
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
        fields = dict(STEADY[self.server]) | grammar
        return _DecodingRequest(query, fields, max_label_tokens(query), self.server, top, by_tokens)

    def _drawing(self, query: ConstrainedGenerateQuery) -> dict[str, Any]:
        if not query.temperature or self.server == NO_GRAMMAR:
            return {}
        return dict(WHOLE[self.server]) | ({"top_k": query.top_k} if query.top_k else {})

    async def _spelling(self, client: http.OpenAIClient, text: str) -> Spelling | RequestFailedError:
        """A text in the server's tokens, for which it generates nothing; no tokens where it does not tell."""
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
        reply = await client.get_json(f"{client.address.url.removesuffix('/v1')}/tokenize", body)
        if isinstance(reply, RequestFailedError):
            return reply
        tokens = reply.get("tokens") if reply is not None else None
        if not isinstance(tokens, list) or not all(map(_is_token, tokens)):
            return Spelling(())
        return Spelling(tuple(tokens)) if self.server == VLLM else Spelling.behind(opening, text, tokens)

    # Reading.

    def _read(
        self,
        client: http.OpenAIClient,
        wanted: _DecodingRequest,
        body: Mapping[str, Any],
        seen: Callable[[Mapping[str, Any]], None],
    ) -> Answer | UnsupportedQueryError:
        """What a response answers.

        Raises:
            HalfAnswerError: a piece is missing.
        """
        answer = wanted.read(body, client.quotable)
        if isinstance(answer, ConstraintViolationError):
            self.n_outside += 1
        elif isinstance(answer, Answer) and _needs_grammar(wanted.query):
            self._kept = True
            self._by_tokens = self._by_tokens or wanted.by_tokens
            self._by_letters = self._by_letters or not wanted.by_tokens
        seen(body)
        return answer


@dataclass(frozen=True, slots=True)
class _DecodingRequest:
    """One query as it is put to one server.

    Attributes:
        query: as it was asked.
        fields: that are no part of OpenAI's interface.
        max_tokens: of the answer.
        server: one of `SERVERS`.
        top: most probable tokens to be shown; 0 for none.
        spelled: whether labels are told in tokens.
        passage: the passage's tokens, where it is told in tokens.
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
        """Whether its grammar is one of tokens."""
        return self.spelled or bool(self.passage)

    @property
    def too_long(self) -> http.PromptTooLongError:
        without = ", without any example" if self.query.shots else ""
        return http.PromptTooLongError(f"prompt and answer are longer than the model reads{without}")

    def params(self, text: str) -> dict[str, Any]:
        """The request with this text."""
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
        """What a response answers.

        Raises:
            HalfAnswerError: a piece is missing.
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
            return _chosen(self.query, text, choice) or _outside(quotable(text), "none of the labels")
        return self._written(text, quotable(text), cut=finish == "length")

    def _ran_out(self, body: Mapping[str, Any]) -> bool:
        """Whether the answer ended since prompt and answer have no more room; vLLM refuses such a prompt, llama.cpp begins."""
        usage = body.get("usage")
        n_tokens = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
        return self.server == LLAMA_CPP and isinstance(n_tokens, int) and n_tokens < self.max_tokens

    def _written(self, text: str, quotable: str, *, cut: bool) -> Answer | UnsupportedQueryError:
        """The answer, or what is wrong with it; `shown` is the text as it may be quoted."""
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
    """The grammar of a constrained answer: of tokens if they are given, else of words."""
    if spelling is not None:
        return token_span_grammar(spelling) if query.constraint == SPAN else token_shuffle_grammar(spelling)
    lead = _lead(query)
    return span_grammar(pieces, lead) if query.constraint == SPAN else ShuffledGrammar.from_pieces(pieces, lead).grammar


def _grammar_params(grammar: str, server: str) -> dict[str, Any]:
    return {"grammar": grammar} if server == LLAMA_CPP else {"structured_outputs": {"grammar": grammar}}


def _is_token(given: Any) -> bool:
    """A number, or with its text, which some servers tell as bytes where it is a piece of a character."""
    number = given.get("id") if isinstance(given, Mapping) else given
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _label_params(labels: Sequence[str], server: str) -> dict[str, Any]:
    """VLLM takes labels as they are, and makes a grammar of them that knows no line breaks."""
    if server == VLLM and all(map(str.isprintable, labels)):
        return {"structured_outputs": {"choice": list(labels)}}
    return _grammar_params(choice_grammar(labels), server)


def _lead(query: ConstrainedGenerateQuery) -> str:
    """The space between prompt and answer, where there is none yet."""
    return "" if query.chat or query.display_text()[-1:].isspace() else " "


def _spelled(query: MultipleChoiceQuery) -> tuple[str, ...]:
    """The labels as an answer says them: with their own space where they go on with a text."""
    return tuple(label.strip() for label in query.labels) if query.chat else query.labels


def _chosen(query: MultipleChoiceQuery, text: str, choice: Mapping[str, Any]) -> Answer | None:
    """The label that was chosen; None if it is none."""
    said = text.strip()
    if said not in {label.strip() for label in query.labels}:
        return None
    nats = first_nats(query, top_logprobs_of(choice)[:1]) if query.first_token else None
    if nats is None:
        return Answer((math.nan,) * len(query.labels), math.nan, text=said)
    return Answer(nats, max(0.0, 1.0 - sum(map(math.exp, nats))), text=said)


def first_nats(query: MultipleChoiceQuery, steps: Iterable[TopLogprobs]) -> tuple[float, ...] | None:
    """Log-probabilities of labels that are one token each [label], from the first step; None where they cannot be had honestly.

    All labels must be shown, and a token that no label begins with: else probabilities may be those that the grammar left.
    """
    labels = _spelled(query)
    for step in steps:
        pairs = (*step.top, (step.token, step.logprob_nats))
        seen = {token: nats for token, nats in pairs if nats > HIDDEN_NATS}
        is_whole = any(not any(label.startswith(token) for label in labels) for token in seen if token)
        if is_whole and all(label in seen for label in labels):
            return tuple(seen[label] for label in labels)
    return None


def prompt_in(text: str, *, chat: bool) -> dict[str, Any]:
    """A prompt as each endpoint takes it."""
    return {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}


def n_tokens_of(text: str) -> int:
    """Tokens of a text, estimated by its bytes."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def estimated_tokens(passage: str) -> int:
    """Tokens of a passage, estimated by its words."""
    return math.ceil(TOKENS_PER_WORD * len(passage.split())) + TOKENS_AROUND


def max_label_tokens(query: MultipleChoiceQuery) -> int:
    """Tokens of a label, at most: no token has less than a byte, and one ends the answer."""
    return max(len(label.encode("utf-8", "replace")) for label in query.labels) + 1


def effort_tokens(query: ConstrainedQuery) -> int:
    """Tokens of prompt and answer, estimated."""
    most = max_label_tokens(query) if isinstance(query, MultipleChoiceQuery) else estimated_tokens(query.passage)
    return n_tokens_of(query.display_text()) + most


def _seed(query: ConstrainedGenerateQuery) -> int:
    """By the query alone, whatever it is asked together with; servers take 31 bits."""
    seed_digest = hashlib.sha256(f"{query.seed}\n{query.display_text()}".encode("utf-8", "replace")).digest()
    return int.from_bytes(seed_digest[:4]) >> 1
