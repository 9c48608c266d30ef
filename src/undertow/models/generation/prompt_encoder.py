"""Encode prompts with few-shot examples, and their labels or passage.

Examples that do not fit are dropped from the front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from undertow.models.base import UnsupportedQueryError, common_prefix_length
from undertow.models.generation.constraints import LabelTrie
from undertow.models.tokens.chat_template import encode_chat
from undertow.models.tokens.option_tokens import Vocabulary
from undertow.types import ConstrainedGenerateQuery, MultipleChoiceQuery

TAIL = 32
"""Characters before a label that may affect its tokens, if they hold the start of a word."""
BEHIND_WORD, BEHIND_SPACE = ": ", "\n"
"""Stand-ins for the prompt before an answer: some tokenizers treat the beginning of a text differently."""
PASSAGES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage in the tokens of an answer.

    Attributes:
        text: the passage.
        tokens: its tokens.
        spans: character range of each token [token].
    """

    text: str
    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def text_of_span(self, written: Sequence[int]) -> str:
        """The text of contiguous tokens, at their first occurrence."""
        n = len(written)
        for start in range(len(self.tokens) - n + 1):
            if self.tokens[start : start + n] == tuple(written):
                return self.text[self.spans[start][0] : self.spans[start + n - 1][1]].strip()
        raise ValueError("these tokens are not contiguous in the passage")


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A query in tokens.

    Attributes:
        place: index in the list of queries.
        query: the query.
        tokens: tokens of examples and prompt.
        n_dropped: number of examples that did not fit.
        trie, prefixes: labels of a choice, and the paths to its inner nodes.
        passage: passage of a constrained answer.
    """

    place: int
    query: MultipleChoiceQuery | ConstrainedGenerateQuery
    tokens: tuple[int, ...]
    n_dropped: int = 0
    trie: LabelTrie | None = None
    prefixes: tuple[tuple[int, ...], ...] = ()
    passage: Passage | None = None

    @property
    def max_tokens(self) -> int:
        """Maximum tokens behind the prompt on one path."""
        return len(self.passage.tokens) if self.passage is not None else max(map(len, self.prefixes))

    @property
    def own_tokens(self) -> int:
        """Maximum tokens fed behind the prompt."""
        return len(self.passage.tokens) if self.passage is not None else sum(map(bool, self.prefixes))

    @property
    def n_reads(self) -> int:
        """Number of distributions read in the first pass."""
        return max(1, len(self.prefixes))


@dataclass(slots=True)
class PromptEncoder:
    """Encodes prompts with one tokenizer.

    Attributes:
        tokenizer: the tokenizer.
        tokens_of: tokenizes a text with the model's opening tokens.
        context_tokens: maximum length of prompt and answer together.
        vocabulary: the tokenizer's.
    """

    tokenizer: Any
    tokens_of: Callable[[str], list[int]]
    context_tokens: int
    vocabulary: Vocabulary
    _labels: dict[tuple[str, tuple[str, ...]], tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = field(
        default_factory=dict
    )
    _passages: dict[tuple[str, str], Passage | UnsupportedQueryError] = field(default_factory=dict)
    _line_breaks: frozenset[int] | None = None
    _line_ends: frozenset[int] | None = None

    @property
    def line_breaks(self) -> frozenset[int]:
        """Tokens that begin with a line break."""
        if self._line_breaks is None:
            self._line_breaks = self.vocabulary.line_breaks()
        return self._line_breaks

    @property
    def line_ends(self) -> frozenset[int]:
        """Tokens with a line break after other text."""
        if self._line_ends is None:
            self._line_ends = self.vocabulary.line_ends()
        return self._line_ends

    def prompts(
        self, queries: Sequence[MultipleChoiceQuery | ConstrainedGenerateQuery]
    ) -> tuple[list[EncodedPrompt], dict[int, UnsupportedQueryError]]:
        """Encoded queries, and errors for unsupported ones by index."""
        prompts: list[EncodedPrompt] = []
        refused: dict[int, UnsupportedQueryError] = {}
        for place, query in enumerate(queries):
            prompt = self._encode_prompt(place, query)
            if isinstance(prompt, UnsupportedQueryError):
                refused[place] = prompt
            else:
                prompts.append(prompt)
        return prompts, refused

    def _encode_prompt(
        self, place: int, query: MultipleChoiceQuery | ConstrainedGenerateQuery
    ) -> EncodedPrompt | UnsupportedQueryError:
        """The query with as many of its last examples as fit, by bisection."""
        whole = self._without(place, query, 0)
        if isinstance(whole, UnsupportedQueryError) or self._fits(whole):
            return whole
        most = self._without(place, query, len(query.shots))
        if isinstance(most, UnsupportedQueryError):
            return most
        if not self._fits(most):
            return UnsupportedQueryError(
                f"prompt and answer are longer than the {self.context_tokens} tokens that the model reads, without any example"
            )
        too_few, enough, best = 0, len(query.shots), most
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            tried = self._without(place, query, middle)
            if isinstance(tried, UnsupportedQueryError):
                return tried
            too_few, enough, best = (too_few, middle, tried) if self._fits(tried) else (middle, enough, best)
        return best

    def _fits(self, prompt: EncodedPrompt) -> bool:
        return len(prompt.tokens) + prompt.max_tokens <= self.context_tokens

    def _without(
        self, place: int, query: MultipleChoiceQuery | ConstrainedGenerateQuery, n_dropped: int
    ) -> EncodedPrompt | UnsupportedQueryError:
        """The query without its first `n_dropped` examples, whether it fits or not."""
        text = "".join((*query.shots[n_dropped:], query.prompt))
        tokens = encode_chat(self.tokenizer, text) if query.chat else tuple(self.tokens_of(text))
        if isinstance(tokens, UnsupportedQueryError):
            return tokens
        return self._whole(place, query, (text, tokens), n_dropped)

    def _whole(
        self,
        place: int,
        query: MultipleChoiceQuery | ConstrainedGenerateQuery,
        prompt: tuple[str, tuple[int, ...]],
        n_dropped: int,
    ) -> EncodedPrompt | UnsupportedQueryError:
        text, tokens = prompt
        if not tokens:
            return UnsupportedQueryError("the prompt is empty")
        if isinstance(query, ConstrainedGenerateQuery):
            behind = BEHIND_SPACE if text[-1:].isspace() else BEHIND_WORD
            passage = self._passage(query.passage, "" if query.chat else behind)
            if isinstance(passage, UnsupportedQueryError):
                return passage
            return EncodedPrompt(place, query, tokens, n_dropped, passage=passage)
        kept, labels = self._alone(tokens, query) if query.chat else self._behind(text, tokens, query.labels)
        if not kept:
            return UnsupportedQueryError(
                "its labels are spelled together with the whole prompt, so nothing stands before them"
            )
        trie = _trie(query, labels, self.tokenizer.unk_token_id)
        if isinstance(trie, UnsupportedQueryError):
            return trie
        return EncodedPrompt(place, query, kept, n_dropped, trie, tuple(trie.prefixes()))

    def _alone(
        self, tokens: tuple[int, ...], query: MultipleChoiceQuery
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """The prompt, and the labels at the beginning of a chat answer."""
        spelled = (self.tokenizer(label.strip(), add_special_tokens=False)["input_ids"] for label in query.labels)
        return tokens, tuple(tuple(one) for one in spelled)

    def _behind(
        self, text: str, tokens: tuple[int, ...], labels: tuple[str, ...]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
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

    def _passage(self, text: str, behind: str) -> Passage | UnsupportedQueryError:
        if (text, behind) not in self._passages:
            if len(self._passages) >= PASSAGES_KEPT:
                self._passages.clear()
            self._passages[text, behind] = self._encode_passage(text, behind)
        return self._passages[text, behind]

    def _encode_passage(self, text: str, behind: str) -> Passage | UnsupportedQueryError:
        """The tokens of a passage behind a stand-in, with a space if one comes before it."""
        if not text.strip():
            return UnsupportedQueryError("the passage that the answer is to be made of is empty")
        if not getattr(self.tokenizer, "is_fast", False):
            return UnsupportedQueryError("this tokenizer does not give character offsets")
        space = behind[1:]
        for sign in (behind[:1], ""):
            coded = self.tokenizer(sign + space + text, add_special_tokens=False, return_offsets_mapping=True)
            pairs = list(zip(coded["input_ids"], coded["offset_mapping"], strict=True))
            if not any(start < len(sign) < end for _, (start, end) in pairs):
                break  # else one token spans the stand-in and the beginning of the passage
        # A space may be a token with an empty range.
        kept = [(token, span) for token, span in pairs if span[1] > len(sign)]
        if not kept:
            return UnsupportedQueryError("the passage that the answer is to be made of has no tokens")
        n_before = len(sign + space)
        spans = ((max(0, start - n_before), max(0, end - n_before)) for _, (start, end) in kept)
        return Passage(text, tuple(token for token, _ in kept), tuple(spans))


def _trie(
    query: MultipleChoiceQuery, labels: Sequence[tuple[int, ...]], unknown: int | None
) -> LabelTrie | UnsupportedQueryError:
    """The trie of the labels, or why they cannot be encoded or distinguished."""
    counted = [one[:1] for one in labels] if query.first_token else list(labels)
    for at, one in enumerate(counted):
        if unknown in one:
            return UnsupportedQueryError(
                f"the label {query.labels[at].strip()!r} holds a character that this tokenizer cannot spell"
            )
        if not one:
            return UnsupportedQueryError(
                f"this tokenizer spells the label {query.labels[at].strip()!r} with no token of its own"
            )
        if one in counted[:at]:
            other = query.labels[counted.index(one)].strip()
            how = "begins" if query.first_token else "spells"
            first = " with the same token" if query.first_token else " alike"
            return UnsupportedQueryError(
                f"this tokenizer {how} {other!r} and {query.labels[at].strip()!r}{first}, so they cannot be distinguished"
            )
    return LabelTrie.from_labels(counted)
