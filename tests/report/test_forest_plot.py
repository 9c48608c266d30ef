"""The figure of differences: what is drawn of them, and what is said of it."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.colors import to_hex

from undertow.report.figures.forest_plot import BAND, OTHER_COLOUR, SIGNIFICANT_COLOUR, ForestRow, draw_differences

ROWS = [
    ForestRow("date, female", 0.25, 0.1, 0.4, significant=True),
    ForestRow("date, male", -0.1, -0.3, 0.1, significant=False),
    ForestRow("place, female", 0.05, math.nan, math.nan, significant=False),
    ForestRow("place, male", 0.01, -0.01, 0.03, significant=False, equivalent=True, margin=0.05),
]


def test_each_row_has_its_mark_its_interval_and_its_name() -> None:
    figure = draw_differences(ROWS, title="Slope: b less a", unit="percentage points per step")
    (axes,) = figure.axes
    lines = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.lines]
    assert [0.1, 0.4] in lines
    assert [-0.3, 0.1] in lines
    marks = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert [float(np.asarray(mark.get_xdata())[0]) for mark in marks] == [0.25, -0.1, 0.05, 0.01]
    assert [to_hex(mark.get_markerfacecolor()) for mark in marks] == [
        SIGNIFICANT_COLOUR.lower(), "#ffffff", "#ffffff", OTHER_COLOUR.lower(),
    ]  # fmt: skip
    assert [mark.get_marker() for mark in marks] == ["o", "D", "D", "s"], "not by colour alone"
    (band,) = [one for one in axes.collections if to_hex(one.get_facecolor()[0]) == BAND]
    corners = np.asarray(band.get_paths()[0].vertices, dtype=float)[:, 0]
    assert (corners.min(), corners.max()) == (-0.05, 0.05)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["date, female", "date, male", "place, female (no interval)", "place, male"]
    assert axes.get_xlabel() == "difference, percentage points per step"
    low, high = axes.get_xlim()
    assert low < -0.3
    assert high > 0.4
