"""Options that commands share: those read from dataclasses (`undertow run PROBE`, `undertow export FORMAT PROBE`), and single ones.

Knows fields and annotations; knows nothing about what any option means.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any, get_type_hints

import typer

Dtype = Annotated[
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 where this machine is fast at it.")
]


def parameters_of(options: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as options of a command: as they are annotated, or by their type and the help beside it."""
    hints = get_type_hints(options, include_extras=True)
    return [
        parameter(
            option.name,
            Annotated[hints[option.name], typer.Option(help=option.metadata["help"])]
            if "help" in option.metadata
            else hints[option.name],
            inspect.Parameter.empty if option.default is dataclasses.MISSING else option.default,
        )
        for option in dataclasses.fields(options)
    ]


def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """One option of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
