"""Drawing by quota: uniform numbers, and as many of each kind as there should be in any stretch."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.lab.planted_population import stratified_uniform


def test_each_part_of_each_group_has_one() -> None:
    group = np.random.default_rng(1).permutation(np.repeat([0, 1, 2, 4], [7, 100, 1, 32]))
    numbers = stratified_uniform(group, np.random.default_rng(2))
    for number, size in ((0, 7), (1, 100), (2, 1), (4, 32)):
        assert sorted(np.floor(numbers[group == number] * size)) == list(range(size))


def test_any_stretch_holds_each_group_in_proportion() -> None:
    group = np.repeat([0, 1], [9_000, 1_000])
    order = np.argsort(stratified_uniform(group, np.random.default_rng(3)), kind="stable")
    for begin in range(0, 10_000, 500):
        assert group[order[begin : begin + 500]].sum() == pytest.approx(50, abs=2)  # by chance 50 +- 7


def test_who_comes_first_is_left_to_chance() -> None:
    draws = [stratified_uniform(np.zeros(5, dtype=np.int64), np.random.default_rng(seed)) for seed in range(4_000)]
    first = np.bincount(np.argmin(draws, axis=1), minlength=5) / 4_000
    assert first == pytest.approx(np.full(5, 0.2), abs=0.03)
    assert np.mean(draws) == pytest.approx(0.5, abs=0.01)
    assert np.var(np.ravel(draws)) == pytest.approx(1 / 12, abs=0.005)


def test_nobody_is_nobody() -> None:
    assert stratified_uniform(np.zeros(0, dtype=np.int64), np.random.default_rng(0)).shape == (0,)
