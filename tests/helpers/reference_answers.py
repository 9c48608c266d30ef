"""What an answer has to be, worked out one text and one token at a time from the log-probabilities after what was written."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from helpers.answering import TOLERANCE_NATS
from undertow.types import BEST_SPAN, PASSAGE_TOKENS, SPAN, UNCONSTRAINED, Answer, ConstrainedGenerateQuery

Tokens = tuple[int, ...]
NatsAfter = Callable[[Tokens], Any]
"""Log-probabilities of all tokens after the prompt and what was written [token]."""


def end_nats(nats: Any, ends: set[int]) -> float:
    """The log-probability that the answer ends, by any of the tokens that end it."""
    return float(np.logaddexp.reduce(nats[sorted(ends)]))


def chosen(
    labels: Sequence[Tokens], after: NatsAfter, ends: set[int], *, early: bool = False
) -> tuple[Tokens, list[float], float]:
    """The greedy label, the log-probability of every label, and the probability that no label begins with.

    Where an end may come early, it competes from the second step on, and may leave part of a label.
    """
    values = []
    for label in labels:
        nats = sum(float(after(label[:at])[token]) for at, token in enumerate(label))
        if any(other != label and other[: len(label)] == label for other in labels):
            nats += end_nats(after(label), ends)
        values.append(nats)
    written: Tokens = ()
    while nexts := {one[len(written)] for one in labels if one[: len(written)] == written != one}:
        nats_here = after(written)
        best = max(sorted(nexts), key=lambda token: float(nats_here[token]))
        if (written in labels or (early and written)) and end_nats(nats_here, ends) > nats_here[best]:
            break
        written = (*written, best)
    firsts = sorted({label[0] for label in labels})
    return written, values, 1 - float(np.exp(after(())[firsts]).sum())


@dataclass(frozen=True)
class Rules:
    """What an answer to a query may consist of.

    `after` is what the model says, and `breaks` whether the last token written ends the answer by a line break within it.
    """

    query: ConstrainedGenerateQuery
    passage: Tokens
    ends: set[int]
    after: NatsAfter
    breaks: Callable[[Tokens], bool] = lambda written: False

    def followers(self, written: Tokens) -> list[int] | None:
        """Tokens of the passage that may come next; None for any token."""
        if self.query.constraint == UNCONSTRAINED:
            return None
        if self.query.constraint == PASSAGE_TOKENS:
            return sorted(set(self.passage))
        n = len(written)
        return sorted(
            {self.passage[at + n] for at in range(len(self.passage) - n) if self.passage[at : at + n] == written}
        )

    def may_end(self, written: Tokens) -> bool:
        return bool(written) or self.query.constraint not in (SPAN, BEST_SPAN)

    def over(self, written: Tokens) -> bool:
        """Whether nothing can follow, so that no end is needed."""
        return (
            len(written) == len(self.passage) or bool(written and self.breaks(written)) or self.followers(written) == []
        )

    def greedy(self) -> tuple[Tokens, float]:
        """The greedy answer and its log-probability."""
        written: Tokens = ()
        so_far = 0.0
        while not self.over(written):
            nats = self.after(written)
            allowed = self.followers(written)
            candidates = set(range(len(nats)) if allowed is None else allowed) - self.ends
            best = max(sorted(candidates), key=lambda token: float(nats[token]), default=None)
            end = end_nats(nats, self.ends)
            if best is None or (self.may_end(written) and end > nats[best]):
                return written, so_far + end
            written, so_far = (*written, best), so_far + float(nats[best])
        return written, so_far

    def spans(self) -> dict[Tokens, float]:
        """The log-probability of every span of the passage."""
        n = len(self.passage)
        every = {self.passage[start:end] for start in range(n) for end in range(start + 1, n + 1)}
        return {
            span: sum(float(self.after(span[:at])[token]) for at, token in enumerate(span))
            + (0.0 if self.breaks(span) or not self.followers(span) else end_nats(self.after(span), self.ends))
            for span in every
            if not self.ends & set(span) and not any(self.breaks((token,)) for token in span[:-1])
        }

    def outcomes(self, decoded: Callable[[Tokens], str]) -> dict[str, float]:
        """The probability that each answer is drawn, by what it says: all ways to write it."""
        found: defaultdict[str, float] = defaultdict(float)
        states: list[tuple[Tokens, float]] = [((), 1.0)]
        for written, prob in states:
            text = decoded(written).strip() if self.query.constraint == SPAN else decoded(written)
            if self.over(written):
                found[text] += prob
                continue
            nats = self.after(written)
            allowed = self.followers(written)
            candidates = set(range(len(nats)) if allowed is None else allowed) - self.ends
            candidates |= self.ends if self.may_end(written) else set()
            kept = sorted(candidates, key=lambda token: -nats[token])[: self.query.top_k or None]
            weights = np.exp(nats[kept] / self.query.temperature)
            for token, share in zip(kept, weights / weights.sum(), strict=True):
                if token in self.ends:
                    found[text] += prob * share
                else:
                    states.append(((*written, token), prob * share))
        assert sum(found.values()) == pytest.approx(1.0)
        return dict(found)

    def check(self, answer: Answer, decoded: Callable[[Tokens], str]) -> Tokens:
        """The answer is the greedy one, or the most probable span; gives its tokens."""
        every = self.spans() if self.query.constraint == BEST_SPAN else {}
        tokens, nats = max(every.items(), key=itemgetter(1)) if every else self.greedy()
        assert answer.logprobs_nats == pytest.approx((nats,), abs=TOLERANCE_NATS)
        assert math.isnan(answer.other_prob)
        assert answer.n_dropped_shots == 0
        assert not (self.query.line_ends and {"\n", "\r"} & set(answer.text))
        said = decoded(tokens)
        if self.query.line_ends:  # a token may say more behind the break
            said = said.strip().replace("\r", "\n").partition("\n")[0]
        if self.query.constraint in (SPAN, BEST_SPAN):
            assert answer.text in self.query.passage
            said = said.strip()
            if said not in self.query.passage:  # half a character, or a break in a token that no longer says so
                assert "\ufffd" in said or said.startswith(answer.text)
                said = answer.text
        if self.query.line_ends:
            assert answer.text.strip() == said.strip()
        else:
            assert answer.text == said
        return tokens


def drawn_p(found: Sequence[str], expected: dict[str, float]) -> float:
    """Of a chi-square test that answers were drawn with these probabilities; rare outcomes together."""
    counts = Counter(found)
    assert set(counts) <= set(expected)
    common = [text for text, prob in expected.items() if prob * len(found) >= 5]
    observed, probs = [counts[text] for text in common], [expected[text] for text in common]
    if 1 - sum(probs) > 1e-9:
        observed.append(len(found) - sum(observed))
        probs.append(1 - sum(probs))
    assert len(probs) > 2
    return float(stats.chisquare(observed, np.array(probs) / sum(probs) * len(found)).pvalue)
