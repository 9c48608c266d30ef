"""Shared helpers for arrays: conversion, codes, division, rounding, quantiles.

Shapes are not checked; numpy raises `ValueError` if they do not match.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int64]

LARGEST = 1e70
ROUNDING_SHARE = 1e-12
"""Relative spread below which numbers are equal up to rounding; a different order of summation changes them by some 1e-16."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval: 95% unless the function has another level.

    Attributes:
        value: the estimate, or NaN.
        low, high: of the interval; NaN if there are too few clusters.
        n: number of items, documents or models.
        p: two-sided p-value that agrees with a 95% interval: below .05 exactly if it excludes the null value. NaN without an interval
            (but for a correlation of 1 or -1) or a null value.
        sd: population standard deviation over cells, for a mean over cells.
        n_rows, n_columns: number of row and column clusters, for a crossed design.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    sd: float = math.nan
    n_rows: int = 0
    n_columns: int = 0

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the deciding side: the smaller one, if both have more than one."""
        return min((n for n in (self.n_rows, self.n_columns) if n > 1), default=1)


def as_floats(values: ArrayLike) -> Floats:
    """Numbers of any shape: NaN above `LARGEST`, where sums of fourth powers overflow, and 0 below its inverse."""
    numbers = np.asarray(values, dtype=np.float64)
    sizes = np.abs(numbers)
    return np.where(sizes > LARGEST, math.nan, np.where(sizes < 1 / LARGEST, 0.0, numbers))


def encode(names: Sequence[Hashable]) -> Codes:
    """Equal names as equal numbers from 0, in the order of their first appearance [name]."""
    numbers = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


def divide(sums: ArrayLike, counts: ArrayLike) -> Floats:
    """Sums divided by counts, NaN for counts of 0."""
    whole, of = np.broadcast_arrays(np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64))
    ratio: Floats = np.divide(whole, of, out=np.full(of.shape, math.nan), where=of > 0)
    return ratio


def is_constant(values: Floats) -> bool:
    """Whether values of any shape are equal up to rounding; True without values."""
    return not values.size or float(np.ptp(values)) <= ROUNDING_SHARE * float(np.abs(values).max())


def t_quantile(df: float, level: float = 0.95) -> float:
    """Half the width of a t interval, in standard errors; normal where the degrees of freedom are infinite."""
    tail = (1 + level) / 2
    return float(special.ndtri(tail) if math.isinf(df) else special.stdtrit(df, tail))


def t_p_value(size: float, df: float) -> float:
    """Two-sided p of Student's t, or of a normal statistic for infinite degrees of freedom."""
    return 2 * float(special.ndtr(-abs(size)) if math.isinf(df) else special.stdtr(df, -abs(size)))
