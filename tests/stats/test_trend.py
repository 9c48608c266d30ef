"""Trends, effects and their errors: against numpy, scipy and statsmodels, against enumeration, and by simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from helpers.sampled_cases import briefly
from undertow.stats.arrays import Estimate
from undertow.stats.regression import trend as room
from undertow.stats.regression.trend import (
    AUTOCORRELATIONS,
    ClusterSummary,
    cluster_summary,
    covariate_effect,
    effect_sd,
    trend,
    trend_of_other_values,
)

Floats = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def crossed(seed: int = 0, shape: tuple[int, ...] = (7, 10), slopes: float = 0.4) -> Floats:
    """Sentences with levels and slopes of their own, at equally spaced values [..., cluster, value]."""
    draws = rng(seed)
    steps = np.arange(shape[-1]) - (shape[-1] - 1) / 2
    lines = draws.normal(40, 5, (*shape[:-1], 1)) + draws.normal(0.3, slopes, (*shape[:-1], 1)) * steps
    found: Floats = lines + draws.normal(0, 2, shape)
    return found


def parts_of(y: Floats, x: Floats | None = None) -> ClusterSummary:
    """Of a balanced design with one observation in each cell."""
    at = np.arange(y.shape[-1], dtype=np.float64) if x is None else x
    return cluster_summary(at, y, np.ones_like(y))


# What the sentences say.


def test_of_a_balanced_design_the_error_is_that_of_the_mean_of_the_sentences_slopes() -> None:
    y, x = crossed(), np.array([0.0, 1, 2, 4, 5, 6, 9, 10, 12, 20])
    found = parts_of(y[None], x)
    slopes = np.array([np.polyfit(x, row, 1)[0] for row in y])
    assert found.slope_variance[0] == pytest.approx(slopes.var(ddof=1) / len(slopes))
    assert found.means[0] == pytest.approx(y.mean(axis=0))
    assert found.n_clusters[0] == 7
    # Two numbers whose kurtosis is that of slopes drawn from a normal distribution, or less: all degrees of freedom are left.
    assert 2 < found.df[0] <= 6


def test_white_noise_is_the_residual_of_sentences_lines_and_values() -> None:
    """Least squares with a level and a slope for each sentence and a mean for each value."""
    y = crossed(3)
    cluster, value = np.indices(y.shape)
    of_cluster, of_value = np.eye(7)[cluster.ravel()], np.eye(10)[value.ravel()]
    design = np.hstack([of_cluster, of_cluster * (value.ravel()[:, None] - 4.5), of_value])
    _, squares, rank, _ = np.linalg.lstsq(design, y.ravel(), rcond=None)
    fitted = design @ np.linalg.pinv(design) @ y.ravel()
    df = y.size - rank
    assert (df, len(squares)) == (6 * 8, 0), "the design says the mean and the line twice"
    assert parts_of(y[None]).white_variance[0] == pytest.approx(np.sum((y.ravel() - fitted) ** 2) / df / 7)


def test_cells_with_several_observations_and_without_any() -> None:
    """By hand: two sentences at three values; a cell of two observations, and one that is empty."""
    sums, counts = np.array([[[2.0, 2, 3], [8, 4, 0]]]), np.array([[[1.0, 1, 1], [2, 1, 0]]])
    found = cluster_summary([0, 1, 2], sums, counts)
    assert found.means[0].tolist() == pytest.approx([10 / 3, 3, 3])
    # How far the first sentence moves each mean: (2 - 10/3) / 3, (2 - 3) / 2, 0; the slope weighs them -1/2, 0, 1/2.
    influence = (2 - 10 / 3) / 3 * -0.5
    assert found.slope_variance[0] == pytest.approx(2 * 2 * influence**2)
    assert found.df[0] == pytest.approx(1)


def test_a_sentence_without_observations_is_none() -> None:
    y = crossed()
    padded, counts = np.vstack([y, np.zeros((3, 10))]), np.ones((10, 10))
    counts[7:] = 0
    with_empty, without = cluster_summary(np.arange(10), padded[None], counts[None]), parts_of(y[None])
    for name in ("means", "white_variance", "slope_variance", "df", "n_clusters", "skewness"):
        assert getattr(with_empty, name) == pytest.approx(getattr(without, name))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="no observation"):
        cluster_summary([0, 1], np.ones((2, 2)), [[1, 0], [1, 0]])
    with pytest.raises(ValueError, match="equal"):
        trend([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 8], parts_of(crossed()[None]))


# A trend.


def known(means: Floats, white: float, df: float = 1e6) -> ClusterSummary:
    """Series whose sentences leave white noise of a known variance in each mean."""
    n_series, n_values = means.shape
    x = np.arange(n_values) - (n_values - 1) / 2
    each = np.ones(n_series)
    return ClusterSummary(means, white * each, white / (x @ x) * each, df * each, each * (df + 1), 0 * each)


@pytest.mark.parametrize("n_values", [9, 31])
def test_without_autocorrelation_and_sentences_the_interval_is_students(
    n_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means with noise of their own alone, whose size is not known: the classical interval of a line."""
    monkeypatch.setattr(room, "AUTOCORRELATIONS", np.zeros(1))
    # A list of values that no other test has, because what they decide is kept.
    x = np.arange(n_values) * 3.25 + 0.125 * n_values
    means = 0.1 * x + rng(n_values).normal(0, 2, (5, n_values))
    found = trend(x, known(means, 1e-9))
    for at, series in enumerate(means):
        line = stats.linregress(x, series)
        half = stats.t.ppf(0.975, n_values - 2) * line.stderr
        assert found.slope[at] == pytest.approx(line.slope)
        assert found.p[at] == pytest.approx(line.pvalue, abs=0.003)
        assert (found.high[at] - found.low[at]) / 2 == pytest.approx(half, rel=0.01)
        squares = np.sum((series - line.intercept - line.slope * x) ** 2)
        # The median of a variance whose inverse is a chi square with n - 2 degrees of freedom.
        assert found.values_sd[at] == pytest.approx(math.sqrt(squares / stats.chi2.median(n_values - 2)), rel=0.02)


def test_with_a_spread_of_sentences_alone_the_interval_is_that_of_their_slopes() -> None:
    """The sentences' slopes differ so much that what the values add is nothing beside: Student's t over sentences."""
    y = crossed(5, (6, 12), slopes=40.0)
    found, parts = trend(np.arange(12), parts_of(y[None])), parts_of(y[None])
    slopes = np.array([np.polyfit(np.arange(12), row, 1)[0] for row in y])
    half = stats.t.ppf(0.975, parts.df[0]) * stats.sem(slopes)
    assert found.half()[0] == pytest.approx(half, rel=0.01)
    assert found.p[0] == pytest.approx(2 * stats.t.sf(abs(slopes.mean()) / stats.sem(slopes), parts.df[0]), abs=0.002)


@pytest.mark.parametrize(("sigma", "most"), [(1.0, 0.06), (1.5, 0.1)])
def test_a_multiplied_drift_of_skewed_sentences_is_seldom_missed(sigma: float, most: float) -> None:
    """Masses of 20 sentences double over 12 values; a symmetric interval misses 10 and 19%. The far end includes 0 only if p does."""
    rng, x = np.random.default_rng(7), np.arange(12.0)
    drift = math.log(2) * (x - x.mean()) / np.ptp(x)
    y = np.exp(
        sigma * rng.standard_normal((600, 20, 1)) - sigma**2 / 2 + drift + 0.2 * rng.standard_normal((600, 20, 12))
    )
    parts, truth = parts_of(y), np.polyfit(x, np.exp(drift + 0.02), 1)[0]
    found = trend(x, parts)
    assert np.mean((found.low > truth) | (found.high < truth)) < most
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0))).all()


NUMBERS = ("slope", "low", "high", "p", "autocorrelation", "values_sd", "values_autocorrelation")


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), factor=st.sampled_from([1e-9, 0.3, 7.0, 1e9]), stretch=st.sampled_from([0.01, 5.0, 1e4])
)
def test_neither_units_nor_the_order_of_values_and_sentences_matter(seed: int, factor: float, stretch: float) -> None:
    y, x = crossed(seed, (6, 9)), np.cumsum(rng(seed).uniform(0.5, 2, 9))
    order = rng(seed).permutation(9)
    plain = trend(x, parts_of(y[None], x))
    scaled = trend(stretch * x, parts_of(factor * y[None], stretch * x))
    shifted = trend(x - 3.5, parts_of(y[None] + 100, x - 3.5))
    turned = trend(x, parts_of(-y[None], x))
    reordered = trend(x[order], parts_of(y[None, ::-1, order], x[order]))
    scales = {"slope": factor / stretch, "low": factor / stretch, "high": factor / stretch, "values_sd": factor}
    for name in NUMBERS:
        assert getattr(scaled, name) == pytest.approx(scales.get(name, 1) * getattr(plain, name), rel=1e-6)
        assert getattr(shifted, name) == pytest.approx(getattr(plain, name), rel=1e-5, abs=1e-8)
        assert getattr(reordered, name) == pytest.approx(getattr(plain, name), rel=1e-6)
    np.testing.assert_allclose([turned.low, turned.high], [-plain.high, -plain.low], rtol=1e-6)
    np.testing.assert_allclose(turned.p, plain.p, rtol=1e-6)


def test_series_are_judged_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    y = crossed(4, (5, 6, 11))
    together = trend(np.arange(11), parts_of(y))
    monkeypatch.setattr(room, "MAX_CELLS", 1)
    alone = trend(np.arange(11), parts_of(y))
    for name in NUMBERS:
        assert getattr(together, name) == pytest.approx(getattr(alone, name), rel=1e-9)
        assert getattr(together, name)[2] == pytest.approx(
            getattr(trend(np.arange(11), parts_of(y[2:3])), name)[0], rel=1e-9
        )


def test_below_eight_values_or_with_an_unknown_part_there_is_a_slope_and_no_claim() -> None:
    y = crossed(0, (6, 7))
    found = trend(np.arange(7), parts_of(y[None]))
    assert found.slope[0] == pytest.approx(np.polyfit(range(7), y.mean(axis=0), 1)[0])
    assert np.isnan([found.low, found.high, found.p, found.autocorrelation, found.values_sd]).all()
    assert np.isnan(trend([1.0], parts_of(np.ones((1, 6, 1)), np.ones(1))).slope).all()
    parts = parts_of(crossed()[None])
    for name in ("white_variance", "slope_variance", "df"):
        found = trend(np.arange(10), replace(parts, **{name: np.array([math.nan])}))
        assert np.isfinite(found.slope).all()
        assert np.isnan([found.low, found.high, found.p]).all()


def test_means_on_a_line_exactly_tell_no_error() -> None:
    line = 0.1 + 0.3 * np.arange(10.0)
    found = trend(np.arange(10), parts_of(np.tile(line, (1, 6, 1))))
    assert found.slope[0] == pytest.approx(0.3)
    assert np.isnan([found.low, found.high, found.p, found.autocorrelation]).all()
    # A series without noise leaves the others alone.
    both = trend(np.arange(10), parts_of(np.stack([np.tile(line, (7, 1)), crossed()])))
    alone = trend(np.arange(10), parts_of(crossed()[None]))
    assert np.isnan(both.p[0])
    assert both.p[1] == pytest.approx(alone.p[0])


@pytest.mark.parametrize("n_values", briefly([8, 60, 12, 120], 2))
def test_at_the_end_of_its_interval_a_slope_has_that_p(n_values: int) -> None:
    """Series that rule most sizes of noise out leave these weights too small to be multiplied, which must not widen the interval."""
    x = np.arange(n_values) - (n_values - 1) / 2
    for white, level in itertools.product((1e-6, 0.02), (0.95, 0.99)):
        means = autoregression(0.4, (40, n_values), rng(0)) + math.sqrt(white) * rng(1).normal(size=(40, n_values))
        found = trend(x, known(means, white, df=19.0))
        low, high = found.interval(level)
        half = (high - low) / 2
        at_end = trend(x, known(means + (half - found.slope)[:, None] * x, white, df=19.0))
        assert at_end.slope == pytest.approx(half)
        assert at_end.p == pytest.approx(np.full(40, 1 - level), rel=1e-4)
        assert level != 0.95 or (low.tolist(), high.tolist()) == (found.low.tolist(), found.high.tolist())


def test_autocorrelation_is_found_again() -> None:
    """Noise of the values alone: of 60 values its estimate lies on average where it was planted; without any it is small."""
    for rho, least, most in ((0.0, 0.0, 0.25), (0.7, 0.55, 0.8)):
        noise = autoregression(rho, (200, 60), rng(1))
        found = trend(np.arange(60), known(noise, 1e-6))
        assert least <= np.median(found.values_autocorrelation) <= most
        assert np.median(found.values_sd) == pytest.approx(1, abs=0.2)
    # White noise of the same size has no neighbours, so that half is left of what means share.
    mixed = trend(np.arange(60), known(noise + rng(2).normal(size=noise.shape), 1.0))
    assert np.median(mixed.autocorrelation) == pytest.approx(np.median(found.autocorrelation) / 2, abs=0.1)
    assert AUTOCORRELATIONS.max() < 0.9


# By simulation.


def autoregression(rho: float, shape: tuple[int, ...], draws: np.random.Generator) -> Floats:
    """Noise of variance 1 of which neighbours share rho [..., value]."""
    found = draws.normal(size=shape)
    for at in range(1, shape[-1]):
        found[..., at] = rho * found[..., at - 1] + math.sqrt(1 - rho**2) * found[..., at]
    return np.asarray(found, dtype=np.float64)


def simulated(
    noise: str, n_values: int, draws: np.random.Generator, n_series: int = 1_000, n_clusters: int = 12
) -> Floats:
    """Series without a trend [series, cluster, value]."""
    steps = (np.arange(n_values) - (n_values - 1) / 2) / n_values
    y = draws.normal(size=(n_series, n_clusters, n_values)) + draws.normal(size=(n_series, n_clusters, 1))
    own: dict[str, Callable[[], Floats]] = {
        "independent": lambda: np.zeros((1, 1, 1)),
        "of values": lambda: 0.8 * autoregression(0.0, (n_series, 1, n_values), draws),
        "shared": lambda: 0.8 * autoregression(0.5, (n_series, 1, n_values), draws),
        "slopes": lambda: 2 * draws.normal(size=(n_series, n_clusters, 1)) * steps,
    }
    return np.asarray(y + own[noise](), dtype=np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("n_values", briefly([12, 30]))
@pytest.mark.parametrize("noise", briefly(["shared", "of values", "independent", "slopes"], 2))
def test_a_trend_is_claimed_and_missed_as_often_as_is_said(noise: str, n_values: int) -> None:
    """At most 7 of 100 false claims, and at least 93 of 100 intervals that hold a planted trend, within two Monte Carlo errors."""
    planted, x = 0.07, np.arange(n_values)
    y = simulated(noise, n_values, rng(n_values)) + planted * x
    found = trend(x, parts_of(y))
    without = trend(x, parts_of(y - planted * x))
    rejected, held = np.mean(without.p <= 0.05), np.mean((found.low <= planted) & (planted <= found.high))
    assert rejected <= 0.07 + 2 * math.sqrt(0.07 * 0.93 / 1_000)
    assert held >= 0.93 - 2 * math.sqrt(0.07 * 0.93 / 1_000)
    # And it does find something.
    assert np.mean(trend(x, parts_of(y + 3.0 / n_values * x)).p <= 0.05) > 0.3


# Other values.


def test_the_error_over_other_values_by_hand() -> None:
    """White noise of known variance and sentences whose slopes are known: HC3 of the line, clustered both ways."""
    y = crossed(8, (5, 9), slopes=0.05)
    y += rng(9).normal(0, 3, (1, 9))
    x = np.array([0.0, 1, 2, 3, 5, 8, 9, 10, 14])
    parts = parts_of(y[None], x)
    means = y.mean(axis=0)
    design = np.column_stack([np.ones(9), x])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    residual = means - hat @ means
    hc3 = np.linalg.inv(design.T @ design) @ design.T @ np.diag((residual / (1 - np.diag(hat))) ** 2) @ design
    of_values = (hc3 @ np.linalg.inv(design.T @ design))[1, 1]
    slopes = np.array([np.polyfit(x, row, 1)[0] for row in y])
    of_sentences, of_cells = slopes.var(ddof=1) / 5, parts.white_variance[0] / ((x - x.mean()) ** 2).sum()
    variance = max(of_sentences + of_values - of_cells, of_sentences, of_values)
    df = min(parts.df[0], 7)
    low, high, p = (one[0] for one in trend_of_other_values(x, parts))
    slope = np.polyfit(x, means, 1)[0]
    half = stats.t.ppf(0.975, df) * math.sqrt(variance)
    assert (low, high) == pytest.approx((slope - half, slope + half))
    assert p == pytest.approx(2 * stats.t.sf(abs(slope) / math.sqrt(variance), df))


# Any effect.


def test_the_p_of_any_effect_by_enumeration() -> None:
    """Six sentences at three values: all 64 ways to give their deviations other signs."""
    y = rng(1).normal(0, 1, (6, 3)) + np.array([0.9, 0, -0.6])
    off = y - y.mean(axis=1, keepdims=True)
    sizes = [np.sum((np.array(signs) @ off) ** 2) for signs in itertools.product((1, -1), repeat=6)]
    expected = np.mean(np.array(sizes) >= sizes[0] * (1 - 1e-9))
    assert len(sizes) == 64
    assert 2 / 64 < expected < 0.5
    assert covariate_effect(y, np.ones_like(y)).p == pytest.approx(expected)
    planted = covariate_effect(y + np.array([40.0, 0, -40]), np.ones_like(y))
    assert planted.p == 2 / 64, "no five sentences can have less than 2 of 32"


def test_the_size_of_effects_is_that_of_the_values_alone() -> None:
    """Without bias: its square is, on average over 2,000 audits, the variance of the effects, whatever noise sentences add."""
    effects = np.array([1.0, -0.5, 0.25, 0.75, -1.5])
    draws = rng(2)
    squares = []
    for _ in range(2_000):
        y = effects + draws.normal(0, 5, (8, 1)) + draws.normal(0, 0.7, (8, 5))
        squares.append(effect_sd(y, np.ones_like(y)) ** 2)
    error = np.std(squares) / math.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(effects.var(ddof=1), abs=float(4 * error))
    assert error < 0.02
    # The plain variance of the means has the sentences' noise in it.
    assert effects.var(ddof=1) + 0.7**2 / 8 > np.mean(squares) + 4 * error


def test_tables_that_cannot_show_an_effect() -> None:
    flat = covariate_effect(np.tile(np.arange(6.0)[:, None], (1, 4)), np.ones((6, 4)))
    assert (flat.value, flat.p) == (0.0, 1.0)
    for shape in ((2, 4), (1, 4), (6, 1)):
        assert math.isnan(covariate_effect(np.ones(shape), np.ones(shape)).p)
    assert effect_sd(np.array([[0.0, 2], [0, 2]]), np.ones((2, 2))) == pytest.approx(math.sqrt(2))
    assert math.isnan(effect_sd(np.ones((1, 3)), np.ones((1, 3))))
    empty = np.ones((6, 3))
    empty[:, 1] = 0
    assert math.isnan(covariate_effect(empty, empty).value)


def test_rounding_is_no_effect() -> None:
    """Shares that are equal on paper differ in their last digits, and not at random."""
    y = 12.5 + np.tile([0.0, 4e-15, -4e-15], (7, 1))
    assert covariate_effect(y, np.ones_like(y)) == Estimate(0.0, 0.0, 0.0, p=1.0)
    assert covariate_effect(y + np.array([0.0, 1e-6, -1e-6]), np.ones_like(y)).p < 0.05


@pytest.mark.parametrize("n_values", [4, 12])
def test_other_values_are_spoken_of_no_more_often_than_is_said(n_values: int) -> None:
    """Values with independent effects, and sentences with slopes of their own."""
    x = np.arange(n_values)
    for noise in ("of values", "slopes"):
        y = simulated(noise, n_values, rng(4))
        low, high, p = trend_of_other_values(x, parts_of(y))
        assert np.mean(p <= 0.05) <= 0.07
        assert np.mean((low <= 0) & (high >= 0)) >= 0.93


@pytest.mark.parametrize(
    ("n_values", "size", "skewed"),
    [(3, 0.0, False), (3, 1.5, False), (10, 1.5, False), (10, 3.0, False), (5, 1.0, True)],
)
def test_effects_keep_their_level_and_their_interval(n_values: int, size: float, skewed: bool) -> None:
    """400 audits of 20 sentences with their own slopes, or with skewed noise: the interval misses in 5%, on either side in 4%."""
    draws, steps = rng(5), np.linspace(-0.5, 0.5, n_values)
    effects = size * steps / steps.std(ddof=1)
    y = draws.lognormal(0, 1, (400, 20, n_values)) * 2.2 if skewed else draws.normal(0, 4.7, (400, 20, n_values))
    y += 0 if skewed else draws.normal(0, 9, (400, 20, 1)) * steps
    estimates = [covariate_effect(one + effects, np.ones_like(one)) for one in y]
    error = 2 * math.sqrt(0.05 * 0.95 / 400)
    low, high, p = (np.array([getattr(one, name) for one in estimates]) for name in ("low", "high", "p"))
    assert ((low > 0) == (p < 0.05)).all()
    assert all(one.low <= one.value < one.high for one in estimates)
    too_low, too_high = np.mean(high < size), np.mean(low > size)
    assert too_low <= 0.04
    assert too_low + too_high <= 0.05 + error


def test_the_interval_of_a_difference_of_two_values_is_students_t() -> None:
    y = rng(3).normal(0, 1, (60, 2)) + np.array([0.0, 5])
    estimate = covariate_effect(y, np.ones_like(y))
    interval = stats.ttest_1samp(y[:, 1] - y[:, 0], 0).confidence_interval()
    assert [estimate.low, estimate.high] == pytest.approx(np.array(interval) / math.sqrt(2), rel=0.005)
