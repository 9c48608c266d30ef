"""The permutation test against brute force in exact fractions, and its calibration where nothing is there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.stats import label_orders, slope_p_values


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def p_of(x: Sequence[float], y: Sequence[float], n_permutations: int = 10_000) -> float:
    return float(slope_p_values(x, np.array([y]), label_orders(len(x), n_permutations, rng()))[0])


def brute_force_p(x: list[int], y: list[Fraction]) -> Fraction:
    """Share of all orders whose slope is at least as steep, without rounding."""
    mean_x = Fraction(sum(x), len(x))

    def product(order: tuple[int, ...]) -> Fraction:
        return abs(sum(((x[place] - mean_x) * value for place, value in zip(order, y, strict=True)), Fraction()))

    identity = tuple(range(len(x)))
    orders = list(itertools.permutations(identity))
    return Fraction(sum(product(order) >= product(identity) for order in orders), len(orders))


@settings(max_examples=60)
@given(
    x=st.lists(st.integers(0, 9), min_size=3, max_size=6, unique=True),
    tenths=st.lists(st.integers(0, 12), min_size=6, max_size=6),
)
def test_exact_p_is_that_of_brute_force_ties_included(x: list[int], tenths: list[int]) -> None:
    # Tenths are not exact in binary, so that equal slopes differ in their last digits.
    y = [Fraction(tenth, 10) for tenth in tenths[: len(x)]]
    assert p_of([float(label) for label in x], [float(value) for value in y]) == pytest.approx(
        float(brute_force_p(x, y))
    )


def test_a_monotone_line_of_three_can_do_no_better_than_one_in_three() -> None:
    # Of the six orders only the observed one and its mirror image are as steep.
    assert p_of([0, 1, 2], [0.1, 0.2, 0.3]) == pytest.approx(2 / 6)
    assert p_of([0, 1, 2], [0.3, 0.2, 0.1]) == pytest.approx(2 / 6)


def test_all_orders_are_taken_where_they_are_few_enough() -> None:
    assert label_orders(4, 24, rng()).exact
    assert len({tuple(order) for order in label_orders(4, 24, rng()).orders}) == 24
    assert not label_orders(4, 23, rng()).exact
    assert label_orders(7, 10_000, rng()).exact
    assert not label_orders(8, 10_000, rng()).exact
    assert not label_orders(400, 10, rng()).exact


def test_random_orders_are_orders() -> None:
    drawn = label_orders(9, 50, rng())
    assert drawn.orders.shape == (50, 9)
    np.testing.assert_array_equal(np.sort(drawn.orders, axis=1), np.tile(np.arange(9), (50, 1)))
    assert len({tuple(order) for order in drawn.orders}) == 50


def test_random_orders_count_the_observed_one_in() -> None:
    x = list(range(15))
    assert p_of(x, [2.0 * label for label in x], 999) == 1 / 1000


def test_random_orders_come_close_to_all_orders() -> None:
    x, y = list(range(7)), [3.0, 1.0, 4.0, 2.0, 6.0, 3.5, 5.0]
    assert p_of(x, y, 5039) == pytest.approx(p_of(x, y, 5040), abs=0.02)


def test_a_constant_row_is_all_ties() -> None:
    assert p_of([0, 1, 2, 3], [0.3, 0.3, 0.3, 0.1 + 0.2]) == 1  # the last differs by rounding only
    assert p_of([0, 1, 2, 3], [5.0] * 4) == 1
    assert p_of(list(range(10)), [0.0] * 10, 50) == 1


def test_where_there_is_no_slope_there_is_no_p() -> None:
    orders = label_orders(3, 100, rng())
    p = slope_p_values([0, 1, 2], np.array([[1, 2, math.nan], [1, 2, 3]]), orders)
    assert math.isnan(p[0])
    assert p[1] == pytest.approx(1 / 3)
    assert np.isnan(slope_p_values([4, 4, 4], [[1, 2, 3]], orders)).all()


def test_rows_are_tested_as_each_alone() -> None:
    x, rows = np.arange(9.0), rng(5).random((6, 9))
    together = slope_p_values(x, rows, label_orders(9, 500, rng()))
    alone = [slope_p_values(x, row[np.newaxis], label_orders(9, 500, rng()))[0] for row in rows]
    np.testing.assert_array_equal(together, alone)


def test_the_test_keeps_its_level_where_nothing_is_there() -> None:
    p = slope_p_values(np.arange(10), rng(6).exponential(size=(2000, 10)), label_orders(10, 999, rng()))
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.015)
    assert (p <= 0.5).mean() == pytest.approx(0.5, abs=0.04)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        label_orders(3, 0, rng())
    with pytest.raises(ValueError, match="at least one"):
        label_orders(0, 10, rng())
    with pytest.raises(ValueError, match="for these orders"):
        slope_p_values([0, 1, 2], [[1, 2, 3, 4]], label_orders(3, 10, rng()))
    with pytest.raises(ValueError, match="for these orders"):
        slope_p_values([0, 1, 2, 3], [[1, 2, 3, 4]], label_orders(3, 10, rng()))
