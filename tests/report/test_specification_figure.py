"""The figures of task specification: every sentence stands where its numbers say, and every word can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from helpers.specification_rows import SCORE, SHARES, drawn, followed, scored
from undertow.report.figures.specification import over_w

BLUE, ORANGE, WHITE = "#0072b2", "#d55e00", "#ffffff"


def simplified() -> pd.DataFrame:
    """One person only, three sentences of each occupation."""
    rows = [
        {"cluster": name, "participant_class": sex, "coreferent": 0, "well_specified": sex != "unspecified"}
        for name in SHARES
        for sex in ("female", "male", "unspecified")
    ]
    return pd.DataFrame(rows).assign(**{SCORE: np.linspace(0, 9, len(rows))})


def bare(names: Sequence[str] = ("b", "a", "c")) -> pd.DataFrame:
    """A user's own sentences: nothing is known but whether they decide."""
    rows = [{"cluster": name, "well_specified": decided} for name in names for decided in (True, False)]
    return pd.DataFrame(rows).assign(**{SCORE: np.arange(len(rows), dtype=float)})


def axes_of(figure: Figure) -> Any:
    """The figure's only axes, untyped: the tests look into what it drew."""
    (axes,) = figure.axes
    return axes


def dots_of(figure: Figure) -> list[Any]:
    return [line for line in axes_of(figure).lines if line.get_linestyle() == "None"]


def rows_of(figure: Figure) -> list[str]:
    """What the rows are called, from the top, words parted by one space."""
    axes = axes_of(figure)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert list(axes.get_yticks()) == list(range(len(axes.get_yticks())))
    return [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]


@pytest.mark.parametrize("table", [scored(), simplified(), bare()])
def test_every_sentence_is_one_dot_in_the_row_of_its_occupation_blue_where_it_decides(table: pd.DataFrame) -> None:
    table = table.sample(frac=1, random_state=1).reset_index(drop=True)
    figure = drawn(table)
    row = {name.partition(" ")[0]: place for place, name in enumerate(rows_of(figure))}
    assert len(row) == table["cluster"].nunique()
    shown = [
        (float(x), int(y), to_hex(line.get_color()))
        for line in dots_of(figure)
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    expected = [
        (float(one[SCORE]), row[str(one["cluster"])], BLUE if one["well_specified"] else ORANGE)
        for one in table.to_dict("records")
    ]
    assert sorted(shown) == sorted(expected)
    for line in dots_of(figure):
        assert to_hex(line.get_markeredgecolor()) == to_hex(line.get_color())


# One occupation over all values of W.


SENTENCES = {
    "doctor/man/1": ("The doctor told the man that ___ was ill.", True),
    "doctor/man/0": ("The doctor told the man that ___ had time.", False),
    "doctor/someone/1": ("The doctor told someone that ___ was ill.", False),
}


def test_each_sentence_is_a_line_blue_where_it_decides() -> None:
    rows = followed(SENTENCES).sample(frac=1, random_state=3)
    order = list(dict.fromkeys(rows["sentence"]))
    lines = axes_of(over_w(rows, "female", title="t")).lines
    for name, line, fit in zip(order, lines[:3], lines[3:], strict=True):
        assert list(fit.get_ydata()) == pytest.approx(list(line.get_ydata()))  # the shares lie on a line
        assert to_hex(fit.get_color()) == to_hex(line.get_color())
        number = list(SENTENCES).index(name)
        assert list(line.get_xdata()) == [0, 1, 2, 3]
        assert list(line.get_ydata()) == [number + 10.0 * place for place in range(4)]
        assert to_hex(line.get_color()) == (BLUE if SENTENCES[name][1] else ORANGE)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines[:3]}) == 3
