"""The figures of task specification: every sentence stands where its numbers say, and every word can be read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
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
from undertow.report.specification import Curve, occupation_order, occupations, over_w, roc

BLUE, ORANGE, WHITE = "#0072b2", "#d55e00", "#ffffff"
SCORE = "delta_female"
SHARES = {"nurse": 89.6, "judge": 34.5, "plumber": 0.7, "painter": 5.7, "librarian": 81.0}
PAYLOAD = '<b>"$x^2$"</b> & \u0378'  # no font has the last sign, so the SVG keeps its text


def scored(names: Sequence[str] = tuple(SHARES), shares: Sequence[float] | None = None) -> pd.DataFrame:
    """Eight sentences of each occupation, in the design of the schemas; no two scores are equal."""
    rows: list[dict[str, Any]] = [
        {
            "cluster": name,
            "participant_class": participant,
            "coreferent": whose,
            "well_specified": whose == 1 and participant in ("man", "woman"),
            "percent_female": SHARES.get(name, math.nan) if shares is None else shares[index],
        }
        for index, name in enumerate(names)
        for participant, whose in itertools.product(("man", "woman", "someone", "other"), (0, 1))
    ]
    return pd.DataFrame(rows).assign(**{SCORE: np.geomspace(0.01, 60, len(rows))})


def simplified() -> pd.DataFrame:
    """One person only, three sentences of each occupation."""
    rows = [
        {"cluster": name, "participant_class": sex, "coreferent": 0, "well_specified": sex != "unspecified"}
        for name in SHARES
        for sex in ("female", "male", "unspecified")
    ]
    return pd.DataFrame(rows).assign(**{SCORE: np.linspace(0, 9, len(rows))})


def bare(names: Sequence[str] = ("b", "a", "c")) -> pd.DataFrame:
    """A user's own sentences: nothing is known but whether they decide."""
    rows = [{"cluster": name, "well_specified": decided} for name in names for decided in (True, False)]
    return pd.DataFrame(rows).assign(**{SCORE: np.arange(len(rows), dtype=float)})


def drawn(table: pd.DataFrame, threshold: float = 0.5, title: str = "toy · own") -> Figure:
    return occupations(table, SCORE, threshold, title=title, unit="movement of female mass, percentage points")


def axes_of(figure: Figure) -> Any:
    """The figure's only axes, untyped: the tests look into what it drew."""
    (axes,) = figure.axes
    return axes


def dots_of(figure: Figure) -> list[Any]:
    return [line for line in axes_of(figure).lines if line.get_linestyle() == "None"]


def rows_of(figure: Figure) -> list[str]:
    """What the rows are called, from the top, words parted by one space."""
    axes = axes_of(figure)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert list(axes.get_yticks()) == list(range(len(axes.get_yticks())))
    return [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]


def legend_of(figure: Figure) -> dict[str, Any]:
    """Label and line of each entry, in order."""
    (legend,) = figure.legends
    return {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def svg(figure: Figure) -> str:
    return svg_text(Drawing("d", figure, "c", "a"))


def assert_all_inside(figure: Figure) -> None:
    """Nothing reaches beyond the edge, and no row's name hides another."""
    with lettering("".join(texts(figure))):
        FigureCanvasAgg(figure).draw()
        box = figure.get_tightbbox()
        names = [label.get_window_extent() for label in axes_of(figure).get_yticklabels()]
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.01
    assert box.y0 >= -0.01
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01
    # Lines of text may share a pixel of leading; letters of one never reach those of the next.
    for one, next_one in itertools.pairwise(sorted(names, key=lambda name: name.y0)):
        assert one.y1 - next_one.y0 < 0.2 * one.height


# Occupations.


def test_rows_go_from_the_most_male_to_the_most_female_occupation() -> None:
    assert rows_of(drawn(scored())) == ["plumber · 1%", "painter · 6%", "judge · 34%", "librarian · 81%", "nurse · 90%"]


def test_an_occupation_of_unknown_share_comes_last_without_one() -> None:
    assert rows_of(drawn(scored(["wizard", "nurse", "elf", "judge"]))) == [
        "judge · 34%",
        "nurse · 90%",
        "wizard",
        "elf",
    ]


@pytest.mark.parametrize("table", [bare(), scored(["b", "a", "c"])])
def test_without_shares_rows_are_as_they_were_asked(table: pd.DataFrame) -> None:
    assert rows_of(drawn(table)) == ["b", "a", "c"]
    assert occupation_order(table) == {"b": "b", "a": "a", "c": "c"}


@pytest.mark.parametrize("table", [scored(), simplified(), bare()])
def test_every_sentence_is_one_dot_in_the_row_of_its_occupation_blue_where_it_decides(table: pd.DataFrame) -> None:
    table = table.sample(frac=1, random_state=1).reset_index(drop=True)
    figure = drawn(table)
    row = {name.partition(" ")[0]: place for place, name in enumerate(rows_of(figure))}
    assert len(row) == table["cluster"].nunique()
    shown = [
        (float(x), int(y), to_hex(line.get_color()))
        for line in dots_of(figure)
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    expected = [
        (float(one[SCORE]), row[str(one["cluster"])], BLUE if one["well_specified"] else ORANGE)
        for one in table.to_dict("records")
    ]
    assert sorted(shown) == sorted(expected)
    for line in dots_of(figure):
        assert to_hex(line.get_markeredgecolor()) == to_hex(line.get_color())


def test_dots_of_sentences_that_decide_lie_on_top_and_the_threshold_below() -> None:
    figure = drawn(scored())
    dots = dots_of(figure)
    (line,) = [one for one in axes_of(figure).lines if one not in dots]
    blue, orange = (
        {dot.get_zorder() for dot in dots if to_hex(dot.get_color()) == colour} for colour in (BLUE, ORANGE)
    )
    assert line.get_zorder() < min(orange) <= max(orange) < min(blue)


def test_participants_differ_in_shape_and_whose_the_pronoun_is_in_filling() -> None:
    legend = legend_of(drawn(scored()))
    look = {
        name: (line.get_marker(), to_hex(line.get_color()), to_hex(line.get_markerfacecolor()))
        for name, line in legend.items()
    }
    assert look == {
        "man, pronoun the professional's": ("s", ORANGE, WHITE),
        "woman, pronoun the professional's": ("o", ORANGE, WHITE),
        "someone, pronoun the professional's": ("^", ORANGE, WHITE),
        "own participant, pronoun the professional's": ("D", ORANGE, WHITE),
        "someone, pronoun the participant's": ("^", ORANGE, ORANGE),
        "own participant, pronoun the participant's": ("D", ORANGE, ORANGE),
        "man, pronoun the participant's: decides": ("s", BLUE, BLUE),
        "woman, pronoun the participant's: decides": ("o", BLUE, BLUE),
    }


def test_one_person_only_is_named_so() -> None:
    legend = legend_of(drawn(simplified()))
    assert {name: (line.get_marker(), to_hex(line.get_color())) for name, line in legend.items()} == {
        "nothing before the occupation: does not decide": ("D", ORANGE),
        "female before the occupation: decides the blank": ("o", BLUE),
        "male before the occupation: decides the blank": ("s", BLUE),
    }


def test_without_participants_there_are_two_kinds() -> None:
    lines = list(legend_of(drawn(bare())).values())
    assert [to_hex(line.get_color()) for line in lines] == [ORANGE, BLUE]
    assert next(iter(legend_of(drawn(bare())))) == "does not decide"


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0, 14.9, 80.0])
def test_the_dashed_line_stands_at_the_threshold_and_is_named(threshold: float) -> None:
    figure = drawn(scored(), threshold)
    axes = axes_of(figure)
    (line,) = [one for one in axes.lines if one not in dots_of(figure)]
    assert list(line.get_xdata()) == [threshold, threshold]
    assert list(line.get_ydata()) == [0, 1]  # from bottom to top, whatever the rows
    assert line.is_dashed()
    assert axes.get_xlabel() == (
        f"movement of female mass, percentage points; right of the dashed line ({threshold:g}): flagged"
    )
    low, high = axes.get_xlim()
    assert low < 0
    assert high > max(60, threshold)


def test_the_scale_is_even_up_to_the_threshold_and_goes_by_factors_beyond() -> None:
    axes = axes_of(drawn(scored(), 0.5))
    place = [float(axes.transScale.transform((x, 0))[0]) for x in (0, 0.125, 0.25, 0.375, 5, 10, 20, 40)]
    steps = np.diff(place)
    assert steps[:3] == pytest.approx(np.full(3, steps[0]))
    assert steps[4:] == pytest.approx(np.full(3, steps[4]), rel=0.01)
    assert steps[3] > 0
    assert list(axes.get_xticks()) == [0, 0.5, 1, 2, 5, 10, 20, 50]
    FigureCanvasAgg(axes.figure).draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "0.5", "1", "2", "5", "10", "20", "50"]


def test_scores_that_are_all_zero_are_drawn_in_silence() -> None:
    figure = drawn(scored().assign(**{SCORE: 0.0}))
    assert axes_of(figure).get_xlim()[1] > 0.5
    assert svg(figure)


def test_sixty_rows_can_be_told_apart_and_nothing_is_cut() -> None:
    names = [f"occupation {number}" for number in range(60)]
    figure = drawn(scored(names, list(np.linspace(0, 100, 60))))
    assert len(rows_of(figure)) == 60
    assert_all_inside(figure)
    (legend,) = figure.legends
    FigureCanvasAgg(figure).draw()
    assert legend.get_window_extent().y0 >= axes_of(figure).get_window_extent().y1
    assert figure.get_size_inches()[1] > drawn(scored()).get_size_inches()[1] + 5


def test_a_very_long_name_keeps_its_beginning_and_its_share() -> None:
    long = "keeper of the very old and very long books of a small town"
    figure = drawn(scored([long, "nurse"], [12.3, 89.6]))
    assert rows_of(figure)[0].startswith("keeper of the")
    assert rows_of(figure)[0].endswith("12%")
    assert len(rows_of(figure)[0]) <= 28
    FigureCanvasAgg(figure).draw()
    names = [label.get_window_extent() for label in axes_of(figure).get_yticklabels()]
    assert min(name.x0 for name in names) >= 0
    assert axes_of(figure).get_window_extent().width > figure.get_size_inches()[0] * figure.dpi / 2


# One occupation over all values of W.


def followed(
    sentences: dict[str, tuple[str, bool]],
    values: Sequence[str] = ("1901", "1939", "1978", "2016"),
    form: str = "In {w}: ",
) -> pd.DataFrame:
    """A row per value and sentence, in that order; the k-th sentence has k + 10 times the place of the value."""
    return pd.DataFrame(
        [
            {
                "sentence": name,
                "text": form.replace("{w}", value) + text,
                "w": value,
                "w_index": place,
                "well_specified": decided,
                "female": 10.0 * place + number,
            }
            for place, value in enumerate(values)
            for number, (name, (text, decided)) in enumerate(sentences.items())
        ]
    )


SENTENCES = {
    "doctor/man/1": ("The doctor told the man that ___ was ill.", True),
    "doctor/man/0": ("The doctor told the man that ___ had time.", False),
    "doctor/someone/1": ("The doctor told someone that ___ was ill.", False),
}


def test_each_sentence_is_a_line_blue_where_it_decides() -> None:
    rows = followed(SENTENCES).sample(frac=1, random_state=3)
    order = list(dict.fromkeys(rows["sentence"]))
    lines = axes_of(over_w(rows, "female", title="t")).lines
    assert len(lines) == 3
    for name, line in zip(order, lines, strict=True):
        number = list(SENTENCES).index(name)
        assert list(line.get_xdata()) == [0, 1, 2, 3]
        assert list(line.get_ydata()) == [number + 10.0 * place for place in range(4)]
        assert to_hex(line.get_color()) == (BLUE if SENTENCES[name][1] else ORANGE)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 3


def test_sentences_of_unknown_kind_are_orange() -> None:
    rows = followed(SENTENCES).drop(columns="well_specified")
    assert {to_hex(line.get_color()) for line in axes_of(over_w(rows, "female", title="t")).lines} == {ORANGE}


@pytest.mark.parametrize("form", ["In {w}: ", "{w} -- ", "In the town of {w}, ", "19{w}: "])
def test_the_legend_names_w_where_its_value_stood(form: str) -> None:
    """Whatever the values have in common, and wherever they stand."""
    rows = followed(SENTENCES, values=["00", "50", "60"], form=form)
    shown = list(legend_of(over_w(rows, "female", title="t")))
    assert shown == [form.replace("{w}", "[W]") + text for text, _ in SENTENCES.values()]
    named = list(legend_of(over_w(rows.assign(w_name="town"), "female", title="t")))
    assert named == [line.replace("[W]", "[town]") for line in shown]


def test_a_blank_that_opens_the_sentence_has_its_line_in_the_legend() -> None:
    rows = followed(SENTENCES, form="In {w}: ")
    rows["text"] = [f"___ was late in {w}." for w in rows["w"]]
    assert set(legend_of(over_w(rows, "female", title="t"))) == {"___ was late in [W]."}


def test_the_legend_says_which_colour_means_what() -> None:
    figure = over_w(followed(SENTENCES), "female", title="t")
    assert figure.legends[0].get_title().get_text() == "Blue: the sentence decides its blank. Orange: it does not."
    assert axes_of(figure).get_ylabel() == "female words, percent of all groups"


@pytest.mark.parametrize("count", [2, 5, 12, 13, 30, 100])
def test_at_most_twelve_values_are_named_each_at_its_place(count: int) -> None:
    values = [f"v{number}" for number in range(count)]
    axes = axes_of(over_w(followed(SENTENCES, values), "female", title="t"))
    ticks = [int(tick) for tick in axes.get_xticks()]
    assert [label.get_text() for label in axes.get_xticklabels()] == [values[tick] for tick in ticks]
    assert ticks[0] == 0
    assert min(count, 7) <= len(ticks) <= 12
    assert len(set(np.diff(ticks))) == 1


def test_all_of_a_hundred_percent_is_shown() -> None:
    rows = followed(SENTENCES).assign(female=[0.0, 100.0, 50.0] * 4)
    low, high = axes_of(over_w(rows, "female", title="t")).get_ylim()
    assert (low, high) == (-2, 102)


def test_a_very_long_sentence_is_shortened_in_the_middle() -> None:
    text = f"The doctor {'told the very old man ' * 20}that ___ was ill."
    (said,) = legend_of(over_w(followed({"one": (text, True)}), "female", title="t"))
    assert len(said) <= 118
    assert said.startswith("In [W]: The doctor told the very old man")
    assert said.endswith("that ___ was ill.")
    assert "\N{HORIZONTAL ELLIPSIS}" in said


def test_many_sentences_and_their_legend_stay_inside() -> None:
    sentences = {
        f"s{number}": (f"The doctor told {number} people that ___ {'was very ' * 8}ill.", False) for number in range(8)
    }
    assert_all_inside(over_w(followed(sentences, [str(year) for year in range(1900, 1930)]), "female", title="t"))


# ROC curves.


def curve(name: str, area: float, low: float = math.nan, high: float = math.nan) -> Curve:
    corner = np.array([0.0, 1 - area, 1.0])
    return Curve(name, corner, np.array([0.0, area, 1.0]), area, low, high)


AREAS = [curve("delta_female", 0.65, 0.6, 0.7), curve("total_variation", 0.824, 0.79, 0.996), curve("entropy", 0.31)]


def test_the_best_curve_is_named_first_and_chance_last() -> None:
    assert list(legend_of(roc(AREAS, title="t"))) == [
        "total variation  .82 (.79 to 1.00)",
        "delta female  .65 (.60 to .70)",
        "entropy  .31",
        "chance  .50",
    ]
    assert "perfect  1.00 (.94 to 1.00)" in legend_of(roc([curve("perfect", 1.0, 0.94, 1.0)], title="t"))


def test_curves_are_those_of_the_caller_and_chance_is_the_diagonal() -> None:
    legend, lines = legend_of(roc(AREAS, title="t")), axes_of(roc(AREAS, title="t")).lines
    by_label = {line.get_label(): line for line in lines}
    assert set(by_label) == set(legend)
    for given, label in zip(AREAS, ["delta female  .65 (.60", "total variation", "entropy"], strict=True):
        (line,) = [line for name, line in by_label.items() if name.startswith(label)]
        assert line.get_xdata().tolist() == given.false_positive.tolist()
        assert line.get_ydata().tolist() == given.true_positive.tolist()
    assert [list(by_label["chance  .50"].get_data()[axis]) for axis in (0, 1)] == [[0, 1], [0, 1]]
    axes = axes_of(roc(AREAS, title="t"))
    assert axes.get_aspect() == 1
    assert "deciding" in axes.get_xlabel()
    assert "undecided" in axes.get_ylabel()


def looks(curves: Sequence[Curve]) -> dict[str, tuple[str, str]]:
    """Colour and dashes of each curve in the key, by its name."""
    return {
        label.partition("  ")[0]: (to_hex(line.get_color()), str(line._unscaled_dash_pattern))
        for label, line in legend_of(roc(curves, title="t")).items()
        if not label.startswith("chance")
    }


def test_curves_side_by_side_differ_in_more_than_colour() -> None:
    shown = list(looks([curve(f"s{number}", 0.9 - number / 50) for number in range(16)]).values())
    assert all(one[1] != other[1] for one, other in itertools.pairwise(shown))


def test_a_score_has_the_same_look_in_every_figure_whatever_its_rank() -> None:
    names = ("delta_female", "total_variation", "entropy")
    ranked = [
        looks([curve(name, area) for name, area in zip(names, areas, strict=True)])
        for areas in itertools.permutations((0.4, 0.6, 0.8))
    ]
    assert all(look == ranked[0] for look in ranked)


def test_no_two_of_many_curves_look_alike() -> None:
    shown = looks([curve(f"s{number}", 0.5 + number / 50) for number in range(16)])
    assert len(shown) == len(set(shown.values())) == 16


def test_many_curves_and_their_names_stay_inside() -> None:
    assert_all_inside(roc([curve(f"delta_neopronoun {number}", 0.9, 0.8, 0.95) for number in range(14)], title="t"))


# All of them.

FIGURES: dict[str, Callable[[str], Figure]] = {
    "occupations": lambda name: drawn(scored([name, "nurse"], [1.0, 2.0]), title=name),
    "over_w": lambda name: over_w(
        followed({"one": (f"The {name} said that ___ ran.", True)}, ["a", f"{name} b"]).rename(
            columns={"female": name}
        ),
        name,
        title=name,
    ),
    "roc": lambda name: roc([curve(name, 0.7, 0.6, 0.8), curve("other", 0.6)], title=name),
}


@pytest.mark.parametrize("kind", FIGURES)
def test_the_same_numbers_give_the_same_bytes(kind: str) -> None:
    first, again, other = (svg(FIGURES[kind](name)) for name in ("doctor", "doctor", "docent"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("kind", FIGURES)
def test_user_text_is_drawn_as_it_is(kind: str) -> None:
    root = ET.fromstring(svg(FIGURES[kind](PAYLOAD)))
    assert not [element for element in root.iter() if element.tag.endswith("}b")]
    shown = "".join(root.itertext())
    assert shown.count(PAYLOAD) == {"occupations": 2, "over_w": 4, "roc": 2}[kind]


@pytest.mark.parametrize(("kind", "times"), [("occupations", 2), ("over_w", 4)])
def test_signs_that_no_file_may_hold_are_left_out(kind: str, times: int) -> None:
    shown = "".join(ET.fromstring(svg(FIGURES[kind]("a\x00b\nc\u0378"))).itertext())
    assert shown.count("a b c\u0378") == times


@pytest.mark.parametrize("name", ["$", "$$", "$\\frac$ {x} %s", "Москва", "القاهرة", "東京の医者"])
@pytest.mark.parametrize("kind", FIGURES)
def test_any_name_is_drawn_in_silence(kind: str, name: str) -> None:
    assert svg(FIGURES[kind](name)).startswith("<?xml")
