"""`undertow compare`: runs of one audit beside each other, in words, as JSON, as a page and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.console import Json, echo, print_json, print_table, progress_bar, stoppable

if TYPE_CHECKING:
    from undertow.runs.compare.compare_folders import ComparedRuns

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
    with stoppable("nothing was written"), progress_bar(as_json, "comparing", "measuring") as progress:
        compared = named.compare(options, progress)
        page = compared.write(folder)
    if as_json:
        answer = {"folder": str(folder), "report": str(page), **comparing.plain_of(compared)}
        print_json(answer)
        return
    _print(compared)
    echo(f"Report: {page.resolve()}")


def _print(compared: ComparedRuns) -> None:
    """Print the strongest differences as sentences and as a table, and count those that are equivalent or undecided."""
    from undertow.runs.compare.compare_folders import counts_of, rows_of

    findings = compared.findings
    significant, others = (
        [one.text for one in findings if one.significant],
        [one.text for one in findings if not one.significant],
    )
    for text in significant[:MAX_ROWS]:
        echo(f"* {text}")
    if len(significant) > MAX_ROWS:
        more = len(significant) - MAX_ROWS
        echo(f"* And {more:,} more {'difference' if more == 1 else 'differences'}; the page has all of them.")
    for text in others:
        echo(f"- {text}")
    for note in compared.notes:
        echo(note)
    several = [one for one in compared.comparisons if not one.identical]
    if len(compared.comparisons) > 1:
        echo("")
        echo("Every pair")
        print_table(counts_of(compared.comparisons))
    rows = rows_of(compared.comparisons)[:MAX_ROWS] if several else []
    if rows:
        names = " and ".join(dict.fromkeys((several[0].candidate, several[0].baseline)))
        echo("")
        echo(f"The strongest differences{'' if len(compared.comparisons) > 1 else f' of {names}'}")
        print_table(rows)
