"""Orders of labels: all of them where they are few, random ones otherwise."""

from __future__ import annotations

import itertools

import numpy as np

from undertow.stats import label_orders


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_all_orders_are_taken_where_they_are_few_enough() -> None:
    found = label_orders(4, 24, rng())
    assert found.exact
    assert {tuple(order) for order in found.orders} == set(itertools.permutations(range(4)))
    assert found.orders[0].tolist() == [0, 1, 2, 3]
    assert not label_orders(4, 23, rng()).exact
    assert label_orders(7, 10_000, rng()).exact
    assert not label_orders(8, 10_000, rng()).exact
    assert not label_orders(400, 10, rng()).exact


def test_random_orders_are_orders() -> None:
    drawn = label_orders(9, 50, rng())
    assert drawn.orders.shape == (50, 9)
    np.testing.assert_array_equal(np.sort(drawn.orders, axis=1), np.tile(np.arange(9), (50, 1)))
    assert len({tuple(order) for order in drawn.orders}) == 50


def test_every_label_comes_to_every_place_as_often() -> None:
    placed = label_orders(12, 24_000, rng()).orders
    times = np.array([np.bincount(placed[:, place], minlength=12) for place in range(12)])
    assert np.abs(times - 2_000).max() < 5 * np.sqrt(2_000 * 11 / 12)
