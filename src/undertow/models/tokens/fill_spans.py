"""Find the tokens of the words that fill blanks, by the characters of each token.

text      In 1953 , she was a teenager .        tokens of the fill: those whose characters are the fill's alone,
                    ^^^                          but for a space before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undertow.models.base import UnsupportedQueryError
from undertow.types import ClozeQuery


@dataclass(frozen=True, slots=True)
class FillSpan:
    """A text with an option in it, in tokens.

    Attributes:
        tokens: tokens of the whole text, special tokens included.
        places: positions of the fills' tokens, left to right.
    """

    tokens: tuple[int, ...]
    places: tuple[int, ...]


def fill_offsets(query: ClozeQuery, number: int) -> list[tuple[int, int]]:
    """Character range of each fill of an option: (first, one past the last)."""
    places, at = [], 0
    for piece, fill in zip(query.pieces[:-1], query.options[number].fills, strict=True):
        at += len(piece)
        places.append((at, at + len(fill)))
        at += len(fill)
    return places


def locate_fills(
    text: str, spans: Sequence[tuple[int, int]], ids: tuple[int, ...], offsets: Sequence[tuple[int, int] | None]
) -> FillSpan | UnsupportedQueryError:
    """The tokens of the fills; each must cover no other text but a space before the fill."""
    places: list[int] = []
    for first, end in spans:
        own = [at for at, span in enumerate(offsets) if span is not None and span[0] < end and span[1] > first]
        if not own:
            return UnsupportedQueryError("an option adds nothing to the text around it")
        # A separate space token belongs to the word behind it: a mask stands for both.
        before = offsets[own[0] - 1] if own[0] else None
        if before is not None and before[1] <= first and text[before[0] : first] in ("", " "):
            places.append(own[0] - 1)
        for at in own:
            start, stop = offsets[at] or (first, end)
            if stop > end or text[start:first].strip():
                return UnsupportedQueryError(
                    f"this tokenizer joins an option with the word beside it: {text[first:end]!r}"
                )
        places += own
    return FillSpan(ids, tuple(places))
