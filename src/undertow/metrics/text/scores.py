"""Scores of answers to the four tasks of bias in text, as arrays of documents by cells.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 4.3. A cell is
one wording and one draw of examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.text.overlap import Meteor, bleu_stats, meteor_scorer, same_text, token_f1
from undertow.stats.arrays import Bools, Codes, Floats, divide
from undertow.stats.classification.agreement import confusion
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
        bleu: sufficient statistics [document, cell, 10], for generated answers.
        gold, said: codes of labels [document] and [document, cell], for a task with labels.
        clusters: clusters of dependent documents [document]; by default each document is a cluster.
    """

    documents: list[str]
    dimensions: list[str]
    cells: list[tuple[str, str, int]]
    queried: Bools
    values: Mapping[str, Floats]
    bleu: Floats | None = None
    gold: Codes | None = None
    said: Codes | None = None
    clusters: list[str] = field(default_factory=list)

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
            None if self.bleu is None else self.bleu[at],
            None if self.gold is None else self.gold[rows],
            None if self.said is None else self.said[at],
            [self.clusters[row] for row in rows],
        )

    def select_class(self, name: str) -> ScoredAnswers:
        """The cells of one description class, or all of them."""
        return self.of([at for at, cell in enumerate(self.cells) if name in (ALL, cell[0])])

    @property
    def known(self) -> Bools:
        """Whether an answer is scored [document, cell]."""
        return np.isfinite(self.values[EXACT_MATCH])

    def of_measure(self, measure: str) -> Floats:
        """Scores of a measure, in percent [document, cell]."""
        return self.values[EXACT_MATCH if measure == ACCURACY else measure]

    @property
    def n_clusters(self) -> int:
        """Clusters of documents that have a scored answer."""
        return len({self.clusters[at] for at in np.flatnonzero(self.known.any(axis=1))})

    @property
    def classes(self) -> list[str]:
        """Description classes, as they come."""
        return list(dict.fromkeys(cell[0] for cell in self.cells))


def score_answers(
    frame: pd.DataFrame, design: Mapping[str, Any], *, whole: bool = True
) -> dict[tuple[str, ...], ScoredAnswers]:
    """Scores of every setting (model, shots, sampling, decoding).

    Args:
        frame: a row per answer: the factors of `SETTING`, `document`, `dimension`, `description_class`, `wording`, `draw`, `gold`,
            `answer` and `missing_reason`.
        design: `task` and `labels` (possibly empty).
        whole: whether to compute METEOR and BLEU, which are slow, in addition to token F1 and exact match.
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
    place = _places(list(dict.fromkeys(pairs)))
    at = np.array([place[pair] for pair in pairs], dtype=np.int64)
    scores: dict[str, Callable[[str, str], float]] = {EXACT_MATCH: same_text, TOKEN_F1: token_f1}
    if whole:
        scores[METEOR] = cached_meteor().score
    columns: dict[str, Any] = {}
    for name, score in scores.items():
        values = np.array([100 * score(*pair) for pair in place], dtype=np.float64)
        columns[name] = np.where(known, values[at], math.nan)
    statistics = bleu_stats([answer for answer, _ in place], [right for _, right in place]) if whole else None
    return frame.assign(**columns, _pair=at), statistics


@cache
def cached_meteor() -> Meteor:
    """METEOR with a cache of scored texts."""
    return meteor_scorer()


def _arrays(rows: pd.DataFrame, labels: list[str], statistics: Floats | None) -> ScoredAnswers:
    """One setting's answers [document, cell]."""
    row, names_of = rows["document"].astype(str).factorize()
    documents: list[str] = list(names_of)
    of_rows = list(zip(rows["description_class"], rows["wording"], rows["draw"].astype(int), strict=True))
    cells = list(dict.fromkeys(of_rows))
    column_of = _places(cells)
    at = row, np.array([column_of[cell] for cell in of_rows], dtype=np.int64)
    shape = (len(documents), len(cells))

    def filled(values: Any, kind: type = float, empty: float = math.nan) -> Any:
        array: np.ndarray[Any, Any] = np.full(shape, empty, dtype=kind)
        array[at] = values
        return array

    names = [name for name in (EXACT_MATCH, TOKEN_F1, METEOR) if name in rows]
    values = {name: filled(rows[name].to_numpy(dtype=float)) for name in names}
    first = rows.drop_duplicates("document")  # in the order of `documents`
    dimensions = first["dimension"].astype(str).tolist()
    clusters = first["cluster"].astype(str).tolist() if "cluster" in first else documents
    bleu = gold = said = None
    if statistics is not None:
        bleu = np.full((*shape, 10), math.nan)
        bleu[at] = statistics[rows["_pair"].to_numpy()]
        bleu[np.isnan(values[TOKEN_F1])] = math.nan
    if labels:
        codes = {label.casefold(): code for code, label in enumerate(labels)}
        gold = np.array([codes[label.casefold()] for label in first["gold"].astype(str)], dtype=np.int64)
        said = filled([codes.get(answer.strip().casefold(), -1) for answer in rows["answer"].astype(str)], int, -1)
        said[np.isnan(values[EXACT_MATCH])] = -1
    return ScoredAnswers(documents, dimensions, cells, filled(True, bool, False), values, bleu, gold, said, clusters)


def _places(names: Sequence[Any]) -> dict[Any, int]:
    return {name: at for at, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class Claim:
    """A tested result.

    Attributes:
        result: with p, without q.
        interval: limits at a level; they exclude 0 exactly if p is below 1 minus the level.
    """

    result: Result
    interval: Callable[[float], tuple[float, float]]


def group_keys(task: str, setting: Sequence[str], name: str, dimension: str = ALL) -> dict[str, str]:
    """The group keys of a result."""
    model, shots, sampling, decoding = setting
    keys = (model, task, dimension, name, shots, sampling, decoding)
    return dict(zip(GROUP_KEYS, keys, strict=True))


def select_complete(answers: ScoredAnswers) -> ScoredAnswers:
    """The cells with any answer, and the documents with an answer in all of these.

    F1 is not a mean over documents, so cells with different documents would not be comparable.
    """
    cells = np.flatnonzero(answers.known.any(axis=0)).tolist()
    return answers.of(cells, np.flatnonzero(answers.known[:, cells].all(axis=1)).tolist())


def cell_scores(answers: ScoredAnswers, measure: str) -> Floats:
    """The score of each cell, its mean over documents [cell], in percent."""
    return mean_of_known(answers.of_measure(measure), axis=0)


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Means along an axis, ignoring NaN; NaN if all are."""
    seen = np.isfinite(values)
    return divide(np.where(seen, values, 0.0).sum(axis=axis), seen.sum(axis=axis))


def confusion_counts(answers: ScoredAnswers, n_labels: int) -> Codes:
    """Counts of answers by right label, over all cells [gold, answer + 1]; column 0 counts answers without a label."""
    if answers.gold is None or answers.said is None:
        raise ValueError("there are no labels to be confused")
    counts = confusion(answers.gold, answers.said, n_labels)
    # Answers without a score have no label; only some of them exist.
    np.subtract.at(counts[:, n_labels], answers.gold, (~answers.known).sum(axis=1))
    return counts
