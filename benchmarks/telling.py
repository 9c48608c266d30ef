"""How measurements are told: promises, tables in Markdown, the middle and the ends of several takings.

Knows numbers and words; knows nothing about what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Cells = Sequence[object]
GIGA = 1e9
ROUNDS_WORDS = "Rounds, in which they take turns"


@dataclass(frozen=True, slots=True)
class Promise:
    """What was promised and what came of it.

    Attributes:
        what: the promise, as a reader sees it.
        measured: what was found.
        kept: whether that is enough; None where the promise does not apply here.
    """

    what: str
    measured: str
    kept: bool | None

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return {True: "yes", False: "missed", None: "does not apply"}[self.kept]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def span(values: dict[str, float], digits: int = 2) -> str:
    """From the smallest to the largest."""
    return f"{values['min']:.{digits}f} to {values['max']:.{digits}f}"


def middle(values: dict[str, float], digits: int = 2) -> str:
    """The median, and from where to where it was taken."""
    return f"{values['median']:.{digits}f} ({span(values, digits)})"


def grid(heads: Cells, rows: Sequence[Cells]) -> str:
    """A table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def promises_table(promises: Sequence[Promise]) -> str:
    """All of them, one a line."""
    return grid(["promise", "measured", "kept"], [[one.what, one.measured, one.verdict] for one in promises])


def sample_words(work: dict[str, Any]) -> str:
    """What was drawn, of what.

    Args:
        work: as `work.Work.told` gives it.
    """
    drawn = work["drawn"]
    if work["n_items"] == work["n_items_in_set"]:
        return f"{work['n_items']:,} items, all of the set"
    levels = drawn["levels"]
    which = ", ".join(levels) if drawn["unit"] == drawn["of"] else f"over {len(levels)} {drawn['of']}s"
    return (
        f"{work['n_items']:,} items, of {work['n_items_in_set']:,}: "
        f"a sample (seed {drawn['seed']}) of {drawn['n']} {drawn['unit']}s, {which}"
    )
