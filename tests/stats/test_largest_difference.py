from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from undertow.stats.significance import largest_difference as module
from undertow.stats.significance.largest_difference import LargestDifference, largest_difference

PERCENT = (0.0, 100.0)


def difference_of(*groups: np.typing.ArrayLike, seed: int) -> LargestDifference:
    """The test of groups of values, each of them a cluster."""
    values = [np.asarray(one, dtype=np.float64) for one in groups]
    codes = np.repeat(np.arange(len(values)), [len(one) for one in values])
    found = largest_difference(np.concatenate(values), np.ones(len(codes)), codes, PERCENT, seed)
    assert found is not None
    return found


def test_two_groups_have_welchs_t_and_its_p() -> None:
    rng = np.random.default_rng(0)
    wide, narrow = 42 + 30 * stats.zscore(rng.standard_normal(12)), 60 + 5 * stats.zscore(rng.standard_normal(40))
    found, welch = difference_of(wide, narrow, seed=0), stats.ttest_ind(narrow, wide, equal_var=False)
    assert found.pair == (1, 0)
    assert found.value == pytest.approx(18)
    assert (found.value / found.error, found.df) == pytest.approx((welch.statistic, welch.df))
    assert welch.pvalue == pytest.approx(0.07, abs=0.01)
    assert found.p == pytest.approx(welch.pvalue, abs=0.02)
    for level in (0.9, 0.95, 0.99):
        assert found.interval(level) == pytest.approx(tuple(welch.confidence_interval(level)), abs=2)
        assert (found.interval(level)[0] > 0) == (found.p < 1 - level)
    assert found.interval(1 - 1e-6) == (-math.inf, math.inf)


def test_a_cluster_is_one_unit_and_a_group_without_variation_has_the_variance_of_an_unseen_value() -> None:
    found = difference_of([0] * 6, [50, 70] * 5, seed=0)
    assert found.error**2 == pytest.approx(100**2 / (6 * 7) + 1000 / 9 / 10)
    once = largest_difference([0] * 6 + [50, 70] * 5, [1] * 16, [0] * 6 + [1] * 10, PERCENT, 0)
    twice = largest_difference([0] * 6 + [100, 140] * 5, [2] * 16, [0] * 6 + [1] * 10, PERCENT, 0)
    assert once is not None
    assert twice is not None
    assert (twice.value, twice.error, twice.p) == pytest.approx((once.value, once.error, once.p))
    assert largest_difference([10] * 12, [1] * 12, [0, 1] * 6, PERCENT, 0) is None
    assert largest_difference([10, 20] * 6, [1] * 12, [0] * 12, PERCENT, 0) is None


@pytest.mark.parametrize("sizes", [(6, 60), (12, 60), (12, 12, 12, 12, 12)])
def test_equal_means_of_unequal_sizes_and_spreads_are_rarely_claimed(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right-or-wrong scores beside scores near 50; unscaled ranges claim a difference in 73, 37 and 15%."""
    monkeypatch.setattr(module, "N_DRAWS", 1000)
    rng = np.random.default_rng(1)
    claims = [
        difference_of(100 * rng.integers(0, 2, sizes[0]), *(rng.normal(50, 8, n) for n in sizes[1:]), seed=at).p < 0.05
        for at in range(150)
    ]
    assert np.mean(claims) < 0.1
