"""Output of the commands: text, tables, JSON, progress, and messages after Ctrl-C.

Text of several lines is a Jinja template in `report/templates/terminal/`.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from undertow.errors import LOGGER, UndertowError
from undertow.runs.folder.storage import csv_of, without_nan
from undertow.types import NOT_SEEN, STORED_EARLIER, as_json

if TYPE_CHECKING:
    import pandas as pd

    from undertow.runs.pipeline import Run


_CONTROL_CHARACTERS = {*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A)} - {9, 10}
_ESCAPES = {number: ascii(chr(number))[1:-1] for number in _CONTROL_CHARACTERS}
"""Control and bidirectional characters with their Python escapes."""


def plain(text: object) -> str:
    """Escape control characters, so that text from files and names cannot move the cursor or change colours."""
    return str(text).translate(_ESCAPES)


def one_line(text: object) -> str:
    """Escape control characters and line ends, so that a path or a name stays on one line."""
    return plain(text).replace("\n", r"\n")


def echo(text: object) -> None:
    """Print one line on standard output, escaped."""
    typer.echo(one_line(text))


def warn(text: object) -> None:
    """Print one line on standard error, escaped."""
    typer.echo(one_line(text), err=True)


class StoppedError(UndertowError):
    """The user stopped a command (Ctrl-C)."""


@contextmanager
def stoppable(so_far: str = "all answers so far are cached") -> Iterator[None]:
    """Turn Ctrl-C into a StoppedError that says what happened to the work so far."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise StoppedError(f"stopped; {so_far}; run the same command again to continue") from error


def _print_progress(text: str) -> None:
    """Print a progress line on standard error; ignored if that is closed."""
    with suppress(OSError, ValueError):
        warn(text)


LINE_EVERY_S = 30.0
"""Seconds between progress lines without a terminal."""


VERBOSITY = SimpleNamespace(quiet=False, verbose=False)
"""Values of the options -q and -v."""


class _Phase(logging.Handler):
    """The current phase of the logger `undertow`, and its progress."""

    def __init__(self, text: str, *, is_printed: bool) -> None:
        super().__init__(logging.INFO)
        self.text, self.done, self.total, self.began, self.is_printed = text, 0, 0, time.monotonic(), is_printed
        self.on_begin: Callable[[], None] = lambda: None

    def emit(self, record: logging.LogRecord) -> None:
        """Begin the next phase."""
        self.text, self.done, self.total, self.began = record.getMessage(), 0, 0, time.monotonic()
        if self.is_printed:
            _print_progress(f"undertow: {self.text}")
        self.on_begin()

    @property
    def count(self) -> str:
        """Progress in words."""
        return f"{self.done:,} of {self.total:,}" if self.total else ""

    def print_line(self) -> None:
        """Print the phase, its count and its time on standard error."""
        counted = f": {self.count}" if self.total else ""
        _print_progress(f"undertow: {self.text}{counted}, {time.monotonic() - self.began:.0f} s so far")


@contextmanager
def progress_bar(as_json: bool, doing: str = "prepare", *, steps: bool = False) -> Iterator[Callable[..., None]]:
    """Show the phase of the work, its count, rate and remaining time: a bar on a terminal, elsewhere a line every 30 s.

    It is called with the number of what is done and of all, and optionally a text to show in place of the rate.

    Args:
        as_json: whether the command prints JSON, which needs no bar.
        doing: the first phase.
        steps: whether to print each phase on its own line, as with -v.
    """
    phase = _Phase(doing, is_printed=(steps or VERBOSITY.verbose) and not VERBOSITY.quiet)
    level = LOGGER.level
    LOGGER.addHandler(phase)
    LOGGER.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        if VERBOSITY.quiet:
            yield lambda done, total, note="": None
        elif as_json or phase.is_printed or sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
            with _every(LINE_EVERY_S, phase.print_line):
                yield lambda done, total, note="": _set_count(phase, done, total)
        else:
            with _bar(phase) as progress:
                yield progress
    finally:
        LOGGER.removeHandler(phase)
        LOGGER.setLevel(level)


def _set_count(phase: _Phase, done: int, total: int) -> None:
    phase.done, phase.total = done, total


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call a function periodically from a thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _bar(phase: _Phase) -> Iterator[Callable[..., None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(phase.text), total=None, count="", rate="")
        phase.on_begin = lambda: bar.reset(task, total=None, description=one_line(phase.text), count="", rate="")

        def progress(done: int, total: int, note: str = "") -> None:
            _set_count(phase, done, total)
            speed = bar.tasks[0].speed
            rate = note or (f"{speed:.0f}/s" if speed else "")
            bar.update(task, completed=done, total=total, count=phase.count, rate=rate)

        yield progress


def print_json(value: Any) -> None:
    """Print a value as JSON; missing numbers are null."""
    typer.echo(as_json(without_nan(value), allow_nan=False))


def print_rows(rows: list[dict[str, Any]], *, as_json: bool, as_csv: bool = False) -> None:
    """Print rows as JSON, as CSV or as a table."""
    if as_csv:
        print_csv(rows)
    elif as_json:
        print_json(rows)
    else:
        print_table(rows)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows in columns on a terminal and with tabs elsewhere; missing values are empty cells."""
    if rows:
        typer.echo(_table_text(rows))


class _Block(str):
    """Text of several lines, escaped already."""

    __slots__ = ()


def _table_text(rows: list[dict[str, Any]]) -> _Block:
    if not rows:
        return _Block("")
    names = [one_line(name) for name in rows[0]]
    cells = [[one_line("" if without_nan(cell) is None else cell) for cell in row.values()] for row in rows]
    if not sys.stdout.isatty():
        return _Block("\n".join("\t".join(cell.replace("\t", r"\t") for cell in row) for row in [names, *cells]))
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console()
    with console.capture() as capture:
        console.print(table)
    return _Block(capture.get().rstrip("\n"))


def print_text(template: str, **facts: Any) -> None:
    """Print the text of `report/templates/terminal/TEMPLATE.j2`; each value in it is escaped and stays on its line."""
    from undertow.report.sentence_templates import text_templates

    environment = text_templates("undertow.report", "templates/terminal")
    environment.keep_trailing_newline = True
    environment.finalize = lambda value: value if isinstance(value, _Block) else one_line(value)
    environment.filters["rows"] = _table_text
    typer.echo(environment.get_template(f"{template}.j2").render(facts), nl=False)


def print_csv(rows: list[dict[str, Any]]) -> None:
    """Print rows as CSV; missing values are empty cells."""
    import pandas as pd

    sys.stdout.write(csv_of(pd.DataFrame(without_nan(rows))))


def check_figure(out: Path, *, replace: bool = False, fix: str = "remove it") -> None:
    """Refuse a file that a figure cannot be written to; `fix` is advice about an existing file."""
    if out.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise UndertowError(f"{out}: the figure must be a .pdf, .svg or .png file; name one with --out")
    if not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder does not exist; create it, or name another file with --out")
    if out.is_dir() or (out.exists() and not replace):
        raise UndertowError(f"{out}: exists already; name another file with --out, or {fix}")


MAX_TABLE_ROWS = 40
"""Rows of tables of a run on the terminal, from which on no further table is printed; the report has every table."""


def print_run(run: Run, *, as_json: bool, with_counts: bool = True) -> None:
    """Print a run as text or as JSON; raises `UndertowError`, with the reason, if a model has no results.

    `with_counts` adds how many items were computed and cached.
    """
    from undertow.runs.run_report import answer_caveats

    manifest, assumptions = run.manifest, run.causal_assumptions
    counts = manifest.get("counts", {})
    if as_json:
        findings = [one.as_json() for one in run.findings]
        for one, plain_finding in zip(run.findings, findings, strict=True):
            if assumptions is not None:
                plain_finding["causal_claim"] = assumptions.kind if one.causal_claim and one.significant else ""
        answer = {"folder": str(run.folder), "report": str(run.report), "counts": counts, "findings": findings}
        answer |= {name: manifest[name] for name in ("sanity_check", "warnings", "precision") if name in manifest}
        print_json(answer | ({"graph": assumptions.as_dict()} if assumptions is not None else {}))
    else:
        notes = [*answer_caveats(manifest), *manifest["design"].get("w_notes", ())]
        notes += [f"Documents: {note}." for note in manifest["design"].get("document_notes", ())]
        notes += [note for note in manifest.get("notes", ()) if NOT_SEEN in note or STORED_EARLIER in note]
        tables = run.tables
        n_rows = accumulate(len(table.rows) for table in tables)
        n_printed = max(1, sum(n <= MAX_TABLE_ROWS for n in n_rows))
        print_text(
            "run",
            run=run,
            tables=tables[:n_printed],
            more_tables=tables[n_printed:],
            counts=counts,
            with_counts=with_counts,
            notes=notes,
            reasons=_reasons(run.observations),
            precision=manifest.get("precision", {}),
            assumptions=assumptions,
        )
    silent = {}  # models without any value, each with the reason
    for model, rows in run.observations.groupby(run.observations["model"].astype(str), sort=False):
        own = [one for one in run.record.results if one.group.get("model") == model]
        reasons = _reasons(rows)
        if reasons and (rows["missing_reason"] != "").all():
            silent[str(model)] = reasons[0][0]
        elif own and not any(math.isfinite(one.value) for one in own):
            silent[str(model)] = next((one.note.rstrip(".") for one in own if one.note), "no result has a value")
    if silent:
        models = "; ".join(f"{model} ({reason})" for model, reason in silent.items())
        raise UndertowError(f"no results for {models}; {run.folder} has the queries")


def _reasons(observations: pd.DataFrame) -> list[tuple[str, int]]:
    """The five most frequent reasons for missing items, with counts."""
    if "missing_reason" not in observations:
        return []
    reasons = Counter(map(str, observations["missing_reason"]))
    reasons.pop("", None)
    return reasons.most_common(5)
