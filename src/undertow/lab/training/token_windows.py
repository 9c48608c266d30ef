"""Masked texts in tokens: windows of long ones, which are trained on together, and what could be known of their labels at best.

Knows tokens and arrays; knows no network, and not what labels stand for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.errors import UndertowError
from undertow.models.base import Ints
from undertow.types import digest

POOL_BATCHES = 8
"""Texts of so many batches are sorted by length, so that little is padded; which texts these are is drawn again in every pass."""
READ_AT_ONCE = 2000
MIN_ROOM = 8


@dataclass(frozen=True, slots=True)
class Example:
    """A text with masked places, and the word group that each was of.

    Attributes:
        pieces: the texts around the places: n places have n + 1 pieces.
        labels: word group of each place, in reading order [place].
        before: what stands in front of the text, as metadata do; "" for nothing.
    """

    pieces: tuple[str, ...]
    labels: tuple[str, ...]
    before: str = ""

    def __post_init__(self) -> None:
        if not self.labels or len(self.pieces) != len(self.labels) + 1:
            raise ValueError(f"{len(self.labels)} labels need one piece more, and at least one label")

    def masked_text(self, mark: str) -> str:
        """The whole text, each place marked."""
        return self.before + mark.join(self.pieces)


def data_sha256(examples: Sequence[Example]) -> str:
    """SHA-256 of masked texts with their labels, in their order (64 hex digits)."""
    return digest([[one.before, one.pieces, one.labels] for one in examples])


@dataclass(frozen=True, slots=True)
class Row:
    """A text, or a window of one, as the model reads it.

    Attributes:
        tokens: what is fed [position].
        places: positions whose labels are learned; other masks may stand beside them [place].
        labels: number of the label of each [place].
        text: number of the example.
    """

    tokens: Ints
    places: Ints
    labels: Ints
    text: int


def rows_of(tokenizer: Any, context: int, examples: Sequence[Example], labels: Sequence[str]) -> tuple[list[Row], int]:
    """Every example in one row or more, and how many could not be read (a text that holds the mask token itself)."""
    numbers = {label: number for number, label in enumerate(labels)}
    rows: list[Row] = []
    n_unread = 0
    for start in range(0, len(examples), READ_AT_ONCE):
        part = examples[start : start + READ_AT_ONCE]
        coded = tokenizer(
            [one.masked_text(tokenizer.mask_token) for one in part],
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        for place, one in enumerate(part):
            tokens = np.array(coded["input_ids"][place], dtype=np.int64)
            at = np.flatnonzero(tokens == tokenizer.mask_token_id)
            if len(at) != len(one.labels):
                n_unread += 1
                continue
            own = np.array([numbers[label] for label in one.labels], dtype=np.int64)
            if len(tokens) <= context:
                rows.append(Row(tokens, at, own, start + place))
                continue
            special = np.array(coded["special_tokens_mask"][place], dtype=bool)
            ends = [end for _, end in coded["offset_mapping"][place]]
            parts = _Parts.from_tokens(special, ends, len(one.before), context)
            rows += [
                Row(tokens[kept], np.searchsorted(kept, at[inside]), own[inside], start + place)
                for kept, inside in parts.windows(at)
            ]
    return rows, n_unread


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a long text consists of, in positions.

        [CLS]  1953 . Mali .   She was ...                    [SEP]
        opening    before     first       ...            last  (one past the text)

    Attributes:
        kept: opening and metadata, which every window has [position].
        closing: what stands behind the text [position].
        first, last: the text itself, last not included.
        room: tokens of it that fit into a window.
    """

    kept: Ints
    closing: Ints
    first: int
    last: int
    room: int

    @classmethod
    def from_tokens(
        cls, special: np.ndarray[Any, np.dtype[np.bool_]], ends: Sequence[int], n_before: int, context: int
    ) -> _Parts:
        """From where special tokens and the characters of the metadata are; metadata have no more than half of the room."""
        inner = np.flatnonzero(~special)
        opening, closing = np.arange(inner[0]), np.arange(inner[-1] + 1, len(special))
        room = context - len(opening) - len(closing)
        before = np.array([at for at in inner if ends[int(at)] <= n_before and n_before], dtype=np.int64)
        kept = np.concatenate([opening, before[: room // 2]])
        if room < MIN_ROOM:
            raise UndertowError(f"the base reads {context} tokens, which are too few to train on; name another one")
        first = int(before[-1] + 1 if len(before) else inner[0])
        return cls(kept, closing, first, int(inner[-1] + 1), room - len(before[: room // 2]))

    def windows(self, at: Ints) -> Iterator[tuple[Ints, Any]]:
        """Positions of each window, and which places it teaches: every place one window, with a quarter of it to either side."""
        margin, done = self.room // 4, 0
        while done < len(at):
            start = max(self.first, min(int(at[done]) - margin, self.last - self.room))
            stop = min(start + self.room, self.last)
            reach = stop if stop == self.last else stop - margin
            n_inside = int(np.searchsorted(at, reach))
            yield np.concatenate([self.kept, np.arange(start, stop), self.closing]), slice(done, n_inside)
            done = n_inside


def label_counts(rows: Sequence[Row], n_labels: int) -> list[int]:
    """Places of each label [label]."""
    counts = np.bincount(np.concatenate([row.labels for row in rows]), minlength=n_labels)
    return [int(count) for count in counts]


def floor_nats(rows: Sequence[Row]) -> float:
    """Mean entropy of the label given the masked text and the place."""
    cells: dict[tuple[bytes, int], Counter[int]] = {}
    for row in rows:
        key = row.tokens.tobytes()
        for place, label in zip(row.places, row.labels, strict=True):
            cells.setdefault((key, int(place)), Counter())[int(label)] += 1
    total = sum(cell.total() for cell in cells.values())
    return sum(-n * math.log(n / cell.total()) for cell in cells.values() for n in cell.values()) / total


class Batches:
    """Which rows are in which step: a pure function of lengths, seed and step."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self._lengths = np.array(lengths)
        self._batch, self._seed = batch, seed
        self.per_pass = -(-len(lengths) // batch)
        self._pass, self._batches = -1, [np.zeros(0, dtype=np.int64)]

    def at(self, step: int) -> Ints:
        """The rows of a step [row]."""
        which, place = divmod(step, self.per_pass)
        if which != self._pass:
            self._pass, self._batches = which, self._drawn(which)
        return self._batches[place]

    def _drawn(self, which: int) -> list[Ints]:
        rng = np.random.default_rng([self._seed, 1, which])
        order = rng.permutation(len(self._lengths))
        pool = self._batch * POOL_BATCHES
        pools = [order[at : at + pool] for at in range(0, len(order), pool)]
        ordered = [one[np.argsort(self._lengths[one], kind="stable")] for one in pools]
        batches = [one[at : at + self._batch] for one in ordered for at in range(0, len(one), self._batch)]
        return [batches[number] for number in rng.permutation(len(batches))]
