"""How numbers and names are written."""

from __future__ import annotations

import math

import pytest

from undertow.report.words import (
    correlation,
    has_width,
    interval_decimals,
    measure_title,
    number,
    plain,
    probability,
    shortened,
    significant,
    significant_decimals,
    slope,
    with_minus,
)


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
        ("-12.0 [-1, -.5], r -0.99", "−12.0 [−1, −.5], r −0.99"),
        ("toy:slope=-1 on 2020-01-05, female-male, gpt-2, - 3", "toy:slope=-1 on 2020-01-05, female-male, gpt-2, - 3"),
        ("run it with --seed -x", "run it with --seed -x"),
    ],
)
def test_hyphens_before_numbers_become_minus_signs_and_no_others(text: str, shown: str) -> None:
    assert with_minus(text) == shown


@pytest.mark.parametrize(
    ("low", "high", "has", "decimals"),
    [
        (1.0, 2.0, True, 2),
        (2.0, 2.004, True, 3),
        (2.0, 2.0 + 1e-7, False, 6),
        (-0.5, -0.5, False, 2),
        (0.0, 0.0, False, 2),
    ],
)
def test_an_interval_has_as_many_decimals_as_tell_its_ends_apart(
    low: float, high: float, has: bool, decimals: int
) -> None:
    assert has_width(low, high) is has
    assert interval_decimals(low, high) == decimals


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
