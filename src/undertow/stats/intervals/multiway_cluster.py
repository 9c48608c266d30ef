"""Estimates from a crossed design, with errors clustered by rows and by columns.

Ratios, differences of two ratios, and lines. A row is here a name pair, a column an occupation by SOC code. Both are samples, and
intervals and tests generalise to others; with fewer than `MIN_CLUSTERS` of either there are none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import (
    ROUNDING_SHARE,
    Codes,
    Estimate,
    Floats,
    as_floats,
    divide,
    is_constant,
    t_p_value,
    t_quantile,
)
from undertow.stats.context import check_interrupted, only_points
from undertow.stats.intervals.bounded_mean import wilson_interval
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS

EXACT_SHARE = 1e-9
"""Distance from a line, relative to the largest y, below which all items lie on it and the error is unknown."""


@dataclass(frozen=True, slots=True)
class _Items:
    """The items of a variance."""

    influence: Floats  # influence of each item on the estimate; the sum is 0 [item]
    share: Floats  # share of the denominator; the sum is 1 [item]
    ways: tuple[Codes, ...]  # codes from 0 of each item itself, its cell, its row and its column [item]

    def estimate(self, value: float) -> Estimate:
        """An estimate from these items without an interval."""
        return Estimate(value, n=len(self.share), n_rows=_n_clusters(self.ways[2]), n_columns=_n_clusters(self.ways[3]))


def ratio_interval(  # noqa: PLR0913 - the four arrays of the design, and choices that are named at the call
    y: ArrayLike,
    d: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    *,
    bounded: bool = True,
    span: float = 0.0,
    null: float = math.nan,
) -> Estimate:
    """Ratio sum y / sum d of a crossed design, with a 95% interval clustered by rows and by columns.

    The variance is that of Cameron, Gelbach and Miller 2011 ("Robust Inference With Multiway Clustering") in components: that of cells,
    plus the contributions of rows and of columns, each at least 0, of the influences (y - ratio * d) / sum d. If all rows or all columns
    are one cluster, only the other side counts.

    Degrees of freedom are Satterthwaite's, of the cells and of each contributing side. A mean has a t interval. A rate has a t interval
    on the log-odds scale if a side contributes, and Wilson's otherwise. A rate of 0 or 1 has Wilson's interval for as many items as the
    smaller side has clusters, because the dependence within clusters is unknown. In simulations (`tools/validity/checklist.py`) with 6 to
    30 rows, 8 to 62 columns, effects of both, rates up to .97 and missing items, coverage is 93 to 99%.

    Args:
        y: numerator of each item; NaN if missing [item].
        d: denominator of each item: 1 if it counts, 0 if not (y is then ignored); NaN if missing [item].
        rows: cluster of each item on one side, as codes [item].
        columns: cluster of each item on the other side, as codes [item].
        bounded: whether the ratio is a rate, with each y in 0 to d, instead of a mean.
        span: largest possible difference of y / d between two items of a mean (1 for a rate), for the interval if all items agree. That
            interval has no width if span is 0.
        null: the null value of p.

    Returns:
        The estimate, as a share of 1 or in the unit of y. No interval and no p if the deciding side has fewer than `MIN_CLUSTERS`
        clusters.

    Raises:
        ValueError: d is negative, or a rate's y is not in 0 to d.
    """
    check_interrupted()
    numerator, denominator = _numerator(y, d, bounded=bounded), as_floats(d)
    counts = ~np.isnan(numerator) & (denominator > 0)
    numerator, denominator = numerator[counts], denominator[counts]
    if not len(numerator):
        return Estimate(math.nan)
    value, influence, share = _ratio(numerator, denominator)
    ways = np.asarray(rows)[counts], np.asarray(columns)[counts]
    if only_points():
        n_rows, n_columns = (len(np.unique(codes)) for codes in ways)
        return Estimate(value, n=len(share), n_rows=n_rows, n_columns=n_columns)
    items = _items(influence, share, *ways)
    estimate = items.estimate(value)
    if estimate.n_clusters < MIN_CLUSTERS:
        return estimate
    if bounded:
        low, high, p = _rate_interval(min(value, 1.0), float(denominator.sum()), items, null)
    else:
        low, high, p = _mean_interval(estimate, items, span, null)
    return replace(estimate, low=low, high=high, p=p)


def difference_of_ratios(  # noqa: PLR0913, PLR0917 - two ratios over one design
    y1: ArrayLike,
    d1: ArrayLike,
    y2: ArrayLike,
    d2: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    *,
    bounded: bool = True,
    span: float = 0.0,
) -> Estimate:
    """Difference of two ratios over the same items, the first minus the second, with a 95% interval clustered both ways.

    An item that is missing on either side is excluded from both; it may count on one side only. The interval is a t interval from the
    differences of the influences, as in `ratio_interval`, within -1 and 1 for rates; p tests no difference. If all items agree on each
    side, or none differs between the sides, the interval of two rates has the width of Wilson's for a rate of 0 among as many items as
    the smaller side has clusters. Arguments are those of `ratio_interval`, for each side.

    Returns:
        The difference, as a share of 1 or in the unit of y; `n` counts the items of either side. NaN if a ratio has no items. No
        interval and no p if the deciding side has fewer than `MIN_CLUSTERS` clusters.

    Raises:
        ValueError: as `ratio_interval`.
    """
    check_interrupted()
    designs = [(_numerator(y, d, bounded=bounded), as_floats(d)) for y, d in ((y1, d1), (y2, d2))]
    scored = ~np.isnan(designs[0][0]) & ~np.isnan(designs[1][0])
    counts = scored & ((designs[0][1] > 0) | (designs[1][1] > 0))
    sides = [(numerator[counts], denominator[counts]) for numerator, denominator in designs]
    if not all(denominator.any() for _, denominator in sides):
        return Estimate(math.nan, n=int(counts.sum()))
    (value1, influence1, share1), (value2, influence2, share2) = (_ratio(*side) for side in sides)
    value = value1 - value2
    of_row, of_column = np.asarray(rows)[counts], np.asarray(columns)[counts]
    items = _items(influence1 - influence2, (share1 + share2) / 2, of_row, of_column)
    estimate = items.estimate(value)
    if only_points() or estimate.n_clusters < MIN_CLUSTERS:
        return estimate
    low, high, p = _mean_interval(estimate, items, 1.0 if bounded else span, 0.0)
    if bounded:
        low, high = max(low, -1.0), min(high, 1.0)
    return replace(estimate, low=low, high=high, p=p)


@dataclass(frozen=True, slots=True)
class CrossedLine:
    """A regression line over the items of a crossed design; each coefficient has an interval and p, clustered both ways.

    The slope is the change of y per unit of x, `explained` the slope times the mean of x; plus the intercept it is the mean of y.
    """

    slope: Estimate
    intercept: Estimate
    explained: Estimate


def crossed_line(x: ArrayLike, y: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> CrossedLine:
    """Least-squares line of y [item] on x [item] over the items of a crossed design, whose rows and columns are codes [item].

    The variances are those of `ratio_interval`, of jackknife influences on each coefficient, because a cluster far from the mean of x
    pulls the line towards itself. All null values are 0.

    Returns:
        The line over the items with both values (not NaN). NaN if x is constant. No interval and no p if the deciding side has fewer
        than `MIN_CLUSTERS` clusters, the line depends on one of them, or all items lie on it.
    """
    check_interrupted()
    xs, ys = as_floats(x), as_floats(y)
    seen = ~np.isnan(xs) & ~np.isnan(ys)
    xs, ys = xs[seen], ys[seen]
    if len(xs) < 2 or is_constant(xs):
        return CrossedLine(*[Estimate(math.nan, n=len(xs))] * 3)
    centre = xs.mean()  # far from 0, squares would lose precision
    values = _line_of(_moments(xs - centre, ys, np.zeros(len(xs), dtype=np.int64)), centre)[:, 0]
    items = _items(np.zeros(len(xs)), np.full(len(xs), 1 / len(xs)), np.asarray(rows)[seen], np.asarray(columns)[seen])
    plain = [items.estimate(float(value)) for value in values]
    beside = np.abs(ys - values[1] - values[0] * xs).max()
    if only_points() or plain[0].n_clusters < MIN_CLUSTERS or beside <= EXACT_SHARE * np.abs(ys).max():
        return CrossedLine(*plain)
    for at, of_one in enumerate(_line_parts(xs - centre, ys, items, centre)):
        if np.isfinite(of_one[0]).all():
            variance, df, _ = _combine(of_one, len(xs) - 2.0)
            low, high, p = _t_interval(plain[at].value, variance, df, 0.0)
            plain[at] = replace(plain[at], low=low, high=high, p=p)
    return CrossedLine(*plain)


def _ratio(numerator: Floats, denominator: Floats) -> tuple[float, Floats, Floats]:
    """A ratio, its influences [item] and the shares of its denominator [item]."""
    total = float(denominator.sum())
    value = float(numerator.sum()) / total
    moved = numerator - value * denominator
    moved[np.abs(moved) <= ROUNDING_SHARE * abs(value) * denominator] = 0.0
    return value, moved / total, denominator / total


def _items(influence: Floats, share: Floats, rows: Codes, columns: Codes) -> _Items:
    of_row, of_column = (np.unique(codes, return_inverse=True)[1] for codes in (rows, columns))
    of_cell = np.unique(of_row * _n_clusters(of_column) + of_column, return_inverse=True)[1]
    return _Items(influence, share, (np.arange(len(share)), of_cell, of_row, of_column))


def _rate_interval(value: float, total: float, items: _Items, null: float) -> tuple[float, float, float]:
    """Interval and p of a rate.

    Wilson's if no side contributes to the variance of independent items; otherwise a t interval of log-odds, which has a better coverage
    for skewed rates of clusters near 0 and 1. If all items agree, each cluster of the smaller side counts as one item.
    """
    if value in (0.0, 1.0):
        return _wilson(value, items.estimate(value).n_clusters, math.inf, null)
    # The variance of independent binary items follows from the rate, so its degrees of freedom are infinite.
    variance, df, is_clustered = _combine(_parts(items), math.inf)
    binomial = value * (1 - value) / total / (1 - float(items.share @ items.share))
    if not is_clustered:
        n = total / max(variance / binomial, 1.0)
        return _wilson(value, n, df, null)
    error = math.sqrt(max(variance, binomial)) / (value * (1 - value))
    log_odds, half = float(special.logit(value)), t_quantile(df) * error
    p = t_p_value((log_odds - float(special.logit(null))) / error, df) if 0 < null < 1 else math.nan
    return float(special.expit(log_odds - half)), float(special.expit(log_odds + half)), p


def _wilson(value: float, n: float, df: float, null: float) -> tuple[float, float, float]:
    """Wilson's interval, and the two-sided p of the score test that it inverts."""
    p = t_p_value((value - null) / math.sqrt(null * (1 - null) / n), df) if 0 < null < 1 else math.nan
    return *wilson_interval(value, n, t_quantile(df)), p


def _t_interval(value: float, variance: float, df: float, null: float) -> tuple[float, float, float]:
    """Symmetric interval, and p of the null value."""
    half = t_quantile(df) * math.sqrt(variance)
    if math.isnan(null):
        p = math.nan
    elif variance == 0:
        p = 1.0 if value == null else 0.0
    else:
        p = t_p_value((value - null) / math.sqrt(variance), df)
    return value - half, value + half, p


def _mean_interval(estimate: Estimate, items: _Items, span: float, null: float) -> tuple[float, float, float]:
    """Interval and p of a mean; if all clusters agree, Wilson's upper limit of 0 of n bounds the share of clusters that differ."""
    value = estimate.value
    variance, df, _ = _combine(_parts(items), len(items.share) - 1.0)
    low, high, p = _t_interval(value, variance, df, null)
    if low < high or not span:
        return low, high, p
    n = estimate.n_clusters
    half = span * wilson_interval(0.0, n)[1]
    share = abs(value - null) / span if not math.isnan(null) else 0.0
    # With share = c^2 / (n + c^2), c is the quantile of the interval that ends at the null value.
    c = math.sqrt(n * share / (1 - share)) if share < 1 else math.inf
    return value - half, value + half, math.nan if math.isnan(null) else 2 * float(special.ndtr(-c))


_Parts: TypeAlias = tuple[Sequence[float], Sequence[int], Sequence[float]]
"""Variances of an estimate if items, cells, rows or columns are independent; the number of each; and the sums of the squared shares of
rows and of columns, 1 / n for n equal ones."""


def _parts(items: _Items) -> _Parts:
    shares = [np.bincount(codes, weights=items.share) for codes in items.ways]
    squares = [float(one @ one) for one in shares]
    variances = []
    for codes, square in zip(items.ways, squares, strict=True):
        sums = np.bincount(codes, weights=items.influence)
        # Influences are relative to the estimate instead of the truth. With n equal clusters the factor is n / (n - 1); the variance is
        # 0 for one cluster, or one that dominates all others.
        variances.append(float(sums @ sums) / (1 - square) if len(sums) > 1 and square < 1 else 0.0)
    return variances, list(map(len, shares)), squares[2:]


def _combine(parts: _Parts, item_df: float) -> tuple[float, float, bool]:
    """Variance in a crossed design, its degrees of freedom, and whether clusters contribute to the variance.

    Influences are relative to the sample mean, so in a full design of R rows and C columns the variance of cells is too small by 1 / C of
    the rows' and 1 / R of the columns' contribution, and contributions are scaled up accordingly. Degrees of freedom are Satterthwaite's
    (1946) for the sum of the variances of cells and of each contributing side.
    """
    (alone, cells, *sides), (n, n_cells, *n_sides), of_sides = parts
    base, base_df, is_clustered = alone, item_df, False
    if n_cells < n and cells > alone:
        base, base_df, is_clustered = cells, n_cells - 1.0, True
    whole, squares = base, base**2 / base_df
    if min(n_sides) > 1:
        for side, n_side, others in zip(sides, n_sides, reversed(of_sides), strict=True):
            if side > base * (1 + ROUNDING_SHARE):
                is_clustered = True
                whole += (side - base) / max(1 - others, ROUNDING_SHARE)
                squares += side**2 / (n_side - 1)
    df = whole**2 / squares if squares > 0 else math.inf
    return whole, max(df, 1.0), is_clustered


def _moments(x: Floats, y: Floats, codes: Codes) -> Floats:
    """Number, sums, sum of squares and of products of each cluster [moment, cluster]."""
    return np.stack([np.bincount(codes, weights=one) for one in (np.ones(len(x)), x, y, x * x, x * y)])


def _line_of(moments: Floats, centre: float) -> Floats:
    """Slope, intercept, and slope times mean of x [coefficient, sample], of moments of x minus the centre; NaN if x is constant."""
    n, x, y, xx, xy = moments
    spread = xx - x * x / n
    varies = spread > ROUNDING_SHARE * np.maximum(xx, 1e-300)
    slope = divide(xy - x * y / n, np.where(varies, spread, 0.0))
    explained = slope * (x / n + centre)
    return np.stack([slope, y / n - explained, explained])


def _line_parts(x: Floats, y: Floats, items: _Items, centre: float) -> list[_Parts]:
    """Jackknife variances of the coefficients; NaN if the data without a cluster have no line."""
    whole = _moments(x, y, np.zeros(len(x), dtype=np.int64))
    variances, counts = [], []
    for codes in items.ways:
        n = _n_clusters(codes)
        counts.append(n)
        if n == 1:
            variances.append(np.zeros(3))
            continue
        left = _line_of(whole - _moments(x, y, codes), centre)
        variances.append((n - 1) / n * ((left - left.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    squares = 1 / counts[2], 1 / counts[3]
    return [(of_one.tolist(), counts, squares) for of_one in np.stack(variances).T]


def _n_clusters(codes: Codes) -> int:
    """Number of clusters of consecutive codes [item]."""
    return int(codes.max()) + 1


def _numerator(y: ArrayLike, d: ArrayLike, *, bounded: bool) -> Floats:
    """The numerator of each item [item]: NaN if the item is missing, 0 if it does not count."""
    numerator, denominator = as_floats(y), as_floats(d)
    if (denominator < 0).any():
        raise ValueError("no denominator may be negative")
    numerator = np.where(denominator == 0, 0.0, numerator + 0 * denominator)
    if bounded and ((numerator < 0) | (numerator > denominator)).any():
        raise ValueError("the numerator of a rate must be in 0 to d for each item")
    return numerator
