"""The command line: each command is a function in a module of this package; an audit's own options come from its `Settings`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from undertow.cli.app import annotate
from undertow.cli.app import app as serve_page
from undertow.cli.causal import graph, simulate
from undertow.cli.challenge import init, show_challenge
from undertow.cli.compare import compare, reproduce
from undertow.cli.console import Group, ModelCommand, StoppedError, one_line
from undertow.cli.export import export_app
from undertow.cli.gate import gate
from undertow.cli.guard import guard_command
from undertow.cli.lab import finetune, lab_app
from undertow.cli.models import cache_app, demo, doctor, list_app, pull
from undertow.cli.power import power
from undertow.cli.run import run_app, suite
from undertow.cli.score import cite, figure, report, scaling, score, show, table
from undertow.errors import UndertowError

COMMANDS = (
    *("run", "suite", "score", "report", "show", "table", "figure", "cite", "compare", "gate", "guard", "doctor"),
    *("pull", "list", "cache", "app", "annotate"),
    *("init", "challenge", "graph", "simulate", "power", "lab", "finetune", "export", "scaling", "reproduce", "demo"),
)
"""The commands in the order of the help: the one that most people need comes first."""
_USAGE_ERROR: Any = typer.BadParameter.__base__
"""`UsageError` of the click that typer contains, which has no public name; that of the package `click` is another class."""


class _Commands(TyperGroup):
    """Commands in the order of the help; errors escape control characters."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return sorted(super().list_commands(ctx), key=COMMANDS.index)

    def make_context(self, *given: Any, **named: Any) -> Any:
        with _escaped_errors():
            return super().make_context(*given, **named)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        with _escaped_errors():
            return super().invoke(ctx)


@contextmanager
def _escaped_errors() -> Iterator[None]:
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = one_line(error.message)
        raise


app = Group(
    name="undertow",
    cls=_Commands,
    help="Audit language models for bias that enters through underspecified tasks and dataset selection. Environment variables set "
    "options, too: UNDERTOW_DEVICE is --device; only --overwrite and --all must be on the command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(run_app, name="run")
app.command()(suite)
app.command()(score)
app.command()(report)
app.command()(show)
app.command()(table)
app.command()(figure)
app.command()(cite)
app.command()(compare)
app.command()(gate)
app.command("guard", cls=ModelCommand)(guard_command)
app.command(cls=ModelCommand)(doctor)
app.command()(pull)
app.add_typer(list_app, name="list")
app.add_typer(cache_app, name="cache")
app.command("app", cls=ModelCommand)(serve_page)
app.command()(annotate)
app.command()(init)
app.command("challenge")(show_challenge)
app.command()(graph)
app.command()(simulate)
app.command()(power)
app.add_typer(lab_app, name="lab")
app.command()(finetune)
app.add_typer(export_app, name="export")
app.command()(scaling)
app.command()(reproduce)
app.command()(demo)

SPARE_BYTES = 2**26
OUT_OF_MEMORY_TEXTS = ("failed to map segment", "cannot allocate memory")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"undertow {version('undertow')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Audit language models for bias that enters through underspecified tasks and dataset selection."""


def main() -> None:
    """Run a command; print an error that a user can fix as one sentence on standard error and exit with status 1."""
    sys.unraisablehook = _report_unraisable
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # the statistics have small matrices, for which threads cost time
    try:
        try:
            app()
        finally:
            print(end="", flush=True)
    except UndertowError as error:
        typer.echo(f"undertow: {error}", err=True)
        sys.exit(130 if isinstance(error, StoppedError) else 1)
    except (MemoryError, ImportError, SystemError) as error:
        # Without memory for a library the system only reports that it cannot be loaded.
        if isinstance(error, ImportError) and not any(words in str(error).lower() for words in OUT_OF_MEMORY_TEXTS):
            raise
        # Without memory Python's compiler raises SystemError.
        if isinstance(error, SystemError) and _has_memory():
            raise
        typer.echo(
            "undertow: out of memory; all answers so far are cached; free memory or choose a smaller model", err=True
        )
        sys.exit(1)
    except BrokenPipeError:
        # The reader of the output has gone, as `| head` does.
        _drop_output()
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "the output: "
        typer.echo(
            f"undertow: {where}cannot be read or written ({error.strerror or error}); fix that and run the same command again",
            err=True,
        )
        _drop_output()
        sys.exit(1)


def _has_memory() -> bool:
    """Whether some memory is free."""
    try:
        return len(bytearray(SPARE_BYTES)) == SPARE_BYTES
    except MemoryError:
        return False


def _report_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Print exceptions that Python cannot raise, except MemoryError, which `main` reports."""
    if not issubclass(lost.exc_type, MemoryError):
        sys.__unraisablehook__(lost)


def _drop_output() -> None:
    """Send buffered output to the null device, so that the interpreter does not fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
