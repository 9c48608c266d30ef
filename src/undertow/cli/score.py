"""`undertow score` and `undertow report`: recorded answers measured, and a run told, anew.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.options import About, Graph, Out, Overwrite, Protocol
from undertow.cli.outcome import say_grounds, say_run
from undertow.cli.terminal import Json, one_line, say


def score(  # noqa: PLR0913 - an option each
    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a recorded table (CSV, TSV, Parquet; .gz allowed), or what lm-evaluation-harness logged."
        ),
    ],
    *,
    probe: Annotated[str, typer.Option(help="Which audit a recorded table belongs to.")] = "",
    protocol: Protocol = "",
    seed: Annotated[int | None, typer.Option(help="Seed of resampling.")] = None,
    about: About = None,
    graph: Graph = "",
    columns: Annotated[
        Path | None, typer.Option(help="TOML file that says which column of a table is which: [columns], [groups].")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Measure a saved run, a recorded table or a log of lm-evaluation-harness, without asking any model."""
    from undertow import rescoring

    say_run(
        rescoring.score(
            path,
            probe=probe,
            protocol=protocol,
            seed=seed,
            about=about or "",
            graph=graph,
            columns=columns or "",
            out=out,
            overwrite=overwrite,
        ),
        as_json=as_json,
        asked=False,
    )


def report(run: Annotated[Path, typer.Argument(help="A run folder.")], *, graph: Graph = "") -> None:
    """Write the figures and the page of a run folder anew."""
    from undertow import rescoring

    page = rescoring.retell(run, graph)
    if graph:
        from undertow.named_graphs import grounds_of
        from undertow.records import read_record

        grounds = grounds_of(read_record(run))
        if grounds is not None:
            say_grounds(grounds)
    say(one_line(page))
