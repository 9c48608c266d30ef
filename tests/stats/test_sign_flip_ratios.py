from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from undertow.stats.significance import sign_flip
from undertow.stats.significance.sign_flip import crossed_exchange_p, sign_flip_pvalues

Floats = NDArray[np.float64]
Side = tuple[Fraction, int]
"""A side of a cluster: its sum and its count."""
Cluster = tuple[Side, Side]
Sums = tuple[Floats, Floats]
"""Sums and counts of a side [cluster, test]."""


Whole = tuple[int, int]
"""A side whose sum is in whole parts, so that adding up is fast."""


def ratio(sides: Sequence[Whole], parts: int) -> Fraction | None:
    n = sum(count for _, count in sides)
    return Fraction(sum(total for total, _ in sides), n * parts) if n else None


def brute_force_p(clusters: Sequence[Cluster]) -> Fraction | None:
    """Share of all exchanges whose ratios differ as much, or of which one has no count; None where nothing can be told."""
    parts = math.lcm(*(total.denominator for one in clusters for total, _ in one))
    whole = [tuple((int(total * parts), count) for total, count in one) for one in clusters]

    def difference(exchanged: Sequence[bool]) -> Fraction | None:
        first = ratio([cluster[turned] for cluster, turned in zip(whole, exchanged, strict=True)], parts)
        second = ratio([cluster[not turned] for cluster, turned in zip(whole, exchanged, strict=True)], parts)
        return None if first is None or second is None else abs(first - second)

    observed = difference([False] * len(clusters))
    if observed is None or sum(one[1] + other[1] > 0 for one, other in clusters) < 2:
        return None
    found = [difference(pattern) for pattern in itertools.product((False, True), repeat=len(clusters))]
    return Fraction(sum(one is None or one >= observed for one in found), len(found))


def arrays(tests: Sequence[Sequence[Cluster]]) -> tuple[Sums, Sums]:
    """Both sides of several tests over as many clusters, sums and counts [cluster, test]."""
    numbers = np.array(
        [[[[float(part) for part in side] for side in cluster] for cluster in one] for one in tests]
    )  # [test, cluster, side, part]
    y1, d1, y2, d2 = (numbers[:, :, side, part].T for side in (0, 1) for part in (0, 1))
    return (y1, d1), (y2, d2)


def p_of(clusters: Sequence[Cluster], seed: int = 0) -> float:
    return float(sign_flip_pvalues(*arrays([clusters]), seed)[0])


def assert_is(found: float, expected: Fraction | None) -> None:
    assert found == pytest.approx(math.nan if expected is None else float(expected), nan_ok=True)


SIDES = st.integers(0, 3).flatmap(
    lambda count: st.tuples(st.integers(0, 10 * count).map(lambda tenths: Fraction(tenths, 10)), st.just(count))
)
"""A sum of up to three answers in tenths, which are not exact in binary; nothing where nothing was asked."""
CLUSTERS = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=6)


def cluster(y1: Fraction | float, d1: int, y2: Fraction | float, d2: int) -> Cluster:
    return (Fraction(y1), d1), (Fraction(y2), d2)


TENTHS = [cluster(Fraction(y1, 10), 1, Fraction(y2, 10), 1) for y1, y2 in ((1, 0), (2, 0), (0, 3), (6, 0))]
""".1 + .2 is not .3 in binary, so that sums which are equal on paper differ in their last digits."""


@settings(max_examples=50)
@given(CLUSTERS)
@example(TENTHS)
@example([cluster(3, 3, 0, 1), cluster(1, 1, 1, 3)])  # unequal counts
@example([cluster(1, 1, 0, 0), cluster(0, 0, 0, 1)])  # an exchange that leaves a side without counts is as far
@example([cluster(1, 1, 0, 0), cluster(0, 0, 0, 1), cluster(1, 2, 1, 2)])
@example([cluster(1, 1, 0, 1), cluster(0, 0, 0, 0)])  # a single cluster
@example([cluster(1, 2, 0, 0), cluster(1, 1, 0, 0)])  # a side without counts
def test_p_is_that_of_all_exchanges(clusters: list[Cluster]) -> None:
    assert_is(p_of(clusters), brute_force_p(clusters))


def test_no_clusters_have_none() -> None:
    assert math.isnan(p_of([cluster(1, 1, 0, 1), *[cluster(0, 0, 0, 0)] * 20]))
    empty = np.zeros((0, 3))
    assert np.isnan(sign_flip_pvalues((empty, empty), (empty, empty))).all()
    assert sign_flip_pvalues((np.zeros((4, 0)), np.zeros((4, 0))), (np.zeros((4, 0)), np.zeros((4, 0)))).shape == (0,)


def test_tests_that_are_made_at_once_are_each_its_own() -> None:
    """Two of the four have no p."""
    lone = [cluster(1, 1, 0, 1), *[cluster(0, 0, 0, 0)] * 3]
    tests = [[cluster(1, 1, 0, 1)] * 4, [cluster(1, 1, 0, 0)] * 4, lone, [*TENTHS[:2], cluster(3, 3, 0, 1), TENTHS[2]]]
    found = sign_flip_pvalues(*arrays(tests))
    assert found.shape == (4,)
    for p, clusters in zip(found, tests, strict=True):
        assert_is(float(p), brute_force_p(clusters))


def random_sides(n_clusters: int, n_tests: int, seed: int, effect: float = 0.0) -> tuple[Sums, Sums]:
    """Two sides whose clusters differ from one another, and whose sides are alike but for the effect [cluster, test]."""
    rng = np.random.default_rng(seed)
    shape = (n_clusters, n_tests)
    level = rng.normal(size=shape)
    first, second = (rng.integers(1, 6, size=shape).astype(float) for _ in range(2))
    noise = rng.normal(size=(2, *shape))
    return (first * (level + effect + noise[0]), first), (second * (level + noise[1]), second)


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """Patterns are kept for other tests of as many clusters, which is wrong where what is exact changes."""
    sign_flip.exchange_patterns.cache_clear()
    yield
    sign_flip.exchange_patterns.cache_clear()


def test_random_exchanges_come_near_all_exchanges(nothing_kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = random_sides(10, 40, seed=5, effect=0.5)
    exact = sign_flip_pvalues(*sides)
    sign_flip.exchange_patterns.cache_clear()
    monkeypatch.setattr(sign_flip, "MAX_EXACT", 9)
    drawn = sign_flip_pvalues(*sides, seed=1)
    assert not np.array_equal(drawn, exact)
    error = np.sqrt(exact * (1 - exact) / sign_flip.N_EXCHANGES)
    assert np.ptp(exact) > 0.5
    assert (np.abs(drawn - exact) <= 5 * error + 1 / sign_flip.N_EXCHANGES).all()


def test_random_exchanges_are_of_the_seed_and_count_the_observed_one() -> None:
    sides = random_sides(30, 5, seed=2)
    assert np.array_equal(sign_flip_pvalues(*sides, seed=4), sign_flip_pvalues(*sides, seed=4))
    assert not np.array_equal(sign_flip_pvalues(*sides, seed=4), sign_flip_pvalues(*sides, seed=5))
    # Of 2**40 exchanges two are as far, and none of them is drawn.
    assert p_of([cluster(1, 1, 0, 1)] * 40) == 1 / (1 + sign_flip.N_EXCHANGES)


def test_tests_between_change_nothing(nothing_kept: None) -> None:
    """Of other clusters and of other seeds, whose exchanges are kept too."""
    cases = [(n_clusters, seed) for n_clusters in (10, 11, 15, 16) for seed in (1, 2)]
    sides = {n_clusters: random_sides(n_clusters, 4, seed=n_clusters) for n_clusters, _ in cases}
    alone = {}
    for n_clusters, seed in cases:
        sign_flip.exchange_patterns.cache_clear()
        alone[n_clusters, seed] = sign_flip_pvalues(*sides[n_clusters], seed)
    for n_clusters, seed in [*cases, *cases[::-1]] * 2:
        assert np.array_equal(sign_flip_pvalues(*sides[n_clusters], seed), alone[n_clusters, seed])


def test_a_crossed_design_has_the_larger_p_of_its_rows_and_its_columns() -> None:
    """Three rows by two columns of differences, by all exchanges of whole rows and of whole columns.

           columns    sum
    rows    1   1      2
            1   0      1
            1  -1      0
    sum     3   0      3

    Of the 8 exchanges of rows those are as far as 3 in which the first two agree, 4; of the 4 of columns, all.
    """
    first = np.array([1.0, 1, 1, 0, 1, 0]), np.ones(6)
    second = np.array([0.0, 0, 0, 0, 0, 1]), np.ones(6)
    rows, columns, one = np.repeat(range(3), 2), np.tile(range(2), 3), np.zeros(6, dtype=int)
    assert crossed_exchange_p(first, second, rows, one) == 4 / 8
    assert crossed_exchange_p(first, second, one, columns) == 4 / 4
    assert crossed_exchange_p(first, second, rows, columns) == 1
    assert math.isnan(crossed_exchange_p(first, second, one, one))
    assert math.isnan(crossed_exchange_p(first, (second[0], np.zeros(6)), rows, columns))
