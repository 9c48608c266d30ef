"""What a model can be asked here, and how well this machine does it: loaded, asked one sentence, timed.

Knows models and how they are asked; keeps nothing, and reads no stored answer.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from undertow import challenge, models
from undertow.models.base import EXACT, FLOAT32, Found, Request
from undertow.models.precision import BFLOAT16, FLOAT16, WITHOUT_ARITHMETIC
from undertow.scoring.ask import Asked, ask
from undertow.scoring.store import AnswerStore
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXTRACTION,
    GENERATION,
    WRITING,
    Answer,
    Blank,
    Floats,
    Generation,
    Item,
    UndertowError,
    kind_of,
)

Asking: TypeAlias = Blank | Generation
"""What a check-up asks."""

KNOWN = "In 1953, {blank} became a mother."
"""A sentence that decides its blank, though every model may err: *she* is right."""
KNOWN_CASE = "nominative"
RIGHT = "female"
ALIKE = 1e-9
"""Shares that differ by less, in proportion, are the same."""
TIMED = 48
"""Blanks of the challenge set that speed is measured on; eight prompts, which take more."""
TIMED_PROMPTS = 8
CAN = {
    BLANK: "fill a blank among given words",
    CONTINUATIONS: "compare how a text goes on",
    GENERATION: "answer a prompt",
    CHOICE: "choose one of several labels",
    WRITING: "write an answer within limits",
    EXTRACTION: "answer a question from a passage",
}
"""Kinds of query, in the words of a reader; a family that can be asked another kind adds its name."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found.

    Attributes:
        model: as it was named.
        card: who it is, field by field.
        facts: parameters, objective and training, where known.
        asks: kinds of query that it can be asked, each with its protocols.
        notes: how it is read.
        sentence: the known sentence; "" where none could be asked.
        percent: what the model gives each word group there, in percent of all three; NaN where unscored.
        unscored: why the known sentence has no numbers; "" where it has.
        on_shown: whether another group could be the preferred one, had the model shown its whole distribution.
        load_s: seconds to load it.
        items_per_s: distinct queries a second, by kind, after a first one; of those that were answered.
        untimed: why a kind has no speed, by kind: the reason that most of its queries have no answer.
        dtype: what its arithmetic runs in.
        dtype_gap_nats: largest difference of a log-probability between bfloat16 and float32 on the sample; NaN if not compared.
        dtype_flips: share of the sample in which the most probable group differs between the two; NaN if not compared.
        dtype_note: why the two were not compared; "" where they were.
    """

    model: str
    card: Mapping[str, str]
    facts: Mapping[str, str | float]
    asks: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    sentence: str
    percent: Mapping[str, float]
    unscored: str
    load_s: float
    items_per_s: Mapping[str, float]
    dtype: str
    on_shown: bool = False
    untimed: Mapping[str, str] = field(default_factory=dict)
    dtype_gap_nats: float = math.nan
    dtype_flips: float = math.nan
    dtype_note: str = ""

    @property
    def verdict(self) -> str:
        """One sentence: whether the known sentence was got right."""
        if self.unscored:
            return f"the known sentence has no answer: {self.unscored}"
        if not self.percent:
            return "no known sentence could be asked"
        if not any(self.percent.values()):
            return f"it gives none of these words anything{' that it shows' if self.on_shown else ''}"
        best = max(self.percent, key=lambda group: self.percent[group])
        level = [
            group for group in self.percent if math.isclose(self.percent[group], self.percent[best], rel_tol=ALIKE)
        ]
        if len(level) > 1:
            return f"it prefers none of {', '.join(level)}: their words are as probable as each other"
        right = "right" if best == RIGHT else "wrong: the sentence says she"
        shown = "; this rests on what it shows, and what it does not show could turn it" if self.on_shown else ""
        return f"it prefers {best} words ({self.percent[best]:.0f}%), which is {right}{shown}"


def examine(request: Request, *, compare_dtypes: bool = True) -> Checkup:
    """Load a model, ask it, time it, and read it in bfloat16 too.

    Args:
        request: the model.
        compare_dtypes: whether it is loaded a second time, in the other precision.

    Raises:
        UndertowError: it cannot be found or loaded.
    """
    found = models.find(request)
    started = time.perf_counter()
    model = found.open()
    load_s = time.perf_counter() - started
    opened = replace(found, open=lambda: model)
    known = _known(found)
    answer = _ask(opened, [known]).scores.answers[0] if known else None
    speeds, untimed = _speeds(opened)
    gap, flips, why = _dtype_gap(request, opened) if compare_dtypes else (math.nan, math.nan, "not asked for")
    return Checkup(
        model=request.name,
        card={name: str(getattr(found.card, name)) for name in ("family", "source", "revision", "readout")},
        facts=dict(getattr(model, "facts", {})),
        asks=dict(found.asks),
        notes=tuple(model.notes),
        sentence=known.shown() if known else "",
        percent={group: 100 * share for group, share in _shares(known, answer).items()} if known and answer else {},
        unscored=answer.unscored if answer else "",
        load_s=load_s,
        items_per_s=speeds,
        dtype=found.card.dtype,
        on_shown=known is not None and answer is not None and _could_turn(known, answer),
        untimed=untimed,
        dtype_gap_nats=gap,
        dtype_flips=flips,
        dtype_note=why,
    )


def _known(found: Found) -> Asking | None:
    """The known sentence, in a form that this model can be asked; one word a group, since a word that is unknown loses a blank."""
    (item,) = challenge.single("known", KNOWN, case=KNOWN_CASE).plain()
    if BLANK in found.asks:
        return _asking(item)
    if GENERATION in found.asks:
        (prompted,) = challenge.Answering(challenge.load_prompts("B"), max_tokens=5).items([item], _watched())
        return _asking(prompted)
    return None


def _watched() -> dict[str, list[str]]:
    """Words that are looked for in an answer; one that is unknown there loses nothing else."""
    return challenge.watched({"female": ["she"], "male": ["he"], "neutral": ["they"]})


def _asking(item: Item) -> Asking:
    if not isinstance(item.query, (Blank, Generation)):
        raise TypeError("a check-up asks blanks and prompts")
    return item.query


def _shares(query: Asking, answer: Answer) -> dict[str, float]:
    """What each group has of what all have; 0 for each where none has anything, {} where unscored."""
    if answer.unscored:
        return {}
    # An option that is spelled like an earlier one (NaN) counts with it. Whole sentences are too improbable for exp alone.
    nats = np.nan_to_num(np.array(answer.logprobs_nats), nan=-np.inf, neginf=-np.inf)
    highest = nats.max()
    probs = np.exp(nats - highest) if highest > -np.inf else np.zeros(len(nats))
    by_group = _by_group(query, probs)
    total = sum(by_group.values()) or 1.0
    return {group: prob / total for group, prob in by_group.items()}


def _by_group(query: Asking, values: Sequence[float] | Floats) -> dict[str, float]:
    """Sums of the options' values [option]."""
    sums: dict[str, float] = {}
    for option, value in zip(query.options, values, strict=True):
        sums[option.group] = sums.get(option.group, 0.0) + float(value)
    return sums


def _could_turn(query: Asking, answer: Answer) -> bool:
    """Whether what was not shown could put another group before the one that has most of what was."""
    if answer.unscored or not answer.ceilings_prob:
        return False
    seen = _by_group(query, np.nan_to_num(np.exp(np.array(answer.logprobs_nats))))
    hidden = _by_group(query, answer.ceilings_prob)
    best = max(seen, key=lambda group: seen[group])
    most = {group: seen[group] + min(hidden[group], answer.unseen_prob) for group in seen}
    return any(most[group] > seen[best] for group in seen if group != best)


def _sample(found: Found) -> dict[str, list[Asking]]:
    """Queries of each kind that speed is measured on."""
    items = challenge.load("mgc").items()
    spread = items[:: len(items) // TIMED][:TIMED]
    sample: dict[str, list[Asking]] = {}
    if BLANK in found.asks:
        sample[BLANK] = [_asking(item) for item in spread]
    if GENERATION in found.asks:
        how = challenge.Answering(challenge.load_prompts("B"), max_tokens=10)
        sample[GENERATION] = [_asking(item) for item in how.items(spread[:TIMED_PROMPTS], _watched())]
    return sample


def _speeds(found: Found) -> tuple[dict[str, float], dict[str, str]]:
    """Queries a second by kind, each after one that sets up kernels and threads; and why a kind has no speed."""
    speeds, untimed = {}, {}
    for kind, queries in _sample(found).items():
        _ask(found, queries[:1])
        started = time.perf_counter()
        answers = _ask(found, queries[1:]).scores.answers
        took_s = time.perf_counter() - started
        n_answered = sum(not answer.unscored for answer in answers)
        if n_answered:
            speeds[kind] = n_answered / took_s
        else:
            untimed[kind] = _usual_reason(answers)
    return speeds, untimed


def _usual_reason(answers: Sequence[Answer]) -> str:
    """Why most of the unscored ones are; "" where there are none."""
    reasons = Counter(answer.unscored for answer in answers if answer.unscored)
    return reasons.most_common(1)[0][0] if reasons else ""


def _ask(found: Found, queries: Sequence[Asking]) -> Asked:
    """Ask queries of one kind with a store that is forgotten, so that nothing is answered from memory."""
    with tempfile.TemporaryDirectory() as folder, AnswerStore(Path(folder) / "answers.sqlite") as store:
        protocols = found.asks[kind_of(queries[0])]
        return ask(found, queries, store, EXACT if EXACT in protocols else protocols[0], lambda done, total: None)


def _dtype_gap(request: Request, opened: Found) -> tuple[float, float, str]:
    """How far answers in the other precision are off, or why that cannot be said."""
    why = _why_not_compared(opened)
    if why:
        return math.nan, math.nan, why
    sample = _sample(opened)[BLANK]
    try:
        other = models.find(replace(request, dtype=BFLOAT16 if opened.card.dtype == FLOAT32 else FLOAT32))
        answers = [_ask(found, sample).scores.answers for found in (opened, other)]
    except UndertowError as error:
        return math.nan, math.nan, str(error)
    gaps, flips = [], []
    for query, one, two in zip(sample, *answers, strict=True):
        if one.unscored or two.unscored:
            continue
        gaps.append(_gap_nats(one, two))
        first, second = (_shares(query, answer) for answer in (one, two))
        flips.append(max(first, key=lambda group: first[group]) != max(second, key=lambda group: second[group]))
    if not gaps:
        return math.nan, math.nan, f"nothing of the sample was scored: {_usual_reason([*answers[0], *answers[1]])}"
    return max(gaps), float(np.mean(flips)), ""


def _why_not_compared(opened: Found) -> str:
    if opened.card.dtype == FLOAT16:
        return f"it runs in {FLOAT16}"
    if opened.card.family in WITHOUT_ARITHMETIC:
        return f"{opened.card.family} does no arithmetic here"
    if opened.card.dtype not in (FLOAT32, BFLOAT16):
        return f"it runs in {opened.card.dtype}"
    return "" if BLANK in opened.asks else "it fills no blanks"


def _gap_nats(one: Answer, two: Answer) -> float:
    """Largest difference of a log-probability; two that are both minus infinity, or both missing, do not differ."""
    first, second = (np.nan_to_num(np.array(answer.logprobs_nats), neginf=-np.inf) for answer in (one, two))
    differ = first != second
    return float(np.abs(first[differ] - second[differ]).max(initial=0.0))


def machine() -> str:
    """The processor cores that are free to use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} core{'s' if cores != 1 else ''}"


def kinds(checkup: Checkup) -> dict[str, str]:
    """Every kind of query, and whether and how the model can be asked it."""
    said = {kind: kind for kind in checkup.asks} | CAN
    return {
        words: f"yes, by protocol {' or '.join(checkup.asks[kind])}" if kind in checkup.asks else "no"
        for kind, words in said.items()
    }
