"""One-way analysis of variance: how much of the spread of y lies between groups, and whether their means differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import f as f_distribution

from undertow.stats.numeric_range import usable


@dataclass(frozen=True, slots=True)
class OneWayAnova:
    """The result of a one-way analysis of variance.

    Attributes:
        share: of the sum of squares (eta squared), in 0 to 1; NaN where y is constant, there is one group, or no group has
            two points.
        expected_share: expected share of groups without an effect.
        p: p-value of the F test.
    """

    share: float
    expected_share: float
    p: float


def one_way(y: ArrayLike, group: ArrayLike) -> OneWayAnova:
    """Share of the variance of y [point] between the groups [point] that its points are in.

    Raises:
        ValueError: y and group are not vectors of one length.
    """
    values, names = usable(y), np.asarray(group)
    if values.ndim != 1 or values.shape != names.shape:
        raise ValueError(f"y and group must be vectors of one length; got {values.shape} and {names.shape}")
    kinds, of = np.unique(names, return_inverse=True)
    n, k = len(values), len(kinds)
    if k < 2 or n == k:  # without repetitions everything lies between groups
        return OneWayAnova(math.nan, math.nan, math.nan)
    total = float(((values - values.mean()) ** 2).sum())
    if total <= 1e-24 * float((values**2).sum()) or total == 0:
        return OneWayAnova(math.nan, math.nan, math.nan)
    means = np.bincount(of, weights=values) / np.bincount(of)
    within = float(((values - means[of]) ** 2).sum())
    share, expected = 1 - within / total, (k - 1) / (n - 1)
    if within == 0:
        return OneWayAnova(share, expected, 0.0)
    statistic = ((total - within) / (k - 1)) / (within / (n - k))
    return OneWayAnova(share, expected, float(f_distribution.sf(statistic, k - 1, n - k)))


def welch_p(y: ArrayLike, group: ArrayLike) -> float:
    """p-value that groups of unequal spread have one mean, of y [point] and the groups [point] that its points are in.

    Welch 1951, "On the Comparison of Several Mean Values: An Alternative Approach" (Biometrika 38). NaN where there are fewer than two
    groups, a group has fewer than two points, or its points do not vary.

    Raises:
        ValueError: y and group are not vectors of one length.
    """
    values, names = usable(y), np.asarray(group)
    if values.ndim != 1 or values.shape != names.shape:
        raise ValueError(f"y and group must be vectors of one length; got {values.shape} and {names.shape}")
    kinds, of = np.unique(names, return_inverse=True)
    n, k = np.bincount(of).astype(np.float64), len(kinds)
    if k < 2 or n.min() < 2:
        return math.nan
    means = np.bincount(of, weights=values) / n
    variance = np.bincount(of, weights=(values - means[of]) ** 2) / (n - 1)
    if not (variance > 1e-24 * float((values**2).max(initial=0.0))).all():
        return math.nan
    weights = n / variance
    centre = float((weights * means).sum() / weights.sum())
    lack = float(((1 - weights / weights.sum()) ** 2 / (n - 1)).sum())
    statistic = float((weights * (means - centre) ** 2).sum()) / (k - 1) / (1 + 2 * (k - 2) / (k**2 - 1) * lack)
    return float(f_distribution.sf(statistic, k - 1, (k**2 - 1) / (3 * lack)))
