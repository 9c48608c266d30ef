"""What the wording of a task does to the score: effects of its slots, and whose doing the spread of scores is.

An effect is the mean score of the wordings with one word in a slot, less that of those with another, paired over documents; its
p-value flips the signs of the documents' differences. Bauer et al. 2022 (Findings of EMNLP), section 5.2, "Lexical Variation
Analysis". Knows scores; knows nothing about what a slot says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from undertow.measures.understanding import (
    ACCURACY,
    ALL,
    EXACT_MATCH,
    N_FLIPS,
    SLOT,
    Scored,
    cell_scores,
    group_of,
)
from undertow.stats.agreement import mean_over_cells
from undertow.stats.points import only_points
from undertow.stats.shares import factor_shares, level_means, variance_shares
from undertow.types import Floats, Result

if TYPE_CHECKING:
    import pandas as pd

Setting = tuple[str, ...]
NO_SHOTS = "none"
"""The sampling of prompts without examples."""
NO_WIDTH = 1e-9
FLIPS_AT_ONCE = 1000


def slots_of(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, str]]:
    """The level of each slot of each wording, by (description class, wording); slots that a class lacks are left out."""
    names = [name for name in frame.columns if name.startswith(SLOT)]
    rows = frame.drop_duplicates(["description_class", "wording"])
    return {
        (str(row["description_class"]), str(row["wording"])): {
            name.removeprefix(SLOT): str(row[name]) for name in names if row[name]
        }
        for _, row in rows.iterrows()
    }


def slot_effects(
    frame: pd.DataFrame, settings: Mapping[Setting, Scored], of: tuple[str, str], seed: int
) -> list[Result]:
    """The effect of each pair of levels of each slot, in percentage points, by class and setting.

    Args:
        frame: the answers, with a column for each slot.
        settings: their scores.
        of: task and measure.
        seed: of bootstrap and sign flips.
    """
    task, measure = of
    slots = slots_of(frame)
    found = []
    for setting, answers in settings.items():
        for name in answers.classes:
            of_class = answers.of_class(name)
            for slot, level_of_cell in _varying(of_class, slots).items():
                for first, other in combinations(dict.fromkeys(level_of_cell), 2):
                    sides = [[at for at, level in enumerate(level_of_cell) if level == one] for one in (first, other)]
                    group = group_of(task, setting, name) | {"slot": slot, "levels": f"{other} less {first}"}
                    found.append(_effect(of_class, measure, sides, group, seed))
    return found


def _varying(answers: Scored, slots: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, list[str]]:
    """Slots of a class with two levels or more among these cells: the level of each cell [cell]."""
    of_cells = [slots[cell[0], cell[1]] for cell in answers.cells]
    names = dict.fromkeys(name for one in of_cells for name in one)
    levels = {name: [one.get(name, "") for one in of_cells] for name in names}
    return {name: some for name, some in levels.items() if len(set(some)) > 1}


def _effect(
    answers: Scored, measure: str, sides: Sequence[Sequence[int]], group: Mapping[str, str], seed: int
) -> Result:
    values = answers.values[EXACT_MATCH if measure == ACCURACY else measure]
    first, other = (_mean(values[:, list(side)]) for side in sides)
    difference = other - first  # [document]
    found = mean_over_cells(difference[:, None], seed)
    return Result(
        measure="slot_effect",
        group=group,
        value=found.value,
        low=found.low,
        high=found.high,
        n=int(np.isfinite(difference).sum()),
        n_unscored=int(np.isnan(difference).sum()),
        unit="percentage points",
        p=_flip_p(difference[np.isfinite(difference)], seed),
        detail={"first": float(np.nanmean(first)) if np.isfinite(first).any() else math.nan},
        note="" if np.isfinite(difference).any() else "no answer is scored",
    )


def _mean(values: Floats) -> Floats:
    """Over the cells that have a number [document]."""
    seen = np.isfinite(values)
    sums, counts = np.where(seen, values, 0.0).sum(axis=1), seen.sum(axis=1)
    found: Floats = np.divide(sums, counts, out=np.full(len(counts), math.nan), where=counts > 0)
    return found


def _flip_p(differences: Floats, seed: int) -> float:
    """How often random signs of the documents' differences give a mean as large; 1 where there is nothing to flip."""
    if len(differences) < 2 or only_points():
        return math.nan
    observed = abs(differences.mean())
    signs, hits = _signs(len(differences), seed), 0
    for start in range(0, N_FLIPS, FLIPS_AT_ONCE):
        flipped = np.abs(signs[start : start + FLIPS_AT_ONCE] @ differences) / len(differences)
        hits += int(np.count_nonzero(flipped >= observed - NO_WIDTH))
    return (1 + hits) / (1 + N_FLIPS)


@lru_cache(maxsize=4)
def _signs(n_documents: int, seed: int) -> NDArray[np.int8]:
    """Random signs [flip, document]; kept, since many effects are over the same documents."""
    draws = np.random.default_rng(seed).integers(0, 2, size=(N_FLIPS, n_documents), dtype=np.int8)
    signs: NDArray[np.int8] = 2 * draws - 1
    signs.flags.writeable = False
    return signs


def variance_results(frame: pd.DataFrame, settings: Mapping[Setting, Scored], of: tuple[str, str]) -> list[Result]:
    """Shares of the variance of scores, in percent: model, class, wording, shots, draw; then each slot of each class.

    The first are over the wordings that every setting was asked with, so that the design is crossed, one decoding at a time.
    """
    task, measure = of
    found: list[Result] = []
    samplings = dict.fromkeys(key[2] for key in settings if key[2] != NO_SHOTS) or {NO_SHOTS: None}
    for decoding in dict.fromkeys(key[3] for key in settings):
        for sampling in samplings:
            chosen = {
                key: answers
                for key, answers in settings.items()
                if key[3] == decoding and key[2] in (sampling, NO_SHOTS)
            }
            found += _crossed(chosen, measure, group_of(task, (ALL, ALL, sampling, decoding), ALL))
    slots = slots_of(frame)
    for setting, answers in settings.items():
        found += _by_slot(setting, answers, slots, of)
    return found


def _crossed(settings: Mapping[Setting, Scored], measure: str, group: Mapping[str, str]) -> Iterator[Result]:
    """Shares over models x wordings x (shots, draw), of the wordings that all of them have."""
    scores = {
        (key[0], (name, wording), (int(key[1]), draw)): score
        for key, answers in settings.items()
        for (name, wording, draw), score in zip(answers.cells, cell_scores(answers, measure), strict=True)
    }
    models = list(dict.fromkeys(key[0] for key in scores))
    runs = sorted({key[2] for key in scores})
    wordings = [
        wording
        for wording in dict.fromkeys(key[1] for key in scores)
        if all(math.isfinite(scores.get((model, wording, run), math.nan)) for model in models for run in runs)
    ]
    if not wordings or len(models) * len(wordings) * len(runs) < 2:
        return
    array = np.array([[[scores[model, wording, run] for run in runs] for wording in wordings] for model in models])
    classes = list(dict.fromkeys(wording[0] for wording in wordings))
    shares = variance_shares(array, [run[0] for run in runs], [classes.index(wording[0]) for wording in wordings])
    sizes = {"model": len(models), "description class": len(classes), "wording": len(wordings)}
    sizes |= {"shots": len({run[0] for run in runs}), "draw": len({run[1] for run in runs})}
    # Wordings are of a class and draws of a number of examples: they differ where one of these has two.
    groups = {"wording": len(classes), "draw": sizes["shots"]}
    differing = {"wording": len(wordings), "draw": len(runs)}
    for source, share in shares.items():
        if differing.get(source, sizes.get(source, 2)) > groups.get(source, 1):
            yield Result(
                "share_of_variance", {**group, "source": source}, share, n=array.size, unit="percent",
                detail={"levels": float(sizes[source])} if source in sizes else {},
                note="" if math.isfinite(share) else "the scores do not differ",
            )  # fmt: skip


def slot_table(frame: pd.DataFrame, settings: Mapping[Setting, Scored], measure: str) -> pd.DataFrame:
    """Mean score and number of wordings at each level of each slot, by setting, class and dimension, in percent."""
    import pandas as pd

    slots = slots_of(frame)
    rows = []
    for setting, answers in settings.items():
        for name in answers.classes:
            whole = answers.of_class(name)
            for dimension in [ALL, *dict.fromkeys(answers.dimensions)]:
                kept = [at for at, one in enumerate(whole.dimensions) if dimension in (ALL, one)]
                part = whole.of(range(len(whole.cells)), kept)
                scores = cell_scores(part, measure)
                for slot, level_of_cell in _varying(part, slots).items():
                    levels = list(dict.fromkeys(level_of_cell))
                    means = level_means(scores, [levels.index(level) for level in level_of_cell], len(levels))
                    rows += [
                        group_of("", setting, name, dimension)
                        | {"slot": slot, "level": level, "cells": level_of_cell.count(level), measure: mean}
                        for level, mean in zip(levels, means.tolist(), strict=True)
                    ]
    return pd.DataFrame(rows).drop(columns="task", errors="ignore")


def _by_slot(
    setting: Setting, answers: Scored, slots: Mapping[tuple[str, str], Mapping[str, str]], of: tuple[str, str]
) -> Iterator[Result]:
    """Of each class, the share of the variance over its wordings that each slot has; a wording's draws are averaged."""
    task, measure = of
    for name in answers.classes:
        of_class = answers.of_class(name)
        scores = cell_scores(of_class, measure)
        wordings = list(dict.fromkeys(cell[1] for cell in of_class.cells))
        means = level_means(scores, [wordings.index(cell[1]) for cell in of_class.cells], len(wordings))
        first = of_class.of([next(at for at, cell in enumerate(of_class.cells) if cell[1] == one) for one in wordings])
        varying = _varying(first, slots)
        if not varying or len(wordings) < 3 or not np.isfinite(means).all():
            continue
        codes = np.array([[list(dict.fromkeys(levels)).index(one) for one in levels] for levels in varying.values()]).T
        shares, left = factor_shares(means, codes)
        for slot, share in zip((*varying, "interactions"), (*shares.tolist(), left), strict=True):
            yield Result(
                "share_of_variance",
                group_of(task, setting, name) | {"source": f"slot {slot}" if slot in varying else "slots together"},
                share,
                n=len(wordings),
                unit="percent",
                note="" if math.isfinite(share) else "the scores do not differ",
            )
