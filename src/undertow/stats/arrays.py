"""Arrays of numbers: what every statistic reads, divides and rounds alike.

Shapes are the caller's promise; where they do not go together numpy raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int64]

LARGEST = 1e70
ROUNDING_SHARE = 1e-12
"""Numbers that are equal on paper and were summed in another order differ by some 1e-16 of their size: a smaller spread is none."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95% interval.

    Attributes:
        value: NaN where there is none.
        low, high: of the interval; NaN where too little counts to tell anything about others.
        n: what it rests on: items, documents, models.
        p: two-sided p-value of the test that the interval belongs to: it is below .05 where the interval leaves out the null value, and
            not where it holds it. NaN without an interval or a null value.
        sd: population standard deviation, of a mean over cells.
        n_rows, n_columns: clusters of the items on either side, of a crossed design.
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
        """Clusters of the side that decides: of the smaller one, where both have more than one."""
        return min((n for n in (self.n_rows, self.n_columns) if n > 1), default=1)


def as_floats(values: ArrayLike) -> Floats:
    """Numbers of any shape: NaN above `LARGEST`, where sums of fourth powers overflow, and 0 below its inverse."""
    numbers = np.asarray(values, dtype=np.float64)
    sizes = np.abs(numbers)
    clipped: Floats = np.where(sizes > LARGEST, math.nan, np.where(sizes < 1 / LARGEST, 0.0, numbers))
    return clipped


def divide(sums: ArrayLike, counts: ArrayLike) -> Floats:
    """Sums over counts, NaN where there is nothing to count."""
    whole, of = np.broadcast_arrays(np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64))
    ratio: Floats = np.divide(whole, of, out=np.full(of.shape, math.nan), where=of > 0)
    return ratio


def is_constant(values: Floats) -> bool:
    """Whether values of any shape differ by no more than rounding; so do none."""
    return not values.size or float(np.ptp(values)) <= ROUNDING_SHARE * float(np.abs(values).max())


def t_quantile(df: float, level: float = 0.95) -> float:
    """Half the width of a t interval, in standard errors; normal where the degrees of freedom are infinite."""
    tail = (1 + level) / 2
    return float(special.ndtri(tail) if math.isinf(df) else special.stdtrit(df, tail))


def t_p_value(size: float, df: float) -> float:
    """Two-sided p of Student's t, or of a normal size where the degrees of freedom are infinite."""
    return 2 * float(special.ndtr(-abs(size)) if math.isinf(df) else special.stdtr(df, -abs(size)))
