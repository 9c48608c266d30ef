"""Which tokens of a text are the words that fill its blanks, told from the characters that each token stands for.

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
        tokens: of the whole text, as the tokenizer wraps it.
        places: positions of the tokens that the fills are made of, left to right.
    """

    tokens: tuple[int, ...]
    places: tuple[int, ...]


def fill_offsets(query: ClozeQuery, number: int) -> list[tuple[int, int]]:
    """Where each fill of an option stands in its text: (first character, one past the last)."""
    places, at = [], 0
    for piece, fill in zip(query.pieces[:-1], query.options[number].fills, strict=True):
        at += len(piece)
        places.append((at, at + len(fill)))
        at += len(fill)
    return places


def find_fills(
    text: str, spans: Sequence[tuple[int, int]], ids: tuple[int, ...], offsets: Sequence[tuple[int, int] | None]
) -> FillSpan | UnsupportedQueryError:
    """The tokens that the fills are made of; each must be the fill's alone, but for a space before it."""
    places: list[int] = []
    for first, end in spans:
        own = [at for at, span in enumerate(offsets) if span is not None and span[0] < end and span[1] > first]
        if not own:
            return UnsupportedQueryError("an option adds nothing to the text around it")
        # A space that is a token of its own belongs to the word behind it: a mask stands for both.
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
