"""Errors from the influences of clusters: against scipy and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats

from undertow.stats.intervals.cluster_errors import influence_variance, share_interval


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def influences_of(values: np.ndarray) -> np.ndarray:
    """How far each cluster moves the mean over clusters."""
    found: np.ndarray = (values - values.mean(axis=-1, keepdims=True)) / values.shape[-1]
    return found


@pytest.mark.parametrize("n", [2, 3, 4, 6, 12, 60])
@pytest.mark.parametrize("shape", ["normal", "lognormal"])
def test_of_a_mean_it_is_the_standard_error_with_the_kurtosis_of_scipy(n: int, shape: str) -> None:
    values = getattr(rng(n), shape)(size=n)
    variance, df = influence_variance(influences_of(values), np.ones(n, dtype=bool))
    assert variance == pytest.approx(stats.sem(values) ** 2)
    # The variance of a sample variance is sigma^4 / n (kurtosis - (n - 3) / (n - 1)); Satterthwaite's degrees of freedom are twice
    # the square of the variance over it.
    kurtosis = 3.0 if n < 4 else stats.kurtosis(values, bias=False) + 3
    expected = min(2 * n / (kurtosis - (n - 3) / (n - 1)), n - 1)
    assert df == pytest.approx(expected)
    assert 1 <= df <= n - 1


def test_of_a_regression_it_is_the_sandwich_of_statsmodels() -> None:
    """Clusters of several rows: their scores, weighed as least squares weighs them."""
    groups = np.repeat(np.arange(9), 5)
    x = rng(1).normal(size=45)
    y = 0.4 * x + rng(2).normal(size=9)[groups] + rng(3).normal(size=45)
    design = sm.add_constant(x)
    fitted = sm.OLS(y, design).fit()
    theirs = fitted.get_robustcov_results("cluster", groups=groups, use_correction=False).bse[1] ** 2
    moved = (np.linalg.inv(design.T @ design) @ design.T)[1] * fitted.resid
    ours, _ = influence_variance(np.bincount(groups, weights=moved), np.ones(9, dtype=bool))
    assert ours == pytest.approx(theirs * 9 / 8)


def test_clusters_that_take_no_part_are_none() -> None:
    values = rng(4).normal(size=8)
    padded = np.concatenate([influences_of(values), np.zeros(5)])
    there = np.arange(13) < 8
    for ours, expected in zip(
        influence_variance(padded, there), influence_variance(influences_of(values), there[:8]), strict=True
    ):
        assert ours == pytest.approx(expected)
    both = influence_variance(np.stack([padded, padded]), np.stack([there, np.arange(13) < 1]))
    assert np.isfinite(both[0]).tolist() == [True, False]
    assert np.isfinite(both[1]).tolist() == [True, False]


def test_clusters_that_do_not_differ_have_no_variance() -> None:
    variance, df = influence_variance(np.zeros(6), np.ones(6, dtype=bool))
    assert variance == 0
    assert 0 < df <= 5


@pytest.mark.parametrize("share", [0.002, 0.3, 0.97])
def test_the_interval_of_a_share_is_students_on_the_scale_of_log_odds(share: float) -> None:
    error, df = 0.2 * share * (1 - share), 7.0
    low, high = share_interval(share, error**2, df)
    half = stats.t.ppf(0.975, df) * 0.2
    assert (special.logit(low), special.logit(high)) == pytest.approx(
        (special.logit(share) - half, special.logit(share) + half)
    )
    assert 0 < low < share < high < 1
    mirrored = share_interval(1 - share, error**2, df)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high))
    narrow = share_interval(share, error**2, df, level=0.5)
    assert low < narrow[0] < narrow[1] < high


@pytest.mark.parametrize(
    ("share", "variance", "df"),
    [(0.0, 1e-4, 5), (1.0, 1e-4, 5), (0.3, 0.0, 5), (0.3, math.nan, 5), (math.nan, 1e-4, 5), (0.3, 1e-4, math.nan)],
)
def test_without_an_error_there_is_no_interval(share: float, variance: float, df: float) -> None:
    assert np.isnan(share_interval(share, variance, df)).all()
