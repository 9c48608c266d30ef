"""Find the tokens of the words that fill blanks, by the characters of each token.

text      In 1953 , she was a teenager .        tokens of the fill: those whose characters are the fill's alone,
                    ^^^                          but for a space before it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from undertow.models.base import UnsupportedQueryError
from undertow.types import ClozeQuery

Offsets = list[tuple[int, int] | None]
"""Character range of each token; None for those that begin and end a text [token]."""
TextWithOffsets = tuple[str, tuple[int, ...], Offsets]
"""A text, its tokens, and the characters of each token."""


@dataclass(frozen=True, slots=True)
class FillSpan:
    """A text with an option in it, in tokens.

    Attributes:
        tokens: tokens of the whole text, special tokens included.
        fills: positions of the tokens of each fill, left to right [fill][token].
    """

    tokens: tuple[int, ...]
    fills: tuple[tuple[int, ...], ...]

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of the tokens of all fills."""
        return tuple(place for fill in self.fills for place in fill)

    @property
    def fill_tokens(self) -> list[int]:
        """Tokens of the fills."""
        return [self.tokens[place] for place in self.places]


def tokenize_with_offsets(tokenizer: Any, texts: Sequence[str]) -> Iterator[TextWithOffsets]:
    """Each text, its tokens, and the characters of each token."""
    coded = tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True)
    columns = coded["input_ids"], coded["offset_mapping"], coded["special_tokens_mask"]
    for text, ids, offsets, special in zip(texts, *columns, strict=True):
        yield text, tuple(ids), [None if mark else span for mark, span in zip(special, offsets, strict=True)]


def fill_offsets(query: ClozeQuery, number: int) -> list[tuple[int, int]]:
    """Character range of each fill of an option: (first, one past the last)."""
    places, at = [], 0
    for piece, fill in zip(query.pieces[:-1], query.options[number].fills, strict=True):
        at += len(piece)
        places.append((at, at + len(fill)))
        at += len(fill)
    return places


def locate_fills(text: str, ids: tuple[int, ...], offsets: Offsets, spans: Sequence[tuple[int, int]]) -> FillSpan:
    """The tokens of the fills; each must cover no other text but a space before the fill.

    Raises:
        UnsupportedQueryError: a token covers more, or a fill has no tokens.
    """
    fills = []
    for first, end in spans:
        own = [at for at, span in enumerate(offsets) if span is not None and span[0] < end and span[1] > first]
        if not own:
            raise UnsupportedQueryError("an option adds nothing to the text around it")
        # A separate space token belongs to the next word: one mask replaces both.
        before = offsets[own[0] - 1] if own[0] else None
        has_space = before is not None and before[1] <= first and text[before[0] : first] in ("", " ")
        for at in own:
            start, stop = offsets[at] or (first, end)
            if stop > end or text[start:first].strip():
                raise UnsupportedQueryError(
                    f"this tokenizer joins an option with the word beside it: {text[first:end]!r}"
                )
        fills.append((*([own[0] - 1] if has_space else []), *own))
    return FillSpan(ids, tuple(fills))


BYTE_SPACE = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"
"""The space of byte-level vocabularies, as tokens show it."""


def with_space(tokenizer: Any, query: ClozeQuery, number: int, filled: FillSpan) -> FillSpan | None:
    """An option at the start of a text with a space before it; None elsewhere, and where this is no other spelling.

    text      She was a child .      tokens of the fill    She
    with      " She" was a child .                         ĠShe
    """
    if query.pieces[0]:
        return None
    word = query.options[number].fills[0]
    own = len(tokenizer(word, add_special_tokens=False)["input_ids"])
    spaced = tuple(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
    first = tokenizer.convert_ids_to_tokens(spaced[0]) if spaced else ""
    start = filled.places[0]
    plain = filled.tokens[start : start + own]
    if not first.startswith(BYTE_SPACE) or first == BYTE_SPACE or spaced == plain:
        return None
    grown, (initial, *others) = len(spaced) - own, filled.fills
    fills = [(*range(start, start + len(spaced)), *(place + grown for place in initial[own:]))]
    fills += [tuple(place + grown for place in fill) for fill in others]
    return FillSpan((*filled.tokens[:start], *spaced, *filled.tokens[start + own :]), tuple(fills))
