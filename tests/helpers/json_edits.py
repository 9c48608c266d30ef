"""Edits of a JSON document by the place of a field."""

from __future__ import annotations

from typing import Any


def change(document: Any, place: tuple[Any, ...], value: object) -> None:
    """Give the field at a place another value; `...` takes it away."""
    *above, key = place
    for one in above:
        document = document[one]
    if value is ...:
        del document[key]
    else:
        document[key] = value
