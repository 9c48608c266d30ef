"""Two W in one text: the mean mass of each word group at every combination of their values, as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from undertow.report.formatting import plain
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, fitted, line_in, text_width
from undertow.report.style import SMALL_SIZE, lettering
from undertow.types import Floats

if TYPE_CHECKING:
    import pandas as pd

_TICK_SIZE = 6.5
_MIN_PANEL_IN, _MAX_NAME_IN = 1.35, 1.1
_COLOURS = "viridis"
"""Perceptually uniform colour map, legible in print and without full colour vision."""


class Surface(NamedTuple):
    """Data of the heat maps."""

    names: tuple[str, str]
    values: tuple[list[str], list[str]]  # first list, from left to right; second list, from top to bottom
    percent: dict[str, Floats]  # by group [second, first]; NaN if not scored


def surface(
    observations: pd.DataFrame,
    groups: Sequence[str],
    parts: Sequence[Mapping[str, Any]],
    *,
    title: str,
    measured: str = "Mean mass in percent",
) -> Figure:
    """Draw the mean mass of each group at every combination of two W lists, for one model, challenge and prompt.

    Args:
        observations: one row per item with `w_index` (index in the first list times size of the second, plus index in the second) and a
            column of mass in percent for each group; NaN if missing.
        groups: word groups, with one panel each.
        parts: names and values of both lists.
        title: broken into lines where it is too long.
        measured: meaning of the colours.
    """
    combinations = _surface(observations, groups, parts)
    texts = [title, measured, *groups, *combinations.names, *combinations.values[0], *combinations.values[1]]
    with lettering("".join(texts)):
        first, second = map(plain, combinations.names)
        sheet = Sheet(title, f"{measured}, by {first} (across) and {second} (down); a colour scale for each word group")
        names_in = min(max(text_width(one, _TICK_SIZE) for one in combinations.values[1]) + 0.1, _MAX_NAME_IN)
        n_columns = max(1, min(len(groups), int((sheet.inner_in - names_in) / _MIN_PANEL_IN)))
        n_rows = -(-len(groups) // n_columns)
        column_in = (sheet.inner_in - names_in) / n_columns - 0.2
        axes = sheet.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
        height_in = max(len(combinations.values[1]) * line_in(_TICK_SIZE) * 0.95, 0.9)
        for at, panel in enumerate(axes.flat):
            if at >= len(groups):
                panel.remove()
                continue
            percent = combinations.percent[groups[at]]
            panel.set_title(fitted(plain(groups[at]), column_in, SMALL_SIZE, "bold"), fontsize=SMALL_SIZE)
            panel.spines[:].set_visible(False)
            if not np.isfinite(percent).any():
                panel.text(0.5, 0.5, "nothing scored", ha="center", va="center", transform=panel.transAxes)
                continue
            look = {"cmap": _COLOURS, "aspect": "auto", "interpolation": "nearest", "origin": "upper"}
            image = panel.imshow(np.ma.masked_invalid(percent), **look)
            bar = sheet.colorbar(image, ax=panel, orientation="horizontal", fraction=0.06, pad=0.02, aspect=30)
            bar.outline.set_visible(False)
            bar.locator = MaxNLocator(4)
            bar.update_ticks()
            bar.ax.tick_params(labelsize=_TICK_SIZE, length=2)
        _name_values(axes, combinations, column_in, names_in, len(groups))
        return sheet.finish(list(axes[:, 0]), n_rows * height_in)


def describe_surface(
    observations: pd.DataFrame, groups: Sequence[str], parts: Sequence[Mapping[str, Any]], measured: str = "Mean mass"
) -> str:
    """Alt text of `surface`."""
    combinations = _surface(observations, groups, parts)
    extremes = {}
    firsts, seconds = combinations.values
    for group, percent in combinations.percent.items():
        if np.isfinite(percent).any():
            places = [np.unravel_index(pick(percent), percent.shape) for pick in (np.nanargmin, np.nanargmax)]
            extremes[group] = [(float(percent[at]), firsts[int(at[1])], seconds[int(at[0])]) for at in places]
    return described("surface", combinations, extremes, measured)


def _surface(observations: pd.DataFrame, groups: Sequence[str], parts: Sequence[Mapping[str, Any]]) -> Surface:
    means = observations.astype(dict.fromkeys(groups, np.float64)).groupby("w_index")[list(groups)].mean()
    first, second = np.divmod(means.index.to_numpy(dtype=np.int64), len(parts[1]["values"]))
    (firsts, column), (seconds, row) = (np.unique(at, return_inverse=True) for at in (first, second))
    percent = {}
    for group in groups:
        table = np.full((len(seconds), len(firsts)), np.nan)
        table[row, column] = means[group].to_numpy(dtype=np.float64)
        percent[group] = table
    values, other_values = (
        [plain(str(part["values"][at])) for at in kept] for part, kept in zip(parts, (firsts, seconds), strict=True)
    )
    return Surface((str(parts[0]["name"]), str(parts[1]["name"])), (values, other_values), percent)


def _name_values(axes: Any, combinations: Surface, column_in: float, names_in: float, n_panels: int) -> None:
    """Write some values of the first list below each column, and all of the second beside each row if they fit."""
    first, second = combinations.values
    widest = max(text_width(one, _TICK_SIZE) for one in first) + 0.12
    n_named = max(min(len(first), int(column_in / widest)), 1)
    at = sorted({int(place) for place in np.linspace(0, len(first) - 1, n_named).round()})
    for column in range(axes.shape[1]):
        lowest = axes[(n_panels - 1 - column) // axes.shape[1], column]
        lowest.set_xticks(at, [fitted(first[place], widest, _TICK_SIZE) for place in at], fontsize=_TICK_SIZE)
        for panel in axes.flat[column : n_panels : axes.shape[1]]:
            panel.tick_params(axis="x", labelbottom=panel is lowest, length=2 * (panel is lowest))
    names = [fitted(one, names_in, _TICK_SIZE) for one in second]
    for panel in axes[:, 0]:
        panel.set_yticks(range(len(second)), names, fontsize=_TICK_SIZE)
