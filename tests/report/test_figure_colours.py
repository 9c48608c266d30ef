"""Colours of figures: words can be read by day and by night, where the page turns lightness round."""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from undertow.report.drawing import TEXT_CONTRAST, as_ink, contrast
from undertow.report.sheet import GREY, PALE
from undertow.report.spectrum import COLOURS

WHITE = "#ffffff"
LINE_CONTRAST = 3.0
"""What WCAG 2 asks of what is no text."""
INKS = ("#222222", "#333333", "#444444", GREY, *map(as_ink, COLOURS))


def at_night(colour: str) -> str:
    """A colour after `invert(a) hue-rotate(180deg)`, with the page's own a (Filter Effects Module Level 1)."""
    css = resources.files("undertow.report").joinpath("page.css.j2").read_text(encoding="utf-8")
    (share,) = re.findall(r"filter: invert\(([.\d]+)\) hue-rotate\(180deg\)", css)
    inverted = float(share) - (2 * float(share) - 1) * np.array(to_rgb(colour))
    # With cos = -1 and sin = 0, each part becomes twice the luma less itself.
    luma = np.array([0.213, 0.715, 0.072]) @ inverted
    return to_hex(np.clip(2 * luma - inverted, 0, 1))


def test_contrast_of_words_and_lines_is_what_wcag_asks_for_by_day_and_by_night() -> None:
    assert contrast("black", WHITE) == pytest.approx(21.0)
    assert contrast("#ff0000", WHITE) == pytest.approx(3.998, abs=0.001)
    for seen in (str, at_night):
        assert min(contrast(seen(ink), seen(WHITE)) for ink in INKS) >= TEXT_CONTRAST
        assert contrast(seen(GREY), seen(PALE)) >= TEXT_CONTRAST
    assert min(contrast(at_night(colour), at_night(WHITE)) for colour in COLOURS) >= LINE_CONTRAST
    assert len(set(COLOURS)) == len(COLOURS)
    assert all(contrast(as_ink(colour), WHITE) >= contrast(colour, WHITE) for colour in COLOURS)
