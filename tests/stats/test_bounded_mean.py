from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from undertow.stats import point_estimates
from undertow.stats.intervals.bounded_mean import bounded_mean, positive_chance, wilson_interval

Floats = NDArray[np.float64]
PERCENT = (0.0, 100.0)


def shares(n: int, k: int) -> Floats:
    """One cell in which so many of all documents are right."""
    return np.where(np.arange(n) < k, 100.0, 0.0)[:, np.newaxis]


@pytest.mark.parametrize(("n", "k"), [(6, 0), (6, 6), (7, 2), (20, 1), (130, 64), (600, 5)])
def test_of_shares_it_is_clopper_and_pearsons(n: int, k: int) -> None:
    mean = bounded_mean(shares(n, k), PERCENT)
    for level in (0.95, 0.999):
        exact = stats.binomtest(k, n).proportion_ci(level, method="exact")
        assert mean.interval(level) == pytest.approx((100 * exact.low, 100 * exact.high), abs=1e-6)
    for null in (0.01, 0.3, 0.8):
        assert mean.p_above(100 * null) == pytest.approx(stats.binom.sf(k - 1, n, null), abs=1e-9)
        assert mean.p_below(100 * null) == pytest.approx(stats.binom.cdf(k, n, null), abs=1e-9)


@pytest.mark.parametrize(
    ("coefficients", "chance"),
    [
        ([3.0, -1.0], 3 / 4),
        ([1.0, -1.0, -1.0, -1.0], 1 / 8),
        ([2.0, -1.0, -3.0], 2 / 3 * 2 / 5),
        ([1.0, 2.0, -4.0], 1 - 4 / 5 * 4 / 6),
        ([5.0], 1.0),
        ([-1.0, -2.0], 0.0),
        ([0.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_the_chance_of_a_positive_sum_is_that_of_waiting_times(coefficients: list[float], chance: float) -> None:
    """One positive term outlasts all others in turn, each with the chance a / (a + b)."""
    assert positive_chance(coefficients) == pytest.approx(chance, abs=1e-9)


def test_the_chance_is_that_of_draws() -> None:
    rng = np.random.default_rng(3)
    coefficients = rng.normal(-0.2, 1, 30)
    drawn = (rng.exponential(size=(100_000, 30)) @ coefficients > 0).mean()
    assert positive_chance(coefficients) == pytest.approx(drawn, abs=0.006)


def test_limits_are_where_p_is_half_of_what_the_level_leaves() -> None:
    values = np.random.default_rng(1).beta(0.3, 2, (15, 3)) * 100
    mean = bounded_mean(values, PERCENT)
    low, high = mean.interval(0.9)
    assert mean.value == pytest.approx(values.mean())
    assert low < mean.value < high
    assert (mean.p_above(low), mean.p_below(high)) == pytest.approx((0.05, 0.05), abs=1e-6)
    mirrored = bounded_mean(100 - values, PERCENT)
    assert mirrored.interval(0.9) == pytest.approx((100 - high, 100 - low))


def test_numbers_that_do_not_differ_keep_a_width() -> None:
    """Six of 50: the unseen one at 100 outweighs them with a chance of 0.025 where ((100 - m) / 50) to the 6th is 0.025."""
    low, high = bounded_mean(np.full((6, 1), 50.0), PERCENT).interval()
    reach = 50 * (1 - 0.025 ** (1 / 6))
    assert (low, high) == pytest.approx((50 - reach, 50 + reach), abs=1e-6)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_too_few_say_nothing_of_others(n: int) -> None:
    mean = bounded_mean(shares(n, 1), PERCENT)
    assert np.isnan([*mean.interval(), mean.p_above(50), mean.p_below(50)]).all()
    with point_estimates():
        assert np.isnan(bounded_mean(shares(9, 1), PERCENT).interval()).all()


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        bounded_mean([[0.5], [1.5]], (0.0, 1.0))


SKEWED: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "half are 0": lambda rng, size: np.where(rng.random(size) < 0.5, 0.0, 100 * rng.beta(2, 4, size)),
    "most are 0": lambda rng, size: 100.0 * rng.beta(0.1, 1, size),
    "most are 100": lambda rng, size: np.where(rng.random(size) < 0.85, 100.0, 100 * rng.random(size)),
    "five of a hundred are wrong": lambda rng, size: np.where(rng.random(size) < 0.95, 100.0, 0.0),
    "all are near the middle": lambda rng, size: 100 * rng.beta(20, 20, size),
}
MEANS = {
    "half are 0": 50 / 3, "most are 0": 100 / 11, "most are 100": 92.5, "five of a hundred are wrong": 95.0,
    "all are near the middle": 50.0,
}  # fmt: skip


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("n", [6, 12, 40])
def test_intervals_hold_the_mean_of_skewed_scores(name: str, n: int) -> None:
    """Student's t holds it in 68 to 92 of 100 such samples where most are 0."""
    rng = np.random.default_rng(n)
    held = 0
    for sample in SKEWED[name](rng, (400, n)):
        mean = bounded_mean(sample[:, np.newaxis], PERCENT)
        held += min(mean.p_above(MEANS[name]), mean.p_below(MEANS[name])) >= 0.025
    assert held / 400 >= 0.93


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
