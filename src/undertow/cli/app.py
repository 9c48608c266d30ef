"""`undertow app` and `undertow annotate`: commands that serve a page in the browser."""

from __future__ import annotations

import dataclasses
import getpass
from pathlib import Path
from typing import Annotated

import typer

from undertow.cli.console import Json, one_line, say, say_list, warn
from undertow.errors import UndertowError

DEFAULT_RUNS = Path("runs")


def app(  # noqa: PLR0913 - an option each
    *,
    models: Annotated[
        str,
        typer.Option(
            help="Models to choose from, comma-separated: names, hub ids, folders or GGUF files; smollm2, if it is on this "
            "machine, and toy if not given.",
            show_default=False,
        ),
    ] = "",
    allow_any_model: Annotated[
        bool,
        typer.Option("--allow-any-model", help="Let visitors name any other model by its hub id; it is downloaded."),
    ] = False,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder with run folders to browse; runs, if it exists, if not given.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but the default can be reached from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Serve a web page to audit a sentence and to browse and compare runs."""
    from undertow.app import server
    from undertow.app.forms import AllowedModels
    from undertow.models import resolve
    from undertow.models.base import ModelRequest

    server.check_gradio()
    for name in _names(models):
        resolve(ModelRequest(name))  # an unknown model is an error now, not for each visitor
    allowed_models = AllowedModels.from_names(
        _names(models) or list(server.default_models()), any_model=allow_any_model
    )
    if runs is None and DEFAULT_RUNS.is_dir():
        runs = DEFAULT_RUNS
    if host not in server.LOOPBACK:
        warn(
            f"undertow: other machines can reach {host}, without encryption; whoever has the address below can use this machine's models"
        )

    def on_ready(address: str) -> None:
        say(f"Open {address} (Ctrl-C ends it)")
        if browser:
            import webbrowser

            webbrowser.open(address)

    server.serve(server.ServerConfig(allowed_models, runs, host, port), on_ready)


def _names(given: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    if given and not names:
        raise UndertowError("--models is empty; write for example --models smollm2,toy")
    return names


def annotate(
    run: Annotated[Path, typer.Argument(help="A run folder of bias-rephrasing.")],
    *,
    annotator: Annotated[str, typer.Option(help="Name of the annotator; the account's name if not given.")] = "",
    port: Annotated[int, typer.Option(help="Port of this machine to serve the page on; 0 for a free one.")] = 0,
    summary: Annotated[bool, typer.Option("--summary", help="Print the annotations so far, without a page.")] = False,
    as_json: Json = False,
) -> None:
    """Annotate rephrasings in the browser. Each annotation is saved beside the run at once."""
    from undertow.app import annotation_page, annotations

    if summary:
        rows = [dataclasses.asdict(row) for row in annotations.summary(run)]
        if not rows and not as_json:
            say(f"{one_line(run)}: has no annotations yet; leave --summary out to start")
        if not as_json:
            rows = [row | {name: f"{row[name]:.1f}" for name in ("percent", "low", "high")} for row in rows]
        say_list(rows, as_json=as_json)
        return
    if as_json:
        raise UndertowError("--json needs --summary; leave it out to annotate")
    annotation_page.serve(run, annotator or _account(), port, lambda url: say(f"Open {url} (Ctrl-C ends it)"))
    say(f"Annotations: {(run / annotations.ANNOTATIONS).resolve()}")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise UndertowError("this account has no name; name the annotator with --annotator NAME") from error
