"""Mean mass of each word group along the values of W, with fitted lines.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI),
figures 3c and 7c; McMilin 2022 (ICML workshop), figure 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation, Transform

from undertow.report.formatting import correlation, number, plain, slope
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, apart, even_ticks, fitted, hover, line_in, text_width
from undertow.report.style import SMALL_SIZE, TEXT_SIZE, lettering, style_of
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

_PLOT_IN, _COLUMN_PLOT_IN = 3.5, 2.2
"""Heights of the plot at the width of a page and of a journal's column."""
_TICK_IN = 1.8
"""Maximum length of a tick label."""
_MIN_LEVEL_LABELS = 6
"""Numeric labels are thinned to this number before they are slanted."""


@dataclass(frozen=True, slots=True)
class FittedLine:
    """The straight line through one group's means, fitted by the caller.

    Attributes:
        group: the word group, as in `groups`.
        slope: percent per step or unit of W; NaN if there is no line.
        r: Pearson correlation of the means with W; NaN if undefined.
        x: positions on the scale of W, ascending [x].
        mean: the line in percent [x].
        low, high: its 95% confidence band in percent [x].
        step: unit of W in the slope.
    """

    group: str
    slope: float
    r: float
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    step: str = "step"

    @property
    def tendency(self) -> str:
        """Slope and r in words."""
        r = f"r = {correlation(self.r)}" if math.isfinite(self.r) else "r undefined"
        return f"{slope(self.slope)} per {self.step}, {r}"


class Means(NamedTuple):
    """Means as dots, and the fitted lines."""

    at: Floats  # [w] position of a value on its scale
    labels: list[str]  # [w]
    percent: dict[str, Floats]  # group -> [w], NaN if not scored
    lines: dict[str, FittedLine]  # by group

    @property
    def scored(self) -> bool:
        """Whether any group has a number."""
        return any(map(self.finite_means, self.percent))

    def finite_means(self, group: str) -> list[float]:
        """Finite means of a group."""
        return [value for value in self.percent[group].tolist() if math.isfinite(value)]


def means_of(observations: pd.DataFrame, groups: Sequence[str], lines: Iterable[FittedLine]) -> Means:
    """Mean of each group at each value of W."""
    scale = "w_value" if "w_value" in observations else "w_index"
    by_value = observations.astype(dict.fromkeys(groups, np.float64)).groupby(scale, sort=True)
    percent = by_value[list(groups)].mean()
    return Means(
        at=percent.index.to_numpy(dtype=np.float64),
        labels=[plain(str(label)) for label in by_value["w"].first()],
        percent={group: percent[group].to_numpy(dtype=np.float64) for group in groups},
        lines={line.group: line for line in lines if math.isfinite(line.slope)},
    )


def spectrum(  # noqa: PLR0913 - the rows, and what is written around them
    observations: pd.DataFrame,
    groups: Sequence[str],
    *,
    title: str,
    lines: Sequence[FittedLine] = (),
    x_label: str = "",
    measured: str = "Mean mass in percent",
) -> Figure:
    """Draw the mean mass of each group against W, for one model, challenge, prompt and W.

    Args:
        observations: one row per item, with `w`, `w_index` and a column of mass in percent for each group; NaN where
            missing.
        groups: the word groups, in the order of their colours.
        title: broken into lines where it is too long.
        lines: the fitted line of each group that has one.
        x_label: label of the x axis; default: `w_name`.
        measured: label of the y axis.
    """
    means = means_of(observations, groups, lines)
    with lettering("".join([title, x_label, *groups, *means.labels, *observations.get("w_name", ())])):
        sheet = Sheet(title, f"{measured}, by {plain(x_label or w_name_of(observations))}")
        axes = sheet.add_subplot()
        draw_means(axes, means)
        top = top_percent([means])
        axes.set(ylim=(0, top))
        beside = sheet.width_in > 5.5
        if beside:
            key_in = _write_key(sheet, axes, means, top)
        else:
            sheet.key_of_groups([f"{plain(group)} ({_tendency(means, group)})" for group in means.percent])
            key_in = 0.0
        name_values(axes, means.at, means.labels, sheet.inner_in - key_in - 0.5)
        return sheet.finish([axes], max(_PLOT_IN, 0.42 * len(groups)) if beside else _COLUMN_PLOT_IN)


def describe_spectrum(
    observations: pd.DataFrame, groups: Sequence[str], lines: Sequence[FittedLine] = (), measured: str = "Mean mass"
) -> str:
    """Alt text of the figure."""
    return described("spectrum", means_of(observations, groups, lines), w_name_of(observations), measured)


def w_name_of(observations: pd.DataFrame) -> str:
    """Name of W."""
    return str(observations["w_name"].iloc[0]) if "w_name" in observations.columns else "W"


def draw_means(axes: Axes, means: Means, size: float = 1.0) -> None:
    """Dots, lines and bands of each group."""
    for place, (group, percent) in enumerate(means.percent.items()):
        look = style_of(place)
        if line := means.lines.get(group):
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
            axes.plot(line.x, line.mean, color=look["color"], linewidth=1.6, zorder=3)
        small = {"markersize": size * look["markersize"], "markeredgewidth": size * 0.6}
        axes.plot(means.at, percent, linestyle="none", clip_on=False, zorder=4, **look | small)
        texts = [f"{label}: {group} {number(value, 1)}%" for label, value in zip(means.labels, percent, strict=True)]
        hover(axes, means.at, percent, texts)
    axes.yaxis.set_major_locator(even_ticks())
    axes.grid(axis="y")


def top_percent(panels: Iterable[Means]) -> float:
    """Upper end of the y axis: above every dot and line, and above the bands unless they are much wider than the dots' range."""
    panels = list(panels)
    lines = [line for panel in panels for line in panel.lines.values()]
    seen = [values for panel in panels for values in panel.percent.values()]
    dots = _largest([*seen, *(line.mean for line in lines)])
    return 1.08 * max(dots, min(_largest([line.high for line in lines]), 1.3 * dots)) or 1.0


def _largest(arrays: Iterable[Floats]) -> float:
    return max((float(array[np.isfinite(array)].max(initial=0.0)) for array in arrays), default=0.0)


def _tendency(means: Means, group: str) -> str:
    if group in means.lines:
        return means.lines[group].tendency
    return "no line" if np.isfinite(means.percent[group]).any() else "nothing scored"


def _write_key(sheet: Sheet, axes: Axes, means: Means, top: float) -> float:
    """Write each group's name at the end of its line or last dot, without overlap; returns their width in inches."""
    ends = {}
    for group, percent in means.percent.items():
        seen = percent[np.isfinite(percent)]
        ends[group] = float(means.lines[group].mean[-1]) if group in means.lines else seen[-1] if seen.size else 0.0
    shares = np.clip(np.array(list(ends.values())) / top, 0, 1)
    names = [fitted(group, 1.9, TEXT_SIZE, "bold", lines=2) for group in means.percent]
    height = max(_PLOT_IN, 0.42 * len(names))
    most = max(name.count("\n") for name in names) + 2
    gap = (most * line_in(TEXT_SIZE) + 0.08) / height
    places = apart(shares, gap, gap / 2, 1 - gap / 2) if gap * len(names) < 1 else apart(shares, 1 / len(names), 0, 1)
    for place, (group, name) in enumerate(zip(means.percent, names, strict=True)):
        look, end = style_of(place), shares[place]
        up = height * (places[place] - end)

        def right(inches: float, above: float = up) -> Transform:
            return axes.transAxes + ScaledTranslation(inches, above, sheet.dpi_scale_trans)

        if np.isfinite(means.percent[group]).any():
            leader: dict[str, Any] = {"xycoords": axes.transAxes, "textcoords": right(0.24), "annotation_clip": False}
            line = {"arrowstyle": "-", "color": look["color"], "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (1.0, end), (1.0, end), arrowprops=line, **leader)
        axes.plot([1.0], [end], linestyle="none", clip_on=False, transform=right(0.33), **look)
        rows = [*name.split("\n"), _tendency(means, group)]
        for row, text in enumerate(rows):
            place_of_row = right(0.44, up + line_in(TEXT_SIZE) * ((len(rows) - 1) / 2 - row))
            weight = "normal" if text is rows[-1] else "bold"
            axes.text(1.0, end, text, transform=place_of_row, size=TEXT_SIZE, weight=weight, va="center_baseline")
    widths = [text_width(line, TEXT_SIZE, "bold") for name in names for line in name.split("\n")]
    widths += [text_width(_tendency(means, group), TEXT_SIZE) for group in means.percent]
    return 0.45 + max(widths)


def name_values(axes: Axes, at: Floats, labels: Sequence[str], room_in: float) -> None:
    """Write tick labels at these places: horizontal if they fit, else slanted; as many as fit, always the first and the last."""
    first, last = at[0], at[-1]
    axes.set_xlim(first - (0.02 * (last - first) or 0.5), last + (0.02 * (last - first) or 0.5))
    # One artist marks all values: separate ticks would dominate the time of drawing.
    at_foot = axes.get_xaxis_transform()
    axes.vlines(at, -0.01, 0, color="#8a8a8a", linewidth=0.6, clip_on=False, transform=at_foot)
    texts = [fitted(label, _TICK_IN) for label in labels]
    along = (at - first) / max(last - first, 1e-9) * room_in / 1.04  # 0.02 of it at each end
    level = _spaced(along, np.array([text_width(text) for text in texts]) + 0.06)
    numbers = all(re.fullmatch(r"[\d\s.,:/+-]+", text) for text in texts)
    if len(level) >= (min(len(texts), _MIN_LEVEL_LABELS) if numbers else len(texts)):
        axes.set_xticks(at[level], [texts[place] for place in level])
        return
    for slant in (45, 60):  # 45 degrees if every name fits
        kept = _spaced(along, np.full(len(texts), 1.15 * line_in(SMALL_SIZE) / np.sin(np.radians(slant))))
        if len(kept) == len(texts):
            break
    look: dict[str, Any] = {"rotation": slant, "ha": "right", "va": "center", "rotation_mode": "anchor"}
    axes.set_xticks(at[kept], [texts[place] for place in kept], **look)


def _spaced(along: Floats, taken: Floats) -> list[int]:
    """The largest evenly spaced set of places whose labels do not overlap, always with the first and the last."""
    for step in range(1, len(along)):
        places = np.unique(np.linspace(0, len(along) - 1, (len(along) - 1) // step + 1).round().astype(int))
        if (np.diff(along[places]) >= (taken[places][1:] + taken[places][:-1]) / 2).all():
            return [int(place) for place in places]
    return sorted({0, len(along) - 1})
