"""Encode an item as JSON inside an export, so that its answer can be scored later.

An item is one JSON text in one column: readers of tables guess column types, and would turn a missing factor into null or
a date into a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertow.errors import UndertowError
from undertow.integrations.export_format import ExportRequest
from undertow.types import ClozeQuery, GenerateQuery, Item, Option, as_json

COLUMN = "undertow"
"""The column that holds it."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """The export that an item belongs to.

    Attributes:
        audit, options, seed, limit, challenge_sha256: as in `undertow.integrations.export_format.ExportRequest`.
        design_json: the design, as canonical JSON.
        n_items: number of exported items.
    """

    audit: str
    options_json: str
    seed: int
    limit: int
    challenge_sha256: str
    design_json: str
    n_items: int

    @property
    def options(self) -> dict[str, Any]:
        """The audit's options that differ from their defaults."""
        parsed: dict[str, Any] = json.loads(self.options_json)
        return parsed

    @property
    def design(self) -> dict[str, Any]:
        """What the metrics need beside the answers."""
        parsed: dict[str, Any] = json.loads(self.design_json)
        return parsed


@dataclass(frozen=True, slots=True)
class CarriedItem:
    """A decoded item.

    Attributes:
        origin: the export that it belongs to.
        place: its index in the order of a run.
        item: the item.
    """

    origin: Origin
    place: int
    item: Item


@dataclass(slots=True)
class LogFiles:
    """The files of another tool's log that were read so far; all belong to one export.

    Attributes:
        path: the path that the user named.
        origin: the export; None before the first sample.
        first_file: file of the first sample.
        digest: SHA-256 over the files.
    """

    path: Path
    origin: Origin | None = None
    first_file: Path | None = None
    digest: Any = field(default_factory=hashlib.sha256)

    def check_origin(self, origin: Origin, file: Path) -> None:
        """Refuse a sample of another export than that of the first.

        Raises:
            UndertowError: names both files.
        """
        self.origin, self.first_file = self.origin or origin, self.first_file or file
        if origin != self.origin:
            raise UndertowError(
                f"{file}: answers another export than {self.first_file}; name one of them, and measure the other by itself"
            )


def carried_texts(request: ExportRequest) -> list[str]:
    """The JSON text of each item [item]."""
    origin = {
        "version": VERSION,
        "audit": request.audit,
        "options": dict(request.options),
        "seed": request.seed,
        "limit": request.limit,
        "challenge_sha256": request.challenge_sha256,
        "design": dict(request.design),
        "n_items": len(request.items),
    }
    return [
        as_json({**origin, "place": place, "item": _item_as_json(item)}) for place, item in enumerate(request.items)
    ]


LARGEST = 2**63 - 1
"""Of whole numbers, as tables hold them."""


def read_carried(text: str) -> CarriedItem:
    """Decode an item.

    Raises:
        ValueError: the text is corrupt, or of a newer version; says what is wrong.
    """
    try:
        parsed = json.loads(text)
        if not isinstance(parsed, dict) or not isinstance(parsed.get("version"), int):
            raise ValueError("it is no question of undertow export")
        if parsed["version"] > VERSION:
            raise ValueError("it was written by a newer Undertow; update to read it")
        origin = Origin(
            audit=_of_type(parsed["audit"], str),
            options_json=_canonical(_of_type(parsed["options"], dict)),
            seed=_of_type(parsed["seed"], int),
            limit=_of_type(parsed["limit"], int),
            challenge_sha256=_of_type(parsed["challenge_sha256"], str),
            design_json=_canonical(_of_type(parsed["design"], dict)),
            n_items=_of_type(parsed["n_items"], int),
        )
        return CarriedItem(origin, _of_type(parsed["place"], int), _item_of(parsed["item"]))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]!r}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it does not hold together ({error})") from error


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value


def _item_as_json(item: Item) -> dict[str, Any]:
    query = item.query
    if isinstance(query, ClozeQuery):
        encoded: dict[str, Any] = {"kind": "blank", "pieces": list(query.pieces)}
    elif isinstance(query, GenerateQuery):
        encoded = {
            "kind": "generation", "prompt": query.prompt, "max_tokens": query.max_tokens, "chat": query.chat
        }  # fmt: skip
    else:
        raise TypeError(f"{type(query).__name__} has no options to carry")
    encoded["options"] = [[option.group, list(option.fills)] for option in query.options]
    return {"id": item.id, "query": encoded, "factors": dict(item.factors), "cluster": item.cluster, "gold": item.gold}


def _item_of(fields: Mapping[str, Any]) -> Item:
    encoded = fields["query"]
    options = tuple(
        Option(_of_type(group, str), tuple(_of_type(fill, str) for fill in fills))
        for group, fills in encoded["options"]
    )
    query: ClozeQuery | GenerateQuery
    if encoded["kind"] == "blank":
        query = ClozeQuery(tuple(_of_type(piece, str) for piece in encoded["pieces"]), options)
    elif encoded["kind"] == "generation":
        query = GenerateQuery(
            _of_type(encoded["prompt"], str),
            options,
            _of_type(encoded["max_tokens"], int),
            _of_type(encoded["chat"], bool),
        )
    else:
        raise ValueError(f"it is of an unknown kind, {str(encoded['kind'])[:40]!r}")
    factors = _of_type(fields["factors"], dict)
    for name, level in factors.items():
        if not isinstance(level, (str, int, float, bool)) or (isinstance(level, int) and abs(level) > LARGEST):
            raise TypeError(f"factor {name!r} is {str(level)[:40]!r}")
    gold = fields["gold"]
    return Item(
        _of_type(fields["id"], str),
        query,
        factors,
        _of_type(fields["cluster"], str),
        None if gold is None else _of_type(gold, str),
    )
