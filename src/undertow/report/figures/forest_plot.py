"""Forest plot of the differences between two runs: a row with an interval for each difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from undertow.report.formatting import interval, number, plain, significant_decimals
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, even_ticks, fitted, hover, mark, padded
from undertow.report.style import COLOURS, GREY, INK, lettering

SIGNIFICANT_COLOUR, OTHER_COLOUR = COLOURS[0], GREY
"""Significant and not significant; marks differ by shape and filling, too, for readers without colour vision."""
BAND = "#e9eef4"
"""Colour of the band behind a row, from minus its margin to its margin."""
MAX_BAND = 3
"""Maximum width of a margin relative to the drawn intervals; a wider one fills the figure."""
_ROW_IN = 0.22
_DESCRIBED_ROWS = 12
"""Maximum number of rows that the alternative text lists."""


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One row.

    Attributes:
        low, high: 95% interval; NaN if there is none.
        significant: whether it is significantly larger than its margin.
        equivalent: whether the test of equivalence shows that it is within its margin.
        margin: smallest difference of interest; 0 if none is set.
    """

    label: str
    value: float
    low: float
    high: float
    significant: bool
    equivalent: bool = False
    margin: float = 0.0

    @property
    def look(self) -> str:
        """One of `_MARKS`."""
        return "significant" if self.significant else "equivalent" if self.equivalent else "open"

    @property
    def decimals(self) -> int:
        """Decimals of its numbers: by the half-width of the interval, or by the value if there is none."""
        half = (self.high - self.low) / 2
        return significant_decimals(half if math.isfinite(half) and half > 0 else self.value)


def _mark(colour: str, shape: str, size: float, width: float, face: str) -> dict[str, Any]:
    look: dict[str, Any] = {"color": colour, "markeredgecolor": colour, "linewidth": width}
    return look | {"marker": shape, "markersize": size, "markerfacecolor": face}


_MARKS = {
    "significant": ("more than the margin", _mark(SIGNIFICANT_COLOUR, "o", 6.0, 1.6, SIGNIFICANT_COLOUR)),
    "equivalent": ("equivalent within it", _mark(OTHER_COLOUR, "s", 5.0, 1.2, OTHER_COLOUR)),
    "open": ("inconclusive", _mark(OTHER_COLOUR, "D", 5.0, 1.2, "white")),
}


def draw_differences(rows: Sequence[ForestRow], *, title: str, unit: str, n_all: int = 0) -> Figure:
    """Draw differences with their intervals, one below the other, in the order given.

    Args:
        rows: at least one, each with a value.
        title: broken into lines where it is too long.
        unit: of the values.
        n_all: total number of differences, if the rows are a selection.
    """
    lead = "Each mark is a difference with its 95% interval, if any; the line marks no difference."
    if any(row.margin for row in rows):
        lead += " The band behind a row is its margin, the smallest difference of interest."
    with lettering("".join([title, unit, *(row.label for row in rows)])):
        foot = [f"The {len(rows)} strongest of {n_all:,} are shown."] if len(rows) < n_all else []
        sheet = Sheet(title, lead, foot)
        sheet.add_key((label, mark(**look)) for label, look in _MARKS.values())
        axes = sheet.add_subplot()
        ends = [0.0, *(end for row in rows for end in (row.value, row.low, row.high))]
        far = max(abs(end) for end in ends if math.isfinite(end))
        margins = [end for row in rows for end in (-row.margin, row.margin) if abs(end) <= MAX_BAND * far]
        axes.set(xlim=padded([*ends, *margins]), ylim=(len(rows) - 0.4, -0.6))
        axes.xaxis.set_major_locator(even_ticks())
        axes.grid(axis="x")
        axes.axvline(0, color=INK, linewidth=1.0, zorder=2)
        for at, row in enumerate(rows):
            look = _MARKS[row.look][1]
            if row.margin:
                axes.fill_betweenx([at - 0.5, at + 0.5], -row.margin, row.margin, color=BAND, linewidth=0)
            if math.isfinite(row.low):
                axes.plot([row.low, row.high], [at, at], color=look["color"], linewidth=look["linewidth"], zorder=3)
            axes.plot([row.value], [at], linestyle="none", zorder=4, **look)
            around = f", 95% interval {interval(row.low, row.high)}" if math.isfinite(row.low) else ""
            hover(axes, [row.value], [at], [f"{row.label}: {number(row.value, row.decimals)}{around}"])
        # A mark without a visible bar has a very narrow interval or none.
        names = [fitted(row.label, (0.38 if math.isfinite(row.low) else 0.27) * sheet.inner_in) for row in rows]
        endings = ["" if math.isfinite(row.low) else " (no interval)" for row in rows]
        axes.set_yticks(range(len(rows)), [name + ending for name, ending in zip(names, endings, strict=True)])
        axes.set_xlabel(fitted(f"difference, {plain(unit)}" if unit else "difference", 0.55 * sheet.inner_in, lines=2))
        return sheet.finish([axes], _ROW_IN * len(rows) + 0.08)


def describe_differences(rows: Sequence[ForestRow], title: str, unit: str) -> str:
    """Alt text of the figure."""
    return described("differences", rows, title, unit, _DESCRIBED_ROWS)
