"""Sign flips: p by counting all signs, intervals that leave out 0 with it, what few clusters can say."""

from __future__ import annotations

import itertools
import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats import point_estimates
from undertow.stats.significance.sign_flip import (
    N_FLIPS,
    JackknifeReplicates,
    SignFlipTest,
    flip_means,
    flip_p_values,
    paired_errors,
)

Floats = NDArray[np.float64]


def flips_of(differences: Floats, seed: int = 0) -> SignFlipTest:
    """Of one difference for each cluster [cluster]."""
    (found,) = flip_means(differences[:, np.newaxis], np.ones((len(differences), 1)), seed)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_p_is_the_share_of_all_signs(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.6, 1, 9)
    signs = np.array(list(product((-1, 1), repeat=9)))
    share = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9).mean()
    found = flips_of(differences)
    assert found.value == pytest.approx(differences.mean())
    assert found.p == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / N_FLIPS) + 1e-4)
    permuted = stats.permutation_test(
        (differences, np.zeros(9)), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=10_000
    )
    assert share == pytest.approx(permuted.pvalue)


@pytest.mark.parametrize("seed", range(30))
def test_an_interval_leaves_out_0_where_p_is_below_what_its_level_leaves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = flips_of(rng.choice([-100.0, 0.0, 50.0, 100.0], 12, p=[0.1, 0.3, 0.2, 0.4]))
    for alpha in (0.05, 0.01, 0.002, 0.0001):
        low, high = found.interval(1 - alpha)
        assert (low > 0 or high < 0) == (found.p <= alpha)
    assert found.p_above == (found.p / 2 if found.value > 0 else 1.0)


def test_the_limits_of_six_are_the_least_and_the_largest() -> None:
    """The least of six is below the mean unless all six are above it: 1 of 64; so it is from 1/32 on, and nothing is below that."""
    differences = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    found = flips_of(differences)
    assert found.interval(0.95) == (1.0, 9.0)
    assert found.p == pytest.approx(2 / 64, abs=0.005)
    assert found.interval(0.99) == (-math.inf, math.inf)


def test_clusters_weigh_as_many_differences_as_they_have() -> None:
    sums, sizes = (
        np.array([[6.0], [2.0], [0.0], [4.0], [1.0], [3.0], [5.0]]),
        np.array([[3], [1], [0], [1], [1], [1], [2]]),
    )
    (found,) = flip_means(sums, sizes, 0)
    assert found.value == pytest.approx(21 / 9)
    assert (found.n_clusters, found.n_differing) == (6, 6)
    assert found.interval() == (1.0, 4.0)


@pytest.mark.parametrize("differences", [[], [1.0], [1.0] * 5])
def test_too_few_clusters_have_a_value_alone(differences: list[float]) -> None:
    found = flips_of(np.array(differences))
    assert found.n_clusters == len(differences)
    assert np.isnan([found.p, *found.interval(), found.p_above, found.p_below]).all()
    with point_estimates():
        assert math.isnan(flips_of(np.arange(9.0)).p)


def test_differences_of_nothing() -> None:
    found = flips_of(np.zeros(8))
    assert (found.value, found.p, found.n_differing) == (0.0, 1.0, 0)
    assert found.interval() == (0.0, 0.0)
    assert found.interval(1 - 1e-9) == (-math.inf, math.inf)  # no p of so many flips is so small


# Differences of two estimates from the same clusters.


def left_of_means(values: Floats) -> tuple[Floats, JackknifeReplicates]:
    """Means of values [cluster, difference], and what is left of them without each cluster."""
    without = (values.sum(axis=0) - values) / (len(values) - 1)
    return values.sum(axis=0) / len(values), JackknifeReplicates(without, np.ones(without.shape, dtype=bool))


def test_p_of_many_clusters_is_never_zero_and_near_that_of_the_t_test() -> None:
    rng = np.random.default_rng(2)
    far, near = rng.normal(3.0, 1.0, size=(40, 1)), rng.normal(0.3, 1.0, size=(40, 1))
    whole, left = left_of_means(np.hstack([far, near]))
    p = flip_p_values(whole, left, seed=3)
    assert p[0] == pytest.approx(1 / 10_001)
    assert p[1] == pytest.approx(stats.ttest_1samp(near[:, 0], 0).pvalue, abs=0.02)
    assert (p == flip_p_values(whole, left, seed=3)).all()


SIX: Floats = np.array([[2.0], [4.0], [3.0], [1.0], [5.0], [3.0]])
"""Mean 3, variance 2: contributions of six clusters."""


def test_six_clusters_by_hand() -> None:
    """Of 64 flips two have the observed sum; all others are nearer to 0."""
    whole, left = left_of_means(SIX)
    found = paired_errors(whole, [left])
    error = np.sqrt(2 / 6)
    assert found.p[0] == 2 / 64
    assert (found.low[0], found.high[0]) == pytest.approx((3 - 2.570582 * error, 3 + 2.570582 * error), rel=1e-6)
    assert (found.inner_low[0], found.inner_high[0]) == pytest.approx((3 - 2.015048 * error, 3 + 2.015048 * error))


@pytest.mark.parametrize(
    ("n", "sigma", "most", "most_equivalent"), [(8, 0.5, 0.06, 0.09), (20, 1.0, 0.07, 0.11), (50, 1.5, 0.1, 0.14)]
)
def test_log_normal_differences_are_seldom_missed_or_called_equivalent_at_their_margin(
    n: int, sigma: float, most: float, most_equivalent: float
) -> None:
    """Misses are 1.7 to 2.2 times as many with a symmetric t interval."""
    values = np.exp(sigma * np.random.default_rng(n).standard_normal((n, 2000)) - sigma**2 / 2)
    for sign in (1, -1):
        whole, left = left_of_means(sign * values)
        found = paired_errors(whole, [left])
        assert np.mean((found.low > sign) | (found.high < sign)) < most
        assert np.mean((found.inner_low >= -1) & (found.inner_high <= 1)) < most_equivalent


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_below_six_clusters_there_is_no_error(n: int) -> None:
    whole, left = left_of_means(SIX[:n])
    found = paired_errors(whole, [left])
    assert np.isnan([found.low, found.high, found.inner_low, found.inner_high, found.p]).all()
    assert found.n_clusters.tolist() == [n]
    others = left_of_means(np.repeat(SIX, 2, axis=0))[1]
    crossed_found = paired_errors(whole, [left, others], others)
    assert np.isnan([crossed_found.low[0], crossed_found.p[0]]).all()


def test_a_margin_is_tested_by_what_lies_beyond_it() -> None:
    """Beyond 2 contributions are 0, 2, 1, -1, 3, 1, with the sum 6: 64 flips by hand, with scipy, and 1 within the margin."""
    whole, left = left_of_means(SIX)
    beyond = SIX[:, 0] - 2
    flipped = [abs(np.dot(signs, beyond)) for signs in itertools.product([1, -1], repeat=6)]
    expected = np.mean(np.array(flipped) >= 6 - 1e-9)
    assert paired_errors(whole, [left], margins=2.0).p[0] == expected
    assert paired_errors(-whole, [JackknifeReplicates(-left.without, left.counting)], margins=2.0).p[0] == expected
    assert [paired_errors(whole, [left], margins=margin).p[0] for margin in (3.0, 4.0)] == [1.0, 1.0]
    alone = paired_errors(whole, [left])
    assert paired_errors(whole, [left], margins=[2.0]).low[0] == alone.low[0]


def test_p_of_a_margin_in_two_ways_is_no_less_than_that_of_the_t_interval() -> None:
    values = np.random.default_rng(12).normal(1.0, 1.0, size=(12, 9, 1))
    whole, *ways, cells = crossed(values)
    found = paired_errors(whole, ways, cells, margins=0.3)
    half = min(found.high[0] - whole[0], whole[0] - found.low[0])
    for margin in (0.0, whole[0] - half * 1.001, whole[0] - half * 0.999):
        p = paired_errors(whole, ways, cells, margins=max(margin, 0.0)).p[0]
        if margin > 0:
            assert (p < 0.05) <= (whole[0] - half > margin)


def test_contributions_of_nothing_or_below_rounding_are_ties() -> None:
    """Six differences of 1e-12 of what was subtracted, all of one sign: without sizes the test would find them."""
    whole, left = left_of_means(np.full((6, 1), 1e-12) + 1e-14 * SIX)
    assert paired_errors(whole, [left]).p[0] == 2 / 64
    assert paired_errors(whole, [left], sizes=12.5).p[0] == 1.0
    among = np.vstack([SIX, np.full((4, 1), 1e-12)])
    whole, left = left_of_means(among)
    # All ten contributions are pseudo-values of one mean; those of 1e-12 flip nothing.
    assert paired_errors(whole, [left], sizes=1.0).p[0] == 2 / 64
    left = JackknifeReplicates(np.zeros((6, 1)), np.ones((6, 1), dtype=bool))
    found = paired_errors([0.0], [left])
    assert (found.low[0], found.high[0], found.p[0]) == (0.0, 0.0, 1.0)


def test_clusters_that_have_nothing_of_a_difference_count_for_nothing() -> None:
    values = np.random.default_rng(4).normal(size=(6, 1))
    whole, left = left_of_means(values)
    alone = paired_errors(whole, [left])
    without = np.vstack([left.without, np.full((20, 1), whole[0])])
    counting = np.vstack([left.counting, np.zeros((20, 1), dtype=bool)])
    among = paired_errors(whole, [JackknifeReplicates(without, counting)])
    assert (among.low[0], among.high[0]) == pytest.approx((alone.low[0], alone.high[0]))
    assert among.p[0] == alone.p[0]
    assert among.n_clusters[0] == 6


def test_what_cannot_be_had_is_missing() -> None:
    one = JackknifeReplicates(np.array([[1.0, np.nan, np.nan]]), np.ones((1, 3), dtype=bool))
    found = paired_errors([1.0, 1.0, np.nan], [one])
    assert np.isnan([found.low, found.high, found.p]).all(), "one cluster says nothing of others"
    hangs = JackknifeReplicates(np.array([[1.0], [np.nan], [1.2], [1.1], [1.3], [1.1]]), np.ones((6, 1), dtype=bool))
    found = paired_errors([1.1], [hangs])
    assert np.isnan([found.low[0], found.high[0], found.p[0]]).all()
    nobody = JackknifeReplicates(np.ones((8, 1)), np.zeros((8, 1), dtype=bool))
    found = paired_errors([1.0], [nobody])
    assert np.isnan([found.low[0], found.p[0]]).all()
    assert found.n_clusters[0] == 0


def crossed(values: Floats) -> tuple[Floats, JackknifeReplicates, JackknifeReplicates, JackknifeReplicates]:
    """Means of values [row, column, difference], and what is left without each row, column and cell."""
    rows, columns, n = values.shape
    total = values.sum(axis=(0, 1))

    def left(sums: Floats, size: int) -> JackknifeReplicates:
        without = (total - sums) / (rows * columns - size)
        return JackknifeReplicates(without, np.ones(without.shape, dtype=bool))

    of_rows, of_columns = left(values.sum(axis=1), columns), left(values.sum(axis=0), rows)
    return total / (rows * columns), of_rows, of_columns, left(values.reshape(-1, n), 1)


@pytest.mark.parametrize(("of_row", "of_column"), [(1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.3, 1.5)])
def test_intervals_of_items_in_clusters_in_two_ways_hold_the_truth(of_row: float, of_column: float) -> None:
    rng, n, rows, columns = np.random.default_rng(8), 1500, 10, 20
    values = 0.4 + of_row * rng.normal(size=(rows, 1, n)) + of_column * rng.normal(size=(1, columns, n))
    whole, *ways, cells = crossed(values + rng.normal(size=(rows, columns, n)))
    found = paired_errors(whole, ways, cells)
    held = float(np.mean((found.low <= 0.4) & (found.high >= 0.4)))
    assert 0.93 < held < 0.985, held
    null, *left, of_cells = crossed(values - 0.4 + rng.normal(size=(rows, columns, n)))
    p = paired_errors(null, left, of_cells).p
    assert np.mean(p < 0.05) < 0.075, "flips of rows alone would find one in ten where columns differ too"
    one_way = paired_errors(whole, ways[:1])
    if of_column > 1:
        short = float(np.mean((one_way.low <= 0.4) & (one_way.high >= 0.4)))
        assert short < 0.8, "rows alone do not know that columns differ"


def test_a_way_of_one_cluster_leaves_it_to_the_other() -> None:
    rows_values = np.random.default_rng(9).normal(size=(8, 1))
    whole, rows = left_of_means(rows_values)
    column = JackknifeReplicates(np.full((1, 1), np.nan), np.ones((1, 1), dtype=bool))
    both, alone = paired_errors(whole, [rows, column], rows), paired_errors(whole, [rows])
    assert both.n_clusters[0] == 8
    assert (both.low[0], both.high[0]) == pytest.approx((alone.low[0], alone.high[0]))
    t_interval = stats.ttest_1samp(rows_values[:, 0], 0)
    assert both.p[0] == pytest.approx(max(alone.p[0], t_interval.pvalue))
