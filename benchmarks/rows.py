"""What is timed: rows of the table, each with its items, whole or as a seeded sample.

A new work set is one entry of `ROWS`. Knows challenge sets; knows nothing about contenders or clocks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from gate import ANSWERS, CHOICES, FILLED_MASKS, LIKELIHOODS, Gate
from undertow import challenge
from undertow.probes import bias_identification, task_specification
from undertow.probes.base import Sampling
from undertow.types import Blank, Continuations, Item, Query

CHALLENGE = "mgc"
DOCUMENTS, DESCRIPTIONS = "undertow-statements", "statement,question,completion"
"""What is asked about, and the paper's classes of task descriptions: 24, 12 and 72 wordings."""


Key: TypeAlias = tuple[str, ...]
"""Levels that tell one unit from the others."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a sample is drawn of, whole.

    Attributes:
        name: what results call it.
        parts: factors that items of one unit share.
        of: what results call the levels that the sample covers.
        level: the factor that these are of.
        evenly: the factor over whose levels units are drawn in turns; "" for none.
    """

    name: str
    parts: tuple[str, ...]
    of: str
    level: str
    evenly: str = ""

    def of_item(self, item: Item) -> Key:
        """Which unit an item belongs to."""
        return tuple(str(_factor(item, part)) for part in self.parts)


CLUSTER = "cluster"
W_VALUE = Unit("W value", ("w_name", "w"), "W value", "w", evenly="w_name")
SENTENCE = Unit("sentence", ("w_name", "w", CLUSTER), "W value", "w")
OCCUPATION = Unit("occupation", ("occupation",), "occupation", "occupation")
DOCUMENT = Unit("document", (CLUSTER,), "dimension", "dimension", evenly="dimension")


def _factor(item: Item, name: str) -> Any:
    return item.cluster if name == CLUSTER else item.factors[name]


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of a row's items.

    Attributes:
        places: where the items are in the row's list [item].
        n_units: how many units were drawn.
        levels: of the unit's level, those in it, in the set's order.
    """

    places: tuple[int, ...]
    n_units: int
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
        n_alone: units that are timed where the engine is alone, which is quick; 0 for a row that it never is.
        batch_sizes: to try for each peer that takes one.
    """

    name: str
    about: str
    family: str
    items: Callable[[], list[Item]]
    gate: Gate[Any]
    unit: Unit
    n_sample: int
    n_search: int
    batch_sizes: tuple[int, ...]
    n_alone: int = 0

    def draw(self, items: Sequence[Item], n_units: int, seed: int) -> Sample:
        """All items of so many units. With one seed, a smaller sample is part of a larger one.

        Whole W values, occupations and documents where texts are read as a tree, because what shares them shares a prefix: single
        sentences drawn at random would share less of it than the set does.
        """
        stratum_of = {self.unit.of_item(item): self._stratum_of(item) for item in items}
        order = random.Random(seed).sample(list(stratum_of), len(stratum_of))
        drawn = set(_by_turns(order, stratum_of)[:n_units])
        places = tuple(place for place, item in enumerate(items) if self.unit.of_item(item) in drawn)
        levels = tuple(dict.fromkeys(str(_factor(items[place], self.unit.level)) for place in places))
        return Sample(places, len(drawn), levels)

    def n_units(self, items: Sequence[Item]) -> int:
        """How many units there are to draw of."""
        return len({self.unit.of_item(item) for item in items})

    def _stratum_of(self, item: Item) -> str:
        return str(_factor(item, self.unit.evenly)) if self.unit.evenly else ""


def _by_turns(units: Sequence[Key], stratum_of: Mapping[Key, str]) -> list[Key]:
    """The first of every stratum, in the order that they are in, then the second of every stratum, and so on."""
    seen, turns = Counter[str](), dict[Key, int]()
    for unit in units:
        turns[unit] = seen[stratum_of[unit]]
        seen[stratum_of[unit]] += 1
    return sorted(units, key=turns.__getitem__)


def _sentences(w_names: Sequence[str]) -> list[Item]:
    """The sentences of the set with the values of these W lists."""
    return challenge.load(CHALLENGE).items([challenge.spectrum(name) for name in w_names])


def _prompted(prompts: str, w_names: Sequence[str]) -> list[Item]:
    """The same in instruction prompts, by name."""
    answering = challenge.Answering(challenge.load_prompts(prompts))
    return answering.items(_sentences(w_names), challenge.watched(dict(challenge.load(CHALLENGE).words.forms)))


def _schemas() -> list[Item]:
    """The package's own sentences about two people and one pronoun, at the two dates that task specification puts in front."""
    return next(task_specification.rounds(task_specification.Settings(), Sampling()))


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
            items=partial(_sentences, ("date", "place")),
            gate=LIKELIHOODS,
            unit=W_VALUE,
            n_sample=4,
            n_search=1,
            batch_sizes=(8, 16, 32, 64),
            n_alone=16,
        ),
        Row(
            "schemas",
            about="one sentence about two people after a date, its pronoun blank, three candidates: three log-likelihood "
            "requests to a peer",
            family="causal",
            items=_schemas,
            gate=LIKELIHOODS,
            unit=OCCUPATION,
            n_sample=4,
            n_search=2,
            batch_sizes=(8, 16, 32),
            n_alone=20,
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
            n_alone=960,
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
            n_sample=2,
            n_search=1,
            batch_sizes=(16, 32, 64),
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
