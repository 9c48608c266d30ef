"""Edits of a JSON document: a field taken away, renamed or given another value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[object, ...] = (
    None, -1, 10**400, 1e308, float("nan"), True, 0, 2**63, "", "x" * 300, "\x00", [], {}, [[]], [1, "a"], {"a": 1},
)  # fmt: skip


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*above, key)
        yield from places(one, (*above, key))


def change(document: Any, place: tuple[Any, ...], value: object) -> None:
    """Give the field at a place another value; `...` takes it away."""
    *above, key = place
    for one in above:
        document = document[one]
    if value is ...:
        del document[key]
    else:
        document[key] = value


def edited(document: Any, choice: random.Random) -> str:
    """Take one field away, rename it or give it another value; says what was done."""
    place = choice.choice(list(places(document)))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    how = choice.choice(("take", "rename", *VALUES))
    if how == "take" or (how == "rename" and isinstance(holder, list)):
        del holder[place[-1]]
    elif how == "rename":
        holder[f"{place[-1]}x"] = holder.pop(place[-1])
    else:
        holder[place[-1]] = how
    return f"{place}: {str(how)[:40]!r}"
