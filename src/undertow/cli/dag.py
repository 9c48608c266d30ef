"""`undertow dag`: what follows from a causal graph, in words, as JSON and drawn.

Knows options and what a terminal shows; decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertow.cli.terminal import Json, say, warn
from undertow.types import UndertowError, as_json

if TYPE_CHECKING:
    from undertow.causal.graphs import Graph
    from undertow.causal.in_words import Section
    from undertow.causal.published import NamedGraph

DRAWN_AS = (".png", ".svg")


def dag(
    file: Annotated[
        str,
        typer.Argument(
            help="A file with a graph, a graph itself ('W -> X; W -> S; G -> S; G -> Y; [S]'), or one of the papers': "
            "well-specified, unspecified, access, access-masked."
        ),
    ],
    *,
    separated: Annotated[
        list[str] | None,
        typer.Option(help="Say instead whether two nodes are independent, given others: 'W,G|S'; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Draw the graph into this file, .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Say what follows from a causal graph: open paths, recoverability, who can be a W, what specifies the task."""
    from undertow.causal.in_words import in_words, separation_in_words
    from undertow.causal.published import find_graph

    found = find_graph(file)
    graph = found.graph
    asked = [_asked(text) for text in separated or []]
    answer = _plain(graph, asked) if as_json else ""
    sections = () if as_json else [separation_in_words(graph, *one) for one in asked] or in_words(graph)
    if out is not None:
        _draw(graph, found.title or Path(found.name).name or "graph", out)
    if as_json:
        typer.echo(answer)
        return
    typer.echo("\n\n".join([*([] if asked else [_head(found)]), *map(_told, sections)]))
    if out is not None:
        say(f"Drawn: {out.resolve()}")


def _plain(graph: Graph, asked: Sequence[tuple[str, str, tuple[str, ...]]]) -> str:
    from undertow.causal.in_words import as_plain, separation_as_plain

    return as_json([separation_as_plain(graph, *one) for one in asked] or as_plain(graph))


def _asked(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Two nodes, and those that are given."""
    pair, _, given = text.partition("|")
    names = [name.strip() for name in pair.split(",")]
    conditions = tuple(name.strip() for name in given.split(",") if name.strip())
    if len(names) != 2 or not all(names):
        raise UndertowError(
            f"--separated {text!r}: write two nodes, and after a bar those that are given, as in 'W,G|S'"
        )
    return names[0], names[1], conditions


def _draw(graph: Graph, title: str, out: Path) -> None:
    if out.suffix.lower() not in DRAWN_AS:
        raise UndertowError(f"{out}: a graph is drawn as .png or .svg; give the file such an ending")
    if not out.absolute().parent.is_dir():
        raise UndertowError(f"{out}: its folder is not there; make it first, or name another file with --out")
    if out.exists():
        raise UndertowError(f"{out}: is there already; name another file with --out, or remove it first")
    from undertow.causal.in_words import drawn
    from undertow.report.drawing import png_bytes, svg_text
    from undertow.report.graph import GraphShape, draw_graph, signs_as_boxes

    drawing = draw_graph(GraphShape(**drawn(graph)), title)
    is_png = out.suffix.lower() == ".png"
    out.write_bytes(png_bytes(drawing) if is_png else svg_text(drawing).encode())
    if lacking := signs_as_boxes(drawing) if is_png else "":
        warn(
            f"undertow: {out} shows boxes for {', '.join(lacking)}, which no font of this machine has; install one that has them, or "
            "draw an .svg"
        )


def _head(found: NamedGraph) -> str:
    source = [f"{found.title} ({found.source})"] if found.title else []
    return "\n".join([*source, found.graph.text().partition("\n")[0]])


def _told(section: Section) -> str:
    return "\n  ".join([section.title, *section.lines])
