"""Paths of a graph: those between two nodes, whether they are open, and a search for open ones.

A path is open, given some nodes, if each of its colliders (`-> C <-`) is one of them or has one of them as a descendant, and no
other node on it is one of them. A shared cause, `Z <-> Y`, is a latent node with an arrow to either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice, pairwise
from typing import Any, NamedTuple

import networkx as nx

MAX_PATHS = 1000
"""Paths between two nodes, at most, the shortest first; how many there are can grow exponentially with the graph.

Paths are examples, then: whether nodes are connected is never read off them, but asked by d-separation.
"""

MAX_STEPS = 50_000
"""Of a search for open paths: far more than one for the shortest takes, but a graph can be made that takes more."""


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
        is_open: whether it is.
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


# Open paths are searched for from one end on, by what a step needs to know of those before it.


class _Step(NamedTuple):
    """Where a path has come to.

    Attributes:
        node: the node.
        is_entered: an arrow of the path leads into it.
        has_turned: the path has gone along an arrow, and not only climbed.
        has_collider: it has met a collider.
    """

    node: Any
    is_entered: bool
    has_turned: bool
    has_collider: bool


class Search(NamedTuple):
    """Which paths are looked for.

    Attributes:
        given: what they are to be open given.
        blocked: nodes that they must not climb to from where they begin.
        needs_collider: whether only paths with a collider count, which are closed in the population.
    """

    given: frozenset[str]
    blocked: frozenset[str] = frozenset()
    needs_collider: bool = False


def _next_steps(net: Any, step: _Step, search: Search, above: Collection[Any]) -> Iterator[_Step]:
    """The steps that keep a path open; `above` is what is given, and what is above it."""
    if step.node not in search.given:
        for effect in net.successors(step.node):
            yield _Step(effect, True, True, step.has_collider)
    if step.node in above if step.is_entered else step.node not in search.given:
        for cause in net.predecessors(step.node):
            if step.has_turned or cause not in search.blocked:
                yield _Step(cause, False, step.has_turned, step.has_collider or step.is_entered)


def reachable_nodes(net: Any, starts: Collection[str], given: Collection[str]) -> set[Any]:
    """Nodes that are not d-separated from all of the starts: Shachter 1998, "Bayes-Ball"."""
    search, above = Search(frozenset(given)), with_ancestors(net, given)
    waiting = [_Step(node, False, True, True) for node in starts]
    seen = set(waiting)
    while waiting:
        fresh = set(_next_steps(net, waiting.pop(), search, above)) - seen
        seen |= fresh
        waiting += fresh
    return {step.node for step in seen} - set(given)


def open_paths(net: Any, one: str, other: str, search: Search) -> Iterator[Path]:
    """Open paths between two nodes, the shortest first, searched for from the other end (A*: Hart, Nilsson and Raphael 1968).

    How far it is to go is what it would be if nodes might be visited twice.
    """
    start = _Step(other, False, False, False)
    onward = _reachable_steps(net, start, one, search)
    ends = [step for step in onward if step.node == one and (step.has_collider or not search.needs_collider)]
    left = _distances(onward, ends)
    turn = count()
    first: tuple[int, int, tuple[Any, ...], _Step] = (left.get(start, 0), next(turn), (other,), start)
    waiting = [first] if start in left else []
    for _ in range(MAX_STEPS):
        if not waiting:
            return
        _, _, nodes, step = heappop(waiting)
        if step.node == one:
            yield path_of(net, nodes[::-1])
            continue
        for after in onward[step]:
            if after in left and after.node not in nodes:
                heappush(waiting, (len(nodes) + left[after], next(turn), (*nodes, after.node), after))


def _reachable_steps(net: Any, start: _Step, end: str, search: Search) -> Mapping[_Step, Sequence[_Step]]:
    """The steps after each that can be reached from a start."""
    above = with_ancestors(net, search.given)
    onward: dict[_Step, Sequence[_Step]] = {}
    waiting = [start]
    while waiting:
        step = waiting.pop()
        if step not in onward:
            onward[step] = () if step.node == end else tuple(_next_steps(net, step, search, above))
            waiting += onward[step]
    return onward


def _distances(onward: Mapping[_Step, Sequence[_Step]], ends: Sequence[_Step]) -> Mapping[_Step, int]:
    """How many steps it takes at least from each to an end."""
    before: dict[_Step, list[_Step]] = {step: [] for step in onward}
    for step, after in onward.items():
        for one in after:
            before[one].append(step)
    left, waiting = dict.fromkeys(ends, 0), deque(ends)
    while waiting:
        step = waiting.popleft()
        for one in before[step]:
            if one not in left:
                left[one] = left[step] + 1
                waiting.append(one)
    return left
