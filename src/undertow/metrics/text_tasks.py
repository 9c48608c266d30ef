"""How well bias in text is diagnosed, identified, extracted and rephrased: scores of answers, their means and what moves them.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), sections 4.3 and 5.
A cell is one wording and one draw of examples; a score is its mean over documents, and what is told is the mean over cells, the
population standard deviation over them, and an interval over documents. What is claimed of a run (a difference from the best answer
without a model, between dimensions, between words) has one test each, and one correction for all of them. Knows tables of answers; knows
no model and no prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.text_overlap import Meteor, bleu_stats, meteor_scorer, same_text, token_f1
from undertow.stats import MIN_CLUSTERS
from undertow.stats.classification.agreement import (
    MIN_FOR_PERCENTILES,
    Estimate,
    bleu_over_cells,
    confusion,
    f1_over_cells,
    mean_over_cells,
)
from undertow.stats.intervals.point_estimates import kept, only_points
from undertow.stats.significance.false_discovery import benjamini_hochberg
from undertow.types import Floats, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.metrics.text_baselines import Baselines

DIAGNOSIS, IDENTIFICATION, EXTRACTION, REPHRASING = (
    "bias-diagnosis", "bias-identification", "bias-extraction", "bias-rephrasing"
)  # fmt: skip
ALL = "all"
"""The level of `dimension` and `description_class` where these are taken together."""
MAJORITY, CHANCE, ALWAYS_YES, COPY, RANDOM_SPAN = "(majority)", "(random)", "(always Yes)", "(copy)", "(random span)"
"""Levels of `description_class` that are no description: what needs no model."""
SETTING = ("model", "shots", "sampling", "decoding")
GROUP_KEYS = ("model", "task", "dimension", "description_class", "shots", "sampling", "decoding")
SLOT = "slot_"
"""Before the names of slots, in the table of answers."""
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
"""The measures of each task, the one that its findings are about first."""
PERCENT, POINTS = (0.0, 100.0), (-100.0, 100.0)
"""Between what scores lie, and differences of scores."""
ALPHA = 0.05
"""The false claims that are let into a run, of all that it claims."""
N_SHUFFLES = 20_000
AT_ONCE = 1000
CLAIM_LOW, CLAIM_HIGH = "claim_low", "claim_high"
"""Details of a result that is tested: the interval at the level that all tests of the run leave to each."""
NO_INTERVAL = "no interval"


@dataclass(frozen=True, slots=True)
class ScoredAnswers:
    """Answers as arrays: every cell of one setting, asked about every document.

    Attributes:
        documents: ids [document].
        dimensions: of their bias [document].
        cells: (description class, wording, draw) of each [cell].
        queried: whether there is an answer, scored or not [document, cell].
        values: scores by measure, in percent, NaN where missing [document, cell].
        bleu: sufficient statistics [document, cell, 10]; of a task with written answers.
        gold, said: codes of labels [document] and [document, cell]; of a task with labels.
        clusters: of documents that are no independent samples of others [document]; each is its own unless a table says otherwise.
    """

    documents: list[str]
    dimensions: list[str]
    cells: list[tuple[str, str, int]]
    queried: np.ndarray[Any, np.dtype[np.bool_]]
    values: Mapping[str, Floats]
    bleu: Floats | None = None
    gold: np.ndarray[Any, np.dtype[np.int64]] | None = None
    said: np.ndarray[Any, np.dtype[np.int64]] | None = None
    clusters: list[str] = field(default_factory=list)

    def of(self, cells: Sequence[int], documents: Sequence[int] | None = None) -> ScoredAnswers:
        """Some cells, and some documents; all of these where none are named."""
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

    def of_class(self, name: str) -> ScoredAnswers:
        """The cells of one description class, or all of them."""
        return self.of([at for at, cell in enumerate(self.cells) if name in (ALL, cell[0])])

    @property
    def known(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether an answer is scored [document, cell]."""
        return np.isfinite(self.values[EXACT_MATCH])

    @property
    def n_clusters(self) -> int:
        """Clusters of documents that have a scored answer."""
        return len({self.clusters[at] for at in np.flatnonzero(self.known.any(axis=1))})

    @property
    def classes(self) -> list[str]:
        """Description classes, as they come."""
        return list(dict.fromkeys(cell[0] for cell in self.cells))


def scored(
    frame: pd.DataFrame, design: Mapping[str, Any], *, whole: bool = True
) -> dict[tuple[str, ...], ScoredAnswers]:
    """Scores of every setting (model, shots, sampling, decoding).

    Args:
        frame: a row per answer: the factors of `SETTING`, `document`, `dimension`, `description_class`, `wording`, `sample_index`, `gold`,
            `answer` and `missing`.
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
    known = frame["missing_reason"] == ""
    if task not in (EXTRACTION, REPHRASING):
        same = answers.str.strip().str.casefold() == gold.str.strip().str.casefold()
        return frame.assign(**{EXACT_MATCH: np.where(known, 100.0 * same, math.nan)}), None
    columns: dict[str, Any] = {}
    pairs = list(zip(answers, gold, strict=True))
    place = _places(list(dict.fromkeys(pairs)))
    at = np.array([place[pair] for pair in pairs], dtype=np.int64)
    # Whoever measures these texts many times has them scored once.
    scores: dict[str, Callable[[str, str], float]] = {
        EXACT_MATCH: same_text,
        TOKEN_F1: kept(TOKEN_F1, lambda: cache(token_f1)),
    }
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
        scorer = meteor_scorer()
        return replace(scorer, score=cache(scorer.score))

    return kept(METEOR, made)


def _bleu_statistics(pairs: list[tuple[str, str]]) -> Floats:
    """Of each pair of texts [pair, 10]."""
    of_pair: dict[tuple[str, str], Floats] = kept(BLEU4, dict)
    fresh = [pair for pair in pairs if pair not in of_pair]
    if fresh:
        counted = bleu_stats([answer for answer, _ in fresh], [right for _, right in fresh])
        of_pair |= dict(zip(fresh, counted, strict=True))
    return np.array([of_pair[pair] for pair in pairs], dtype=np.float64).reshape(len(pairs), 10)


def _arrays(rows: pd.DataFrame, labels: list[str], statistics: Floats | None) -> ScoredAnswers:
    """One setting's answers [document, cell]."""
    documents = list(dict.fromkeys(rows["document"].astype(str)))
    cells = list(
        dict.fromkeys(zip(rows["description_class"], rows["wording"], rows["sample_index"].astype(int), strict=True))
    )
    row_of, column_of = _places(documents), _places(cells)
    at = (
        rows["document"].astype(str).map(row_of).to_numpy(),
        np.array(
            [
                column_of[cell]
                for cell in zip(
                    rows["description_class"], rows["wording"], rows["sample_index"].astype(int), strict=True
                )
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
    clusters = [str(first.loc[name, "cluster"]) for name in documents] if "cluster" in first else documents
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
    return ScoredAnswers(documents, dimensions, cells, filled(True, bool, False), values, bleu, gold, said, clusters)


def _places(names: Sequence[Any]) -> dict[Any, int]:
    return {name: at for at, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class TestedResult:
    """A result whose p decides a claim.

    Attributes:
        result: with p, and without q.
        interval: limits of what is tested, at a level; it leaves out 0 where p is below what the level leaves.
    """

    result: Result
    interval: Callable[[float], tuple[float, float]]


def results(frame: pd.DataFrame, design: Mapping[str, Any], seed: int) -> list[Result]:
    """Every measure of the task by class, dimension and setting, then baselines, wording effects and shares of variance.

    One q over all tests of the run: of the first measure of each setting against the best baseline, of its best against its worst
    dimension, and of the words of slots, over all texts and by dimension.
    """
    from undertow.metrics.text_baselines import Baselines
    from undertow.metrics.wording_effects import tested_effects, variance_results

    task = str(design["task"])
    settings = scored(frame, design)
    counts = _counts(frame)
    baselines: Baselines | None = None
    # No model's answers are in them, and scoring spans at random takes long.
    if not only_points():
        written = task in (EXTRACTION, REPHRASING)
        baselines = (
            Baselines.of_texts(frame, task, seed) if written else Baselines(len(list(design["labels"])), seed=seed)
        )
    measured: list[Result | TestedResult] = []
    for setting, answers in settings.items():
        measured += _of_setting((task, setting), answers, baselines, counts, seed)
    if baselines:
        measured += _of_baselines(task, baselines, settings)
    measured += tested_effects(frame, settings, (task, MEASURES[task][0]), seed)
    return [*corrected(measured), *variance_results(frame, settings, (task, MEASURES[task][0]))]


def corrected(measured: Sequence[Result | TestedResult]) -> list[Result]:
    """With q over all that is tested (Benjamini and Hochberg 1995), and intervals that say what q says.

    Of R claims among m tests each has p below 0.05 R / m, and what is not claimed has not; so intervals of the level 1 - 0.05 R / m
    leave out 0 where something is claimed, and nowhere else (Benjamini and Yekutieli 2005, "False Discovery Rate-Adjusted
    Multiple Confidence Intervals"). Without a claim R counts as 1.
    """
    tested = [one.result if isinstance(one, TestedResult) else one for one in measured]
    qs = benjamini_hochberg([one.p for one in tested])
    n_tests, n_claims = int(np.isfinite(qs).sum()), int((qs < ALPHA).sum())
    level = 1 - ALPHA * max(n_claims, 1) / max(n_tests, 1)
    results = []
    for one, result, q in zip(measured, tested, qs.tolist(), strict=True):
        ends = one.interval(level) if isinstance(one, TestedResult) and math.isfinite(q) else (math.nan, math.nan)
        known = {CLAIM_LOW: ends[0], CLAIM_HIGH: ends[1]} if math.isfinite(ends[0]) else {}
        results.append(replace(result, q=q, extras={**result.extras, **known}) if math.isfinite(q) else result)
    return results


def group_of(task: str, setting: Sequence[str], name: str, dimension: str = ALL) -> dict[str, str]:
    """The group keys of one number."""
    model, shots, sampling, decoding = setting
    keys = (model, task, dimension, name, shots, sampling, decoding)
    return dict(zip(GROUP_KEYS, keys, strict=True))


def _of_setting(
    where: tuple[str, tuple[str, ...]],
    answers: ScoredAnswers,
    baselines: Baselines | None,
    counts: Mapping[tuple[str, ...], Mapping[str, float]],
    seed: int,
) -> Iterator[Result | TestedResult]:
    task, setting = where
    classes = answers.classes
    names = [*classes, *([ALL] if len(classes) > 1 else [])]
    for name in names:
        of_class = answers.of_class(name)
        more = counts.get((*setting, name), {})
        for measure in MEASURES[task]:
            estimate = _estimate(of_class, measure, seed)
            result = _result(measure, group_of(task, setting, name), estimate, of_class, more)
            # What is claimed is of all classes together, and of the measure that findings are about.
            is_claim = name == names[-1] and measure == MEASURES[task][0]
            yield _beside_baselines(result, of_class, baselines, is_claim=is_claim) if baselines else result
        if task == DIAGNOSIS:
            continue
        parts = {}
        for dimension in filter(None, dict.fromkeys(answers.dimensions)):
            rows = [at for at, one in enumerate(of_class.dimensions) if one == dimension]
            part = of_class.of(range(len(of_class.cells)), rows)
            parts[dimension] = _estimate(part, MEASURES[task][0], seed), part
            yield _result(MEASURES[task][0], group_of(task, setting, name, dimension), *parts[dimension], {})
        if name == names[-1] and not only_points():
            yield from _between_dimensions(group_of(task, setting, name), MEASURES[task][0], parts, seed)


def _beside_baselines(
    result: Result, answers: ScoredAnswers, baselines: Baselines, *, is_claim: bool
) -> Result | TestedResult:
    """A score with what the best baseline has on the same texts, and how far above that it is."""
    gain = baselines.gain(answers, result.measure)
    if gain is None:
        return replace(result, null_value=round(baselines.best_score(answers, result.measure), 2))
    low, high = gain.interval()
    detail = {**result.extras, "above_baseline": gain.value, "above_low": low, "above_high": high}
    known = replace(result, null_value=round(gain.baseline, 2), extras=detail)
    return TestedResult(replace(known, p=gain.p), gain.interval) if is_claim and math.isfinite(gain.p) else known


def _of_baselines(
    task: str, baselines: Baselines, settings: Mapping[tuple[str, ...], ScoredAnswers]
) -> Iterator[Result]:
    """A row for each baseline and measure, over the texts that have a scored answer in any setting."""
    of_text: dict[str, ScoredAnswers] = {}
    for answers in settings.values():
        for at in np.flatnonzero(answers.known.any(axis=1)).tolist():
            if answers.documents[at] not in of_text:
                of_text[answers.documents[at]] = answers.of([int(answers.known[at].argmax())], [at])
    if not of_text:
        return
    whole = _joined(list(of_text.values()))
    for measure in MEASURES[task]:
        best = round(baselines.best_score(whole, measure), 2)
        for name in baselines.names(measure):
            estimate = baselines.score(name, whole, measure)
            note = meteor_scorer().used if measure == METEOR else ""
            yield Result(
                measure, group_of(task, ("", "", "", ""), name), estimate.value, estimate.low, estimate.high, n=estimate.n, unit="percent",
                null_value=best, note=note,
            )  # fmt: skip


def _joined(texts: Sequence[ScoredAnswers]) -> ScoredAnswers:
    """One answer to each of several documents, as if they were of one cell."""

    def beneath(parts: Sequence[Any]) -> Any:
        return None if any(part is None for part in parts) else np.concatenate(parts)

    names = dict.fromkeys(name for one in texts for name in one.values)
    return ScoredAnswers(
        [name for one in texts for name in one.documents],
        [name for one in texts for name in one.dimensions],
        texts[0].cells,
        beneath([one.queried for one in texts]),
        {name: beneath([one.values[name] for one in texts]) for name in names},
        beneath([one.bleu for one in texts]),
        beneath([one.gold for one in texts]),
        beneath([one.said for one in texts]),
        [name for one in texts for name in one.clusters],
    )


def _between_dimensions(
    group: Mapping[str, str], measure: str, parts: Mapping[str, tuple[Estimate, ScoredAnswers]], seed: int
) -> Iterator[TestedResult]:
    """The best dimension less the worst, tested against dimensions that texts were dealt into at random.

    As Tukey's range: in each shuffle the widest of all pairs counts, scaled by how many texts both have, so that the two need not be
    named beforehand. Texts that stand in clusters are dealt by cluster. Dimensions of too few texts are left out.
    """
    own = EXACT_MATCH if measure == ACCURACY else measure
    enough = {name: part for name, part in parts.items() if part[1].n_clusters >= MIN_CLUSTERS}
    if len(enough) < 2:
        return
    best = max(enough, key=lambda name: enough[name][0].value)
    worst = min(enough, key=lambda name: enough[name][0].value)
    units = _units(list(enough.values()), own)
    if best == worst or units is None:
        return
    value = enough[best][0].value - enough[worst][0].value
    n_texts = np.array([part[0].n for part in enough.values()], dtype=np.float64)
    scale = math.sqrt(sum(1 / enough[name][0].n for name in (best, worst)))
    widest = np.sort(_shuffled_ranges(*units, n_texts, seed))
    hits = int(np.count_nonzero(widest >= value / scale - 1e-9))

    def interval(level: float) -> tuple[float, float]:
        # p is (1 + hits) / (1 + shuffles); what is beyond all shuffles cannot be told at this level.
        place = math.floor((1 - level) * (1 + N_SHUFFLES) + 1e-9)
        if place < 1:
            return POINTS
        reach = scale * float(widest[len(widest) - place])
        return max(value - reach, POINTS[0]), min(value + reach, POINTS[1])

    low, high = interval(1 - ALPHA)
    yield TestedResult(
        Result(
            "dimension_gap", group, value, low, high, n=int(n_texts.sum()), unit="percentage points", null_value=0.0,
            p=(1 + hits) / (1 + N_SHUFFLES), extras={"n_dimensions": float(len(enough))},
            note=f"{best} less {worst}",
        ),
        interval,
    )  # fmt: skip


def _units(
    parts: Sequence[tuple[Estimate, ScoredAnswers]], own: str
) -> tuple[Floats, Floats, np.ndarray[Any, np.dtype[np.int64]]] | None:
    """What is dealt: sums and numbers of texts [unit] and dimensions [unit]; None where a cluster has texts of two of them."""
    sums: dict[tuple[int, str], list[float]] = {}
    for code, (_, part) in enumerate(parts):
        known = part.known.any(axis=1)
        for at in np.flatnonzero(known).tolist():
            sums.setdefault((code, part.clusters[at]), []).append(float(np.nanmean(part.values[own][at])))
    if len({name for _, name in sums}) < len(sums):
        return None
    return (
        np.array([sum(some) for some in sums.values()]),
        np.array([float(len(some)) for some in sums.values()]),
        np.array([code for code, _ in sums], dtype=np.int64),
    )


def _shuffled_ranges(
    sums: Floats, sizes: Floats, codes: np.ndarray[Any, np.dtype[np.int64]], n_texts: Floats, seed: int
) -> Floats:
    """The widest scaled difference of two dimensions in each shuffle [shuffle]."""
    rng = np.random.default_rng(seed)
    n_groups = len(n_texts)
    apart = 1 / np.sqrt(1 / n_texts[:, np.newaxis] + 1 / n_texts)
    ranges = np.empty(N_SHUFFLES)
    for start in range(0, N_SHUFFLES, AT_ONCE):
        dealt = rng.permuted(np.tile(codes, (AT_ONCE, 1)), axis=1)
        of_group = [dealt == code for code in range(n_groups)]
        means = np.stack([(one @ sums) / (one @ sizes) for one in of_group])  # [group, shuffle]
        gaps = np.abs(means[:, np.newaxis] - means) * apart[:, :, np.newaxis]
        ranges[start : start + AT_ONCE] = gaps.max(axis=(0, 1))
    return ranges


def _result(
    measure: str, group: Mapping[str, str], estimate: Estimate, of: ScoredAnswers, more: Mapping[str, float]
) -> Result:
    n = int(of.known.sum())
    note = "" if n else "no answer is scored"
    if n and measure in (F1, F1_MACRO):
        note = _f1_note(of, estimate)
    if n and measure == METEOR:
        note = _meteor().used
    if n and math.isnan(estimate.low) and not only_points():
        note = "; ".join(filter(None, [note, _why_no_interval(measure, of.n_clusters)]))
    return Result(
        measure=measure,
        group=group,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        n=n,
        n_missing=int(of.queried.sum()) - n,
        unit="percent",
        extras={"sd": estimate.sd, "cells": float(len(of.cells)), "n_clusters": float(of.n_clusters)} | dict(more),
        note=note,
    )


def _why_no_interval(measure: str, n_clusters: int) -> str:
    if n_clusters < MIN_CLUSTERS:
        return f"{NO_INTERVAL}: fewer than {MIN_CLUSTERS} texts"
    of_each = " of each label" if measure == F1_MACRO else ""
    if measure in (BLEU4, F1_MACRO):
        return f"{NO_INTERVAL}: it needs {MIN_FOR_PERCENTILES} texts{of_each}, and texts that differ"
    return f"{NO_INTERVAL}: the texts do not differ"


def _estimate(answers: ScoredAnswers, measure: str, seed: int) -> Estimate:
    """One measure of some cells, in percent."""
    clusters = np.array(answers.clusters)
    if measure in (ACCURACY, EXACT_MATCH, TOKEN_F1, METEOR):
        values = answers.values[EXACT_MATCH if measure == ACCURACY else measure]
        return mean_over_cells(values, seed, PERCENT, clusters)
    if measure == BLEU4 and answers.bleu is not None:
        return bleu_over_cells(answers.bleu, seed, clusters)
    whole = answered_everywhere(answers)
    if whole.gold is None or whole.said is None:
        raise ValueError(f"{measure} needs labels")
    n_classes = int(max(whole.gold.max(initial=0), whole.said.max(initial=0))) + 1
    positive = 0 if measure == F1 else None
    return _in_percent(f1_over_cells(whole.gold, whole.said, n_classes, positive, seed, np.array(whole.clusters)))


def answered_everywhere(answers: ScoredAnswers) -> ScoredAnswers:
    """The cells with any answer, and the documents that have one in all of these.

    F1 is no mean over documents: a cell that lacks some would have the F1 of other documents than the next.
    """
    cells = np.flatnonzero(answers.known.any(axis=0)).tolist()
    return answers.of(cells, np.flatnonzero(answers.known[:, cells].all(axis=1)).tolist())


def _f1_note(answers: ScoredAnswers, estimate: Estimate) -> str:
    n_left_out = int(answers.known.any(axis=1).sum()) - len(answered_everywhere(answers).documents)
    if n_left_out:
        return f"documents that lack an answer in some cell are left out: {n_left_out}"
    return "its class does not occur" if math.isnan(estimate.value) else ""


def wording_scores(
    frame: pd.DataFrame, design: Mapping[str, Any], seed: int, measures: Sequence[str] = ()
) -> pd.DataFrame:
    """Every wording with what it scores, by setting and measure: text, score and interval in percent, and its rank.

    A wording's draws of examples are taken together. Rank 1 is the highest score of a setting and measure, and equal scores share the
    better rank. An interval is of its wording alone: the first of many was picked, and is better here than on other texts.

    Args:
        frame: as `scored` takes it.
        design: as `scored` takes it.
        seed: of bootstraps.
        measures: those of the task that are wanted; all if not given.
    """
    import pandas as pd

    wanted = measures or MEASURES[str(design["task"])]
    rows = []
    for setting, answers in scored(frame, design, whole=bool({BLEU4, METEOR} & set(wanted))).items():
        for kind, text in dict.fromkeys((cell[0], cell[1]) for cell in answers.cells):
            part = answers.of([at for at, cell in enumerate(answers.cells) if cell[:2] == (kind, text)])
            n, n_queries = int(part.known.sum()), int(part.queried.sum())
            for measure in wanted:
                estimate = _estimate(part, measure, seed)
                rows.append(
                    {
                        **dict(zip(SETTING, setting, strict=True)), "measure": measure, "description_class": kind, "wording": text,
                        "score": estimate.value, "low": estimate.low, "high": estimate.high, "n": n, "n_missing": n_queries - n,
                    }
                )  # fmt: skip
    table = pd.DataFrame(rows)
    if len(table):
        of_setting = table.groupby([*SETTING, "measure"], sort=False)["score"]
        table["rank"] = of_setting.rank(method="min", ascending=False).astype("Int64")
    return table


def _in_percent(estimate: Estimate) -> Estimate:
    return Estimate(100 * estimate.value, 100 * estimate.low, 100 * estimate.high, 100 * estimate.sd, estimate.n)


def cell_scores(answers: ScoredAnswers, measure: str) -> Floats:
    """The score of each cell, its mean over documents [cell], in percent."""
    values = answers.values[EXACT_MATCH if measure == ACCURACY else measure]
    seen = np.isfinite(values)
    sums, counts = np.where(seen, values, 0.0).sum(axis=0), seen.sum(axis=0)
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), math.nan), where=counts > 0)
    return means


def confusion_of(answers: ScoredAnswers, n_labels: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How often each label was answered with each, and with none of them, over all cells [gold, answer + 1]."""
    if answers.gold is None or answers.said is None:
        raise ValueError("there are no labels to be confused")
    counts = confusion(answers.gold, answers.said, n_labels)
    # Whatever has no score has no label either; only some of it was answered.
    np.subtract.at(counts[:, n_labels], answers.gold, (~answers.known).sum(axis=1))
    return counts


def _counts(frame: pd.DataFrame) -> dict[tuple[str, ...], dict[str, float]]:
    """Answers that are empty, and prompts that lost examples, in percent, by setting and class."""
    known = frame[frame["missing_reason"] == ""]
    known = known.assign(_empty=known["answer"].astype(str).str.strip() == "", _dropped=known["n_dropped_shots"] > 0)
    percents: dict[tuple[str, ...], dict[str, float]] = {}
    for keys in ((*SETTING, "description_class"), SETTING):
        for key, rows in known.groupby(list(keys), sort=False):
            name = tuple(map(str, key)) if len(keys) > len(SETTING) else (*map(str, key), ALL)
            numbers = {"empty_percent": 100 * float(rows["_empty"].mean())}
            if rows["_dropped"].any():
                numbers["shortened_percent"] = 100 * float(rows["_dropped"].mean())
            if "other_words" in rows and rows["other_words"].notna().any():
                numbers["other_words_percent"] = float(rows["other_words"].mean())
            if (rows["gold"].isin(["Yes", "No"])).all():
                answers = rows["answer"].astype(str).str.strip().str.casefold()
                for label in (YES, NO):
                    numbers[f"{label.lower()}_percent"] = 100 * float((answers == label.casefold()).mean())
            percents[name] = numbers
    return percents
