"""Answers to the four tasks that were got elsewhere, as a table: measured like those of a run.

Knows the columns of such a table; knows nothing about how answers are measured.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from undertow.challenge.documents import DIMENSIONS
from undertow.probes.base import EXACT, PAPER, Evidence
from undertow.types import UndertowError

NEEDED = ("document", "gold", "answer")
DEFAULTS: dict[str, str | int | float] = {
    "model": "recorded", "dimension": "", "text": "", "description_class": "recorded", "wording": "", "shots": 0,
    "sampling": "none", "draw": 0, "decoding": "recorded", "unscored": "", "dropped": 0, "given_shots": 0, "nats": math.nan,
}  # fmt: skip
"""What a column is where a table lacks it."""


def read_answers(path: Path, task: str, protocol: str, labels: tuple[str, ...]) -> tuple[Evidence, str]:
    """A CSV or TSV table with `document, gold, answer`, and any of the factors of a run's observations.

    Args:
        path: the table.
        task: which of the four tasks it belongs to.
        protocol: "" or `exact`.
        labels: right answers of the task; () for the dimensions that the table holds.

    Raises:
        UndertowError: it lacks a column, an answer's right answer is none of the labels, or two rows answer the same.
    """
    import pandas as pd

    if protocol not in ("", EXACT):
        known = "is for sentences with a blank" if protocol == PAPER else "is unknown"
        raise UndertowError(f"{path}: protocol {protocol!r} {known}; leave --protocol out")
    tabbed = path.name.lower().endswith((".tsv", ".tsv.gz"))
    try:
        frame = pd.read_csv(
            path,
            sep="\t" if tabbed else ",",
            quoting=csv.QUOTE_NONE if tabbed else csv.QUOTE_MINIMAL,
            dtype=str,
            keep_default_na=False,
        )
    except (OSError, ValueError, pd.errors.ParserError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UndertowError(f"{path}: cannot be read as a table ({why}); save it as UTF-8 CSV or TSV") from error
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise UndertowError(f"{path}: has no column {', '.join(missing)}; it has {', '.join(frame.columns)}")
    if frame.empty:
        raise UndertowError(f"{path}: has no rows; give an answer for at least one document")
    for name, default in DEFAULTS.items():
        if name not in frame:
            frame[name] = default
    for name in ("shots", "draw"):
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if numbers.isna().any() or (numbers < 0).any() or (numbers % 1 != 0).any():
            raise UndertowError(f"{path}: column {name} holds {frame[name].iloc[0]!r}; give whole numbers from 0")
        frame[name] = numbers.astype(int)
    frame["dropped"] = pd.to_numeric(frame["dropped"], errors="coerce").fillna(0).astype(int)
    frame["nats"] = math.nan
    frame["passage"] = frame["passage"] if "passage" in frame else frame["text"]
    right = list(labels) or list(dict.fromkeys(frame["gold"]))
    if not labels and set(right) <= set(DIMENSIONS):
        right = list(DIMENSIONS)
    written = task in ("bias-extraction", "bias-rephrasing")
    _check(path, frame, [] if written else right)
    frame["cluster"] = frame["document"]
    frame["item"] = [f"row {at}" for at in range(len(frame))]
    design = {
        "task": task, "labels": [] if written else right, "title": f"recorded answers ({path.name})", "source": path.name,
        "document_notes": [], "protocol": EXACT, "sampled": False,
    }  # fmt: skip
    return Evidence(frame, design), EXACT


def _check(path: Path, frame: object, labels: list[str]) -> None:
    """Right answers among the labels, the same for a document everywhere, and one answer in each cell."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise TypeError("a table is a frame")
    lowered = {label.casefold() for label in labels}
    for line, gold in enumerate(frame["gold"], start=2):
        if labels and str(gold).casefold() not in lowered:
            raise UndertowError(f"{path}, line {line}: the right answer {gold!r} is none of {', '.join(labels)}")
    golds = frame.groupby("document")["gold"].nunique()
    if (golds > 1).any():
        raise UndertowError(
            f"{path}: document {golds[golds > 1].index[0]!r} has two right answers; give each document one, or an id of its own"
        )
    keys = ["model", "document", "description_class", "wording", "shots", "sampling", "draw", "decoding"]
    twice = frame.duplicated(keys)
    if twice.any():
        line = int(twice.to_numpy().argmax()) + 2
        raise UndertowError(
            f"{path}, line {line}: document {frame['document'].iloc[line - 2]!r} is answered twice in the same way; "
            "tell the answers apart by a column such as model, wording, draw or shots"
        )
