"""Polynomials agree with the line, with statsmodels and with a hand, and give up where there is nothing to say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from undertow.stats import fit_line
from undertow.stats.regression.least_squares import fit_polynomial


def noisy(seed: int, n: int = 15) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.choice(100, n, replace=False)).astype(float)
    return x, 3 + 0.2 * x - 0.004 * x**2 + rng.normal(0, 1, n)


def test_degree_1_is_the_line() -> None:
    x, y = noisy(1)
    line, curve = fit_line(x, y), fit_polynomial(x, y, 1)
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
