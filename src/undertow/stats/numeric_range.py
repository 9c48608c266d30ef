"""The range of doubles whose fourth powers, and sums of these, are finite.

Larger numbers overflow: one result becomes infinite and the next one wrong, since no shuffled slope is as steep as an infinite
one. So numbers outside the range count as not finite.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LARGEST = 1e70
"""Largest absolute value; values below its inverse count as 0."""


def usable(values: ArrayLike) -> Floats:
    """Numbers of any shape, NaN where they are infinite or too large to compute with, and 0 where they are too small."""
    numbers = np.asarray(values, dtype=np.float64)
    sizes = np.abs(numbers)
    clipped: Floats = np.where(sizes > LARGEST, math.nan, np.where(sizes < 1 / LARGEST, 0.0, numbers))
    return clipped


def outside(values: ArrayLike) -> NDArray[np.bool_]:
    """Which numbers of any shape are infinite or too large to compute with; NaN is not."""
    is_outside: NDArray[np.bool_] = np.abs(np.asarray(values, dtype=np.float64)) > LARGEST
    return is_outside
