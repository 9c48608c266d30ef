"""What the record holds, as Markdown: numbers, tables and promises. A list of numbers holds one number for each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Entry = dict[str, Any]
"""The record of a part as the JSON file holds it: notes, promises and tables; `bench` adds when and where it was measured."""
GIGA, MEGA = 1e9, 1e6
VERDICTS = {True: "yes", False: "missed", None: "does not apply"}


def show(value: Any) -> str:
    """A number with three digits at least; several as their median, smallest and largest."""
    if isinstance(value, list):
        return f"{show(median(value))} ({show(min(value))} to {show(max(value))})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row for each mapping; all have the same keys, which are the heads."""
    heads = list(rows[0]) if rows else ["none"]
    lines = [heads, ["---"] * len(heads), *([show(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def promise(what: str, measured: str, kept: bool | None) -> dict[str, str]:
    """One row of the first table; `kept` is None where the promise does not apply."""
    return {"promise": what, "measured": measured, "kept": VERDICTS[kept]}
