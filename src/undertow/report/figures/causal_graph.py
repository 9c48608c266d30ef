"""Drawing of a causal graph in layers, causes above effects, with the role of each arrow.

Layers are the graph's topological generations (networkx); order and positions follow Sugiyama, Tagawa and Toda 1981: an arrow over
several layers has a dummy node in each, so that it passes between the nodes there and not through them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform
from scipy.optimize import isotonic_regression

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import COLOURS, WIDTH_PX, text_width_px
from undertow.report.formatting import plain
from undertow.report.layout import EDGE_PX, TEXT_SIZE, Sheet, height_px
from undertow.report.style import Drawing, lettering
from undertow.types import Floats

Pair: TypeAlias = tuple[str, str]
Chain: TypeAlias = tuple[str, Pair]
"""An arrow ("arrow", cause and effect) or a shared cause ("shared", its effects)."""
Slot: TypeAlias = Hashable
"""What has a place of its own: a node, a shared cause, or an arrow's stand-in in a layer that it passes."""

_INK, _FAINT = "#444444", "#8a8a8a"
_DECIDING, _OPENED = COLOURS[0], COLOURS[1]
_SHADED = "#dcebf5"
_BROKEN = (0, (3, 2))
_KEY_SIZE, _INNER_SIZE = 81.0, 30.0
"""Of a node in the key, and of the inner box of selection there, in square points."""
_NODE_PX, _LAYER_PX = 30.0, 92.0
"""Height of a node, and from one layer to the next."""
_APART_PX, _PASSING_PX = 56.0, 22.0
"""Between two nodes of a layer, and beside an arrow that passes."""
_TURN_PX = 9.0
"""Half of what an arrow takes up in a layer that it passes, or turns in."""
_NAME_PX = 130.0
_AIR_PX = 3.0
"""Between an arrow's end and its node, and at the edges of the whole."""
_BAND_PX = _NODE_PX / 2 + _AIR_PX
"""How far above and below the middle of a layer nodes reach: in there, arrows only go straight up and down."""
_PORT_PX = 10.0
"""Between the ends of two arrows on the same side of a node, where it has the room."""
_SWEEPS = 24
_STRAIGHT = {2: 1.0, 1: 2.0, 0: 8.0}
"""How strongly two slots are to stand above each other, by how many of them are nodes: Gansner et al. 1993, section 4.2."""


class _StandIn(NamedTuple):
    """Dummy node of an arrow in a layer that it crosses."""

    cause: Slot
    effect: str
    level: int


@dataclass(frozen=True, slots=True)
class GraphShape:
    """A causal graph to draw.

    Attributes:
        nodes: their names.
        arrows: (cause, effect); no cycles.
        shared: pairs with a latent common cause.
        selection: nodes that are conditioned on: boxes.
        latent: nodes that nobody recorded: broken lines.
        features, label: what a model is given, and what it predicts: shaded.
        meanings: what nodes mean, in words.
        causal_arrows: arrows from the features to the label.
        opened, opened_shared: arrows and shared pairs on paths that selection opens, and arrows from there to selection.
    """

    nodes: Sequence[str]
    arrows: Sequence[Pair]
    shared: Sequence[Pair] = ()
    selection: Sequence[str] = ()
    latent: Sequence[str] = ()
    features: Sequence[str] = ()
    label: str = ""
    meanings: Mapping[str, str] = field(default_factory=dict)
    causal_arrows: Sequence[Pair] = ()
    opened: Sequence[Pair] = ()
    opened_shared: Sequence[Pair] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of nodes and arrows in pixels; y points up and the lowest layer is at 0.

    Attributes:
        centres: of the nodes.
        ways: of each arrow, from cause to effect, and of each shared pair, from one effect to the other [point, axis].
        width_px, height_px: of all of it, nodes included; the left edge is at 0.
    """

    centres: Mapping[str, tuple[float, float]]
    ways: Mapping[Chain, Floats]
    width_px: float
    height_px: float


def draw_graph(shape: GraphShape, title: str) -> Drawing:
    """Draw a graph.

    Args:
        shape: the graph.
        title: of the figure, and its file's name.

    Returns:
        A drawing 800 pixels wide at 100 dots per inch, wider where the layers need more.

    Raises:
        UndertowError: the graph has no node, an arrow leads to none, or arrows close a cycle.
    """
    _check(shape)
    with lettering("".join([title, *shape.nodes, *shape.meanings.values()])):
        sheet = _drawn(shape, title)
    return Drawing(
        name=title,
        figure=sheet.figure,
        caption=f"{plain(title)}. Arrows lead from causes to effects. {_key_in_words(shape)}".strip(),
        alt=_describe(shape),
    )


def signs_as_boxes(drawing: Drawing) -> str:
    """Return the characters that no installed font has: a PNG shows boxes for them, an SVG uses the reader's fonts."""
    text = "".join(one.get_text() for one in drawing.figure.findobj(Text))
    with lettering(text), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FigureCanvasAgg(drawing.figure).draw()
    lacking = (re.match(r"Glyph (\d+) .*missing from", str(one.message)) for one in caught)
    return "".join(dict.fromkeys(chr(int(code[1])) for code in lacking if code))


def lay_out(shape: GraphShape, widths_px: Mapping[str, float]) -> Layout:
    """Lay out nodes of these widths, causes above effects, with arrows that touch no other node."""
    level_of = _layers(shape)
    chains = _chains(shape, level_of)
    layers, steps = _layered(level_of, chains)
    half = {slot: widths_px[slot] / 2 if isinstance(slot, str) else _TURN_PX for layer in layers for slot in layer}
    layers = _ordered(layers, steps)
    across = _across(layers, steps, half)
    left = min(across[slot] - half[slot] for slot in across)
    height = {slot: (len(layers) - 1 - level) * _LAYER_PX for level, layer in enumerate(layers) for slot in layer}
    places = {slot: (across[slot] - left, height[slot]) for slot in across}
    return Layout(
        centres={node: places[node] for node in shape.nodes},
        ways=_ways(chains, places, half),
        width_px=max(places[slot][0] + half[slot] for slot in places),
        height_px=(len(layers) - 1) * _LAYER_PX + _NODE_PX,
    )


def _check(shape: GraphShape) -> None:
    known = set(shape.nodes)
    strange = {end for pair in (*shape.arrows, *shape.shared) for end in pair} - known
    if not known or strange or not nx.is_directed_acyclic_graph(nx.DiGraph(shape.arrows)):
        what = f"an arrow leads to {min(strange)!r}, which is no node" if strange else "its arrows close a cycle"
        raise UndertowError(f"the graph cannot be drawn: {what if known else 'it has no nodes'}; fix the graph")


# Layers, and what stands in them.


def _layers(shape: GraphShape) -> dict[Slot, int]:
    """Layer of each node and of each shared cause, from the top; a cause of nothing before it stands right above its first effect."""
    net = nx.DiGraph()
    net.add_nodes_from(shape.nodes)
    net.add_edges_from(shape.arrows)
    net.add_edges_from((_cause_of(pair), effect) for pair in shape.shared for effect in pair)
    layers: dict[Slot, int] = {
        slot: level for level, generation in enumerate(nx.topological_generations(net)) for slot in generation
    }
    for slot in layers:
        effects = [layers[effect] for effect in net.successors(slot)]
        if effects and not net.in_degree(slot):
            layers[slot] = min(effects) - 1
    return layers


def _cause_of(pair: Pair) -> Slot:
    return ("shared", pair)


def _chains(shape: GraphShape, layers: Mapping[Slot, int]) -> dict[Chain, list[Slot]]:
    """The slots that each arrow and each shared pair passes, ends included."""

    def down(cause: Slot, effect: str) -> list[Slot]:
        passed = [_StandIn(cause, effect, level) for level in range(layers[cause] + 1, layers[effect])]
        return [cause, *passed, effect]

    chains = {("arrow", (cause, effect)): down(cause, effect) for cause, effect in shape.arrows}
    for one, other in shape.shared:
        cause = _cause_of((one, other))
        chains["shared", (one, other)] = [*reversed(down(cause, one)), *down(cause, other)[1:]]
    return chains


def _layered(
    level_of: Mapping[Slot, int], chains: Mapping[Chain, Sequence[Slot]]
) -> tuple[list[list[Slot]], list[tuple[Slot, Slot]]]:
    """Slots of each layer, and which of neighbouring layers are to be near each other (upper, lower)."""
    stand_ins: dict[Slot, int] = {
        slot: slot.level for chain in chains.values() for slot in chain if isinstance(slot, _StandIn)
    }
    levels = {**level_of, **stand_ins}
    layers: list[list[Slot]] = [[] for _ in range(max(levels.values()) + 1)]
    for slot, level in levels.items():
        layers[level].append(slot)
    steps = [
        (one, other) if levels[one] < levels[other] else (other, one)
        for chain in chains.values()
        for one, other in pairwise(chain)
    ]
    return layers, steps


def _ordered(layers: list[list[Slot]], steps: Sequence[tuple[Slot, Slot]]) -> list[list[Slot]]:
    """Order each layer for few crossings: by the barycentre of neighbours, down and up, then by swaps of adjacent slots."""
    near: dict[Slot, list[Slot]] = {}
    for one, other in steps:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    best = now = [list(layer) for layer in layers]
    for sweep in range(_SWEEPS):
        now = [list(layer) for layer in now]
        levels = range(1, len(now)) if sweep % 2 == 0 else range(len(now) - 2, -1, -1)
        for level in levels:
            beside = now[level - 1] if sweep % 2 == 0 else now[level + 1]
            turn = {slot: place for place, slot in enumerate(beside)}
            now[level].sort(key=_mean_place(near, turn, {slot: place for place, slot in enumerate(now[level])}))
        best = min(best, now, key=lambda order: _crossings(order, steps))
    return _swapped(best, steps)


def _mean_place(
    near: Mapping[Slot, Sequence[Slot]], turn: Mapping[Slot, int], own: Mapping[Slot, int]
) -> Callable[[Slot], float]:
    def mean(slot: Slot) -> float:
        places = [turn[one] for one in near.get(slot, ()) if one in turn]
        return sum(places) / len(places) if places else float(own[slot])

    return mean


def _swapped(layers: list[list[Slot]], steps: Sequence[tuple[Slot, Slot]]) -> list[list[Slot]]:
    fewest, better = _crossings(layers, steps), True
    while better and fewest:
        better = False
        for layer in layers:
            for place in range(len(layer) - 1):
                layer[place : place + 2] = layer[place + 1], layer[place]
                crossings = _crossings(layers, steps)
                if crossings < fewest:
                    fewest, better = crossings, True
                else:
                    layer[place : place + 2] = layer[place + 1], layer[place]
    return layers


def _crossings(layers: Sequence[Sequence[Slot]], steps: Sequence[tuple[Slot, Slot]]) -> int:
    """Count crossings between adjacent layers."""
    at = {slot: (level, place) for level, layer in enumerate(layers) for place, slot in enumerate(layer)}
    ends = np.array([(*at[upper], at[lower][1]) for upper, lower in steps]).reshape(-1, 3)
    level, upper, lower = ends.T[:, :, None] - ends.T[:, None, :]
    return int(np.count_nonzero((level == 0) & (upper * lower < 0)) // 2)


def _across(
    layers: Sequence[Sequence[Slot]], steps: Sequence[tuple[Slot, Slot]], half: Mapping[Slot, float]
) -> dict[Slot, float]:
    """Horizontal position of each slot: near the mean of its neighbours, in the order of its layer, without overlap."""
    near: dict[Slot, list[tuple[Slot, float]]] = {slot: [] for layer in layers for slot in layer}
    for one, other in steps:
        weight = _STRAIGHT[isinstance(one, str) + isinstance(other, str)]
        near[one].append((other, weight))
        near[other].append((one, weight))
    rows = [(layer, _offsets(layer, half)) for layer in layers]
    across = {
        slot: float(at - offsets[-1] / 2) for layer, offsets in rows for slot, at in zip(layer, offsets, strict=True)
    }
    for sweep in range(_SWEEPS):
        for layer, offsets in rows if sweep % 2 == 0 else rows[::-1]:
            pulls = [near[slot] or [(slot, 1.0)] for slot in layer]
            weights = np.array([sum(weight for _, weight in pull) for pull in pulls])
            wanted = np.array([sum(weight * across[one] for one, weight in pull) for pull in pulls]) / weights
            # The nearest places in this order with these gaps: Robertson, Wright and Dykstra 1988, section 1.2.
            settled = isotonic_regression(wanted - offsets, weights=weights).x + offsets
            across.update({slot: float(at) for slot, at in zip(layer, settled, strict=True)})
    return across


def _offsets(layer: Sequence[Slot], half: Mapping[Slot, float]) -> Floats:
    """Minimum distance of each slot of a layer from the first [slot]."""
    gaps = [
        half[one] + half[other] + (_APART_PX if isinstance(one, str) and isinstance(other, str) else _PASSING_PX)
        for one, other in pairwise(layer)
    ]
    return np.concatenate([[0.0], np.cumsum(gaps)])


# Ways: curves between the layers, straight up and down within them.


def _ways(
    chains: Mapping[Chain, Sequence[Slot]], places: Mapping[Slot, tuple[float, float]], half: Mapping[Slot, float]
) -> dict[Chain, Floats]:
    """The points of each arrow, close to each other [point, axis]."""
    ports = _ports(chains, places, half)
    return {key: np.concatenate([*_pieces(key, chain, places, ports)]) for key, chain in chains.items()}


def _ports(
    chains: Mapping[Chain, Sequence[Slot]], places: Mapping[Slot, tuple[float, float]], half: Mapping[Slot, float]
) -> dict[tuple[Chain, Slot], tuple[float, float]]:
    """End points of the arrows at their nodes: side by side, ordered by direction."""
    sides: dict[tuple[Slot, bool], list[tuple[float, Chain]]] = {}
    for key, chain in chains.items():
        for node, beside in ((chain[0], chain[1]), (chain[-1], chain[-2])):
            is_above = places[beside][1] > places[node][1]
            sides.setdefault((node, is_above), []).append((places[beside][0], key))
    ports = {}
    for (node, is_above), ends in sides.items():
        room = 2 * half[node] - 2 * _TURN_PX
        apart = min(_PORT_PX, room / max(len(ends) - 1, 1))
        x, y = places[node]
        for turn, (_, key) in enumerate(sorted(ends)):
            shift = (turn - (len(ends) - 1) / 2) * apart
            ports[key, node] = (x + shift, y + (_BAND_PX if is_above else -_BAND_PX))
    return ports


def _pieces(
    key: Chain,
    chain: Sequence[Slot],
    places: Mapping[Slot, tuple[float, float]],
    ports: Mapping[tuple[Chain, Slot], tuple[float, float]],
) -> Iterator[Floats]:
    """Curves between the layers, with what joins them within a layer in between."""
    at, is_upright = ports[key, chain[0]], False
    for before, slot, after in zip(chain, chain[1:], chain[2:], strict=False):
        x, y = places[slot]
        from_above, to_above = places[before][1] > y, places[after][1] > y
        turn = _TURN_PX * (-1 if places[before][0] < places[after][0] else 1) if from_above == to_above else 0.0
        enters = (x + turn, y + (_BAND_PX if from_above else -_BAND_PX))
        leaves = (x - turn, y + (_BAND_PX if to_above else -_BAND_PX))
        yield _curve(at, enters, is_upright, True)
        if turn:
            # At the top, half an ellipse: up, over and down again.
            angle = np.linspace(0, np.pi, 24)
            yield np.stack([x + turn * np.cos(angle), enters[1] + _BAND_PX * np.sin(angle)], axis=1)
        at, is_upright = leaves, True
    yield _curve(at, ports[key, chain[-1]], is_upright, False)


def _curve(start: tuple[float, float], end: tuple[float, float], leaves_upright: bool, arrives_upright: bool) -> Floats:
    """Points of a monotone cubic Bezier curve, vertical at the requested ends."""
    first, last = np.array(start), np.array(end)
    upright = np.array([0.0, 1.0]) * (last - first) / 2
    leaving = first + (upright if leaves_upright else (last - first) / 3)
    arriving = last - (upright if arrives_upright else (last - first) / 3)
    share = np.linspace(0, 1, 40)[:, None]
    return np.asarray(
        (1 - share) ** 3 * first
        + 3 * (1 - share) ** 2 * share * leaving
        + 3 * (1 - share) * share**2 * arriving
        + share**3 * last
    )


# Ink.


def _drawn(shape: GraphShape, title: str) -> Sheet:
    measured = Sheet(title, "")
    names = {node: measured.fit(plain(node), _NAME_PX, TEXT_SIZE, "bold") for node in shape.nodes}
    widths = {node: max(text_width_px(measured.figure, name, TEXT_SIZE) + 16, _NODE_PX) for node, name in names.items()}
    layout = lay_out(shape, widths)
    foot = [f"{names[node]}: {meaning}" for node, meaning in shape.meanings.items()]
    sheet = Sheet(title, "", foot, width_px=max(WIDTH_PX, layout.width_px + 2 * EDGE_PX))
    entries = _key(shape)
    legend = sheet.legend(entries, columns=2) if entries else None
    legend_px = height_px(legend) + 14 if legend else 0.0
    top = sheet.settle(layout.height_px + 2 * _AIR_PX + legend_px + 12)
    wide, high = layout.width_px + 2 * _AIR_PX, layout.height_px + 2 * _AIR_PX
    axes = sheet.axes((sheet.width_px - wide) / 2, top - high, wide, high)
    axes.set(xlim=(-_AIR_PX, wide - _AIR_PX), ylim=(-_BAND_PX, high - _BAND_PX), xticks=[], yticks=[])
    axes.set_axis_off()
    for (kind, pair), way in layout.ways.items():
        _draw_way(axes, way, kind, _look(shape, kind, pair))
    for node, (x, y) in layout.centres.items():
        _draw_node(axes, shape, node, (x, y, widths[node]))
        axes.text(x, y, names[node], size=TEXT_SIZE, weight="bold", ha="center", va="center_baseline", zorder=5)
    if legend:
        sheet.put(legend, EDGE_PX, top - high - 12)
    return sheet


class _Style(NamedTuple):
    colour: str
    width: float


def _look(shape: GraphShape, kind: str, pair: Pair) -> _Style:
    if kind == "arrow" and pair in shape.causal_arrows:
        return _Style(_DECIDING, 2.0)
    opened = shape.opened if kind == "arrow" else shape.opened_shared
    return _Style(_OPENED, 1.6) if pair in opened else _Style(_INK, 1.1)


def _draw_way(axes: Axes, way: Floats, kind: str, look: _Style) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=Path(way),
            arrowstyle="<|-|>" if kind == "shared" else "-|>",
            mutation_scale=9,
            color=look.colour,
            linewidth=look.width,
            linestyle=_BROKEN if kind == "shared" else "-",
            joinstyle="round",
            capstyle="butt",
            zorder=2,
        )
    )


def _draw_node(axes: Axes, shape: GraphShape, node: str, place: tuple[float, float, float]) -> None:
    x, y, width = place
    look: dict[str, Any] = {"facecolor": _shade(shape, node), "edgecolor": _INK, "linewidth": 1.2, "zorder": 4}
    corner = (x - width / 2, y - _NODE_PX / 2)
    if node in shape.selection:
        axes.add_patch(Rectangle(corner, width, _NODE_PX, **look))
        axes.add_patch(
            Rectangle(
                (corner[0] + 3, corner[1] + 3),
                width - 6,
                _NODE_PX - 6,
                **(look | {"facecolor": "none", "linewidth": 0.8}),
            )
        )
        return
    if node in shape.latent:
        look |= {"edgecolor": _FAINT, "linestyle": _BROKEN}
    rounded = f"round,pad=0,rounding_size={_NODE_PX / 2}"
    axes.add_patch(FancyBboxPatch(corner, width, _NODE_PX, boxstyle=rounded, mutation_aspect=1, **look))


def _shade(shape: GraphShape, node: str) -> str:
    return _SHADED if node in shape.features or node == shape.label else "#ffffff"


# Words.


def _key(shape: GraphShape) -> dict[str, Any]:
    """Legend entries of the styles in the figure."""
    entries: dict[str, tuple[Sequence[Any], Any]] = {
        "leads from the features to the label": (shape.causal_arrows, Line2D([], [], color=_DECIDING, linewidth=2.0)),
        "on a path that selection opens, or what opens it": (
            [*shape.opened, *shape.opened_shared],
            Line2D([], [], color=_OPENED, linewidth=1.6),
        ),
        "latent common cause": (shape.shared, Line2D([], [], color=_INK, linewidth=1.1, linestyle=_BROKEN)),
        "features and label": ([*shape.features, *filter(None, [shape.label])], _outline("o", facecolors=_SHADED)),
        "selection: only those with 1 are in the data": (
            shape.selection,
            (_outline("s"), _outline("s", _INNER_SIZE, linewidths=0.8)),
        ),
        "latent: nobody recorded it": (shape.latent, _outline("o", edgecolors=_FAINT, linestyles=[_BROKEN])),
    }
    return {words: handle for words, (there, handle) in entries.items() if there}


def _outline(marker: str, size: float = _KEY_SIZE, **look: Any) -> PathCollection:
    """Legend marker of a node; a scatter marker can have a dashed edge."""
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform())
    look = {"facecolors": "white", "edgecolors": _INK, "linewidths": 1.2, "transform": IdentityTransform()} | look
    return PathCollection([path], [size], **look)  # the size is in points already, as `Axes.scatter` has it


def _key_in_words(shape: GraphShape) -> str:
    said = {
        "Blue: the way of the features to the label.": shape.causal_arrows,
        "Orange: paths that selection opens, and the way from there to selection.": [
            *shape.opened,
            *shape.opened_shared,
        ],
        "Broken line between two nodes: a latent common cause.": shape.shared,
        "Double box: selection.": shape.selection,
        "Broken outline: latent.": shape.latent,
    }
    return " ".join(words for words, there in said.items() if there)


def _describe(shape: GraphShape) -> str:
    arrows = [
        f"{cause} causes {_and(effect for one, effect in shape.arrows if one == cause)}." for cause in _causes(shape)
    ]
    shared = [f"{one} and {other} have a latent common cause." for one, other in shape.shared]
    chosen = [f"Only those with {_and(shape.selection)} = 1 are in the data."] if shape.selection else []
    return plain(" ".join(["A causal graph.", *arrows, *shared, *chosen]))


def _causes(shape: GraphShape) -> Iterable[str]:
    return dict.fromkeys(cause for cause, _ in shape.arrows)


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
