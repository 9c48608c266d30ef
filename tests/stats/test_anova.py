"""One-way analysis agrees with scipy and with sums that a hand can do, and says nothing where there is nothing to say."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from undertow.stats.variance_components import one_way, welch_p


@pytest.mark.parametrize("seed", range(6))
def test_p_is_that_of_the_f_test(seed: int) -> None:
    """Groups of unlike sizes, one of a single point, in any order; in half of the cases they differ."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(list("dacbe"), [7, 3, 12, 1, 5]))
    y = 50 + rng.normal(0, 2, 28) + (seed % 2) * np.char.equal(group, "a") * 4
    found = one_way(y, group)
    expected = stats.f_oneway(*(y[group == name] for name in "abcde"))
    assert found.p == pytest.approx(expected.pvalue)
    between = sum((group == name).sum() * (y[group == name].mean() - y.mean()) ** 2 for name in "abcde")
    assert found.share == pytest.approx(between / ((y - y.mean()) ** 2).sum())
    assert found.expected_share == 4 / 27


def test_by_hand() -> None:
    """Of squares of 225 + 25 + 25 + 225 about 25, 50 + 50 lie about 15 and 35. F(1, 2) is 8, the square of t(2)."""
    found = one_way([10, 20, 30, 40], ["x", "x", "y", "y"])
    assert found.share == pytest.approx(0.8)
    assert found.expected_share == pytest.approx(1 / 3)
    assert found.p == pytest.approx(1 - math.sqrt(8 / 10))


def test_groups_without_any_spread_within_explain_everything() -> None:
    assert astuple(one_way([1, 1, 2, 2, 5], ["a", "a", "b", "b", "c"])) == (1.0, 2 / 4, 0.0)


@pytest.mark.parametrize(
    ("y", "group"),
    [
        ([], []),
        ([1.0], ["a"]),
        ([1.0, 2.0, 3.0], ["a", "a", "a"]),
        ([1.0, 2.0, 3.0], ["a", "b", "c"]),
        ([5.0, 5.0, 5.0, 5.0], ["a", "a", "b", "b"]),
        ([0.0, 0.0, 0.0, 0.0], ["a", "a", "b", "b"]),
        ([0.3, 0.1 + 0.2, 0.3, 0.3], ["a", "a", "b", "b"]),  # differs by rounding only
    ],
)
def test_where_there_is_nothing_to_say_everything_is_nan(y: list[float], group: list[str]) -> None:
    assert np.isnan(astuple(one_way(y, group))).all()


def test_a_small_spread_on_a_large_mean_is_not_taken_for_rounding() -> None:
    assert one_way([50, 50 + 2e-9, 50 + 4e-9, 50 + 6e-9], [0, 0, 1, 1]).share == pytest.approx(0.8, rel=1e-3)


# Unequal spreads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_p_of_unequal_spreads_is_welchs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(list("abc"), [6, 9, 20]))
    y = rng.normal(0, 1, 35) * (1 + 3 * (group == "c")) + 0.8 * (group == "a")
    expected = anova_oneway([y[group == name] for name in "abc"], use_var="unequal").pvalue
    assert welch_p(y, group) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("y", "group"), [([1.0, 2, 3], [0, 0, 0]), ([1.0, 2, 3], [0, 0, 1]), ([1.0, 1, 2, 3], [0, 0, 1, 1]), ([], [])]
)
def test_groups_that_cannot_be_compared_have_no_p(y: list[float], group: list[int]) -> None:
    assert math.isnan(welch_p(y, group))
