from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats import sandwich_covariance

from helpers.sampled_cases import briefly
from undertow.stats import MIN_CLUSTERS
from undertow.stats.arrays import Estimate
from undertow.stats.intervals.bounded_mean import wilson_interval
from undertow.stats.intervals.cluster_errors import share_interval
from undertow.stats.intervals.multiway_cluster import CrossedLine, crossed_line, difference_of_ratios, ratio_interval
from undertow.stats.significance.sign_flip import crossed_exchange_p

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def design(n_rows: int, columns: list[int]) -> tuple[Codes, Codes]:
    """Row and column codes of every cell, row by row [item]."""
    return np.repeat(np.arange(n_rows), len(columns)), np.tile(columns, n_rows)


def limits(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def same(one: Estimate, other: Estimate) -> bool:
    return one.n == other.n and bool(
        np.allclose([one.value, one.low, one.high], [other.value, other.low, other.high], rtol=1e-9, equal_nan=True)
    )


def test_pairs_of_one_occupation_have_wilsons_interval() -> None:
    estimate = ratio_interval([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], np.ones(10), np.arange(10), np.zeros(10, dtype=int))
    assert (estimate.value, estimate.n) == (0.3, 10)
    assert limits(estimate) == pytest.approx((0.1078, 0.6032), abs=5e-5)  # Newcombe's textbook numbers for 3 of 10
    turned = ratio_interval([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], np.ones(10), np.zeros(10, dtype=int), np.arange(10))
    assert same(turned, estimate)


def test_pairs_of_one_occupation_have_students_interval_of_a_mean() -> None:
    values = np.array([2.0, -1.0, 4.0, 4.5, 0.0, 3.0])
    estimate = ratio_interval(values, np.ones(6), np.arange(6), np.zeros(6, dtype=int), bounded=False, null=1.0)
    expected = stats.t.interval(0.95, 5, values.mean(), stats.sem(values))
    assert limits(estimate) == pytest.approx(expected)
    assert estimate.p == pytest.approx(stats.ttest_1samp(values, 1.0).pvalue)


def test_rows_of_equal_items_count_once() -> None:
    """Seven columns that repeat one another; the degrees of freedom are of the items and of the rows that add to them."""
    rows, columns = design(8, list(range(7)))
    values = np.repeat([1.0, 5, 2, 8, 3, 3, 9, 1], 7)
    low, high = limits(ratio_interval(values, np.ones(56), rows, columns, bounded=False))
    items, by_row = values.var(ddof=1) / 56, values[::7].var(ddof=1) / 8
    # Columns are alike and add nothing. Items vary about a mean that has a seventh of what rows add.
    variance = items + (by_row - items) / (1 - 1 / 7)
    df = variance**2 / (items**2 / 55 + by_row**2 / 7)
    assert (low + high) / 2 == pytest.approx(4)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(variance))


def test_a_rate_by_rows_that_agree_within() -> None:
    """Two of eight rows say yes throughout, in one column code of four: eight items and not 32."""
    rows, columns = design(8, [0, 0, 0, 0])
    y = np.isin(rows, [1, 4]).astype(float)
    estimate = ratio_interval(y, np.ones(32), rows, columns, null=0.5)
    by_row = 0.25 * 0.75 / 7
    assert limits(estimate) == pytest.approx(share_interval(0.25, by_row, 7))
    z = (special.logit(0.25) - special.logit(0.5)) * 0.25 * 0.75 / math.sqrt(by_row)
    assert estimate.p == pytest.approx(2 * stats.t.sf(abs(z), 7))


def test_items_that_cancel_in_rows_and_columns_are_taken_as_independent() -> None:
    """A chessboard has the same mean in each row and column: rows and columns add nothing."""
    rows, columns = design(6, list(range(6)))
    y = ((rows + columns) % 2).astype(float)
    for one in (rows, np.arange(36)):  # rows of six, or of one
        assert limits(ratio_interval(y, np.ones(36), one, columns)) == pytest.approx(wilson_interval(0.5, 36))
    expected = stats.t.interval(0.95, 35, 0.5, stats.sem(y))
    assert limits(ratio_interval(y, np.ones(36), rows, columns, bounded=False)) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    weights = rng.random((3, 3))[rows // 2, columns // 2]  # of blocks of four squares, which cancel
    weighted = ratio_interval(y * weights, weights, rows, columns)
    for order in (rng.permutation(36) for _ in range(9)):
        assert same(ratio_interval((y * weights)[order], weights[order], rows[order], columns[order]), weighted)


@pytest.mark.parametrize(
    ("share", "n_rows", "columns", "n"),
    [
        (0.0, 7, list(range(8)), 7),
        (1.0, 10, [0, 0, 1, 2, 3, 4, 5], 6),
        (1.0, 9, [0, 0], 9),
        (0.0, 1, list(range(8)), 8),
    ],
)
def test_items_that_all_agree_are_as_many_as_clusters(share: float, n_rows: int, columns: list[int], n: int) -> None:
    """Nothing shows how items of one cluster hang together: each cluster of the side that decides is one item."""
    rows, codes = design(n_rows, columns)
    estimate = ratio_interval(np.full(len(rows), share), np.ones(len(rows)), rows, codes, null=0.5)
    assert limits(estimate) == pytest.approx(wilson_interval(share, n), abs=1e-12)
    assert 0 <= estimate.low <= share <= estimate.high <= 1
    assert estimate.n_clusters == n
    # The score test of a rate of one half.
    assert estimate.p == pytest.approx(2 * stats.norm.sf(math.sqrt(n)))


def test_means_that_do_not_differ_have_a_width_where_it_is_known_how_far_others_may() -> None:
    rows, columns = design(6, list(range(7)))
    values, ones = np.full(42, 0.1), np.ones(42)
    estimate = ratio_interval(values, ones, rows, columns, bounded=False, null=0.0)
    assert limits(estimate) == (estimate.value, estimate.value)
    estimate = ratio_interval(values, ones, rows, columns, bounded=False, span=2.0, null=0.0)
    beyond = 2 * wilson_interval(0, 6)[1]
    assert limits(estimate) == pytest.approx((0.1 - beyond, 0.1 + beyond))
    # An interval that ends at 0 has the quantile of its p: a twentieth is c^2 / (6 + c^2).
    assert estimate.p == pytest.approx(2 * stats.norm.sf(math.sqrt(6 * 0.05 / 0.95)))
    heavy = np.where(rows + columns, 1, 1e20)  # one item outweighs all others
    low, high = limits(ratio_interval(heavy * columns, heavy, rows, columns, bounded=False))
    assert low == high


@pytest.mark.parametrize(
    ("n_rows", "n_columns"), [(1, 1), (5, 20), (70, 5), (2, 2), (5, 1), (1, 5), (MIN_CLUSTERS - 1, MIN_CLUSTERS)]
)
def test_fewer_clusters_than_six_on_the_side_that_decides_have_no_interval_and_no_p(
    n_rows: int, n_columns: int
) -> None:
    rng = np.random.default_rng(5)
    rows, columns = design(n_rows, list(range(n_columns)))
    y, ones = rng.random(len(rows)).round(), np.ones(len(rows))
    line = crossed_line(rng.normal(size=len(rows)), y, rows, columns)
    for found in (
        ratio_interval(y, ones, rows, columns, null=0.5),
        ratio_interval(y, ones, rows, columns, bounded=False, null=0.5),
        difference_of_ratios(y, ones, 1 - y, ones, rows, columns),
        line.slope, line.intercept, line.explained,
    ):  # fmt: skip
        assert np.isnan([found.low, found.high, found.p]).all()
        assert math.isfinite(found.value) or len(rows) == 1


def test_clusters_and_items_that_count_are_counted() -> None:
    """Of ten rows five have an item that counts."""
    rows, columns = design(10, list(range(8)))
    d = (rows < 5).astype(float)
    found = ratio_interval(d * (columns < 3), d, rows, columns)
    assert (found.n, found.n_rows, found.n_columns, found.n_clusters) == (40, 5, 8, 5)
    assert math.isnan(found.low)
    rows, columns = design(3, [0, 1])
    with_nan = ratio_interval([1, 0, 1, 1, 0, 1], [1, 1, math.nan, 1, 1, 1], rows, columns)
    assert same(with_nan, ratio_interval([1, 0, 1, 0, 1], np.ones(5), np.delete(rows, 2), np.delete(columns, 2)))


def test_nothing_counts() -> None:
    for estimate in (
        ratio_interval([1, math.nan], [0, 1], [0, 1], [0, 1]),
        ratio_interval([], [], np.array([], dtype=int), np.array([], dtype=int)),
        difference_of_ratios([1, 0], [1, 1], [1, 1], [0, 0], [0, 1], [0, 1]),
    ):
        assert np.isnan([estimate.value, *limits(estimate)]).all()


def by_statsmodels(fit: OLS, rows: Codes, columns: Codes) -> tuple[float, float]:
    """Variances of cells, rows and columns by statsmodels, put together, with degrees of freedom of those that add."""
    n, cells = len(rows), rows * 1000 + columns
    n_rows, n_columns, n_cells = (len(np.unique(codes)) for codes in (rows, columns, cells))
    row, column, cell, item = (
        float(sandwich_covariance.cov_cluster(fit, codes)[0, 0]) for codes in (rows, columns, cells, np.arange(n))
    )
    assert min(row, column) > cell >= item  # the effects are large: nothing is cut off
    whole = cell + (row - cell) / (1 - 1 / n_columns) + (column - cell) / (1 - 1 / n_rows)
    return whole, whole**2 / (cell**2 / (n_cells - 1) + row**2 / (n_rows - 1) + column**2 / (n_columns - 1))


@pytest.mark.parametrize("is_half", [False, True])
def test_ratios_are_clustered_as_by_statsmodels(is_half: bool) -> None:
    """All items count, or half of them, in every row and column as many: then the mean of these has the ratio's variance."""
    rng = np.random.default_rng(4)
    rows, columns = design(12, [column for column in range(8) for _ in range(2)])
    counted = (rows + columns) % 2 == 0 if is_half else np.ones(len(rows), dtype=bool)
    cells = rng.normal(size=(12, 8))[rows, columns]
    values = 3 + rng.normal(size=12)[rows] + rng.normal(size=8)[columns] + cells + rng.normal(size=len(rows))
    fit = OLS(values[counted], np.ones(counted.sum())).fit()
    variance, df = by_statsmodels(fit, rows[counted], columns[counted])
    estimate = ratio_interval(np.where(counted, values, 99.0), counted, rows, columns, bounded=False, null=2.0)
    assert estimate.value == pytest.approx(fit.params[0])
    assert estimate.n == counted.sum()
    half = stats.t.ppf(0.975, df) * math.sqrt(variance)
    assert limits(estimate) == pytest.approx((estimate.value - half, estimate.value + half))
    assert estimate.p == pytest.approx(2 * stats.t.sf(abs(estimate.value - 2) / math.sqrt(variance), df))


def test_a_difference_of_the_same_items_is_the_mean_of_differences() -> None:
    rng = np.random.default_rng(1)
    rows, columns = design(7, [0, 1, 1, 2, 3])
    first, second = rng.normal(size=(2, len(rows)))
    ones = np.ones(len(rows))
    difference = difference_of_ratios(first, ones, second, ones, rows, columns, bounded=False)
    assert same(difference, ratio_interval(first - second, ones, rows, columns, bounded=False))


def test_a_difference_of_rates_turns_its_sign_and_stays_in_bounds() -> None:
    rng = np.random.default_rng(2)
    rows, columns = design(12, list(range(6)))
    d1, d2 = rng.random((2, 72)) < [[0.9], [0.4]]
    y1, y2 = d1 * (rng.random(72) < 0.2 + 0.6 * (rows < 5)), d2 * (rng.random(72) < 0.5)
    forth = difference_of_ratios(y1, d1, y2, d2, rows, columns)
    back = difference_of_ratios(y2, d2, y1, d1, rows, columns)
    assert forth.value == pytest.approx(y1.sum() / d1.sum() - y2.sum() / d2.sum())
    assert forth.n == back.n == np.count_nonzero(d1 | d2)
    assert -1 < forth.low < forth.value < forth.high < 1
    assert (back.low, back.high, back.p) == pytest.approx((-forth.high, -forth.low, forth.p))
    y = np.arange(36) > 4
    far = difference_of_ratios(y, np.ones(36), np.zeros(36), np.ones(36), *design(6, list(range(6))))
    assert far.value == pytest.approx(31 / 36)
    assert far.low < 31 / 36 < far.high == 1


def test_an_item_that_is_missing_on_one_side_is_left_out_of_both() -> None:
    rows, columns = design(4, [0, 1])
    y1, y2 = np.array([1, 1, 0, 1, math.nan, 0, 1, 1]), np.array([0, 1, 0, math.nan, 1, 0, 0, 1])
    kept = np.isfinite(y1 + y2)
    ones = np.ones(8)
    whole = difference_of_ratios(y1, ones, y2, ones, rows, columns)
    assert whole.n == 6
    assert same(whole, difference_of_ratios(y1[kept], ones[:6], y2[kept], ones[:6], rows[kept], columns[kept]))
    without_denominators = np.where(kept, 1, math.nan)
    assert same(whole, difference_of_ratios(y1 == 1, without_denominators, y2 == 1, ones, rows, columns))


@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 0), (0, 1)])
def test_rates_without_a_change_keep_a_width(one: int, other: int) -> None:
    """Of eight rows none disagrees with the rest on its side; Wilson's upper limit of 0 in 8 is 3.84 / 11.84."""
    rows, columns = design(8, list(range(9)))
    found = difference_of_ratios(np.full(72, one), np.ones(72), np.full(72, other), np.ones(72), rows, columns)
    value, beyond = one - other, 3.8415 / 11.8415
    assert found.value == value
    assert limits(found) == pytest.approx((max(-1, value - beyond), min(1, value + beyond)), abs=1e-5)
    # Of a difference that is as large as can be, the exchange of the eight rows says what there is to say.
    assert found.p == (1 if one == other else 0)


def test_means_without_a_change_have_a_width_where_it_is_known_how_far_others_may() -> None:
    rows, columns = design(6, list(range(6)))
    values, ones = np.random.default_rng(0).random(36), np.ones(36)
    found = difference_of_ratios(values, ones, values, ones, rows, columns, bounded=False)
    assert (found.value, found.low, found.high, found.p) == (0, 0, 0, 1)
    found = difference_of_ratios(values, ones, values, ones, rows, columns, bounded=False, span=2)
    assert limits(found) == pytest.approx((-2 * wilson_interval(0, 6)[1], 2 * wilson_interval(0, 6)[1]))
    assert found.p == 1


def jackknife(of: Callable[[NDArray[np.bool_]], Floats], codes: Codes) -> Floats:
    """Variances by leaving out each cluster [coefficient]."""
    left = np.array([of(codes != one) for one in np.unique(codes)])
    n = len(left)
    found: Floats = (n - 1) / n * ((left - left.mean(axis=0)) ** 2).sum(axis=0)
    return found


def test_a_line_is_numpys_with_a_jackknife_over_rows_and_columns() -> None:
    rng = np.random.default_rng(12)
    rows, columns = design(9, list(range(7)))
    x = 5 + rng.normal(size=9)[rows] + rng.normal(size=7)[columns] + rng.normal(size=63)
    y = 2 + 3 * x + rng.normal(size=9)[rows] + rng.normal(size=7)[columns] + rng.normal(size=63)

    def coefficients(keep: NDArray[np.bool_]) -> Floats:
        slope, intercept = np.polyfit(x[keep], y[keep], 1)
        return np.array([slope, intercept, slope * x[keep].mean()])

    found = crossed_line(x, y, rows, columns)
    values = coefficients(np.ones(63, dtype=bool))
    row, column, cell = (jackknife(coefficients, codes) for codes in (rows, columns, np.arange(63)))
    for at, one in enumerate((found.slope, found.intercept, found.explained)):
        added = max(row[at] - cell[at], 0) / (1 - 1 / 7), max(column[at] - cell[at], 0) / (1 - 1 / 9)
        variance = cell[at] + sum(added)
        free = cell[at] ** 2 / 61 + (added[0] > 0) * row[at] ** 2 / 8 + (added[1] > 0) * column[at] ** 2 / 6
        half = stats.t.ppf(0.975, variance**2 / free) * math.sqrt(variance)
        assert one.value == pytest.approx(values[at])
        assert limits(one) == pytest.approx((values[at] - half, values[at] + half))
        assert one.p == pytest.approx(2 * stats.t.sf(abs(values[at]) / math.sqrt(variance), variance**2 / free))
        assert (one.n, one.n_rows, one.n_columns) == (63, 9, 7)
    assert found.intercept.value + found.explained.value == pytest.approx(y.mean())


def test_a_line_leaves_out_what_is_missing_and_needs_an_x_that_varies() -> None:
    rng = np.random.default_rng(13)
    rows, columns = design(8, list(range(6)))
    x, y = rng.normal(size=48), rng.normal(size=48)
    whole = crossed_line(x, y, rows, columns)
    more = crossed_line([*x, math.nan, 4.0], [*y, 3.0, math.nan], np.append(rows, [0, 0]), np.append(columns, [0, 0]))
    for one, other in zip(parts_of(whole), parts_of(more), strict=True):
        assert same(one, other)
    for level, n in ((np.full(48, 3.0), 48), (np.full(48, math.nan), 0)):
        for one in parts_of(crossed_line(level, y, rows, columns)):
            assert np.isnan([one.value, one.p]).all()
            assert one.n == n
    # A line that all items lie on says nothing of how far others may be from it.
    for slope, intercept in ((2, 1), (0, 0)):
        exact = crossed_line(x, slope * x + intercept, rows, columns)
        assert (exact.slope.value, exact.intercept.value) == pytest.approx((slope, intercept))
        assert np.isnan([exact.slope.low, exact.slope.p, exact.intercept.low]).all()
    # A line that hangs on one row is a line, of which nothing can be told about others.
    alone = crossed_line((rows == 0).astype(float), y, rows, columns)
    assert math.isfinite(alone.slope.value)
    assert math.isnan(alone.slope.low)


def parts_of(line: CrossedLine) -> tuple[Estimate, ...]:
    return line.slope, line.intercept, line.explained


# Of 2,500 runs at 95% the share has a standard error of .44 percent; bands are widened by two of them.
RUNS = 2500
SLACK = 0.009


@pytest.mark.parametrize(
    ("n_rows", "columns", "rate", "counting"),
    briefly(
        [
            (10, [0, 0, *range(1, 19)], 0.25, 0.25),
            (6, list(range(8)), 0.5, 0.5),
            (70, [0], 0.25, 0.5),
            (10, [0, 0, *range(1, 19)], 0.25, 1.0),
            (10, [0, 0, *range(1, 19)], 0.5, 0.5),
        ],
        2,
    ),
)
def test_coin_flips_are_covered(n_rows: int, columns: list[int], rate: float, counting: float) -> None:
    """A model that answers at random has no clusters: its intervals may be neither too short nor much too long."""
    rng = np.random.default_rng(17)
    rows, codes = design(n_rows, columns)
    hits = 0
    for _ in range(RUNS):
        d = rng.random(len(rows)) < counting
        found = ratio_interval(d * (rng.random(len(rows)) < rate), d, rows, codes)
        hits += found.low <= rate <= found.high
    assert 0.94 - SLACK <= hits / RUNS <= 0.985 + SLACK


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [8, pytest.param(62, marks=pytest.mark.soak)])
def test_differences_whose_columns_have_gaps_are_found_in_5_of_100(n_columns: int) -> None:
    """Gaps of columns with a spread of 1 about 0: exchanged rows find a difference of their mean in far more."""
    rng = np.random.default_rng(22)
    rows, codes = design(10, list(range(n_columns)))
    ones, found, alone, held = np.ones(len(rows)), 0, 0, 0
    for _ in range(600):
        y = (rng.random(len(rows)) < special.expit(rng.normal(size=n_columns)[codes])).astype(float)
        estimate = difference_of_ratios(y, ones, 1 - y, ones, rows, codes)
        found += max(estimate.p, crossed_exchange_p((y, ones), (1 - y, ones), rows, codes)) <= 0.05
        alone += crossed_exchange_p((y, ones), (1 - y, ones), rows, np.zeros(len(rows), dtype=int)) <= 0.05
        held += estimate.low <= 0 <= estimate.high
    # Of 600 a share of .06 has a standard error of .01.
    assert found / 600 <= 0.07 + 0.01
    assert held / 600 >= 0.93 - 0.01
    assert alone / 600 > 0.12


def test_wrong_input_is_refused() -> None:
    two = ([0, 1], [0, 1])
    with pytest.raises(ValueError, match="negative"):
        ratio_interval([1, 0], [1, -1], *two)
    with pytest.raises(ValueError, match="0 to d"):
        ratio_interval([1, 1.5], [1, 1], *two)
    with pytest.raises(ValueError, match="0 to d"):
        difference_of_ratios([1, 1], [1, 1], [1, -1], [1, 1], *two)
