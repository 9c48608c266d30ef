from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats

from undertow.stats import MIN_CLUSTERS, percentile_interval
from undertow.stats.intervals.cluster_errors import (
    influence_variance,
    jackknife_interval,
    mean_interval,
    random_groups,
    share_interval,
    skewed_interval,
    skewness_of_sum,
)


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
    skewness = 0.0 if n < 3 else stats.skew(values, bias=False) / math.sqrt(n)
    assert skewness_of_sum(influences_of(values), np.ones(n, dtype=bool)) == pytest.approx(skewness)


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


def test_clusters_that_take_no_part_are_none_and_equal_ones_have_no_variance() -> None:
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
    variance, df = influence_variance(np.zeros(6), np.ones(6, dtype=bool))
    assert variance == 0
    assert 0 < df <= 5


@pytest.mark.parametrize("skewness", [1e-9, 0.1, -0.3, 0.5, -1.0])
def test_the_far_end_of_a_skewed_interval_is_where_halls_transformation_is_the_quantile(skewness: float) -> None:
    low, high = (abs(end - 5) / 2 for end in skewed_interval(5.0, 2.0, 2.2, skewness))
    near, far, a = *sorted((float(low), float(high))), abs(skewness)
    assert near == pytest.approx(2.2)
    assert bool(high >= low) == (skewness > 0)
    assert far - a * far**2 / 3 + a**2 * far**3 / 27 - a / 6 == pytest.approx(2.2)


@pytest.mark.parametrize("share", [0.002, 0.3, 0.97])
def test_the_interval_of_a_share_is_students_on_the_scale_of_log_odds(share: float) -> None:
    error, df = 0.2 * share * (1 - share), 7.0
    low, high = share_interval(share, error**2, df)
    half = stats.t.ppf(0.975, df) * 0.2
    assert special.logit([low, high]) == pytest.approx(special.logit(share) + half * np.array([-1, 1]))
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


RNG = np.random.default_rng(0)


def means_without(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.array([[values[group != one].mean()] for one in np.unique(group)])


def test_of_a_mean_it_is_the_t_interval_of_the_group_means() -> None:
    values = RNG.normal(3.0, 2.0, size=40)
    group = np.arange(40) % 8
    low, high = jackknife_interval([values.mean()], means_without(values, group))
    means = [values[group == one].mean() for one in range(8)]
    expected = stats.t.interval(0.95, 7, loc=values.mean(), scale=stats.sem(means))
    assert (low[0], high[0]) == pytest.approx(expected, rel=1e-12)


def test_what_was_sampled_is_known() -> None:
    """Sampling a share without replacement leaves one less that share of the variance; of the whole, nothing is left."""
    values, group = RNG.normal(size=30), np.arange(30) % 10
    without = means_without(values, group)
    wide, narrow, none = (
        np.subtract(*jackknife_interval([values.mean()], without, sampled=share)) for share in (0.0, 0.36, 1.0)
    )
    assert narrow / wide == pytest.approx(0.8)
    assert none == 0


def test_what_cannot_be_had_is_missing() -> None:
    low, high = jackknife_interval([1.0, 2.0, np.nan], [[1.1, np.nan, 1.0], *[[0.9, 2.0, 1.0]] * 5])
    assert np.isfinite([low[0], high[0]]).all()
    assert np.isnan([low[1:], high[1:]]).all()
    low, high = jackknife_interval([1.0], [[1.0]])
    assert np.isnan([low, high]).all(), "one group says nothing of others"
    for n in (5, 6):
        low, high = jackknife_interval([1.0], RNG.normal(1.0, 0.1, size=(n, 1)))
        assert np.isnan([low, high]).all() == (n == 5)
    low, high = jackknife_interval([1.0, np.nan], np.zeros((0, 2)), sampled=1.0)
    assert (low[0], high[0]) == (1.0, 1.0)
    assert np.isnan(low[1])


def test_groups_are_dealt_evenly_and_at_random() -> None:
    dealt = random_groups(23, 5, np.random.default_rng(1))
    assert sorted(np.bincount(dealt)) == [4, 4, 5, 5, 5]
    assert not (dealt == random_groups(23, 5, np.random.default_rng(2))).all()
    assert (dealt == random_groups(23, 5, np.random.default_rng(1))).all()


@pytest.mark.parametrize("n_clusters", [6, 10, 60])
def test_of_few_clusters_they_lie_as_far_out_as_students_t(n_clusters: int) -> None:
    """A bootstrap mean of normal clusters is normal, with (k - 1) / k of the squared standard error."""
    shrunk = math.sqrt((n_clusters - 1) / n_clusters)
    draws = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000) * shrunk
    low, high = percentile_interval(draws, n_clusters=n_clusters)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, n_clusters - 1), rel=1e-3)


@pytest.mark.parametrize("n_clusters", range(MIN_CLUSTERS))
def test_of_fewer_clusters_there_is_no_interval(n_clusters: int) -> None:
    assert np.isnan(percentile_interval(np.arange(1001.0), n_clusters=n_clusters)).all()


def test_a_few_undefined_draws_are_left_out_and_many_void_the_interval() -> None:
    draws = np.arange(100.0)
    draws[:5] = math.nan
    assert percentile_interval(draws) == pytest.approx(tuple(np.quantile(np.arange(5.0, 100), [0.025, 0.975])))
    draws[5] = math.nan
    assert np.isnan(percentile_interval(draws)).all()
    assert np.isnan(percentile_interval([])).all()
    assert np.isnan(percentile_interval([math.nan] * 3)).all()


def test_the_interval_of_a_mean_of_two_estimates() -> None:
    """Of independent ones the squares of both sides are added; of alike ones the sides; NaN if an interval is unknown."""
    values, ends = [0.5, 0.75], [[0.25, 0.625], [0.625, 1.0]]
    crossed = np.array([[0.4, 0.6, 0.4, 0.6], [0.7, 0.7, 0.8, 0.8]])
    independent = (0.625 - math.hypot(0.25, 0.125) / 2, 0.625 + math.hypot(0.125, 0.25) / 2)
    assert mean_interval(values, ends, crossed, unknown=1.0) == pytest.approx(independent)
    assert mean_interval(values, ends, crossed[[0, 0]], unknown=0.0) == pytest.approx((0.4375, 0.8125))
    for unknown, expected in ((0.0, independent), (1.0, (0.4375, 0.8125))):
        constant = [[0.5, 0.5, 0.5], [0.7, 0.8, math.nan]]
        assert mean_interval(values, ends, constant, unknown=unknown) == pytest.approx(expected)
    assert np.isnan(mean_interval(values, [[math.nan, math.nan], ends[1]], crossed, unknown=0.0)).all()
