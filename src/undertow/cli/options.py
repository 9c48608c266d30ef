"""Options that commands share: those read from dataclasses (`undertow run PROBE`, `undertow export FORMAT PROBE`), and single ones.

Knows fields and annotations; decides nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

Dtype = Annotated[
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 where this machine is fast at it.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder to write; chosen from what is asked if not given.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another run.")]
About = Annotated[
    Path | None,
    typer.Option(help="TOML file with the parameters, objective and post_training of models: [models.NAME]."),
]


def _named(context: typer.Context, parameter: typer.CallbackParam, graph: str) -> str:
    """An empty name is none, and not the same as naming no graph."""
    source = context.get_parameter_source(str(parameter.name))
    if not graph and source is not None and source.name == "COMMANDLINE":
        from undertow.causal.published import find_graph

        find_graph(graph)
    return graph


Graph = Annotated[
    str,
    typer.Option(
        "--graph",
        callback=_named,
        help="Causal graph to read the findings under: a name of `undertow dag`, a file, or the graph itself.",
    ),
]
Protocol = Annotated[str, typer.Option("--protocol", help="exact or paper, where there is a choice.")]


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


def without_help(one: inspect.Parameter) -> inspect.Parameter:
    """The same option, which the help does not list."""
    kind, option = get_args(one.annotation)
    option = copy.copy(option)
    option.hidden = True
    return one.replace(annotation=Annotated[kind, option])
