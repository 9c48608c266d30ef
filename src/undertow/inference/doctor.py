"""Check a model on this machine: supported queries, control sentences, speed, effect of bfloat16."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undertow import models
from undertow.errors import LOGGER, UndertowError, counted
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.free_replies import REPLY_TOKENS
from undertow.inference.runner import KIND_WORDS, RunnerResult
from undertow.inference.sanity_check import DecidedQuery, SanityCheck, decided_items, judge, query_decided, shares
from undertow.models.backend.dtype import BFLOAT16, FLOAT16, WITHOUT_ARITHMETIC
from undertow.models.backend.execution import gpu_name, n_cores
from undertow.models.base import FLOAT32, ModelHandle, ModelRequest
from undertow.types import BLANK, EXACT, GENERATION, TEXT, Item, Progress, no_progress, query_kind


@dataclass(frozen=True, slots=True)
class Checkup:
    """Results of a check.

    Attributes:
        model: the name that the user gave.
        facts: parameters, objective and training, if known.
        capabilities: supported kinds of query, each with its protocols.
        reading: result on the control sentences; None if it supports none.
        items_per_s: control sentences answered per second, by kind of query; {} without answers.
        dtype_gap_nats: largest difference of a log-probability between bfloat16 and float32 on the sample; NaN if not compared.
        dtype_flips: share of the sample in which the most probable group differs between the two; NaN if not compared.
        dtype_note: why the two were not compared; "" if they were.
    """

    model: str
    identity: Mapping[str, str]
    facts: Mapping[str, str | float]
    capabilities: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    reading: SanityCheck | None
    load_s: float
    items_per_s: Mapping[str, float]
    dtype: str
    dtype_gap_nats: float = math.nan
    dtype_flips: float = math.nan
    dtype_note: str = "not requested; add --compare"


def examine(  # noqa: PLR0913 - an option each
    request: ModelRequest,
    *,
    chat: bool = False,
    protocol: str = EXACT,
    max_new_tokens: int = 0,
    compare_dtypes: bool = False,
    progress: Progress = no_progress,
) -> Checkup:
    """Load a model, query control sentences, and compare dtypes if requested, for which it is loaded again in the other precision.

    Args:
        request: the model.
        chat: ask by prompts in its chat template.
        protocol: `EXACT`, or `TEXT` for free replies.
        max_new_tokens: maximum number of tokens of a free reply; 0 for 256.
        compare_dtypes: also compare bfloat16 with float32.
        progress: called with (sentences answered, sentences in all).

    Raises:
        UndertowError: the model cannot be found or loaded, or an option does not fit it or another option.
    """
    if protocol not in (EXACT, TEXT):
        raise UndertowError(f"--protocol: {protocol!r} is neither {EXACT} nor {TEXT}; use one of these")
    if compare_dtypes and protocol == TEXT:
        raise UndertowError("--compare: free replies have no log-probabilities to compare; leave --protocol text out")
    if max_new_tokens and protocol != TEXT:
        raise UndertowError(f"--max-new-tokens limits free replies; add --protocol {TEXT}, or leave it out")
    handle = models.resolve(request)
    models.refuse_unused(request.settings, [handle])
    if chat and GENERATION not in handle.capabilities:
        raise UndertowError(f"--chat: {handle.identity.name} answers no prompts; leave --chat out")
    started = time.perf_counter()
    model = handle.open()
    load_s = time.perf_counter() - started
    opened = replace(handle, open=lambda: model)
    capabilities = {GENERATION: handle.capabilities[GENERATION]} if chat else handle.capabilities
    items = decided_items(
        replace(handle, capabilities=capabilities),
        protocol=protocol,
        chat=chat,
        reply_tokens=max_new_tokens or REPLY_TOKENS,
    )
    LOGGER.info("answer %d control sentences", len(items))
    result = _query_sentences(opened, items, protocol, progress) if items else None
    reading = judge(items, result.scores.answers) if result else None
    parts = ("family", "source", "revision", "scoring_method")
    checkup = Checkup(
        model=request.report_name,
        identity={name: str(getattr(handle.identity, name)) for name in parts},
        facts=dict(getattr(model, "facts", {})),
        capabilities=dict(model.supported() if hasattr(model, "supported") else handle.capabilities),
        notes=tuple(model.notes),
        reading=reading,
        load_s=load_s,
        items_per_s={query_kind(items[0].query): reading.answered / result.seconds}
        if result and reading and reading.answered
        else {},
        dtype=handle.identity.dtype,
    )
    if not compare_dtypes:
        return checkup
    if why := _why_not_compared(opened):
        return replace(checkup, dtype_note=why)
    gap, flips, why = _dtype_gap(request, opened, items, result) if result else (math.nan, math.nan, "")
    return replace(checkup, dtype_gap_nats=gap, dtype_flips=flips, dtype_note=why)


def _query_sentences(
    handle: ModelHandle, items: Sequence[Item], protocol: str = EXACT, progress: Progress = no_progress
) -> RunnerResult:
    """Query with a temporary cache, so that every answer is computed."""
    with tempfile.TemporaryDirectory() as folder, AnswerCache(Path(folder) / "answers.sqlite") as store:
        return query_decided(handle, items, store, progress, protocol=protocol)


def _dtype_gap(
    request: ModelRequest, opened: ModelHandle, items: Sequence[Item], result: RunnerResult
) -> tuple[float, float, str]:
    """Largest gap and share of flips between the two precisions, or why they cannot be compared."""
    try:
        LOGGER.info("load it again, to compare precisions")
        other = models.resolve(replace(request, dtype=BFLOAT16 if opened.identity.dtype == FLOAT32 else FLOAT32))
        answers = [result.scores.answers, _query_sentences(other, items).scores.answers]
    except UndertowError as error:
        return math.nan, math.nan, str(error)
    gaps, flips = [], []
    for item, one, two in zip(items, *answers, strict=True):
        if one.missing_reason or two.missing_reason or not isinstance(item.query, DecidedQuery):
            continue
        # Two that are both minus infinity, or both missing, do not differ.
        nats = [np.nan_to_num(np.array(answer.logprobs_nats), neginf=-np.inf) for answer in (one, two)]
        differ = nats[0] != nats[1]
        gaps.append(float(np.abs(nats[0][differ] - nats[1][differ]).max(initial=0.0)))
        first, second = (shares(item.query, answer) for answer in (one, two))
        flips.append(max(first, key=lambda group: first[group]) != max(second, key=lambda group: second[group]))
    if not gaps:
        reasons = Counter(answer.missing_reason for some in answers for answer in some if answer.missing_reason)
        usual = reasons.most_common(1)[0][0] if reasons else ""
        return math.nan, math.nan, f"no answer of the sample has numbers: {usual}"
    return max(gaps), float(np.mean(flips)), ""


def _why_not_compared(opened: ModelHandle) -> str:
    if opened.identity.dtype == FLOAT16:
        return f"it runs in {FLOAT16}"
    if opened.identity.family in WITHOUT_ARITHMETIC:
        return f"{opened.identity.family} computes nothing on this machine"
    if opened.identity.dtype not in (FLOAT32, BFLOAT16):
        return f"it runs in {opened.identity.dtype}"
    return "" if BLANK in opened.capabilities else "it fills no blanks"


def machine(device: str = "cpu") -> str:
    """The processor cores available to this process, and the GPU that networks on `device` compute on."""
    return " and ".join(filter(None, [counted(n_cores(), "core"), gpu_name(device)]))


def kinds(checkup: Checkup) -> dict[str, str]:
    """Every kind of query, with the protocols that the model supports."""
    descriptions = {kind: kind for kind in checkup.capabilities} | KIND_WORDS
    return {
        words: f"yes, by protocol {' or '.join(checkup.capabilities[kind])}" if kind in checkup.capabilities else "no"
        for kind, words in descriptions.items()
    }
