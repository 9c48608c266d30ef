"""What the findings of an audit rest on under the graph that it names, and what is to be said where the graph grants less.

Knows graphs, and what audits rest on; knows nothing about results, pages or terminals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from undertow.causal.assumptions import DRIFT, SPECIFICATION, Assumption, assumptions
from undertow.causal.graph import read_graph
from undertow.causal.published import NamedGraph
from undertow.errors import UndertowError

_CLAIMED = {
    DRIFT: "this is not evidence of selection",
    SPECIFICATION: "the movement that this goes by is not evidence of selection",
}
_VERBS = {True: "grants", False: "does not grant", None: "cannot speak of"}
_KEPT = ("name", "title", "source", "text")


@dataclass(frozen=True, slots=True)
class Grounds:
    """The assumptions behind an audit's findings, if they are laid at selection's door, under one graph.

    Attributes:
        named: the graph, and where it is from.
        kind: what the audit finds, `DRIFT` or `SPECIFICATION`.
        varied: names of the W lists that were put into the texts.
        assumptions: what every finding rests on that is of this kind.
    """

    named: NamedGraph
    kind: str
    varied: tuple[str, ...]
    assumptions: tuple[Assumption, ...]

    @property
    def refused(self) -> tuple[Assumption, ...]:
        """Those that the graph does not grant."""
        return tuple(row for row in self.assumptions if row.holds is False)

    @property
    def doubt(self) -> str:
        """The sentence that every finding carries which rests on them; "" where the graph grants what is for a graph to say."""
        faults = "; ".join(row.instead for row in self.refused)
        return f"Under the graph named, {_CLAIMED[self.kind]}: {faults}." if faults else ""

    @property
    def tally(self) -> str:
        """How many there are, and what the graph says of them, in a sentence or two."""
        n_of = {verb: sum(row.holds is holds for row in self.assumptions) for holds, verb in _VERBS.items()}
        said = ", ".join(f"{verb} {n}" for verb, n in n_of.items() if n)
        several = "assumptions" if self.assumptions[1:] else "assumption"
        return (
            f"Laid at selection's door, what is found here ({self.kind}) rests on {len(self.assumptions)} {several}. "
            f"The graph named {said}."
        )

    @property
    def about(self) -> str:
        """Which graph it is."""
        named = self.named
        if named.title:
            return (
                f"This audit names the graph {named.name}: {named.title[:1].lower()}{named.title[1:]} ({named.source})."
            )
        return (
            f"This audit names the graph of the file {named.name}."
            if named.name
            else "This audit names a graph of its own."
        )

    @property
    def about_w(self) -> str:
        """What the graph's W is, and what the audit varied: whether they are one is for the reader to judge."""
        graph, lists = self.named.graph, f" ({', '.join(self.varied)})" if self.varied else ""
        if not graph.varied:
            return f"No node of the graph is what this audit varied{lists}."
        meaning = dict(graph.meanings).get(graph.varied, "")
        said = f"it means \u201c{meaning}\u201d" if meaning else "what it means is not said"
        return (
            f"In this audit, {graph.varied} stands for what was varied in the texts{lists}. In the graph {said}; whether the two are "
            "the same, no program can tell."
        )

    def as_plain(self) -> dict[str, Any]:
        """The same as JSON has it."""
        return {
            **kept(self.named),
            "rests_on": self.kind,
            "varied": list(self.varied),
            "assumptions": [asdict(row) for row in self.assumptions],
            "doubt": self.doubt,
        }


def kept(named: NamedGraph) -> dict[str, str]:
    """What a manifest keeps of a graph: enough to read it again without its file."""
    return {"name": named.name, "title": named.title, "source": named.source, "text": named.graph.text()}


def grounds(entry: object, kind: str, varied: Sequence[str]) -> Grounds:
    """What findings rest on, by the graph that a manifest keeps.

    Args:
        entry: what `kept` gave.
        kind: `DRIFT` or `SPECIFICATION`.
        varied: names of the W lists that were put into the texts.

    Raises:
        UndertowError: the entry is corrupt, or the kind is neither.
    """
    if not isinstance(entry, Mapping) or any(not isinstance(entry.get(name), str) for name in _KEPT):
        raise UndertowError("the graph in the manifest is corrupt; name it again with --graph")
    name, title, source, text = (entry[part] for part in _KEPT)
    named = NamedGraph(name, title, source, read_graph(text, "the graph in the manifest"))
    return Grounds(named, kind, tuple(varied), assumptions(named.graph, kind))
