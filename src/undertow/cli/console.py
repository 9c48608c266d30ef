"""Output of the commands: text, tables, JSON, progress, and messages after Ctrl-C.

Text of several lines is a Jinja template in `report/templates/terminal/`.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

from undertow.errors import LOGGER, UndertowError
from undertow.runs.folder.storage import csv_of, without_nan
from undertow.types import NOT_SEEN, as_json

if TYPE_CHECKING:
    import pandas as pd

    from undertow.causal.assumptions import FindingAssumptions
    from undertow.runs.pipeline import Run
    from undertow.types import Finding


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
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


def _tell(text: str) -> None:
    """Print a progress line on standard error; ignored if that is closed."""
    with suppress(OSError, ValueError):
        warn(text)


LINE_EVERY_S = 30.0
"""Seconds between progress lines without a terminal."""


@dataclasses.dataclass(slots=True)
class _Verbosity:
    """Values of the options -q and -v."""

    quiet: bool = False
    verbose: bool = False


VERBOSITY = _Verbosity()


class _Phase(logging.Handler):
    """The current phase of the logger `undertow`, and its progress."""

    def __init__(self, text: str, *, is_printed: bool) -> None:
        super().__init__(logging.INFO)
        self.text, self.done, self.total, self.began, self.is_printed = text, 0, 0, time.monotonic(), is_printed

    def emit(self, record: logging.LogRecord) -> None:
        """Begin the next phase."""
        self.text, self.done, self.total, self.began = record.getMessage(), 0, 0, time.monotonic()
        if self.is_printed:
            _tell(f"undertow: {self.text}")

    @property
    def count(self) -> str:
        """Progress in words."""
        return f"{self.done:,} of {self.total:,}" if self.total else ""

    def print_line(self) -> None:
        """Print the phase, its count and its time on standard error."""
        counted = f": {self.count}" if self.total else ""
        _tell(f"undertow: {self.text}{counted}, {time.monotonic() - self.began:.0f} s so far")


@contextmanager
def progress_bar(as_json: bool, doing: str = "prepare", *, steps: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show the phase of the work, its count, rate and remaining time: a bar on a terminal, elsewhere a line every 30 s.

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
            yield lambda done, total: None
        elif as_json or phase.is_printed or not _is_terminal():
            with _every(LINE_EVERY_S, phase.print_line):
                yield lambda done, total: _set_count(phase, done, total)
        else:
            with _bar(phase) as progress:
                yield progress
    finally:
        LOGGER.removeHandler(phase)
        LOGGER.setLevel(level)


def _is_terminal() -> bool:
    """Whether standard error is a terminal; it may be closed or None."""
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


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
def _bar(phase: _Phase) -> Iterator[Callable[[int, int], None]]:
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
        task = bar.add_task(phase.text, total=None, count="", rate="")

        def show() -> None:
            if bar.tasks[0].description != one_line(phase.text):
                bar.reset(task, total=None, description=one_line(phase.text), count="", rate="")

        def progress(done: int, total: int) -> None:
            _set_count(phase, done, total)
            show()
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, count=phase.count, rate=f"{speed:.0f}/s" if speed else "")

        with _every(0.5, show):
            yield progress


def print_json(value: Any) -> None:
    """Print a value as JSON; missing numbers are null."""
    typer.echo(as_json(without_nan(value), allow_nan=False))


def print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows as JSON or as a table."""
    if as_json:
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
    """Refuse a file that a figure cannot be written to.

    Args:
        out: the file.
        replace: whether a file that exists is replaced.
        fix: advice about an existing file.

    Raises:
        UndertowError: it is not a .pdf, .svg or .png file, its folder does not exist, or it exists already.
    """
    if out.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise UndertowError(f"{out}: the figure must be a .pdf, .svg or .png file; name one with --out")
    if not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder does not exist; create it, or name another file with --out")
    if out.is_dir() or (out.exists() and not replace):
        raise UndertowError(f"{out}: exists already; name another file with --out, or {fix}")


Model = Annotated[
    str,
    typer.Option("-m", "--model", help="A name of `undertow list models`, a hub id, a model folder or a GGUF file."),
]
Revision = Annotated[str, typer.Option(help="Branch, tag or commit of a hub id.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps, ...")]
Dtype = Annotated[
    str,
    typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 if this machine has fast instructions for it."),
]
WLists = Annotated[
    str, typer.Option(help="W lists, comma-separated; 'date x place' crosses two. Those of the set if not given.")
]
WScale = Annotated[
    str,
    typer.Option(
        help="Unit of slopes: index (a step of the list), value (the numbers) or none (no order); each list's own if not given."
    ),
]
Inject = Annotated[str, typer.Option(help="Text that puts W in front of sentences without {w}: 'In {w}: '.")]
Words = Annotated[str, typer.Option(help="Word list that fills the blank: pronouns, aaai, icml, or a .toml file.")]
DataDir = Annotated[str, typer.Option(help="Folder with the two published files of winogender.")]
TableOptions = Annotated[str, typer.Option(help="Word groups for a .csv or .tsv file: 'yes: is; no: is not'.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Run folder to write; a name from audit, model and options if not given."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another run.")]
ModelInfo = Annotated[
    Path | None,
    typer.Option(help="TOML file with facts about models ([models.NAME]): parameters, objective, post_training."),
]


def _named(context: typer.Context, parameter: typer.CallbackParam, graph: str) -> str:
    """Refuse an empty --graph, which is not the same as no --graph."""
    source = context.get_parameter_source(str(parameter.name))
    if not graph and source is not None and source.name == "COMMANDLINE":
        from undertow.causal.published import load_graph

        load_graph(graph)
    return graph


Graph = Annotated[
    str,
    typer.Option(
        "--graph",
        callback=_named,
        help="Causal graph for the interpretation of findings: a name of `undertow graph`, a file, or the graph itself.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="How answers are scored: exact, paper (if the audit has it), or text (free replies of any chat model).",
    ),
]


def parameters_of(options: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as options of a command, from their annotation, or their type and help."""
    hints = get_type_hints(options, include_extras=True)
    return [
        parameter(
            option.name,
            Annotated[hints[option.name], typer.Option(help=option.metadata["help"])]
            if "help" in option.metadata
            else hints[option.name],
            inspect.Parameter.empty if option.default is dataclasses.MISSING else option.default,
        )
        for option in dataclasses.fields(options)
    ]


def parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return one keyword option of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_options(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The command with these parameters as its signature, which Typer reads."""
    listed = list(parameters)
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in listed}
    return command


NOT_FROM_ENVIRONMENT = ("--overwrite", "--all")
"""Options that delete something, which the environment cannot set."""


OWN_OPTIONS, _FAMILY_SECTION = "Options", "Servers (openai:MODEL) and UL2"
SECTIONS: Mapping[str, Sequence[str]] = {
    "Model": ("model", "models", "revision", "dtype", "device", "model_info", "float32_sample", "allow_any_model"),
    OWN_OPTIONS: (),
    "Where it runs": ("engine", "ray_address", "workers"),
    "Output": ("out", "overwrite", "dry_run", "as_json"),
    _FAMILY_SECTION: (),
    "All commands": ("quiet", "verbose", "log_file", "help"),
}
"""Sections of the help of model commands, with their options; others are the command's own, or of a model family."""


@cache
def _family_names() -> frozenset[str]:
    from undertow import models

    return frozenset(models.settings())


def _section_of(name: str) -> str:
    of_families = _FAMILY_SECTION if name in _family_names() else OWN_OPTIONS
    return next((title for title, names in SECTIONS.items() if name in names), of_families)


def first_sentence(text: str) -> str:
    """The first sentence of a text."""
    return re.split(r"(?<=[.?])\s", text.strip(), maxsplit=1)[0].replace("\n", " ")


class Command(TyperCommand):
    """A command with the options that all commands have; most may also be set as UNDERTOW_OPTION in the environment."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its own options, then -q, -v and --log-file."""
        *own, help_option = super().get_params(ctx)
        for option in own:
            is_deleting = not {*option.opts}.isdisjoint(NOT_FROM_ENVIRONMENT)
            if isinstance(option, TyperOption) and option.envvar is None and not is_deleting:
                longest = max(option.opts, key=len)
                option.show_envvar = False
                option.envvar = f"UNDERTOW_{longest.lstrip('-').replace('-', '_').upper()}"
        return [*own, *self.further_options(), help_option]

    @staticmethod
    def further_options() -> list[Any]:
        """Options in addition to its own."""
        return _shared_options()

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence, for the list of commands."""
        return first_sentence(self.help or "")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options, in sections for model commands."""
        params = self.get_params(ctx)
        has_sections = any(one.name in _family_names() for one in params)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in SECTIONS}}
        for one in params:
            if (record := one.get_help_record(ctx)) is None:
                continue
            title = _section_of(str(one.name)) if has_sections else OWN_OPTIONS
            sections["Arguments" if one.param_type_name == "argument" else title].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors are also written to the log file."""
        try:
            return super().invoke(ctx)
        except UndertowError as error:
            LOGGER.error("%s", error)
            raise
        finally:
            VERBOSITY.quiet = VERBOSITY.verbose = False


_family_settings: ContextVar[dict[str, Any]] = ContextVar("family_settings")


class ModelCommand(Command):
    """A command on a model, with the options of all model families, which are looked up when it is called."""

    @staticmethod
    def further_options() -> list[Any]:
        """Options of families, then those of every command."""
        return [*_params_of(with_options(lambda **_: None, family_options())), *_shared_options()]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Typer passes only options in the function's signature, so family options are passed separately."""
        from undertow import models

        names = {one.name for one in self.params}
        given = {name: ctx.params.pop(name) for name in list(ctx.params) if name not in names}
        token = _family_settings.set(
            {name: one for name, one in given.items() if one != models.settings()[name].default}
        )
        try:
            return super().invoke(ctx)
        finally:
            _family_settings.reset(token)


def family_options(own: Iterable[str] = ()) -> list[inspect.Parameter]:
    """The options of all model families, except those with the name of an own option of the command."""
    from undertow import models

    return [
        parameter(name, Annotated[type(option.default), typer.Option(help=option.metadata["help"])], option.default)
        for name, option in models.settings().items()
        if name not in {*own}
    ]


def on_model(command: Callable[..., None]) -> Callable[..., None]:
    """Make a function a `ModelCommand`: its argument `settings` gets the options of families that are not at their defaults."""
    own, hints = inspect.signature(command).parameters, get_type_hints(command, include_extras=True)

    @wraps(command)
    def run(**given: Any) -> None:
        command(**given, settings=_family_settings.get({}))

    return with_options(run, [one.replace(annotation=hints[name]) for name, one in own.items() if name != "settings"])


class Group(typer.Typer):
    """A group whose commands have the options that all commands have, built once in a process."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As of Typer."""
        return self._built(*given, **named)

    @cached_property
    def _built(self) -> Any:
        return typer.main.get_command(self)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **options: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Like `Typer.command`."""
        return super().command(name, cls=cls or Command, **options)


def _params_of(command: Callable[..., None]) -> list[Any]:
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command()(command)
    return list(typer.main.get_command(single).params)


@cache
def _shared_options() -> list[Any]:
    return _params_of(_shared)


def _set_quiet(value: bool) -> None:
    VERBOSITY.quiet = value


def _set_verbose(value: bool) -> None:
    VERBOSITY.verbose = value


def _log_to(context: typer.Context, path: Path | None) -> None:
    if path is None or context.resilient_parsing:
        return
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UndertowError(
            f"{path}: the log cannot be written ({error.strerror or error}); name another file"
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)

    def close() -> None:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        handler.close()

    context.call_on_close(close)
    LOGGER.info("%s", context.command_path)


def _shared(
    *,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Show no progress.", callback=_set_quiet, expose_value=False)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v", "--verbose", help="Print each phase on its own line.", callback=_set_verbose, expose_value=False
        ),
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", help="Append phases and errors to this file.", callback=_log_to, expose_value=False),
    ] = None,
) -> None:
    """Options of every command."""


def subcommand(name: str, summary: str, command: Callable[..., None], cls: type[TyperCommand] | None = None) -> Any:
    """A command of a group, with the first letter of its summary as a capital."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name=name, cls=cls or Command, help=f"{summary[:1].upper()}{summary[1:]}")(command)
    return typer.main.get_command(single)


MAX_REASONS = 5


def print_run(run: Run, *, as_json: bool, with_counts: bool = True) -> None:
    """Print a run as text or as JSON. `with_counts` adds how many items were computed and cached.

    Raises:
        UndertowError: a model has no results; the message names it with the reason.
    """
    from undertow.runs.run_report import sanity_check_caveats

    manifest, assumptions = run.manifest, run.causal_assumptions
    counts = manifest.get("counts", {})
    if as_json:
        answer = {
            "folder": str(run.folder),
            "report": str(run.report),
            "counts": counts,
            "findings": [_plain_finding(finding, assumptions) for finding in run.findings],
            **{name: manifest[name] for name in ("sanity_check", "precision") if name in manifest},
            **({"graph": assumptions.as_dict()} if assumptions is not None else {}),
        }
        print_json(answer)
    else:
        notes = [*sanity_check_caveats(manifest), *manifest["design"].get("w_notes", ())]
        notes += [note for note in manifest.get("notes", ()) if NOT_SEEN in note]
        print_text(
            "run",
            run=run,
            counts=counts,
            with_counts=with_counts,
            notes=notes,
            reasons=_reasons(run.observations),
            precision=manifest.get("precision", {}),
            assumptions=assumptions,
        )
    if silent := _without_numbers(run):
        models = "; ".join(f"{model} ({reason})" for model, reason in silent.items())
        raise UndertowError(f"no results for {models}; {run.folder} has the queries")


def _plain_finding(finding: Finding, assumptions: FindingAssumptions | None) -> dict[str, Any]:
    plain = finding.as_json()
    rests = finding.causal_claim and finding.significant
    return plain if assumptions is None else {**plain, "causal_claim": assumptions.kind if rests else ""}


def _without_numbers(run: Run) -> dict[str, str]:
    """Models without any value, each with the reason."""
    models = {}
    for model, rows in run.observations.groupby(run.observations["model"].astype(str), sort=False):
        own = [one for one in run.record.results if one.group.get("model") == model]
        reasons = _reasons(rows)
        if reasons and (rows["missing_reason"] != "").all():
            models[str(model)] = reasons[0][0]
        elif own and not any(math.isfinite(one.value) for one in own):
            models[str(model)] = next((one.note.rstrip(".") for one in own if one.note), "no result has a value")
    return models


def _reasons(observations: pd.DataFrame) -> list[tuple[str, int]]:
    """The most frequent reasons for missing items, with counts."""
    if "missing_reason" not in observations:
        return []
    reasons = Counter(map(str, observations["missing_reason"]))
    reasons.pop("", None)
    return reasons.most_common(MAX_REASONS)
