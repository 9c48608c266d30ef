"""A page at `/rephrase` on which people write, verify and refine rephrasings of biased spans, as in Bauer et al. 2022, section 4.1.

Several people may answer at once, each with a server of their own: `rephrasings.jsonl` holds every answer, and each answer is checked
against it under a lock of the folder (on systems that have none, of the server), so an answer to an outdated state is refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, PlainTextResponse, Response

from undertow._files import csv_cell, path_exists, read_file
from undertow._folders import lock_folder, whole_file
from undertow._schemas import first_problem
from undertow.app.access_control import REPHRASE
from undertow.app.annotators.pages import annotator_name, append_line, html_page
from undertow.data.documents.document_set import DocumentSet
from undertow.data.documents.document_sources import normalize_space
from undertow.errors import UndertowError

ANSWERS, TABLE = "rephrasings.jsonl", "rephrasings.csv"
MAX_BYTES = 64 * 2**20
MAX_TEXT_CHARS = 8_000
WRITE, VERIFY, REFINE, ACCEPTED = "write", "verify", "refine", "accepted"
_STEP_AFTER = {"write": VERIFY, "refuse": REFINE, "accept": ACCEPTED}
_ACTIONS = {WRITE: ("write",), REFINE: ("write",), VERIFY: ("accept", "refuse"), ACCEPTED: ()}


@dataclass(frozen=True, slots=True)
class Span:
    """A biased span to rephrase, with the text around it."""

    id: str
    passage: str
    span: str
    dimension: str


class Contribution(BaseModel):
    """An answer, as the page sends it.

    Attributes:
        n_seen: number of answers to this span that the page knew.
        text: the rephrasing, or the reason of a refusal; "" to accept.
    """

    model_config = ConfigDict(extra="forbid")
    item: str
    n_seen: int
    action: Literal["write", "accept", "refuse"]
    text: str = Field(max_length=MAX_TEXT_CHARS)


class AnswerLine(Contribution):
    """An answer, as the file has it."""

    model_config = ConfigDict(extra="ignore")
    annotator: str
    time: str


class RefusedError(UndertowError):
    """An answer that is not accepted, with the reason."""


class OutdatedError(RefusedError):
    """An answer that does not fit the current state of its span, or not from this person."""


class RephrasingStore:
    """The answers of all people to the spans of a document set, in a folder; and one person's view of them.

    Attributes:
        spans: to rephrase, by id, in a random order of this person.

    Raises:
        UndertowError: the name is invalid, or the set has no span without a rephrasing.
        OSError: the folder cannot be made.
    """

    def __init__(self, documents: DocumentSet, folder: Path, annotator: str) -> None:
        self.annotator, self.folder = annotator_name(annotator), folder
        spans: dict[str, Span] = {}
        for one in (*documents.evaluation, *documents.training):
            if one.span and not one.rephrasing:
                key = hashlib.sha256(json.dumps([normalize_space(one.span), one.dimension]).encode()).hexdigest()[:16]
                spans.setdefault(key, Span(key, one.text, one.span, one.dimension))
        if not spans:
            raise UndertowError(f"{documents.name}: has no biased span without a rephrasing; name documents with spans")
        folder.mkdir(parents=True, exist_ok=True)
        seed = int.from_bytes(hashlib.sha256(_person(self.annotator).encode()).digest()[:8])
        self.spans = {key: spans[key] for key in np.random.default_rng(seed).permutation(list(spans)).tolist()}
        self._lock = threading.Lock()
        self.answers()

    def answers(self) -> dict[str, list[AnswerLine]]:
        """The answers to each span, the oldest first; an incomplete last line was never committed, and is left out.

        Raises:
            UndertowError: a line is corrupt or does not follow those before it, or all answers are to other documents.
        """
        path = self.folder / ANSWERS
        content = read_file(path, MAX_BYTES, "rephrasings") if path_exists(path) else b""
        lines_of: dict[str, list[AnswerLine]] = {key: [] for key in self.spans}
        others = 0
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            try:
                answer = AnswerLine.model_validate_json(line) if line.strip() else None
            except ValidationError as error:
                if line.endswith(b"\n"):
                    problem = first_problem(error, is_json=True)
                    raise UndertowError(f"{path}, line {number}: {problem}; correct or delete the line") from error
                continue
            if answer is None:
                continue
            if (known := lines_of.get(answer.item)) is None:
                others += 1
                continue
            if answer.n_seen != len(known) or answer.action not in _ACTIONS[_step(known)]:
                raise UndertowError(
                    f"{path}, line {number}: does not follow the earlier answers to its span; delete it, and later answers to the span"
                )
            known.append(answer)
        if others and not any(lines_of.values()):
            raise UndertowError(f"{path}: holds answers to other documents; name another folder with --out")
        return lines_of

    def next_item(self, skipped: Collection[str] = ()) -> dict[str, Any]:
        """What this person can do next: verifications, then refinements, then new spans; and the number of spans at each step.

        Args:
            skipped: spans that the person skipped; they come again after all others.
        """
        lines_of = self.answers()
        steps = {key: _step(lines) for key, lines in lines_of.items()}
        possible = [
            key
            for step in (VERIFY, REFINE, WRITE)
            for key, one in steps.items()
            if one == step and not (step == VERIFY and self._is_own(lines_of[key]))
        ]
        key = next((key for key in possible if key not in skipped), possible[0] if possible else "")
        counts = Counter(steps.values())
        return {
            "counts": {step: counts[step] for step in (WRITE, VERIFY, REFINE, ACCEPTED)},
            "item": self._item(key, lines_of[key], steps[key]) if key else None,
        }

    def answer(self, given: Contribution) -> None:
        """Append an answer to the file; it is on the disk when this returns.

        Raises:
            RefusedError: it is empty or unchanged, or does not fit the state of its span.
            OSError: it could not be written.
        """
        text = given.text.strip()
        with self._lock, lock_folder(self.folder):
            if (known := self.answers().get(given.item)) is None:
                raise OutdatedError("These documents have no such span.")
            if len(known) != given.n_seen or given.action not in _ACTIONS[_step(known)]:
                raise OutdatedError("This span has changed meanwhile; go on to the next.")
            if given.action in ("accept", "refuse") and self._is_own(known):
                raise OutdatedError("You wrote this rephrasing; somebody else verifies it.")
            if not text and given.action != "accept":
                raise RefusedError(
                    "Write a rephrasing." if given.action == "write" else "Give a reason, for whoever refines it."
                )
            if given.action == "write" and normalize_space(text) == normalize_space(self.spans[given.item].span):
                raise RefusedError("This is the biased phrase itself; change it.")
            if given.action == "write" and known and normalize_space(text) == normalize_space(known[-2].text):
                raise RefusedError("This is the rephrasing that was refused; change it.")
            time = datetime.now(UTC).isoformat(timespec="seconds")
            line = AnswerLine(**given.model_dump() | {"text": text}, annotator=self.annotator, time=time)
            self._drop_torn_line()
            append_line(self.folder / ANSWERS, line.model_dump_json())

    def write_table(self) -> int:
        """Write the accepted rephrasings as the table that `--rephrasings` reads; returns their number."""
        rows = [
            {"span": one.span, "rephrasing": lines[-2].text, "dimension": one.dimension}
            for one, lines in ((self.spans[key], lines) for key, lines in sorted(self.answers().items()))
            if _step(lines) == ACCEPTED
        ]
        table = pd.DataFrame(rows, columns=["span", "rephrasing", "dimension"], dtype=str).map(csv_cell)
        with whole_file(self.folder / TABLE) as file:
            table.to_csv(file, index=False, lineterminator="\n")
        return len(rows)

    def _is_own(self, lines: Sequence[AnswerLine]) -> bool:
        written = [line.annotator for line in lines if line.action == "write"]
        return bool(written) and _person(written[-1]) == _person(self.annotator)

    def _item(self, key: str, lines: Sequence[AnswerLine], step: str) -> dict[str, Any]:
        history = [{"action": line.action, "text": line.text} for line in lines]
        return {**asdict(self.spans[key]), "step": step, "n_seen": len(lines), "history": history}

    def _drop_torn_line(self) -> None:
        path = self.folder / ANSWERS
        if path_exists(path):
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            try:
                AnswerLine.model_validate_json(content[whole:])  # an editor removed its end
            except ValidationError:
                with path.open("r+b") as file:
                    file.truncate(whole)


def _step(lines: Sequence[AnswerLine]) -> str:
    return _STEP_AFTER[lines[-1].action] if lines else WRITE


def _person(name: str) -> str:
    """Spellings of a name that are one person's."""
    return normalize_space(unicodedata.normalize("NFKC", name)).casefold()


def pages(store: RephrasingStore) -> APIRouter:
    """The page at `/rephrase` and the requests of its script, for an application behind `AccessControl`."""

    def page() -> Response:
        return html_page("rephrasing.html.j2", annotator=store.annotator, max_chars=MAX_TEXT_CHARS)

    def next_item(skipped: str = "") -> Response:
        try:
            return JSONResponse(store.next_item(skipped.split(",")))
        except (UndertowError, OSError) as error:
            return PlainTextResponse(f"The answers cannot be read: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)

    def answer(contribution: Contribution) -> Response:
        try:
            store.answer(contribution)
        except RefusedError as error:
            status = HTTPStatus.CONFLICT if isinstance(error, OutdatedError) else HTTPStatus.BAD_REQUEST
            return PlainTextResponse(str(error), status)
        except (UndertowError, OSError) as error:
            return PlainTextResponse(f"The answer could not be written: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)
        return JSONResponse({"saved": contribution.item})

    router = APIRouter(prefix=REPHRASE)
    router.add_api_route("", page)
    router.add_api_route("/next", next_item)
    router.add_api_route("/answers", answer, methods=["POST"])
    return router
