"""What is timed: the work sets, each whole or as a seeded sample."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from gate import Gate
from undertow import data
from undertow.audits.base import Sampling
from undertow.audits.bias_in_text.audit import BiasIdentification, IdentificationSettings
from undertow.audits.task_specification.audit import TaskSpecification
from undertow.types import ClozeQuery, Item, Query

Places = tuple[int, ...]
"""Where items are in the row's list."""


@dataclass(frozen=True, slots=True)
class Row:
    """One work set.

    Attributes:
        name: of the row in results.
        about: what an item is.
        items: gives all items of the set, in its order.
        gate: when numbers are equal.
        unit: what a sample is drawn of, whole, as results call it.
        parts: factors that items of one unit share.
        n_sample: units that are timed in a race.
        n_search: units that batch sizes are found on, and that a contender is warmed up with.
        n_alone: units that are timed where the engine is alone; 0 for a row that it never is.
        batch_sizes: to try for each peer that takes one.
        evenly: the factor over whose levels units are drawn in turns; "" for none.
        family: of `undertow.models`, that reads the row's model.
    """

    name: str
    about: str
    items: Callable[[], list[Item]]
    gate: Gate
    unit: str
    parts: tuple[str, ...]
    n_sample: int
    n_search: int
    n_alone: int = 0
    batch_sizes: tuple[int, ...] = ()
    evenly: str = ""
    family: str = "causal"

    def units(self, items: Sequence[Item]) -> list[tuple[str, ...]]:
        """The unit of each item [item]."""
        return [tuple(_factor(item, part) for part in self.parts) for item in items]

    def draw(self, items: Sequence[Item], n_units: int, seed: int) -> Places:
        """All items of so many units. With one seed, a smaller sample is part of a larger one.

        Whole W values, occupations and documents where texts are read as a tree, because what shares them shares a prefix:
        single sentences drawn at random would share less of it than the set does.
        """
        units = self.units(items)
        levels = (_factor(item, self.evenly) if self.evenly else "" for item in items)
        level_of = dict(zip(units, levels, strict=True))
        seen, turns = Counter[str](), dict[tuple[str, ...], int]()
        for unit in random.Random(seed).sample(list(level_of), len(level_of)):
            turns[unit] = seen[level_of[unit]]
            seen[level_of[unit]] += 1
        drawn = set(sorted(turns, key=turns.__getitem__)[:n_units])
        return tuple(place for place, unit in enumerate(units) if unit in drawn)


def _factor(item: Item, name: str) -> str:
    return item.cluster if name == "cluster" else str(item.factors[name])


@cache
def _sentences() -> list[Item]:
    return data.load("mgc").items([data.load_covariate(name) for name in ("date", "place")])


def _prompts() -> list[Item]:
    answering = data.AnswerMode(data.load_prompts("A,B,C"))
    return answering.items(_sentences(), data.answer_words(dict(data.load("mgc").words.forms)))


def _schemas() -> list[Item]:
    return next(TaskSpecification().items(TaskSpecification.Settings(), Sampling()))


@cache
def _documents() -> list[Item]:
    """Every biased document in every wording of the task: 24 statements, 12 questions, 72 completions; without examples."""
    classes = "statement,question,completion"
    settings = IdentificationSettings(challenge="undertow-statements", classes=classes, shots="0")
    return next(BiasIdentification().items(settings, Sampling()))


SENTENCE = ("w_name", "w", "cluster")

LIKELIHOOD = Row(
    "likelihood", "a sentence with its blank, three candidate words: three requests to a peer", _sentences, Gate(2e-3),
    "W value", ("w_name", "w"), 4, 1, 16, (8, 16, 32, 64), evenly="w_name",
)  # fmt: skip
SCHEMAS = Row(
    "schemas", "a sentence about two people after a date, three candidates for its pronoun: three requests to a peer",
    _schemas, Gate(2e-3), "occupation", ("occupation",), 4, 2, 20, (8, 16, 32),
)  # fmt: skip
MASKED = Row(
    "masked", "a sentence with a mask in its blank, read at three words", _sentences, Gate(1e-4),
    "sentence", SENTENCE, 240, 120, 960, (8, 16, 32, 64, 128), family="masked",
)  # fmt: skip
PROMPTS = Row(
    "prompts", "a sentence in prompt A, B or C, answered greedily in up to 20 tokens, each step read at the listed words",
    _prompts, Gate(1e-4, "of a probability", 2), "sentence", SENTENCE, 16, 2,
)  # fmt: skip
WORDINGS = Row(
    "wordings", "a document in one of 108 wordings of bias identification, answered greedily with one of 11 labels",
    _documents, Gate(1e-3, "nats", 2), "document", ("cluster",), 2, 1, 0, (16, 32, 64), evenly="dimension",
)  # fmt: skip
ROWS = {row.name: row for row in (LIKELIHOOD, SCHEMAS, MASKED, PROMPTS, WORDINGS)}
"""In the order of the page."""


def requests(query: Query) -> list[tuple[str, str]]:
    """A sentence as (context, continuation) pairs, one for each option, for peers that score continuations.

    In 1801, ___ was a child.   ->   ("In 1801,", " she was a child."), ("In 1801,", " he was a child."), ...
    """
    if not isinstance(query, ClozeQuery):
        raise TypeError("a prompt has no continuations to compare")
    context = query.pieces[0].rstrip()
    return [(context, query.text(option.fills).removeprefix(context)) for option in query.options]
