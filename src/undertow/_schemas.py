"""Check the content of a file against a pydantic schema; the first error becomes one sentence that names the key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from undertow.errors import UndertowError, closest

MAX_CHARS = 60
"""Length of a quoted value."""
REQUIREMENTS: Mapping[str, str] = {
    "string_type": "be text", "string_too_short": "not be empty", "string_too_long": "have at most {max_length} characters",
    "int_type": "be a whole number", "int_parsing": "be a whole number", "int_from_float": "be a whole number",
    "int_parsing_size": "be a smaller number", "float_type": "be a number", "float_parsing": "be a number",
    "finite_number": "be a finite number", "bool_type": "be true or false", "bool_parsing": "be true or false",
    "literal_error": "be {expected}", "list_type": "be a list", "tuple_type": "be a list", "dict_type": "be a table",
    "model_type": "be a table", "model_attributes_type": "be a table", "dataclass_type": "be a table", "none_required": "be null",
    "too_short": "have {min_length} or more", "too_long": "have {max_length} or fewer", "greater_than": "be more than {gt:g}",
    "greater_than_equal": "be {ge:g} or more", "less_than": "be less than {lt:g}", "less_than_equal": "be {le:g} or less",
    "extra_forbidden": "not be there",
}  # fmt: skip
"""Requirements of a value, by pydantic's type of error."""
T = TypeVar("T")


class Schema(BaseModel):
    """A table of a file: values have exactly their types, and an unknown key is refused with a suggestion."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, given: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in given if isinstance(given, Mapping) else ():
            if key not in known:
                raise ValueError(f"unknown key {key!r}{closest(str(key), known)}; use {', '.join(known)}")
        return given


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write a text")
    return text


def distinct(values: list[str]) -> list[str]:
    """Refuse a list that repeats a text."""
    if (twice := next((value for value, n in Counter(values).items() if n > 1), None)) is not None:
        raise ValueError(f"{twice!r} is listed more than once; write it once")
    return values


Text = Annotated[str, AfterValidator(_not_blank)]
Texts = Annotated[list[Text], Field(min_length=1), AfterValidator(distinct)]


adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""The validator of a type, made once."""


def check(schema: type[T] | TypeAdapter[T], value: object, where: str) -> T:
    """Validate a value; raises `UndertowError` for a missing or unknown key or an invalid value; `where` names the file."""
    adapter: TypeAdapter[T] = schema if isinstance(schema, TypeAdapter) else adapter_of(schema)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UndertowError(f"{where}: {first_problem(error)}") from error


def first_problem(error: ValidationError, above: str = "", *, is_json: bool = False) -> str:
    """The first invalid field, and the reason. Its place follows `above`; with `is_json` it is a path such as `results.0.value`."""
    first = error.errors(include_url=False)[0]
    place = above + (".".join(map(str, first["loc"])) if is_json else _place(first["loc"]))
    if first["type"] == "missing":
        return f"it has no {place}"
    if first["type"] == "json_invalid":
        return "it is not JSON"
    if first["type"] == "value_error":
        return f"{place}: {first['ctx']['error']}" if place else str(first["ctx"]["error"])
    return f"{place or 'it'} holds {repr(first['input'])[:MAX_CHARS]}, and {requirement(first)}"


def requirement(first: ErrorDetails) -> str:
    """Requirement of a value: `must be a whole number`."""
    words = REQUIREMENTS.get(first["type"], "have another form")
    return f"must {words.format(**first.get('ctx', {}))}"


def _place(parts: Sequence[int | str]) -> str:
    """Keys joined by dots, and list entries by number from 1: `wording 2, single`."""
    place = ""
    for part in parts:
        if isinstance(part, int):
            place += f" {part + 1}"
        elif part != "[key]":  # pydantic's mark of an error in the key itself
            place += ("" if not place else ", " if place[-1].isdigit() else ".") + part
    return place
