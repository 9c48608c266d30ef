from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from helpers.figure_checks import marks_of, only_axes
from helpers.specification_rows import SCORE, drawn, followed, scored
from undertow.report.figures.specification import over_w

BLUE, ORANGE, WHITE = "#0072b2", "#d55e00", "#ffffff"


def bare() -> pd.DataFrame:
    """A user's own sentences: nothing is known but whether they decide."""
    rows = [(name, decided) for name in "bac" for decided in (True, False)]
    return pd.DataFrame(rows, columns=["cluster", "well_specified"]).assign(**{SCORE: np.arange(6.0)})


@pytest.mark.parametrize("table", [scored(), bare()])
def test_every_sentence_is_one_dot_in_the_row_of_its_occupation_blue_where_it_decides(table: pd.DataFrame) -> None:
    table = table.sample(frac=1, random_state=1).reset_index(drop=True)
    axes = only_axes(drawn(table))
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert list(axes.get_yticks()) == list(range(len(axes.get_yticks())))
    row = {label.get_text().split()[0]: place for place, label in enumerate(axes.get_yticklabels())}
    assert len(row) == table["cluster"].nunique()
    dots = marks_of(axes)
    shown = [
        (float(x), int(y), to_hex(line.get_color()))
        for line in dots
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    assert sorted(shown) == sorted(
        (float(one[SCORE]), row[str(one["cluster"])], BLUE if one["well_specified"] else ORANGE)
        for one in table.to_dict("records")
    )
    assert all(to_hex(line.get_markeredgecolor()) == to_hex(line.get_color()) for line in dots)


SENTENCES = {
    "doctor/man/1": ("The doctor told the man that ___ was ill.", True),
    "doctor/man/0": ("The doctor told the man that ___ had time.", False),
    "doctor/someone/1": ("The doctor told someone that ___ was ill.", False),
}


def test_each_sentence_is_a_line_blue_where_it_decides() -> None:
    rows = followed(SENTENCES).sample(frac=1, random_state=3)
    order = list(dict.fromkeys(rows["sentence"]))
    lines = only_axes(over_w(rows, "female", title="t")).lines
    for name, line, fit in zip(order, lines[:3], lines[3:], strict=True):
        assert list(fit.get_ydata()) == pytest.approx(list(line.get_ydata()))  # the shares lie on a line
        assert to_hex(fit.get_color()) == to_hex(line.get_color())
        number = list(SENTENCES).index(name)
        assert list(line.get_xdata()) == [0, 1, 2, 3]
        assert list(line.get_ydata()) == [number + 10.0 * place for place in range(4)]
        assert to_hex(line.get_color()) == (BLUE if SENTENCES[name][1] else ORANGE)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines[:3]}) == 3
