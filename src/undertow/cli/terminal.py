"""What every command does with a terminal: tables, JSON, a bar, and an end by Ctrl-C that says what became of the work.

Knows nothing about models, audits or what is shown.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.types import UndertowError, as_json

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]

_OBEYED = {*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A)} - set(map(ord, "\t\n"))
_WRITTEN_OUT = {number: ascii(chr(number))[1:-1] for number in _OBEYED}
"""Signs that a terminal obeys or turns a line around for, each as it is written in Python."""


def plain(text: object) -> str:
    """A text as a terminal may be told it: what files and names hold moves no cursor and colours nothing."""
    return str(text).translate(_WRITTEN_OUT)


def one_line(text: object) -> str:
    """The same for a path or a name, which may go over lines and seem to be something that we say."""
    return plain(text).replace("\n", r"\n")


def say(text: object) -> None:
    """A line on standard output, for people: whatever files and names hold, it stays one."""
    typer.echo(one_line(text))


def warn(text: object) -> None:
    """The same on standard error."""
    typer.echo(one_line(text), err=True)


class StoppedError(UndertowError):
    """The user stopped a command."""


@contextmanager
def stoppable(so_far: str = "all answers so far are kept") -> Iterator[None]:
    """Ctrl-C ends a command with a sentence that says what has become of its work."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"stopped; {so_far}, run the same command again to go on") from error


@contextmanager
def progress_bar(
    as_json: bool, doing: str = "asking", starting: str = "loading the model"
) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left on a terminal; nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None, rate=starting)

        def progress(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:.0f}/s" if speed else starting)

        yield progress


def without_nan(value: Any) -> Any:
    """JSON has no NaN: a number that is missing is null."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say_json(value: Any) -> None:
    """A value on standard output, for machines; what is missing is null."""
    typer.echo(as_json(without_nan(value), allow_nan=False))


def say_list(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Rows as JSON, or as `say_table`."""
    if as_json:
        say_json(rows)
    else:
        say_table(rows)


def say_table(rows: list[dict[str, Any]]) -> None:
    """Columns on a terminal; tabs elsewhere, so that nothing is cut. What is missing is an empty cell."""
    if not rows:
        return
    rows = [{name: "" if without_nan(cell) is None else cell for name, cell in row.items()} for row in rows]
    if not sys.stdout.isatty():
        for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]:
            say("\t".join(str(cell).replace("\t", r"\t") for cell in row.values()))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row.values()))
    console().print(table)


def console() -> Console:
    """Where tables are printed."""
    from rich.console import Console

    return Console()
