"""Graphs by name: those of the papers, a file, or the text of a graph."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from undertow._files import decode_text, path_exists, read_file
from undertow.causal.graph import Graph, read_graph
from undertow.errors import UndertowError, closest

MAX_BYTES = 2**20
_OTHER_ARROWS = re.compile(r"=>|<=|[\u2190-\u21ff\u27f0-\u27ff]|[\u2010-\u2015\u2212]>")
"""Other signs for arrows, which are refused with a hint."""


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """A graph and its origin.

    Attributes:
        name: of a published graph or a file; "" for the text of a graph.
        title, source: of a published graph; "" otherwise.
    """

    name: str
    title: str
    source: str
    graph: Graph


@cache
def published() -> dict[str, NamedGraph]:
    """The graphs of the papers, by name."""
    text = resources.files("undertow.causal").joinpath("resources", "published.toml").read_text(encoding="utf-8")
    return {
        name: NamedGraph(name, entry["title"], entry["source"], read_graph(entry["graph"], name))
        for name, entry in tomllib.loads(text).items()
    }


def load_graph(name: str) -> NamedGraph:
    """Load a graph by its published name, from a file, or from a text with an arrow.

    Raises:
        UndertowError: the name is empty, there is no such file, or the content is not a graph.
    """
    advice = f"give a file, a graph such as 'W -> X; X -> Y', or a name of {', '.join(published())}"
    if not name.strip():
        raise UndertowError(f"the graph is empty; {advice}")
    if name in published():
        return published()[name]
    if "->" in name or "<-" in name:
        return NamedGraph("", "", "", read_graph(name))
    path = Path(name)
    if path_exists(path):
        return NamedGraph(name, "", "", read_graph(decode_text(read_file(path, MAX_BYTES, "a graph"), path), name))
    if strange := _OTHER_ARROWS.search(name):
        raise UndertowError(
            f"{path}: {strange[0]!r} is not an arrow; arrows are written ->, <- and <->, as in 'W -> X; X -> Y'"
        )
    near = closest(re.sub(r"[\s_]", "-", str(path)), published())
    raise UndertowError(f"{path}: there is no such file{near}; {advice}")
