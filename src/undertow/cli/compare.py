"""`undertow compare`: runs of one audit beside each other, in words, as JSON, as a page and as a table.

Knows options and what a terminal shows; compares nothing itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.console import Json, progress_bar, say, say_json, say_table, stoppable

if TYPE_CHECKING:
    from undertow.runs.compare.compare_folders import ComparedRuns

SHOWN_ROWS = 10


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
    seed: Annotated[int, typer.Option(help="Seed of flipped signs, and of groups of clusters.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for page, table and JSON; chosen from the runs if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what differs between each pair of runs: paired by item, with intervals, and refused where runs are not comparable."""
    from undertow.runs.compare import compare_folders as comparing
    from undertow.runs.compare.equivalence import Margins

    named = comparing.Runs.read(runs)
    asked = comparing.CompareOptions(seed, Margins.read(margin or ()), within)
    folder = out if out is not None else named.folder(asked)
    comparing.check_folder(folder, named.key(asked))
    with stoppable("nothing was written"), progress_bar(as_json, "comparing", "measuring") as progress:
        compared = named.compared(asked, progress)
        page = compared.write(folder)
    if as_json:
        answer = {"folder": str(folder), "report": str(page), **comparing.plain_of(compared)}
        say_json(answer)
        return
    _say(compared)
    say(f"Report: {page.resolve()}")


def _say(compared: ComparedRuns) -> None:
    """The strongest differences as sentences and as a table, and how many are equivalent or cannot be told."""
    from undertow.runs.compare.compare_folders import counts_of, rows_of

    told = compared.findings
    found, others = [one.text for one in told if one.significant], [one.text for one in told if not one.significant]
    for text in found[:SHOWN_ROWS]:
        say(f"* {text}")
    if len(found) > SHOWN_ROWS:
        more = len(found) - SHOWN_ROWS
        say(f"* And {more:,} more {'difference' if more == 1 else 'differences'}; the page has all of them.")
    for text in others:
        say(f"- {text}")
    for note in compared.notes:
        say(note)
    several = [one for one in compared.comparisons if not one.identical]
    if len(compared.comparisons) > 1:
        say("")
        say("Every pair")
        say_table(counts_of(compared.comparisons))
    rows = rows_of(compared.comparisons)[:SHOWN_ROWS] if several else []
    if rows:
        names = " and ".join(dict.fromkeys((several[0].candidate, several[0].baseline)))
        say("")
        say(f"The strongest differences{'' if len(compared.comparisons) > 1 else f' of {names}'}")
        say_table(rows)
