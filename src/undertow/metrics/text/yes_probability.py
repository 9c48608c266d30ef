"""The probability of Yes in bias diagnosis, against the annotation: how well it ranks texts, its best threshold and its calibration.

It is the probability of Yes among Yes and No, the self-diagnosis probability of Schick et al. 2021 ("Self-Diagnosis and
Self-Debiasing"). A model whose answers are no better than a guess may still rank biased texts above others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.metrics.metric import Group, make_result
from undertow.metrics.text.scores import ALL, EXACT_MATCH, NO, PERCENT, POINTS, SETTING, YES, YES_PERCENT, ScoredAnswers
from undertow.stats import only_points
from undertow.stats.arrays import Estimate, Floats
from undertow.stats.classification.agreement import MIN_FOR_AREAS, auroc_over_cells, mean_over_cells
from undertow.stats.classification.roc import best_threshold
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

BIN_PERCENT = 10
"""Width of the bins of `reliability`."""


def recall_results(group: Group, answers: ScoredAnswers) -> Iterator[Result]:
    """The percentage of biased texts that are answered Yes: all, and those of each dimension."""
    biased = np.flatnonzero(answers.gold == 0).tolist()
    cells = range(len(answers.cells))
    for dimension in (ALL, *filter(None, dict.fromkeys(answers.dimensions[at] for at in biased))):
        part = answers.of(cells, [at for at in biased if dimension in (ALL, answers.dimensions[at])])
        estimate = mean_over_cells(part.values[EXACT_MATCH], PERCENT, part.clusters)
        n_missing = int(part.queried.sum() - part.is_scored.sum())
        n = int(part.is_scored.sum())
        note = "" if n else "no answer is scored"
        yield _result("recall", {**group, "dimension": dimension}, estimate, n=n, n_missing=n_missing, note=note)


def probability_results(group: Group, answers: ScoredAnswers, seed: int) -> Iterator[Result]:
    """AUROC with the best threshold, Brier score and calibration gap; none without probabilities or with texts of one kind only."""
    percents = answers.values.get(YES_PERCENT)
    if percents is None:
        return
    percents = np.where(answers.is_scored, percents, math.nan)
    known = np.flatnonzero(np.isfinite(percents).any(axis=1))
    percents, biased, clusters = percents[known], answers.gold[known] == 0, np.array(answers.clusters)[known]
    if not biased.any() or biased.all():
        return
    n = int(np.isfinite(percents).sum())
    counts = {"n": n, "n_missing": int(answers.queried.sum()) - n}
    area = auroc_over_cells(percents, biased, seed, clusters)
    why = f"no interval: fewer than {MIN_FOR_AREAS} texts of a kind, or a ranking without variation"
    note = why if math.isnan(area.low) and not only_points() else ""
    extras = {"sd": area.sd, "best_threshold": _mean_threshold(percents, biased)}
    yield _result("yes_auroc", group, area, extras=extras, note=note, **counts)
    errors, base_rate = percents / 100 - biased[:, np.newaxis], float(biased.mean())
    null_value = round(base_rate * (1 - base_rate), 4)
    yield _result(
        "brier_score", group, mean_over_cells(errors**2, (0.0, 1.0), clusters), null_value=null_value, **counts
    )
    yield _result("calibration_gap", group, mean_over_cells(100 * errors, POINTS, clusters), **counts)


def reliability(frame: pd.DataFrame) -> pd.DataFrame:
    """For each setting, answers in bins of the probability of Yes: their number, mean probability and share of biased texts, in percent.

    Empty without probabilities of Yes. The frame is that of `score_answers`.
    """
    import pandas as pd

    if YES_PERCENT not in frame or not frame["gold"].isin([YES, NO]).all():
        return pd.DataFrame()
    known = frame[(frame["missing_reason"] == "") & frame[YES_PERCENT].notna()]
    lowest = np.minimum(known[YES_PERCENT] // BIN_PERCENT * BIN_PERCENT, 100 - BIN_PERCENT).astype(int)
    known = known.assign(lowest_percent=lowest, biased=100.0 * (known["gold"] == YES))
    bins = known.groupby([*SETTING, "lowest_percent"], sort=False)
    counted = bins.agg(n=("biased", "size"), mean_percent=(YES_PERCENT, "mean"), biased_percent=("biased", "mean"))
    return counted.reset_index().sort_values([*SETTING, "lowest_percent"], kind="stable", ignore_index=True)


def _mean_threshold(percents: Floats, biased: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """Mean over cells of the threshold of highest balanced accuracy, in percent, without cells in which one answer to all is best."""
    thresholds = []
    for cell in percents.T:
        scores, kinds = cell[np.isfinite(cell)], biased[np.isfinite(cell)]
        threshold = best_threshold(scores, kinds)
        if scores.min(initial=100) <= threshold < scores.max(initial=0):
            thresholds.append(threshold)
    return float(np.mean(thresholds)) if thresholds else math.nan


def _result(measure: str, group: Group, estimate: Estimate, **others: Any) -> Result:
    fields = {"low": estimate.low, "high": estimate.high, "extras": {"sd": estimate.sd}} | others
    return make_result(measure, group, estimate.value, **fields)
