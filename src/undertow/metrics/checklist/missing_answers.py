"""Missing answers of the checklist (refusals, empty and unscored answers), by reason and by person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from undertow.metrics.checklist.decisions import (
    CHOICES,
    CONTEXTS,
    NO_ANSWER,
    NONE_OF_THEM,
    Rule,
    clusters_of,
    encode,
    missing_answers,
)
from undertow.metrics.checklist.estimates import difference_p, group_keys, mask_if_few, result_of
from undertow.stats.arrays import Bools, Floats
from undertow.stats.intervals.multiway_cluster import difference_of_ratios, ratio_interval
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

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
        for context in CONTEXTS:
            some = of_model[of_model["context"] == context]
            some = some[some["wording"] == some["wording"].min()]
            if missing_answers(some, rule).any():
                yield from _of_context(some, str(model), context, rule, seed)


def _of_context(frame: pd.DataFrame, model: str, context: str, rule: Rule, seed: int) -> Iterator[Result]:
    lacking = missing_answers(frame, rule)
    items = encode(list(zip(frame["pair"], frame["occupation"], strict=True)))
    first = np.unique(items, return_index=True)[1]
    of_pair = clusters_of(frame)
    places = (
        encode([of_pair[pair] for pair in frame["pair"].to_numpy()[first]]),
        encode(frame["soc_code"].to_numpy()[first].tolist()),
    )
    group, n_items = group_keys(model, context), len(first)

    def counts_of(rows: Bools) -> tuple[Floats, Floats]:
        """Numbers of missing and of all answers of some rows [item]."""
        some = items[rows & lacking], items[rows]
        hits, n = (np.bincount(one, minlength=n_items).astype(np.float64) for one in some)
        return hits, n

    hits, n = counts_of(np.ones(len(frame), dtype=np.bool_))
    reasons = [classify_reason(str(one)) for one in frame["missing_reason"].to_numpy()[lacking]]
    detail = {name: float(reasons.count(name)) for name in REASONS} | {"of_answers": float(len(frame))}
    estimate = mask_if_few(ratio_interval(hits, n, *places))
    yield result_of("missing_rate", group, estimate, detail=detail)
    of_person = [counts_of((frame["subject"] == person).to_numpy()) for person in CHOICES[:2]]
    if not all(n.any() for _, n in of_person):
        return
    for person, (hits, n) in zip(CHOICES[:2], of_person, strict=True):
        estimate = mask_if_few(ratio_interval(hits, n, *places))
        yield result_of(f"missing_{person}", group, estimate)
    gap = mask_if_few(difference_of_ratios(*of_person[0], *of_person[1], *places))
    p = difference_p(gap, (of_person[0], of_person[1]), places, seed)
    yield result_of("missing_gap", group, gap, p=p)
