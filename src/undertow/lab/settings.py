"""Settings with their help and bounds, which the command line makes options of; and those of a planted corpus."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

from undertow.errors import UndertowError
from undertow.types import option

UNORDERED, ORDERED = "unordered", "ordered"
QUOTA, INDEPENDENT = "quota", "independent"
"""How people and kinds of sentence are drawn: as many of each as there should be, or each for itself, so that texts lean by chance."""
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
"""Bounds of an option in words; each is called as its function of `operator`."""


def check_bounds(settings: Any) -> None:
    """Refuse settings, a dataclass of `option` fields, that hold a number outside its bounds."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        for name, limit in one.metadata.get("bounds", {}).items():
            if not getattr(operator, name)(value, limit):
                raise UndertowError(f"{one.name} must be {_BOUNDS[name]} {limit:,}, got {value}")


@dataclass(frozen=True, slots=True)
class SentenceOptions:
    """Sentences that a corpus has about its people.

    Attributes:
        trade: share of the sentences whose subject is a trade and no pronoun. Trades depend on the date, so that there is something
            to be learned from the date even where nothing is planted (W -> X).
        trades: `unordered`, every date has a trade of its own; `ordered`, neighbouring dates have the same, so that what is
            learned of one date is learned of the next, as in real texts.
    """

    seed: int = option(0, "Of people and words.", ge=0)
    each: int = option(4, ge=1)
    decided: float = option(0.15, "Share of sentences in which a gendered noun determines the pronoun.", ge=0, le=1)
    trade: float = option(0.05, "Share of sentences with a trade in the pronoun's place.", ge=0, le=1)
    trades: str = option(UNORDERED, "How trades go with dates: unordered or ordered.")
    sampling: str = option(QUOTA, "Sampling of people and sentences: quota or independent.")

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.decided + self.trade > 1:
            raise UndertowError(
                f"decided and trade must be at most 1 together, got {self.decided:g} and {self.trade:g}"
            )
        for name, value, known in (
            ("trades", self.trades, (UNORDERED, ORDERED)),
            ("sampling", self.sampling, (QUOTA, INDEPENDENT)),
        ):
            if value not in known:
                raise UndertowError(f"{name} must be {' or '.join(known)}, got {value!r}")


@dataclass(frozen=True, slots=True)
class CorpusOptions(SentenceOptions):
    """A corpus to be written; its seed also draws the people.

    Attributes:
        strength: that the access may name.
        access: who is selected; "" for the default.
        people: selected ones. The four million sentences about a million of them take some 3 GB of memory.
    """

    strength: float = option(0.65, "How much the share of women rises from the first date to the last.")
    access: str = option(
        "",
        "P(selected) by date and place (0 to 1), gender (1 female, -1 male) and strength; the default is linear in date.",
    )
    people: int = option(5_000, "Selected people.", ge=1, le=1_000_000)
