"""What is timed: challenge sets as lists of items, whole or as a seeded sample of whole W values.

A new work set is one line of `JOBS`. Knows challenge sets; knows nothing about contenders or clocks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from undertow import challenge
from undertow.types import Blank, Generation, Item, Query


@dataclass(frozen=True, slots=True)
class Job:
    """One work set.

    Attributes:
        name: what results call it.
        challenge: a challenge set of the package.
        w_name: the one W list that is injected.
    """

    name: str
    challenge: str
    w_name: str

    def items(self) -> list[Item]:
        """All sentences of the set, each with its blank, in the set's order."""
        return challenge.load(self.challenge).items([challenge.spectrum(self.w_name)])


JOBS = (Job("mgc-date", "mgc", "date"),)


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a job's items.

    Attributes:
        w_values: the W values that were drawn, in the set's order.
        places: where the items are in the job's list [item].
    """

    w_values: tuple[str, ...]
    places: tuple[int, ...]


def draw(items: Sequence[Item], n_values: int, seed: int) -> Sample:
    """All items of `n_values` W values.

    Whole values, because sentences that share a value share a prefix: single sentences drawn at random would share
    less of it than the set does. With one seed, a smaller sample is part of a larger one.
    """
    values = list(dict.fromkeys(str(item.factors["w"]) for item in items))
    drawn = set(random.Random(seed).sample(values, len(values))[:n_values])
    places = tuple(place for place, item in enumerate(items) if str(item.factors["w"]) in drawn)
    return Sample(tuple(value for value in values if value in drawn), places)


def requests(query: Query) -> list[tuple[str, str]]:
    """A query as (context, continuation) pairs, one per option: how peers that score continuations are asked it.

    In 1801, ___ was a child.   ->   ("In 1801,", " she was a child."), ("In 1801,", " he was a child."), ...
    """
    if isinstance(query, Generation):
        raise TypeError("a prompt has no continuations to compare")
    if not isinstance(query, Blank):
        return [(query.context, continuation) for continuation in query.continuations]
    context = query.pieces[0].rstrip()
    return [(context, query.text(option.fills).removeprefix(context)) for option in query.options]
