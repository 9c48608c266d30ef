"""The assumptions under which a finding is evidence of selection, and whether a graph grants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from undertow.causal import identification
from undertow.causal.graph import COVARIATE, ROLES, Graph
from undertow.causal.identification import Candidate
from undertow.causal.paths import Path
from undertow.errors import UndertowError

DRIFT, SPECIFICATION = "drift with W", "specification of the task"
"""What spurious correlation finds, and what task specification finds."""


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

    A drift of the label's share with W (McMilin 2024 (AAAI), method 1) shows what selection did if W is a W and the text tells
    nothing of the label without selection, neither by deciding it nor otherwise: W is set within the text, so whatever way the text
    tells the label, a drift can come of it. All that it rests on is granted if and only if the graph's W qualifies and its features
    and label are d-separated in the population; the task is then unspecified. The paper's unspecified graph is such a one, which
    lacks G -> X as well as X -> Y. That a movement with W tells an unspecified task from a specified one (method 2) rests on the
    same W, and on a specified task leaving little to it, which depends on sizes and not on arrows.

    Args:
        graph: as an audit names it; its W is the node with the role `covariate`.
        audit: `DRIFT` or `SPECIFICATION`.

    Raises:
        UndertowError: the audit is neither.
    """
    if audit not in _ASSUMPTIONS:
        raise UndertowError(f"what {audit!r} rests on is not known; ask for one of: {', '.join(_ASSUMPTIONS)}")
    if not graph.covariate:
        why = f"no node is called {ROLES[COVARIATE]}, and no statement names the covariate"
        claim, instead = (
            "what is varied in the texts is a node of the graph",
            "it has no node for what is varied in the texts",
        )
        return (Assumption(claim, False, why, instead),)
    w = identification.covariate_candidate(graph, graph.covariate)
    return tuple(row(graph, w) for row in _ASSUMPTIONS[audit])


def _w_causes_features(graph: Graph, w: Candidate) -> Assumption:
    ways = filter(None, (identification.directed_path(graph, w.node, feature) for feature in graph.features))
    because = first_path(ways) if w.causes_features else _no_arrows([w.node], graph.features)
    holds = w.observed and w.causes_features
    return Assumption(
        f"{w.node} is recorded, and a cause of the features {_join(graph.features)}",
        holds,
        because if w.observed else f"{w.node} is latent",
        "" if holds else f"{w.node} is not recorded" if not w.observed else f"{w.node} does not cause the features",
    )


def _w_is_not_causal(graph: Graph, w: Candidate) -> Assumption:
    holds = not (w.causes_label or w.caused_by_label)
    instead = f"{graph.label} causes {w.node}" if w.caused_by_label else ""
    return Assumption(
        f"{w.node} is neither a cause of the label {graph.label}, but through the features, nor an effect of it",
        holds,
        f"no arrows lead from {w.node} to {graph.label} past {_join(graph.features)}, and none back"
        if holds
        else first_path(path for path in w.open_in_population if _is_one_way(path)),
        f"{w.node} causes {graph.label} past the features" if w.causes_label else instead,
    )


def _no_confounding(graph: Graph, w: Candidate) -> Assumption:
    ways = (path for path in w.open_in_population if not _is_one_way(path))
    return Assumption(
        f"{_pair(graph, w)} have no common cause, but through the features",
        not w.shares_cause,
        first_path(ways) if w.shares_cause else "no path with arrows into both is open in the population",
        f"{_pair(graph, w)} have a common cause" if w.shares_cause else "",
    )


def _by_selection(graph: Graph, w: Candidate) -> Assumption:
    """That both are independent in the population and dependent in selected data, as of a W that qualifies."""
    claim = f"{_pair(graph, w)} are connected by selection alone, but for what the features do to the label"
    if w.connected_by_selection_alone:
        return Assumption(claim, True, _collider_text(graph, w))
    if not graph.selection:
        return Assumption(claim, False, f"nothing is selected{selection_hint(graph)}", "nothing is selected")
    if w.connected_in_population:
        because = f"{first_path(w.open_in_population)} is open without it"
        return Assumption(claim, False, because, f"not selection alone connects {_pair(graph, w)}")
    because = f"{_join(graph.selection)} opens no path between them"
    return Assumption(claim, False, because, f"selection does not connect {_pair(graph, w)}")


def selection_hint(graph: Graph) -> str:
    """What a graph without selection may have meant by a node that is called like it; "" where no node is."""
    if graph.selection or not graph.looks_like_selection:
        return ""
    marked = " or ".join(f"[{node}]" for node in graph.looks_like_selection)
    return f"; write {marked} if {' or '.join(graph.looks_like_selection)} is selection"


def _collider_text(graph: Graph, w: Candidate) -> str:
    if not w.opened:
        return f"{first_path(())} is opened by {_join(graph.selection)}"
    state = identification.path_status(graph, w.opened[0], graph.selection)
    return f"{w.opened[0].text} is opened at {_join(collider for collider, _ in state.opened_by)}"


def _features_do_not_decide(graph: Graph, _: Candidate) -> Assumption:
    deciding = identification.specification(graph).causal_arrows
    because = arrows_text(deciding) if deciding else _no_arrows(graph.features, [graph.label])
    return Assumption(
        f"the features {_join(graph.features)} do not decide the label {graph.label}",
        not deciding,
        because,
        f"the features decide the label {graph.label}" if deciding else "",
    )


def _no_other_open_path(graph: Graph, w: Candidate) -> Assumption:
    open_paths, label = identification.noncausal_open_paths(graph, past=w.node), graph.label
    other = "other " if w.connected_in_population or identification.specification(graph).well_specified else ""
    return Assumption(
        f"the features {_join(graph.features)} tell the label {label} in no other way without selection",
        not open_paths,
        f"{open_paths[0].text} is open in the population"
        if open_paths
        else f"no {other}path between them is open in the population",
        f"the features tell the label {label} without selection too, by {open_paths[0].text}" if open_paths else "",
    )


def _little_left(graph: Graph, w: Candidate) -> Assumption:
    claim = f"a text that decides the label leaves little of it to {w.node}"
    if not w.connected:
        return Assumption(claim, True, f"{w.node} and {graph.label} are connected through the features alone")
    ways = (*w.open_in_population, *w.opened)
    past = [
        path for path in ways if not any(node in graph.features and node not in path.colliders for node in path.nodes)
    ]
    whatever = " whatever the text says" if past or not ways else ""
    return Assumption(
        claim,
        None,
        f"{first_path(past or ways)} is open in selected data{whatever}; how much comes through is a matter of sizes",
    )


_ASSUMPTIONS: Mapping[str, tuple[Callable[[Graph, Candidate], Assumption], ...]] = {
    DRIFT: (
        _w_causes_features,
        _w_is_not_causal,
        _no_confounding,
        _by_selection,
        _features_do_not_decide,
        _no_other_open_path,
    ),
    SPECIFICATION: (_w_causes_features, _w_is_not_causal, _no_confounding, _by_selection, _little_left),
}


def first_path(ways: Iterable[Path]) -> str:
    """The first of some paths as it is written; where the search for them found none, what there is to say of it."""
    return next((path.text for path in ways), "a path that the search does not reach")


def _is_one_way(path: Path) -> bool:
    return path.is_causal or set(path.signs) == {"<-"}


def _pair(graph: Graph, w: Candidate) -> str:
    return f"{w.node} and {graph.label}"


def _no_arrows(tails: Iterable[str], heads: Iterable[str]) -> str:
    return f"no arrows lead from {_join(tails)} to {_join(heads)}"


def arrows_text(arrows: Iterable[tuple[str, str]], between: str = ", ") -> str:
    """Arrows as they are written, one after the other."""
    return between.join(f"{tail} -> {head}" for tail, head in arrows)


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)
