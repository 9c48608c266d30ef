from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.checklist_results import CONTEXT, GAPS, NAN, WOMEN, aspects, gap, ranking, share, shares
from helpers.figure_checks import assert_readable, only_axes, panels_of, words
from undertow.report.figures.checklist_panels import MAX_RANKED, draw_aspects, draw_ranking
from undertow.types import Result

IN_ORDER = {
    "Consistency": 72.5,
    "Bias": 30.0,
    "Prefers woman": 40.0,
    "Prefers man": 60.0,
    "Switches to man": 5.0,
    "Switches to woman": 100.0,
    "Names the first": 61.0,
}


def many(count: int) -> list[Result]:
    return [gap(f"occupation {at}", at - count / 2, 0.01 if at % 3 else 0.5) for at in range(count)]


def bars(axes: Axes) -> list[float]:
    """Lengths of the bars, from the top; each must begin at 0."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert all(patch.get_x() == 0 for patch in found)
    return [patch.get_width() for patch in sorted(found, key=Rectangle.get_y)]


def lines(axes: Any, width: float) -> list[tuple[list[float], list[float]]]:
    """Where the lines of a width run, in the order they were drawn."""
    found = [line for line in axes.lines if line.get_linewidth() == width and line.get_linestyle() != "None"]
    return [([*map(float, line.get_xdata())], [*map(float, line.get_ydata())]) for line in found]


def rows_of(axes: Axes) -> list[str]:
    assert axes.yaxis.get_inverted()
    return [label.get_text() for label in axes.get_yticklabels()]


def test_bars_of_one_model_are_its_shares_in_the_papers_order_with_their_intervals() -> None:
    figure = aspects(shares()).figure
    axes = only_axes(figure)
    assert dict(zip(rows_of(axes), bars(axes), strict=True)) == IN_ORDER
    assert list(IN_ORDER) == rows_of(axes)
    assert axes.get_xlim() == (0, 100)
    ends = [[max(value - 4, 0), min(value + 3, 100)] for value in IN_ORDER.values()]
    assert lines(axes, 1.6) == [(both, [row, row]) for row, both in enumerate(ends)]
    said = words(figure)
    assert {"72.5 [68.5, 75.5]", "100.0 [96.0, 100.0]", "5.0 [1.0, 8.0]"} <= set(said)
    assert said.count("1,200") == 7


def test_a_measure_without_a_number_is_none_and_no_bar_of_length_0() -> None:
    results = [share("consistency"), share("preference_female", value=NAN), share("bias", value=0.0)]
    drawing = aspects(results)
    (axes,) = drawing.figure.axes
    assert bars(axes) == [72.5, 0.0]
    assert [text.get_position()[1] for text in axes.texts if text.get_text() == "none"] == [2]
    assert [text.get_text() for text in axes.texts].count("0") == 1, "its items are counted"
    assert "Prefers woman (no bias: 50): m none." in drawing.alt
    assert "None: no item was of that kind" in drawing.caption
    assert "None:" not in aspects([share("bias")]).caption
    lacks = aspects([share("consistency"), share("consistency", "n"), share("bias", "n")])
    assert [bars(axes) for axes in lacks.figure.axes] == [[72.5, 72.5], [30.0]]
    assert "Bias: m not measured; n 30.0 [26.0, 33.0] of 1,200 items." in lacks.alt


def test_only_the_occupations_context_and_model_of_a_figure_are_drawn() -> None:
    other = [
        share("consistency", value=1.0, **group)
        for group in ({"occupation": "nurse"}, {"context": "without attributes"})
    ]
    assert bars(aspects([*other, share("consistency")]).figure.axes[0]) == [72.5]
    assert draw_aspects([*other, share("bias", value=NAN)], CONTEXT) is None
    gaps = [gap("nurse", 50.0, model="n"), gap("nurse", 50.0, context="shuffled attributes"), gap("all", 50.0)]
    assert words(ranking([*gaps, share("bias", occupation="nurse"), *GAPS]).figure) == words(ranking().figure)
    assert draw_ranking([*gaps, GAPS[0]], WOMEN, CONTEXT, "m") is None, "one is no ranking"


def test_of_hundreds_both_ends_are_listed_and_it_is_said() -> None:
    assert "listed" not in ranking(many(MAX_RANKED), {}).caption
    drawing = ranking(many(300), {f"occupation {place}": place / 3 for place in range(300)})
    half = MAX_RANKED // 2
    left, right = panels_of(drawing.figure)
    shown = [float(line.get_xdata()[0]) for line in left.lines if line.get_marker() == "o"]
    assert shown == [*(149.0 - place for place in range(half)), *(half - 151.0 - place for place in range(half))]
    assert f"{300 - MAX_RANKED} more between these" in [text.get_text() for text in left.texts]
    assert f"Of 300 occupations the {half} at either end are listed" in drawing.caption
    assert len([line for line in right.lines if line.get_marker() == "o"]) == 300
    assert_readable(drawing.figure)
