"""Polynomials agree with the line, with statsmodels and with a hand, and give up where there is nothing to say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from undertow.stats import fit_line, label_orders, slope_p_values
from undertow.stats.polynomial import fit_polynomial, polynomial_p_values


def noisy(seed: int, n: int = 15) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.choice(100, n, replace=False)).astype(float)
    return x, 3 + 0.2 * x - 0.004 * x**2 + rng.normal(0, 1, n)


def test_degree_1_is_the_line() -> None:
    x, y = noisy(1)
    line, curve = fit_line(x, y, 0.9), fit_polynomial(x, y, 1, 0.9)
    where = np.linspace(-10, 120, 9)
    np.testing.assert_allclose(curve.at(where), line.at(where))
    np.testing.assert_allclose(curve.band(where), line.band(where))
    assert curve.r_squared == pytest.approx(line.r**2)
    assert curve.residual_sd == pytest.approx(line.residual_sd)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_curve_and_band_agree_with_statsmodels(degree: int) -> None:
    x, y = noisy(2)
    where = np.linspace(0, 100, 7)
    powers, at = (np.vander(values / 50 - 1, degree + 1, increasing=True) for values in (x, where))
    fitted = sm.OLS(y, powers).fit()
    curve = fit_polynomial(x, y, degree)
    prediction = fitted.get_prediction(at)
    np.testing.assert_allclose(curve.at(where), prediction.predicted_mean)
    np.testing.assert_allclose(np.array(curve.band(where)).T, prediction.conf_int(alpha=0.05))
    assert curve.r_squared == pytest.approx(fitted.rsquared)


def test_a_parabola_that_a_hand_can_fit() -> None:
    curve = fit_polynomial([0, 1, 2, 3, 4], [4, 1, 0, 1, 4], 2)  # (x - 2)^2
    np.testing.assert_allclose(curve.at([5, -1]), [9, 9])
    assert curve.r_squared == pytest.approx(1)
    assert curve.residual_sd == pytest.approx(0, abs=1e-12)


def test_years_are_no_harder_than_their_index() -> None:
    index = np.arange(30.0)
    y = np.sin(index / 5)
    by_index, by_year = fit_polynomial(index, y, 4), fit_polynomial(1801 + 7 * index, y, 4)
    np.testing.assert_allclose(by_index.at(index), by_year.at(1801 + 7 * index))


def test_as_many_points_as_it_needs_have_a_curve_and_no_band() -> None:
    curve = fit_polynomial([0, 1, 2], [1, 0, 3], 2)
    np.testing.assert_allclose(curve.at([0, 1, 2]), [1, 0, 3], atol=1e-12)
    assert np.isnan(curve.band([0.5])).all()


@pytest.mark.parametrize(("x", "y"), [([0, 1], [1, 2]), ([3, 3, 3, 3], [1, 2, 3, 4]), ([0, 1, 2], [1, math.nan, 2])])
def test_too_few_different_x_have_no_curve(x: list[float], y: list[float]) -> None:
    curve = fit_polynomial(x, y, 2)
    assert np.isnan(curve.at([0.0])).all()
    assert np.isnan(curve.band([0.0])).all()
    assert math.isnan(curve.r_squared)


def test_a_constant_is_flat_and_explains_nothing() -> None:
    curve = fit_polynomial(range(6), [0.1 + 0.2] * 6, 3)
    np.testing.assert_allclose(curve.at([0, 5]), [0.3, 0.3])
    low, high = curve.band([0, 5])
    np.testing.assert_allclose(low, high)
    assert math.isnan(curve.r_squared)


def test_p_of_degree_1_is_that_of_the_slope() -> None:
    x = np.arange(12.0)
    y = np.array([noisy(seed, 12)[1] for seed in range(5)])
    orders = label_orders(12, 2000, np.random.default_rng(3))
    # The slope shuffles x, the curve y: the same family of orders, drawn once, so nearly the same share.
    np.testing.assert_allclose(polynomial_p_values(x, y, 1, orders), slope_p_values(x, y, orders), atol=0.03)


def test_exact_p_that_a_hand_can_count() -> None:
    """Of the 24 orders of 0, 1, 4, 9 on a parabola, as good as the observed are itself and its mirror image."""
    orders = label_orders(4, 24, np.random.default_rng(0))
    assert orders.exact
    (p,) = polynomial_p_values(np.arange(4), np.array([[0.0, 1.0, 4.0, 9.0]]), 2, orders)
    assert p == pytest.approx(2 / 24)


def test_a_bend_is_seen_by_degree_2_and_not_by_degree_1() -> None:
    x = np.arange(20.0)
    y = (x - 9.5) ** 2 + np.random.default_rng(4).normal(0, 5, 20)
    orders = label_orders(20, 2000, np.random.default_rng(5))
    assert polynomial_p_values(x, y[None], 1, orders)[0] > 0.1
    assert polynomial_p_values(x, y[None], 2, orders)[0] < 0.001


def test_p_where_there_is_nothing_to_test() -> None:
    orders = label_orders(5, 200, np.random.default_rng(6))
    rows = np.array([[1.0, 2.0, math.nan, 3.0, 4.0], [0.3] * 5])
    p = polynomial_p_values(np.arange(5), rows, 2, orders)
    assert math.isnan(p[0])
    assert p[1] == 1
    assert np.isnan(polynomial_p_values([1, 1, 1, 2, 2], rows, 2, orders)).all()


def test_noise_is_found_no_more_often_than_it_should_be() -> None:
    rng = np.random.default_rng(7)
    orders = label_orders(15, 400, rng)
    p = polynomial_p_values(np.arange(15), rng.normal(size=(400, 15)), 3, orders)
    assert 0.02 < np.mean(p < 0.05) < 0.09


@pytest.mark.parametrize(("x", "y", "degree"), [([1, 2], [1], 1), ([[1, 2]], [[1, 2]], 1), ([1, 2, 3], [1, 2, 3], 0)])
def test_wrong_shapes_are_refused(x: list[float], y: list[float], degree: int) -> None:
    with pytest.raises(ValueError, match="one length and a degree"):
        fit_polynomial(x, y, degree)
    with pytest.raises(ValueError, match="degree of 1 or more"):
        polynomial_p_values([1, 2], [[1, 2, 3]], 1, label_orders(2, 10, np.random.default_rng(0)))
