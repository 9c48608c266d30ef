"""Correction for many tests: q of every result of a run or a comparison, family by family."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from undertow.stats.significance.false_discovery import benjamini_hochberg
from undertow.types import Result


def adjust_p_values(results: Sequence[Result], family_of: Callable[[Result], Hashable | None]) -> list[Result]:
    """Results with q, which is p adjusted over the tests of their family (Benjamini and Hochberg 1995).

    Args:
        results: with p; one whose p is NaN is not tested.
        family_of: the family of a result; None for a result that is not tested and keeps its q.
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
