"""`undertow doctor`: what one model can be asked, whether it reads, how fast it is, and what bfloat16 changes.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.options import Dtype
from undertow.cli.terminal import Json, progress_bar, say, say_json, stoppable

if TYPE_CHECKING:
    from undertow.doctor import Checkup

HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A commit, or SHA-256: the only revisions that say as much when they are cut."""
KIND_UNITS = {"blank": "sentences", "generation": "prompts"}


def doctor(  # noqa: PLR0913 - an option each
    *,
    model: Annotated[
        str,
        typer.Option("-m", "--model", help="A name of `undertow ls models`, a hub id, a model folder or a GGUF file."),
    ],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of a hub id.")] = "",
    dtype: Dtype = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")] = "auto",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the model family, as in base_url=http://...; may be repeated."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Load it in bfloat16 too, and compare.")] = False,
    as_json: Json = False,
) -> None:
    """Load a model, say what it can be asked, ask it twenty sentences that decide their answer, and time it."""
    with stoppable("nothing was kept"), progress_bar(as_json) as progress:
        # What takes seconds to load is loaded after the bar is there.
        from undertow import doctor, models
        from undertow.models.base import Request

        request = Request(model, revision, dtype, device, models.parsed_settings(setting or []))
        checkup = doctor.examine(request, compare_dtypes=compare, progress=progress)
    if as_json:
        plain = dataclasses.asdict(checkup)
        say_json(plain)
        return
    _say_checkup(checkup)


def _say_checkup(checkup: Checkup) -> None:
    from undertow import doctor
    from undertow.models.base import DTYPES

    revision = checkup.card["revision"]
    shown = revision[:16] if HASH.fullmatch(revision) else revision
    say(f"{checkup.model}: {checkup.card['family']}, {checkup.card['source']} at {shown}")
    if checkup.facts:
        size = checkup.facts.get("parameters")
        known = [f"{_how_many(float(size))} parameters"] if size else []
        known += [str(fact) for name, fact in checkup.facts.items() if name != "parameters" and fact]
        say(f"  {', '.join(known)}")
    for words, answer in doctor.kinds(checkup).items():
        say(f"  {words}: {answer}")
    if checkup.reading:
        say(f"  sentences that decide between she and he: {checkup.reading.verdict}")
    speeds = ", ".join(
        f"{rate:.1f} {KIND_UNITS.get(kind, kind)} a second" for kind, rate in checkup.items_per_s.items()
    )
    in_what = f"in {checkup.dtype}" if checkup.dtype in DTYPES else checkup.dtype
    say(f"  loaded in {checkup.load_s:.1f} s; {speeds or 'not timed'}, {in_what} on {doctor.machine()}")
    if checkup.dtype_note:
        say(f"  bfloat16 was not compared with float32: {checkup.dtype_note}")
    else:
        say(
            f"  bfloat16 against float32: at most {checkup.dtype_gap_nats:.2g} nats apart; the preferred words differ in "
            f"{100 * checkup.dtype_flips:.0f}% of the sample"
        )
    for note in checkup.notes:
        say(f"  {note}")


def _how_many(number: float) -> str:
    """A number of parameters in words that leave a small one more than nothing."""
    for unit, words in ((1e6, " million"), (1e3, " thousand")):
        if number >= unit:
            return f"{number / unit:,.0f}{words}"
    return f"{number:,.0f}"
