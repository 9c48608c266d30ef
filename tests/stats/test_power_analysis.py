from __future__ import annotations

import math
from dataclasses import astuple, fields, replace

import numpy as np
import pytest
from scipy import optimize, stats

from undertow.stats.regression.power_analysis import (
    AssumedNoise,
    Noise,
    SlopeErrors,
    detectable_change,
    detectable_slope,
    detection_share,
    halves_at_power,
    simulate_errors,
    slope_at_power,
    spread_evenly,
    step_of,
)
from undertow.stats.regression.trend import ClusterSummary, cluster_summary, trend
from undertow.types import Floats

pytestmark = pytest.mark.resamples

SHOWN = (4.7, 9.0, 4.8, 0.3)
"""Noise of a text, of sentences' changes, of values, and its autocorrelation: what `undertow power` assumes."""
KINDS = {"shown": SHOWN, "texts": (4.7, 0.0, 0.0, 0.0), "slow": (4.7, 0.0, 3.0, 0.8), "slopes": (4.7, 20.0, 0.0, 0.0)}
LEVELS_SD = 8.0


def audits(along: Floats, n_sentences: int, noise: AssumedNoise, change: float, n_audits: int) -> Floats:
    """Masses whose truth is known [audit, sentence, value], text by text; `along` runs from 0 to 1."""
    rng, n_values = np.random.default_rng(99), len(along)
    y = noise.text_sd * rng.standard_normal((n_audits, n_sentences, n_values))
    y += LEVELS_SD * rng.standard_normal((n_audits, n_sentences, 1))
    y += (change + noise.slopes_sd * rng.standard_normal((n_audits, n_sentences, 1))) * along
    distances = np.abs(np.subtract.outer(along, along)) / noise.step
    shared = noise.autocorrelation**distances if noise.autocorrelation else np.eye(n_values)
    values = rng.multivariate_normal(np.zeros(n_values), noise.values_sd**2 * shared, n_audits)
    return np.asarray(y + values[:, None, :])


def assumed(kind: str, n_values: int = 30) -> AssumedNoise:
    return AssumedNoise(*KINDS[kind], step=1 / (n_values - 1))


@pytest.mark.parametrize(("kind", "n_values", "n_sentences"), [("shown", 8, 8), ("texts", 12, 8), ("slow", 12, 8)])
def test_fresh_audits_find_the_detectable_change_in_8_of_10(kind: str, n_values: int, n_sentences: int) -> None:
    along = np.linspace(0, 1, n_values)
    change = detectable_change(along, n_sentences, assumed(kind))
    y = audits(along, n_sentences, assumed(kind), change, 800)
    found = trend(along, cluster_summary(along, y, np.ones_like(y)))
    assert np.mean(found.p < 0.05) == pytest.approx(0.8, abs=0.05)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "n_values"), [("shown", 12), ("texts", 12), ("slopes", 30)])
def test_what_runs_call_detectable_others_find_in_8_of_10_on_average(kind: str, n_values: int) -> None:
    along, n_sentences = np.linspace(0, 1, n_values), 20
    noise = AssumedNoise(*KINDS[kind], step=1 / (n_values - 1))
    y = audits(along, n_sentences, noise, 0.0, 60)
    parts = cluster_summary(along, y, np.ones_like(y))
    others = simulate_errors(along, noise.for_design(along, n_sentences), n_sentences, n_series=1000, seed=5)
    one_each = [ClusterSummary(*(getattr(parts, one.name)[[at]] for one in fields(parts))) for at in range(60)]
    shares = [detection_share(others, detectable_slope(along, one)) for one in one_each]
    assert np.mean(shares) == pytest.approx(0.8, abs=0.08)


def test_simulated_errors_are_those_of_whole_tables() -> None:
    """The slope's error is counted and not drawn: its size is that of the slopes of tables."""
    x, noise, n_sentences = np.arange(10.0), Noise(1.3, 0.2, 2.0, 0.6), 12
    errors = simulate_errors(x, noise, n_sentences, n_series=4000)
    sd = math.sqrt(errors.sd**2 + errors.expected.var())
    from_mean = x - x.mean()
    weights = from_mean / (from_mean @ from_mean)
    shared = 0.6 ** np.abs(np.subtract.outer(x, x))
    by_hand = weights @ (4.0 * shared + 1.3**2 * np.eye(10)) @ weights + 0.2**2
    assert sd == pytest.approx(math.sqrt(by_hand), rel=0.02)
    assert np.isfinite(errors.half).all()


@pytest.mark.parametrize("sd", [0.5, 1e-9])
def test_the_share_that_finds_a_slope_is_that_of_a_normal_error(sd: float) -> None:
    errors = SlopeErrors(np.array([0.0]), sd, np.array([2.0]))

    def share(slope: float) -> float:
        return float(stats.norm.sf(2.0, slope, sd) + stats.norm.cdf(-2.0, slope, sd))

    for at in (0.0, 1.7, 3.0):
        assert detection_share(errors, at) == pytest.approx(share(at))
    slope = optimize.brentq(lambda at: share(at) - 0.8, 0, 20)
    assert slope_at_power(errors) == pytest.approx(slope, rel=1e-5)
    # Where all intervals have one width, one run tells how wide those of others are.
    assert 2.0 * halves_at_power(errors) == pytest.approx(slope, rel=1e-4)


def test_an_error_that_is_known_moves_the_share_both_ways() -> None:
    errors = SlopeErrors(np.array([1.0]), 0.5, np.array([2.0]))
    ends = [stats.norm.sf(2.0, 2.5 + error, 0.5) + stats.norm.cdf(-2.0, 2.5 + error, 0.5) for error in (-1.0, 1.0)]
    assert detection_share(errors, 2.5) == pytest.approx(np.mean(ends))


def test_noise_of_a_design_by_hand() -> None:
    noise = AssumedNoise(4.7, 9.0, 4.8, 0.3, step=1 / 29, n_texts=3)
    # 8 of 30 evenly spaced years: steps are 29 / 7 times as wide. The range is 215 years.
    of_design = noise.for_design(np.linspace(1801, 2016, 8), 20)
    by_hand = (4.7 / math.sqrt(60), 9.0 / 215 / math.sqrt(20), 4.8, 0.3 ** (29 / 7))
    assert astuple(of_design) == pytest.approx(by_hand)
    assert noise.neighbours(np.arange(30)) == pytest.approx(0.3)
    assert noise.neighbours(np.arange(59)) == pytest.approx(math.sqrt(0.3))
    assert AssumedNoise(1.0, 0.0, 1.0, 0.0, step=0.1).neighbours(np.arange(30)) == 0


def test_values_are_thinned_evenly_along_their_list() -> None:
    years = [1800, 1900, 1950, 1970, 1980, 1990, 2000, 2010, 2020]
    assert spread_evenly(years, 9).tolist() == years
    assert spread_evenly(years, 5).tolist() == [1800, 1950, 1980, 2000, 2020]
    assert spread_evenly([0, 1, 2], 5).tolist() == [0, 0.5, 1, 1.5, 2]
    assert step_of([0, 1, 2, 4, 10]) == pytest.approx(0.15)
    assert step_of(np.arange(30)[::-1]) == pytest.approx(1 / 29)


def parts_of(noise: float, n_sentences: int = 10, n_values: int = 12) -> tuple[Floats, ClusterSummary]:
    x = np.arange(float(n_values))
    y = noise * np.random.default_rng(3).standard_normal((1, n_sentences, n_values))
    return x, cluster_summary(x, y, np.ones_like(y))


def test_a_detectable_slope_goes_with_the_units_and_not_with_the_slope() -> None:
    x, parts = parts_of(2.0)
    slope = detectable_slope(x, parts)
    steep = replace(parts, slope_variance=parts.slope_variance / 100)
    assert detectable_slope(10 * x + 7, steep) == pytest.approx(slope / 10, rel=1e-6)
    _, twice = parts_of(4.0)
    assert detectable_slope(x, twice) == pytest.approx(2 * slope, rel=1e-6)
    tilted = replace(parts, means=parts.means + 5 * x)
    assert detectable_slope(x, tilted) == pytest.approx(slope, rel=1e-6)
    assert slope > float(trend(x, parts).half()[0])


@pytest.mark.parametrize(("n_sentences", "n_values", "noise"), [(10, 7, 1.0), (1, 12, 1.0), (10, 12, 0.0)])
def test_a_series_that_can_find_nothing_has_no_detectable_slope(n_sentences: int, n_values: int, noise: float) -> None:
    assert math.isnan(detectable_slope(*parts_of(noise, n_sentences, n_values)))


@pytest.mark.parametrize(("n_sentences", "n_values"), [(5, 30), (60, 7)])
def test_a_design_in_which_nothing_is_claimed_has_no_detectable_change(n_sentences: int, n_values: int) -> None:
    assert math.isnan(detectable_change(np.arange(n_values), n_sentences, assumed("shown")))


def test_where_only_sentences_differ_it_is_little_more_than_that_of_their_t_test() -> None:
    """Slopes of sentences that differ far more than anything else: Student's t with their degrees of freedom."""
    found = slope_at_power(simulate_errors(np.arange(12), Noise(1e-3, slope_sd=2.0), 10, n_series=2_000))
    noncentral = stats.nct(9, found / 2.0)
    critical = stats.t.ppf(0.975, 9)
    assert 0.8 <= noncentral.sf(critical) + noncentral.cdf(-critical) <= 0.85


def test_the_noise_of_values_is_what_residuals_have_beyond_that_of_sentences() -> None:
    """By the matrix that takes a line off the means: unit noise leaves the trace of its correlations."""
    x, y = np.array([0.0, 1, 2, 4, 5, 7, 8, 9]), np.array([3.0, -1, 2, -2, 0, 1, -3, 2])
    parts = ClusterSummary(y[None], np.array([0.04]), np.array([0.01]), np.array([11.0]), np.array([12.0]), np.zeros(1))
    fit = trend(x, parts)
    rho = float(fit.values_autocorrelation[0])
    design = np.vander(x, 2)
    off_line = np.eye(8) - design @ np.linalg.pinv(design)
    trace = float(np.trace(off_line @ rho ** np.abs(np.subtract.outer(x, x))))
    values_sd = math.sqrt((float(y @ off_line @ y) - 0.04 * 6) / trace)
    slopes_sd = math.sqrt(0.01 - 0.04 / (8 * x.var()))
    errors = simulate_errors(x, Noise(0.2, slopes_sd, values_sd, rho), 12)
    assert detectable_slope(x, parts) == pytest.approx(float(fit.high[0] - fit.low[0]) / 2 * halves_at_power(errors))
