"""`undertow guard`: whether one sentence, or each of a file, determines its blank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from undertow.cli.console import print_json, print_text, progress_bar, stoppable, warn
from undertow.cli.options import DataDir, Device, Dtype, Json, Model, Revision, on_model
from undertow.errors import UndertowError


@on_model
def guard_command(  # noqa: PLR0913 - an option each
    text: Annotated[
        str, typer.Argument(help="A sentence with its blank marked {blank}; leave it out with --file.")
    ] = "",
    *,
    model: Model,
    options: Annotated[
        str, typer.Option(help="Word groups for the blank: 'yes: is; no: is not'; pronouns if not given.")
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option(help="JSONL file with one object per line: text, and options if they are not pronouns."),
    ] = None,
    challenge: Annotated[str, typer.Option(help="Schema set to compare with.")] = "undertow-schemas",
    data_dir: DataDir = "",
    w: Annotated[str, typer.Option(help="W list: date, place, subreddit, or a file with one value a line.")] = "date",
    inject: Annotated[str, typer.Option(help="Text that puts W into a sentence.")] = "In {w}: ",
    date_start: Annotated[int, typer.Option(help="First year of the date list.")] = 1901,
    date_stop: Annotated[int, typer.Option(help="Last year of the date list.")] = 2016,
    date_count: Annotated[int, typer.Option(help="Number of years.")] = 2,
    endpoint_window: Annotated[int, typer.Option(help="Number of W values to average at each end of the list.")] = 1,
    revision: Revision = "",
    dtype: Dtype = "float32",
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="JSONL file for the verdicts of --file.")] = None,
    as_json: Json = False,
    settings: Mapping[str, Any],
) -> None:
    """Check whether a model's answer to a sentence is a guess. It is one if the sentence does not determine its blank."""
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
            **settings,
        )
        if file is None:
            verdict = guard(text, options)
            if as_json:
                print_json(verdict.as_json())
            else:
                print_text("verdict", of=verdict)
        else:
            for note in guard.notes:
                warn(note)
            write_verdicts(guard, lines, out)
