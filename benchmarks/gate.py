"""Equality first: no time counts unless all contenders give the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from undertow.errors import UndertowError

TIE = 1e-3
"""Two choices whose logits are nearer than this are tied: rounding decides which is taken."""
TIED = "tied"
END = None
"""Stands for the token that ends an answer; other tokens may have an empty text."""


class Output(NamedTuple):
    """A contender's numbers for one item.

    Attributes:
        numbers: log-probabilities, or of a written answer probabilities [step][option]; a single step where nothing is
            written; NaN for an option that was not followed to its end.
        tokens: the choice at each step, `END` last; or the one label that was chosen; () where nothing is.
        leads: how far each choice was ahead of the next, in logits or nats; () from a contender that does not know.
    """

    numbers: tuple[tuple[float, ...], ...]
    tokens: tuple[str | None, ...] = ()
    leads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Gate:
    """What counts as equal.

    Attributes:
        tolerance, unit: the largest difference that is allowed.
        tie_percent: of the items, how many may part at a tie, one in any case; 0 where nothing is chosen.
    """

    tolerance: float
    unit: str = "nats"
    tie_percent: int = 0

    def require(self, reference: Sequence[Output], other: Sequence[Output], who: str) -> tuple[float, int]:
        """The largest difference, and the number of items that part at a tie; what follows a tie is not compared.

        Raises:
            UndertowError: a number is missing or differs by too much, or too many answers part.
        """
        pairs = [self._compare(*pair) for pair in zip(reference, other, strict=False)]
        differences = [difference for differences, _ in pairs for difference in differences]
        partings = [(number, parting) for number, (_, parting) in enumerate(pairs, 1) if parting]
        n_ties = sum(parting == TIED for _, parting in partings)
        n_allowed = max(1, len(reference) * self.tie_percent // 100) if self.tie_percent else 0
        largest = max(differences, default=math.nan)
        problem = ""
        if len(partings) > n_ties:
            problem = next(f"answer {number}: {parting}" for number, parting in partings if parting != TIED)
        elif len(reference) != len(other) or not differences or any(map(math.isnan, differences)):
            problem = "numbers are missing"
        elif largest > self.tolerance:
            problem = f"is off by up to {largest:.2g} {self.unit}, and {self.tolerance:g} is allowed"
        elif n_ties > n_allowed:
            problem = f"parts at a tie in {n_ties} of {len(reference)}, {n_allowed} are allowed"
        if problem:
            raise UndertowError(f"{who}: {problem}; make both score the same texts with the same weights and precision")
        return largest, n_ties

    def _compare(self, one: Output, another: Output) -> tuple[list[float], str]:
        """Differences up to the step at which two answers part, that one included, and how they part; "" if they do not."""
        found: list[float] = []
        steps = zip_longest(one.numbers, another.numbers, one.tokens, another.tokens)
        for step, (own, others, token, other) in enumerate(steps):
            if own and others:
                found += self._differences(own, others)
            if token != other:
                leads = [output.leads[step] for output in (one, another) if step < len(output.leads)]
                apart = f"chooses {other!r} at step {step + 1}, where the engine chooses {token!r}"
                return found, TIED if any(lead <= TIE for lead in leads) else apart
            if bool(own) != bool(others):
                found.append(math.nan)
        return found, ""

    def _differences(self, one: Sequence[float], another: Sequence[float]) -> list[float]:
        if len(one) != len(another):
            return [math.nan]
        pairs = [(a, b) for a, b in zip(one, another, strict=True) if not (self.tie_percent and math.isnan(b))]
        return [0.0 if a == b else abs(a - b) for a, b in pairs]
