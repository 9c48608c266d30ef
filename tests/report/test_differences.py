"""The figure of differences: what is drawn of them, and what is said of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.colors import to_hex

from readable import assert_readable
from undertow.report.differences import (
    FOUND_COLOUR,
    DrawnDifference,
    describe_differences,
    draw_differences,
)
from undertow.report.drawing import Drawing, svg_text
from undertow.types import UndertowError

ROWS = [
    DrawnDifference("date, female", 0.25, 0.1, 0.4, found=True),
    DrawnDifference("date, male", -0.1, -0.3, 0.1, found=False),
    DrawnDifference("place, female", 0.05, math.nan, math.nan, found=False),
]


def test_each_row_has_its_mark_its_interval_and_its_name() -> None:
    figure = draw_differences(ROWS, title="Slope: b less a", unit="percentage points per step")
    (axes,) = figure.axes
    lines = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.lines]
    assert [0.1, 0.4] in lines
    assert [-0.3, 0.1] in lines
    marks = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert [float(np.asarray(mark.get_xdata())[0]) for mark in marks] == [0.25, -0.1, 0.05]
    assert [to_hex(mark.get_markerfacecolor()) for mark in marks] == [FOUND_COLOUR.lower(), "#ffffff", "#ffffff"]
    assert len({mark.get_marker() for mark in marks}) == 2, "not by colour alone"
    said = [text.get_text() for text in figure.texts]
    assert {"date, female", "date, male", "place, female (no interval)"} <= set(said)
    assert "difference, percentage points per step" in said
    low, high = axes.get_xlim()
    assert low < -0.3
    assert high > 0.4


def test_many_long_names_are_cut_and_none_lies_on_another() -> None:
    rows = [
        DrawnDifference(f"{'a very long name of a group ' * 4}{at}", at - 5.0, at - 6.0, at - 3.0, found=at > 6)
        for at in range(18)
    ]
    figure = draw_differences(
        rows, title="A title that is long enough to be broken into lines " * 3, unit="percent", n_all=40
    )
    assert_readable(figure)
    assert any("18 strongest of 40" in text.get_text() for text in figure.texts)


def test_names_are_text_whatever_is_in_them() -> None:
    rows = [DrawnDifference("<script>alert(1)</script> $x^2$ \x00 _private", 1.0, 0.5, 1.5, found=True)]
    figure = draw_differences(rows, title="<b>$\\alpha$</b>", unit="%")
    svg = svg_text(Drawing("x", figure, "", ""))
    assert "<script" not in svg
    assert "<b>" not in svg


def test_the_alternative_says_what_is_seen() -> None:
    told = describe_differences(ROWS, "Slope", "points")
    assert "Differences of Slope, in points: 1 of 3 told from zero." in told
    assert "date, female 0.25 (0.10 to 0.40)" in told
    assert "date, male \N{MINUS SIGN}0.10" in told
    assert "place, female 0.050 (no interval)." in told
    assert "And 8 more." in describe_differences([ROWS[0]] * 20, "Slope", "points")


@pytest.mark.parametrize("rows", [[], [DrawnDifference("x", math.nan, 0.0, 1.0, found=False)]])
def test_nothing_to_draw_is_refused(rows: list[DrawnDifference]) -> None:
    with pytest.raises(UndertowError, match="cannot be drawn"):
        draw_differences(rows, title="x", unit="")
