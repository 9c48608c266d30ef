"""Measures of one model's checkpoints against training step. Not in the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import style_of, text_width_px
from undertow.report.formatting import plain, shortened, significant
from undertow.report.layout import (
    EDGE_PX,
    GREY,
    GRID,
    SMALL_SIZE,
    TEXT_SIZE,
    Sheet,
    amount,
    even_ticks,
    height_px,
    line_px,
)
from undertow.report.style import lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

MAX_PANELS = 8
NO_GROUP = "all"
_COLUMNS = ("step", "measure", "group", "value", "low", "high", "unit", "null_value")
_ONE_PX, _MIN_PX, _ALL_PX = 320.0, 125.0, 700.0
_GAP_PX = 12
_BELOW_PX = 46
"""From the last panel to the small print, for the ticks and what they are."""
_FACTOR = 100
"""Steps that span this factor, most of them early, are drawn by factors of ten."""


class _Trajectory(NamedTuple):
    """One group's values, by rising step."""

    steps: Floats  # [step]
    value: Floats  # [step], NaN where there is none
    low: Floats
    high: Floats


class _Measure(NamedTuple):
    """What one panel shows."""

    title: str
    unit: str
    null_values: list[float]
    courses: dict[str, _Trajectory]  # by group


def trajectory(points: pd.DataFrame, *, title: str) -> Figure:
    """Draw each measure against training step, one panel for each, one line for each group.

    A value of NaN breaks its line and is a cross at the bottom. Beyond eight measures, those after the eighth are left
    out, and said to be. Steps that are mostly early and span a factor of 100 stand by factors of ten.

    Args:
        points: a row for each step, measure and group, with `step`, `measure`, `group`, `value`, `low`, `high`, `unit`
            and `null_value` (what no bias would give; NaN where nothing is neutral).
        title: broken into lines where it is too long.

    Returns:
        A figure 800 pixels wide at 100 dots per inch, as high as its panels need.

    Raises:
        UndertowError: a column is missing, there is no row, or a group has two values of a measure at one step.
    """
    measures = _measures(points)
    drawn, groups = measures[:MAX_PANELS], list(dict.fromkeys(points["group"].astype(str)))
    words = [title, *groups, *(measure.title + measure.unit for measure in measures)]
    with lettering("".join(words)):
        sheet = Sheet(title, _lead(drawn), _foot(measures))
        _draw(sheet, drawn, groups, np.unique(points["step"].to_numpy(dtype=np.float64)))
        return sheet.figure


def describe_trajectory(points: pd.DataFrame) -> str:
    """Alt text of `trajectory`."""
    measures = _measures(points)
    steps = sorted(set(points["step"].astype(int)))
    span = f"{len(steps)} training steps from {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]} alone"
    sentences = [
        " ".join([_titled(measure) + ":", "; ".join(_describe(*one) for one in measure.courses.items()) + "."])
        for measure in measures[:MAX_PANELS]
    ]
    return " ".join([f"Measures at {span}.", *sentences, *_foot(measures)])


def _describe(group: str, course: _Trajectory) -> str:
    name, known = plain(group) or NO_GROUP, np.flatnonzero(np.isfinite(course.value))
    if not known.size:
        return f"{name} has no value"
    ends = [_describe_point(course, int(place)) for place in dict.fromkeys((known[0], known[-1]))]
    seen = course.value[known]
    span = f", between {significant(seen.min())} and {significant(seen.max())}" if known.size > 2 else ""
    none = course.steps[~np.isfinite(course.value)]
    lost = f", no value at step {', '.join(f'{step:.0f}' for step in none)}" if none.size else ""
    return f"{name} {' to '.join(ends)}{span}{lost}"


def _describe_point(course: _Trajectory, place: int) -> str:
    low, high = course.low[place], course.high[place]
    interval = f" ({significant(low)} to {significant(high)})" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{significant(course.value[place])}{interval} at step {course.steps[place]:.0f}"


def _titled(measure: _Measure) -> str:
    unit = f" ({plain(measure.unit)})" if plain(measure.unit) else ""
    null_value = f", {significant(measure.null_values[0])} without bias" if len(measure.null_values) == 1 else ""
    return f"{plain(measure.title)}{unit}{null_value}"


def _measures(points: pd.DataFrame) -> list[_Measure]:
    missing = [name for name in _COLUMNS if name not in points.columns]
    if missing:
        raise UndertowError(f"the trajectory cannot be drawn: its table lacks the column {missing[0]!r}")
    if points.empty:
        raise UndertowError("the trajectory cannot be drawn: no checkpoint has a value, so audit at least one")
    twice = points.duplicated(["step", "measure", "group"])
    if twice.any():
        step, measure, group = points.loc[twice, ["step", "measure", "group"]].iloc[0]
        raise UndertowError(
            f"the trajectory cannot be drawn: {group!r} has two values of {measure!r} at step {step}: "
            "choose the rows of one model, challenge and prompt before drawing them"
        )
    trajectories = []
    for title, rows in points.groupby("measure", sort=False):
        null_value = rows["null_value"].to_numpy(dtype=np.float64)
        trajectories.append(
            _Measure(
                title=str(title),
                unit=", ".join(dict.fromkeys(unit for unit in rows["unit"].astype(str) if unit)),
                null_values=[float(value) for value in np.unique(null_value[np.isfinite(null_value)])],
                courses={str(group): _course(part) for group, part in rows.groupby("group", sort=False)},
            )
        )
    return trajectories


def _course(rows: pd.DataFrame) -> _Trajectory:
    ordered = rows.sort_values("step")[["step", "value", "low", "high"]].to_numpy(dtype=np.float64)
    return _Trajectory(*np.where(np.isfinite(ordered), ordered, np.nan).T)


def _lead(measures: Sequence[_Measure]) -> str:
    said = ["Each measure by training step, with 95% interval."]
    if any(measure.null_values for measure in measures):
        said.append("Dotted: what no bias would give.")
    if any(np.isnan(course.value).any() for measure in measures for course in measure.courses.values()):
        said.append("Cross: no value at that step.")
    return " ".join(said)


def _foot(measures: Sequence[_Measure]) -> list[str]:
    left_out = [shortened(plain(measure.title), 60) for measure in measures[MAX_PANELS:]]
    if not left_out:
        return []
    return [f"{MAX_PANELS} of {len(measures)} measures are shown, {len(left_out)} left out: {', '.join(left_out)}."]


def _draw(sheet: Sheet, measures: Sequence[_Measure], groups: Sequence[str], steps: Floats) -> None:
    legend = sheet.group_legend(groups, NO_GROUP) if groups != [""] else None
    legend_px = height_px(legend) + 10 if legend else 0.0
    name_px = line_px(TEXT_SIZE) + 6
    panel_px = max(_MIN_PX, min(_ONE_PX, _ALL_PX / len(measures)))
    top = sheet.settle(legend_px + len(measures) * (name_px + panel_px + _GAP_PX) - _GAP_PX + _BELOW_PX)
    if legend:
        sheet.put(legend, EDGE_PX, top)
    ranges = [_range(measure) for measure in measures]
    ticks = [even_ticks(*ends, most=4) for ends in ranges]
    left = (
        EDGE_PX + 10 + max(text_width_px(sheet.figure, text, SMALL_SIZE) for named in ticks for text in named.values())
    )
    width_px = sheet.width_px - left - 2 * EDGE_PX
    top -= legend_px
    for place, measure in enumerate(measures):
        _write_name(sheet, measure, left, top - 0.8 * line_px(TEXT_SIZE), width_px)
        axes = sheet.axes(left, top - name_px - panel_px, width_px, panel_px)
        axes.set_ylim(*ranges[place])
        axes.set_yticks(list(ticks[place]), list(ticks[place].values()))
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        _scale_steps(axes, steps, named=place == len(measures) - 1)
        _draw_courses(axes, measure, groups)
        top -= name_px + panel_px + _GAP_PX


def _write_name(sheet: Sheet, measure: _Measure, x_px: float, y_px: float, width_px: float) -> None:
    unit = sheet.fit(plain(measure.unit), width_px / 3)
    unit_px = text_width_px(sheet.figure, unit, SMALL_SIZE, "normal") + 10 if unit else 0.0
    name = sheet.fit(plain(measure.title), width_px - unit_px, TEXT_SIZE, "bold")
    sheet.write(x_px, y_px, name, size=TEXT_SIZE, weight="bold", va="baseline")
    sheet.write(
        x_px + text_width_px(sheet.figure, name, TEXT_SIZE) + 8, y_px, unit, size=SMALL_SIZE, color=GREY, va="baseline"
    )


def _range(measure: _Measure) -> tuple[float, float]:
    """Ends of the y axis: around every value, interval and neutral value, with room below for crosses."""
    seen = [array for course in measure.courses.values() for array in (course.value, course.low, course.high)]
    ends = np.concatenate([*seen, np.array(measure.null_values)])
    ends = ends[np.isfinite(ends)]
    low, high = (float(ends.min()), float(ends.max())) if ends.size else (0.0, 1.0)
    span = high - low or abs(high) or 1.0
    rows = sum(bool(np.isnan(course.value).any()) for course in measure.courses.values())
    return low - (0.08 + min(0.07 * rows, 0.4)) * span, high + 0.08 * span


def _scale_steps(axes: Axes, steps: Floats, named: bool) -> None:
    first, last = float(steps[0]), float(steps[-1])
    if _by_factors(steps):
        least = float(steps[steps > 0][0])
        axes.set_xscale("symlog", linthresh=least, linscale=0.4)
        axes.set_xlim(-0.1 * least if first <= 0 else 0.8 * first, 1.25 * last)
        decades = range(math.ceil(math.log10(least)), math.floor(math.log10(last)) + 1)
        ticks = [*([0.0] if first <= 0 else []), *(10.0**decade for decade in decades)]
    else:
        margin = 0.03 * (last - first) or 1.0
        axes.set_xlim(first - margin, last + margin)
        ticks_in_range = (
            MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=True).tick_values(first, last)
            if last > first
            else [first]
        )
        ticks = [float(step) for step in ticks_in_range if first - margin <= step <= last + margin]
    axes.set_xticks(ticks, [_step(tick) for tick in ticks] if named else [""] * len(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    if named:
        axes.set_xlabel("training step", size=TEXT_SIZE)


def _by_factors(steps: Floats) -> bool:
    positive = steps[steps > 0]
    return positive.size > 3 and positive[-1] / positive[0] >= _FACTOR and np.median(positive) < positive[-1] / 10


def _step(step: float) -> str:
    """Format a step in short form if that is exact."""
    short = amount(step) if step > 0 else ""
    return short if step >= 1000 and step == float(f"{step:.3g}") else f"{step:.0f}"


def _draw_courses(axes: Axes, measure: _Measure, groups: Sequence[str]) -> None:
    for null_value in measure.null_values:
        axes.axhline(null_value, color="#333333", linewidth=1.0, linestyle=":", zorder=1.5)
    rows_of_crosses = 0
    for place, group in enumerate(groups):
        if group not in measure.courses:
            continue
        course, look = measure.courses[group], style_of(place)
        axes.fill_between(course.steps, course.low, course.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
        for at in np.flatnonzero(_alone(course)):
            ends = [course.low[at], course.high[at]]
            axes.plot([course.steps[at]] * 2, ends, color=look["color"], linewidth=1.2, alpha=0.8, zorder=3)
        axes.plot(course.steps, course.value, linewidth=1.5, zorder=4, **look)
        lost = course.steps[np.isnan(course.value)]
        if lost.size:
            height = 0.06 + 0.06 * rows_of_crosses
            cross = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.2, "color": look["color"]}
            axes.plot(
                lost, [height] * lost.size, linestyle="none", transform=axes.get_xaxis_transform(), zorder=5, **cross
            )
            rows_of_crosses += 1


def _alone(course: _Trajectory) -> Floats:
    """Mask of intervals without a neighbour to span a band to [step]."""
    has = np.isfinite(course.low) & np.isfinite(course.high)
    beside = np.concatenate([[False], has, [False]])
    return np.asarray(has & ~beside[:-2] & ~beside[2:])
