"""Paths of a graph: those between two nodes, and whether they are open.

A path is open, given some nodes, if each of its colliders (`-> C <-`) is one of them or has one of them as a descendant, and no
other node on it is one of them. A shared cause, `Z <-> Y`, is a latent node with an arrow to either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice, pairwise
from typing import Any

import networkx as nx

MAX_PATHS = 1000
"""Paths between two nodes, at most, the shortest first; how many there are can grow exponentially with the graph.

Paths are examples, then: whether nodes are connected is never read off them, but asked by d-separation.
"""
MAX_STEPS = 100 * MAX_PATHS
"""Beginnings of paths that are looked at for open ones."""


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
class PathStatus:
    """Whether a path is open given some nodes, and why.

    Attributes:
        closed_at: its nodes that close it: colliders without a condition, and conditions that are no colliders.
        opened_by: (collider, condition) of each collider that a condition opens: itself or a descendant of it.
    """

    is_open: bool
    closed_at: tuple[str, ...]
    opened_by: tuple[tuple[str, str], ...]


def paths_between(net: Any, one: str, other: str) -> tuple[Path, ...]:
    """The paths between two nodes, the shortest first, `MAX_PATHS` at most."""
    skeleton = net.to_undirected()
    if not nx.has_path(skeleton, one, other):
        return ()
    return tuple(path_of(net, nodes) for nodes in islice(nx.shortest_simple_paths(skeleton, one, other), MAX_PATHS))


def open_paths(net: Any, one: str, other: str, given: Collection[str]) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Open paths between two nodes, each with its nodes in the network, the shortest first, `MAX_PATHS` at most.

    A path is extended by steps that keep it open, and from which the other end can be reached so, so that no number of closed paths
    stands before an open one.
    """
    skeleton, opened = net.to_undirected(), with_ancestors(net, given)

    def is_open(before: Any, node: Any, after: Any) -> bool:
        return node in opened if net.has_edge(before, node) and net.has_edge(after, node) else node not in given

    # How many steps lead from the first node of an open step to the other end.
    distances = {(node, other): 1 for node in skeleton[other]}
    queue = deque(distances)
    while queue:
        node, after = queue.popleft()
        for before in skeleton[node] if node != one else ():
            if before != after and (before, node) not in distances and is_open(before, node, after):
                distances[before, node] = distances[node, after] + 1
                queue.append((before, node))
    order, n_paths = count(), 0
    # The least length that a path with this beginning can have; of equals the longest beginning, then the first.
    beginnings: list[tuple[int, int, int, tuple[Any, ...]]] = [(0, 0, next(order), (one,))]
    for _ in range(MAX_STEPS):
        if not beginnings or n_paths == MAX_PATHS:
            return
        *_, nodes = heappop(beginnings)
        if nodes[-1] == other:
            n_paths += 1
            yield path_of(net, nodes), nodes
            continue
        for after in skeleton[nodes[-1]]:
            distance = distances.get((nodes[-1], after))
            if distance and after not in nodes and (len(nodes) < 2 or is_open(nodes[-2], nodes[-1], after)):
                length = len(nodes) - 1 + distance
                heappush(beginnings, (length, -len(nodes), next(order), (*nodes, after)))


def path_of(net: Any, nodes: Sequence[Any]) -> Path:
    """The path over these nodes of the network, shared causes among them."""
    signs, visible = [], [nodes[0]]
    for before, node in pairwise(nodes):
        if isinstance(before, tuple):  # a shared cause, which the sign stands for
            continue
        visible.append(next(effect for effect in node if effect != before) if isinstance(node, tuple) else node)
        signs.append("<->" if isinstance(node, tuple) else "->" if net.has_edge(before, node) else "<-")
    colliders = [
        node
        for before, node, after in zip(nodes, nodes[1:], nodes[2:], strict=False)
        if net.has_edge(before, node) and net.has_edge(after, node)
    ]
    return Path(tuple(visible), tuple(signs), tuple(colliders))


def status_of_path(net: Any, path: Path, given: set[str]) -> PathStatus:
    """Whether a path is open given some nodes."""
    closed, opened = [], []
    for node in path.nodes[1:-1]:
        if node not in path.colliders:
            closed += [node] if node in given else []
            continue
        below = {node, *nx.descendants(net, node)} & given
        opened += [(node, node if node in below else min(below))] if below else []
        closed += [] if below else [node]
    return PathStatus(not closed, tuple(closed), tuple(opened))


def with_ancestors(net: Any, nodes: Collection[Any]) -> set[Any]:
    """Some nodes, and all from which arrows lead to them."""
    return {above for node in nodes for above in (node, *nx.ancestors(net, node))}
