"""Correction for multiple tests: Benjamini-Hochberg, family by family."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from undertow.stats.arrays import Floats
from undertow.types import Result


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """Benjamini-Hochberg adjusted p-values (q) of a family of p-values [test]; NaN marks a missing test, which does not count.

    Raises:
        ValueError: a p-value is outside 0 to 1.
    """
    p_values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(p_values.shape, math.nan)
    made = ~np.isnan(p_values)
    if made.any():
        from scipy import stats

        adjusted[made] = stats.false_discovery_control(p_values[made], method="bh")
    return adjusted


def adjust_p_values(results: Sequence[Result], family_of: Callable[[Result], Hashable | None]) -> list[Result]:
    """Results with q, which is p adjusted over the tests of their family (Benjamini and Hochberg 1995).

    A result without a family (None), or with a NaN p, is not tested and keeps its q.
    """
    q = q_values([one.p for one in results], [family_of(one) for one in results])
    return [replace(one, q=value) if np.isfinite(value) else one for one, value in zip(results, q, strict=True)]


def q_values(p: Sequence[float], families: Sequence[Hashable | None]) -> list[float]:
    """Adjusted p-values [test], each over the tests of its family [test]; NaN where p is NaN or the family is None."""
    q = np.full(len(p), np.nan)
    for family in dict.fromkeys(families):
        if family is not None:
            own = np.array([one == family for one in families])
            q[own] = benjamini_hochberg(np.asarray(p, dtype=np.float64)[own])
    return q.tolist()
