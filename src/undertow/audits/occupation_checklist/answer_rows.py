"""Answers to the occupation checklist as rows, and the attributes that a model grants by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.audits.occupation_checklist.plan import AT_RANDOM, GREEDY, PEOPLE, Lists, Settings
from undertow.data.occupations import question_templates as templates
from undertow.data.occupations.occupation_set import Attribute, NamePair, Occupation
from undertow.metrics.checklist import decisions
from undertow.types import Answer, ContinuationQuery, Item, MultipleChoiceQuery, Scores, SpanQuery, digest


def codes_of(question_type: str) -> tuple[str, ...]:
    """Codes of the possible answers in the table."""
    if question_type in (templates.SINGLE, templates.SINGLE_NEGATED):
        return PEOPLE
    return decisions.CHOICES if question_type == templates.MULTIPLE else ("yes", "no")


def answer_row(item: Item, answer: Answer) -> dict[str, Any]:
    """Shares of the possible answers in percent, and the chosen answer.

    For an extractive model, the answer is Yes if the best span is more probable than no answer.
    """
    query, codes = item.query, codes_of(str(item.factors["question_type"]))
    row: dict[str, Any] = dict.fromkeys(("yes", *decisions.CHOICES), math.nan) | {
        "answer": "", "whole": False, "other_words": 100 * answer.other_prob, "missing_reason": answer.missing_reason,
    }  # fmt: skip
    if answer.missing_reason:
        return row
    nats = np.array(answer.logprobs_nats, dtype=np.float64)
    labels: tuple[str, ...] = ()
    if isinstance(query, SpanQuery):
        *pieces, none, best_piece = nats
        if np.isnan(none) and codes != PEOPLE:
            return row | {"missing_reason": "the model gives no probability that the passage has no answer"}
        nats = np.array([best_piece, none] if codes[0] == "yes" else [*pieces, none][: len(codes)])
    elif isinstance(query, (MultipleChoiceQuery, ContinuationQuery)):
        labels = query.labels if isinstance(query, MultipleChoiceQuery) else query.continuations
    text = answer.text.strip().casefold().removesuffix(".")
    answered = {label.strip().casefold(): code for label, code in zip(labels, codes, strict=False)}.get(text, "")
    if len(nats) == len(codes) and not np.isnan(nats).any() and np.isfinite(nats).any():
        shares = np.exp(nats - nats.max())
        percents = 100 * shares / shares.sum()
        second, first = np.sort(percents)[-2:]
        best = decisions.TIED if first - second <= decisions.NO_MARGIN else codes[int(nats.argmax())]
        row |= dict(zip(codes, percents.tolist(), strict=True)) | {"answer": answered or best}
    elif answered:
        # A server without probabilities of the answers: only the chosen answer is known.
        row |= {code: 100.0 * (code == answered) for code in codes} | {"whole": True, "answer": answered}
    else:
        return row | {"missing_reason": f"the answer {answer.text.strip()!r} {decisions.NONE_OF_THEM}"}
    row.pop("no", None)
    return row


def select_granted(
    items: Sequence[Item], scores: Scores, settings: Settings, seed: int
) -> Callable[[NamePair, Occupation], Lists]:
    """Granted attributes, by the mean probability of Yes over both orders; an attribute without an answer is not granted.

    With `--grants random`, each person has each attribute with probability 1/2, whatever the model answers and the design includes.
    """
    shares: dict[tuple[str, ...], list[float]] = {}
    for item, answer in zip(items, scores.answers, strict=True):
        if item.factors["question_type"] == templates.ATTRIBUTE and item.factors["wording"] == 1:
            answered = answer_row(item, answer)
            if settings.decision == GREEDY:
                answered["yes"] = 100.0 * (answered["answer"] == "yes") if answered["answer"] else math.nan
            key = tuple(str(item.factors[name]) for name in ("pair", "subject", "category", "attribute"))
            shares.setdefault(key, []).append(answered["yes"])

    def granted(pair: NamePair, person: str, attribute: Attribute) -> bool:
        if settings.grants == AT_RANDOM:
            return int(digest([seed, pair.name, person, attribute.category, attribute.name])[0], 16) < 8
        values = shares.get((pair.name, person, attribute.category, attribute.name), [math.nan])
        return bool(decisions.decide_yes(np.array(sum(values) / len(values) / 100), settings.margin) == 1)

    def lists(pair: NamePair, occupation: Occupation) -> Lists:
        woman, man = ([one for one in occupation.attributes if granted(pair, person, one)] for person in PEOPLE)
        return woman, man

    return lists
