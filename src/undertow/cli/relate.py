"""`undertow relate`: detection against drift and size, over several models.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.terminal import Json, say_json, say_table
from undertow.types import UndertowError


def relate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task-specification and of spurious-correlation.")],
    *,
    size: Annotated[
        list[str] | None, typer.Option(help="A model's number of parameters, as in smollm2=135e6; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Over several models, say whether detection is better where the drift, or the model, is larger."""
    from undertow import rescoring

    found, relations = rescoring.relate(runs, _sizes(size or []))
    rows = [dataclasses.asdict(point) for point in found]
    ranks = [
        {
            **relation.group,
            "rank correlation": relation.value,
            "p": relation.p,
            "models": relation.n,
            "note": relation.note,
        }
        for relation in relations
    ]
    if as_json:
        say_json({"models": rows, "relations": ranks})
        return
    say_table([{name: _rounded(cell) for name, cell in row.items()} for row in rows])
    say_table([{name: _rounded(cell) for name, cell in row.items()} for row in ranks])


def _sizes(given: list[str]) -> dict[str, float]:
    sizes = {}
    for text in given:
        model, _, number = text.rpartition("=")
        try:
            sizes[model] = float(number)
        except ValueError as error:
            raise UndertowError(f"--size {text!r}: write it as model=number, as in smollm2=135e6") from error
        if not model or not 0 < sizes[model] < math.inf:
            raise UndertowError(f"--size {text!r}: write it as model=number, as in smollm2=135e6")
    return sizes


def _rounded(cell: object) -> object:
    if not isinstance(cell, float):
        return cell
    return f"{cell:.4g}" if math.isfinite(cell) else ""
