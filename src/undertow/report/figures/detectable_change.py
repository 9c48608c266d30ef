"""Smallest detectable change along a W list, by number of sentences and of values. Not in the papers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import style_of, text_width_px
from undertow.report.formatting import plain, significant
from undertow.report.layout import EDGE_PX, GRID, SMALL_SIZE, TEXT_SIZE, Sheet, even_ticks, height_px, line_px
from undertow.report.style import Drawing, lettering

_PANEL_PX, _GAP_PX, _BELOW_PX = 240.0, 26.0, 40.0
LEAD = (
    "Smallest change from the first value of a list to the last, in percentage points, that is found (p < .05) in 8 of 10 runs; "
    "one line for each number of values. Ring: the design as it stands."
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Detectable changes along one W list.

    Attributes:
        title: the list.
        changes: in percentage points, by numbers of sentences and of values; NaN where nothing is claimed.
        own: the numbers of the design as it stands.
    """

    title: str
    changes: Mapping[tuple[int, int], float]
    own: tuple[int, int]


def draw_power(name: str, curves: Sequence[Curve]) -> Drawing:
    """One panel for each list, one line for each number of values.

    Raises:
        UndertowError: there is no change to draw.
    """
    if not any(math.isfinite(change) for curve in curves for change in curve.changes.values()):
        raise UndertowError("the curve cannot be drawn: no design has a change that is found")
    title = f"What {name} can find"
    with lettering("".join([title, *(curve.title for curve in curves)])):
        sheet = Sheet(title, LEAD)
        _draw(sheet, curves)
    return Drawing(name, sheet.figure, LEAD, describe_power(curves))


def describe_power(curves: Sequence[Curve]) -> str:
    """Alt text of the figure."""
    sentences = []
    for curve in curves:
        finite = {design: change for design, change in curve.changes.items() if math.isfinite(change)}
        ends = [max(finite, key=finite.__getitem__), min(finite, key=finite.__getitem__)] if finite else []
        said = [
            f"{sentences} sentences and {values} values: {significant(finite[sentences, values])}"
            for sentences, values in ends
        ]
        sentences.append(f"{plain(curve.title)}: {'; '.join(said) or 'nothing is found'}.")
    return " ".join([LEAD, *sentences])


def _draw(sheet: Sheet, curves: Sequence[Curve]) -> None:
    lines = sorted({values for curve in curves for _, values in curve.changes})
    looks: dict[int, dict[str, Any]] = {values: style_of(place) for place, values in enumerate(lines)}
    legend = sheet.group_legend([f"{values} values" for values in lines])
    name_px = line_px(TEXT_SIZE) + 6
    top = sheet.settle(height_px(legend) + 10 + len(curves) * (name_px + _PANEL_PX + _GAP_PX) + _BELOW_PX - _GAP_PX)
    sheet.put(legend, EDGE_PX, top)
    top -= height_px(legend) + 10
    highest = max(change for curve in curves for change in curve.changes.values() if math.isfinite(change))
    ticks = even_ticks(0.0, 1.08 * highest, most=5)
    left = EDGE_PX + 10 + max(text_width_px(sheet.figure, text, SMALL_SIZE) for text in ticks.values())
    width_px = sheet.width_px - left - 2 * EDGE_PX
    for place, curve in enumerate(curves):
        said = sheet.fit(plain(curve.title), width_px, TEXT_SIZE, "bold")
        sheet.write(left, top - 0.8 * line_px(TEXT_SIZE), said, size=TEXT_SIZE, weight="bold", va="baseline")
        axes = sheet.axes(left, top - name_px - _PANEL_PX, width_px, _PANEL_PX)
        axes.set_ylim(0.0, 1.08 * highest)
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        _draw_lines(axes, curve, looks, named=place == len(curves) - 1)
        top -= name_px + _PANEL_PX + _GAP_PX


def _draw_lines(axes: Axes, curve: Curve, looks: Mapping[int, dict[str, Any]], *, named: bool) -> None:
    sentences = sorted({design[0] for design in curve.changes})
    for values in sorted({design[1] for design in curve.changes}):
        along = [curve.changes[at, values] for at in sentences]
        axes.plot(sentences, along, linewidth=1.5, zorder=3, **looks[values])
    if math.isfinite(curve.changes[curve.own]):
        ring = {"markersize": 11.0, "markerfacecolor": "none", "markeredgecolor": "#222222", "markeredgewidth": 1.2}
        axes.plot([curve.own[0]], [curve.changes[curve.own]], marker="o", linestyle="none", zorder=4, **ring)  # type: ignore[arg-type]
    axes.set_xscale("log")
    axes.set_xticks(sentences, [str(at) for at in sentences])
    axes.xaxis.set_minor_locator(NullLocator())
    if named:
        axes.set_xlabel("sentences", size=TEXT_SIZE)
