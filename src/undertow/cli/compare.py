"""`undertow compare`: runs of one audit beside each other, in words, as JSON, as a page and as a table.

Knows options and what a terminal shows; compares nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.terminal import Json, progress_bar, say_table, stoppable

if TYPE_CHECKING:
    from undertow.comparing.runs import Compared

SHOWN_ROWS = 10


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of one audit, the baseline first.")],
    *,
    seed: Annotated[int, typer.Option(help="Seed of permutations, and of groups of clusters.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for page, table and JSON; chosen from the runs if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what differs between runs: paired by item, with intervals, and refused where runs are not comparable."""
    from undertow.comparing import runs as comparing

    asked = comparing.Runs.read(runs)
    folder = out if out is not None else asked.folder(seed)
    comparing.check_folder(folder, asked.key(seed))
    with stoppable("nothing was written"), progress_bar(as_json, "comparing", "measuring") as progress:
        compared = asked.compared(seed, progress)
        page = compared.write(folder)
    if as_json:
        answer = {"folder": str(folder), "report": str(page), **comparing.plain_of(compared)}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    _say(compared)
    typer.echo(f"Report: {page.resolve()}")


def _say(compared: Compared) -> None:
    """The strongest differences as sentences and as a table, and how many cannot be told from zero."""
    from undertow.comparing.runs import rows_of

    told = compared.findings
    found, others = [one.text for one in told if one.found], [one.text for one in told if not one.found]
    for text in found[:SHOWN_ROWS]:
        typer.echo(f"* {text}")
    if len(found) > SHOWN_ROWS:
        typer.echo(f"* And {len(found) - SHOWN_ROWS:,} more differences; the page has all of them.")
    for text in others:
        typer.echo(f"- {text}")
    for note in compared.notes:
        typer.echo(note)
    for one in compared.comparisons:
        rows = [] if one.identical else rows_of(one)[:SHOWN_ROWS]
        if rows:
            typer.echo(f"\nThe strongest differences of {one.candidate} and {one.baseline}")
            say_table(rows)
