"""Rows of observations from answers: the mass of each word group in percent, with its parts.

docs/run-folder.md describes the columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.types import LIKELIHOOD, Answer, ClozeQuery, Floats, GenerateQuery, Item, Option, Query, Scores

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

    queries = [_of_groups(item.query) for item in items]
    reasons, masses = group_masses(queries, scores.answers, groups, shared=scores.scoring_method == LIKELIHOOD)
    names = list(dict.fromkeys(name for item in items for name in item.factors))
    first = names[: len(items[0].factors)] if items else []
    spellings = {
        options: [" ".join(option.fills) for option in options] for options in {query.options for query in queries}
    }

    def factors(names: Sequence[str]) -> dict[str, list[Any]]:
        return {
            name: [item.factors.get(name, math.nan) for item in items]
            for name in names
            if name not in ("challenge", "prompt")
        }

    columns: dict[str, Any] = {
        "item": [item.id for item in items],
        "model": [model] * len(items),
        "challenge": [item.factors["challenge"] for item in items],
        "prompt": [item.factors.get("prompt", "") for item in items],
        **factors(first),
        "cluster": [item.cluster for item in items],
        "text": [query.display_text() for query in queries],
        **masses,
        "other_words": [
            math.nan if reason else 100 * answer.other_prob
            for reason, answer in zip(reasons, scores.answers, strict=True)
        ],
        "missing_reason": reasons,
        "options": [spellings[query.options] for query in queries],
        "logprobs_nats": [list(answer.logprobs_nats) for answer in scores.answers],
        **factors(names[len(first) :]),
    }
    if any(isinstance(query, GenerateQuery) for query in queries):
        columns["answer"] = [answer.text for answer in scores.answers]
    if any(answer.upper_bound_prob for answer in scores.answers):
        bounds = [
            _bound_masses(query, answer, {name: masses[name][row] for name in groups}, is_missing=bool(reasons[row]))
            for row, (query, answer) in enumerate(zip(queries, scores.answers, strict=True))
        ]
        columns |= {name: [one[name] for one in bounds] for name in bounds[0]}
        columns["upper_bound_prob"] = [list(answer.upper_bound_prob) for answer in scores.answers]
        columns["truncated_prob"] = [answer.truncated_prob for answer in scores.answers]
    return pd.DataFrame(columns)


def _of_groups(query: Query) -> ClozeQuery | GenerateQuery:
    if not isinstance(query, (ClozeQuery, GenerateQuery)):
        raise TypeError(f"word groups are asked of blanks and prompts, not of {type(query).__name__}")
    return query


def group_masses(
    queries: Sequence[ClozeQuery | GenerateQuery], answers: Sequence[Answer], groups: Sequence[str], *, shared: bool
) -> tuple[list[str], dict[str, Floats]]:
    """Why an answer has no masses, "" where it has [answer], and the mass of each group in percent [answer].

    A mass is NaN where it is missing, and for a group without a visible word.

    Args:
        queries: with options of the groups [answer].
        answers: to the queries; NaN where they have no number.
        groups: word groups.
        shared: whether masses are shares of what all options have together (sentence likelihoods say no more), or
            probabilities of their own.
    """
    reasons = [answer.missing_reason for answer in answers]
    masses = {group: np.full(len(answers), math.nan) for group in groups}
    alike: dict[tuple[Option, ...], list[int]] = {}
    for at, query in enumerate(queries):
        if not reasons[at]:
            alike.setdefault(query.options, []).append(at)
    for options, places in alike.items():
        nats = np.array([answers[at].logprobs_nats for at in places], dtype=np.float64)
        no_number = np.isnan(nats).all(axis=1) | np.isposinf(nats).any(axis=1)
        # Of shares nothing is left; of probabilities of their own, none is a measurement.
        highest = np.asarray(np.fmax.reduce(nats, axis=1, initial=-math.inf))
        no_share = np.asarray(~no_number & np.isneginf(highest) & shared)
        for row in np.flatnonzero(no_number | no_share).tolist():
            reasons[places[row]] = NO_SHARES if no_share[row] else NO_NUMBERS
        known = ~(no_number | no_share)
        if not known.any():
            continue
        nats, rows = nats[known], np.array(places)[known]
        percent = options_percent(nats, shared=shared)
        of_group = np.array([option.group for option in options])
        for group in groups:
            own = of_group == group
            unseen = np.isnan(nats[:, own]).all(axis=1) & own.any()
            masses[group][rows] = np.where(unseen, math.nan, percent[:, own].sum(axis=1))
    return reasons, masses


def _bound_masses(
    query: ClozeQuery | GenerateQuery, answer: Answer, masses: Mapping[str, float], *, is_missing: bool
) -> dict[str, float]:
    """Each group's mass between what was seen and what it may have been, and the middle in its own column."""
    names = (*masses, "other_words")
    if is_missing:
        return dict.fromkeys((name + end for name in names for end in ("", LOW, HIGH)), math.nan)
    of_group = np.array([option.group for option in query.options])
    ceilings = np.array(answer.upper_bound_prob or np.zeros(len(of_group)))
    bounds: dict[str, float] = {}
    for group, low in masses.items():
        high = upper_bound_percent(low, float(ceilings[of_group == group].sum()), answer.truncated_prob)
        bounds |= {group: (low + high) / 2, f"{group}{LOW}": low, f"{group}{HIGH}": high}
    # What the groups have beyond what was seen, the other words lack.
    high = 100 * answer.other_prob
    low = max(high - 100 * min(float(ceilings.sum()), answer.truncated_prob), 0.0)
    return bounds | {"other_words": (low + high) / 2, f"other_words{LOW}": low, f"other_words{HIGH}": high}


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
