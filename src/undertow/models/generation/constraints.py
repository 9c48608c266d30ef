"""Constraints on generated tokens: none, tokens of a passage, a span of it, or one of several labels.

    passage   the cats of the house        span so far   the        next   cats | house | end
                                                         the cats          of | end

A constraint is a state machine: a state has the allowed next tokens and whether the answer may end; a token leads to the next state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

END = -1
"""Stands for any of the model's end tokens."""


@dataclass(frozen=True, slots=True)
class TokenSet:
    """Tokens in any order: all, or those of a passage (Bauer et al., section 3.3, "constrained")."""

    allowed: tuple[int, ...] | None = None
    may_end: bool = True

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> TokenSet:
        """Allow the tokens of a passage."""
        return cls(tuple(sorted(set(passage))))

    def after(self, token: int) -> TokenSet:
        """The same state."""
        return self


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A contiguous span of a passage; Bauer et al., section 3.3, "span-based".

    Attributes:
        passage: tokens of the passage.
        places: positions in the passage of the next token; all positions at the start.
        may_end: whether the span has a token.
    """

    passage: tuple[int, ...]
    places: tuple[int, ...]
    may_end: bool = False

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> PassageSpan:
        """The initial state: a span begins anywhere and has at least one token."""
        return cls(tuple(passage), tuple(range(len(passage))))

    @property
    def allowed(self) -> tuple[int, ...]:
        """Tokens that follow the span at any of its positions."""
        return tuple(sorted({self.passage[place] for place in self.places if place < len(self.passage)}))

    def after(self, token: int) -> PassageSpan:
        """The state with the positions of the longer span."""
        longer = (place + 1 for place in self.places if place < len(self.passage) and self.passage[place] == token)
        return PassageSpan(self.passage, tuple(longer), may_end=True)


@dataclass(slots=True)
class LabelTrie:
    """A trie of label tokens; a label may be a prefix of another.

    Attributes:
        children: next states, by token.
        label: index of the label that is complete here; None if none is.
    """

    children: dict[int, LabelTrie] = field(default_factory=dict)
    label: int | None = None

    @classmethod
    def from_labels(cls, labels: Sequence[Sequence[int]]) -> LabelTrie:
        """Build the trie; the labels have different tokens, at least one each."""
        root = cls()
        for place, tokens in enumerate(labels):
            at = root
            for token in tokens:
                at = at.children.setdefault(token, cls())
            at.label = place
        return root

    @property
    def allowed(self) -> tuple[int, ...]:
        """Allowed next tokens, in ascending order."""
        return tuple(sorted(self.children))

    @property
    def may_end(self) -> bool:
        """Whether a label is complete here."""
        return self.label is not None

    def after(self, token: int) -> LabelTrie:
        """The state after a token."""
        return self.children[token]

    def inner_nodes(self, written: tuple[int, ...] = ()) -> dict[tuple[int, ...], LabelTrie]:
        """Inner nodes by the tokens that lead to them, from the root; `written` leads to this one."""
        nodes = {written: self} if self.children else {}
        for token in self.allowed:
            nodes |= self.children[token].inner_nodes((*written, token))
        return nodes


Nexts = Mapping[tuple[int, ...], Mapping[int, float]]
"""Log-probabilities in nats of the next tokens and `END`, by the tokens so far."""


def greedy_label(trie: LabelTrie, nexts: Nexts, *, ends_early: bool = False) -> tuple[tuple[int, ...], int | None]:
    """Decode a label greedily; ties go to the smaller token, the end last.

    Args:
        trie: trie of the labels.
        nexts: log-probabilities by path.
        ends_early: whether an end competes from the second step on, after part of a label too; Bauer et al., section 3.2.

    Returns:
        The decoded tokens and the index of their label; None if they are only part of a label.
    """
    written: tuple[int, ...] = ()
    state = trie
    while state.children:
        may_end = state.may_end or (ends_early and bool(written))
        token = max([*state.allowed, *([END] if may_end else [])], key=nexts[written].__getitem__)
        if token == END:
            break
        written, state = (*written, token), state.after(token)
    return written, state.label


def label_nats(trie: LabelTrie, nexts: Nexts) -> list[float]:
    """Log-probability of each label: of its tokens, and of an end if a longer label continues it [label]."""
    nats_by_label: dict[int, float] = {}

    def visit(state: LabelTrie, written: tuple[int, ...], so_far: float) -> None:
        if state.label is not None:
            nats_by_label[state.label] = so_far + (nexts[written][END] if state.children else 0.0)
        for token, child in state.children.items():
            visit(child, (*written, token), so_far + nexts[written][token])

    visit(trie, (), 0.0)
    return [nats_by_label[label] for label in sorted(nats_by_label)]


@dataclass(slots=True)
class SpanSearch:
    """Best-first search for the most probable span of a passage.

    A span's probability is that of its tokens, and of an end if it could continue. Call `next_spans`, pass the log-probabilities
    after each to `extend`, and repeat while `running`; the answer is `best`.
    """

    best: tuple[int, ...] = ()
    best_nats: float = -math.inf
    _open: list[tuple[float, tuple[int, ...], PassageSpan]] = field(default_factory=list)
    _expanding: dict[tuple[int, ...], tuple[float, PassageSpan]] = field(default_factory=dict)

    @classmethod
    def from_passage(cls, passage: Sequence[int]) -> SpanSearch:
        """Start a search."""
        return cls(_open=[(0.0, (), PassageSpan.from_passage(passage))])

    @property
    def running(self) -> bool:
        """Whether an open span may lead to a better one."""
        return bool(self._open) and -self._open[0][0] > self.best_nats

    def next_spans(self, most: int) -> list[tuple[tuple[int, ...], PassageSpan]]:
        """Up to `most` open spans that may lead to a better one, the most probable first; they are no longer open."""
        batch = [heappop(self._open) for _ in range(most) if self.running]
        self._expanding = {written: (-minus_nats, state) for minus_nats, written, state in batch}
        return [(written, state) for _, written, state in batch]

    def extend(self, written: tuple[int, ...], nats: Mapping[int, float]) -> None:
        """Extend a span of `next_spans` by the log-probabilities of what follows."""
        so_far, span = self._expanding.pop(written)
        if span.may_end:
            self._offer(written, so_far + nats[END])
        for token in span.allowed:
            state, longer, longer_nats = span.after(token), (*written, token), so_far + nats[token]
            if state.allowed:
                heappush(self._open, (-longer_nats, longer, state))
            else:  # at the end of the passage only the end remains
                self._offer(longer, longer_nats)

    def _offer(self, span: tuple[int, ...], nats: float) -> None:
        if (nats, span) > (self.best_nats, self.best):
            self.best, self.best_nats = span, nats
