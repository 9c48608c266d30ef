"""Masked texts in tokens: windows of long ones, which are trained on together, and what could be known of their labels at best."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from undertow.errors import UndertowError
from undertow.models.base import Ints

Bools: TypeAlias = NDArray[np.bool_]
POOL_BATCHES = 8
"""Number of batches whose texts are sorted by length together, so that little is padded; they are drawn again in every pass."""
READ_AT_ONCE = 2000
MIN_ROOM = 8


@dataclass(frozen=True, slots=True)
class Example:
    """A text with masked places, and the word group that each was of.

    Attributes:
        pieces: the texts around the places: n places have n + 1 pieces.
        labels: word group of each place, in reading order [place].
        before: text in front, such as metadata; "" for none.
    """

    pieces: tuple[str, ...]
    labels: tuple[str, ...]
    before: str = ""

    def masked_text(self, mark: str) -> str:
        """The whole text, each place marked."""
        return self.before + mark.join(self.pieces)


@dataclass(frozen=True, slots=True)
class Row:
    """A text, or a window of one, as the model reads it.

    Attributes:
        tokens: what is fed [position].
        places: positions with labels; there may be other masks [place].
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
        texts = [one.masked_text(tokenizer.mask_token) for one in part]
        coded = tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
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
            ends = np.array(coded["offset_mapping"][place])[:, 1]
            is_before = (ends <= len(one.before)) & ~special if one.before else np.zeros_like(special)
            rows += [
                Row(tokens[kept], np.searchsorted(kept, at[inside]), own[inside], start + place)
                for kept, inside in _windows(special, is_before, context, at)
            ]
    return rows, n_unread


def _windows(special: Bools, is_before: Bools, context: int, at: Ints) -> Iterator[tuple[Ints, slice]]:
    """Positions of each window of a long text, and which places it teaches: every place one window, with a quarter of it to either side.

        [CLS]  1953 . Mali .   She was ...                    [SEP]
        opening    before     first       ...            last  (one past the text)

    Every window has the metadata (`is_before`, [position]), in no more than half of its room.
    """
    inner, before = np.flatnonzero(~special), np.flatnonzero(is_before)
    opening, closing = np.arange(inner[0]), np.arange(inner[-1] + 1, len(special))
    room = context - len(opening) - len(closing)
    if room < MIN_ROOM:
        raise UndertowError(f"the base reads {context} tokens, which are too few to train on; name another one")
    first, last = int(before[-1] + 1 if len(before) else inner[0]), int(inner[-1] + 1)
    kept = np.concatenate([opening, before[: room // 2]])
    room -= len(kept) - len(opening)
    margin, done = room // 4, 0
    while done < len(at):
        start = max(first, min(int(at[done]) - margin, last - room))
        stop = min(start + room, last)
        n_inside = int(np.searchsorted(at, stop if stop == last else stop - margin))
        yield np.concatenate([kept, np.arange(start, stop), closing]), slice(done, n_inside)
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


def batches(lengths: Sequence[int], batch: int, seed: int) -> Iterator[Ints]:
    """Rows of each step, those of one step of about one length; every pass has all of them once, in an order of its own."""
    known, pool = np.array(lengths), batch * POOL_BATCHES
    for number in itertools.count():
        rng = np.random.default_rng([seed, 1, number])
        order = rng.permutation(len(known))
        pools = [order[at : at + pool] for at in range(0, len(order), pool)]
        ordered = [one[np.argsort(known[one], kind="stable")] for one in pools]
        steps = [one[at : at + batch] for one in ordered for at in range(0, len(one), batch)]
        yield from (steps[place] for place in rng.permutation(len(steps)))
