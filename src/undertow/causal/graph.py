"""A causal graph and its text: `W -> X; W -> S; G -> S; G -> Y; [S]`.

Statements are divided by `;` or line ends, and `#` begins a comment. A statement is one of

    W -> X <- Z            arrows, possibly in a chain; `<->` is a latent common cause of both
    [S]   (U)              a node alone; brackets mark selection (S = 1 in all data), parentheses a latent node, anywhere
    W: a date or a place   what a node means
    features X1, X2        roles: features (default X), label (Y), cause of the label (G) and covariate (W), which an audit
                           varies in its texts
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import networkx as nx

from undertow._files import split_lines
from undertow.errors import UndertowError

Arrow: TypeAlias = tuple[str, str]
"""Cause and effect; or two nodes with a latent common cause."""

FEATURES, LABEL, CAUSE, COVARIATE = "features", "label", "cause", "covariate"
ROLES = {FEATURES: "X", LABEL: "Y", CAUSE: "G", COVARIATE: "W"}
"""Roles of nodes, with the default name of the node."""

_TOKEN = re.compile(
    r"\s*(?:(?P<arrow><->|->|<-)|\[\s*(?P<selected>\w+)\s*\]|\(\s*(?P<latent>\w+)\s*\)|(?P<name>\w+)|(?P<comma>,))"
)
_MEANING = re.compile(r"\s*(?P<node>\[\s*\w+\s*\]|\(\s*\w+\s*\)|\w+)\s*:(?P<words>.*)", re.DOTALL)
_QUOTED_LENGTH = 60
_SELECTION_NAME = re.compile(
    r"S\d?|(is_)?(selection|selected|sampled?|sampling|included|inclusion)|in_\w+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed acyclic graph of a prediction task and of the selection of its data; create it with `read_graph`.

    Attributes:
        nodes: every named node: those with arrows in the order of the arrows, then the others.
        arrows: (cause, effect), as written.
        shared: pairs with an unnamed latent common cause, `Z <-> Y`.
        selection: nodes that are 1 for everything in the data; no arrow leaves them.
        latent: nodes that are not recorded.
        cause: cause of the label, such as gender for a pronoun; "" without such a node.
        covariate: covariate of the texts; "" without such a node.
        meanings: (node, description) of nodes with a description.
    """

    nodes: tuple[str, ...]
    arrows: tuple[Arrow, ...]
    shared: tuple[Arrow, ...]
    selection: tuple[str, ...]
    latent: tuple[str, ...]
    features: tuple[str, ...]
    label: str
    cause: str
    covariate: str
    meanings: tuple[Arrow, ...] = ()

    @property
    def observed(self) -> tuple[str, ...]:
        """Nodes that can be recorded: neither latent nor selection."""
        return tuple(node for node in self.nodes if node not in {*self.latent, *self.selection})

    @property
    def looks_like_selection(self) -> tuple[str, ...]:
        """Nodes with a typical name of selection that are not marked as selection but could be."""
        causes = {tail for tail, _ in self.arrows}
        plain = (node for node in self.observed if node not in {*causes, *self.features, self.label})
        return tuple(node for node in plain if _SELECTION_NAME.fullmatch(node))

    def text(self) -> str:
        """Canonical text of the graph, statements on one line and descriptions on further lines.

        `read_graph` of this text gives an equal graph.
        """
        signs = {node: f"[{node}]" for node in self.selection} | {node: f"({node})" for node in self.latent}
        linked = {node for pair in (*self.arrows, *self.shared) for node in pair}
        statements = [f"{tail} -> {head}" for tail, head in self.arrows]
        statements += [f"{one} <-> {other}" for one, other in self.shared]
        statements += [signs.get(node, node) for node in self.nodes if node in signs or node not in linked]
        # Statements of roles that differ from the defaults.
        current = {FEATURES: self.features, LABEL: (self.label,), CAUSE: (self.cause,), COVARIATE: (self.covariate,)}
        assumed = _assumed_roles(network(self), set(self.selection), {})
        statements += [
            f"{role} {', '.join(names)}" for role, names in current.items() if any(names) and names != assumed[role]
        ]
        return "\n".join(["; ".join(statements), *(f"{node}: {words}" for node, words in self.meanings)])


def read_graph(text: str, source: str = "graph") -> Graph:
    """Read a graph from its statements; see the docstring of this module. Errors call the text `source`: a file, or an option.

    Raises:
        UndertowError: a statement is invalid, arrows close a cycle or leave a selection node, or features or label are missing; the
            message names the place.
    """
    reading = _GraphReader(source)
    for number, line in enumerate(split_lines(text), 1):
        for statement in filter(None, map(str.strip, line.partition("#")[0].split(";"))):
            cut = statement if len(statement) <= _QUOTED_LENGTH else f"{statement[: _QUOTED_LENGTH - 3]}..."
            reading.read_statement(statement, f"{source}, line {number}, {cut!r}")
    return reading.graph()


def network(graph: Graph) -> Any:
    """The graph as a cached `networkx.DiGraph`, with a node for every shared cause; do not modify it.

    The node of a shared cause is the pair of its effects, so it cannot clash with a name.
    """
    return _network(graph.nodes, graph.arrows, graph.shared)


@lru_cache(maxsize=128)
def _network(nodes: Sequence[str], arrows: Sequence[Arrow], shared: Sequence[Arrow]) -> Any:
    net = nx.DiGraph()
    net.add_nodes_from(nodes)
    net.add_edges_from(arrows)
    net.add_edges_from((pair, effect) for pair in shared for effect in pair)
    return nx.freeze(net)


class _Token(NamedTuple):
    kind: str  # a group of _TOKEN
    text: str


@dataclass
class _GraphReader:
    """State of the parser after some statements."""

    source: str
    arrows: list[Arrow] = field(default_factory=list)
    shared: list[Arrow] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)  # node -> selected or latent
    alone: dict[str, None] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)  # (what, name) -> place of its first statement
    net: Any = field(default_factory=nx.DiGraph)  # of the arrows

    def read_statement(self, statement: str, place: str) -> None:
        meaning = _MEANING.fullmatch(statement)
        if meaning:
            given, words = meaning["node"], " ".join(meaning["words"].split())
            node = given.strip("[]() \t")
            if not words:
                raise UndertowError(f"{place}: the description of {node} is empty; write it, or remove the statement")
            if self.meanings.setdefault(node, words) != words:
                raise UndertowError(f"{place}: {node} already means {self.meanings[node]!r}; remove one of the two")
            if given != node:
                self._mark(_Token("selected" if given[0] == "[" else "latent", node), place)
                self.alone[node] = None
            self.places.setdefault(("meaning", node), place)
            return
        tokens: list[_Token] = []
        at = 0
        while at < len(statement):
            match = _TOKEN.match(statement, at)
            if match is None:
                strange = statement[at:].split(maxsplit=1)[0]
                raise UndertowError(f"{place}: {strange!r} is neither a name nor an arrow; arrows are ->, <- and <->")
            tokens.append(_Token(str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        if len(tokens) > 1 and tokens[0].kind == tokens[1].kind == "name" and tokens[0].text in ROLES:
            self._read_role(tokens[0].text, tokens[1:], place)
        else:
            self._read_arrows(tokens, place)

    def graph(self) -> Graph:
        """The graph, checked."""
        linked = (node for pair in (*self.arrows, *self.shared) for node in pair)
        nodes = tuple(dict.fromkeys((*linked, *self.alone)))
        if not nodes:
            raise UndertowError(f"{self.source} is empty; write a graph such as 'W -> X; X -> Y; X -> S; [S]'")
        for (what, name), place in self.places.items():
            if what in (*ROLES, "meaning") and name not in nodes:
                raise UndertowError(f"{place}: no other statement has {name!r}; the nodes are {', '.join(nodes)}")
        selection = tuple(node for node in nodes if self.marks.get(node) == "selected")
        latent = tuple(node for node in nodes if self.marks.get(node) == "latent")
        for tail, head in self.arrows:
            if tail in selection:
                raise UndertowError(
                    f"{self.places['leaves', tail]}: {tail} is selection, which cannot be a cause; "
                    f"start the arrow to {head} at a cause of selection"
                )
        roles = _assumed_roles(_network(nodes, tuple(self.arrows), tuple(self.shared)), set(selection), self.roles)
        self._check_roles(roles, {*selection, *latent}, set(selection))
        return Graph(
            nodes=nodes,
            arrows=tuple(self.arrows),
            shared=tuple(self.shared),
            selection=selection,
            latent=latent,
            features=roles[FEATURES],
            label=roles[LABEL][0],
            cause="".join(roles[CAUSE]),
            covariate="".join(roles[COVARIATE]),
            meanings=tuple((node, self.meanings[node]) for node in nodes if node in self.meanings),
        )

    def _read_role(self, role: str, tokens: Sequence[_Token], place: str) -> None:
        kinds = [token.kind for token in tokens]
        names = tuple(token.text for token in tokens[::2])
        if kinds != ["name", *["comma", "name"] * (len(tokens) // 2)] or len(set(names)) < len(names):
            raise UndertowError(f"{place}: write the nodes after {role!r} each once, with commas between")
        if len(names) > 1 and role != FEATURES:
            raise UndertowError(f"{place}: {role} is one node, not {len(names)}; leave the others out")
        if role in self.roles:
            raise UndertowError(f"{place}: {role} has an earlier statement; remove one of the two")
        self.roles[role] = names
        self.places.update({(role, name): place for name in names})

    def _read_arrows(self, tokens: Sequence[_Token], place: str) -> None:
        for turn, token in enumerate(tokens):
            if token.kind == "comma" or (token.kind == "arrow") != (turn % 2 == 1):
                raise UndertowError(
                    f"{place}: expected {'an arrow' if turn % 2 else 'a node'}, got {token.text!r}; {_correction(tokens, turn)}"
                )
        if len(tokens) % 2 == 0:
            raise UndertowError(f"{place}: an arrow leads nowhere; write a node at its other end, as in W -> X")
        for token in tokens[::2]:
            self._mark(token, place)
            self.alone[token.text] = None
        for left, arrow, right in zip(tokens[::2], tokens[1::2], tokens[2::2], strict=False):
            ends = (right.text, left.text) if arrow.text == "<-" else (left.text, right.text)
            self._add_arrow(ends, arrow.text == "<->", place)

    def _mark(self, token: _Token, place: str) -> None:
        if token.kind not in ("selected", "latent"):
            return
        if self.marks.setdefault(token.text, token.kind) != token.kind:
            raise UndertowError(f"{place}: {token.text} is marked as selection and as latent; choose one")
        self.places.setdefault((token.kind, token.text), place)

    def _add_arrow(self, ends: Arrow, is_shared: bool, place: str) -> None:
        tail, head = ends
        if tail == head:
            raise UndertowError(f"{place}: {tail} cannot be its own cause; remove this arrow, or name its other end")
        if is_shared:
            if ends not in self.shared and ends[::-1] not in self.shared:
                self.shared.append(ends)
            return
        if self.net.has_edge(tail, head):
            return
        if self.net.has_node(head) and self.net.has_node(tail) and nx.has_path(self.net, head, tail):
            cycle = " -> ".join([*nx.shortest_path(self.net, head, tail), head])
            raise UndertowError(f"{place}: closes the cycle {cycle}; reverse or remove one of these arrows")
        self.net.add_edge(tail, head)
        self.arrows.append(ends)
        self.places.setdefault(("leaves", tail), place)

    def _check_roles(self, roles: dict[str, tuple[str, ...]], unseen: set[str], selection: set[str]) -> None:
        for role in (FEATURES, LABEL):
            if not roles[role]:
                raise UndertowError(
                    f"{self.source}: no node is called {ROLES[role]}, and no statement names the {role}; "
                    f"add one, such as '{role} {'text' if role == FEATURES else 'pronoun'}'"
                )
        for role, names in roles.items():
            for name in names:
                place = self.places.get((role, name), f"{self.source}, {role} {name}")
                if name in (unseen if role in (FEATURES, LABEL) else selection):
                    kind = "selection" if name in selection else "latent"
                    raise UndertowError(f"{place}: {name} is {kind}, and can be no {role}; choose another node")
                others = [other for other in roles if other != role and name in roles[other]]
                if others:
                    where = next((self.places[one, name] for one in others if (one, name) in self.places), place)
                    raise UndertowError(f"{where}: {name} is {others[0]} and {role}; each is a node of its own")
        for name in self.roles.get(CAUSE, ()):
            label = roles[LABEL][0]
            if not all(self.net.has_node(one) for one in (name, label)) or not nx.has_path(self.net, name, label):
                raise UndertowError(f"{self.places[CAUSE, name]}: no arrows lead from {name} to the label {label}")


def _correction(tokens: Sequence[_Token], turn: int) -> str:
    before, after = (tokens[at].text if 0 <= at < len(tokens) else "" for at in (turn - 1, turn + 1))
    if tokens[turn].kind == "comma" and turn >= 3 and after and tokens[turn - 2].kind == "arrow":
        cause, arrow = tokens[turn - 3].text, tokens[turn - 2].text
        return f"each arrow is a statement of its own, as in '{cause} {arrow} {before}; {cause} {arrow} {after}'"
    if tokens[turn].kind == "name" and turn % 2 and tokens[turn - 1].kind == "name":
        return f"names have no blanks, write {before}_{tokens[turn].text}, or an arrow between two nodes, as in W -> X"
    return "write W -> X"


def _assumed_roles(net: Any, selection: Iterable[str], given: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Nodes of each role: from statements, else by default names of suitable nodes."""
    taken = {name for names in given.values() for name in names} | set(selection)
    roles = {role: given.get(role, (name,) if name in net else ()) for role, name in ROLES.items()}
    for role in (CAUSE, COVARIATE):  # these are optional, unlike features and label
        if role not in given and not taken.isdisjoint(roles[role]):
            roles[role] = ()
    if CAUSE not in given and roles[CAUSE] and roles[LABEL]:
        reached = nx.has_path(net, roles[CAUSE][0], roles[LABEL][0])
        roles[CAUSE] = roles[CAUSE] if reached else ()
    return roles
