"""Grid of panels with shared axes: models by prompts, or small multiples in as many columns as fit.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), figures 8 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from undertow.report.figures.covariate_curve import FittedLine, Means, draw_means, means_of, top_percent, w_name_of
from undertow.report.formatting import named, plain
from undertow.report.sentence_templates import described
from undertow.report.sheet import NO_PROMPT, Sheet, empty_panel, even_ticks, fitted, line_in
from undertow.report.style import SMALL_SIZE, TEXT_SIZE, lettering

if TYPE_CHECKING:
    import pandas as pd

_MIN_PANEL_IN, _MAX_PANEL_IN, _ALL_PANELS_IN = 1.1, 3.2, 9.0
_MIN_COLUMN_IN = 1.0
_MULTIPLE_IN, _MAX_COLUMNS = 1.3, 5
"""Minimum width of a small multiple, and maximum number of columns."""

PanelKey = tuple[str, str]
"""Model and prompt."""


class _Grid(NamedTuple):
    """All panels and their shared axes."""

    panels: dict[PanelKey, Means]
    models: list[str]
    prompts: list[str]
    labels: dict[float, str]  # W by its position on the scale
    w_name: str

    @property
    def is_matrix(self) -> bool:
        """Whether every model has all of several prompts."""
        return len(self.prompts) > 1 and len(self.panels) == len(self.models) * len(self.prompts)


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
        panels: observations by (model, prompt), one row per item, with `w`, `w_index` (and `w_value` if W has another scale) and a column
            of mass in percent for each group; NaN if missing. If every model has all of several prompts, models are rows and prompts
            columns; else the panels follow each other row by row. Both are in order of first occurrence.
        groups: the word groups, in the order of their colours.
        lines: the fitted lines by (model, prompt).
        title: broken into lines where it is too long.
        measured: label of the y axes.
    """
    grid = _grid(panels, groups, lines)
    with lettering("".join([title, *groups, *grid.models, *grid.prompts, *grid.labels.values(), grid.w_name])):
        is_matrix = grid.is_matrix
        order = "one row per model, one column per prompt, " if is_matrix else ""
        lead = (
            f"{measured}, by {plain(grid.w_name)}: {order}the same axes throughout."
            + " Bands: 95% confidence of the straight lines." * any(panel.lines for panel in grid.panels.values())
        )
        sheet = Sheet(title, lead, width_in=0.8 + len(grid.prompts) * _MIN_COLUMN_IN if is_matrix else 0.0)
        sheet.key_of_groups(groups)
        keys = [(model, prompt) for model in grid.models for prompt in grid.prompts] if is_matrix else list(grid.panels)
        fit = int((sheet.inner_in - 0.4) / _MULTIPLE_IN)
        n_columns = len(grid.prompts) if is_matrix else max(1, min(len(keys), _MAX_COLUMNS, fit))
        n_rows = -(-len(keys) // n_columns)
        column_in = (sheet.inner_in - 0.4) / n_columns - 0.12
        axes = sheet.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
        heads = [fitted(plain(prompt) or NO_PROMPT, column_in, lines=3) for prompt in grid.prompts] if is_matrix else []
        for column, head in enumerate(heads):
            place: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 4), "textcoords": "offset points"}
            axes[0, column].annotate(head, (0, 1), va="bottom", **place)
        for at, ((model, prompt), panel_axes) in enumerate(zip(keys, axes.flat, strict=False)):
            if not is_matrix:
                name = " · ".join(filter(None, [named(model), plain(prompt)]))
                panel_axes.set_title(fitted(name, column_in, SMALL_SIZE, "bold", lines=2), fontsize=SMALL_SIZE)
            elif at % n_columns == 0:
                above = 0 if at else 72 * line_in(SMALL_SIZE) * (1 + max(head.count("\n") for head in heads))
                panel_axes.set_title(fitted(named(model), sheet.inner_in - 0.5, TEXT_SIZE, "bold"), pad=5 + above)
            panel = grid.panels[model, prompt]
            if panel.scored:
                draw_means(panel_axes, panel, size=0.7)
            else:
                empty_panel(panel_axes, "nothing scored")
        for unused in axes.flat[len(keys) :]:
            unused.remove()
        axes[0, 0].set_ylim(0, top_percent(grid.panels.values()))
        axes[0, 0].yaxis.set_major_locator(even_ticks(4))
        _name_ends([axes[(len(keys) - 1 - at) // n_columns, at] for at in range(n_columns)], grid.labels, column_in)
        share = 0.62 if is_matrix else 0.75
        panel_in = max(_MIN_PANEL_IN, min(share * column_in, _ALL_PANELS_IN / n_rows, _MAX_PANEL_IN))
        return sheet.finish(list(axes[:, 0]), n_rows * panel_in)


def describe_model_grid(
    panels: Mapping[tuple[str, str], pd.DataFrame],
    groups: Sequence[str],
    lines: Mapping[tuple[str, str], Sequence[FittedLine]],
    measured: str = "Mean mass",
) -> str:
    """Alt text of `model_grid`."""
    return described("grid", _grid(panels, groups, lines), measured, NO_PROMPT)


def _grid(
    tables: Mapping[PanelKey, pd.DataFrame], groups: Sequence[str], lines: Mapping[PanelKey, Sequence[FittedLine]]
) -> _Grid:
    panels = {key: means_of(table, groups, lines.get(key, ())) for key, table in tables.items()}
    labels = dict(named for panel in panels.values() for named in zip(panel.at.tolist(), panel.labels, strict=True))
    models, prompts = (list(dict.fromkeys(key[part] for key in panels)) for part in (0, 1))
    return _Grid(panels, models, prompts, labels, w_name_of(next(iter(tables.values()))))


def _name_ends(lowest: Sequence[Axes], labels: Mapping[float, str], column_in: float) -> None:
    """Set the same range of W in every panel, and write its first and last value below the last row."""
    ends = sorted({min(labels), max(labels)})
    margin = 0.03 * (ends[-1] - ends[0]) or 0.5
    for axes in lowest:
        axes.tick_params(axis="x", labelbottom=True)
        axes.set_xlim(ends[0] - margin, ends[-1] + margin)
        axes.set_xticks(ends, [fitted(labels[end], (column_in - 0.1) / len(ends)) for end in ends])
        if len(ends) > 1:
            first, last = axes.get_xticklabels()
            first.set_horizontalalignment("left")
            last.set_horizontalalignment("right")
