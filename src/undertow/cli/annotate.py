"""`undertow annotate`: rephrasings judged in the browser, and what was judged so far.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import dataclasses
import getpass
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.terminal import Json, one_line, say, say_list
from undertow.types import UndertowError


def annotate(
    run: Annotated[Path, typer.Argument(help="A run folder of bias-rephrasing.")],
    *,
    who: Annotated[str, typer.Option(help="Whose judgement it is; the name of the account if not given.")] = "",
    port: Annotated[int, typer.Option(help="Port of this machine to serve the page on; 0 for a free one.")] = 0,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print what was judged so far, and serve nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge rephrasings in the browser; every judgement is kept beside the run at once."""
    from undertow.web import annotation

    if summary:
        rows = [dataclasses.asdict(row) for row in annotation.summary(run)]
        if not rows and not as_json:
            say(f"{one_line(run)}: nothing has been judged yet; leave --summary out to begin")
        if not as_json:
            rows = [row | {name: f"{row[name]:.1f}" for name in ("percent", "low", "high")} for row in rows]
        say_list(rows, as_json=as_json)
        return
    if as_json:
        raise UndertowError("--json goes with --summary; leave it out to judge")
    annotation.serve(run, who or _account(), port, lambda url: say(f"Open {url} (Ctrl-C ends it)"))
    say(f"Judgements: {(run / annotation.ANNOTATIONS).resolve()}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise UndertowError("this account has no name; say whose judgement it is with --who NAME") from error
