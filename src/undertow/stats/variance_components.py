"""Variance decomposition: shares of the sum of squares of each factor of a crossed or nested design.

The cells are the whole population, not a sample: nothing is tested, and a factor without an effect still has the small share that
chance gives it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import ROUNDING_SHARE, Codes, Floats, as_floats, divide, is_constant

DEPENDENT = 1e-9
"""Elimination in a design of zeros and ones leaves multiples of simple fractions, or rounding errors far below this."""
FACTORS = ("model", "description class", "wording", "shots", "draw", "interactions")
"""The components of `variance_shares`, in order."""


def variance_shares(scores: ArrayLike, shots_of_setting: ArrayLike, class_of_wording: ArrayLike) -> dict[str, float]:
    """Percent of the total sum of squares of scores that each part of a fully crossed design has; they add up to 100.

    A wording is nested in its description class and a setting in its number of shots: `description class` and `shots` lie
    between the means of these, a class weighing as many as it has wordings; `wording` lies within classes, and `draw`
    between the settings of one number of shots. `interactions` is what the sum of the three main effects leaves.
    Bauer et al. 2022 ("Analyzing the Limits of Self-Supervision in Handling Bias in Language") give standard deviations over
    wordings; this is the share of each cause in them.

    Args:
        scores: one number for each cell [model, wording, setting].
        shots_of_setting: which settings have the same number of shots [setting].
        class_of_wording: which wordings are of one class [wording].

    Returns:
        `FACTORS` to percent; NaN each where the scores do not differ.
    """
    values = as_floats(scores)
    if is_constant(values):
        return dict.fromkeys(FACTORS, math.nan)
    centred = values - values.mean()
    effects = [centred.mean(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    of_model, of_wording, of_setting = effects
    left = centred - of_model[:, np.newaxis, np.newaxis] - of_wording[:, np.newaxis] - of_setting
    # Each cell holds one level of each factor, so an effect counts as often as there are cells at its level.
    n_models, n_wordings, n_settings = values.shape
    between_classes, within_classes = _nested(of_wording, class_of_wording)
    between_shots, within_shots = _nested(of_setting, shots_of_setting)
    squares = np.array(
        [
            n_wordings * n_settings * float(of_model @ of_model),
            n_models * n_settings * between_classes,
            n_models * n_settings * within_classes,
            n_models * n_wordings * between_shots,
            n_models * n_wordings * within_shots,
            float((left**2).sum()),
        ]
    )
    return dict(zip(FACTORS, (100 * squares / squares.sum()).tolist(), strict=True))


def factor_shares(scores: ArrayLike, levels: ArrayLike) -> tuple[Floats, float]:
    """Percent of the variance over wordings that each slot has by itself, and what all slots together leave.

    The share of a slot is the drop in the residual sum of squares when it joins the other slots in an additive
    least squares fit (type II). In a full factorial that is its main effect, and all of it adds up to 100. In a part of one,
    what several slots can explain alike is in no share, and slots that always change together have nothing of their own.

    Args:
        scores: of the wordings of one class [wording].
        levels: what fills each slot of each wording, as codes [wording, slot].

    Returns:
        Shares [slot], and the percent that no sum of slots explains (`interactions`); NaN where the scores do not differ.
    """
    values, codes = as_floats(scores), np.asarray(levels)
    n_slots = codes.shape[1]
    if is_constant(values):
        return np.full(n_slots, math.nan), math.nan
    centred = values - values.mean()
    total = float(centred @ centred)
    left = _residual_squares(centred, codes)
    without = [_residual_squares(centred, np.delete(codes, slot, axis=1)) for slot in range(n_slots)]
    drops = np.array([squares - left for squares in without])
    drops[drops < ROUNDING_SHARE * total] = 0.0
    return 100 * drops / total, 100 * left / total


def detect_aliases(levels: ArrayLike) -> list[tuple[int, ...]]:
    """Groups of factors whose effects are aliased in an additive fit; each factor is in one group.

    A factor alone in its set varies by itself. The levels of the others are linearly dependent: two that always change together, a
    level of one that always goes with a level of another, or more factors than a few rows can tell apart. In the words of Box, Hunter
    and Hunter 2005 ("Statistics for Experimenters") their main effects are aliases of one another.

    Args:
        levels: what each row has of each factor, as codes [row, factor].
    """
    codes = np.unique(np.asarray(levels), axis=0)
    owners, columns = [-1], [np.ones(len(codes))]
    for factor in range(codes.shape[1]):
        for level in np.unique(codes[:, factor])[1:]:
            owners.append(factor)
            columns.append((codes[:, factor] == level).astype(np.float64))
    set_of = list(range(codes.shape[1]))
    for dependent in _dependent_columns(np.column_stack(columns)):
        linked = {set_of[owners[column]] for column in dependent if owners[column] >= 0}
        set_of = [min(linked) if one in linked else one for one in set_of]
    return [tuple(at for at, one in enumerate(set_of) if one == first) for first in dict.fromkeys(set_of)]


def _dependent_columns(design: Floats) -> list[list[int]]:
    """For each column that is a sum of multiples of columns before it: itself, and these; by elimination."""
    left, pivots, dependent = design.copy(), list[int](), list[list[int]]()
    for column in range(design.shape[1]):
        row = len(pivots)
        best = row + int(np.abs(left[row:, column]).argmax()) if row < len(left) else row
        if row == len(left) or abs(left[best, column]) < DEPENDENT:
            dependent.append(
                [column, *(pivot for at, pivot in enumerate(pivots) if abs(left[at, column]) >= DEPENDENT)]
            )
            continue
        left[[row, best]] = left[[best, row]]
        left[row] /= left[row, column]
        others = np.arange(len(left)) != row
        left[others] -= np.outer(left[others, column], left[row])
        pivots.append(column)
    return dependent


def level_means(scores: ArrayLike, codes: ArrayLike, n_levels: int) -> Floats:
    """Mean score of the wordings [wording] at each level of one slot [level], NaN left out; NaN where there are none."""
    values, of = as_floats(scores), np.asarray(codes, dtype=np.int64)
    seen = ~np.isnan(values)
    sums = np.bincount(of[seen], weights=values[seen], minlength=n_levels)
    return divide(sums, np.bincount(of[seen], minlength=n_levels))


def population_sd(values: ArrayLike) -> float:
    """Standard deviation of values [value] that are all there are (divided by n), NaN left out; NaN of none."""
    numbers = as_floats(values)
    known = numbers[~np.isnan(numbers)]
    return float(known.std()) if known.size else math.nan


def _nested(effects: Floats, groups: ArrayLike) -> tuple[float, float]:
    """Sum of squares of effects [level], whose mean is 0: (between, within) the groups [level] they are nested in."""
    _, of = np.unique(groups, return_inverse=True)
    means = (np.bincount(of, weights=effects) / np.bincount(of))[of]  # [level]
    return float(means @ means), float(((effects - means) ** 2).sum())


def _residual_squares(centred: Floats, codes: Codes) -> float:
    """What the best sum of one number per level of every slot leaves of values [wording]; slots are columns of codes."""
    indicators = [codes[:, slot, np.newaxis] == np.unique(codes[:, slot])[1:] for slot in range(codes.shape[1])]
    design = np.column_stack([np.ones(len(centred)), *indicators]).astype(np.float64)
    fitted = design @ np.linalg.lstsq(design, centred)[0]
    return float(((centred - fitted) ** 2).sum())
