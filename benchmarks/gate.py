"""Equality first: nobody's time counts unless everybody's numbers are the same. Knows numbers; knows not who computed them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from undertow.types import UndertowError

TIE = 1e-3
"""Choices whose logits are nearer than this are one choice: rounding decides which is taken."""
END = None
"""Stands for the token that ends an answer; other tokens may have an empty text."""


class Said(NamedTuple):
    """What a contender says of one item.

    Attributes:
        numbers: log-probabilities, or of a written answer probabilities [step][option]; a single step where nothing is
            written; NaN for an option that was not looked at to its end.
        tokens: what was chosen at each step, `END` last; or the one label that was chosen; () where nothing is.
        gaps: by how much each choice led, in logits or nats; () from a contender that does not tell.
    """

    numbers: tuple[tuple[float, ...], ...]
    tokens: tuple[str | None, ...] = ()
    gaps: tuple[float, ...] = ()


class Agreement(NamedTuple):
    """How two contenders' numbers compare.

    Attributes:
        difference: the largest, absolute; infinite where a number is missing.
        n_ties: answers that part at a tie; what follows in them is not compared.
        trouble: what else sets them apart; "" for nothing.
    """

    difference: float
    n_ties: int = 0
    trouble: str = ""


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

    def ties_allowed(self, n_items: int) -> int:
        """Rounding turns a tie now and then; contenders that part often are not asked the same."""
        return max(1, n_items * self.tie_percent // 100) if self.tie_percent else 0

    def require(self, reference: Sequence[Said], other: Sequence[Said], who: str) -> Agreement:
        """How far they agree, if that is far enough.

        Raises:
            UndertowError: it is not, or a number is missing.
        """
        found = self.compare(reference, other)
        if problem := self._problem(found, len(reference)):
            raise UndertowError(
                f"{who}: {problem}, so no time is reported; make both score the same texts with the same weights and precision"
            )
        return found

    def compare(self, reference: Sequence[Said], other: Sequence[Said]) -> Agreement:
        """Item by item: the largest difference, and how many part."""
        if len(reference) != len(other):
            return Agreement(math.inf)
        differences, ties = list[float](), list[bool]()
        for number, (one, another) in enumerate(zip(reference, other, strict=True), 1):
            parted = _compare(one, another, differences, may_miss=self.tie_percent > 0)
            if isinstance(parted, str):
                return Agreement(0.0, trouble=f"answer {number}: {parted}")
            ties.append(parted)
        missing = not differences or any(map(math.isnan, differences))
        return Agreement(math.inf if missing else max(differences), sum(ties))

    def _problem(self, found: Agreement, n_items: int) -> str:
        if found.trouble:
            return found.trouble
        if math.isinf(found.difference):
            return "is missing numbers"
        if found.difference > self.tolerance:
            return f"is off by up to {found.difference:.2g} {self.unit}, and {self.tolerance:g} is allowed"
        allowed = self.ties_allowed(n_items)
        return f"parts at a tie in {found.n_ties} of {n_items}, {allowed} are allowed" if found.n_ties > allowed else ""


def _compare(one: Said, another: Said, differences: list[float], *, may_miss: bool) -> bool | str:
    """Whether two answers part at a tie, or where they part without one.

    They are compared up to the step at which they part, that one included: its distribution is still of the same text.
    """
    for step in range(max(len(one.tokens), len(another.tokens), 1)):
        if step < min(len(one.numbers), len(another.numbers)):
            differences += _differences(one.numbers[step], another.numbers[step], may_miss=may_miss)
        tokens = [said.tokens[step] if step < len(said.tokens) else END for said in (one, another)]
        if tokens[0] != tokens[1]:
            gaps = [said.gaps[step] for said in (one, another) if step < len(said.gaps)]
            apart = f"chooses {tokens[1]!r} at step {step + 1}, where the engine chooses {tokens[0]!r}"
            return True if any(gap <= TIE for gap in gaps) else apart
    if len(one.numbers) != len(another.numbers):
        differences.append(math.inf)
    return False


def _differences(one: Sequence[float], another: Sequence[float], *, may_miss: bool) -> list[float]:
    if len(one) != len(another) or not one:
        return [math.inf]
    pairs = zip(one, another, strict=True)
    return [0.0 if a == b else abs(a - b) for a, b in pairs if not (may_miss and math.isnan(b))]
