"""The table of answers to the four tasks of bias in text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undertow.audits.base import PAPER, TEXT, Observations
from undertow.audits.bias_in_text.tasks import MAX_PROBABLE, NO, YES
from undertow.types import Answer, Item, Scores


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
    """A row for each answer; a choice among labels has two, by greedy steps and by the most probable label."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for item, answer in zip(items, scores.answers, strict=True):
        said = _answer_rows(item, answer, list(design["labels"]))
        if design["protocol"] == PAPER:
            said[PAPER] = said.pop("")
        if design["protocol"] == TEXT:
            said.pop(MAX_PROBABLE, None)
        for decoding, row in said.items():
            name = f"{item.id}/{decoding}" if decoding else item.id
            rows.append({"item": name, "model": model, **item.factors, **row})
            if decoding:
                rows[-1]["decoding"] = decoding
    frame = pd.DataFrame(rows)
    for name in [name for name in frame.columns if name.startswith("slot_")]:
        frame[name] = frame[name].fillna("")
    frame["cluster"] = frame["document"]
    return Observations(frame, dict(design))


def _answer_rows(item: Item, answer: Answer, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Texts of one answer by decoding; "" is the decoding of the query."""
    known = not answer.missing_reason
    common: dict[str, Any] = {
        "answer": answer.text.strip(),
        "nats": answer.logprobs_nats[0] if known and answer.logprobs_nats else math.nan,
        "n_dropped_shots": answer.n_dropped_shots,
        "missing_reason": answer.missing_reason,
    }
    if not labels:
        return {"": common}
    common["other_words"] = 100 * answer.other_prob
    nats = np.array(answer.logprobs_nats if known else [math.nan] * len(labels), dtype=np.float64)
    named = {label.casefold(): at for at, label in enumerate(labels)}
    greedy = named.get(common["answer"].casefold(), -1)
    common["nats"] = float(nats[greedy]) if greedy >= 0 else math.nan
    if labels == [YES, NO]:
        return {"": common | {"yes_percent": _share(nats)}}
    if not np.isfinite(nats).any():
        why = answer.missing_reason or "decoding exact: the server does not show how probable each label is"
        best = common | {"answer": "", "nats": math.nan, "missing_reason": why}
    else:
        at = int(np.nanargmax(nats))
        best = common | {"answer": labels[at], "nats": float(nats[at])}
    return {"": common, MAX_PROBABLE: best}


def _share(nats: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    if not np.isfinite(nats).all():
        return math.nan
    return float(100 / (1 + np.exp(nats[1] - nats[0])))
