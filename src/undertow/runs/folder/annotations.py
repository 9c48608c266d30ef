"""The file of human annotations in the folder of a run of `bias-rephrasing`, and the rephrasings that it is about."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from undertow._files import path_exists, read_file
from undertow._schemas import first_problem
from undertow.errors import UndertowError
from undertow.metrics.text.judgements import CATEGORIES, judgement_results
from undertow.runs.folder.storage import read_record
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

AUDIT = "bias-rephrasing"
ANNOTATIONS = "annotations.jsonl"
MAX_BYTES = 64 * 2**20
"""Size limit of the file of annotations; a line has a few hundred bytes."""
MAX_NOTE_CHARS = 2_000
_TEXTS = ("model", "dimension", "description_class", "gold", "passage", "answer")
_COLUMNS = ("item", *_TEXTS, "shots", "missing_reason", "cluster")


def _check_category(category: str) -> str:
    if category not in CATEGORIES:
        raise ValueError(f"{category!r} is no category; use {', '.join(CATEGORIES)}")
    return category


class Judgement(BaseModel):
    """An annotation, as the page sends it."""

    model_config = ConfigDict(extra="forbid")
    item: str
    category: Annotated[str, AfterValidator(_check_category)]
    note: str = Field(max_length=MAX_NOTE_CHARS)


class AnnotationLine(Judgement):
    """An annotation, as the file has it."""

    model_config = ConfigDict(extra="ignore")
    annotator: str
    time: str


def read_annotations(folder: Path) -> pd.DataFrame:
    """The annotations in a run folder, the last of each person on each rephrasing.

    Returns:
        Columns `item` (of a `Rephrasing`), `category`, `note`, `annotator` and `time` (ISO 8601, UTC) [annotation].

    Raises:
        UndertowError: there is no such folder, or a line is corrupt.
    """
    if not folder.is_dir():
        raise UndertowError(f"{folder}: there is no such run folder; check the path")
    path = folder / ANNOTATIONS
    lines = read_file(path, MAX_BYTES, "annotations").splitlines() if path_exists(path) else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows += [AnnotationLine.model_validate_json(line).model_dump()] if line.strip() else []
        except ValidationError as error:
            problem = first_problem(error, is_json=True)
            raise UndertowError(f"{path}, line {number}: {problem}; correct or delete the line") from error
    import pandas as pd  # not before a model is loaded

    table = pd.DataFrame(rows, columns=list(AnnotationLine.model_fields), dtype=str)
    return table.drop_duplicates(["annotator", "item"], keep="last", ignore_index=True)


def read_answers(folder: Path) -> tuple[pd.DataFrame, int]:
    """Observations of a run of `AUDIT` that have an answer, one at least, with the id of each `pair` of texts; and the seed."""
    record = read_record(folder)
    audit = str(record.manifest["audit"])
    if audit != AUDIT:
        raise UndertowError(
            f"{folder}: is a run of {audit}, which has no rephrasings; name the folder of a run of {AUDIT}"
        )
    missing = [name for name in _COLUMNS if name not in record.observations.columns]
    if missing:
        raise UndertowError(f"{folder}: is corrupt (its observations have no {missing[0]}); run the audit again")
    answers = _pairs(record.observations)
    if answers.empty:
        raise UndertowError(
            f"{folder}: has no rephrasing to annotate, because every item has a missing_reason; see its report"
        )
    return answers, int(record.manifest["seed"])


def annotation_results(folder: Path, audit: str, observations: pd.DataFrame) -> list[Result]:
    """Results of the annotations in a folder; [] for another audit, or without any annotation of these observations."""
    if audit != AUDIT or not path_exists(folder / ANNOTATIONS) or not {*_COLUMNS} <= {*observations.columns}:
        return []
    return list(judgement_results(_pairs(observations), read_annotations(folder)))


def copy_annotations(source: Path, target: Path) -> None:
    """Copy the annotations of a run folder into another folder; nothing without annotations."""
    if path_exists(source / ANNOTATIONS):
        (target / ANNOTATIONS).write_bytes(read_file(source / ANNOTATIONS, MAX_BYTES, "annotations"))


def _pairs(observations: pd.DataFrame) -> pd.DataFrame:
    answers = observations[observations["missing_reason"].fillna("") == ""].copy()
    for name in _TEXTS:
        answers[name] = answers[name].fillna("").str.strip()
    texts = zip(answers["passage"], answers["answer"], strict=True)
    answers["pair"] = [hashlib.sha256(json.dumps(pair).encode()).hexdigest()[:16] for pair in texts]
    return answers
