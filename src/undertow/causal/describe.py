"""Describe a graph: in sentences, as JSON-serialisable values, and as the data of its figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import jinja2

from undertow.causal import identification, paths
from undertow.causal.assumptions import DRIFT, SPECIFICATION, arrows_text, assumptions, first_path, selection_hint
from undertow.causal.graph import Arrow, Graph
from undertow.causal.paths import MAX_PATHS, Path

MAX_LISTED_PATHS = MAX_LISTED_INDEPENDENCES = 30
_REVERSED = {"->": "<-", "<-": "->", "<->": "<->"}


@dataclass(frozen=True, slots=True)
class GraphShape:
    """A causal graph to draw.

    Attributes:
        arrows: (cause, effect); no cycles.
        shared: pairs with a latent common cause.
        selection: nodes that are conditioned on, drawn as boxes.
        latent: unobserved nodes, drawn with broken lines.
        features, label: inputs and target of the model, shaded.
        causal_arrows: arrows from the features to the label.
        opened, opened_shared: arrows and shared pairs on paths that selection opens, and arrows from these paths to selection.
    """

    nodes: Sequence[str]
    arrows: Sequence[Arrow]
    shared: Sequence[Arrow] = ()
    selection: Sequence[str] = ()
    latent: Sequence[str] = ()
    features: Sequence[str] = ()
    label: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    causal_arrows: Sequence[Arrow] = ()
    opened: Sequence[Arrow] = ()
    opened_shared: Sequence[Arrow] = ()


def describe_graph(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The output of `undertow graph`: sentences that answer a question about a graph, by title."""
    features, label, selection = ", ".join(graph.features), graph.label, ", ".join(graph.selection)
    words, specification = _sentences(), identification.specification(graph)
    recovery = identification.recoverability(graph)
    opened = [path.text for feature in graph.features for path in paths.opened_by_selection(graph, feature, label)]
    before, after = (paths.d_separated(graph, graph.features, {label}, given) for given in ((), graph.selection))
    is_direct = any(paths.directed_path(graph, label, node) for node in graph.selection)
    by = first_path(recovery.open_paths)
    selecting = words.selection(features, label, selection, before, after, opened, recovery, is_direct, by)
    nothing = f"The graph has no selection: the data are the population{selection_hint(graph)}."
    between = _task_paths(graph)
    between_lines = [*(describe_path(graph, path) for path in between[:MAX_LISTED_PATHS]), *_rest_line(between)]
    candidates = [
        words.candidate(features, label, one, first_path(one.opened), first_path(one.open_in_population))
        for one in identification.covariate_candidates(graph)
    ]
    independences = identification.implied_independences(graph)
    listed = [
        f"{one.one} and {one.other} are independent" + (f" given {', '.join(one.given)}" if one.given else "")
        for one in independences[:MAX_LISTED_INDEPENDENCES]
    ]
    more = len(independences) - len(listed)
    sections = {
        "The task": _task(graph),
        "Specification": [words.specification(features, label, graph.cause, specification)],
        f"Paths from {features} to {label}": between_lines or ["There is none."],
        "What selection does": [selecting if selection else nothing],
        f"P({label} | {features}) from selected data": [
            words.recovery(features, label, selection, recovery, specification.well_specified)
        ],
        "Valid W": candidates,
        f"Independences that {'selected data' if selection else 'data'} must show if the graph is right": [
            *listed,
            *([f"... and {more:,} more"] if more else []),
        ],
    } | {
        f"Assumptions of a finding: {audit}": [
            f"{row.verdict}: {row.claim} ({row.reason})" for row in assumptions(graph, audit)
        ]
        for audit in (DRIFT, SPECIFICATION)
    }
    lines = {
        title: tuple(line for text in texts for line in text.split("\n") if line) for title, texts in sections.items()
    }
    return {title: of for title, of in lines.items() if of}


@cache
def _sentences() -> Any:
    """The macros of `resources/describe.j2`."""
    environment = jinja2.Environment(  # noqa: S701 - plain text
        loader=jinja2.PackageLoader("undertow.causal", "resources"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["arrows"] = arrows_text
    return environment.get_template("describe.j2").module


def describe_path(graph: Graph, path: Path) -> str:
    """Whether a path is open in the population and in selected data, and why."""
    before = paths.path_status(graph, path)
    after = paths.path_status(graph, path, graph.selection)
    if before.is_open:
        return f"{path.text}: open, with selection and without"
    if after.is_open:
        return f"{path.text}: closed in the population; opened by selection {_opening_text(after.opened_by)}"
    if after.opened_by:
        opened = ", ".join(collider for collider, _ in after.opened_by)
        return f"{path.text}: closed at {', '.join(after.closed_at)}, though selection opens {opened}"
    return f"{path.text}: closed at {', '.join(after.closed_at)}, with selection and without"


def describe_separation(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Whether two nodes are independent given others, and every path between them with what opens or closes it.

    Raises:
        UndertowError: a name is no node's, or is given twice.
    """
    apart = paths.d_separated(graph, {one}, {other}, given)
    condition = f" given {', '.join(given)}" if given else ""
    lines = [f"{'Independent: no path between them is open' if apart else 'Dependent: a path between them is open'}."]
    between = paths.paths(graph, one, other)
    for path in between[:MAX_LISTED_PATHS]:
        state = paths.path_status(graph, path, given)
        by = f" {_opening_text(state.opened_by)}" if state.opened_by else ""
        lines.append(f"{path.text}: " + (f"open{by}" if state.is_open else f"closed at {', '.join(state.closed_at)}"))
    return {f"{one} and {other}{condition}": (*lines, *_rest_line(between))}


def separation_json(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> dict[str, Any]:
    """`describe_separation` as JSON-serialisable values.

    Raises:
        UndertowError: a name is no node's, or is given twice.
    """
    return {
        "one": one,
        "other": other,
        "given": list(given),
        "independent": paths.d_separated(graph, {one}, {other}, given),
        "paths": [
            {"path": path.text} | asdict(paths.path_status(graph, path, given))
            for path in paths.paths(graph, one, other)
        ],
    }


def graph_json(graph: Graph) -> dict[str, Any]:
    """The graph and `describe_graph` as JSON-serialisable values."""
    result = identification.recoverability(graph)
    names = ("nodes", "features", "label", "cause", "covariate", "selection", "latent")
    roles = {name: getattr(graph, name) for name in names}
    return {
        "graph": graph.text(),
        **{name: list(value) if isinstance(value, tuple) else value for name, value in roles.items()},
        "meanings": dict(graph.meanings),
        "specification": asdict(identification.specification(graph)),
        "paths": [
            {
                "path": path.text,
                "colliders": list(path.colliders),
                "population": asdict(paths.path_status(graph, path)),
                "selected": asdict(paths.path_status(graph, path, graph.selection)),
            }
            for path in _task_paths(graph)
        ],
        "recoverability": asdict(result) | {"open_paths": [path.text for path in result.open_paths]},
        "candidates": [
            {"qualifies": one.qualifies}
            | asdict(one)
            | {name: [path.text for path in getattr(one, name)] for name in ("open_in_population", "opened")}
            for one in identification.covariate_candidates(graph)
        ],
        "implied": [asdict(one) for one in identification.implied_independences(graph)],
        "assumptions": {audit: [asdict(row) for row in assumptions(graph, audit)] for audit in (DRIFT, SPECIFICATION)},
    }


def graph_shape(graph: Graph) -> GraphShape:
    """The graph to draw."""
    deciding = identification.specification(graph).causal_arrows
    opened = [path for feature in graph.features for path in paths.opened_by_selection(graph, feature, graph.label)]
    steps = {(sign, *pair) for path in opened for sign, pair in zip(path.signs, pairwise(path.nodes), strict=True)}
    colliders = {collider for path in opened for collider in path.colliders}
    steps |= {("->", *arrow) for arrow in paths.arrows_between(graph, colliders, graph.selection)}
    steps |= {(_REVERSED[sign], other, one) for sign, one, other in steps}
    return GraphShape(
        nodes=graph.nodes,
        arrows=graph.arrows,
        shared=graph.shared,
        selection=graph.selection,
        latent=graph.latent,
        features=graph.features,
        label=graph.label,
        meanings=dict(graph.meanings),
        causal_arrows=deciding,
        opened=tuple(arrow for arrow in graph.arrows if ("->", *arrow) in steps and arrow not in deciding),
        opened_shared=tuple(pair for pair in graph.shared if ("<->", *pair) in steps),
    )


def _task(graph: Graph) -> list[str]:
    meanings = dict(graph.meanings)
    roles = {
        "the features": graph.features,
        "the label": (graph.label,),
        "the label's cause": (graph.cause,),
        "varied by an audit": (graph.covariate,),
        "selection: 1 for everything in the data": graph.selection,
        "latent: not recorded": graph.latent,
    }
    meaning_of = {node: [role for role, nodes in roles.items() if node in nodes] for node in graph.nodes}
    meaning_of = {node: [*of, *([meanings[node]] if node in meanings else [])] for node, of in meaning_of.items()}
    return [f"{node}: {'; '.join(of)}" for node, of in meaning_of.items() if of]


def _task_paths(graph: Graph) -> tuple[Path, ...]:
    return tuple(path for feature in graph.features for path in paths.paths(graph, feature, graph.label))


def _rest_line(between: tuple[Path, ...]) -> tuple[str, ...]:
    more = len(between) - MAX_LISTED_PATHS
    if more <= 0:
        return ()
    return (f"... and {more:,} longer ones{' or more' if len(between) >= MAX_PATHS else ''}",)


def _opening_text(opened_by: Iterable[tuple[str, str]]) -> str:
    return "; ".join(
        f"at {collider}" if collider == condition else f"at {collider}, which is a cause of {condition}"
        for collider, condition in opened_by
    )
