"""`--limit`: how many sentences and values it leaves, which, and what it says where they are too few."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from helpers.file_refusal import written
from undertow import audits
from undertow.audits.base import Sampling
from undertow.audits.shared.item_limit import (
    MAX_EXACT,
    MIN_SENTENCES,
    MIN_VALUES,
    N_FLIPS,
    ListSizes,
    cross_sizes,
    even_places,
    fewest_hits,
    smallest_flip_p,
    stratified_sample,
)
from undertow.audits.spurious_correlation.items import Settings
from undertow.stats import MIN_CLUSTERS
from undertow.stats.regression import trend
from undertow.stats.significance import sign_flip
from undertow.stats.significance.false_discovery import benjamini_hochberg
from undertow.types import Item


def test_a_limit_is_kept_and_gives_the_least_that_is_useful_wherever_that_can_be_had() -> None:
    """All limits of designs of several sizes, one by one."""
    for n_sentences, n_values in itertools.product((6, 9, 60), (8, 13, 20, 61)):
        for limit in range(1, min(n_sentences * n_values, 700)):
            sentences, values = cross_sizes(limit, n_sentences, n_values)
            assert 1 <= sentences <= n_sentences
            assert 3 <= values <= n_values
            assert sentences * values <= max(limit, 3)
            if limit >= 48:
                assert (sentences >= 6, values >= 8) == (True, True)
            if limit >= 96:
                assert (sentences >= min(8, n_sentences), values >= min(12, n_values)) == (True, True)
            if limit >= 200:
                assert sentences * values >= 0.85 * limit


def test_values_are_evenly_spread_with_both_ends() -> None:
    assert even_places(4, 10) == [0, 3, 6, 9]
    for count, n in itertools.product((2, 3, 8, 12, 30), (12, 20, 30, 61)):
        places = even_places(count, n)
        assert (places[0], places[-1], len(set(places))) == (0, n - 1, min(count, n))
        assert np.ptp(np.diff(places)) <= 1


def test_units_are_spread_over_strata_and_a_larger_draw_holds_the_smaller() -> None:
    strata = ["a"] * 50 + ["b"] * 5 + ["c"] * 2
    for seed in range(5):
        for count in range(1, len(strata) + 1):
            chosen = stratified_sample(strata, count, seed)
            assert len(set(chosen)) == count
            assert chosen == sorted(chosen)
            assert set(chosen) >= set(stratified_sample(strata, count - 1, seed))
            taken = Counter(strata[at] for at in chosen)
            # No stratum has two more than another that has some left.
            left = [taken[name] for name in "abc" if taken[name] < strata.count(name)]
            assert not left or max(taken.values()) - min(left) <= 1
    assert len({tuple(stratified_sample(strata, 3, seed)) for seed in range(20)}) > 10


# In spurious correlation.


def asked(settings: Settings, limit: int, seed: int = 0) -> list[Item]:
    return next(audits.load("spurious-correlation").items(settings, Sampling(limit, seed)))


def sizes(items: list[Item]) -> dict[str, tuple[int, int]]:
    """Sentences and values of each W list, which must be crossed in full."""
    found = {}
    for name in dict.fromkeys(str(item.factors["w_name"]) for item in items):
        of_list = [item for item in items if item.factors["w_name"] == name]
        sentences, values = {item.cluster for item in of_list}, {item.factors["w"] for item in of_list}
        assert len(of_list) == len(sentences) * len(values)
        found[name] = (len(sentences), len(values))
    return found


@pytest.mark.parametrize(
    ("limit", "lists"),
    [
        (20, {"date": (2, 5), "place": (2, 5)}), (96, {"date": (6, 8), "place": (6, 8)}),
        (192, {"date": (8, 12), "place": (8, 12)}), (600, {"date": (15, 20), "place": (15, 20)}),
        (2800, {"date": (53, 30), "place": (60, 20)}), (0, {"date": (60, 30), "place": (60, 20)}),
        (10**6, {"date": (60, 30), "place": (60, 20)}),
    ],
)  # fmt: skip
def test_a_limit_is_divided_among_w_lists(limit: int, lists: dict[str, tuple[int, int]]) -> None:
    items = asked(Settings(), limit)
    assert sizes(items) == lists
    for name, first, last in (("date", "1801", "2016"), ("place", "Afghanistan", "Iceland")):
        values = [item.factors["w"] for item in items if item.factors["w_name"] == name]
        assert (values[0], values[-1]) == (first, last)


OWN = """templates = ["In {w}, {blank} {verb} {what}."]
clusters = ["verb"]
w = ["date"]
words = "pronouns"
[slots]
verb = ["saw", "had", "made", "sold", "gave", "took"]
what = ["it", "this", "that", "one", "two", "all", "some", "many"]
"""


def test_a_limit_asks_sentences_of_as_many_clusters_as_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, OWN, "own.toml")
    for seed in range(5):
        assert sizes(asked(Settings(challenge=path), 48, seed)) == {"date": (6, 8)}


def test_a_list_without_order_needs_fewer_values(tmp_path: Path) -> None:
    audit = audits.load("spurious-correlation")
    alone = Settings(w=written(tmp_path, "a\nb\nc\nd\n", "w.txt"), w_scale="none")
    assert sizes(asked(alone, 24)) == {"w": (6, 4)}
    assert audit.limitations(alone, Sampling(0)) == []
    assert len(audit.limitations(alone, Sampling(12))) == 1
    # Flips of the signs of six sentences have p of 2 / 64 at least: q of one test in four is .125, of two .0625, of three .042.
    (few,) = audit.limitations(alone, Sampling(24))
    assert "3 of a model's 4 tests" in few


@pytest.mark.parametrize(
    ("scale", "clusters", "values", "missing"),
    [
        ("index", 6, 8, (0, 0)), ("value", 5, 30, (1, 0)), ("index", 60, 4, (0, 4)), ("index", 2, 3, (4, 5)),
        ("none", 6, 3, (0, 0)), ("none", 3, 2, (3, 1)),
    ],
)  # fmt: skip
def test_what_a_list_lacks_is_counted(scale: str, clusters: int, values: int, missing: tuple[int, int]) -> None:
    of_list = ListSizes("w", scale, clusters, clusters, values)
    assert (of_list.missing_clusters, of_list.missing_values) == missing
    assert bool(of_list.limitation()) == any(missing)
    assert all(f"{number} " in of_list.limitation() or not number for number in missing)
    assert (MIN_SENTENCES, MIN_VALUES) == (MIN_CLUSTERS, trend.MIN_VALUES)


def test_the_smallest_p_of_few_sentences_is_that_of_their_test() -> None:
    assert (MAX_EXACT, N_FLIPS) == (sign_flip.MAX_EXACT, sign_flip.N_EXCHANGES)
    for n_clusters in (6, 9, 13, 14, 40):
        # Every sentence is moved alike, by a great deal: no flip but that of all of them differs as much.
        cells = np.random.default_rng(n_clusters).normal(0, 1e-3, (n_clusters, 5)) + 100 * np.arange(5.0)
        found = trend.covariate_effect(cells, np.ones_like(cells))
        assert found.p == pytest.approx(smallest_flip_p(n_clusters), rel=0.01 if n_clusters <= MAX_EXACT else 3)
    for n_clusters, n_tests in ((6, 1), (6, 4), (6, 8), (7, 3), (7, 4), (9, 12), (9, 13)):
        p = smallest_flip_p(n_clusters)
        agreeing = [
            hits
            for hits in range(1, n_tests + 1)
            if benjamini_hochberg([p] * hits + [1.0] * (n_tests - hits))[0] < 0.05
        ]
        assert fewest_hits(n_clusters, n_tests) == agreeing[0]
