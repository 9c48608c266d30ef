"""The figures of a verification: every model is where its numbers are, what does not count is marked, and words can be read."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from matplotlib.colors import to_hex

from helpers.figure_checks import panels_of, words
from helpers.lab_results import calibration, failed, power
from helpers.trained_models import lab
from undertow.report.page_data import Drawing
from undertow.report.style import COLOURS, MARKERS


@cache
def usual() -> Drawing:
    """The calibration of the usual lab, drawn once."""
    return calibration(lab())


def dots(axes: Any, marker: str = "") -> set[tuple[float, float]]:
    """Where dots are, rounded; crosses where the marker is x."""
    wanted = [marker] if marker else list(MARKERS)
    lines = [line for line in axes.lines if line.get_marker() in wanted]
    return {
        (round(float(x), 6), round(float(y), 6))
        for line in lines
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
        if math.isfinite(y)
    }


def test_each_reading_stands_at_what_was_planted_and_what_was_measured() -> None:
    frame = lab()
    masked = panels_of(usual().figure)[0]
    own = frame[frame["architecture"] == "masked"]
    expected = {(round(x, 6), round(y, 6)) for x, y in zip(own["planted_slope"], own["measured_slope"], strict=True)}
    assert dots(masked) == expected


def test_models_that_did_not_converge_are_crosses_and_counted() -> None:
    drawing = calibration(failed(lab(), "masked-2-0"))
    masked, causal = panels_of(drawing.figure)[:2]
    assert {x for x, _ in dots(masked, "x")} == {2.4, 1.6}
    assert not dots(causal, "x")
    assert "2 slopes left out: training did not converge." in words(drawing.figure)
    assert "2 slopes left out" in drawing.alt


def test_power_stands_at_its_share_by_strength() -> None:
    frame = lab()
    frame = frame.assign(q=frame["q"].mask(frame["model"] == "masked-0.5-0", 0.4))
    drawing = power(frame)
    (axes,) = panels_of(drawing.figure)
    heights: dict[str, list[float]] = {}
    for line in axes.lines:
        if line.get_marker() in MARKERS:
            heights.setdefault(to_hex(line.get_color()).upper(), []).append(float(line.get_ydata()[0]))
    assert heights[COLOURS[0]] == pytest.approx([0, 4 / 6, 1, 1])
    assert heights[COLOURS[1]] == pytest.approx([0, 1, 1, 1])
    assert {"4/6", "0/6", "6/6"} <= set(words(drawing.figure))
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0\nno bias", "0.5\n0.50", "1\n1.00", "2\n2.00"]
