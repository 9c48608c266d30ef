from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats import correlation
from undertow.stats.correlation import cluster_correlation, pearson

Floats = NDArray[np.float64]


def correlated(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(n)
    return x, 0.5 * x + generator.standard_normal(n)


@pytest.mark.parametrize("n", [4, 75, 40_000])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-9, 5.0), (1e90, -3.0), (1e-90, 0.0)])
def test_r_is_that_of_the_textbook(n: int, scale: float, shift: float) -> None:
    x, y = correlated(n)
    kept = scale * x + shift
    assert pearson(kept, y).r == pytest.approx(np.corrcoef((kept - shift) / scale, y)[0, 1], abs=1e-6)
    assert pearson(kept, y).n == n


def test_the_jackknife_leaves_out_one_pair_after_the_other() -> None:
    x, y = correlated(12)
    z = [math.atanh(np.corrcoef(np.delete(x, one), np.delete(y, one))[0, 1]) for one in range(12)]
    error = math.sqrt(11 / 12 * float(np.sum((np.array(z) - np.mean(z)) ** 2)))
    r, low, high, *_ = pearson(x, y)
    half = float(stats.t.ppf(0.975, 10)) * error
    assert [low, high] == pytest.approx([math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)])


@pytest.mark.parametrize(("n", "least"), [(75, 0.91), (12_000, 0.93)])
def test_it_covers_where_the_spread_of_y_grows_with_x(n: int, least: float) -> None:
    """r of x and y = x / 2 + x e, with standard normal x and e, is .5 / sqrt(1.25)."""
    truth, runs = 0.5 / math.sqrt(1.25), 300
    covered = 0
    for seed in range(runs):
        x, noise = np.random.default_rng(seed).standard_normal((2, n))
        _, low, high, *_ = pearson(x, 0.5 * x + x * noise)
        covered += low <= truth <= high
    assert least <= covered / runs <= 0.98


def test_what_the_pairs_cannot_say_is_not_said() -> None:
    assert pearson([], []).n == 0
    assert math.isnan(pearson([], []).r)
    assert math.isnan(pearson([1.0], [2.0]).r)
    for x, y in (([3.3] * 9, range(9)), (range(9), [0.0] * 9)):
        assert all(map(math.isnan, pearson(x, y)[:3]))
    assert pearson([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])[1:4] == (-1.0, 1.0, 3)
    assert pearson([0.0] * 8 + [1.0], range(9))[1:4] == (-1.0, 1.0, 9), "one pair alone makes x vary"
    assert pearson(np.arange(9.0), -2 * np.arange(9.0))[:3] == pytest.approx((-1.0, -1.0, -1.0))


def test_the_share_of_the_heaviest_pair_is_that_of_its_influence() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, 500)
    y = x + rng.standard_t(3, 500)
    found = pearson(x, y)
    by_x, by_y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    influences = by_x * by_y - found.r * (by_x**2 + by_y**2) / 2
    assert found.heaviest_share == pytest.approx((influences**2).max() / (influences**2).sum())
    assert math.isnan(pearson([], []).heaviest_share)


def test_correlation_is_pearsons_with_a_jackknife_over_clusters() -> None:
    rng = np.random.default_rng(9)
    clusters = np.array([3, 3, 5, 6, 6, 6, 8, 9, 11, 12])
    x = rng.normal(size=10)
    y = 100 + x + rng.normal(size=10)
    found = cluster_correlation(x, y, clusters, seed=0)
    assert found.value == pytest.approx(stats.pearsonr(x, y).statistic)
    z = [math.atanh(stats.pearsonr(x[clusters != name], y[clusters != name]).statistic) for name in np.unique(clusters)]
    half = stats.t.ppf(0.975, 6) * math.sqrt(6 / 7 * sum((one - np.mean(z)) ** 2 for one in z))
    centre = math.atanh(found.value)
    assert (found.low, found.high) == pytest.approx((math.tanh(centre - half), math.tanh(centre + half)))
    assert found.n == 10
    error = half / stats.t.ppf(0.975, 6)
    assert found.p >= 2 * stats.t.sf(abs(centre) / error, 6) - 1e-12


def test_columns_that_lack_a_number_are_left_out() -> None:
    rng = np.random.default_rng(10)
    x, y, clusters = rng.normal(size=12), rng.normal(size=12), np.array([0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9])
    more = cluster_correlation([*x, math.nan, 1], [*y, 2, math.nan], [*clusters, 10, 11], seed=1)
    assert more == cluster_correlation(x, y, clusters, seed=1)


@pytest.mark.parametrize("y", [[2.0, 1, 4, 3, 6, 5], [2.0, 5, 1, 9, 3, 5]])
def test_correlation_p_is_the_larger_one_of_orders_of_single_columns_and_of_the_interval(y: list[float]) -> None:
    x = np.array([1.0, 2, 3, 4, 5, 6])
    r = stats.pearsonr(x, y).statistic
    orders = itertools.permutations(y)
    exact = np.mean([abs(stats.pearsonr(x, order).statistic) >= abs(r) - 1e-12 for order in orders])
    found = cluster_correlation(x, y, np.arange(6), seed=2)
    z = [math.atanh(stats.pearsonr(np.delete(x, at), np.delete(y, at)).statistic) for at in range(6)]
    error = math.sqrt(5 / 6 * sum((one - np.mean(z)) ** 2 for one in z))
    by_interval = 2 * stats.t.sf(abs(math.atanh(r)) / error, 5)
    assert found.p == pytest.approx(max(exact, by_interval), abs=0.015)
    assert not found.p < 0.05 or found.low > 0 or found.high < 0


def test_the_observed_order_counts_in() -> None:
    x = np.random.default_rng(11).normal(size=40)
    assert cluster_correlation(x, 2 * x + 1, np.arange(40), seed=0).p == 1 / (1 + correlation.N_SHUFFLES)


def test_clusters_are_shuffled_whole() -> None:
    """Each order puts a pair of columns in the place of a pair, and the three of one cluster stay among themselves."""
    of = np.array([0, 1, 0, 2, 2, 3, 3, 3, 4, 5])
    orders = correlation._cluster_orders(of, np.random.default_rng(0))
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
        found = cluster_correlation(x, y, list(clusters), seed=0)
        assert all(math.isnan(number) for number in (found.value, found.low, found.high, found.p))


def test_a_correlation_of_few_clusters_on_one_cluster_or_without_noise_has_no_interval() -> None:
    few = cluster_correlation(np.arange(5.0), [2, 1, 4, 3, 6], range(5), seed=0)
    assert math.isfinite(few.value)
    assert np.isnan([few.low, few.high, few.p]).all()
    alone = cluster_correlation([0, 0, 0, 0, 0, 1], [1, 2, 3, 2, 1, 12], range(6), seed=0)
    assert alone.value > 0.9
    assert np.isnan([alone.low, alone.high, alone.p]).all()
    exact = cluster_correlation([1, 2, 3, 4, 5, 6], [3, 5, 7, 9, 11, 13], range(6), seed=0)
    assert exact.value == pytest.approx(1)
    assert math.isnan(exact.low)
    assert exact.p == pytest.approx(2 / 720, abs=0.002)
