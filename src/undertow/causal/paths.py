"""Paths between the nodes of a causal graph, and which of them are open.

Two nodes are d-separated, given others, if no path between them is open. Selected data are data given S = 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice, pairwise
from typing import Any

import networkx as nx

from undertow.causal.graph import Arrow, Graph, network
from undertow.errors import UndertowError

MAX_PATHS = 1000
"""Maximum number of paths between two nodes, the shortest first; their number can grow exponentially with the graph.

Paths serve as examples only; connections are tested by d-separation.
"""
MAX_STEPS = 100 * MAX_PATHS
"""Maximum number of path prefixes in the search for open paths."""


@dataclass(frozen=True, slots=True)
class Path:
    """A path between two nodes, along or against its arrows, that visits no node twice.

    Attributes:
        nodes: from one end to the other, without shared causes.
        signs: signs between them, `->`, `<-` or `<->` [node - 1].
        colliders: nodes with arrows from both neighbours.
    """

    nodes: tuple[str, ...]
    signs: tuple[str, ...]
    colliders: tuple[str, ...]

    @property
    def text(self) -> str:
        """The path as text, `X <- W -> S`."""
        return self.nodes[0] + "".join(f" {sign} {node}" for sign, node in zip(self.signs, self.nodes[1:], strict=True))

    @property
    def is_causal(self) -> bool:
        """Whether it leads from its first node to its last along its arrows."""
        return set(self.signs) == {"->"}


@dataclass(frozen=True, slots=True)
class PathStatus:
    """Whether a path is open given some nodes, and why.

    Attributes:
        closed_at: nodes that close it: colliders without a condition, and conditions that are not colliders.
        opened_by: (collider, condition) of each opened collider; the condition is the collider itself or a descendant.
    """

    is_open: bool
    closed_at: tuple[str, ...]
    opened_by: tuple[tuple[str, str], ...]


def d_separated(graph: Graph, one: Collection[str], other: Collection[str], given: Collection[str] = ()) -> bool:
    """Whether `given` d-separates two sets of nodes.

    Raises:
        UndertowError: a name is no node's, or stands in two of the sets, or a side is empty.
    """
    sides = (set(one), set(other), set(given))
    check_names(graph, [*one, *other, *given])
    for name in graph.nodes:
        if sum(name in side for side in sides) > 1:
            raise UndertowError(f"whether nodes are d-separated: {name} is on both sides; leave it out on one")
    if not sides[0] or not sides[1]:
        raise UndertowError("whether nodes are d-separated: two are needed; name one on either side")
    return bool(nx.is_d_separator(network(graph), *sides))


def paths(graph: Graph, one: str, other: str) -> tuple[Path, ...]:
    """The paths between two nodes, the shortest first, `MAX_PATHS` at most.

    Raises:
        UndertowError: a name is no node's, or both are the same.
    """
    _check_ends(graph, one, other)
    net = network(graph)
    skeleton = net.to_undirected()
    if not nx.has_path(skeleton, one, other):
        return ()
    return tuple(path_over(net, nodes) for nodes in islice(nx.shortest_simple_paths(skeleton, one, other), MAX_PATHS))


def path_status(graph: Graph, path: Path, given: Collection[str] = ()) -> PathStatus:
    """Whether a path of the graph is open given some nodes.

    Raises:
        UndertowError: a name is no node's.
    """
    check_names(graph, given)
    closed, opened = [], []
    for node in path.nodes[1:-1]:
        if node not in path.colliders:
            closed += [node] if node in given else []
            continue
        below = {node, *nx.descendants(network(graph), node)} & set(given)
        opened += [(node, node if node in below else min(below))] if below else []
        closed += [] if below else [node]
    return PathStatus(not closed, tuple(closed), tuple(opened))


def opened_by_selection(graph: Graph, one: str, other: str) -> tuple[Path, ...]:
    """Paths between two nodes that are closed in the population and open in selected data, the shortest first.

    Selection closes no path: no arrow leaves it, so it can only be a collider. The paths that it opens are the open paths with a
    collider.

    Raises:
        UndertowError: a name is no node's, or both are the same.
    """
    _check_ends(graph, one, other)
    return tuple(path for path, _ in open_paths(network(graph), one, other, graph.selection) if path.colliders)


def directed_path(graph: Graph, one: str, other: str) -> Path | None:
    """The shortest directed path from one node to another, or None.

    Raises:
        UndertowError: a name is no node's, or both are the same.
    """
    _check_ends(graph, one, other)
    net = network(graph)
    return path_over(net, nx.shortest_path(net, one, other)) if nx.has_path(net, one, other) else None


def arrows_between(graph: Graph, starts: Collection[str], ends: Collection[str], past: str = "") -> tuple[Arrow, ...]:
    """Arrows on directed paths from any of the starts to any of the ends; `past` is a node that the paths must avoid.

    Raises:
        UndertowError: a name is no node's.
    """
    check_names(graph, [*starts, *ends])
    net = network(graph)
    net = net.subgraph(set(net) - {past})
    after = {node for start in starts for node in (start, *nx.descendants(net, start))}
    on_paths = after & with_ancestors(net, ends)
    return tuple(arrow for arrow in graph.arrows if on_paths.issuperset(arrow))


def check_names(graph: Graph, names: Iterable[str]) -> None:
    """Refuse names of no node."""
    for name in names:
        if name not in graph.nodes:
            raise UndertowError(f"no node is called {name!r}; the graph has {', '.join(graph.nodes)}")


def _check_ends(graph: Graph, one: str, other: str) -> None:
    check_names(graph, [one, other])
    if one == other:
        raise UndertowError(f"paths lead from one node to another, and {one} is named twice; name another node")


def open_paths(net: Any, one: str, other: str, given: Collection[str]) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Open paths between two nodes, each with its nodes in the network, the shortest first, `MAX_PATHS` at most.

    The search extends paths only by steps that keep them open and from which the other end is reachable, so closed paths cost nothing.
    """
    skeleton, opened = net.to_undirected(), with_ancestors(net, given)

    def is_open(before: Any, node: Any, after: Any) -> bool:
        return node in opened if net.has_edge(before, node) and net.has_edge(after, node) else node not in given

    # Number of steps from the first node of an open step to the other end.
    distances = {(node, other): 1 for node in skeleton[other]}
    queue = deque(distances)
    while queue:
        node, after = queue.popleft()
        for before in skeleton[node] if node != one else ():
            if before != after and (before, node) not in distances and is_open(before, node, after):
                distances[before, node] = distances[node, after] + 1
                queue.append((before, node))
    order, n_paths = count(), 0
    # Order by the minimum length of a path with this prefix; ties by the longest prefix, then the first.
    beginnings: list[tuple[int, int, int, tuple[Any, ...]]] = [(0, 0, next(order), (one,))]
    for _ in range(MAX_STEPS):
        if not beginnings or n_paths == MAX_PATHS:
            return
        *_, nodes = heappop(beginnings)
        if nodes[-1] == other:
            n_paths += 1
            yield path_over(net, nodes), nodes
            continue
        for after in skeleton[nodes[-1]]:
            distance = distances.get((nodes[-1], after))
            if distance and after not in nodes and (len(nodes) < 2 or is_open(nodes[-2], nodes[-1], after)):
                length = len(nodes) - 1 + distance
                heappush(beginnings, (length, -len(nodes), next(order), (*nodes, after)))


def path_over(net: Any, nodes: Sequence[Any]) -> Path:
    """The path over these nodes of the network, including shared causes."""
    signs, visible = [], [nodes[0]]
    for before, node in pairwise(nodes):
        if isinstance(before, tuple):  # a shared cause is shown by the sign
            continue
        visible.append(next(effect for effect in node if effect != before) if isinstance(node, tuple) else node)
        signs.append("<->" if isinstance(node, tuple) else "->" if net.has_edge(before, node) else "<-")
    colliders = [
        node
        for before, node, after in zip(nodes, nodes[1:], nodes[2:], strict=False)
        if net.has_edge(before, node) and net.has_edge(after, node)
    ]
    return Path(tuple(visible), tuple(signs), tuple(colliders))


def with_ancestors(net: Any, nodes: Collection[Any]) -> set[Any]:
    """Some nodes, and all from which arrows lead to them."""
    return {above for node in nodes for above in (node, *nx.ancestors(net, node))}
