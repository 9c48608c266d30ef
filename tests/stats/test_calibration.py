from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from helpers.sampled_cases import briefly
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

N_LABS = 600
N_CLUSTERS = 16


class Lab(NamedTuple):
    """Readings of models that were all asked the same sentences."""

    planted: Floats
    measured: Floats
    low: Floats
    high: Floats

    def readings(self, n_clusters: float = N_CLUSTERS) -> tuple[Floats, Floats, Floats, Floats]:
        errors, df = standard_errors(self.low, self.high, np.full(len(self.planted), n_clusters))
        return self.planted, self.measured, errors, df


class Errors(NamedTuple):
    """Standard deviations of what makes a reading err."""

    seed: float
    scale: float  # of all models, where sentences respond more or less
    offset: float  # of all models, where sentences move by themselves
    own: float = 0.0  # of each model with each sentence


def draw_lab(planted: ArrayLike, errors: Errors, rng: np.random.Generator, slope: float = 1.0) -> Lab:
    """A slope for each model and cluster of sentences; each reading's interval is that of a bootstrap over clusters."""
    x = np.asarray(planted, dtype=np.float64)
    k = N_CLUSTERS
    scale, offset = rng.normal(0, errors.scale * k**0.5, k), rng.normal(0, errors.offset * k**0.5, k)
    own = rng.normal(0, errors.own * k**0.5, (len(x), k))
    slopes = x[:, None] * (slope + scale) + offset + own + rng.normal(0, errors.seed, len(x))[:, None]
    measured, half = slopes.mean(axis=1), stats.t.ppf(0.975, k - 1) * slopes.std(axis=1, ddof=1) / k**0.5
    return Lab(x, measured, measured - half, measured + half)


def planted_slopes(n_seeds: int) -> Floats:
    return np.repeat([0.0, 0.75, 1.5, 2.25], n_seeds)


SHARED = [
    Errors(seed=0.1, scale=0.05, offset=0.05),
    Errors(seed=0.1, scale=0.1, offset=0.1),
    Errors(seed=0.2, scale=0.03, offset=0.03),
]


@pytest.mark.parametrize("n_seeds", briefly([2, 5]))
@pytest.mark.parametrize("errors", briefly(SHARED))
def test_intervals_with_the_training_seed_hold_the_truth_as_often_as_they_say(n_seeds: int, errors: Errors) -> None:
    rng, inside, inside_own = np.random.default_rng(1), [], []
    for _ in range(N_LABS):
        lab = draw_lab(planted_slopes(n_seeds), errors, rng)
        found = with_training_seed(*lab.readings())
        inside.append((found.low <= lab.planted) & (lab.planted <= found.high))
        inside_own.append((lab.low <= lab.planted) & (lab.planted <= lab.high))
    assert 0.93 <= np.mean(inside) <= 0.97
    assert np.mean(inside_own) < 0.91  # the audit's own interval leaves the training seed out


@pytest.mark.parametrize("errors", briefly(SHARED))
def test_intervals_of_the_line_hold_the_truth_though_no_model_shows_what_all_models_share(errors: Errors) -> None:
    rng, slopes, intercepts, over_models, ratios = np.random.default_rng(2), [], [], [], []
    for _ in range(N_LABS):
        lab = draw_lab(planted_slopes(4), errors, rng)
        found = calibrate(*lab.readings())
        slopes.append(found.slope.low <= 1 <= found.slope.high)
        intercepts.append(found.intercept.low <= 0 <= found.intercept.high)
        over_models.append(found.line.slope_low <= 1 <= found.line.slope_high)
        planted, measured, own, df = (part[-8:] for part in lab.readings())
        ratio = attenuation(planted, measured, own, df)
        ratios.append(ratio.low <= 1 <= ratio.high)
    # 600 labs know a share of .95 to about ±.017, two standard errors.
    assert 0.925 <= np.mean(slopes) <= 0.975
    assert 0.925 <= np.mean(intercepts) <= 0.975
    assert 0.925 <= np.mean(ratios) <= 0.98
    if errors.scale == 0.1:
        assert np.mean(over_models) < 0.6


def test_the_spread_is_that_of_the_other_models() -> None:
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


def test_models_of_one_planted_slope_lie_around_their_mean() -> None:
    y = np.array([0.1, -0.2, 0.3, 0.0, 0.15, -0.1])
    found = with_training_seed(np.zeros(6), y, np.zeros(6), np.full(6, math.inf))
    assert found.spread == pytest.approx([np.delete(y, row).std(ddof=1) for row in range(6)])
    assert found.df == pytest.approx(np.full(6, 4.0))


def test_kinds_of_models_have_their_own_spread() -> None:
    y, kinds = np.array([0.1, -0.1, 0.2, 0.0, 5, -5, 7, -6]), np.repeat([0, 1], 4)
    found = with_training_seed(np.zeros(8), y, np.zeros(8), np.full(8, math.inf), kinds)
    left_out = np.delete(y, 0) - np.delete(y, 0).mean()
    assert found.spread[0] == pytest.approx(math.sqrt((left_out[:3] ** 2).sum() / found.df[0]))
    assert found.df[0] == pytest.approx(6 * 3 / 7)


def test_a_model_alone_at_its_end_is_judged_by_how_far_the_others_lie_from_each_other() -> None:
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


def test_the_band_at_zero_is_the_interval_of_the_intercept() -> None:
    lab = draw_lab(planted_slopes(3), SHARED[0], np.random.default_rng(7))
    found = calibrate(*lab.readings())
    (low,), (high,) = found.band([0.0])
    assert (low, high) == pytest.approx((found.intercept.low, found.intercept.high))
    least, most = found.band([-1.0, 2.0])
    assert (least < found.line.at([-1.0, 2.0])).all()
    assert (most > found.line.at([-1.0, 2.0])).all()


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


def test_attenuation_of_one_model_has_no_interval_and_of_nothing_planted_no_value() -> None:
    one = attenuation([2.0], [1.0], [0.1], [5.0])
    assert one.value == pytest.approx(0.5)
    assert math.isnan(one.low)
    assert math.isnan(attenuation([0.0, 0], [1.0, 2], [0.1, 0.1], [5.0, 5]).value)


def test_sentences_shared_by_all_models_are_not_averaged_out() -> None:
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


def test_medians_of_draws_are_those_of_numpy() -> None:
    values, model = np.random.default_rng(8).normal(size=9), ["a", "a", "b", "c", "c", "f", "d", "e", "e"]
    found = median_over_models(values, model, 300, np.random.default_rng(9))
    weights = np.random.default_rng(9).multinomial(6, np.full(6, 1 / 6), size=300)
    of = np.unique(model, return_inverse=True)[1]
    medians = [np.median(np.repeat(values, draw[of])) for draw in weights]
    tail = stats.norm.cdf(-stats.t.ppf(0.975, 5) * math.sqrt(6 / 5))  # six models are few
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(medians, [tail, 1 - tail])))
    assert found.value == pytest.approx(np.median(values))


def test_a_median_of_one_model_has_no_interval_and_of_none_no_value() -> None:
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
