"""The table of answers to the four tasks of bias in text: from a run, or from recorded answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from undertow.audits.base import Observations
from undertow.audits.bias_in_text.tasks import FREE_REPLIES, MAX_PROBABLE, NO, YES, Task
from undertow.audits.recorded_tables import Table, read_cells, unread_note
from undertow.data.documents.document_set import DIMENSIONS, is_reserved_name
from undertow.data.documents.few_shot import NO_SHOTS, SAMPLINGS
from undertow.data.replies.answer_rules import CHOICE, REWRITE, SPAN, YES_NO, Question, Reading, rules
from undertow.data.replies.reader import read
from undertow.errors import UndertowError
from undertow.inference.free_replies import MISSING_REASONS
from undertow.types import EXACT, PAPER, TEXT, Answer, Item, Scores


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
    """A row for each answer, and two for a choice among labels: the greedy and the most probable label."""
    rows: list[dict[str, Any]] = []
    for item, answer in zip(items, scores.answers, strict=True):
        by_decoding = _answer_rows(item, answer, list(design["labels"]))
        if design["protocol"] == PAPER:
            by_decoding[PAPER] = by_decoding.pop("")
        if design["protocol"] == TEXT:
            by_decoding = {"": {**by_decoding[""], "decoding": FREE_REPLIES[str(item.factors["decoding"])]}}
        for decoding, row in by_decoding.items():
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
        is_known = np.isfinite(nats).all()
        return {"": common | {"yes_percent": float(100 / (1 + np.exp(nats[1] - nats[0]))) if is_known else math.nan}}
    if not np.isfinite(nats).any():
        why = answer.missing_reason or "decoding exact: the server does not return the probability of each label"
        best = common | {"answer": "", "nats": math.nan, "missing_reason": why}
    else:
        at = int(np.nanargmax(nats))
        best = common | {"answer": labels[at], "nats": float(nats[at])}
    return {"": common, MAX_PROBABLE: best}


REQUIRED = ("document", "gold", "answer")
DEFAULTS: dict[str, str | int | float] = {
    "model": "recorded", "dimension": "", "text": "", "description_class": "recorded", "wording": "", "shots": 0,
    "sampling": "", "draw": 0, "decoding": "recorded", "missing_reason": "", "n_dropped_shots": 0, "nats": math.nan,
}  # fmt: skip
"""Default values of missing columns; the default sampling depends on the number of examples."""
CELL = ("model", "description_class", "wording", "shots", "sampling", "draw", "decoding")
"""Columns that define a cell; within a cell, each document has one answer."""
COUNTS = ("shots", "draw", "n_dropped_shots", "n_shots")
MAX_COUNT = 10**9
NUMBERS = {"other_words": (0.0, 100.0), "yes_percent": (0.0, 100.0), "nats": (-math.inf, 1e-6)}
"""Numeric columns of the observations, possibly empty, with their ranges; a log-probability may be rounded."""
NO_ANSWER = "the answer is empty"
NO_LABEL = f"the answer is none of the labels; if it is a free reply, score it with --protocol {TEXT}"
"""Reason of a missing recorded answer. Such an answer does not count as wrong, because its meaning is unknown."""

QUESTIONS: Mapping[str, tuple[str, str]] = {
    "bias-diagnosis": (YES_NO, "Is there bias in the previous text?"),
    "bias-identification": (CHOICE, "What type of bias is present in the previous text?"),
    "bias-extraction": (SPAN, ""),
    "bias-rephrasing": (REWRITE, ""),
}
"""Kind of the question that a free reply answers, by task, and its text without a wording; a generated text needs no question."""


def read_answers(path: Path | Table, task: Task, protocol: str) -> tuple[Observations, str]:
    """Read a CSV or TSV table with `document, gold, answer` and optionally factors of the observations of a run.

    An answer that is none of the labels (ignoring case, white space around it and a full stop) is missing with a reason. Documents with
    the same `cluster` are resampled and sign-flipped together.

    Args:
        path: the table.
        task: which of the four tasks it belongs to.
        protocol: "" or `exact`; or `text` for free replies, in which the answer reader finds the answers.
    """
    if protocol not in ("", EXACT, TEXT):
        known = "is for sentences with a blank" if protocol == PAPER else "is unknown"
        raise UndertowError(
            f"{path}: protocol {protocol!r} {known}; leave --protocol out, or use {TEXT} for free replies"
        )
    table = read_cells(path)
    table.check_columns(REQUIRED)
    table.check_filled("gold", "model")
    frame = table.cells.copy()
    ours = {*REQUIRED, *DEFAULTS, *COUNTS, *NUMBERS, "passage", "span", "cluster", "item"}
    unread = [name for name in map(str, frame) if name not in ours and not name.startswith("slot_")]
    has_dimension = "dimension" in frame
    for name, default in DEFAULTS.items():
        if name not in frame:
            frame[name] = default
    if "n_shots" not in frame:
        frame["n_shots"] = frame["shots"]
    for name in COUNTS:
        numbers = pd.to_numeric(frame[name], errors="coerce").astype(float)
        wrong = ~(numbers.between(0, MAX_COUNT) & (numbers % 1 == 0))
        table.refuse(wrong, "column {} holds {!r}; give a whole number from 0", name, frame[name])
        frame[name] = numbers.astype(int)
    for name in NUMBERS.keys() & set(table.cells):
        advice = "a log-probability, which is at most 0" if name == "nats" else "a number from 0 to 100, in percent"
        frame[name] = table.numbers(name, f"column {{}} holds {{!r}}; give {advice}", *NUMBERS[name])
    # Without examples there are no draws, even if a table has some.
    how = frame["sampling"].str.strip().replace("", SAMPLINGS[0])
    frame["sampling"] = how.where(frame["shots"] > 0, NO_SHOTS)
    # For rephrasing, the passage is the span without its context.
    passages = pd.Series("", index=frame.index)
    for name in ("passage", task.passage_column):
        passages = passages.where(passages != "", table.column(name, "").str.strip())
    frame["passage"] = passages
    golds = {gold.strip().casefold(): gold.strip() for gold in reversed(frame["gold"].tolist())}
    own = list(DIMENSIONS) if set(golds) <= set(DIMENSIONS) else sorted(golds.values())
    labels = [] if task.is_written else list(task.answers) or own
    _check(table, frame, labels, task)
    named = {label.casefold(): label for label in labels}
    if labels:
        frame["gold"] = frame["gold"].str.strip().str.casefold().map(named)
    if protocol == TEXT:
        frame = _read_replies(frame, labels, task)
    elif labels:
        given = frame["answer"].str.strip()
        whole, bare = (text.str.casefold().map(named) for text in (given, given.str.removesuffix(".")))
        frame["answer"] = whole.fillna(bare).fillna(given)  # a label as it is written, whatever the case of the answer
        answer, why = frame["answer"].str.casefold(), frame["missing_reason"]
        frame["missing_reason"] = why.mask((why == "") & ~answer.isin(named), NO_LABEL).mask(
            (why == "") & (answer == ""), NO_ANSWER
        )
    if task.gold_is_dimension and not has_dimension:
        frame["dimension"] = frame["gold"]
    clusters = table.column("cluster", "").str.strip()
    frame["cluster"] = clusters.where(clusters != "", frame["document"])
    table.check_one_value(frame, "cluster", "document")
    frame["item"] = [f"row {at}" for at in range(len(frame))]
    design = {
        "task": task.name, "labels": labels, "title": f"recorded answers ({path.name})", "source": path.name,
        "document_notes": list(_notes(frame)), "w_notes": unread_note(unread), "protocol": protocol or EXACT, "sampled": False,
        **({"answer_reader": rules().identity} if protocol == TEXT else {}),
    }  # fmt: skip
    return Observations(frame, design), protocol or EXACT


def _read_replies(frame: pd.DataFrame, labels: Sequence[str], task: Task) -> pd.DataFrame:
    """The table with the answers that the answer reader finds in its replies; a row with a `missing_reason` has none."""
    kind, question = QUESTIONS[task.name]
    readings, why = [], []
    for row in frame.to_dict("records"):
        # The reader takes the last question of several words: that of the wording, unless it is only a name.
        wording = row["wording"].strip().removesuffix("Answer:").strip()
        prompt = f"{row['text']}\nQuestion: {question}\n{wording}\nAnswer:"
        reading = read(Question(kind, tuple(labels), prompt=prompt, passage=row["passage"]), row["answer"])
        no_answer = MISSING_REASONS.get(reading.outcome, "") if row["answer"].strip() else NO_ANSWER
        readings.append(Reading("") if row["missing_reason"] else reading)
        why.append(row["missing_reason"] or no_answer)
    return frame.assign(
        reply=frame["answer"],
        reply_outcome=[one.outcome for one in readings],
        first_token_low=math.nan,
        first_token_high=math.nan,
        answer=[one.text for one in readings],
        missing_reason=why,
    )


def _notes(frame: pd.DataFrame) -> Iterator[str]:
    """Notes on cells without some documents, and on clusters of documents."""
    n_documents, n_clusters = frame["document"].nunique(), frame["cluster"].nunique()
    n_answered = frame.groupby(list(CELL))["document"].nunique()
    n_short = int((n_answered < n_documents).sum())
    if n_short:
        lack, mean = ("lacks", "its mean is") if n_short == 1 else ("lack", "their means are")
        yield f"{n_short:,} of {len(n_answered):,} cells {lack} answers for some documents, so {mean} over fewer texts"
    if n_clusters < n_documents:
        yield f"{n_documents:,} documents in {n_clusters:,} clusters, over which intervals and tests are"


def _check(table: Table, frame: pd.DataFrame, labels: list[str], task: Task) -> None:
    """Check that right answers are labels, one per document, with one answer per cell and no reserved names."""
    golds, documents = frame["gold"].str.strip().str.casefold() if labels else frame["gold"], frame["document"]
    wrong = ~golds.isin([label.casefold() for label in labels]) & bool(labels)
    table.refuse(wrong, "the right answer {!r} is none of {}", frame["gold"], ", ".join(labels))
    several = golds != golds.groupby(documents).transform("first")
    table.refuse(several, "document {!r} has two right answers; give each document one, or an id of its own", documents)
    again = "document {!r} is answered twice in the same way; distinguish the answers by a column such as model, wording, draw or shots"
    table.refuse(frame.duplicated(["document", *CELL]), again, documents)
    for column in ("description_class", "dimension", *(("gold",) if task.gold_is_dimension else ())):
        reserved = frame[column].map(is_reserved_name).astype(bool)
        table.refuse(reserved, "{!r}: this name is reserved for results; rename it in column {}", frame[column], column)
