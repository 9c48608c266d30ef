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

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROUNDING_DECIMALS = 9
"""Differences of recorded, rounded masses that are equal on paper differ in the last digit of a double."""


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


def auroc_draws(scores: ArrayLike, positive: ArrayLike, cluster: ArrayLike, weights: ArrayLike) -> Floats:
    """AUROC in each bootstrap draw of clusters; NaN where a draw has no positive or no negative.

    A pair of observations counts as often as its clusters were drawn, multiplied; so the wins of positives over
    negatives are summed once by pairs of clusters, and each draw is a quadratic form.

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
    rounded, n_clusters = np.round(values, ROUNDING_DECIMALS), drawn.shape[1]
    above, below = rounded[marks], rounded[~marks]
    wins = (above[:, None] > below[None, :]) + 0.5 * (above[:, None] == below[None, :])  # [positive, negative]
    by_cluster = np.zeros((n_clusters, n_clusters))
    np.add.at(by_cluster, (of[marks][:, None], of[~marks][None, :]), wins)
    n_positive = drawn @ np.bincount(of[marks], minlength=n_clusters)
    n_negative = drawn @ np.bincount(of[~marks], minlength=n_clusters)
    pairs = n_positive * n_negative
    won: Floats = ((drawn @ by_cluster) * drawn).sum(axis=1)
    shares: Floats = np.divide(won, pairs, out=np.full(len(drawn), math.nan), where=pairs > 0)
    return shares


def cluster_weights(n_clusters: int, n_draws: int, rng: np.random.Generator) -> Floats:
    """How often each cluster is drawn when as many as there are are drawn with replacement [draw, cluster]."""
    return rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), size=n_draws).astype(np.float64)


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
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite; leave out what was not scored")
    return values, marks


def _share(hits: Bools) -> float:
    return float(hits.mean()) if hits.size else math.nan
