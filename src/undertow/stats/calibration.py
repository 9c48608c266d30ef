"""Calibration of an instrument: measured against planted values, with all sources of error.

The true value of each model is known without error. Readings have two errors, which behave differently:

- **the training seed**: models trained alike differ. Each model has its own error, so the models scatter around their common line,
  and more models average it out;
- **the sentences**: other sentences would give other readings. All models read *the same* sentences, so this error is largely
  shared. It moves the whole line and not the scatter around it: more models neither show it nor average it out. It is known from
  the interval of each reading only, which covers other sentences alone.

    measured[model] = planted[model] + training[model] + sentences[model]
                                       from the line     from the readings' intervals

So the variance over other seeds *and* other sentences is the sum of both. Sentence errors of single models are in both terms, so
intervals may be too wide (they cover the truth in up to 99 of 100 cases), never too narrow; readings alone cannot separate the two.
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
from undertow.stats.intervals.cluster_bootstrap import MIN_CLUSTERS, cluster_weights, percentile_interval
from undertow.stats.regression.least_squares import Line, fit_line

LEVEL = 0.95
MIN_ALIKE = 3
"""Fewer others of one kind say less about a row's spread than all of them."""
MIN_MODELS = 5
"""Fewer models on one line do not show how far models of other seeds may lie from it: leaving one out, too little is left."""
_LEVERAGE = 1e-9
"""A point whose leverage is this near to 1 is alone at its end: the line goes through it wherever it is."""


def share(hits: ArrayLike) -> Estimate:
    """Share of hits [case] that are true, with the exact interval of Clopper and Pearson, which holds for few cases too.

    It takes cases as independent. NaN without cases.
    """
    values = np.asarray(hits, dtype=bool)
    if not values.size:
        return Estimate(math.nan)
    n, right, tail = values.size, int(values.sum()), (1 - LEVEL) / 2
    low = float(special.betaincinv(right, n - right + 1, tail)) if right else 0.0
    high = float(special.betaincinv(right + 1, n - right, 1 - tail)) if right < n else 1.0
    return Estimate(float(values.mean()), low, high, n)


def mean_over_models(values: ArrayLike) -> Estimate:
    """Mean of numbers [model], NaN left out, with its t interval (n - 1 degrees of freedom); none of one model."""
    numbers = as_floats(values)
    numbers = numbers[np.isfinite(numbers)]
    n = numbers.size
    if n < 2:
        return Estimate(float(numbers.mean()) if n else math.nan, n=n)
    return _estimate(float(numbers.mean()), [(float(numbers.var(ddof=1)) / n, n - 1)], n)


def median_over_models(values: ArrayLike, model: ArrayLike, n_draws: int, rng: np.random.Generator) -> Estimate:
    """Median of numbers [row], with a percentile interval that draws models whole, since a model's rows are alike.

    Args:
        values: NaN are left out [row].
        model: which model each is of [row].
        n_draws: bootstrap draws.
        rng: source of randomness.
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
    # Of the two in the middle, which are one where the number is odd.
    ranks = (counts[:, -1:] - 1) // 2, counts[:, -1:] // 2
    middle = [numbers[order][np.argmax(counts > rank, axis=1)] for rank in ranks]
    low, high = percentile_interval((middle[0] + middle[1]) / 2, n_clusters=n_models)
    return Estimate(float(np.median(numbers)), low, high, numbers.size)


def standard_errors(
    low: ArrayLike, high: ArrayLike, n_clusters: ArrayLike, df: ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """Standard error of each reading over sentences, and its degrees of freedom, from its 95% t interval: each [row].

    Where its degrees of freedom are not known, they are one fewer than there are clusters, as far as `percentile_interval` reaches;
    where their number is NaN too, the interval is taken for one of a known variance. Of 2 to 5 clusters no interval holds what it
    says, so that it says nothing of an error: NaN.

    Args:
        low: lower ends [row].
        high: upper ends [row].
        n_clusters: how many clusters of sentences are behind it [row].
        df: of the interval [row]; all NaN if not given.
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
    """Readings with intervals that hold for other training seeds and other sentences.

    Attributes:
        low, high: 95% interval of each reading [row]; NaN below five models.
        spread: standard deviation of the other models around their line [row].
        df: degrees of freedom of the interval [row].
    """

    low: Floats
    high: Floats
    spread: Floats
    df: Floats


def with_training_seed(
    planted: ArrayLike,
    measured: ArrayLike,
    errors: ArrayLike,
    sentence_df: ArrayLike,
    alike: ArrayLike | None = None,
) -> SeedIntervals:
    """Intervals of readings of models trained alike, training seed included.

    `measured ± t(df) * sqrt(errors² + spread²)`. `spread` is how far models lie from the straight line of measured on planted
    (from their mean, where all have the same planted value). The line takes up what is wrong with the instrument's scale, so
    that the interval does not grow with a miscalibration and would show it; it also takes up the error that the models share
    through their sentences, which therefore enters from the readings' own intervals.

    Each row's spread is that of the *other* models (residuals with this row left out, n - 3 degrees of freedom): a model that
    lies far off must not widen the interval that is to judge it. With all n in, the intervals of eight models hold the truth in
    98 of 100 cases instead of 95. `df` is Welch and Satterthwaite's, of the two variances: with n - 3 alone, intervals that
    consist of sentences mostly would be far too wide.

    Models that learned nothing differ less than models that learned something. Where there are `MIN_ALIKE` others of a row's own
    kind, its spread is theirs: around the line of all others, with as large a part of its degrees of freedom as they are of them.

    Args:
        planted: the truth, known without error [row].
        measured: the readings [row].
        errors: standard error of each over sentences [row].
        sentence_df: its degrees of freedom, inf where it is as good as known [row].
        alike: kinds of rows that spread alike [row]; None where all do.
    """
    x, y, own, own_df = _rows(planted, measured, errors, sentence_df)
    kinds = np.zeros(len(x), dtype=np.int64) if alike is None else np.asarray(alike)
    if len(x) < MIN_MODELS:
        none = np.full(len(x), math.nan)
        return SeedIntervals(none, none, none, none)
    variance, df = _spread_of_others(x, y, kinds)
    both = variance + own**2
    of_both = _satterthwaite([(variance, df), (own**2, own_df)])
    half = _t(of_both) * np.sqrt(both)
    return SeedIntervals(y - half, y + half, np.sqrt(variance), of_both)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The line of measured on planted.

    Attributes:
        slope, intercept: with intervals for other models and other sentences; 1 and 0 where the instrument reads what is there.
        line: least squares, whose own intervals are for other models on the same sentences.
        scale_variance, offset_variance: of the error that the models share through their sentences: of a factor on what is
            planted, and of a constant.
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
    """Regress readings on the truth, which is known without error: slope 1 and intercept 0 is an instrument that reads right.

    Over models the interval is that of least squares (t, n - 2 degrees of freedom), or the one that allows for models that spread
    the more the more was planted (HC3), whichever is wider. To it comes the error that all models share
    through their sentences. Sentences that respond more or less than others make a common factor, sentences that move by
    themselves a common offset: `errors² = offset + scale * planted²`, fitted with neither below 0. The scale's variance
    belongs to the slope, the offset's to the intercept. Without them the interval of the slope holds the truth in as few as a
    third of all cases where the sentences weigh as much as the training seed.

    Args:
        planted: the truth, known without error [row].
        measured: the readings [row].
        errors: standard error of each over sentences [row].
        sentence_df: its degrees of freedom, inf where it is as good as known [row].

    Returns:
        The line; NaN where planted values do not differ, without intervals below three rows.
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
    """Variance of the slope by MacKinnon and White's HC3, whose residuals are those of points that are left out."""
    centred = x - line.mean_x
    left = 1 - 1 / line.n - centred**2 / line.sum_squares_x
    # A point that is alone at its end has no residual to tell of.
    residuals = np.divide(y - line.at(x), left, out=np.zeros_like(y), where=left > _LEVERAGE)
    return float(((centred * residuals) ** 2).sum() / line.sum_squares_x**2)


def attenuation(planted: ArrayLike, measured: ArrayLike, errors: ArrayLike, sentence_df: ArrayLike) -> Estimate:
    """How much of what was planted is read on average: mean reading over mean truth, 1 where nothing is lost or added.

    Readings count towards the side that was planted. The interval is over models (t, n - 1 degrees of freedom) and sentences,
    whose error counts as wholly shared and is not averaged out.

    Args:
        planted: the truth, known without error [row].
        measured: the readings [row].
        errors: standard error of each over sentences [row].
        sentence_df: its degrees of freedom, inf where it is as good as known [row].

    Returns:
        NaN where nothing was planted; no interval of one row.
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
    alone = left < _LEVERAGE  # without it, the others have one planted value, and lie around their mean
    # Of the line without a row [row, other].
    without = residuals + hat * (residuals / np.where(alone, 1.0, left))[:, None]
    without[alone] = y - ((y.sum() - y) / (n - 1))[alone, None]
    others = ~np.eye(n, dtype=bool)
    own = others & (kinds[:, None] == kinds)
    own[own.sum(axis=1) < MIN_ALIKE] = True
    own &= others
    dfs = np.where(alone | math.isnan(line.slope), n - 2.0, n - 3.0) * own.sum(axis=1) / (n - 1)
    return (without**2 * own).sum(axis=1) / dfs, dfs


def _satterthwaite(parts: Sequence[tuple[ArrayLike, ArrayLike]]) -> Floats:
    """Degrees of freedom of a sum of variances, each given with its own [...]; inf where nothing varies."""
    variances = [np.asarray(variance, dtype=np.float64) for variance, _ in parts]
    total = np.sum(np.broadcast_arrays(*variances), axis=0)
    squares = sum(variance**2 / np.asarray(df) for variance, (_, df) in zip(variances, parts, strict=True))
    squares = np.asarray(np.broadcast_to(squares, np.shape(total)), dtype=np.float64)
    return np.asarray(np.divide(total**2, squares, out=np.full(np.shape(total), math.inf), where=squares > 0))


def _estimate(value: float, parts: Sequence[tuple[float, float]], n: int) -> Estimate:
    """An estimate whose variance is the sum of these, each with its degrees of freedom; no interval where one is unknown."""
    if any(math.isnan(variance) or df <= 0 for variance, df in parts):
        return Estimate(value, n=n)
    half = t_quantile(float(_satterthwaite(parts)), LEVEL) * math.sqrt(sum(variance for variance, _ in parts))
    return Estimate(value, value - half, value + half, n)


def _t(df: Floats) -> Floats:
    """Half the width of a t interval, in standard errors; normal where the degrees of freedom are infinite."""
    tail = (1 + LEVEL) / 2
    return np.where(np.isinf(df), special.ndtri(tail), special.stdtrit(np.where(np.isinf(df), 1.0, df), tail))


def _rows(
    planted: ArrayLike, measured: ArrayLike, errors: ArrayLike, sentence_df: ArrayLike
) -> tuple[Floats, Floats, Floats, Floats]:
    rows = as_floats(planted), as_floats(measured), as_floats(errors)
    if np.isnan(rows).any():
        raise ValueError("planted, measured and errors must be finite")
    return *rows, np.asarray(sentence_df, dtype=np.float64)
