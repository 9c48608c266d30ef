"""A question and its passage as a model reads them, whole or in windows, and the tokens that a piece of the passage is.

    [CLS] Who met James ? [SEP] Mary met James . [SEP]              characters   Mary met James.
                                ^    ^                                           ^^^^ a piece: tokens whose characters overlap it

A passage that is too long is read in windows that overlap, each with the whole question, cut by the tokenizer as the
question-answering pipeline of transformers has it cut them:

    [CLS] Who met James ? [SEP] Mary met [SEP]
    [CLS] Who met James ? [SEP] met James [SEP]        the pieces of one window are compared with those of another
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undertow.models.base import Ints, UnsupportedQueryError
from undertow.types import SpanQuery

MAX_TEXT_TOKENS = 384
MAX_OVERLAP_TOKENS = 128
"""Tokens of a text, and of the passage that a window shares with the one before it, at most: the pipeline's own defaults."""
AT_ONCE = 1024
"""Texts that are tokenized in one go; what a tokenizer says of a text takes much more room than what is kept."""
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts that put no space between words, as the names of their characters begin."""
NO_WORD = -1
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Question and passage, or a stretch of it, in tokens.

    Attributes:
        tokens: of the whole text, as the tokenizer wraps it.
        types: which of the two each token is of, as the model is told.
        first: place of the passage's first token.
        offsets: characters of the passage that its tokens stand for, (first, one past the last) [token, 2].
        words: the word that each of them is a part of, `NO_WORD` for none [token].
        characters: the stretch of the passage that this is, (first character, one past the last).
        marks: places of the token that stands for no answer, in order; the first is where that is read, if it opens the text.
    """

    tokens: tuple[int, ...]
    types: tuple[int, ...]
    first: int
    offsets: Ints
    words: Ints
    characters: Span
    marks: tuple[int, ...]

    @property
    def fed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the network sees; windows that share it get the same numbers."""
        return self.tokens, self.types

    @property
    def has_null(self) -> bool:
        """Whether it can be said that there is no answer."""
        return self.marks[:1] == (0,)

    def places(self, span: Span) -> Span | None:
        """The first and the last of the passage's tokens that overlap these characters; None if there are none."""
        own = np.flatnonzero((self.offsets[:, 0] < span[1]) & (self.offsets[:, 1] > span[0]))
        return (int(own[0]), int(own[-1])) if len(own) else None

    def words_at(self, start: int, end: int) -> Span:
        """Characters of the whole words that a piece begins and ends in; its own where the tokenizer knows no words."""
        words = self.words[start], self.words[end]
        if NO_WORD in words:
            return int(self.offsets[start, 0]), int(self.offsets[end, 1])
        first, last = np.flatnonzero(self.words == words[0])[0], np.flatnonzero(self.words == words[1])[-1]
        return int(self.offsets[first, 0]), int(self.offsets[last, 1])


@dataclass(frozen=True, slots=True)
class Piece:
    """A place of a candidate.

    Attributes:
        window: number of the window.
        start, end: its first and its last token, among the passage's.
    """

    window: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class EncodedQuestion:
    """A query in tokens.

    Attributes:
        place: in the list of queries.
        query: it.
        windows: what is read.
        candidates: every place of each candidate [candidate][place].
    """

    place: int
    query: SpanQuery
    windows: tuple[Window, ...]
    candidates: tuple[tuple[Piece, ...], ...]

    @property
    def fed(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """What the network sees of it [window]."""
        return tuple(window.fed for window in self.windows)


@dataclass(frozen=True, slots=True)
class QAEncoder:
    """Questions and passages in the tokens of one model.

    Attributes:
        tokenizer: a fast one.
        max_tokens: that a text may have for this model.
    """

    tokenizer: Any
    max_tokens: int

    @property
    def context_tokens(self) -> int:
        """Tokens of a text, at most."""
        return min(self.max_tokens, MAX_TEXT_TOKENS)

    @property
    def overlap_tokens(self) -> int:
        """Tokens of the passage that a window shares with the one before it."""
        return min(self.context_tokens // 2, MAX_OVERLAP_TOKENS)

    @property
    def passage_last(self) -> bool:
        """Whether the question comes first; with models that are padded in front it comes last."""
        return bool(self.tokenizer.padding_side == "right")

    def encode(self, queries: Sequence[SpanQuery]) -> list[EncodedQuestion | UnsupportedQueryError]:
        """Each query in tokens, or why this model cannot be asked it, in order."""
        texts = list(dict.fromkeys((query.question, query.passage) for query in queries))
        windows = dict(zip(texts, self._windows(texts), strict=True))
        return [_posed(place, query, windows[query.question, query.passage]) for place, query in enumerate(queries)]

    def _windows(self, texts: Sequence[tuple[str, str]]) -> Iterator[tuple[Window, ...] | UnsupportedQueryError]:
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            for (question, passage), encoding in zip(some, self._coded(some), strict=True):
                yield self._windows_of(question, passage, encoding)

    def _coded(self, texts: Sequence[tuple[str, str]], **options: Any) -> Any:
        """What the tokenizer says of each text, or of each window of one."""
        questions, passages = ([text[side] for text in texts] for side in (0, 1))
        pair = (questions, passages) if self.passage_last else (passages, questions)
        return self.tokenizer(*pair, return_offsets_mapping=True, return_token_type_ids=True, **options).encodings

    def _windows_of(self, question: str, passage: str, whole: Any) -> tuple[Window, ...] | UnsupportedQueryError:
        if not question.strip() or not passage.strip():
            return UnsupportedQueryError("the question or the passage is empty")
        n_passage = whole.sequence_ids.count(int(self.passage_last))
        if not n_passage:
            return UnsupportedQueryError("this tokenizer makes nothing of the passage")
        if len(whole.ids) <= self.context_tokens:
            return (self._window(whole, (0, len(passage))),)
        room = self.context_tokens - (len(whole.ids) - n_passage)
        # Windows that shared as much as they hold would not move on; a tokenizer refuses to cut them.
        if room <= self.overlap_tokens:
            return UnsupportedQueryError(
                f"the question leaves too little of the {self.context_tokens} tokens that the model reads for windows on the passage"
            )
        return tuple(self._cut(question, passage))

    def _cut(self, question: str, passage: str) -> Iterator[Window]:
        """Windows on a passage that is too long, in the tokenizer's order."""
        encodings = self._coded(
            [(question, passage)],
            truncation="only_second" if self.passage_last else "only_first",
            max_length=self.context_tokens,
            stride=self.overlap_tokens,
            return_overflowing_tokens=True,
        )
        windows = [self._window(encoding, (0, len(passage))) for encoding in encodings]
        stretches = [(int(window.offsets[0, 0]), int(window.offsets[-1, 1])) for window in windows]
        opening, closing = min(first for first, _ in stretches), max(end for _, end in stretches)
        for window, (first, end) in zip(windows, stretches, strict=True):
            # Nothing is cut off where the passage itself begins and ends, whatever space there is.
            yield replace(
                window, characters=(0 if first == opening else first, len(passage) if end == closing else end)
            )

    def _window(self, encoding: Any, characters: Span) -> Window:
        own = [at for at, sequence in enumerate(encoding.sequence_ids) if sequence == int(self.passage_last)]
        words = encoding.word_ids
        mark = self.tokenizer.cls_token_id
        return Window(
            tuple(encoding.ids),
            tuple(encoding.type_ids),
            own[0],
            np.array([encoding.offsets[at] for at in own], dtype=np.int64),
            np.array([NO_WORD if words[at] is None else words[at] for at in own], dtype=np.int64),
            characters,
            tuple(at for at, token in enumerate(encoding.ids) if token == mark),
        )


def _posed(
    place: int, query: SpanQuery, windows: tuple[Window, ...] | UnsupportedQueryError
) -> EncodedQuestion | UnsupportedQueryError:
    if isinstance(windows, UnsupportedQueryError):
        return windows
    candidates = []
    for candidate in query.candidates:
        pieces = _pieces(query.passage, candidate.strip(), windows)
        if isinstance(pieces, UnsupportedQueryError):
            return pieces
        candidates.append(pieces)
    return EncodedQuestion(place, query, windows, tuple(candidates))


def _pieces(passage: str, candidate: str, windows: Sequence[Window]) -> tuple[Piece, ...] | UnsupportedQueryError:
    """Every place of a candidate, in every window that holds it whole."""
    spans = find_spans(passage, candidate)
    if not spans:
        return UnsupportedQueryError("a candidate is nowhere in the passage but within longer words")
    pieces, reason = [], "a candidate is cut off by every window that the passage is read in"
    for number, window in enumerate(windows):
        for span in spans:
            if span[0] < window.characters[0] or span[1] > window.characters[1]:
                continue
            places = window.places(span)
            if places is None:
                reason = "this tokenizer makes nothing of a candidate"
            elif _takes_more(passage, span, (window.offsets[places[0], 0], window.offsets[places[1], 1])):
                reason = "this tokenizer joins a candidate with the word beside it"
            else:
                pieces.append(Piece(number, *places))
    return tuple(pieces) if pieces else UnsupportedQueryError(reason)


def find_spans(passage: str, piece: str) -> list[Span]:
    """Where a piece stands in a passage as words of its own: (first character, one past the last).

    *Al* is not in *Alice*. Between scripts that put no space between words every place counts.
    """
    places = []
    first = passage.find(piece)
    while first >= 0:
        end = first + len(piece)
        if not _one_word(passage[first - 1 : first + 1] if first else "") and not _one_word(passage[end - 1 : end + 1]):
            places.append((first, end))
        first = passage.find(piece, first + 1)
    return places


def _one_word(pair: str) -> bool:
    """Whether two characters that stand side by side are of one word."""
    if len(pair) < 2 or not all(map(_of_word, pair)):
        return False
    return not any(unicodedata.name(one, "").startswith(UNSPACED) for one in pair)


def _of_word(character: str) -> bool:
    """Letters, the marks on them, and digits."""
    return unicodedata.category(character)[0] in "LMN"


def _takes_more(passage: str, span: Span, taken: Span) -> bool:
    """Whether tokens stand for a part of a neighbouring word too, and not for spaces and punctuation alone."""
    return any(map(_of_word, passage[taken[0] : span[0]] + passage[span[1] : taken[1]]))
