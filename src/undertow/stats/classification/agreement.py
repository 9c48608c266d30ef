"""Agreement of answers with gold labels or texts: means over cells, with intervals by a bootstrap over documents.

A cell is a wording with a draw of examples; every cell is applied to every document. The cells are
fixed: `value` and `sd` describe these cells, as Bauer et al. 2022 ("Analyzing the Limits of Self-Supervision in Handling
Bias in Language") report mean and standard deviation over task descriptions. Documents, or clusters of them, are a sample.
The mean of bounded scores has the interval of `stats.intervals.bounded_mean` (no draws). F1 and BLEU have percentiles
of a bootstrap over documents, macro-F1 and AUROC a t interval of log-odds with its variance, with the same draws for all cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from undertow.stats.arrays import ROUNDING_SHARE, Codes, Estimate, Floats, as_floats, divide
from undertow.stats.classification.roc import auroc_draws
from undertow.stats.context import check_interrupted, only_points
from undertow.stats.intervals.bounded_mean import bounded_mean
from undertow.stats.intervals.cluster_errors import MIN_CLUSTERS, cluster_weights, percentile_interval, spread_interval
from undertow.stats.variance_components import population_sd

N_DRAWS = 2000
"""Bootstrap draws of documents behind each interval."""
MIN_FOR_BOOTSTRAP = 40
"""Minimum number of clusters (for macro-F1, of each class) for intervals of BLEU and macro-F1. Coverage of BLEU is 75 to 92% with 8 to 20
skewed clusters, because draws without a match are missing, and 93% with 40. That of macro-F1 is 93 to 98% with 40 to 100 of each
class, also if 95% of the answers are one label (percentiles: 86 to 97%)."""
MIN_FOR_AREAS = 10
"""Minimum number of clusters of each class for an interval of an AUROC. Coverage with 10 to 100 of each is 93 to 98% for AUROC of .5 to
.98 (percentiles: 87 to nearly 100%, and none for a perfect ranking), and 92 to 98% with 10 and 100."""
UNDECODABLE, NO_ANSWER = -1, -2
"""Codes of an answer outside the labels, which counts as wrong, and of a missing answer, which does not count."""
N_BLEU_STATISTICS = 10
"""Lengths of answer and reference, matched n-grams of 1 to 4 words, n-grams of 1 to 4 words in the answer."""


def mean_over_cells(values: ArrayLike, bounds: tuple[float, float], clusters: ArrayLike | None = None) -> Estimate:
    """Each cell's mean over its documents, and the mean of these over cells.

    Args:
        values: one number for each answer, such as 1 for right and 0 for wrong; NaN if missing [document, cell].
        bounds: smallest and largest possible value; one beyond them is a `ValueError`.
        clusters: cluster of each document [document]; each document is a cluster if not given.

    Returns:
        The estimate, in the unit of the values, over the cells and documents with values: `sd` is over cells, `n` counts documents,
        and the interval, of `bounded_mean`, covers other documents; it is NaN below `MIN_CLUSTERS` clusters.
    """
    numbers = as_floats(values)
    has_number = ~np.isnan(numbers).all(axis=1)
    codes = _cluster_codes(clusters, len(numbers))[has_number]
    numbers = numbers[has_number]
    seen, ones = ~np.isnan(numbers), np.ones((1, len(numbers)))
    per_cell = divide(ones @ np.where(seen, numbers, 0.0), ones @ seen)[0]
    known = per_cell[~np.isnan(per_cell)]
    low, high = bounded_mean(numbers, bounds, codes).interval()
    value = float(known.mean()) if known.size else math.nan
    return Estimate(value, low, high, len(codes), sd=population_sd(known))


def f1_over_cells(  # noqa: PLR0913, PLR0917 - labels, what their F1 is of, and how documents hang together
    gold: ArrayLike,
    predicted: ArrayLike,
    n_classes: int,
    positive: int | None,
    seed: int,
    clusters: ArrayLike | None = None,
) -> Estimate:
    """F1 of one class, or macro-F1, of each cell, and its mean over cells.

    Each cell has the documents with an answer in it. In a draw without a class, macro-F1 is over the others. Macro-F1 has an interval if
    each class of each cell has `MIN_FOR_BOOTSTRAP` clusters. Equal seeds draw the same documents for every measure; `clusters` are
    those of `mean_over_cells`.

    Args:
        gold: class of each document, 0 to `n_classes` - 1 [document].
        predicted: class of each answer, -1 for none, which counts as wrong; -2 if missing [document, cell].
        n_classes: number of classes.
        positive: the class whose F1 it is; None for macro-F1, the mean over the classes that occur in `gold` of the cell.
        seed: of the bootstrap.
        clusters: of the documents [document].

    Returns:
        The estimate, as a share of 1. F1 is 0 for a class that is never predicted, NaN for one that does not occur in `gold`; a class
        out of range is a `ValueError`.
    """
    truth, answers = _check_classes(gold, predicted, n_classes)
    seen = (answers != NO_ANSWER).any(axis=1)
    codes, truth, answers = _cluster_codes(clusters, len(truth))[seen], truth[seen], answers[seen]
    classes = _classes(truth, positive)
    parts = [codes[(truth == label) & (cell != NO_ANSWER)] for label in classes for cell in answers.T]
    fewest = min((len(np.unique(part)) for part in parts if len(part)), default=0)
    has_interval = positive is not None or fewest >= MIN_FOR_BOOTSTRAP
    return _estimate(
        lambda weights: _f1(weights, truth, answers, classes),
        codes, seed, has_interval=has_interval, by_percentiles=positive is not None
    )  # fmt: skip


def auroc_over_cells(scores: ArrayLike, positive: ArrayLike, seed: int, clusters: ArrayLike | None = None) -> Estimate:
    """AUROC of each cell over its documents, and its mean over cells, as a share of 1.

    Scores are [document, cell], NaN if missing, and `positive` [document]. There is a `spread_interval` if each class of each cell has
    `MIN_FOR_AREAS` clusters. An area of 0 or 1 has the exact interval (Clopper and Pearson 1934) of as many pairs as the smaller class has
    clusters. `seed` and `clusters` are those of
    `f1_over_cells`.
    """
    numbers, marks = as_floats(scores), np.asarray(positive, dtype=bool)
    codes = _cluster_codes(clusters, len(numbers))
    sizes = [[len(np.unique(codes[kind & np.isfinite(cell)])) for kind in (marks, ~marks)] for cell in numbers.T]
    fewest = min((min(pair) for pair in sizes if all(pair)), default=0)  # an empty cell has no area

    def areas(weights: Floats) -> Floats:
        known = [np.flatnonzero(np.isfinite(cell)) for cell in numbers.T]
        return np.stack(
            [auroc_draws(numbers[at, cell], marks[at], at, weights) for cell, at in enumerate(known)], axis=1
        )

    estimate = _estimate(areas, codes, seed, has_interval=fewest >= MIN_FOR_AREAS, by_percentiles=False)
    if estimate.value not in (0.0, 1.0) or fewest < MIN_FOR_AREAS or only_points():
        return estimate
    bound = 0.025 ** (1 / fewest)
    return replace(estimate, low=bound, high=1.0) if estimate.value else replace(estimate, low=0.0, high=1 - bound)


def confusion(gold: ArrayLike, predicted: ArrayLike, n_classes: int) -> Codes:
    """Confusion counts of the answers, summed over cells [gold, predicted]; the last column is undecodable."""
    truth, answers = _check_classes(gold, predicted, n_classes)
    predicted = np.where(answers == UNDECODABLE, n_classes, answers)
    pairs = truth[:, np.newaxis] * (n_classes + 1) + predicted
    counts = np.bincount(pairs[answers != NO_ANSWER], minlength=n_classes * (n_classes + 1))
    return counts.reshape(n_classes, n_classes + 1).astype(np.int64)


def bleu_over_cells(statistics: ArrayLike, seed: int, clusters: ArrayLike | None = None) -> Estimate:
    """Corpus BLEU-4 of each cell over its documents, and the mean over cells, in percent.

    Statistics are those of each answer, as for `corpus_bleu` before summation; NaN if missing [document, cell, 10]. There is an interval
    from `MIN_FOR_BOOTSTRAP` clusters on. Cells without values are excluded. `seed` and `clusters` are those of
    `f1_over_cells`.
    """
    counts = as_floats(statistics)
    seen = ~np.isnan(counts.sum(axis=2))  # [document, cell]
    has_number = seen.any(axis=1)
    codes = _cluster_codes(clusters, len(counts))[has_number]
    counts, seen = counts[has_number], seen[has_number]
    n_documents, n_cells, _ = counts.shape
    known = np.where(seen[..., np.newaxis], counts, 0.0).reshape(n_documents, n_cells * N_BLEU_STATISTICS)

    def scores(weights: Floats) -> Floats:
        totals = (weights @ known).reshape(len(weights), n_cells, N_BLEU_STATISTICS)
        return np.where(weights @ seen > 0, corpus_bleu(totals), math.nan)

    return _estimate(scores, codes, seed, has_interval=len(np.unique(codes)) >= MIN_FOR_BOOTSTRAP)


def corpus_bleu(totals: ArrayLike) -> Floats:
    """BLEU-4 in percent [...] from sufficient statistics that are summed over a corpus, by sacrebleu's definition.

    Papineni et al. 2002, with exponential smoothing: the first order without a match counts half a match, the next a
    quarter. A corpus without any match, or without any n-gram of an order, has 0. The statistics are in sacrebleu's order: length of the
    answers, length of the references, matched n-grams of order 1 to 4, n-grams of order 1 to 4 in the answers [..., 10].
    """
    sums = as_floats(totals)
    answer_length, reference_length = sums[..., 0], sums[..., 1]
    matched, offered = sums[..., 2:6], sums[..., 6:10]  # [..., order]
    n_missed = np.cumsum(matched == 0, axis=-1)
    smoothed = np.where(matched > 0, matched, 0.5**n_missed)
    has_score = (matched.max(axis=-1) > 0) & (offered.min(axis=-1) > 0)
    logs = np.log(smoothed / np.where(offered > 0, offered, 1.0)).mean(axis=-1)
    excess = np.divide(reference_length, answer_length, out=np.ones_like(answer_length), where=answer_length > 0)
    return np.where(has_score, 100 * np.exp(logs + np.minimum(0.0, 1 - excess)), 0.0)


def held_out_majority(gold: ArrayLike, n_classes: int, clusters: ArrayLike | None = None) -> Codes:
    """The most frequent class among the documents of other clusters, for each document [document]; the lowest code for ties.

    A majority label that is fitted to the texts on which it is judged is too often right: of four texts with four labels, once. Held
    out, a text does not contribute to its own label. For balanced classes, the held-out label is always another one and wrong. -1 without
    other clusters.
    """
    truth = np.asarray(gold, dtype=np.int64)
    codes = _cluster_codes(clusters, len(truth))
    per_cluster = np.zeros((int(codes.max(initial=-1)) + 1, n_classes), dtype=np.int64)
    np.add.at(per_cluster, (codes, truth), 1)
    others = per_cluster.sum(axis=0) - per_cluster[codes]  # [document, class]
    return np.where(others.any(axis=1), others.argmax(axis=1), UNDECODABLE).astype(np.int64)


def random_f1(gold: ArrayLike, n_classes: int, positive: int | None) -> float:
    """Expected F1 (macro-F1 if `positive` is None) of a uniform random guess for each document; NaN if the class does not occur.

    This is the expectation of F1, not F1 at the expected counts, which is larger in small sets. Of n documents, g of the class, a guess
    predicts the class for P ~ Binomial(n, 1/k), of which g P / n are right on average, so F1 given P is 2 (g P / n) / (g + P) on
    average.
    """
    truth = np.asarray(gold, dtype=np.int64)
    counts, n = np.bincount(truth, minlength=n_classes), len(truth)
    occurring = _classes(truth, positive)
    if not occurring:
        return math.nan
    n_predicted = np.arange(n + 1)
    chances = binom.pmf(n_predicted, n, 1 / n_classes)
    return float(np.mean([chances @ (2 * (g * n_predicted / n) / (g + n_predicted)) for g in counts[occurring]]))


def _f1(weights: Floats, gold: Codes, predicted: Codes, classes: Iterable[int]) -> Floats:
    """Mean F1 of the classes [draw, cell], with documents weighted by weights [draw, document]."""
    total = np.zeros((len(weights), predicted.shape[1]))
    n_occurring = np.zeros_like(total)
    for label in classes:
        own = gold == label
        of_class = weights[:, own]
        n_gold = of_class @ (predicted[own] != NO_ANSWER)
        hits = of_class @ (predicted[own] == label)
        n_predicted = weights @ (predicted == label)
        total += np.divide(2 * hits, n_gold + n_predicted, out=np.zeros_like(total), where=n_gold > 0)
        n_occurring += n_gold > 0
    return divide(total, n_occurring)


def _classes(gold: Codes, positive: int | None) -> list[int]:
    """The classes of F1 that occur."""
    return [label for label in np.unique(gold).tolist() if positive in (None, label)]


def _check_classes(gold: ArrayLike, predicted: ArrayLike, n_classes: int) -> tuple[Codes, Codes]:
    truth, answers = np.asarray(gold, dtype=np.int64), np.asarray(predicted, dtype=np.int64)
    for name, codes, least in (("gold", truth, 0), ("predicted", answers, NO_ANSWER)):
        if codes.size and (codes.min() < least or codes.max() >= n_classes):
            raise ValueError(f"{name} must be whole numbers, {least} to {n_classes - 1}")
    return truth, answers


def _estimate(
    score: Callable[[Floats], Floats], codes: Codes, seed: int, *, has_interval: bool, by_percentiles: bool = True
) -> Estimate:
    """The estimate from a function of weights [draw, document] to scores [draw, cell], and clusters [document]."""
    per_cell = score(np.ones((1, len(codes))))
    has_number = ~np.isnan(per_cell[0])
    known = per_cell[0, has_number]
    if not known.size:
        return Estimate(math.nan, n=len(codes))
    value, n_clusters, low, high = float(known.mean()), len(np.unique(codes)), math.nan, math.nan
    if has_interval:
        # A draw in which a cell has no value is dropped, because it would be a mean of other cells.
        draws = score(_weights(codes, seed))[:, has_number].mean(axis=1)
        low, high = (
            percentile_interval(draws, n_clusters)
            if by_percentiles
            else spread_interval(value, draws, n_clusters, share=True)
        )
    if not has_width(low, high):
        low = high = math.nan
    return Estimate(value, low, high, len(codes), sd=population_sd(known))


def has_width(low: float, high: float) -> bool:
    """Whether an interval has a width; a bootstrap of equal values has none."""
    return high - low > ROUNDING_SHARE * max(abs(low), abs(high))


def _cluster_codes(clusters: ArrayLike | None, n_documents: int) -> Codes:
    """Codes of the clusters from 0 [document]; by default each document is a cluster."""
    return np.arange(n_documents) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]


def _weights(codes: Codes, seed: int) -> Floats:
    """Count of each document in each draw of clusters [draw, document]; no draws with too few clusters."""
    names, of = np.unique(codes, return_inverse=True)
    if only_points() or len(names) < MIN_CLUSTERS:
        return np.zeros((0, len(codes)))
    draws = _cluster_draws(len(names), N_DRAWS, seed)
    return draws if len(names) == len(codes) else draws[:, of]


@lru_cache(maxsize=1)
def _cluster_draws(n_clusters: int, n_draws: int, seed: int) -> Floats:
    """Kept from call to call, since a report asks for many estimates over the same documents."""
    check_interrupted()
    return cluster_weights(n_clusters, n_draws, np.random.default_rng(seed))
