"""What a design can find, so that "nothing found" means something. Knows nothing about what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.doubles import usable
from undertow.stats.trend import FEWEST_VALUES, SentenceParts, trend

Floats = NDArray[np.float64]

N_SERIES = 200
"""Simulated series behind a detectable slope."""
POWER, ALPHA = 0.8, 0.05


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a design.

    Attributes:
        white_sd: standard deviation of what the sentences leave in a mean.
        slope_sd: standard error of the mean of the sentences' own slopes, beside that.
        values_sd: standard deviation of the values' own noise.
        autocorrelation: of that noise, at the median distance of neighbours; 0 to below 1.
    """

    white_sd: float
    slope_sd: float = 0.0
    values_sd: float = 0.0
    autocorrelation: float = 0.0


def simulated_errors(
    x: ArrayLike,
    noise: Noise,
    n_clusters: int,
    *,
    n_series: int = N_SERIES,
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Slopes of series without a trend, and half the width of the interval of each: both [series].

    Args:
        x: values of the covariate [value].
        noise: of the design.
        n_clusters: sentences.
        n_series: how many.
        seed: of the draws.
    """
    xs = usable(x)
    rng = np.random.default_rng(seed)
    distances = np.abs(np.subtract.outer(xs, xs)) / np.median(np.diff(np.sort(xs)))
    shared = noise.autocorrelation**distances if noise.autocorrelation > 0 else np.eye(len(xs))
    root = np.linalg.cholesky(shared + 1e-10 * np.eye(len(xs)))
    squares = float(((xs - xs.mean()) ** 2).sum())
    spread = noise.white_sd**2 / squares + noise.slope_sd**2
    means = noise.white_sd * rng.standard_normal((n_series, len(xs)))
    means += noise.values_sd * rng.standard_normal((n_series, len(xs))) @ root.T
    means += noise.slope_sd * rng.standard_normal((n_series, 1)) * (xs - xs.mean())
    df = max(n_clusters - 1.0, 1.0)
    estimated = spread * rng.chisquare(df, n_series) / df
    white, degrees, clusters = (np.full(n_series, one) for one in (noise.white_sd**2, df, float(n_clusters)))
    found = trend(xs, SentenceParts(means, white, estimated, degrees, clusters))
    return found.slope, (found.high - found.low) / 2


def found_share(errors: tuple[Floats, Floats], slope: float) -> float:
    """The share of series in which a slope of this size is told from 0; of each series and of the one that mirrors it."""
    slopes, half = errors
    return float(np.mean([np.abs(slope + slopes) > half, np.abs(slope - slopes) > half]))


def slope_found_in(errors: tuple[Floats, Floats], power: float = POWER) -> float:
    """The smallest slope that is told from 0 in this share of series.

    The width of an interval does not depend on the slope, so that one set of series serves all slopes.
    """
    slopes, half = errors
    if not np.isfinite(half).all():
        return math.nan
    low, high = 0.0, float(np.max(half) + np.max(np.abs(slopes)))
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if found_share(errors, middle) >= power else (middle, high)
    return high


def detectable_slope(x: ArrayLike, parts: SentenceParts) -> float:
    """The smallest |slope| that the test of `trend` finds (p < .05) in 8 of 10 series with the noise that one series shows.

    Args:
        x: values of the covariate [value].
        parts: of one series [1].

    Returns:
        In units of y per unit of x; NaN below eight values or two clusters.
    """
    xs = usable(x)
    found = trend(xs, parts)
    if len(xs) < FEWEST_VALUES or not math.isfinite(float(found.p[0])):
        return math.nan
    white = float(parts.white_variance[0])
    squares = float(((xs - xs.mean()) ** 2).sum())
    own = math.sqrt(max(float(parts.slope_variance[0]) - white / squares, 0.0))
    noise = Noise(math.sqrt(white), own, float(found.values_sd[0]), float(found.values_autocorrelation[0]))
    return slope_found_in(simulated_errors(xs, noise, round(float(parts.n_clusters[0]))))
