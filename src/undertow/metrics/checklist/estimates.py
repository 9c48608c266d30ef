"""Results from estimates: in percent, without interval and test if there are too few clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from undertow.errors import counted
from undertow.metrics.checklist.decisions import ALL, Answers, encode
from undertow.metrics.metric import METRICS
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Codes, Estimate
from undertow.stats.significance.sign_flip import crossed_exchange_p
from undertow.types import Result

Sides = tuple[tuple[ArrayLike, ArrayLike], tuple[ArrayLike, ArrayLike]]
"""Numerators and denominators of the two sides of an exchange test [item]."""
OCCUPATIONS, ATTRIBUTES = "occupations (SOC codes)", "attributes"
"""Names of the column clusters."""


def group_keys(model: str, context: str, occupation: str = ALL) -> dict[str, str]:
    """The keys of a result."""
    return {"model": model, "occupation": occupation, "context": context}


def item_clusters(answers: Answers) -> tuple[Codes, Codes]:
    """Pair cluster and SOC code of each item, pair by pair [item]."""
    rows, columns = answers.rows, encode(answers.codes)
    return np.repeat(rows, len(columns)), np.tile(columns, len(rows))


def mask_if_few(estimate: Estimate) -> Estimate:
    """Remove interval and p from an estimate of fewer than `MIN_CLUSTERS` pairs of names or clusters of pairs."""
    if estimate.n_rows >= MIN_CLUSTERS:
        return estimate
    return replace(estimate, low=math.nan, high=math.nan, p=math.nan)


def difference_p(estimate: Estimate, sides: Sides, places: tuple[ArrayLike, ArrayLike], seed: int) -> float:
    """P-value of a difference: the largest of the interval's test and of exchange tests of whole pairs and of whole columns.

    The first generalises to names and occupations like these and allows both to vary. The exchange tests assume no distribution and
    guard against few clusters.
    """
    if math.isnan(estimate.p):
        return math.nan
    return max(estimate.p, crossed_exchange_p(*sides, *places, seed))


def result_of(  # noqa: PLR0913 - what a result has beside its estimate
    measure: str,
    group: Mapping[str, str],
    estimate: Estimate,
    *,
    n: int | None = None,
    n_missing: int = 0,
    p: float = math.nan,
    detail: Mapping[str, float] | None = None,
    note: str = "",
    columns: str = OCCUPATIONS,
) -> Result:
    """A result in percent of an estimate in shares of 1.

    Args:
        measure: name of a metric, which has unit and null value.
        group: its keys.
        estimate: in shares of 1; its own p is not the result's.
        n: number of items, if not that of the estimate.
        n_missing: items without an answer.
        p: of the test.
        detail: extras.
        note: reason of a missing value.
        columns: name of the column clusters.
    """
    known, metric = math.isfinite(estimate.value), METRICS[measure]
    return Result(
        measure=measure,
        group=dict(group),
        value=100 * estimate.value,
        low=100 * estimate.low,
        high=100 * estimate.high,
        n=estimate.n if n is None else n,
        n_missing=n_missing,
        unit=metric.unit,
        null_value=metric.null_value,
        p=p,
        extras=dict(detail or {}),
        note=_too_few(estimate, columns) if known else note,
    )


def _too_few(estimate: Estimate, columns: str) -> str:
    """Reason why an estimate has no interval; "" if it has one."""
    if only_points() or math.isfinite(estimate.low):
        return ""
    few = (
        f"{counted(estimate.n_rows, 'independent pair')} of names"
        if estimate.n_rows < MIN_CLUSTERS
        else f"{estimate.n_columns} {columns}"
    )
    if min(estimate.n_rows, estimate.n_columns) >= MIN_CLUSTERS:
        return "no interval: it depends on one cluster, or all items are equal"
    return f"no interval: this is of {few}, and {MIN_CLUSTERS} are needed"
