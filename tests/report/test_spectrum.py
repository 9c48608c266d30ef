"""The figure of the papers: what it shows, and that none of its words hides another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from undertow.report.drawing import Drawing, lettering, png_bytes, svg_text
from undertow.report.spectrum import (
    COLOURS,
    MARKERS,
    WIDTH_PX,
    FittedLine,
    _apart,
    describe_spectrum,
    spectrum,
)
from undertow.types import Floats, UndertowError

DATES = [str(year) for year in np.linspace(1801, 2016, 30).astype(int)]
# fmt: off
PLACES = [
    "Afghanistan", "Yemen", "Iraq", "Pakistan", "Syria", "Democratic Republic of Congo", "Iran", "Mali",
    "Chad", "Saudi Arabia", "Switzerland", "Ireland", "Lithuania", "Rwanda", "Namibia", "Sweden",
    "New Zealand", "Norway", "Finland", "Iceland",
]
SUBREDDITS = [
    "GlobalOffensive", "pcmasterrace", "nfl", "sports", "The_Donald", "leagueoflegends", "Overwatch",
    "gonewild", "Futurology", "space", "technology", "gaming", "Jokes", "dataisbeautiful", "woahdude",
    "askscience", "wow", "anime", "BlackPeopleTwitter", "politics", "pokemon", "worldnews", "reddit.com",
    "interestingasfuck", "videos", "nottheonion", "television", "science", "atheism", "movies", "gifs",
    "Music", "trees", "EarthPorn", "GetMotivated", "pokemongo", "news", "Fitness", "Showerthoughts",
    "OldSchoolCool", "explainlikeimfive", "todayilearned", "gameofthrones", "AdviceAnimals", "DIY", "WTF",
    "IAmA", "cringepics", "tifu", "mildlyinteresting", "funny", "pics", "LifeProTips", "creepy",
    "personalfinance", "food", "AskReddit", "books", "aww", "sex", "relationships",
]
# fmt: on
LONG = [
    "the very first of all the things that were put in",
    *("Xx" * 40 for _ in range(9)),
    "Ὀδυσσεύς and Москва and القاهرة",
]
LISTS = {
    "dates": DATES,
    "places": PLACES,
    "subreddits": SUBREDDITS,
    "long": LONG,
    "forty-five": [f"{name} {place}" for place, name in enumerate(SUBREDDITS[:45])],
    "three": ["first of them", "second", "the very last of them"],
    "two": ["a" * 60, "b" * 60],
    "one": ["only"],
}


def observed(values: Sequence[str], groups: Sequence[str], per_value: int = 2) -> pd.DataFrame:
    """Masses that rise by one percent per step for the first group, and fall for the others."""
    index = np.repeat(np.arange(len(values)), per_value)
    table = pd.DataFrame(
        {"w": np.repeat(np.array(values, dtype=object), per_value), "w_index": index, "w_name": "date"}
    )
    for place, group in enumerate(groups):
        table[group] = 10.0 + place + (index if place == 0 else (len(values) - index) / 2)
    return table


def line(group: str, slope: float = -0.561, r: float = -0.784, end: float = 20.0, steps: int = 29) -> FittedLine:
    x = np.linspace(0, steps, 7)
    mean = end - slope * (x[-1] - x)
    return FittedLine(group, slope, r, x, mean, mean - 2, mean + 2)


def axes_of(figure: Figure) -> Any:
    """The figure's only axes, untyped: the tests look into what it drew."""
    (axes,) = figure.axes
    return axes


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def corners(label: Text) -> Floats:
    """The four corners of a text that is turned about the right end of its middle line [corner, xy]."""
    slant = math.radians(label.get_rotation())
    label.set_rotation(0)
    box = label.get_window_extent()
    label.set_rotation(math.degrees(slant))
    pivot = np.array([box.x1, (box.y0 + box.y1) / 2])
    turn = np.array([[math.cos(slant), -math.sin(slant)], [math.sin(slant), math.cos(slant)]])
    return (np.asarray(box.corners()) - pivot) @ turn.T + pivot if slant else np.asarray(box.corners())


def overlap(one: Floats, two: Floats, slant_degrees: float) -> bool:
    """Whether two equally turned rectangles share ground: their shadows do along both of their sides."""
    slant = math.radians(slant_degrees)
    for side in ((math.cos(slant), math.sin(slant)), (-math.sin(slant), math.cos(slant))):
        first, second = one @ np.array(side), two @ np.array(side)
        if first.max() <= second.min() or second.max() <= first.min():
            return False
    return True


@pytest.mark.parametrize("groups", [["she", "he", "they"], ["words that call a person warm", "words that do not"]])
@pytest.mark.parametrize("name", LISTS)
def test_tick_labels_never_overlap_and_name_first_and_last(name: str, groups: list[str]) -> None:
    values = LISTS[name]
    figure = spectrum(observed(values, groups), groups, title=name)
    with lettering("".join(values)):
        FigureCanvasAgg(figure).draw()
        labels = axes_of(figure).get_xticklabels()
        boxes = [corners(label) for label in labels]
    slant = labels[0].get_rotation()
    assert not [
        (a.get_text(), b.get_text())
        for (a, one), (b, two) in itertools.combinations(zip(labels, boxes, strict=True), 2)
        if overlap(one, two, slant)
    ]
    assert labels[0].get_text()[:3] == values[0][:3]
    assert labels[-1].get_text()[-3:] == values[-1][-3:]
    width, height = figure.get_size_inches() * figure.dpi
    for box in boxes:
        assert box.min() >= 0
        assert box[:, 0].max() <= width
        assert box[:, 1].max() <= height


@pytest.mark.parametrize(("name", "fewest"), [("dates", 10), ("places", 20), ("subreddits", 31)])
def test_as_many_values_are_named_as_there_is_room_for_evenly(name: str, fewest: int) -> None:
    groups = ["female", "male", "neutral"]
    figure = spectrum(observed(LISTS[name], groups), groups, title=name, lines=[line("female")])
    axes = axes_of(figure)
    ticks = axes.get_xticks()
    assert len(ticks) >= fewest
    gaps = np.diff(ticks)
    assert gaps.max() - gaps.min() <= 1
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown == [LISTS[name][int(tick)] for tick in ticks]


def test_dots_are_the_means_of_what_was_scored() -> None:
    table = pd.DataFrame(
        {
            "w": ["b", "b", "a", "a"],
            "w_index": [1, 1, 0, 0],
            "she": [10.0, 20.0, 7.0, math.nan],
            "he": [0.0, 1.0, 2.0, 4.0],
        }
    )
    figure = spectrum(table, ["she", "he"], title="t")
    dots = [drawn for drawn in axes_of(figure).lines if len(drawn.get_xdata()) == 2 and drawn.get_marker() != "None"]
    assert [list(drawn.get_ydata()) for drawn in dots] == [[7.0, 15.0], [3.0, 0.5]]
    assert [list(drawn.get_xdata()) for drawn in dots] == [[0.0, 1.0], [0.0, 1.0]]
    assert [label.get_text() for label in axes_of(figure).get_xticklabels()] == ["a", "b"]


def test_line_and_band_are_those_of_the_caller() -> None:
    fitted = line("she")
    axes = axes_of(spectrum(observed(DATES, ["she"]), ["she"], title="t", lines=[fitted]))
    assert any(np.array_equal(drawn.get_ydata(), fitted.mean) for drawn in axes.lines)
    outline = axes.collections[0].get_paths()[0].vertices
    assert outline[:, 1].min() == pytest.approx(fitted.low.min())
    assert outline[:, 1].max() == pytest.approx(fitted.high.max())


def test_each_line_is_named_beside_its_end() -> None:
    figure = spectrum(observed(DATES, ["she", "he"]), ["she", "he"], title="t", lines=[line("she")])
    shown = texts(figure)
    assert "she" in shown
    assert "−0.56 per step, r = −.78" in shown
    assert "no line" in shown


@pytest.mark.parametrize("count", [1, 2, 3, 8, 11])
def test_words_of_the_key_do_not_overlap_even_where_all_lines_end_at_one_place(count: int) -> None:
    groups = [f"group {place}" for place in range(count)]
    lines = [line(group) for group in groups]
    figure = spectrum(observed(DATES, groups), groups, title="t", lines=lines)
    FigureCanvasAgg(figure).draw()
    boxes = [text.get_window_extent() for text in axes_of(figure).texts]
    assert len(boxes) == 2 * count
    # Lines of text may share a pixel of leading; letters of one never reach those of the next.
    assert not [
        pair for pair in itertools.combinations(boxes, 2) if pair[0].shrunk(1, 0.8).overlaps(pair[1].shrunk(1, 0.8))
    ]
    assert max(box.x1 for box in boxes) <= WIDTH_PX
    assert min(box.y0 for box in boxes) >= 0
    assert max(box.y1 for box in boxes) <= figure.get_size_inches()[1] * figure.dpi


def test_groups_differ_in_colour_and_in_marker() -> None:
    groups = [f"g{place}" for place in range(8)]
    axes = axes_of(spectrum(observed(DATES, groups), groups, title="t"))
    dots = [drawn for drawn in axes.lines if len(drawn.get_xdata()) == len(DATES)]
    assert {drawn.get_color() for drawn in dots} == set(COLOURS)
    assert {drawn.get_marker() for drawn in dots} == set(MARKERS)


def test_percent_starts_at_zero_and_leaves_headroom() -> None:
    axes = axes_of(spectrum(observed(DATES, ["she"]), ["she"], title="t"))
    assert axes.get_ylim()[0] == 0
    assert 39 * 1.02 < axes.get_ylim()[1] < 39 * 1.3


def test_a_band_that_dwarfs_the_dots_does_not_flatten_them() -> None:
    wide = line("she")
    wide = FittedLine("she", wide.slope, wide.r, wide.x, wide.mean, wide.mean - 900, wide.mean + 900)
    axes = axes_of(spectrum(observed(DATES, ["she"]), ["she"], title="t", lines=[wide]))
    assert axes.get_ylim()[1] < 60


@pytest.mark.parametrize("values", [[math.nan] * 3, [0.0] * 3, [5.0] * 3, [5.0, math.nan, math.nan], [100.0] * 3])
def test_missing_and_constant_means_are_drawn_in_silence(values: list[float]) -> None:
    table = pd.DataFrame({"w": ["a", "b", "c"], "w_index": [0, 1, 2], "she": values, "he": 1.0})
    nowhere = np.full(3, math.nan)
    lines = [
        FittedLine("he", 0.0, math.nan, np.arange(3.0), np.ones(3), np.ones(3), np.ones(3)),
        FittedLine("she", math.nan, math.nan, np.arange(3.0), nowhere, nowhere, nowhere),
    ]
    figure = spectrum(table, ["she", "he"], title="t", lines=lines)
    assert "0.00 per step, r undefined" in texts(figure)
    assert ("nothing scored" in texts(figure)) == all(math.isnan(value) for value in values)
    drawing = Drawing("d", figure, "c", describe_spectrum(table, ["she", "he"], lines))
    assert png_bytes(drawing)
    assert svg_text(drawing)


def test_user_text_is_drawn_as_it_is() -> None:
    payload = '<script>"$x^2$"</script> & \u0378'  # no font has the last sign, so the SVG keeps its text
    table = observed([payload, "b", "c"], [payload])
    figure = spectrum(table, [payload], title=payload, lines=[line(payload, steps=2)], x_label=payload)
    root = ET.fromstring(svg_text(Drawing("d", figure, "c", "a")))
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert payload in "".join(root.itertext())


def test_signs_that_no_file_may_hold_are_left_out() -> None:
    payload = "a\x00b\nc \x1b\u0378"
    figure = spectrum(observed([payload, "b", "c"], [payload]), [payload], title=payload, x_label=payload)
    shown = "".join(ET.fromstring(svg_text(Drawing("d", figure, "c", "a"))).itertext())
    assert shown.count("a b c \u0378") == 4  # title, label, tick and key


def test_a_long_title_is_broken_into_lines_that_fit() -> None:
    figure = spectrum(observed(DATES, ["she"]), ["she"], title="/models/" + "very-long-" * 30 + " date")
    FigureCanvasAgg(figure).draw()
    title = figure.texts[0]
    assert "\n" in title.get_text()
    assert title.get_window_extent().x1 <= WIDTH_PX


def test_figures_of_the_same_table_are_the_same() -> None:
    def made() -> Drawing:
        figure = spectrum(observed(PLACES, ["she", "he"]), ["she", "he"], title="t", lines=[line("she", steps=19)])
        return Drawing("d", figure, "c", "a")

    assert svg_text(made()) == svg_text(made())
    assert png_bytes(made()) == png_bytes(made())


@given(st.lists(st.tuples(st.floats(0, 350), st.floats(10, 60)), min_size=1, max_size=12))
def test_pushed_apart_boxes_keep_order_distance_and_room(boxes: list[tuple[float, float]]) -> None:
    wanted, heights = np.array(boxes).T
    room = max(350.0, heights.sum())
    centres = _apart(wanted, heights, room)
    order = np.argsort(wanted, kind="stable")
    upper, lower = (centres + heights / 2)[order], (centres - heights / 2)[order]
    assert np.all(lower[1:] >= upper[:-1] - 1e-6)
    assert lower[0] >= -1e-6
    assert upper[-1] <= room + 1e-6


def test_boxes_that_have_room_stay_where_they_are() -> None:
    wanted = np.array([200.0, 50.0])
    assert _apart(wanted, np.array([20.0, 20.0]), 300.0).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": "w_index"}, "lack the column 'w_index'"),
        ({"drop": "she"}, "lack the column 'she'"),
        ({"model": ["a", "b"] * 30}, "one figure shows one model"),
        ({"w_name": ["date", "place"] * 30}, "one figure shows one w_name"),
        ({"empty": True}, "no observations"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    table = observed(DATES, ["she"])
    if "drop" in change:
        table = table.drop(columns=change["drop"])
    elif "empty" in change:
        table = table.iloc[:0]
    else:
        table = table.assign(**change)
    with pytest.raises(UndertowError, match=message):
        spectrum(table, ["she"], title="t")


def test_the_description_says_what_the_figure_shows() -> None:
    table = observed(DATES, ["she", "he"])
    told = describe_spectrum(table, ["she", "he"], [line("she", slope=-0.5, end=20.0)])
    assert told == (
        "Mean mass by date, 30 values from 1801 to 2016. she: from 34.5 to 20.0 percent along its line, "
        "−0.50 per step, r = −.78. he: 11.5 to 26.0 percent, no line."
    )
