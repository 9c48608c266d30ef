"""Slope gap of each model against its size.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figure 3b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from matplotlib.transforms import Affine2D

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, DPI, MARKERS, WIDTH_PX, text_width_px, wrapped_lines
from undertow.report.formatting import correlation, plain, shortened, significant
from undertow.report.label_placement import Spot, draw_names
from undertow.report.layout import (
    EDGE_PX,
    GREY,
    GRID,
    PALE,
    SMALL_SIZE,
    TEXT_SIZE,
    Sheet,
    amount,
    distinct_labels,
    even_ticks,
    height_px,
    named,
    say,
)
from undertow.report.style import lettering
from undertow.types import Floats

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class ModelPoint:
    """One model in `slope_against_size`.

    Attributes:
        name: of the model.
        parameters: how many it has; NaN where nobody said.
        objective: what it was trained to do; "" where nobody said.
        post_training: what was done to it afterwards, as its last stage; "" where none is known of.
        gap: the slope of the first group less that of the second, percentage points per step of W, mean over prompts.
        low, high: its 95% interval; NaN where there is none.
        r_squared: the squared correlation of the fitted lines, mean over them, in 0 to 1; NaN where undefined.
        n_prompts: how many prompts the means are over.
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


_T = TypeVar("_T")

UNKNOWN_COLOUR, UNKNOWN_MARKER = COLOURS[-1], MARKERS[0]
_OBJECTIVES = (*COLOURS[:-1], *(to_hex([0.5 * part for part in to_rgb(colour)]) for colour in COLOURS[:6]))
_STAGES = (*MARKERS[1:], "p", "<", ">", "d", "h")
_MIN_PT2, _MAX_PT2 = 16.0, 170.0
"""Area of a marker at r² 0, where it must still be seen, and at r² 1."""
_SIZES = (0.0, 0.5, 1.0)
_NAME_PX, _STRIP_NAME_PX = 180, 130
_STRIP_STEP_PX = 18
_RIGHT_PX = 66
"""From the plot to the edge, for the words "no drift"."""
_BELOW_PX = 62
"""From the plot to the legends, for the ticks and what they are."""
_PLOT_PX, _PX_PER_NAME = 380, 24


def slope_against_size(points: Sequence[ModelPoint], *, title: str, gap: str) -> Figure:
    """Draw each model's slope gap against its number of parameters (figure 3b).

    A model of unknown size stands in a strip of its own, where left and right mean nothing; one without a gap is
    named below the plot.

    Args:
        points: at least one model.
        title: broken into lines where it is too long.
        gap: whose slopes are compared, for example "female less male".

    Returns:
        A figure 800 pixels wide at 100 dots per inch, as high as names and legends need.

    Raises:
        UndertowError: no model was given.
    """
    if not points:
        raise UndertowError("the figure cannot be drawn: there are no models to compare, so name at least one")
    drawn = [point for point in points if math.isfinite(point.gap)]
    words = [title, gap, *(text for point in points for text in (point.name, point.objective, point.post_training))]
    with lettering("".join(words)):
        sheet = Sheet(title, _models_lead(drawn, gap), _left_out(points))
        if drawn:
            _draw_models(sheet, drawn)
        else:
            axes = sheet.axes(EDGE_PX, sheet.settle(120) - 120, sheet.width_px - 2 * EDGE_PX, 120)
            axes.set(xticks=[], yticks=[])
            say(axes, "no model has a slope gap")
        return sheet.figure


def describe_slope_against_size(points: Sequence[ModelPoint], gap: str) -> str:
    """Alt text of `slope_against_size`."""
    drawn = [point for point in points if math.isfinite(point.gap)]
    start = f"Slope gap, {plain(gap)}, in percentage points per step of W, against number of parameters."
    by_size = sorted(drawn, key=lambda point: (not _sized(point), point.parameters if _sized(point) else 0.0))
    return " ".join([start, *(_describe(point) for point in by_size), *_left_out(points)])


def _describe(point: ModelPoint) -> str:
    size = f"{amount(point.parameters)} parameters" if _sized(point) else "size not known"
    about = ", ".join([size, *(plain(text) for text in (point.objective, point.post_training) if plain(text))])
    interval = f" ({significant(point.low)} to {significant(point.high)})" if _has_bar(point) else ""
    r = f"r² {correlation(point.r_squared)}" if math.isfinite(point.r_squared) else "r² undefined"
    prompts = f"{point.n_prompts} prompt{'s' if point.n_prompts != 1 else ''}"
    return f"{named(point.name)}, {about}: {significant(point.gap)}{interval}, {r}, {prompts}."


def _sized(point: ModelPoint) -> bool:
    return math.isfinite(point.parameters) and point.parameters > 0


def _has_bar(point: ModelPoint) -> bool:
    return math.isfinite(point.low) and math.isfinite(point.high)


def _models_lead(points: Sequence[ModelPoint], gap: str) -> str:
    prompts = sorted({point.n_prompts for point in points if point.n_prompts})
    over = " to ".join(dict.fromkeys(str(count) for count in (prompts[:1] + prompts[-1:])))
    mean = f", mean over {over} prompts" if prompts and prompts[-1] > 1 else ""
    return f"Slope gap, {plain(gap)}: percentage points per step of W{mean}, with 95% interval."


def _left_out(points: Sequence[ModelPoint]) -> list[str]:
    names = [shortened(named(point.name), 60) for point in points if not math.isfinite(point.gap)]
    return [f"Left out, for want of a slope gap: {', '.join(names)}."] if names else []


def _draw_models(sheet: Sheet, points: Sequence[ModelPoint]) -> None:
    colours = _assigned([point.objective for point in points], _OBJECTIVES, UNKNOWN_COLOUR)
    markers = _assigned([point.post_training for point in points], _STAGES, UNKNOWN_MARKER)
    legends = _model_legends(sheet, colours, markers, any(not math.isfinite(point.r_squared) for point in points))
    plot_px = max(_PLOT_PX, _PX_PER_NAME * len(points))
    top = sheet.settle(plot_px + _BELOW_PX + max(map(height_px, legends)))
    for place, legend in enumerate(legends):
        sheet.put(legend, EDGE_PX + place * sheet.width_px / 3, top - plot_px - _BELOW_PX)

    low, high = _gap_range(points)
    ticks = even_ticks(low, high)
    left = EDGE_PX + 8 + max(text_width_px(sheet.figure, text, SMALL_SIZE) for text in ticks.values())
    parts = _parts(sheet, points, sheet.width_px - left - _RIGHT_PX)
    spots: list[Spot] = []
    for place, (width, part) in enumerate(parts):
        axes = sheet.axes(left, top - plot_px, width, plot_px)
        axes.set_ylim(low, high)
        axes.set_yticks(list(ticks), list(ticks.values()) if place == 0 else [""] * len(ticks))
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        axes.axhline(0, color="#333333", linewidth=1.0, zorder=1.5)
        at = _scale_sizes(axes, part) if _sized(part[0]) else _strip(axes, part)
        means = "number of parameters" if _sized(part[0]) else "size not known"
        sheet.write(left + width / 2, top - plot_px - 40, means, size=TEXT_SIZE, ha="center", va="baseline")
        for x, point in zip(at, part, strict=True):
            spots.append(_draw_point(sheet, axes, x, point, (colours[point.objective], markers[point.post_training])))
        left += width + 8
    zero = top - plot_px * high / (high - low)
    sheet.write(left, zero, "no drift", size=SMALL_SIZE, va="center")
    draw_names(sheet, spots, zero)


def _assigned(values: Iterable[str], looks: Sequence[_T], unknown: _T) -> dict[str, _T]:
    """A look for each value, by the alphabet, whatever order they come in; those after the last look share it."""
    known = sorted(set(values) - {""})
    assigned = {value: looks[min(place, len(looks) - 1)] for place, value in enumerate(known)}
    return assigned | ({"": unknown} if "" in set(values) else {})


def _model_legends(
    sheet: Sheet, colours: Mapping[str, str], markers: Mapping[str, str], with_undefined: bool
) -> list[Any]:
    """What colour, shape and area mean."""
    dots: dict[str, Any] = {"linestyle": "none", "color": GREY, "markeredgecolor": "white", "markeredgewidth": 0.6}
    swatches = [
        (name, Patch(facecolor=colour, edgecolor="none")) for name, colour in _by_look(sheet, colours, "not known")
    ]
    shapes = [
        (name, Line2D([], [], marker=marker, markersize=math.sqrt(60 / _filled(marker)), **dots))
        for name, marker in _by_look(sheet, markers, "none known")
    ]
    areas = {
        correlation(share): Line2D([], [], marker="o", markersize=math.sqrt(_area_pt2(share) / _filled("o")), **dots)
        for share in _SIZES
    }
    if with_undefined:
        hollow = dots | {"markerfacecolor": "white", "markeredgecolor": GREY, "markeredgewidth": 1.2}
        areas["undefined"] = Line2D(
            [], [], marker="o", markersize=math.sqrt(_area_pt2(math.nan) / _filled("o")), **hollow
        )
    return [
        sheet.legend(distinct_labels(swatches), "Colour: training objective"),
        sheet.legend(distinct_labels(shapes), "Shape: post-training"),
        sheet.legend(areas, "Area: r² of the fitted lines", air=0.8),
    ]


def _by_look(sheet: Sheet, looks: Mapping[str, _T], unknown: str) -> Iterable[tuple[str, _T]]:
    """Legend label of each style."""
    width_px = sheet.width_px / 3 - 70
    for look in dict.fromkeys(looks.values()):
        names = [sheet.fit(plain(value) or unknown, width_px) for value, own in looks.items() if own == look]
        yield "\n".join(wrapped_lines(sheet.figure, ", ".join(names), SMALL_SIZE, width_px)), look


def _area_pt2(r_squared: float) -> float:
    """Area of a marker in square points."""
    share = min(max(r_squared, 0.0), 1.0) if math.isfinite(r_squared) else 0.25
    return _MIN_PT2 + (_MAX_PT2 - _MIN_PT2) * share


def _filled(marker: str) -> float:
    """What a marker fills of the square of its size: a star of the same size is less than a square."""
    style = MarkerStyle(marker)
    outline = style.get_path().transformed(style.get_transform() + Affine2D().scale(100))  # curves break at 1 unit
    return sum(_shoelace(np.asarray(corners)) for corners in outline.to_polygons()) / 100**2


def _shoelace(corners: Floats) -> float:
    x, y = corners.T
    return abs(float(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))) / 2


def _gap_range(points: Sequence[ModelPoint]) -> tuple[float, float]:
    """Ends of the y axis: around 0, every gap and every interval."""
    ends = [0.0, *(point.gap for point in points)]
    ends += [end for point in points if _has_bar(point) for end in (point.low, point.high)]
    air = 0.08 * (max(ends) - min(ends)) or 1.0
    return min(ends) - air, max(ends) + air


def _parts(sheet: Sheet, points: Sequence[ModelPoint], room_px: float) -> list[tuple[float, list[ModelPoint]]]:
    """The models of known size and those of unknown size, where there are any, each with the width it is given."""
    sized, unsized = [point for point in points if _sized(point)], [point for point in points if not _sized(point)]
    if not (sized and unsized):
        return [(room_px, sized or unsized)]
    names = [sheet.fit(named(point.name), _STRIP_NAME_PX) for point in unsized]
    widest = max(text_width_px(sheet.figure, name, SMALL_SIZE, "normal") for name in names)
    strip_px = max(110.0, min(widest + 36 + _STRIP_STEP_PX * len(unsized), 0.5 * room_px))
    return [(room_px - strip_px - 8, sized), (strip_px, unsized)]


def _scale_sizes(axes: Axes, points: Sequence[ModelPoint]) -> Sequence[float]:
    """Set a log10 axis and return the position of each model."""
    sizes = [point.parameters for point in points]
    middle, half = math.sqrt(min(sizes)) * math.sqrt(max(sizes)), math.sqrt(max(sizes) / min(sizes))
    half = max(half**1.16, math.sqrt(10))
    axes.set_xscale("log")
    axes.set_xlim(middle / half, middle * half)
    ticks = _size_ticks(middle / half, middle * half)
    axes.set_xticks(ticks, [amount(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    return sizes


def _size_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 3:
            break
    return ticks[:: math.ceil(len(ticks) / 10)]


def _strip(axes: Axes, points: Sequence[ModelPoint]) -> Sequence[float]:
    """Where each model of unknown size stands: side by side in the order given, from the left, so that names fit."""
    axes.set_facecolor(PALE)
    axes.set_xticks([])
    width_px = axes.get_window_extent().width
    spread_px = (width_px - 36) / len(points)
    step_px = spread_px if width_px > WIDTH_PX / 2 else min(spread_px, _STRIP_STEP_PX)  # alone, it has all the width
    axes.set_xlim(-18 / step_px, (width_px - 18) / step_px)
    return range(len(points))


def _draw_point(sheet: Sheet, axes: Axes, x: float, point: ModelPoint, look: tuple[str, str]) -> Spot:
    colour, marker = look
    size = _area_pt2(point.r_squared) / _filled(marker)
    defined = math.isfinite(point.r_squared)
    bar = (point.low, point.high) if _has_bar(point) else (point.gap, point.gap)
    axes.plot([x, x], bar, color=colour, linewidth=1.2, alpha=0.8, zorder=3, solid_capstyle="butt")
    axes.scatter(
        [x],
        [point.gap],
        s=size,
        marker=marker,
        facecolor=colour if defined else "white",
        edgecolor="white" if defined else colour,
        linewidth=0.6 if defined else 1.2,
        zorder=5 - size / 1000,  # the small ones on top of the large ones
    )
    at, ends = axes.transData.transform((x, point.gap)), axes.transData.transform([(x, end) for end in bar])
    box = axes.get_window_extent()
    name = sheet.fit(named(point.name), min(_NAME_PX, box.width - 8))
    return Spot(
        x=float(at[0]),
        y=float(at[1]),
        radius=math.sqrt(size) / 2 * DPI / 72,
        bar=(float(ends[0, 1]), float(ends[1, 1])),
        room=(box.x0 + 3, box.y0 + 3, box.x1 - 3, box.y1 - 1),
        name=name,
        width=text_width_px(sheet.figure, name, SMALL_SIZE, "normal") + 2,
    )
