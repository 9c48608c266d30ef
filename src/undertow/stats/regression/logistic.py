"""Penalised logistic regression, and held-out scores of each observation by fits without its cluster.

`held_out_log_odds` fits each hold-out completely. `held_out_draws` repeats all hold-outs in thousands of permutations or resamples: it
fits each draw once and removes each cluster by one Newton step (Pregibon 1981, "Logistic Regression Diagnostics", Annals of
Statistics 9; Rad and Maleki 2020, "A scalable estimate of the out-of-sample prediction error via approximate leave-one-out
cross-validation", JRSS B 82), or several if that step is long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from undertow.stats.arrays import ROUNDING_SHARE, Bools, Codes, Floats, as_floats

PENALTY = 1.0
"""L2 penalty of coefficients of standardised features relative to the summed log loss; 1 is scikit-learn's default."""
CHUNK_CELLS = 2_000_000
"""Draws are fitted in chunks with about this many cells of curvature matrices."""
_MAX_STEPS = 100
_STILL = 1e-9
_MAX_STEPS_OF_A_DRAW = 25
_STILL_IN_A_DRAW = 1e-6
_SHORT = 0.1
"""Largest change of a coefficient in the last step; the remaining error is about its square."""
_MIN_VARIANCE = 1e-12
"""Variance of a standardised feature below which it counts as constant in a draw."""
_FIRM = 1e-9
"""Added to the curvature of the intercept, so that it is invertible at probabilities of 0 and 1; it does not move the optimum."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted model.

    Attributes:
        centre, scale: of each feature in the fitted observations [feature].
        intercept, slopes: log-odds at the centre, and per scale of each feature [feature].
    """

    centre: Floats
    scale: Floats
    intercept: float
    slopes: Floats

    def log_odds(self, features: ArrayLike) -> Floats:
        """Log-odds of being positive, with equal priors [observation]."""
        standard = (np.asarray(features, dtype=np.float64) - self.centre) / self.scale
        return self.intercept + standard @ self.slopes


def fit_logistic(features: ArrayLike, positive: ArrayLike, penalty: float = PENALTY) -> Logistic:
    """The fit to features [observation, feature], each class with a total weight of one half, by Newton's method.

    Raises:
        ValueError: a class is empty.
    """
    x, y = as_floats(features), np.asarray(positive, dtype=bool)
    if not y.any() or y.all():
        raise ValueError("a fit needs both kinds")
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > ROUNDING_SHARE * np.abs(x).max(axis=0, initial=0.0), spread, 1.0)
    design = np.column_stack([np.ones(len(x)), (x - centre) / scale])
    weights = np.where(y, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    ridge = np.diag([0.0, *np.full(x.shape[1], penalty)])
    coefficients = np.zeros(design.shape[1])
    for _ in range(_MAX_STEPS):
        chance = special.expit(design @ coefficients)
        gradient = design.T @ (weights * (chance - y)) + ridge @ coefficients
        curvature = (design * (weights * chance * (1 - chance))[:, np.newaxis]).T @ design + ridge
        step = np.linalg.solve(curvature, gradient)
        coefficients -= step
        if np.abs(step).max() < _STILL:
            break
    return Logistic(centre, scale, float(coefficients[0]), coefficients[1:])


def held_out_log_odds(features: ArrayLike, positive: ArrayLike, cluster: ArrayLike) -> Floats:
    """Log-odds of each observation by the fit to all other clusters [observation]; NaN if these have one class only."""
    x, y, of = as_floats(features), np.asarray(positive, dtype=bool), np.asarray(cluster)
    odds = np.full(len(y), math.nan)
    for left_out in np.unique(of):
        others = of != left_out
        if y[others].any() and not y[others].all():
            odds[~others] = fit_logistic(x[others], y[others]).log_odds(x[~others])
    return odds


def held_out_draws(
    features: ArrayLike,
    positive: ArrayLike,
    cluster: ArrayLike,
    weights: ArrayLike | None = None,
    fold: ArrayLike | None = None,
) -> Floats:
    """Held-out log-odds in many draws, each with its own labels or weights [draw, observation].

    All copies of a cluster are held out together, and clusters of the same `fold` [cluster]; each is a fold if not given. NaN if the rest
    of a draw has one class only. Labels are [draw, observation], or [observation] if all draws share them; the index of each cluster is
    [observation], its count in each draw [draw, cluster], by default 1. Areas are within .0005 of those of `held_out_log_odds` with 60
    clusters of 8 observations.
    """
    x, marks, of = as_floats(features), np.atleast_2d(np.asarray(positive, dtype=bool)), np.asarray(cluster, np.int64)
    n_clusters = int(of.max(initial=-1)) + 1 if weights is None else np.shape(weights)[-1]
    drawn = np.ones((1, n_clusters)) if weights is None else np.asarray(weights, dtype=np.float64)
    folds = np.arange(n_clusters) if fold is None else np.asarray(fold, dtype=np.int64)
    n_draws = np.broadcast_shapes((len(marks),), (len(drawn),))[0]
    marks, drawn = np.broadcast_to(marks, (n_draws, len(of))), np.broadcast_to(drawn, (n_draws, n_clusters))
    odds = np.full((n_draws, len(of)), math.nan)
    if not len(of):
        return odds
    layout = _Folds.from_features(x, folds[of])
    chunk = max(1, CHUNK_CELLS // (layout.n_folds * layout.products.shape[1] + len(of)))
    for start in range(0, n_draws, chunk):
        part = slice(start, start + chunk)
        odds[part, layout.order] = layout.held_out(marks[part][:, layout.order], drawn[part][:, of[layout.order]])
    return odds


@dataclass(frozen=True, slots=True)
class _Folds:
    """Observations sorted by fold, prepared for repeated fits."""

    order: Codes  # the permutation of the observations [observation]
    design: Floats  # 1 and the standardised features [observation, coefficient]
    products: Floats  # products of each pair of columns of the design, without repetition [observation, product]
    place: Codes  # index of the product of each pair of columns [coefficient, coefficient]
    bounds: Codes  # first index of each fold, and the end [fold + 1]

    @classmethod
    def from_features(cls, x: Floats, fold: Codes) -> _Folds:
        """From features [observation, feature] and folds [observation]."""
        order = np.argsort(fold, kind="stable").astype(np.int64)
        x = x[order]
        spread = x.std(axis=0)
        varies = spread > ROUNDING_SHARE * np.abs(x).max(axis=0, initial=0.0)
        standard = np.where(varies, (x - x.mean(axis=0)) / np.where(varies, spread, 1.0), 0.0)
        design = np.column_stack([np.ones(len(x)), standard])
        rows, columns = np.triu_indices(design.shape[1])
        place = np.zeros((design.shape[1],) * 2, dtype=np.int64)
        place[rows, columns] = place[columns, rows] = np.arange(len(rows))
        starts = np.flatnonzero(np.diff(fold[order], prepend=-1))
        return cls(order, design, design[:, rows] * design[:, columns], place, np.append(starts, len(x)))

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.bounds) - 1

    def held_out(self, marks: Bools, counts: Floats) -> Floats:
        """Log-odds without the own fold, from labels and weights [draw, observation]."""
        kinds = [np.where(marks, counts, 0.0), np.where(marks, 0.0, counts)]  # [draw, observation], positives first
        sizes = [self._sums(kind, np.ones((len(self.order), 1)))[..., 0] for kind in kinds]  # [draw, fold]
        squares = np.hstack([self.design[:, 1:], self.design[:, 1:] ** 2])
        moments = self._sums(counts, squares)  # [draw, fold, 2 feature]
        left = [size.sum(axis=1, keepdims=True) - size for size in sizes]
        whole = self._fit(kinds, [size.sum(axis=1) for size in sizes], moments.sum(axis=1))
        chance = special.expit(whole @ self.design.T)
        # Removing a fold changes the sums over observations and the class weights; start from the fit to all.
        shape = (*left[0].shape, self.design.shape[1])
        gradient, curvature = np.zeros(shape), np.zeros((*shape[:2], self.products.shape[1]))
        for kind, wrong, share in zip(kinds, (chance - 1, chance), _shares(*left), strict=True):
            slope, bend = self._sums(kind * wrong, self.design), self._sums(kind * chance * (1 - chance), self.products)
            gradient += share[..., np.newaxis] * (slope.sum(axis=1, keepdims=True) - slope)
            curvature += share[..., np.newaxis] * (bend.sum(axis=1, keepdims=True) - bend)
        ridge = self._ridge(left[0] + left[1], moments.sum(axis=1, keepdims=True) - moments)
        step = self._step(gradient, curvature, ridge, whole[:, np.newaxis])
        coefficients = self._iterate(whole[:, np.newaxis] - step, step, kinds, _shares(*left), ridge)
        odds = np.empty(marks.shape)
        for number, own in enumerate(self._own()):
            odds[:, own] = coefficients[:, number] @ self.design[own].T
            odds[(left[0][:, number] <= 0) | (left[1][:, number] <= 0), own] = math.nan
        return odds

    def _iterate(
        self, coefficients: Floats, step: Floats, kinds: list[Floats], shares: tuple[Floats, Floats], ridge: Floats
    ) -> Floats:
        """Coefficients after further Newton steps until convergence [draw, fold, coefficient]; a cluster may be half of a draw."""
        fold = np.repeat(np.arange(self.n_folds), np.diff(self.bounds))  # [observation]
        moving = np.argwhere(np.abs(step).max(axis=2) >= _SHORT)  # [pair, (draw, fold)]
        for _ in range(_MAX_STEPS_OF_A_DRAW):
            steps = np.zeros((len(moving), coefficients.shape[2]))
            for start in range(0, len(moving), max(1, CHUNK_CELLS // len(fold))):
                part = slice(start, start + max(1, CHUNK_CELLS // len(fold)))
                draw, own = moving[part].T
                weights = [
                    kind[draw] * share[draw, own][:, np.newaxis] for kind, share in zip(kinds, shares, strict=True)
                ]
                rest = (weights[0] + weights[1]) * (fold != own[:, np.newaxis])
                chance = special.expit(coefficients[draw, own] @ self.design.T)
                wrong = rest * chance - np.where(rest > 0, weights[0], 0.0)
                bend = (rest * chance * (1 - chance)) @ self.products
                steps[part] = self._step(wrong @ self.design, bend, ridge[draw, own], coefficients[draw, own])
            coefficients[moving[:, 0], moving[:, 1]] -= steps
            moving = moving[np.abs(steps).max(axis=1, initial=0.0) >= _SHORT]
            if not len(moving):
                break
        return coefficients

    def _fit(self, kinds: list[Floats], sizes: list[Floats], moments: Floats) -> Floats:
        """Coefficients of the fit to all folds [draw, coefficient]."""
        shares = [share[:, np.newaxis] for share in _shares(*sizes)]
        weights, pull = kinds[0] * shares[0] + kinds[1] * shares[1], kinds[0] * shares[0]
        ridge = self._ridge(sizes[0] + sizes[1], moments)
        coefficients = np.zeros((len(weights), self.design.shape[1]))
        moving = np.arange(len(weights))
        for _ in range(_MAX_STEPS_OF_A_DRAW):
            chance = special.expit(coefficients[moving] @ self.design.T)
            gradient = (weights[moving] * chance - pull[moving]) @ self.design
            curvature = (weights[moving] * chance * (1 - chance)) @ self.products
            step = self._step(gradient, curvature, ridge[moving], coefficients[moving])
            coefficients[moving] -= step
            moving = moving[np.abs(step).max(axis=1) >= _STILL_IN_A_DRAW]
            if not len(moving):
                break
        return coefficients

    def _step(self, gradient: Floats, curvature: Floats, ridge: Floats, at: Floats) -> Floats:
        """Newton step including the penalty, [..., coefficient]; `curvature` is [..., product]."""
        matrix = curvature[..., self.place]
        diagonal = np.arange(len(self.place))
        matrix[..., diagonal, diagonal] += ridge
        matrix[..., 0, 0] += _FIRM
        solved = np.linalg.solve(matrix, (gradient + ridge * at)[..., np.newaxis])
        return np.asarray(solved[..., 0], dtype=np.float64)

    def _ridge(self, size: Floats, moments: Floats) -> Floats:
        """Penalty of each coefficient; slopes are per standard deviation of the fitted data [..., coefficient]."""
        mean, square = np.split(moments / np.maximum(size, 1)[..., np.newaxis], 2, axis=-1)
        variance = square - mean**2
        of_slopes = PENALTY * np.where(variance > _MIN_VARIANCE, variance, 1.0)
        return np.concatenate([np.zeros((*size.shape, 1)), of_slopes], axis=-1)

    def _sums(self, weights: Floats, values: Floats) -> Floats:
        """Weighted sums of values [observation, value] over each fold [draw, fold, value]."""
        sums = np.empty((len(weights), self.n_folds, values.shape[1]))
        for number, own in enumerate(self._own()):
            sums[:, number] = weights[:, own] @ values[own]
        return sums

    def _own(self) -> Iterator[slice]:
        return (slice(start, end) for start, end in pairwise(self.bounds.tolist()))


def _shares(n_positive: Floats, n_negative: Floats) -> tuple[Floats, Floats]:
    """Weights of one observation of each class, so that each class has a total weight of one half."""
    half = (n_positive + n_negative) / 2
    return half / np.maximum(n_positive, 1), half / np.maximum(n_negative, 1)
