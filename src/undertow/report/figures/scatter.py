"""Scatter plots of a simulation before and after selection, with Pearson's r.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figure 2;
McMilin, "Selection Induced Collider Bias" (ICLR submission), figures 6 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from undertow.report.formatting import correlation, named, plain
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import NUMBERS, Sheet, even_ticks, fitted, padded, write_above
from undertow.report.style import BLUE_TEXT, COLOURS, GREY, ORANGE_TEXT, SMALL_SIZE, TEXT_SIZE, lettering
from undertow.types import Floats

EVERYONE, SELECTED = COLOURS[0], COLOURS[1]
"""Colours of dots and of their r."""
_BEHIND = "#c9d3da"
"""Colour of everyone behind the selected."""
MAX_DOTS = 1000
_MIN_IN, _MAX_IN = 1.3, 3.0


@dataclass(frozen=True, slots=True)
class Cloud:
    """People as dots, and their correlation.

    Attributes:
        x, y: some of the people [person].
        r: correlation of all people; NaN if undefined.
        low, high: its 95% interval.
    """

    x: Floats
    y: Floats
    r: float
    low: float
    high: float
    n: int

    @property
    def label(self) -> str:
        """The correlation and its interval."""
        interval = f" ({correlation(self.low)} to {correlation(self.high)})" if math.isfinite(self.r) else ""
        return f"r = {correlation(self.r)}{interval}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of variables; `selected` has the people after selection, None in a panel of everyone."""

    x_name: str
    y_name: str
    everyone: Cloud
    selected: Cloud | None = None


_Rows = Sequence[tuple[str, Sequence[Panel]]]
"""Label of each row, and its panels [column]."""


def draw_simulation(name: str, title: str, columns: Sequence[str], rows: _Rows) -> Drawing:
    """Draw panels in rows, each with its r; panels of the selected also have the r of everyone.

    Each row has a label and its panels, one for each column; a title that is too long is broken into lines.
    """
    each = [panel for _, panels in rows for panel in panels]
    lead = (
        "Each dot is a person drawn from the equations; r: Pearson correlation of all people drawn, with its 95% interval."
        + " Blue: everyone." * any(panel.selected is None for panel in each)
        + " Orange: the selected, with as many dots as everyone in grey, regardless of the share selected."
        * any(panel.selected is not None for panel in each)
    )
    names = [name for panel in each for name in (panel.x_name, panel.y_name)]
    with lettering("".join([title, *columns, *(text for text, _ in rows), *names])):
        sheet = Sheet(title, lead)
        across = max(min(int(sheet.inner_in / _MIN_IN), len(columns)), 1)
        down = math.ceil(len(columns) / across)  # lines that a row takes
        grid = sheet.subplots(down * len(rows), across, squeeze=False)
        panel_in = min(sheet.inner_in / across - 0.5, _MAX_IN)
        for place, (text, panels) in enumerate(rows):
            own = list(grid[place * down : (place + 1) * down].flat)
            for axes in own[len(panels) :]:
                axes.set_axis_off()
            row = fitted(text, sheet.inner_in - 0.6, TEXT_SIZE, lines=2).splitlines()
            beyond = [0.4 if at % across < across - 1 else 0.0 for at in range(len(panels))]  # up to the next panel
            heads = [
                fitted(column, panel_in + more, TEXT_SIZE, "bold", lines=2).splitlines()
                for column, more in zip(columns, beyond, strict=False)
            ]
            n_lines = max(map(len, heads))
            for at, (axes, head, panel) in enumerate(zip(own, heads, panels, strict=False)):
                level = [""] * (n_lines - len(head)) + head  # the row's text stands above all of them
                _write_head(axes, panel, level, row if at == 0 else [], panel_in)
                _draw_panel(axes, panel, panels, panel_in)
        sheet.finish(list(grid[:, 0]), down * len(rows) * 0.86 * panel_in)
    caption = (
        f"{plain(title)}. Orange: the selected, in front of everyone in grey. A correlation that only the selected have is due "
        "to selection."
    )
    return Drawing(name, sheet, caption, described("simulation", title, columns, rows))


def _write_head(axes: Axes, panel: Panel, column: Sequence[str], row: Sequence[str], panel_in: float) -> None:
    cloud, beside, colour = panel.everyone, "", BLUE_TEXT
    if panel.selected:
        beside = f"{'everyone' if panel_in > 1.35 else 'all'}: r = {correlation(cloud.r)}"
        cloud, colour = panel.selected, ORANGE_TEXT
    # If both do not fit, the interval has a separate line.
    correlations = [cloud.label] if panel_in > 1.35 else cloud.label.replace(" (", "\n(").split("\n")
    small = {"size": SMALL_SIZE, "weight": "normal", "color": GREY}
    lines: list[tuple[str, dict[str, Any]]] = [
        *((text, {"size": TEXT_SIZE, "weight": "normal"}) for text in row),
        *((text, {"size": TEXT_SIZE, "weight": "bold"}) for text in column),
        *((text, {"size": SMALL_SIZE, "weight": "bold", "color": colour}) for text in correlations),
        (f"n = {cloud.n:,}", small),
        (beside, small),
    ]
    write_above(axes, lines)


def _draw_panel(axes: Axes, panel: Panel, row: Sequence[Panel], panel_in: float) -> None:
    clouds = [(panel.everyone, _BEHIND if panel.selected else EVERYONE)]
    clouds += [(panel.selected, SELECTED)] if panel.selected else []
    dots: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 1.8, "markeredgewidth": 0, "alpha": 0.6}
    for order, (cloud, colour) in enumerate(clouds):
        axes.plot(cloud.x[:MAX_DOTS], cloud.y[:MAX_DOTS], color=colour, zorder=2 + order, **dots)
    # Panels of a row that show the same variables share their axes.
    alike = [one for one in row if (one.x_name, one.y_name) == (panel.x_name, panel.y_name)]
    every = [cloud for one in alike for cloud in (one.everyone, one.selected) if cloud is not None]
    axes.set_xlim(*padded(np.concatenate([cloud.x[:MAX_DOTS] for cloud in every]), air=0.04))
    axes.set_ylim(*padded(np.concatenate([cloud.y[:MAX_DOTS] for cloud in every]), air=0.04))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(even_ticks(4))
        axis.set_major_formatter(NUMBERS)
    axes.grid()
    axes.set_xlabel(fitted(named(panel.x_name), panel_in - 0.3))
    axes.set_ylabel(fitted(named(panel.y_name), 0.8 * panel_in))
