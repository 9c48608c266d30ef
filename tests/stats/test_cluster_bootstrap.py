"""Percentiles reach as far as Student's t over clusters, and say NaN rather than too little."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from undertow.stats import MIN_CLUSTERS, percentile_interval


def test_percentiles() -> None:
    draws = np.arange(1001.0)
    assert percentile_interval(draws) == pytest.approx((25, 975))


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
