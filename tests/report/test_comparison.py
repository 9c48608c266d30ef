"""The figures that set models side by side: numbers where they belong, looks explained, and every word can be read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from undertow.report.comparison import ModelPoint, describe_slope_against_size, slope_against_size
from undertow.report.drawing import Drawing, lettering, svg_text
from undertow.report.grid import describe_model_grid, model_grid
from undertow.report.sheet import amount, even_ticks
from undertow.report.spectrum import COLOURS, MARKERS, WIDTH_PX, FittedLine
from undertow.types import Floats, UndertowError

NAN = math.nan
GAP = "female less male"
PAYLOAD = '<b>"$x^2$"</b> & \u0378'  # no font has the last sign, so the SVG keeps its text


def point(name: str, parameters: float = 1e9, gap: float = 0.3, **other: Any) -> ModelPoint:
    plain_one = ModelPoint(name, parameters, "autoregressive", "", gap, gap - 0.2, gap + 0.15, 0.5, 3)
    return replace(plain_one, **other)


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


def compared(points: Sequence[ModelPoint], title: str = "toy · date") -> Figure:
    return slope_against_size(points, title=title, gap=GAP)


def svg(figure: Figure) -> str:
    return svg_text(Drawing("d", figure, "c", "a"))


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


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


def dots_of(axes: Any) -> list[Any]:
    return [dot for dot in axes.collections if isinstance(dot, PathCollection)]


def bars_of(axes: Any) -> list[tuple[float, float, float]]:
    """Place, lower and upper end of each upright bar, in the order drawn; leaders and the line at 0 are none."""
    bars = [line for line in axes.lines if line.get_transform() == axes.transData]
    return [(float(bar.get_xdata()[0]), float(bar.get_ydata()[0]), float(bar.get_ydata()[1])) for bar in bars]


def legends_of(figure: Figure) -> list[dict[str, Any]]:
    return [
        dict(zip((text.get_text() for text in legend.get_texts()), legend.legend_handles, strict=True))
        for legend in figure.legends
    ]


def areas_of(figure: Figure) -> list[float]:
    """What each marker fills on the sheet, in square points."""
    FigureCanvasAgg(figure).draw()  # or the markers have no size yet
    return [_filled_pt2(dot) for dot in dots_of(figure.axes[0])]


def _filled_pt2(dot: Any) -> float:
    (path,), (matrix,) = dot.get_paths(), dot.get_transforms()
    (corners,) = path.transformed(Affine2D(matrix)).to_polygons()
    x, y = np.asarray(corners).T
    pixels = abs(float(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))) / 2
    return pixels * (72 / 100) ** 2


def named_at(figure: Figure, name: str) -> Any:
    """Where a name stands, in pixels."""
    (text,) = [text for text in figure.texts if text.get_text() == name]
    return text.get_window_extent()


# Slope gap against size.


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


def test_a_model_of_unknown_size_stands_apart_where_no_size_is_named() -> None:
    for size in (NAN, math.inf, 0.0, -5.0):
        figure = compared([point("known"), point("unknown", size, -0.2)])
        sized, strip = figure.axes
        assert len(dots_of(sized)) == len(dots_of(strip)) == 1
        assert dots_of(strip)[0].get_offsets()[0][1] == -0.2
        assert not list(strip.get_xticks())
        assert strip.get_window_extent().x0 > sized.get_window_extent().x1
        assert strip.get_window_extent().width < sized.get_window_extent().width / 2
        under = named_at(figure, "size not known")
        assert strip.get_window_extent().x0 < under.x0 < under.x1 < strip.get_window_extent().x1
        assert named_at(figure, "unknown").x0 > strip.get_window_extent().x0


def test_where_no_size_is_known_the_strip_is_all_there_is() -> None:
    figure = compared([point("one", NAN), point("other", NAN)])
    (strip,) = figure.axes
    assert not list(strip.get_xticks())
    assert strip.get_window_extent().width > 0.7 * WIDTH_PX
    assert "number of parameters" not in words_of(figure)


def test_every_sized_model_is_told_without_a_strip() -> None:
    figure = compared(PAPER[:9])
    assert len(figure.axes) == 1
    assert "size not known" not in words_of(figure)


def test_the_line_at_zero_is_said_to_be_no_drift() -> None:
    figure = compared(PAPER)
    each: list[Any] = figure.axes
    for axes in each:
        (zero,) = [line for line in axes.lines if list(line.get_xdata()) == [0, 1] and set(line.get_ydata()) == {0}]
        assert zero.get_transform() == axes.get_yaxis_transform(which="grid")
    words = named_at(figure, "no drift")
    at_zero = figure.axes[0].transData.transform((1e9, 0.0))[1]
    assert words.y0 < at_zero < words.y1
    assert words.x0 > figure.axes[-1].get_window_extent().x1


@pytest.mark.parametrize("sign", [1, -1])
def test_zero_is_always_shown(sign: int) -> None:
    low, high = compared([point("one", gap=sign * 3.0, low=NAN, high=NAN)]).axes[0].get_ylim()
    assert low < 0 < high
    assert min(0, sign * 3.0) > low
    assert max(0, sign * 3.0) < high


def test_area_grows_with_r_squared_and_is_seen_at_zero() -> None:
    shares = [0.0, 0.1, 0.4, 0.7, 1.0]
    figure = compared([point(f"m{share}", 10 ** (8 + share), r_squared=share) for share in shares])
    areas = areas_of(figure)
    assert 15 < areas[0] < 17
    assert np.diff(areas) == pytest.approx(np.diff(shares) * (areas[-1] - areas[0]), rel=0.02)


def test_equal_r_squared_is_equal_area_whatever_the_shape() -> None:
    figure = compared([point(f"m{n}", 10.0 ** (6 + n), post_training="stage" * n) for n in range(9)])
    assert len({dot.get_paths()[0].vertices.tobytes() for dot in dots_of(figure.axes[0])}) == 9
    areas = areas_of(figure)
    assert areas == pytest.approx([areas[0]] * 9, rel=0.02)


def test_the_legend_shows_three_areas_as_they_are_drawn() -> None:
    figure = compared([point(f"m{share}", 10 ** (8 + share), r_squared=share) for share in (0.0, 0.5, 1.0)])
    legend = legends_of(figure)[2]
    assert list(legend) == [".00", ".50", "1.00"]
    assert [line.get_markersize() ** 2 for line in legend.values()] == pytest.approx(
        [dot.get_sizes()[0] for dot in dots_of(figure.axes[0])]
    )
    assert figure.legends[2].get_title().get_text() == "Area: r² of the fitted lines"


def test_an_undefined_r_squared_is_hollow_and_said_to_be() -> None:
    figure = compared([point("one", r_squared=NAN), point("other", 2e9)])
    hollow, filled = dots_of(figure.axes[0])
    assert to_hex(hollow.get_facecolor()[0]) == "#ffffff"
    assert to_hex(hollow.get_edgecolor()[0]) == to_hex(filled.get_facecolor()[0]) == COLOURS[0].lower()
    assert list(legends_of(figure)[2])[-1] == "undefined"


def looks(figure: Figure, points: Sequence[ModelPoint]) -> dict[str, tuple[str, bytes]]:
    """Colour and outline of each model's marker."""
    ordered = [one for one in points if math.isfinite(one.parameters)]
    ordered += [one for one in points if not math.isfinite(one.parameters)]
    dots = [dot for axes in figure.axes for dot in dots_of(axes)]
    return {
        one.name: (to_hex(dot.get_edgecolor()[0] if math.isnan(one.r_squared) else dot.get_facecolor()[0]),
                   dot.get_paths()[0].vertices.tobytes())
        for one, dot in zip(ordered, dots, strict=True)
    }  # fmt: skip


def test_colour_is_the_objective_and_shape_the_stage_whatever_the_order() -> None:
    seen = looks(compared(PAPER), PAPER)
    assert looks(compared(PAPER[::-1]), PAPER[::-1]) == seen
    colour = {one.objective: seen[one.name][0] for one in PAPER}
    shape = {one.post_training: seen[one.name][1] for one in PAPER}
    assert len(set(colour.values())) == len(colour) == 5
    assert len(set(shape.values())) == len(shape) == 3
    for one in PAPER:
        assert seen[one.name] == (colour[one.objective], shape[one.post_training])


def test_the_legends_explain_colour_and_shape() -> None:
    figure = compared(PAPER)
    seen = looks(figure, PAPER)
    objectives, stages, _ = legends_of(figure)
    assert list(objectives) == ["autoregressive", "denoisers", "masked", "span corruption", "not known"]
    assert list(stages) == ["RLHF", "instruction tuned", "none known"]
    for one in PAPER:
        assert to_hex(objectives[one.objective or "not known"].get_facecolor()) == seen[one.name][0]
    assert [line.get_marker() for line in stages.values()] == [MARKERS[1], MARKERS[2], MARKERS[0]]
    assert [legend.get_title().get_text() for legend in figure.legends[:2]] == [
        "Colour: training objective",
        "Shape: post-training",
    ]
    lowest = min(axes.get_window_extent().y0 for axes in figure.axes)
    assert all(legend.get_window_extent().y1 < lowest for legend in figure.legends)


def test_objectives_beyond_the_colours_share_the_last_and_are_all_named() -> None:
    points = [
        point(f"m{n}", 10.0 ** (6 + n / 4), objective=f"aim{n:02}", post_training=f"stage{n:02}") for n in range(20)
    ]
    figure = compared(points)
    for legend, kind in zip(legends_of(figure)[:2], ("aim", "stage"), strict=True):
        named = [word.strip(",") for label in legend for word in label.split()]
        assert named == [f"{kind}{n:02}" for n in range(20)]
    assert_readable(figure)


def test_sizes_are_told_as_models_are_named() -> None:
    figure = compared([point("small", 5e6), point("large", 4e11)])
    (axes,) = figure.axes
    assert [
        (tick, label.get_text()) for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    ] == [
        (1e7, "10M"),
        (1e8, "100M"),
        (1e9, "1B"),
        (1e10, "10B"),
        (1e11, "100B"),
    ]
    assert [amount(size) for size in (7, 999, 1e3, 124_439_808, 999.9e6, 1.3e9, 175e9, 2.5e12)] == [
        "7", "999", "1K", "124M", "1B", "1.3B", "175B", "2.5T",
    ]  # fmt: skip


@pytest.mark.parametrize("sizes", [[7e9] * 3, [7e9, 8e9, 9e9], [1.0, 1e40, 1e5]])
def test_equal_and_far_apart_sizes_have_a_few_ticks(sizes: list[float]) -> None:
    (axes,) = compared([point(f"m{n}", size, n / 10) for n, size in enumerate(sizes)]).axes
    low, high = axes.get_xlim()
    assert low < min(sizes) <= max(sizes) < high
    assert 2 <= len(axes.get_xticks()) <= 10
    assert all(low <= tick <= high for tick in axes.get_xticks())


def equal(
    count: int, sizes: Sequence[float], name: str = "/home/me/models/checkpoints/run-{n}/step-{n}"
) -> list[ModelPoint]:
    return [point(name.replace("{n}", f"{n:03}"), sizes[n % len(sizes)], -0.4 + 0.001 * n) for n in range(count)]


CROWDS: Mapping[str, Sequence[ModelPoint]] = {
    "one": PAPER[:1],
    "twenty alike": equal(20, [135e6]),
    "all unknown": equal(12, [NAN]),
    "one known": equal(20, [1e9] + 19 * [NAN]),
    "half known": equal(8, [NAN, 7e9]),
    "at zero": [point(f"model {n}", 1e9 * 1.1**n, 0.0, low=0.0, high=0.0) for n in range(12)],
    "long": equal(8, [1e9, NAN], "Ὀδυσσεύς и Москва " * 9 + "{n}"),
    "unnamed": [point("", NAN), point("\n", 1e9, objective=" ", post_training="\t"), point("_x", objective="_a")],
    "payload": [
        point(PAYLOAD, objective=PAYLOAD, post_training=PAYLOAD),
        point(PAYLOAD * 40, NAN, objective="W" * 300),
    ],
    "tiny": [point("a", gap=1e-7, low=NAN, high=NAN), point("b", gap=-3e-7, low=NAN, high=NAN)],
    "huge": [point("a", gap=1e9), point("b", gap=-1e9)],
    "left out": [*PAPER, *(point(f"a model without any number, number {n}", gap=NAN) for n in range(20))],
    "none": [point("one", gap=NAN), point("other", gap=math.inf)],
}


@pytest.mark.parametrize("points", CROWDS.values(), ids=CROWDS.keys())
def test_no_name_hides_another_and_nothing_is_cut(points: Sequence[ModelPoint]) -> None:
    figure = slope_against_size(points, title="a title " * 16, gap="one thing less another " * 4)
    assert_readable(figure)
    names = [text for text in figure.texts if text.get_path_effects()]
    assert len(names) == sum(math.isfinite(one.gap) for one in points)
    assert figure.get_size_inches()[0] * 100 == pytest.approx(WIDTH_PX)


def test_names_stand_beside_their_points_where_there_is_room() -> None:
    figure = compared([point("a", 1e8, 0.1), point("b", 1e9, 0.3), point("c", 1e10, -0.2)])
    for one, dot in zip("abc", dots_of(figure.axes[0]), strict=True):
        x, y = figure.axes[0].transData.transform(dot.get_offsets()[0])
        box = named_at(figure, one)
        assert 0 < box.x0 - x < 20
        assert box.y0 < y < box.y1


def test_a_name_that_had_to_move_is_led_to() -> None:
    figure = compared(equal(6, [1e9], "m{n}"))
    axes: Any = figure.axes[0]
    leaders = [line for line in axes.lines if line.get_transform() == figure.transFigure]
    moved = [text for text in figure.texts if text.get_path_effects()]
    assert 2 <= len(leaders) < len(moved) + 1
    width, height = figure.get_size_inches() * 100
    for leader in leaders:
        x, y = leader.get_xdata()[-1] * width, leader.get_ydata()[-1] * height
        boxes = [text.get_window_extent() for text in moved]
        assert any(box.x0 - 4 <= x <= box.x1 + 4 and box.y0 - 6 <= y <= box.y1 + 6 for box in boxes)


def test_a_model_without_a_gap_is_named_below_and_not_drawn() -> None:
    figure = compared([point("here"), point("gone", gap=NAN), point("lost", NAN, gap=NAN)])
    assert [len(dots_of(axes)) for axes in figure.axes] == [1]
    assert "Left out, for want of a slope gap: gone, lost." in words_of(figure)
    nobody = compared([point("gone", gap=NAN)])
    assert "no model has a slope gap" in words_of(nobody)
    assert "Left out, for want of a slope gap: gone." in words_of(nobody)


def test_no_model_is_an_error() -> None:
    with pytest.raises(UndertowError, match="no models"):
        compared([])


def test_the_lead_says_what_is_compared_over_how_many_prompts() -> None:
    lead = "Slope gap, female less male: percentage points per step of W{}, with 95% interval."
    assert lead.format(", mean over 1 to 3 prompts") in words_of(compared(PAPER))
    assert lead.format("") in words_of(compared([point("one", n_prompts=1)]))
    assert lead.format("") in words_of(compared([point("one", n_prompts=0)]))


def test_models_in_words_hold_every_number() -> None:
    told = describe_slope_against_size([*PAPER[4:7], PAPER[9], PAPER[10], point("gone", gap=NAN)], GAP)
    assert told == (
        "Slope gap, female less male, in percentage points per step of W, against number of parameters. "
        "gpt2, 124M parameters, autoregressive: 0.22 (0.020 to 0.37), r² .30, 3 prompts. "
        "llama-8b, 8B parameters, autoregressive, RLHF: −0.12 (−0.32 to 0.030), r² undefined, 3 prompts. "
        "google/flan-ul2, 20B parameters, denoisers, instruction tuned: 0.11 (−0.090 to 0.26), r² .16, 3 prompts. "
        "gpt-4o-mini, size not known, autoregressive, RLHF: −0.080 (−0.28 to 0.070), r² .10, 3 prompts. "
        "some chat model, size not known, RLHF: 0.12 (−0.080 to 0.27), r² .50, 3 prompts. "
        "Left out, for want of a slope gap: gone."
    )
    bare = describe_slope_against_size([point("m", low=NAN, n_prompts=1)], GAP)
    assert "m, 1B parameters, autoregressive: 0.30, r² .50, 1 prompt." in bare


# Every model under every prompt.

GROUPS = ["female", "male", "neutral"]
ASKED = [(model, prompt) for model in ("gpt2", "llama") for prompt in ("", "A", "Fill in: {sentence}")]


def asked(n_w: int = 5, groups: Sequence[str] = GROUPS, base: float = 10.0) -> pd.DataFrame:
    """Two items for each W; the mean of group k at place i is base + 10 k + i."""
    index = np.repeat(np.arange(n_w), 2)
    table = pd.DataFrame({"w": [f"in {1900 + place}" for place in index], "w_index": index, "w_name": "date"})
    for place, group in enumerate(groups):
        table[group] = base + 10 * place + index + np.tile([-1.5, 1.5], n_w)
    return table


def fit(group: str, mean: Floats, slope: float = 0.5, r: float = 0.9) -> FittedLine:
    return FittedLine(group, slope, r, np.arange(len(mean), dtype=float), mean, mean - 1, mean + 1)


def gridded(panels: Mapping[tuple[str, str], pd.DataFrame], groups: Sequence[str] = GROUPS, **lines: Any) -> Figure:
    return model_grid(panels, groups, lines.get("lines", {}), title="toy · date")


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


def test_lines_and_bands_are_those_of_the_caller_in_the_colour_of_their_group() -> None:
    given = {("gpt2", "A"): [fit("male", np.linspace(60, 40, 5)), fit("female", np.zeros(5), slope=NAN)]}
    figure = gridded({one: asked() for one in ASKED}, lines=given)
    each: list[Any] = figure.axes
    for place, axes in enumerate(each):
        drawn = [line for line in axes.lines if line.get_linestyle() != "None"]
        assert len(drawn) == len(axes.collections) == (1 if place == 1 else 0)
    (line,) = [line for line in each[1].lines if line.get_linestyle() != "None"]
    assert list(line.get_ydata()) == [60, 55, 50, 45, 40]
    assert to_hex(line.get_color()) == COLOURS[1].lower()
    corners = {tuple(map(float, corner)) for corner in each[1].collections[0].get_paths()[0].vertices}
    assert {(0, 59), (0, 61), (4, 39), (4, 41)} <= corners


def test_axes_are_shared_and_hold_every_dot() -> None:
    panels = {one: asked(base=5.0 + 10 * place) for place, one in enumerate(ASKED)}
    panels["gpt2", "A"] = asked(n_w=9)
    figure = gridded(panels)
    ((x, y),) = {(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}
    assert x[0] < 0
    assert x[1] > 8
    assert y[0] == 0
    assert y[1] > 79


def test_rows_are_models_columns_prompts_and_the_ends_of_w_are_named_below() -> None:
    figure = gridded({one: asked() for one in ASKED})
    gpt, llama = named_at(figure, "gpt2"), named_at(figure, "llama")
    heads = [named_at(figure, head) for head in ("no prompt", "A")]
    assert gpt.y0 > llama.y1
    assert heads[0].x1 < heads[1].x0
    assert min(head.y0 for head in heads) > gpt.y1
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert llama.y1 < boxes[0].y0 < boxes[0].y1 < gpt.y0
    assert boxes[3].y1 < llama.y0
    assert [round(box.x0) for box in boxes[:2]] == [round(head.x0) for head in heads]
    named = [[label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes]
    assert named == [["", ""]] * 3 + [["in 1900", "in 1904"]] * 3
    assert all(list(axes.get_xticks()) == [0, 4] for axes in figure.axes)


def test_an_empty_panel_says_why_it_is_empty() -> None:
    silent = asked().assign(**dict.fromkeys(GROUPS, NAN))
    nothing = asked().iloc[:0]
    figure = gridded({("a", ""): asked(), ("a", "P"): silent, ("b", ""): nothing, ("c", "P"): asked()})
    said = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert said == [[], ["nothing scored"], ["nothing scored"], ["not asked"], ["not asked"], []]
    assert [len(panel_dots(axes)) for axes in figure.axes] == [3, 0, 0, 0, 0, 3]


def test_a_grid_of_which_nothing_was_scored_is_drawn_in_silence() -> None:
    figure = gridded({("a", ""): pd.DataFrame({"w": [], "w_index": [], **{group: [] for group in GROUPS}})})
    assert [text.get_text() for text in figure.axes[0].texts] == ["nothing scored"]
    assert_readable(figure)


def test_one_legend_names_the_groups() -> None:
    (legend,) = legends_of(gridded({one: asked() for one in ASKED}))
    assert list(legend) == GROUPS
    assert [(to_hex(line.get_color()), line.get_marker()) for line in legend.values()] == [
        (COLOURS[place].lower(), MARKERS[place]) for place in range(3)
    ]


LONG_PROMPT = "Instructions: Please carefully read the following passage and fill in what is missing there. " * 3
GRIDS: Mapping[str, tuple[Sequence[str], Sequence[str], Sequence[str]]] = {
    "one": (["gpt2"], [""], GROUPS),
    "four prompts": (["gpt2", "m" * 300], ["", "A", LONG_PROMPT, "X" * 200], GROUPS),
    "six prompts": (["gpt2"], [f"prompt {n}" for n in range(6)], GROUPS),
    "payload": ([PAYLOAD, ""], [PAYLOAD, "\n"], [PAYLOAD, "_x", "Ὀδυσσεύς" * 20]),
    "many groups": (["gpt2", "b"], [""], [f"group of words {n}" for n in range(14)]),
}


@pytest.mark.parametrize(("models", "prompts", "groups"), GRIDS.values(), ids=GRIDS.keys())
def test_a_grid_can_be_read(models: Sequence[str], prompts: Sequence[str], groups: Sequence[str]) -> None:
    panels = {(model, prompt): asked(groups=groups) for model in models for prompt in prompts}
    lines = {one: [fit(groups[0], np.linspace(10, 14, 5))] for one in panels}
    figure = gridded(panels, groups, lines=lines)
    assert_readable(figure)
    assert len(figure.axes) == len(models) * len(prompts)
    assert all(axes.get_window_extent().width > 140 for axes in figure.axes)


def test_twelve_models_by_four_prompts_grow_downwards_only() -> None:
    panels = {(f"model {n}", prompt): asked() for n in range(12) for prompt in "ABCD"}
    figure = gridded(panels)
    width, height = figure.get_size_inches() * 100
    assert width == pytest.approx(WIDTH_PX)
    assert height > 12 * 130
    assert all(axes.get_window_extent().height > 100 for axes in figure.axes)
    assert_readable(figure)


def test_one_value_of_w_is_named_once() -> None:
    figure = gridded({("gpt2", ""): asked(n_w=1)})
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["in 1900"]
    assert_readable(figure)


def test_very_long_values_of_w_stay_apart() -> None:
    table = asked()
    table["w"] = [f"{'a very long value of W ' * 6}{place}" for place in table["w_index"]]
    figure = gridded({("gpt2", prompt): table for prompt in "ABCD"})
    assert_readable(figure)
    assert all("\N{HORIZONTAL ELLIPSIS}" in label.get_text() for label in figure.axes[0].get_xticklabels())


def test_what_cannot_share_a_grid_is_refused() -> None:
    with pytest.raises(UndertowError, match="no observations"):
        gridded({})
    with pytest.raises(UndertowError, match="no word groups"):
        gridded({("a", ""): asked()}, [])
    with pytest.raises(UndertowError, match="lack the column 'other'"):
        gridded({("a", ""): asked()}, ["female", "other"])
    places = asked().assign(w=[f"place {n}" for n in asked()["w_index"]])
    with pytest.raises(UndertowError, match="one list of W values"):
        gridded({("a", ""): asked(), ("b", ""): places})
    with pytest.raises(UndertowError, match="one w_name"):
        gridded({("a", ""): asked(), ("b", ""): asked().assign(w_name="place")})


def test_a_grid_in_words_holds_its_numbers() -> None:
    lines = {("gpt2", ""): [fit("female", np.linspace(10, 14, 5), slope=1.0, r=-0.87)]}
    panels = {("gpt2", ""): asked(groups=["female", "male"]), ("llama", "A"): asked(groups=["female", "male"])}
    panels["llama", "A"]["female"] = NAN
    assert describe_model_grid(panels, ["female", "male"], lines) == (
        "Mean mass by date, from in 1900 to in 1904. "
        "gpt2, no prompt: female 10.0 to 14.0 percent, +1.00 per step, r = −.87; male 20.0 to 24.0 percent, no line. "
        "gpt2, A: not asked. llama, no prompt: not asked. "
        "llama, A: female nothing scored; male 20.0 to 24.0 percent, no line."
    )


# Both.


def test_equal_input_gives_equal_bytes() -> None:
    assert svg(compared(PAPER[3:7])) == svg(compared(PAPER[3:7]))
    panels = {one: asked() for one in ASKED[:2]}
    assert svg(gridded(panels)) == svg(gridded(panels))


def test_user_text_is_text_in_the_svg() -> None:
    points = [point(PAYLOAD, objective=PAYLOAD, post_training=PAYLOAD)]
    drawn = svg(slope_against_size(points, title=PAYLOAD, gap=PAYLOAD))
    grid = svg(model_grid({(PAYLOAD, PAYLOAD): asked(groups=[PAYLOAD])}, [PAYLOAD], {}, title=PAYLOAD))
    for document in (drawn, grid):
        shown = "".join(ET.fromstring(document).itertext())
        assert shown.count(PAYLOAD) >= 4


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.7), (22, 43), (-3e-7, 1e-7), (0, 1e9), (5.001, 5.002)])
def test_ticks_are_three_or_more_round_numbers_within(low: float, high: float) -> None:
    ticks = even_ticks(low, high)
    assert 3 <= len(ticks) <= 9
    assert all(low <= tick <= high for tick in ticks)
    assert len(set(ticks.values())) == len(ticks)
