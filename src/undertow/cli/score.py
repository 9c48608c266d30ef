"""`undertow score`, `undertow report` and `undertow scaling`: commands on recorded answers and runs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.console import (
    Graph,
    Json,
    ModelInfo,
    Out,
    Overwrite,
    Protocol,
    echo,
    one_line,
    print_json,
    print_run,
    print_table,
    print_text,
)
from undertow.errors import UndertowError


def score(  # noqa: PLR0913 - an option each
    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a recorded table (CSV, TSV, Parquet; .gz allowed), or a log of lm-evaluation-harness or Inspect."
        ),
    ],
    *,
    audit: Annotated[str, typer.Option(help="Which audit a recorded table belongs to.")] = "",
    protocol: Protocol = "",
    seed: Annotated[int | None, typer.Option(help="Seed of resampling.")] = None,
    model_info: ModelInfo = None,
    graph: Graph = "",
    columns: Annotated[
        Path | None, typer.Option(help="TOML file that says which column of a table is which: [columns], [groups].")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Score recorded answers without a model. Reads a run folder, a table or a log of lm-evaluation-harness or Inspect."""
    from undertow.runs import score as rescoring

    print_run(
        rescoring.score(
            path,
            audit=audit,
            protocol=protocol,
            seed=seed,
            model_info=model_info or "",
            graph=graph,
            columns=columns or "",
            out=out,
            overwrite=overwrite,
        ),
        as_json=as_json,
        with_counts=False,
    )


def report(run: Annotated[Path, typer.Argument(help="A run folder.")], *, graph: Graph = "") -> None:
    """Rewrite the figures and the page of a run folder."""
    from undertow.runs import score as rescoring

    page = rescoring.render_report(run, graph)
    if graph:
        from undertow.runs.causal_assumptions import assumptions_of
        from undertow.runs.folder.storage import read_record

        causal_assumptions = assumptions_of(read_record(run))
        if causal_assumptions is not None:
            print_text("graph", assumptions=causal_assumptions)
    echo(one_line(page))


def scaling(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task-specification and of spurious-correlation.")],
    *,
    size: Annotated[
        list[str] | None, typer.Option(help="A model's number of parameters, as in smollm2=135e6; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Relate detection to drift and to model size over several models."""
    from undertow.runs import score

    points, relations = score.scaling(runs, _sizes(size or []))
    rows = [dataclasses.asdict(point) for point in points]
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
        print_json({"models": rows, "relations": ranks})
        return
    print_table([{name: _rounded(cell) for name, cell in row.items()} for row in rows])
    print_table([{name: _rounded(cell) for name, cell in row.items()} for row in ranks])


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
