"""Permutation test of a slope: how often shuffled labels give a line as steep.

The labels of x are shuffled over the values of y; nothing is assumed about the shape of the noise, only that under
no effect every order was as likely. Knows nothing about what the labels are.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undertow.stats.doubles import usable
from undertow.stats.points import only_points

Floats = NDArray[np.float64]

# Orders that give the same statistic on paper differ in its last digits, and so do equal values of y that were summed
# in another order. What is nearer than this share of the size of y is a tie and counts as "at least as extreme",
# which errs on the side of not finding.
ROUNDING_SHARE = 1e-12


@dataclass(frozen=True, slots=True)
class LabelOrders:
    """Orders in which to put the labels.

    Attributes:
        orders: label positions [order, label].
        exact: whether these are all the orders there are, the identity among them.
    """

    orders: NDArray[np.intp]
    exact: bool


def label_orders(n_labels: int, n_permutations: int, rng: np.random.Generator) -> LabelOrders:
    """All orders of the labels where there are at most `n_permutations` of them, random orders otherwise.

    Within `point_estimates` the labels as they are, and no other order.

    Raises:
        ValueError: fewer than one label or permutation.
    """
    if n_labels < 1 or n_permutations < 1:
        raise ValueError(f"need at least one label and one permutation; got {n_labels} and {n_permutations}")
    if only_points():
        return LabelOrders(np.arange(n_labels, dtype=np.intp)[np.newaxis], exact=False)
    # 21! is past any number of permutations that fits in memory, so larger factorials need not be computed.
    if n_labels <= 20 and math.factorial(n_labels) <= n_permutations:
        return LabelOrders(np.array(list(itertools.permutations(range(n_labels))), dtype=np.intp), exact=True)
    ascending = np.tile(np.arange(n_labels, dtype=np.intp), (n_permutations, 1))
    return LabelOrders(rng.permuted(ascending, axis=1), exact=False)


def slope_p_values(x: ArrayLike, y: ArrayLike, orders: LabelOrders) -> Floats:
    """Two-sided permutation p-value for the slope of every row of y [row, label] on x [label]: [row].

    The share of orders whose |slope| is at least the observed one; for random orders the observed one is
    counted in, (1 + hits) / (1 + orders), so that p is never 0. A row with a NaN, and any row where x is
    constant, has no slope to test and is NaN. A constant row is all ties: p is 1. NaN within `point_estimates`.

    Raises:
        ValueError: y's last axis, x and the orders do not have one length.
    """
    xs, ys = usable(x), usable(y)
    n_labels = orders.orders.shape[1]
    if xs.shape != (n_labels,) or ys.ndim != 2 or ys.shape[1] != n_labels:
        raise ValueError(f"need x [{n_labels}] and y [row, {n_labels}] for these orders; got {xs.shape} and {ys.shape}")
    if only_points():
        return np.full(len(ys), math.nan)
    from_mean_x = xs - xs.mean()
    from_mean_y = ys - ys.mean(axis=1, keepdims=True)
    # The slope is this product over the squares of x, which no shuffle changes: comparing products is enough.
    observed = np.abs(from_mean_y @ from_mean_x)  # [row]
    shuffled = np.abs(from_mean_x[orders.orders] @ from_mean_y.T)  # [order, row]
    tie = ROUNDING_SHARE * np.linalg.norm(from_mean_x) * np.linalg.norm(ys, axis=1)
    hits = np.count_nonzero(shuffled >= observed - tie, axis=0)
    extra = 0 if orders.exact else 1
    p = (hits + extra) / (len(orders.orders) + extra)
    return np.where(np.isnan(observed) | (np.ptp(xs) == 0), math.nan, p)
