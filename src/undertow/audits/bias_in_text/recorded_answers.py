"""Reader of recorded answers to the four tasks of bias in text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import EXACT, PAPER, Observations
from undertow.audits.bias_in_text.tasks import Task
from undertow.audits.recorded_tables import Table, read_cells, unread_note
from undertow.data.documents.document_set import DIMENSIONS, is_reserved_name
from undertow.data.documents.few_shot import NO_SHOTS, SAMPLINGS
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("document", "gold", "answer")
DEFAULTS: dict[str, str | int | float] = {
    "model": "recorded", "dimension": "", "text": "", "description_class": "recorded", "wording": "", "shots": 0,
    "sampling": "", "draw": 0, "decoding": "recorded", "missing_reason": "", "n_dropped_shots": 0, "nats": math.nan,
}  # fmt: skip
"""What a column is where a table lacks it; a sampling that is not told goes by the number of examples."""
CELL = ("model", "description_class", "wording", "shots", "sampling", "draw", "decoding")
"""Answers that are alike in these are to different documents."""
COUNTS = ("shots", "draw", "n_dropped_shots", "n_shots")
MAX_COUNT = 10**9
NUMBERS = ("other_words", "yes_percent", "nats")
"""Columns of a run's observations that are numbers, empty where there is none."""
NO_ANSWER = "the answer is empty"
NO_LABEL = "the answer is none of the labels"
"""Why a recorded answer to a task with labels is missing. What it may mean is for its reader to say: it is not taken for a wrong one."""


def read_answers(path: Path, task: Task, protocol: str) -> tuple[Observations, str]:
    """A CSV or TSV table with `document, gold, answer`, and any of the factors of a run's observations.

    Of a task with labels an answer that is none of them, but for case and white space around it, is missing with a reason. Documents
    with the same `cluster` are drawn, and have their signs flipped, together.

    Args:
        path: the table.
        task: which of the four tasks it belongs to.
        protocol: "" or `exact`.

    Raises:
        UndertowError: it lacks a column, an answer's right answer is none of the labels, or two rows answer the same.
    """
    import pandas as pd

    if protocol not in ("", EXACT):
        known = "is for sentences with a blank" if protocol == PAPER else "is unknown"
        raise UndertowError(f"{path}: protocol {protocol!r} {known}; leave --protocol out")
    table = read_cells(path, literal_tabs=True)
    table.check_columns(REQUIRED)
    frame = table.cells.copy()
    ours = {*REQUIRED, *DEFAULTS, *COUNTS, *NUMBERS, "passage", "span", "cluster", "item"}
    unread = [name for name in frame.columns if name not in ours and not name.startswith("slot_")]
    has_dimension = "dimension" in frame
    for name, default in DEFAULTS.items():
        if name not in frame:
            frame[name] = default
    if "n_shots" not in frame:
        frame["n_shots"] = frame["shots"]
    for name in COUNTS:
        frame[name] = _whole_numbers(table, name, frame[name])
    for name in NUMBERS:
        if name in frame:
            frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    frame["sampling"] = _samplings(frame)
    frame["passage"] = _passages(frame, task)
    right = [] if task.is_written else list(task.answers) or _labels_of(frame["gold"].tolist())
    _check(table, frame, right)
    _check_names(table, frame, task)
    if right:
        named = {label.casefold(): label for label in right}
        frame["gold"] = [named[gold.strip().casefold()] for gold in frame["gold"]]
        frame["missing_reason"] = _missing(frame, set(named))
    if task.gold_is_dimension and not has_dimension:
        frame["dimension"] = frame["gold"]
    frame["cluster"] = _clusters(table, frame)
    frame["item"] = [f"row {at}" for at in range(len(frame))]
    design = {
        "task": task.name, "labels": right, "title": f"recorded answers ({path.name})", "source": path.name,
        "document_notes": [*_crossing_notes(frame), *_cluster_notes(frame)],
        "w_notes": unread_note(unread), "protocol": EXACT, "sampled": False,
    }  # fmt: skip
    return Observations(frame, design), EXACT


def _whole_numbers(table: Table, name: str, column: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    table.raise_first(
        ~(numbers.between(0, MAX_COUNT) & (numbers % 1 == 0)),
        lambda row: f"column {name} holds {column.iloc[row]!r}; give a whole number from 0",
    )
    return numbers.astype(int)


def _samplings(frame: pd.DataFrame) -> list[str]:
    """How examples were drawn; without examples nothing was, whatever a table says."""
    said = frame["sampling"].str.strip()
    return [(how or SAMPLINGS[0]) if n else NO_SHOTS for how, n in zip(said, frame["shots"], strict=True)]


def _passages(frame: pd.DataFrame, task: Task) -> list[str]:
    """Passage of each question, "" if the table lacks it; for rephrasing it is the span, never its context."""
    columns = [name for name in ("passage", task.passage_column) if name in frame]
    passages = [""] * len(frame)
    for name in columns:
        passages = [known or one for known, one in zip(passages, frame[name].str.strip(), strict=True)]
    return passages


def _missing(frame: pd.DataFrame, labels: set[str]) -> list[str]:
    """Why each answer has no score; "" for one that is a label."""
    answers = frame["answer"].astype(str).str.strip().str.casefold()
    return [
        why or ("" if answer in labels else NO_LABEL if answer else NO_ANSWER)
        for why, answer in zip(frame["missing_reason"].astype(str), answers, strict=True)
    ]


def _clusters(table: Table, frame: pd.DataFrame) -> pd.Series[str]:
    """The cluster of each answer's document, which is the document itself where the table says nothing."""
    documents = frame["document"]
    if "cluster" not in frame:
        return documents
    named = frame["cluster"].str.strip().where(frame["cluster"].str.strip() != "", documents)
    table.raise_two_clusters(documents, named, "document {!r}")
    return named


def _cluster_notes(frame: pd.DataFrame) -> list[str]:
    """A note where documents stand in clusters."""
    n_clusters, n_documents = frame["cluster"].nunique(), frame["document"].nunique()
    if n_clusters == n_documents:
        return []
    return [f"{n_documents:,} documents in {n_clusters:,} clusters, over which intervals and tests are"]


def _crossing_notes(frame: pd.DataFrame) -> list[str]:
    """A note where not every cell has a row for every document."""
    n_answered = frame.groupby(list(CELL))["document"].nunique()
    n_short = int((n_answered < frame["document"].nunique()).sum())
    if not n_short:
        return []
    of_all = f"{n_short:,} of {len(n_answered):,} cells"
    if n_short == 1:
        return [f"{of_all} lacks answers for some documents, so its mean is over other texts"]
    return [f"{of_all} lack answers for some documents, so their means are over different texts"]


def _labels_of(golds: Sequence[str]) -> list[str]:
    """The eleven dimensions, however cased, or else what the right answers are."""
    labels = {gold.strip().casefold(): gold.strip() for gold in reversed(golds)}
    return list(DIMENSIONS) if set(labels) <= set(DIMENSIONS) else sorted(labels.values())


def _check(table: Table, frame: pd.DataFrame, labels: list[str]) -> None:
    """Right answers among the labels, the same for a document everywhere, and one answer in each cell."""
    golds = frame["gold"].str.strip().str.casefold() if labels else frame["gold"]
    if labels:
        table.raise_first(
            ~golds.isin([label.casefold() for label in labels]),
            lambda row: f"the right answer {frame['gold'].iloc[row]!r} is none of {', '.join(labels)}",
        )
    firsts = golds.groupby(frame["document"]).transform("first")
    table.raise_first(
        golds != firsts,
        lambda row: (
            f"document {frame['document'].iloc[row]!r} has two right answers; give each document one, or an id of its own"
        ),
    )
    table.raise_first(
        frame.duplicated(["document", *CELL]),
        lambda row: (
            f"document {frame['document'].iloc[row]!r} is answered twice in the same way; "
            "tell the answers apart by a column such as model, wording, draw or shots"
        ),
    )


def _check_names(table: Table, frame: pd.DataFrame, task: Task) -> None:
    """No class or dimension is named as results name their own levels; for identification, right answers are dimensions."""
    for column in ("description_class", "dimension", *(("gold",) if task.gold_is_dimension else ())):
        names = frame[column]
        table.raise_first(
            names.map(is_reserved_name).astype(bool),
            lambda row, names=names, column=column: (  # type: ignore[misc]
                f"results keep the name {names.iloc[row]!r} for themselves; call it something else in column {column}"
            ),
        )
