"""How well a score tells two kinds apart: rates at a threshold, area under the ROC curve, the best threshold held out.

Arrays in, arrays out. Knows nothing about what is detected; `positive` marks the kind that a high score should mean.
Clusters (here: occupations) are resampled whole and left out whole, since their members are not independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from undertow.stats.doubles import outside
from undertow.stats.points import only_points

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING_DECIMALS = 9
"""Differences of recorded, rounded masses that are equal on paper differ in the last digit of a double."""

CHUNK_CELLS = 1_000_000
"""Draws are made in chunks of about this many (draw, observation) cells, so that memory does not grow with them."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a threshold does.

    Attributes:
        tpr: share of the positives above it; NaN without positives.
        tnr: share of the negatives at or below it; NaN without negatives.
    """

    tpr: float
    tnr: float

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the two, so that a detector that always says the same has one half."""
        return (self.tpr + self.tnr) / 2


def rates(scores: ArrayLike, positive: ArrayLike, threshold: float) -> Rates:
    """Rates at a threshold: a score above it says positive, one at it does not.

    Raises:
        ValueError: scores and positive are not vectors of one length.
    """
    values, marks = _checked(scores, positive)
    above = np.round(values, ROUNDING_DECIMALS) > threshold
    return Rates(_share(above[marks]), _share(~above[~marks]))


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Chance that a positive scores above a negative, ties counting half; NaN if there are none of either.

    Raises:
        ValueError: as `rates`.
    """
    values, marks = _checked(scores, positive)
    n_positive, n_negative = int(marks.sum()), int((~marks).sum())
    if not n_positive or not n_negative:
        return math.nan
    ranks = rankdata(np.round(values, ROUNDING_DECIMALS))
    return float((ranks[marks].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def roc_points(scores: ArrayLike, positive: ArrayLike) -> tuple[Floats, Floats]:
    """Corners of the ROC curve, from (0, 0) to (1, 1): false and true positive rates, each [corner].

    Raises:
        ValueError: as `rates`, or there are none of either kind.
    """
    values, marks = _checked(scores, positive)
    if not marks.any() or marks.all():
        raise ValueError("a curve needs both kinds")
    levels, place = np.unique(-np.round(values, ROUNDING_DECIMALS), return_inverse=True)
    true, false = (np.cumsum(np.bincount(place[kind], minlength=len(levels))) / kind.sum() for kind in (marks, ~marks))
    return np.insert(false, 0, 0.0), np.insert(true, 0, 0.0)


def auroc_draws(scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, weights: ArrayLike) -> Floats:
    """AUROC in each bootstrap draw of clusters; NaN where a draw has no positive or no negative.

    An observation counts as often as its cluster was drawn, a pair as often as both, multiplied.

    Args:
        scores: [observation].
        positive: [observation].
        cluster: number of each observation's cluster, 0 to n - 1 [observation].
        weights: how often each cluster was drawn [draw, cluster].

    Returns:
        [draw].

    Raises:
        ValueError: shapes differ.
    """
    values, marks = _checked(scores, positive)
    of, drawn = np.asarray(cluster, dtype=np.int64), np.asarray(weights, dtype=np.float64)
    if of.shape != values.shape or drawn.ndim != 2 or (len(of) and of.max() >= drawn.shape[1]):
        raise ValueError(f"cluster must be [observation] and weights [draw, cluster]; got {of.shape} and {drawn.shape}")
    shares = np.full(len(drawn), math.nan)
    if not len(values):
        return shares
    order = np.argsort(np.round(values, ROUNDING_DECIMALS), kind="stable")
    levels = np.unique(np.round(values, ROUNDING_DECIMALS)[order], return_index=True)[1]
    chunk = max(1, CHUNK_CELLS // len(values))
    for start in range(0, len(drawn), chunk):
        part = slice(start, start + chunk)
        counted = drawn[part][:, of[order]]  # [draw, observation], lowest score first
        above, below = (
            np.add.reduceat(np.where(kind, counted, 0.0), levels, axis=1) for kind in (marks[order], ~marks[order])
        )  # [draw, level]
        pairs = above.sum(axis=1) * below.sum(axis=1)
        won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        np.divide(won, pairs, out=shares[part], where=pairs > 0)
    return shares


def auroc_p_value(
    scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, n_permutations: int, rng: np.random.Generator
) -> float:
    """Two-sided permutation p-value of an AUROC against chance; NaN if there are none of either kind.

    The marks are shuffled within clusters, since what differs between clusters is not what is tested. Where no cluster
    holds both kinds, whole clusters are shuffled, since their members are not independent. The observed order is counted
    in, so that p is never 0. NaN within `point_estimates`.

    Raises:
        ValueError: as `rates`.
    """
    values, marks = _checked(scores, positive)
    if not marks.any() or marks.all() or only_points():
        return math.nan
    _, of = np.unique(np.asarray(cluster), return_inverse=True)
    positives = np.bincount(of, weights=marks)
    ranks = rankdata(np.round(values, ROUNDING_DECIMALS))
    if ((positives > 0) & (positives < np.bincount(of))).any():
        return _p_within(ranks, marks, of, n_permutations, rng)
    return _p_of_whole_clusters(ranks, positives > 0, of, n_permutations, rng)


def _p_within(
    ranks: Floats, marks: Bools, of: NDArray[np.intp], n_permutations: int, rng: np.random.Generator
) -> float:
    by_cluster = np.argsort(of, kind="stable")
    ranks, labels, block = ranks[by_cluster], marks[by_cluster], of[by_cluster]
    # What shuffling within clusters gives on average: what differs between clusters moves the centre, not the distance from it.
    mean_ranks = np.bincount(block, weights=ranks) / np.bincount(block)
    centre = float(mean_ranks[block[labels]].sum())
    observed = abs(float(ranks[labels].sum()) - centre)
    hits = 0
    chunk = max(1, CHUNK_CELLS // len(ranks))
    for start in range(0, n_permutations, chunk):
        size = min(chunk, n_permutations - start)
        shuffled = np.argsort(
            rng.random((size, len(ranks))) + block, axis=1
        )  # within blocks: the keys of one lie together
        hits += int(np.count_nonzero(np.abs(ranks[shuffled][:, labels].sum(axis=1) - centre) >= observed - 1e-9))
    return (1 + hits) / (1 + n_permutations)


def _p_of_whole_clusters(
    ranks: Floats, marked: Bools, of: NDArray[np.intp], n_permutations: int, rng: np.random.Generator
) -> float:
    """Which clusters are positive is shuffled; clusters differ in size, so areas are compared and not sums of ranks."""
    sizes, sums = np.bincount(of).astype(np.float64), np.bincount(of, weights=ranks)
    shuffled = rng.permuted(np.tile(marked, (n_permutations, 1)), axis=1)  # [order, cluster]
    marks = np.vstack([marked[np.newaxis], shuffled]).astype(np.float64)
    n_positive = marks @ sizes
    won = marks @ sums - n_positive * (n_positive + 1) / 2
    far = np.abs(won / (n_positive * (len(ranks) - n_positive)) - 0.5)
    return (1 + int(np.count_nonzero(far[1:] >= far[0] - 1e-12))) / (1 + n_permutations)


def cluster_weights(n_clusters: int, n_draws: int, rng: np.random.Generator) -> Floats:
    """How often each cluster is drawn when as many as there are are drawn with replacement [draw, cluster].

    No draws within `point_estimates`.
    """
    size = 0 if only_points() else n_draws
    return rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=size).astype(np.float64)


def best_threshold(scores: ArrayLike, positive: ArrayLike) -> float:
    """The threshold of highest balanced accuracy, midway between two scores, the lowest of equals; NaN if undefined.

    Raises:
        ValueError: as `rates`.
    """
    values, marks = _checked(scores, positive)
    if not marks.any() or marks.all():
        return math.nan
    levels, place = np.unique(np.round(values, ROUNDING_DECIMALS), return_inverse=True)
    positives, negatives = (np.bincount(place[kind], minlength=len(levels)) for kind in (marks, ~marks))
    # Threshold k lies below level k: everything from level k on is called positive.
    above = np.append(np.cumsum(positives[::-1])[::-1], 0) / marks.sum()
    beneath = np.insert(np.cumsum(negatives), 0, 0) / (~marks).sum()
    best = int(np.argmax(above + beneath))
    edges = np.concatenate([[levels[0] - 1], (levels[1:] + levels[:-1]) / 2, [levels[-1]]])
    return float(edges[best])


def held_out_calls(scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike) -> tuple[Bools, Floats]:
    """Calls by a threshold that was chosen without the cluster it is applied to: (says positive, threshold).

    Both are [observation]; a threshold that could not be chosen is NaN, and says negative.

    Raises:
        ValueError: as `rates`.
    """
    values, marks = _checked(scores, positive)
    of = np.asarray(cluster)
    thresholds = np.full(len(values), math.nan)
    for left_out in np.unique(of):
        others = of != left_out
        thresholds[~others] = best_threshold(values[others], marks[others])
    return np.round(values, ROUNDING_DECIMALS) > thresholds, thresholds


def _checked(scores: ArrayLike, positive: ArrayLike) -> tuple[Floats, Bools]:
    values, marks = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=bool)
    if values.ndim != 1 or values.shape != marks.shape:
        raise ValueError(f"scores and positive must be vectors of one length; got {values.shape} and {marks.shape}")
    if np.isnan(values).any() or outside(values).any():
        raise ValueError("scores must be finite; leave out what was not scored")
    return values, marks


def _share(hits: Bools) -> float:
    return float(hits.mean()) if hits.size else math.nan
