"""Rows of observations from answers: the mass of each word group in percent, with its parts.

docs/run-folder.md describes the columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.types import LIKELIHOOD, Answer, ClozeQuery, Floats, GenerateQuery, Item, Query, Scores

if TYPE_CHECKING:
    import pandas as pd


NO_NUMBERS = "the model's log-probabilities are no numbers"
NO_SHARES = "the model gives none of the words any probability, so they have no shares"
LOW, HIGH = ".low", ".high"
"""Endings of the columns that bound a group's mass, where a model shows the most probable tokens only."""


def observation_rows(items: Sequence[Item], scores: Scores, groups: Sequence[str], model: str) -> pd.DataFrame:
    """One row for each item.

    Where a model does not show the whole distribution, a group's mass is the middle of what it may be, and two further
    columns hold the bounds. An answer whose numbers say nothing (NaN, or no probability to share) is missing, with a reason.
    """
    import pandas as pd

    shared = scores.scoring_method == LIKELIHOOD
    answered = [
        (item, replace(answer, missing_reason=_why_not(answer, shared=shared)))
        for item, answer in zip(items, scores.answers, strict=True)
    ]
    rows = [_row(item, answer, groups, model, shared=shared) for item, answer in answered]
    if any(isinstance(item.query, GenerateQuery) for item in items):
        for row, (_, answer) in zip(rows, answered, strict=True):
            row["answer"] = answer.text
    if any(answer.upper_bound_prob for answer in scores.answers):
        for row, (item, answer) in zip(rows, answered, strict=True):
            row.update(_bound_masses(item.query, answer, groups, row))
            row.update(upper_bound_prob=list(answer.upper_bound_prob), truncated_prob=answer.truncated_prob)
    return pd.DataFrame(rows)


def _why_not(answer: Answer, *, shared: bool) -> str:
    """Why an answer has no masses; "" where it has."""
    if answer.missing_reason:
        return answer.missing_reason
    logprobs = np.array(answer.logprobs_nats, dtype=np.float64)
    if np.isnan(logprobs).all() or np.isposinf(logprobs).any():
        return NO_NUMBERS
    # Of shares nothing is left; of probabilities of their own, none is a measurement.
    return NO_SHARES if shared and np.isneginf(np.fmax.reduce(logprobs)) else ""


def _row(item: Item, answer: Answer, groups: Sequence[str], model: str, *, shared: bool) -> dict[str, Any]:
    query = item.query
    if not isinstance(query, (ClozeQuery, GenerateQuery)):
        raise TypeError(f"word groups are asked of blanks and prompts, not of {type(query).__name__}")
    return {
        "item": item.id,
        "model": model,
        "challenge": item.factors["challenge"],
        "prompt": item.factors.get("prompt", ""),
        **{name: level for name, level in item.factors.items() if name not in ("challenge", "prompt")},
        "cluster": item.cluster,
        "text": query.display_text(),
        **masses_percent(query, answer, groups, shared=shared),
        "other_words": math.nan if answer.missing_reason else 100 * answer.other_prob,
        "missing_reason": answer.missing_reason,
        "options": [" ".join(option.fills) for option in query.options],
        "logprobs_nats": list(answer.logprobs_nats),
    }


def _bound_masses(query: Query, answer: Answer, groups: Sequence[str], row: Mapping[str, Any]) -> dict[str, float]:
    """Each group's mass between what was seen and what it may have been, and the middle in its own column."""
    if answer.missing_reason or not isinstance(query, (ClozeQuery, GenerateQuery)):
        return {f"{name}{end}": math.nan for name in (*groups, "other_words") for end in (LOW, HIGH)}
    of_group = np.array([option.group for option in query.options])
    ceilings = np.array(answer.upper_bound_prob or np.zeros(len(of_group)))
    masses: dict[str, float] = {}
    for group in groups:
        low = float(row[group])
        high = upper_bound_percent(low, float(ceilings[of_group == group].sum()), answer.truncated_prob)
        masses |= {group: (low + high) / 2, f"{group}{LOW}": low, f"{group}{HIGH}": high}
    # What the groups have beyond what was seen, the other words lack.
    high = 100 * answer.other_prob
    low = max(high - 100 * min(float(ceilings.sum()), answer.truncated_prob), 0.0)
    masses |= {"other_words": (low + high) / 2, f"other_words{LOW}": low, f"other_words{HIGH}": high}
    return masses


def masses_percent(
    query: ClozeQuery | GenerateQuery, answer: Answer, groups: Sequence[str], *, shared: bool = True
) -> dict[str, float]:
    """Mass of each group in percent; NaN where missing, and for a group without a visible word.

    Args:
        query: of the item.
        answer: to the query; NaN if it has no number.
        groups: word groups.
        shared: whether masses are shares of what all options have together (sentence likelihoods say no more), or
            probabilities of their own.
    """
    if _why_not(answer, shared=shared):
        return dict.fromkeys(groups, math.nan)
    percent = options_percent(np.array(answer.logprobs_nats), shared=shared)
    of_group = np.array([option.group for option in query.options])
    unseen = np.isnan(answer.logprobs_nats)
    return {
        group: math.nan if unseen[own].any() and unseen[own].all() else float(percent[own].sum())
        for group, own in ((group, of_group == group) for group in groups)
    }


def options_percent(logprobs_nats: Floats, *, shared: bool) -> Floats:
    """Mass of each option in percent [..., option]; 0 for one that is spelled like an earlier one (NaN), which counts with it.

    Args:
        logprobs_nats: of answers to the same query [..., option]; at least one option of each has a probability.
        shared: as in `masses_percent`.
    """
    highest = np.nanmax(logprobs_nats, axis=-1, keepdims=True) if shared else 0.0
    percent: Floats = 100 * np.nan_to_num(np.exp(logprobs_nats - highest))
    return percent * (100 / percent.sum(axis=-1, keepdims=True)) if shared else percent


def upper_bound_percent(least: float, ceiling_prob: float, unseen_prob: float) -> float:
    """What a mass may have been at most, in percent, of which a server showed so much."""
    return min(least + 100 * min(ceiling_prob, unseen_prob), 100.0)
