"""What a model can be asked here, and how well this machine does it: loaded, asked a sentence or two, timed.

Knows models and how they are asked; keeps nothing, and reads no stored answer.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undertow import challenge, models
from undertow.models.base import EXACT, FLOAT32, Found, Request
from undertow.scoring.ask import Asked, ask
from undertow.scoring.store import AnswerStore
from undertow.types import BLANK, CONTINUATIONS, GENERATION, Answer, Blank, Continuations, Query, UndertowError

BFLOAT16 = "bfloat16"
KNOWN = "In {year}, {blank} became a mother."
"""A sentence that decides its blank, though every model may err: *she* is right."""
YEARS = (1953, 1987)
TIMED = 48
"""Blanks of the challenge set that speed is measured on; eight prompts, which take more."""
TIMED_PROMPTS = 8
CAN = {
    BLANK: "fill a blank among given words",
    CONTINUATIONS: "compare how a text goes on",
    GENERATION: "answer a prompt",
    "span": "point to an answer in a passage",
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
        load_s: seconds to load it.
        items_per_s: distinct queries a second, by kind, after a first one.
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
        best = max(self.percent, key=lambda group: self.percent[group])
        right = "right" if best == "female" else "wrong: the sentence says she"
        return f"it prefers {best} words ({self.percent[best]:.0f}%), which is {right}"


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
    known, sentence = _known(found)
    asked = _ask(opened, known) if known else None
    percent, unscored = _percent(known, asked)
    speeds = {kind: _items_per_s(opened, queries) for kind, queries in _sample(found).items()}
    gap, flips, why = _dtype_gap(request, opened) if compare_dtypes else (math.nan, math.nan, "not asked for")
    return Checkup(
        model=request.name,
        card={name: str(getattr(found.card, name)) for name in ("family", "source", "revision", "readout")},
        facts=dict(getattr(model, "facts", {})),
        asks=dict(found.asks),
        notes=tuple(model.notes),
        sentence=sentence,
        percent=percent,
        unscored=unscored,
        load_s=load_s,
        items_per_s=speeds,
        dtype=found.card.dtype,
        dtype_gap_nats=gap,
        dtype_flips=flips,
        dtype_note=why,
    )


def _known(found: Found) -> tuple[list[Query], str]:
    """The known sentence, in a form that this model can be asked; [] if there is none."""
    sentences = [challenge.single(str(year), KNOWN.replace("{year}", str(year))).plain()[0] for year in YEARS]
    blanks: list[Query] = [item.query for item in sentences]
    if BLANK in found.asks:
        return blanks, _shown(blanks[0])
    if GENERATION in found.asks:
        (prompt,) = challenge.load_prompts("B")
        words = challenge.watched({"female": ["she"], "male": ["he"], "neutral": ["they"]})
        prompted = challenge.Answering((prompt,), max_tokens=5).items(sentences, words)
        return [item.query for item in prompted], _shown(prompted[0].query)
    return [], ""


def _shown(query: Query) -> str:
    return query.context if isinstance(query, Continuations) else query.shown()


def _percent(known: Sequence[Query], asked: Asked | None) -> tuple[dict[str, float], str]:
    if asked is None:
        return {}, ""
    query, answer = known[0], asked.scores.answers[0]
    if answer.unscored or isinstance(query, Continuations):
        return {}, answer.unscored
    shares = _shares(query, answer)
    return {group: 100 * share for group, share in shares.items()}, ""


def _shares(query: Query, answer: Answer) -> dict[str, float]:
    """What each group has of what all have."""
    options = () if isinstance(query, Continuations) else query.options
    groups = dict.fromkeys(option.group for option in options)
    probs = np.nan_to_num(np.exp(np.array(answer.logprobs_nats)))
    total = float(probs.sum()) or 1.0
    return {
        group: float(sum(prob for option, prob in zip(options, probs, strict=True) if option.group == group)) / total
        for group in groups
    }


def _sample(found: Found) -> dict[str, list[Query]]:
    """Queries of each kind that speed is measured on."""
    items = challenge.load("mgc").items()
    spread = items[:: len(items) // TIMED][:TIMED]
    sample: dict[str, list[Query]] = {}
    if BLANK in found.asks:
        sample[BLANK] = [item.query for item in spread]
    if GENERATION in found.asks:
        words = challenge.watched({"female": ["she"], "male": ["he"], "neutral": ["they"]})
        prompted = challenge.Answering(challenge.load_prompts("B"), max_tokens=10).items(spread[:TIMED_PROMPTS], words)
        sample[GENERATION] = [item.query for item in prompted]
    return sample


def _items_per_s(found: Found, queries: Sequence[Query]) -> float:
    """After one query that sets up kernels and threads."""
    _ask(found, queries[:1])
    started = time.perf_counter()
    _ask(found, queries[1:])
    return (len(queries) - 1) / (time.perf_counter() - started)


def _ask(found: Found, queries: Sequence[Query]) -> Asked:
    """Ask with a store that is forgotten, so that nothing is answered from memory."""
    with tempfile.TemporaryDirectory() as folder, AnswerStore(Path(folder) / "answers.sqlite") as store:
        protocols = next(iter(found.asks.values()))
        return ask(found, queries, store, EXACT if EXACT in protocols else protocols[0], lambda done, total: None)


def _dtype_gap(request: Request, opened: Found) -> tuple[float, float, str]:
    """How far answers in the other precision are off, or why that cannot be said."""
    if request.dtype not in (FLOAT32, BFLOAT16) or opened.card.dtype != request.dtype:
        return math.nan, math.nan, f"it runs in {opened.card.dtype}"
    if BLANK not in opened.asks:
        return math.nan, math.nan, "it fills no blanks"
    other = models.find(replace(request, dtype=BFLOAT16 if request.dtype == FLOAT32 else FLOAT32))
    sample = _sample(opened)[BLANK]
    try:
        answers = [_ask(found, sample).scores.answers for found in (opened, other)]
    except UndertowError as error:
        return math.nan, math.nan, str(error)
    gaps, flips = [], []
    for query, one, two in zip(sample, *answers, strict=True):
        if one.unscored or two.unscored or not isinstance(query, Blank):
            continue
        difference = np.array(one.logprobs_nats) - np.array(two.logprobs_nats)
        gaps.append(float(np.nanmax(np.abs(difference))))
        first, second = (_shares(query, answer) for answer in (one, two))
        flips.append(max(first, key=lambda group: first[group]) != max(second, key=lambda group: second[group]))
    if not gaps:
        return math.nan, math.nan, "nothing of the sample was scored"
    return max(gaps), float(np.mean(flips)), ""


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
