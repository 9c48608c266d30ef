"""What every exported question carries, so that its answer can be measured wherever it comes back from.

A question is one JSON text in one column: readers of tables guess the types of columns, and would turn a missing factor into
null or a date into a time. Knows how it is written and read; knows nothing about the tools that carry it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from undertow.integrations.export_format import ExportRequest
from undertow.types import ClozeQuery, GenerateQuery, Item, Option, as_json

COLUMN = "undertow"
"""The column that holds it."""
VERSION = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Which questions a question is one of: equal for all of one export.

    Attributes:
        audit, options, seed, limit, challenge_sha256: as in `undertow.integrations.export_format.ExportRequest`.
        design_json: its design, as canonical JSON.
        n_items: how many there are.
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
        """Of the audit, those that are not at their defaults."""
        found: dict[str, Any] = json.loads(self.options_json)
        return found

    @property
    def design(self) -> dict[str, Any]:
        """What the measures need beside the answers."""
        found: dict[str, Any] = json.loads(self.design_json)
        return found


@dataclass(frozen=True, slots=True)
class CarriedItem:
    """A question that came back.

    Attributes:
        origin: what it is one of.
        place: in the order of a run, from 0.
        item: the question.
    """

    origin: Origin
    place: int
    item: Item


def carried_texts(asked: ExportRequest) -> list[str]:
    """What each question carries [item]."""
    origin = {
        "version": VERSION,
        "audit": asked.audit,
        "options": dict(asked.options),
        "seed": asked.seed,
        "limit": asked.limit,
        "challenge_sha256": asked.challenge_sha256,
        "design": dict(asked.design),
        "n_items": len(asked.items),
    }
    return [as_json({**origin, "place": place, "item": _item_as_json(item)}) for place, item in enumerate(asked.items)]


LARGEST = 2**63 - 1
"""Of whole numbers, as tables hold them."""


def read_carried(text: str) -> CarriedItem:
    """A question from what it carries.

    Raises:
        ValueError: it is damaged, or of a newer version; says what is wrong.
    """
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or not isinstance(found.get("version"), int):
            raise ValueError("it is no question of undertow export")
        if found["version"] > VERSION:
            raise ValueError("it was written by a newer Undertow; update to read it")
        origin = Origin(
            audit=_of_type(found["audit"], str),
            options_json=_canonical(_of_type(found["options"], dict)),
            seed=_of_type(found["seed"], int),
            limit=_of_type(found["limit"], int),
            challenge_sha256=_of_type(found["challenge_sha256"], str),
            design_json=_canonical(_of_type(found["design"], dict)),
            n_items=_of_type(found["n_items"], int),
        )
        return CarriedItem(origin, _of_type(found["place"], int), _item_of(found["item"]))
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
        asked: dict[str, Any] = {"kind": "blank", "pieces": list(query.pieces)}
    elif isinstance(query, GenerateQuery):
        asked = {
            "kind": "generation", "prompt": query.prompt, "max_tokens": query.max_tokens, "chat": query.chat
        }  # fmt: skip
    else:
        raise TypeError(f"{type(query).__name__} has no options to carry")
    asked["options"] = [[option.group, list(option.fills)] for option in query.options]
    return {"id": item.id, "query": asked, "factors": dict(item.factors), "cluster": item.cluster, "gold": item.gold}


def _item_of(found: Mapping[str, Any]) -> Item:
    asked = found["query"]
    options = tuple(
        Option(_of_type(group, str), tuple(_of_type(fill, str) for fill in fills)) for group, fills in asked["options"]
    )
    query: ClozeQuery | GenerateQuery
    if asked["kind"] == "blank":
        query = ClozeQuery(tuple(_of_type(piece, str) for piece in asked["pieces"]), options)
    elif asked["kind"] == "generation":
        query = GenerateQuery(
            _of_type(asked["prompt"], str), options, _of_type(asked["max_tokens"], int), _of_type(asked["chat"], bool)
        )
    else:
        raise ValueError(f"it is of an unknown kind, {str(asked['kind'])[:40]!r}")
    factors = _of_type(found["factors"], dict)
    for name, level in factors.items():
        if not isinstance(level, (str, int, float, bool)) or (isinstance(level, int) and abs(level) > LARGEST):
            raise TypeError(f"factor {name!r} is {str(level)[:40]!r}")
    gold = found["gold"]
    return Item(
        _of_type(found["id"], str),
        query,
        factors,
        _of_type(found["cluster"], str),
        None if gold is None else _of_type(gold, str),
    )
