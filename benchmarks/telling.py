"""How measurements are told: promises, tables in Markdown, the middle and the ends of several takings."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

Entry = dict[str, Any]
"""The record of a part, or of several by name, as it stands in the JSON file."""
GIGA = 1e9


class Promise(NamedTuple):
    """What was promised, what was found, and whether that is enough; None where the promise does not apply here."""

    what: str
    measured: str
    kept: bool | None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    return {"min": min(values), "median": median(values), "max": max(values)}


def span(values: dict[str, float], digits: int = 2) -> str:
    """From the smallest to the largest."""
    return f"{values['min']:.{digits}f} to {values['max']:.{digits}f}"


def middle(values: dict[str, float], digits: int = 2) -> str:
    """The median, and from where to where it was taken."""
    return f"{values['median']:.{digits}f} ({span(values, digits)})"


def grid(heads: str, rows: Sequence[Sequence[object]]) -> str:
    """A table; heads have bars between them."""
    titles = heads.split("|")
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [titles, ["---"] * len(titles), *rows])


def sample_words(work: Entry) -> str:
    """What was drawn, of what; from the record that `Work.told` makes."""
    drawn = work["drawn"]
    if work["n_items"] == work["n_items_in_set"]:
        return f"{work['n_items']:,} items, all of the set"
    levels = drawn["levels"]
    which = ", ".join(levels) if drawn["unit"] == drawn["of"] else f"over {len(levels)} {drawn['of']}s"
    sample = f"a sample (seed {drawn['seed']}) of {drawn['n']} {drawn['unit']}s, {which}"
    return f"{work['n_items']:,} items, of {work['n_items_in_set']:,}: {sample}"
