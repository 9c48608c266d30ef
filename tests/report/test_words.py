"""How numbers and names are written."""

from __future__ import annotations

import math

import pytest

from undertow.report.words import (
    MinusSigns,
    correlation,
    interval,
    measure_title,
    number,
    plain,
    probability,
    shortened,
    shortest,
    significant,
    significant_decimals,
    slope,
)
from undertow.types import Result, has_width, interval_decimals


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(-0.561, 2, "−0.56"), (-0.001, 2, "0.00"), (12.0, 0, "12"), (math.nan, 2, "–"), (math.inf, 2, "–")],
)
def test_a_number_has_a_true_minus_and_no_negative_zero(value: float, decimals: int, text: str) -> None:
    assert number(value, decimals) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It falls (-0.42 points, -1.31 to +0.16).", "It falls (−0.42 points, −1.31 to +0.16)."),
        ("It moves by -0.4 points, r -.42; [-1.3, 0]", "It moves by −0.4 points, r −.42; [−1.3, 0]"),
        ("r=-0.42, at <-0.42", "r=−0.42, at <−0.42"),
        ("p -1e-05, or -0.00001", "p −1e−05, or −0.00001"),
        ("least in m (-7 points a step)", "least in m (−7 points a step)"),
        ("-1,234.5 or -1234.50", "−1,234.5 or −1234.50"),
    ],
)
def test_numbers_of_results_get_minus_signs(text: str, shown: str) -> None:
    assert told_of(-0.42, -1.31, detail={"tiny": -1e-5, "other": -7.03, "large": -1234.5}).put(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "It was -40 degrees",
        "run it with --limit -1, or --seed -x",
        "born 1950 -1960",
        "with W from -5 to -4, and from -5.5 to -4.5",
        "(-4, -3, -0.55)",
        "cold words (-4 and -5.25) of 'the -5 wind', '-5.25'",
        "toy:slope=-1.5 on 2020-01-05, female-male, gpt-2, - 5",
        "-5.25.1, -5-1960",
    ],
)
def test_what_else_looks_like_a_number_below_zero_stays_as_it_was(text: str) -> None:
    """Also where it is a result, but for its decimals, or but for a name that it stands in."""
    signs = told_of(-40.0, -1.5, detail={"a": -1960.0, "b": -5.0, "c": -1.0}, model="toy:slope=-1.5")
    assert signs.put(text) == text
    assert MinusSigns([]).put(text) == text


def told_of(value: float, low: float, detail: dict[str, float], model: str = "m") -> MinusSigns:
    return MinusSigns([Result("slope", {"model": model}, value, low, detail=detail)])


@pytest.mark.parametrize(("value", "text"), [(-3.0, "−3"), (-0.65, "−0.65"), (-1e-5, "−1e−05"), (0.0, "0")])
def test_the_shortest_form_has_true_minus_signs(value: float, text: str) -> None:
    assert shortest(value) == text


@pytest.mark.parametrize(
    ("low", "high", "has", "decimals", "text"),
    [
        (1.0, 2.0, True, 2, "1.00 to 2.00"),
        (2.0, 2.004, True, 3, "2.000 to 2.004"),
        (2.0, 2.0 + 1e-7, False, 6, "without spread"),
        (0.5, 0.5000006, False, 6, "without spread"),
        (0.5, 0.500002, True, 6, "0.500000 to 0.500002"),
        (-0.5, -0.5, False, 2, "without spread"),
        (0.0, 0.0, False, 2, "without spread"),
        (-0.001, -1e-7, True, 4, "−0.0010 to 0.0000"),
        (1.2, 0.6, True, 2, "1.20 to 0.60"),
        (math.nan, math.nan, False, 2, "no interval"),
        (-math.inf, 1.0, True, 2, "no interval"),
    ],
)
def test_an_interval_has_as_many_decimals_as_tell_its_ends_apart(
    low: float, high: float, has: bool, decimals: int, text: str
) -> None:
    """One whose ends are swapped is shown so: it is a fault, and no point."""
    assert has_width(low, high) is has
    assert interval_decimals(low, high) == decimals
    assert interval(low, high) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "< .001"), (0.00099, "< .001"), (0.001, ".001"), (0.0321, ".032"), (1.0, "1.000"), (math.nan, "–")],
)
def test_a_probability_is_never_printed_as_zero(p: float, text: str) -> None:
    assert probability(p) == text


@pytest.mark.parametrize(("r", "text"), [(-0.784, "−.78"), (0.0, ".00"), (1.0, "1.00"), (-0.999, "−1.00")])
def test_a_correlation_has_no_leading_zero_unless_it_is_one(r: float, text: str) -> None:
    assert correlation(r) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.56, "+0.56"), (-0.7, "−0.70"), (0.0042, "+0.004"), (-0.00031, "−0.0003"), (0.0, "0.00"), (1e-12, "0.000000")],
)
def test_a_slope_shows_its_sign_and_is_not_rounded_away(value: float, text: str) -> None:
    assert slope(value) == text


@pytest.mark.parametrize(
    ("size", "digits", "decimals"), [(0.13, 2, 2), (1.3, 2, 1), (45.0, 2, 0), (0.0031, 2, 4), (0.0, 2, 2), (1e-9, 1, 6)]
)
def test_decimals_follow_the_size(size: float, digits: int, decimals: int) -> None:
    assert significant_decimals(size, digits) == decimals


def test_significant_keeps_every_digit_before_the_point() -> None:
    assert [significant(x) for x in (1234.5, 0.113, math.nan)] == ["1234", "0.11", "–"]


def test_plain_text_is_one_line_without_control_characters() -> None:
    assert plain(" a\n b\x00\x1bc\u2028d\udc80 ") == "a b c d"
    assert plain("नि\u200dत") == "नि\u200dत"  # joiners carry meaning


def test_shortened_keeps_beginning_and_end() -> None:
    assert shortened("short", 5) == "short"
    cut = shortened("Democratic Republic of Congo", 20)
    assert len(cut) <= 20
    assert cut.startswith("Democratic")
    assert cut.endswith("Congo")


def test_an_unknown_measure_is_titled_by_its_name() -> None:
    assert measure_title("mean_mass") == "Mean mass"
    assert measure_title("exact_match") == "Exact match"
