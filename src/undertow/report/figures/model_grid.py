"""Grid of panels with shared axes: models by prompts.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figures 8 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import WIDTH_PX, FittedLine, style_of, text_width_px, wrapped_lines
from undertow.report.formatting import correlation, number, plain, slope
from undertow.report.layout import (
    EDGE_PX,
    GRID,
    NO_PROMPT,
    SMALL_SIZE,
    TEXT_SIZE,
    Sheet,
    even_ticks,
    height_px,
    line_px,
    named,
    say,
)
from undertow.report.style import lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd


_PANEL_GAP_PX = 14
_MIN_PANEL_PX, _MAX_PANEL_PX, _ALL_PANELS_PX = 112.0, 320.0, 900.0
_MIN_COLUMN_PX = 164
_HEAD_LINES = 3

PanelKey = tuple[str, str]
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

    panels: dict[PanelKey, _Panel]
    models: list[str]
    prompts: list[str]
    labels: dict[float, str]  # W by where it stands on its scale
    w_name: str


def model_grid(
    panels: Mapping[tuple[str, str], pd.DataFrame],
    groups: Sequence[str],
    lines: Mapping[tuple[str, str], Sequence[FittedLine]],
    *,
    title: str,
    measured: str = "Mean mass in percent",
) -> Figure:
    """Draw the mean mass of each group against W for every model and prompt, on the same axes (figures 8 and 9).

    Args:
        panels: observations by (model, prompt), one row per item, with `w`, `w_index` (`w_value` too where W stands elsewhere on
            its scale) and a column of mass in percent
            for each group; NaN where missing. Models are rows and prompts columns, in the order they first come in.
        groups: the word groups, in the order of their colours.
        lines: the fitted lines by (model, prompt).
        title: broken into lines where it is too long.
        measured: what the y axes show.

    Returns:
        A figure 800 pixels wide at 100 dots per inch, wider beyond four prompts, that grows with its rows.

    Raises:
        UndertowError: there is nothing to draw, a column is missing, or the panels do not share one list of W values.
    """
    grid = _grid(panels, groups, lines)
    with lettering("".join([title, *groups, *grid.models, *grid.prompts, *grid.labels.values(), grid.w_name])):
        width_px = max(WIDTH_PX, 2 * EDGE_PX + 40 + len(grid.prompts) * (_MIN_COLUMN_PX + _PANEL_GAP_PX))
        lead = (
            f"{measured}, by {plain(grid.w_name)}: a row for each model, a column for each prompt, "
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
    measured: str = "Mean mass",
) -> str:
    """Alt text of `model_grid`."""
    grid = _grid(panels, groups, lines)
    ends = [plain(grid.labels[place]) for place in (min(grid.labels), max(grid.labels))] if grid.labels else []
    start = f"{measured} by {plain(grid.w_name)}" + (f", from {ends[0]} to {ends[1]}." if ends else ".")
    return " ".join(
        [start, *(_describe_panel(grid, model, prompt) for model in grid.models for prompt in grid.prompts)]
    )


def _describe_panel(grid: _Grid, model: str, prompt: str) -> str:
    where = f"{named(model)}, {plain(prompt) or NO_PROMPT}"
    panel = grid.panels.get((model, prompt))
    if panel is None or not panel.scored:
        return f"{where}: {'not asked' if panel is None else 'nothing scored'}."
    return f"{where}: {'; '.join(_describe_group(panel, group) for group in panel.percent)}."


def _describe_group(panel: _Panel, group: str) -> str:
    seen, line = panel.percent[group][np.isfinite(panel.percent[group])], panel.lines.get(group)
    if not seen.size:
        return f"{named(group)} nothing scored"
    span = f"{named(group)} {number(seen.min(), 1)} to {number(seen.max(), 1)} percent"
    if line is None:
        return f"{span}, no line"
    r = f"r = {correlation(line.r)}" if math.isfinite(line.r) else "r undefined"
    return f"{span}, {slope(line.slope)} per {line.step}, {r}"


def _grid(
    tables: Mapping[PanelKey, pd.DataFrame], groups: Sequence[str], lines: Mapping[PanelKey, Sequence[FittedLine]]
) -> _Grid:
    if not tables or not groups:
        raise UndertowError("the grid cannot be drawn: there are no observations, or no word groups, to draw")
    panels: dict[PanelKey, _Panel] = {}
    labels: dict[float, str] = {}
    w_names: dict[str, None] = {}
    for key, table in tables.items():
        missing = [name for name in ("w", "w_index", *groups) if name not in table.columns]
        if missing:
            raise UndertowError(f"the grid cannot be drawn: the observations of {key} lack the column {missing[0]!r}")
        scale = "w_value" if "w_value" in table.columns else "w_index"
        named = table[[scale, "w"]].drop_duplicates()
        for place, label in zip(named[scale].astype(float), named["w"].astype(str), strict=True):
            if labels.setdefault(place, label) != label:
                raise UndertowError(
                    f"one grid shows one list of W values, but value {place:g} is both {labels[place]!r} and {label!r}: "
                    "choose the rows of one list before drawing them"
                )
        w_names |= dict.fromkeys(table["w_name"].astype(str) if "w_name" in table.columns else ())
        means = table.astype(dict.fromkeys(groups, np.float64)).groupby(scale, sort=True)[list(groups)].mean()
        fitted = {line.group: line for line in lines.get(key, ()) if math.isfinite(line.slope)}
        percent = {group: means[group].to_numpy(dtype=np.float64) for group in groups}
        panels[key] = _Panel(means.index.to_numpy(dtype=np.float64), percent, fitted)
    if len(w_names) > 1:
        raise UndertowError("one grid shows one w_name: choose the rows of one before drawing them")
    models, prompts = (list(dict.fromkeys(key[part] for key in panels)) for part in (0, 1))
    return _Grid(panels, models, prompts, labels, next(iter(w_names), "W"))


def _draw_grid(sheet: Sheet, grid: _Grid, groups: Sequence[str]) -> None:
    n_rows, n_columns = len(grid.models), len(grid.prompts)
    top_percent = _top_percent(grid.panels.values())
    ticks = even_ticks(0, top_percent, most=4)
    left = EDGE_PX + 8 + max(text_width_px(sheet.figure, text, SMALL_SIZE) for text in ticks.values())
    column_px = (sheet.width_px - left - EDGE_PX - (n_columns - 1) * _PANEL_GAP_PX) / n_columns
    panel_px = max(_MIN_PANEL_PX, min(0.62 * column_px, _ALL_PANELS_PX / n_rows, _MAX_PANEL_PX))
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
        name = sheet.fit(named(model), sheet.width_px - left - EDGE_PX, TEXT_SIZE, "bold")
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
    lines = wrapped_lines(sheet.figure, plain(prompt) or NO_PROMPT, SMALL_SIZE, width_px - 8)
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


def _share_w(sheet: Sheet, axes: Axes, labels: Mapping[float, str], named_px: float) -> None:
    """The same stretch of W in every panel; first and last value named where there is width for it."""
    ends = sorted({min(labels), max(labels)}) if labels else [0.0]
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
        say(axes, "not asked" if panel is None else "nothing scored")
        return
    axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
    for place, (group, percent) in enumerate(panel.percent.items()):
        look = style_of(place)
        if group in panel.lines:
            line = panel.lines[group]
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.16, linewidth=0, zorder=2)
            axes.plot(line.x, line.mean, color=look["color"], linewidth=1.4, zorder=3)
        small = look | {"markersize": 0.7 * look["markersize"], "markeredgewidth": 0.3}
        axes.plot(panel.at, percent, linestyle="none", zorder=4, **small)
