"""Graphs by name: those of the papers, a file of one's own, or a graph written where its name is asked for."""

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
"""Signs that are meant as arrows, and are none here."""


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """A graph and where it is from.

    Attributes:
        name: a published graph's, or the file's; "" for a graph that was written in place of a name.
        title, source: of a published graph; "" else.
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
    """The graph of a published name, of a file, or of a text that holds an arrow.

    Raises:
        UndertowError: the name is empty, there is no such file, or what it holds is no graph.
    """
    if not name.strip():
        raise UndertowError(f"the graph named is empty; {_published_names()}")
    if name in published():
        return published()[name]
    if "->" in name or "<-" in name:
        return NamedGraph("", "", "", read_graph(name))
    return NamedGraph(name, "", "", read_graph(_content(Path(name)), name))


def _content(path: Path) -> str:
    if not path_exists(path):
        raise UndertowError(f"{path}: {_unknown_graph(str(path))}")
    return decode_text(read_file(path, MAX_BYTES, "a graph"), path)


def _unknown_graph(name: str) -> str:
    strange = _OTHER_ARROWS.search(name)
    if strange:
        return f"{strange[0]!r} is not an arrow; arrows are written ->, <- and <->, as in 'W -> X; X -> Y'"
    near = closest(re.sub(r"[\s_]", "-", name), published())
    return f"there is no such file{near}; {_published_names()}"


def _published_names() -> str:
    return f"give a file, a graph such as 'W -> X; X -> Y', or a name of {', '.join(published())}"
