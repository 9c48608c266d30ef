"""What an answer may consist of, token by token: any tokens, those of a passage, a piece of it, or one of several labels.

    passage   the cats of the house        span so far   the        next   cats | house | end
                                                         the cats          of | end

A constraint is a state: it says which tokens may come next and whether the answer may end here, and a token leads to the next
state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

END = -1
"""Stands for the end of an answer, whichever of a model's tokens says it."""
ANY_TOKEN = None
"""What `allowed` is where every token may come next."""


class Constraint(Protocol):
    """What may come next."""

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """Tokens that may come next, in ascending order; None for any."""
        ...

    @property
    def may_end(self) -> bool:
        """Whether the answer may end here."""
        ...

    def after(self, token: int) -> Constraint:
        """The state after one of the allowed tokens."""
        ...


@dataclass(frozen=True, slots=True)
class AnyText:
    """Any token, and an end at any time."""

    allowed: None = ANY_TOKEN
    may_end: bool = True

    def after(self, token: int) -> AnyText:
        """The same: what was written does not limit what is written next."""
        return self


@dataclass(frozen=True, slots=True)
class PassageTokens:
    """Tokens of a passage in any order, and an end at any time; Bauer et al., section 3.3, "constrained"."""

    allowed: tuple[int, ...]
    may_end: bool = True

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> PassageTokens:
        """The tokens of a passage."""
        return cls(tuple(sorted(set(passage))))

    def after(self, token: int) -> PassageTokens:
        """The same."""
        return self


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A contiguous piece of a passage; Bauer et al., section 3.3, "span-based", over the passage's positions.

    Attributes:
        passage: its tokens.
        places: where in the passage the next token may stand; before the first token, anywhere.
        started: whether anything was written.
    """

    passage: tuple[int, ...]
    places: tuple[int, ...]
    started: bool = False

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> PassageSpan:
        """Nothing written yet: a span begins anywhere, and has one token at least."""
        return cls(tuple(passage), tuple(range(len(passage))))

    @property
    def allowed(self) -> tuple[int, ...]:
        """Tokens that follow what was written, at any of its places in the passage."""
        return tuple(sorted({self.passage[place] for place in self.places if place < len(self.passage)}))

    @property
    def may_end(self) -> bool:
        """Once there is anything."""
        return self.started

    def after(self, token: int) -> PassageSpan:
        """The places where the longer piece stands."""
        longer = (place + 1 for place in self.places if place < len(self.passage) and self.passage[place] == token)
        return PassageSpan(self.passage, tuple(longer), started=True)


@dataclass(slots=True)
class LabelTrie:
    """Labels by their tokens; a label may be the beginning of another.

    Attributes:
        children: next states, by token.
        label: place of the label that is complete here; None where none is.
    """

    children: dict[int, LabelTrie] = field(default_factory=dict)
    label: int | None = None

    @classmethod
    def from_labels(cls, labels: Sequence[Sequence[int]]) -> LabelTrie:
        """The trie of these labels.

        Raises:
            ValueError: two labels are the same tokens, or one has none.
        """
        root = cls()
        for place, tokens in enumerate(labels):
            at = root
            for token in tokens:
                at = at.children.setdefault(token, cls())
            if at.label is not None or at is root:
                raise ValueError(f"label {place} cannot be told from another")
            at.label = place
        return root

    @property
    def allowed(self) -> tuple[int, ...]:
        """First tokens of what may follow."""
        return tuple(sorted(self.children))

    @property
    def may_end(self) -> bool:
        """Where a label is complete."""
        return self.label is not None

    def after(self, token: int) -> LabelTrie:
        """The state after a token."""
        return self.children[token]

    def prefixes(self) -> list[tuple[int, ...]]:
        """What was written at every state where there is something to decide or to read: all but the leaves, root first."""
        prefixes: list[tuple[int, ...]] = []
        left: list[tuple[tuple[int, ...], LabelTrie]] = [((), self)]
        while left:
            written, state = left.pop()
            if state.children:
                prefixes.append(written)
                left += [((*written, token), child) for token, child in state.children.items()]
        return sorted(prefixes)


Nexts = Mapping[tuple[int, ...], Mapping[int, float]]
"""Log-probabilities in nats of what may come next, `END` among it where it may, by what was written."""


def greedy_label(trie: LabelTrie, nexts: Nexts, *, ends_early: bool = False) -> tuple[tuple[int, ...], int | None]:
    """What the most probable next token leads to, step by step; of equal ones the smaller token, the end last.

    Args:
        trie: of the labels.
        nexts: as `label_nats` has them.
        ends_early: whether an end competes from the second step on, after part of a label too; Bauer et al., section 3.2.

    Returns:
        The tokens that were written, and the place of the label that they are; None where they are part of one.
    """
    written: tuple[int, ...] = ()
    state = trie
    while state.children:
        token = best_of(state, nexts[written], may_end=state.may_end or (ends_early and bool(written)))
        if token == END:
            break
        written, state = (*written, token), state.after(token)
    return written, state.label


def label_nats(trie: LabelTrie, nexts: Nexts) -> list[float]:
    """The log-probability of each label: of its tokens, and of an end where it could have gone on [label]."""
    nats_by_label: dict[int, float] = {}

    def visit(state: LabelTrie, written: tuple[int, ...], so_far: float) -> None:
        if state.label is not None:
            nats_by_label[state.label] = so_far + (nexts[written][END] if state.children else 0.0)
        for token, child in state.children.items():
            visit(child, (*written, token), so_far + nexts[written][token])

    visit(trie, (), 0.0)
    return [nats_by_label[label] for label in sorted(nats_by_label)]


def best_of(state: Constraint, nats: Mapping[int, float], *, may_end: bool) -> int:
    """The most probable of what may come next, or `END`."""
    candidates = [*(state.allowed or ()), *([END] if may_end else [])]
    return max(candidates, key=lambda token: nats[token])


@dataclass(order=True, slots=True)
class _Open:
    """A span that may go on: a candidate of the search."""

    minus_nats: float
    written: tuple[int, ...]
    state: PassageSpan = field(compare=False)


@dataclass(slots=True)
class SpanSearch:
    """The most probable span of a passage, by best-first search: what is less probable than a whole span found is left out.

    A span's probability is that of its tokens, and of an end where it could have gone on. Ask for `wanted`, read what may come
    next after each, `tell` it, until nothing is wanted; the answer is `best`.

    Attributes:
        root: nothing written yet.
        best, best_nats: the most probable whole span so far.
    """

    root: PassageSpan
    best: tuple[int, ...] = ()
    best_nats: float = -math.inf
    _open: list[_Open] = field(default_factory=list)
    _expanding: dict[tuple[int, ...], _Open] = field(default_factory=dict)

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> SpanSearch:
        """Nothing found yet, and the beginning wanted."""
        root = PassageSpan.from_passage(passage)
        return cls(root, _open=[_Open(0.0, (), root)])

    @property
    def going(self) -> bool:
        """Whether anything that was not asked yet may be better than what was found."""
        return any(-one.minus_nats > self.best_nats for one in self._open)

    def wanted(self, most: int) -> list[tuple[tuple[int, ...], PassageSpan]]:
        """Up to so many spans that may lead to a better one, the most probable first; they count as asked."""
        self._open = sorted(one for one in self._open if -one.minus_nats > self.best_nats)
        batch, self._open = self._open[:most], self._open[most:]
        self._expanding = {one.written: one for one in batch}
        return [(one.written, one.state) for one in batch]

    def extend(self, written: tuple[int, ...], nats: Mapping[int, float]) -> None:
        """What may come next after one that was wanted."""
        one = self._expanding.pop(written)
        so_far = -one.minus_nats
        if one.state.may_end:
            self._offer(written, so_far + nats[END])
        for token in one.state.allowed:
            state = one.state.after(token)
            longer, longer_nats = (*written, token), so_far + nats[token]
            if state.allowed:
                self._open.append(_Open(-longer_nats, longer, state))
            else:  # at the end of the passage nothing is left to decide
                self._offer(longer, longer_nats)

    def _offer(self, span: tuple[int, ...], nats: float) -> None:
        if (nats, span) > (self.best_nats, self.best):
            self.best, self.best_nats = span, nats
