"""The assumptions under which a finding is evidence of selection, and whether a graph grants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from undertow.causal import identification, paths
from undertow.causal.graph import COVARIATE, ROLES, Graph, read_graph
from undertow.causal.identification import Candidate
from undertow.causal.paths import Path
from undertow.causal.published import NamedGraph
from undertow.errors import UndertowError

DRIFT, SPECIFICATION = "drift with W", "specification of the task"
"""Kinds of causal findings: those of spurious correlation, and those of task specification."""


_VERDICTS = {True: "granted", False: "not granted", None: "not for a graph to say"}


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption of a finding.

    Attributes:
        holds: whether the graph grants it; None if a graph cannot say.
        reason: the path or the arrows that decide it.
        violation: how the graph contradicts it, in a few words; "" if it does not.
    """

    claim: str
    holds: bool | None
    reason: str
    violation: str = ""

    @property
    def verdict(self) -> str:
        """Whether the graph grants it, in words."""
        return _VERDICTS[self.holds]


def assumptions(graph: Graph, audit: str) -> tuple[Assumption, ...]:
    """The assumptions of an audit's findings, and whether a graph grants them.

    A drift of the label's share with W (McMilin 2024 (AAAI), method 1) is evidence of selection if W is a valid W and the text does not
    predict the label without selection, neither by determining it nor otherwise: W is part of the text, so any way in which the text
    predicts the label can cause a drift. All assumptions are granted if and only if the graph's W qualifies and its features and label
    are d-separated in the population; the task is then unspecified. The paper's unspecified graph, which lacks both G -> X and X -> Y,
    is an example. That a movement with W identifies an unspecified task (method 2) assumes the same W, and that a specified task leaves
    little influence to W, which depends on effect sizes instead of arrows.

    The graph's W is the node with the role `covariate`.

    Raises:
        UndertowError: the audit is neither `DRIFT` nor `SPECIFICATION`.
    """
    if audit not in (DRIFT, SPECIFICATION):
        raise UndertowError(f"what {audit!r} assumes is not known; use one of: {DRIFT}, {SPECIFICATION}")
    if not graph.covariate:
        why = f"no node is called {ROLES[COVARIATE]}, and no statement names the covariate"
        node = "node for the covariate W of the texts"
        return (Assumption(f"the graph has a {node}", False, why, f"it has no {node}"),)
    w = identification.covariate_candidate(graph, graph.covariate)
    of_texts = _of_texts(graph, w) if audit == DRIFT else (_little_left(graph, w),)
    return (*_of_w(graph, w), _by_selection(graph, w), *of_texts)


def _of_w(graph: Graph, w: Candidate) -> tuple[Assumption, ...]:
    """W causes the features; it is not causal for the label; the two have no common cause."""
    label, features = graph.label, ", ".join(graph.features)
    ways = filter(None, (paths.directed_path(graph, w.node, feature) for feature in graph.features))
    because = first_path(ways) if w.causes_features else _no_arrows([w.node], graph.features)
    unlike = f"{w.node} is not recorded" if not w.observed else f"{w.node} does not cause the features"
    is_cause = w.observed and w.causes_features
    is_not_causal = not (w.causes_label or w.caused_by_label)
    no_arrows = f"no arrows lead from {w.node} to {label} without {features}, and none back"
    causal = f"{label} causes {w.node}" if w.caused_by_label else ""
    causal = f"{w.node} causes {label} other than through the features" if w.causes_label else causal
    pair, open_ways = f"{w.node} and {label}", w.open_in_population
    no_path = "no path with arrows into both is open in the population"
    return (
        Assumption(
            f"{w.node} is recorded, and a cause of the features {features}",
            is_cause,
            because if w.observed else f"{w.node} is latent",
            "" if is_cause else unlike,
        ),
        Assumption(
            f"{w.node} is neither a cause of the label {label}, except through the features, nor an effect of it",
            is_not_causal,
            no_arrows if is_not_causal else first_path(path for path in open_ways if _is_one_way(path)),
            causal,
        ),
        Assumption(
            f"{pair} have no common cause, except through the features",
            not w.shares_cause,
            first_path(path for path in open_ways if not _is_one_way(path)) if w.shares_cause else no_path,
            f"{pair} have a common cause" if w.shares_cause else "",
        ),
    )


def _by_selection(graph: Graph, w: Candidate) -> Assumption:
    """The assumption that W and the label are independent in the population and dependent in selected data."""
    pair = f"{w.node} and {graph.label}"
    claim = f"{pair} are connected by selection alone, apart from paths through the features"
    if w.connected_by_selection_alone:
        colliders = f"by {', '.join(graph.selection)}"
        if w.opened:
            opened_by = paths.path_status(graph, w.opened[0], graph.selection).opened_by
            colliders = f"at {', '.join(collider for collider, _ in opened_by)}"
        return Assumption(claim, True, f"{first_path(w.opened)} is opened {colliders}")
    if not graph.selection:
        return Assumption(
            claim, False, f"the graph has no selection{selection_hint(graph)}", "the graph has no selection"
        )
    if w.connected_in_population:
        because = f"{first_path(w.open_in_population)} is open without it"
        return Assumption(claim, False, because, f"not selection alone connects {pair}")
    because = f"{', '.join(graph.selection)} opens no path between them"
    return Assumption(claim, False, because, f"selection does not connect {pair}")


def selection_hint(graph: Graph) -> str:
    """Hint about a node with a typical name of selection in a graph without selection; "" without such a node."""
    if graph.selection or not graph.looks_like_selection:
        return ""
    marked = " or ".join(f"[{node}]" for node in graph.looks_like_selection)
    return f"; write {marked} if {' or '.join(graph.looks_like_selection)} is selection"


def _of_texts(graph: Graph, w: Candidate) -> tuple[Assumption, ...]:
    """The features do not determine the label, and do not predict it in another way."""
    label, features = graph.label, ", ".join(graph.features)
    deciding = identification.specification(graph).causal_arrows
    open_paths = identification.noncausal_open_paths(graph, past=w.node)
    other = "other " if w.connected_in_population or deciding else ""
    no_path, way = f"no {other}path between them is open in the population", open_paths[0].text if open_paths else ""
    return (
        Assumption(
            f"the features {features} do not determine the label {label}",
            not deciding,
            arrows_text(deciding) if deciding else _no_arrows(graph.features, [label]),
            f"the features determine the label {label}" if deciding else "",
        ),
        Assumption(
            f"the features {features} do not predict the label {label} in another way without selection",
            not open_paths,
            f"{way} is open in the population" if open_paths else no_path,
            f"the features predict the label {label} without selection too, by {way}" if open_paths else "",
        ),
    )


def _little_left(graph: Graph, w: Candidate) -> Assumption:
    claim = f"in a text that determines the label, {w.node} has little influence"
    if not w.connected:
        return Assumption(claim, True, f"{w.node} and {graph.label} are connected through the features alone")
    ways = (*w.open_in_population, *w.opened)
    past = [
        path for path in ways if not any(node in graph.features and node not in path.colliders for node in path.nodes)
    ]
    whatever = " whatever the text says" if past or not ways else ""
    because = f"{first_path(past or ways)} is open in selected data{whatever}; its influence depends on effect sizes"
    return Assumption(claim, None, because)


def first_path(ways: Iterable[Path]) -> str:
    """Text of the first path; a placeholder if the search found none."""
    return next((path.text for path in ways), "a path beyond the search limit")


def _is_one_way(path: Path) -> bool:
    return path.is_causal or set(path.signs) == {"<-"}


def _no_arrows(tails: Iterable[str], heads: Iterable[str]) -> str:
    return f"no arrows lead from {', '.join(tails)} to {', '.join(heads)}"


def arrows_text(arrows: Iterable[tuple[str, str]], between: str = ", ") -> str:
    """Arrows as text, joined by `between`."""
    return between.join(f"{tail} -> {head}" for tail, head in arrows)


_WITHOUT_GRAPH = {
    DRIFT: "this is not evidence of selection",
    SPECIFICATION: "the movement is not evidence of selection",
}
_VERBS = {True: "grants", False: "does not grant", None: "cannot speak of"}
_ENTRY_KEYS = ("name", "title", "source", "text")


@dataclass(frozen=True, slots=True)
class FindingAssumptions:
    """The assumptions under which an audit's findings, of the kind `DRIFT` or `SPECIFICATION`, are evidence of selection."""

    named_graph: NamedGraph
    kind: str
    w_names: tuple[str, ...]
    assumptions: tuple[Assumption, ...]

    @classmethod
    def from_manifest(cls, entry: object, kind: str, w_names: Sequence[str]) -> FindingAssumptions:
        """Read the graph of a manifest and check the assumptions.

        Args:
            entry: the manifest's entry of the graph, from `graph_entry`.
            kind: `DRIFT` or `SPECIFICATION`.
            w_names: names of the W lists in the texts.

        Raises:
            UndertowError: the entry is corrupt, or the kind is neither.
        """
        if not isinstance(entry, Mapping) or any(not isinstance(entry.get(name), str) for name in _ENTRY_KEYS):
            raise UndertowError("the graph in the manifest is corrupt; give it again with --graph")
        name, title, source, text = (entry[part] for part in _ENTRY_KEYS)
        named_graph = NamedGraph(name, title, source, read_graph(text, "the graph in the manifest"))
        return cls(named_graph, kind, tuple(w_names), assumptions(named_graph.graph, kind))

    @property
    def caveat(self) -> str:
        """A sentence for each finding with the causal claim; "" if the graph contradicts no assumption."""
        faults = "; ".join(row.violation for row in self.assumptions if row.holds is False)
        return f"Under this graph, {_WITHOUT_GRAPH[self.kind]}: {faults}." if faults else ""

    @property
    def summary(self) -> str:
        """The number of assumptions, and how many of them the graph grants, in two sentences."""
        n_of = {verb: sum(row.holds is holds for row in self.assumptions) for holds, verb in _VERBS.items()}
        counts = ", ".join(f"{verb} {n}" for verb, n in n_of.items() if n)
        several = "assumptions" if self.assumptions[1:] else "assumption"
        return (
            f"Attributing the findings ({self.kind}) to selection needs {len(self.assumptions)} {several}. "
            f"The graph {counts}."
        )

    @property
    def about(self) -> str:
        """A sentence that names the graph."""
        named = self.named_graph
        if named.title:
            return (
                f"This audit uses the graph {named.name}: {named.title[:1].lower()}{named.title[1:]} ({named.source})."
            )
        return (
            f"This audit uses the graph of the file {named.name}." if named.name else "This audit uses a custom graph."
        )

    @property
    def about_w(self) -> str:
        """A sentence on the graph's W and the W lists of the audit, whose identity the reader must judge."""
        graph, lists = self.named_graph.graph, f" ({', '.join(self.w_names)})" if self.w_names else ""
        if not graph.covariate:
            return f"The graph has no node for the covariate of this audit{lists}."
        meaning = dict(graph.meanings).get(graph.covariate, "")
        clause = f"it means \u201c{meaning}\u201d" if meaning else "it has no description"
        return (
            f"In this audit, {graph.covariate} is the covariate of the texts{lists}. In the graph {clause}; check that the two are the "
            "same, because no program can."
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
    """The manifest's entry of a graph, which does not need the graph's file."""
    return {
        "name": named_graph.name,
        "title": named_graph.title,
        "source": named_graph.source,
        "text": named_graph.graph.text(),
    }
