from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from undertow.stats import fit_line, fit_rows
from undertow.stats.regression.least_squares import fit_polynomial

masses = st.floats(0, 100, allow_nan=False).map(lambda value: round(value, 3))


def noisy_line(seed: int, n: int = 15) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.choice(100, n, replace=False)).astype(float)
    return x, 3 + 0.2 * x + rng.normal(0, 4, n)


@pytest.mark.parametrize(("seed", "n"), [(0, 15), (1, 15), (1, 4), (1, 5), (7, 30)])
def test_line_intervals_and_band_agree_with_statsmodels(seed: int, n: int) -> None:
    """The band inside and outside the data."""
    x, y = noisy_line(seed, n)
    line, where = fit_line(x, y), np.linspace(-20, 130, 11)
    model = sm.OLS(y, sm.add_constant(x)).fit()
    assert (line.intercept, line.slope) == pytest.approx(tuple(model.params))
    assert (line.slope_low, line.slope_high) == pytest.approx(tuple(model.conf_int(alpha=0.05)[1]))
    assert line.residual_sd == pytest.approx(math.sqrt(model.mse_resid))
    assert line.r == pytest.approx(stats.pearsonr(x, y).statistic)
    assert line.n == n
    band = model.get_prediction(sm.add_constant(where)).conf_int(alpha=0.05)
    np.testing.assert_allclose(np.array(line.band(where)).T, band)


def test_constant_y_is_a_flat_line_without_a_correlation() -> None:
    for y in ([5.0] * 4, [0.0] * 4, [0.3, 0.1 + 0.2, 0.3, 0.3]):  # the last differs by rounding only
        line = fit_line([0, 1, 2, 3], y)
        assert (line.slope, line.slope_low, line.slope_high, line.residual_sd) == (0, 0, 0, 0)
        assert line.intercept == pytest.approx(y[0])
        assert math.isnan(line.r)
        low, high = line.band([1.5])
        assert low == high == pytest.approx(y[0])


def test_a_small_slope_on_a_large_mean_is_not_taken_for_rounding() -> None:
    line = fit_line([0, 1, 2], [50, 50 + 1e-9, 50 + 2e-9])
    assert line.slope == pytest.approx(1e-9, rel=1e-4)
    assert line.r == pytest.approx(1)


def test_two_points_have_a_line_without_an_interval_and_a_perfect_line_one_of_no_width() -> None:
    line = fit_line([1, 3], [2, 6])
    assert (line.slope, line.intercept, line.r) == pytest.approx((2, 0, 1))
    unknown = [line.slope_low, line.slope_high, line.residual_sd, *line.band([1, 2])[0]]
    assert np.isnan(unknown).all()
    line = fit_line([0, 1, 2, 3], [1, 2, 3, 4])
    assert (line.slope_low, line.slope_high) == pytest.approx((1, 1))


@pytest.mark.parametrize(
    ("x", "y"), [([2, 2, 2], [1, 2, 3]), ([], []), ([1], [1]), ([0, 1, 2], [math.nan, math.nan, 5])]
)
def test_without_two_values_of_x_everything_is_nan(x: list[float], y: list[float]) -> None:
    line = fit_line(x, y)
    numbers = [line.slope, line.intercept, line.r, line.slope_low, line.residual_sd]
    assert np.isnan([*numbers, *line.band([0, 1])[1], *line.at([0, 1])]).all()


def test_points_with_nan_are_left_out() -> None:
    with_nan = fit_line([0, 1, 2, 3, math.nan, 9], [1, 3, 2, 4, 9, math.nan])
    assert with_nan == fit_line([0, 1, 2, 3], [1, 3, 2, 4])


@settings(max_examples=40)
@given(rows=arrays(np.float64, (4, 6), elements=st.one_of(masses, st.just(math.nan), st.just(7.0))))
def test_many_rows_are_fitted_as_each_alone(rows: np.ndarray) -> None:
    x = np.array([0.0, 1, 2, 4, 7, 8])
    slopes, correlations = fit_rows(x, rows)
    for row, slope, r in zip(rows, slopes, correlations, strict=True):
        alone = fit_line(x, row)
        if alone.n < 3:
            assert math.isnan(slope)
            assert math.isnan(r)
        else:
            assert slope == pytest.approx(alone.slope, abs=1e-9)
            assert r == pytest.approx(alone.r, abs=1e-6, nan_ok=True)


def test_rows_on_a_constant_x_have_no_slope() -> None:
    slopes, correlations = fit_rows([3, 3, 3], [[1, 2, 3], [1, 1, 1]])
    assert np.isnan([slopes, correlations]).all()


def test_rows_that_vary_by_rounding_have_a_slope_of_zero() -> None:
    assert fit_rows([0, 1, 2], [[0.3, 0.3, 0.1 + 0.2]])[0].tolist() == [0.0]


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_curve_and_band_agree_with_statsmodels(degree: int) -> None:
    x, y = noisy_line(2)
    where = np.linspace(-20, 130, 7)
    powers, at = (np.vander(values / 50 - 1, degree + 1, increasing=True) for values in (x, where))
    fitted = sm.OLS(y, powers).fit()
    curve = fit_polynomial(x, y, degree)
    prediction = fitted.get_prediction(at)
    np.testing.assert_allclose(curve.at(where), prediction.predicted_mean)
    np.testing.assert_allclose(np.array(curve.band(where)).T, prediction.conf_int(alpha=0.05))
    assert curve.r_squared == pytest.approx(fitted.rsquared)
    assert curve.residual_sd == pytest.approx(math.sqrt(fitted.mse_resid))


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
