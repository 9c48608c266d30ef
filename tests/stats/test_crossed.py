"""Crossed designs: intervals by hand, against statsmodels and by simulation; sign flips and correlations by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats import sandwich_covariance

from undertow.stats import crossed
from undertow.stats.crossed import (
    Estimate,
    correlation,
    difference_of_ratios,
    ratio_interval,
)

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def design(n_rows: int, columns: list[int]) -> tuple[Codes, Codes]:
    """Row and column codes of every cell, row by row [item]."""
    return np.repeat(np.arange(n_rows), len(columns)), np.tile(columns, n_rows)


def wilson(value: float, n: float, t: float = stats.norm.ppf(0.975)) -> tuple[float, float]:
    """The rates p for which the estimate is t standard errors of p away, as roots of a square equation."""
    roots = np.roots([1 + t**2 / n, -(2 * value + t**2 / n), value**2])
    return float(roots.min()), float(roots.max())


def limits(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def same(one: Estimate, other: Estimate) -> bool:
    return one.n == other.n and bool(
        np.allclose([one.value, one.low, one.high], [other.value, other.low, other.high], rtol=1e-9, equal_nan=True)
    )


# Ratios by hand ------------------------------------------------------------------------------------------------------


def test_pairs_of_one_occupation_have_wilsons_interval() -> None:
    estimate = ratio_interval([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], np.ones(10), np.arange(10), np.zeros(10, dtype=int))
    assert (estimate.value, estimate.n) == (0.3, 10)
    assert limits(estimate) == pytest.approx(
        (0.1078, 0.6032), abs=5e-5
    )  # Newcombe's and others' textbook numbers for 3 of 10
    turned = ratio_interval([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], np.ones(10), np.zeros(10, dtype=int), np.arange(10))
    assert same(turned, estimate)


def test_pairs_of_one_occupation_have_students_interval_of_a_mean() -> None:
    values = np.array([2.0, -1.0, 4.0, 4.5, 0.0])
    estimate = ratio_interval(values, np.ones(5), np.arange(5), np.zeros(5, dtype=int), bounded=False)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert limits(estimate) == pytest.approx(expected)


def test_rows_of_equal_items_count_once() -> None:
    """Three columns that repeat one another; the degrees of freedom are of what the rows add, and nearly theirs."""
    rows, columns = design(8, [0, 1, 2])
    values = np.repeat([1.0, 5, 2, 8, 3, 3, 9, 1], 3)
    low, high = limits(ratio_interval(values, np.ones(24), rows, columns, bounded=False))
    items, whole = values.var(ddof=1) / 24, values[::3].var(ddof=1) / 8
    df = whole**2 / (items**2 / 23 + (whole - items) ** 2 / 7)
    # Columns are alike: they vary less than items would by chance, and with three of them a third of that is taken back.
    assert (low + high) / 2 == pytest.approx(4)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(whole - items / 3))


def test_a_rate_by_rows_that_agree_within() -> None:
    """Two of five rows say yes throughout, in one column code of four: five items and not twenty."""
    rows, columns = design(5, [0, 0, 0, 0])
    y = np.isin(rows, [1, 4]).astype(float)
    estimate = ratio_interval(y, np.ones(20), rows, columns)
    items, cells = 0.24 / 19, 0.24 / 4
    df = cells**2 / ((cells - items) ** 2 / 4)
    assert limits(estimate) == pytest.approx(wilson(0.4, 20 * items / cells, stats.t.ppf(0.975, df)))


def test_items_that_cancel_in_rows_and_columns_are_taken_as_independent() -> None:
    """A chessboard has the same mean in each row and column: the matrix gives less than nothing."""
    rows, columns = design(6, [0, 1, 2, 3])
    y = ((rows + columns) % 2).astype(float)
    assert limits(ratio_interval(y, np.ones(24), rows, columns)) == pytest.approx(wilson(0.5, 24))
    expected = stats.t.interval(0.95, 23, 0.5, stats.sem(y))
    assert limits(ratio_interval(y, np.ones(24), rows, columns, bounded=False)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "n_rows", "columns"), [(0.0, 5, list(range(8))), (1.0, 10, [0, 0, 1]), (1.0, 4, [0])]
)
def test_items_that_all_agree_keep_a_width(share: float, n_rows: int, columns: list[int]) -> None:
    rows, codes = design(n_rows, columns)
    estimate = ratio_interval(np.full(len(rows), share), np.ones(len(rows)), rows, codes)
    assert limits(estimate) == pytest.approx(wilson(share, len(rows)), abs=1e-12)
    assert 0 <= estimate.low <= share <= estimate.high <= 1
    assert estimate.high - estimate.low > 0.02


def test_means_that_do_not_differ_have_no_width() -> None:
    estimate = ratio_interval(np.full(6, 0.1), np.ones(6), [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], bounded=False)
    assert limits(estimate) == (estimate.value, estimate.value)


def test_one_cell_says_nothing_about_others() -> None:
    one = ([7, 7, 7], [2, 2, 2])
    assert limits(ratio_interval([0, 1, 1], np.ones(3), *one)) == pytest.approx(wilson(2 / 3, 1))
    assert all(math.isnan(limit) for limit in limits(ratio_interval([0.0, 1, 1], np.ones(3), *one, bounded=False)))
    assert all(
        math.isnan(limit) for limit in limits(difference_of_ratios([0, 1, 1], np.ones(3), [0, 0, 0], np.ones(3), *one))
    )
    alone = ratio_interval([1], [1], [0], [0])
    assert (alone.value, alone.n) == (1, 1)
    assert limits(alone) == pytest.approx(wilson(1, 1))


def test_nothing_counts() -> None:
    for estimate in (
        ratio_interval([1, math.nan], [0, 1], [0, 1], [0, 1]),
        ratio_interval([], [], np.array([], dtype=int), np.array([], dtype=int)),
        difference_of_ratios([1, 0], [1, 1], [1, 1], [0, 0], [0, 1], [0, 1]),
    ):
        assert math.isnan(estimate.value)
        assert math.isnan(estimate.low)
        assert math.isnan(estimate.high)


# Against statsmodels -------------------------------------------------------------------------------------------------


def by_statsmodels(fit: OLS, rows: Codes, columns: Codes) -> tuple[float, float]:
    """Variance by rows, plus by columns, less by cells; and degrees of freedom of what they add to independent items."""
    n, cells = len(rows), rows * 1000 + columns
    both, row, column = (float(part[0, 0]) for part in sandwich_covariance.cov_cluster_2groups(fit, rows, columns))
    cell, item = (float(sandwich_covariance.cov_cluster(fit, codes)[0, 0]) for codes in (cells, np.arange(n)))
    assert min(row, column) > cell >= item  # the effects are large: nothing is cut off
    parts = [(item, np.arange(n)), (cell - item, cells), (row - cell, rows), (column - cell, columns)]
    whole = sum(part for part, _ in parts)
    return both, whole**2 / sum(part**2 / (len(np.unique(codes)) - 1) for part, codes in parts)


def test_means_are_clustered_as_by_statsmodels() -> None:
    rng = np.random.default_rng(4)
    rows, columns = design(9, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    cells = rng.normal(size=(9, 7))[rows, columns]
    values = 3 + rng.normal(size=9)[rows] + rng.normal(size=7)[columns] + cells + rng.normal(size=len(rows))
    fit = OLS(values, np.ones(len(values))).fit()
    variance, df = by_statsmodels(fit, rows, columns)
    estimate = ratio_interval(values, np.ones(len(values)), rows, columns, level=0.9, bounded=False)
    assert estimate.value == pytest.approx(fit.params[0])
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(0.95, df) * math.sqrt(variance))
    assert estimate.value - estimate.low == pytest.approx(estimate.high - estimate.value)


def test_ratios_are_clustered_as_influences_by_statsmodels() -> None:
    """Half of the items count, in every row and column as many. The influences' mean has the ratio's variance."""
    rng = np.random.default_rng(8)
    rows, columns = design(12, [0, 1, 2, 3, 4, 5, 6, 7])
    counted = (rows + columns) % 2 == 0
    row, column = rng.normal(size=12)[rows], rng.normal(size=8)[columns]
    values = row + column + 0.4 * rng.normal(size=len(rows))
    y = np.where(counted, values, 99.0)
    estimate = ratio_interval(y, counted, rows, columns, bounded=False)
    assert estimate.value == pytest.approx(values[counted].mean())
    assert estimate.n == 48
    n = int(counted.sum())
    influence = (values[counted] - estimate.value) / n
    variance, df = by_statsmodels(OLS(n * influence, np.ones(n)).fit(), rows[counted], columns[counted])
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(0.975, df) * math.sqrt(variance))


# Invariances ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.booleans())
def test_what_changes_nothing_and_what_mirrors(seed: int, bounded: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = design(int(rng.integers(1, 7)), rng.integers(5, size=rng.integers(1, 8)).tolist())
    n = len(rows)
    d = rng.integers(2, size=n).astype(float)
    y = rng.integers(2, size=n) * d if bounded else rng.normal(size=n) * d
    estimate = ratio_interval(y, d, rows, columns, bounded=bounded)
    order = rng.permutation(n)
    shuffled = ratio_interval(y[order], d[order], 40 - rows[order], 3 * columns[order] - 2, bounded=bounded)
    assert same(shuffled, estimate)
    assert same(ratio_interval(y, d, columns, rows, bounded=bounded), estimate)
    mirrored = ratio_interval(d - y, d, rows, columns, bounded=bounded)
    back = Estimate(1 - mirrored.value, 1 - mirrored.high, 1 - mirrored.low, mirrored.n)
    assert np.allclose(
        [estimate.value, estimate.low, estimate.high], [back.value, back.low, back.high], atol=1e-9, equal_nan=True
    )
    # An item that does not count, and one that is unscored, might as well not be there.
    more = [
        np.append(array, extra) for array, extra in ((y, [5, math.nan]), (d, [0, 1]), (rows, [0, 0]), (columns, [0, 0]))
    ]
    assert same(ratio_interval(more[0], more[1], more[2].astype(int), more[3].astype(int), bounded=bounded), estimate)


def test_a_higher_level_is_wider() -> None:
    rows, columns = design(6, [0, 1, 1, 2])
    y = np.tile([1, 0, 0, 1, 0, 1], 4)
    narrow, wide = (ratio_interval(y, np.ones(24), rows, columns, level) for level in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_a_missing_denominator_is_an_unscored_item() -> None:
    rows, columns = design(3, [0, 1])
    with_nan = ratio_interval([1, 0, 1, 1, 0, 1], [1, 1, math.nan, 1, 1, 1], rows, columns)
    assert same(with_nan, ratio_interval([1, 0, 1, 0, 1], np.ones(5), np.delete(rows, 2), np.delete(columns, 2)))


# Differences ---------------------------------------------------------------------------------------------------------


def test_a_difference_of_the_same_items_is_the_mean_of_differences() -> None:
    rng = np.random.default_rng(1)
    rows, columns = design(7, [0, 1, 1, 2, 3])
    first, second = rng.normal(size=(2, len(rows)))
    ones = np.ones(len(rows))
    difference = difference_of_ratios(first, ones, second, ones, rows, columns, bounded=False)
    assert same(difference, ratio_interval(first - second, ones, rows, columns, bounded=False))


def test_a_difference_of_rates_turns_its_sign_and_stays_in_bounds() -> None:
    rng = np.random.default_rng(2)
    rows, columns = design(12, [0, 1, 2, 3, 4])
    d1, d2 = rng.random((2, 60)) < [[0.9], [0.4]]
    y1, y2 = d1 * (rng.random(60) < 0.2 + 0.6 * (rows < 5)), d2 * (rng.random(60) < 0.5)
    forth, back = (
        difference_of_ratios(y1, d1, y2, d2, rows, columns),
        difference_of_ratios(y2, d2, y1, d1, rows, columns),
    )
    assert forth.value == pytest.approx(y1.sum() / d1.sum() - y2.sum() / d2.sum())
    assert forth.n == back.n == np.count_nonzero(d1 | d2)
    assert -1 < forth.low < forth.value < forth.high < 1
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low))
    far = difference_of_ratios([1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1])
    assert far.value == 0.75
    assert far.low < 0.75 < far.high == 1


def test_an_item_that_is_unscored_on_one_side_is_left_out_of_both() -> None:
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
    """Of 20 items none disagrees with the rest on its side; Wilson's upper limit of 0 in 20 is 3.84 / 23.84."""
    rows, columns = design(4, [0, 1, 2, 3, 4])
    found = difference_of_ratios(np.full(20, one), np.ones(20), np.full(20, other), np.ones(20), rows, columns)
    value, beyond = one - other, 3.8415 / 23.8415
    assert found.value == value
    assert limits(found) == pytest.approx((max(-1, value - beyond), min(1, value + beyond)), abs=1e-5)


def test_means_without_a_change_have_no_width() -> None:
    values = [0.1, 0.7, 0.3, 0.9]
    found = difference_of_ratios(values, np.ones(4), values, np.ones(4), [0, 0, 1, 1], [0, 1, 0, 1], bounded=False)
    assert (found.value, found.low, found.high) == (0, 0, 0)


# Coverage ------------------------------------------------------------------------------------------------------------


def logistic(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


# Of 2,500 runs at 95% the share has a standard error of .44 percent; bands are widened by two of them.
RUNS = 2500
SLACK = 0.009


def coverage(truth: float, draw: Callable[[], Estimate]) -> float:
    hits = 0
    for _ in range(RUNS):
        found = draw()
        hits += bool(found.low <= truth <= found.high)
    return hits / RUNS


@pytest.mark.parametrize(
    ("n_rows", "columns", "rate", "counting"),
    [
        (10, [0, 0, *range(1, 19)], 0.25, 1.0),
        (10, [0, 0, *range(1, 19)], 0.5, 0.5),
        (10, [0, 0, *range(1, 19)], 0.25, 0.25),
        (5, list(range(8)), 0.5, 0.5),
        (70, [0], 0.25, 0.5),
    ],
)
def test_coin_flips_are_covered(n_rows: int, columns: list[int], rate: float, counting: float) -> None:
    """A model that answers at random has no clusters: its intervals may be neither too short nor much too long."""
    rng = np.random.default_rng(17)
    rows, codes = design(n_rows, columns)

    def draw() -> Estimate:
        d = rng.random(len(rows)) < counting
        return ratio_interval(d * (rng.random(len(rows)) < rate), d, rows, codes)

    assert 0.93 - SLACK <= coverage(rate, draw) <= 0.97 + SLACK


@pytest.mark.parametrize(("row_sd", "column_sd"), [(1.0, 0.0), (0.0, 1.0), (0.7, 0.7)])
def test_rates_of_other_rows_and_columns_are_covered(row_sd: float, column_sd: float) -> None:
    """Effects of rows and columns on the scale of the logit, symmetrical about a rate of one half."""
    rng = np.random.default_rng(18)
    rows, codes = design(10, [0, 0, *range(1, 19)])

    def draw() -> Estimate:
        effect = row_sd * rng.normal(size=10)[rows] + column_sd * rng.normal(size=19)[codes]
        return ratio_interval(rng.random(len(rows)) < logistic(effect), np.ones(len(rows)), rows, codes)

    assert 0.91 - SLACK <= coverage(0.5, draw) <= 0.97 + SLACK


def test_clusters_are_not_taken_for_items() -> None:
    """The interval of independent items covers the rate of other rows in about half of the runs; this one must be wider."""
    rng = np.random.default_rng(19)
    rows, codes = design(10, list(range(20)))
    y = rng.random(200) < logistic(2 * rng.normal(size=10)[rows])
    found = ratio_interval(y, np.ones(200), rows, codes)
    low, high = wilson(found.value, 200)
    assert found.high - found.low > 2 * (high - low)


# Correlations --------------------------------------------------------------------------------------------------------


def test_correlation_is_pearsons_with_a_jackknife_over_clusters() -> None:
    rng = np.random.default_rng(9)
    clusters = np.array([3, 3, 5, 6, 6, 6, 8, 9, 11, 12])
    x = rng.normal(size=10)
    y = 100 + x + rng.normal(size=10)
    found = correlation(x, y, clusters, seed=0)
    assert found.r == pytest.approx(stats.pearsonr(x, y).statistic)
    z = [math.atanh(stats.pearsonr(x[clusters != name], y[clusters != name]).statistic) for name in np.unique(clusters)]
    half = stats.t.ppf(0.975, 6) * math.sqrt(6 / 7 * sum((one - np.mean(z)) ** 2 for one in z))
    centre = math.atanh(found.r)
    assert (found.low, found.high) == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)))
    assert found.n == 10


def test_correlation_does_not_mind_units_order_or_what_is_missing() -> None:
    rng = np.random.default_rng(10)
    x, y, clusters = rng.normal(size=12), rng.normal(size=12), np.array([0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9])
    found = correlation(x, y, clusters, seed=1)
    turned = correlation(3 * x + 7, -y, clusters, seed=1)
    assert (turned.r, turned.low, turned.high) == pytest.approx((-found.r, -found.high, -found.low))
    assert turned.p == found.p
    order = rng.permutation(12)
    again = correlation(x[order], y[order], clusters[order], seed=1)
    assert (again.r, again.low, again.high) == pytest.approx((found.r, found.low, found.high))
    more = correlation([*x, math.nan, 1], [*y, 2, math.nan], [*clusters, 10, 11], seed=1)
    assert more == found


def test_correlation_p_is_the_share_of_orders_of_single_columns() -> None:
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 6])
    r = abs(stats.pearsonr(x, y).statistic)
    orders = list(itertools.permutations(y))
    exact = sum(abs(stats.pearsonr(x, order).statistic) >= r - 1e-12 for order in orders) / len(orders)
    assert correlation(x, y, np.arange(5), seed=2).p == pytest.approx(exact, abs=0.015)


def test_the_observed_order_counts_in() -> None:
    x = np.random.default_rng(11).normal(size=40)
    assert correlation(x, x**3, np.arange(40), seed=0).p == 1 / (1 + crossed.N_SHUFFLES)


def test_clusters_are_shuffled_whole() -> None:
    """Each order puts a pair of columns in the place of a pair, and the three of one cluster stay among themselves."""
    of = np.array([0, 1, 0, 2, 2, 3, 3, 3, 4, 5])
    orders = crossed._cluster_orders(of, np.random.default_rng(0))
    moved = of[orders]  # which cluster is where
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(10), (len(orders), 1)))
    assert (moved[:, 5:8] == 3).all()
    assert (moved[:, 0] == moved[:, 2]).all()
    assert (moved[:, 3] == moved[:, 4]).all()
    seen = {tuple(row) for row in moved.tolist()}
    assert len(seen) == 2 * 6  # two pairs, three single columns
    inner = {tuple(row) for row in orders[:, 5:8].tolist()}
    assert len(inner) == 6
    _, counts = np.unique(moved, axis=0, return_counts=True)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_no_correlation_where_there_is_none_to_have() -> None:
    constant, rising = [0.1 + 0.2, 0.3, 0.3, 0.3, 0.3], [1.0, 2, 3, 4, 5]
    for x, y, clusters in (
        (constant, rising, range(5)),
        (rising, constant, range(5)),
        (rising[:3], [1, 3, 2], range(3)),
        ([1, 2, 3, math.nan], [2, 1, 4, 3], range(4)),
        (rising, [2, 1, 4, 3, 6], [0, 0, 0, 1, 2]),
    ):
        found = correlation(x, y, list(clusters), seed=0)
        assert all(math.isnan(number) for number in (found.r, found.low, found.high, found.p))


def test_a_correlation_on_one_cluster_or_without_noise_has_no_interval() -> None:
    alone = correlation([0, 0, 0, 0, 1], [1, 2, 3, 2, 9], range(5), seed=0)
    assert alone.r > 0.9
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)
    exact = correlation([1, 2, 3, 4, 5], [3, 5, 7, 9, 11], range(5), seed=0)
    assert exact.r == pytest.approx(1)
    assert math.isnan(exact.low)
    assert exact.p == pytest.approx(2 / 120, abs=0.005)


@pytest.mark.parametrize("rho", [0.0, -0.5])
def test_correlations_of_twenty_columns_are_covered(rho: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossed, "N_SHUFFLES", 1)
    rng = np.random.default_rng(21)
    clusters = np.array([0, 0, *range(1, 19)])
    hits = 0
    for _ in range(RUNS):
        x = rng.normal(size=20)
        found = correlation(x, rho * x + math.sqrt(1 - rho**2) * rng.normal(size=20), clusters, seed=0)
        hits += found.low <= rho <= found.high
    assert 0.93 - SLACK <= hits / RUNS <= 0.97 + SLACK


# Refusals ------------------------------------------------------------------------------------------------------------


def test_wrong_input_is_refused() -> None:
    two = ([0, 1], [0, 1])
    with pytest.raises(ValueError, match="one length"):
        ratio_interval([1, 0], [1], *two)
    with pytest.raises(ValueError, match="whole numbers"):
        ratio_interval([1, 0], [1, 1], [0.5, 1], [0, 1])
    with pytest.raises(ValueError, match="finite"):
        ratio_interval([1, math.inf], [1, 1], *two)
    with pytest.raises(ValueError, match="negative"):
        ratio_interval([1, 0], [1, -1], *two)
    with pytest.raises(ValueError, match="0 to d"):
        ratio_interval([1, 1.5], [1, 1], *two)
    with pytest.raises(ValueError, match="0 to d"):
        difference_of_ratios([1, 1], [1, 1], [1, -1], [1, 1], *two)
    with pytest.raises(ValueError, match="level"):
        ratio_interval([1, 0], [1, 1], *two, level=95)
    with pytest.raises(ValueError, match="one length"):
        correlation([1, 2], [1, 2], [0], seed=0)
