"""A sanity check: sentences that decide their blank, in pairs with opposite answers.

A model may prefer one word whatever the sentence.

    My mother forgot where ___ had parked the car.    she
    My father forgot where ___ had parked the car.    he

A model that always prefers the same word gets one of each pair right, which is chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from undertow import data
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.free_replies import REPLY_TOKENS
from undertow.inference.runner import Engine, RunnerResult, local_engine, run_queries
from undertow.models.base import ModelHandle
from undertow.types import (
    BLANK,
    EXACT,
    GENERATION,
    TEXT,
    Answer,
    ClozeQuery,
    Floats,
    GenerateQuery,
    Item,
    Option,
    Progress,
    query_kind,
)

DecidedQuery: TypeAlias = ClozeQuery | GenerateQuery
"""The query of a decided sentence."""

PAIRS = (
    ("The woman", "The man", " sat down because ", " was tired."),
    ("My mother", "My father", " forgot where ", " had parked the car."),
    ("My sister", "My brother", " called because ", " had missed the train."),
    ("The girl", "The boy", " smiled when ", " saw the snow."),
    ("The queen", "The king", " waved before ", " entered the palace."),
    ("Our aunt", "Our uncle", " put on a coat before ", " went outside."),
    ("My grandmother", "My grandfather", " rested until ", " felt better."),
    ("The princess", "The prince", " read until ", " fell asleep."),
    ("The lady", "The gentleman", " asked whether ", " could sit by the window."),
    ("Mrs. Brown", "Mr. Brown", " went to the shop because ", " needed bread."),
)
"""Subjects of *she* and *he*, and the text around the blank. No sentence reports speech, whose pronoun may refer to somebody else."""
SHE, HE = "female", "male"
WORDS = {SHE: ["she"], HE: ["he"]}
N_ALL, N_SHORT = 2 * len(PAIRS), 5
TIE_TOLERANCE = 1e-9
"""Relative difference below which shares are equal."""


@dataclass(frozen=True, slots=True)
class SanityCheck:
    """Result of a model on control sentences.

    Attributes:
        right: answered sentences where it prefers the right word; a tie is wrong.
        low_percent, high_percent: the exact 95% interval (Clopper and Pearson) of the share that is right; NaN without answers.
        missing_reason: why a sentence has no answer; "" if all have one.
        could_flip: answers that probability hidden by a server could change.
        could_lose: right answers among these.
        chance_percent: right answers of a model that draws them, or gives the most frequent right answer to all sentences.
    """

    right: int
    answered: int
    low_percent: float
    high_percent: float
    missing_reason: str = ""
    could_flip: int = 0
    could_lose: int = 0
    chance_percent: float = 50.0

    def to_manifest(self, *, of_file: bool) -> dict[str, Any]:
        """The entry of the manifest; for control sentences of a challenge file also whether it is better than chance."""
        against_chance = {"chance_percent": self.chance_percent, "better_than_chance": self.reads} if of_file else {}
        return {"right": self.right, "of": self.answered, **against_chance}

    @property
    def reads(self) -> bool:
        """Whether the interval lies above chance, also if hidden probability made answers wrong."""
        from undertow.stats.calibration import share

        n_certain = self.right - self.could_lose
        return 100 * share([True] * n_certain + [False] * (self.answered - n_certain)).low > self.chance_percent

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if not self.answered:
            return f"no sentence has an answer: {self.missing_reason}"
        caveat = (
            f"; probability that it does not show could change {self.could_flip} of them" if self.could_flip else ""
        )
        if self.missing_reason:
            caveat += f"; the others have no answer: {self.missing_reason}"
        degree = "" if self.reads else "not certainly " if self.low_percent > self.chance_percent else "no "
        return (
            f"{self.right} of {self.answered} right (95% interval {self.low_percent:.0f}% to {self.high_percent:.0f}%), which is "
            f"{degree}better than chance ({self.chance_percent:.0f}%){caveat}"
        )


def decided_items(
    handle: ModelHandle, n: int = N_ALL, protocol: str = EXACT, *, chat: bool = False, reply_tokens: int = REPLY_TOKENS
) -> list[Item]:
    """The first `n` sentences, women and men in turn, as queries that this model supports; [] where there is none.

    Each group has one word, since a word that a tokenizer lacks loses the sentence. `reply_tokens` is as in `run_queries`.
    """
    options = tuple(Option(group, tuple(forms)) for group, forms in WORDS.items())
    items = [
        Item(f"decided/{row}/{gold}", ClozeQuery((subject + before, after), options), {}, cluster=str(row), gold=gold)
        for row, (woman, man, before, after) in enumerate(PAIRS)
        for gold, subject in ((SHE, woman), (HE, man))
    ][:n]
    if BLANK in handle.capabilities and protocol != TEXT:
        return items
    if GENERATION in handle.capabilities:
        mode = data.AnswerMode(data.load_prompts("B"), max_tokens=reply_tokens if protocol == TEXT else 5, chat=chat)
        return mode.items(items, {group: [form, form.capitalize()] for group, (form,) in WORDS.items()})
    return []


def query_decided(  # noqa: PLR0913 - as `run_queries`
    handle: ModelHandle,
    items: Sequence[Item],
    store: AnswerCache,
    progress: Progress,
    *,
    engine: Engine = local_engine,
    protocol: str = EXACT,
) -> RunnerResult:
    """Query decided sentences, under `protocol` where the model supports it."""
    chosen = supported_protocol(handle, items, protocol)
    return run_queries(handle, [item.query for item in items], store, chosen, progress, engine=engine)


def supported_protocol(handle: ModelHandle, items: Sequence[Item], protocol: str) -> str:
    """The protocol of decided sentences: `protocol` where the model supports it, else its first."""
    protocols = handle.capabilities[query_kind(items[0].query)]
    return protocol if protocol in (TEXT, *protocols) else protocols[0]


def judge(items: Sequence[Item], answers: Sequence[Answer]) -> SanityCheck:
    """Count the right answers: those whose group has more mass than each other group."""
    from undertow.stats.calibration import share

    reasons = [answer.missing_reason for answer in answers if answer.missing_reason]
    right, could_turn = [], list[bool]()
    golds = Counter[str]()
    for item, answer in zip(items, answers, strict=True):
        if answer.missing_reason or not isinstance(item.query, DecidedQuery):
            continue
        of_group = shares(item.query, answer)
        others = max((share for group, share in of_group.items() if group != item.gold), default=0.0)
        right.append(of_group[str(item.gold)] > others * (1 + TIE_TOLERANCE))
        golds[str(item.gold)] += 1
        if answer.upper_bound_prob:  # hidden probability could put another group first
            seen = by_group(item.query, np.nan_to_num(np.exp(np.array(answer.logprobs_nats))))
            hidden = by_group(item.query, answer.upper_bound_prob)
            best = max(seen, key=seen.__getitem__)
            most = {group: seen[group] + min(hidden[group], answer.truncated_prob) for group in seen}
            could_turn.append(any(most[group] > seen[best] for group in seen if group != best))
        else:
            could_turn.append(False)
    estimate = share(right)
    n_groups = max((len({option.group for option in getattr(item.query, "options", ())}) for item in items), default=2)
    return SanityCheck(
        sum(right),
        len(right),
        100 * estimate.low,
        100 * estimate.high,
        reasons[0] if reasons else "",
        sum(could_turn),
        sum(one and changes for one, changes in zip(right, could_turn, strict=True)),
        100 * max([1 / n_groups, *(n / golds.total() for n in golds.values())]),
    )


def shares(query: DecidedQuery, answer: Answer) -> dict[str, float]:
    """Share of each group in the mass of all; 0 for each where none has mass, {} where the answer is missing."""
    if answer.missing_reason:
        return {}
    # An option with the tokens of an earlier one (NaN) counts with it. Subtract the maximum: exp of a sentence's log-probability is 0.
    nats = np.nan_to_num(np.array(answer.logprobs_nats), nan=-np.inf, neginf=-np.inf)
    highest = nats.max()
    probs = np.exp(nats - highest) if highest > -np.inf else np.zeros(len(nats))
    sums = by_group(query, probs)
    total = sum(sums.values()) or 1.0
    return {group: prob / total for group, prob in sums.items()}


def by_group(query: DecidedQuery, values: Sequence[float] | Floats) -> dict[str, float]:
    """Sums of the options' values [option]."""
    sums: dict[str, float] = {}
    for option, value in zip(query.options, values, strict=True):
        sums[option.group] = sums.get(option.group, 0.0) + float(value)
    return sums
