"""What a run is asked to do: the user's choices, and a row with its samples and its model.

Knows rows and workers; knows nothing about what is made of the times.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contenders import ENGINE, ITS_OWN
from random_bert import prepared
from rows import Row, Sample
from undertow.models.base import FLOAT32
from undertow.types import Blank, Item
from worker import Order, Worker


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for; see `--help`. 0 and () stand for each row's own."""

    full: bool
    rounds: int
    sample: int
    search_sample: int
    batch_sizes: tuple[int, ...]
    seed: int
    model: str
    masked_model: str
    threads: int

    @property
    def engine_rounds(self) -> int:
        """Rounds of the engine alone, which are quick: nearly twice as many as of a race."""
        return 2 * self.rounds - 1


@dataclass(frozen=True, slots=True)
class Work:
    """A row as it is run.

    Attributes:
        row: which.
        model: who is asked.
        items: all of the row.
        sample, smaller: those that are timed, and those that batch sizes are found on.
        batch_sizes: to try.
        seed: of the samples.
    """

    row: Row
    model: str
    items: Sequence[Item]
    sample: Sample
    smaller: Sample
    batch_sizes: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, row: Row, plan: Plan, *, alone: bool = False) -> Work:
        """Draw the row's samples, and make its model if that is made here.

        Args:
            row: which.
            plan: what the user asked for.
            alone: whether the engine is, so that more can be timed.
        """
        items = row.items()
        n_sample = len(items) if plan.full else plan.sample or (row.n_alone if alone else row.n_sample)
        return cls(
            row,
            _model(row, items, plan),
            items,
            row.draw(items, n_sample, plan.seed),
            row.draw(items, plan.search_sample or row.n_search, plan.seed),
            plan.batch_sizes or row.batch_sizes,
            plan.seed,
        )

    def told(self) -> dict[str, Any]:
        """What was worked on, for the record."""
        return {
            "row": self.row.name,
            "about": self.row.about,
            "n_items": len(self.sample.places),
            "n_items_in_set": len(self.items),
            "drawn": {
                "unit": self.row.unit.name,
                "n": self.sample.n_units,
                "of": self.row.unit.of,
                "levels": self.sample.levels,
                "seed": self.seed,
            },
        }


def _model(row: Row, items: Sequence[Item], plan: Plan) -> str:
    if row.family != "masked":
        return plan.model
    if plan.masked_model:
        return plan.masked_model
    say(f"{row.name}: the model is made, if it is not there")
    return str(prepared(text for item in items if isinstance(item.query, Blank) for text in item.query.texts()))


def start_engine(work: Work, plan: Plan, dtype: str = FLOAT32) -> Worker:
    """The engine alone, loaded and warmed up on the smaller sample."""
    say(f"{work.row.name}: {ENGINE} loads the model ({dtype})")
    worker = Worker(Order(ENGINE, work.row.name, work.model, plan.threads, dtype))
    worker.score(work.smaller.places, ITS_OWN)
    return worker


def told_model(worker: Worker) -> dict[str, str]:
    """Which weights a worker holds, for the record."""
    return {"source": worker.ready.source, "revision": worker.ready.revision, "dtype": worker.ready.dtype}


def say(what: str) -> None:
    """What is being done, never how long it took: times wait until the numbers are known to be equal."""
    print(what, file=sys.stderr, flush=True)
