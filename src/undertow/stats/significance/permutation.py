"""Permutation tests: orders of labels, all of them or random ones, and p.

A permutation test assumes only that all orders of the labels are equally likely without an effect.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.point_estimates import only_points


@dataclass(frozen=True, slots=True)
class LabelOrders:
    """Orders in which to put the labels.

    Attributes:
        orders: label positions [order, label].
        exact: whether these are all the orders there are, the identity among them.
    """

    orders: NDArray[np.intp]
    exact: bool


def permutation_p_value(
    observed: float, shuffled: ArrayLike, *, has_observed: bool = False, tolerance: float = 0.0
) -> float:
    """Share of orders whose statistic is at least the observed one; give absolute values for a two-sided test.

    Args:
        observed: the statistic of the order as it is.
        shuffled: statistics of other orders [order]; NaN counts as one that is as large.
        has_observed: whether the observed order is among them; otherwise it is counted in, so that p is never 0.
        tolerance: statistics that are nearer than this to the observed one are equal to it.
    """
    statistics = np.asarray(shuffled, dtype=np.float64)
    n_large = np.count_nonzero(~(statistics < observed - tolerance))
    own = 0 if has_observed else 1
    return float((n_large + own) / (len(statistics) + own))


def label_orders(n_labels: int, n_permutations: int, rng: np.random.Generator) -> LabelOrders:
    """All orders of the labels where there are at most `n_permutations` of them, random orders otherwise.

    Within `point_estimates` the labels as they are, and no other order.
    """
    if only_points():
        return LabelOrders(np.arange(n_labels, dtype=np.intp)[np.newaxis], exact=False)
    # 21! is past any number of permutations that fits in memory, so larger factorials need not be computed.
    if n_labels <= 20 and math.factorial(n_labels) <= n_permutations:
        return LabelOrders(np.array(list(itertools.permutations(range(n_labels))), dtype=np.intp), exact=True)
    ascending = np.tile(np.arange(n_labels, dtype=np.intp), (n_permutations, 1))
    return LabelOrders(rng.permuted(ascending, axis=1), exact=False)
