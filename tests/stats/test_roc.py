from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import rankdata

from undertow.stats import point_estimates
from undertow.stats.classification import roc
from undertow.stats.classification.roc import (
    auroc,
    auroc_draws,
    auroc_p_value,
    best_threshold,
    fitted_auroc_p_value,
    folds,
    held_out_balanced_draws,
    held_out_calls,
    roc_points,
)
from undertow.stats.intervals.cluster_errors import cluster_weights, spread_interval
from undertow.stats.regression.logistic import held_out_log_odds

SCORES = [0.1, 0.4, 0.35, 0.8]
POSITIVE = [False, False, True, True]

SAMPLES = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), min_size=2, max_size=20)


def brute_force(scores: list[float], positive: list[bool]) -> float:
    sides = ([score for score, mark in zip(scores, positive, strict=True) if mark is kind] for kind in (True, False))
    pairs = list(itertools.product(*sides))
    return sum((one > other) + 0.5 * (one == other) for one, other in pairs) / len(pairs) if pairs else math.nan


def test_scores_that_differ_by_rounding_tie() -> None:
    difference = 1.1 - 0.6
    assert difference > 0.5  # as doubles have it
    assert auroc([difference, 0.5], [True, False]) == 0.5
    assert auroc_draws([1.1 - 0.6, 0.5], [True, False], [0, 1], np.ones((2, 2))).tolist() == [0.5, 0.5]


@settings(max_examples=60)
@given(SAMPLES)
def test_auroc_is_the_share_of_pairs_won(sample: list[tuple[int, bool, int]]) -> None:
    scores, positive = [float(score) for score, _, _ in sample], [mark for _, mark, _ in sample]
    assert auroc(scores, positive) == pytest.approx(brute_force(scores, positive), nan_ok=True)


@settings(max_examples=60)
@given(SAMPLES)
@example([(score, score in (2, 6), 0) for score in range(8)])  # 1 + 2/6 and 1/2 + 5/6 differ as sums of doubles
def test_the_best_threshold_is_the_lowest_that_no_other_beats(sample: list[tuple[int, bool, int]]) -> None:
    scores, positive = [float(score) for score, _, _ in sample], [mark for _, mark, _ in sample]
    if all(positive) or not any(positive):
        assert math.isnan(best_threshold(scores, positive))
        return

    def balanced(threshold: float) -> Fraction:
        right = [mark for score, mark in zip(scores, positive, strict=True) if (score > threshold) == mark]
        return sum((Fraction(right.count(kind), positive.count(kind)) for kind in (True, False)), Fraction(0))

    levels = sorted(set(scores))
    edges = [levels[0] - 1, *(sum(pair) / 2 for pair in itertools.pairwise(levels)), levels[-1]]
    assert best_threshold(scores, positive) == max(edges, key=balanced)


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
    assert np.isnan(auroc_draws([1.0, 2.0], [True, True], [0, 1], np.ones((3, 2)))).all()
    assert np.isnan(auroc_draws([], [], [], np.ones((3, 2)))).tolist() == [True] * 3
    assert math.isnan(auroc_p_value([1.0, 2.0], [False, False], [0, 1], 10, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="finite"):
        auroc([math.nan, 1.0], [True, False])
    draws = auroc_draws([[1.0, 2.0], [math.nan, 2.0]], [False, True], [0, 1], np.ones((2, 2)))
    assert draws.tolist() == pytest.approx([1, math.nan], nan_ok=True)


def weighted_share(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> float:
    """Share of pairs won, a pair counting as the product of its two weights."""
    won = total = 0.0
    for one, other in itertools.product(np.flatnonzero(positive), np.flatnonzero(~positive)):
        pair = weights[one] * weights[other]
        total += pair
        won += pair * (1.0 if scores[one] > scores[other] else 0.5 if scores[one] == scores[other] else 0.0)
    return won / total if total else math.nan


def tied_sample(seed: int, n: int = 30, n_clusters: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many ties, either kind, and clusters: each [observation]."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, n) / 10, rng.random(n) < 0.6, rng.integers(0, n_clusters, n)


@pytest.mark.parametrize("cells", [1, 30, 100, 10**6])
def test_draws_are_weighted_pair_counts_whatever_the_chunks(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw at a time, one and a bit, three, all at once; weights need not be whole."""
    monkeypatch.setattr(roc, "CHUNK_CELLS", cells)
    scores, positive, cluster = tied_sample(1)
    weights = np.vstack(
        [cluster_weights(6, 9, np.random.default_rng(2)), np.random.default_rng(3).random((4, 6)), np.zeros((1, 6))]
    )
    draws = auroc_draws(scores, positive, cluster, weights)
    assert draws.shape == (14,)
    for draw, counts in zip(draws, weights, strict=True):
        assert draw == pytest.approx(weighted_share(scores, positive, counts[cluster]), nan_ok=True)
    assert np.isnan(draws[-1])
    assert len(np.unique(draws[:-1])) > 10


def test_weights_draw_as_many_clusters_as_there_are() -> None:
    weights = cluster_weights(5, 4000, np.random.default_rng(0))
    assert (weights.sum(axis=1) == 5).all()
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=0.06)
    assert np.mean(weights == 0) == pytest.approx(0.8**5, abs=0.02)


@settings(max_examples=50)
@given(SAMPLES, st.integers(0, 2**31))
def test_a_draw_may_have_scores_of_its_own(sample: list[tuple[int, bool, int]], seed: int) -> None:
    """Ties among them, and clusters that are not in a draw, or are in it twice."""
    rng = np.random.default_rng(seed)
    weights, scores = cluster_weights(4, 5, rng), rng.integers(0, 4, (5, len(sample))) / 10
    marks, of = [mark for _, mark, _ in sample], [cluster for _, _, cluster in sample]
    draws = auroc_draws(scores, marks, of, weights)
    for draw, own, counts in zip(draws, scores, weights.astype(int), strict=True):
        repeated = [(value, mark) for value, mark, at in zip(own, marks, of, strict=True) for _ in range(counts[at])]
        expected = brute_force([float(value) for value, _ in repeated], [mark for _, mark in repeated])
        assert draw == pytest.approx(expected, nan_ok=True)


def exact_p(scores: list[float], positive: list[bool], cluster: list[int]) -> float:
    """Share of all ways to hand out each cluster's marks within it whose AUROC is as far from one half."""
    members = [[index for index, of in enumerate(cluster) if of == one] for one in sorted(set(cluster))]
    choices = [itertools.combinations(of, sum(positive[index] for index in of)) for of in members]
    observed = abs(brute_force(scores, positive) - 0.5)
    extreme = []
    for chosen in itertools.product(*choices):
        marked = set(itertools.chain.from_iterable(chosen))
        shuffled = [index in marked for index in range(len(scores))]
        extreme.append(abs(brute_force(scores, shuffled) - 0.5) >= observed - 1e-12)
    return sum(extreme) / len(extreme)


TINY = {
    "two clusters": ([1, 5, 2, 4, 7, 3, 6], [0, 1, 0, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 1]),
    "ties": ([1, 3, 3, 2, 3, 1, 2], [0, 1, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 1]),
    "a cluster of one kind": ([4, 5, 1, 2, 9, 3, 8], [1, 1, 0, 0, 1, 0, 1], [0, 0, 1, 1, 1, 2, 2]),
    "clusters out of order": ([1, 4, 5, 7, 2, 3, 6], [0, 0, 1, 1, 0, 0, 1], [5, 2, 5, 2, 5, 2, 2]),
    "all in one": ([1, 5, 2, 4, 7, 3, 6], [0, 1, 0, 0, 1, 0, 1], [0] * 7),
    "turned round": ([7, 1, 6, 4, 2, 5, 3], [0, 1, 0, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 1]),
}


@pytest.mark.parametrize("case", TINY)
def test_p_comes_close_to_that_of_every_order(case: str) -> None:
    scores, marks, cluster = TINY[case]
    values, positive = [float(score) for score in scores], [bool(mark) for mark in marks]
    expected = exact_p(values, positive, cluster)
    assert expected < 0.5
    p = auroc_p_value(values, positive, cluster, 20_000, np.random.default_rng(0))
    assert p == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize("cells", [1, 100])
def test_p_is_counted_over_every_chunk(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the 19 or 199 orders of 30 well separated observations none is as good: only the observed one counts."""
    monkeypatch.setattr(roc, "CHUNK_CELLS", cells)
    scores, positive = np.arange(30.0), np.arange(30) >= 15
    for n_permutations in (19, 199):
        p = auroc_p_value(scores, positive, np.zeros(30), n_permutations, np.random.default_rng(0))
        assert p == 1 / (1 + n_permutations)
    level = auroc_p_value(np.ones(30), positive, np.zeros(30), 199, np.random.default_rng(0))
    assert level == 1


def test_whole_clusters_are_shuffled_where_none_holds_both_kinds() -> None:
    scores, positive, cluster = np.arange(12.0), np.arange(12) >= 6, np.arange(12) // 2
    # Of the 20 ways to mark three of six pairs, this one and its mirror image are as far from chance.
    p = auroc_p_value(scores, positive, cluster, 1999, np.random.default_rng(7))
    assert p == pytest.approx(0.1, abs=0.03)
    # One cluster of both kinds is enough to stay within clusters: of the six ways to mark two of its four, two are as far.
    mixed = auroc_p_value(
        scores, positive, np.where(np.isin(cluster, [2, 3]), 9, cluster), 999, np.random.default_rng(7)
    )
    assert mixed == pytest.approx(1 / 3, abs=0.05)


SIX = {
    "pairs": ([1, 5, 2, 4, 7, 3, 6, 9, 8, 9.5, 2.5, 3.5], [0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1]),
    "a reversed cluster": ([1, 5, 2, 4, 3, 7, 6, 9, 8, 9.5, 8.5, 0], [0, 1] * 6),
    "ties": ([1, 2, 1, 1, 1, 3, 2, 2, 1, 2, 3, 4], [0, 1] * 6),
}


@pytest.mark.parametrize("case", SIX)
def test_with_six_clusters_the_rank_sum_is_measured_by_how_the_clusters_differ(case: str) -> None:
    """All 64 ways to mark one of each pair, and the t statistic of the six contributions by scipy."""
    values, marks = np.array(SIX[case][0], dtype=float), np.array(SIX[case][1], dtype=bool)
    ranks = rankdata(values).reshape(6, 2)
    sizes = []
    for turned in itertools.product([False, True], repeat=6):
        chosen = marks.reshape(6, 2) ^ np.array(turned)[:, np.newaxis]
        contributions = (ranks * chosen).sum(axis=1) - ranks.mean(axis=1)
        spread = np.sqrt((contributions**2).sum())
        sizes.append(abs(contributions.sum()) / spread if spread else 0.0)
    expected = np.mean(np.array(sizes) >= sizes[0] - 1e-9)
    p = auroc_p_value(values, marks, np.arange(12) // 2, 20_000, np.random.default_rng(0))
    assert p == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 20_000) + 1e-4)


@pytest.mark.slow
def test_kinds_that_differ_in_each_cluster_in_its_own_way_are_no_evidence() -> None:
    """The kinds lie apart by N(0, 1) in each of 12 clusters, 0 on average. The rank sum by itself would find that in every fifth."""
    rng, n, cluster = np.random.default_rng(8), 400, np.repeat(np.arange(12), 8)
    positive, found = np.tile(np.arange(8) >= 2, 12), 0
    for _ in range(n):
        scores = rng.normal(0, 1, 96) + positive * rng.normal(0, 1, 12)[cluster]
        found += auroc_p_value(scores, positive, cluster, 99, rng) <= 0.05
    assert found <= 0.05 * n + 3 * math.sqrt(0.05 * 0.95 * n)


@pytest.mark.parametrize(
    ("scores", "positive", "false", "true"),
    [
        (SCORES, POSITIVE, [0, 0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1, 1]),
        # A level that both kinds share is one slanted step.
        ([2, 1, 1, 0], [True, True, False, False], [0, 0, 0.5, 1], [0, 0.5, 1, 1]),
        ([3, 3, 3], [True, False, False], [0, 1], [0, 1]),
        ([1, 2, 2, 3], [True, True, True, False], [0, 1, 1, 1], [0, 0, 2 / 3, 1]),
        # Equal on paper, so one step.
        ([1.1 - 0.6, 0.5], [True, False], [0, 1], [0, 1]),
    ],
)
def test_corners_by_hand(scores: list[float], positive: list[bool], false: list[float], true: list[float]) -> None:
    false_positive, true_positive = roc_points(scores, positive)
    np.testing.assert_allclose(false_positive, false)
    np.testing.assert_allclose(true_positive, true)


@settings(max_examples=60)
@given(SAMPLES)
def test_the_area_under_the_curve_is_the_auroc(sample: list[tuple[int, bool, int]]) -> None:
    scores, positive = [float(score) for score, _, _ in sample], [mark for _, mark, _ in sample]
    if all(positive) or not any(positive):
        with pytest.raises(ValueError, match="both kinds"):
            roc_points(scores, positive)
        return
    false, true = roc_points(scores, positive)
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    assert float(np.trapezoid(true, false)) == pytest.approx(auroc(scores, positive))


def test_a_threshold_that_could_not_be_chosen_says_no() -> None:
    calls, thresholds = held_out_calls([1.0, 2.0, 3.0], [False, True, True], ["a", "a", "b"])
    assert math.isnan(thresholds[0])
    assert math.isnan(thresholds[1])
    assert calls.tolist() == [False, False, True]
    assert thresholds[2] == 1.5


@settings(max_examples=50)
@given(SAMPLES, st.integers(0, 2**31))
def test_a_draw_chooses_its_thresholds_without_any_copy_of_a_cluster(
    sample: list[tuple[int, bool, int]], seed: int
) -> None:
    """The drawn clusters written out, each copy under its cluster's own name."""
    scores, marks, of = (np.array(column) for column in zip(*sample, strict=True))
    weights = np.vstack([np.ones(4), cluster_weights(4, 5, np.random.default_rng(seed))])
    draws = held_out_balanced_draws(scores, marks, of, weights)
    for draw, counts in zip(draws, weights.astype(int), strict=True):
        at = np.repeat(np.arange(len(of)), counts[of])
        calls, thresholds = held_out_calls(scores[at], marks[at], of[at])
        positive = marks[at]
        if not len(at) or positive.all() or not positive.any() or np.isnan(thresholds).any():
            assert math.isnan(draw)
        else:
            assert draw == pytest.approx((calls[positive].mean() + (~calls[~positive]).mean()) / 2)


def test_folds_are_clusters_until_there_are_many_and_are_held_out_whole() -> None:
    assert folds(60).tolist() == list(range(60))
    counts = np.bincount(folds(130))
    assert len(counts) == 60
    assert set(counts.tolist()) == {2, 3}
    scores, positive, cluster = tied_sample(5, n=60)
    whole = held_out_balanced_draws(scores, positive, cluster, np.ones((1, 6)), np.arange(6) // 2)
    calls = held_out_calls(scores, positive, cluster // 2)[0]
    assert whole[0] == pytest.approx((calls[positive].mean() + (~calls[~positive]).mean()) / 2)


def test_the_interval_of_a_spread() -> None:
    """Student's t of seven degrees of freedom, and the variance of eight clusters made good; of a share on its log-odds."""
    draws = np.array([0.4, 0.5, 0.6, 0.7, 0.8])
    half = stats.t.ppf(0.975, 7) * draws.std() * math.sqrt(8 / 7)
    assert spread_interval(0.7, draws, 8) == pytest.approx((0.7 - half, 0.7 + half))
    low, high = spread_interval(0.7, draws, 8, share=True)
    assert [math.log(end / (1 - end)) for end in (low, high)] == pytest.approx(
        [math.log(7 / 3) + sign * half / 0.21 for sign in (-1, 1)]
    )
    assert np.isnan(spread_interval(0.7, draws, 5)).all()
    assert np.isnan(spread_interval(0.7, [*draws, math.nan], 8)).all()
    many = np.append(np.tile(draws, 20), math.nan)
    assert spread_interval(0.7, many, 8) == pytest.approx((0.7 - half, 0.7 + half))


def test_the_p_of_a_fit_is_least_for_kinds_that_a_feature_tells_and_needs_both_kinds() -> None:
    marks, clusters = np.tile([True, False], 24), np.repeat(np.arange(12), 4)
    told = np.column_stack([marks * 1.0, np.zeros(48)])
    assert fitted_auroc_p_value(told, marks, clusters, 99, np.random.default_rng(0)) == pytest.approx(0.01)
    for one_kind in (np.ones(48, dtype=bool), np.zeros(48, dtype=bool)):
        assert math.isnan(fitted_auroc_p_value(told, one_kind, clusters, 9, np.random.default_rng(0)))
    with point_estimates():
        assert math.isnan(fitted_auroc_p_value(told, marks, clusters, 9, np.random.default_rng(0)))


@pytest.mark.soak
@pytest.mark.slow
def test_the_p_of_a_fit_is_that_of_marks_that_are_shuffled_and_fitted_to_the_end() -> None:
    """Whole clusters of one kind, so that areas are compared: 400 permutations, each fitted without each of its 12 clusters."""
    rng, cluster = np.random.default_rng(3), np.repeat(np.arange(12), 4)
    features = rng.normal(0, 1, (12, 6))[cluster] + rng.normal(0, 1, (48, 6))
    positive = cluster % 2 == 0
    features[:, 0] += 2.5 * positive

    def area(marks: np.ndarray) -> float:
        return auroc(held_out_log_odds(features, marks, cluster), marks)

    observed = area(positive)
    shuffled = [area(rng.permutation(np.arange(12) % 2 == 0)[cluster]) for _ in range(400)]
    expected = np.mean(np.array(shuffled) >= observed)
    assert 0.02 < expected < 0.4
    p = fitted_auroc_p_value(features, positive, cluster, 999, rng)
    assert p == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) * (1 / 400 + 1 / 999)))
    # With a single cluster there are no others to fit to.
    assert math.isnan(fitted_auroc_p_value(features, positive, np.zeros(48), 19, rng))


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_mann_whitneys_and_its_bootstrap_delongs(seed: int) -> None:
    """Sentences that are clusters of their own: the interval is DeLong's (1988), within what a bootstrap of both kinds adds."""
    positive = np.arange(160) % 2 == 0
    scores = np.round(np.random.default_rng(seed).normal(0, 1, 160) + 0.8 * positive, 1)
    won = (scores[positive][:, None] > scores[~positive]) + 0.5 * (scores[positive][:, None] == scores[~positive])
    variance = (won.mean(axis=1).var(ddof=1) + won.mean(axis=0).var(ddof=1)) / 80
    assert auroc(scores, positive) == pytest.approx(won.mean())
    assert won.mean() == pytest.approx(stats.mannwhitneyu(scores[positive], scores[~positive]).statistic / (80 * 80))
    draws = auroc_draws(scores, positive, np.arange(160), cluster_weights(160, 4000, np.random.default_rng(1)))
    assert draws.std() == pytest.approx(math.sqrt(variance), rel=0.08)
