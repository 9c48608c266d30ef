"""Calibration: the arithmetic by other ways."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats.arrays import Estimate
from undertow.stats.calibration import (
    MIN_MODELS,
    attenuation,
    calibrate,
    mean_over_models,
    median_over_models,
    share,
    standard_errors,
    with_training_seed,
)

Floats = NDArray[np.float64]


def planted_slopes(n_seeds: int) -> Floats:
    return np.repeat([0.0, 0.75, 1.5, 2.25], n_seeds)


def test_the_spread_is_that_of_the_other_models_of_the_kind() -> None:
    rng = np.random.default_rng(5)
    x = np.array([0.0, 0.1, 0.7, 1.4, 1.5, 2.3, 2.4])
    y = 0.1 + 0.9 * x + rng.normal(0, 0.2, len(x))
    found = with_training_seed(x, y, np.zeros(len(x)), np.full(len(x), math.inf))
    for row in range(len(x)):
        others_x, others_y = np.delete(x, row), np.delete(y, row)
        line = np.polyfit(others_x, others_y, 1)
        spread = math.sqrt(np.sum((others_y - np.polyval(line, others_x)) ** 2) / (len(others_x) - 2))
        assert found.spread[row] == pytest.approx(spread)
        assert found.df[row] == pytest.approx(len(x) - 3)
        half = stats.t.ppf(0.975, len(x) - 3) * spread
        assert (found.low[row], found.high[row]) == pytest.approx((y[row] - half, y[row] + half))
    y = np.array([0.1, -0.2, 0.3, 0.0, 0.15, -0.1])
    found = with_training_seed(np.zeros(6), y, np.zeros(6), np.full(6, math.inf))
    assert found.spread == pytest.approx([np.delete(y, row).std(ddof=1) for row in range(6)])
    assert found.df == pytest.approx(np.full(6, 4.0))
    y, kinds = np.array([0.1, -0.1, 0.2, 0.0, 5, -5, 7, -6]), np.repeat([0, 1], 4)
    found = with_training_seed(np.zeros(8), y, np.zeros(8), np.full(8, math.inf), kinds)
    left_out = np.delete(y, 0) - np.delete(y, 0).mean()
    assert found.spread[0] == pytest.approx(math.sqrt((left_out[:3] ** 2).sum() / found.df[0]))
    assert found.df[0] == pytest.approx(6 * 3 / 7)
    x, y = np.array([0.0, 0, 0, 0, 2]), np.array([0.1, -0.1, 0.2, 0.0, 9])
    found = with_training_seed(x, y, np.zeros(5), np.full(5, math.inf))
    assert found.spread[4] == pytest.approx(y[:4].std(ddof=1))
    assert found.df[4] == pytest.approx(3)


def test_degrees_of_freedom_are_those_of_the_larger_variance() -> None:
    x, y = planted_slopes(2), planted_slopes(2) + np.tile([0.1, -0.1], 4)
    sentences = with_training_seed(x, y, np.full(8, 10.0), np.full(8, math.inf))
    seeds = with_training_seed(x, y, np.full(8, 1e-6), np.full(8, math.inf))
    assert sentences.df.min() > 1e5
    assert seeds.df == pytest.approx(np.full(8, 5.0))


@pytest.mark.parametrize("n", [0, 1, MIN_MODELS - 1])
def test_too_few_models_have_no_interval_with_the_training_seed(n: int) -> None:
    found = with_training_seed(np.arange(n), np.arange(n), np.ones(n), np.ones(n))
    assert len(found.low) == n
    for values in (found.low, found.high, found.spread, found.df):
        assert np.isnan(values).all()


def test_without_sentence_errors_the_line_is_least_squares() -> None:
    rng = np.random.default_rng(6)
    x = np.linspace(0, 2, 9)
    y = 0.2 + 0.8 * x + rng.normal(0, 0.1, 9)
    found = calibrate(x, y, np.zeros(9), np.full(9, math.inf))
    fit = stats.linregress(x, y)
    t = stats.t.ppf(0.975, 7)
    assert (found.slope.value, found.intercept.value) == pytest.approx((fit.slope, fit.intercept))
    centred, residuals = x - x.mean(), y - fit.intercept - fit.slope * x
    leverage = 1 / 9 + centred**2 / (centred @ centred)
    uneven = np.sqrt((centred**2 * (residuals / (1 - leverage)) ** 2).sum()) / (centred @ centred)
    assert found.slope.high - found.slope.value == pytest.approx(t * max(fit.stderr, uneven))
    assert found.intercept.high - found.intercept.value == pytest.approx(t * fit.intercept_stderr)
    assert found.slope.n == 9


def test_shared_sentence_errors_are_taken_apart_into_scale_and_offset() -> None:
    x = planted_slopes(3)
    found = calibrate(x, x, np.sqrt(0.01 + 0.04 * x**2), np.full(12, math.inf))
    assert (found.offset_variance, found.scale_variance) == pytest.approx((0.01, 0.04))
    # The readings lie on the line, so the sentences are all the error there is, known as it is.
    assert found.slope.high - 1 == pytest.approx(1.959964 * 0.2, rel=1e-5)
    assert found.intercept.high == pytest.approx(1.959964 * 0.1, rel=1e-5)


def joined(parts: Sequence[tuple[Floats | float, Floats | float]]) -> Floats:
    """Half of an interval whose variance is the sum of some, each with its degrees of freedom, by Satterthwaite."""
    variance = sum(np.asarray(one) for one, _ in parts)
    df = variance**2 / sum(np.asarray(one) ** 2 / of for one, of in parts)
    return np.asarray(stats.t.ppf(0.975, df) * np.sqrt(variance))


def test_errors_over_models_and_over_sentences_are_joined() -> None:
    """Errors over models alone, as the tests above and below have them, and those of sentences, of nine degrees of freedom."""
    x, free = planted_slopes(3), np.full(12, 9.0)
    y, own = x + np.random.default_rng(7).normal(0, 0.1, 12), np.sqrt(0.01 + 0.004 * x**2)
    known = x, y, np.zeros(12), np.full(12, math.inf)
    alone, both = with_training_seed(*known), with_training_seed(x, y, own, free)
    half = joined([(alone.spread**2, alone.df), (own**2, 9)])
    assert np.array([both.low, both.high]) == pytest.approx(np.array([y - half, y + half]))

    def variance(one: Estimate, df: int) -> float:
        return float(((one.high - one.value) / stats.t.ppf(0.975, df)) ** 2)

    line, found = calibrate(*known), calibrate(x, y, own, free)
    for one, over_models, shared in ((found.slope, line.slope, 0.004), (found.intercept, line.intercept, 0.01)):
        assert one.high - one.value == pytest.approx(joined([(variance(over_models, 10), 10), (shared, 9)]))
    low, high = found.band([0.0, 2.0])
    assert (low[0], high[0]) == pytest.approx((found.intercept.low, found.intercept.high))
    of_models = line.line.residual_sd**2 * (1 / 12 + (2 - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    assert (high[1] - low[1]) / 2 == pytest.approx(joined([(of_models, 10), (0.01 + 0.004 * 4, 9)]))
    of_sentences = attenuation(x, x, own, free)
    parts = [(variance(attenuation(*known), 11), 11), (variance(of_sentences, 9), 9)]
    ratio = attenuation(x, y, own, free)
    assert ratio.high - ratio.value == pytest.approx(joined(parts))


def test_the_band_widens_in_proportion_where_sentences_respond_differently() -> None:
    planted = np.array([-2.0, -1, 1, 2])
    found = calibrate(planted, planted, 0.1 * np.abs(planted), np.full(4, math.inf))
    low, high = found.band([1.0, 4.0])
    assert (high - low) / 2 == pytest.approx(1.959964 * np.array([0.1, 0.4]))


def test_a_line_needs_two_planted_slopes_and_an_interval_three_models() -> None:
    flat = calibrate([1.0, 1, 1], [1.0, 1.1, 0.9], np.zeros(3), np.ones(3))
    assert math.isnan(flat.slope.value)
    assert np.isnan(flat.band([1.0])).all()
    two = calibrate([0.0, 1], [0.0, 0.9], np.zeros(2), np.ones(2))
    assert two.slope.value == pytest.approx(0.9)
    assert math.isnan(two.slope.low)
    assert np.isnan(two.band([1.0])).all()


def test_attenuation_counts_towards_the_planted_side() -> None:
    found = attenuation([2.0, -2, 1], [1.0, -1, 0.5], np.zeros(3), np.full(3, math.inf))
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    # 1 of 1 and 3 of 2 are 4 of 3; the rest, -1/3 and 1/3, has a variance of 2/9.
    uneven = attenuation([1.0, 2], [1.0, 3], np.zeros(2), np.full(2, math.inf))
    assert uneven.high - 4 / 3 == pytest.approx(12.7062 * math.sqrt(2 / 9 / 2) / 1.5, rel=1e-5)
    wrong_way = attenuation([2.0, -2], [-1.0, 1], np.zeros(2), np.full(2, math.inf))
    assert wrong_way.value == pytest.approx(-0.5)
    one = attenuation([2.0], [1.0], [0.1], [5.0])
    assert one.value == pytest.approx(0.5)
    assert math.isnan(one.low)
    assert math.isnan(attenuation([0.0, 0], [1.0, 2], [0.1, 0.1], [5.0, 5]).value)
    few, many = (attenuation(np.ones(n), np.ones(n), np.full(n, 0.1), np.full(n, math.inf)) for n in (3, 300))
    assert few.high == pytest.approx(many.high)
    assert few.high == pytest.approx(1 + 0.1959964, rel=1e-5)


def test_shares_have_exact_intervals() -> None:
    none, all_of, some = share([False] * 20), share([True] * 20), share([True] * 5 + [False] * 15)
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert (all_of.low, all_of.high) == pytest.approx((0.025 ** (1 / 20), 1))
    assert (some.low, some.high) == pytest.approx((stats.beta.ppf(0.025, 5, 16), stats.beta.ppf(0.975, 6, 15)))
    assert some.n == 20
    assert math.isnan(share([]).value)
    assert math.isnan(share([]).low)


def test_a_mean_over_models_has_the_t_interval() -> None:
    values = [0.7, 0.8, math.nan, 0.95]
    found = mean_over_models(values)
    known = stats.ttest_1samp([0.7, 0.8, 0.95], 0).confidence_interval()
    assert found.value == pytest.approx(0.81667, abs=1e-5)
    assert found.n == 3
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert mean_over_models([1, 3]).high - 2 == pytest.approx(12.7062, rel=1e-5)
    assert mean_over_models([0.7, math.nan]).value == pytest.approx(0.7)
    assert math.isnan(mean_over_models([0.7, math.nan]).low)
    assert math.isnan(mean_over_models([math.nan]).value)


def test_medians_of_draws_are_those_of_numpy_and_of_one_model_have_no_interval() -> None:
    values, model = np.random.default_rng(8).normal(size=9), ["a", "a", "b", "c", "c", "f", "d", "e", "e"]
    found = median_over_models(values, model, 300, np.random.default_rng(9))
    weights = np.random.default_rng(9).multinomial(6, np.full(6, 1 / 6), size=300)
    of = np.unique(model, return_inverse=True)[1]
    medians = [np.median(np.repeat(values, draw[of])) for draw in weights]
    tail = stats.norm.cdf(-stats.t.ppf(0.975, 5) * math.sqrt(6 / 5))  # six models are few
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(medians, [tail, 1 - tail])))
    assert found.value == pytest.approx(np.median(values))
    one = median_over_models([1.0, 3.0, math.nan], ["a", "a", "b"], 100, np.random.default_rng(0))
    assert (one.value, one.n) == (2.0, 2)
    assert math.isnan(one.low)
    assert math.isnan(median_over_models([math.nan], ["a"], 100, np.random.default_rng(0)).value)


def test_the_error_over_sentences_is_put_right_for_few_clusters() -> None:
    errors, df = standard_errors([-1.959964] * 4, [1.959964] * 4, [math.nan, 6, 5, 1])
    assert errors == pytest.approx([1, 1.959964 / stats.t.ppf(0.975, 5), math.nan, 1], rel=1e-6, nan_ok=True)
    assert list(df) == [math.inf, 5, 4, math.inf]
    errors, df = standard_errors([-1.0] * 2, [1.0] * 2, [12, 12], [3.5, math.nan])
    assert errors == pytest.approx([1 / stats.t.ppf(0.975, 3.5), 1 / stats.t.ppf(0.975, 11)])
    assert list(df) == [3.5, 11]
