"""`undertow compare`: runs of one audit beside each other, in words, as JSON, as a page and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.console import Json, print_json, print_text, progress_bar, stoppable

MAX_ROWS = 10


def compare(  # noqa: PLR0913 - an option for each choice
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders of one audit, the baseline first; or one run of several models.")
    ],
    *,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            help="Smallest difference of interest: a number, in the unit of each measure, or measure=number pairs with commas; "
            "0.05 points, 0.1 points over a W list for slopes, .005 for shares, if not given."
        ),
    ] = None,
    within: Annotated[
        bool,
        typer.Option("--within", help="Compare the models of each run with each other, too; of a single run always."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of sign flips and of cluster groups.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for page, table and JSON; chosen from the runs if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs pairwise, item by item, with intervals. Runs that are not comparable are an error."""
    from undertow.runs.compare import compare_folders as comparing
    from undertow.runs.compare.equivalence import Margins

    named = comparing.Runs.from_folders(runs)
    options = comparing.CompareOptions(seed, Margins.from_options(margin or ()), within)
    folder = out if out is not None else named.folder(options)
    comparing.check_folder(folder, named.key(options))
    with stoppable("nothing was written"), progress_bar(as_json, "compare") as progress:
        compared = named.compare(options, progress)
        page = compared.write(folder)
    if as_json:
        answer = {"folder": str(folder), "report": str(page), **comparing.plain_of(compared)}
        print_json(answer)
        return
    differ = [one for one in compared.comparisons if not one.identical]
    of_whom = f" of {differ[0].candidate} and {differ[0].baseline}" if differ and len(compared.comparisons) == 1 else ""
    print_text(
        "comparison",
        of=compared,
        counts=comparing.counts_of(compared.comparisons),
        differences=comparing.rows_of(compared.comparisons) if differ else [],
        of_whom=of_whom,
        max_rows=MAX_ROWS,
        page=page,
    )
