"""Scores of answers to the four tasks of bias in text, as arrays of documents by cells, and of baselines.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 4.3. A cell is
one wording and one draw of examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.text.overlap import bleu_stats, meteor_scorer, same_text, token_f1
from undertow.stats.arrays import Bools, Codes, Estimate, Floats, divide, encode
from undertow.stats.classification.agreement import (
    NO_ANSWER,
    UNDECODABLE,
    bleu_over_cells,
    confusion,
    f1_over_cells,
    has_width,
    held_out_majority,
    mean_over_cells,
    random_f1,
)
from undertow.stats.intervals.bounded_mean import BoundedMean, bounded_mean
from undertow.stats.significance.sign_flip import flip_means
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = (
    "bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"
)  # fmt: skip
ALL = "all"
"""The level of `dimension` and `description_class` for all levels together."""
MAJORITY, CHANCE, ALWAYS_YES, COPY, RANDOM_SPAN = "(majority)", "(random)", "(always Yes)", "(copy)", "(random span)"
"""Levels of `description_class` for baselines."""
SETTING = ("model", "shots", "sampling", "decoding")
GROUP_KEYS = ("model", "task", "dimension", "description_class", "shots", "sampling", "decoding")
SLOT = "slot_"
"""Prefix of slot columns in the table of answers."""
YES, NO = "Yes", "No"
YES_PERCENT = "yes_percent"
ACCURACY, F1, F1_MACRO, EXACT_MATCH, TOKEN_F1, BLEU4, METEOR = (
    "accuracy", "f1", "f1_macro", "exact_match", "token_f1", "bleu4", "meteor"
)  # fmt: skip
MEASURES: Mapping[str, tuple[str, ...]] = {
    DIAGNOSIS: (ACCURACY, F1, F1_MACRO),
    IDENTIFICATION: (EXACT_MATCH, F1_MACRO),
    EXTRACTION: (TOKEN_F1, BLEU4, METEOR, EXACT_MATCH),
    REPHRASING: (TOKEN_F1, BLEU4, METEOR, EXACT_MATCH),
}
"""The measures of each task, the one of its findings first."""
PERCENT, POINTS = (0.0, 100.0), (-100.0, 100.0)
"""Ranges of scores and of differences of scores."""
CLAIM_LOW, CLAIM_HIGH = "claim_low", "claim_high"
"""Extras of a tested result: the interval at the corrected level."""
NO_INTERVAL = "no interval"


@dataclass(frozen=True, slots=True)
class ScoredAnswers:
    """Answers of one setting as arrays over documents and cells.

    Attributes:
        documents: ids [document].
        dimensions: of their bias [document].
        cells: (description class, wording, draw) of each [cell].
        queried: whether there is an answer, scored or not [document, cell].
        values: scores by measure, in percent, NaN if missing [document, cell].
        bleu: sufficient statistics of generated answers [document, cell, 10], or none [document, cell, 0].
        gold, predicted: codes of labels [document], and as `f1_over_cells` has them [document, cell]; 0 for a task without labels.
        clusters: clusters of dependent documents [document].
    """

    documents: list[str]
    dimensions: list[str]
    cells: list[tuple[str, str, int]]
    queried: Bools
    values: Mapping[str, Floats]
    bleu: Floats
    gold: Codes
    predicted: Codes
    clusters: list[str]

    def of(self, cells: Sequence[int], documents: Sequence[int] | None = None) -> ScoredAnswers:
        """The answers of some cells, and of some or all documents."""
        rows = list(range(len(self.documents))) if documents is None else list(documents)
        at = np.ix_(rows, list(cells))
        return ScoredAnswers(
            [self.documents[row] for row in rows],
            [self.dimensions[row] for row in rows],
            [self.cells[cell] for cell in cells],
            self.queried[at],
            {name: values[at] for name, values in self.values.items()},
            self.bleu[at],
            self.gold[rows],
            self.predicted[at],
            [self.clusters[row] for row in rows],
        )

    def select_class(self, name: str) -> ScoredAnswers:
        """The cells of one description class, or all of them."""
        return self.of([at for at, cell in enumerate(self.cells) if name in (ALL, cell[0])])

    @property
    def is_scored(self) -> Bools:
        """Whether an answer is scored [document, cell]."""
        return np.isfinite(self.values[EXACT_MATCH])

    def of_measure(self, measure: str) -> Floats:
        """Scores of a measure, in percent [document, cell]."""
        return self.values[EXACT_MATCH if measure == ACCURACY else measure]

    @property
    def n_clusters(self) -> int:
        """Clusters of documents that have a scored answer."""
        return len({self.clusters[at] for at in np.flatnonzero(self.is_scored.any(axis=1))})

    @property
    def classes(self) -> list[str]:
        """Description classes, as they come."""
        return list(dict.fromkeys(cell[0] for cell in self.cells))


def score_answers(
    frame: pd.DataFrame, design: Mapping[str, Any], *, whole: bool = True
) -> dict[tuple[str, ...], ScoredAnswers]:
    """Scores of every setting (model, shots, sampling, decoding), by the design's `task` and `labels` (possibly empty).

    The frame has a row per answer: the factors of `SETTING`, `document`, `dimension`, `description_class`, `wording`, `draw`, `gold`,
    `answer` and `missing_reason`. Without `whole`, METEOR and BLEU, which are slow, are left out.
    """
    with_scores, statistics = _add_scores(frame, str(design["task"]), whole=whole)
    return {
        tuple(map(str, key)): _arrays(rows, list(design["labels"]), statistics)
        for key, rows in with_scores.groupby(list(SETTING), sort=False)
    }


def _add_scores(frame: pd.DataFrame, task: str, *, whole: bool) -> tuple[pd.DataFrame, Floats | None]:
    """The table with a column for each score of single answers, in percent, and statistics of BLEU by `_pair`."""
    gold, answers = frame["gold"].astype(str), frame["answer"].astype(str)
    known = frame["missing_reason"] == ""
    if task not in (EXTRACTION, REPHRASING):
        same = answers.str.strip().str.casefold() == gold.str.strip().str.casefold()
        return frame.assign(**{EXACT_MATCH: np.where(known, 100.0 * same, math.nan)}), None
    pairs = list(zip(answers, gold, strict=True))
    at = encode(pairs)
    scores, statistics = _score_pairs(list(dict.fromkeys(pairs)), whole=whole)
    columns: dict[str, Any] = {name: np.where(known, values[at], math.nan) for name, values in scores.items()}
    return frame.assign(**columns, _pair=at), statistics


def _score_pairs(pairs: Sequence[tuple[str, str]], *, whole: bool = True) -> tuple[dict[str, Floats], Floats | None]:
    """Scores of pairs of answer and right answer, in percent [pair], and statistics of BLEU [pair, 10]."""
    measures: dict[str, Callable[[str, str], float]] = {EXACT_MATCH: same_text, TOKEN_F1: token_f1}
    if whole:
        measures[METEOR] = cached_meteor().score
    scores = {name: np.array([100.0 * score(*pair) for pair in pairs]) for name, score in measures.items()}
    return scores, bleu_stats([answer for answer, _ in pairs], [right for _, right in pairs]) if whole else None


cached_meteor = cache(meteor_scorer)
"""METEOR with a cache of scored texts."""


def _arrays(rows: pd.DataFrame, labels: list[str], statistics: Floats | None) -> ScoredAnswers:
    """One setting's answers [document, cell]."""
    row, names_of = rows["document"].astype(str).factorize()
    documents: list[str] = list(names_of)
    of_rows = list(zip(rows["description_class"], rows["wording"], rows["draw"].astype(int), strict=True))
    cells = list(dict.fromkeys(of_rows))
    at = row, encode(of_rows)
    shape = (len(documents), len(cells))

    def filled(values: Any, kind: type = float, empty: float = math.nan) -> Any:
        array: np.ndarray[Any, Any] = np.full(shape, empty, dtype=kind)
        array[at] = values
        return array

    names = [name for name in (EXACT_MATCH, TOKEN_F1, METEOR, YES_PERCENT) if name in rows]
    values = {name: filled(rows[name].to_numpy(dtype=float)) for name in names}
    first = rows.drop_duplicates("document")  # in the order of `documents`
    dimensions = first["dimension"].astype(str).tolist()
    clusters = first["cluster"].astype(str).tolist() if "cluster" in first else documents
    bleu = np.full((*shape, 0 if statistics is None else 10), math.nan)
    gold, predicted = np.zeros(len(documents), dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if statistics is not None:
        bleu[at] = statistics[rows["_pair"].to_numpy()]
        bleu[np.isnan(values[TOKEN_F1])] = math.nan
    if labels:
        codes = {label.casefold(): code for code, label in enumerate(labels)}
        gold = np.array([codes[label.casefold()] for label in first["gold"].astype(str)], dtype=np.int64)
        answered = [codes.get(answer.strip().casefold(), UNDECODABLE) for answer in rows["answer"].astype(str)]
        predicted = np.where(np.isnan(values[EXACT_MATCH]), NO_ANSWER, filled(answered, int, UNDECODABLE))
    return ScoredAnswers(
        documents, dimensions, cells, filled(True, bool, False), values, bleu, gold, predicted, clusters
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """A tested result with p, without q, and its limits at a level; they exclude 0 exactly if p is below 1 minus the level."""

    result: Result
    interval: Callable[[float], tuple[float, float]]


def group_keys(task: str, setting: Sequence[str], name: str, dimension: str = ALL) -> dict[str, str]:
    """The group keys of a result."""
    model, shots, sampling, decoding = setting
    keys = (model, task, dimension, name, shots, sampling, decoding)
    return dict(zip(GROUP_KEYS, keys, strict=True))


def cell_scores(answers: ScoredAnswers, measure: str) -> Floats:
    """The score of each cell, its mean over documents [cell], in percent."""
    return finite_mean(answers.of_measure(measure), axis=0)


def in_points(low: float, high: float) -> tuple[float, float]:
    """Limits of a difference of scores, within its range."""
    return max(low, POINTS[0]), min(high, POINTS[1])


def finite_mean(values: Floats, axis: int) -> Floats:
    """Means along an axis, ignoring NaN; NaN if all are."""
    seen = np.isfinite(values)
    return divide(np.where(seen, values, 0.0).sum(axis=axis), seen.sum(axis=axis))


def confusion_counts(answers: ScoredAnswers, n_labels: int) -> Codes:
    """Counts of answers by right label, over all cells [gold, answer]; the last column counts answers without a label."""
    return confusion(answers.gold, answers.predicted, n_labels)


N_RANDOM_SPANS = 20


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """The mean difference between answers and one baseline in percentage points, with its interval at a level.

    `p_above` and `p_below` are one-sided p-values of a difference above, and below, 0; NaN for too few texts.
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
    """Scores of the baselines, which need no model, on the same texts as the model.

    The majority label is fitted out of sample: for each text it is the most frequent label of the texts in other clusters, the first in
    the order of labels for ties. The other baselines are not fitted.

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
            answers[RANDOM_SPAN], rng = [], np.random.default_rng(seed)
            for passage in passages:
                tokens = passage.split() or [passage]
                ends = np.sort(rng.integers(0, len(tokens), size=(N_RANDOM_SPANS, 2)), axis=1)
                answers[RANDOM_SPAN].append([" ".join(tokens[start : stop + 1]) for start, stop in ends])
        values: dict[tuple[str, str], Floats] = {}
        bleu: dict[str, Floats] = {}
        for name, given in answers.items():
            pairs = [(answer, right) for some, right in zip(given, gold, strict=True) for answer in some]
            scores, statistics = _score_pairs(pairs)
            values |= {(name, measure): one.reshape(len(given), -1) for measure, one in scores.items()}
            if statistics is not None:
                bleu[name] = statistics.reshape(len(given), -1, 10)
        return cls(0, places, values, bleu, seed)

    def names(self, measure: str) -> list[str]:
        """The baselines that have this measure."""
        if self.n_labels:
            return [MAJORITY, CHANCE, *([ALWAYS_YES] if measure == F1 else [])]
        return list(dict.fromkeys(name for name, _ in self.values))

    def score(self, name: str, answers: ScoredAnswers, measure: str) -> Estimate:
        """Score of one baseline on the scored texts, in percent; F1 is a mean over cells, each with its own scored texts."""
        scored = np.flatnonzero(answers.is_scored.any(axis=1))
        if measure in (F1, F1_MACRO):
            positive, gold = 0 if measure == F1 else None, answers.gold
            if name == CHANCE:
                of_cells = [random_f1(gold[some], self.n_labels, positive) for some in answers.is_scored.T]
                value = float(finite_mean(np.array(of_cells), axis=0))
            else:
                predicted = np.where(answers.is_scored, self._labels(name, answers)[:, np.newaxis], NO_ANSWER)
                one_cluster = np.zeros(len(gold))  # without a bootstrap
                value = f1_over_cells(gold, predicted, self.n_labels, positive, self.seed, one_cluster).value
            return Estimate(100 * value, n=len(scored))
        if measure == BLEU4:
            statistics = self.bleu[name][self._places(answers)][scored]
            return bleu_over_cells(statistics, self.seed, np.array(answers.clusters)[scored])
        beside = self._per_document(name, answers, measure)[scored]
        estimate = mean_over_cells(beside, PERCENT, np.array(answers.clusters)[scored])
        # The expected score of a random guess is known and has no sampling error.
        return replace(estimate, low=math.nan, high=math.nan) if name == CHANCE else estimate

    def best_score(self, answers: ScoredAnswers, measure: str) -> float:
        """Score of the best baseline; NaN if there is none."""
        scores = [self.score(name, answers, measure).value for name in self.names(measure)]
        return max(filter(math.isfinite, scores), default=math.nan)

    def gain(self, answers: ScoredAnswers, measure: str) -> Gain | None:
        """Difference from the best baseline, paired by document; None for a measure that is not a mean over documents."""
        if measure in (F1, F1_MACRO, BLEU4) or not self.names(measure) or not answers.is_scored.any():
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
        clusters = np.array(answers.clusters)
        if name == CHANCE:
            # Constant over texts: test the score itself, whose bounds make the test valid for a few rare right answers too.
            return _compare(bounded_mean(values, PERCENT, clusters), float(score[0, 0]))
        difference = bounded_mean(values - score, POINTS, clusters)
        if name == MAJORITY or not difference.is_known:
            return _compare(difference)
        (flips,) = flip_means(difference.sums[:, np.newaxis], difference.sizes[:, np.newaxis], self.seed)
        if not has_width(*flips.interval()):
            return _compare(difference)
        return BaselineComparison(
            flips.value, flips.p_above, flips.p_below, lambda level: in_points(*flips.interval(level))
        )

    def _per_document(self, name: str, answers: ScoredAnswers, measure: str) -> Floats:
        """Scores in percent [document, draw]."""
        if not self.n_labels:
            return self.values[name, measure][self._places(answers)]
        if name == CHANCE:
            return np.full((len(answers.documents), 1), 100 / self.n_labels)
        scores = 100.0 * (self._labels(name, answers) == answers.gold)
        return np.where(answers.is_scored.any(axis=1), scores, math.nan)[:, np.newaxis]

    def _labels(self, name: str, answers: ScoredAnswers) -> Codes:
        """The label of a baseline for each document, -1 without one; documents without a scored answer are ignored."""
        if name == ALWAYS_YES:
            return np.zeros(len(answers.documents), dtype=np.int64)
        scored = answers.is_scored.any(axis=1)
        predicted = np.full(len(answers.documents), -1, dtype=np.int64)
        predicted[scored] = held_out_majority(answers.gold[scored], self.n_labels, np.array(answers.clusters)[scored])
        return predicted

    def _places(self, answers: ScoredAnswers) -> list[int]:
        return [self.rows[name] for name in answers.documents]


def _compare(mean: BoundedMean, with_value: float = 0.0) -> BaselineComparison:
    def interval(level: float) -> tuple[float, float]:
        low, high = mean.interval(level)
        return low - with_value, high - with_value

    return BaselineComparison(mean.value - with_value, mean.p_above(with_value), mean.p_below(with_value), interval)
