"""What is timed: rows of the table, each with its items, whole or as a seeded sample.

A new work set is one entry of `ROWS`. Knows challenge sets; knows nothing about contenders or clocks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gate import ANSWERS, FILLED_MASKS, LIKELIHOODS, Gate
from undertow import challenge
from undertow.types import Blank, Generation, Item, Query

CHALLENGE = "mgc"
W_VALUE, SENTENCE = "W value", "sentence"
"""What a sample is drawn of."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a row's items.

    Attributes:
        places: where the items are in the row's list [item].
        n_units: W values or sentences that were drawn.
        w_values: the W values in it, in the set's order.
    """

    places: tuple[int, ...]
    n_units: int
    w_values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One work set.

    Attributes:
        name: what results call it.
        about: what an item is.
        family: of `undertow.models`, that reads the row's model.
        w_names: W lists that are injected.
        gate: when numbers are equal.
        unit: what samples are drawn of.
        n_sample: units that are timed.
        n_search: units that batch sizes are found on, and that a contender is warmed up with.
        batch_sizes: to try for each peer that takes one.
        prompts: instruction prompts around each sentence, by name; "" for the sentences themselves.
    """

    name: str
    about: str
    family: str
    w_names: tuple[str, ...]
    gate: Gate[Any]
    unit: str
    n_sample: int
    n_search: int
    batch_sizes: tuple[int, ...]
    prompts: str = ""

    def items(self) -> list[Item]:
        """All items of the set, in its order."""
        whole = challenge.load(CHALLENGE)
        items = whole.items([challenge.spectrum(name) for name in self.w_names])
        if not self.prompts:
            return items
        answering = challenge.Answering(challenge.load_prompts(self.prompts))
        return answering.items(items, challenge.watched(dict(whole.words.forms)))

    def draw(self, items: Sequence[Item], n_units: int, seed: int) -> Sample:
        """All items of so many units. With one seed, a smaller sample is part of a larger one.

        Whole W values where texts are read as a tree, because sentences that share a value share a prefix: single
        sentences drawn at random would share less of it than the set does.
        """
        units = list(dict.fromkeys(map(self._unit_of, items)))
        drawn = set(random.Random(seed).sample(units, len(units))[:n_units])
        places = tuple(place for place, item in enumerate(items) if self._unit_of(item) in drawn)
        return Sample(places, len(drawn), tuple(dict.fromkeys(str(items[place].factors["w"]) for place in places)))

    def _unit_of(self, item: Item) -> str:
        w = str(item.factors["w"])
        return w if self.unit == W_VALUE else f"{w}/{item.cluster}"


ROWS = {
    row.name: row
    for row in (
        Row(
            "likelihood",
            about="one sentence with its blank, three candidate words: three log-likelihood requests to a peer",
            family="causal",
            w_names=("date",),
            gate=LIKELIHOODS,
            unit=W_VALUE,
            n_sample=6,
            n_search=3,
            batch_sizes=(4, 8, 16, 32, 64),
        ),
        Row(
            "masked",
            about="one sentence with a mask in its blank, read at three words",
            family="masked",
            w_names=("date", "place"),
            gate=FILLED_MASKS,
            unit=SENTENCE,
            n_sample=240,
            n_search=120,
            batch_sizes=(8, 16, 32, 64, 128),
        ),
        Row(
            "prompts",
            about="one sentence in one of the prompts A, B and C, answered greedily in up to 20 tokens, each step read at "
            "the listed words",
            family="causal",
            w_names=("date", "place"),
            gate=ANSWERS,
            unit=SENTENCE,
            n_sample=16,
            n_search=2,
            batch_sizes=(),
            prompts="A,B,C",
        ),
    )
}


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
