from __future__ import annotations

import math

import pytest

from undertow.report.formatting import (
    correlation,
    interval,
    minus_signs,
    number,
    probability,
    shortened,
    shortest,
    significant,
    slope,
)
from undertow.types import has_width, interval_decimals

WRITTEN = [
    (number(-0.561, 2), "−0.56"),
    (number(-0.001, 2), "0.00"),
    (number(math.nan), "–"),
    (shortest(-1e-5), "−1e−05"),
    (probability(0.00099), "< .001"),
    (probability(math.nan), "–"),
    (correlation(-0.999), "−1.00"),
    (slope(-0.00031), "−0.0003"),
    (slope(1e-12), "0.000000"),
    (slope(-4.2e-7), "−4e−7"),
    (significant(math.nan), "–"),
    (minus_signs("-0.5 (-3 to -1,200) by -1,200.5"), "−0.5 (−3 to −1,200) by −1,200.5"),
    *((minus_signs(text), text) for text in ("--limit -1 on 2020-01-05", "toy:slope=-1.5", "born 1950 -1960", "gpt-2")),
    (shortened("short", 5), "short"),
    (shortened("Democratic Republic of Congo", 20), "Democratic Re…Congo"),
]


@pytest.mark.parametrize(("written", "text"), WRITTEN)
def test_number_is_written_with_a_true_minus_and_not_rounded_away(written: str, text: str) -> None:
    assert written == text


def test_an_interval_has_as_many_decimals_as_tell_its_ends_apart() -> None:
    """One whose ends are swapped is shown so: it is a fault, and no point."""
    for ends, has, decimals, text in (
        ((1.0, 2.0), True, 2, "1.00 to 2.00"),
        ((2.0, 2.004), True, 3, "2.000 to 2.004"),
        ((0.5, 0.5000006), False, 6, "without spread"),
        ((-0.001, -1e-7), True, 4, "−0.0010 to 0.0000"),
        ((1.2, 0.6), True, 2, "1.20 to 0.60"),
        ((math.nan, math.nan), False, 2, "no interval"),
    ):
        assert (has_width(*ends), interval_decimals(*ends), interval(*ends)) == (has, decimals, text)
