from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex

from helpers.figure_checks import marks_of, only_axes, panels_of
from undertow.report.figures.confusion_matrix import draw_confusion
from undertow.report.figures.forest_plot import BAND, OTHER_COLOUR, SIGNIFICANT_COLOUR, ForestRow, draw_differences
from undertow.report.figures.scatter import EVERYONE, SELECTED, Cloud, Panel, draw_simulation


@pytest.mark.parametrize(
    ("counts", "gold", "shown"),
    [
        ([[120, 44, 3], [0, 80, 0]], ["Yes", "No"], ["72%", "120", "26%", "44", "1.8%", "3", "0", "100%", "80", "0"]),
        ([[999, 1, 0]], ["a"], ["99.9%", "999", "0.1%", "1", "0"]),
        ([[0, 0, 0], [1, 1, 0]], ["age", "race"], ["50%", "1", "50%", "1", "0"]),
    ],
)
def test_confusion_cells_hold_counts_and_shares_of_their_row(
    counts: list[list[int]], gold: list[str], shown: list[str]
) -> None:
    drawing = draw_confusion(counts, gold, ["Yes", "No", "no answer"], "T")
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    heads = texts.index("right label")
    assert texts[:heads] == shown
    assert texts[heads + 2 :] == [f"{sum(row):,}" for row in counts], "the total of each row"
    for row, label in zip(counts, gold, strict=True):
        assert all(f"({count})" in drawing.alt for count in row if count)
        assert label in drawing.alt


DIFFERENCES = [
    ForestRow("date, female", 0.25, 0.1, 0.4, significant=True),
    ForestRow("date, male", -0.1, -0.3, 0.1, significant=False),
    ForestRow("place, female", 0.05, math.nan, math.nan, significant=False),
    ForestRow("place, male", 0.01, -0.01, 0.03, significant=False, equivalent=True, margin=0.05),
]


def test_each_row_has_its_mark_its_interval_and_its_name() -> None:
    figure = draw_differences(DIFFERENCES, title="Slope: b less a", unit="percentage points per step")
    axes = only_axes(figure)
    lines = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.lines]
    assert [0.1, 0.4] in lines
    assert [-0.3, 0.1] in lines
    marks = marks_of(axes)
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


def test_every_dot_is_a_person() -> None:
    everyone, selected = (
        Cloud(np.array([1.0, 2.0, 30.0]), np.array([0.5, -1.0, 2.0]), 0.3, 0.2, 0.4, 3),
        Cloud(np.array([2.0, 30.0]), np.array([-1.0, 2.0]), 1.0, -1.0, 1.0, 2),
    )
    drawing = draw_simulation(
        "d", "T", ["a", "b"], [("", [Panel("X", "Y", everyone), Panel("X", "Y", everyone, selected)])]
    )
    first, second = panels_of(drawing.figure)
    for axes, clouds in ((first, [everyone]), (second, [everyone, selected])):
        for line, one in zip(axes.lines, clouds, strict=True):
            for of, ends, values in ((line.get_xdata, axes.get_xlim, one.x), (line.get_ydata, axes.get_ylim, one.y)):
                assert list(of()) == list(values)
                assert ends()[0] < min(values) < max(values) < ends()[1]
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    colours = [to_hex(line.get_color()).upper() for line in (*first.lines, *second.lines)]
    assert (colours[0], colours[2], colours[1] in (EVERYONE, SELECTED)) == (EVERYONE, SELECTED, False)
    assert second.lines[0].get_zorder() < second.lines[1].get_zorder()
