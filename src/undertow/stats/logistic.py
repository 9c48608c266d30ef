"""Penalised logistic regression, and scores of each observation by a fit that never saw its cluster.

Arrays in, arrays out. Knows nothing about what the features are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.doubles import outside, usable

Floats = NDArray[np.float64]

PENALTY = 1.0
"""Weight of the squared coefficients of standardised features beside the summed log loss; one is scikit-learn's default."""
ROUNDING_SHARE = 1e-12
"""A feature that varies by less than this share of its size is constant, but for the last digit."""
_MOST_STEPS = 100
_STILL = 1e-9


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted model.

    Attributes:
        centre, scale: of each feature in the observations that it was fitted to [feature].
        intercept, slopes: log-odds at the centre, and per scale of each feature [feature].
    """

    centre: Floats
    scale: Floats
    intercept: float
    slopes: Floats

    def log_odds(self, features: ArrayLike) -> Floats:
        """Log-odds of being positive, both kinds taken for equally common [observation]."""
        standard = (np.asarray(features, dtype=np.float64) - self.centre) / self.scale
        odds: Floats = self.intercept + standard @ self.slopes
        return odds


def fit_logistic(features: ArrayLike, positive: ArrayLike, penalty: float = PENALTY) -> Logistic:
    """The fit to features [observation, feature], either kind weighing one half, by Newton's method.

    Raises:
        ValueError: shapes differ, a number is not finite, or there are none of either kind.
    """
    x, y = np.asarray(features, dtype=np.float64), np.asarray(positive, dtype=bool)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ValueError(
            f"features must be [observation, feature] and positive [observation]; got {x.shape} and {y.shape}"
        )
    _check_finite(x)
    x = usable(x)
    if not y.any() or y.all():
        raise ValueError("a fit needs both kinds")
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > ROUNDING_SHARE * np.abs(x).max(axis=0, initial=0.0), spread, 1.0)
    design = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    weights = np.where(y, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    ridge = np.diag([0.0, *np.full(x.shape[1], penalty)])
    coefficients = np.zeros(design.shape[1])
    for _ in range(_MOST_STEPS):
        chance = _chance(design @ coefficients)
        gradient = design.T @ (weights * (chance - y)) + ridge @ coefficients
        curvature = (design * (weights * chance * (1 - chance))[:, np.newaxis]).T @ design + ridge
        step = np.linalg.solve(curvature, gradient)
        coefficients -= step
        if np.abs(step).max() < _STILL:
            break
    return Logistic(centre, scale, float(coefficients[0]), coefficients[1:])


def held_out_log_odds(features: ArrayLike, positive: ArrayLike, cluster: ArrayLike, penalty: float = PENALTY) -> Floats:
    """Log-odds of each observation by the fit to all other clusters [observation]; NaN where these are of one kind.

    Raises:
        ValueError: as `fit_logistic`.
    """
    x, y, of = np.asarray(features, dtype=np.float64), np.asarray(positive, dtype=bool), np.asarray(cluster)
    _check_finite(x)
    odds = np.full(len(y), math.nan)
    for left_out in np.unique(of):
        others = of != left_out
        if y[others].any() and not y[others].all():
            odds[~others] = fit_logistic(x[others], y[others], penalty).log_odds(x[~others])
    return odds


def _check_finite(features: Floats) -> None:
    if np.isnan(features).any() or outside(features).any():
        raise ValueError("features must be finite")


def _chance(log_odds: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
    return chance
