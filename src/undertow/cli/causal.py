"""`undertow graph` and `undertow simulate`: analyse a causal graph, and simulate selection from structural equations."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from undertow._files import csv_cell
from undertow.cli.console import Json, plain, progress_bar, say, say_json, say_table, stoppable, warn, without_nan
from undertow.errors import UndertowError
from undertow.types import as_json

if TYPE_CHECKING:
    from undertow.causal.describe import Section
    from undertow.causal.graph import Graph
    from undertow.causal.published import NamedGraph
    from undertow.causal.scm import StructuralCausalModel
    from undertow.causal.simulate import Correlation, Progress, Simulation
    from undertow.report.figures.scatter import Cloud, Panel
    from undertow.report.style import Drawing


FIGURE_SUFFIXES = (".png", ".svg")


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
    out: Annotated[Path | None, typer.Option("--out", help="Draw the graph into this file, .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Analyse a causal graph. Reports open paths, recoverability, possible W, and what specifies the task."""
    from undertow.causal.describe import describe_graph, describe_separation
    from undertow.causal.published import find_graph

    named = find_graph(file)
    graph = named.graph
    pairs = [_parse_separation(text) for text in d_separated or []]
    answer = _graph_plain(graph, pairs) if as_json else ""
    sections = () if as_json else [describe_separation(graph, *one) for one in pairs] or describe_graph(graph)
    if out is not None:
        _draw(graph, named.title or Path(named.name).name or "graph", out)
    if as_json:
        typer.echo(answer)
        return
    typer.echo(plain("\n\n".join([*([] if pairs else [_head(named)]), *map(_section_text, sections)])))
    if out is not None:
        say(f"Drawn: {out.resolve()}")


def _graph_plain(graph: Graph, pairs: Sequence[tuple[str, str, tuple[str, ...]]]) -> str:
    from undertow.causal.describe import graph_json, separation_json

    return as_json([separation_json(graph, *one) for one in pairs] or graph_json(graph))


def _parse_separation(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Parse 'W,G|S' into two nodes and the conditioning set."""
    pair, _, given = text.partition("|")
    names = [name.strip() for name in pair.split(",")]
    conditions = tuple(name.strip() for name in given.split(",") if name.strip())
    if len(names) != 2 or not all(names):
        raise UndertowError(
            f"--d-separated {text!r}: write two nodes, and after a bar those that are given, as in 'W,G|S'"
        )
    return names[0], names[1], conditions


def _draw(graph: Graph, title: str, out: Path) -> None:
    if out.suffix.lower() not in FIGURE_SUFFIXES:
        raise UndertowError(f"{out}: the figure must be a .png or .svg file")
    if not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder does not exist; create it, or name another file with --out")
    if out.exists():
        raise UndertowError(f"{out}: exists already; name another file with --out, or remove it")
    from undertow.causal.describe import graph_view
    from undertow.report.figures.causal_graph import GraphShape, draw_graph, signs_as_boxes
    from undertow.report.style import png_bytes, svg_text

    drawing = draw_graph(GraphShape(**graph_view(graph)), title)
    is_png = out.suffix.lower() == ".png"
    out.write_bytes(png_bytes(drawing) if is_png else svg_text(drawing).encode())
    if lacking := signs_as_boxes(drawing) if is_png else "":
        warn(
            f"undertow: {out} shows boxes for {', '.join(lacking)}, which no font of this machine has; install one that has them, or "
            "draw an .svg"
        )


def _head(named: NamedGraph) -> str:
    source = [f"{named.title} ({named.source})"] if named.title else []
    return "\n".join([*source, named.graph.text().partition("\n")[0]])


def _section_text(section: Section) -> str:
    return "\n  ".join([section.title, *section.lines])


SUM, DIFFERENCE = "selected-on-sum", "selected-on-difference"


TABLE, DRAFT = "correlations.csv", ".part"


MAX_PAIRS, MAX_CASES = 2, 6
"""Limits of one figure; further pairs and cases go into further figures."""


MAX_NAME_CHARS = 14
"""Limit of both names together for a column head with them."""


_SPECIFIED = {"well specified": "Well specified, X causes Y", "unspecified": "Unspecified, X does not cause Y"}


_SELECTED_ON = {SUM: "selected on W + G", DIFFERENCE: "selected on W \N{MINUS SIGN} G"}


class _SimulatedCase(NamedTuple):
    """One case of one model, and its simulation."""

    model: str
    case: str
    graph: str
    result: Simulation


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
        raise UndertowError(f"--show-graph simulates nothing, so --out {out} would be empty; leave one of them out")
    models, changed = _models(file), _settings(settings or [])
    for model in models.values():
        _check_settings(model, changed)
    if graph:
        _say_graphs(models, changed, as_json=as_json)
        return
    if out is not None:
        _check_folder(out, overwrite=overwrite)
    with stoppable("no simulation was written"):
        with progress_bar(as_json, "drawing people", "") as bar:
            drawn = _simulate_cases(models, _people(draws), seed, changed, bar)
        written = _write(drawn, out, papers=not file, note=_note(changed)) if out is not None else []
    if as_json:
        say_json(_plain(drawn, written))
        return
    say_table([row for one in drawn for row in _result_rows(one)])
    say(f"{drawn[0].result.n_draws:,} people drawn for each case, seed {seed}; brackets are 95% intervals.")
    for one in drawn:
        for warning in one.result.warnings:
            say(f"Warning: {one.model}{', ' if one.case else ''}{one.case}: {warning}.")
    for path in written:
        say(f"Written: {path.resolve()}")


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
        name, _, said = text.partition("=")
        try:
            number = float(said)
        except ValueError as error:
            raise UndertowError(f"--set {text!r}: write it as parameter=number, as in alpha=5") from error
        if name.strip() in changed:
            raise UndertowError(f"--set {name.strip()}: is given twice; leave one of the two out")
        changed[name.strip()] = number
    return changed


def _check_settings(model: StructuralCausalModel, changed: Mapping[str, float]) -> None:
    """Refuse an option that would change what a named case means."""
    model.constants(changed)
    for name in changed:
        for case, of_case in model.cases.items():
            if name in of_case:
                raise UndertowError(
                    f"--set {name}: case {case!r} of {model.source} sets {name}, so that the option would make its name untrue; "
                    "change the case in a file of your own"
                )


def _people(draws: float) -> int:
    if not (math.isfinite(draws) and draws.is_integer()):
        raise UndertowError(f"--draws {draws:g}: write a whole number, as in 1e6")
    return int(draws)


def _say_graphs(models: Mapping[str, StructuralCausalModel], changed: Mapping[str, float], *, as_json: bool) -> None:
    from undertow.causal.scm import implied_graph

    rows: list[dict[str, Any]] = [
        {"model": name, "case": case, "graph": implied_graph(model, {**of_case, **changed})}
        for name, model in models.items()
        for case, of_case in model.cases.items()
    ]
    if as_json:
        say_json(rows)
        return
    for row in rows:
        # Of several, each line says in a comment of graphs whose it is, and can be read alone.
        whose = f"  # {row['model']}{', ' if row['case'] else ''}{row['case']}" if len(rows) > 1 else ""
        say(f"{row['graph']}{whose}")


def _simulate_cases(
    models: Mapping[str, StructuralCausalModel], n_draws: int, seed: int, changed: Mapping[str, float], bar: Progress
) -> list[_SimulatedCase]:
    from undertow.causal.scm import implied_graph
    from undertow.causal.simulate import simulate as run_simulation

    cases = [(name, case) for name, model in models.items() for case in model.cases]
    simulated_cases = []
    for place, (name, case) in enumerate(cases):
        model = models[name]
        chosen = {**model.cases[case], **changed}
        progress = _within(bar, place, len(cases))
        simulated_cases.append(
            _SimulatedCase(
                name, case, implied_graph(model, chosen), run_simulation(model, n_draws, seed, chosen, progress)
            )
        )
    return simulated_cases


def _within(bar: Progress, place: int, n_cases: int) -> Progress:
    return lambda done, total: bar(place * total + done, n_cases * total)


def _result_rows(one: _SimulatedCase) -> list[dict[str, Any]]:
    """A table row for each pair of variables."""
    result = one.result
    return [
        {
            "model": one.model,
            "case": one.case,
            "pair": f"{x}, {y}",
            "r before": _with_interval(result.correlation(x, y, selected=False)),
            "r after selection": _with_interval(result.correlation(x, y, selected=True)),
            "selected": f"{100 * result.share:.2f}% ({100 * result.share_low:.2f} to {100 * result.share_high:.2f})",
        }
        for x, y in _pairs(one)
    ]


def _pairs(one: _SimulatedCase) -> list[tuple[str, str]]:
    return [(correlation.x, correlation.y) for correlation in one.result.correlations if not correlation.selected]


def _with_interval(correlation: Correlation) -> str:
    if math.isnan(correlation.r):
        verb = "is" if len(correlation.constant) == 1 else "are"
        return "undefined" + (f": {' and '.join(correlation.constant)} {verb} constant" if correlation.constant else "")
    return f"{_decimals(correlation.r)} ({_decimals(correlation.low)} to {_decimals(correlation.high)})"


def _decimals(r: float) -> str:
    return f"{r + 0.0:.3f}".replace("-0.000", "0.000")


def _plain(drawn: Sequence[_SimulatedCase], written: Sequence[Path]) -> Any:
    return without_nan(
        {
            "draws": drawn[0].result.n_draws,
            "seed": drawn[0].result.seed,
            "cases": [
                {
                    "model": one.model,
                    "case": one.case,
                    "settings": dict(one.result.settings),
                    "graph": one.graph,
                    "selected": {
                        "n": one.result.n_selected,
                        "share": one.result.share,
                        "low": one.result.share_low,
                        "high": one.result.share_high,
                    },
                    "warnings": one.result.warnings,
                    "correlations": [
                        {name: cell for name, cell in row.items() if not name.startswith("share")}
                        for row in one.result.rows()
                    ],
                }
                for one in drawn
            ],
            "files": [str(path) for path in written],
        }
    )


def _check_folder(out: Path, *, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UndertowError(f"{out}: is a file; name a folder")
    if (out / TABLE).exists() and not overwrite:
        raise UndertowError(f"{out}: holds a simulation already; name another folder, or add --overwrite")


def _note(changed: Mapping[str, float]) -> str:
    return f" ({', '.join(f'{name} = {value:g}' for name, value in changed.items())})" if changed else ""


def _write(drawn: Sequence[_SimulatedCase], out: Path, *, papers: bool, note: str) -> list[Path]:
    from undertow.report.style import file_stem, save_drawing

    drawings = _paper_figures(drawn, note) if papers else _model_figures(drawn, note)
    files = [f"{file_stem(drawing.name)}{suffix}" for drawing in drawings for suffix in (".png", ".svg")]
    try:
        with _draft_in(out) as draft:
            _write_table(drawn, draft / TABLE)
            for drawing in drawings:
                save_drawing(drawing, draft)
            # A folder holds a simulation by its table, so the old one goes first and the new one comes last.
            (out / TABLE).unlink(missing_ok=True)
            for name in (*files, TABLE):
                (draft / name).replace(out / name)
    except OSError as error:
        raise UndertowError(
            f"{out}: cannot be written ({error.strerror or error}); free space, or name another folder"
        ) from error
    return [out / name for name in (TABLE, *files)]


@contextmanager
def _draft_in(out: Path) -> Iterator[Path]:
    """An empty folder within the other, which is made if need be; what a killed process left of its own is cleared away."""
    draft = out / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_table(drawn: Sequence[_SimulatedCase], path: Path) -> None:
    rows = [
        {csv_cell(name): "" if cell is None else csv_cell(cell) for name, cell in without_nan(row).items()}
        for row in _rows(drawn)
    ]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _rows(drawn: Sequence[_SimulatedCase]) -> list[dict[str, Any]]:
    return [
        {
            "model": one.model,
            "case": one.case,
            "settings": " ".join(
                f"{name}={repr(value).removesuffix('.0')}" for name, value in one.result.settings.items()
            ),
            "seed": one.result.seed,
            **row,
        }
        for one in drawn
        for row in one.result.rows()
    ]


def _paper_figures(drawn: Sequence[_SimulatedCase], note: str) -> list[Drawing]:
    """Figure 2 of McMilin 2024 and figures 6 and 7 of the ICLR submission."""
    from undertow.report.figures.scatter import draw_simulation

    by_case = {(one.model, one.case): one.result for one in drawn}
    pairs = [("W", "G"), ("X", "Y")]
    both = [
        (_row_words(said, model, by_case[model, case]), _before_and_after(by_case[model, case], pairs))
        for model in (SUM, DIFFERENCE)
        for case, said in _SPECIFIED.items()
    ]
    weights = {", beta 0.01": "beta = 0.01", ", beta 0.1": "beta = 0.1", "": "beta = 1"}
    injected = [
        (
            _row_words(said, model, by_case[model, case]),
            [_panel(by_case[model, case + weight], ("X", "Y")) for weight in weights],
        )
        for model in (SUM, DIFFERENCE)
        for case, said in _SPECIFIED.items()
    ]
    columns = _before_and_after_words(pairs)
    return [
        draw_simulation(
            "mcmilin-2024-figure-2",
            f"Selecting on W + G makes X and Y correlate if the task is unspecified{note}",
            columns,
            both[: len(_SPECIFIED)],
        ),
        draw_simulation(
            "iclr-submission-figure-6",
            f"The sign of what selection makes depends on who is selected{note}",
            columns,
            both,
        ),
        draw_simulation(
            "iclr-submission-figure-7",
            f"The more of W there is in X (beta), the more does selection correlate X and Y of an unspecified task{note}",
            list(weights.values()),
            injected,
        ),
    ]


def _model_figures(drawn: Sequence[_SimulatedCase], note: str) -> list[Drawing]:
    """Every pair of every case, two pairs and six cases to a figure."""
    from undertow.report.figures.scatter import draw_simulation

    model, pairs = drawn[0].model, _pairs(drawn[0])
    figures: list[Drawing] = []
    for first in range(0, len(drawn), MAX_CASES):
        for pair in range(0, len(pairs), MAX_PAIRS):
            across = pairs[pair : pair + MAX_PAIRS]
            name = f"{model}-{len(figures) + 1}" if max(len(drawn) - MAX_CASES, len(pairs) - MAX_PAIRS) > 0 else model
            rows = [
                (
                    f"{one.case or model}; selected: {_percent(one.result)} of all people",
                    _before_and_after(one.result, across),
                )
                for one in drawn[first : first + MAX_CASES]
            ]
            title = f"{model}: correlations before and after selection{note}"
            figures.append(draw_simulation(name, title, _before_and_after_words(across), rows))
    return figures


def _row_words(said: str, model: str, result: Simulation) -> str:
    return f"{said}; {_SELECTED_ON[model]}: {_percent(result)} of all people"


def _percent(result: Simulation) -> str:
    return f"{100 * result.share:.3g}%"


def _before_and_after_words(pairs: Sequence[tuple[str, str]]) -> list[str]:
    who = ("everyone", "selected")
    if any(len(x + y) > MAX_NAME_CHARS for x, y in pairs):
        return [one.capitalize() for _ in pairs for one in who]
    return [f"{x} and {y}, {one}" for x, y in pairs for one in who]


def _before_and_after(result: Simulation, pairs: Sequence[tuple[str, str]]) -> list[Panel]:
    return [_panel(result, pair, alone=alone) for pair in pairs for alone in (True, False)]


def _panel(result: Simulation, pair: tuple[str, str], *, alone: bool = False) -> Panel:
    from undertow.report.figures.scatter import Panel

    return Panel(*pair, _cloud(result, pair, selected=False), None if alone else _cloud(result, pair, selected=True))


def _cloud(result: Simulation, pair: tuple[str, str], *, selected: bool) -> Cloud:
    from undertow.report.figures.scatter import Cloud

    correlation = result.correlation(*pair, selected=selected)
    people = result.selected if selected else result.everyone
    return Cloud(
        people[correlation.x], people[correlation.y], correlation.r, correlation.low, correlation.high, correlation.n
    )
