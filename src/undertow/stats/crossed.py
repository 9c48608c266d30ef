"""Numbers of a crossed design, whose items share their row with some and their column with others.

Ratios with intervals clustered both ways, differences of two ratios, and correlations over columns that come in clusters. Arrays
in, numbers out; knows nothing about what a row (here: a name pair) or a column (here: an occupation, by its SOC code) is. Rows and
columns are samples of others, and intervals are about all of those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from undertow.stats.doubles import outside, usable
from undertow.stats.points import only_points
from undertow.stats.rates import wilson_interval

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

N_SHUFFLES = 10_000
"""Permutations behind a p-value."""
FEWEST_COLUMNS = 4
"""Of three points r says nothing, and leaving one of them out leaves a line."""

# Numbers that are equal on paper and were summed in another order differ by some 1e-16 of their size. What is nearer than this
# share of their size is a tie, and counts as "at least as extreme".
ROUNDING_SHARE = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number over items.

    Attributes:
        value: the ratio, mean or difference; NaN where no item counts.
        low, high: interval of `value`; NaN where nothing can be told about others.
        n: items that count.
    """

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Correlation:
    """A correlation over columns.

    Attributes:
        r: Pearson correlation; NaN below four columns or clusters, or where a side is constant.
        low, high: 95% interval of r over clusters like these; NaN where r is NaN or 1 or -1, or hangs on one cluster.
        p: two-sided, by shuffling whole clusters; NaN where r is NaN.
        n: columns that have both numbers.
    """

    r: float
    low: float
    high: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class _Items:
    """Items that count, as the variance of a number sees them.

    Attributes:
        influence: how far each item moves the number; the sum is 0 [item].
        share: of the denominator; the sum is 1 [item].
        rows, columns: clusters, as codes from 0 that leave none out [item].
        cells: clusters of items whose row and column are the same, likewise [item].
    """

    influence: Floats
    share: Floats
    rows: Codes
    columns: Codes
    cells: Codes


def ratio_interval(  # noqa: PLR0913 - the four arrays of the design, and two choices that are named at the call
    y: ArrayLike,
    d: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    level: float = 0.95,
    *,
    bounded: bool = True,
) -> Estimate:
    """Ratio sum y / sum d of a crossed design, with an interval clustered by rows and by columns.

    The variance is that of Cameron, Gelbach and Miller 2011 ("Robust Inference With Multiway Clustering"): by rows, plus by
    columns, less by cells, each of the influences (y - ratio * d) / sum d, and never below that of independent items or cells.
    Where all rows or all columns are one, the other side decides alone. A side of two to five clusters that matters says too
    little about others, and the interval falls short (80 to 92% for 95%). Degrees of freedom are those of what clusters add to
    independent items, so that few clusters widen an interval as far as they matter. A rate has Wilson's interval at the
    effective number of items, which stays within 0 and 1 and keeps a width where all items agree; a mean has a t interval.

    Args:
        y: numerator of each item; NaN where unscored [item].
        d: denominator of each item: 1 where it counts, 0 where it does not and y is not looked at; NaN where unscored [item].
        rows: cluster of each item on one side, as codes [item].
        columns: cluster of each item on the other side, as codes [item].
        level: confidence level, in 0 to 1.
        bounded: whether the ratio is a rate, with each y in 0 to d; a mean of any numbers otherwise.

    Returns:
        The estimate, as a share of 1 or in the unit of y. A mean of items that all share one row and one column, and a mean
        of a single item, have no interval; a rate of those has that of one item.

    Raises:
        ValueError: shapes differ, codes are not whole numbers, a number is infinite, d is negative, a rate's y is not in 0 to
            d, or level is not between 0 and 1.
    """
    _check_level(level)
    numerator, denominator, row, column = _checked_design(y, d, rows, columns)
    counts = ~np.isnan(numerator) & (denominator > 0)
    numerator, denominator = numerator[counts], denominator[counts]
    if bounded:
        _check_rate(numerator, denominator)
    if not len(numerator):
        return Estimate(math.nan, math.nan, math.nan, 0)
    value, influence, share = _ratio(numerator, denominator)
    if only_points():
        return Estimate(value, math.nan, math.nan, len(numerator))
    items = _items(influence, share, row[counts], column[counts])
    interval = (
        _wilson_interval(value, float(denominator.sum()), items, level) if bounded else _t_interval(value, items, level)
    )
    return Estimate(value, *interval, len(numerator))


def difference_of_ratios(  # noqa: PLR0913, PLR0917 - two ratios over one design
    y1: ArrayLike,
    d1: ArrayLike,
    y2: ArrayLike,
    d2: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    *,
    bounded: bool = True,
) -> Estimate:
    """Difference of two ratios over the same items, the first less the second, with a 95% interval clustered both ways.

    An item that is unscored on either side is left out of both, so that like is compared with like; one may still count on
    one side only. The interval is a t interval from the differences of the influences, as `ratio_interval` describes, and for
    rates it stays within -1 and 1. Where all items agree on each side, or none differs between the sides, that of two rates
    is as wide as Wilson's for a rate of 0 among as many items, the share that may still differ in others.

    Args:
        y1: numerator of each item for the first ratio, NaN where unscored [item].
        d1: its denominator, as in `ratio_interval` [item].
        y2: numerator of each item for the second ratio, likewise [item].
        d2: its denominator [item].
        rows: cluster of each item on one side, as codes [item].
        columns: cluster of each item on the other side, as codes [item].
        bounded: whether both are rates, with each y in 0 to its d; means of any numbers otherwise.

    Returns:
        The difference, as a share of 1 or in the unit of y; `n` is of the items that count on either side. NaN where either
        ratio has no items. Items that all share one row and one column have no interval.

    Raises:
        ValueError: as `ratio_interval`.
    """
    first, second = _checked_design(y1, d1, rows, columns), _checked_design(y2, d2, rows, columns)
    scored = ~np.isnan(first[0]) & ~np.isnan(second[0])
    counts = scored & ((first[1] > 0) | (second[1] > 0))
    sides = [(numerator[counts], denominator[counts]) for numerator, denominator, *_ in (first, second)]
    if bounded:
        for side in sides:
            _check_rate(*side)
    n = int(counts.sum())
    if not all(denominator.any() for _, denominator in sides):
        return Estimate(math.nan, math.nan, math.nan, n)
    (value1, influence1, share1), (value2, influence2, share2) = (_ratio(*side) for side in sides)
    if only_points():
        return Estimate(value1 - value2, math.nan, math.nan, n)
    items = _items(influence1 - influence2, (share1 + share2) / 2, first[2][counts], first[3][counts])
    value = value1 - value2
    low, high = _t_interval(value, items, 0.95)
    if bounded and low == high:
        fewest = min(float(denominator.sum()) for _, denominator in sides)
        half = wilson_interval(0.0, fewest, _t_quantile(math.inf, 0.95))[1]
        low, high = value - half, value + half
    if bounded and not math.isnan(low):
        low, high = max(low, -1.0), min(high, 1.0)
    return Estimate(value, low, high, n)


def correlation(x: ArrayLike, y: ArrayLike, clusters: ArrayLike, seed: int) -> Correlation:
    """Pearson correlation over columns, some of which belong together.

    The interval is Fisher's z with the variance of leaving out each cluster in turn (jackknife), at a t quantile of one
    degree of freedom less than there are clusters. For p, whole clusters of y change places with others of as many columns,
    and columns change places within their cluster, so that no cluster is torn apart and none must be filled up; a cluster
    that is the only one of its size is shuffled within itself alone, which finds less and never too much.

    Args:
        x: one number for each column, NaN where there is none [column].
        y: likewise [column].
        clusters: cluster of each column, as codes [column].
        seed: of the permutations.

    Returns:
        The correlation. Columns without both numbers are left out.

    Raises:
        ValueError: shapes differ, codes are not whole numbers, or a number is infinite.
    """
    xs, ys, codes = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), _codes(clusters)
    if xs.ndim != 1 or not xs.shape == ys.shape == codes.shape:
        raise ValueError(
            f"x, y and clusters must be vectors of one length; got {xs.shape}, {ys.shape} and {codes.shape}"
        )
    _check_no_infinite(xs, ys)
    seen = ~np.isnan(xs) & ~np.isnan(ys)
    xs, ys = usable(xs[seen]), usable(ys[seen])
    _, of, sizes = np.unique(codes[seen], return_inverse=True, return_counts=True)
    n = len(xs)
    if n < FEWEST_COLUMNS or len(sizes) < FEWEST_COLUMNS or _is_constant(xs) or _is_constant(ys):
        return Correlation(math.nan, math.nan, math.nan, math.nan, n)
    in_x, in_y = _standardised(xs), _standardised(ys)
    r = float(np.clip(in_x @ in_y, -1.0, 1.0))
    if only_points():
        return Correlation(r, math.nan, math.nan, math.nan, n)
    shuffled = np.abs(in_y[_cluster_orders(of, np.random.default_rng(seed))] @ in_x)  # [order]
    hits = np.count_nonzero(shuffled >= abs(r) - ROUNDING_SHARE)
    return Correlation(r, *_jackknife_interval(in_x, in_y, of), (1 + hits) / (1 + N_SHUFFLES), n)


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
    return _Items(influence, share, of_row, of_column, of_cell)


def _wilson_interval(value: float, total: float, items: _Items, level: float) -> tuple[float, float]:
    """Wilson's interval of a rate, for as many independent items as have the variance that the clusters say.

    Where all items agree, nothing tells what the clusters add, and they count as independent; one cell counts as one item.
    """
    if _n_clusters(items.cells) == 1 or float(items.share @ items.share) >= 1:
        n, df = 1.0, math.inf
    else:
        # The variance of independent yes and no follows from the rate, and has no degrees of freedom to lose.
        variance, df = _clustered_variance(items, item_df=math.inf)
        binomial = value * (1 - value) / total / (1 - float(items.share @ items.share))
        n = total / max(variance / binomial, 1.0) if binomial > 0 else total
    return wilson_interval(min(value, 1.0), n, _t_quantile(df, level))  # a sum may round to more than all


def _t_interval(value: float, items: _Items, level: float) -> tuple[float, float]:
    """Symmetrical interval of a mean; NaN where all items are of one cell."""
    if _n_clusters(items.cells) == 1:
        return math.nan, math.nan
    variance, df = _clustered_variance(items, item_df=len(items.share) - 1)
    half = _t_quantile(df, level) * math.sqrt(variance)
    return value - half, value + half


def _clustered_variance(items: _Items, item_df: float) -> tuple[float, float]:
    """Variance of the sum of the influences with its degrees of freedom, for items of more than one cell.

    What cells add to items, and rows and columns to cells, has the degrees of freedom of these clusters, and the whole has
    those that Satterthwaite 1946 gives a sum. They are of what seems to be added and not of the terms of the formula: a row
    variance that is no more than chance would otherwise widen the intervals of independent items.
    """
    alone = _variance(items, np.arange(len(items.share)))
    base = max(alone, _variance(items, items.cells))
    sides = [(_variance(items, codes) - base, _n_clusters(codes)) for codes in (items.rows, items.columns)]
    added = [(base - alone, _n_clusters(items.cells)), *sides]
    whole = alone + sum(max(part, 0.0) for part, _ in added)
    if whole == 0:
        return 0.0, math.inf
    squares = alone**2 / item_df + sum(part**2 / (n - 1) for part, n in added if part > 0)
    df = whole**2 / squares if squares > 0 else math.inf
    return max(base, base + sum(part * _trust(part, n) for part, n in sides)), df


def _trust(part: float, n_clusters: int) -> float:
    """How much of what a side adds to the cells is believed: all of it, less where it seems to take away, and is of few clusters.

    A side that seems to vary less than cells does so by chance, and by chance the other one seems to vary more; but where
    the other one does matter, columns that share their rows vary too little, the more so the fewer they are. By simulation,
    counting it in full leaves 90% intervals of 95% with 70 rows that matter much and 3 columns, and leaving it out
    makes those of independent items cover 98% with 5 rows and 8 columns; this has 94% and 97%.
    """
    return 1.0 if part > 0 else max(0.0, 1 - 2 / n_clusters)


def _variance(items: _Items, codes: Codes) -> float:
    """Variance of the sum of the influences if clusters are independent: unbiased for equal items, 0 for one cluster."""
    shares = np.bincount(codes, weights=items.share)
    squares = float(shares @ shares)
    if _n_clusters(codes) == 1 or squares >= 1:  # one cluster, or one beside which the others are rounding
        return 0.0
    sums = np.bincount(codes, weights=items.influence)
    # Influences are about the estimate and not the truth. With n clusters of one size this is the familiar n / (n - 1).
    return float(sums @ sums) / (1 - squares)


def _n_clusters(codes: Codes) -> int:
    """Clusters of codes that leave none out [item]."""
    return int(codes.max()) + 1


def _t_quantile(df: float, level: float) -> float:
    tail = (1 + level) / 2
    return float(special.ndtri(tail) if math.isinf(df) else special.stdtrit(df, tail))


def _cluster_orders(of: Codes, rng: np.random.Generator) -> Codes:
    """Random orders [order, column] that put whole clusters in the places of clusters of their size, in any inner order.

    clusters  a a b c c        a <-> c, within themselves as well; b stays, being the only one of its size
    columns   0 1 2 3 4   -->  4 3 2 0 1
    """
    by_cluster = np.argsort(of, kind="stable")
    sizes = np.bincount(of)
    starts = np.cumsum(sizes) - sizes
    orders = np.empty((N_SHUFFLES, len(of)), dtype=np.int64)
    for size in np.unique(sizes):
        alike = starts[sizes == size]
        places = by_cluster[alike[:, np.newaxis] + np.arange(size)]  # [cluster, member]
        drawn = rng.permuted(np.tile(np.arange(len(alike)), (N_SHUFFLES, 1)), axis=1)  # [order, cluster]
        moved = rng.permuted(places[drawn], axis=2)  # [order, cluster, member]
        orders[:, places.ravel()] = moved.reshape(N_SHUFFLES, -1)
    return orders


def _jackknife_interval(in_x: Floats, in_y: Floats, of: Codes) -> tuple[float, float]:
    """95% interval of r by leaving out each cluster, on the scale of Fisher's z, where r is about normal; NaN if z is not finite.

    Cluster-wise bootstrap percentiles fall short with 20 columns, and Fisher's own variance knows no clusters.
    """
    n_clusters = _n_clusters(of)
    keeps = of != np.arange(n_clusters)[:, np.newaxis]  # [cluster, column]
    n = keeps.sum(axis=1)
    mean_x, mean_y = keeps @ in_x / n, keeps @ in_y / n
    squares_x = keeps @ in_x**2 - n * mean_x**2
    squares_y = keeps @ in_y**2 - n * mean_y**2
    products = keeps @ (in_x * in_y) - n * mean_x * mean_y
    # Columns were standardised to a sum of squares of 1, so what is left of a constant side is rounding.
    if min(squares_x.min(), squares_y.min()) <= ROUNDING_SHARE:
        return math.nan, math.nan
    without = products / np.sqrt(squares_x * squares_y)
    r = float(in_x @ in_y)
    if max(abs(r), float(np.abs(without).max())) >= 1 - ROUNDING_SHARE:
        return math.nan, math.nan
    z = np.arctanh(without)
    error = math.sqrt((n_clusters - 1) / n_clusters * float(((z - z.mean()) ** 2).sum()))
    half = _t_quantile(n_clusters - 1, 0.95) * error
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def _standardised(values: Floats) -> Floats:
    centred = values - values.mean()
    standardised: Floats = centred / np.linalg.norm(centred)
    return standardised


def _is_constant(values: Floats) -> bool:
    """Whether values [column] differ by no more than rounding."""
    return float(np.ptp(values)) <= ROUNDING_SHARE * float(np.abs(values).max())


def _checked_design(
    y: ArrayLike, d: ArrayLike, rows: ArrayLike, columns: ArrayLike
) -> tuple[Floats, Floats, Codes, Codes]:
    """Numerator, denominator and codes; the numerator is NaN where the item is unscored, and 0 where it does not count."""
    numerator, denominator = np.asarray(y, dtype=np.float64), np.asarray(d, dtype=np.float64)
    row, column = _codes(rows), _codes(columns)
    shapes = [array.shape for array in (numerator, denominator, row, column)]
    if numerator.ndim != 1 or len(set(shapes)) > 1:
        raise ValueError(f"y, d, rows and columns must be vectors of one length; got {shapes}")
    _check_no_infinite(numerator, denominator)
    if (denominator < 0).any():
        raise ValueError("no denominator may be negative")
    numerator, denominator = usable(numerator), usable(denominator)
    return np.where(denominator == 0, 0.0, numerator + 0 * denominator), denominator, row, column


def _check_rate(numerator: Floats, denominator: Floats) -> None:
    if ((numerator < 0) | (numerator > denominator)).any():
        raise ValueError("the numerator of a rate must be in 0 to d for each item")


def _codes(codes: ArrayLike) -> Codes:
    found = np.asarray(codes)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"codes must be whole numbers; got {found.dtype}")
    return found.astype(np.int64)


def _check_no_infinite(*arrays: Floats) -> None:
    if any(outside(values).any() for values in arrays):
        raise ValueError("numbers must be finite, or NaN where there are none")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1; got {level}")
