"""The command line: each command is a function in a module of this package; an audit's own options come from its `Settings`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from undertow.cli.app import annotate, rephrase
from undertow.cli.app import app as serve_page
from undertow.cli.causal import graph, simulate
from undertow.cli.challenges.new_file import init
from undertow.cli.challenges.power import power
from undertow.cli.challenges.show import show_challenge
from undertow.cli.compare import compare, reproduce
from undertow.cli.console import StoppedError, one_line
from undertow.cli.export import export_app
from undertow.cli.gate import gate
from undertow.cli.guard import guard_command
from undertow.cli.lab import finetune, lab_app
from undertow.cli.models import cache_app, demo, doctor, list_app, pull
from undertow.cli.options import BlankCommand, Group, ModelCommand, first_sentence
from undertow.cli.run import run_app, suite
from undertow.cli.score import cite, figure, report, scaling, score, show, table
from undertow.errors import UndertowError

COMMAND_SECTIONS: dict[str, dict[str, Any]] = {
    "Audits": {"run": run_app, "suite": suite, "score": score, "guard": guard_command, "demo": demo},
    "Results": {
        "report": report, "show": show, "table": table, "figure": figure, "cite": cite, "compare": compare, "gate": gate,
        "scaling": scaling, "reproduce": reproduce,
    },
    "Challenges": {"init": init, "challenge": show_challenge, "power": power, "export": export_app},
    "Models and cache": {"doctor": doctor, "pull": pull, "list": list_app, "cache": cache_app},
    "Browser": {"app": serve_page, "annotate": annotate, "rephrase": rephrase},
    "Causal graphs and lab": {"graph": graph, "simulate": simulate, "lab": lab_app, "finetune": finetune},
}  # fmt: skip
"""The commands by section of the help and page of the reference: the one that most people need comes first."""
MODEL_COMMANDS = {"guard": BlankCommand, "doctor": ModelCommand, "app": ModelCommand}
_USAGE_ERROR: Any = typer.BadParameter.__base__
"""`UsageError` of the click that typer contains, which has no public name; that of the package `click` is another class."""


class _Commands(TyperGroup):
    """Commands in the sections of the help; errors escape control characters."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [name for commands in COMMAND_SECTIONS.values() for name in commands]

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        width = max(map(len, self.commands))
        for title, commands in COMMAND_SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{width}}", first_sentence(self.commands[name].help or "")) for name in commands]
                )

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
for _commands in COMMAND_SECTIONS.values():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name)
        else:
            app.command(_name, cls=MODEL_COMMANDS.get(_name))(_command)


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


SPARE_BYTES = 2**26
OUT_OF_MEMORY_TEXTS = ("failed to map segment", "cannot allocate memory")


def main() -> None:
    """Run a command; print an error that a user can fix as one sentence on standard error and exit with status 1."""
    sys.unraisablehook = _report_unraisable
    if platform.machine() in ("x86_64", "AMD64"):  # elsewhere models may use this library, too
        # The statistics have small matrices, for which threads cost time.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        try:
            app()
        finally:
            print(end="", flush=True)
    except UndertowError as error:
        typer.echo(f"undertow: {error}", err=True)
        sys.exit(130 if isinstance(error, StoppedError) else 1)
    except (MemoryError, ImportError, SystemError) as error:
        # Without memory for a library the system only reports that it cannot be loaded, and Python's compiler raises SystemError.
        if isinstance(error, ImportError) and not any(words in str(error).lower() for words in OUT_OF_MEMORY_TEXTS):
            raise
        if isinstance(error, SystemError) and _has_memory():
            raise
        typer.echo(
            "undertow: out of memory; all answers so far are cached; free memory or choose a smaller model", err=True
        )
        sys.exit(1)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # of which the reader has gone, as `| head` does
            where = f"{error.filename}: " if error.filename else "the output: "
            typer.echo(
                f"undertow: {where}cannot be read or written ({error.strerror or error}); fix that and run the same command again",
                err=True,
            )
        # Buffered output goes to the null device, so that the interpreter does not fail to write it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
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
