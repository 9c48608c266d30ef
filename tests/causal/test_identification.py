"""What follows from a graph: against hand-worked answers, against networkx, and against distributions computed exactly."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from helpers.random_graphs import graphs
from undertow.causal import identification
from undertow.causal.assumptions import DRIFT, SPECIFICATION, assumptions
from undertow.causal.describe import describe_graph
from undertow.causal.graph import Arrow, Graph, network, read_graph
from undertow.causal.identification import (
    covariate_candidate,
    covariate_candidates,
    implied_independences,
    noncausal_open_paths,
    recoverability,
    specification,
)
from undertow.causal.paths import MAX_PATHS, Path, d_separated, directed_path, opened_by_selection, path_status, paths
from undertow.causal.published import published
from undertow.errors import UndertowError


@dataclass(frozen=True)
class Worked:
    """A graph and what follows from it, worked out by hand.

    `opened` are the paths from X to Y that selection opens, apart by semicolons; `external`, the covariates that would do.
    """

    graph: str
    recoverable: bool = False
    specified: bool = False
    opened: str = ""
    ws: str = ""
    external: str | None = ""
    with_labels: bool = False


PAPERS = {name: one.graph.text() for name, one in published().items()}
BY_HAND = {
    # The four graphs of the papers. G is the other cause of S in all of them, so S <- G -> Y (through Z where access decides)
    # stays open whatever X is: none is recoverable, the well-specified one neither. G given, it is closed; W -> X <- G, which X
    # opens, ends at G as well.
    "well-specified": Worked(
        PAPERS["well-specified"], specified=True, opened="X <- W -> S <- G -> Y", ws="W", external="G"
    ),
    # Without G -> X and X -> Y the path through S is the only one.
    "unspecified": Worked(PAPERS["unspecified"], opened="X <- W -> S <- G -> Y", ws="W", external="G"),
    # S is only a descendant of the collider Z, which is enough to open it. Z is connected with Y by its cause G: it is no W.
    "access": Worked(PAPERS["access"], specified=True, opened="X <- W -> Z <- G -> Y", ws="W", external="G"),
    # Nobody recorded Z, and nothing else closes S <- Z <-> Y.
    "access-masked": Worked(PAPERS["access-masked"], specified=True, opened="X <- W -> Z <-> Y", ws="W", external=None),
    # The mediator carries all of X to Y. Selection by the mediator is cut off from Y by the mediator alone.
    "chain": Worked("X -> M -> Y; M -> [S]", specified=True, external="M"),
    # A common cause connects X and Y without any selection: C is no W. Selection by X alone is no harm: S <- X <- C is closed at X.
    "fork": Worked("C -> X; C -> Y; X -> [S]", recoverable=True),
    # X and Y decide selection between them: the collider is S itself, and S <- Y is closed by nothing.
    "collider": Worked("X -> S; Y -> S; [S]", opened="X -> S <- Y", external=None),
    # M is an effect of a cause of X and of a cause of Y: harmless until it is conditioned on. A is what the papers call W.
    "M-bias": Worked("A -> X; A -> M; B -> M; B -> Y; M -> [S]", opened="X <- A -> M <- B -> Y", ws="A", external="M"),
    # X and Y have a latent cause, and M carries X to Y. Given X, selection by X tells nothing more of Y.
    "front door": Worked("X -> M -> Y; X <-> Y; X -> [S]", recoverable=True, specified=True),
    # M is a common cause and a collider at once: to condition on it closes X <- M -> Y and opens X <- A -> M <- B -> Y, so that it
    # takes A or B as well. In the population A -> M -> Y is open, so A is no W.
    "butterfly bias": Worked(
        "A -> X; A -> M; B -> M; B -> Y; M -> X; M -> Y; M -> [S]", opened="X <- A -> M <- B -> Y", external="M"
    ),
    # Z moves Y through X alone. X given, Z -> X <-> Y is open: selection by the instrument is then not cut off from Y, but knowing
    # Z of all would do.
    "instrument": Worked("Z -> X -> Y; X <-> Y; Z -> [S]", specified=True, external="Z"),
    # Cases are sampled more often than controls. Nothing closes S <- Y, but Y given, X and S are independent, so that the share of
    # cases in the population is all that is missing.
    "case-control": Worked("X -> Y -> [S]", specified=True, external=None, with_labels=True),
    # Selection by what a text is about, and by nothing else.
    "selection by W": Worked("W -> X -> Y; W -> [S]", recoverable=True, specified=True),
    # Texts are selected for what they say. W comes to selection through the text, and has no other way; the features do nothing to
    # the label, so nothing there is the task's own.
    "selection by the text": Worked(
        "W -> X; X -> S; G -> S; G -> Y; [S]", opened="X -> S <- G -> Y", ws="W", external="G"
    ),
    # W -> X -> Y is the task's own, W -> X -> S <- Y is not: it ends at the label against the arrow.
    "selection by the text and the label": Worked(
        "W -> X -> Y; X -> S; Y -> S; [S]", specified=True, opened="X -> S <- Y", ws="W", external=None
    ),
    # X and selection are connected through Y alone, so that no path from W to Y is there but the task's own.
    "selection by the label": Worked("W -> X -> Y -> [S]", specified=True, external=None, with_labels=True),
    # X -> M is an arrow of the task, and yet on a path that selection opens.
    "selection by a mediator and a cause": Worked(
        "W -> X -> M -> Y; M -> S; G -> S; G -> Y; [S]",
        specified=True,
        opened="X -> M -> S <- G -> Y",
        ws="W",
        external="MG",
    ),
    # Selection is below the collider A by arrows of the task alone: A -> X -> M -> S.
    "selection through the task": Worked(
        "W -> A; G -> A; A -> X -> M -> Y; M -> [S]; G -> Y", specified=True, ws="W", external="M"
    ),
    # C is a cause of the label through the features only: W <- C -> X -> Y is the task's own as well.
    "a cause of W and of the text": Worked(
        "C -> W -> X; C -> X -> Y; W -> S; G -> S; G -> Y; [S]",
        specified=True,
        opened="X <- C -> W -> S <- G -> Y; X <- W -> S <- G -> Y",
        ws="CW",
        external="G",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_answers_worked_by_hand(name: str) -> None:
    worked, graph = BY_HAND[name], read_graph(BY_HAND[name].graph)
    found = recoverability(graph)
    assert found.recoverable is worked.recoverable
    assert found.external_covariates == (None if worked.external is None else tuple(worked.external))
    assert found.with_label_distribution is worked.with_labels
    assert bool(found.open_paths) is not worked.recoverable
    assert specification(graph).well_specified is worked.specified
    assert {path.text for path in opened_by_selection(graph, "X", "Y")} == set(filter(None, worked.opened.split("; ")))
    assert {one.node for one in covariate_candidates(graph) if one.qualifies} == set(worked.ws)


def test_a_path_says_what_closes_and_what_opens_it() -> None:
    graph = read_graph("X <- W -> Z <- G -> Y; Z -> M -> [S]; Z <-> Q; Q -> Y")
    first, second = paths(graph, "X", "Y")
    assert first == Path(("X", "W", "Z", "G", "Y"), ("<-", "->", "<-", "->"), ("Z",))
    assert second.text == "X <- W -> Z <-> Q -> Y"
    assert second.colliders == ("Z",)
    assert not first.is_causal
    assert paths(graph, "W", "M")[0].is_causal
    alone = path_status(graph, first)
    assert (alone.is_open, alone.closed_at, alone.opened_by) == (False, ("Z",), ())
    assert path_status(graph, first, {"S"}).opened_by == (("Z", "S"),)
    assert path_status(graph, first, {"S", "Z"}).opened_by == (("Z", "Z"),)
    both = path_status(graph, first, {"S", "G", "W"})
    assert (both.is_open, both.closed_at, both.opened_by) == (False, ("W", "G"), (("Z", "S"),))
    assert not paths(read_graph("X -> Y; W"), "W", "X")


def test_what_specifies_a_task() -> None:
    def said(text: str) -> tuple[tuple[Arrow, ...], ...]:
        found = specification(read_graph(text))
        assert found.well_specified is bool(found.causal_arrows)
        return found.causal_arrows, found.backdoor_arrows, found.missing_causal_arrows, found.missing_backdoor_arrows

    # The two arrows that the papers take away, and the two that are then missing.
    assert said(PAPERS["well-specified"]) == ((("X", "Y"),), (("G", "X"),), (), ())
    assert said(PAPERS["unspecified"]) == ((), (), (("X", "Y"),), (("G", "X"),))
    # All ways count, and what lies beside them does not.
    both_ways = "X -> M -> Y; X -> N -> Y; M -> O; A -> M; G -> Y; G -> B -> X; G -> C"
    assert said(both_ways)[0] == (("X", "M"), ("M", "Y"), ("X", "N"), ("N", "Y"))
    assert said(both_ways)[1] == (("G", "B"), ("B", "X"))
    # What comes to the features by way of the label is not told by its cause.
    assert said("G -> Y -> X") == ((), (), (), (("G", "X"),))
    assert specification(read_graph("G -> Y -> X")).label_causes_features
    # One feature is enough; where one is an effect of the label, the other can still be its cause.
    assert said("Y -> A; B; features A, B")[2] == (("B", "Y"),)
    assert said("B -> Y; A; features A, B; G -> A; G -> Y") == ((("B", "Y"),), (("G", "A"),), (), ())


def test_why_a_node_is_no_w() -> None:
    graph = read_graph("W -> X; (L) -> X; C -> X; C -> Y; Y -> E; D; W -> [S]; G -> Y; G -> S; L -> S; I -> X -> Y")
    found = {one.node: one for one in covariate_candidates(graph)}
    assert list(found) == ["W", "L", "C", "E", "G", "I", "D"]
    assert [node for node, one in found.items() if one.qualifies] == ["W"]
    assert not found["L"].observed
    assert found["L"].opened
    assert (found["C"].causes_label, [path.text for path in found["C"].open_in_population]) == (True, ["C -> Y"])
    assert (found["E"].caused_by_label, found["E"].causes_features) == (True, False)
    assert (found["D"].causes_features, found["D"].opened, found["D"].open_in_population) == (False, (), ())
    # That W causes Y through X is the task's own; that I does, too, and selection knows nothing of I.
    assert not found["W"].causes_label
    assert (found["I"].causes_features, found["I"].opened) == (True, ())


def test_names_are_checked() -> None:
    graph = read_graph("X -> Y; W")
    path = paths(graph, "X", "Y")[0]
    unknown: list[tuple[Any, ...]] = [
        (d_separated, {"X"}, {"Q"}),
        (d_separated, {"X"}, {"Y"}, {"Q"}),
        (paths, "Q", "X"),
    ]
    for ask, *about in (*unknown, (path_status, path, {"Q"})):
        with pytest.raises(UndertowError, match="'Q'"):
            ask(graph, *about)
    wrong: list[tuple[Any, ...]] = [
        (d_separated, {"X"}, {"Y"}, {"X"}),
        (d_separated, set(), {"Y"}),
        (covariate_candidate, "X"),
    ]
    for ask, *about in (*wrong, *((same, "X", "X") for same in (paths, opened_by_selection, directed_path))):
        with pytest.raises(UndertowError):
            ask(graph, *about)


def test_what_tells_the_label_without_selection() -> None:
    def told(text: str) -> list[str]:
        return [path.text for path in noncausal_open_paths(read_graph(text))]

    assert told("W -> X; W -> S; G -> S; G -> Y; [S]") == []
    assert told("X -> M -> Y; X -> [S] <- Y") == [], "what the features decide is not asked"
    assert told("G -> X; G -> Y; X -> Y") == ["X <- G -> Y"]
    assert told("Y -> A -> X; Y <-> X") == ["X <-> Y", "X <- A <- Y"]
    assert told("X; G -> X2; G -> Y; features X, X2") == ["X2 <- G -> Y"]
    arrows = [f"{a}{at} -> {b}{at + 1}" for at in range(17) for a, b in product("AB", repeat=2)]
    dense = read_graph("; ".join([*arrows, "A0 -> X", "A17 -> Y"]))
    assert noncausal_open_paths(dense)[0].text.startswith("X <- A0 -> ")
    by_w = read_graph("W -> X; W -> Y; C -> X; A -> C; A -> B; B -> Y")
    assert noncausal_open_paths(by_w)[0].text == "X <- W -> Y"
    assert [path.text for path in noncausal_open_paths(by_w, past="W")] == ["X <- C <- A -> B -> Y"]


def test_paths_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six nodes, each with an arrow to all later ones."""
    monkeypatch.setattr("undertow.causal.paths.MAX_PATHS", 40)
    graph = read_graph("; ".join(f"{one} -> {other}" for one, other in combinations([*"XABCD", "Y"], 2)))
    found = paths(graph, "X", "Y")
    assert (len(found), found[0].text) == (40, "X -> Y")
    assert [len(path.nodes) for path in found] == sorted(len(path.nodes) for path in found)


def test_a_long_open_path_behind_many_closed_ones_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """W qualifies but for the common cause of the last statement, and the shortest paths end before it."""
    monkeypatch.setattr("undertow.causal.paths.MAX_PATHS", 4)
    closed = "W -> A <- Y; W -> B <- Y; W -> C <- Y; W -> D <- Y"
    task = f"W -> X; W -> S; G -> S; G -> Y; [S]; {closed}"
    graph = read_graph(f"{task}; W <- (T) <- (U) -> (V) -> Y")
    (before, *_), (after, *_) = covariate_candidates(read_graph(task)), covariate_candidates(graph)
    assert (before.node, before.qualifies, before.shares_cause) == ("W", True, False)
    assert (after.node, after.qualifies, after.shares_cause) == ("W", False, True)
    assert not d_separated(graph, {"W"}, {"Y"})
    assert [path.text for path in after.open_in_population] == ["W <- T <- U -> V -> Y"]
    assert [path.text for path in before.opened] == ["W -> S <- G -> Y"]


# For every graph.


@given(graph=graphs())
@example(graph=read_graph("W -> X; W -> S; G -> S; G -> Y; [S]"))
@example(graph=read_graph("W -> X; W -> S; G -> S; G -> Y; (U) -> W; U -> Y; [S]"))
@example(graph=read_graph("W -> X; W -> S; G -> S; G -> Y; W <-> Y; [S]"))
@example(graph=read_graph("W -> X; X -> S; G -> S; G -> Y; [S]"))
@example(graph=read_graph("W -> X; W -> S; H -> S; H -> Y; G -> Y; [S]"))
@example(graph=read_graph("W -> X; W -> S; G -> S; G -> X; G -> Y; [S]"))
@example(graph=read_graph("W -> X; U -> X; (U) -> Y; W -> S; G -> S; G -> Y; [S]"))
@example(graph=read_graph("Y -> X; W -> X; W -> S; Y -> S; [S]"))
@settings(max_examples=30)
def test_a_graph_grants_what_a_drift_rests_on_if_w_qualifies_and_the_text_tells_nothing_else(graph: Graph) -> None:
    assume(graph.covariate)
    (w,) = (one for one in covariate_candidates(graph) if one.node == graph.covariate)
    drift = [row.holds for row in assumptions(graph, DRIFT)]
    assert all(drift) is (w.qualifies and d_separated(graph, graph.features, {graph.label}))
    assert not all(drift) or not specification(graph).well_specified
    assert all(holds is not False for holds in (row.holds for row in assumptions(graph, SPECIFICATION))) is w.qualifies
    # What is open between two nodes in the population leads from one to the other, or to both.
    assert w.connected_in_population is (w.causes_label or w.caused_by_label or w.shares_cause)
    assert (w.connected_in_population, w.connected) == (
        bool(w.open_in_population),
        bool(w.open_in_population or w.opened),
    )


def test_who_can_be_a_w_agrees_with_the_definition_on_the_whole_graph() -> None:
    """Every path of 150 random graphs is walked, but for those that reach the label from the features along the arrows."""
    seen = {"qualifies": 0, "qualifies, well specified": 0, "connected by selection through features": 0}
    for seed in range(150):
        graph = random_graph(random.Random(seed))
        is_specified = specification(graph).well_specified
        for one in covariate_candidates(graph):
            before, after = (walked(graph, one.node, given) for given in ((), graph.selection))
            opened = [nodes for nodes in after if nodes not in before]
            said = f"{graph.text()}, {one.node}"
            assert one.connected_in_population is bool(before), said
            assert one.connected is bool(after), said
            causes = any(nx.has_path(network(graph), one.node, feature) for feature in graph.features)
            assert one.qualifies is (one.node not in graph.latent and causes and bool(opened) and not before), said
            lengths = [len(path.nodes) + path.signs.count("<->") for path in one.opened]
            assert lengths == sorted(lengths), said
            assert {path.nodes for path in one.opened} <= {named(nodes) for nodes in opened}, said
            assert len(one.opened) == min(len(opened), identification.MAX_EXAMPLES), said
            assert {path.nodes for path in one.open_in_population} <= {named(nodes) for nodes in before}, said
            seen["qualifies"] += one.qualifies
            seen["qualifies, well specified"] += one.qualifies and is_specified
            seen["connected by selection through features"] += one.qualifies and all(
                not set(nodes).isdisjoint(graph.features) for nodes in opened
            )
    assert min(seen.values()) >= 5, seen


def random_graph(rng: random.Random) -> Graph:
    """Seven nodes or fewer besides selection, of which one or two are features."""
    names = ["X", "Y", "W", *"ABCD"[: rng.randint(1, 4)]]
    features = ["X", "A"][: rng.randint(1, 2)]
    order = rng.sample(names, len(names))
    if rng.random() < 0.7:  # as a task mostly is: W above the text, and the text above the label
        places = iter(sorted(order.index(name) for name in "WXY"))
        rest = iter([name for name in order if name not in "WXY"])
        task = dict(zip(places, "WXY", strict=True))
        order = [task.get(place) or next(rest) for place in range(len(names))]
    statements = [f"{one} -> {two}" for one, two in combinations(order, 2) if rng.random() < 0.3]
    statements += [f"{one} <-> {two}" for one, two in combinations(order, 2) if rng.random() < 0.05]
    statements += [f"{one} -> [S]" for one in names if rng.random() < 0.5]
    statements += [f"({one})" for one in names if one not in ("X", "Y", *features) and rng.random() < 0.15]
    return read_graph("; ".join([*statements, *names, f"features {', '.join(features)}"]))


def walked(graph: Graph, node: str, given: Collection[str]) -> list[list[Any]]:
    """The paths from a node to the label that are open and not the task's own, shared causes among their nodes."""
    net = network(graph)

    def is_open(nodes: Sequence[Any]) -> bool:
        return all(
            bool({at, *nx.descendants(net, at)} & set(given))
            if net.has_edge(before, at) and net.has_edge(after, at)
            else at not in given
            for before, at, after in zip(nodes, nodes[1:], nodes[2:], strict=False)
        )

    def is_own(nodes: Sequence[Any]) -> bool:
        return any(
            nodes[at] in graph.features and all(net.has_edge(*step) for step in pairwise(nodes[at:]))
            for at in range(len(nodes) - 1)
        )

    found = nx.all_simple_paths(net.to_undirected(), node, graph.label)
    return [nodes for nodes in found if is_open(nodes) and not is_own(nodes)]


def named(nodes: Sequence[Any]) -> tuple[str, ...]:
    return tuple(node for node in nodes if isinstance(node, str))


def test_large_graph_is_answered_without_a_question_for_each_path() -> None:
    """40 nodes and 71 arrows: a walk along every path would not end."""
    rng = random.Random(3)
    names = ["W", "X", "G", "Y", *(f"N{number}" for number in range(35))]
    pairs = list(combinations(rng.sample(names, len(names)), 2))
    statements = [f"{one} -> {two}" for one, two in rng.sample(pairs, 68)]
    graph = read_graph("; ".join([*statements, *(f"{one} -> [S]" for one in rng.sample(names, 3)), *names]))
    told = describe_graph(graph)
    n_implied = len(implied_independences(graph))
    assert any(lines and f"{n_implied - 30} more" in lines[-1] for lines in told.values())


@given(graph=graphs(), data=st.data())
@settings(max_examples=50)
def test_nodes_are_separated_where_no_path_between_them_is_open(graph: Graph, data: st.DataObject) -> None:
    one, other, *rest = data.draw(st.permutations(graph.nodes))
    conditions = rest[: data.draw(st.integers(0, len(rest)))]
    between = paths(graph, one, other)
    assert len(between) < MAX_PATHS
    connected = any(path_status(graph, path, conditions).is_open for path in between)
    assert d_separated(graph, {one}, {other}, conditions) is not connected
    assert {path.text for path in paths(graph, other, one)} == {turned(path) for path in between}


def turned(path: Path) -> str:
    signs = [{"->": "<-", "<-": "->"}.get(sign, sign) for sign in reversed(path.signs)]
    return Path(path.nodes[::-1], tuple(signs), ()).text


@given(graph=graphs(), data=st.data())
@settings(max_examples=30)
def test_a_shared_cause_is_a_latent_node_with_two_arrows(graph: Graph, data: st.DataObject) -> None:
    assume(graph.shared)
    text = graph.text()
    for number, (one, other) in enumerate(graph.shared):
        text = text.replace(f"{one} <-> {other}", f"{one} <- (U{number}) -> {other}")
    written_out = read_graph(text)
    assert not written_out.shared
    one, other, *rest = data.draw(st.permutations(graph.nodes))
    conditions = rest[: data.draw(st.integers(0, len(rest)))]
    assert d_separated(graph, {one}, {other}, conditions) is d_separated(written_out, {one}, {other}, conditions)
    here, there = recoverability(graph), recoverability(written_out)
    assert here.recoverable is there.recoverable
    assert here.with_label_distribution is there.with_label_distribution
    assert (here.external_covariates is None) is (there.external_covariates is None)
    assert specification(graph).causal_arrows == specification(written_out).causal_arrows
    qualify = {one.node for one in covariate_candidates(graph) if one.qualifies}
    assert qualify == {one.node for one in covariate_candidates(written_out) if one.qualifies}


@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_what_is_recoverable_is_recovered(graph: Graph, seed: int) -> None:
    """Two-valued models on the graph, every probability computed: P(Y | X) in the population, and by each of the formulas."""
    assume(graph.selection)
    joint = Joint(graph, np.random.default_rng(seed))
    selected, found = {"S": 1}, recoverability(graph)
    true = {(x, y): joint.prob({"Y": y}, {"X": x}) for x, y in product((0, 1), repeat=2)}
    seen = {(x, y): joint.prob({"Y": y}, {"X": x} | selected) for x, y in true}
    assert (max(abs(true[cell] - seen[cell]) for cell in true) < 1e-12) is found.recoverable
    if found.external_covariates is not None:
        for (x, y), prob in true.items():
            values = [
                dict(zip(found.external_covariates, cell, strict=True))
                for cell in product((0, 1), repeat=len(found.external_covariates))
            ]
            terms = [joint.prob({"Y": y}, {"X": x} | c | selected) * joint.prob(c, {"X": x}) for c in values]
            assert sum(terms) == pytest.approx(prob, abs=1e-12)
    if found.with_label_distribution:
        for (x, y), prob in true.items():
            parts = [joint.prob({"X": x}, {"Y": one} | selected) * joint.prob({"Y": one}) for one in (0, 1)]
            assert parts[y] / sum(parts) == pytest.approx(prob, abs=1e-12)


@given(graph=graphs(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_selected_data_show_what_the_graph_implies(graph: Graph, seed: int) -> None:
    joint = Joint(graph, np.random.default_rng(seed))
    selected = dict.fromkeys(graph.selection, 1)
    for one in implied_independences(graph):
        assert {one.one, one.other, *one.given} <= set(graph.observed)
        for values in product((0, 1), repeat=len(one.given)):
            conditions = dict(zip(one.given, values, strict=True)) | selected
            apart = [joint.prob({one.one: 1}, {one.other: value} | conditions) for value in (0, 1)]
            assert apart[0] == pytest.approx(apart[1], abs=1e-12)
    joined = [set(pair) for pair in combinations(graph.observed, 2) if not _separable(graph, *pair)]
    assert len(joined) + len(implied_independences(graph)) == len(list(combinations(graph.observed, 2)))


def _separable(graph: Graph, one: str, other: str) -> bool:
    rest = [node for node in graph.observed if node not in (one, other)]
    return any(
        d_separated(graph, {one}, {other}, {*few, *graph.selection})
        for size in range(len(rest) + 1)
        for few in combinations(rest, size)
    )


class Joint:
    """The joint distribution of a two-valued model on a graph, with probabilities at random."""

    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        net = network(graph)
        self.names = list(nx.topological_sort(net))
        shape = (2,) * len(self.names)
        self.probs = np.ones(shape)
        for node in self.names:
            family = [self.names.index(one) for one in (*net.predecessors(node), node)]
            one = rng.uniform(0.1, 0.9, (2,) * (len(family) - 1))
            table = np.stack([1 - one, one], axis=-1)
            axes = [2 if place in family else 1 for place in range(len(self.names))]
            self.probs = self.probs * table.transpose(np.argsort(family)).reshape(axes)
        assert self.probs.sum() == pytest.approx(1)

    def prob(self, event: Mapping[str, int], given: Mapping[str, int] | None = None) -> float:
        """P(event | given)."""
        return self._mass({**event, **(given or {})}) / self._mass(given or {})

    def _mass(self, event: Mapping[str, int]) -> float:
        return float(self.probs[tuple(event.get(name, slice(None)) for name in self.names)].sum())
