"""Human annotation of rephrasings: a page at `/annotate`, and a file of annotations.

The page shows one rephrasing at a time, without its model and prompt, and appends every annotation to `annotations.jsonl` in the
run folder before it continues. When the page ends, the annotations become results of the run.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from undertow._folders import lock_folder
from undertow.app.access_control import ANNOTATE
from undertow.app.annotators.pages import annotator_name, append_line, html_page
from undertow.errors import UndertowError
from undertow.metrics.text import judgements
from undertow.metrics.text.judgements import ALL, CATEGORIES
from undertow.runs.folder.annotations import (
    ANNOTATIONS,
    MAX_NOTE_CHARS,
    AnnotationLine,
    Judgement,
    read_annotations,
    read_answers,
)

_UNKNOWN = "This run has no such rephrasing."


@dataclass(frozen=True, slots=True)
class Rephrasing:
    """A distinct pair of span and answer, which may be empty; its id is equal in all runs."""

    id: str
    span: str
    answer: str
    references: tuple[str, ...]
    dimensions: tuple[str, ...]


def summary(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Counts of categories by model and annotator, and the agreement of annotators, as in `metrics.text.judgements`."""
    answers, given = read_answers(folder)[0], read_annotations(folder)
    return judgements.summary(answers, given), judgements.agreement(answers, given)


class AnnotationStore:
    """One person's annotations of one run, in memory and on disk; the rephrasings come in random order.

    Raises:
        UndertowError: the folder is not a run of `AUDIT`, its annotations are corrupt, or the name is invalid.
    """

    def __init__(self, folder: Path, annotator: str) -> None:
        self.annotator, self.path = annotator_name(annotator), folder / ANNOTATIONS
        if self.annotator == ALL:
            raise UndertowError(f"results reserve the name {ALL!r} for all annotators; give another with --annotator")
        self._answers, seed = read_answers(folder)
        pairs = {}
        for pair, rows in self._answers.groupby("pair", sort=True):
            references, dimensions = (tuple(filter(None, rows[name].unique())) for name in ("gold", "dimension"))
            first = rows.iloc[0]
            pairs[str(pair)] = Rephrasing(str(pair), first["passage"], first["answer"], references, dimensions)
        order = np.random.default_rng(seed).permutation(list(pairs))
        self.rephrasings = {str(pair): pairs[pair] for pair in order}
        known = read_annotations(folder)
        own = known[(known["annotator"] == self.annotator) & known["item"].isin(list(pairs))]
        self.judged = {
            str(item): {"category": category, "note": note}
            for item, category, note in own[["item", "category", "note"]].itertuples(index=False)
        }
        self._lock = threading.Lock()

    def judge(self, item: str, category: str, note: str) -> None:
        """Append an annotation to the file; it is on the disk when this returns. Raises `OSError` if it cannot be written."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"item": item, "category": category, "note": note, "annotator": self.annotator, "time": time}
        line = AnnotationLine.model_validate(row).model_dump_json()
        with self._lock, lock_folder(self.path.parent):
            append_line(self.path, line)
            self.judged[item] = {"category": category, "note": note}

    def sources(self, item: str) -> list[str]:
        """Models and prompts that gave this answer, on demand."""
        rows = self._answers.loc[self._answers["pair"] == item, ["model", "description_class", "shots"]]
        return [
            f"{model}: {wording or 'no description'}, {shots} shots"
            for model, wording, shots in rows.drop_duplicates().itertuples(index=False)
        ]


def pages(store: AnnotationStore) -> APIRouter:
    """The page at `/annotate` and the requests of its script, for an application behind `AccessControl`."""

    def page() -> Response:
        # The page's script receives texts as data and shows them as text.
        data = {
            "categories": list(CATEGORIES),
            "rephrasings": [asdict(one) for one in store.rephrasings.values()],
            "judged": store.judged,
        }
        context = {
            "annotator": store.annotator,
            "categories": CATEGORIES,
            "max_note_chars": MAX_NOTE_CHARS,
            "data": data,
        }
        return html_page("annotation.html.j2", **context)

    def sources(item: str = "") -> Response:
        if item not in store.rephrasings:
            return PlainTextResponse(_UNKNOWN, HTTPStatus.NOT_FOUND)
        return JSONResponse(store.sources(item))

    def judge(judgement: Judgement) -> Response:
        if judgement.item not in store.rephrasings:
            return PlainTextResponse(_UNKNOWN, HTTPStatus.NOT_FOUND)
        try:
            store.judge(judgement.item, judgement.category, judgement.note)
        except OSError as error:
            reason = f"The annotation could not be written to {store.path.name} ({error.strerror})."
            return PlainTextResponse(reason, HTTPStatus.INTERNAL_SERVER_ERROR)
        return JSONResponse({"judged": len(store.judged)})

    router = APIRouter(prefix=ANNOTATE)
    router.add_api_route("", page)
    router.add_api_route("/sources", sources)
    router.add_api_route("/judgements", judge, methods=["POST"])
    return router
