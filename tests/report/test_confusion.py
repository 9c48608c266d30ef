"""The figure of labels: every count is in its cell, every word can be read, and a row without counts is no row of zeros."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from readable import assert_readable
from undertow.challenge.documents import DIMENSIONS
from undertow.report.confusion import draw_confusion
from undertow.report.drawing import Drawing, svg_text
from undertow.report.spectrum import DPI, WIDTH_PX
from undertow.types import UndertowError

SMALL = [[120, 44, 3], [0, 80, 0]]
LABELS = [*DIMENSIONS, "no answer"]


def small() -> Drawing:
    return draw_confusion(SMALL, ["Yes", "No"], ["Yes", "No", "no answer"], "Diagnosis · m")


def large() -> Drawing:
    counts = np.arange(11 * 12).reshape(11, 12) % 17 * 40
    counts[4] = 0
    return draw_confusion(counts, DIMENSIONS, LABELS, "Identification · m")


def long() -> Drawing:
    names = [
        "Donaudampfschifffahrtsgesellschaft" * 3,
        "a label of one's own with many words in it that never ends " * 3,
    ]
    return draw_confusion([[1, 2], [3, 4]], names, names, "T " * 90)


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_text().strip()]


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


def cells(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_facecolor()[3] > 0]


def frames(figure: Figure) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_facecolor()[3] == 0]


@pytest.mark.parametrize("drawn", [small, large, long])
def test_every_word_is_on_the_sheet_and_touches_no_other(drawn: object) -> None:
    assert callable(drawn)
    assert_readable(drawn().figure)


@pytest.mark.parametrize("drawn", [small, large])
def test_what_stands_in_a_cell_stays_in_it(drawn: object) -> None:
    assert callable(drawn)
    figure = drawn().figure
    FigureCanvasAgg(figure).draw()
    boxes = [cell.get_window_extent() for cell in cells(figure)]
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert any(
            cell.x0 <= box.x0 and box.x1 <= cell.x1 and cell.y0 <= box.y0 and box.y1 <= cell.y1 for cell in boxes
        )


def test_long_names_of_the_papers_labels_are_whole() -> None:
    said = [" ".join(text.split()) for text in words(large().figure)]
    for name in DIMENSIONS:
        assert said.count(name) == 2, "once as a row and once as a column"


def test_percent_is_of_the_row_and_the_count_is_below_it() -> None:
    said = [text.get_text() for text in small().figure.axes[0].texts]
    assert said == ["72%", "120", "26%", "44", "1.8%", "3", "0", "100%", "80", "0"]


def test_nearly_all_is_not_all() -> None:
    drawing = draw_confusion([[999, 1]], ["a"], ["a", "b"], "T")
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["99.9%", "999", "0.1%", "1"]


def test_a_larger_share_is_a_darker_cell() -> None:
    drawing = draw_confusion([[0, 1, 2, 4, 8, 16, 32, 37]], ["a"], [str(n) for n in range(8)], "T")
    light = [sum(cell.get_facecolor()[:3]) for cell in cells(drawing.figure)]
    assert light == sorted(light, reverse=True)
    assert len(set(light)) == 8


def test_text_has_the_contrast_that_wcag_asks_for_on_every_shade() -> None:
    def luminance(colour: object) -> float:
        from matplotlib.colors import to_rgb

        parts = np.array(to_rgb(colour))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for share in range(1, 101):
        drawing = draw_confusion([[share, 100 - share]], ["a"], ["b", "c"], "T")
        ground = luminance(cells(drawing.figure)[0].get_facecolor()[:3])
        ink = luminance(drawing.figure.axes[0].texts[0].get_color())
        low, high = sorted([ground, ink])
        assert (high + 0.05) / (low + 0.05) >= 4.5, share


def test_a_label_that_was_never_right_has_no_shares() -> None:
    drawing = draw_confusion([[0, 0], [1, 1]], ["age", "race"], ["age", "race"], "T")
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["50%", "1", "50%", "1"]
    assert "age: none." in drawing.alt


def test_where_both_labels_are_the_same_the_cell_is_framed_and_it_is_said() -> None:
    drawing = small()
    assert len(frames(drawing.figure)) == 2
    assert "Framed" in drawing.caption
    assert any("Framed" in text for text in words(drawing.figure))
    other = draw_confusion(SMALL, ["biased", "not"], ["Yes", "No", "no answer"], "T")
    assert not frames(other.figure)
    assert "Framed" not in other.caption + "".join(words(other.figure))


def test_few_labels_fit_the_usual_width_and_many_get_more() -> None:
    assert small().figure.get_size_inches()[0] * DPI == WIDTH_PX
    assert large().figure.get_size_inches()[0] * DPI > WIDTH_PX


def test_the_words_say_what_is_seen() -> None:
    alt = small().alt
    assert "Yes, 167 in all: Yes 72% (120), No 26% (44), no answer 1.8% (3)." in alt
    assert "No, 80 in all: No 100% (80)." in alt


def test_names_are_shown_as_text() -> None:
    drawing = draw_confusion([[1]], ['<b>"$x^2$"</b> & \u0378'], [""], "<i>")
    assert "<b>" not in svg_text(drawing)
    assert "(no name)" in words(drawing.figure)


@pytest.mark.parametrize(
    ("counts", "gold", "said"),
    [
        ([[1, 2]], ["a", "b"], "shape"),
        ([], [], "every cell"),
        ([[1, -2]], ["a"], "every cell"),
        ([[1, float("nan")]], ["a"], "every cell"),
    ],
)
def test_what_cannot_be_drawn_is_said(counts: list[list[float]], gold: list[str], said: str) -> None:
    table = np.array(counts) if counts else np.empty((0, 2))
    with pytest.raises(UndertowError, match=said):
        draw_confusion(table, gold, ["a", "b"], "T")
