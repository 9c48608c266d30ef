"""`undertow guard`: whether one sentence, or each of a file, decides its blank."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.console import (
    DataDir,
    Device,
    Dtype,
    Json,
    Model,
    Revision,
    echo,
    print_json,
    progress_bar,
    stoppable,
    warn,
)
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.runs.guard import Verdict


def guard_command(  # noqa: PLR0913 - an option each
    text: Annotated[
        str, typer.Argument(help="A sentence with its blank marked {blank}; leave it out with --file.")
    ] = "",
    *,
    model: Model,
    options: Annotated[
        str, typer.Option(help="What may fill the blank: 'yes: is; no: is not'; pronouns if not given.")
    ] = "",
    file: Annotated[
        Path | None, typer.Option(help="JSONL: one object a line, with text, and options where they are not pronouns.")
    ] = None,
    challenge: Annotated[str, typer.Option(help="Schema set to compare with.")] = "undertow-schemas",
    data_dir: DataDir = "",
    w: Annotated[str, typer.Option(help="W list: date, place, subreddit, or a file with one value a line.")] = "date",
    inject: Annotated[str, typer.Option(help="How W goes in.")] = "In {w}: ",
    date_start: Annotated[int, typer.Option(help="First year of the date list.")] = 1901,
    date_stop: Annotated[int, typer.Option(help="Last year of the date list.")] = 2016,
    date_count: Annotated[int, typer.Option(help="Number of years.")] = 2,
    endpoint_window: Annotated[int, typer.Option(help="Number of W values to average at each end of the list.")] = 1,
    revision: Revision = "",
    dtype: Dtype = "float32",
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="JSONL file for the verdicts of --file.")] = None,
    as_json: Json = False,
) -> None:
    """Check whether a sentence decides its blank or an answer is a guess."""
    from undertow.runs import guard as checking
    from undertow.runs.guard import check_out, read_lines, write_verdicts

    if bool(text) == (file is not None):
        raise UndertowError("give one sentence, or a file of them with --file")
    if out is not None and file is None:
        raise UndertowError("--out is for the verdicts of --file; give one, or leave --out out")
    check_out(out)
    lines = read_lines(file, options) if file is not None else []
    if text:
        checking.check_sentence(text, options)
    with stoppable(), progress_bar(as_json) as progress:
        guard = checking.guard(
            model,
            challenge=challenge,
            data_dir=data_dir,
            w=w,
            inject=inject,
            date_start=date_start,
            date_stop=date_stop,
            date_count=date_count,
            endpoint_window=endpoint_window,
            revision=revision,
            dtype=dtype,
            device=device,
            progress=progress,
        )
        if file is None:
            _print_verdict(guard(text, options), as_json=as_json)
        else:
            for note in guard.notes:
                warn(note)
            write_verdicts(guard, lines, out)


def _print_verdict(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        print_json(verdict.as_json())
        return
    if verdict.unspecified is None:
        echo(f"no verdict: {verdict.missing_reason}")
        return
    chance = f" (chance {verdict.chance_percent:.0f}%)" if math.isfinite(verdict.chance_percent) else ""
    echo(f"{'unspecified' if verdict.unspecified else 'well specified'}{chance}: {verdict.text}")
    echo(verdict.advice)
    for value, shares in verdict.percent.items():
        echo(f"  {value}: {', '.join(f'{group} {share:.1f}%' for group, share in shares.items())}")
    for name, standing in verdict.scores.items():
        beside = (
            f": above {100 * standing.above_unspecified:.0f}% of the undecided and {100 * standing.above_specified:.0f}% of the "
            "deciding sentences of the schema set"
            if math.isfinite(standing.above_unspecified)
            else ""
        )
        unit = "%" if name in ("entropy", "jensen_shannon") else " points"
        echo(f"  {name.replace('_', ' ')} {standing.value:.1f}{unit}{beside}")
    echo(f"  at most {verdict.other_words_percent:.0f}% went to other words")
    echo(f"Rests on: {verdict.rests_on}.")
    for note in verdict.notes:
        echo(note)
