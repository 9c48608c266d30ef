"""The detectable slope is the one that a simulated t test finds four times in five."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from undertow.stats import detectable_slope, fit_rows


@pytest.mark.parametrize("n", [3, 4, 10, 30, 2000])
@pytest.mark.parametrize(("power", "alpha"), [(0.8, 0.05), (0.95, 0.01), (0.1, 0.05)])
def test_agrees_with_the_power_that_statsmodels_computes(n: int, power: float, alpha: float) -> None:
    x = np.arange(n)
    slope = detectable_slope(x, 2.0, power=power, alpha=alpha)
    noncentrality = slope * math.sqrt(np.sum((x - x.mean()) ** 2)) / 2.0
    # statsmodels' one-sample effect is a noncentrality over the root of the sample size.
    expected = TTestPower().power(noncentrality / math.sqrt(n), n, alpha, df=n - 2, alternative="two-sided")
    assert expected == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize("n", [5, 12])
def test_a_simulated_t_test_finds_it_four_times_in_five(n: int) -> None:
    x = np.arange(n)
    slope = detectable_slope(x, 3.0)
    y = slope * x + np.random.default_rng(n).normal(0, 3.0, (10_000, n))
    _, r = fit_rows(x, y)
    t = r * np.sqrt((n - 2) / (1 - r**2))
    assert (np.abs(t) > stats.t.ppf(0.975, n - 2)).mean() == pytest.approx(0.8, abs=0.015)


def test_it_goes_with_the_noise_and_against_the_spread_of_x() -> None:
    x = np.array([0.0, 1, 2, 5, 9])
    slope = detectable_slope(x, 1.5)
    assert detectable_slope(x, 3.0) == pytest.approx(2 * slope)
    assert detectable_slope(10 * x + 7, 1.5) == pytest.approx(slope / 10)
    assert detectable_slope(np.arange(40), 1.5) < detectable_slope(np.arange(20), 1.5)
    assert detectable_slope(x, 0.0) == 0
    assert detectable_slope([*x, math.nan], 1.5) == slope


@pytest.mark.parametrize(("x", "residual_sd"), [([], 1), ([0, 1], 1), ([2, 2, 2], 1), ([0, 1, 2], math.nan)])
def test_a_design_that_can_find_nothing_has_no_detectable_slope(x: list[float], residual_sd: float) -> None:
    assert math.isnan(detectable_slope(x, residual_sd))


@pytest.mark.parametrize(("power", "alpha"), [(0.04, 0.05), (1.0, 0.05), (0.8, 0.0)])
def test_powers_that_no_slope_has_are_refused(power: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha < power"):
        detectable_slope([0, 1, 2], 1.0, power=power, alpha=alpha)
