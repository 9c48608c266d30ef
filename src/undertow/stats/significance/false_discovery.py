"""Correction for multiple tests: Benjamini-Hochberg."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


def benjamini_hochberg(p: ArrayLike) -> NDArray[np.float64]:
    """Benjamini-Hochberg adjusted p-values (q) of a family of p-values [test].

    NaN marks a test that was not made: it stays NaN and does not count towards the size of the family.

    Raises:
        ValueError: a p-value is outside 0 to 1, or p is not a vector.
    """
    p_values = np.asarray(p, dtype=np.float64)
    if p_values.ndim != 1:
        raise ValueError(f"p must be [test]; got shape {p_values.shape}")
    q_values = np.full(p_values.shape, math.nan)
    made = ~np.isnan(p_values)
    if made.any():
        q_values[made] = stats.false_discovery_control(p_values[made], method="bh")
    return q_values
