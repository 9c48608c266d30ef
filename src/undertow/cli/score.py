"""Commands on recorded answers and finished runs: `score`, `report`, `show`, `table`, `figure`, `cite` and `scaling`."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli import console
from undertow.cli.options import Graph, Json, ModelInfo, Out, Overwrite, Protocol
from undertow.errors import UndertowError

MAX_CELL_SIGNS = 160
"""Of a text that `show` prints; a longer one is cut in its middle."""
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]


def score(  # noqa: PLR0913 - an option each
    path: Annotated[
        Path,
        typer.Argument(
            help="A run folder, a recorded table (CSV, TSV, Parquet; .gz allowed), or a log of lm-evaluation-harness or Inspect."
        ),
    ],
    *,
    audit: Annotated[str, typer.Option(help="Audit that a recorded table belongs to.")] = "",
    protocol: Protocol = "",
    seed: Annotated[int | None, typer.Option(help="Seed of resampling.")] = None,
    model_info: ModelInfo = None,
    graph: Graph = "",
    columns: Annotated[
        Path | None, typer.Option(help="TOML file that maps the columns of a table: [columns], [groups].")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Score recorded answers without a model. Reads a run folder, a table or a log of lm-evaluation-harness or Inspect."""
    from undertow.runs import score as rescoring

    console.print_run(
        rescoring.score(
            path,
            audit=audit,
            protocol=protocol,
            seed=seed,
            model_info=model_info or "",
            graph=graph,
            columns=columns or "",
            out=out,
            overwrite=overwrite,
        ),
        as_json=as_json,
        with_counts=False,
    )


def report(run: RunFolder, *, graph: Graph = "") -> None:
    """Rewrite the figures and the page of a run folder."""
    from undertow.runs import score as rescoring

    page = rescoring.render_report(run, graph)
    if graph:
        from undertow.runs.causal_assumptions import assumptions_of
        from undertow.runs.folder.storage import read_record

        if (causal_assumptions := assumptions_of(read_record(run))) is not None:
            console.print_text("graph", assumptions=causal_assumptions)
    console.echo(console.one_line(page))


def table(
    run: RunFolder,
    *,
    table: Annotated[str, typer.Option("--table", help="Name of the table; the audit's main one if not given.")] = "",
    format: Annotated[  # noqa: A002 - the name of the option
        str, typer.Option("--format", help="text, latex (booktabs), markdown or csv (all digits).")
    ] = "text",
    names: Annotated[bool, typer.Option("--list", help="List the names of the tables.")] = False,
) -> None:
    """Print a table of a run for a paper. Has a row for each model and group, with interval, p and q."""
    from undertow.report.paper_table import CSV, FORMATS, LATEX, choose
    from undertow.runs.finished_run import load_run
    from undertow.runs.folder.storage import csv_of

    if format not in ("text", *FORMATS):
        raise UndertowError(f"--format {format!r} is unknown; use text, {', '.join(FORMATS)}")
    tables = load_run(run).paper_tables
    if names:
        console.print_table([{"table": name, "title": one.text.title} for name, one in tables.items()])
        return
    chosen = choose(tables, table)
    if format == CSV:
        sys.stdout.write(csv_of(chosen.frame))
    elif format == "text":
        console.print_table(chosen.text.named_rows())
        console.echo(chosen.text.about)
    else:
        typer.echo(chosen.to_latex() if format == LATEX else chosen.to_markdown())
    if not table and len(tables) > 1:
        console.warn(f"The run has {len(tables)} tables; undertow table {run} --list names them.")


def figure(  # noqa: PLR0913 - an option each
    run: RunFolder,
    *,
    name: Annotated[str, typer.Option(help="Name of the figure; the first of the report if not given.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write: .pdf, .svg or .png; NAME.pdf if not given.")
    ] = None,
    width: Annotated[float, typer.Option(help="Width in inches; a column of a journal has about 3.3.")] = 3.3,
    title: Annotated[bool, typer.Option("--title", help="Keep the title; papers have it in the caption.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    names: Annotated[bool, typer.Option("--list", help="List the names of the figures.")] = False,
) -> None:
    """Draw a figure of a run for a paper. Writes a vector file at column width, with selectable text."""
    from undertow.report.style import file_stem, write_figure
    from undertow.runs.finished_run import load_run

    loaded = load_run(run)
    if names:
        for one in loaded.figure_names:
            console.echo(one)
        return
    drawn = loaded.figure(name or 0, width=width, title=title)
    out = out or Path(f"{file_stem(name or loaded.figure_names[0])}.pdf")
    console.check_figure(out, replace=overwrite, fix="add --overwrite")
    write_figure(drawn, out)
    console.echo(f"{out}: {drawn.get_figwidth():.2f} x {drawn.get_figheight():.2f} inches")


def cite(
    run: RunFolder,
    *,
    latex: Annotated[bool, typer.Option("--latex", help=r"Escape the text for LaTeX, with \cite{...}.")] = False,
) -> None:
    """Print a methods paragraph and BibTeX for a run. Cites Undertow and the papers of the audit."""
    from undertow.runs.finished_run import load_run

    citation = load_run(run).cite()
    typer.echo(citation.latex if latex else citation.methods)
    typer.echo(f"\n{citation.bibtex}")


def show(
    run: RunFolder,
    *,
    worst: Annotated[
        int, typer.Option(help="Number of sentences, texts or questions to print; 0 for none.", min=0)
    ] = 10,
    as_json: Json = False,
) -> None:
    """Print the verdict of a run. Lists the sentences, texts or questions that matter most, with the model's answers."""
    from undertow.report.formatting import shortened
    from undertow.report.sentence_templates import sentences
    from undertow.runs.finished_run import load_run
    from undertow.runs.folder.storage import without_nan
    from undertow.runs.run_report import answer_caveats, sentence_rows

    loaded = load_run(run)
    findings, behind, of = loaded.findings, loaded.sentences(), loaded.sentence_table
    caveats = answer_caveats(loaded.manifest)
    if as_json:
        rows = behind.head(worst).to_dict("records")
        claims = [one.as_json() for one in findings]
        console.print_json({"run": str(run), "caveats": caveats, "findings": claims, "sentences": without_nan(rows)})
        return
    console.print_text(
        "show",
        run=loaded,
        caveats=caveats,
        findings=findings,
        n_sentences=len(behind),
        table=of,
        title=sentences("run").sentences_title(of, min(worst, len(behind)), behind),
        rows=[
            {name: shortened(cell, MAX_CELL_SIGNS) for name, cell in row.items()}
            for row in sentence_rows(of, behind, worst)
        ],
    )


def scaling(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task-specification and of spurious-correlation.")],
    *,
    size: Annotated[
        list[str] | None, typer.Option(help="A model's number of parameters, as in smollm2=135e6; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Relate detection of underspecified sentences to drift and model size."""
    from undertow.data.text_files import number_between
    from undertow.runs import score

    sizes = {}
    for text in size or []:
        model, _, number = text.rpartition("=")
        sizes[model] = number_between(0, math.inf, number)
        if not model or not 0 < sizes[model] < math.inf:
            raise UndertowError(f"--size {text!r}: write it as model=number, as in smollm2=135e6")
    points, relations = score.scaling(runs, sizes)
    rows = [dataclasses.asdict(point) for point in points]
    ranks = [
        {
            **relation.group,
            "rank correlation": relation.value,
            "p": relation.p,
            "models": relation.n,
            "note": relation.note,
        }
        for relation in relations
    ]
    if as_json:
        console.print_json({"models": rows, "relations": ranks})
        return
    console.print_table([{name: _table_cell(cell) for name, cell in row.items()} for row in rows])
    console.print_table([{name: _table_cell(cell) for name, cell in row.items()} for row in ranks])


def _table_cell(cell: object) -> object:
    if not isinstance(cell, float):
        return cell
    return f"{cell:.4g}" if math.isfinite(cell) else ""
