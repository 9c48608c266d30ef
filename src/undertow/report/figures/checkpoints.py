"""Measures of one model's checkpoints against training step. Not in the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from undertow.report.formatting import plain, short_count, shortened, significant
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, even_ticks, fitted, hover, padded
from undertow.report.style import GREY, INK, SMALL_SIZE, TEXT_SIZE, lettering, style_of
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

MAX_PANELS = 8
NO_GROUP = "all"
_ONE_IN, _MIN_IN, _ALL_IN = 3.2, 1.25, 7.0
_FACTOR = 100
"""Steps over at least this range, most of them early, have a logarithmic axis."""


class _Trajectory(NamedTuple):
    """One group's values, by rising step."""

    steps: Floats  # [step]
    value: Floats  # [step], NaN if missing
    low: Floats
    high: Floats

    def finite_points(self) -> list[tuple[float, ...]]:
        """Value, limits of the interval and step of each point that has a value."""
        rows = zip(self.value.tolist(), self.low.tolist(), self.high.tolist(), self.steps.tolist(), strict=True)
        return [row for row in rows if math.isfinite(row[0])]

    def missing_steps(self) -> list[float]:
        """Steps without a value."""
        return [float(step) for step in self.steps[np.isnan(self.value)]]


class _Measure(NamedTuple):
    """Content of one panel."""

    title: str
    unit: str
    null_values: list[float]
    courses: dict[str, _Trajectory]  # by group


def draw_trajectory(name: str, points: pd.DataFrame, title: str) -> Drawing:
    """Draw each measure against training step, one panel for each, one line for each group.

    A value of NaN interrupts its line and is drawn as a cross at the bottom. At most eight measures are shown; a note names the others.
    The axis is logarithmic if most steps are early and they span a factor of 100.

    Args:
        name: name of the drawing's files.
        points: a row for each step, measure and group, with `step`, `measure`, `group`, `value`, `low`, `high`, `unit`
            and `null_value` (value without bias; NaN if undefined).
        title: broken into lines where it is too long.
    """
    measures = _measures(points)
    drawn, groups = measures[:MAX_PANELS], list(dict.fromkeys(points["group"].astype(str)))
    lead = ["Each measure by training step, with 95% interval."]
    if any(measure.null_values for measure in drawn):
        lead.append("Dotted: value without bias.")
    if any(np.isnan(course.value).any() for measure in drawn for course in measure.courses.values()):
        lead.append("Cross: no value at that step.")
    with lettering("".join([title, *groups, *(measure.title + measure.unit for measure in measures)])):
        sheet = Sheet(title, " ".join(lead), _left_out(measures))
        if groups != [""]:
            sheet.key_of_groups(groups, NO_GROUP)
        (column,) = sheet.subplots(len(drawn), sharex=True, squeeze=False).T
        for axes, measure in zip(column, drawn, strict=True):
            width = sheet.inner_in - 0.6
            axes.set_title(fitted(measure.title, 0.62 * width, TEXT_SIZE, "bold"))
            small = {"size": SMALL_SIZE, "color": GREY, "weight": "normal"}
            axes.set_title(fitted(measure.unit, 0.35 * width), loc="right", **small)
            _draw_courses(axes, measure, groups)
        _scale_steps(column[-1], np.unique(points["step"].to_numpy(dtype=np.float64)))
        sheet.finish(column, len(drawn) * max(_MIN_IN, min(_ONE_IN, _ALL_IN / len(drawn))))
    caption = "Each measure at every checkpoint, with its 95% interval; the dotted line is the null value."
    steps = sorted(set(points["step"].astype(int)))
    return Drawing(name, sheet, caption, described("trajectory", drawn, steps, _left_out(measures)))


def _measures(points: pd.DataFrame) -> list[_Measure]:
    trajectories = []
    for title, rows in points.groupby("measure", sort=False):
        null_value = rows["null_value"].to_numpy(dtype=np.float64)
        courses = {}
        for group, part in rows.groupby("group", sort=False):
            ordered = part.sort_values("step")[["step", "value", "low", "high"]].to_numpy(dtype=np.float64)
            courses[str(group)] = _Trajectory(*np.where(np.isfinite(ordered), ordered, np.nan).T)
        unit = ", ".join(dict.fromkeys(unit for unit in rows["unit"].astype(str) if unit))
        nothing = [float(value) for value in np.unique(null_value[np.isfinite(null_value)])]
        trajectories.append(_Measure(str(title), unit, nothing, courses))
    return trajectories


def _left_out(measures: Sequence[_Measure]) -> list[str]:
    left_out = ", ".join(shortened(plain(measure.title), 60) for measure in measures[MAX_PANELS:])
    return [f"{MAX_PANELS} of {len(measures)} measures are shown, without {left_out}."] if left_out else []


def _draw_courses(axes: Axes, measure: _Measure, groups: Sequence[str]) -> None:
    for null_value in measure.null_values:
        axes.axhline(null_value, color=INK, linewidth=1.0, linestyle=":", zorder=1.5)
    seen = [array for course in measure.courses.values() for array in (course.value, course.low, course.high)]
    rows_of_crosses = 0
    for place, group in enumerate(groups):
        if group not in measure.courses:
            continue
        course, look = measure.courses[group], style_of(place)
        axes.fill_between(course.steps, course.low, course.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
        # Intervals without a neighbour, for which no band can be drawn.
        has = np.isfinite(course.low) & np.isfinite(course.high)
        beside = np.concatenate([[False], has, [False]])
        for at in np.flatnonzero(has & ~beside[:-2] & ~beside[2:]):
            ends = [course.low[at], course.high[at]]
            axes.plot([course.steps[at]] * 2, ends, color=look["color"], linewidth=1.2, alpha=0.8, zorder=3)
        axes.plot(course.steps, course.value, linewidth=1.5, zorder=4, **look)
        lines = [
            f"{group} at step {_step(at)}: {significant(value)}".strip()
            for at, value in zip(course.steps, course.value, strict=True)
        ]
        hover(axes, course.steps, course.value, lines)
        lost = course.steps[np.isnan(course.value)]
        if lost.size:
            rows_of_crosses += 1
            cross: dict[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.2, "linestyle": "none"}
            cross |= {"color": look["color"], "transform": axes.get_xaxis_transform(), "zorder": 5}
            axes.plot(lost, [0.06 * rows_of_crosses] * lost.size, **cross)
    low, high = padded(np.concatenate([*seen, np.array(measure.null_values)]), air=0.08)
    axes.set_ylim(low - min(0.07 * rows_of_crosses, 0.4) * (high - low), high)
    axes.yaxis.set_major_locator(even_ticks(4))
    axes.grid(axis="y")


def _scale_steps(axes: Axes, steps: Floats) -> None:
    """Linear axis, or a logarithmic one if most steps are early and they span a factor of 100."""
    first, last, positive = float(steps[0]), float(steps[-1]), steps[steps > 0]
    if positive.size > 3 and positive[-1] / positive[0] >= _FACTOR and np.median(positive) < positive[-1] / 10:
        least = float(positive[0])
        axes.set_xscale("symlog", linthresh=least, linscale=0.4)
        axes.set_xlim(-0.1 * least if first <= 0 else 0.8 * first, 1.25 * last)
        decades = range(math.ceil(math.log10(least)), math.floor(math.log10(last)) + 1)
        ticks = [*([0.0] if first <= 0 else []), *(10.0**decade for decade in decades)]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
    else:
        axes.set_xlim(*padded(steps, air=0.03))
        one = FixedLocator([first])
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], integer=True) if last > first else one)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: _step(step)))
    axes.set_xlabel("training step")


def _step(step: float) -> str:
    """A step, shortened if that is exact."""
    short = short_count(step) if step > 0 else ""
    return short if step >= 1000 and step == float(f"{step:.3g}") else f"{step:.0f}"
