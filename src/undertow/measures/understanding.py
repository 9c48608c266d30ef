"""How well bias in text is diagnosed, identified, extracted and rephrased: scores of answers, their means and what moves them.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), sections 4.3 and 5.
A cell is one wording and one draw of examples; a score is its mean over documents, and what is told is the mean over cells, the
population standard deviation over them, and an interval over documents. Knows tables of answers; knows no model and no prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.measures.text_overlap import Meteor, bleu_stats, meteor_scorer, token_f1
from undertow.stats.agreement import (
    Estimate,
    bleu_over_cells,
    confusion,
    f1_over_cells,
    majority_f1,
    mean_over_cells,
    random_accuracy,
    random_f1,
)
from undertow.stats.multiplicity import benjamini_hochberg
from undertow.stats.points import kept, only_points
from undertow.types import Floats, Result

if TYPE_CHECKING:
    import pandas as pd

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = (
    "bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"
)  # fmt: skip
ALL = "all"
"""The level of `dimension` and `description_class` where these are taken together."""
MAJORITY, CHANCE, COPY, RANDOM_SPAN = "(majority)", "(random)", "(copy)", "(random span)"
"""Levels of `description_class` that are no description: what needs no model."""
SETTING = ("model", "shots", "sampling", "decoding")
GROUP_KEYS = ("model", "task", "dimension", "description_class", "shots", "sampling", "decoding")
SLOT = "slot_"
"""Before the names of slots, in the table of answers."""
YES = "Yes"
ACCURACY, F1, F1_MACRO, EXACT_MATCH, TOKEN_F1, BLEU4, METEOR = (
    "accuracy", "f1", "f1_macro", "exact_match", "token_f1", "bleu4", "meteor"
)  # fmt: skip
MEASURES: Mapping[str, tuple[str, ...]] = {
    DIAGNOSIS: (ACCURACY, F1, F1_MACRO),
    IDENTIFICATION: (EXACT_MATCH, F1_MACRO),
    EXTRACTION: (TOKEN_F1, BLEU4, METEOR, EXACT_MATCH),
    REPHRASING: (TOKEN_F1, BLEU4, METEOR, EXACT_MATCH),
}
"""The measures of each task, the one that its findings are about first."""
N_RANDOM_SPANS = 20
N_FLIPS = 20_000


@dataclass(frozen=True, slots=True)
class Scored:
    """Answers as arrays: every cell of one setting, asked about every document.

    Attributes:
        documents: ids [document].
        dimensions: of their bias [document].
        cells: (description class, wording, draw) of each [cell].
        asked: whether there is an answer, scored or not [document, cell].
        values: scores by measure, in percent, NaN where unscored [document, cell].
        bleu: sufficient statistics [document, cell, 10]; of a task with written answers.
        gold, said: codes of labels [document] and [document, cell]; of a task with labels.
    """

    documents: list[str]
    dimensions: list[str]
    cells: list[tuple[str, str, int]]
    asked: np.ndarray[Any, np.dtype[np.bool_]]
    values: Mapping[str, Floats]
    bleu: Floats | None = None
    gold: np.ndarray[Any, np.dtype[np.int64]] | None = None
    said: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def of(self, cells: Sequence[int], documents: Sequence[int] | None = None) -> Scored:
        """Some cells, and some documents; all of these where none are named."""
        rows = list(range(len(self.documents))) if documents is None else list(documents)
        at = np.ix_(rows, list(cells))
        return Scored(
            [self.documents[row] for row in rows],
            [self.dimensions[row] for row in rows],
            [self.cells[cell] for cell in cells],
            self.asked[at],
            {name: values[at] for name, values in self.values.items()},
            None if self.bleu is None else self.bleu[at],
            None if self.gold is None else self.gold[rows],
            None if self.said is None else self.said[at],
        )

    def of_class(self, name: str) -> Scored:
        """The cells of one description class, or all of them."""
        return self.of([at for at, cell in enumerate(self.cells) if name in (ALL, cell[0])])

    @property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether an answer is scored [document, cell]."""
        return np.isfinite(self.values[EXACT_MATCH])

    @property
    def classes(self) -> list[str]:
        """Description classes, as they come."""
        return list(dict.fromkeys(cell[0] for cell in self.cells))


def scored(frame: pd.DataFrame, design: Mapping[str, Any], *, whole: bool = True) -> dict[tuple[str, ...], Scored]:
    """Scores of every setting (model, shots, sampling, decoding).

    Args:
        frame: a row per answer: the factors of `SETTING`, `document`, `dimension`, `description_class`, `wording`, `draw`, `gold`,
            `answer` and `unscored`.
        design: `task`, and `labels`, empty where it has none.
        whole: whether written answers have METEOR and BLEU too, which take time, or token F1 and exact match alone.
    """
    with_scores, statistics = _with_scores(frame, str(design["task"]), whole=whole)
    return {
        tuple(map(str, key)): _arrays(rows, list(design["labels"]), statistics)
        for key, rows in with_scores.groupby(list(SETTING), sort=False)
    }


def _with_scores(frame: pd.DataFrame, task: str, *, whole: bool) -> tuple[pd.DataFrame, Floats | None]:
    """The table with a column for each score that an answer has by itself, in percent; statistics of BLEU by `_pair`."""
    gold, answers = frame["gold"].astype(str), frame["answer"].astype(str)
    known = frame["unscored"] == ""
    same = answers.str.strip().str.casefold() == gold.str.strip().str.casefold()
    columns: dict[str, Any] = {EXACT_MATCH: np.where(known, 100.0 * same, math.nan)}
    if task not in (EXTRACTION, REPHRASING):
        return frame.assign(**columns), None
    pairs = list(zip(answers, gold, strict=True))
    place = _places(list(dict.fromkeys(pairs)))
    at = np.array([place[pair] for pair in pairs], dtype=np.int64)
    # Whoever measures these texts many times has them scored once.
    scores: dict[str, Callable[[str, str], float]] = {TOKEN_F1: kept(TOKEN_F1, lambda: cache(token_f1))}
    if whole:
        scores[METEOR] = _meteor().score
    for name, score in scores.items():
        values = np.array([100 * score(*pair) for pair in place], dtype=np.float64)
        columns[name] = np.where(known, values[at], math.nan)
    statistics = _bleu_statistics(list(place)) if whole else None
    return frame.assign(**columns, _pair=at), statistics


def _meteor() -> Meteor:
    """METEOR, which remembers texts while it is kept."""

    def made() -> Meteor:
        found = meteor_scorer()
        return replace(found, score=cache(found.score))

    return kept(METEOR, made)


def _bleu_statistics(pairs: list[tuple[str, str]]) -> Floats:
    """Of each pair of texts [pair, 10]."""
    of_pair: dict[tuple[str, str], Floats] = kept(BLEU4, dict)
    fresh = [pair for pair in pairs if pair not in of_pair]
    if fresh:
        counted = bleu_stats([answer for answer, _ in fresh], [right for _, right in fresh])
        of_pair |= dict(zip(fresh, counted, strict=True))
    return np.array([of_pair[pair] for pair in pairs], dtype=np.float64).reshape(len(pairs), 10)


def _arrays(rows: pd.DataFrame, labels: list[str], statistics: Floats | None) -> Scored:
    """One setting's answers [document, cell]."""
    documents = list(dict.fromkeys(rows["document"].astype(str)))
    cells = list(dict.fromkeys(zip(rows["description_class"], rows["wording"], rows["draw"].astype(int), strict=True)))
    row_of, column_of = _places(documents), _places(cells)
    at = (
        rows["document"].astype(str).map(row_of).to_numpy(),
        np.array(
            [
                column_of[cell]
                for cell in zip(rows["description_class"], rows["wording"], rows["draw"].astype(int), strict=True)
            ]
        ),
    )
    shape = (len(documents), len(cells))

    def filled(values: Any, kind: type = float, empty: float = math.nan) -> Any:
        array: np.ndarray[Any, Any] = np.full(shape, empty, dtype=kind)
        array[at] = values
        return array

    names = [name for name in (EXACT_MATCH, TOKEN_F1, METEOR) if name in rows]
    values = {name: filled(rows[name].to_numpy(dtype=float)) for name in names}
    first = rows.drop_duplicates("document").set_index(rows.drop_duplicates("document")["document"].astype(str))
    dimensions = [str(first.loc[name, "dimension"]) for name in documents]
    bleu = gold = said = None
    if statistics is not None:
        bleu = np.full((*shape, 10), math.nan)
        bleu[at] = statistics[rows["_pair"].to_numpy()]
        bleu[np.isnan(values[TOKEN_F1])] = math.nan
    if labels:
        codes = {label.casefold(): code for code, label in enumerate(labels)}
        gold = np.array([codes[str(first.loc[name, "gold"]).casefold()] for name in documents], dtype=np.int64)
        said = filled([codes.get(answer.strip().casefold(), -1) for answer in rows["answer"].astype(str)], int, -1)
        said[np.isnan(values[EXACT_MATCH])] = -1
    return Scored(documents, dimensions, cells, filled(True, bool, False), values, bleu, gold, said)


def _places(names: Sequence[Any]) -> dict[Any, int]:
    return {name: at for at, name in enumerate(names)}


def results(frame: pd.DataFrame, design: Mapping[str, Any], seed: int) -> list[Result]:
    """Every measure of the task by class, dimension and setting, then baselines, wording effects and shares of variance."""
    from undertow.measures.wording_effects import slot_effects, variance_results

    task = str(design["task"])
    settings = scored(frame, design)
    counts = _counts(frame)
    baselines = Baselines.of(frame, design, seed)
    told: list[Result] = []
    for setting, answers in settings.items():
        told += _of_setting((task, setting), answers, baselines, counts, seed)
    told += baselines.results(task)
    told += _corrected(slot_effects(frame, settings, (task, MEASURES[task][0]), seed))
    told += variance_results(frame, settings, (task, MEASURES[task][0]))
    return told


def _corrected(effects: list[Result]) -> list[Result]:
    """With q over all of them."""
    q = benjamini_hochberg([effect.p for effect in effects])
    return [replace(effect, q=float(value)) for effect, value in zip(effects, q, strict=True)]


def group_of(task: str, setting: Sequence[str], name: str, dimension: str = ALL) -> dict[str, str]:
    """The group keys of one number."""
    model, shots, sampling, decoding = setting
    keys = (model, task, dimension, name, shots, sampling, decoding)
    return dict(zip(GROUP_KEYS, keys, strict=True))


def _of_setting(
    where: tuple[str, tuple[str, ...]],
    answers: Scored,
    baselines: Baselines,
    counts: Mapping[tuple[str, ...], Mapping[str, float]],
    seed: int,
) -> Iterator[Result]:
    task, setting = where
    classes = answers.classes
    for name in [*classes, *([ALL] if len(classes) > 1 else [])]:
        of_class = answers.of_class(name)
        more = counts.get((*setting, name), {})
        for measure in MEASURES[task]:
            found = _estimate(of_class, measure, seed)
            gain = baselines.gain(of_class, measure, seed)
            yield _result(measure, group_of(task, setting, name), found, of_class, {**gain, **more})
        if task == DIAGNOSIS:
            continue
        for dimension in filter(None, dict.fromkeys(answers.dimensions)):
            rows = [at for at, one in enumerate(of_class.dimensions) if one == dimension]
            part = of_class.of(range(len(of_class.cells)), rows)
            found = _estimate(part, MEASURES[task][0], seed)
            yield _result(MEASURES[task][0], group_of(task, setting, name, dimension), found, part, {})


def _result(measure: str, group: Mapping[str, str], found: Estimate, of: Scored, more: Mapping[str, float]) -> Result:
    n = int(of.known.sum())
    note = "" if n else "no answer is scored"
    if n and measure in (F1, F1_MACRO):
        note = _f1_note(of, found)
    if n and measure == METEOR:
        note = _meteor().used
    return Result(
        measure=measure,
        group=group,
        value=found.value,
        low=found.low,
        high=found.high,
        n=n,
        n_unscored=int(of.asked.sum()) - n,
        unit="percent",
        neutral=round(more.get("baseline", math.nan), 2),
        detail={"sd": found.sd, "cells": float(len(of.cells))} | {k: v for k, v in more.items() if k != "baseline"},
        note=note,
    )


def _estimate(answers: Scored, measure: str, seed: int) -> Estimate:
    """One measure of some cells, in percent."""
    if measure in (ACCURACY, EXACT_MATCH):
        return _never_sure(mean_over_cells(answers.values[EXACT_MATCH], seed))
    if measure in (TOKEN_F1, METEOR):
        return mean_over_cells(answers.values[measure], seed)
    if measure == BLEU4 and answers.bleu is not None:
        return bleu_over_cells(answers.bleu, seed)
    whole = _answered_everywhere(answers)
    if whole.gold is None or whole.said is None:
        raise ValueError(f"{measure} needs labels")
    n_classes = int(max(whole.gold.max(initial=0), whole.said.max(initial=0))) + 1
    positive = 0 if measure == F1 else None
    return _in_percent(f1_over_cells(whole.gold, whole.said, n_classes, positive, seed))


def _answered_everywhere(answers: Scored) -> Scored:
    """The cells with any answer, and the documents that have one in all of these.

    F1 is no mean over documents: a cell that lacks some would have the F1 of other documents than the next.
    """
    cells = np.flatnonzero(answers.known.any(axis=0)).tolist()
    return answers.of(cells, np.flatnonzero(answers.known[:, cells].all(axis=1)).tolist())


def _f1_note(answers: Scored, found: Estimate) -> str:
    n_left_out = int(answers.known.any(axis=1).sum()) - len(_answered_everywhere(answers).documents)
    if n_left_out:
        return f"documents that lack an answer in some cell are left out: {n_left_out}"
    return "its class does not occur" if math.isnan(found.value) else ""


def _never_sure(found: Estimate) -> Estimate:
    """Where all documents were answered rightly, or none was, a bootstrap has no width; Clopper and Pearson 1934 have one."""
    if found.low != found.high or found.value not in (0.0, 100.0):
        return found
    width = 100 * (1 - 0.025 ** (1 / found.n))
    low, high = (0.0, width) if found.value == 0 else (100 - width, 100.0)
    return replace(found, low=low, high=high)


def _in_percent(found: Estimate) -> Estimate:
    return Estimate(100 * found.value, 100 * found.low, 100 * found.high, 100 * found.sd, found.n)


def cell_scores(answers: Scored, measure: str) -> Floats:
    """The score of each cell, its mean over documents [cell], in percent."""
    values = answers.values[EXACT_MATCH if measure == ACCURACY else measure]
    seen = np.isfinite(values)
    sums, counts = np.where(seen, values, 0.0).sum(axis=0), seen.sum(axis=0)
    found: Floats = np.divide(sums, counts, out=np.full(len(counts), math.nan), where=counts > 0)
    return found


def confusion_of(answers: Scored, n_labels: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How often each label was answered with each, and with none of them, over all cells [gold, answer + 1]."""
    if answers.gold is None or answers.said is None:
        raise ValueError("there are no labels to be confused")
    counts = confusion(answers.gold, answers.said, n_labels)
    # Whatever has no score has no label either; only some of it was answered.
    np.subtract.at(counts[:, n_labels], answers.gold, (~answers.known).sum(axis=1))
    return counts


def _counts(frame: pd.DataFrame) -> dict[tuple[str, ...], dict[str, float]]:
    """Answers that are empty, and prompts that lost examples, in percent, by setting and class."""
    known = frame[frame["unscored"] == ""]
    known = known.assign(_empty=known["answer"].astype(str).str.strip() == "", _dropped=known["dropped"] > 0)
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for keys in ((*SETTING, "description_class"), SETTING):
        for key, rows in known.groupby(list(keys), sort=False):
            name = tuple(map(str, key)) if len(keys) > len(SETTING) else (*map(str, key), ALL)
            numbers = {"empty_percent": 100 * float(rows["_empty"].mean())}
            if rows["_dropped"].any():
                numbers["shortened_percent"] = 100 * float(rows["_dropped"].mean())
            if "unclaimed" in rows and rows["unclaimed"].notna().any():
                numbers["unclaimed_percent"] = float(rows["unclaimed"].mean())
            if (rows["gold"].isin(["Yes", "No"])).all():
                said_yes = rows["answer"].astype(str).str.strip().str.casefold() == YES.casefold()
                numbers["yes_percent"] = 100 * float(said_yes.mean())
            found[name] = numbers
    return found


@dataclass(frozen=True, slots=True)
class Baselines:
    """What the scores would be without any model.

    Attributes:
        documents: rows of the arrays below, by document.
        values: of each baseline and measure, a score per document in percent [document, draw].
        whole: of each baseline and measure that is no mean over documents, its score.
    """

    documents: Mapping[str, int]
    values: Mapping[tuple[str, str], Floats] = field(default_factory=dict)
    whole: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: pd.DataFrame, design: Mapping[str, Any], seed: int) -> Baselines:
        """The baselines of a task over the documents that were asked about."""
        task = str(design["task"])
        rows = frame.drop_duplicates("document")
        documents = _places(rows["document"].astype(str).tolist())
        if only_points():
            return cls(documents)  # no model's answers are in them, and scoring spans at random takes long
        if task in (DIAGNOSIS, IDENTIFICATION):
            values, whole = _of_labels(rows["gold"].astype(str).tolist(), list(design["labels"]), task)
        else:
            values, whole = _of_texts(rows, task, seed)
        return cls(documents, values, whole)

    def gain(self, answers: Scored, measure: str, seed: int) -> dict[str, float]:
        """The best baseline, and by how much the answers are above it, with an interval over documents."""
        name = EXACT_MATCH if measure == ACCURACY else measure
        best, score = self._best(measure)
        if (best, name) not in self.values:
            return {"baseline": score}
        if best in (MAJORITY, CHANCE):
            # How many documents have which label is the design; which of them are drawn is not.
            found, less = _estimate(answers, measure, seed), score
        else:
            rows = [self.documents[document] for document in answers.documents]
            beside = np.nanmean(self.values[best, name][rows], axis=1, keepdims=True)
            found, less = mean_over_cells(answers.values[name] - beside, seed), 0.0
        ends = {"above_low": found.low - less, "above_high": found.high - less}
        return {"baseline": score, "above_baseline": found.value - less, **ends}

    def _best(self, measure: str) -> tuple[str, float]:
        """The baseline with the highest score, and the score; "" and NaN where there is none."""
        name = EXACT_MATCH if measure == ACCURACY else measure
        means = {key[0]: float(np.nanmean(values)) for key, values in self.values.items() if key[1] == name}
        means |= {key[0]: found.value for key, found in self.whole.items() if key[1] == measure}
        known = {one: value for one, value in means.items() if math.isfinite(value)}
        best = max(known, key=lambda one: known[one], default="")
        return best, known.get(best, math.nan)

    def results(self, task: str) -> Iterator[Result]:
        """A row for each baseline and measure."""
        for measure in MEASURES[task]:
            name = EXACT_MATCH if measure == ACCURACY else measure
            for (baseline, of), values in self.values.items():
                if of == name:
                    yield self._row(task, measure, baseline, mean_over_cells(values, 0))
            for (baseline, of), found in self.whole.items():
                if of == measure:
                    yield self._row(task, measure, baseline, found)

    def _row(self, task: str, measure: str, baseline: str, found: Estimate) -> Result:
        group = group_of(task, ("", "", "", ""), baseline)
        return Result(
            measure, group, found.value, found.low, found.high, n=len(self.documents), unit="percent",
            neutral=round(self._best(measure)[1], 2), note=meteor_scorer().used if measure == METEOR else "",
        )  # fmt: skip


def _of_labels(
    gold: list[str], labels: list[str], task: str
) -> tuple[dict[tuple[str, str], Floats], dict[tuple[str, str], Estimate]]:
    codes = np.array([labels.index(label) for label in gold], dtype=np.int64)
    n = len(labels)
    most = int(np.bincount(codes, minlength=n).argmax())
    values = {
        (MAJORITY, EXACT_MATCH): 100.0 * (codes == most)[:, None],
        (CHANCE, EXACT_MATCH): np.full((len(codes), 1), 100 * random_accuracy(n)),
    }
    whole = {}
    for measure in (F1, F1_MACRO):
        if measure in MEASURES[task]:
            positive = 0 if measure == F1 else None
            for name, value in ((MAJORITY, majority_f1(codes, n, positive)), (CHANCE, random_f1(codes, n, positive))):
                whole[name, measure] = Estimate(100 * value, math.nan, math.nan, math.nan, len(codes))
    return values, whole


def _of_texts(
    rows: pd.DataFrame, task: str, seed: int
) -> tuple[dict[tuple[str, str], Floats], dict[tuple[str, str], Estimate]]:
    """The whole passage as the answer, and for extraction spans at random; none where a passage is not known."""
    passages, gold = rows["passage"].astype(str).tolist(), rows["gold"].astype(str).tolist()
    if not all(passages):
        return {}, {}
    answers = {COPY: [[passage] for passage in passages]}
    if task == EXTRACTION:
        answers[RANDOM_SPAN] = _random_spans(passages, seed)
    meteor = meteor_scorer().score
    values: dict[tuple[str, str], Floats] = {}
    whole: dict[tuple[str, str], Estimate] = {}
    for name, given in answers.items():
        pairs = [[(answer, right) for answer in some] for some, right in zip(given, gold, strict=True)]
        values[name, TOKEN_F1] = np.array([[100 * token_f1(*pair) for pair in some] for some in pairs])
        values[name, METEOR] = np.array([[100 * meteor(*pair) for pair in some] for some in pairs])
        values[name, EXACT_MATCH] = np.array(
            [[100.0 * (a.strip().casefold() == r.strip().casefold()) for a, r in some] for some in pairs]
        )
        flat = [pair for some in pairs for pair in some]
        statistics = bleu_stats([answer for answer, _ in flat], [right for _, right in flat])
        whole[name, BLEU4] = bleu_over_cells(statistics.reshape(len(pairs), -1, 10), seed)
    return values, whole


def _random_spans(passages: Sequence[str], seed: int) -> list[list[str]]:
    """Contiguous words from one random place to another."""
    rng = np.random.default_rng(seed)
    found = []
    for passage in passages:
        tokens = passage.split() or [passage]
        ends = np.sort(rng.integers(0, len(tokens), size=(N_RANDOM_SPANS, 2)), axis=1)
        found.append([" ".join(tokens[start : stop + 1]) for start, stop in ends])
    return found
