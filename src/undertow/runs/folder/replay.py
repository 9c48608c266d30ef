"""A finished run as a model, which answers the queries of that run: `-m replay:FOLDER`.

Use it to compare with a model that is no longer available, or to measure its answers with other settings. For a run of
several models, `replay:FOLDER@MODEL` names one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from undertow._files import sha256_of
from undertow.audits.shared.prompt_items import token_limit
from undertow.errors import UndertowError
from undertow.models.base import (
    CONTENT_FILTER,
    FLOAT32,
    CostEstimate,
    ModelHandle,
    ModelRequest,
    Outcome,
    UnsupportedQueryError,
)
from undertow.runs.folder.storage import OBSERVATIONS, read_record
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

SUMMARY = "the answers of a finished run: replay:FOLDER, or replay:FOLDER@MODEL if it has several models"
PREFIX = "replay:"
NEEDED = ("model", "text", "options", "logprobs_nats", "other_words", "missing_reason")

_Key: TypeAlias = tuple[str, tuple[str, ...]]
"""Key of a query: its displayed text and the options."""


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model of a run folder with log-probabilities, named where the run has several."""
    if not request.name.startswith(PREFIX):
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError(f"{request.name}: replays recorded answers; remove --revision and --dtype")
    given = request.name.removeprefix(PREFIX)
    if not given.strip():
        raise UndertowError(f"{PREFIX} names no run; write {PREFIX}FOLDER, or {PREFIX}FOLDER@MODEL")
    folder, model_name = _split(given)
    record = read_record(folder)
    manifest, frame = record.manifest, record.observations
    missing = [name for name in NEEDED if name not in frame]
    if missing:
        raise UndertowError(
            f"{folder}: has no log-probabilities of words (no column {missing[0]!r}); name the folder of a spurious-correlation or "
            "task-specification run of a model"
        )
    names = list(frame["model"].unique())
    if not names or frame["model"].isna().any():
        raise UndertowError(f"{folder / OBSERVATIONS}: is corrupt (a row has no model); run the audit again")
    if model_name and model_name not in names:
        raise UndertowError(f"{folder}: has no model {model_name!r}; it has {', '.join(names)}")
    if not model_name and len(names) > 1:
        raise UndertowError(f"{folder}: has the models {', '.join(names)}; name one, as in {PREFIX}{folder}@{names[0]}")
    name, design = model_name or str(names[0]), manifest["design"]
    scoring_method = design.get("scoring_methods", {}).get(name, design.get("scoring_method", LIKELIHOOD))
    identity = ModelIdentity(
        name=request.name,
        family="replay",
        source=f"{folder.absolute().name}: {name}",
        revision=sha256_of(folder / OBSERVATIONS),
        dtype="as recorded",
        scoring_method=scoring_method,
    )
    settings = {**manifest.get("settings", {}), **design}
    prompted = {"chat": settings["chat"]} if "chat" in settings else {}
    if "max_new_tokens" in settings:
        prompted["max_tokens"] = token_limit(settings["max_new_tokens"], manifest["protocol"])
    rows = frame[frame["model"] == name]
    facts = dict(design.get("models", {}).get(name, {}))
    kind = GENERATION if scoring_method == PROMPT else BLANK
    return ModelHandle(
        identity,
        lambda: ReplayModel(identity, _answers(rows, folder), facts, prompted),
        {kind: (manifest["protocol"],)},
    )


def _split(text: str) -> tuple[Path, str]:
    """Split folder and model at the right @: names of folders and models may contain one.

    new@replay:old@toy    the longest part before an @ that is a folder: `new`, with model replay:old@toy
    me@home@toy             `me@home`, with model toy
    """
    parts = text.split("@")
    for n_parts in range(len(parts), 0, -1):
        before = _folder("@".join(parts[:n_parts]))
        if before.is_dir():
            return before, "@".join(parts[n_parts:])
    return _folder(parts[0] or text), "@".join(parts[1:])


def _folder(text: str) -> Path:
    """The path with a leading ~ expanded, which no shell does after a prefix; unchanged if there is no such home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _answers(rows: pd.DataFrame, folder: Path) -> dict[_Key, Answer]:
    """Answers by query."""
    answers = {}
    for row in rows.to_dict("records"):
        try:
            options = tuple(map(str, row["options"]))
            answers[str(row["text"]), options] = _answer(row, len(options))
        except (TypeError, ValueError) as error:
            raise UndertowError(
                f"{folder / OBSERVATIONS}: is corrupt (the answer to {str(row['text'])[:60]!r} is inconsistent); "
                "run the audit again"
            ) from error
    return answers


def _answer(row: Mapping[Any, Any], n_options: int) -> Answer:
    reply, outcome, cut_at = (row.get(name) for name in ("reply", "reply_outcome", "reply_cut_at"))
    cut_at_tokens = int(cut_at) if isinstance(cut_at, int | float) and cut_at > 0 else 0
    was_read = (isinstance(outcome, str) and outcome) or (reply and cut_at_tokens)
    if isinstance(reply, str) and was_read and CONTENT_FILTER not in row["missing_reason"]:
        # Under protocol `text`, all replies are parsed again, including those without an answer.
        return Answer((math.nan,) * n_options, math.nan, text=reply, cut_at_tokens=cut_at_tokens)
    if row["missing_reason"]:
        return Answer.missing(str(row["missing_reason"]))
    text, bounds = row.get("answer"), row.get("upper_bound_prob")
    logprobs = tuple(map(float, row["logprobs_nats"]))
    # Missing if the model hides no probability.
    ceilings = () if bounds is None or isinstance(bounds, float) else tuple(map(float, bounds))
    if len(logprobs) != n_options or len(ceilings) not in (0, n_options):
        raise ValueError("each option has one number")
    # `other_words` is the midpoint of its bounds, if there are bounds.
    upper = float(row.get("other_words.high", math.nan))
    return Answer(
        logprobs,
        (float(row["other_words"]) if math.isnan(upper) else upper) / 100,
        text=text if isinstance(text, str) else "",
        upper_bound_prob=ceilings,
        truncated_prob=float(row["truncated_prob"]) if ceilings else 0.0,
    )


@dataclass(frozen=True, slots=True)
class ReplayModel:
    """A model that answers from a finished run.

    Attributes:
        identity, notes, facts: as in `undertow.models.base.AnsweringModel`.
        answers: answers by query.
        prompted: `chat` and `max_tokens` of every prompt, where known.
    """

    identity: ModelIdentity
    answers: Mapping[_Key, Answer]
    facts: Mapping[str, str | float]
    prompted: Mapping[str, Any]
    notes: tuple[str, ...] = ("answers are those of an earlier run",)

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """The recorded answers, and an error for every other query."""
        yield {place: self._answer(query) for place, query in enumerate(queries)}

    def _answer(self, query: Query) -> Outcome:
        if not isinstance(query, (ClozeQuery, GenerateQuery)):
            return UnsupportedQueryError("a finished run answers sentences and prompts with listed words only")
        options = tuple(" ".join(option.fills) for option in query.options)
        answer = self.answers.get((query.display_text(), options))
        if isinstance(query, GenerateQuery) and any(getattr(query, name) != how for name, how in self.prompted.items()):
            answer = None
        return answer or UnsupportedQueryError(f"the run {self.identity.source} does not contain this query")

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """The number of recorded answers; looking them up costs nothing."""
        n_answered = sum(isinstance(self._answer(query), Answer) for query in queries)
        return CostEstimate(0, n_answered, 0.0, 0, passes="look-ups in a finished run")
