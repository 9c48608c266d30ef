"""A finished run as a model: it answers again what it was asked before, and nothing else. `-m replay:FOLDER`.

For comparing with a model that is gone, or far away, and for measuring its answers with other settings. Where a run asked
several models, `replay:FOLDER@MODEL` names one. Knows run folders; knows neither torch nor how the answers were got.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow.errors import UndertowError
from undertow.models.base import (
    FLOAT32,
    CostEstimate,
    ModelHandle,
    ModelRequest,
    RequestFailedError,
    UnsupportedQueryError,
)
from undertow.runs.folder.storage import MANIFEST, OBSERVATIONS, read_record
from undertow.types import (
    BLANK,
    GENERATION,
    LIKELIHOOD,
    PROMPT,
    Answer,
    ClozeQuery,
    GenerateQuery,
    ModelIdentity,
    Query,
)

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "the answers of a finished run: replay:FOLDER, or replay:FOLDER@MODEL where it asked several"
PREFIX = "replay:"
NEEDED = ("model", "text", "options", "logprobs_nats", "other_words", "missing_reason")
UNCLAIMED_HIGH = "other_words.high"

_Key: TypeAlias = tuple[str, tuple[str, ...]]
"""What was asked: the text as it is shown, and the options."""


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model whose answers a run folder holds.

    Raises:
        UndertowError: it is no run folder, holds no single answers, or asked several models and none is named.
    """
    if not request.name.startswith(PREFIX):
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError(f"{request.name}: was recorded as it was; leave --revision and --dtype out")
    given = request.name.removeprefix(PREFIX)
    if not given.strip():
        raise UndertowError(f"{PREFIX} names no run; write {PREFIX}FOLDER, or {PREFIX}FOLDER@MODEL")
    folder, asked_of = _place(given)
    record = read_record(folder)
    missing = [name for name in NEEDED if name not in record.observations]
    if missing:
        raise UndertowError(
            f"{folder}: holds no probabilities of single words (no column {missing[0]!r}); name the folder of a spurious-correlation or "
            "task-specification run that asked a model"
        )
    rows = _rows(record.observations, folder, asked_of)
    name = str(rows["model"].iloc[0])
    design = record.manifest["design"]
    readout = str(_table(folder, design, "scoring_methods").get(name, design.get("scoring_method", LIKELIHOOD)))
    identity = ModelIdentity(
        name=request.name,
        family="replay",
        source=f"{folder.absolute().name}: {name}",
        revision=hashlib.sha256((folder / OBSERVATIONS).read_bytes()).hexdigest(),
        dtype="as recorded",
        scoring_method=readout,
    )
    prompted = _prompted({**_table(folder, record.manifest, "settings"), **design})
    kind = GENERATION if readout == PROMPT else BLANK
    facts = _table(folder, _table(folder, design, "models"), name)
    return ModelHandle(
        identity,
        lambda: ReplayModel(identity, _answers(rows, folder), dict(facts), prompted),
        {kind: (str(record.manifest["protocol"]),)},
    )


def _place(text: str) -> tuple[Path, str]:
    """The folder, and the model after the @ that ends it: folders and models may both have an @ in their names.

    new@replay:old@toy    the longest part before an @ that is a folder: `new`, which asked replay:old@toy
    me@home@toy             `me@home`, which asked toy
    """
    if _folder(text).is_dir():
        return _folder(text), ""
    parts = text.split("@")
    for n_parts in range(len(parts) - 1, 0, -1):
        before = "@".join(parts[:n_parts])
        if before and _folder(before).is_dir():
            return _folder(before), "@".join(parts[n_parts:])
    return _folder(parts[0] or text), "@".join(parts[1:])


def _folder(text: str) -> Path:
    """A path with a leading ~ written out, which no shell does after a prefix; as it is where there is no such home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _table(folder: Path, holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table that a manifest may have; empty where it has none."""
    found = holder.get(name, {})
    if not isinstance(found, Mapping):
        raise UndertowError(f"{folder / MANIFEST}: is damaged ({name} is no table); run the audit again")
    return found


def _prompted(said: Mapping[str, Any]) -> dict[str, Any]:
    """How prompts were put, by the attributes of a query; without what an older manifest does not say."""
    return {name: said[key] for name, key in (("chat", "chat"), ("max_tokens", "max_new_tokens")) if key in said}


def _rows(observations: pd.DataFrame, folder: Path, asked_of: str) -> pd.DataFrame:
    names = list(dict.fromkeys(observations["model"].astype(str)))
    if not names:
        raise UndertowError(f"{folder / OBSERVATIONS}: holds no answers; run the audit again")
    if asked_of and asked_of not in names:
        raise UndertowError(f"{folder}: did not ask {asked_of!r}; it asked {', '.join(names)}")
    if not asked_of and len(names) > 1:
        raise UndertowError(f"{folder}: asked {', '.join(names)}; name one, as in {PREFIX}{folder}@{names[0]}")
    found = observations[observations["model"].astype(str) == (asked_of or names[0])]
    if found.empty:  # a cell that is missing is equal to nothing
        raise UndertowError(
            f"{folder / OBSERVATIONS}: is damaged (a row does not say who was asked); run the audit again"
        )
    return found


def _answers(rows: pd.DataFrame, folder: Path) -> dict[_Key, Answer]:
    """What was said, by what was asked.

    Raises:
        UndertowError: a row does not hold together.
    """
    answers = {}
    try:
        listed = rows.to_dict("records")
    except UnicodeDecodeError as error:
        raise UndertowError(
            f"{folder / OBSERVATIONS}: is damaged (a text in it is not UTF-8); run the audit again"
        ) from error
    for row in listed:
        try:
            options = tuple(map(str, row["options"]))
            answers[str(row["text"]), options] = _answer(row, len(options))
        except (TypeError, ValueError) as error:
            raise UndertowError(
                f"{folder / OBSERVATIONS}: is damaged (the answer to {str(row['text'])[:60]!r} does not hold together); "
                "run the audit again"
            ) from error
    return answers


def _answer(row: Mapping[Any, Any], n_options: int) -> Answer:
    if row["missing_reason"]:
        return Answer.none(str(row["missing_reason"]))
    said = row.get("answer")
    logprobs = tuple(float(value) for value in row["logprobs_nats"])
    ceilings = tuple(float(value) for value in _list(row.get("upper_bound_prob")))
    if len(logprobs) != n_options or len(ceilings) not in (0, n_options):
        raise ValueError("each option has one number")
    return Answer(
        logprobs,
        _unclaimed_percent(row) / 100,
        text=said if isinstance(said, str) else "",
        upper_bound_prob=ceilings,
        truncated_prob=float(row["truncated_prob"]) if ceilings else 0.0,
    )


def _unclaimed_percent(row: Mapping[Any, Any]) -> float:
    """What no option took of what was shown. Where bounds are given, `unclaimed` is the middle of them, and this the upper one."""
    upper = float(row.get(UNCLAIMED_HIGH, math.nan))
    return float(row["other_words"]) if math.isnan(upper) else upper


def _list(cell: Any) -> list[Any]:
    """A cell that holds a list, which is missing where the model showed everything."""
    return [] if cell is None or (isinstance(cell, float) and math.isnan(cell)) else list(cell)


@dataclass(frozen=True, slots=True)
class ReplayModel:
    """Answers by what was asked; see the module's text.

    Attributes:
        identity, notes, facts: as in `undertow.models.base.AnsweringModel`.
        answers: what was said.
        prompted: how every prompt was put: `chat` and `max_tokens` of `undertow.types.GenerateQuery`, where known.
    """

    identity: ModelIdentity
    answers: Mapping[_Key, Answer]
    facts: Mapping[str, str | float]
    prompted: Mapping[str, Any]
    notes: tuple[str, ...] = ("answers are those of an earlier run; no model was asked",)

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        """What was answered before, and a reason for everything else."""
        yield {place: self._answer(query) for place, query in enumerate(queries)}

    def _answer(self, query: Query) -> Answer | UnsupportedQueryError:
        if not isinstance(query, (ClozeQuery, GenerateQuery)):
            return UnsupportedQueryError("a recorded run holds sentences and prompts with words to look for only")
        options = tuple(" ".join(option.fills) for option in query.options)
        found = self.answers.get((query.shown(), options))
        if isinstance(query, GenerateQuery) and any(getattr(query, name) != how for name, how in self.prompted.items()):
            found = None
        return found or UnsupportedQueryError(f"the run {self.identity.source} was not asked this")

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """Next to nothing, for those that were asked."""
        n_found = sum(isinstance(self._answer(query), Answer) for query in queries)
        return CostEstimate(0, n_found, 0.0, 0, passes="look-ups in a finished run")
