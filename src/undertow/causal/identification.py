"""Identification in a causal graph: recoverability from selected data, valid covariates W, specification.

Selected data are data given S = 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Any

import networkx as nx

from undertow.causal.graph import Arrow, Graph, network
from undertow.causal.paths import Path, arrows_between, check_names, open_paths, path_over, with_ancestors
from undertow.errors import UndertowError

MAX_EXAMPLES = 30
"""Maximum number of open paths in a reason, the shortest first."""


@dataclass(frozen=True, slots=True)
class Recoverability:
    """Whether P(label | features) is recoverable from selected data.

    Attributes:
        recoverable: whether it is recoverable from selected data alone.
        open_paths: paths from selection to the label that are open given the features, the `MAX_EXAMPLES` shortest.
        external_covariates: nodes that make it recoverable if they are recorded in the selected data and, with the features, in the whole
            population: P(y | x) = sum over c of P(y | x, c, S = 1) P(c | x). Empty if none are needed; None if no recorded nodes
            suffice.
        with_label_distribution: whether P(label) in the whole population makes it recoverable, as in a case-control study:
            P(y | x) is then P(x | y, S = 1) P(y), normalised over y.
    """

    recoverable: bool
    open_paths: tuple[Path, ...] = ()
    external_covariates: tuple[str, ...] | None = ()
    with_label_distribution: bool = False


@dataclass(frozen=True, slots=True)
class Specification:
    """Whether the features determine the label, by McMilin's definition: they are a cause of it.

    Attributes:
        well_specified: whether arrows lead from a feature to the label.
        causal_arrows: arrows on the directed paths from the features to the label; without them the task is unspecified.
        backdoor_arrows: arrows on the directed paths from the label's cause to the features that avoid the label; with the cause's
            path to the label they form back-door paths.
        missing_causal_arrows: arrows each of which would make the task well specified; empty if it is.
        missing_backdoor_arrows: arrows each of which would open a back-door path; empty if there is one.
        label_causes_features: whether a directed path leads from the label to a feature, which the definition ignores.
    """

    well_specified: bool
    causal_arrows: tuple[Arrow, ...]
    backdoor_arrows: tuple[Arrow, ...]
    missing_causal_arrows: tuple[Arrow, ...]
    missing_backdoor_arrows: tuple[Arrow, ...]
    label_causes_features: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """Whether a node is a valid W.

    The fields ignore paths that end with a directed path from a feature to the label, such as `W -> X -> Y` and
    `W <- C -> X -> Y`, because these belong to the task.

    Attributes:
        observed: it can be recorded, and so be put into a text.
        causes_features: arrows lead from it to a feature.
        causes_label, caused_by_label: arrows lead from it to the label, or back.
        shares_cause: it and the label have a common cause.
        connected_in_population, connected: a path between it and the label is open in the population, and in selected data.
        open_in_population: paths to the label that are open in the population, the shortest of each of these three kinds.
        opened: paths to the label that selection opens, the `MAX_EXAMPLES` shortest.
    """

    node: str
    observed: bool
    causes_features: bool
    causes_label: bool
    caused_by_label: bool
    shares_cause: bool
    connected_in_population: bool
    connected: bool
    open_in_population: tuple[Path, ...]
    opened: tuple[Path, ...]

    @property
    def qualifies(self) -> bool:
        """Whether an audit can vary it and attribute effects to selection."""
        return self.observed and self.causes_features and self.connected_by_selection_alone

    @property
    def connected_by_selection_alone(self) -> bool:
        """Whether it is independent of the label in the population, and dependent in selected data."""
        return self.connected and not self.connected_in_population


@dataclass(frozen=True, slots=True)
class Independence:
    """Two recorded nodes that must be independent in selected data, given others, if the graph is right."""

    one: str
    other: str
    given: tuple[str, ...]


def noncausal_open_paths(graph: Graph, past: str = "") -> tuple[Path, ...]:
    """Open non-causal paths between features and label in the unselected population.

    For each feature the shortest of each kind, sorted by length; empty if and only if no such path is open. Without directed paths from
    features to the label, this means that features and label are d-separated.

    `past` is a node that the paths must avoid.
    """
    net = network(graph)
    net = net.subgraph(set(net) - {past})
    kinds = [_open_in_population(net, graph, feature) for feature in graph.features]
    return tuple(sorted((path for ways in kinds for path in ways.values()), key=lambda path: len(path.nodes)))


def recoverability(graph: Graph) -> Recoverability:
    """Whether P(label | features) is recoverable from selected data alone, or with which additional data.

    Bareinboim, Tian and Pearl 2014, "Recovering from Selection Bias in Causal and Statistical Inference": theorem 1 (if and only if
    selection is d-separated from the label by the features) and theorem 2 (with covariates that are known in the population). The
    additional data are sufficient, not necessary; every x, with its c or y, must have a positive probability of selection.
    """
    net, features = network(graph), set(graph.features)
    selection = set(graph.selection)
    if not selection or nx.is_d_separator(net, selection, {graph.label}, features):
        return Recoverability(recoverable=True)
    others = set(graph.observed) - features - {graph.label}
    separator = _separator(net, selection, graph.label, features, others)
    return Recoverability(
        recoverable=False,
        open_paths=tuple(
            path
            for node in graph.selection
            for path, _ in islice(open_paths(net, node, graph.label, features), MAX_EXAMPLES)
        ),
        external_covariates=None
        if separator is None
        else tuple(node for node in graph.nodes if node in separator - features),
        with_label_distribution=nx.is_d_separator(net, selection, features, {graph.label}),
    )


def specification(graph: Graph) -> Specification:
    """Whether the features are a cause of the label, which arrows make them one, and which are missing.

    McMilin 2024 (AAAI): a task is unspecified if its features contain no causes of its label.
    """
    net, label = network(graph), graph.label
    deciding = arrows_between(graph, graph.features, [label])
    informing = arrows_between(graph, [graph.cause] if graph.cause else [], graph.features, past=label)
    after_label = nx.descendants(net, label)
    missing_informing = [
        (graph.cause, feature)
        for feature in graph.features
        if graph.cause and not informing and feature not in nx.ancestors(net, graph.cause)
    ]
    return Specification(
        well_specified=bool(deciding),
        causal_arrows=deciding,
        backdoor_arrows=informing,
        missing_causal_arrows=()
        if deciding
        else tuple((one, label) for one in graph.features if one not in after_label),
        missing_backdoor_arrows=tuple(missing_informing),
        label_causes_features=not after_label.isdisjoint(graph.features),
    )


def covariate_candidates(graph: Graph) -> tuple[Candidate, ...]:
    """All nodes except features, label and selection, with whether each is a valid W (`covariate_candidate`)."""
    others = {*graph.features, graph.label, *graph.selection}
    return tuple(covariate_candidate(graph, node) for node in graph.nodes if node not in others)


def covariate_candidate(graph: Graph, node: str) -> Candidate:
    """Whether a node is a valid W.

    A W is neither cause nor effect of the label, causes the features, and depends on the label by selection alone: McMilin 2024
    (AAAI), section 3.1. Only whole paths of the task are ignored: an arrow on a directed path from the features to the label can still be
    part of another path, and descendants of a collider are those in the whole graph.

    Raises:
        UndertowError: the name is unknown, or that of a feature, the label or selection.
    """
    check_names(graph, [node])
    if node in (*graph.features, graph.label, *graph.selection):
        raise UndertowError(f"{node} is among features, label and selection and cannot be W; name another node")
    net = network(graph)
    before = _open_in_population(net, graph, node)
    opened = (
        path
        for path, nodes in open_paths(net, node, graph.label, graph.selection)
        if path.colliders and not _is_of_task(net, graph, nodes)
    )
    connected = bool(before) or _connected_by_selection(graph, node)
    return Candidate(
        node=node,
        observed=node not in graph.latent,
        causes_features=not nx.descendants(net, node).isdisjoint(graph.features),
        causes_label="cause" in before,
        caused_by_label="effect" in before,
        shares_cause="common cause" in before,
        connected_in_population=bool(before),
        connected=connected,
        open_in_population=tuple(sorted(before.values(), key=lambda path: len(path.nodes))),
        opened=tuple(islice(opened, MAX_EXAMPLES)) if connected else (),
    )


def implied_independences(graph: Graph) -> tuple[Independence, ...]:
    """Independences of recorded nodes in selected data: at most one for each pair, with few conditions."""
    net, selection = network(graph), set(graph.selection)
    independences = []
    for one, other in combinations(graph.observed, 2):
        given = _separator(net, {one}, other, selection, set(graph.observed) - {one, other})
        if given is not None:
            independences.append(
                Independence(one, other, tuple(node for node in graph.nodes if node in given - selection))
            )
    return tuple(independences)


def _separator(net: Any, one: set[str], other: str, included: set[str], others: set[str]) -> set[str] | None:
    """A small separating set of nodes, in addition to those included: none, one, or all that are needed."""
    minimal: set[str] | None = nx.find_minimal_d_separator(
        net, one, {other}, included=included, restricted=included | others
    )
    if minimal is None or minimal <= included:
        return minimal
    # A single separating node is on every path between them in the moral graph of their ancestors.
    moral = nx.moral_graph(net.subgraph(with_ancestors(net, {*one, other, *included})))
    moral.remove_nodes_from(included)
    _, way = nx.multi_source_dijkstra(moral, one, other)
    with_one = (included | {node} for node in net if node in others and node in way)
    return next((few for few in with_one if nx.is_d_separator(net, one, {other}, few)), minimal)


# Paths of the task are recognised at the label. From there, all other paths turn downwards before they meet a feature, or reach
# their other end before:
#
#     Y <- M <- G -> S <- X <- W   turns at G: counts            Y <- M <- X <- W   climbs to X: the task's own


def _is_of_task(net: Any, graph: Graph, nodes: Sequence[Any]) -> bool:
    for cause, effect in reversed(list(pairwise(nodes))):
        if not net.has_edge(cause, effect):
            return False
        if cause in graph.features:
            return True
    return False


def _open_in_population(net: Any, graph: Graph, node: str) -> Mapping[str, Path]:
    """The shortest paths to the label that are open in the population, by kind: `cause`, `effect`, `common cause`.

    An open path has no collider, so from both ends it leads up to one top: the node, the label, or a cause of both.
    """
    label = graph.label
    past_features = net.subgraph(set(net) - set(graph.features) | {node})
    paths = {}
    if node not in graph.features and nx.has_path(past_features, node, label):
        paths["cause"] = nx.shortest_path(past_features, node, label)
    if nx.has_path(net, label, node):
        paths["effect"] = nx.shortest_path(net, label, node)[::-1]
    above = _paths_to_ancestors(net.subgraph(set(net) - {label}), node)
    above_label = _paths_to_ancestors(past_features.subgraph(set(past_features) - {node}), label)
    tops = [top for top in above if top in above_label]
    if tops:
        # The two halves of a shortest path meet only at the top: a meeting point would be a nearer top.
        top = min(tops, key=lambda one: len(above[one]) + len(above_label[one]))
        paths["common cause"] = [*above[top], *above_label[top][-2::-1]]
    return {kind: path_over(net, nodes) for kind, nodes in paths.items()}


def _paths_to_ancestors(net: Any, node: str) -> Mapping[Any, Sequence[Any]]:
    """The shortest path against the arrows from a node to itself and each of its ancestors."""
    ways: Mapping[Any, Sequence[Any]] = nx.single_source_shortest_path(nx.reverse_view(net), node)
    return ways


def _connected_by_selection(graph: Graph, node: str) -> bool:
    """Whether selection opens a path that does not belong to the task, for a node without such an open path in the population.

    A path that is open in selected data climbs from its ends to ancestors of selection, and stays among these in between, because every
    node in between is a cause of a collider, and so of selection. Among ancestors of selection every path is open.

    Y <- M <- G -> S <- X <- W      climb from the label; turn at an ancestor of selection; continue on any path that does not
    climb | turn | any path   return to the climb

    The climbs are tried one by one. There can be many, but only if features determine the label and the node has no other connection
    with it; otherwise d-separation decides.
    """
    net, label = network(graph), graph.label
    if set(graph.features).isdisjoint(nx.ancestors(net, label)):
        return not nx.is_d_separator(net, {node}, {label}, set(graph.selection))
    above = with_ancestors(net, graph.selection)
    skeleton = net.subgraph(above).to_undirected(as_view=True)
    # The first ancestors of selection on the way up from the node, possibly itself.
    ends = above & with_ancestors(nx.restricted_view(net, [], net.in_edges(above)), [node])

    def leads_on(top: Any, climb: Collection[Any]) -> bool:
        parts = nx.connected_components(skeleton.subgraph(above - set(climb)))
        reached = {child for part in parts if not ends.isdisjoint(part) for child in part}
        return not reached.isdisjoint(net.successors(top))

    past_features = net.subgraph(set(net) - set(graph.features))
    tops = {top for top in with_ancestors(past_features, {label}) if leads_on(top, {top, label})}
    useful = {node for top in tops for node in (top, *nx.descendants(past_features, top))}
    climbs: list[tuple[Any, ...]] = [(label,)] if tops else []
    while climbs:
        climb = climbs.pop()
        if climb[-1] in tops and leads_on(climb[-1], climb):
            return True
        climbs += [(*climb, cause) for cause in past_features.predecessors(climb[-1]) if cause in useful]
    return False
