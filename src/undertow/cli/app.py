"""`undertow app`, `annotate` and `rephrase`: commands that serve a page in the browser."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from undertow.cli.console import echo, one_line, print_json, print_table, warn
from undertow.cli.options import Device, Dtype, Json, Revision, on_model
from undertow.errors import UndertowError, counted


@on_model
def app(  # noqa: PLR0913 - an option each
    *,
    models: Annotated[
        str,
        typer.Option(
            help="Models to choose from, comma-separated: names, hub ids, folders or GGUF files. Default: smollm2 if it is present, "
            "and toy.",
            show_default=False,
        ),
    ] = "",
    allow_any_model: Annotated[
        bool,
        typer.Option(
            "--allow-any-model", help="Let visitors name any other model by its hub id, which is then downloaded."
        ),
    ] = False,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of runs, to show and to write to; runs if not given.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Others than the default open the page to other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to serve at; 0 for a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    revision: Revision = "",
    dtype: Dtype = "float32",
    device: Device = "auto",
    settings: Mapping[str, Any],
) -> None:
    """Serve a web page to audit sentences, to run audits, and to browse and compare runs."""
    from undertow.app import server as served
    from undertow.app.forms import AllowedModels
    from undertow.models import refuse_unused, resolve
    from undertow.models.base import ModelRequest
    from undertow.models.loading.download import PACKAGES, location
    from undertow.runs.pipeline import RUNS

    served.check_gradio()
    request = ModelRequest("", revision, dtype, device, settings)
    # Report a missing model now instead of to each visitor.
    names = [name.strip() for name in models.split(",") if name.strip()]
    if models and not names:
        raise UndertowError("--models names none; write for example --models smollm2,toy")
    refuse_unused(settings, [resolve(replace(request, name=name)) for name in names])
    names = names or [*(name for name in PACKAGES if location(name).is_file()), "toy"]
    allowed_models = AllowedModels.from_names(names, any_model=allow_any_model, request=request)
    if runs is not None and not (runs.is_dir() or runs.absolute().parent.is_dir()):
        raise UndertowError(f"{runs}: there is no such folder; name the folder of runs with --runs")
    if host not in served.LOOPBACK:
        warn(
            f"undertow: other machines can reach {host}, without encryption; anyone who knows the address below can use the models of "
            "this machine"
        )

    def announce(address: str) -> None:
        echo(f"Open {address} (Ctrl-C ends it)")
        if browser:
            import webbrowser

            webbrowser.open(address)

    served.serve(allowed_models, runs or RUNS, host, port, announce)


def annotate(
    run: Annotated[Path, typer.Argument(help="A run folder of bias-rephrasing.")],
    *,
    annotator: Annotated[str, typer.Option(help="Name of the annotator; that of the account if not given.")] = "",
    port: Annotated[int, typer.Option(help="Port of this machine to serve the page on; 0 for a free one.")] = 0,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print a summary of the annotations, and serve nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Annotate rephrasings in the browser. Each is saved beside the run at once; when the page ends, they join its results and report."""
    from undertow._files import path_exists
    from undertow.app import server
    from undertow.app.annotators import annotation
    from undertow.runs.folder.annotations import ANNOTATIONS
    from undertow.runs.score import render_report

    if summary:
        rows, pairs = annotation.summary(run)
        if as_json:
            print_json({"annotations": rows, "agreement": pairs})
            return
        if not rows:
            echo(f"{one_line(run)}: nothing has been annotated yet; leave --summary out to begin")
        ends = ("percent", "low", "high")
        print_table([row | {end: "–" if row[end] is None else f"{row[end]:.1f}" for end in ends} for row in rows])
        for pair in pairs:
            kappa = "undefined, because both chose one category" if pair["kappa"] is None else f"{pair['kappa']:.2f}"
            echo(
                f"{' and '.join(pair['annotators'])} chose the same for {pair['same_percent']:.1f}% of "
                f"{counted(pair['n'], 'rephrasing')}; Cohen's kappa {kappa}"
            )
        return
    if as_json:
        raise UndertowError("--json goes with --summary; leave it out to annotate")
    server.annotation_server(run, annotator or _account(), port).run(lambda url: echo(f"Open {url} (Ctrl-C ends it)"))
    echo(f"Annotations: {(run / ANNOTATIONS).resolve()}")
    if path_exists(run / ANNOTATIONS):
        echo(f"Report with the annotations: {one_line(render_report(run))}")


def rephrase(
    challenge: Annotated[str, typer.Argument(help="Documents with biased spans: cad, or a file.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the answers of all people, and of the table.")] = Path(
        "rephrasings"
    ),
    annotator: Annotated[str, typer.Option(help="Name of the person; that of the account if not given.")] = "",
    port: Annotated[int, typer.Option(help="Port of this machine to serve the page on; 0 for a free one.")] = 0,
    summary: Annotated[bool, typer.Option("--summary", help="Write the table, and serve nothing.")] = False,
) -> None:
    """Write, verify and refine rephrasings of biased spans in the browser. Accepted ones become a table for --rephrasings."""
    from undertow.app import server
    from undertow.app.annotators.rephrasing import TABLE, RephrasingStore
    from undertow.data.documents.document_sources import load_documents

    try:
        store = RephrasingStore(load_documents(challenge), out, annotator or _account())
        if not summary:
            server.rephrasing_server(store, port).run(lambda url: echo(f"Open {url} (Ctrl-C ends it)"))
        counts, n = store.next_item()["counts"], store.write_table()
    except OSError as error:
        raise UndertowError(f"{out}: cannot be used ({error.strerror}); name another folder with --out") from error
    echo(
        f"{counted(n, 'rephrasing')} accepted; {counted(counts['write'], 'span')} to write, {counts['verify']:,} to verify, "
        f"{counts['refine']:,} to refine"
    )
    echo(f"Table: {one_line(out / TABLE)}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise UndertowError("this account has no name; say who annotates with --annotator NAME") from error
