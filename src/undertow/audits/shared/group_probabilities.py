"""Observations from answers: the mass of each word group in percent, and its bounds.

docs/run-folder.md describes the columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.types import LIKELIHOOD, Answer, ClozeQuery, Floats, GenerateQuery, Item, Option, Scores

if TYPE_CHECKING:
    import pandas as pd


NO_NUMBERS = "the model's log-probabilities are no numbers"
NO_SHARES = "the model gives none of the words any probability, so they have no shares"
LOW, HIGH = ".low", ".high"
"""Suffixes of the columns with bounds of a group's mass, for models that show the most probable tokens only."""


def observation_rows(items: Sequence[Item], scores: Scores, groups: Sequence[str], model: str) -> pd.DataFrame:
    """One row for each item.

    If a model does not show the whole distribution, a group's mass is the midpoint of its bounds, which are two further columns. An
    answer with NaN or without any probability is missing with a reason.
    """
    import pandas as pd

    queries = []
    for item in items:
        if not isinstance(item.query, (ClozeQuery, GenerateQuery)):
            raise TypeError(f"word groups are asked of blanks and prompts, not of {type(item.query).__name__}")
        queries.append(item.query)
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
    if any(answer.spaced_nats for answer in scores.answers):
        columns["spaced_logprobs_nats"] = [list(answer.spaced_nats) for answer in scores.answers]
    return pd.DataFrame(columns)


def group_masses(
    queries: Sequence[ClozeQuery | GenerateQuery], answers: Sequence[Answer], groups: Sequence[str], *, shared: bool
) -> tuple[list[str], dict[str, Floats]]:
    """Missing reasons ("" for an answer) [answer], and the mass of each group in percent [answer].

    A mass is NaN for a missing answer and for a group without a visible word.

    Args:
        queries: with options of the groups [answer].
        answers: to the queries; NaN for missing log-probabilities.
        groups: word groups.
        shared: whether masses are shares, normalised over the options (as for sentence likelihoods), or probabilities.
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
        # Without any probability, shares are undefined, but probabilities of 0 are a measurement.
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
    """Lower and upper bound of each group's mass, and their midpoint in the group's column."""
    names = (*masses, "other_words")
    if is_missing:
        return dict.fromkeys((name + end for name in names for end in ("", LOW, HIGH)), math.nan)
    of_group = np.array([option.group for option in query.options])
    ceilings = np.array(answer.upper_bound_prob or np.zeros(len(of_group)))
    bounds: dict[str, float] = {}
    for group, low in masses.items():
        high = upper_bound_percent(low, float(ceilings[of_group == group].sum()), answer.truncated_prob)
        bounds |= {group: (low + high) / 2, f"{group}{LOW}": low, f"{group}{HIGH}": high}
    # Hidden probability that belongs to the groups is missing from other words.
    high = 100 * answer.other_prob
    # What belongs to one listed word or another, and is sure for none, belongs to no other word.
    of_words = max(1.0 - float(np.nansum(list(masses.values()))) / 100 - answer.other_prob, 0.0)
    low = max(high - 100 * min(float(ceilings.sum()), max(answer.truncated_prob - of_words, 0.0)), 0.0)
    return bounds | {"other_words": (low + high) / 2, f"other_words{LOW}": low, f"other_words{HIGH}": high}


def options_percent(logprobs_nats: Floats, *, shared: bool) -> Floats:
    """Mass of each option in percent [..., option]; 0 for a repeated spelling (NaN), which counts with the first one.

    Args:
        logprobs_nats: of answers to the same query [..., option]; at least one option of each has a probability.
        shared: as in `group_masses`.
    """
    highest = np.nanmax(logprobs_nats, axis=-1, keepdims=True) if shared else 0.0
    percent: Floats = 100 * np.nan_to_num(np.exp(logprobs_nats - highest))
    return percent * (100 / percent.sum(axis=-1, keepdims=True)) if shared else percent


def upper_bound_percent(least: float, ceiling_prob: float, truncated_prob: float) -> float:
    """Upper bound of a mass in percent, given its visible part."""
    return min(least + 100 * min(ceiling_prob, truncated_prob), 100.0)
