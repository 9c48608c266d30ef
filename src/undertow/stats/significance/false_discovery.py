"""Correction for multiple tests: Benjamini-Hochberg."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import Floats


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini-Hochberg adjusted p-values (q) of a family of p-values [test].

    NaN marks a missing test: it stays NaN and does not count in the size of the family.

    Raises:
        ValueError: a p-value is outside 0 to 1.
    """
    p_values = np.asarray(p, dtype=np.float64)
    q_values = np.full(p_values.shape, math.nan)
    made = ~np.isnan(p_values)
    if made.any():
        from scipy import stats

        q_values[made] = stats.false_discovery_control(p_values[made], method="bh")
    return q_values
