"""Variance decomposition: shares of the sum of squares of each factor of a design, and one-way analysis of variance with its tests.

In `variance_shares` the cells are the whole population, not a sample, so it has no tests, and a factor without an effect has a small
share by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import f_oneway

from undertow.stats.arrays import ROUNDING_SHARE, Codes, Floats, as_floats, divide, is_constant

DEPENDENT = 1e-9
"""Tolerance of dependences in a binary design, where other numbers are far from 0."""
FACTORS = ("model", "description class", "wording", "shots", "draw", "interactions")
"""The components of `variance_shares`, in order."""


def variance_shares(scores: ArrayLike, shots_of_setting: ArrayLike, class_of_wording: ArrayLike) -> dict[str, float]:
    """Percent of the total sum of squares of scores by component of a fully crossed design; they add up to 100.

    Wordings are nested in description classes and settings in numbers of shots: `description class` and `shots` are between these groups
    (weighted by size), `wording` is within classes, and `draw` between settings with the same number of shots. `interactions` is the
    remainder after the three main effects. Bauer et al. 2022 ("Analyzing the Limits of Self-Supervision in Handling Bias in Language")
    report standard deviations over wordings; this decomposes them.

    Args:
        scores: one number for each cell [model, wording, setting].
        shots_of_setting: number of shots of each setting, as codes [setting].
        class_of_wording: class of each wording, as codes [wording].

    Returns:
        `FACTORS` to percent; NaN for constant scores.
    """
    values = as_floats(scores)
    if is_constant(values):
        return dict.fromkeys(FACTORS, math.nan)
    centred = values - values.mean()
    effects = [centred.mean(axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    of_model, of_wording, of_setting = effects
    left = centred - of_model[:, np.newaxis, np.newaxis] - of_wording[:, np.newaxis] - of_setting
    # Each cell has one level of each factor, so an effect is weighted by the number of cells at its level.
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
    """Percent of the variance over wordings that each slot explains [slot], and the remainder; NaN for constant scores.

    The share of a slot is the drop in the residual sum of squares when it is added to the other slots in an additive
    least-squares fit (type II). In a full factorial this is its main effect, and the shares add up to 100. In a fractional design,
    variance that several slots can explain is in no share, and aliased slots have shares of 0. Scores are those of the wordings of one
    class [wording], levels those of their slots, as codes [wording, slot].
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
    """Groups of factors whose effects are aliased in an additive fit of rows with these levels [row, factor]; each is in one group.

    A factor alone in its group is estimable. The levels of the others are linearly dependent: two that always change together, a level of
    one that always occurs with a level of another, or more factors than rows can identify. In the words of Box, Hunter and Hunter 2005
    ("Statistics for Experimenters") their main effects are aliases of one another.
    """
    codes = np.unique(np.asarray(levels), axis=0)
    indicators = _indicators(codes)
    owners = np.repeat(np.arange(len(indicators)), [part.shape[1] for part in indicators])
    centred = np.column_stack([part - part.mean(axis=0) for part in indicators])
    # The kernel is a direct sum of those of columns that depend on one another: its projection links these only.
    sizes, axes = np.linalg.eigh(centred.T @ centred)
    kernel = axes[:, sizes <= DEPENDENT * sizes.max(initial=0.0)]
    linked = np.abs(kernel @ kernel.T) > DEPENDENT  # [column, column]
    of_factor = owners == np.arange(len(indicators))[:, np.newaxis]  # [factor, column]
    beside = of_factor @ linked @ of_factor.T | np.eye(len(indicators), dtype=np.bool_)
    reached = np.linalg.matrix_power(beside.astype(np.float64), len(indicators)) > 0  # directly or through others
    first = reached.argmax(axis=1)
    return [tuple(np.flatnonzero(first == at).tolist()) for at in np.unique(first)]


def _indicators(codes: Codes) -> list[Floats]:
    """Indicators of all levels of each factor but the first, each [row, level], from codes [row, factor]."""
    return [(column[:, np.newaxis] == np.unique(column)[1:]).astype(np.float64) for column in codes.T]


def level_means(scores: ArrayLike, codes: ArrayLike, n_levels: int) -> Floats:
    """Mean score of the wordings [wording] at each level of one slot [level], ignoring NaN; NaN for empty levels."""
    values, of = as_floats(scores), np.asarray(codes, dtype=np.int64)
    seen = ~np.isnan(values)
    sums = np.bincount(of[seen], weights=values[seen], minlength=n_levels)
    return divide(sums, np.bincount(of[seen], minlength=n_levels))


def population_sd(values: ArrayLike) -> float:
    """Population standard deviation of values [value] (divided by n), ignoring NaN; NaN without values."""
    numbers = as_floats(values)
    known = numbers[~np.isnan(numbers)]
    return float(known.std()) if known.size else math.nan


def _nested(effects: Floats, groups: ArrayLike) -> tuple[float, float]:
    """Sum of squares of effects [level], whose mean is 0: (between, within) the groups [level] they are nested in."""
    _, of = np.unique(groups, return_inverse=True)
    means = (np.bincount(of, weights=effects) / np.bincount(of))[of]  # [level]
    return float(means @ means), float(((effects - means) ** 2).sum())


def _residual_squares(centred: Floats, codes: Codes) -> float:
    """Residual sum of squares of an additive fit of all slots to values [wording]; slots are columns of codes."""
    design = np.column_stack([np.ones(len(centred)), *_indicators(codes)])
    fitted = design @ np.linalg.lstsq(design, centred)[0]
    return float(((centred - fitted) ** 2).sum())


@dataclass(frozen=True, slots=True)
class OneWayAnova:
    """Share of the sum of squares between groups (eta squared), 0 to 1, its expectation without an effect, and the p-value of the F test.

    NaN if y is constant, there is one group, or no group has two points.
    """

    share: float
    expected_share: float
    p: float


def one_way(y: ArrayLike, group: ArrayLike) -> OneWayAnova:
    """Share of the variance of y [point] between groups [point]."""
    values = as_floats(y)
    parts = _groups(values, group)
    n, k = len(values), len(parts)
    if k < 2 or n == k or is_constant(values) or not np.isfinite(values).all():
        return OneWayAnova(math.nan, math.nan, math.nan)  # without repetitions all variance is between groups
    expected = (k - 1) / (n - 1)
    if all(is_constant(part) for part in parts):
        return OneWayAnova(1.0, expected, 0.0)
    test = f_oneway(*parts)
    between = (k - 1) * float(test.statistic)
    return OneWayAnova(between / (between + n - k), expected, float(test.pvalue))


def welch_p(y: ArrayLike, group: ArrayLike) -> float:
    """P-value of equal means of groups with unequal variances, from y [point] and groups [point].

    Welch 1951, "On the Comparison of Several Mean Values: An Alternative Approach" (Biometrika 38). NaN for fewer than two groups, or
    if a group has fewer than two points or is constant.
    """
    values = as_floats(y)
    parts = _groups(values, group)
    least = 1e-24 * float((values**2).max(initial=0.0))
    if len(parts) < 2 or not all(len(part) > 1 and part.var(ddof=1) > least for part in parts):
        return math.nan
    return float(f_oneway(*parts, equal_var=False).pvalue)


def _groups(values: Floats, group: ArrayLike) -> list[Floats]:
    names = np.asarray(group)
    return [values[names == name] for name in np.unique(names)]
