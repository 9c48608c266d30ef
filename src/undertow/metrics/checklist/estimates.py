"""Results from estimates: in percent, without interval and test if there are too few clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from undertow.errors import counted
from undertow.metrics.checklist.decisions import (
    ALL,
    CHOICES,
    CONTEXTS,
    NO_ANSWER,
    NONE_OF_THEM,
    Answers,
    Rule,
    clusters_of,
    missing_answers,
)
from undertow.metrics.metric import Group, make_result
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Bools, Codes, Estimate, Floats, encode
from undertow.stats.intervals.multiway_cluster import difference_of_ratios, ratio_interval
from undertow.stats.significance.sign_flip import crossed_exchange_p
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

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
    group: Group,
    estimate: Estimate,
    *,
    n: int | None = None,
    n_missing: int = 0,
    p: float = math.nan,
    extras: Mapping[str, float] | None = None,
    note: str = "",
    columns: str = OCCUPATIONS,
) -> Result:
    """A result in percent of an estimate in shares of 1, whose own p is not the result's; `columns` names the column clusters.

    `n` is the number of items, if not that of the estimate; `note` is the reason of a missing value.
    """
    if math.isfinite(estimate.value):
        note = _too_few(estimate, columns)
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    n, extras = estimate.n if n is None else n, dict(extras or {})
    return make_result(
        measure, dict(group), value, low=low, high=high, n=n, n_missing=n_missing, p=p, extras=extras, note=note
    )


def _too_few(estimate: Estimate, columns: str) -> str:
    """Reason why an estimate has no interval; "" if it has one."""
    if only_points() or math.isfinite(estimate.low):
        return ""
    few = f"{estimate.n_columns} {columns}"
    if estimate.n_rows < MIN_CLUSTERS:
        few = f"{counted(estimate.n_rows, 'independent pair')} of names"
    if min(estimate.n_rows, estimate.n_columns) >= MIN_CLUSTERS:
        return "no interval: it depends on one cluster, or all items are equal"
    return f"no interval: this is of {few}, and {MIN_CLUSTERS} are needed"


OTHER_ANSWER, EMPTY, NOT_SCORED = "other_answer", "no_answer", "not_scored"
REASONS = (OTHER_ANSWER, EMPTY, NOT_SCORED)
"""Kinds of reason: an answer that is not among the possible ones (a refusal, a sentence), an empty answer, any other reason."""


def classify_reason(missing: str) -> str:
    """The kind (`REASONS`) of the reason of a missing answer."""
    if missing.endswith(NONE_OF_THEM):
        return OTHER_ANSWER
    return EMPTY if missing in ("", NO_ANSWER) else NOT_SCORED


def missing(frame: pd.DataFrame, rule: Rule, seed: int) -> Iterator[Result]:
    """Share of missing answers to the questions about occupations, by context; no results if none or all are missing.

    Items are pairs and occupations; each question in each order of the names is an answer. The gap compares the questions whether
    she and whether he is qualified.
    """
    rows = frame[frame["occupation"] != ""]
    for model, of_model in rows.groupby("model", sort=False):
        if missing_answers(frame[frame["model"] == model], rule).all():
            continue
        in_context = dict(iter(of_model.groupby("context", sort=False)))
        for context in [context for context in CONTEXTS if context in in_context]:
            some = in_context[context]
            some = some[some["wording"] == some["wording"].min()]
            if missing_answers(some, rule).any():
                yield from _of_context(some, str(model), context, rule, seed)


def _of_context(frame: pd.DataFrame, model: str, context: str, rule: Rule, seed: int) -> Iterator[Result]:
    lacking = missing_answers(frame, rule)
    items = encode(list(zip(frame["pair"], frame["occupation"], strict=True)))
    first = np.unique(items, return_index=True)[1]
    of_pair = clusters_of(frame)
    pairs, codes = (frame[name].to_numpy()[first].tolist() for name in ("pair", "soc_code"))
    places = encode([of_pair[pair] for pair in pairs]), encode(codes)
    group, n_items = group_keys(model, context), len(first)

    def counts_of(rows: Bools) -> tuple[Floats, Floats]:
        """Numbers of missing and of all answers of some rows [item]."""
        some = items[rows & lacking], items[rows]
        hits, n = (np.bincount(one, minlength=n_items).astype(np.float64) for one in some)
        return hits, n

    hits, n = counts_of(np.ones(len(frame), dtype=np.bool_))
    reasons = [classify_reason(str(one)) for one in frame["missing_reason"].to_numpy()[lacking]]
    extras = {name: float(reasons.count(name)) for name in REASONS} | {"of_answers": float(len(frame))}
    estimate = mask_if_few(ratio_interval(hits, n, *places))
    yield result_of("missing_rate", group, estimate, extras=extras)
    of_person = [counts_of((frame["subject"] == person).to_numpy()) for person in CHOICES[:2]]
    if not all(n.any() for _, n in of_person):
        return
    for person, (hits, n) in zip(CHOICES[:2], of_person, strict=True):
        estimate = mask_if_few(ratio_interval(hits, n, *places))
        yield result_of(f"missing_{person}", group, estimate)
    gap = mask_if_few(difference_of_ratios(*of_person[0], *of_person[1], *places))
    p = difference_p(gap, (of_person[0], of_person[1]), places, seed)
    yield result_of("missing_gap", group, gap, p=p)
