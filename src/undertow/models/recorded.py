"""A finished run as a model: it answers again what it was asked before, and nothing else. `-m recorded:FOLDER`.

For comparing with a model that is gone, or far away, and for measuring its answers with other settings. Where a run asked
several models, `recorded:FOLDER@MODEL` names one. Knows run folders; knows neither torch nor how the answers were got.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow.models.base import FLOAT32, Effort, Found, LostError, Request, UnscorableError
from undertow.records import OBSERVATIONS, read_record
from undertow.types import BLANK, GENERATION, LIKELIHOOD, PROMPT, Answer, Continuations, ModelCard, Query, UndertowError

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "the answers of a finished run: recorded:FOLDER, or recorded:FOLDER@MODEL where it asked several"
PREFIX = "recorded:"
NEEDED = ("model", "text", "options", "logprobs_nats", "unclaimed", "unscored")

_Key: TypeAlias = tuple[str, tuple[str, ...]]
"""What was asked: the text as it is shown, and the options."""


def find(request: Request) -> Found | None:
    """The model whose answers a run folder holds.

    Raises:
        UndertowError: it is no run folder, holds no single answers, or asked several models and none is named.
    """
    if not request.name.startswith(PREFIX):
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError(f"{request.name}: was recorded as it was; leave --revision and --dtype out")
    folder, asked_of = _place(request.name.removeprefix(PREFIX))
    record = read_record(folder)
    missing = [name for name in NEEDED if name not in record.observations]
    if missing:
        raise UndertowError(
            f"{folder}: holds no single answers (no column {missing[0]!r}); name the folder of a run that asked a model"
        )
    rows = _rows(record.observations, folder, asked_of)
    name = str(rows["model"].iloc[0])
    readouts = record.manifest["design"].get("readouts", {})
    readout = str(readouts.get(name, record.manifest["design"].get("readout", LIKELIHOOD)))
    card = ModelCard(
        name=request.name,
        family="recorded",
        source=f"{folder.name}: {name}",
        revision=hashlib.sha256((folder / OBSERVATIONS).read_bytes()).hexdigest(),
        dtype="as recorded",
        readout=readout,
    )
    kind = GENERATION if readout == PROMPT else BLANK
    facts = record.manifest["design"].get("models", {}).get(name, {})
    return Found(card, lambda: Recorded(card, _answers(rows), dict(facts)), {kind: (str(record.manifest["protocol"]),)})


def _place(text: str) -> tuple[Path, str]:
    """The folder, and the model after an @ where the whole is no folder."""
    folder, at, model = text.rpartition("@")
    return (Path(folder), model) if at and not Path(text).is_dir() else (Path(text), "")


def _rows(observations: pd.DataFrame, folder: Path, asked_of: str) -> pd.DataFrame:
    names = list(dict.fromkeys(observations["model"].astype(str)))
    if asked_of and asked_of not in names:
        raise UndertowError(f"{folder}: did not ask {asked_of!r}; it asked {', '.join(names)}")
    if not asked_of and len(names) > 1:
        raise UndertowError(f"{folder}: asked {', '.join(names)}; name one, as in {PREFIX}{folder}@{names[0]}")
    return observations[observations["model"].astype(str) == (asked_of or names[0])]


def _answers(rows: pd.DataFrame) -> dict[_Key, Answer]:
    return {(str(row["text"]), tuple(row["options"])): _answer(row) for row in rows.to_dict("records")}


def _answer(row: Mapping[Any, Any]) -> Answer:
    if row["unscored"]:
        return Answer.none(str(row["unscored"]))
    said = row.get("answer")
    return Answer(
        tuple(float(value) for value in row["logprobs_nats"]),
        float(row["unclaimed"]) / 100,
        text=said if isinstance(said, str) else "",
        ceilings_prob=tuple(float(value) for value in _list(row.get("ceilings_prob"))),
        unseen_prob=float(row["unseen_prob"]) if _list(row.get("ceilings_prob")) else 0.0,
    )


def _list(cell: Any) -> list[Any]:
    """A cell that holds a list, which is missing where the model showed everything."""
    return [] if cell is None or (isinstance(cell, float) and math.isnan(cell)) else list(cell)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answers by what was asked; see the module's text."""

    card: ModelCard
    answers: Mapping[_Key, Answer]
    facts: Mapping[str, str | float]
    notes: tuple[str, ...] = ("answers are those of an earlier run; no model was asked",)

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnscorableError | LostError]]:
        """What was answered before, and a reason for everything else."""
        yield {place: self._answer(query) for place, query in enumerate(queries)}

    def _answer(self, query: Query) -> Answer | UnscorableError:
        if isinstance(query, Continuations):
            return UnscorableError("a recorded run holds no continuations")
        options = tuple(" ".join(option.fills) for option in query.options)
        found = self.answers.get((query.shown(), options))
        return found or UnscorableError(f"the run {self.card.source} was not asked this")

    def effort(self, queries: Sequence[Query], protocol: str) -> Effort:
        """Next to nothing."""
        return Effort(0, 0, 0.0, 0)
