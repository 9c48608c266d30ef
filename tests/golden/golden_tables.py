"""Tables of results as files: written so that a diff shows what changed, and compared number by number within a tolerance.

A file is CSV: columns of words, an empty column, columns of numbers; rows are sorted. A number that is missing is an empty cell.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from golden_cases import LEFT_OUT

Tolerance = Callable[[str], float]
"""From a column to how far two of its numbers may lie apart, absolutely or relative to the larger one."""
DIGITS = 12


@dataclass(frozen=True, slots=True)
class Table:
    """Results by what they are about.

    Attributes:
        words: names of the columns that say what a row is about.
        numbers: names of the columns of numbers.
        rows: numbers of each row, as they are written, by its words.
    """

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: Mapping[tuple[str, ...], tuple[str, ...]]

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Table:
        """The table of a case, which must not have two rows about the same."""
        kept = [name for name in frame.columns if name not in LEFT_OUT]
        numbers = tuple(name for name in kept if pd.api.types.is_numeric_dtype(frame[name]))
        words = tuple(name for name in kept if name not in numbers)
        said = frame[list(words)].astype(object).where(frame[list(words)].notna(), "")
        keys = [tuple(map(str, row)) for row in said.itertuples(index=False)]
        assert len(set(keys)) == len(keys), f"rows that {words} do not tell apart"
        cells = [tuple(map(_written, row)) for row in frame[list(numbers)].astype(float).itertuples(index=False)]
        return cls(words, numbers, dict(sorted(zip(keys, cells, strict=True))))

    @classmethod
    def read(cls, path: Path) -> Table:
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        gap = head.index("")
        return cls(tuple(head[:gap]), tuple(head[gap + 1 :]), {tuple(row[:gap]): tuple(row[gap + 1 :]) for row in rows})

    def write(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*self.words, "", *self.numbers])
            writer.writerows([*key, "", *cells] for key, cells in self.rows.items())


def _written(number: float) -> str:
    return "" if math.isnan(number) else f"{number:.{DIGITS}g}"


def _near(one: str, other: str, tolerance: float) -> bool:
    if "" in (one, other):
        return one == other
    return math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=tolerance)


def differences(kept: Table, now: Table, tolerance: Tolerance) -> list[str]:
    """What is not as it was kept, a line each: columns, rows, then numbers."""
    columns = [
        f"columns of {what} were {list(before)} and are {list(after)}"
        for what, before, after in (("words", kept.words, now.words), ("numbers", kept.numbers, now.numbers))
        if before != after
    ]
    if columns:
        return columns
    gone = [f"no more: {_named(now, key)}" for key in kept.rows.keys() - now.rows.keys()]
    new = [f"new: {_named(now, key)}" for key in now.rows.keys() - kept.rows.keys()]
    moved = [
        f"{_named(now, key)}: {name} was {before or 'missing'} and is {after or 'missing'}"
        for key in kept.rows.keys() & now.rows.keys()
        for name, before, after in zip(now.numbers, kept.rows[key], now.rows[key], strict=True)
        if not _near(before, after, tolerance(name))
    ]
    return [*sorted(gone), *sorted(new), *sorted(moved)]


def _named(table: Table, key: Sequence[str]) -> str:
    return " ".join(f"{name}={word}" for name, word in zip(table.words, key, strict=True) if word)


def refreshed(kept: Table, now: Table, tolerance: Tolerance) -> Table:
    """The new table, with the old digits wherever a number has not moved, so that a diff shows what did."""
    at = {name: place for place, name in enumerate(kept.numbers)}

    def row(key: tuple[str, ...], cells: tuple[str, ...]) -> tuple[str, ...]:
        before = kept.rows.get(key) if kept.words == now.words else None
        if before is None:
            return cells
        old = [before[at[name]] if name in at else cell for name, cell in zip(now.numbers, cells, strict=True)]
        return tuple(
            was if _near(was, cell, tolerance(name)) else cell
            for name, was, cell in zip(now.numbers, old, cells, strict=True)
        )

    return Table(now.words, now.numbers, {key: row(key, cells) for key, cells in now.rows.items()})
