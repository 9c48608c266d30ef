"""Check what a file says against a pydantic schema; the first error becomes one sentence that names the key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from undertow.errors import UndertowError, closest

MAX_CHARS = 60
"""Length of a quoted value."""
T = TypeVar("T")


class Schema(BaseModel):
    """A table of a file: values have exactly their types, and an unknown key is refused with the one that was meant."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {key!r}{closest(str(key), cls.model_fields)}; use {known}")
        return given


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write a text")
    return text


def _distinct(values: list[str]) -> list[str]:
    twice = next((value for value, n in Counter(values).items() if n > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is listed more than once; write it once")
    return values


Text = Annotated[str, AfterValidator(_not_blank)]
Texts = Annotated[list[Text], Field(min_length=1), AfterValidator(_distinct)]


def check(schema: type[T] | TypeAdapter[T], value: object, where: str) -> T:
    """The value as its schema has it.

    Raises:
        UndertowError: a key is missing, unknown, or holds something else than it must; `where` names the file.
    """
    adapter = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UndertowError(f"{where}: {first_problem(error)}") from error


def first_problem(error: ValidationError, above: str = "", *, is_json: bool = False) -> str:
    """The first field that a schema refuses, and why.

    Args:
        error: from the validation.
        above: stands before its place.
        is_json: whether a place is written as a path into JSON, `results.0.value`, and not as in a file that people write.
    """
    first = error.errors(include_url=False)[0]
    place = above + (".".join(map(str, first["loc"])) if is_json else _place(first["loc"]))
    if first["type"] == "missing":
        return f"it has no {place}"
    if first["type"] == "value_error":
        return f"{place}: {first['ctx']['error']}" if place else str(first["ctx"]["error"])
    if first["type"] == "too_short":
        reason = f"must have {first['ctx']['min_length']} or more"
    else:
        reason = "should be a table" if first["type"] == "model_type" else first["msg"].removeprefix("Input ")
    return f"{place} holds {repr(first['input'])[:MAX_CHARS]}, and {reason}"


def _place(parts: Sequence[int | str]) -> str:
    """Keys with dots between them, entries of a list by number from 1: `wording 2, single`."""
    place = ""
    for part in parts:
        if isinstance(part, int):
            place += f" {part + 1}"
        elif part != "[key]":  # pydantic's mark of an error in the key itself
            place += ("" if not place else ", " if place[-1].isdigit() else ".") + part
    return place
