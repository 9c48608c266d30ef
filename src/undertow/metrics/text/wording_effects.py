"""Effects of the wording of a task on the score, and shares of variance.

An effect is the score with one word in a slot minus that with another, the other slots equal: the difference of the two levels in an
additive least-squares fit to the wordings, document by document, which in a full factorial is the difference of means. Its test
flips the signs of the documents' differences. Slots whose words never change alone are aliased: their effects cannot be separated and
are reported for all of them together, or not at all. Bauer et al. 2022 (Findings of EMNLP), section 5.2, "Lexical Variation
Analysis".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from undertow.metrics.metric import Group, make_result
from undertow.metrics.text.scores import (
    ALL,
    NO_INTERVAL,
    POINTS,
    SLOT,
    Claim,
    ScoredAnswers,
    cell_scores,
    finite_mean,
    group_keys,
    in_points,
)
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Bools, Floats, encode
from undertow.stats.classification.agreement import has_width
from undertow.stats.intervals.bounded_mean import BoundedMean
from undertow.stats.significance.sign_flip import SignFlipTest, flip_means
from undertow.stats.variance_components import detect_aliases, factor_shares, level_means, variance_shares
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

Setting = tuple[str, ...]
NO_SHOTS = "none"
"""The sampling of prompts without examples."""
TOGETHER = " + "
"""Separator of names and words of slots that are reported together."""
NO_WIDTH = 1e-9
SAME = "the scores do not differ"


@dataclass(frozen=True, slots=True)
class Factor:
    """A slot, or aliased slots whose words never change alone in the run.

    Attributes:
        slots: their names; one for a slot that changes alone.
        levels: the word, or words, of each cell [cell].
    """

    slots: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """Name of the slot or slots."""
        return TOGETHER.join(self.slots)

    @property
    def pairs(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Pairs of levels to compare; for aliased slots in which one determines all others, pairs that differ in all or in one."""
        levels = list(dict.fromkeys(self.levels))
        if len(levels) > max(len({level[at] for level in levels}) for at in range(len(self.slots))):
            return []
        distances = (1, len(self.slots))
        return [
            pair
            for pair in combinations(levels, 2)
            if sum(one != two for one, two in zip(*pair, strict=True)) in distances
        ]

    @property
    def note(self) -> str:
        """Caveat about aliased slots; "" for a single one."""
        if len(self.slots) == 1:
            return ""
        *first, last = self.slots
        names = f"{', '.join(first)} and {last}"
        n_levels = {len({level[at] for level in self.levels}) for at in range(len(self.slots))}
        if n_levels == {len(set(self.levels))}:
            return f"the words of the slots {names} always change together here: their effects cannot be separated"
        return f"too few wordings to separate the effects of the slots {names}"


def slot_levels(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, str]]:
    """The level of each slot of each wording, by (description class, wording), without slots that a class lacks."""
    names = [name for name in frame.columns if name.startswith(SLOT)]
    rows = frame.drop_duplicates(["description_class", "wording"])
    return {
        (str(row["description_class"]), str(row["wording"])): {
            name.removeprefix(SLOT): str(row[name]) for name in names if row[name]
        }
        for _, row in rows.iterrows()
    }


def detect_factors(answers: ScoredAnswers, slots: Mapping[tuple[str, str], Mapping[str, str]]) -> list[Factor]:
    """Factors of the cells of one class: slots that change alone, and sets of aliased slots."""
    of_cells = [slots[cell[0], cell[1]] for cell in answers.cells]
    names = dict.fromkeys(name for one in of_cells for name in one)
    words = {name: [one.get(name, "") for one in of_cells] for name in names}
    sets: list[tuple[str, ...]] = [(name,) for name, some in words.items() if len(set(some)) > 1]
    if not sets:
        return []
    while True:
        levels = [tuple(zip(*(words[name] for name in some), strict=True)) for some in sets]
        together = detect_aliases(np.column_stack([encode(some) for some in levels]))
        if len(together) == len(sets):
            break
        # Words of a set can in turn be combinations of other slots' words.
        sets = [tuple(name for name in words if any(name in sets[at] for at in one)) for one in together]
    return [Factor(some, of) for some, of in zip(sets, levels, strict=True)]


@dataclass(frozen=True, slots=True)
class _Difference:
    """One level of a slot minus another."""

    group: Group  # of the result, over all dimensions
    gaps: Floats  # difference of each document in percentage points, NaN without answers [document]
    first: Floats  # mean score of each document with the subtracted word, in percent [document]
    note: str  # caveat


def estimate_slot_effects(
    frame: pd.DataFrame, settings: Mapping[Setting, ScoredAnswers], of: tuple[str, str], seed: int
) -> list[Result | Claim]:
    """The effect of each pair of levels of each slot, in percentage points, by class and setting, overall and by dimension.

    Aliased slots have joint effects under all of their names, or a missing result with the reason. There is no test if fewer than six
    documents (or clusters) have different answers, because no signs of these have p below 0.05. Within `point_estimates` there are no
    effects by dimension. `of` is the task and the measure.
    """
    task, measure = of
    slots = slot_levels(frame)
    effects: list[Result | Claim] = []
    for setting, answers in settings.items():
        differences: list[_Difference] = []
        for name in answers.classes:
            of_class, group = answers.select_class(name), group_keys(task, setting, name)
            factors = detect_factors(of_class, slots)
            differences += _differences(of_class, measure, factors, group)
            effects += [
                make_result("slot_effect", group | {"slot": one.name, "levels": ""}, note=one.note)
                for one in factors
                if not one.pairs
            ]
        effects += _test(differences, answers, seed)
    return effects


def _differences(
    answers: ScoredAnswers, measure: str, factors: Sequence[Factor], group: Group
) -> Iterator[_Difference]:
    values = answers.of_measure(measure)
    design, columns = _design(factors)
    pairs = [(factor, *pair) for factor in factors for pair in factor.pairs]
    sides, contrasts = [], np.zeros((len(pairs), design.shape[1]))
    for row, (factor, *pair) in enumerate(pairs):
        sides.append([np.array([level == one for level in factor.levels]) for one in pair])
        for level, sign in zip(pair, (-1.0, 1.0), strict=True):
            if (factor.name, level) in columns:
                contrasts[row, columns[factor.name, level]] = sign
    gaps = _fit(values, design, contrasts, sides)
    for at, (factor, first, other) in enumerate(pairs):
        levels = " less ".join(TOGETHER.join(level) for level in (other, first))
        about = {**group, "slot": factor.name, "levels": levels}
        yield _Difference(about, gaps[:, at], finite_mean(values[:, sides[at][0]], axis=1), factor.note)


def _design(factors: Sequence[Factor]) -> tuple[Floats, dict[tuple[str, tuple[str, ...]], int]]:
    """A column of ones, and one for each level of each factor but its first [cell, column]; the columns of levels."""
    n_cells = len(factors[0].levels) if factors else 0
    parts, columns = [np.ones(n_cells)], {}
    for factor in factors:
        for level in list(dict.fromkeys(factor.levels))[1:]:
            columns[factor.name, level] = len(parts)
            parts.append(np.array([float(one == level) for one in factor.levels]))
    return np.column_stack(parts), columns


def _fit(values: Floats, design: Floats, contrasts: Floats, sides: Sequence[Sequence[Bools]]) -> Floats:
    """Contrasts of an additive fit to each document's scores [document, contrast]; NaN if they are not estimable."""
    fitted = np.full((len(values), len(contrasts)), math.nan)
    if not len(contrasts):
        return fitted
    patterns, of = np.unique(np.isfinite(values), axis=0, return_inverse=True)
    for at, seen in enumerate(patterns):
        rows = np.flatnonzero(of.reshape(-1) == at)
        some, part = values[np.ix_(rows, np.flatnonzero(seen))], design[seen]
        weights = contrasts @ np.linalg.pinv(part)  # [contrast, cell]
        known = (np.abs(weights @ part - contrasts) < NO_WIDTH).all(axis=1)
        for place in np.flatnonzero(known).tolist():
            first, other = (side[seen] for side in sides[place])
            if np.abs(weights[place] - other / other.sum() + first / first.sum()).max() < NO_WIDTH:
                # In a balanced design: the difference of means, without rounding errors of a fit.
                fitted[rows, place] = some[:, other].mean(axis=1) - some[:, first].mean(axis=1)
            else:
                fitted[rows, place] = some @ weights[place]
    return fitted


def _test(differences: Sequence[_Difference], answers: ScoredAnswers, seed: int) -> Iterator[Result | Claim]:
    if not differences:
        return
    dimensions = np.array(answers.dimensions)
    parts = {ALL: np.ones(len(dimensions), dtype=bool)}
    if not only_points():
        named = [name for name in dict.fromkeys(answers.dimensions) if name]
        parts |= {name: dimensions == name for name in named if not (dimensions == name).all()}
    effects = [(one, name, mask) for one in differences for name, mask in parts.items()]
    gaps = np.column_stack([np.where(mask, one.gaps, math.nan) for one, _, mask in effects])  # [document, effect]
    seen = np.isfinite(gaps)
    clusters = np.unique(answers.clusters, return_inverse=True)[1]
    members = (clusters == np.arange(clusters.max() + 1)[:, np.newaxis]).astype(np.float64)  # [cluster, document]
    sums, sizes = members @ np.where(seen, gaps, 0.0), members @ seen
    for at, flips in enumerate(flip_means(sums, sizes, seed)):
        one, name, mask = effects[at]
        n = int(seen[:, at].sum())
        known = sizes[:, at] > 0
        yield _effect(one, name, flips, BoundedMean(sums[known, at], sizes[known, at], *POINTS), (mask, n))


def _effect(
    one: _Difference, dimension: str, flips: SignFlipTest, mean: BoundedMean, over: tuple[Bools, int]
) -> Result | Claim:
    mask, n = over
    first = one.first[mask & np.isfinite(one.first)]

    def interval(level: float) -> tuple[float, float]:
        if not has_width(*flips.interval()):
            # All documents have the same difference.
            at_an_end = any(abs(abs(mean.value) - end) < NO_WIDTH for end in (0.0, POINTS[1]))
            return mean.interval(level) if at_an_end else (math.nan, math.nan)
        return in_points(*flips.interval(level))

    is_tested = math.isfinite(flips.p) and flips.n_differing >= MIN_CLUSTERS
    low, high = interval(0.95)
    extras = {
        "first": float(first.mean()) if first.size else math.nan,
        "n_clusters": float(flips.n_clusters),
        "n_differing": float(flips.n_differing),
        "n_agreeing": float(np.count_nonzero(mean.sums * flips.value > NO_WIDTH)),
    }
    p, note = flips.p if is_tested else math.nan, "; ".join(filter(None, [one.note, _why_not_tested(flips, n)]))
    result = make_result(
        "slot_effect", {**one.group, "dimension": dimension}, flips.value, low=low, high=high, n=n,
        n_missing=int(mask.sum()) - n, p=p, extras=extras, note=note,
    )  # fmt: skip
    return Claim(result, interval) if is_tested else result


def _why_not_tested(flips: SignFlipTest, n: int) -> str:
    if not n:
        return "no answer is scored"
    if only_points():
        return ""
    if flips.n_clusters < MIN_CLUSTERS:
        return f"not tested, and {NO_INTERVAL}: fewer than {MIN_CLUSTERS} texts"
    if flips.n_differing < MIN_CLUSTERS:
        return f"not tested: the answers to {flips.n_differing} texts differ, and a test needs {MIN_CLUSTERS}"
    return ""


def variance_results(
    frame: pd.DataFrame, settings: Mapping[Setting, ScoredAnswers], of: tuple[str, str]
) -> list[Result]:
    """Shares of the variance of scores, in percent: model, class, wording, shots, draw; then each slot of each class.

    The first five use the wordings of all settings, so that the design is crossed, one decoding at a time.
    """
    task, measure = of
    results: list[Result] = []
    samplings = dict.fromkeys(key[2] for key in settings if key[2] != NO_SHOTS) or {NO_SHOTS: None}
    for decoding in dict.fromkeys(key[3] for key in settings):
        for sampling in samplings:
            chosen = {
                key: answers
                for key, answers in settings.items()
                if key[3] == decoding and key[2] in (sampling, NO_SHOTS)
            }
            results += _crossed_shares(chosen, measure, group_keys(task, (ALL, ALL, sampling, decoding), ALL))
    slots = slot_levels(frame)
    for setting, answers in settings.items():
        results += _slot_shares(setting, answers, slots, of)
    return results


def _crossed_shares(settings: Mapping[Setting, ScoredAnswers], measure: str, group: Group) -> Iterator[Result]:
    """Shares over models x wordings x (shots, draw), for the wordings that all of them have."""
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
    shares = variance_shares(array, [run[0] for run in runs], encode([wording[0] for wording in wordings]))
    sizes = {"model": len(models), "description class": len(classes), "wording": len(wordings)}
    sizes |= {"shots": len({run[0] for run in runs}), "draw": len({run[1] for run in runs})}
    # Wordings are nested in classes and draws in numbers of examples: they vary if one of these has two.
    groups = {"wording": len(classes), "draw": sizes["shots"]}
    differing = {"wording": len(wordings), "draw": len(runs)}
    for source, share in shares.items():
        if differing.get(source, sizes.get(source, 2)) > groups.get(source, 1):
            extras = {"levels": float(sizes[source])} if source in sizes else {}
            about, note = {**group, "source": source}, "" if math.isfinite(share) else SAME
            yield make_result("share_of_variance", about, share, n=array.size, extras=extras, note=note)


def slot_table(frame: pd.DataFrame, settings: Mapping[Setting, ScoredAnswers], measure: str) -> pd.DataFrame:
    """Mean score and number of wordings at each level of each slot, by setting, class and dimension, in percent.

    Aliased slots are joined under all of their names, as are their words.
    """
    import pandas as pd

    slots = slot_levels(frame)
    rows = []
    for setting, answers in settings.items():
        for name in answers.classes:
            whole = answers.select_class(name)
            factors = detect_factors(whole, slots)
            for dimension in [ALL, *dict.fromkeys(answers.dimensions)]:
                kept = [at for at, one in enumerate(whole.dimensions) if dimension in (ALL, one)]
                part = whole.of(range(len(whole.cells)), kept)
                scores = cell_scores(part, measure)
                for factor in factors:
                    levels = list(dict.fromkeys(factor.levels))
                    means = level_means(scores, encode(factor.levels), len(levels))
                    rows += [
                        group_keys("", setting, name, dimension)
                        | {"slot": factor.name, "level": TOGETHER.join(level), "cells": factor.levels.count(level), measure: mean}
                        for level, mean in zip(levels, means.tolist(), strict=True)
                    ]  # fmt: skip
    return pd.DataFrame(rows).drop(columns="task", errors="ignore")


def level_names(frame: pd.DataFrame, answers: ScoredAnswers) -> dict[tuple[str, str], dict[str, str]]:
    """The level of each slot, or set of aliased slots, of each wording of a setting, by (class, wording)."""
    slots = slot_levels(frame)
    levels: dict[tuple[str, str], dict[str, str]] = {}
    for name in answers.classes:
        of_class = answers.select_class(name)
        for factor in detect_factors(of_class, slots):
            for cell, words in zip(of_class.cells, factor.levels, strict=True):
                levels.setdefault((cell[0], cell[1]), {})[factor.name] = TOGETHER.join(words)
    return levels


def _slot_shares(
    setting: Setting, answers: ScoredAnswers, slots: Mapping[tuple[str, str], Mapping[str, str]], of: tuple[str, str]
) -> Iterator[Result]:
    """Share of each slot in the variance over the wordings of each class; a wording's draws are averaged."""
    task, measure = of
    for name in answers.classes:
        of_class = answers.select_class(name)
        scores = cell_scores(of_class, measure)
        wordings = list(dict.fromkeys(cell[1] for cell in of_class.cells))
        means = level_means(scores, encode([cell[1] for cell in of_class.cells]), len(wordings))
        first = of_class.of([next(at for at, cell in enumerate(of_class.cells) if cell[1] == one) for one in wordings])
        factors = detect_factors(first, slots)
        if not factors or len(wordings) < 3 or not np.isfinite(means).all():
            continue
        shares, left = factor_shares(means, np.column_stack([encode(factor.levels) for factor in factors]))
        sources = [(f"slot {factor.name}", factor.note) for factor in factors]
        for (source, note), share in zip([*sources, ("slots together", "")], (*shares.tolist(), left), strict=True):
            group, why = group_keys(task, setting, name) | {"source": source}, note if math.isfinite(share) else SAME
            yield make_result("share_of_variance", group, share, n=len(wordings), note=why)
