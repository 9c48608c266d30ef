"""Baselines of bias in text, which need no model, and the difference between a model and the best baseline.

Each baseline is scored on the same texts as the model. The majority label is fitted out of sample: for each text it is the most
frequent label of the texts in other clusters, the first in the order of labels for ties. The other baselines are not fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.metrics.text.overlap import bleu_stats, meteor_scorer, same_text, token_f1
from undertow.metrics.text.scores import (
    ALWAYS_YES,
    BLEU4,
    CHANCE,
    COPY,
    EXACT_MATCH,
    EXTRACTION,
    F1,
    F1_MACRO,
    MAJORITY,
    METEOR,
    PERCENT,
    POINTS,
    RANDOM_SPAN,
    TOKEN_F1,
    ScoredAnswers,
    select_complete,
)
from undertow.stats.arrays import Codes, Estimate, Floats
from undertow.stats.classification.agreement import (
    bleu_over_cells,
    f1_over_cells,
    has_width,
    held_out_majority,
    mean_over_cells,
    random_f1,
)
from undertow.stats.intervals.bounded_mean import BoundedMean, bounded_mean
from undertow.stats.significance.sign_flip import flip_means

if TYPE_CHECKING:
    import pandas as pd

N_RANDOM_SPANS = 20


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """The difference between answers and one baseline, with its test.

    Attributes:
        value: mean difference, in percentage points.
        p_above, p_below: one-sided p-values of a difference above, and below, 0; NaN for too few texts.
        interval: lower and upper limit of the difference at a level.
    """

    value: float
    p_above: float
    p_below: float
    interval: Callable[[float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Gain:
    """Difference of a score from the best baseline.

    Which baseline is best is itself uncertain. A model is better than the best one if it is better than each of them: the largest
    p-value decides (an intersection-union test, Berger 1982). It is worse if it is worse than one of them: the smallest p-value decides,
    times their number (Bonferroni). The interval inverts this test. The majority label is a baseline if it scores at least as much as
    a random guess.

    Attributes:
        baseline: score of the best baseline on the same answers, in percent.
        beside: the difference from each baseline.
    """

    baseline: float
    beside: Sequence[BaselineComparison]

    @property
    def value(self) -> float:
        """The difference from the best of them, in percentage points."""
        return min(one.value for one in self.beside)

    @property
    def p(self) -> float:
        """Two-sided p; NaN with too few texts."""
        above = max(one.p_above for one in self.beside)
        below = len(self.beside) * min(one.p_below for one in self.beside)
        return min(1.0, 2 * min(above, below)) if math.isfinite(above + below) else math.nan

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Limits of the difference from the best baseline; NaN with too few texts."""
        lows = [one.interval(level)[0] for one in self.beside]
        highs = [one.interval(1 - (1 - level) / len(self.beside))[1] for one in self.beside]
        return min(lows), min(highs)


@dataclass(frozen=True, slots=True)
class Baselines:
    """Scores of the baselines.

    Attributes:
        n_labels: number of labels; 0 for generated answers.
        rows: rows of the arrays below, by document.
        values: for each baseline of generated answers and each measure, a score per document in percent [document, draw].
        bleu: for each baseline, the statistics of BLEU [document, draw, 10].
        seed: of bootstraps and signs.
    """

    n_labels: int
    rows: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[tuple[str, str], Floats] = field(default_factory=dict)
    bleu: Mapping[str, Floats] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def from_texts(cls, frame: pd.DataFrame, task: str, seed: int) -> Baselines:
        """Baselines of generated answers: the whole passage, and for extraction random spans; none without known passages."""
        rows = frame.drop_duplicates("document")
        places = {str(name): at for at, name in enumerate(rows["document"])}
        passages, gold = rows["passage"].astype(str).tolist(), rows["gold"].astype(str).tolist()
        if not all(passages):
            return cls(0, places, seed=seed)
        answers = {COPY: [[passage] for passage in passages]}
        if task == EXTRACTION:
            answers[RANDOM_SPAN] = _random_spans(passages, seed)
        meteor = meteor_scorer().score
        values: dict[tuple[str, str], Floats] = {}
        bleu = {}
        for name, given in answers.items():
            pairs = [[(answer, right) for answer in some] for some, right in zip(given, gold, strict=True)]
            values[name, TOKEN_F1] = np.array([[100 * token_f1(*pair) for pair in some] for some in pairs])
            values[name, METEOR] = np.array([[100 * meteor(*pair) for pair in some] for some in pairs])
            values[name, EXACT_MATCH] = np.array([[100.0 * same_text(*pair) for pair in some] for some in pairs])
            flat = [pair for some in pairs for pair in some]
            statistics = bleu_stats([answer for answer, _ in flat], [right for _, right in flat])
            bleu[name] = statistics.reshape(len(pairs), -1, 10)
        return cls(0, places, values, bleu, seed)

    def names(self, measure: str) -> list[str]:
        """The baselines that have this measure."""
        if self.n_labels:
            return [MAJORITY, CHANCE, *([ALWAYS_YES] if measure == F1 else [])]
        return list(dict.fromkeys(name for name, _ in self.values))

    def score(self, name: str, answers: ScoredAnswers, measure: str) -> Estimate:
        """Score of one baseline on the scored texts, in percent."""
        if measure in (F1, F1_MACRO):
            return self._f1(name, select_complete(answers), measure)
        scored = np.flatnonzero(answers.known.any(axis=1))
        if measure == BLEU4:
            statistics = self.bleu[name][self._places(answers)][scored]
            return bleu_over_cells(statistics, self.seed, _clusters(answers)[scored])
        beside = self._per_document(name, answers, measure)[scored]
        estimate = mean_over_cells(beside, self.seed, PERCENT, _clusters(answers)[scored])
        # The expected score of a random guess is known and has no sampling error.
        return replace(estimate, low=math.nan, high=math.nan) if name == CHANCE else estimate

    def best_score(self, answers: ScoredAnswers, measure: str) -> float:
        """Score of the best baseline; NaN if there is none."""
        scores = [self.score(name, answers, measure).value for name in self.names(measure)]
        return max(filter(math.isfinite, scores), default=math.nan)

    def gain(self, answers: ScoredAnswers, measure: str) -> Gain | None:
        """Difference from the best baseline, paired by document; None for a measure that is not a mean over documents."""
        if measure in (F1, F1_MACRO, BLEU4) or not self.names(measure) or not answers.known.any():
            return None
        values = answers.of_measure(measure)
        estimates = {}
        for name in self.names(measure):
            score = self._per_document(name, answers, measure).mean(axis=1, keepdims=True)
            estimates[name] = self._beside(name, values, score, answers)
        if self.n_labels and estimates[MAJORITY].value > estimates[CHANCE].value:
            del estimates[MAJORITY]  # worse than a guess, as for balanced labels
        mean = bounded_mean(values, PERCENT).value
        return Gain(mean - min(one.value for one in estimates.values()), list(estimates.values()))

    def _beside(self, name: str, values: Floats, score: Floats, answers: ScoredAnswers) -> BaselineComparison:
        clusters = _clusters(answers)
        if name == CHANCE:
            # Constant over texts: test the score itself, whose bounds make the test valid for a few rare right answers too.
            mean, guess = bounded_mean(values, PERCENT, clusters), float(score[0, 0])
            return _compare(mean, guess)
        difference = bounded_mean(values - score, POINTS, clusters)
        if name == MAJORITY or not difference.is_known:
            return _compare(difference)
        (flips,) = flip_means(difference.sums[:, np.newaxis], difference.sizes[:, np.newaxis], self.seed)
        if not has_width(*flips.interval()):
            return _compare(difference)

        def interval(level: float) -> tuple[float, float]:
            low, high = flips.interval(level)
            return max(low, POINTS[0]), min(high, POINTS[1])

        return BaselineComparison(flips.value, flips.p_above, flips.p_below, interval)

    def _per_document(self, name: str, answers: ScoredAnswers, measure: str) -> Floats:
        """Scores in percent [document, draw]."""
        if not self.n_labels:
            return self.values[name, measure][self._places(answers)]
        if name == CHANCE:
            return np.full((len(answers.documents), 1), 100 / self.n_labels)
        scored = answers.known.any(axis=1)
        scores = np.full((len(answers.documents), 1), math.nan)
        scores[scored, 0] = 100.0 * (self._labels(name, answers)[scored] == _gold(answers)[scored])
        return scores

    def _labels(self, name: str, answers: ScoredAnswers) -> Codes:
        """The label of a baseline for each document, -1 without one; documents without a scored answer are ignored."""
        if name == ALWAYS_YES:
            return np.zeros(len(answers.documents), dtype=np.int64)
        scored = answers.known.any(axis=1)
        said = np.full(len(answers.documents), -1, dtype=np.int64)
        said[scored] = held_out_majority(_gold(answers)[scored], self.n_labels, _clusters(answers)[scored])
        return said

    def _f1(self, name: str, answers: ScoredAnswers, measure: str) -> Estimate:
        positive, gold = 0 if measure == F1 else None, _gold(answers)
        if name == CHANCE:
            value = random_f1(gold, self.n_labels, positive)
        else:
            said = self._labels(name, answers)[:, np.newaxis]
            value = f1_over_cells(gold, said, self.n_labels, positive, self.seed).value
        return Estimate(100 * value, n=len(gold))

    def _places(self, answers: ScoredAnswers) -> list[int]:
        return [self.rows[name] for name in answers.documents]


def _gold(answers: ScoredAnswers) -> Codes:
    if answers.gold is None:
        raise ValueError("a baseline of labels needs labels")
    return answers.gold


def _clusters(answers: ScoredAnswers) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    return np.array(answers.clusters)


def _compare(mean: BoundedMean, with_value: float = 0.0) -> BaselineComparison:
    def interval(level: float) -> tuple[float, float]:
        low, high = mean.interval(level)
        return low - with_value, high - with_value

    return BaselineComparison(mean.value - with_value, mean.p_above(with_value), mean.p_below(with_value), interval)


def _random_spans(passages: Sequence[str], seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    spans = []
    for passage in passages:
        tokens = passage.split() or [passage]
        ends = np.sort(rng.integers(0, len(tokens), size=(N_RANDOM_SPANS, 2)), axis=1)
        spans.append([" ".join(tokens[start : stop + 1]) for start, stop in ends])
    return spans
