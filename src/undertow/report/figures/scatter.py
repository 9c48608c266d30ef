"""Scatter plots of a simulation before and after selection, with Pearson's r.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figure 2;
McMilin, "Selection Induced Collider Bias" (ICLR submission), figures 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, WIDTH_PX, text_width_px
from undertow.report.formatting import correlation, plain
from undertow.report.layout import EDGE_PX, GREY, GRID, SMALL_SIZE, TEXT_SIZE, Sheet, even_ticks, line_px, named
from undertow.report.style import Drawing, as_ink, lettering
from undertow.types import Floats

EVERYONE, SELECTED = COLOURS[0], COLOURS[1]
"""Of dots and of the r that belongs to them."""
_BEHIND = "#c9d3da"
"""Of everyone, where they stand behind the selected."""
MAX_DOTS = 1000
_ROW_GAP_PX, _AIR_PX = 16.0, 10.0
_MIN_PX, _MAX_PX, _HEIGHT_SHARE = 165.0, 300.0, 0.86
_MARK_GAP_PX = 10.0
_BELOW_PX = 38.0
"""From a panel down to below the name of its x axis."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """People as dots, and their correlation.

    Attributes:
        x, y: some of the people [person].
        r: of all of them; NaN where it is undefined.
        low, high: its 95% interval.
        n: all of them.
    """

    x: Floats
    y: Floats
    r: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of variables.

    Attributes:
        x_name, y_name: the variables.
        everyone: before selection.
        selected: after it; None for a panel of everyone.
    """

    x_name: str
    y_name: str
    everyone: Cloud
    selected: Cloud | None = None


_Rows = Sequence[tuple[str, Sequence[Panel]]]
"""What each row shows, and its panels [column]."""


def draw_simulation(name: str, title: str, columns: Sequence[str], rows: _Rows) -> Drawing:
    """Draw panels in rows, each with its r, and in the panels of the selected also that of everyone.

    Args:
        name: of the drawing's files.
        title: of the figure.
        columns: what each column shows.
        rows: what each row shows, and its panels, one for each column.

    Raises:
        UndertowError: there is no panel, or a row has not one for each column.
    """
    if not columns or not rows or any(len(panels) != len(columns) for _, panels in rows):
        raise UndertowError(
            "the simulation cannot be drawn: every row needs one panel for each column, and there must be some"
        )
    with lettering("".join([title, *columns, *(text for text, _ in rows), *_names(rows)])):
        scales = [[(_scale(panel, panels, "x"), _scale(panel, panels, "y")) for panel in panels] for _, panels in rows]
        layout = _layout(scales)
        sheet = Sheet(title, _lead(rows), width_px=layout.sheet)
        _draw(sheet, layout, scales, columns, rows)
    caption = (
        f"{plain(title)}. Orange are the selected, in front of everyone in grey; a correlation that they alone have comes "
        "from selecting them."
    )
    return Drawing(name, sheet.figure, caption, describe_simulation(title, columns, rows))


def describe_simulation(title: str, columns: Sequence[str], rows: _Rows) -> str:
    """Alt text of the figure."""
    sentences = [
        f"{plain(text)}: {'; '.join(f'{plain(column)}, {_describe(panel)}' for column, panel in zip(columns, panels, strict=True))}."
        for text, panels in rows
    ]
    return " ".join([f"{plain(title)}. Clouds of dots with their correlations.", *sentences])


def _describe(panel: Panel) -> str:
    pair = f"{panel.x_name} and {panel.y_name}"
    if panel.selected is None:
        return f"{pair} of {panel.everyone.n:,} people r = {correlation(panel.everyone.r)}{_interval(panel.everyone)}"
    return (
        f"{pair} of {panel.selected.n:,} selected people r = {correlation(panel.selected.r)}{_interval(panel.selected)}, "
        f"of everyone {correlation(panel.everyone.r)}"
    )


def _names(rows: _Rows) -> list[str]:
    return [name for _, panels in rows for panel in panels for name in (panel.x_name, panel.y_name)]


def _lead(rows: _Rows) -> str:
    panels = [panel for _, row in rows for panel in row]
    said = [
        "Each dot is a person drawn from the equations; r is Pearson's, of all people drawn, with its 95% interval."
    ]
    if any(panel.selected is None for panel in panels):
        said.append("Blue: everyone.")
    if any(panel.selected for panel in panels):
        said.append("Orange: the selected alone, as many dots as of everyone in grey behind, however few are selected.")
    return " ".join(said)


class _Scale(NamedTuple):
    """One axis of a panel."""

    low: float
    high: float
    ticks: dict[float, str]


class _Layout(NamedTuple):
    """Sizes in pixels that all panels share."""

    gutter: float  # left of a panel, for its marks and the name of its y axis
    width: float
    height: float
    pitch: float  # from column to column
    sheet: float


_Scales = Sequence[Sequence[tuple[_Scale, _Scale]]]
"""Those of x and y [row, column]."""


def _layout(scales: _Scales) -> _Layout:
    measured = Sheet("", "").figure
    marks = {mark for row in scales for _, y in row for mark in y.ticks.values()}
    gutter = line_px(SMALL_SIZE) + _MARK_GAP_PX + max(text_width_px(measured, mark, SMALL_SIZE) for mark in marks)
    n_columns = len(scales[0])
    sheet = max(WIDTH_PX, 2 * EDGE_PX + n_columns * (gutter + _MIN_PX + _AIR_PX))
    pitch = (sheet - 2 * EDGE_PX) / n_columns
    width = min(pitch - gutter - _AIR_PX, _MAX_PX)
    return _Layout(gutter, width, width * _HEIGHT_SHARE, pitch, sheet)


def _draw(sheet: Sheet, layout: _Layout, scales: _Scales, columns: Sequence[str], rows: _Rows) -> None:
    named_px, r_px = line_px(TEXT_SIZE) + 6, 2 * line_px(SMALL_SIZE) + 4
    row_px = named_px + r_px + layout.height + _BELOW_PX + _ROW_GAP_PX
    top = sheet.settle(named_px + len(rows) * row_px - _ROW_GAP_PX)
    lefts = [EDGE_PX + layout.gutter + place * layout.pitch for place in range(len(columns))]
    for left, text in zip(lefts, columns, strict=True):
        said = sheet.fit(plain(text), layout.pitch - layout.gutter, TEXT_SIZE, "bold")
        sheet.write(left, top, said, size=TEXT_SIZE, weight="bold", va="top")
    top -= named_px
    for (text, panels), of_row in zip(rows, scales, strict=True):
        said = sheet.fit(plain(text), sheet.width_px - 2 * EDGE_PX, TEXT_SIZE)
        sheet.write(EDGE_PX, top, said, size=TEXT_SIZE, va="top")
        below = top - named_px
        for left, panel, scale in zip(lefts, panels, of_row, strict=True):
            _write_r(sheet, panel, left, below)
            bottom = below - r_px - layout.height
            axes = sheet.axes(left, bottom, layout.width, layout.height)
            _draw_panel(axes, panel, (_thinned(sheet, scale[0], layout.width), scale[1]))
            _name_axes(sheet, panel, layout, (left, bottom))
        top -= row_px


def _name_axes(sheet: Sheet, panel: Panel, layout: _Layout, corner: tuple[float, float]) -> None:
    left, bottom = corner
    look: dict[str, Any] = {"size": SMALL_SIZE, "ha": "center", "va": "center"}
    x_name, y_name = sheet.fit(named(panel.x_name), layout.width), sheet.fit(named(panel.y_name), layout.height)
    sheet.write(left + layout.width / 2, bottom - 31, x_name, **look)
    from_left = left - layout.gutter + line_px(SMALL_SIZE) / 2
    sheet.write(from_left, bottom + layout.height / 2, y_name, rotation=90, **look)


def _thinned(sheet: Sheet, scale: _Scale, width_px: float) -> _Scale:
    """Keep only the outer ticks if ticks would overlap."""
    taken_px = sum(text_width_px(sheet.figure, mark, SMALL_SIZE) + 8 for mark in scale.ticks.values())
    if taken_px <= width_px:
        return scale
    outer = [min(scale.ticks), max(scale.ticks)]
    return scale._replace(ticks={value: scale.ticks[value] for value in outer})


def _write_r(sheet: Sheet, panel: Panel, left: float, top: float) -> None:
    cloud = panel.selected or panel.everyone
    colour = SELECTED if panel.selected else EVERYONE
    said = f"r = {correlation(cloud.r)}{_interval(cloud)}"
    sheet.write(left, top, said, size=SMALL_SIZE, weight="bold", color=as_ink(colour), va="top")
    below = (
        f"n = {cloud.n:,}"
        if panel.selected is None
        else f"n = {cloud.n:,}; everyone: r = {correlation(panel.everyone.r)}"
    )
    sheet.write(left, top - line_px(SMALL_SIZE), below, size=SMALL_SIZE, color=GREY, va="top")


def _interval(cloud: Cloud) -> str:
    return f" ({correlation(cloud.low)} to {correlation(cloud.high)})" if math.isfinite(cloud.r) else ""


def _draw_panel(axes: Axes, panel: Panel, scales: tuple[_Scale, _Scale]) -> None:
    x, y = scales
    _dot(axes, panel.everyone, _BEHIND if panel.selected else EVERYONE, zorder=2)
    if panel.selected:
        _dot(axes, panel.selected, SELECTED, zorder=3)
    axes.set(xlim=x[:2], ylim=y[:2])
    axes.set_xticks(list(x.ticks), list(x.ticks.values()))
    axes.set_yticks(list(y.ticks), list(y.ticks.values()))
    axes.grid(visible=True, color=GRID, linewidth=0.7)


def _dot(axes: Axes, cloud: Cloud, colour: str, zorder: int) -> None:
    axes.plot(
        cloud.x[:MAX_DOTS],
        cloud.y[:MAX_DOTS],
        linestyle="none",
        marker="o",
        markersize=1.8,
        markeredgewidth=0,
        color=colour,
        alpha=0.6,
        zorder=zorder,
    )


def _scale(panel: Panel, row: Sequence[Panel], which: Literal["x", "y"]) -> _Scale:
    """Shared axis limits of panels in a row with the same variables, with a margin."""
    alike = [one for one in row if (one.x_name, one.y_name) == (panel.x_name, panel.y_name)]
    clouds = [cloud for one in alike for cloud in (one.everyone, one.selected) if cloud is not None]
    values = np.concatenate([getattr(cloud, which)[:MAX_DOTS] for cloud in clouds])
    low, high = float(values.min()), float(values.max())
    air = max(0.04 * (high - low), 1e-6 * max(abs(low), abs(high))) or 0.5
    return _Scale(low - air, high + air, even_ticks(low - air, high + air, most=4))
