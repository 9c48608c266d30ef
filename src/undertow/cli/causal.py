"""`undertow graph` and `undertow simulate`: analyse a causal graph, and simulate selection from structural equations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertow.cli.console import check_figure, echo, plain, print_json, print_table, progress_bar, stoppable, warn
from undertow.cli.options import Json
from undertow.errors import UndertowError
from undertow.types import as_json as dumps

if TYPE_CHECKING:
    from undertow.causal.scm import StructuralCausalModel


def graph(
    file: Annotated[
        str,
        typer.Argument(
            help="A file with a graph, a graph itself ('W -> X; W -> S; G -> S; G -> Y; [S]'), or one of the papers': "
            "well-specified, unspecified, access, access-masked."
        ),
    ],
    *,
    d_separated: Annotated[
        list[str] | None,
        typer.Option(help="Only test whether two nodes are d-separated, given others: 'W,G|S'; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Draw the graph into this .pdf, .svg or .png file.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse a causal graph. Reports open paths, recoverability, possible W, and what specifies the task."""
    from undertow.causal.describe import describe_graph, describe_separation, graph_json, separation_json
    from undertow.causal.published import load_graph

    named = load_graph(file)
    graph = named.graph
    pairs = []
    for text in d_separated or []:
        ends, _, conditions = text.partition("|")
        names, given = ([name.strip() for name in part.split(",")] for part in (ends, conditions))
        if len(names) != 2 or not all(names):
            raise UndertowError(
                f"--d-separated {text!r}: write two nodes, and the conditions after a bar, as in 'W,G|S'"
            )
        pairs.append((names[0], names[1], tuple(filter(None, given))))
    if as_json:
        answer = dumps([separation_json(graph, *one) for one in pairs] or graph_json(graph))
    else:
        described = [describe_separation(graph, *one) for one in pairs] or [describe_graph(graph)]
    if out is not None:
        from undertow.causal.describe import graph_shape
        from undertow.report.figures.causal_graph import draw_graph
        from undertow.report.style import signs_as_boxes, write_figure

        check_figure(out)
        drawing = draw_graph(graph_shape(graph), named.title or Path(named.name).name or "graph")
        write_figure(drawing.figure, out)
        if lacking := signs_as_boxes(drawing) if out.suffix.lower() == ".png" else "":
            warn(
                f"undertow: no font of this machine has {', '.join(lacking)}, so {out} shows boxes; install a font with these characters, "
                "or draw an .svg"
            )
    if as_json:
        typer.echo(answer)
        return
    head = [f"{named.title} ({named.source})"] if named.title else []
    blocks = [] if pairs else ["\n".join([*head, graph.text().partition("\n")[0]])]
    blocks += ["\n  ".join([title, *lines]) for sections in described for title, lines in sections.items()]
    typer.echo(plain("\n\n".join(blocks)))
    if out is not None:
        echo(f"Drawn: {out.resolve()}")


def simulate(  # noqa: PLR0913 - one parameter for each option
    file: Annotated[
        str,
        typer.Argument(
            help="A file of equations, or one of the papers' models: selected-on-sum, selected-on-difference. Both of these if not given.",
            show_default=False,
        ),
    ] = "",
    *,
    draws: Annotated[float, typer.Option(help="Number of people to simulate for each case.")] = 1e6,
    seed: Annotated[int, typer.Option(help="Seed of the noise terms.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a parameter, as in alpha=5; may be repeated.")
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--show-graph",
            help="Print the graph that the equations imply, as `undertow graph` reads it, and simulate nothing.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the figures and correlations.csv.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files of an earlier simulation.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate selection bias. Draws people from equations and correlates variables before and after selection."""
    if graph and out is not None:
        raise UndertowError(f"--show-graph simulates nothing, so --out {out} would be empty; remove one of the two")
    models, changed = _models(file), _settings(settings or [])
    for model in models.values():
        model.constants(changed)
        for name in changed:
            if case := next((case for case, of_case in model.cases.items() if name in of_case), None):
                raise UndertowError(
                    f"--set {name}: case {case!r} of {model.source} sets {name}, so the option would contradict its name; "
                    "change the case in a file of your own"
                )
    if graph:
        _print_graphs(models, changed, as_json=as_json)
        return
    if not (math.isfinite(draws) and draws.is_integer()):
        raise UndertowError(f"--draws {draws:g}: write a whole number, as in 1e6")
    from undertow.causal.simulate import simulate_cases
    from undertow.report.simulation import check_folder, write_simulation

    if out is not None:
        check_folder(out, overwrite=overwrite)
    with stoppable("no simulation was written"):
        with progress_bar(as_json, "draw people") as bar:
            cases = simulate_cases(models, int(draws), seed, changed, bar)
        written = write_simulation(cases, out, changed, papers=not file) if out is not None else []
    result = cases[0].result
    if as_json:
        files = [str(path) for path in written]
        print_json(
            {"draws": result.n_draws, "seed": result.seed, "cases": [one.as_dict() for one in cases], "files": files}
        )
        return
    print_table(
        [
            {
                "model": one.model,
                "case": one.case,
                "pair": f"{x}, {y}",
                "r before": one.result.correlation(x, y, selected=False).text,
                "r after selection": one.result.correlation(x, y, selected=True).text,
                "selected": "{:.2f}% ({:.2f} to {:.2f})".format(
                    *(100 * share for share in (one.result.share, one.result.share_low, one.result.share_high))
                ),
            }
            for one in cases
            for x, y in one.result.pairs
        ]
    )
    echo(f"{result.n_draws:,} simulated people per case, seed {seed}; brackets are 95% intervals.")
    for one in cases:
        for warning in one.result.warnings:
            echo(f"Warning: {one.model}{', ' if one.case else ''}{one.case}: {warning}.")
    for path in written:
        echo(f"Written: {path.resolve()}")


def _models(file: str) -> dict[str, StructuralCausalModel]:
    """Models by name: the papers', one of them, or a file's."""
    from undertow.causal import example_scms as models
    from undertow.causal.scm import StructuralCausalModel
    from undertow.data.text_files import read_text

    if not file or (file in models.NAMES and not Path(file).exists()):
        return {name: models.load(name) for name in ([file] if file else models.NAMES)}
    path = Path(file)
    if not path.exists():
        raise UndertowError(
            f"{file}: there is no such file, and the papers' models are {', '.join(models.NAMES)}; check the path"
        )
    return {path.stem: StructuralCausalModel.from_text(read_text(path), file)}


def _settings(given: Sequence[str]) -> dict[str, float]:
    changed: dict[str, float] = {}
    for text in given:
        name, _, number_text = text.partition("=")
        try:
            number = float(number_text)
        except ValueError as error:
            raise UndertowError(f"--set {text!r}: write it as parameter=number, as in alpha=5") from error
        if name.strip() in changed:
            raise UndertowError(f"--set {name.strip()}: is given twice; leave one of the two out")
        changed[name.strip()] = number
    return changed


def _print_graphs(models: Mapping[str, StructuralCausalModel], changed: Mapping[str, float], *, as_json: bool) -> None:
    from undertow.causal.scm import implied_graph

    rows: list[dict[str, Any]] = [
        {"model": name, "case": case, "graph": implied_graph(model, {**of_case, **changed})}
        for name, model in models.items()
        for case, of_case in model.cases.items()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        # With several models, a comment in each line names the model, so each line is a complete graph.
        whose = f"  # {row['model']}{', ' if row['case'] else ''}{row['case']}" if len(rows) > 1 else ""
        echo(f"{row['graph']}{whose}")
