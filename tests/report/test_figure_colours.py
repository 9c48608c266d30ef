"""Colours of figures: words can be read by day and by night, and lines can be told apart, whoever looks.

By night the page turns the lightness of a figure round and keeps its hues; what comes of a colour is worked out here as CSS does it,
and tests of the page in a browser look at what a browser makes of it.
"""

from __future__ import annotations

import itertools
import re
from importlib import resources

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from undertow.report.drawing import TEXT_CONTRAST, as_ink, contrast, luminance
from undertow.report.sheet import GREY, PALE
from undertow.report.spectrum import COLOURS
from undertow.types import Floats

WHITE = "#ffffff"
LINE_CONTRAST = 3.0
"""What WCAG 2 asks of what is no text."""
INKS = ("#222222", "#333333", "#444444", GREY)

# Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color vision deficiency", severity 1.0.
SEEN_BY = {
    "everyone": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip


def at_night(colour: str) -> str:
    """A colour after `invert(a) hue-rotate(180deg)`, with the page's own a (Filter Effects Module Level 1)."""
    css = resources.files("undertow.report").joinpath("page.css.j2").read_text(encoding="utf-8")
    (share,) = re.findall(r"filter: invert\(([.\d]+)\) hue-rotate\(180deg\)", css)
    inverted = float(share) - (2 * float(share) - 1) * np.array(to_rgb(colour))
    # With cos = -1 and sin = 0, each part becomes twice the luma less itself.
    luma = np.array([0.213, 0.715, 0.072]) @ inverted
    return to_hex(np.clip(2 * luma - inverted, 0, 1))


def lab(colour: str, seen_by: str) -> Floats:
    """A colour as somebody sees it, in Oklab, where equal distances look equal."""
    part = np.array(to_rgb(colour))
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    seen = np.clip(SEEN_BY[seen_by] @ linear, 0, 1)
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ seen
    )
    found: Floats = (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )
    return found


def test_contrast_is_that_of_wcag() -> None:
    assert luminance(WHITE) == pytest.approx(1.0)
    assert contrast("black", WHITE) == contrast(WHITE, "black") == pytest.approx(21.0)
    assert contrast("#777777", WHITE) == pytest.approx(4.478, abs=0.001)
    assert contrast("#ff0000", WHITE) == pytest.approx(3.998, abs=0.001)


@pytest.mark.parametrize("colour", [*INKS, *map(as_ink, COLOURS)])
def test_words_can_be_read_by_day_and_by_night(colour: str) -> None:
    assert contrast(colour, WHITE) >= TEXT_CONTRAST
    assert contrast(at_night(colour), at_night(WHITE)) >= TEXT_CONTRAST


def test_words_on_a_grey_ground_can_be_read() -> None:
    assert contrast(GREY, PALE) >= TEXT_CONTRAST
    assert contrast(at_night(GREY), at_night(PALE)) >= TEXT_CONTRAST


@pytest.mark.parametrize("colour", COLOURS)
def test_ink_has_the_hue_of_its_colour_and_is_no_darker_than_it_must_be(colour: str) -> None:
    ink = as_ink(colour)
    if contrast(colour, WHITE) >= TEXT_CONTRAST:
        assert ink == colour.lower()
        return
    assert TEXT_CONTRAST <= contrast(ink, WHITE) < TEXT_CONTRAST + 0.2
    shares = np.array(to_rgb(ink)) / np.clip(to_rgb(colour), 1e-9, None)
    assert np.ptp(shares[np.array(to_rgb(colour)) > 0]) < 0.02


@pytest.mark.parametrize("colour", COLOURS)
def test_lines_can_be_seen_by_night(colour: str) -> None:
    assert contrast(at_night(colour), at_night(WHITE)) >= LINE_CONTRAST


@pytest.mark.parametrize("seen_by", SEEN_BY)
@pytest.mark.parametrize("night", [False, True])
def test_the_first_lines_are_told_apart_whoever_looks(seen_by: str, night: bool) -> None:
    """The first four, beside which each has a marker of its own."""
    seen = [lab(at_night(colour) if night else colour, seen_by) for colour in COLOURS[:4]]
    nearest = min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2))
    assert nearest > 0.06
