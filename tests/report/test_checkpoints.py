from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from helpers.figure_checks import panels_of, upright_bars
from helpers.figure_data import checkpoints
from undertow.report.figures.checkpoints import draw_trajectory
from undertow.report.style import COLOURS, MARKERS


def drawn(table: pd.DataFrame) -> list[Any]:
    return panels_of(draw_trajectory("d", table, "toy · checkpoints").figure)


def test_each_group_is_a_line_through_its_values_in_its_colour_and_a_band_of_its_intervals() -> None:
    table = checkpoints().sample(frac=1, random_state=2).sort_values("group", kind="stable")
    for title, axes in zip(table["measure"].unique(), drawn(table), strict=True):
        base = 100.0 if title == "Mean mass" else 0.0
        for place, line in enumerate(line for line in axes.lines if line.get_marker() in MARKERS):
            assert list(line.get_xdata()) == [1000, 2000, 3000, 4000]
            assert list(line.get_ydata()) == [base + 10 * place + i for i in range(4)]
            assert (to_hex(line.get_color()), line.get_marker()) == (COLOURS[place].lower(), MARKERS[place])
    axes = drawn(checkpoints())[0]
    for place, band in enumerate(axes.collections):
        corners = {(float(x), float(y)) for x, y in band.get_paths()[0].vertices}
        assert corners >= {(1000 * (i + 1), 10 * place + i + end) for i in range(4) for end in (-1, 2)}
        assert to_hex(band.get_facecolor()[0]) == COLOURS[place].lower()
    assert not upright_bars(axes)


def test_a_missing_value_breaks_its_line_and_is_a_cross_at_the_bottom() -> None:
    table = checkpoints()
    lost = (table["measure"] == "Slope gap") & (table["group"] == "male") & (table["step"] == 2000)
    first, second = drawn(table.assign(**{name: table[name].mask(lost) for name in ("value", "low", "high")}))
    female, male = [line for line in first.lines if line.get_marker() in MARKERS]
    assert not np.isnan(female.get_ydata()).any()
    assert np.isnan(male.get_ydata()).tolist() == [False, True, False, False]
    (cross,) = [line for line in first.lines if line.get_marker() == "x"]
    assert (list(cross.get_xdata()), cross.get_transform()) == ([2000], first.get_xaxis_transform())
    assert 0 < cross.get_ydata()[0] < 0.15
    assert to_hex(cross.get_color()) == COLOURS[1].lower()
    assert upright_bars(first) == [(1000, 9, 12)]  # alone between the edge and the gap: a band has no width there
    assert not [line for line in second.lines if line.get_marker() == "x"]


def test_steps_over_decades_have_a_logarithmic_axis() -> None:
    axes, plain = drawn(checkpoints([0, 1, 4, 16, 64, 4000]))[0], drawn(checkpoints())[0]
    assert (axes.get_xscale(), plain.get_xscale()) == ("symlog", "linear")
    low, high = axes.get_xlim()
    assert (low < 0, high > 4000) == (True, True)
    assert {0, 1, 10, 100, 1000} <= {*axes.get_xticks()}
