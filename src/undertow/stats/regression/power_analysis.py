"""Power analysis: the smallest effect that a design can detect.

A design has sentences (clusters) crossed with values of a covariate, tested by `stats.regression.trend`. Series are simulated by the
assumptions of that test: means, spread of the sentences' slopes, residual noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from undertow.stats.arrays import Floats, as_floats
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, influence_variance
from undertow.stats.regression.trend import MIN_VALUES, ClusterSummary, trend

N_SERIES = 200
"""Number of simulated series for a detectable slope; its Monte Carlo error is then one or two percent."""
POWER = 0.8
ROOT_SHARE = 1e-9
"""Relative precision of the search for a slope, far below the Monte Carlo error."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a design.

    Attributes:
        white_sd: standard deviation of a mean from the noise of sentences.
        slope_sd: standard error of the mean of the sentences' slopes, in addition.
        values_sd: standard deviation of the noise of values.
        autocorrelation: of the noise of values, at the median distance of neighbours; 0 to below 1.
    """

    white_sd: float
    slope_sd: float = 0.0
    values_sd: float = 0.0
    autocorrelation: float = 0.0


@dataclass(frozen=True, slots=True)
class AssumedNoise:
    """The noise of an audit, for any number of sentences and values.

    Attributes:
        text_sd: standard deviation of a text around the line of its sentence, without the noise of values.
        slopes_sd: standard deviation of the sentences' changes over the whole list, from its first value to its last.
        values_sd: standard deviation of the noise of a value that all sentences share.
        autocorrelation: of the noise of values at a distance of `step`; 0 to below 1.
        step: as a share of the distance between the first and the last value.
        n_texts: number of texts of a sentence (or cluster of sentences) at each value.
    """

    text_sd: float
    slopes_sd: float
    values_sd: float
    autocorrelation: float
    step: float
    n_texts: float = 1.0

    def for_design(self, x: ArrayLike, n_clusters: int) -> Noise:
        """The noise of a design of values [value] over the same range; at k times the distance, the correlation is the k-th power."""
        xs = as_floats(x)
        return Noise(
            white_sd=self.text_sd / math.sqrt(n_clusters * self.n_texts),
            slope_sd=self.slopes_sd / float(np.ptp(xs)) / math.sqrt(n_clusters),
            values_sd=self.values_sd,
            autocorrelation=self.neighbours(xs),
        )

    def neighbours(self, x: ArrayLike) -> float:
        """The autocorrelation at the median distance of neighbouring values [value]."""
        steps = step_of(x) / self.step
        return float(self.autocorrelation**steps) if self.autocorrelation > 0 else 0.0


def step_of(x: ArrayLike) -> float:
    """The median distance of neighbouring values [value], as a share of their range."""
    xs = np.sort(as_floats(x))
    return float(np.median(np.diff(xs)) / np.ptp(xs))


def spread_evenly(x: ArrayLike, n: int) -> Floats:
    """`n` evenly spaced values along a list [n], both ends included.

    Interpolates linearly between values of the list, so it can also make a list denser.
    """
    xs = as_floats(x)
    return np.asarray(np.interp(np.linspace(0, len(xs) - 1, n), np.arange(len(xs)), xs), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SlopeErrors:
    """Errors of slopes in simulated series without a trend.

    The half width of an interval depends on the residuals from the line, and with autocorrelated noise the slope's error does in part. The
    rest of the error is normal and is integrated exactly instead of simulated.

    Attributes:
        expected: slope error predicted from the residuals [series].
        sd: standard deviation of the rest of the error.
        half: half the width of the 95% interval [series].
    """

    expected: Floats
    sd: float
    half: Floats

    def detection_probability(self, slopes: ArrayLike) -> Floats:
        """Probability that each slope is significant (p < .05) in each series or its mirror image [..., series]."""
        slope = np.asarray(slopes, dtype=np.float64)
        sd = max(self.sd, float(np.finfo(np.float64).eps) * float(self.half.max()))
        ends = ((way * slope + error - self.half) / sd for way in (-1, 1) for error in (self.expected, -self.expected))
        return np.asarray(sum(special.ndtr(end) for end in ends) / 2, dtype=np.float64)


def simulate_errors(
    x: ArrayLike, noise: Noise, n_clusters: int, *, n_series: int = N_SERIES, seed: int = 0
) -> SlopeErrors:
    """Simulate the errors of `trend` in series without a trend, at these values of the covariate [value], with two sentences or more.

    Means, variance of the sentences' slopes and residual variance are sampled as for sentences with normal noise, each with every value.
    """
    xs = as_floats(x)
    rng, n_values = np.random.default_rng(seed), len(xs)
    from_mean = xs - xs.mean()
    squares = float(from_mean @ from_mean)
    weights = from_mean / squares
    covariance = noise.values_sd**2 * _correlations(xs, noise.autocorrelation) + noise.white_sd**2 * np.eye(n_values)
    ridge = 1e-10 * max(float(covariance[0, 0]), float(np.finfo(np.float64).tiny))
    covariance += ridge * np.eye(n_values)
    off_line = rng.standard_normal((n_series, n_values)) @ np.linalg.cholesky(covariance).T
    # The sentences' slopes move all means along the line and do not affect residuals, so they are in `sd` only.
    slopes = math.sqrt(n_clusters * (noise.slope_sd**2 + noise.white_sd**2 / squares)) * rng.standard_normal(
        (n_series, n_clusters)
    )
    influences = (slopes - slopes.mean(axis=1, keepdims=True)) / n_clusters
    spread, df = influence_variance(influences, np.ones_like(influences, dtype=np.bool_))
    beside = (n_clusters - 1) * (n_values - 2)
    white = noise.white_sd**2 * rng.chisquare(beside, n_series) / beside
    fit = trend(
        xs, ClusterSummary(off_line, white, spread, df, np.full(n_series, float(n_clusters)), np.zeros(n_series))
    )
    basis, _ = np.linalg.qr(np.column_stack([np.ones(n_values), from_mean]), mode="complete")
    rest = basis[:, 2:]
    with_rest = rest.T @ covariance @ weights
    coefficients = np.linalg.solve(rest.T @ covariance @ rest, with_rest)
    variance = float(weights @ covariance @ weights + noise.slope_sd**2 - with_rest @ coefficients)
    return SlopeErrors(off_line @ rest @ coefficients, math.sqrt(max(variance, 0.0)), fit.half())


def _correlations(x: Floats, autocorrelation: float) -> Floats:
    """Correlations of the values' noise [value, value]."""
    if autocorrelation <= 0:
        return np.eye(len(x))
    distances = np.abs(np.subtract.outer(x, x)) / np.median(np.diff(np.sort(x)))
    return autocorrelation**distances


def detection_share(errors: SlopeErrors, slope: float) -> float:
    """The share of series in which a slope of this size is significant (p < .05)."""
    return float(errors.detection_probability(slope).mean())


def slope_at_power(errors: SlopeErrors) -> float:
    """The smallest slope that is significant in the share `POWER` of series; NaN without intervals.

    The width of an interval does not depend on the slope, so one set of series is enough for all slopes.
    """
    high = float(errors.half.max() + np.abs(errors.expected).max()) + 5 * errors.sd
    return _root(high, lambda slope: detection_share(errors, slope) - POWER)


def halves_at_power(errors: SlopeErrors) -> float:
    """The smallest slope, in half widths of one series' interval, that is significant in other series in the share `POWER` of pairs.

    NaN without intervals.
    """
    high = 1.0 + slope_at_power(errors) / float(errors.half.min())
    of_pairs = errors.half[:, None]
    return _root(high, lambda n: float(errors.detection_probability(n * of_pairs).mean()) - POWER)


def _root(high: float, excess: Callable[[float], float]) -> float:
    """Root of an increasing function between 0 and `high`; NaN if `high` is."""
    if math.isnan(high):
        return math.nan
    return float(optimize.brentq(excess, 0.0, high, xtol=ROOT_SHARE * high, rtol=ROOT_SHARE))


def detectable_slope(x: ArrayLike, parts: ClusterSummary) -> float:
    """The |slope| that the test of `trend` detects (p < .05) in 8 of 10 runs like the one of the series [1].

    It is the half width of the run's interval times a factor from a simulation of its noise. The 8 of 10 are an average over runs; for a
    single run, the power at this slope may be higher or lower. In units of y per unit of x [value]; NaN below eight values or two clusters.
    """
    xs = as_floats(x)
    fit = trend(xs, parts)
    n_clusters = round(float(parts.n_clusters[0]))
    if len(xs) < MIN_VALUES or n_clusters < 2 or not math.isfinite(float(fit.p[0])):
        return math.nan
    half = float(fit.half()[0])
    return half * halves_at_power(simulate_errors(xs, _noise_of(xs, parts, fit.values_autocorrelation), n_clusters))


def _noise_of(x: Floats, parts: ClusterSummary, autocorrelation: Floats) -> Noise:
    """Estimate the noise of one series: the noise of values is the residual variance beyond the noise of sentences."""
    white, rho = float(parts.white_variance[0]), float(autocorrelation[0])
    from_mean = x - x.mean()
    squares = float(from_mean @ from_mean)
    means = parts.means[0] - parts.means[0].mean()
    off_line = means - from_mean * float(means @ from_mean) / squares
    shared = _correlations(x, rho)
    # Trace of the values' correlation matrix off the line.
    trace = len(x) - float(shared.mean()) * len(x) - float(from_mean @ shared @ from_mean) / squares
    of_values = max(float(off_line @ off_line) - white * (len(x) - 2), 0.0) / trace
    own = max(float(parts.slope_variance[0]) - white / squares, 0.0)
    return Noise(math.sqrt(white), math.sqrt(own), math.sqrt(of_values), rho)


def detectable_change(x: ArrayLike, n_clusters: int, assumed: AssumedNoise, *, n_series: int = N_SERIES) -> float:
    """The smallest |change| from the first value to the last that the test of `trend` detects (p < .05) in 8 of 10 runs.

    In units of y, for values of the covariate [value] and clusters of sentences; NaN below six of these or eight values, and without any
    noise.
    """
    xs = as_floats(x)
    if n_clusters < MIN_CLUSTERS or len(xs) < MIN_VALUES:
        return math.nan
    errors = simulate_errors(xs, assumed.for_design(xs, n_clusters), n_clusters, n_series=n_series)
    return slope_at_power(errors) * float(np.ptp(xs))
