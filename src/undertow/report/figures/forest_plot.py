"""Forest plot of the differences between two runs: a row with an interval for each difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, text_width_px
from undertow.report.formatting import number, plain, significant_decimals
from undertow.report.layout import EDGE_PX, GREY, GRID, SMALL_SIZE, Sheet, even_ticks, height_px, line_px
from undertow.report.style import lettering

SIGNIFICANT_COLOUR, OTHER_COLOUR = COLOURS[0], GREY
"""Claimed, and not; marks differ by shape and filling too, so that nothing rests on colour."""
BAND = "#e9eef4"
"""Behind a row, from minus its margin to its margin."""
_ROW_PX, _LABEL_PX, _BELOW_PX = 22, 300, 44
_NONE, _NONE_PX = " (no interval)", 84
MAX_BAND = 3
"""A margin is shown whole up to this many times as wide as what is drawn; a wider one fills the figure."""
_SAID_ROWS = 12
"""Rows that the text alternative tells one by one."""


@dataclass(frozen=True, slots=True)
class DrawnDifference:
    """One row.

    Attributes:
        label: what differs.
        value: by how much.
        low, high: 95% interval; NaN where there is none.
        significant: whether it is claimed to be more than its margin.
        equivalent: whether the test shows that it is within its margin.
        margin: the smallest difference of interest; 0 where none was named.
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


def draw_differences(rows: Sequence[DrawnDifference], *, title: str, unit: str, n_all: int = 0) -> Figure:
    """Draw differences with their intervals, one below the other, in the order given.

    Args:
        rows: at least one, each with a value.
        title: broken into lines where it is too long.
        unit: of the values.
        n_all: how many there are, where these are some of them.

    Returns:
        A figure 800 pixels wide at 100 dots per inch, as high as its rows need.

    Raises:
        UndertowError: there is no row, or one has no value.
    """
    if not rows or not all(math.isfinite(row.value) for row in rows):
        raise UndertowError("the figure cannot be drawn: every row needs a difference, and there must be one at least")
    limit_note = f"The {len(rows)} strongest of {n_all:,} are shown." if len(rows) < n_all else ""
    with lettering("".join([title, unit, *(row.label for row in rows)])):
        lead = "Each mark is a difference, with its 95% interval where it has one; the line is no difference."
        if any(row.margin for row in rows):
            lead += " The band behind a row is its margin, the smallest difference of interest."
        sheet = Sheet(title, lead, [limit_note] if limit_note else [])
        legend = sheet.legend(
            {
                "more than the margin": Line2D([], [], **_mark("significant")),
                "equivalent within it": Line2D([], [], **_mark("equivalent")),
                "inconclusive": Line2D([], [], **_mark("open")),
            },
            columns=3,
        )
        labels = [_fitted(sheet, row) for row in rows]
        left = EDGE_PX + max(text_width_px(sheet.figure, label, SMALL_SIZE, "normal") for label in labels) + 14
        body_px = _ROW_PX * len(rows) + 8
        top = sheet.settle(height_px(legend) + 14 + body_px + _BELOW_PX)
        sheet.put(legend, EDGE_PX, top)
        top -= height_px(legend) + 14
        axes = sheet.axes(left, top - body_px, sheet.width_px - left - EDGE_PX - 10, body_px)
        _draw_rows(axes, rows, body_px)
        for place, label in enumerate(labels):
            at = top - 4 - (place + 0.5) * _ROW_PX
            sheet.write(left - 10, at, label, size=SMALL_SIZE, ha="right", va="center_baseline")
        middle = left + (sheet.width_px - left - EDGE_PX - 10) / 2
        under = top - body_px - _BELOW_PX + line_px(SMALL_SIZE)
        sheet.write(
            middle,
            under,
            f"difference, {plain(unit)}" if unit else "difference",
            size=SMALL_SIZE,
            ha="center",
            va="top",
        )
    return sheet.figure


def _fitted(sheet: Sheet, row: DrawnDifference) -> str:
    """A name as far as there is room for it; a mark alone may have an interval too narrow to be seen, or none."""
    name = plain(row.label)
    return sheet.fit(name, _LABEL_PX) if math.isfinite(row.low) else f"{sheet.fit(name, _LABEL_PX - _NONE_PX)}{_NONE}"


_MARKS: Mapping[str, tuple[str, str, float, float]] = {
    "significant": (SIGNIFICANT_COLOUR, "o", 6.0, 1.6),
    "equivalent": (OTHER_COLOUR, "s", 5.0, 1.2),
    "open": (OTHER_COLOUR, "D", 5.0, 1.2),
}
"""Colour, shape, size of the mark and width of the line of what is claimed, equivalent or open."""


def _mark(look: str) -> dict[str, Any]:
    colour, shape, size, width = _MARKS[look]
    return {
        "color": colour,
        "marker": shape,
        "markersize": size,
        "markerfacecolor": "white" if look == "open" else colour,
        "markeredgecolor": colour,
        "linewidth": width,
    }


def _draw_rows(axes: Axes, rows: Sequence[DrawnDifference], body_px: float) -> None:
    low, high = _range(rows)
    ticks = even_ticks(low, high)
    axes.set(xlim=(low, high), ylim=(0, body_px), yticks=[])
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.grid(visible=True, color=GRID, linewidth=0.7)
    axes.axvline(0, color="#222222", linewidth=1.0, zorder=2)
    for place, row in enumerate(rows):
        at = body_px - 4 - (place + 0.5) * _ROW_PX
        look = _mark(row.look)
        if row.margin:
            axes.fill_betweenx([at - _ROW_PX / 2, at + _ROW_PX / 2], -row.margin, row.margin, color=BAND, linewidth=0)
        if math.isfinite(row.low):
            axes.plot([row.low, row.high], [at, at], color=look["color"], linewidth=look["linewidth"], zorder=3)
        axes.plot([row.value], [at], linestyle="none", zorder=4, **{k: v for k, v in look.items() if k != "linewidth"})


def _range(rows: Sequence[DrawnDifference]) -> tuple[float, float]:
    """Ends of the x axis: around 0, every difference and every interval, and margins that are not much wider than these."""
    ends = [
        0.0,
        *(row.value for row in rows),
        *(end for row in rows for end in (row.low, row.high) if math.isfinite(end)),
    ]
    far = max(map(abs, ends))
    ends += [end for row in rows for end in (-row.margin, row.margin) if abs(end) <= MAX_BAND * far]
    air = 0.06 * (max(ends) - min(ends)) or 1.0
    return min(ends) - air, max(ends) + air


def describe_differences(rows: Sequence[DrawnDifference], title: str, unit: str) -> str:
    """Alt text of the figure."""
    n_significant, equivalent = sum(row.significant for row in rows), sum(row.look == "equivalent" for row in rows)
    sentences = [_describe(row) for row in rows[:_SAID_ROWS]]
    more = f" And {len(rows) - _SAID_ROWS} more." if len(rows) > _SAID_ROWS else ""
    units = f", in {plain(unit)}" if unit else ""
    counted = f"{n_significant} of {len(rows)} more than the margin, {equivalent} equivalent"
    return f"Differences of {plain(title)}{units}: {counted}. {'; '.join(sentences)}.{more}"


def _describe(row: DrawnDifference) -> str:
    half = (row.high - row.low) / 2
    places = significant_decimals(half if math.isfinite(half) and half > 0 else row.value)
    interval = f"{number(row.low, places)} to {number(row.high, places)}" if math.isfinite(row.low) else "no interval"
    label = plain(row.label)
    return f"{label}{' ' if label else ''}{number(row.value, places)} ({interval})"
