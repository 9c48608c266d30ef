"""Encode items as JSON in an export, and decode them from a log for scoring.

An item is one JSON text in one column, because readers of tables guess column types and would change missing factors and dates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from undertow._schemas import first_problem
from undertow.errors import UndertowError
from undertow.integrations.export_format import ExportRequest, Origin
from undertow.types import ClozeQuery, GenerateQuery, Item, as_json

COLUMN = "undertow"
"""Column of the encoded items."""
VERSION = 1
NEWER = "it was written by a newer Undertow; update to read it"
LARGEST = 2**63 - 1
"""Largest integer in tables."""


@dataclass(frozen=True, slots=True)
class CarriedItem(Origin):
    """A decoded item with its export.

    Attributes:
        place: its index in the order of a run.
    """

    version: int
    place: int
    item: Item

    @property
    def origin(self) -> Origin:
        """The export without the item."""
        return Origin(**{one.name: getattr(self, one.name) for one in fields(Origin)})


_CARRIED = TypeAdapter(CarriedItem)
_KINDS: Mapping[str, tuple[type, ...]] = {"w_index": (int,), "w_value": (int, float)}
"""Types of numeric factors."""


def carried_texts(request: ExportRequest) -> list[str]:
    """The JSON text of each item [item]."""
    origin = {name: getattr(request, name) for name in ("audit", "seed", "limit", "challenge_sha256")} | {
        "version": VERSION,
        "options": dict(request.options),
        "design": dict(request.design),
        "n_items": request.n_items,
    }
    texts = []
    for place, item in enumerate(request.items):
        if not isinstance(item.query, ClozeQuery | GenerateQuery):
            raise TypeError(f"{type(item.query).__name__} has no options to carry")
        texts.append(as_json({**origin, "place": place, "item": asdict(item)}))
    return texts


def read_carried(text: str) -> CarriedItem:
    """Decode an item; raises `ValueError` if the text is corrupt or of a newer version."""
    try:
        carried = _CARRIED.validate_json(text, strict=True)
    except ValidationError as error:
        newer = re.search(r'"version"\s*:\s*(\d+)', text)
        if newer and int(newer[1]) > VERSION:
            raise ValueError(NEWER) from error
        raise ValueError(first_problem(error, is_json=True)) from error
    if carried.version > VERSION:
        raise ValueError(NEWER)
    for name, level in carried.item.factors.items():
        if not isinstance(level, _KINDS.get(name, (object,))) or (isinstance(level, int) and abs(level) > LARGEST):
            raise ValueError(f"factor {name!r} is {str(level)[:40]!r}")
    return carried


@dataclass(slots=True)
class LogReader:
    """Reader of another tool's log files, which must belong to one export.

    Attributes:
        origin: the export; None before the first sample.
        first_file: file of the first sample.
        places: file and sample of each answer, by model and index of the item.
    """

    path: Path
    origin: Origin | None = None
    first_file: Path | None = None
    digest: Any = field(default_factory=hashlib.sha256)
    places: dict[str, dict[int, str]] = field(default_factory=dict)

    def add_file(self, file: Path, content: bytes) -> None:
        """Add a file to the digest."""
        self.digest.update(file.name.encode("utf-8", "surrogateescape") + b"\0" + content + b"\0")

    def add_sample(self, carried: CarriedItem, model: str, file: Path, where: str) -> None:
        """Add a sample of a file, at the place `where` in it; it must be of the same export, and its item not answered yet."""
        self.origin, self.first_file = self.origin or carried.origin, self.first_file or file
        if carried.origin != self.origin:
            raise UndertowError(
                f"{file}: belongs to another export than {self.first_file}; name one of them, and measure the other separately"
            )
        earlier = self.places.setdefault(model, {}).setdefault(carried.place, where)
        if earlier != where:
            place = earlier.removeprefix(f"{file}, ")
            fix = "name one of the logs, or move the other away" if place == earlier else "run the task again"
            raise UndertowError(f"{where}: {carried.item.id!r} of {model} has an answer in {place} already; {fix}")

    def incomplete(self, n_items: int, ends: Mapping[str, str]) -> list[str]:
        """Number of samples of each model whose log lacks some or did not end well; `ends` says how it did, by model."""
        return [
            f"{model}: the log has {len(places):,} of the {n_items:,} exported items{ends.get(model, '')}."
            for model, places in self.places.items()
            if len(places) < n_items or model in ends
        ]


def source_note(tool: str) -> str:
    """The note on answers from a log."""
    return f"answers are from a log of {tool}; no model was queried"


def read_question(text: object, kind: type, factors: Sequence[str], where: str) -> CarriedItem:
    """Decode the item of a sample; raises `UndertowError` if it is corrupt, not of this kind, or lacks a factor."""
    try:
        carried = read_carried(str(text))
    except ValueError as error:
        raise UndertowError(f"{where}: its question is corrupt: {error}; export and run the task again") from error
    lacking = [name for name in factors if name not in carried.item.factors]
    if lacking or not isinstance(carried.item.query, kind):
        raise UndertowError(
            f"{where}: its question is corrupt: {f'it has no {lacking[0]}' if lacking else 'it is of another kind'}; export and run the "
            "task again"
        )
    return carried
