"""Graphs by name: those of the papers, a file of one's own, or a graph written where its name is asked for.

Knows where a graph's text is; how it is read is for `graphs`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from undertow.causal.graphs import Graph, read_graph
from undertow.types import UndertowError


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """A graph and where it is from.

    Attributes:
        name: a published graph's, or the file's; "" for a graph that was written in place of a name.
        title, source: of a published graph; "" else.
        graph: the graph.
    """

    name: str
    title: str
    source: str
    graph: Graph


@cache
def published() -> dict[str, NamedGraph]:
    """The graphs of the papers, by name."""
    text = resources.files("undertow.causal").joinpath("published.toml").read_text(encoding="utf-8")
    return {
        name: NamedGraph(name, entry["title"], entry["source"], read_graph(entry["graph"], name))
        for name, entry in tomllib.loads(text).items()
    }


def find_graph(name: str) -> NamedGraph:
    """The graph of a published name, of a file, or of a text that holds an arrow.

    Raises:
        UndertowError: there is no such file, or what it holds is no graph.
    """
    if name in published():
        return published()[name]
    if "->" in name or "<-" in name:
        return NamedGraph("", "", "", read_graph(name))
    return NamedGraph(name, "", "", read_graph(_content(Path(name)), name))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UndertowError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    except FileNotFoundError as error:
        known = ", ".join(published())
        raise UndertowError(
            f"{path}: there is no such file; give one, a graph such as 'W -> X; X -> Y', or a name of {known}"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UndertowError(f"{path}: cannot be read ({reason}); check the path") from error
