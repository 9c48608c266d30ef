"""`undertow compare` and `undertow reproduce`: comparisons of runs, and of models with published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.console import echo, print_json, print_rows, print_text, progress_bar, stoppable, warn
from undertow.cli.options import DataDir, Device, Dtype, Json, ModelInfo
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.runs.compare.compare_folders import ComparedRuns

MAX_ROWS = 10


def compare(  # noqa: PLR0913 - an option for each choice
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders of one audit, the baseline first; or one run of several models.")
    ],
    *,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            help="Smallest difference of interest: a number in the unit of each measure, or measure=number pairs, comma-separated. "
            "Default: 0.05 points; 0.1 points over a W list for slopes; .005 for shares."
        ),
    ] = None,
    within: Annotated[
        bool, typer.Option("--within", help="Also compare the models within each run; always on for a single run.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of permutation tests.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for page, table and JSON; chosen from the runs if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs pairwise, item by item, with intervals. Runs that are not comparable are an error."""
    from undertow.runs.compare import compare_folders as comparing
    from undertow.runs.compare.equivalence import Margins
    from undertow.runs.folder.whole_folder import check_place

    named = comparing.Runs.from_folders(runs)
    options = comparing.CompareOptions(seed, Margins.from_options(margin or ()), within)
    folder = out if out is not None else named.folder(options)
    check_place(folder, named.key(options), comparing.COMPARISON)
    with stoppable("nothing was written"), progress_bar(as_json, "compare") as progress:
        compared = named.compare(options, progress)
        page = compared.write(folder)
    if as_json:
        print_json({"folder": str(folder), "report": str(page), **comparing.plain_of(compared)})
    else:
        _print_comparison(compared, page)
    if compared.reasons:
        raise UndertowError(f"not compared: {'; '.join(compared.reasons)}; {page} has the other pairs")


def _print_comparison(compared: ComparedRuns, page: Path) -> None:
    from undertow.runs.compare import compare_folders as comparing

    differ = [one for one in compared.comparisons if not one.identical]
    of_whom = f" of {differ[0].candidate} and {differ[0].baseline}" if differ and len(compared.comparisons) == 1 else ""
    print_text(
        "comparison",
        of=compared,
        counts=comparing.counts_of(compared.comparisons),
        differences=comparing.rows_of(compared.comparisons) if differ else [],
        of_whom=of_whom,
        max_rows=MAX_ROWS,
        page=page,
    )


def reproduce(  # noqa: PLR0913 - an option each
    name: Annotated[str, typer.Argument(help="A table or figure, as in 000:figure-3b; leave it out to list all.")] = "",
    *,
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", help="A model to compare with the published numbers; may be repeated."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Folder with the published outputs as tables (docs/reproduction.md).")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Make everything that the given models and files allow.")
    ] = False,
    model_info: ModelInfo = None,
    data_dir: DataDir = "",
    documents: Annotated[str, typer.Option(help="CAD's file or folder; downloaded if not given.")] = "",
    rephrasings: Annotated[
        str, typer.Option(help="Table of rephrasings of CAD's texts, which are not published.")
    ] = "",
    limit: Annotated[int, typer.Option(help="Maximum number of items in each run; 0 for all.")] = 0,
    dtype: Dtype = "float32",
    device: Device = "auto",
    width: Annotated[float, typer.Option(help="Width of figures in inches; 3.3 is a column of a journal.")] = 8.0,
    out: Annotated[Path, typer.Option("--out", help="Folder for the artefacts and their runs.")] = Path("reproduction"),
    as_json: Json = False,
) -> None:
    """Make a table or figure of a paper, with your models and the published numbers. Lists all of them without a name."""
    from undertow import reproduction
    from undertow.reproduction.contents import IncompleteInputError

    if everything and name:
        raise UndertowError(f"--all makes every artefact; leave {name} out, or --all")
    if not name and not everything:
        if model or recorded:
            raise UndertowError("name a table or figure to make, as in 000:figure-3b, or give --all")
        rows = [
            {"artefact": one.id, "title": one.title, "needs": one.needs} for one in reproduction.artefacts().values()
        ]
        print_rows(rows, as_json=as_json)
        return
    given = {"limit": (limit, 0), "dtype": (dtype, "float32"), "device": (device, "auto")}
    options: dict[str, Any] = {key: value for key, (value, default) in given.items() if value != default}
    names = list(reproduction.artefacts()) if everything else [name]
    failures: list[UndertowError] = []

    def note(error: UndertowError) -> None:
        warn(error)
        if not isinstance(error, IncompleteInputError):
            failures.append(error)

    with stoppable(), progress_bar(as_json) as progress:
        made = reproduction.reproduce(
            names,
            model or [],
            recorded=recorded or "",
            model_info=model_info or "",
            data_dir=data_dir,
            documents=documents,
            rephrasings=rephrasings,
            out=out,
            width=width,
            progress=progress,
            on_error=note if everything else None,
            **options,
        )
    if not made and not failures:
        raise UndertowError("nothing was made; name a model with -m, or the published outputs with --recorded")
    if as_json:
        print_rows([{"artefact": one, "files": [*map(str, files)]} for one, files in made.items()], as_json=True)
    else:
        for one, files in made.items():
            echo(f"{one}: {files[0].resolve()}")
        if everything:
            echo(f"Index: {(out / 'index.html').resolve()}")
    if failures:
        raise UndertowError(
            f"{len(failures)} of {len(made) + len(failures)} artefacts that these models and files allow failed; the first reason is: "
            f"{failures[0]}"
        )
