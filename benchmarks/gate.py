"""Equality first: nobody's time counts unless everybody's numbers are the same.

Knows log-probabilities by item and option; knows nothing about who computed them.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from undertow.types import UndertowError

Logprobs: TypeAlias = list[tuple[float, ...]]
"""Log-probabilities in nats [item][option]."""

TOLERANCE_NATS = 2e-3


def largest_difference(reference: Logprobs, other: Logprobs) -> float:
    """The largest absolute difference over all items and options, in nats; infinite where a number is missing."""
    if [len(options) for options in reference] != [len(options) for options in other] or not all(reference):
        return math.inf
    pairs = [pair for item in zip(reference, other, strict=True) for pair in zip(*item, strict=True)]
    differences = [abs(one - another) for one, another in pairs]
    return math.inf if any(map(math.isnan, differences)) else max(differences, default=math.inf)


def require_equal(reference: Logprobs, other: Logprobs, who: str) -> float:
    """The largest difference, in nats, if it is within the tolerance.

    Raises:
        UndertowError: it is not, or a number is missing.
    """
    difference = largest_difference(reference, other)
    if difference <= TOLERANCE_NATS:
        return difference
    said = "is missing numbers" if math.isinf(difference) else f"is off by up to {difference:.2g} nats"
    raise UndertowError(
        f"{who}: {said}, and {TOLERANCE_NATS:g} is allowed, so no time is reported; "
        "make both score the same texts with the same weights and precision"
    )
