"""Correlation of the detection of underspecified sentences with drift and with model size.

One point per model: the AUROC of a score on a set, against the model's slope gap in spurious correlation and against its
number of parameters. McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 5.2, reports both relations;
this module computes a rank correlation with a permutation test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import permutation_test, spearmanr

from undertow.metrics.metric import Group
from undertow.types import Floats, Result

AREA, GAP, PAIR = "auroc", "slope_gap", "female-male"
MIN_MODELS = 3
N_ORDERS = 5_040
"""Number of permutations: all of up to seven models, random ones beyond."""


@dataclass(frozen=True, slots=True)
class Point:
    """One model on one set by one score.

    Attributes:
        model, set, w_name, score: keys of the area; `w_name` is "" if the set has one W list.
        area: AUROC, in 0 to 1.
        slope_gap: absolute female-male slope gap over dates, in percent per step; NaN without a run.
        size: number of parameters; NaN if unknown.
    """

    model: str
    set: str
    w_name: str
    score: str
    area: float
    slope_gap: float
    size: float


def points(results: Sequence[Result], sizes: Mapping[str, float]) -> list[Point]:
    """Area, slope gap and size of every model, from task-specification and spurious-correlation runs and numbers of parameters."""
    gaps: dict[str, list[float]] = {}
    areas: dict[tuple[str, str, str, str], list[float]] = {}
    for result in (one for one in results if math.isfinite(one.value)):
        group = result.group
        if result.measure == GAP and (group["w_name"], group["pronoun"]) == ("date", PAIR):
            gaps.setdefault(group["model"], []).append(abs(result.value))
        if result.measure == AREA:
            key = (group["model"], group["set"], group.get("w_name", ""), group["score"])
            areas.setdefault(key, []).append(result.value)
    # With several prompts or sets, a model's point is the mean, as in figure 3b of the paper.
    return [
        Point(
            *key,
            area=float(np.mean(values)),
            slope_gap=float(np.mean(gaps[key[0]])) if key[0] in gaps else math.nan,
            size=sizes.get(key[0], math.nan),
        )
        for key, values in areas.items()
    ]


def relations(points: Sequence[Point]) -> Iterator[Result]:
    """Spearman's rank correlation of area with slope gap and with size, for each set and score.

    NaN below three models. p is from all permutations of the models (up to seven) or random ones, without correction.
    """
    for name, w_name, score in dict.fromkeys((point.set, point.w_name, point.score) for point in points):
        own = [point for point in points if (point.set, point.w_name, point.score) == (name, w_name, score)]
        area = np.array([point.area for point in own])
        for what in ("slope_gap", "size"):
            other = np.array([getattr(point, what) for point in own])
            known = np.isfinite(other)
            if not known.any():
                continue
            group = {"set": name, "w_name": w_name, "score": score, "against": what}
            yield _rank_correlation(area[known], other[known], group)


def _rank_correlation(area: Floats, other: Floats, group: Group) -> Result:
    n = len(area)
    if n < MIN_MODELS or np.ptp(area) == 0 or np.ptp(other) == 0:
        note = f"a rank correlation needs at least {MIN_MODELS} models that differ"
        return Result("rank_correlation", group, math.nan, n=n, null_value=0.0, note=note)
    value = float(spearmanr(area, other).statistic)
    test = permutation_test(
        [area],
        lambda values: abs(float(spearmanr(values, other).statistic)),
        permutation_type="pairings",
        n_resamples=N_ORDERS,
        alternative="greater",
        rng=0,
    )
    return Result("rank_correlation", group, value, n=n, null_value=0.0, p=float(test.pvalue))
