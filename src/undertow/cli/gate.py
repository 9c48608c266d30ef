"""`undertow gate`: check runs against a file of rules and fail the build where a model got worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.console import StoppedError, echo, print_json, progress_bar, stoppable, warn
from undertow.cli.options import Json
from undertow.errors import UndertowError, counted

if TYPE_CHECKING:
    from undertow.runs.gates.evaluate import GateReport

CANNOT_JUDGE = 2
"""Exit status for unusable rules or runs; 1 means a failed rule."""
LINES_PER_RULE = 5

JUnit = Annotated[Path | None, typer.Option("--junit", help="Also write a JUnit XML file; replaces an existing file.")]
Format = Annotated[str, typer.Option("--format", help="text, or markdown: a table for a pull request.")]


def gate(  # noqa: PLR0913 - an option each
    runs: Annotated[list[Path], typer.Argument(help="Run folders; each is judged separately.")],
    *,
    rules: Annotated[Path, typer.Option("--rules", help="TOML file with the rules.")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Run folder to compare with, for rules with against = 'baseline'.")
    ] = None,
    junit: JUnit = None,
    format: Format = "text",  # noqa: A002 - the name of the option
    as_json: Json = False,
) -> None:
    """Check runs against rules, as in CI. Exit status: 0 if all rules hold, 1 if one fails, 2 if a run or a rule is unusable."""
    from undertow.runs.gates.evaluate import gate as check
    from undertow.runs.gates.junit import write_junit

    check_format(format)
    with (
        refusing(junit),
        stoppable("nothing was judged"),
        progress_bar(as_json, "compare with the baseline") as progress,
    ):
        gate = check(runs, rules, baseline, progress)
    if junit is not None:
        with refusing():
            write_junit(gate, junit)
    if as_json:
        print_json(gate.as_json())
    elif format == "markdown":
        typer.echo(gate.to_markdown())
    else:
        print_gate(gate)
    if junit is not None and not as_json and format == "text":
        echo(f"JUnit: {junit}")
    if gate.status:
        raise typer.Exit(gate.status)


def check_format(format: str) -> None:  # noqa: A002 - the name of the option
    """Refuse an unknown format."""
    if format not in ("text", "markdown"):
        raise UndertowError(f"--format {format!r} is unknown; use text or markdown")


@contextmanager
def refusing(junit: Path | None = None) -> Iterator[None]:
    """Report an error as one sentence on standard error and in the JUnit file, if there is one, and exit with status 2."""
    from undertow.runs.gates.gate_formatting import printable
    from undertow.runs.gates.junit import write_refusal

    try:
        yield
    except StoppedError:
        raise
    except (UndertowError, OSError) as error:
        sentence = str(error)
        if isinstance(error, OSError):
            sentence = f"{error.filename or 'a file'}: cannot be read ({error.strerror or error}); check the path"
        if junit is not None:
            try:
                write_refusal(sentence, junit)
            except UndertowError as unwritten:
                sentence = f"{sentence}; and {unwritten}"
        warn(f"undertow: {printable(sentence)}")
        raise typer.Exit(CANNOT_JUDGE) from error


def print_gate(gate: GateReport) -> None:
    """Print notes, up to `LINES_PER_RULE` results of each rule, and the counts."""
    from undertow.runs.gates.evaluate import PASSED
    from undertow.runs.gates.gate_formatting import printable

    several = len(gate.runs) > 1
    for run in gate.runs:
        named = f"{printable(str(run.folder))}: " if several else ""
        for note in run.limitations:
            echo(f"note: {named}{note}")
        n_lines: Counter[tuple[str, str]] = Counter()
        for one in run.judged:
            kind = (one.rule.name, one.outcome)
            n_lines[kind] += 1
            if n_lines[kind] <= LINES_PER_RULE:
                why = f" ({printable(one.rule.why)})" if one.rule.why and one.outcome != PASSED else ""
                echo(f"{one.outcome}: {named}{one.sentence}{why}")
        for (rule, outcome), n in n_lines.items():
            if n > LINES_PER_RULE:
                where = f" of {printable(str(run.folder))}" if several else ""
                more = f"{n - LINES_PER_RULE:,} more results{where} by rule {rule!r}"
                echo(f"{outcome}: {more}; --json and --junit have all of them")
    counts = ", ".join(f"{n:,} {outcome}" for outcome, n in gate.counts.items() if n or outcome == PASSED)
    of_runs = f", {len(gate.runs)} runs" if several else ""
    echo(f"{counts} ({counted(len(gate.rules.rules), 'rule')}{of_runs})")
