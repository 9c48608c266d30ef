"""The figures that set models side by side: numbers where they belong, looks explained, and every word can be read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from helpers.figure_checks import words
from helpers.model_points import NAN, asked, compared, gridded, point
from undertow.report.style import COLOURS, MARKERS, figure_width

PAPER = [
    point("bert-base-uncased", 110e6, 0.42, objective="masked", r_squared=0.62, n_prompts=1),
    point("bert-large-uncased", 335e6, 0.55, objective="masked", r_squared=0.7, n_prompts=1),
    point("roberta-base", 125e6, 0.49, objective="masked", r_squared=0.66, n_prompts=1),
    point("facebook/bart-large", 406e6, 0.05, objective="span corruption", r_squared=0.0, n_prompts=1),
    point("google/flan-ul2", 20e9, 0.11, objective="denoisers", post_training="instruction tuned", r_squared=0.16),
    point("gpt2", 124e6, 0.22, r_squared=0.3),
    point("llama-8b", 8e9, -0.12, post_training="RLHF", r_squared=NAN),
    point("davinci", 175e9, 0.37, r_squared=1.0),
    point("text-davinci-003", 175e9, 0.4, post_training="RLHF"),
    point("gpt-4o-mini", NAN, -0.08, post_training="RLHF", r_squared=0.1),
    point("some chat model", NAN, 0.12, objective="", post_training="RLHF"),
]


def dots_of(axes: Any) -> list[Any]:
    return [dot for dot in axes.collections if isinstance(dot, PathCollection)]


def bars_of(axes: Any) -> list[tuple[float, float, float]]:
    """Place, lower and upper end of each upright bar, in the order drawn; leaders and the line at 0 are none."""
    bars = [line for line in axes.lines if line.get_transform() == axes.transData]
    return [(float(bar.get_xdata()[0]), float(bar.get_ydata()[0]), float(bar.get_ydata()[1])) for bar in bars]


def test_every_model_stands_at_its_size_and_gap_with_its_interval() -> None:
    figure = compared(PAPER)
    sized, strip = figure.axes
    known, unknown = PAPER[:9], PAPER[9:]
    FigureCanvasAgg(figure).draw()
    assert [tuple(dot.get_offsets()[0]) for dot in dots_of(sized)] == [(one.parameters, one.gap) for one in known]
    assert bars_of(sized) == [(one.parameters, one.low, one.high) for one in known]
    assert sized.get_xscale() == "log"
    assert [dot.get_offsets()[0][1] for dot in dots_of(strip)] == [one.gap for one in unknown]
    assert [ends for _, *ends in bars_of(strip)] == [[one.low, one.high] for one in unknown]
    assert sized.get_ylim() == strip.get_ylim()
    assert not list(strip.get_xticks()), "no size is named"
    assert strip.get_window_extent().x0 > sized.get_window_extent().x1
    for size in (NAN, math.inf, 0.0, -5.0):
        assert [len(dots_of(axes)) for axes in compared([point("known"), point("unknown", size)]).axes] == [1, 1]


def test_a_model_without_a_gap_is_named_below_and_not_drawn() -> None:
    figure = compared([point("here"), point("gone", gap=NAN), point("lost", NAN, gap=NAN)])
    assert [len(dots_of(axes)) for axes in figure.axes] == [1]
    assert "Not shown because they have no slope gap: gone, lost." in words(figure)
    nobody = compared([point("gone", gap=NAN)])
    assert "no model has a slope gap" in words(nobody)
    assert "Not shown because they have no slope gap: gone." in words(nobody)


# Every model under every prompt.

ASKED = [(model, prompt) for model in ("gpt2", "llama") for prompt in ("", "A", "Fill in: {sentence}")]


def panel_dots(axes: Any) -> list[Any]:
    return [line for line in axes.lines if line.get_linestyle() == "None"]


def test_each_panel_shows_the_mean_of_each_group_at_each_w() -> None:
    panels = {one: asked(base=20.0 * place) for place, one in enumerate(ASKED)}
    panels["llama", "A"].loc[0, "female"] = NAN  # leaves one item of two
    panels["llama", "A"].loc[[2, 3], "male"] = NAN  # leaves none
    figure = gridded(panels)
    assert len(figure.axes) == 6
    for place, axes in enumerate(figure.axes):
        expected = [np.arange(5.0) + 20 * place + 10 * group for group in range(3)]
        if place == 4:
            expected[0][0] += 1.5
            expected[1][1] = NAN
        for group, dots in enumerate(panel_dots(axes)):
            assert list(dots.get_xdata()) == [0, 1, 2, 3, 4]
            assert np.asarray(dots.get_ydata()) == pytest.approx(expected[group], nan_ok=True)
            assert to_hex(dots.get_color()) == COLOURS[group].lower()
            assert dots.get_marker() == MARKERS[group]


@pytest.mark.parametrize(("width", "n_columns"), [(3.3, 2), (8.0, 5)])
def test_models_without_common_prompts_are_small_multiples_in_the_order_given(width: float, n_columns: int) -> None:
    keys = [
        ("zeta", ""),
        ("bert", ""),
        ("gpt2", "prompt C"),
        ("gpt2", "prompt A"),
        ("alpha", ""),
        ("mu", ""),
        ("nu", ""),
    ]
    with figure_width(width):
        figure = gridded({one: asked(base=10.0 * place) for place, one in enumerate(keys)})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [" · ".join(filter(None, key)) for key in keys]
    assert [float(panel_dots(axes)[0].get_ydata()[0]) for axes in figure.axes] == [10.0 * place for place in range(7)]
    rows = sorted({round(axes.get_position().y0, 3) for axes in figure.axes}, reverse=True)
    assert len(rows) == -(-7 // n_columns)
    assert figure.get_figwidth() == pytest.approx(width)
