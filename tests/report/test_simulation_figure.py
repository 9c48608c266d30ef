"""The figure of a simulation: dots where the people are, every r beside its panel, and every word can be read."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_hex

from readable import assert_readable, words
from undertow.report.drawing import Drawing, save_drawing, svg_text
from undertow.report.simulation import EVERYONE, MAX_DOTS, SELECTED, Cloud, Panel, draw_simulation
from undertow.types import UndertowError

COLUMNS = ["W and G, everyone", "W and G, selected", "X and Y, everyone", "X and Y, selected"]


def cloud(n: int, r: float, scale: float = 1.0, seed: int = 0, shown: int = 1500) -> Cloud:
    x, y = scale * np.random.default_rng(seed).standard_normal((2, shown))
    return Cloud(x, y, r, r - 0.01, r + 0.011, n)


def panels(scale: float = 1.0, names: tuple[str, str] = ("W", "G"), columns: int = 4) -> list[Panel]:
    everyone, selected = cloud(1_000_000, 0.001, scale), cloud(37_351, -0.659, scale, seed=1)
    return [Panel(*names, everyone, selected if place % 2 else None) for place in range(columns)]


def usual(rows: int = 2) -> Drawing:
    return draw_simulation("name", "What selecting does", COLUMNS, [(f"Row {row}", panels()) for row in range(rows)])


def panels_of(drawing: Drawing) -> list[Any]:
    """The axes, untyped: the tests look into what they drew."""
    return list(drawing.figure.axes)


def test_every_dot_is_a_person() -> None:
    everyone, selected = (
        Cloud(np.array([1.0, 2.0, 30.0]), np.array([0.5, -1.0, 2.0]), 0.3, 0.2, 0.4, 3),
        Cloud(np.array([2.0, 30.0]), np.array([-1.0, 2.0]), 1.0, -1.0, 1.0, 2),
    )
    drawing = draw_simulation(
        "d", "T", ["a", "b"], [("", [Panel("X", "Y", everyone), Panel("X", "Y", everyone, selected)])]
    )
    first, second = panels_of(drawing)
    for axes, clouds in ((first, [everyone]), (second, [everyone, selected])):
        assert len(axes.lines) == len(clouds)
        for line, one in zip(axes.lines, clouds, strict=True):
            assert list(line.get_xdata()) == list(one.x)
            assert list(line.get_ydata()) == list(one.y)
            assert axes.get_xlim()[0] < min(one.x) < max(one.x) < axes.get_xlim()[1]
            assert axes.get_ylim()[0] < min(one.y) < max(one.y) < axes.get_ylim()[1]
    assert to_hex(first.lines[0].get_color()).upper() == EVERYONE
    assert to_hex(second.lines[1].get_color()).upper() == SELECTED
    assert to_hex(second.lines[0].get_color()).upper() not in (EVERYONE, SELECTED)
    assert second.lines[0].get_zorder() < second.lines[1].get_zorder()


def test_not_more_dots_than_can_be_told_apart() -> None:
    assert {len(line.get_xdata()) for axes in panels_of(usual()) for line in axes.lines} == {MAX_DOTS}


def test_r_and_interval_stand_above_each_panel() -> None:
    said = words(usual().figure)
    assert said.count("r = .00 (\N{MINUS SIGN}.01 to .01)") == 4
    assert said.count("r = \N{MINUS SIGN}.66 (\N{MINUS SIGN}.67 to \N{MINUS SIGN}.65)") == 4
    assert said.count("n = 1,000,000") == 4
    assert said.count("n = 37,351 (everyone: .00)") == 4
    for text in (*COLUMNS, "Row 0", "Row 1", "What selecting does"):
        assert text in said
    assert said.count("W") == said.count("G") == 8


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 4), (4, 3), (6, 4)])
def test_every_word_can_be_read(rows: int, columns: int) -> None:
    drawing = draw_simulation(
        "name",
        "What selecting does",
        COLUMNS[:columns],
        [(f"Row {row}", panels(columns=columns)) for row in range(rows)],
    )
    assert_readable(drawing.figure)


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1.0, 3e5, 1e40])
def test_numbers_of_any_size_can_be_read(scale: float) -> None:
    assert_readable(draw_simulation("name", "T", COLUMNS, [("Row", panels(scale))]).figure)


def test_long_names_are_cut_and_not_run_over() -> None:
    names = ("household_income_before_taxes_in_the_year", "is_ill_of_anything_at_all_or_was_in_the_year_before")
    drawing = draw_simulation("name", "T" * 300, ["c" * 90] * 4, [("r" * 300, panels(names=names))])
    assert_readable(drawing.figure)


def test_what_does_not_vary_is_drawn_without_r() -> None:
    flat = Cloud(np.full(9, 3.0), np.zeros(9), math.nan, math.nan, math.nan, 9)
    drawing = draw_simulation("name", "T", ["one"], [("row", [Panel("c", "d", flat, flat)])])
    assert_readable(drawing.figure)
    assert "r = \N{EN DASH}" in words(drawing.figure)


def test_the_words_say_what_is_seen() -> None:
    drawing = usual()
    assert "W and G of 1,000,000 people r = .00" in drawing.alt
    assert (
        "W and G of 37,351 selected people r = \N{MINUS SIGN}.66 (\N{MINUS SIGN}.67 to \N{MINUS SIGN}.65), of everyone .00"
        in drawing.alt
    )
    assert "Row 1" in drawing.alt
    assert "Orange" in drawing.caption
    lead = " ".join(words(drawing.figure))
    assert "Blue: everyone." in lead.replace("\n", " ")
    of_selected = draw_simulation("d", "T", ["a"], [("", panels(columns=2)[1:])])
    assert "Blue" not in " ".join(words(of_selected.figure))


def test_names_are_shown_as_text() -> None:
    drawing = draw_simulation("d", "<i>$x^2$</i>", ["&"], [("<b>", panels(names=("<x>", ""), columns=1))])
    ET.fromstring(svg_text(drawing))
    assert {"<i>$x^2$</i>", "&", "<b>", "<x>", "(no name)"} <= set(words(drawing.figure))


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_drawing(usual(), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["name.png", "name.svg"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(
    ("columns", "rows"), [([], []), (["a"], []), (["a"], [("r", [])]), (["a", "b"], [("r", panels(columns=1))])]
)
def test_what_cannot_be_drawn_is_said(columns: list[str], rows: list[tuple[str, list[Panel]]]) -> None:
    with pytest.raises(UndertowError, match="one panel for each column"):
        draw_simulation("d", "T", columns, rows)


def test_panels_do_not_overlap() -> None:
    boxes = [axes.get_position() for axes in panels_of(usual(3))]
    assert len(boxes) == 12
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
