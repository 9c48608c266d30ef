from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from helpers.figure_checks import only_axes, words
from helpers.figure_data import fit
from undertow.report.figures.covariate_curve import describe_spectrum, spectrum
from undertow.report.page_data import Drawing
from undertow.report.style import image_bytes


def test_dots_are_the_means_of_what_was_scored() -> None:
    groups = {"she": [10.0, 20.0, 7.0, math.nan], "he": [0.0, 1.0, 2.0, 4.0]}
    axes = only_axes(
        spectrum(pd.DataFrame({"w": [*"bbaa"], "w_index": [1, 1, 0, 0], **groups}), ["she", "he"], title="t")
    )
    dots = [drawn for drawn in axes.lines if len(drawn.get_xdata()) == 2 and drawn.get_marker() != "None"]
    assert [list(drawn.get_ydata()) for drawn in dots] == [[7.0, 15.0], [3.0, 0.5]]
    assert [list(drawn.get_xdata()) for drawn in dots] == [[0.0, 1.0], [0.0, 1.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize("values", [[math.nan] * 3, [0.0] * 3, [5.0] * 3, [5.0, math.nan, math.nan], [100.0] * 3])
def test_missing_and_constant_means_are_drawn_in_silence(values: list[float]) -> None:
    table = pd.DataFrame({"w": ["a", "b", "c"], "w_index": [0, 1, 2], "she": values, "he": 1.0})
    lines = [fit("he", np.ones(3), 0.0, math.nan), fit("she", np.full(3, math.nan), math.nan, math.nan)]
    figure = spectrum(table, ["she", "he"], title="t", lines=lines)
    assert "0.00 per step, r undefined" in words(figure)
    assert ("nothing scored" in words(figure)) == all(math.isnan(value) for value in values)
    drawing = Drawing("d", figure, "c", describe_spectrum(table, ["she", "he"], lines))
    assert image_bytes(drawing.figure, "png")
    assert image_bytes(drawing.figure, "svg")
