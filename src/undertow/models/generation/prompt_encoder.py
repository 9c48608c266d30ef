"""Encode prompts with few-shot examples or a chat template, and the words, labels or passage of their answers.

Examples that do not fit are dropped from the front. A template that writes today's date gets a fixed one, so that answers, and the keys
of cached answers, do not depend on the day.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, lru_cache
from typing import Any, cast

from undertow.errors import UndertowError
from undertow.models.base import EMPTY_PASSAGE, IndexedQuery, UnsupportedQueryError, attempt, common_prefix_length
from undertow.models.generation.constraints import LabelTrie
from undertow.models.tokens.option_tokens import OptionTokens, Vocabulary
from undertow.types import (
    BEST_SPAN,
    CHOICE,
    GENERATION,
    WRITING,
    ConstrainedGenerateQuery,
    GeneratedQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Query,
)

Tokens = tuple[int, ...]
SEARCH = "search"
"""Mode of a prompt whose answer is the most probable span, beside `GENERATION`, `CHOICE` and `WRITING`."""
TAIL = 32
"""Characters before a label that may affect its tokens, if they hold the start of a word."""
BEHIND_WORD, BEHIND_SPACE = ": ", "\n"
"""Stand-ins for the prompt before an answer: some tokenizers treat the beginning of a text differently."""
PASSAGES_KEPT = 1024
FIXED_DATE = date(2024, 7, 26)
"""The date for templates that write today's, on which no result may depend: the default of Llama 3 templates."""
CLOCK = "strftime_now"
THINKING, OPEN_THOUGHT = "enable_thinking", "<think>"
"""What chat templates call the switch for thinking before an answer, and how it begins."""
_FORM = re.compile(CLOCK + r"\(\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage in the tokens of an answer, and the character range of each [token]."""

    text: str
    tokens: Tokens
    spans: tuple[tuple[int, int], ...]

    def text_of_span(self, written: Sequence[int]) -> str:
        """The text of contiguous tokens, at their first occurrence."""
        n = len(written)
        start = next(at for at in range(len(self.tokens)) if self.tokens[at : at + n] == tuple(written))
        return self.text[self.spans[start][0] : self.spans[start + n - 1][1]].strip()


@dataclass(frozen=True, slots=True)
class EncodedPrompt(IndexedQuery):
    """A query in tokens.

    Attributes:
        tokens: tokens of examples and prompt.
        n_dropped_shots: number of examples that did not fit.
        options: tokens of the words whose probability is recorded.
        nodes: states of a choice's labels, by the tokens after which a distribution is read, the root first.
    """

    query: GeneratedQuery
    tokens: Tokens
    n_dropped_shots: int = 0
    options: OptionTokens = field(default_factory=OptionTokens)
    nodes: Mapping[Tokens, LabelTrie] = field(default_factory=dict)
    passage: Passage = field(default_factory=lambda: Passage("", (), ()))

    @property
    def mode(self) -> str:
        """How it is answered: `GENERATION`, `CHOICE`, `WRITING` or `SEARCH`."""
        if isinstance(self.query, ConstrainedGenerateQuery):
            return SEARCH if self.query.constraint == BEST_SPAN else WRITING
        return CHOICE if isinstance(self.query, MultipleChoiceQuery) else GENERATION

    @property
    def max_tokens(self) -> int:
        """Maximum tokens behind the prompt on one path."""
        if isinstance(self.query, GenerateQuery):
            return self.query.max_tokens
        return len(self.passage.tokens) or max(map(len, self.nodes))

    @property
    def reach(self) -> int:
        """Maximum tokens fed behind the prompt on one path, with those that are only read behind an answer."""
        return self.max_tokens + max((len(chain.tokens) - 1 for chain in self.options.chains), default=0)

    @property
    def own_tokens(self) -> int:
        """Maximum tokens fed behind the prompt."""
        return len(self.nodes) - 1 if self.nodes else self.max_tokens


@dataclass(slots=True)
class PromptEncoder:
    """Encodes prompts with one tokenizer.

    Attributes:
        tokens_of: tokenizes a text with the model's opening tokens.
        context_tokens: maximum length of prompt and answer together.
        frame: what is written around a prompt.
        system_prompt: the system message of a chat; "" for none.
        n_given: with an encoder, where an answer is a text of its own: the number of tokens that a decoder is given before it.
    """

    tokenizer: Any
    tokens_of: Callable[[str], list[int]]
    context_tokens: int
    vocabulary: Vocabulary
    frame: Callable[[str], str] = str
    n_given: int = 0
    system_prompt: str = ""
    _labels: dict[tuple[str, tuple[str, ...]], tuple[Tokens, tuple[Tokens, ...]]] = field(default_factory=dict)
    _passage_of: Callable[[str, str], Passage] = field(init=False)

    def __post_init__(self) -> None:
        self._passage_of = lru_cache(PASSAGES_KEPT)(self._encode_passage)

    def encode(self, queries: Sequence[Query]) -> list[EncodedPrompt | UnsupportedQueryError]:
        """Each query in tokens, or why it is not supported, in order."""
        prompts = cast(Sequence[GeneratedQuery], queries)  # the runner refuses others
        return [attempt(self._encode_prompt, place, query) for place, query in enumerate(prompts)]

    def template_notes(self) -> list[str]:
        """Notes on the chat template."""
        notes = {
            CLOCK: f"the chat template writes a date into each prompt; it was given {FIXED_DATE.isoformat()}",
            THINKING: "the model was told by its chat template to answer without thinking first",
        }
        return [note for name, note in notes.items() if name in str(self.tokenizer.chat_template or "")]

    def _encode_prompt(self, place: int, query: GeneratedQuery) -> EncodedPrompt:
        """The query with as many of its last examples as fit, by bisection."""

        @cache
        def without(n_dropped_shots: int) -> EncodedPrompt:
            return self._encode_without(place, query, n_dropped_shots)

        def fits(n_dropped_shots: int) -> bool:
            prompt = without(n_dropped_shots)
            if not self.n_given:
                return len(prompt.tokens) + prompt.reach <= self.context_tokens
            n_before = 0 if isinstance(query, GenerateQuery) else self.n_given
            return max(len(prompt.tokens), n_before + prompt.reach) <= self.context_tokens

        n_shots = 0 if isinstance(query, GenerateQuery) else len(query.shots)
        if fits(0):
            return without(0)
        if not fits(n_shots):
            raise UnsupportedQueryError(
                f"prompt and answer are longer than the {self.context_tokens} tokens that the model reads"
                + (", without any example" if n_shots else "")
            )
        return without(bisect_left(range(n_shots), True, lo=1, key=fits))

    def _encode_without(self, place: int, query: GeneratedQuery, n_dropped_shots: int) -> EncodedPrompt:
        """The query without its first `n_dropped_shots` examples, whether it fits or not."""
        shots = () if isinstance(query, GenerateQuery) else query.shots[n_dropped_shots:]
        text = self.frame("".join((*shots, query.prompt)))
        is_free = isinstance(query, GenerateQuery) and not query.options
        tokens = (
            encode_chat(self.tokenizer, text, self.system_prompt, may_think=is_free)
            if query.chat
            else tuple(self.tokens_of(text))
        )
        if not tokens:
            raise UnsupportedQueryError("the prompt is empty")
        apart = query.chat or bool(self.n_given)  # the answer is a text of its own
        if isinstance(query, GenerateQuery):
            return EncodedPrompt(place, query, tokens, options=self.vocabulary.of_options(query.options))
        if isinstance(query, ConstrainedGenerateQuery):
            behind = BEHIND_SPACE if text[-1:].isspace() else BEHIND_WORD
            passage = self._passage_of(query.passage, "" if apart else behind)
            return EncodedPrompt(place, query, tokens, n_dropped_shots, passage=passage)
        if apart:
            spelled = self.tokenizer([label.strip() for label in query.labels], add_special_tokens=False)["input_ids"]
            labels = tuple(map(tuple, spelled))
        else:
            tokens, labels = self._behind(text, tokens, query.labels)
        if not tokens:
            raise UnsupportedQueryError(
                "its labels are spelled together with the whole prompt, so nothing stands before them"
            )
        trie = _trie(query, labels, self.tokenizer.unk_token_id)
        return EncodedPrompt(place, query, tokens, n_dropped_shots, nodes=trie.inner_nodes())

    def _behind(self, text: str, tokens: Tokens, labels: tuple[str, ...]) -> tuple[Tokens, tuple[Tokens, ...]]:
        """The prompt's tokens that no label changes, and the tokens of each label from there on.

        A label may share a token with the end of the prompt; then all labels begin before that token.

            prompt     ... Ans wer :            ... a text ,
            label      gender                   ,gender      shares a token with the prompt
        """
        key = text[-TAIL:], labels
        # The tokens of the end of a word may depend on its beginning.
        if key in self._labels and any(map(str.isspace, key[0])):
            edge, spelled = self._labels[key]  # from the last token that no label changes
            start = len(tokens) - len(edge) + 1
            if start > 0 and tokens[start - 1 :] == edge:
                return tokens[:start], spelled
        whole = [tuple(self.tokens_of(text + label)) for label in labels]
        start = min(common_prefix_length(tokens, one) for one in whole)
        spelled = tuple(one[start:] for one in whole)
        if start:
            self._labels[key] = tokens[start - 1 :], spelled
        return tokens[:start], spelled

    def _encode_passage(self, text: str, behind: str) -> Passage:
        """The tokens of a passage behind a stand-in, with a space if one comes before it."""
        if not text.strip():
            raise UnsupportedQueryError(EMPTY_PASSAGE)
        if not getattr(self.tokenizer, "is_fast", False):
            raise UnsupportedQueryError("this tokenizer does not give character offsets")
        space = behind[1:]
        for sign in (behind[:1], ""):
            coded = self.tokenizer(sign + space + text, add_special_tokens=False, return_offsets_mapping=True)
            pairs = list(zip(coded["input_ids"], coded["offset_mapping"], strict=True))
            if not any(start < len(sign) < end for _, (start, end) in pairs):
                break  # else one token spans the stand-in and the beginning of the passage
        # A space may be a token with an empty range.
        kept = [(token, span) for token, span in pairs if span[1] > len(sign)]
        if not kept:
            raise UnsupportedQueryError("the passage that the answer is to be made of has no tokens")
        n_before = len(sign + space)
        spans = ((max(0, start - n_before), max(0, end - n_before)) for _, (start, end) in kept)
        return Passage(text, tuple(token for token, _ in kept), tuple(spans))


def _trie(query: MultipleChoiceQuery, labels: Sequence[Tokens], unknown: int | None) -> LabelTrie:
    """The trie of the labels."""
    counted = [one[:1] for one in labels] if query.first_token else list(labels)
    for at, one in enumerate(counted):
        label = repr(query.labels[at].strip())
        if unknown in one:
            raise UnsupportedQueryError(f"the label {label} holds a character that this tokenizer cannot spell")
        if not one:
            raise UnsupportedQueryError(f"this tokenizer spells the label {label} with no token of its own")
        if one in counted[:at]:
            other = repr(query.labels[counted.index(one)].strip())
            how, alike = ("begins", "with the same token") if query.first_token else ("spells", "alike")
            raise UnsupportedQueryError(
                f"this tokenizer {how} {other} and {label} {alike}, so they cannot be distinguished"
            )
    return LabelTrie.from_labels(counted)


def encode_chat(tokenizer: Any, prompt: str, system_prompt: str = "", *, may_think: bool = False) -> tuple[int, ...]:
    """Tokens of a chat with the prompt as the user's message, behind the system's message if there is one.

    Raises:
        UnsupportedQueryError: the model has no template, it does not take the prompt, or, unless the answer `may_think` first, it
            begins the answer with thinking.
    """
    if not tokenizer.chat_template:
        raise UnsupportedQueryError("this model has no chat template; leave --chat out")
    try:
        text = _apply_template(tokenizer, prompt, system_prompt, add_generation_prompt=True)
    except Exception as error:  # a template is a program and may raise anything
        raise UnsupportedQueryError(
            f"the chat template of this model cannot take the prompt ({str(error)[:200]})"
        ) from error
    if max(re.findall(r"\w+", prompt), key=len, default="") not in text:
        raise UnsupportedQueryError("the chat template of this model leaves the prompt out; leave --chat out")
    if text.rstrip().endswith(OPEN_THOUGHT) and not may_think:
        raise UnsupportedQueryError(
            f"the chat template of this model begins each answer with {OPEN_THOUGHT}, so its first words are no answer; read replies "
            "with --protocol text"
        )
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_system_role(tokenizer: Any, system_prompt: str) -> None:
    """Refuse a system prompt if the chat template has no role for it: it raises an error, or leaves the message out."""
    if not tokenizer.chat_template:
        return
    try:
        has_system = system_prompt in _apply_template(tokenizer, "Hello", system_prompt)
    except Exception:  # noqa: BLE001 - a template is a program and may raise anything
        has_system = False
    if not has_system:
        raise UndertowError("--system: the chat template of this model has no system role; leave --system out")


def _apply_template(tokenizer: Any, prompt: str, system_prompt: str, **options: Any) -> str:
    """The text of a chat without thinking, with a macro in place of the clock that transformers passes to the template."""
    messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
    template = tokenizer.get_chat_template()
    if CLOCK in template:
        branches = "".join(
            f"{{%- if form == {form!r} -%}}{FIXED_DATE.strftime(form)}{{%- endif -%}}"
            for form in dict.fromkeys(_FORM.findall(template))
            if "%}" not in form
        )
        template = f"{{%- macro {CLOCK}(form) -%}}{branches}{{%- endmacro -%}}{template}"
    messages.append({"role": "user", "content": prompt})
    options |= {"tokenize": False, THINKING: False}
    text: str = tokenizer.apply_chat_template(messages, chat_template=template, **options)
    return text
