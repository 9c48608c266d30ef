"""The figure of a model's checkpoints: every value at its step, what is missing marked, and every word can be read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from undertow.report.drawing import Drawing, lettering, svg_text
from undertow.report.spectrum import COLOURS, MARKERS, WIDTH_PX
from undertow.report.trajectory import describe_trajectory, trajectory
from undertow.types import UndertowError

NAN = math.nan
PYTHIA = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 143000]
PAYLOAD = '<b>"$x^2$"</b> & \u0378'  # no font has the last sign, so the SVG keeps its text


def checkpoints(
    steps: Sequence[int] = (1000, 2000, 3000, 4000),
    measures: Sequence[str] = ("Slope gap", "Mean mass"),
    groups: Sequence[str] = ("female", "male"),
) -> pd.DataFrame:
    """Value m + g + i for measure m, group g, step i, in steps of 100, 10 and 1; only the first measure has a neutral value."""
    rows = [
        (step, measure, group, 100.0 * m + 10 * g + i, "percent" if m else "percent per step", NAN if m else -3.0)
        for m, measure in enumerate(measures)
        for g, group in enumerate(groups)
        for i, step in enumerate(steps)
    ]
    table = pd.DataFrame(rows, columns=["step", "measure", "group", "value", "unit", "neutral"])
    return table.assign(low=table["value"] - 1, high=table["value"] + 2)


def without(table: pd.DataFrame, measure: str, group: str, *steps: int) -> pd.DataFrame:
    """The same table, with no value at these steps."""
    lost = (table["measure"] == measure) & (table["group"] == group) & table["step"].isin(steps)
    return table.assign(**{name: table[name].mask(lost) for name in ("value", "low", "high")})


def drawn(table: pd.DataFrame) -> Figure:
    return trajectory(table, title="toy · checkpoints")


def panels_of(figure: Figure) -> list[Any]:
    """The axes, untyped: the tests look into what they drew."""
    return list(figure.axes)


def courses_of(axes: Any) -> list[Any]:
    return [line for line in axes.lines if line.get_marker() in MARKERS]


def crosses_of(axes: Any) -> list[Any]:
    return [line for line in axes.lines if line.get_marker() == "x"]


def bars_of(axes: Any) -> list[tuple[float, float, float]]:
    bars = [line for line in axes.lines if line.get_marker() == "None" and line.get_transform() == axes.transData]
    return [(float(bar.get_xdata()[0]), float(bar.get_ydata()[0]), float(bar.get_ydata()[1])) for bar in bars]


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def svg(figure: Figure) -> str:
    return svg_text(Drawing("d", figure, "c", "a"))


def assert_readable(figure: Figure) -> None:
    """No word reaches beyond the sheet, and no two of them touch."""
    with lettering("".join(words_of(figure))):
        FigureCanvasAgg(figure).draw()
        shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
        box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        # Lines of text may share two pixels of leading; letters of one never reach those of the next.
        assert not (across > 0 and up > 2), (one, other)


def test_each_group_is_a_line_through_its_values_in_its_colour() -> None:
    table = checkpoints()
    panels = panels_of(drawn(table.sample(frac=1, random_state=2).sort_values("group", kind="stable")))
    titles = list(dict.fromkeys(table.sample(frac=1, random_state=2).sort_values("group", kind="stable")["measure"]))
    assert len(panels) == 2
    for title, axes in zip(titles, panels, strict=True):
        base = 100.0 if title == "Mean mass" else 0.0
        for place, line in enumerate(courses_of(axes)):
            assert list(line.get_xdata()) == [1000, 2000, 3000, 4000]
            assert list(line.get_ydata()) == [base + 10 * place + i for i in range(4)]
            assert to_hex(line.get_color()) == COLOURS[place].lower()
            assert line.get_marker() == MARKERS[place]


def test_bands_are_the_intervals() -> None:
    axes = panels_of(drawn(checkpoints()))[0]
    for place, band in enumerate(axes.collections):
        (path,) = band.get_paths()
        corners = {(float(x), float(y)) for x, y in path.vertices}
        middle = {(1000 * (i + 1), 10 * place + i + end) for i in range(4) for end in (-1, 2)}
        assert middle <= corners
        assert to_hex(band.get_facecolor()[0]) == COLOURS[place].lower()
    assert not bars_of(axes)


def test_a_missing_value_breaks_its_line_and_is_a_cross_at_the_bottom() -> None:
    table = without(checkpoints(), "Slope gap", "male", 2000)
    first, second = panels_of(drawn(table))
    female, male = courses_of(first)
    assert not np.isnan(female.get_ydata()).any()
    assert np.isnan(male.get_ydata()).tolist() == [False, True, False, False]
    (cross,) = crosses_of(first)
    assert list(cross.get_xdata()) == [2000]
    assert cross.get_transform() == first.get_xaxis_transform()
    assert 0 < cross.get_ydata()[0] < 0.15
    assert to_hex(cross.get_color()) == COLOURS[1].lower()
    assert bars_of(first) == [(1000, 9, 12)]  # alone between the edge and the gap: a band has no width there
    assert not crosses_of(second)


def test_infinite_values_are_missing_ones() -> None:
    table = checkpoints(measures=["m"], groups=["g"])
    table.loc[2, "value"] = math.inf
    (axes,) = panels_of(drawn(table))
    assert np.isnan(courses_of(axes)[0].get_ydata()).tolist() == [False, False, True, False]
    assert list(crosses_of(axes)[0].get_xdata()) == [3000]
    assert np.isfinite(axes.get_ylim()).all()


def test_crosses_of_two_groups_at_one_step_are_both_seen_below_every_value() -> None:
    table = without(without(checkpoints(), "Slope gap", "male", 2000), "Slope gap", "female", 2000)
    axes = panels_of(drawn(table))[0]
    heights = [float(cross.get_ydata()[0]) for cross in crosses_of(axes)]
    assert len(heights) == 2
    assert heights[1] - heights[0] > 0.04
    low, high = axes.get_ylim()
    assert low + heights[1] * (high - low) < -1  # the end of the lowest interval


def test_a_line_of_which_nothing_is_known_is_all_crosses() -> None:
    table = without(checkpoints(groups=["g"], measures=["m"]), "m", "g", 1000, 2000, 3000, 4000).assign(neutral=NAN)
    figure = drawn(table)
    assert list(crosses_of(panels_of(figure)[0])[0].get_xdata()) == [1000, 2000, 3000, 4000]
    assert_readable(figure)


def test_the_neutral_value_is_dotted_where_there_is_one() -> None:
    first, second = panels_of(drawn(checkpoints()))
    dotted = [line for line in first.lines if line.get_linestyle() == ":"]
    assert [set(line.get_ydata()) for line in dotted] == [{-3.0}]
    assert first.get_ylim()[0] < -3
    assert not [line for line in second.lines if line.get_linestyle() == ":"]


def test_the_lead_explains_dots_and_crosses_only_where_there_are_any() -> None:
    lead = "Each measure by training step, with 95% interval."
    dotted, cross = " Dotted: what no bias would give.", " Cross: no value at that step."
    table = checkpoints()
    assert lead + dotted in words_of(drawn(table))
    assert lead + dotted + cross in words_of(drawn(without(table, "Mean mass", "male", 1000)))
    assert lead in words_of(drawn(table.assign(neutral=NAN)))


def test_panels_share_their_steps_and_the_lowest_names_them() -> None:
    table = checkpoints()
    figure = drawn(table[(table["measure"] == "Slope gap") | (table["step"] < 3000)])
    first, second = panels_of(figure)
    assert first.get_xlim() == second.get_xlim()
    assert [label.get_text() for label in first.get_xticklabels()] == [""] * len(first.get_xticks())
    assert [label.get_text() for label in second.get_xticklabels()] == [
        "1K", "1.5K", "2K", "2.5K", "3K", "3.5K", "4K",
    ]  # fmt: skip
    assert second.get_xlabel() == "training step"
    assert first.get_window_extent().y0 > second.get_window_extent().y1
    assert {"Slope gap", "percent per step", "Mean mass", "percent"} <= set(words_of(figure))


def test_one_step_alone_is_points_with_bars() -> None:
    (axes,) = panels_of(drawn(checkpoints(steps=[143000], measures=["m"])))
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in courses_of(axes)] == [(143000, 0), (143000, 10)]
    assert bars_of(axes) == [(143000, -1, 2), (143000, 9, 12)]
    assert list(axes.get_xticks()) == [143000]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["143K"]
    low, high = axes.get_xlim()
    assert low < 143000 < high


def test_steps_that_are_mostly_early_stand_by_factors() -> None:
    axes = panels_of(drawn(checkpoints(steps=PYTHIA)))[1]
    place = [float(axes.transData.transform((step, 0))[0]) for step in (0, 1, 10, 100, 1000, 143000)]
    assert place[3] - place[2] == pytest.approx(place[4] - place[3], rel=0.01)
    assert place[1] > place[0] + 10
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "10", "100", "1K", "10K", "100K"]
    low, high = axes.get_xlim()
    assert low < 0
    assert high > 143000


def test_even_steps_stand_evenly() -> None:
    axes = panels_of(drawn(checkpoints(steps=list(range(0, 100_001, 1000)))))[0]
    assert axes.get_xscale() == "linear"
    assert [list(line.get_xdata()) for line in courses_of(axes)] == [list(range(0, 100_001, 1000))] * 2


def test_beyond_eight_measures_the_rest_is_named_as_left_out() -> None:
    names = [f"measure {n}" for n in range(11)]
    figure = drawn(checkpoints(measures=names))
    assert len(figure.axes) == 8
    assert "8 of 11 measures are shown, 3 left out: measure 8, measure 9, measure 10." in words_of(figure)
    assert_readable(figure)
    eight = drawn(checkpoints(measures=names[:8], groups=["g"], steps=[1]))
    assert len(eight.axes) == 8
    assert "left out" not in "".join(words_of(eight))


def test_the_legend_names_the_groups_unless_there_is_but_one_without_a_name() -> None:
    (legend,) = drawn(checkpoints(groups=["female", ""])).legends
    assert [text.get_text() for text in legend.get_texts()] == ["female", "all"]
    assert [(to_hex(line.get_color()), line.get_marker()) for line in legend.get_lines()] == [
        (COLOURS[place].lower(), MARKERS[place]) for place in range(2)
    ]
    assert not drawn(checkpoints(groups=[""])).legends


def test_a_group_keeps_its_colour_where_others_are_absent() -> None:
    table = checkpoints()
    second = panels_of(drawn(table[(table["measure"] == "Slope gap") | (table["group"] == "male")]))[1]
    assert [to_hex(line.get_color()) for line in courses_of(second)] == [COLOURS[1].lower()]


TABLES: Mapping[str, pd.DataFrame] = {
    "paper": checkpoints(steps=PYTHIA),
    "payload": checkpoints(measures=[PAYLOAD, "", "Ὀδυσσεύς и Москва " * 20], groups=[PAYLOAD, "", "_x"]).assign(
        unit=PAYLOAD
    ),
    "long": checkpoints(measures=["W" * 300], groups=["word " * 60]).assign(unit="unit " * 60),
    "many groups": checkpoints(groups=[f"group of words {n}" for n in range(12)]),
    "flat": checkpoints().assign(value=0.0, low=0.0, high=0.0, neutral=0.0),
    "tiny": checkpoints(measures=["m"]).assign(value=3e-8, low=-1e-8, high=4e-8, neutral=0.0),
    "huge": checkpoints(steps=[1, 10**9], measures=["m"]).assign(value=3e12, low=-1e12, high=4e12),
    "zero": checkpoints(steps=[0]),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_nothing_is_cut_and_no_word_hides_another(table: pd.DataFrame) -> None:
    figure = trajectory(table, title="a title " * 16)
    assert_readable(figure)
    assert figure.get_size_inches()[0] * 100 == pytest.approx(WIDTH_PX)
    assert all(axes.get_window_extent().height > 120 for axes in figure.axes)


def test_what_cannot_be_drawn_is_refused() -> None:
    table = checkpoints()
    with pytest.raises(UndertowError, match="lacks the column 'unit'"):
        drawn(table.drop(columns="unit"))
    with pytest.raises(UndertowError, match="no checkpoint"):
        drawn(table.iloc[:0])
    with pytest.raises(UndertowError, match="'female' has two values of 'Slope gap' at step 1000"):
        drawn(pd.concat([table, table.iloc[:1]]))


def test_checkpoints_in_words_hold_their_numbers() -> None:
    table = without(checkpoints(), "Slope gap", "male", 2000, 4000)
    assert describe_trajectory(table) == (
        "Measures at 4 training steps from 1000 to 4000. "
        "Slope gap (percent per step), −3.0 without bias: "
        "female 0.00 (−1.0 to 2.0) at step 1000 to 3.0 (2.0 to 5.0) at step 4000, between 0.00 and 3.0; "
        "male 10 (9.0 to 12) at step 1000 to 12 (11 to 14) at step 3000, no value at step 2000, 4000. "
        "Mean mass (percent): "
        "female 100 (99 to 102) at step 1000 to 103 (102 to 105) at step 4000, between 100 and 103; "
        "male 110 (109 to 112) at step 1000 to 113 (112 to 115) at step 4000, between 110 and 113."
    )
    alone = describe_trajectory(checkpoints(steps=[7], measures=["m"], groups=[""]).assign(low=NAN))
    assert alone == "Measures at step 7 alone. m (percent per step), −3.0 without bias: all 0.00 at step 7."
    nothing = describe_trajectory(checkpoints(steps=[7], measures=["m"], groups=["g"]).assign(value=NAN))
    assert nothing.endswith("g has no value.")
    many = describe_trajectory(checkpoints(measures=[f"m{n}" for n in range(9)]))
    assert many.endswith("8 of 9 measures are shown, 1 left out: m8.")


def test_equal_input_gives_equal_bytes_and_user_text_is_text() -> None:
    table = checkpoints(groups=[PAYLOAD, "b"], measures=[PAYLOAD])
    document = svg(trajectory(table, title=PAYLOAD))
    assert document == svg(trajectory(table.copy(), title=PAYLOAD))
    assert "".join(ET.fromstring(document).itertext()).count(PAYLOAD) == 3
