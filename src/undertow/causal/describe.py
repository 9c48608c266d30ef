"""What is told of a graph: in sentences, as plain values for machines, and as the plain values that its figure is drawn from.

Knows graphs and what follows from them; knows nothing about terminals, pages or ink.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypedDict

from undertow.causal import identification
from undertow.causal.assumptions import (
    DRIFT,
    SPECIFICATION,
    Assumption,
    arrows_text,
    assumptions,
    example,
    selection_hint,
)
from undertow.causal.graph import Arrow, Graph
from undertow.causal.identification import Candidate
from undertow.causal.paths import MAX_PATHS, Path

MAX_LISTED_PATHS = MAX_LISTED_INDEPENDENCES = 30
_TURNED = {"->": "<-", "<-": "->", "<->": "<->"}
GRANTED = {True: "granted", False: "not granted", None: "not for a graph to say"}


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
    deciding: tuple[Arrow, ...]
    opened: tuple[Arrow, ...]
    opened_shared: tuple[Arrow, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One question about a graph, and its answer in sentences, one a line."""

    title: str
    lines: tuple[str, ...]


def in_words(graph: Graph) -> tuple[Section, ...]:
    """Everything that `undertow graph` says of a graph."""
    features, label = _list(graph.features), graph.label
    sections = [
        Section("The task", _task(graph)),
        Section("Specification", _specification(graph)),
        Section(f"Paths from {features} to {label}", _paths(graph)),
        Section("What selection does", _selection(graph)),
        Section(f"P({label} | {features}) from selected data", _recovery(graph)),
        Section("Who can be a W", _candidates(graph)),
        Section(
            f"What {'selected data' if graph.selection else 'data'} must show if the graph is right", _implied(graph)
        ),
    ]
    for audit in (DRIFT, SPECIFICATION):
        sections.append(Section(f"What a finding rests on: {audit}", _granted(assumptions(graph, audit))))
    return tuple(section for section in sections if section.lines)


def path_in_words(graph: Graph, path: Path) -> str:
    """Whether a path is open in the population and in selected data, and why."""
    before = identification.standing(graph, path)
    after = identification.standing(graph, path, graph.selection)
    if before.is_open:
        return f"{path.text}: open, with selection and without"
    if after.is_open:
        return f"{path.text}: closed in the population; opened by selection {_opened_at(after.opened_by)}"
    if after.opened_by:
        return f"{path.text}: closed at {_list(after.closed_at)}, though selection opens {_list(c for c, _ in after.opened_by)}"
    return f"{path.text}: closed at {_list(after.closed_at)}, with selection and without"


def separation_in_words(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> Section:
    """Whether two nodes are independent given others, and every path between them with what opens or closes it.

    Raises:
        UndertowError: a name is no node's, or stands there twice.
    """
    apart = identification.separated(graph, {one}, {other}, given)
    condition = f" given {_list(given)}" if given else ""
    lines = [f"{'Independent: no path between them is open' if apart else 'Dependent: a path between them is open'}."]
    between = identification.paths(graph, one, other)
    for path in between[:MAX_LISTED_PATHS]:
        state = identification.standing(graph, path, given)
        by = f" {_opened_at(state.opened_by)}" if state.opened_by else ""
        lines.append(f"{path.text}: {f'open{by}' if state.is_open else f'closed at {_list(state.closed_at)}'}")
    return Section(f"{one} and {other}{condition}", (*lines, *_left_out(between)))


def separation_as_plain(graph: Graph, one: str, other: str, given: tuple[str, ...]) -> dict[str, Any]:
    """The same as JSON has it.

    Raises:
        UndertowError: a name is no node's, or stands there twice.
    """
    return {
        "one": one,
        "other": other,
        "given": list(given),
        "independent": identification.separated(graph, {one}, {other}, given),
        "paths": [
            {"path": path.text} | asdict(identification.standing(graph, path, given))
            for path in identification.paths(graph, one, other)
        ],
    }


def as_plain(graph: Graph) -> dict[str, Any]:
    """The same as `in_words` says, and the graph, as JSON has it."""
    return {
        "graph": graph.text(),
        "nodes": list(graph.nodes),
        "features": list(graph.features),
        "label": graph.label,
        "cause": graph.cause,
        "varied": graph.varied,
        "selection": list(graph.selection),
        "latent": list(graph.latent),
        "meanings": dict(graph.meanings),
        "specification": asdict(identification.specification(graph)),
        "paths": [_plain_path(graph, path) for path in _task_paths(graph)],
        "recoverability": _plain_recovery(graph),
        "candidates": [_plain_candidate(one) for one in identification.candidates(graph)],
        "implied": [asdict(one) for one in identification.implied(graph)],
        "assumptions": {audit: [asdict(row) for row in assumptions(graph, audit)] for audit in (DRIFT, SPECIFICATION)},
    }


def graph_view(graph: Graph) -> GraphView:
    """What a figure of the graph shows: `report.graph.GraphShape(**drawn(graph))`."""
    deciding = identification.specification(graph).deciding
    opened = [
        path for feature in graph.features for path in identification.opened_by_selection(graph, feature, graph.label)
    ]
    steps = {(sign, *pair) for path in opened for sign, pair in zip(path.signs, pairwise(path.nodes), strict=True)}
    colliders = {collider for path in opened for collider in path.colliders}
    steps |= {("->", *arrow) for arrow in identification.arrows_between(graph, colliders, graph.selection)}
    steps |= {(_TURNED[sign], other, one) for sign, one, other in steps}
    return GraphView(
        nodes=graph.nodes,
        arrows=graph.arrows,
        shared=graph.shared,
        selection=graph.selection,
        latent=graph.latent,
        features=graph.features,
        label=graph.label,
        meanings=dict(graph.meanings),
        deciding=deciding,
        opened=tuple(arrow for arrow in graph.arrows if ("->", *arrow) in steps and arrow not in deciding),
        opened_shared=tuple(pair for pair in graph.shared if ("<->", *pair) in steps),
    )


def _task(graph: Graph) -> tuple[str, ...]:
    meanings = dict(graph.meanings)
    roles = {
        "the features": graph.features,
        "the label": (graph.label,),
        "the label's cause": (graph.cause,) if graph.cause else (),
        "varied by an audit": (graph.varied,) if graph.varied else (),
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
    features = _list(graph.features)
    if result.well_specified:
        lines = [f"Well specified: the features are a cause of the label, by {arrows_text(result.deciding)}."]
    elif result.missing:
        lines = [
            f"Unspecified: no arrows lead from {features} to {label}. {arrows_text(result.missing, ' or ')} would specify it."
        ]
    else:
        lines = [
            f"Unspecified: no arrows lead from {features} to {label}, and none can, since {label} causes {features}."
        ]
    if result.label_tells:
        lines.append(
            f"But {label} causes a feature, which can tell it all the same: an effect tells its cause, and the definition asks "
            "for causes of the label only."
        )
    if result.informing:
        lines.append(
            f"What the label depends on, {graph.cause}, comes into the features by {arrows_text(result.informing)}."
        )
    elif result.missing_informing:
        lines.append(
            f"What the label depends on, {graph.cause}, does not come into the features; {arrows_text(result.missing_informing, ' or ')}"
            " would bring it there."
        )
    return tuple(lines)


def _paths(graph: Graph) -> tuple[str, ...]:
    between = _task_paths(graph)
    if not between:
        return ("There is none.",)
    return (*(path_in_words(graph, path) for path in between[:MAX_LISTED_PATHS]), *_left_out(between))


def _task_paths(graph: Graph) -> tuple[Path, ...]:
    return tuple(path for feature in graph.features for path in identification.paths(graph, feature, graph.label))


def _left_out(between: tuple[Path, ...]) -> tuple[str, ...]:
    more = len(between) - MAX_LISTED_PATHS
    if more <= 0:
        return ()
    return (f"... and {more:,} longer ones{' or more' if len(between) >= MAX_PATHS else ''}",)


def _selection(graph: Graph) -> tuple[str, ...]:
    if not graph.selection:
        return (f"Nothing is selected: the data are the population{selection_hint(graph)}.",)
    features, label = _list(graph.features), graph.label
    before = identification.separated(graph, graph.features, {label})
    after = identification.separated(graph, graph.features, {label}, graph.selection)
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
    result, features, label = identification.recoverability(graph), _list(graph.features), graph.label
    if result.recoverable:
        return ()
    selection = _list(graph.selection)
    is_direct = any(identification.directed_path(graph, label, node) for node in graph.selection)
    stays = f"{selection} depends on {label} itself" if is_direct else f"{selection} and {label} stay connected"
    return (
        f"Selection distorts P({label} | {features}) all the same: {features} given, {stays}, by {example(result.left_open)}.",
    )


def _recovery(graph: Graph) -> tuple[str, ...]:
    result, label = identification.recoverability(graph), graph.label
    features, selection = _list(graph.features), _list(graph.selection)
    if not graph.selection:
        return ("Nothing is selected, so nothing is to be recovered.",)
    if result.recoverable:
        return (f"Recoverable from selected data alone: {features} given, {selection} and {label} are independent.",)
    open_ways = "; ".join(path.text for path in result.left_open[:3])
    lines = [
        f"Not recoverable from selected data alone: {features} given, {selection} and {label} stay connected"
        f"{f', by {open_ways}' if open_ways else ''}."
    ]
    if result.with_known is None:
        lines.append("No recorded nodes besides would make it so by averaging over them; other knowledge may.")
    else:
        known = _list(result.with_known)
        lines.append(
            f"It is with {known} recorded in the selected data and, beside {features}, in the whole population: average "
            f"P({label} | {features}, {known}, selected) over P({known} | {features})."
        )
    if result.with_label_shares:
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


def _candidates(graph: Graph) -> tuple[str, ...]:
    return tuple(f"{one.node}: {_candidate(graph, one)}" for one in identification.candidates(graph))


def _candidate(graph: Graph, one: Candidate) -> str:
    features, label = _list(graph.features), graph.label
    if one.qualifies:
        return (
            f"qualifies; it causes {features}, and selection alone connects it with {label}, by {example(one.opened)}"
        )
    faults = [
        "nobody recorded it" if not one.observed else "",
        f"no arrows lead from it to {features}" if not one.causes_features else "",
        f"it causes {label} past {features}" if one.causes_label else "",
        f"{label} causes it" if one.caused_by_label else "",
    ]
    if one.connected_before and not (one.causes_label or one.caused_by_label):
        faults.append(f"it is connected with {label} without any selection, by {example(one.open_before)}")
    if not one.connected:
        faults.append(f"selection does not connect it with {label}")
    return f"does not qualify: {'; '.join(fault for fault in faults if fault)}"


def _implied(graph: Graph) -> tuple[str, ...]:
    independences = identification.implied(graph)
    more = len(independences) - MAX_LISTED_INDEPENDENCES
    lines = [
        f"{one.one} and {one.other} are independent{f' given {_list(one.given)}' if one.given else ''}"
        for one in independences[:MAX_LISTED_INDEPENDENCES]
    ]
    return (*lines, *([f"... and {more:,} more"] if more > 0 else []))


def _granted(rows: Iterable[Assumption]) -> tuple[str, ...]:
    return tuple(f"{GRANTED[row.holds]}: {row.claim} ({row.because})" for row in rows)


def _opened_at(opened_by: Iterable[tuple[str, str]]) -> str:
    """Where conditions open a path."""
    return "; ".join(
        f"at {collider}" if collider == condition else f"at {collider}, which is a cause of {condition}"
        for collider, condition in opened_by
    )


def _plain_path(graph: Graph, path: Path) -> dict[str, Any]:
    return {
        "path": path.text,
        "colliders": list(path.colliders),
        "population": asdict(identification.standing(graph, path)),
        "selected": asdict(identification.standing(graph, path, graph.selection)),
    }


def _plain_recovery(graph: Graph) -> dict[str, Any]:
    result = identification.recoverability(graph)
    return asdict(result) | {"left_open": [path.text for path in result.left_open]}


def _plain_candidate(one: Candidate) -> dict[str, Any]:
    ways = {name: [path.text for path in getattr(one, name)] for name in ("open_before", "opened")}
    return {"qualifies": one.qualifies} | asdict(one) | ways


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
