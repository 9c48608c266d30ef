"""Encode a question and its passage, in windows if it is long, and find the tokens of a span of the passage.

    [CLS] Who met James ? [SEP] Mary met James . [SEP]              characters   Mary met James.
                                ^    ^                                           ^^^^ a piece: tokens whose characters overlap it

A long passage is read in overlapping windows, each with the whole question, as in the question-answering pipeline of
transformers:

    [CLS] Who met James ? [SEP] Mary met [SEP]
    [CLS] Who met James ? [SEP] met James [SEP]        spans of all windows are compared
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from undertow.models.base import IndexedQuery, Ints, UnsupportedQueryError, attempt
from undertow.types import Query, SpanQuery

MAX_TEXT_TOKENS = 384
MAX_OVERLAP_TOKENS = 128
"""Maximum tokens of a text, and of the overlap of two windows: the pipeline's defaults."""
AT_ONCE = 1024
"""Texts to tokenize at a time; a tokenizer's output takes much more memory than what is kept."""
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts without spaces between words, by the first word of their characters' names."""
NO_WORD = -1
Span = tuple[int, int]
Piece = tuple[int, int, int]
"""An occurrence of a candidate: its window, and its first and last token, counted from the passage's first."""


@dataclass(frozen=True, slots=True)
class Window:
    """Question and passage, or a part of it, in tokens.

    Attributes:
        tokens: tokens of question and passage, special tokens included.
        types: token type ids.
        first: position of the passage's first token.
        offsets: character range of each token of the passage, (first, one past the last) [token, 2].
        words: index of the word of each token of the passage, `NO_WORD` for none [token].
        characters: character range of this window, (first, one past the last).
        marks: positions of the token for no answer, in order; it is read at the first one, if that opens the text.
    """

    tokens: tuple[int, ...]
    types: tuple[int, ...]
    first: int
    offsets: Ints
    words: Ints
    characters: Span
    marks: tuple[int, ...]

    @property
    def network_input(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The input of the network; equal inputs give equal numbers."""
        return self.tokens, self.types

    @property
    def has_null(self) -> bool:
        """Whether the model can give no answer."""
        return self.marks[:1] == (0,)

    def places(self, span: Span) -> Span | None:
        """First and last token of the passage that overlap these characters; None if there are none."""
        own = np.flatnonzero((self.offsets[:, 0] < span[1]) & (self.offsets[:, 1] > span[0]))
        return (int(own[0]), int(own[-1])) if len(own) else None

    def words_at(self, start: int, end: int) -> Span:
        """Character range of a span, extended to whole words if the tokenizer has words."""
        words = self.words[start], self.words[end]
        if NO_WORD in words:
            return int(self.offsets[start, 0]), int(self.offsets[end, 1])
        first, last = np.flatnonzero(self.words == words[0])[0], np.flatnonzero(self.words == words[1])[-1]
        return int(self.offsets[first, 0]), int(self.offsets[last, 1])


@dataclass(frozen=True, slots=True)
class EncodedQuestion(IndexedQuery):
    """A query in tokens.

    Attributes:
        windows: windows on the passage.
        candidates: occurrences of each candidate [candidate][occurrence].
    """

    query: SpanQuery
    windows: tuple[Window, ...]
    candidates: tuple[tuple[Piece, ...], ...]

    @property
    def network_input(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """The inputs of the network [window]."""
        return tuple(window.network_input for window in self.windows)


class QAEncoder:
    """Encodes questions and passages for one model.

    Attributes:
        context_tokens: maximum number of tokens of a text.
        overlap_tokens: tokens that two windows share.
        passage_last: whether the passage follows the question; it precedes it for tokenizers that pad on the left.
    """

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.context_tokens = min(max_tokens, MAX_TEXT_TOKENS)
        self.overlap_tokens = min(self.context_tokens // 2, MAX_OVERLAP_TOKENS)
        self.passage_last = bool(tokenizer.padding_side == "right")

    def encode(self, queries: Sequence[Query]) -> list[EncodedQuestion | UnsupportedQueryError]:
        """Each query in tokens, or why it is not supported, in order."""
        questions = cast(Sequence[SpanQuery], queries)  # the runner refuses others
        texts = list(dict.fromkeys((query.question, query.passage) for query in questions))
        windows: dict[tuple[str, str], tuple[Window, ...] | UnsupportedQueryError] = {}
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            for text, encoding in zip(some, self._tokenize(some), strict=True):
                windows[text] = attempt(self._windows_of, *text, encoding)
        return [attempt(_encode_question, place, query, windows) for place, query in enumerate(questions)]

    def _tokenize(self, texts: Sequence[tuple[str, str]], **options: Any) -> Any:
        """The tokenizer's encodings of each text, or of each window of one."""
        questions, passages = ([text[side] for text in texts] for side in (0, 1))
        pair = (questions, passages) if self.passage_last else (passages, questions)
        return self.tokenizer(*pair, return_offsets_mapping=True, return_token_type_ids=True, **options).encodings

    def _windows_of(self, question: str, passage: str, whole: Any) -> tuple[Window, ...]:
        if not question.strip() or not passage.strip():
            raise UnsupportedQueryError("the question or the passage is empty")
        n_passage = whole.sequence_ids.count(int(self.passage_last))
        if not n_passage:
            raise UnsupportedQueryError("this tokenizer finds no tokens in the passage")
        encodings = [whole]
        if len(whole.ids) > self.context_tokens:
            # The overlap must be smaller than the window, or the tokenizer refuses.
            if self.context_tokens - (len(whole.ids) - n_passage) <= self.overlap_tokens:
                raise UnsupportedQueryError(
                    f"the question leaves too little of the {self.context_tokens} tokens that the model reads for windows on the passage"
                )
            encodings = self._tokenize(
                [(question, passage)],
                truncation="only_second" if self.passage_last else "only_first",
                max_length=self.context_tokens,
                stride=self.overlap_tokens,
                return_overflowing_tokens=True,
            )
        windows = [self._window(encoding) for encoding in encodings]
        opening, closing = min(one.characters[0] for one in windows), max(one.characters[1] for one in windows)

        def widen(first: int, end: int) -> Span:
            """With the white space at both ends of the passage."""
            return 0 if first == opening else first, len(passage) if end == closing else end

        return tuple(replace(one, characters=widen(*one.characters)) for one in windows)

    def _window(self, encoding: Any) -> Window:
        own = [at for at, sequence in enumerate(encoding.sequence_ids) if sequence == int(self.passage_last)]
        words = encoding.word_ids
        offsets = np.array([encoding.offsets[at] for at in own], dtype=np.int64)
        return Window(
            tuple(encoding.ids),
            tuple(encoding.type_ids),
            own[0],
            offsets,
            np.array([NO_WORD if words[at] is None else words[at] for at in own], dtype=np.int64),
            (int(offsets[0, 0]), int(offsets[-1, 1])),
            tuple(at for at, token in enumerate(encoding.ids) if token == self.tokenizer.cls_token_id),
        )


def _encode_question(
    place: int, query: SpanQuery, windows_of: Mapping[tuple[str, str], tuple[Window, ...] | UnsupportedQueryError]
) -> EncodedQuestion:
    windows = windows_of[query.question, query.passage]
    if isinstance(windows, UnsupportedQueryError):
        raise UnsupportedQueryError(str(windows))
    candidates = (_pieces(query.passage, candidate.strip(), windows) for candidate in query.candidates)
    return EncodedQuestion(place, query, windows, tuple(candidates))


def _pieces(passage: str, candidate: str, windows: Sequence[Window]) -> tuple[Piece, ...]:
    """All occurrences of a candidate in windows that hold it whole."""
    spans = locate_spans(passage, candidate)
    if not spans:
        raise UnsupportedQueryError("a candidate occurs only within longer words of the passage")
    pieces, reason = [], "no window holds a candidate whole"
    for number, window in enumerate(windows):
        for span in spans:
            if span[0] < window.characters[0] or span[1] > window.characters[1]:
                continue
            places = window.places(span)
            if places is None:
                reason = "this tokenizer finds no tokens in a candidate"
                continue
            first, end = window.offsets[places[0], 0], window.offsets[places[1], 1]
            # Not only spaces and punctuation, but a part of a neighbouring word.
            if any(map(_of_word, passage[first : span[0]] + passage[span[1] : end])):
                reason = "this tokenizer joins a candidate with the word beside it"
            else:
                pieces.append((number, *places))
    if not pieces:
        raise UnsupportedQueryError(reason)
    return tuple(pieces)


def locate_spans(passage: str, piece: str) -> list[Span]:
    """Character ranges where a text occurs in a passage as whole words: (first, one past the last).

    *Al* is not in *Alice*. In scripts without spaces between words every occurrence counts.
    """
    places = []
    for match in re.finditer(f"(?={re.escape(piece)})", passage):
        first, end = match.start(), match.start() + len(piece)
        if not _one_word(passage[first - 1 : first + 1] if first else "") and not _one_word(passage[end - 1 : end + 1]):
            places.append((first, end))
    return places


def _one_word(pair: str) -> bool:
    """Whether two adjacent characters belong to one word."""
    if len(pair) < 2 or not all(map(_of_word, pair)):
        return False
    return not any(unicodedata.name(one, "").startswith(UNSPACED) for one in pair)


def _of_word(character: str) -> bool:
    """Letters, the marks on them, and digits."""
    return unicodedata.category(character)[0] in "LMN"
