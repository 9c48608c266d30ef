"""The figure of a simulation: dots where the people are, every r beside its panel, and every word can be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from undertow.report.figures.scatter import EVERYONE, SELECTED, Cloud, Panel, draw_simulation
from undertow.report.page_data import Drawing


def panels_of(drawing: Drawing) -> list[Any]:
    """The axes, untyped: the tests look into what they drew."""
    return list(drawing.figure.axes)


def test_every_dot_is_a_person() -> None:
    everyone, selected = (
        Cloud(np.array([1.0, 2.0, 30.0]), np.array([0.5, -1.0, 2.0]), 0.3, 0.2, 0.4, 3),
        Cloud(np.array([2.0, 30.0]), np.array([-1.0, 2.0]), 1.0, -1.0, 1.0, 2),
    )
    drawing = draw_simulation(
        "d", "T", ["a", "b"], [("", [Panel("X", "Y", everyone), Panel("X", "Y", everyone, selected)])]
    )
    first, second = panels_of(drawing)
    for axes, clouds in ((first, [everyone]), (second, [everyone, selected])):
        assert len(axes.lines) == len(clouds)
        for line, one in zip(axes.lines, clouds, strict=True):
            assert list(line.get_xdata()) == list(one.x)
            assert list(line.get_ydata()) == list(one.y)
            assert axes.get_xlim()[0] < min(one.x) < max(one.x) < axes.get_xlim()[1]
            assert axes.get_ylim()[0] < min(one.y) < max(one.y) < axes.get_ylim()[1]
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
    assert to_hex(first.lines[0].get_color()).upper() == EVERYONE
    assert to_hex(second.lines[1].get_color()).upper() == SELECTED
    assert to_hex(second.lines[0].get_color()).upper() not in (EVERYONE, SELECTED)
    assert second.lines[0].get_zorder() < second.lines[1].get_zorder()
