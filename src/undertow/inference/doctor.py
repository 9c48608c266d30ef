"""What a model can be asked here, and how well this machine does it: loaded, asked sentences that decide their answer, timed.

Knows models and how they are asked; keeps nothing, and reads no stored answer.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undertow import models
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import Progress, RunnerResult
from undertow.inference.sanity_check import SanityCheck, ask_decided, decided_items, judged, shares
from undertow.models.backend.dtype import BFLOAT16, FLOAT16, WITHOUT_ARITHMETIC
from undertow.models.base import FLOAT32, ModelHandle, ModelRequest
from undertow.types import (
    BLANK,
    CHOICE,
    CONTINUATIONS,
    EXTRACTION,
    GENERATION,
    WRITING,
    Answer,
    ClozeQuery,
    GenerateQuery,
    Item,
    kind_of,
)

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
        reading: how many decided sentences it gets right; None where it can be asked none.
        load_s: seconds to load it.
        items_per_s: decided sentences answered a second, by the kind of query that they were asked as; {} without answers.
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
    reading: SanityCheck | None
    load_s: float
    items_per_s: Mapping[str, float]
    dtype: str
    dtype_gap_nats: float = math.nan
    dtype_flips: float = math.nan
    dtype_note: str = "not asked for; add --compare"


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def examine(request: ModelRequest, *, compare_dtypes: bool = False, progress: Progress = _silent) -> Checkup:
    """Load a model, ask it decided sentences, and read them in bfloat16 too if wanted.

    Args:
        request: the model.
        compare_dtypes: whether it is loaded a second time, in the other precision.
        progress: called with (sentences answered, sentences in all).

    Raises:
        UndertowError: it cannot be found or loaded.
    """
    found = models.resolve(request)
    started = time.perf_counter()
    model = found.open()
    load_s = time.perf_counter() - started
    opened = replace(found, open=lambda: model)
    items = decided_items(found)
    asked = _ask(opened, items, progress) if items else None
    reading = judged(items, asked.scores.answers) if asked else None
    checkup = Checkup(
        model=request.name,
        card={name: str(getattr(found.identity, name)) for name in ("family", "source", "revision", "scoring_method")},
        facts=dict(getattr(model, "facts", {})),
        asks=dict(found.capabilities),
        notes=tuple(model.notes),
        reading=reading,
        load_s=load_s,
        items_per_s={kind_of(items[0].query): reading.answered / asked.seconds}
        if asked and reading and reading.answered
        else {},
        dtype=found.identity.dtype,
    )
    if not compare_dtypes:
        return checkup
    gap, flips, why = _dtype_gap(request, opened, items, asked)
    return replace(checkup, dtype_gap_nats=gap, dtype_flips=flips, dtype_note=why)


def _usual_reason(answers: Sequence[Answer]) -> str:
    """Why most of the unscored ones are; "" where there are none."""
    reasons = Counter(answer.missing_reason for answer in answers if answer.missing_reason)
    return reasons.most_common(1)[0][0] if reasons else ""


def _ask(found: ModelHandle, items: Sequence[Item], progress: Progress = _silent) -> RunnerResult:
    """Ask with a store that is forgotten, so that nothing is answered from memory."""
    with tempfile.TemporaryDirectory() as folder, AnswerCache(Path(folder) / "answers.sqlite") as store:
        return ask_decided(found, items, store, progress)


def _dtype_gap(
    request: ModelRequest, opened: ModelHandle, items: Sequence[Item], asked: RunnerResult | None
) -> tuple[float, float, str]:
    """How far answers in the other precision are off, or why that cannot be said."""
    why = _why_not_compared(opened)
    if why or asked is None:
        return math.nan, math.nan, why
    try:
        other = models.resolve(replace(request, dtype=BFLOAT16 if opened.identity.dtype == FLOAT32 else FLOAT32))
        answers = [asked.scores.answers, _ask(other, items).scores.answers]
    except UndertowError as error:
        return math.nan, math.nan, str(error)
    gaps, flips = [], []
    for item, one, two in zip(items, *answers, strict=True):
        if one.missing_reason or two.missing_reason or not isinstance(item.query, (ClozeQuery, GenerateQuery)):
            continue
        gaps.append(_gap_nats(one, two))
        first, second = (shares(item.query, answer) for answer in (one, two))
        flips.append(max(first, key=lambda group: first[group]) != max(second, key=lambda group: second[group]))
    if not gaps:
        return math.nan, math.nan, f"nothing of the sample was scored: {_usual_reason([*answers[0], *answers[1]])}"
    return max(gaps), float(np.mean(flips)), ""


def _why_not_compared(opened: ModelHandle) -> str:
    if opened.identity.dtype == FLOAT16:
        return f"it runs in {FLOAT16}"
    if opened.identity.family in WITHOUT_ARITHMETIC:
        return f"{opened.identity.family} does no arithmetic here"
    if opened.identity.dtype not in (FLOAT32, BFLOAT16):
        return f"it runs in {opened.identity.dtype}"
    return "" if BLANK in opened.capabilities else "it fills no blanks"


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
