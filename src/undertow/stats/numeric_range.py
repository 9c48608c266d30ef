"""The range of doubles that can be computed with: their fourth powers, and sums of these, are normal doubles too.

A number that is too large overflows on the way, and one result is then infinite and the next one wrong: no shuffled slope is
as steep as an infinite one. So what lies outside is treated as what is not finite. Knows nothing about what is computed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LARGEST = 1e70
"""What lies further from 0 than this is none that can be computed with, and what lies nearer to 0 than its inverse is 0."""


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
