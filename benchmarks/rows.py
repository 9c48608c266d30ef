"""What is timed: the work sets, each whole or as a seeded sample. Knows challenge sets; knows no contenders and no clocks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gate import Gate
from undertow import challenge
from undertow.probes import bias_identification, task_specification
from undertow.probes.base import Sampling
from undertow.types import Blank, Item, Query


class Sample(NamedTuple):
    """Some of a row's items.

    Attributes:
        places: where they are in the row's list [item].
        n_units: how many units were drawn.
        levels: what the sample covers, in the set's order.
    """

    places: tuple[int, ...]
    n_units: int
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One work set.

    Attributes:
        name, about: what results call it, and what an item is.
        family: of `undertow.models`, that reads the row's model.
        items: gives all items of the set, in its order.
        gate: when numbers are equal.
        unit: what a sample is drawn of, whole, as results call it.
        parts: factors that items of one unit share.
        covers: what results call the levels that a sample covers, and the factor that these are of.
        evenly: the factor over whose levels units are drawn in turns; "" for none.
        n_sample: units that are timed in a race.
        n_search: units that batch sizes are found on, and that a contender is warmed up with.
        n_alone: units that are timed where the engine is alone; 0 for a row that it never is.
        batch_sizes: to try for each peer that takes one.
    """

    name: str
    about: str
    items: Callable[[], list[Item]]
    gate: Gate
    unit: str
    parts: tuple[str, ...]
    covers: tuple[str, str]
    n_sample: int
    n_search: int
    batch_sizes: tuple[int, ...] = ()
    evenly: str = ""
    n_alone: int = 0
    family: str = "causal"

    def draw(self, items: Sequence[Item], n_units: int, seed: int) -> Sample:
        """All items of so many units. With one seed, a smaller sample is part of a larger one.

        Whole W values, occupations and documents where texts are read as a tree, because what shares them shares a prefix:
        single sentences drawn at random would share less of it than the set does.
        """
        units = [tuple(_factor(item, part) for part in self.parts) for item in items]
        stratum_of = {
            unit: _factor(item, self.evenly) if self.evenly else "" for unit, item in zip(units, items, strict=True)
        }
        seen, turns = Counter[str](), dict[tuple[str, ...], int]()
        for unit in random.Random(seed).sample(list(stratum_of), len(stratum_of)):
            turns[unit] = seen[stratum_of[unit]]
            seen[stratum_of[unit]] += 1
        drawn = set(sorted(turns, key=turns.__getitem__)[:n_units])
        places = tuple(place for place, unit in enumerate(units) if unit in drawn)
        return Sample(
            places, len(drawn), tuple(dict.fromkeys(_factor(items[place], self.covers[1]) for place in places))
        )


def _factor(item: Item, name: str) -> str:
    return item.cluster if name == "cluster" else str(item.factors[name])


def _sentences() -> list[Item]:
    return challenge.load("mgc").items([challenge.spectrum(name) for name in ("date", "place")])


def _prompts() -> list[Item]:
    answering = challenge.Answering(challenge.load_prompts("A,B,C"))
    return answering.items(_sentences(), challenge.watched(dict(challenge.load("mgc").words.forms)))


def _schemas() -> list[Item]:
    return next(task_specification.rounds(task_specification.Settings(), Sampling()))


def _documents() -> list[Item]:
    """Every biased document in every wording of the task: 24 statements, 12 questions, 72 completions; without examples."""
    settings = bias_identification.Settings(
        challenge="undertow-statements", classes="statement,question,completion", shots="0"
    )
    return next(bias_identification.rounds(settings, Sampling()))


SENTENCE = ("w_name", "w", "cluster")
W_VALUES = ("W value", "w")
THREE_REQUESTS = "three log-likelihood requests to a peer"

LIKELIHOOD = Row(
    "likelihood", f"one sentence with its blank, three candidate words: {THREE_REQUESTS}", _sentences, Gate(2e-3),
    "W value", ("w_name", "w"), W_VALUES, 4, 1, (8, 16, 32, 64), "w_name", n_alone=16,
)  # fmt: skip
SCHEMAS = Row(
    "schemas", f"one sentence about two people after a date, its pronoun blank, three candidates: {THREE_REQUESTS}",
    _schemas, Gate(2e-3), "occupation", ("occupation",), ("occupation", "occupation"), 4, 2, (8, 16, 32), n_alone=20,
)  # fmt: skip
MASKED = Row(
    "masked", "one sentence with a mask in its blank, read at three words", _sentences, Gate(1e-4),
    "sentence", SENTENCE, W_VALUES, 240, 120, (8, 16, 32, 64, 128), n_alone=960, family="masked",
)  # fmt: skip
PROMPTS = Row(
    "prompts",
    "one sentence in one of the prompts A, B and C, answered greedily in up to 20 tokens, each step read at the listed words",
    _prompts, Gate(1e-4, "of a probability", 2), "sentence", SENTENCE, W_VALUES, 16, 2,
)  # fmt: skip
WORDINGS = Row(
    "wordings",
    "one document in one of 108 wordings of bias identification, without examples, answered with one of 11 labels, "
    "greedily along the trie of their tokens",
    _documents, Gate(1e-3, "nats", 2), "document", ("cluster",), ("dimension", "dimension"), 2, 1, (16, 32, 64), "dimension",
)  # fmt: skip
ROWS = {row.name: row for row in (LIKELIHOOD, SCHEMAS, MASKED, PROMPTS, WORDINGS)}
"""In the order of the page."""


def requests(query: Query) -> list[tuple[str, str]]:
    """A sentence as (context, continuation) pairs, one per option: how peers that score continuations are asked it.

    In 1801, ___ was a child.   ->   ("In 1801,", " she was a child."), ("In 1801,", " he was a child."), ...
    """
    if not isinstance(query, Blank):
        raise TypeError("a prompt has no continuations to compare")
    context = query.pieces[0].rstrip()
    return [(context, query.text(option.fills).removeprefix(context)) for option in query.options]
