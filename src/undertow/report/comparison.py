"""Figures that set models side by side: slope gap against size, and every model under every prompt.

Knows how to place points, names and small panels so that none hides another; knows nothing about how gaps, sizes and
lines were got. McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figures 3b, 8 and 9.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Affine2D

from undertow.report.drawing import lettering
from undertow.report.spectrum import COLOURS, DPI, MARKERS, WIDTH_PX, FittedLine, _look, _width_px, _wrapped
from undertow.report.words import MINUS, correlation, number, plain, shortened, significant, significant_decimals, slope
from undertow.types import Floats, UndertowError

if TYPE_CHECKING:
    import pandas as pd

EDGE_PX = 14
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.0, 8.5, 8.0
GREY, PALE, GRID = "#6b6b6b", "#f5f5f5", "#e4e4e4"
NO_PROMPT, NO_NAME = "no prompt", "(no name)"

_T = TypeVar("_T")
_Handle = Any
"""What a legend shows beside a word."""


# A sheet, in pixels from its lower left corner: title and lead at the top, small print at the bottom, the body between.


class Sheet:
    """A figure whose parts are placed in pixels of 1/100 inch, with as much height as they turn out to need.

    Attributes:
        figure: what is drawn on.
        width_px: of the whole sheet.
    """

    def __init__(self, title: str, lead: str, foot: Sequence[str] = (), width_px: float = WIDTH_PX) -> None:
        self.width_px = width_px
        self.figure = Figure(figsize=(width_px / DPI, 1), dpi=DPI)
        FigureCanvasAgg(self.figure)  # brings the renderer that text is measured with
        self._title = self._lines(title, TITLE_SIZE)
        self._lead = self._lines(lead, TEXT_SIZE)
        self._foot = [line for text in foot for line in self._lines(text, SMALL_SIZE)]

    def _lines(self, text: str, size: float) -> list[str]:
        return _wrapped(self.figure, plain(text), size, self.width_px - 2 * EDGE_PX)

    def fit(self, text: str, width_px: float, size: float = SMALL_SIZE, weight: str = "normal") -> str:
        """The text, or as much of its beginning and end as this width holds."""
        lengths = range(1, min(len(text), 90) + 1)
        if not lengths:
            return text

        def taken_px(letters: int) -> float:
            return _width_px(self.figure, shortened(text, letters), size, weight)

        fitting = len(lengths) if taken_px(lengths[-1]) <= width_px else bisect_right(lengths, width_px, key=taken_px)
        return shortened(text, lengths[max(fitting, 1) - 1])

    def settle(self, body_px: float) -> float:
        """Give the sheet its height, write title, lead and small print, and return the top of the body."""
        blocks = ((self._title, TITLE_SIZE, "bold"), (self._lead, TEXT_SIZE, "normal"))
        head_px = EDGE_PX + sum(len(lines) * line_px(size) for lines, size, _ in blocks) + 10
        foot_px = EDGE_PX + (len(self._foot) * line_px(SMALL_SIZE) + 10 if self._foot else 0)
        self.figure.set_size_inches(self.width_px / DPI, (head_px + body_px + foot_px) / DPI)
        top = head_px + body_px + foot_px - EDGE_PX
        for lines, size, weight in blocks:
            self.write(EDGE_PX, top, "\n".join(lines), size=size, weight=weight, va="top")
            top -= len(lines) * line_px(size) + 2
        self.write(EDGE_PX, foot_px - 10, "\n".join(self._foot), size=SMALL_SIZE, color=GREY, va="top")
        return body_px + foot_px

    def write(self, x_px: float, y_px: float, text: str, **look: Any) -> None:
        """Text at a place."""
        self.figure.text(*self._share(x_px, y_px), text, linespacing=1.25, **look)

    def axes(self, left_px: float, bottom_px: float, width_px: float, height_px: float) -> Axes:
        """Axes that fill this box, bare but for the line below."""
        axes = self.figure.add_axes((*self._share(left_px, bottom_px), *self._share(width_px, height_px)))
        axes.spines["left"].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelsize=SMALL_SIZE)
        axes.tick_params(axis="x", length=4, width=0.8, labelsize=SMALL_SIZE)
        return axes

    def legend(self, entries: Mapping[str, _Handle], title: str = "", columns: int = 1, air: float = 0.45) -> Any:
        """A legend, to be measured now and put in its place once the sheet has its height."""
        made = self.figure.legend(
            list(entries.values()),
            ["-"] * len(entries),
            ncols=columns,
            title=title or None,
            loc="upper left",
            alignment="left",
            frameon=False,
            fontsize=SMALL_SIZE,
            borderpad=0,
            borderaxespad=0,
            labelspacing=air,
            handlelength=1.8,
        )
        made.get_title().set(size=SMALL_SIZE, weight="bold")
        for text, label in zip(made.get_texts(), entries, strict=True):
            text.set_text(label)  # here and not above, where a name that begins with _ would be left out
        return made

    def put(self, legend: Any, x_px: float, top_px: float) -> None:
        """Move a legend's upper left corner to a place."""
        legend.set_bbox_to_anchor(self._share(x_px, top_px), self.figure.transFigure)

    def group_legend(self, groups: Sequence[str], nothing: str = NO_NAME) -> Any:
        """Colour and marker of each word group, in as many columns as fit."""
        names = [self.fit(plain(group) or nothing, 260) for group in groups]
        widest = max(_width_px(self.figure, name, SMALL_SIZE) for name in names)
        handles = [Line2D([], [], linewidth=1.6, **_look(place)) for place in range(len(groups))]
        columns = max(int((self.width_px - 2 * EDGE_PX) // (widest + 50)), 1)
        return self.legend(_told_apart(zip(names, handles, strict=True)), columns=min(columns, len(groups)))

    def _share(self, x_px: float, y_px: float) -> tuple[float, float]:
        width, height = self.figure.get_size_inches() * DPI
        return x_px / width, y_px / height


def line_px(size: float) -> float:
    """Height of one line of text of a size in points."""
    return size * 1.32 * DPI / 72


def height_px(artist: Any) -> float:
    """Height of something already drawn on a sheet."""
    return float(artist.get_window_extent().height)


def even_ticks(low: float, high: float, most: int = 6) -> dict[float, str]:
    """Round numbers from `low` to `high`, three or more of them, and how each is written."""
    for bins in range(most, most + 8):
        values = MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        within = [float(value) for value in values if low <= value <= high]
        if len(within) >= 3:
            break
    step = float(values[1] - values[0])
    decimals = significant_decimals(step, 1 if math.isclose(step, float(f"{step:.0e}")) else 2)
    plainly = step >= 10.0**-decimals / 2 and max(abs(low), abs(high)) < 1e7
    exact = {value if abs(value) > step / 1000 else 0.0: None for value in within}
    return {value: number(value, decimals) if plainly else f"{value:.3g}".replace("-", MINUS) for value in exact}


def amount(count: float) -> str:
    """A large number in three digits and a letter, as models are named: 124M, 1.3B, 175B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"


def _told_apart(named: Iterable[tuple[str, _Handle]]) -> dict[str, _Handle]:
    """Legend entries of names that may be alike once they are cut: the later ones get their number."""
    entries: dict[str, _Handle] = {}
    for place, (name, handle) in enumerate(named, 1):
        entries[f"{name} ({place})" if name in entries else name] = handle
    return entries


# Slope gap against size.


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


UNKNOWN_COLOUR, UNKNOWN_MARKER = COLOURS[-1], MARKERS[0]
_OBJECTIVES = (*COLOURS[:-1], *(to_hex([0.5 * part for part in to_rgb(colour)]) for colour in COLOURS[:6]))
_STAGES = (*MARKERS[1:], "p", "<", ">", "d", "h")
_LEAST_PT2, _MOST_PT2 = 16.0, 170.0
"""Area of a marker at r² 0, where it must still be seen, and at r² 1."""
_SIZES = (0.0, 0.5, 1.0)
_NAME_PX, _STRIP_NAME_PX = 180, 130
_STRIP_STEP_PX = 18
_RIGHT_PX = 66
"""From the plot to the edge, for the words "no drift"."""
_BELOW_PX = 62
"""From the plot to the legends, for the ticks and what they are."""
_PLOT_PX, _PX_PER_NAME = 380, 24


class _Spot(NamedTuple):
    """A model's place on the sheet, in pixels."""

    x: float
    y: float
    radius: float
    bar: tuple[float, float]  # lower and upper end
    room: tuple[float, float, float, float]  # left, lower, right and upper edge of where its name may stand
    name: str
    width: float  # of the name


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
            _say(axes, "no model has a slope gap")
        return sheet.figure


def describe_slope_against_size(points: Sequence[ModelPoint], gap: str) -> str:
    """What `slope_against_size` shows, in words, for those who cannot see it."""
    drawn = [point for point in points if math.isfinite(point.gap)]
    start = f"Slope gap, {plain(gap)}, in percentage points per step of W, against number of parameters."
    by_size = sorted(drawn, key=lambda point: (not _sized(point), point.parameters if _sized(point) else 0.0))
    return " ".join([start, *(_told(point) for point in by_size), *_left_out(points)])


def _told(point: ModelPoint) -> str:
    size = f"{amount(point.parameters)} parameters" if _sized(point) else "size not known"
    about = ", ".join([size, *(plain(text) for text in (point.objective, point.post_training) if plain(text))])
    interval = f" ({significant(point.low)} to {significant(point.high)})" if _has_bar(point) else ""
    r = f"r² {correlation(point.r_squared)}" if math.isfinite(point.r_squared) else "r² undefined"
    prompts = f"{point.n_prompts} prompt{'s' if point.n_prompts != 1 else ''}"
    return f"{_name(point.name)}, {about}: {significant(point.gap)}{interval}, {r}, {prompts}."


def _name(text: str) -> str:
    return plain(text) or NO_NAME


def _sized(point: ModelPoint) -> bool:
    return math.isfinite(point.parameters) and point.parameters > 0


def _has_bar(point: ModelPoint) -> bool:
    return math.isfinite(point.low) and math.isfinite(point.high)


def _models_lead(points: Sequence[ModelPoint], gap: str) -> str:
    prompts = sorted({point.n_prompts for point in points})
    over = " to ".join(dict.fromkeys(str(count) for count in (prompts[:1] + prompts[-1:])))
    mean = f", mean over {over} prompt{'s' if prompts[-1] != 1 else ''}" if prompts else ""
    return f"Slope gap, {plain(gap)}: percentage points per step of W{mean}, with 95% interval."


def _left_out(points: Sequence[ModelPoint]) -> list[str]:
    names = [shortened(_name(point.name), 60) for point in points if not math.isfinite(point.gap)]
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
    left = EDGE_PX + 8 + max(_width_px(sheet.figure, text, SMALL_SIZE) for text in ticks.values())
    parts = _parts(sheet, points, sheet.width_px - left - _RIGHT_PX)
    spots: list[_Spot] = []
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
    _draw_names(sheet, spots, zero)


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
        sheet.legend(_told_apart(swatches), "Colour: training objective"),
        sheet.legend(_told_apart(shapes), "Shape: post-training"),
        sheet.legend(areas, "Area: r² of the fitted lines", air=0.8),
    ]


def _by_look(sheet: Sheet, looks: Mapping[str, _T], unknown: str) -> Iterable[tuple[str, _T]]:
    """What the legend says of each look, once."""
    width_px = sheet.width_px / 3 - 70
    for look in dict.fromkeys(looks.values()):
        names = [sheet.fit(plain(value) or unknown, width_px) for value, own in looks.items() if own == look]
        yield "\n".join(_wrapped(sheet.figure, ", ".join(names), SMALL_SIZE, width_px)), look


def _area_pt2(r_squared: float) -> float:
    """What a marker fills, in square points."""
    share = min(max(r_squared, 0.0), 1.0) if math.isfinite(r_squared) else 0.25
    return _LEAST_PT2 + (_MOST_PT2 - _LEAST_PT2) * share


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
    names = [sheet.fit(_name(point.name), _STRIP_NAME_PX) for point in unsized]
    widest = max(_width_px(sheet.figure, name, SMALL_SIZE, "normal") for name in names)
    strip_px = max(110.0, min(widest + 36 + _STRIP_STEP_PX * len(unsized), 0.5 * room_px))
    return [(room_px - strip_px - 8, sized), (strip_px, unsized)]


def _scale_sizes(axes: Axes, points: Sequence[ModelPoint]) -> Sequence[float]:
    """Give the axis its factors of ten; where each model stands on it."""
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


def _draw_point(sheet: Sheet, axes: Axes, x: float, point: ModelPoint, look: tuple[str, str]) -> _Spot:
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
    name = sheet.fit(_name(point.name), min(_NAME_PX, box.width - 8))
    return _Spot(
        x=float(at[0]),
        y=float(at[1]),
        radius=math.sqrt(size) / 2 * DPI / 72,
        bar=(float(ends[0, 1]), float(ends[1, 1])),
        room=(box.x0 + 3, box.y0 + 3, box.x1 - 3, box.y1 - 1),
        name=name,
        width=_width_px(sheet.figure, name, SMALL_SIZE, "normal") + 2,
    )


# Names beside points: each at the place that costs least, of those where it touches no other name.

_NAME_LINE_PX = 16.0
_ON_MARKER, _BY_MARKER, _ON_LINE = 60.0, 15.0, 14.0
_LED, _LED_ON_NAME, _LED_ON_LINE = 8.0, 90.0, 4.0
"""What it costs, in pixels of distance, that a name lies over a marker, beside another's, or over a line; that a
leader is needed, runs over a name, or along a line."""
_NEAR_PX, _LED_FROM_PX = 11.0, 6.0
"""How near another's marker a name seems to be its name, and how far from its own it needs a leader."""


def _draw_names(sheet: Sheet, spots: Sequence[_Spot], zero: float) -> None:
    halo = [withStroke(linewidth=2, foreground="white", alpha=0.8)]
    for spot, box in zip(spots, _name_boxes(spots, zero), strict=True):
        x, y = box[0] + 1, (box[1] + box[3]) / 2
        sheet.write(x, y, spot.name, size=SMALL_SIZE, va="center", zorder=6, path_effects=halo)
        end = _nearest(box[None], spot)[0]
        way = end - (spot.x, spot.y)
        if math.hypot(*way) > spot.radius + _LED_FROM_PX:
            start = end - way * (1 - spot.radius / math.hypot(*way))
            ends = np.array([start, end]) / (sheet.figure.get_size_inches() * DPI)
            look: dict[str, Any] = {"color": "#9a9a9a", "linewidth": 0.7, "transform": sheet.figure.transFigure}
            sheet.figure.axes[-1].plot(*ends.T, clip_on=False, zorder=2, **look)


def _name_boxes(spots: Sequence[_Spot], zero: float) -> Floats:
    """Left, lower, right and upper edge of each name, given the height of the line at 0 [spot, edge]."""
    markers = np.array([(s.x - s.radius, s.y - s.radius, s.x + s.radius, s.y + s.radius) for s in spots])
    around = markers + np.array([-1, -1, 1, 1]) * _NEAR_PX
    at_zero = [(-np.inf, zero - 1, np.inf, zero + 1)] * 2  # counts twice: it runs through a whole name
    lines = np.array([*((s.x - 1, min(s.bar), s.x + 1, max(s.bar)) for s in spots), *at_zero])
    boxes, taken = np.zeros((len(spots), 4)), np.empty((0, 4))
    for place in sorted(range(len(spots)), key=lambda place: -spots[place].y):
        spot = spots[place]
        options, cost = _options(spot)
        ends = _nearest(options, spot)
        steps = _leader_steps(ends, spot)
        cost += np.hypot(*(ends - (spot.x, spot.y)).T)
        cost += _ON_MARKER * _touched(options, markers) + _ON_LINE * np.minimum(_touched(options, lines), 4)
        cost += _BY_MARKER * _touched(options, np.delete(around, place, axis=0))
        cost += sum(_LED_ON_NAME * _touched(step, taken) + _LED_ON_LINE * _touched(step, lines) for step in steps)
        cost[_touched(options, taken) > 0] = np.inf
        best = int(np.argmin(cost))
        boxes[place] = options[best]
        taken = np.vstack([taken, boxes[place]])
        lines = np.vstack([lines, *(step[best] for step in steps)])
    return boxes


def _options(spot: _Spot) -> tuple[Floats, Floats]:
    """Boxes for a name within its room: beside its point, then everywhere; and what each costs on top [option]."""
    width, height, away = spot.width, _NAME_LINE_PX, spot.radius + 3
    beside = [
        (spot.x + away, spot.y - height / 2),
        (spot.x - away - width, spot.y - height / 2),
        (spot.x - width / 2, spot.y + away - 3),
        (spot.x - width / 2, spot.y - away - height + 3),
    ]
    left, lower, right, upper = spot.room
    across = np.arange(left, max(right - width, left) + 0.1, 12.0)
    up = np.arange(lower, upper - height, 8.0)
    anywhere = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    corners = np.vstack([beside, anywhere])
    boxes = np.hstack([corners, corners + np.array([width, height])])
    extra = np.concatenate([[0.0, 1.0, 2.0, 2.0], np.full(len(anywhere), _LED)])
    inside = (boxes[:, :2] >= (left, lower)).all(axis=1) & (boxes[:, 2:] <= (max(right, left + width), upper)).all(
        axis=1
    )
    return boxes[inside], extra[inside]


def _nearest(boxes: Floats, spot: _Spot) -> Floats:
    """The point of each box that is nearest to the spot [box, axis]."""
    return np.clip((spot.x, spot.y), boxes[:, :2], boxes[:, 2:])


def _touched(boxes: Floats, others: Floats) -> Floats:
    """How many of the others each box touches [box]."""
    left, lower, right, upper = boxes.T[:, :, None]
    touching = (left < others[:, 2]) & (right > others[:, 0]) & (lower < others[:, 3]) & (upper > others[:, 1])
    return np.asarray(np.count_nonzero(touching, axis=1), dtype=np.float64)


def _leader_steps(ends: Floats, spot: _Spot) -> list[Floats]:
    """Small boxes along the way from the spot to each end: [box, edge] for every step."""
    start = np.array([spot.x, spot.y])
    steps = [start + (ends - start) * share for share in np.linspace(0.15, 0.95, 6)]
    return [np.hstack([step - 1, step + 1]) for step in steps]


# Every model under every prompt.

_PANEL_GAP_PX = 14
_LEAST_PANEL_PX, _MOST_PANEL_PX, _ALL_PANELS_PX = 112.0, 320.0, 900.0
_LEAST_COLUMN_PX = 164
_HEAD_LINES = 3

Asked = tuple[str, str]
"""Model and prompt."""


class _Panel(NamedTuple):
    """What one panel shows."""

    at: Floats  # [w]
    percent: dict[str, Floats]  # group -> [w]
    lines: dict[str, FittedLine]

    @property
    def scored(self) -> bool:
        return any(np.isfinite(values).any() for values in self.percent.values())


class _Grid(NamedTuple):
    """All panels, and what they share."""

    panels: dict[Asked, _Panel]
    models: list[str]
    prompts: list[str]
    labels: dict[int, str]  # W by index
    w_name: str


def model_grid(
    panels: Mapping[tuple[str, str], pd.DataFrame],
    groups: Sequence[str],
    lines: Mapping[tuple[str, str], Sequence[FittedLine]],
    *,
    title: str,
) -> Figure:
    """Draw the mean mass of each group against W for every model and prompt, on the same axes (figures 8 and 9).

    Args:
        panels: observations by (model, prompt), one row per item, with `w`, `w_index` and a column of mass in percent
            for each group; NaN where unscored. Models are rows and prompts columns, in the order they first come in.
        groups: the word groups, in the order of their colours.
        lines: the fitted lines by (model, prompt).
        title: broken into lines where it is too long.

    Returns:
        A figure 800 pixels wide at 100 dots per inch, wider beyond four prompts, that grows with its rows.

    Raises:
        UndertowError: there is nothing to draw, a column is missing, or the panels do not share one list of W values.
    """
    grid = _grid(panels, groups, lines)
    with lettering("".join([title, *groups, *grid.models, *grid.prompts, *grid.labels.values(), grid.w_name])):
        width_px = max(WIDTH_PX, 2 * EDGE_PX + 40 + len(grid.prompts) * (_LEAST_COLUMN_PX + _PANEL_GAP_PX))
        lead = (
            f"Mean probability mass in percent, by {plain(grid.w_name)}: a row for each model, a column for each prompt, "
            "the same axes throughout."
        )
        if any(panel.lines for panel in grid.panels.values()):
            lead += " Bands: 95% confidence of the straight lines."
        sheet = Sheet(title, lead, width_px=width_px)
        _draw_grid(sheet, grid, groups)
        return sheet.figure


def describe_model_grid(
    panels: Mapping[tuple[str, str], pd.DataFrame],
    groups: Sequence[str],
    lines: Mapping[tuple[str, str], Sequence[FittedLine]],
) -> str:
    """What `model_grid` shows, in words, for those who cannot see it."""
    grid = _grid(panels, groups, lines)
    ends = [plain(grid.labels[place]) for place in (min(grid.labels), max(grid.labels))] if grid.labels else []
    start = f"Mean mass by {plain(grid.w_name)}" + (f", from {ends[0]} to {ends[1]}." if ends else ".")
    return " ".join([start, *(_panel_told(grid, model, prompt) for model in grid.models for prompt in grid.prompts)])


def _panel_told(grid: _Grid, model: str, prompt: str) -> str:
    where = f"{_name(model)}, {plain(prompt) or NO_PROMPT}"
    panel = grid.panels.get((model, prompt))
    if panel is None or not panel.scored:
        return f"{where}: {'not asked' if panel is None else 'nothing scored'}."
    return f"{where}: {'; '.join(_group_told(panel, group) for group in panel.percent)}."


def _group_told(panel: _Panel, group: str) -> str:
    seen, line = panel.percent[group][np.isfinite(panel.percent[group])], panel.lines.get(group)
    if not seen.size:
        return f"{_name(group)} nothing scored"
    span = f"{_name(group)} {number(seen.min(), 1)} to {number(seen.max(), 1)} percent"
    if line is None:
        return f"{span}, no line"
    r = f"r = {correlation(line.r)}" if math.isfinite(line.r) else "r undefined"
    return f"{span}, {slope(line.slope)} per step, {r}"


def _grid(
    tables: Mapping[Asked, pd.DataFrame], groups: Sequence[str], lines: Mapping[Asked, Sequence[FittedLine]]
) -> _Grid:
    if not tables or not groups:
        raise UndertowError("the grid cannot be drawn: there are no observations, or no word groups, to draw")
    panels: dict[Asked, _Panel] = {}
    labels: dict[int, str] = {}
    w_names: dict[str, None] = {}
    for asked, table in tables.items():
        missing = [name for name in ("w", "w_index", *groups) if name not in table.columns]
        if missing:
            raise UndertowError(f"the grid cannot be drawn: the observations of {asked} lack the column {missing[0]!r}")
        named = table[["w_index", "w"]].drop_duplicates()
        for place, label in zip(named["w_index"].astype(int), named["w"].astype(str), strict=True):
            if labels.setdefault(place, label) != label:
                raise UndertowError(
                    f"one grid shows one list of W values, but value {place} is both {labels[place]!r} and {label!r}: "
                    "choose the rows of one list before drawing them"
                )
        w_names |= dict.fromkeys(table["w_name"].astype(str) if "w_name" in table.columns else ())
        means = table.astype(dict.fromkeys(groups, np.float64)).groupby("w_index", sort=True)[list(groups)].mean()
        fitted = {line.group: line for line in lines.get(asked, ()) if math.isfinite(line.slope)}
        percent = {group: means[group].to_numpy(dtype=np.float64) for group in groups}
        panels[asked] = _Panel(means.index.to_numpy(dtype=np.float64), percent, fitted)
    if len(w_names) > 1:
        raise UndertowError("one grid shows one w_name: choose the rows of one before drawing them")
    models, prompts = (list(dict.fromkeys(asked[part] for asked in panels)) for part in (0, 1))
    return _Grid(panels, models, prompts, labels, next(iter(w_names), "W"))


def _draw_grid(sheet: Sheet, grid: _Grid, groups: Sequence[str]) -> None:
    n_rows, n_columns = len(grid.models), len(grid.prompts)
    top_percent = _top_percent(grid.panels.values())
    ticks = even_ticks(0, top_percent, most=4)
    left = EDGE_PX + 8 + max(_width_px(sheet.figure, text, SMALL_SIZE) for text in ticks.values())
    column_px = (sheet.width_px - left - EDGE_PX - (n_columns - 1) * _PANEL_GAP_PX) / n_columns
    panel_px = max(_LEAST_PANEL_PX, min(0.62 * column_px, _ALL_PANELS_PX / n_rows, _MOST_PANEL_PX))
    heads = [_head(sheet, prompt, column_px) for prompt in grid.prompts]
    head_px = max(map(len, heads)) * line_px(SMALL_SIZE) + 8
    name_px = line_px(TEXT_SIZE) + 16
    legend = sheet.group_legend(groups)
    legend_px = height_px(legend) + 12

    top = sheet.settle(legend_px + head_px + n_rows * (name_px + panel_px) + line_px(SMALL_SIZE) + 12)
    sheet.put(legend, EDGE_PX, top)
    top -= legend_px
    for column, head in enumerate(heads):
        x = left + column * (column_px + _PANEL_GAP_PX)
        sheet.write(x, top - head_px + 4, "\n".join(head), size=SMALL_SIZE, va="baseline")
    top -= head_px
    for row, model in enumerate(grid.models):
        name = sheet.fit(_name(model), sheet.width_px - left - EDGE_PX, TEXT_SIZE, "bold")
        upper = top - row * (name_px + panel_px)
        sheet.write(left, upper - 10, name, size=TEXT_SIZE, weight="bold", va="top")
        for column, prompt in enumerate(grid.prompts):
            x = left + column * (column_px + _PANEL_GAP_PX)
            axes = sheet.axes(x, upper - name_px - panel_px, column_px, panel_px)
            axes.set_ylim(0, top_percent)
            axes.set_yticks(list(ticks), list(ticks.values()) if column == 0 else [""] * len(ticks))
            _share_w(sheet, axes, grid.labels, column_px if row == n_rows - 1 else 0)
            _draw_panel(axes, grid.panels.get((model, prompt)))


def _head(sheet: Sheet, prompt: str, width_px: float) -> list[str]:
    lines = _wrapped(sheet.figure, plain(prompt) or NO_PROMPT, SMALL_SIZE, width_px - 8)
    if len(lines) <= _HEAD_LINES:
        return lines
    return [*lines[: _HEAD_LINES - 1], lines[_HEAD_LINES - 1] + "\N{HORIZONTAL ELLIPSIS}"]


def _top_percent(panels: Iterable[_Panel]) -> float:
    """The end of the y axis: above every dot and line, and above the bands unless they dwarf the dots."""
    panels = list(panels)
    lines = [line for panel in panels for line in panel.lines.values()]
    dots = _largest(
        [*(values for panel in panels for values in panel.percent.values()), *(line.mean for line in lines)]
    )
    return 1.08 * max(dots, min(_largest([line.high for line in lines]), 1.3 * dots)) or 1.0


def _largest(arrays: Iterable[Floats]) -> float:
    return max((float(array[np.isfinite(array)].max(initial=0.0)) for array in arrays), default=0.0)


def _share_w(sheet: Sheet, axes: Axes, labels: Mapping[int, str], named_px: float) -> None:
    """The same stretch of W in every panel; first and last value named where there is width for it."""
    ends = sorted({min(labels), max(labels)}) if labels else [0]
    margin = 0.03 * (ends[-1] - ends[0]) or 0.5
    axes.set_xlim(ends[0] - margin, ends[-1] + margin)
    room_px = (named_px - 12) / len(ends)
    axes.set_xticks(ends, [sheet.fit(plain(labels.get(end, "")), room_px) if named_px else "" for end in ends])
    if len(ends) > 1:
        first, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")


def _draw_panel(axes: Axes, panel: _Panel | None) -> None:
    if panel is None or not panel.scored:
        _say(axes, "not asked" if panel is None else "nothing scored")
        return
    axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
    for place, (group, percent) in enumerate(panel.percent.items()):
        look = _look(place)
        if group in panel.lines:
            line = panel.lines[group]
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
            axes.plot(line.x, line.mean, color=look["color"], linewidth=1.4, zorder=3)
        small = look | {"markersize": 0.7 * look["markersize"], "markeredgewidth": 0.3}
        axes.plot(panel.at, percent, linestyle="none", zorder=4, **small)


def _say(axes: Axes, text: str) -> None:
    """What an empty panel is empty for."""
    axes.set_facecolor(PALE)
    axes.text(0.5, 0.5, text, size=SMALL_SIZE, color=GREY, ha="center", va="center", transform=axes.transAxes)
