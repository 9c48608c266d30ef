"""Delete-a-group jackknife, against what can be had in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from undertow.stats.intervals.cluster_errors import jackknife_interval, random_groups

RNG = np.random.default_rng(0)


def means_without(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    return np.array([[values[group != one].mean()] for one in np.unique(group)])


def test_of_a_mean_it_is_the_t_interval_of_the_group_means() -> None:
    values = RNG.normal(3.0, 2.0, size=40)
    group = np.arange(40) % 8
    low, high = jackknife_interval([values.mean()], means_without(values, group))
    means = [values[group == one].mean() for one in range(8)]
    expected = stats.t.interval(0.95, 7, loc=values.mean(), scale=stats.sem(means))
    assert (low[0], high[0]) == pytest.approx(expected, rel=1e-12)


def test_what_was_sampled_is_known() -> None:
    """Sampling a share without replacement leaves one less that share of the variance; of the whole, nothing is left."""
    values, group = RNG.normal(size=30), np.arange(30) % 10
    without = means_without(values, group)
    wide, narrow, none = (
        np.subtract(*jackknife_interval([values.mean()], without, sampled=share)) for share in (0.0, 0.36, 1.0)
    )
    assert narrow / wide == pytest.approx(0.8)
    assert none == 0


def test_what_cannot_be_had_is_missing() -> None:
    low, high = jackknife_interval([1.0, 2.0, np.nan], [[1.1, np.nan, 1.0], *[[0.9, 2.0, 1.0]] * 5])
    assert np.isfinite([low[0], high[0]]).all()
    assert np.isnan([low[1:], high[1:]]).all()
    low, high = jackknife_interval([1.0], [[1.0]])
    assert np.isnan([low, high]).all(), "one group says nothing of others"
    for n in (5, 6):
        low, high = jackknife_interval([1.0], RNG.normal(1.0, 0.1, size=(n, 1)))
        assert np.isnan([low, high]).all() == (n == 5)
    low, high = jackknife_interval([1.0, np.nan], np.zeros((0, 2)), sampled=1.0)
    assert (low[0], high[0]) == (1.0, 1.0)
    assert np.isnan(low[1])


def test_groups_are_dealt_evenly_and_at_random() -> None:
    dealt = random_groups(23, 5, np.random.default_rng(1))
    assert sorted(np.bincount(dealt)) == [4, 4, 5, 5, 5]
    assert not (dealt == random_groups(23, 5, np.random.default_rng(2))).all()
    assert (dealt == random_groups(23, 5, np.random.default_rng(1))).all()


@pytest.mark.parametrize(("n_clusters", "n_groups"), [(3, 4), (3, 0), (0, 0)])
def test_impossible_deals_are_refused(n_clusters: int, n_groups: int) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        random_groups(n_clusters, n_groups, RNG)
