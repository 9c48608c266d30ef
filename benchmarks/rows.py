"""What is timed: rows of the table, each with its items, whole or as a seeded sample.

A new work set is one entry of `ROWS`. Knows challenge sets; knows nothing about contenders or clocks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gate import ANSWERS, CHOICES, FILLED_MASKS, LIKELIHOODS, Gate
from undertow import challenge
from undertow.probes import bias_identification
from undertow.probes.base import Sampling
from undertow.types import Blank, Continuations, Item, Query

CHALLENGE = "mgc"
DOCUMENTS, DESCRIPTIONS = "undertow-statements", "statement,question,completion"
"""What is asked about, and the paper's classes of task descriptions: 24, 12 and 72 wordings."""
W_VALUE, SENTENCE, DOCUMENT = "W value", "sentence", "document"
"""What a sample is drawn of."""
DIMENSION = "dimension"


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a row's items.

    Attributes:
        places: where the items are in the row's list [item].
        n_units: W values, sentences or documents that were drawn.
        of: what `levels` are, W values or dimensions.
        levels: those in it, in the set's order.
    """

    places: tuple[int, ...]
    n_units: int
    of: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One work set.

    Attributes:
        name: what results call it.
        about: what an item is.
        family: of `undertow.models`, that reads the row's model.
        items: gives all items of the set, in its order.
        gate: when numbers are equal.
        unit: what samples are drawn of.
        n_sample: units that are timed.
        n_search: units that batch sizes are found on, and that a contender is warmed up with.
        batch_sizes: to try for each peer that takes one.
    """

    name: str
    about: str
    family: str
    items: Callable[[], list[Item]]
    gate: Gate[Any]
    unit: str
    n_sample: int
    n_search: int
    batch_sizes: tuple[int, ...]

    def draw(self, items: Sequence[Item], n_units: int, seed: int) -> Sample:
        """All items of so many units. With one seed, a smaller sample is part of a larger one.

        Whole W values and whole documents where texts are read as a tree, because what shares them shares a prefix: single
        sentences drawn at random would share less of it than the set does. Documents are drawn evenly over dimensions.
        """
        level_of = {self._unit_of(item): self._level_of(item) for item in items}
        order = random.Random(seed).sample(list(level_of), len(level_of))
        drawn = set((_by_turns(order, level_of) if self.unit == DOCUMENT else order)[:n_units])
        places = tuple(place for place, item in enumerate(items) if self._unit_of(item) in drawn)
        levels = tuple(dict.fromkeys(self._level_of(items[place]) for place in places))
        return Sample(places, len(drawn), DIMENSION if self.unit == DOCUMENT else W_VALUE, levels)

    def _unit_of(self, item: Item) -> str:
        if self.unit == DOCUMENT:
            return item.cluster
        w = self._level_of(item)
        return w if self.unit == W_VALUE else f"{w}/{item.cluster}"

    def _level_of(self, item: Item) -> str:
        return str(item.factors[DIMENSION if self.unit == DOCUMENT else "w"])


def _by_turns(units: Sequence[str], level_of: Mapping[str, str]) -> list[str]:
    """The first of every level, in the order that they are in, then the second of every level, and so on."""
    seen, turns = Counter[str](), dict[str, int]()
    for unit in units:
        turns[unit] = seen[level_of[unit]]
        seen[level_of[unit]] += 1
    return sorted(units, key=turns.__getitem__)


def _sentences(w_names: Sequence[str]) -> list[Item]:
    """The sentences of the set with the values of these W lists."""
    return challenge.load(CHALLENGE).items([challenge.spectrum(name) for name in w_names])


def _prompted(prompts: str, w_names: Sequence[str]) -> list[Item]:
    """The same in instruction prompts, by name."""
    answering = challenge.Answering(challenge.load_prompts(prompts))
    return answering.items(_sentences(w_names), challenge.watched(dict(challenge.load(CHALLENGE).words.forms)))


def _documents() -> list[Item]:
    """Every biased document in every wording of the task, as the audit `bias-identification` asks it without examples."""
    settings = bias_identification.Settings(challenge=DOCUMENTS, classes=DESCRIPTIONS, shots="0")
    return next(bias_identification.rounds(settings, Sampling()))


ROWS = {
    row.name: row
    for row in (
        Row(
            "likelihood",
            about="one sentence with its blank, three candidate words: three log-likelihood requests to a peer",
            family="causal",
            items=partial(_sentences, ("date",)),
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
            items=partial(_sentences, ("date", "place")),
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
            items=partial(_prompted, "A,B,C", ("date", "place")),
            gate=ANSWERS,
            unit=SENTENCE,
            n_sample=16,
            n_search=2,
            batch_sizes=(),
        ),
        Row(
            "wordings",
            about="one document in one of 108 wordings of bias identification, without examples, answered with one of 11 "
            "labels, greedily along the trie of their tokens",
            family="causal",
            items=_documents,
            gate=CHOICES,
            unit=DOCUMENT,
            n_sample=6,
            n_search=3,
            batch_sizes=(8, 16, 32, 64),
        ),
    )
}


def requests(query: Query) -> list[tuple[str, str]]:
    """A query as (context, continuation) pairs, one per option: how peers that score continuations are asked it.

    In 1801, ___ was a child.   ->   ("In 1801,", " she was a child."), ("In 1801,", " he was a child."), ...
    """
    if isinstance(query, Continuations):
        return [(query.context, continuation) for continuation in query.continuations]
    if not isinstance(query, Blank):
        raise TypeError("a prompt has no continuations to compare")
    context = query.pieces[0].rstrip()
    return [(context, query.text(option.fills).removeprefix(context)) for option in query.options]
