"""p-value of a permutation test, which assumes only that all orders of the labels are equally likely without an effect."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def permutation_p_value(observed: float, shuffled: ArrayLike, *, tolerance: float = 0.0) -> float:
    """Share of orders whose statistic is at least the observed one, which is counted in, so that p is never 0.

    Give absolute values for a two-sided test.

    Args:
        observed: the statistic of the order as it is.
        shuffled: statistics of other orders [order]; NaN counts as one that is as large.
        tolerance: statistics that are nearer than this to the observed one are equal to it.
    """
    statistics = np.asarray(shuffled, dtype=np.float64)
    n_large = np.count_nonzero(~(statistics < observed - tolerance))
    return float((n_large + 1) / (len(statistics) + 1))
