"""Describe a graph: in sentences, as JSON-serialisable values, and as the data of its figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypedDict

from undertow.causal import identification
from undertow.causal.assumptions import (
    DRIFT,
    SPECIFICATION,
    arrows_text,
    assumptions,
    first_path,
    selection_hint,
)
from undertow.causal.graph import Arrow, Graph
from undertow.causal.identification import Candidate
from undertow.causal.paths import MAX_PATHS, Path

MAX_LISTED_PATHS = MAX_LISTED_INDEPENDENCES = 30
_REVERSED = {"->": "<-", "<-": "->", "<->": "<->"}


class GraphView(TypedDict):
    """What a figure of a graph shows; every arrow is (cause, effect), every shared cause the pair of its effects."""

    nodes: tuple[str, ...]
    arrows: tuple[Arrow, ...]
    shared: tuple[Arrow, ...]
    selection: tuple[str, ...]
    latent: tuple[str, ...]
    features: tuple[str, ...]
    label: str
    meanings: dict[str, str]
    causal_arrows: tuple[Arrow, ...]
    opened: tuple[Arrow, ...]
    opened_shared: tuple[Arrow, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One question about a graph, and its answer in sentences, one a line."""

    title: str
    lines: tuple[str, ...]


def describe_graph(graph: Graph) -> tuple[Section, ...]:
    """Everything that `undertow graph` says of a graph."""
    features, label = _join(graph.features), graph.label
    sections = [
        Section("The task", _task(graph)),
        Section("Specification", _specification(graph)),
        Section(f"Paths from {features} to {label}", _paths(graph)),
        Section("What selection does", _selection(graph)),
        Section(f"P({label} | {features}) from selected data", _recovery(graph)),
        Section(
            "Who can be a W",
            tuple(f"{one.node}: {_candidate(graph, one)}" for one in identification.covariate_candidates(graph)),
        ),
        Section(
            f"What {'selected data' if graph.selection else 'data'} must show if the graph is right",
            _independence_lines(graph),
        ),
    ]
    for audit in (DRIFT, SPECIFICATION):
        rows = tuple(f"{row.verdict}: {row.claim} ({row.reason})" for row in assumptions(graph, audit))
        sections.append(Section(f"What a finding rests on: {audit}", rows))
    return tuple(section for section in sections if section.lines)


def describe_path(graph: Graph, path: Path) -> str:
    """Whether a path is open in the population and in selected data, and why."""
    before = identification.path_status(graph, path)
    after = identification.path_status(graph, path, graph.selection)
    if before.is_open:
        return f"{path.text}: open, with selection and without"
    if after.is_open:
        return f"{path.text}: closed in the population; opened by selection {_opening_text(after.opened_by)}"
    if after.opened_by:
        return f"{path.text}: closed at {_join(after.closed_at)}, though selection opens {_join(c for c, _ in after.opened_by)}"
    return f"{path.text}: closed at {_join(after.closed_at)}, with selection and without"


def describe_separation(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> Section:
    """Whether two nodes are independent given others, and every path between them with what opens or closes it.

    Raises:
        UndertowError: a name is no node's, or stands there twice.
    """
    apart = identification.d_separated(graph, {one}, {other}, given)
    condition = f" given {_join(given)}" if given else ""
    lines = [f"{'Independent: no path between them is open' if apart else 'Dependent: a path between them is open'}."]
    between = identification.paths(graph, one, other)
    for path in between[:MAX_LISTED_PATHS]:
        state = identification.path_status(graph, path, given)
        by = f" {_opening_text(state.opened_by)}" if state.opened_by else ""
        lines.append(f"{path.text}: {f'open{by}' if state.is_open else f'closed at {_join(state.closed_at)}'}")
    return Section(f"{one} and {other}{condition}", (*lines, *_rest_line(between)))


def separation_json(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> dict[str, Any]:
    """`describe_separation` as JSON-serialisable values.

    Raises:
        UndertowError: a name is no node's, or stands there twice.
    """
    return {
        "one": one,
        "other": other,
        "given": list(given),
        "independent": identification.d_separated(graph, {one}, {other}, given),
        "paths": [
            {"path": path.text} | asdict(identification.path_status(graph, path, given))
            for path in identification.paths(graph, one, other)
        ],
    }


def graph_json(graph: Graph) -> dict[str, Any]:
    """The graph and `describe_graph` as JSON-serialisable values."""
    result = identification.recoverability(graph)
    return {
        "graph": graph.text(),
        "nodes": list(graph.nodes),
        "features": list(graph.features),
        "label": graph.label,
        "cause": graph.cause,
        "covariate": graph.covariate,
        "selection": list(graph.selection),
        "latent": list(graph.latent),
        "meanings": dict(graph.meanings),
        "specification": asdict(identification.specification(graph)),
        "paths": [_path_json(graph, path) for path in _task_paths(graph)],
        "recoverability": asdict(result) | {"open_paths": [path.text for path in result.open_paths]},
        "candidates": [_candidate_json(one) for one in identification.covariate_candidates(graph)],
        "implied": [asdict(one) for one in identification.implied_independences(graph)],
        "assumptions": {audit: [asdict(row) for row in assumptions(graph, audit)] for audit in (DRIFT, SPECIFICATION)},
    }


def graph_view(graph: Graph) -> GraphView:
    """The data of the figure: `GraphShape(**graph_view(graph))`."""
    deciding = identification.specification(graph).causal_arrows
    opened = [
        path for feature in graph.features for path in identification.opened_by_selection(graph, feature, graph.label)
    ]
    steps = {(sign, *pair) for path in opened for sign, pair in zip(path.signs, pairwise(path.nodes), strict=True)}
    colliders = {collider for path in opened for collider in path.colliders}
    steps |= {("->", *arrow) for arrow in identification.arrows_between(graph, colliders, graph.selection)}
    steps |= {(_REVERSED[sign], other, one) for sign, one, other in steps}
    return GraphView(
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


def _task(graph: Graph) -> tuple[str, ...]:
    meanings = dict(graph.meanings)
    roles = {
        "the features": graph.features,
        "the label": (graph.label,),
        "the label's cause": (graph.cause,) if graph.cause else (),
        "varied by an audit": (graph.covariate,) if graph.covariate else (),
        "selection: 1 for all that is in the data": graph.selection,
        "latent: nobody recorded it": graph.latent,
    }
    lines = []
    for node in graph.nodes:
        said = [role for role, nodes in roles.items() if node in nodes]
        said += [meanings[node]] if node in meanings else []
        lines += [f"{node}: {'; '.join(said)}"] if said else []
    return tuple(lines)


def _specification(graph: Graph) -> tuple[str, ...]:
    result, label = identification.specification(graph), graph.label
    features = _join(graph.features)
    if result.well_specified:
        lines = [f"Well specified: the features are a cause of the label, by {arrows_text(result.causal_arrows)}."]
    elif result.missing_causal_arrows:
        lines = [
            f"Unspecified: no arrows lead from {features} to {label}. {arrows_text(result.missing_causal_arrows, ' or ')} would specify it."
        ]
    else:
        lines = [
            f"Unspecified: no arrows lead from {features} to {label}, and none can, since {label} causes {features}."
        ]
    if result.label_causes_features:
        lines.append(
            f"But {label} causes a feature, which can tell it all the same: an effect tells its cause, and the definition asks "
            "for causes of the label only."
        )
    if result.backdoor_arrows:
        lines.append(
            f"What the label depends on, {graph.cause}, comes into the features by {arrows_text(result.backdoor_arrows)}."
        )
    elif result.missing_backdoor_arrows:
        lines.append(
            f"What the label depends on, {graph.cause}, does not come into the features; "
            f"{arrows_text(result.missing_backdoor_arrows, ' or ')} would bring it there."
        )
    return tuple(lines)


def _paths(graph: Graph) -> tuple[str, ...]:
    between = _task_paths(graph)
    if not between:
        return ("There is none.",)
    return (*(describe_path(graph, path) for path in between[:MAX_LISTED_PATHS]), *_rest_line(between))


def _task_paths(graph: Graph) -> tuple[Path, ...]:
    return tuple(path for feature in graph.features for path in identification.paths(graph, feature, graph.label))


def _rest_line(between: tuple[Path, ...]) -> tuple[str, ...]:
    more = len(between) - MAX_LISTED_PATHS
    if more <= 0:
        return ()
    return (f"... and {more:,} longer ones{' or more' if len(between) >= MAX_PATHS else ''}",)


def _selection(graph: Graph) -> tuple[str, ...]:
    if not graph.selection:
        return (f"Nothing is selected: the data are the population{selection_hint(graph)}.",)
    features, label = _join(graph.features), graph.label
    before = identification.d_separated(graph, graph.features, {label})
    after = identification.d_separated(graph, graph.features, {label}, graph.selection)
    if before and not after:
        return (
            f"{features} and {label} are independent in the population and dependent in selected data: whatever a model learns "
            f"there of {label} from {features}, selection put it in.",
        )
    if after:
        return (
            f"{features} and {label} are independent in the population, and in selected data too.",
            *_distortion(graph),
        )
    opened = [
        path.text for feature in graph.features for path in identification.opened_by_selection(graph, feature, label)
    ]
    if not opened:
        return (
            f"{features} and {label} are dependent in the population, and selection opens no further path between them.",
            *_distortion(graph),
        )
    ways = f"{'; '.join(opened[:3])}{' and others' if len(opened) > 3 else ''}"
    if identification.recoverability(graph).recoverable:
        return (
            f"{features} and {label} are dependent in the population, and selection opens {ways}. It does not distort P"
            f"({label} | {features}): {features} given, selection and {label} are independent.",
        )
    return (
        f"{features} and {label} are dependent in the population, and selection adds to it by {ways}. How much it distorts is a "
        "matter of sizes, and not of arrows.",
    )


def _distortion(graph: Graph) -> tuple[str, ...]:
    """That selection distorts without opening any path, where it does: it takes labels unevenly, whatever the features are."""
    result, features, label = identification.recoverability(graph), _join(graph.features), graph.label
    if result.recoverable:
        return ()
    selection = _join(graph.selection)
    is_direct = any(identification.directed_path(graph, label, node) for node in graph.selection)
    stays = f"{selection} depends on {label} itself" if is_direct else f"{selection} and {label} stay connected"
    return (
        f"Selection distorts P({label} | {features}) all the same: {features} given, {stays}, by {first_path(result.open_paths)}.",
    )


def _recovery(graph: Graph) -> tuple[str, ...]:
    result, label = identification.recoverability(graph), graph.label
    features, selection = _join(graph.features), _join(graph.selection)
    if not graph.selection:
        return ("Nothing is selected, so nothing is to be recovered.",)
    if result.recoverable:
        return (f"Recoverable from selected data alone: {features} given, {selection} and {label} are independent.",)
    open_ways = "; ".join(path.text for path in result.open_paths[:3])
    lines = [
        f"Not recoverable from selected data alone: {features} given, {selection} and {label} stay connected"
        f"{f', by {open_ways}' if open_ways else ''}."
    ]
    if result.external_covariates is None:
        lines.append("No recorded nodes besides would make it so by averaging over them; other knowledge may.")
    else:
        known = _join(result.external_covariates)
        lines.append(
            f"It is with {known} recorded in the selected data and, beside {features}, in the whole population: average "
            f"P({label} | {features}, {known}, selected) over P({known} | {features})."
        )
    if result.with_label_distribution:
        lines.append(
            f"It is with P({label}) known in the whole population, since {label} given, {selection} and {features} are independent: "
            f"weigh P({features} | {label}, selected) by it."
        )
    if identification.specification(graph).well_specified:
        lines.append(
            "That the task is well specified is another claim: selection may then distort little, and P"
            f"({label} | {features}) is not recoverable all the same."
        )
    return tuple(lines)


def _candidate(graph: Graph, one: Candidate) -> str:
    features, label = _join(graph.features), graph.label
    if one.qualifies:
        return f"qualifies; it causes {features}, and selection alone connects it with {label}, by {first_path(one.opened)}"
    faults = [
        "nobody recorded it" if not one.observed else "",
        f"no arrows lead from it to {features}" if not one.causes_features else "",
        f"it causes {label} past {features}" if one.causes_label else "",
        f"{label} causes it" if one.caused_by_label else "",
    ]
    if one.connected_in_population and not (one.causes_label or one.caused_by_label):
        faults.append(f"it is connected with {label} without any selection, by {first_path(one.open_in_population)}")
    if not one.connected:
        faults.append(f"selection does not connect it with {label}")
    return f"does not qualify: {'; '.join(fault for fault in faults if fault)}"


def _independence_lines(graph: Graph) -> tuple[str, ...]:
    independences = identification.implied_independences(graph)
    more = len(independences) - MAX_LISTED_INDEPENDENCES
    lines = [
        f"{one.one} and {one.other} are independent{f' given {_join(one.given)}' if one.given else ''}"
        for one in independences[:MAX_LISTED_INDEPENDENCES]
    ]
    return (*lines, *([f"... and {more:,} more"] if more > 0 else []))


def _opening_text(opened_by: Iterable[tuple[str, str]]) -> str:
    """Where conditions open a path."""
    return "; ".join(
        f"at {collider}" if collider == condition else f"at {collider}, which is a cause of {condition}"
        for collider, condition in opened_by
    )


def _path_json(graph: Graph, path: Path) -> dict[str, Any]:
    return {
        "path": path.text,
        "colliders": list(path.colliders),
        "population": asdict(identification.path_status(graph, path)),
        "selected": asdict(identification.path_status(graph, path, graph.selection)),
    }


def _candidate_json(one: Candidate) -> dict[str, Any]:
    ways = {name: [path.text for path in getattr(one, name)] for name in ("open_in_population", "opened")}
    return {"qualifies": one.qualifies} | asdict(one) | ways


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)
