"""One-way analysis of variance, by scipy: share of variance between groups, and tests of equal means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import f_oneway

from undertow.stats.arrays import Floats, as_floats, is_constant


@dataclass(frozen=True, slots=True)
class OneWayAnova:
    """The result of a one-way analysis of variance.

    Attributes:
        share: of the sum of squares (eta squared), in 0 to 1; NaN if y is constant, there is one group, or no group has two points.
        expected_share: expected share of groups without an effect.
        p: p-value of the F test.
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
