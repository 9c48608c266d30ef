"""The cluster bootstrap resamples clusters whole, counts observations, and says NaN rather than zero."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from undertow.stats import bootstrap, bootstrap_means, percentile_interval


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_two_clusters_have_the_three_means_that_a_hand_can_list() -> None:
    means = bootstrap_means([[0.0], [1.0]], [[1], [1]], 4000, rng())[:, 0]
    values, times = np.unique(means, return_counts=True)
    assert values.tolist() == [0, 0.5, 1]
    assert times / 4000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_a_mean_weighs_observations_and_not_clusters() -> None:
    # Three observations of 0 in one cluster and a single 1 in the other: both drawn once, the mean is 1/4.
    means = bootstrap_means([[0.0], [1.0]], [[3], [1]], 200, rng())[:, 0]
    assert set(means) == {0.0, 0.25, 1.0}


def test_all_w_values_and_all_leading_axes_share_their_draws() -> None:
    sums = np.repeat(rng(1).random((12, 1)), 3, axis=1)
    stacked = np.stack([sums, sums + 5])
    means = bootstrap_means(stacked, np.ones_like(stacked), 50, rng())
    assert means.shape == (2, 50, 3)
    assert np.ptp(means[0], axis=1) == pytest.approx(np.zeros(50), abs=1e-12)
    assert np.ptp(means[0, :, 0]) > 0.01
    np.testing.assert_allclose(means[1] - means[0], 5)
    np.testing.assert_array_equal(means[0], bootstrap_means(sums, np.ones_like(sums), 50, rng()))


def test_draws_have_the_spread_that_theory_gives() -> None:
    sums = rng(2).normal(10, 3, (40, 2))
    means = bootstrap_means(sums, np.ones_like(sums), 20_000, rng())
    np.testing.assert_allclose(means.mean(axis=0), sums.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(means.std(axis=0), sums.std(axis=0) / math.sqrt(40), rtol=0.03)


def test_a_w_value_that_a_draw_did_not_observe_is_nan_there_and_never_zero() -> None:
    counts = np.ones((5, 2))
    counts[1:, 1] = 0  # only the first cluster has the second W value
    means = bootstrap_means(counts * 8.0, counts, 5000, rng())
    assert (means[:, 0] == 8).all()
    missing = np.isnan(means[:, 1])
    assert missing.mean() == pytest.approx((4 / 5) ** 5, abs=0.03)
    assert (means[~missing, 1] == 8).all()


@pytest.mark.parametrize("n_clusters", [0, 1])
def test_fewer_than_two_clusters_say_nothing(n_clusters: int) -> None:
    means = bootstrap_means(np.ones((n_clusters, 3)), np.ones((n_clusters, 3)), 10, rng())
    assert means.shape == (10, 3)
    assert np.isnan(means).all()


def test_one_cluster_with_observations_among_empty_ones_says_nothing() -> None:
    counts = np.zeros((2, 4, 3))
    counts[0, 1] = 1
    counts[1, :2] = 1
    means = bootstrap_means(counts, counts, 20, rng())
    assert np.isnan(means[0]).all()
    assert not np.isnan(means[1]).all()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = rng(3).random((7, 4))
    whole = bootstrap_means(sums, np.ones_like(sums), 30, rng())
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", 25)
    np.testing.assert_allclose(bootstrap_means(sums, np.ones_like(sums), 30, rng()), whole, rtol=1e-14)


def test_memory_does_not_grow_with_draws_times_clusters() -> None:
    sums = rng(4).random((5000, 2))
    tracemalloc.start()
    bootstrap_means(sums, np.ones_like(sums), 1600, rng())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All draws at once would take 64 MB for the drawn clusters alone, and as much again for their weights.
    assert peak < 50e6


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="cluster, w"):
        bootstrap_means([[1.0, 2.0]], [[1.0]], 10, rng())
    with pytest.raises(ValueError, match="cluster, w"):
        bootstrap_means([1.0], [1.0], 10, rng())


def test_percentiles() -> None:
    draws = np.arange(1001.0)
    assert percentile_interval(draws) == pytest.approx((25, 975))
    assert percentile_interval(draws, 0.8) == pytest.approx((100, 900))


def test_a_few_undefined_draws_are_left_out_and_many_void_the_interval() -> None:
    draws = np.arange(100.0)
    draws[:5] = math.nan
    assert percentile_interval(draws) == pytest.approx(tuple(np.quantile(np.arange(5.0, 100), [0.025, 0.975])))
    draws[5] = math.nan
    assert np.isnan(percentile_interval(draws)).all()
    assert np.isnan(percentile_interval([])).all()
    assert np.isnan(percentile_interval([math.nan] * 3)).all()
