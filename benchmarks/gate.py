"""Equality first: nobody's time counts unless everybody's numbers are the same.

Knows log-probabilities by item and option, answers by step and option, and labels; knows nothing about who computed them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from undertow.types import UndertowError

Logprobs: TypeAlias = list[tuple[float, ...]]
"""Log-probabilities in nats [item][option]."""
Numbers: TypeAlias = list[Any]
"""What a contender says of each item: a row of log-probabilities, a `Written` or a `Chosen`."""
T = TypeVar("T")

TIE_LOGITS = 1e-3
"""Tokens whose logits are nearer than this are one choice to the contenders: rounding decides which is taken."""
TIE_PERCENT = 2
"""Of the items, as many as may part at a tie where tokens are chosen."""
END = None
"""Stands for the token that ends an answer; other tokens may have an empty text."""


@dataclass(frozen=True, slots=True)
class Written:
    """An answer to a prompt, decoded greedily.

    Attributes:
        text: as a reader sees it.
        probs: what the whole answer says of each option [option]; NaN for one that is several tokens; () where it is empty.
        tokens: their texts, without the one that ended it [step].
        step_probs: the options' probabilities at each step [step][option].
        ties: tokens within `TIE_LOGITS` of the most probable one, at each step and where it ended [step]; () from a
            contender that shows no logits.
    """

    text: str
    probs: tuple[float, ...]
    tokens: tuple[str, ...]
    step_probs: tuple[tuple[float, ...], ...]
    ties: tuple[tuple[str | None, ...], ...] = ()

    def at(self, step: int) -> str | None:
        """The token chosen at a step, `END` after the last."""
        return self.tokens[step] if step < len(self.tokens) else END


@dataclass(frozen=True, slots=True)
class Chosen:
    """A label that greedy decoding came to.

    Attributes:
        label: as a reader sees it.
        nats: log-probability of each label [label]; NaN for one that was not looked at to its end.
        gap_nats: by how much the label's tokens led where it was closest; infinite from a contender that does not tell.
    """

    label: str
    nats: tuple[float, ...]
    gap_nats: float = math.inf


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two contenders' numbers compare.

    Attributes:
        difference: the largest, absolute, in the gate's unit; infinite where a number is missing.
        n_ties: answers that part at a tie; what follows in them is not compared.
        trouble: what else sets them apart; "" for nothing.
    """

    difference: float
    n_ties: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Gate(Generic[T]):
    """What counts as equal.

    Attributes:
        tolerance: the largest difference that is allowed.
        unit: of the difference.
        compare: reference and others, item by item.
        tie_percent: of the items, how many may part at a tie, one in any case; 0 where there are no ties.
    """

    tolerance: float
    unit: str
    compare: Callable[[Sequence[T], Sequence[T]], Agreement]
    tie_percent: int = 0

    def ties_allowed(self, n_items: int) -> int:
        """Rounding turns a tie now and then; contenders that part often are not asked the same."""
        return max(1, n_items * self.tie_percent // 100) if self.tie_percent else 0

    def require(self, reference: Sequence[T], other: Sequence[T], who: str) -> Agreement:
        """How far they agree, if that is far enough.

        Raises:
            UndertowError: it is not, or a number is missing.
        """
        agreement = self.compare(reference, other)
        said = self._against(agreement, len(reference))
        if not said:
            return agreement
        raise UndertowError(
            f"{who}: {said}, so no time is reported; make both score the same texts with the same weights and precision"
        )

    def _against(self, agreement: Agreement, n_items: int) -> str:
        """Why this is not equal; "" where it is."""
        if agreement.trouble:
            return agreement.trouble
        if math.isinf(agreement.difference):
            return "is missing numbers"
        if not agreement.difference <= self.tolerance:
            return f"is off by up to {agreement.difference:.2g} {self.unit}, and {self.tolerance:g} is allowed"
        allowed = self.ties_allowed(n_items)
        if agreement.n_ties > allowed:
            return f"parts at a tie in {agreement.n_ties} of {n_items} items, and {allowed} are allowed"
        return ""


def compare_logprobs(reference: Sequence[tuple[float, ...]], other: Sequence[tuple[float, ...]]) -> Agreement:
    """The largest difference over all items and options, in nats."""
    if [len(options) for options in reference] != [len(options) for options in other] or not all(reference):
        return Agreement(math.inf)
    pairs = [pair for item in zip(reference, other, strict=True) for pair in zip(*item, strict=True)]
    differences = [abs(one - another) for one, another in pairs]
    return Agreement(math.inf if any(map(math.isnan, differences)) else max(differences, default=math.inf))


def compare_written(reference: Sequence[Written], other: Sequence[Written]) -> Agreement:
    """The same tokens, and the largest difference of a probability at steps with the same tokens before them."""
    if len(reference) != len(other) or not any(one.tokens for one in reference):
        return Agreement(math.inf)
    return _of_all([_compare_answers(one, another) for one, another in zip(reference, other, strict=True)])


def compare_chosen(reference: Sequence[Chosen], other: Sequence[Chosen]) -> Agreement:
    """The same labels, and the largest difference of the log-probabilities that both have, in nats."""
    if len(reference) != len(other) or all(math.isnan(nats) for one in other for nats in one.nats):
        return Agreement(math.inf)
    return _of_all([_compare_choices(one, another) for one, another in zip(reference, other, strict=True)])


def _of_all(found: Sequence[Agreement]) -> Agreement:
    trouble = next((f"answer {at}: {one.trouble}" for at, one in enumerate(found, 1) if one.trouble), "")
    return Agreement(max(one.difference for one in found), sum(one.n_ties for one in found), trouble)


def _compare_choices(one: Chosen, another: Chosen) -> Agreement:
    """The reference has a number wherever the other has one; what the other did not look at is not compared."""
    if len(one.nats) != len(another.nats):
        return Agreement(math.inf)
    pairs = [pair for pair in zip(one.nats, another.nats, strict=True) if not math.isnan(pair[1])]
    differences = [abs(nats - others) for nats, others in pairs]
    difference = math.inf if any(map(math.isnan, differences)) else max(differences, default=0.0)
    if one.label == another.label:
        return Agreement(difference)
    if min(one.gap_nats, another.gap_nats) <= TIE_LOGITS:
        return Agreement(difference, n_ties=1)
    return Agreement(difference, trouble=f"chooses {another.label!r}, where the engine chooses {one.label!r}")


def _compare_answers(one: Written, another: Written) -> Agreement:
    """Up to the first step at which they part, that one included: its distribution is still of the same text.

    one      " she" " is" " a"              compared   1, 2, 3
    another  " she" " is" " the" " child"              1, 2, 3   a tie at 3, or trouble; " child" follows from another text
    """
    ties = one.ties or another.ties
    difference = 0.0
    for step in range(max(len(one.tokens), len(another.tokens))):
        chosen = one.at(step), another.at(step)
        if END not in chosen:
            difference = max(difference, _largest(one.step_probs[step], another.step_probs[step]))
        if chosen[0] != chosen[1]:
            tied = step < len(ties) and set(chosen) <= set(ties[step])
            trouble = "" if tied else f"{_did(chosen[1])} at step {step + 1}, where the engine {_did(chosen[0])}"
            return Agreement(difference, n_ties=int(tied), trouble=trouble)
    if one.tokens:
        difference = max(difference, _largest(one.probs, another.probs))
    return Agreement(difference, trouble="" if one.text == another.text else "the same tokens make another text")


def _did(token: str | None) -> str:
    return "ends" if token is END else f"writes {token!r}"


def _largest(probs: tuple[float, ...], others: tuple[float, ...]) -> float:
    """The largest difference [option]; NaN agrees with NaN, since options that cannot be seen are the same for all."""
    if len(probs) != len(others) or not probs:
        return math.inf
    pairs = [pair for pair in zip(probs, others, strict=True) if not all(map(math.isnan, pair))]
    differences = [abs(one - another) for one, another in pairs]
    return math.inf if any(map(math.isnan, differences)) else max(differences, default=math.inf)


LIKELIHOODS: Gate[tuple[float, ...]] = Gate(2e-3, "nats", compare_logprobs)
FILLED_MASKS: Gate[tuple[float, ...]] = Gate(1e-4, "nats", compare_logprobs)
ANSWERS: Gate[Written] = Gate(1e-4, "of a probability", compare_written, TIE_PERCENT)
CHOICES: Gate[Chosen] = Gate(1e-3, "nats", compare_chosen, TIE_PERCENT)
