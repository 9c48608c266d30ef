"""What follows from a graph: which paths are open, what selected data can tell, who can be a W, and what specifies the task.

Knows graphs and d-separation; knows nothing about numbers, and says nothing in sentences, which is for `in_words`.

A path is open, given some nodes, if each of its colliders (`-> C <-`) is one of them or has one of them as a descendant, and no
other node on it is one of them. Two nodes are d-separated if no path between them is open. A shared cause, `Z <-> Y`, is a latent
node with an arrow to either. Data that were selected are data given S = 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Any

import networkx as nx

from undertow.causal.graphs import Arrow, Graph, network
from undertow.types import UndertowError

MAX_PATHS = 1000
"""Paths between two nodes, at most, the shortest first; how many there are can grow exponentially with the graph.

Paths are examples, then: whether nodes are connected is never read off them, but asked by d-separation.
"""


@dataclass(frozen=True, slots=True)
class Path:
    """A path between two nodes, along or against its arrows, that visits no node twice.

    Attributes:
        nodes: from one end to the other; a shared cause is not among them.
        signs: what stands between them, `->`, `<-` or `<->` [node - 1].
        colliders: nodes of it that both neighbours point to.
    """

    nodes: tuple[str, ...]
    signs: tuple[str, ...]
    colliders: tuple[str, ...]

    @property
    def text(self) -> str:
        """The path as it is written, `X <- W -> S`."""
        return self.nodes[0] + "".join(f" {sign} {node}" for sign, node in zip(self.signs, self.nodes[1:], strict=True))

    @property
    def is_causal(self) -> bool:
        """Whether it leads from its first node to its last along its arrows."""
        return set(self.signs) == {"->"}


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a path is open given some nodes, and why.

    Attributes:
        is_open: whether it is.
        closed_at: its nodes that close it: colliders without a condition, and conditions that are no colliders.
        opened_by: (collider, condition) of each collider that a condition opens: itself or a descendant of it.
    """

    is_open: bool
    closed_at: tuple[str, ...]
    opened_by: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Recoverability:
    """Whether P(label | features) follows from selected data.

    Attributes:
        recoverable: whether it does, from selected data alone.
        left_open: paths from selection to the label that the features leave open, the shortest first, of the first `MAX_PATHS`.
        with_known: nodes that make it recoverable if they are recorded in the selected data and, with the features, in the whole
            population: P(y | x) = sum over c of P(y | x, c, S = 1) P(c | x). Empty where nothing is needed; None where no recorded
            nodes do.
        with_label_shares: whether P(label), known in the whole population, makes it recoverable, as in a case-control study:
            P(y | x) is then P(x | y, S = 1) P(y), over its sum over y.
    """

    recoverable: bool
    left_open: tuple[Path, ...] = ()
    with_known: tuple[str, ...] | None = ()
    with_label_shares: bool = False


@dataclass(frozen=True, slots=True)
class Specification:
    """Whether the features decide the label, by McMilin's definition: they are a cause of it.

    Attributes:
        well_specified: whether arrows lead from a feature to the label.
        deciding: arrows on the ways from the features to the label; without them the task is unspecified.
        telling: arrows on the ways from the label's cause to the features, past the label.
        missing: arrows of which one makes the task well specified; empty where it is.
        missing_telling: arrows of which one tells the features what the label depends on; empty where they are told.
        label_tells: whether arrows lead from the label to a feature, which the definition did not think of.
    """

    well_specified: bool
    deciding: tuple[Arrow, ...]
    telling: tuple[Arrow, ...]
    missing: tuple[Arrow, ...]
    missing_telling: tuple[Arrow, ...]
    label_tells: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """Whether a node can be a W; what the fields ask leaves aside what the features themselves cause.

    Attributes:
        node: its name.
        observed: it can be recorded, and so be put into a text.
        causes_features: arrows lead from it to a feature.
        causes_label, caused_by_label: arrows lead from it to the label, or back, other than through the features.
        shares_cause: it and the label have a common cause.
        connected_before, connected: it is not d-separated from the label in the population, and in selected data.
        open_before: paths to the label that are open in the population, of the first `MAX_PATHS`.
        opened: paths to the label that selection opens, of the same.
    """

    node: str
    observed: bool
    causes_features: bool
    causes_label: bool
    caused_by_label: bool
    shares_cause: bool
    connected_before: bool
    connected: bool
    open_before: tuple[Path, ...]
    opened: tuple[Path, ...]

    @property
    def qualifies(self) -> bool:
        """Whether an audit can vary it and lay what follows at selection's door."""
        return self.observed and self.causes_features and self.connected_by_selection_alone

    @property
    def connected_by_selection_alone(self) -> bool:
        """Whether it is independent of the label in the population, and dependent in selected data."""
        return self.connected and not self.connected_before


@dataclass(frozen=True, slots=True)
class Independence:
    """Two recorded nodes that the selected data must show independent, given others, if the graph is right."""

    one: str
    other: str
    given: tuple[str, ...]


def separated(graph: Graph, one: Collection[str], other: Collection[str], given: Collection[str] = ()) -> bool:
    """Whether `given` d-separates two sets of nodes.

    Raises:
        UndertowError: a name is no node's, or stands in two of the sets, or a side is empty.
    """
    sides = (set(one), set(other), set(given))
    _check_names(graph, [*one, *other, *given])
    for name in graph.nodes:
        if sum(name in side for side in sides) > 1:
            raise UndertowError(f"whether nodes are d-separated: {name} stands there twice; leave it out on one side")
    if not sides[0] or not sides[1]:
        raise UndertowError("whether nodes are d-separated: two are needed; name one on either side")
    return _apart(network(graph), *sides)


def paths(graph: Graph, one: str, other: str) -> tuple[Path, ...]:
    """The paths between two nodes, the shortest first, `MAX_PATHS` at most.

    Raises:
        UndertowError: a name is no node's, or both are the same.
    """
    _check_names(graph, [one, other])
    if one == other:
        raise UndertowError(f"paths lead from one node to another, and {one} is named twice; name another node")
    return _paths(network(graph), one, other)


def standing(graph: Graph, path: Path, given: Collection[str] = ()) -> Standing:
    """Whether a path of the graph is open given some nodes.

    Raises:
        UndertowError: a name is no node's.
    """
    _check_names(graph, given)
    return _standing(network(graph), path, set(given))


def opened_by_selection(graph: Graph, one: str, other: str) -> tuple[Path, ...]:
    """Paths between two nodes that are closed in the population and open in selected data, the shortest first.

    Selection closes none: no arrow leaves it, so on a path it is nothing but a collider.
    """
    return _opened(network(graph), paths(graph, one, other), graph.selection)


def recoverability(graph: Graph) -> Recoverability:
    """Whether P(label | features) follows from selected data alone, and what else would have to be known.

    Bareinboim, Tian and Pearl 2014, "Recovering from Selection Bias in Causal and Statistical Inference": theorem 1 (if and only if
    selection is d-separated from the label by the features) and theorem 2 (with others, known in the population as well). What
    would have to be known is enough, and something else may be; all of it needs every x, with its c or y, to be selected with some
    chance.
    """
    net, features = network(graph), set(graph.features)
    if not graph.selection or _apart(net, set(graph.selection), {graph.label}, features):
        return Recoverability(recoverable=True)
    left_open = [
        path
        for node in graph.selection
        for path in _paths(net, node, graph.label)
        if _standing(net, path, features).is_open
    ]
    return Recoverability(
        recoverable=False,
        left_open=tuple(left_open),
        with_known=_known(graph),
        with_label_shares=_apart(net, set(graph.selection), features, {graph.label}),
    )


def specification(graph: Graph) -> Specification:
    """Whether the features are a cause of the label, which arrows make them one, and which are missing.

    McMilin 2024 (AAAI): a task is unspecified if its features hold no causes of its label.
    """
    net, label = network(graph), graph.label
    deciding = tuple(arrow for arrow in graph.arrows if arrow in _arrows_between(net, graph.features, [label]))
    without_label = net.subgraph(set(net) - {label})
    to_features = _arrows_between(without_label, [graph.cause] if graph.cause else [], graph.features)
    telling = tuple(arrow for arrow in graph.arrows if arrow in to_features)
    after_label = nx.descendants(net, label)
    missing_telling = [
        (graph.cause, feature)
        for feature in graph.features
        if graph.cause and not telling and feature not in nx.ancestors(net, graph.cause)
    ]
    return Specification(
        well_specified=bool(deciding),
        deciding=deciding,
        telling=telling,
        missing=() if deciding else tuple((one, label) for one in graph.features if one not in after_label),
        missing_telling=tuple(missing_telling),
        label_tells=not after_label.isdisjoint(graph.features),
    )


def candidates(graph: Graph) -> tuple[Candidate, ...]:
    """Every node but features, label and selection, and whether it can be a W.

    A W is neither cause nor effect of the label, causes the features, and depends on the label by selection alone: McMilin 2024
    (AAAI), section 3.1. What reaches the label through the features is the task's own, so the arrows that leave features are not
    counted.
    """
    others = {*graph.features, graph.label, *graph.selection}
    return tuple(_candidate(graph, node) for node in graph.nodes if node not in others)


def implied(graph: Graph) -> tuple[Independence, ...]:
    """Independences of recorded nodes that selected data must show: one for each pair that has any, with few conditions."""
    net, selection = network(graph), set(graph.selection)
    found = []
    for one, other in combinations(graph.observed, 2):
        given = _separator(net, {one}, {other}, selection, set(graph.observed) - {one, other})
        if given is not None:
            found.append(Independence(one, other, tuple(node for node in graph.nodes if node in given - selection)))
    return tuple(found)


def _check_names(graph: Graph, names: Iterable[str]) -> None:
    for name in names:
        if name not in graph.nodes:
            raise UndertowError(f"no node is called {name!r}; the graph has {', '.join(graph.nodes)}")


def _apart(net: Any, one: Collection[str], other: Collection[str], given: Collection[str]) -> bool:
    return bool(nx.is_d_separator(net, set(one), set(other), set(given)))


def _separator(net: Any, one: set[str], other: set[str], included: set[str], others: set[str]) -> set[str] | None:
    """Few nodes that separate two sets together with those that are included: none, one, or as many as are all needed."""
    for few in (set(), *({node} for node in net if node in others)):
        if _apart(net, one, other, included | few):
            return included | few
    found: set[str] | None = nx.find_minimal_d_separator(
        net, one, other, included=included, restricted=included | others
    )
    return found


def _known(graph: Graph) -> tuple[str, ...] | None:
    features = set(graph.features)
    others = set(graph.observed) - features - {graph.label}
    found = _separator(network(graph), set(graph.selection), {graph.label}, features, others)
    return None if found is None else tuple(node for node in graph.nodes if node in found - features)


def _candidate(graph: Graph, node: str) -> Candidate:
    net, label = _past_features(graph), graph.label
    between = _paths(net, node, label)
    # Without the arrows that leave the two, what is open between them comes from above both.
    above = nx.restricted_view(net, (), [arrow for arrow in net.edges if arrow[0] in (node, label)])
    return Candidate(
        node=node,
        observed=node not in graph.latent,
        causes_features=not nx.descendants(net, node).isdisjoint(graph.features),
        causes_label=nx.has_path(net, node, label),
        caused_by_label=nx.has_path(net, label, node),
        shares_cause=not _apart(above, {node}, {label}, ()),
        connected_before=not _apart(net, {node}, {label}, ()),
        connected=not _apart(net, {node}, {label}, graph.selection),
        open_before=tuple(path for path in between if _standing(net, path, set()).is_open),
        opened=_opened(net, between, graph.selection),
    )


def _past_features(graph: Graph) -> Any:
    """The network without the arrows that leave features."""
    net = network(graph)
    return nx.restricted_view(net, (), [arrow for arrow in net.edges if arrow[0] in graph.features])


def _arrows_between(net: Any, starts: Collection[str], ends: Collection[str]) -> set[Arrow]:
    """Arrows on directed ways from any of the starts to any of the ends."""
    after = {node for start in starts for node in (start, *nx.descendants(net, start))}
    before = {node for end in ends for node in (end, *nx.ancestors(net, end))}
    return {(tail, head) for tail, head in net.edges if {tail, head} <= after & before}


def _paths(net: Any, one: str, other: str) -> tuple[Path, ...]:
    skeleton = net.to_undirected()
    if not nx.has_path(skeleton, one, other):
        return ()
    return tuple(_path(net, nodes) for nodes in islice(nx.shortest_simple_paths(skeleton, one, other), MAX_PATHS))


def _path(net: Any, nodes: Sequence[Any]) -> Path:
    signs, shown = [], [nodes[0]]
    for before, node in pairwise(nodes):
        if isinstance(before, tuple):  # a shared cause, which the sign stands for
            continue
        shown.append(next(effect for effect in node if effect != before) if isinstance(node, tuple) else node)
        signs.append("<->" if isinstance(node, tuple) else "->" if net.has_edge(before, node) else "<-")
    colliders = [
        node
        for before, node, after in zip(nodes, nodes[1:], nodes[2:], strict=False)
        if net.has_edge(before, node) and net.has_edge(after, node)
    ]
    return Path(tuple(shown), tuple(signs), tuple(colliders))


def _standing(net: Any, path: Path, given: set[str]) -> Standing:
    closed, opened = [], []
    for node in path.nodes[1:-1]:
        if node not in path.colliders:
            closed += [node] if node in given else []
            continue
        below = {node, *nx.descendants(net, node)} & given
        opened += [(node, node if node in below else min(below))] if below else []
        closed += [] if below else [node]
    return Standing(not closed, tuple(closed), tuple(opened))


def _opened(net: Any, between: Iterable[Path], selection: Collection[str]) -> tuple[Path, ...]:
    given = set(selection)
    return tuple(
        path for path in between if not _standing(net, path, set()).is_open and _standing(net, path, given).is_open
    )
