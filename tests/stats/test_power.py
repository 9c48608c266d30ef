"""The detectable slope is the one that the deciding test finds four times in five, by simulations of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats.power import Noise, detectable_slope, found_share, simulated_errors, slope_found_in
from undertow.stats.trend import SentenceParts, sentence_parts, trend

Floats = NDArray[np.float64]


def audits(x: Floats, noise: Noise, n_clusters: int, n_series: int, seed: int) -> Floats:
    """Crossed designs with this noise and no trend, sentence by sentence [series, cluster, value]."""
    rng = np.random.default_rng(seed)
    steps = x - x.mean()
    of_values = rng.normal(size=(n_series, len(x)))
    for at in range(1, len(x)):
        rho = noise.autocorrelation ** (x[at] - x[at - 1])
        of_values[:, at] = rho * of_values[:, at - 1] + math.sqrt(1 - rho**2) * of_values[:, at]
    cells = noise.white_sd * math.sqrt(n_clusters) * rng.normal(size=(n_series, n_clusters, len(x)))
    own = noise.slope_sd * math.sqrt(n_clusters) * rng.normal(size=(n_series, n_clusters, 1)) * steps
    levels = 10 * rng.normal(size=(n_series, n_clusters, 1))
    found: Floats = levels + cells + own + noise.values_sd * of_values[:, None]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("n_values", [8, 12, 30, 60])
@pytest.mark.parametrize(
    "noise",
    [Noise(1.0), Noise(0.5, values_sd=1.0), Noise(0.5, values_sd=1.0, autocorrelation=0.5), Noise(1.0, slope_sd=0.1)],
    ids=["white", "of values", "shared", "slopes"],
)
def test_the_slope_is_found_in_four_of_five_audits(n_values: int, noise: Noise) -> None:
    """Within five points, in 1,000 audits of 20 sentences that are drawn in another way and with another seed."""
    x = np.arange(n_values, dtype=np.float64)
    slope = slope_found_in(simulated_errors(x, noise, 20))
    y = audits(x, noise, 20, 1_000, seed=n_values) + slope * x
    found = trend(x, sentence_parts(x, y, np.ones_like(y)))
    assert np.mean(found.p < 0.05) == pytest.approx(0.8, abs=0.05)


@pytest.mark.xfail(reason="the test awaits the statistics of drifts that are in work", strict=False)
@pytest.mark.slow
def test_an_audit_says_what_it_could_have_found() -> None:
    """Each of 30 audits estimates its noise, and audits like it find the slope that it names in four of five, on average over them.

    Where values have no noise of their own that cannot be known, and the slope that is named is larger: it is found in nine of ten.
    """
    x = np.arange(12.0)
    for noise, least, most in ((Noise(0.5, values_sd=1.0, autocorrelation=0.5), 0.7, 0.86), (Noise(1.0), 0.85, 0.98)):
        found = simulated_errors(x, noise, 20, n_series=1_000, seed=9)
        named = [
            detectable_slope(x, sentence_parts(x, y[None], np.ones_like(y[None])))
            for y in audits(x, noise, 20, 30, seed=3)
        ]
        assert least <= np.mean([found_share(found, slope) for slope in named]) <= most


@pytest.mark.xfail(reason="the test awaits the statistics of drifts that are in work", strict=False)
def test_where_only_sentences_differ_it_is_that_of_their_t_test() -> None:
    """Slopes of sentences that differ far more than anything else: Student's t with their degrees of freedom."""
    found = slope_found_in(simulated_errors(np.arange(12), Noise(1e-3, slope_sd=2.0), 10, n_series=2_000))
    noncentral = stats.nct(9, found / 2.0)
    critical = stats.t.ppf(0.975, 9)
    assert noncentral.sf(critical) + noncentral.cdf(-critical) == pytest.approx(0.8, abs=0.02)


def test_it_goes_with_the_noise_and_against_the_spread_of_x() -> None:
    noise = Noise(1.0, 0.05, 0.5, 0.3)
    slope = slope_found_in(simulated_errors(np.arange(15), noise, 12))
    twice = Noise(2.0, 0.1, 1.0, 0.3)
    assert slope_found_in(simulated_errors(np.arange(15), twice, 12)) == pytest.approx(2 * slope, rel=1e-5)
    apart = Noise(1.0, 0.005, 0.5, 0.3)
    assert slope_found_in(simulated_errors(10 * np.arange(15) + 7, apart, 12)) == pytest.approx(slope / 10, rel=1e-5)
    assert slope_found_in(simulated_errors(np.arange(30), noise, 12)) < slope
    assert slope_found_in(simulated_errors(np.arange(15), noise, 6)) > slope
    assert slope_found_in(simulated_errors(np.arange(15), Noise(1.0, 0.05, 1.5, 0.3), 12)) > slope


def test_power_rises_with_the_slope_and_is_that_of_the_named_slope() -> None:
    errors = simulated_errors(np.arange(12), Noise(1.0), 12)
    shares = [found_share(errors, slope) for slope in (0.0, 0.2, 0.4, 0.8, 5.0)]
    assert shares == sorted(shares)
    assert shares[0] <= 0.05
    assert shares[-1] == 1
    for power in (0.5, 0.8, 0.95):
        assert found_share(errors, slope_found_in(errors, power)) == pytest.approx(power, abs=0.005)


def test_a_design_that_can_find_nothing_has_no_detectable_slope() -> None:
    assert math.isnan(slope_found_in(simulated_errors(np.arange(7), Noise(1.0), 12)))
    rng = np.random.default_rng(0)
    for shape in ((1, 7, 6), (1, 1, 12)):
        y = rng.normal(size=shape)
        assert math.isnan(detectable_slope(np.arange(shape[2]), sentence_parts(np.arange(shape[2]), y, np.ones(shape))))
    flat = np.ones((1, 6, 12))
    assert math.isnan(detectable_slope(np.arange(12), sentence_parts(np.arange(12), flat, flat)))


def test_a_series_is_asked_by_its_own_noise() -> None:
    y = audits(np.arange(12.0), Noise(1.0), 8, 1, seed=3)
    parts = sentence_parts(np.arange(12), y, np.ones_like(y))
    slope = detectable_slope(np.arange(12), parts)
    louder = SentenceParts(
        parts.means * 3, parts.white_variance * 9, parts.slope_variance * 9, parts.df, parts.n_clusters
    )
    assert slope > 0
    assert detectable_slope(np.arange(12), louder) == pytest.approx(3 * slope, rel=1e-5)
