"""The assumptions behind the findings of an audit under the causal graph that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from undertow.causal.assumptions import DRIFT, SPECIFICATION, Assumption, assumptions
from undertow.causal.graph import read_graph
from undertow.causal.published import NamedGraph
from undertow.errors import UndertowError

_WITHOUT_GRAPH = {
    DRIFT: "this is not evidence of selection",
    SPECIFICATION: "the movement that this goes by is not evidence of selection",
}
_VERBS = {True: "grants", False: "does not grant", None: "cannot speak of"}
_ENTRY_KEYS = ("name", "title", "source", "text")


@dataclass(frozen=True, slots=True)
class FindingAssumptions:
    """The assumptions under which an audit's findings are evidence of selection, judged by one graph.

    Attributes:
        kind: what the audit finds, `DRIFT` or `SPECIFICATION`.
        assumptions: what every finding rests on that is of this kind.
    """

    named_graph: NamedGraph
    kind: str
    w_names: tuple[str, ...]
    assumptions: tuple[Assumption, ...]

    @classmethod
    def from_manifest(cls, entry: object, kind: str, w_names: Sequence[str]) -> FindingAssumptions:
        """Read the graph of a manifest and judge the assumptions by it.

        Args:
            entry: the manifest's entry of the graph, as `graph_entry` gives it.
            kind: `DRIFT` or `SPECIFICATION`.
            w_names: names of the W lists in the texts.

        Raises:
            UndertowError: the entry is corrupt, or the kind is neither.
        """
        if not isinstance(entry, Mapping) or any(not isinstance(entry.get(name), str) for name in _ENTRY_KEYS):
            raise UndertowError("the graph in the manifest is corrupt; name it again with --graph")
        name, title, source, text = (entry[part] for part in _ENTRY_KEYS)
        named_graph = NamedGraph(name, title, source, read_graph(text, "the graph in the manifest"))
        return cls(named_graph, kind, tuple(w_names), assumptions(named_graph.graph, kind))

    @property
    def violated(self) -> tuple[Assumption, ...]:
        """The assumptions that the graph contradicts."""
        return tuple(row for row in self.assumptions if row.holds is False)

    @property
    def caveat(self) -> str:
        """A sentence for each finding that makes the causal claim; "" if the graph contradicts no assumption."""
        faults = "; ".join(row.violation for row in self.violated)
        return f"Under the graph named, {_WITHOUT_GRAPH[self.kind]}: {faults}." if faults else ""

    @property
    def summary(self) -> str:
        """The number of assumptions, and how many of them the graph grants, in two sentences."""
        n_of = {verb: sum(row.holds is holds for row in self.assumptions) for holds, verb in _VERBS.items()}
        said = ", ".join(f"{verb} {n}" for verb, n in n_of.items() if n)
        several = "assumptions" if self.assumptions[1:] else "assumption"
        return (
            f"Attributing what is found here ({self.kind}) to selection rests on {len(self.assumptions)} {several}. "
            f"The graph named {said}."
        )

    @property
    def about(self) -> str:
        """A sentence that names the graph."""
        named = self.named_graph
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
        """A sentence on the graph's W and the W lists of the audit; whether they are the same is for the reader to judge."""
        graph, lists = self.named_graph.graph, f" ({', '.join(self.w_names)})" if self.w_names else ""
        if not graph.covariate:
            return f"No node of the graph is what this audit varied{lists}."
        meaning = dict(graph.meanings).get(graph.covariate, "")
        said = f"it means \u201c{meaning}\u201d" if meaning else "what it means is not said"
        return (
            f"In this audit, {graph.covariate} stands for what was varied in the texts{lists}. In the graph {said}; whether the two are "
            "the same, no program can tell."
        )

    def as_dict(self) -> dict[str, Any]:
        """The assumptions as JSON-serialisable values."""
        return {
            **graph_entry(self.named_graph),
            "causal_claim": self.kind,
            "w_names": list(self.w_names),
            "assumptions": [asdict(row) for row in self.assumptions],
            "caveat": self.caveat,
        }


def graph_entry(named_graph: NamedGraph) -> dict[str, str]:
    """The manifest's entry of a graph; it can be read again without the graph's file."""
    return {
        "name": named_graph.name,
        "title": named_graph.title,
        "source": named_graph.source,
        "text": named_graph.graph.text(),
    }
