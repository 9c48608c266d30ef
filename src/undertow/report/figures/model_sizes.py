"""Slope gap of each model against its size.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figure 3b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from undertow.report.formatting import correlation, interval, named, plain, short_count, shortened, slope
from undertow.report.sentence_templates import described
from undertow.report.sheet import (
    Handle,
    Sheet,
    empty_panel,
    even_ticks,
    fitted,
    hover,
    mark,
    name_points,
    padded,
    shift_right,
    side_by_side,
)
from undertow.report.style import COLOURS, GREY, INK, MARKERS, PALE, lettering


@dataclass(frozen=True, slots=True)
class ModelPoint:
    """One model in `slope_against_size`.

    Attributes:
        parameters: number of parameters; NaN if unknown.
        objective: training objective; "" if unknown.
        post_training: last stage of post-training; "" if none is known.
        gap: slope of the first group minus that of the second, percentage points per `step`, mean over prompts.
        low, high: its 95% interval; NaN where there is none.
        r_squared: squared correlation of the fitted lines, mean over lines, in 0 to 1; NaN if undefined.
        n_prompts: number of prompts in the means.
        step: unit of W, the same for all models.
    """

    name: str
    parameters: float
    objective: str
    post_training: str
    gap: float
    low: float
    high: float
    r_squared: float
    n_prompts: int
    step: str = "step of W"

    @property
    def sized(self) -> bool:
        """Whether its size is known."""
        return math.isfinite(self.parameters) and self.parameters > 0

    @property
    def bar(self) -> tuple[float, float]:
        """Limits of the interval; the gap, twice, if there is none."""
        has = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if has else (self.gap, self.gap)


_T = TypeVar("_T")

_OBJECTIVES = (*COLOURS[:-1], *(to_hex([0.5 * part for part in to_rgb(colour)]) for colour in COLOURS[:6]))
_STAGES = (*MARKERS[1:], "p", "<", ">", "d", "h")
_FILLED = dict.fromkeys("^v<>X", 0.5) | {"o": 0.785, "P": 0.556, "*": 0.28, "d": 0.6, "p": 0.59, "h": 0.65}
"""Area of a marker relative to the square of its size, if less than 1."""
_MIN_PT2, _MAX_PT2 = 16.0, 170.0
"""Area of a marker at r² of 0 and of 1."""
_PLOT_IN, _IN_PER_NAME = 3.8, 0.24


def slope_against_size(points: Sequence[ModelPoint], *, title: str, gap: str) -> Figure:
    """Draw each model's slope gap against its number of parameters (figure 3b).

    A model of unknown size is drawn in a separate strip without an x axis; a model without a gap is named below the plot.

    Args:
        points: at least one model.
        title: broken into lines where it is too long.
        gap: groups whose slopes are compared, for example "female minus male".
    """
    drawn = [point for point in points if math.isfinite(point.gap)]
    prompts = sorted({point.n_prompts for point in drawn if point.n_prompts})
    over = " to ".join(dict.fromkeys(str(count) for count in (prompts[:1] + prompts[-1:])))
    mean = f", mean over {over} prompts" if prompts and prompts[-1] > 1 else ""
    lead = f"Slope gap, {plain(gap)}: percentage points per {plain(points[0].step)}{mean}, with 95% interval."
    words = [title, gap, *(text for point in points for text in (point.name, point.objective, point.post_training))]
    with lettering("".join(words)):
        sheet = Sheet(title, lead, _left_out(points))
        if not drawn:
            axes = sheet.add_subplot(xticks=[], yticks=[])
            empty_panel(axes, "no model has a slope gap")
            return sheet.finish([axes], 1.2)
        colours = _assigned([point.objective for point in drawn], _OBJECTIVES, COLOURS[-1])
        markers = _assigned([point.post_training for point in drawn], _STAGES, MARKERS[0])
        _explain(sheet, colours, markers, undefined=any(not math.isfinite(point.r_squared) for point in drawn))
        parts = [part for sized in (True, False) if (part := [one for one in drawn if one.sized == sized])]
        share = min(0.2 + 0.03 * len(parts[-1]), 0.5) if sheet.width_in > 5 else 0.35
        ratios = [1 - share, share] if len(parts) > 1 else [1]
        (row,) = sheet.subplots(1, len(parts), sharey=True, squeeze=False, width_ratios=ratios)
        row[0].set_ylim(*padded([0.0, *(end for point in drawn for end in (point.gap, *point.bar))], air=0.08))
        row[0].yaxis.set_major_locator(even_ticks())
        row[-1].text(1.01, 0, "no drift", va="center", transform=row[-1].get_yaxis_transform())
        places = [
            [(x, point.gap) for x, point in zip(_place(axes, part), part, strict=True)]
            for axes, part in zip(row, parts, strict=True)
        ]
        shifts = [side_by_side(axes, spots) for axes, spots in zip(row, places, strict=True)]
        if any(map(np.any, shifts)):
            sheet.add_foot(["Models of equal size and slope gap are drawn side by side."])
        sheet.finish([row[0]], max(_PLOT_IN, _IN_PER_NAME * len(drawn)))
        for axes, part, own, shift in zip(row, parts, places, shifts, strict=True):
            axes.grid(axis="y")
            axes.axhline(0, color=INK, linewidth=1.0, zorder=1.5)
            spots = shift_right(sheet, axes, own, shift)
            for (x, _), point in zip(spots, part, strict=True):
                _draw_point(axes, x, point, colours[point.objective], markers[point.post_training])
            width = min(1.8, 0.75 * axes.get_position().width * sheet.width_in)
            names = [fitted(named(point.name), width) for point in part]
            name_points(sheet, axes, spots, names, [point.bar for point in part])
        return sheet


def describe_slope_against_size(points: Sequence[ModelPoint], gap: str) -> str:
    """Alt text of `slope_against_size`."""
    drawn = [point for point in points if math.isfinite(point.gap)]
    drawn.sort(key=lambda point: (not point.sized, point.parameters if point.sized else 0.0))
    return described("sizes", drawn, gap, points[0].step, _left_out(points))


def _left_out(points: Sequence[ModelPoint]) -> list[str]:
    names = [shortened(named(point.name), 60) for point in points if not math.isfinite(point.gap)]
    return [f"Not shown because they have no slope gap: {', '.join(names)}."] if names else []


def _assigned(values: Iterable[str], looks: Sequence[_T], unknown: _T) -> dict[str, _T]:
    """A look for each value, in alphabetical order; values after the last look share it."""
    known = sorted(set(values) - {""})
    assigned = {value: looks[min(place, len(looks) - 1)] for place, value in enumerate(known)}
    return assigned | ({"": unknown} if "" in set(values) else {})


def _explain(sheet: Sheet, colours: dict[str, str], markers: dict[str, str], *, undefined: bool) -> None:
    """Explain colour, shape and area, in up to three columns."""
    dots: dict[str, Any] = {"linestyle": "none", "color": GREY, "markeredgecolor": "white", "markeredgewidth": 0.6}

    def dot(marker: str, area: float, **look: Any) -> Line2D:
        return mark(marker=marker, markersize=math.sqrt(area / _FILLED.get(marker, 1.0)), **dots | look)

    areas = [(correlation(share), dot("o", _area_pt2(share))) for share in (0.0, 0.5, 1.0)]
    if undefined:
        hollow = {"markerfacecolor": "white", "markeredgecolor": GREY, "markeredgewidth": 1.2}
        areas.append(("undefined", dot("o", _area_pt2(math.nan), **hollow)))
    empty, beside = Patch(alpha=0), sheet.inner_in > 5
    columns: list[list[tuple[str, Handle]]] = [
        [("Colour: training objective", empty)],
        [("Shape: post-training", empty)],
        [("Area: r² of the fitted lines", empty), *areas],
    ]
    columns[0] += [(values, Patch(facecolor=look)) for look, values in _by_look(colours, "not known")]
    columns[1] += [(values, dot(look, 60.0)) for look, values in _by_look(markers, "none known")]
    most = max(map(len, columns)) if beside else 0
    entries = [entry for column in columns for entry in [*column, *[("", empty)] * (most - len(column))]]
    legend = sheet.add_key(entries, columns=3 if beside else 1, labelspacing=0.6)
    for text in legend.get_texts() if legend else ():
        if text.get_text().startswith(("Colour:", "Shape:", "Area:")):
            text.set_fontweight("bold")


def _by_look(looks: dict[str, _T], unknown: str) -> Iterable[tuple[_T, str]]:
    """Each look with the values that have it."""
    for look in dict.fromkeys(looks.values()):
        yield look, ", ".join(plain(value) or unknown for value, own in looks.items() if own == look)


def _area_pt2(r_squared: float) -> float:
    """Area of a marker in square points."""
    share = min(max(r_squared, 0.0), 1.0) if math.isfinite(r_squared) else 0.25
    return _MIN_PT2 + (_MAX_PT2 - _MIN_PT2) * share


def _place(axes: Axes, points: Sequence[ModelPoint]) -> Sequence[float]:
    """Set the x axis and return the position of each model: its size, or its place in the given order if that is unknown."""
    axes.xaxis.set_minor_locator(NullLocator())
    if not points[0].sized:
        axes.set_facecolor(PALE)
        axes.set(xticks=[], xlim=(-1, max(2.5 * len(points), 4)), xlabel="unknown size")
        return range(len(points))
    sizes = [point.parameters for point in points]
    middle, half = math.sqrt(min(sizes)) * math.sqrt(max(sizes)), math.sqrt(max(sizes) / min(sizes))
    half = max(half**1.16, math.sqrt(10))
    axes.set(xscale="log", xlim=(middle / half, middle * half), xlabel="parameters")
    axes.xaxis.set_major_locator(LogLocator(subs=(1,) if half > 10 else (1, 3) if half > 5 else (1, 2, 5), numticks=8))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: short_count(size)))
    return sizes


def _draw_point(axes: Axes, x: float, point: ModelPoint, colour: str, marker: str) -> None:
    defined = math.isfinite(point.r_squared)
    size = _area_pt2(point.r_squared) / _FILLED.get(marker, 1.0)
    axes.plot([x, x], point.bar, color=colour, linewidth=1.2, alpha=0.8, zorder=3)
    look: dict[str, Any] = {"facecolor": colour if defined else "white", "edgecolor": "white" if defined else colour}
    look |= {"linewidth": 0.6 if defined else 1.2}
    # Small markers are drawn above large ones.
    axes.scatter([x], [point.gap], s=size, marker=marker, zorder=5 - size / 1000, **look)
    ends = f", 95% interval {interval(point.low, point.high)}" if math.isfinite(point.low) else ""
    hover(axes, [x], [point.gap], [f"{point.name}: {slope(point.gap)} points per {point.step}{ends}"])
