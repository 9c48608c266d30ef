"""Wilson's interval against the score test that it inverts, another implementation, and the ends of its range."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from undertow.stats.intervals.bounded_mean import Z_95, wilson_interval


@pytest.mark.parametrize(("count", "n"), [(0, 1), (1, 1), (3, 10), (37, 1000), (1000, 1000)])
def test_counts_have_the_interval_that_scipy_gives(count: int, n: int) -> None:
    expected = stats.binomtest(count, n).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson_interval(count / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(rate=st.floats(0.001, 0.999), n=st.floats(0.5, 1e9), quantile=st.floats(0.1, 10))
def test_its_ends_are_the_rates_that_the_score_test_just_leaves(rate: float, n: float, quantile: float) -> None:
    for end in wilson_interval(rate, n, quantile):
        squared = quantile**2 * end * (1 - end) / n
        assert (rate - end) ** 2 == pytest.approx(squared, rel=1e-4, abs=1e-13)


@pytest.mark.parametrize("n", [0.3, 1, 7, 1e12])
def test_nobody_and_everybody_end_at_0_and_at_1(n: float) -> None:
    low, high = wilson_interval(0.0, n)
    assert low == 0.0 < high < 1
    assert wilson_interval(1.0, n) == pytest.approx((1 - high, 1.0))
    assert wilson_interval(0.25, n, 0.0) == pytest.approx((0.25, 0.25))


def test_the_quantile_is_that_of_95_percent() -> None:
    assert pytest.approx(stats.norm.ppf(0.975), abs=1e-14) == Z_95


@pytest.mark.parametrize(("rate", "n"), [(-0.1, 5), (1.1, 5), (math.nan, 5), (0.5, 0), (0.5, math.nan)])
def test_what_is_no_rate_is_refused(rate: float, n: float) -> None:
    with pytest.raises(ValueError, match="a rate is in 0 to 1"):
        wilson_interval(rate, n)
