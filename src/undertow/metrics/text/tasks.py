"""Results of the four tasks of bias in text: mean scores, differences from baselines and between dimensions, effects of words.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language" (Findings of EMNLP), sections 4.3 and 5.
A score is the mean over documents of one cell. A result is the mean over cells, with their population standard deviation and an
interval over documents. Differences from the best baseline, between dimensions and between words have one test each, and one
correction covers all tests of the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.metric import Group, make_result
from undertow.metrics.text.scores import (
    ALL,
    BLEU4,
    CLAIM_HIGH,
    CLAIM_LOW,
    DIAGNOSIS,
    EXTRACTION,
    F1,
    F1_MACRO,
    MEASURES,
    METEOR,
    NO,
    NO_INTERVAL,
    PERCENT,
    REPHRASING,
    SETTING,
    YES,
    Baselines,
    Claim,
    ScoredAnswers,
    cached_meteor,
    group_keys,
    in_points,
    score_answers,
)
from undertow.metrics.text.wording_effects import estimate_slot_effects, variance_results
from undertow.metrics.text.yes_probability import probability_results, recall_results
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Estimate
from undertow.stats.classification.agreement import MIN_FOR_BOOTSTRAP, bleu_over_cells, f1_over_cells, mean_over_cells
from undertow.stats.intervals.bounded_mean import bounded_mean
from undertow.stats.significance.false_discovery import q_values
from undertow.stats.significance.largest_difference import largest_difference
from undertow.types import ALPHA, Result

if TYPE_CHECKING:
    import pandas as pd


def results(frame: pd.DataFrame, design: Mapping[str, Any], seed: int) -> list[Result]:
    """Every measure of the task by class, dimension and setting, then baselines, wording effects and shares of variance.

    q covers all tests of the run: the first measure of each setting against the best baseline, the two dimensions that differ most,
    and words of slots, over all texts and by dimension.
    """
    task = str(design["task"])
    of = task, MEASURES[task][0]
    settings, rates = score_answers(frame, design), _answer_rates(frame)
    baselines: Baselines | None = None
    # Baselines do not depend on the model, and scoring random spans is slow.
    if not only_points() and task in (EXTRACTION, REPHRASING):
        baselines = Baselines.from_texts(frame, task, seed)
    elif not only_points():
        baselines = Baselines(len(list(design["labels"])), seed=seed)
    measured: list[Result | Claim] = []
    for setting, answers in settings.items():
        measured += _setting_results((task, setting), answers, baselines, rates, seed)
    if baselines:
        measured += _baseline_results(task, baselines, frame, design)
    measured += estimate_slot_effects(frame, settings, of, seed)
    return [*add_q_values(measured), *variance_results(frame, settings, of)]


def _answer_rates(frame: pd.DataFrame) -> dict[tuple[str, ...], dict[str, float]]:
    """Percent of empty and shortened answers, of other words, and of Yes and No, by setting and class and by setting."""
    known = frame[frame["missing_reason"] == ""]
    answers = known["answer"].astype(str).str.strip().str.casefold()
    known = known.assign(_answer=answers, _has_dropped=known["n_dropped_shots"] > 0)
    percents: dict[tuple[str, ...], dict[str, float]] = {}
    for keys in ((*SETTING, "description_class"), SETTING):
        for key, rows in known.groupby(list(keys), sort=False):
            numbers = {"empty_percent": 100 * float((rows["_answer"] == "").mean())}
            if rows["_has_dropped"].any():
                numbers["shortened_percent"] = 100 * float(rows["_has_dropped"].mean())
            if "other_words" in rows and rows["other_words"].notna().any():
                numbers["other_words_percent"] = float(rows["other_words"].mean())
            if (rows["gold"].isin(["Yes", "No"])).all():
                for label in (YES, NO):
                    numbers[f"{label.lower()}_percent"] = 100 * float((rows["_answer"] == label.casefold()).mean())
            percents[(*map(str, key), ALL)[: len(SETTING) + 1]] = numbers
    return percents


def add_q_values(measured: Sequence[Result | Claim]) -> list[Result]:
    """Add q over all tests (Benjamini and Hochberg 1995), and intervals that agree with q.

    If R of m tests are significant, exactly these have p below 0.05 R / m, so intervals at the level 1 - 0.05 R / m exclude 0 exactly
    for them (Benjamini and Yekutieli 2005, "False Discovery Rate-Adjusted Multiple Confidence Intervals"). R is at least 1.
    """
    tested = [one.result if isinstance(one, Claim) else one for one in measured]
    qs = np.array(q_values([one.p for one in tested], [0] * len(tested)))
    n_tests, n_claims = int(np.isfinite(qs).sum()), int((qs < ALPHA).sum())
    level = 1 - ALPHA * max(n_claims, 1) / max(n_tests, 1)
    for at, (one, q) in enumerate(zip(measured, qs.tolist(), strict=True)):
        if isinstance(one, Claim) and math.isfinite(q):
            low, high = one.interval(level)
            known = {CLAIM_LOW: low, CLAIM_HIGH: high} if math.isfinite(low) else {}
            tested[at] = replace(one.result, q=q, extras={**one.result.extras, **known})
    return tested


def _setting_results(
    where: tuple[str, tuple[str, ...]],
    answers: ScoredAnswers,
    baselines: Baselines | None,
    counts: Mapping[tuple[str, ...], Mapping[str, float]],
    seed: int,
) -> Iterator[Result | Claim]:
    task, setting = where
    classes = answers.classes
    names = [*classes, *([ALL] if len(classes) > 1 else [])]
    for name in names:
        of_class = answers.select_class(name)
        more = counts.get((*setting, name), {})
        for measure in MEASURES[task]:
            estimate = _estimate(of_class, measure, seed)
            result = _result(measure, group_keys(task, setting, name), estimate, of_class, more)
            # Only all classes together, and the first measure, are tested.
            is_claim = name == names[-1] and measure == MEASURES[task][0]
            yield _compare_with_baselines(result, of_class, baselines, is_claim=is_claim) if baselines else result
        if task == DIAGNOSIS:
            group = group_keys(task, setting, name)
            yield from (*recall_results(group, of_class), *probability_results(group, of_class, seed))
            continue
        parts = {}
        for dimension in filter(None, dict.fromkeys(answers.dimensions)):
            rows = [at for at, one in enumerate(of_class.dimensions) if one == dimension]
            part = of_class.of(range(len(of_class.cells)), rows)
            parts[dimension] = _estimate(part, MEASURES[task][0], seed), part
            yield _result(MEASURES[task][0], group_keys(task, setting, name, dimension), *parts[dimension], {})
        if name == names[-1] and not only_points():
            yield from _dimension_gap(group_keys(task, setting, name), MEASURES[task][0], parts, seed)


def _compare_with_baselines(
    result: Result, answers: ScoredAnswers, baselines: Baselines, *, is_claim: bool
) -> Result | Claim:
    gain = baselines.gain(answers, result.measure)
    if gain is None:
        return replace(result, null_value=round(baselines.best_score(answers, result.measure), 2))
    low, high = gain.interval()
    extras = {**result.extras, "above_baseline": gain.value, "above_low": low, "above_high": high}
    known = replace(result, null_value=round(gain.baseline, 2), extras=extras)
    return Claim(replace(known, p=gain.p), gain.interval) if is_claim and math.isfinite(gain.p) else known


def _baseline_results(
    task: str, baselines: Baselines, frame: pd.DataFrame, design: Mapping[str, Any]
) -> Iterator[Result]:
    """Score each baseline once on every text with a scored answer."""
    texts = frame[frame["missing_reason"] == ""].drop_duplicates("document")
    if texts.empty:
        return
    one_cell = texts.assign(**dict.fromkeys((*SETTING, "description_class", "wording"), ""), draw=0)
    (whole,) = score_answers(one_cell, design, whole=False).values()
    for measure in MEASURES[task]:
        best = round(baselines.best_score(whole, measure), 2)
        for name in baselines.names(measure):
            estimate = baselines.score(name, whole, measure)
            note = cached_meteor().used if measure == METEOR else ""
            group = group_keys(task, ("", "", "", ""), name)
            ends = {"low": estimate.low, "high": estimate.high}
            yield make_result(measure, group, estimate.value, **ends, n=estimate.n, null_value=best, note=note)


def _dimension_gap(
    group: Group, measure: str, parts: Mapping[str, tuple[Estimate, ScoredAnswers]], seed: int
) -> Iterator[Claim]:
    """The pair of dimensions whose scores differ most relative to the standard error, tested over all pairs.

    Clusters are units. Dimensions with too few texts are excluded; there is no test if a cluster has texts of two dimensions.
    """
    enough = {name: part for name, part in parts.items() if part[1].n_clusters >= MIN_CLUSTERS}
    names, sizes = list(enough), [estimate.n for estimate, _ in enough.values()]
    clusters = [{part.clusters[at] for at in np.flatnonzero(part.is_scored.any(axis=1))} for _, part in enough.values()]
    if len(names) < 2 or len(set().union(*clusters)) < sum(map(len, clusters)):
        return
    means = [bounded_mean(part.of_measure(measure), PERCENT, np.array(part.clusters)) for _, part in enough.values()]
    sums = np.concatenate([n * mean.sums for n, mean in zip(sizes, means, strict=True)])
    weights = np.concatenate([n * mean.sizes for n, mean in zip(sizes, means, strict=True)])
    test = largest_difference(
        sums, weights, np.repeat(range(len(names)), [len(one.sums) for one in means]), PERCENT, seed
    )
    if test is None:
        return
    low, high = in_points(*test.interval(1 - ALPHA))
    yield Claim(
        Result(
            "dimension_gap", group, test.value, low, high, n=sum(sizes), unit="percentage points", null_value=0.0, p=test.p,
            extras={"n_dimensions": float(len(names))}, note=" less ".join(names[one] for one in test.pair),
        ),
        lambda level: in_points(*test.interval(level)),
    )  # fmt: skip


def _result(measure: str, group: Group, estimate: Estimate, of: ScoredAnswers, more: Mapping[str, float]) -> Result:
    n = int(of.is_scored.sum())
    note = "" if n else "no answer is scored"
    if n and measure in (F1, F1_MACRO) and math.isnan(estimate.value):
        note = "its class does not occur"
    if n and measure == METEOR:
        note = cached_meteor().used
    if n and math.isnan(estimate.low) and not only_points():
        note = "; ".join(filter(None, [note, _why_no_interval(measure, of.n_clusters)]))
    extras = {"sd": estimate.sd, "cells": float(len(of.cells)), "n_clusters": float(of.n_clusters)} | dict(more)
    n_missing, ends = int(of.queried.sum()) - n, {"low": estimate.low, "high": estimate.high}
    return make_result(measure, group, estimate.value, **ends, n=n, n_missing=n_missing, extras=extras, note=note)


def _why_no_interval(measure: str, n_clusters: int) -> str:
    if n_clusters < MIN_CLUSTERS:
        return f"{NO_INTERVAL}: fewer than {MIN_CLUSTERS} texts"
    of_each = " of each label" if measure == F1_MACRO else ""
    if measure in (BLEU4, F1_MACRO):
        return f"{NO_INTERVAL}: it needs {MIN_FOR_BOOTSTRAP} texts{of_each}, and texts that differ"
    return f"{NO_INTERVAL}: {'few texts are biased, or ' if measure == F1 else ''}the texts do not differ"


def _estimate(answers: ScoredAnswers, measure: str, seed: int) -> Estimate:
    clusters = np.array(answers.clusters)
    if measure == BLEU4:
        return bleu_over_cells(answers.bleu, seed, clusters)
    if measure not in (F1, F1_MACRO):
        return mean_over_cells(answers.of_measure(measure), PERCENT, clusters)
    n_classes = int(max(answers.gold.max(initial=0), answers.predicted.max(initial=0))) + 1
    positive = 0 if measure == F1 else None
    one = f1_over_cells(answers.gold, answers.predicted, n_classes, positive, seed, clusters)
    return replace(one, value=100 * one.value, low=100 * one.low, high=100 * one.high, sd=100 * one.sd)


def wording_scores(frame: pd.DataFrame, design: Mapping[str, Any], measures: Sequence[str] = ()) -> pd.DataFrame:
    """Text, score and interval in percent, and rank of every wording, by setting and measure of the task (all if not given).

    Draws of examples are averaged. Rank 1 is the highest score of a setting and measure; equal scores share the better rank. Intervals
    ignore the selection of the best of many wordings.
    """
    import pandas as pd

    wanted = measures or MEASURES[str(design["task"])]
    rows = []
    for setting, answers in score_answers(frame, design, whole=bool({BLEU4, METEOR} & set(wanted))).items():
        for kind, text in dict.fromkeys((cell[0], cell[1]) for cell in answers.cells):
            part = answers.of([at for at, cell in enumerate(answers.cells) if cell[:2] == (kind, text)])
            n, n_queries = int(part.is_scored.sum()), int(part.queried.sum())
            for measure in wanted:
                estimate = _estimate(part, measure, seed=0)
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
