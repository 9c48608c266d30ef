from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.figure_checks import marks_of, words
from helpers.wording_rows import NAN, drawn, row

SCORES = pd.DataFrame(
    [
        row("null", "", 40.0),
        row("completion", "c1", 20.0, "bias"),
        row("completion", "c2", 30.0, "toxicity"),
        row("mine", "m1", 35.0),
        row("mine", "m2", 45.0),
        row("statement", "s1", 80.0, "bias"),
        row("statement", "s2", 82.0, "bias"),
        row("statement", "s3", 10.0, "toxicity"),
        row("statement", "s4", NAN, "toxicity"),
    ]
)


def dots(axes: Any) -> list[list[float]]:
    """Scores of every lane of dots, from the top."""
    return [list(line.get_xdata()) for line in marks_of(axes) if len(line.get_xdata())]


def bars(axes: Any, width: float) -> list[list[float]]:
    """Where the lines of a width begin and end."""
    lines = [line for line in axes.lines if (line.get_linewidth(), line.get_linestyle()) == (width, "-")]
    return [list(line.get_xdata()) for line in lines]


def test_every_wording_is_a_dot_and_mean_and_standard_deviation_are_those_of_the_population() -> None:
    (drawing,) = drawn(SCORES)
    (axes,) = drawing.figure.axes
    assert dots(axes) == [[80.0, 82.0], [10.0], [20.0], [30.0], [35.0, 45.0], [40.0]]
    assert "1 wording has no score, and no dot." in words(drawing.figure)
    assert "statement mean 57.3, sd 33.5, 10.0 to 82.0, 3 wordings (target: bias 81.0" in drawing.alt
    (whole,) = drawn(SCORES.dropna(subset="score"))
    assert not any("no score" in text for text in words(whole.figure))
    seen = np.array([80.0, 82.0, 10.0])
    expected = [[seen.mean() - seen.std(), seen.mean() + seen.std()], [20.0, 30.0], [35.0, 45.0]]
    assert [pytest.approx(ends) for ends in bars(axes, 1.6)] == expected
    assert [ends[0] for ends in bars(axes, 2.2)] == pytest.approx([seen.mean(), 25.0, 40.0])


def test_a_shared_baseline_is_one_dashed_line_and_each_class_may_have_its_own() -> None:
    def dashed(table: pd.DataFrame) -> list[float]:
        (drawing,) = drawn(table)
        lines: list[Any] = [line for line in drawing.figure.axes[0].lines if line.get_linestyle() == "--"]
        return [float(line.get_xdata()[0]) for line in lines]

    assert dashed(SCORES) == [51.0]
    own = SCORES.copy()
    own.loc[own["description_class"] == "null", "baseline"] = 30.0
    assert dashed(own) == [51.0, 51.0, 51.0, 30.0]
    assert dashed(SCORES.assign(baseline=NAN)) == []
