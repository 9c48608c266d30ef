"""Effects of a covariate: any effect of its values, a trend along their order, and a trend that generalises to other values.

Sentences (clusters) are crossed with values of the covariate. Three statements have a test each: `covariate_effect` is about these
values and other sentences; `trend` tests the order of the values against noise that neighbours share; `trend_of_other_values` treats
the values as an independent sample. In `trend`, the mean of each value is the trend plus noise of the value, which neighbours share
(an autoregression of order one), plus noise of the sentences, whose variance is estimated from the sentences. The variance and the
autocorrelation of the values' noise are integrated out over their restricted likelihood. docs/validity.md has the error rates.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import ROUNDING_SHARE, Bools, Estimate, Floats, as_floats, divide, t_quantile
from undertow.stats.context import check_interrupted
from undertow.stats.intervals.cluster_errors import influence_variance, skewed_interval, skewness_of_sum
from undertow.stats.significance.sign_flip import exchange_p_values

MIN_VALUES = 8
"""Minimum number of values for a claim about their order; fewer cannot distinguish a trend from a slow wave."""
MAX_AUTOCORRELATION = 0.9
"""Largest autocorrelation of the values' noise; beyond it a wave is as long as the series and looks like a trend."""
MAX_GAP_RATIO = 20.0
"""Values with a larger `gap_ratio` are bunched: slow noise differs between the bunches and looks like a trend (docs/decisions/032)."""
AUTOCORRELATIONS: Floats = np.tanh((np.arange(20) + 0.5) / 20 * np.arctanh(MAX_AUTOCORRELATION))
"""Grid of autocorrelations with equal prior weights: equal steps of Fisher's z from 0."""
N_SIZES = 24
"""Grid size of the variance of the values' noise; the first is 0."""
LARGEST, SMALLEST = 100.0, 1e-3
"""Largest and smallest variance of the grid, relative to the variance of the means around their line."""
ROUNDING = 1e-9
"""Influences of sentences below this share of the means are rounding errors, whose spread has no degrees of freedom."""
N_ERRORS = 64
"""Number of error sizes in an interval."""
HALVINGS, CHORDS = 5, 6
"""Steps of the search for the end of an interval, on log scales: bisection, then the secant method."""
HALVINGS_OF_SQUARE = 40
"""Bisections for an end of the interval of squared effects."""
ABOVE_NONE = 1.1
"""Tail probability of the lower end of a significant effect, at least, relative to that of no effect."""
NO_WEIGHT = 1e-15
"""Weight below which a cell is ignored; products of smaller ones underflow."""
MAX_CELLS = 4_000_000
"""Maximum size of an intermediate array."""


@dataclass(frozen=True)
class Trend:
    """Estimated trends, each [series].

    Attributes:
        slope: least squares, in units of y per unit of x.
        p: two-sided, of no trend.
        autocorrelation: estimated correlation of the noise of neighbouring means, 0 to 1.
        values_sd: standard deviation of the noise of values, in units of y: its posterior median.
        values_autocorrelation: autocorrelation of that noise: its posterior mean.
        errors: distribution of the slope's error; undefined where p is NaN.
        skewness: of the slope's error, from the sentences.
    """

    slope: Floats
    p: Floats
    autocorrelation: Floats
    values_sd: Floats
    values_autocorrelation: Floats
    errors: _Mixture
    skewness: Floats

    @cached_property
    def _limits(self) -> tuple[Floats, Floats]:
        return self.interval()

    @property
    def low(self) -> Floats:
        """Lower limit of the slope at 95%, for other sentences and other noise of the values."""
        return self._limits[0]

    @property
    def high(self) -> Floats:
        """Upper limit of the slope at 95%."""
        return self._limits[1]

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper limits of the slope at another level.

        The end on the side of the sentences' tail is further out (`skewed_interval`), unless it would then include 0, which p excludes.
        """
        half, errors = self.half(level), self.errors
        error = np.sqrt((errors.weights * errors.variances).sum(axis=1))
        low, high = skewed_interval(self.slope, error, divide(half, error), self.skewness)
        low = np.where(self.slope > half, self.slope - half, low)
        return low, np.where(self.slope < -half, self.slope + half, high)

    def half(self, level: float = 0.95) -> Floats:
        """Half the width of the interval without its correction for skewness."""
        return np.where(np.isnan(self.p), math.nan, self.errors.quantile(1 - level))


@dataclass(frozen=True, slots=True)
class _Design:
    """Quantities that depend on the values of x only."""

    weights: Floats  # of the means in the least-squares slope [value]
    roots: Floats  # eigenvalues of the noise of each autocorrelation, off the line [autocorrelation, value - 2]
    axes: Floats  # their eigenvectors [autocorrelation, value, value - 2]
    slope_variances: Floats  # variance of the slope, for noise of variance 1 [autocorrelation]
    neighbours: Floats  # mean correlation of neighbours [autocorrelation]


@lru_cache(maxsize=64)
def _design(x: tuple[float, ...]) -> _Design:
    xs = np.asarray(x)
    from_mean = xs - xs.mean()
    weights = from_mean / (from_mean @ from_mean)
    basis, _ = np.linalg.qr(np.column_stack([np.ones_like(xs), from_mean]), mode="complete")
    off_line = basis[:, 2:]
    gaps = np.abs(np.diff(np.sort(xs)))
    distances = np.abs(np.subtract.outer(xs, xs)) / np.median(gaps)
    roots, axes, variances, neighbours = [], [], [], []
    for rho in AUTOCORRELATIONS:
        noise = rho**distances
        root, axis = np.linalg.eigh(off_line.T @ noise @ off_line)
        roots.append(root)
        axes.append(off_line @ axis)
        variances.append(weights @ noise @ weights)
        neighbours.append(np.mean(rho ** (gaps / np.median(gaps))))
    return _Design(weights, np.stack(roots), np.stack(axes), np.array(variances), np.array(neighbours))


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """Summary of the sentences of crossed series.

    Attributes:
        means: of each value [..., value].
        white_variance: of a mean, without the sentences' levels and slopes [...].
        slope_variance: of the least-squares slope, from the variance between sentences [...].
        df: degrees of freedom of `slope_variance` [...].
        n_clusters: sentences that contribute to the slope [...].
        skewness: of the slope, from the sentences' influences [...].
    """

    means: Floats
    white_variance: Floats
    slope_variance: Floats
    df: Floats
    n_clusters: Floats
    skewness: Floats


def trend(x: ArrayLike, parts: ClusterSummary) -> Trend:
    """Least-squares trends of series, with intervals and tests that allow for noise that neighbouring values share.

    y = line + v + e: e is white with known variance, v is an autoregression in x with variance tau^2, whose correlation at the median
    distance of neighbours is rho. The prior of Fisher's z of rho is uniform up to that of .9, and the prior density of tau^2 is
    1 / (white_variance + tau^2), which with rho = 0 gives the t interval (Tiao and Tan 1965, "Bayesian Analysis of Random-Effect
    Models in the Analysis of Variance"). Cells of rho and tau are weighted by the restricted likelihood of the means (Harville
    1977, "Maximum Likelihood Approaches to Variance Component Estimation"). In each cell the error of the slope is normal for v and
    Student's t for the sentences, including the variance of their slopes (`slope_variance`); degrees of freedom of the sum are
    Satterthwaite's. Interval and p are those of the mixture. docs/validity.md has the error rates.

    Args:
        x: values of the covariate, distinct [value].
        parts: means of the series and their errors [series].

    Returns:
        NaN for p and interval below eight values, with an unknown variance, and without any noise.

    Raises:
        ValueError: values of x are equal or not finite.
    """
    check_interrupted()
    xs, ys = as_floats(x), as_floats(parts.means)
    if not np.isfinite(xs).all() or len(np.unique(xs)) < len(xs):
        raise ValueError("values of x must be finite, and no two of them equal")
    if len(xs) < MIN_VALUES:
        nan, one = np.full(len(ys), math.nan), np.ones(len(ys))
        slope = ys @ _weights(xs) if len(xs) > 1 else nan
        return Trend(slope, nan, nan, nan, nan, _Mixture(one[:, None], one[:, None], one, one), nan)
    design = _design(tuple(xs.tolist()))
    trends, columns = [], astuple(parts)
    at_once = max(1, MAX_CELLS // (len(AUTOCORRELATIONS) * N_SIZES * len(xs)))
    for start in range(0, len(ys), at_once):
        some = slice(start, start + at_once)
        trends.append(_trend(design, ClusterSummary(*(column[some] for column in columns))))
    *estimates, weights, variances, spread, df = (np.concatenate(some) for some in zip(*trends, strict=True))
    slope, p, autocorrelation, values_sd, values_autocorrelation = estimates
    of_errors = _Mixture(weights, variances, spread, df)
    return Trend(slope, p, autocorrelation, values_sd, values_autocorrelation, of_errors, parts.skewness)


def trend_of_one_series(x: ArrayLike, y: ArrayLike) -> Trend:
    """`trend` of series [series, value] from a single sentence; the results do not generalise to other sentences."""
    ys = as_floats(y)
    nothing, known = np.zeros(len(ys)), np.full(len(ys), 1e9)
    return trend(x, ClusterSummary(ys, nothing, nothing, known, np.ones(len(ys)), nothing))


def _weights(x: Floats) -> Floats:
    from_mean: Floats = x - x.mean()
    return divide(from_mean, from_mean @ from_mean)


def _trend(design: _Design, parts: ClusterSummary) -> tuple[Floats, ...]:
    """The fields of a `Trend`, and those of its errors."""
    ys, white, spread, df = parts.means, parts.white_variance, parts.slope_variance, parts.df
    slope = ys @ design.weights
    squares = np.einsum("sv,rvk->srk", ys, design.axes) ** 2  # [series, autocorrelation, value - 2]
    residual = squares[:, 0].sum(axis=1) / squares.shape[2]
    scale = np.maximum(residual, white)
    known = (scale > (1e-12 * np.abs(ys).max(axis=1)) ** 2) & np.isfinite(white + spread + df)
    scale, white, spread, df = (np.where(known, one, 1.0) for one in (scale, white, spread, df))
    squares = np.where(known[:, None, None], squares, 1.0)
    least = np.maximum(white, SMALLEST * scale)
    steps = np.linspace(0, 1, N_SIZES)
    totals = least[:, None] * (LARGEST * scale / least)[:, None] ** steps  # white + tau^2 [series, size]
    sizes = np.maximum(totals - white[:, None], 0.0)
    log_weights = np.empty((len(ys), len(AUTOCORRELATIONS), N_SIZES))
    for at in range(N_SIZES):
        variances = np.maximum(white, SMALLEST * least)[:, None, None] + sizes[:, at, None, None] * design.roots
        log_weights[:, :, at] = -0.5 * (np.log(variances) + squares / variances).sum(axis=2)
    weights = np.exp(log_weights - log_weights.max(axis=(1, 2), keepdims=True))
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    of_values = sizes[:, None, :] * design.slope_variances[:, None]
    of_noise = sizes / (white[:, None] + sizes + SMALLEST * least[:, None])  # share of the values' noise [series, size]
    shared = of_noise[:, None, :] * design.neighbours[:, None]
    n = len(ys)
    errors = _Mixture.from_cells(weights.reshape(n, -1), (of_values + spread[:, None, None]).reshape(n, -1), spread, df)
    estimates = (
        errors.beyond(np.abs(slope)),
        (weights * shared).sum(axis=(1, 2)),
        np.sqrt(np.maximum(np.exp(_medians(weights.sum(axis=1), np.log(totals))) - white, 0.0)),
        (weights * design.neighbours[:, None]).sum(axis=(1, 2)),
    )
    known_estimates = (np.where(known, one, math.nan) for one in estimates)
    return slope, *known_estimates, errors.weights, errors.variances, errors.spread, errors.df


def _medians(weights: Floats, values: Floats) -> Floats:
    """Weighted medians of increasing values [series, cell] [series]; the first cell is a point, the others are intervals."""
    until = np.cumsum(weights, axis=1) - weights / 2
    until[:, 0] = weights[:, 0]
    after, rows = np.minimum((until < 0.5).sum(axis=1), values.shape[1] - 1), np.arange(len(values))
    before = np.maximum(after - 1, 0)
    width = until[rows, after] - until[rows, before]
    along = np.divide(0.5 - until[rows, before], width, out=np.zeros(len(values)), where=width > 0)
    medians: Floats = values[rows, before] + np.clip(along, 0, 1) * (values[rows, after] - values[rows, before])
    return medians


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The error of a slope."""

    weights: Floats  # of the cells; they sum to 1 [series, cell]
    variances: Floats  # of the slope in each cell [series, cell]
    spread: Floats  # part of the variances that is estimated from the sentences [series]
    df: Floats  # degrees of freedom of that part [series]

    @classmethod
    def from_cells(cls, weights: Floats, variances: Floats, spread: Floats, df: Floats) -> _Mixture:
        """Merge cells with nearly equal variances, to speed up the tail sums."""
        sizes = np.log(np.maximum(variances, np.finfo(np.float64).tiny))
        least = sizes.min(axis=1, keepdims=True)
        width = np.maximum(sizes.max(axis=1, keepdims=True) - least, 1e-9) / N_ERRORS
        at = np.minimum((sizes - least) / width, N_ERRORS - 1).astype(np.int64)
        at += N_ERRORS * np.arange(len(at))[:, None]
        n = N_ERRORS * len(at)
        weights = np.where(weights > NO_WEIGHT, weights, 0.0)
        pooled: Floats = np.bincount(at.ravel(), weights=weights.ravel(), minlength=n).astype(np.float64)
        summed = np.bincount(at.ravel(), weights=(weights * variances).ravel(), minlength=n)
        means = np.divide(summed, pooled, out=np.ones(n), where=pooled > 0)
        return cls(pooled.reshape(-1, N_ERRORS), means.reshape(-1, N_ERRORS), spread, df)

    def beyond(self, distance: Floats) -> Floats:
        """Two-sided probability of an error beyond a distance [series]."""
        ones = np.ones_like(self.variances)
        share = np.divide(self.spread[:, None], self.variances, out=ones, where=self.variances > 0)
        df = self.df[:, None] / np.maximum(share**2, 1e-9)
        errors = np.sqrt(self.variances)
        far = np.divide(distance[:, None], errors, out=np.full_like(errors, math.inf), where=errors > 0)
        tails: Floats = special.stdtr(df, -far, out=np.zeros_like(errors), where=self.weights > 0)
        probability: Floats = 2 * np.einsum("sc,sc->s", self.weights, tails)
        return probability

    def quantile(self, share: float) -> Floats:
        """The distance with this two-sided tail probability [series]."""
        errors = np.sqrt(np.where((self.weights > 0) & (self.variances > 0), self.variances, math.nan))
        # Student's t with one degree of freedom needs 13 steps.
        low, high = np.log(0.01 * np.nanmin(errors, axis=1)), np.log(15 * np.nanmax(errors, axis=1))
        above, below = self._excess(low, share), self._excess(high, share)
        for step in range(HALVINGS + CHORDS):
            along = 0.5 if step < HALVINGS else above / (above - below)
            middle = low + (high - low) * along
            excess = self._excess(middle, share)
            short = excess > 0
            low, above = np.where(short, middle, low), np.where(short, excess, above)
            high, below = np.where(short, high, middle), np.where(short, below, excess)
        return np.asarray(np.exp(np.where(above < -below, low, high)), dtype=np.float64)

    def _excess(self, log_distance: Floats, share: float) -> Floats:
        """Logarithm of the tail probability of a distance minus that of the share [series]."""
        beyond = np.maximum(self.beyond(np.exp(log_distance)), np.finfo(np.float64).tiny)
        return np.asarray(np.log(beyond / share), dtype=np.float64)


def cluster_summary(
    x: ArrayLike, sums: ArrayLike, counts: ArrayLike, own: tuple[Floats, Floats] | None = None
) -> ClusterSummary:
    """Summary of a crossed design for `trend`.

    `slope_variance` is that of the slope's influences by sentence (`influence_variance`), in a balanced design the variance of the mean
    of the sentences' slopes. `white_variance` is the residual mean square around a line for each sentence and the means of values,
    divided by the observations of a mean.

    Args:
        x: values of the covariate [value].
        sums: of the observations in each cell, or such that sums - counts x means are the clusters' influences times the counts of the
            values [..., cluster, value].
        counts: number of observations in each cell, same shape. Each value must have some.
        own: sums, without levels, and counts of the observations from which the noise is estimated: those of sentences with several
            values, same shape. Clusters without any do not count. `sums` and `counts` if not given.

    Raises:
        ValueError: a value has no observation, or x is empty or not finite.
    """
    xs, totals, sizes = as_floats(x), as_floats(sums), np.asarray(counts, dtype=np.float64)
    of_value = sizes.sum(axis=-2)
    if not (len(xs) and np.isfinite(xs).all()):
        raise ValueError("need at least one value of x, all of them finite")
    if (of_value == 0).any():
        raise ValueError("a value has no observation; remove it")
    means = totals.sum(axis=-2) / of_value
    own_totals, own_sizes = own or (totals, sizes)
    seen = own_sizes > 0
    clusters = seen.any(axis=-1).sum(axis=-1).astype(np.float64)
    weights = _weights(xs)
    influences = ((totals - sizes * means[..., None, :]) / of_value[..., None, :]) @ weights
    rounding = ROUNDING * np.abs(means).max(axis=-1, keepdims=True) * np.abs(weights).sum()
    influences = np.where(np.abs(influences) > rounding, influences, 0.0)
    there = seen.any(axis=-1)
    slope_variance, slope_df = influence_variance(influences, there)
    skewness = skewness_of_sum(influences, there)
    n = seen.sum(axis=-1, keepdims=True)
    off = _from_cluster_mean(divide(own_totals, own_sizes) - means[..., None, :], seen, n)
    at = _from_cluster_mean(np.broadcast_to(xs, totals.shape), seen, n)
    width = (at**2).sum(axis=-1, keepdims=True)
    slopes = np.divide((off * at).sum(axis=-1, keepdims=True), width, out=np.zeros(n.shape), where=width > 0)
    squares = ((off - slopes * at) ** 2).sum(axis=(-1, -2))
    df = np.maximum(n - 2, 0).sum(axis=(-1, -2)) * (clusters - 1) / np.maximum(clusters, 1)
    white = divide(squares, df) * ((own_sizes**2).sum(axis=-2) / own_sizes.sum(axis=-2) ** 2).mean(axis=-1)
    return ClusterSummary(means, white, slope_variance, slope_df, clusters, skewness)


def sentences_interval(slope: float, parts: ClusterSummary) -> tuple[float, float]:
    """95% interval of the slope of one series [1] for other sentences at the same values of x."""
    error, quantile = np.sqrt(parts.slope_variance), t_quantile(float(parts.df[0]))
    low, high = skewed_interval(slope, error, quantile, parts.skewness)
    return float(low[0]), float(high[0])


def _from_cluster_mean(values: Floats, seen: Bools, n: Floats) -> Floats:
    """Values minus their mean in each cluster, 0 for empty cells [..., cluster, value]."""
    sums = np.where(seen, values, 0.0).sum(axis=-1, keepdims=True)
    return np.where(seen, values - sums / np.maximum(n, 1), 0.0)


def gap_ratio(x: ArrayLike) -> float:
    """The largest distance of neighbouring values [value], two or more distinct ones, relative to the median distance."""
    gaps = np.diff(np.unique(as_floats(x)))
    return float(gaps.max() / np.median(gaps))


def trend_of_other_values(x: ArrayLike, parts: ClusterSummary) -> tuple[Floats, Floats, Floats]:
    """Low and high at 95% and p of least-squares slopes, with the values as an independent sample, each [series].

    The variance is clustered by sentences and by values (Cameron, Gelbach and Miller 2011, "Robust Inference With Multiway
    Clustering"): that of the sentences, plus that of the values by the jackknife (MacKinnon and White 1985, HC3), minus that of the
    cells. It is at least as large as each of the two. Degrees of freedom are those of the smaller side, reduced by those of the line.
    """
    xs, ys = as_floats(x), parts.means
    weights = _weights(xs)
    slope = ys @ weights
    leverage = 1 / len(xs) + weights**2 / (weights @ weights)
    off_line = ys - ys.mean(axis=-1, keepdims=True) - slope[..., None] * (xs - xs.mean())
    # A line through two values has leverage 1 and no residuals.
    remaining = np.where(leverage < 1, 1 - leverage, math.nan)
    of_values = ((weights * off_line / remaining) ** 2).sum(axis=-1)
    of_cells = parts.white_variance * (weights @ weights)
    variance = np.maximum(parts.slope_variance + of_values - of_cells, np.maximum(parts.slope_variance, of_values))
    df = np.maximum(np.minimum(parts.df, len(xs) - 2), 1)
    error = np.where(variance > 0, np.sqrt(variance), math.nan)
    half = special.stdtrit(df, 0.975) * error
    return slope - half, slope + half, 2 * special.stdtr(df, -np.abs(slope) / error)


def covariate_effect(sums: ArrayLike, counts: ArrayLike, *, seed: int = 0, level: float = 0.95) -> Estimate:
    """Test whether the means of the values differ by more than sampling noise of the sentences, and by how much.

    Without an effect, the signs of a sentence's deviations from its mean are exchangeable. p flips the signs of whole sentences (all
    patterns of up to 13, else random ones), which allows any dependence within a sentence, such as its own slope. The variance of the
    effects is the mean product of the deviations of different sentences, which is unbiased by the sentences' noise. The interval holds
    the effects under which neither a larger nor a smaller estimate is rare (`_SquareNoise`), and 0 if the test is not significant.

    Args:
        sums: of the observations in each cell [cluster, value].
        counts: number of observations in each cell, same shape.
        seed: of random sign patterns.
        level: of the interval.

    Returns:
        The standard deviation of the values' effects in the population of sentences, 0 if the estimate of the variance is negative.
        NaN below three sentences or two values, and if no sentence has two values.
    """
    parts = effect_parts(sums, counts)
    return effect_of_parts(parts, parts, seed=seed, level=level)


def effect_of_parts(parts: Floats, own: Floats, *, seed: int = 0, level: float = 0.95) -> Estimate:
    """`covariate_effect` from equal shares of the effects plus the sentences' influences, both [cluster, value].

    The test flips `own`: what each sentence contributes by its own observations, equal to `parts` if all have all values.
    """
    check_interrupted()
    n = len(parts)
    if n < 3 or parts.shape[1] < 2 or not np.isfinite(parts).all():
        return Estimate(math.nan)
    p, observed = 1.0, float((own.sum(axis=0) ** 2).sum())

    def is_extreme(patterns: Floats) -> Bools:
        return np.asarray((((1 - 2 * patterns) @ own) ** 2).sum(axis=1) >= observed * (1 - 1e-9))

    if observed > (1e-12 * float(np.abs(own).sum())) ** 2:
        p = float(exchange_p_values(n, seed, is_extreme))
    unit = _unit(parts)
    square = _square(parts / unit)
    ends = _SquareNoise.from_parts(parts / unit).interval(square, p, 1 - level)
    value, low, high = (unit * math.sqrt(max(one, 0.0) / (parts.shape[1] - 1)) for one in (square, *ends))
    return Estimate(value, low, high, p=p)


def p_beyond(parts: Floats, margin: float) -> float:
    """Two-sided p that the value of `effect_of_parts` is at most `margin`; 1 if the estimate is."""
    if not sd_of_parts(parts) > margin:
        return 1.0
    unit = _unit(parts)
    noise, limit = _SquareNoise.from_parts(parts / unit), (parts.shape[1] - 1) * (margin / unit) ** 2
    return min(2 * noise.beyond(_square(parts / unit), limit), 1.0)


def _unit(parts: Floats) -> float:
    """A power of 2, so that no square of `parts` in this unit overflows, or underflows to 0."""
    return math.ldexp(1.0, math.frexp(float(np.abs(parts).max()))[1] - 1)


@dataclass(frozen=True, slots=True)
class _SquareNoise:
    """Error of the estimated sum of squared effects of the values.

    For effects mu with a sampling covariance C, the estimate has a mean of mu'mu, a variance of 4 mu'C mu + 2 tr(C^2) (1 + 1 / (k - 1)),
    the last part for the noise that is subtracted, and a skewness; it is a shifted gamma with these three. The tail probability of its
    normal deviate is that of Student's t, because C is estimated.
    """

    along: float  # variance of the noise along the estimated effects, at least tr(C^2) / tr(C)
    total: float  # variance of the noise: tr(C)
    squares: float  # tr(C^2)
    df: float  # of `along`
    n: int  # clusters

    @classmethod
    def from_parts(cls, parts: Floats) -> _SquareNoise:
        n, n_values = parts.shape
        means, off = parts.sum(axis=0), parts - parts.mean(axis=0)
        along, df = influence_variance(off @ means / (math.sqrt(means @ means) or 1.0), np.ones(n, dtype=np.bool_))
        products = off @ off.T if n < n_values else off.T @ off
        total = n / (n - 1) * float(np.trace(products))
        plain = (n / (n - 1)) ** 2 * float((products**2).sum())
        # The plain trace has the error of C in it.
        squares = (n - 1) ** 2 / ((n - 2) * (n + 1)) * (plain - total**2 / (n - 1))
        squares = min(max(squares, total**2 / (n_values - 1)), total**2)
        return cls(max(float(along), squares / total if total > 0 else 0.0), total, squares, float(df), n)

    def beyond(self, square: float, truth: float) -> float:
        """Probability of an estimate of at least `square` if the sum of squared effects is `truth`."""
        if not self.along > 0:
            return float(truth >= square)
        f, shared = self.n - 1, self.squares
        variance = 4 * truth * self.along + 2 * shared * (1 + 1 / f)
        third = 24 * truth * self.along**2 + 8 * shared**2 / self.total * (1 - 1 / f**2)
        shape = 4 * (variance / third) ** 2 * variance
        at = max(shape + math.sqrt(shape / variance) * (square - truth), 0.0)
        below, above = float(special.gammainc(shape, at)), float(special.gammaincc(shape, at))
        deviate = float(special.ndtri(below)) if below < above else -float(special.ndtri(above))
        return float(special.stdtr(self.df, -deviate))

    def truth(self, square: float, probability: float) -> float:
        """Smallest sum of squared effects for which an estimate of at least `square` has a probability."""
        low, high = 0.0, max(square, 0.0) + self.total
        while self.beyond(square, high) < probability:
            low, high = high, 2 * high
        for _ in range(HALVINGS_OF_SQUARE):
            middle = (low + high) / 2
            low, high = (low, middle) if self.beyond(square, middle) >= probability else (middle, high)
        return high

    def interval(self, square: float, p: float, level: float) -> tuple[float, float]:
        """Ends for the sum of squared effects, outside with probability `level`; the lower is above 0 if p is below `level`."""
        high = self.truth(max(square, 0.0), 1 - level / 2)  # not below that of an estimate of 0
        if p >= level or square <= 0:
            return 0.0, high
        tail = max(level / 2, ABOVE_NONE * self.beyond(square, 0.0))
        return min(self.truth(square, tail), square), high


def effect_sd(sums: ArrayLike, counts: ArrayLike) -> float:
    """The value of `covariate_effect` without interval and test; NaN below two sentences or two values."""
    return sd_of_parts(effect_parts(sums, counts))


def sd_of_parts(parts: Floats) -> float:
    """The value of `effect_of_parts` without interval and test; NaN below two sentences or two values."""
    return math.sqrt(max(_square(parts), 0.0) / (parts.shape[1] - 1)) if min(parts.shape) > 1 else math.nan


def effect_parts(sums: ArrayLike, counts: ArrayLike) -> Floats:
    """Contribution of each sentence to each value's effect [cluster, value]; empty if a value has no data, or no sentence two values."""
    totals, sizes = as_floats(sums), np.asarray(counts, dtype=np.float64)
    totals, sizes = totals[sizes.any(axis=1)], sizes[sizes.any(axis=1)]
    seen = sizes > 0
    if not seen.any(axis=0).all() or not (seen.sum(axis=1) > 1).any():
        return np.empty((len(sizes), 0))
    cells = np.divide(totals, sizes, out=np.zeros_like(totals), where=seen)
    level = cells.sum(axis=1, keepdims=True) / seen.sum(axis=1, keepdims=True)
    # Smaller deviations are rounding errors.
    varies = seen & (np.abs(cells - level) > ROUNDING_SHARE * np.abs(cells).max())
    return np.asarray(sizes * np.where(varies, cells - level, 0.0) / sizes.sum(axis=0), dtype=np.float64)


def _square(parts: Floats) -> float:
    """Sum of the squared effects: products of the deviations of different sentences [cluster, value]."""
    n, effects = len(parts), parts.sum(axis=0)
    return float(n / (n - 1) * (effects @ effects - (parts**2).sum()))
