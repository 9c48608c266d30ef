"""Calibration of an instrument: measured against planted values, with all sources of error.

The true value of each model is known without error. Readings have two errors, which behave differently:

- **training seed**: each model has its own error, so the models scatter around a common line, and more models average it out;
- **sentences**: all models are measured on *the same* sentences, so this error is largely shared. It moves the whole line instead of
the scatter around it, and more models do not average it out. It is estimated from the interval of each measurement, which
covers other sentences.

    measured[model] = planted[model] + training[model] + sentences[model]
                                       from the line     from the readings' intervals

The variance over other seeds *and* other sentences is the sum of both. Sentence errors of single models are in both terms, so
intervals may be too wide (coverage up to 99%) but not too narrow; the measurements cannot separate the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from undertow.stats.arrays import Estimate, Floats, as_floats, t_quantile
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, cluster_weights, percentile_interval
from undertow.stats.regression.least_squares import Line, fit_line

LEVEL = 0.95
MIN_ALIKE = 3
"""Minimum number of other models of the same kind to estimate a model's spread from these alone."""
MIN_MODELS = 5
"""Minimum number of models on a line to estimate the variance between seeds."""
_LEVERAGE = 1e-9
"""A point whose leverage is within this of 1 determines the line at its x."""


def share(hits: ArrayLike) -> Estimate:
    """Share of true hits [case], with the exact interval of Clopper and Pearson for independent cases; NaN without cases."""
    values = np.asarray(hits, dtype=bool)
    if not values.size:
        return Estimate(math.nan)
    from scipy.stats import binomtest

    low, high = binomtest(int(values.sum()), values.size).proportion_ci(LEVEL)
    return Estimate(float(values.mean()), float(low), float(high), values.size)


def mean_over_models(values: ArrayLike) -> Estimate:
    """Mean of values [model] without NaN, with a t interval (n - 1 degrees of freedom); no interval for one model."""
    numbers = as_floats(values)
    numbers = numbers[np.isfinite(numbers)]
    n = numbers.size
    if n < 2:
        return Estimate(float(numbers.mean()) if n else math.nan, n=n)
    return _estimate(float(numbers.mean()), [(float(numbers.var(ddof=1)) / n, n - 1)], n)


def median_over_models(values: ArrayLike, model: ArrayLike, n_draws: int, rng: np.random.Generator) -> Estimate:
    """Median of values [row] without NaN, with a percentile interval.

    It resamples whole models [row], because a model's rows are dependent.
    """
    numbers = as_floats(values)
    known = np.isfinite(numbers)
    numbers = numbers[known]
    names, of = np.unique(np.asarray(model)[known], return_inverse=True)
    n_models = len(names)
    if n_models < 2:
        return Estimate(float(np.median(numbers)) if numbers.size else math.nan, n=numbers.size)
    order = np.argsort(numbers, kind="stable")
    counts = cluster_weights(n_models, n_draws, rng)[:, of[order]].cumsum(axis=1)  # [draw, row], smallest value first
    # Mean of the two middle values, which coincide for odd counts.
    ranks = (counts[:, -1:] - 1) // 2, counts[:, -1:] // 2
    middle = [numbers[order][np.argmax(counts > rank, axis=1)] for rank in ranks]
    low, high = percentile_interval((middle[0] + middle[1]) / 2, n_clusters=n_models)
    return Estimate(float(np.median(numbers)), low, high, numbers.size)


def standard_errors(
    low: ArrayLike, high: ArrayLike, n_clusters: ArrayLike, df: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Standard error of each measurement over sentences, and its degrees of freedom, from its 95% t interval: each [row].

    Unknown degrees of freedom are one fewer than the clusters of sentences; if the number of clusters is NaN too, the variance counts as
    known. With 2 to 5 clusters intervals are invalid, so the error is NaN.
    """
    clusters = np.asarray(n_clusters, dtype=np.float64)
    few = np.isfinite(clusters) & (clusters > 1) & (clusters < MIN_CLUSTERS)
    given = np.full(clusters.shape, math.nan) if df is None else np.asarray(df, dtype=np.float64)
    degrees = np.where(np.isfinite(given), given, np.where(clusters > 1, clusters - 1, math.inf))
    degrees = np.where(degrees > 0, degrees, math.inf)
    errors: Floats = np.where(few, math.nan, (as_floats(high) - as_floats(low)) / 2 / _t(degrees))
    return errors, degrees


@dataclass(frozen=True, slots=True)
class SeedIntervals:
    """Intervals of measurements that cover other training seeds and other sentences, each [row].

    Attributes:
        low, high: 95% interval; NaN below five models.
        spread: standard deviation of the other models around their line.
        df: degrees of freedom of the interval.
    """

    low: Floats
    high: Floats
    spread: Floats
    df: Floats


def with_training_seed(
    planted: ArrayLike, measured: ArrayLike, errors: ArrayLike, sentence_df: ArrayLike, alike: ArrayLike | None = None
) -> SeedIntervals:
    """Intervals of the measurements of similarly trained models that include the training seed.

    `measured ± t(df) * sqrt(errors² + spread²)`. `spread` is the standard deviation of models around the regression line of measured on
    planted values (around their mean, if all planted values are equal). The line absorbs errors of the scale, so a miscalibration does
    not widen the interval. It also absorbs the sentence error that models share, which therefore enters from the intervals of the
    measurements.

    Each row's spread is that of the *other* models (residuals without this row, n - 3 degrees of freedom), so that an outlier does not
    widen its own interval. With all n models, the intervals of eight models have a coverage of 98% instead of 95%. `df` is Welch and
    Satterthwaite's for the two variances; with n - 3 alone, intervals that are mostly sentence error would be far too wide.

    Models without a planted bias vary less than others. If there are `MIN_ALIKE` other rows of the same kind, the spread is estimated
    from these, around the line of all others, with their share of its degrees of freedom.

    Args:
        planted: the truth, known without error [row].
        measured: the measurements [row].
        errors: standard error of each over sentences [row].
        sentence_df: its degrees of freedom, inf for known variances [row].
        alike: kinds of rows with equal spread [row]; None for one kind.
    """
    x, y, own, own_df = _rows(planted, measured, errors, sentence_df)
    kinds = np.zeros(len(x), dtype=np.int64) if alike is None else np.asarray(alike)
    if len(x) < MIN_MODELS:
        return SeedIntervals(*np.full((4, len(x)), math.nan))
    variance, df = _spread_of_others(x, y, kinds)
    both = variance + own**2
    of_both = _satterthwaite([(variance, df), (own**2, own_df)])
    half = _t(of_both) * np.sqrt(both)
    return SeedIntervals(y - half, y + half, np.sqrt(variance), of_both)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The line of measured on planted.

    Attributes:
        slope, intercept: with intervals for other models and other sentences; 1 and 0 for an unbiased instrument.
        line: least squares, with intervals for other models on the same sentences.
        scale_variance, offset_variance: variances of the sentence error that models share: of a common factor, and of a common
            constant.
        sentence_df: degrees of freedom of these.
    """

    slope: Estimate
    intercept: Estimate
    line: Line
    scale_variance: float
    offset_variance: float
    sentence_df: float

    def band(self, planted: ArrayLike) -> tuple[Floats, Floats]:
        """Pointwise 95% band of the line [point], for other models and other sentences: (low, high)."""
        x = np.asarray(planted, dtype=np.float64)
        if math.isnan(self.slope.low):
            return np.full_like(x, math.nan), np.full_like(x, math.nan)
        of_models = self.line.residual_sd**2 * (1 / self.line.n + (x - self.line.mean_x) ** 2 / self.line.sum_squares_x)
        of_sentences = self.offset_variance + self.scale_variance * x**2
        df = _satterthwaite([(of_models, self.line.n - 2), (of_sentences, self.sentence_df)])
        half = _t(df) * np.sqrt(of_models + of_sentences)
        return self.line.at(x) - half, self.line.at(x) + half


def calibrate(planted: ArrayLike, measured: ArrayLike, errors: ArrayLike, sentence_df: ArrayLike) -> Calibration:
    """Regress measurements on the truth, which is known without error; an unbiased instrument has slope 1 and intercept 0.

    Over models the interval is the wider of least squares (t, n - 2 degrees of freedom) and HC3, which allows a variance that grows
    with the planted value. The sentence error that all models share is added. Sentences that respond more or less than others cause a
    common factor, sentences with movements of their own a common offset: `errors² = offset + scale * planted²`, fitted with both at
    least 0. The variance of the scale is added to the slope, that of the offset to the intercept. Without them the coverage of the
    slope's interval falls to a third if sentence error is as large as the variance between seeds.

    The arguments are those of `with_training_seed`. The line is NaN if all planted values are equal, without intervals below three rows.
    """
    x, y, own, own_df = _rows(planted, measured, errors, sentence_df)
    line = fit_line(x, y)
    if math.isnan(line.slope):
        none = Estimate(math.nan, n=line.n)
        return Calibration(none, none, line, math.nan, math.nan, math.nan)
    from scipy.optimize import nnls

    (offset, scale), _ = nnls(np.column_stack([np.ones_like(x), x**2]), own**2)
    df = float(own_df.min())
    slope_variance = max(line.residual_sd**2 / line.sum_squares_x, _hc3_variance(line, x, y))
    start_variance = line.residual_sd**2 * (1 / line.n + line.mean_x**2 / line.sum_squares_x)
    return Calibration(
        slope=_estimate(line.slope, [(slope_variance, line.n - 2), (float(scale), df)], line.n),
        intercept=_estimate(line.intercept, [(start_variance, line.n - 2), (float(offset), df)], line.n),
        line=line,
        scale_variance=float(scale),
        offset_variance=float(offset),
        sentence_df=df,
    )


def _hc3_variance(line: Line, x: Floats, y: Floats) -> float:
    """Variance of the slope by MacKinnon and White's HC3, which uses leave-one-out residuals."""
    centred = x - line.mean_x
    left = 1 - 1 / line.n - centred**2 / line.sum_squares_x
    # A point with leverage 1 has no residual.
    residuals = np.divide(y - line.at(x), left, out=np.zeros_like(y), where=left > _LEVERAGE)
    return float(((centred * residuals) ** 2).sum() / line.sum_squares_x**2)


def attenuation(planted: ArrayLike, measured: ArrayLike, errors: ArrayLike, sentence_df: ArrayLike) -> Estimate:
    """Mean measurement divided by mean truth; 1 for an unbiased instrument.

    Measurements have the sign of the planted direction. The interval covers models (t, n - 1 degrees of freedom) and sentences, whose
    error counts as fully shared. The arguments are those of `with_training_seed`. NaN without planted values; no interval for one row.
    """
    x, y, own, own_df = _rows(planted, measured, errors, sentence_df)
    size = np.abs(x)
    if not size.sum():
        return Estimate(math.nan, n=len(x))
    read = y * np.sign(x)
    value = float(read.sum() / size.sum())
    if len(x) < 2:
        return Estimate(value, n=len(x))
    of_models = float((read - value * size).var(ddof=1)) / len(x) / float(size.mean()) ** 2
    of_sentences = (float(own.mean()) / float(size.mean())) ** 2
    return _estimate(value, [(of_models, len(x) - 1), (of_sentences, float(own_df.min()))], len(x))


def _spread_of_others(x: Floats, y: Floats, kinds: NDArray[Any]) -> tuple[Floats, Floats]:
    """Variance of the others of a row's kind around the line of all others, and its degrees of freedom: each [row]."""
    n = len(x)
    line = fit_line(x, y)
    centred = x - line.mean_x
    flat = np.full((n, n), 1 / n)
    hat = flat if math.isnan(line.slope) else flat + np.outer(centred, centred) / line.sum_squares_x
    residuals = y - hat @ y
    left = 1 - hat.diagonal()
    alone = left < _LEVERAGE  # without it, the others have equal planted values, so residuals are from their mean
    # Residuals from the line without a row [row, other].
    without = residuals + hat * (residuals / np.where(alone, 1.0, left))[:, None]
    without[alone] = y - ((y.sum() - y) / (n - 1))[alone, None]
    others = ~np.eye(n, dtype=bool)
    own = others & (kinds[:, None] == kinds)
    own[own.sum(axis=1) < MIN_ALIKE] = True
    own &= others
    dfs = np.where(alone | math.isnan(line.slope), n - 2.0, n - 3.0) * own.sum(axis=1) / (n - 1)
    return (without**2 * own).sum(axis=1) / dfs, dfs


def _satterthwaite(parts: Sequence[tuple[ArrayLike, ArrayLike]]) -> Floats:
    """Degrees of freedom of a sum of variances, each given with its own [...]; inf for a sum of 0."""
    variances = [np.asarray(variance, dtype=np.float64) for variance, _ in parts]
    total = np.sum(np.broadcast_arrays(*variances), axis=0)
    squares = sum(variance**2 / np.asarray(df) for variance, (_, df) in zip(variances, parts, strict=True))
    squares = np.asarray(np.broadcast_to(squares, np.shape(total)), dtype=np.float64)
    return np.asarray(np.divide(total**2, squares, out=np.full(np.shape(total), math.inf), where=squares > 0))


def _estimate(value: float, parts: Sequence[tuple[float, float]], n: int) -> Estimate:
    """An estimate with the sum of these variances, each with its degrees of freedom; no interval if one is unknown."""
    if any(math.isnan(variance) or df <= 0 for variance, df in parts):
        return Estimate(value, n=n)
    half = t_quantile(float(_satterthwaite(parts)), LEVEL) * math.sqrt(sum(variance for variance, _ in parts))
    return Estimate(value, value - half, value + half, n)


def _t(df: Floats) -> Floats:
    """Half the width of a t interval, in standard errors; normal where the degrees of freedom are infinite."""
    tail = (1 + LEVEL) / 2
    return np.where(np.isinf(df), special.ndtri(tail), special.stdtrit(np.where(np.isinf(df), 1.0, df), tail))


def _rows(*given: ArrayLike) -> tuple[Floats, ...]:
    """Planted values, measurements, errors and their degrees of freedom as arrays."""
    *rows, df = given
    numbers = tuple(map(as_floats, rows))
    if np.isnan(numbers).any():
        raise ValueError("planted, measured and errors must be finite")
    return *numbers, np.asarray(df, dtype=np.float64)
