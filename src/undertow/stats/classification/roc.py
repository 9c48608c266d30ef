"""ROC analysis: AUROC, and held-out best thresholds.

`positive` marks the class of high scores. Clusters (here: occupations) are resampled and held out as a whole, because their members
are not independent. Held-out fits and thresholds are recomputed in every permutation and resample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from undertow.stats.arrays import LARGEST, Bools, Codes, Floats, as_floats, divide
from undertow.stats.context import check_interrupted, only_points
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, random_groups
from undertow.stats.regression.logistic import held_out_draws
from undertow.stats.significance.sign_flip import permutation_p_value

ROUNDING_DECIMALS = 9
"""Decimals at which differences of rounded masses are compared, because floating-point errors break ties."""

ROUNDING_OF_STATISTIC = 1e-9
"""Tolerance for ties of the permutation statistic."""
MAX_FOLDS = 60
"""Maximum number of folds in resamples; more clusters are held out in groups."""
CHUNK_CELLS = 1_000_000
"""Draws are processed in chunks of about this many (draw, observation) cells to bound memory."""


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive scores above a negative, ties counting half; NaN if a class is empty."""
    values, marks = _check_scores(scores, positive)
    n_positive, n_negative = int(marks.sum()), int((~marks).sum())
    if not n_positive or not n_negative:
        return math.nan
    ranks = rankdata(np.round(values, ROUNDING_DECIMALS))
    return float((ranks[marks].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def roc_points(scores: ArrayLike, positive: ArrayLike) -> tuple[Floats, Floats]:
    """Corners of the ROC curve, from (0, 0) to (1, 1): false and true positive rates, each [corner].

    Raises:
        ValueError: a score is not finite, or a class is empty.
    """
    values, marks = _check_scores(scores, positive)
    if not marks.any() or marks.all():
        raise ValueError("a curve needs both kinds")
    levels, place = np.unique(-np.round(values, ROUNDING_DECIMALS), return_inverse=True)
    true, false = (np.cumsum(np.bincount(place[kind], minlength=len(levels))) / kind.sum() for kind in (marks, ~marks))
    return np.insert(false, 0, 0.0), np.insert(true, 0, 0.0)


def auroc_draws(scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, weights: ArrayLike) -> Floats:
    """AUROC in each bootstrap draw of clusters [draw]; NaN for draws without a positive or a negative.

    An observation has the weight of its cluster, a pair the product of both weights. Scores are [observation], or [draw, observation] if
    they differ by draw; a draw with a NaN has no area. `cluster` is the index of each observation's cluster [observation], and `weights`
    the count of each cluster in each draw [draw, cluster].
    """
    of, drawn = np.asarray(cluster, dtype=np.int64), np.asarray(weights, dtype=np.float64)
    values, marks = np.round(as_floats(scores), ROUNDING_DECIMALS), np.asarray(positive, dtype=bool)
    areas = np.full(len(drawn), math.nan)
    if not len(of):
        return areas
    chunk = max(1, CHUNK_CELLS // len(of))
    for start in range(0, len(drawn), chunk):
        part = slice(start, start + chunk)
        if values.ndim == 1:
            order = np.argsort(values, kind="stable")
            levels = np.unique(values[order], return_index=True)[1]
            counted, kinds = drawn[part][:, of[order]], (marks[order], ~marks[order])
            above, below = (np.add.reduceat(np.where(kind, counted, 0.0), levels, axis=1) for kind in kinds)
            won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
            areas[part] = divide(won, above.sum(axis=1) * below.sum(axis=1))
        else:
            areas[part] = _areas_of_rows(values[part], drawn[part][:, of], marks)
    return areas


def _areas_of_rows(values: Floats, counted: Floats, marks: Bools) -> Floats:
    """Areas from a score and weights of each draw's own, both [draw, observation]."""
    order = np.argsort(values, axis=1, kind="stable")
    known = np.isfinite(values).all(axis=1)
    values, counted = (np.take_along_axis(one, order, axis=1) for one in (values, counted))
    above, below = np.where(marks[order], counted, 0.0), np.where(marks[order], 0.0, counted)
    beneath = np.cumsum(below, axis=1)
    # For a tie, the mean of the negatives below its first and up to its last member: half of the tied pairs count.
    begins = np.diff(values, axis=1, prepend=-math.inf) > 0
    ends = np.roll(begins, -1, axis=1)
    ends[:, -1] = True
    places = np.arange(values.shape[1])
    first = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, places[-1])[:, ::-1], axis=1)[:, ::-1]
    under = np.take_along_axis(beneath - below, first, axis=1)
    won = (above * (under + np.take_along_axis(beneath, last, axis=1)) / 2).sum(axis=1)
    return divide(won, np.where(known, above.sum(axis=1) * below.sum(axis=1), 0.0))


def auroc_p_value(
    scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, n_permutations: int, rng: np.random.Generator
) -> float:
    """Two-sided permutation p-value of an AUROC against chance; NaN if a class is empty.

    The labels are shuffled within clusters, because differences between clusters are not tested. With at least six clusters of both
    classes, the statistic is studentised by the variance of the clusters' contributions to the rank sum, so that the test is also valid
    if classes differ in each cluster but not on average (Janssen 1997, "Studentized permutation tests for non-i.i.d. hypotheses and the
    generalized Behrens-Fisher problem"). With fewer, the plain rank sum is used, and p holds for these clusters only. If no cluster has
    both classes, whole clusters are shuffled, because their members are not independent. The observed order is included, so p is never
    0. NaN within `point_estimates`.
    """
    check_interrupted()
    values, marks = _check_scores(scores, positive)
    if not marks.any() or marks.all() or only_points():
        return math.nan
    order, of = _by_cluster(cluster)
    ranks = rankdata(np.round(values[order], ROUNDING_DECIMALS))[np.newaxis]
    orders = _orders(marks[order], of, n_permutations, rng)
    far = np.concatenate([np.abs(_rank_statistic(ranks, one, of)) for one in orders])
    return permutation_p_value(far[0], far[1:], tolerance=ROUNDING_OF_STATISTIC)


def fitted_auroc_p_value(
    features: ArrayLike, positive: ArrayLike, cluster: ArrayLike, n_permutations: int, rng: np.random.Generator
) -> float:
    """One-sided permutation p-value of the AUROC of held-out scores, refitted in every permutation; NaN as `auroc_p_value`.

    Held-out scores depend on the labels of all other clusters, and without a signal their area is below chance more often than above,
    so only refits to shuffled labels give the null distribution. The statistic and the permutations are those of `auroc_p_value`; only
    larger areas count as evidence. Features are [observation, feature].
    """
    check_interrupted()
    x, marks = np.asarray(features, dtype=np.float64), np.asarray(positive, dtype=bool)
    if not marks.any() or marks.all() or only_points():
        return math.nan
    order, of = _by_cluster(cluster)
    fold = folds(int(of.max()) + 1)
    statistics = []
    for one in _orders(marks[order], of, n_permutations, rng):
        odds = np.round(held_out_draws(x[order], one, of, fold=fold), ROUNDING_DECIMALS)
        statistics.append(_rank_statistic(rankdata(odds, axis=1), one, of))
    far = np.concatenate(statistics)
    return math.nan if math.isnan(far[0]) else permutation_p_value(far[0], far[1:], tolerance=ROUNDING_OF_STATISTIC)


def folds(n_clusters: int) -> Codes:
    """Fold of each cluster in repeated hold-outs [cluster]; each cluster is a fold if there are few."""
    if n_clusters <= MAX_FOLDS:
        return np.arange(n_clusters)
    return random_groups(n_clusters, MAX_FOLDS, np.random.default_rng(0))


def n_mixed(positive: ArrayLike, cluster: ArrayLike) -> int:
    """Number of clusters with both classes; labels and clusters are [observation]."""
    marks = np.asarray(positive, dtype=bool)
    _, of = np.unique(np.asarray(cluster), return_inverse=True)
    counts = np.bincount(of, weights=marks)
    return int(((counts > 0) & (counts < np.bincount(of))).sum())


def _by_cluster(cluster: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """An order of observations that is contiguous by cluster, and the cluster index at each position."""
    _, of = np.unique(np.asarray(cluster), return_inverse=True)
    order = np.argsort(of, kind="stable")
    return order, of[order]


def _orders(marks: Bools, of: NDArray[np.intp], n_permutations: int, rng: np.random.Generator) -> Iterator[Bools]:
    """The observed labels, then shuffled ones in chunks [order, observation]; observations are contiguous by cluster."""
    yield marks[np.newaxis]
    whole = not n_mixed(marks, of)
    chunk = max(1, CHUNK_CELLS // len(marks))
    for start in range(0, n_permutations, chunk):
        size = min(chunk, n_permutations - start)
        if whole:
            of_clusters = marks[np.flatnonzero(np.diff(of, prepend=-1))]
            yield rng.permuted(np.tile(of_clusters, (size, 1)), axis=1)[:, of]
        else:  # the sort keys of a cluster are contiguous, so labels stay within it
            yield marks[np.argsort(rng.random((size, len(marks))) + of, axis=1)]


def _rank_statistic(ranks: Floats, marks: Bools, of: NDArray[np.intp]) -> Floats:
    """Rank statistic of each order [order], from ranks and labels [order or 1, observation]."""
    if not (mixed := n_mixed(marks[0], of)):  # clusters differ in size, so compare areas instead of rank sums
        n_positive = marks.sum(axis=1)
        won = (ranks * marks).sum(axis=1) - n_positive * (n_positive + 1) / 2
        areas: Floats = won / (n_positive * (len(of) - n_positive)) - 0.5
        return areas
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    centred = ranks - (np.add.reduceat(ranks, starts, axis=1) / np.bincount(of))[:, of]
    contributions = np.add.reduceat(centred * marks, starts, axis=1)  # [order, cluster]
    total: Floats = contributions.sum(axis=1)
    if mixed < MIN_CLUSTERS:
        return total
    size = np.sqrt((contributions**2).sum(axis=1))
    studentised: Floats = np.divide(total, size, out=np.zeros(len(total)), where=~(size <= ROUNDING_OF_STATISTIC))
    return studentised


def best_threshold(scores: ArrayLike, positive: ArrayLike) -> float:
    """The threshold of highest balanced accuracy, midway between two scores, the lowest of exact ties; NaN if undefined."""
    values, marks = _check_scores(scores, positive)
    if not marks.any() or marks.all():
        return math.nan
    levels, place = np.unique(np.round(values, ROUNDING_DECIMALS), return_inverse=True)
    positives, negatives = (np.bincount(place[kind], minlength=len(levels)) for kind in (marks, ~marks))
    # Threshold k lies below level k: levels from k on are called positive.
    above = np.append(np.cumsum(positives[::-1])[::-1], 0)
    beneath = np.insert(np.cumsum(negatives), 0, 0)
    return float(_best_thresholds(above[np.newaxis], beneath[np.newaxis], levels)[0])


def held_out_calls(scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike) -> tuple[Bools, Floats]:
    """Calls by thresholds that were chosen without the own cluster: (is positive, threshold).

    Both are [observation]; an undefined threshold is NaN and gives negative calls.
    """
    values, marks = _check_scores(scores, positive)
    of = np.asarray(cluster)
    thresholds = np.full(len(values), math.nan)
    for left_out in np.unique(of):
        others = of != left_out
        thresholds[~others] = best_threshold(values[others], marks[others])
    return np.round(values, ROUNDING_DECIMALS) > thresholds, thresholds


def held_out_balanced_draws(
    scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, weights: ArrayLike, fold: ArrayLike | None = None
) -> Floats:
    """Balanced accuracy of held-out calls in each bootstrap draw [draw], with thresholds chosen in the draw.

    As `held_out_calls`, with all copies of a cluster held out together. NaN if a draw, or a draw without a cluster, has one class only.
    `cluster` and `weights` are those of `auroc_draws`; clusters of the same `fold` [cluster] are left out together, each alone by default.
    """
    check_interrupted()
    values, marks = _check_scores(scores, positive)
    of, drawn = np.asarray(cluster, dtype=np.int64), np.asarray(weights, dtype=np.float64)
    left_out = np.arange(drawn.shape[1]) if fold is None else np.asarray(fold, dtype=np.int64)
    values = np.round(values, ROUNDING_DECIMALS)
    levels, place = np.unique(values, return_inverse=True)
    # Threshold k lies below level k: positives of a cluster above it, and negatives below [cluster, threshold].
    above, beneath = np.zeros((2, drawn.shape[1], len(levels) + 1))
    np.add.at(above, (of[marks], place[marks]), 1)
    np.add.at(beneath, (of[~marks], place[~marks] + 1), 1)
    above, beneath = np.cumsum(above[:, ::-1], axis=1)[:, ::-1], np.cumsum(beneath, axis=1)
    totals = drawn @ np.stack([above, beneath]).transpose(1, 0, 2).reshape(drawn.shape[1], -1)
    all_above, all_beneath = np.hsplit(totals, 2)  # [draw, threshold]
    hits = np.zeros((2, len(drawn)))
    for one in np.unique(left_out):
        own = left_out == one
        here = drawn[:, own].any(axis=1)
        counts = drawn[np.ix_(here, own)]
        thresholds = _best_thresholds(
            all_above[here] - counts @ above[own], all_beneath[here] - counts @ beneath[own], levels
        )
        members = own[of]
        right = (values[members] > thresholds[:, np.newaxis]) == marks[members]
        weighted = right * drawn[np.ix_(here, of[members])]
        weighted[np.isnan(thresholds)] = math.nan
        for row, kind in enumerate((marks[members], ~marks[members])):
            hits[row, here] += weighted[:, kind].sum(axis=1)
    sizes = np.stack([all_above[:, 0], all_beneath[:, -1]])
    accuracy: Floats = divide(hits, sizes).mean(axis=0)
    return accuracy


def _best_thresholds(above: Floats | Codes, beneath: Floats | Codes, levels: Floats) -> Floats:
    """`best_threshold` of each draw [draw], from counts of positives above and negatives below each threshold [draw, threshold]."""
    n_positive, n_negative = above[:, :1], beneath[:, -1:]
    # Twice the balanced accuracy times the product of both class sizes: products of counts are exact, so ties are exact.
    sums = above * n_negative
    sums += beneath * n_positive
    best = np.argmax(sums, axis=1)
    # A level without observations in a draw does not change the counts, so the threshold lies between levels of the draw.
    draws = np.arange(len(best))
    beyond = best + 1
    while True:
        at = np.minimum(beyond, len(levels))
        alike = (above[draws, at] == above[draws, best]) & (beneath[draws, at] == beneath[draws, best])
        alike &= beyond <= len(levels)
        if not alike.any():
            break
        beyond += alike
    lower = np.where(best > 0, levels[np.maximum(best - 1, 0)], math.nan)
    upper = np.where(beyond <= len(levels), levels[np.minimum(beyond, len(levels)) - 1], math.nan)
    thresholds = np.where(np.isnan(lower), upper - 1, np.where(np.isnan(upper), lower, (lower + upper) / 2))
    return np.where((n_positive[:, 0] > 0) & (n_negative[:, 0] > 0), thresholds, math.nan)


def _check_scores(scores: ArrayLike, positive: ArrayLike) -> tuple[Floats, Bools]:
    values = np.asarray(scores, dtype=np.float64)
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError("scores must be finite")
    return values, np.asarray(positive, dtype=bool)
