"""Mean mass of each word group along the values of W, with fitted lines.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI),
figures 3c and 7c; McMilin 2022 (ICML workshop), figure 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from undertow.errors import UndertowError
from undertow.report.formatting import correlation, number, plain, shortened, slope
from undertow.report.style import lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A")
"""Okabe and Ito's colours, told apart without full colour vision; grey for their yellow, which white swallows."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

WIDTH_PX = 800
DPI = 100
_PLOT_HEIGHT_PX = 350
_EDGE_PX = 14
_LEFT_PX = 52
_KEY_GAP_PX = 44
"""From the plot to the words of the key: a leader, then the group's marker."""
_KEY_SPACING_PX = 9
_LINE_HEIGHT = 1.3
_TICK_GAP_PX = 5.0
_TICK_PITCH_PX = 13.6
"""Between slanted lines of text: the height of one, from its highest sign to its lowest, and a little air."""
_TICK_OFFSET_PX = 12
"""From the x axis to its labels."""
_MARGIN = 0.02
"""What the x axis has to spare at either end, as a share of what it spans."""
_SLANTS_DEGREES = (45, 60)
"""The gentlest first; labels are thinned only at the steepest, where most of them fit."""

_TITLE_SIZE, _TEXT_SIZE, _TICK_SIZE = 11.0, 8.5, 8.0
_TICK_WIDTH_PX = 180
_KEY_WIDTH_PX = 190
_KEY_NAME_LINES = 3
_MIN_LEVEL_LABELS = 6
"""Numbers may be thinned to this many before they are slanted: what lies between two years is plain to see."""


@dataclass(frozen=True, slots=True)
class FittedLine:
    """The straight line through one group's means, fitted by the caller.

    Attributes:
        group: the word group, as in `groups`.
        slope: percent per step or unit of W; NaN where there is no line.
        r: Pearson correlation of the means with W; NaN where it is undefined.
        x: positions on the scale of W, rising [x].
        mean: the line in percent [x].
        low, high: its 95% confidence band in percent [x].
        step: what the slope is per.
    """

    group: str
    slope: float
    r: float
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    step: str = "step"


class _Means(NamedTuple):
    """What the dots show."""

    at: Floats  # [w] where a value stands on its scale
    labels: list[str]  # [w]
    percent: dict[str, Floats]  # group -> [w], NaN where nothing was scored


class _Ticks(NamedTuple):
    """The labels below the axis."""

    places: list[int]
    texts: list[str]
    widths_px: list[float]
    slant_degrees: int

    @property
    def depth_px(self) -> float:
        if not self.slant_degrees:
            return _line_px(_TICK_SIZE)
        return (max(self.widths_px) + _line_px(_TICK_SIZE)) * math.sin(math.radians(self.slant_degrees))


class _Key(NamedTuple):
    """The words beside the end of one group's line."""

    group: str
    lines: list[str]
    end_percent: float

    @property
    def height_px(self) -> float:
        return len(self.lines) * _line_px(_TEXT_SIZE)


def spectrum(  # noqa: PLR0913 - the rows, and what is written around them
    observations: pd.DataFrame,
    groups: Sequence[str],
    *,
    title: str,
    lines: Sequence[FittedLine] = (),
    x_label: str = "",
    measured: str = "Mean mass in percent",
    step: str = "step",
) -> Figure:
    """Draw the mean mass of each group against W, for one model, challenge, prompt and W.

    Args:
        observations: one row per item, with `w`, `w_index` and a column of mass in percent for each group; NaN where
            missing.
        groups: the word groups, in the order of their colours.
        title: broken into lines where it is too long.
        lines: the fitted line of each group that has one.
        x_label: what the values of W are called in the figure; their `w_name` if not given.
        measured: what the y axis shows.
        step: what a slope is per.

    Returns:
        A figure 800 pixels wide at 100 dots per inch, as high as its labels need.

    Raises:
        UndertowError: a column is missing, there is no row, or the rows mix models, challenges, prompts or Ws.
    """
    _check(observations, groups)
    means = _means(observations, groups)
    words = "".join([title, x_label, *groups, *means.labels, *observations.get("w_name", ())])
    with lettering(words):
        what = f"{measured}, by {plain(x_label or _w_name(observations))}"
        return _draw(means, [replace(line, step=step) for line in lines], plain(title), what)


def describe_spectrum(
    observations: pd.DataFrame, groups: Sequence[str], lines: Sequence[FittedLine] = (), measured: str = "Mean mass"
) -> str:
    """Alt text of the figure."""
    _check(observations, groups)
    means = _means(observations, groups)
    first, last, count = means.labels[0], means.labels[-1], len(means.labels)
    span = f"{count} values from {first} to {last}" if count > 1 else f"the one value {first}"
    start = f"{measured} by {plain(_w_name(observations))}, {span}."
    fitted = {line.group: line for line in lines}
    return " ".join([start, *(_describe_group(group, means, fitted.get(group)) for group in groups)])


def _describe_group(group: str, means: _Means, line: FittedLine | None) -> str:
    seen = means.percent[group][np.isfinite(means.percent[group])]
    if seen.size == 0:
        return f"{plain(group)}: nothing scored."
    if line is None or not math.isfinite(line.slope):
        return f"{plain(group)}: {number(seen.min(), 1)} to {number(seen.max(), 1)} percent, no line."
    ends = f"from {number(line.mean[0], 1)} to {number(line.mean[-1], 1)} percent along its line"
    return f"{plain(group)}: {ends}, {_tendency(line)}."


def _check(observations: pd.DataFrame, groups: Sequence[str]) -> None:
    missing = [name for name in ("w", "w_index", *groups) if name not in observations.columns]
    if missing:
        raise UndertowError(f"the figure cannot be drawn: its observations lack the column {missing[0]!r}")
    if observations.empty or not groups:
        raise UndertowError("the figure cannot be drawn: there are no observations, or no word groups, to draw")
    for factor in ("model", "challenge", "prompt", "w_name"):
        if factor in observations.columns and observations[factor].nunique(dropna=False) > 1:
            raise UndertowError(f"one figure shows one {factor}: choose the rows of one before drawing them")


def _w_name(observations: pd.DataFrame) -> str:
    return str(observations["w_name"].iloc[0]) if "w_name" in observations.columns else "W"


def _means(observations: pd.DataFrame, groups: Sequence[str]) -> _Means:
    by_value = observations.groupby("w_value" if "w_value" in observations else "w_index", sort=True)
    percent = by_value[list(groups)].mean()
    return _Means(
        at=percent.index.to_numpy(dtype=np.float64),
        labels=[plain(str(label)) for label in by_value["w"].first()],
        percent={group: percent[group].to_numpy(dtype=np.float64) for group in groups},
    )


# The sheet, in pixels, from the top: title, what x and y are, plot, tick labels. From the left: numbers, plot, key.


def _draw(means: _Means, lines: Sequence[FittedLine], title: str, measured: str) -> Figure:
    figure = Figure(figsize=(WIDTH_PX / DPI, 1), dpi=DPI)
    fitted = {line.group: line for line in lines if math.isfinite(line.slope)}
    keys = [_key(figure, group, means, fitted.get(group)) for group in means.percent]
    key_width = max(text_width_px(figure, text, _TEXT_SIZE) for key in keys for text in key.lines)
    plot_width = WIDTH_PX - _LEFT_PX - _KEY_GAP_PX - key_width - _EDGE_PX
    ticks, indent = _lay_ticks(figure, means, plot_width)
    left, plot_width = _LEFT_PX + indent, plot_width - indent

    title_lines = wrapped_lines(figure, title, _TITLE_SIZE, WIDTH_PX - 2 * _EDGE_PX)
    top = _EDGE_PX + len(title_lines) * _line_px(_TITLE_SIZE) + 2.2 * _line_px(_TEXT_SIZE)
    plot_height = max(_PLOT_HEIGHT_PX, sum(key.height_px + _KEY_SPACING_PX for key in keys))
    bottom = ticks.depth_px + _TICK_OFFSET_PX + _EDGE_PX
    height = top + plot_height + bottom
    figure.set_size_inches(WIDTH_PX / DPI, height / DPI)

    box = (left / WIDTH_PX, bottom / height, plot_width / WIDTH_PX, plot_height / height)
    axes = figure.add_axes(box)
    _draw_groups(axes, means, fitted)
    _draw_axes(axes, means, ticks, fitted)
    _draw_keys(axes, keys, plot_width, plot_height)
    _write(figure, "\n".join(title_lines), height - _EDGE_PX, _TITLE_SIZE, "bold")
    line = wrapped_lines(figure, measured, _TEXT_SIZE, WIDTH_PX - 2 * _EDGE_PX)[0]
    _write(figure, line, height - top + 1.7 * _line_px(_TEXT_SIZE), _TEXT_SIZE, "normal")
    return figure


def _write(figure: Figure, text: str, y_px: float, size: float, weight: str) -> None:
    x, y = (_EDGE_PX, y_px) / (figure.get_size_inches() * DPI)
    figure.text(x, y, text, size=size, weight=weight, va="top", linespacing=_LINE_HEIGHT)


def _draw_groups(axes: Axes, means: _Means, fitted: dict[str, FittedLine]) -> None:
    for place, (group, percent) in enumerate(means.percent.items()):
        look = style_of(place)
        if group in fitted:
            line = fitted[group]
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
            axes.plot(line.x, line.mean, color=look["color"], linewidth=1.6, zorder=3)
        axes.plot(means.at, percent, linestyle="none", clip_on=False, zorder=4, **look)


def style_of(place: int) -> dict[str, Any]:
    """Colour and marker of a group. Past eight groups the pairs shift, so that none comes twice before 64."""
    marker = MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]
    size = {"*": 8.0, "D": 4.8, "s": 5.0}.get(marker, 5.8)  # so that all look equally large
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": marker,
        "markersize": size,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
    }


def _draw_axes(axes: Axes, means: _Means, ticks: _Ticks, fitted: dict[str, FittedLine]) -> None:
    first, last = means.at[0], means.at[-1]
    margin = _MARGIN * (last - first) or 0.5
    axes.set_xlim(first - margin, last + margin)
    axes.set_ylim(0, _top_percent(means, fitted.values()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.grid(visible=True, color="#e4e4e4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=_TICK_SIZE)
    axes.spines["left"].set_visible(False)
    axes.set_xticks(means.at, minor=True)
    axes.tick_params(axis="x", which="minor", length=2.5, width=0.6)
    axes.tick_params(axis="x", which="major", length=5, width=0.8, labelsize=_TICK_SIZE)
    slanted: dict[str, Any] = {"ha": "right", "va": "center", "rotation_mode": "anchor"}
    slanted["rotation"] = ticks.slant_degrees
    axes.set_xticks(
        means.at[ticks.places],
        ticks.texts,
        **(slanted if ticks.slant_degrees else {}),
    )


def _top_percent(means: _Means, lines: Iterable[FittedLine]) -> float:
    """The end of the y axis: above every dot and line, and above the bands unless they dwarf the dots."""
    dots = _largest([*means.percent.values(), *(line.mean for line in lines)])
    bands = min(_largest([line.high for line in lines]), 1.3 * dots)
    return 1.08 * max(dots, bands) or 1.0


def _largest(arrays: Iterable[Floats]) -> float:
    finite = [array[np.isfinite(array)] for array in arrays]
    return float(max((array.max() for array in finite if array.size), default=0.0))


# The key: each group's words beside the end of its line, pushed apart where two would touch.


def _key(figure: Figure, group: str, means: _Means, line: FittedLine | None) -> _Key:
    name = wrapped_lines(figure, plain(group), _TEXT_SIZE, _KEY_WIDTH_PX)
    if len(name) > _KEY_NAME_LINES:
        name = [*name[: _KEY_NAME_LINES - 1], name[_KEY_NAME_LINES - 1] + "\N{HORIZONTAL ELLIPSIS}"]
    finite = np.flatnonzero(np.isfinite(means.percent[group]))
    if line is not None:
        return _Key(group, [*name, _tendency(line)], float(line.mean[-1]))
    if finite.size:
        return _Key(group, [*name, "no line"], float(means.percent[group][finite[-1]]))
    return _Key(group, [*name, "nothing scored"], math.nan)


def _tendency(line: FittedLine) -> str:
    r = f"r = {correlation(line.r)}" if math.isfinite(line.r) else "r undefined"
    return f"{slope(line.slope)} per {line.step}, {r}"


def _draw_keys(axes: Axes, keys: Sequence[_Key], plot_width: float, plot_height: float) -> None:
    top_percent = axes.get_ylim()[1]
    ends = np.array([np.clip(np.nan_to_num(key.end_percent) / top_percent, 0, 1) * plot_height for key in keys])
    centres = _apart(ends, np.array([key.height_px + _KEY_SPACING_PX for key in keys]), plot_height)
    for place, (key, end, centre) in enumerate(zip(keys, ends, centres, strict=True)):
        look = style_of(place)
        leader = np.array([[plot_width + 2, end], [plot_width + 12, end], [plot_width + 24, centre]])
        across, up = (leader / [plot_width, plot_height]).T
        on_plot: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        if math.isfinite(key.end_percent):
            axes.plot(across, up, color=look["color"], linewidth=0.8, **on_plot)
        axes.plot((plot_width + 33) / plot_width, centre / plot_height, linestyle="none", **look, **on_plot)
        for row, text in enumerate(key.lines):
            line_px = _line_px(_TEXT_SIZE)
            y_px = centre + key.height_px / 2 - (row + 0.5) * line_px
            last = row == len(key.lines) - 1
            axes.text(
                (plot_width + _KEY_GAP_PX) / plot_width,
                y_px / plot_height,
                text,
                size=_TEXT_SIZE,
                weight="normal" if last else "bold",
                va="center_baseline",
                transform=axes.transAxes,
            )


def _apart(wanted: Floats, heights: Floats, room: float) -> Floats:
    """Centres nearest to those wanted, in least squares, at which boxes of these heights do not overlap [box].

    Sorted from below, with `below` the height of all boxes under a box, centres must satisfy
    c[i+1] - c[i] >= (h[i] + h[i+1]) / 2, that is, c[i] - (below[i] + h[i] / 2) must not fall: isotonic regression.
    """
    order = np.argsort(wanted, kind="stable")
    offset = np.cumsum(heights[order]) - heights[order] / 2
    floor = isotonic_regression(wanted[order] - offset).x
    centres = np.empty_like(wanted)
    centres[order] = np.clip(floor, 0, max(room - heights.sum(), 0)) + offset
    return centres


# Tick labels: level where they fit, else slanted, else every second, third ... with first and last always named.


def _lay_ticks(figure: Figure, means: _Means, room_px: float) -> tuple[_Ticks, float]:
    """The tick labels, and how much of the room they need at the left for the slanted ones."""
    texts = [_cut(figure, label) for label in means.labels]
    widths = np.array([text_width_px(figure, text, _TICK_SIZE, "normal") for text in texts])
    along = (means.at - means.at[0]) / max(means.at[-1] - means.at[0], 1.0) / (1 + 2 * _MARGIN)
    for slant in (0, *_SLANTS_DEGREES):
        half_px, reach_px = _extent_px(widths, slant)
        indent = _indent_px(reach_px, along * room_px)
        places = _fitting(along * (room_px - indent), half_px)
        if len(places) >= (len(texts) if slant else _fewest_level(means.labels)):
            break
    chosen = [texts[place] for place in places], [float(widths[place]) for place in places]
    return _Ticks(places, *chosen, slant), indent


def _extent_px(widths: Floats, slant_degrees: int) -> tuple[Floats, Floats]:
    """Half the stretch of axis that a label takes for itself, and how far left of its place it reaches [w]."""
    if not slant_degrees:
        return (widths + _TICK_GAP_PX) / 2, widths / 2
    slant = math.radians(slant_degrees)
    return np.full_like(widths, _TICK_PITCH_PX / math.sin(slant) / 2), widths * math.cos(slant)


def _indent_px(reach_px: Floats, x_px: Floats) -> float:
    """How far the plot must move right so that labels which reach this far left of their places stay on the sheet."""
    beyond = reach_px - 0.8 * x_px  # the places draw together as the plot gives way, by no more than this
    return max(float(beyond.max()) + _EDGE_PX - _LEFT_PX, 0.0)


def _fewest_level(labels: Sequence[str]) -> int:
    """How many of these labels must fit side by side, or they are slanted."""
    numbers = all(re.fullmatch(r"[\d\s.,:/+-]+", label) for label in labels)
    return min(len(labels), _MIN_LEVEL_LABELS) if numbers else len(labels)


def _fitting(x_px: Floats, half_px: Floats) -> list[int]:
    """The most places, evenly spread, whose labels do not touch; the first and the last whatever they do."""
    for places in _thinned(len(x_px)):
        if np.all(np.diff(x_px[places]) >= half_px[places][1:] + half_px[places][:-1]):
            return places
    return [0, len(x_px) - 1]


def _thinned(count: int) -> Iterator[list[int]]:
    """Ever fewer places out of `count`, evenly spread, the first and the last among them."""
    for step in range(1, max(count, 2)):
        kept = (count - 1) // step + 1
        yield [int(place) for place in np.round(np.linspace(0, count - 1, kept))]


def _cut(figure: Figure, label: str) -> str:
    """The label, or as much of it as stays short enough to be slanted below the axis."""
    cuts = (shortened(label, letters) for letters in range(min(len(label), 60), 1, -1))
    return next((cut for cut in cuts if text_width_px(figure, cut, _TICK_SIZE, "normal") <= _TICK_WIDTH_PX), label[:1])


# Measuring text.


def _line_px(size: float) -> float:
    return size * _LINE_HEIGHT * DPI / 72


def text_width_px(figure: Figure, text: str, size: float, weight: str = "bold") -> float:
    """How wide a text is, in pixels of 1/100 inch."""
    return _width_px(text, size, weight, figure.dpi, tuple(rcParams["font.family"]))


@lru_cache(maxsize=2**14)
def _width_px(text: str, size: float, weight: str, dpi: float, families: tuple[str, ...]) -> float:
    font = FontProperties(family=families, size=size, weight=weight)
    width: float = RendererAgg(1, 1, dpi).get_text_width_height_descent(text, font, False)[0]
    return width


def wrapped_lines(figure: Figure, text: str, size: float, width_px: float) -> list[str]:
    """The text in lines no wider than this; a word that is too long is broken."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if text_width_px(figure, joined, size) <= width_px:
            lines[-1] = joined
            continue
        lines = [*lines, *_broken(figure, word, size, width_px)] if lines[-1] else _broken(figure, word, size, width_px)
    return lines


def _broken(figure: Figure, word: str, size: float, width_px: float) -> list[str]:
    parts = [""]
    for sign in word:
        if parts[-1] and text_width_px(figure, parts[-1] + sign, size) > width_px:
            parts.append("")
        parts[-1] += sign
    return parts
