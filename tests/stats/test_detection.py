"""Detection: rates and AUROC by hand and by brute force, draws as reweighted data, thresholds held out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.stats.detection import auroc, auroc_draws, best_threshold, cluster_weights, held_out_calls, rates

SCORES = [0.1, 0.4, 0.35, 0.8]
POSITIVE = [False, False, True, True]

SAMPLES = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), min_size=2, max_size=20)


def brute_force(scores: list[float], positive: list[bool]) -> float:
    pairs = [
        (one, other)
        for one, p in zip(scores, positive, strict=True)
        if p
        for other, n in zip(scores, positive, strict=True)
        if not n
    ]
    return sum((one > other) + 0.5 * (one == other) for one, other in pairs) / len(pairs) if pairs else math.nan


def test_by_hand() -> None:
    assert auroc(SCORES, POSITIVE) == 0.75
    at = rates(SCORES, POSITIVE, 0.35)
    assert (at.tpr, at.tnr, at.balanced_accuracy) == (0.5, 0.5, 0.5)
    at = rates(SCORES, POSITIVE, 0.3)
    assert (at.tpr, at.tnr, at.balanced_accuracy) == (1.0, 0.5, 0.75)


def test_a_difference_that_is_the_threshold_on_paper_is_not_above_it() -> None:
    difference = 1.1 - 0.6
    assert difference > 0.5  # as doubles have it
    assert rates([difference], [True], 0.5).tpr == 0.0
    assert auroc([difference, 0.5], [True, False]) == 0.5


@settings(max_examples=200, deadline=None)
@given(SAMPLES)
def test_auroc_is_the_share_of_pairs_won(sample: list[tuple[int, bool, int]]) -> None:
    scores, positive = [float(score) for score, _, _ in sample], [mark for _, mark, _ in sample]
    assert auroc(scores, positive) == pytest.approx(brute_force(scores, positive), nan_ok=True)


@settings(max_examples=100, deadline=None)
@given(SAMPLES, st.integers(0, 2**31))
def test_a_draw_is_the_auroc_of_the_drawn_clusters(sample: list[tuple[int, bool, int]], seed: int) -> None:
    weights = cluster_weights(4, 6, np.random.default_rng(seed))
    assert (weights.sum(axis=1) == 4).all()
    draws = auroc_draws([s for s, _, _ in sample], [m for _, m, _ in sample], [c for _, _, c in sample], weights)
    for draw, counts in zip(draws, weights.astype(int), strict=True):
        repeated = list(itertools.chain.from_iterable([(float(s), m)] * counts[c] for s, m, c in sample))
        expected = brute_force([s for s, _ in repeated], [m for _, m in repeated])
        assert draw == pytest.approx(expected, nan_ok=True)


@settings(max_examples=200, deadline=None)
@given(SAMPLES)
def test_no_threshold_beats_the_best(sample: list[tuple[int, bool, int]]) -> None:
    scores, positive = [float(score) for score, _, _ in sample], [mark for _, mark, _ in sample]
    best = best_threshold(scores, positive)
    if all(positive) or not any(positive):
        assert math.isnan(best)
        return
    reached = rates(scores, positive, best).balanced_accuracy
    assert reached >= 0.5
    for other in np.arange(-1.5, 6, 0.5):
        assert rates(scores, positive, float(other)).balanced_accuracy <= reached + 1e-12


def test_held_out_calls_do_not_see_their_cluster() -> None:
    """Two clusters agree on a threshold of 1.5, the third would like another: its own calls use theirs."""
    scores = [1.0, 2.0, 1.0, 2.0, 10.0, 20.0]
    positive = [False, True, False, True, False, True]
    calls, thresholds = held_out_calls(scores, positive, [0, 0, 1, 1, 2, 2])
    assert calls.tolist()[4:] == [True, True]
    assert thresholds[4] == 1.5
    changed, _ = held_out_calls([1.0, 2.0, 1.0, 2.0, 99.0, -5.0], positive, [0, 0, 1, 1, 2, 2])
    assert changed.tolist()[4:] == [True, False]


def test_what_is_not_there_is_nan_and_what_is_wrong_is_refused() -> None:
    assert math.isnan(auroc([1.0, 2.0], [True, True]))
    assert math.isnan(rates([1.0], [True], 0.5).tnr)
    assert np.isnan(auroc_draws([1.0, 2.0], [True, True], [0, 1], np.ones((3, 2)))).all()
    with pytest.raises(ValueError, match="one length"):
        auroc([1.0], [True, False])
    with pytest.raises(ValueError, match="finite"):
        auroc([math.nan, 1.0], [True, False])
    with pytest.raises(ValueError, match="cluster must be"):
        auroc_draws([1.0, 2.0], [True, False], [0, 5], np.ones((1, 2)))
