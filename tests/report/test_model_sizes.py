from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from helpers.figure_checks import marks_of, panels_of, upright_bars, words
from helpers.figure_data import NAN, asked, compared, gridded, point
from undertow.report.figures.model_sizes import describe_slope_against_size
from undertow.report.style import COLOURS, MARKERS, figure_width

PAPER = [
    point("bert-base-uncased", 110e6, 0.42, objective="masked", r_squared=0.62, n_prompts=1),
    point("facebook/bart-large", 406e6, 0.05, objective="span corruption", r_squared=0.0, n_prompts=1),
    point("google/flan-ul2", 20e9, 0.11, objective="denoisers", post_training="instruction tuned", r_squared=0.16),
    point("llama-8b", 8e9, -0.12, post_training="RLHF", r_squared=NAN),
    point("text-davinci-003", 175e9, 0.4, post_training="RLHF"),
    point("gpt-4o-mini", NAN, -0.08, post_training="RLHF", r_squared=0.1),
    point("some chat model", NAN, 0.12, objective="", post_training="RLHF"),
]


def dots_of(axes: Any) -> list[Any]:
    return [dot for dot in axes.collections if isinstance(dot, PathCollection)]


def test_every_model_stands_at_its_size_and_gap_with_its_interval() -> None:
    figure = compared(PAPER)
    of_years = describe_slope_against_size([point("m", step="year")], "she less he")
    assert "percentage points per year" in of_years
    sized, strip = panels_of(figure)
    known, unknown = PAPER[:5], PAPER[5:]
    FigureCanvasAgg(figure).draw()
    assert [tuple(dot.get_offsets()[0]) for dot in dots_of(sized)] == [(one.parameters, one.gap) for one in known]
    assert upright_bars(sized) == [(one.parameters, one.low, one.high) for one in known]
    assert [dot.get_offsets()[0][1] for dot in dots_of(strip)] == [one.gap for one in unknown]
    assert [ends for _, *ends in upright_bars(strip)] == [[one.low, one.high] for one in unknown]
    assert (sized.get_xscale(), sized.get_ylim()) == ("log", strip.get_ylim())
    assert not list(strip.get_xticks()), "no size is named"
    assert strip.get_window_extent().x0 > sized.get_window_extent().x1
    for size in (NAN, math.inf, 0.0, -5.0):
        assert [len(dots_of(axes)) for axes in compared([point("known"), point("unknown", size)]).axes] == [1, 1]


def test_models_of_equal_size_and_gap_are_drawn_side_by_side() -> None:
    figure = compared([point("base"), point("copy"), point("nearly", gap=0.3001), point("other", gap=0.6)])
    (axes,) = panels_of(figure)
    FigureCanvasAgg(figure).draw()
    spots = [dot.get_offsets()[0] for dot in dots_of(axes)]
    rights = [axes.transData.transform(spot)[0] / figure.dpi for spot in spots]
    assert np.diff(rights[:3]) == pytest.approx([0.21, 0.21], abs=1e-6)
    assert ([y for _, y in spots], spots[3][0]) == ([0.3, 0.3, 0.3001, 0.6], 1e9)
    assert "Models of equal size and slope gap are drawn side by side." in words(figure)


def test_a_model_without_a_gap_is_named_below_and_not_drawn() -> None:
    figure = compared([point("here"), point("gone", gap=NAN), point("lost", NAN, gap=NAN)])
    assert [len(dots_of(axes)) for axes in figure.axes] == [1]
    assert "Not shown because they have no slope gap: gone, lost." in words(figure)
    nobody = words(compared([point("gone", gap=NAN)]))
    assert {"no model has a slope gap", "Not shown because they have no slope gap: gone."} <= set(nobody)


ASKED = [(model, prompt) for model in ("gpt2", "llama") for prompt in ("", "A", "Fill in: {sentence}")]


def test_each_panel_shows_the_mean_of_each_group_at_each_w() -> None:
    panels = {one: asked(base=20.0 * place) for place, one in enumerate(ASKED)}
    panels["llama", "A"].loc[0, "female"] = NAN  # leaves one item of two
    panels["llama", "A"].loc[[2, 3], "male"] = NAN  # leaves none
    for place, axes in enumerate(panels_of(gridded(panels))):
        expected = [np.arange(5.0) + 20 * place + 10 * group for group in range(3)]
        if place == 4:
            expected[0][0] += 1.5
            expected[1][1] = NAN
        for group, dots in enumerate(marks_of(axes)):
            assert list(dots.get_xdata()) == [0, 1, 2, 3, 4]
            assert np.asarray(dots.get_ydata()) == pytest.approx(expected[group], nan_ok=True)
            assert (to_hex(dots.get_color()), dots.get_marker()) == (COLOURS[group].lower(), MARKERS[group])
    assert place == 5


@pytest.mark.parametrize(("width", "n_columns"), [(3.3, 2), (8.0, 5)])
def test_models_without_common_prompts_are_small_multiples_in_the_order_given(width: float, n_columns: int) -> None:
    models = ("zeta", "bert", "gpt2", "gpt2", "alpha", "mu", "nu")
    keys = list(zip(models, ("", "", "prompt C", "prompt A", "", "", ""), strict=True))
    with figure_width(width):
        figure = gridded({one: asked(base=10.0 * place) for place, one in enumerate(keys)})
    axes = panels_of(figure)
    assert [one.get_title(loc="left") for one in axes] == [" · ".join(filter(None, key)) for key in keys]
    assert [float(marks_of(one)[0].get_ydata()[0]) for one in axes] == [10.0 * place for place in range(7)]
    assert len({round(one.get_position().y0, 3) for one in axes}) == -(-7 // n_columns)
    assert figure.get_figwidth() == pytest.approx(width)
