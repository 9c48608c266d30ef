"""What every command does with a terminal: tables, JSON, a bar, and an end by Ctrl-C that says what became of the work."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from undertow.errors import UndertowError
from undertow.types import NOT_SEEN, as_json

if TYPE_CHECKING:
    import pandas as pd

    from undertow.causal.finding_assumptions import FindingAssumptions
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


@contextmanager
def progress_bar(
    as_json: bool, doing: str = "asking", starting: str = "loading the model"
) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with rate and remaining time if standard error is a terminal."""
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
    """Replace NaN and infinities by None, since JSON has neither."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    if not rows:
        return
    rows = [{name: "" if without_nan(cell) is None else cell for name, cell in row.items()} for row in rows]
    if not sys.stdout.isatty():
        for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]:
            echo("\t".join(str(cell).replace("\t", r"\t") for cell in row.values()))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row.values()))
    Console().print(table)


def print_csv(rows: list[dict[str, Any]]) -> None:
    """Print rows as CSV; missing values are empty cells."""
    import pandas as pd

    from undertow.runs.folder.storage import csv_of

    sys.stdout.write(csv_of(pd.DataFrame(without_nan(rows))))


def check_figure(out: Path, *, replace: bool = False, fix: str = "remove it") -> None:
    """Refuse a file that a figure cannot be written to.

    Args:
        out: the file.
        replace: whether a file that exists is replaced.
        fix: what else to do with a file that exists.

    Raises:
        UndertowError: it is no .png or .svg file, its folder does not exist, or it exists already.
    """
    if out.suffix.lower() not in (".png", ".svg"):
        raise UndertowError(f"{out}: the figure must be a .png or .svg file; name one with --out")
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
    str, typer.Option(help="float32, bfloat16, float16, or auto: bfloat16 where this machine is fast at it.")
]
WLists = Annotated[str, typer.Option(help="W lists, comma-separated; those of the set if not given.")]
WScale = Annotated[str, typer.Option(help="What slopes are per: index, value or none; each list's own if not given.")]
Inject = Annotated[str, typer.Option(help="Put W into sentences that have no place for it: 'In {w}: '.")]
Words = Annotated[str, typer.Option(help="Word list to fill the blank from.")]
DataDir = Annotated[str, typer.Option(help="Folder with the two published files of winogender.")]
TableOptions = Annotated[str, typer.Option(help="Word groups for a .csv or .tsv file: 'yes: is; no: is not'.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Run folder to write; named after the audit, the model and the options if not given."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a folder that holds another run.")]
ModelInfo = Annotated[
    Path | None,
    typer.Option(help="TOML file with the parameters, objective and post_training of models: [models.NAME]."),
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
        help="Causal graph to read the findings under: a name of `undertow graph`, a file, or the graph itself.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="What is read: exact, paper (where there is a choice), or text: free replies, of any chat model.",
    ),
]


def parameters_of(options: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as options of a command: as they are annotated, or by their type and the help beside it."""
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


def hidden_option(one: inspect.Parameter) -> inspect.Parameter:
    """Return the option, hidden from the help."""
    kind, option = get_args(one.annotation)
    option = copy.copy(option)
    option.hidden = True
    return one.replace(annotation=Annotated[kind, option])


MAX_REASONS = 5


def print_run(run: Run, *, as_json: bool, with_counts: bool = True) -> None:
    """Print a run as text or as JSON. `with_counts` adds how many items were computed and cached.

    Raises:
        UndertowError: a model has no number; says which, and why.
    """
    _print_run(run, as_json=as_json, with_counts=with_counts)
    silent = _without_numbers(run)
    if silent:
        models = "; ".join(f"{model} ({reason})" for model, reason in silent.items())
        raise UndertowError(f"no result of {models}; {run.folder} has the queries")


def _print_run(run: Run, *, as_json: bool, with_counts: bool) -> None:
    from undertow.report.formatting import sanity_check_caveats

    causal_assumptions = run.causal_assumptions
    if as_json:
        findings = [_plain_finding(finding, causal_assumptions) for finding in run.findings]
        counts = run.manifest.get("counts", {})
        answer = {"folder": str(run.folder), "report": str(run.report), "counts": counts, "findings": findings}
        answer |= {"sanity_check": run.manifest["sanity_check"]} if "sanity_check" in run.manifest else {}
        if "precision" in run.manifest:
            answer["precision"] = run.manifest["precision"]
        if causal_assumptions is not None:
            answer["graph"] = causal_assumptions.as_dict()
        print_json(answer)
        return
    counts = run.manifest.get("counts", {})
    if "computed" in counts and with_counts:
        echo(
            f"Scored {counts['items']:,} items ({counts['computed']:,} of {counts['queries']:,} queries computed now, "
            f"{counts['missing']:,} missing)."
        )
    notes = sanity_check_caveats(run.manifest)
    notes += [one_line(note) for note in run.manifest["design"].get("w_notes", ())]
    notes += [note for note in run.manifest.get("notes", ()) if NOT_SEEN in note]
    for line in (
        *notes,
        *(f"  {n_items:,} missing: {one_line(reason)}" for reason, n_items in _reasons(run.observations)),
    ):
        echo(line)
    precision = run.manifest.get("precision", {})
    for finding in run.findings:
        echo(f"{'*' if finding.significant else '-'} {finding.text}")
        if finding.text in precision.get("could_change", ()):
            echo("  In float32 this could change.")
        if (
            causal_assumptions is not None
            and causal_assumptions.caveat
            and finding.significant
            and finding.causal_claim
        ):
            echo(f"  {causal_assumptions.caveat}")
    for sentence in precision.get("sentences", ()):
        echo(sentence)
    if causal_assumptions is not None:
        print_assumptions(causal_assumptions)
    for table in run.tables:
        echo("")
        echo(table.title)
        print_table([dict(zip(table.columns, row, strict=True)) for row in table.rows])
        if table.about:
            echo(table.about)
    echo(f"Report: {one_line(run.report.resolve())}")


def _plain_finding(finding: Finding, causal_assumptions: FindingAssumptions | None) -> dict[str, Any]:
    plain: dict[str, Any] = {"text": finding.text, "significant": finding.significant, "strength": finding.strength}
    rests = finding.causal_claim and finding.significant
    return plain if causal_assumptions is None else {**plain, "causal_claim": causal_assumptions.kind if rests else ""}


def print_assumptions(causal_assumptions: FindingAssumptions) -> None:
    """Print the assumptions of the findings that the graph does not imply."""
    name = f" {causal_assumptions.named_graph.name}" if causal_assumptions.named_graph.name else ""
    echo("")
    echo(f"Graph{name}: {causal_assumptions.named_graph.graph.text().partition(chr(10))[0]}")
    echo(causal_assumptions.summary)
    for row in causal_assumptions.assumptions:
        if not row.holds:
            echo(f"  {row.verdict}: {row.claim} ({row.reason})")


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
