"""Sign flips: p by counting all signs, intervals that leave out 0 with it, what few clusters can say."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from undertow.stats import point_estimates
from undertow.stats.significance.sign_flip import N_FLIPS, SignFlipTest, flip_means

Floats = NDArray[np.float64]


def flips_of(differences: Floats, seed: int = 0) -> SignFlipTest:
    """Of one difference for each cluster, NaN where it has none [cluster]."""
    seen = np.isfinite(differences)
    (found,) = flip_means(np.where(seen, differences, 0.0)[:, np.newaxis], seen[:, np.newaxis], seed)
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


def test_what_has_no_difference_stays_out_of_the_halves() -> None:
    differences = np.array([3.0, 1.0, math.nan, 4.0, 1.5, 9.0, 2.6, math.nan])
    assert flips_of(differences).interval() == (1.0, 9.0)
    assert flips_of(differences).n_clusters == 6


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
