"""Drawing of a causal graph in layers, causes above effects, with the role of each arrow.

Layers are the graph's topological generations (networkx); order and positions follow Sugiyama, Tagawa and Toda 1981: an arrow over
several layers has a dummy node in each, so that it passes between the nodes there and not through them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle
from matplotlib.path import Path
from scipy.optimize import isotonic_regression

from undertow.causal.describe import GraphShape
from undertow.report.formatting import plain
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import EDGE_IN, Sheet, fitted, mark, text_width
from undertow.report.style import COLOURS, TEXT_SIZE, current_width, lettering
from undertow.types import Floats

Pair: TypeAlias = tuple[str, str]
Chain: TypeAlias = tuple[str, Pair]
"""An arrow ("arrow", cause and effect) or a shared cause ("shared", its effects)."""
Slot: TypeAlias = Hashable
"""An element of a layer: a node, a shared cause, or the dummy node of an arrow that crosses the layer."""
Point: TypeAlias = tuple[float, float]

_INK, _FAINT, _SHADED = "#444444", "#8a8a8a", "#dcebf5"
_DECIDING, _OPENED = COLOURS[0], COLOURS[1]
_BROKEN = (0, (3, 2))
NODE_IN, _LAYER_IN = 0.30, 0.92
"""Height of a node, and distance between layers."""
_APART_IN, _PASSING_IN = 0.56, 0.22
"""Distances between two nodes of a layer, and beside a crossing arrow."""
_TURN_IN, _PORT_IN = 0.09, 0.10
"""Half the width of an arrow in a layer that it crosses, and distance between the ends of two arrows at one side of a node."""
_BAND_IN = NODE_IN / 2 + 0.03
"""Half the height of a layer; arrows are vertical within it."""
_SWEEPS = 24
_STRAIGHT = {2: 1.0, 1: 2.0, 0: 8.0}
"""Weight of vertical alignment of two slots, by the number of nodes among them: Gansner et al. 1993, section 4.2."""


class _DummyNode(NamedTuple):
    """Dummy node of an arrow in a layer that it crosses."""

    cause: Slot
    effect: str
    level: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of nodes and arrows in inches; y points up and the lowest layer is at 0.

    Attributes:
        ways: path of each arrow, from cause to effect, and of each shared pair, from one effect to the other.
        width_in, height_in: size of the drawing, nodes included; the left edge is at 0.
    """

    centres: Mapping[str, Point]
    ways: Mapping[Chain, Path]
    width_in: float
    height_in: float


def draw_graph(shape: GraphShape, title: str) -> Drawing:
    """Draw a graph, whose title also names its file; the sheet is widened if the layers need it."""
    with lettering("".join([title, *shape.nodes, *shape.meanings.values()])):
        sheet = _draw_sheet(shape, title)
    legend = " ".join(f"{look}: {words}." for there, look, words, _ in _marks(shape) if there)
    effects = {cause: [effect for one, effect in shape.arrows if one == cause] for cause, _ in shape.arrows}
    caption = f"{plain(title)}. Arrows lead from causes to effects. {legend}".strip()
    return Drawing(title, sheet, caption, plain(described("graph", shape, effects)))


def lay_out(shape: GraphShape, widths_in: Mapping[str, float]) -> Layout:
    """Place nodes of these widths, causes above effects, and route arrows around other nodes."""
    net = nx.DiGraph(shape.arrows)
    net.add_nodes_from(shape.nodes)
    net.add_edges_from((("shared", pair), effect) for pair in shape.shared for effect in pair)
    levels: dict[Slot, int] = {}
    for level, generation in enumerate(nx.topological_generations(net)):
        levels |= dict.fromkeys(sorted(generation, key=str), level)
    for slot in [slot for slot in levels if net.out_degree(slot) and not net.in_degree(slot)]:
        levels[slot] = min(levels[effect] for effect in net.successors(slot)) - 1  # right above its first effect

    # Effects of a shared cause on two layers are joined directly: an arc above both would be a hairpin over the upper one.
    slanted = {pair for pair in shape.shared if levels[pair[0]] != levels[pair[1]]}
    levels = {slot: level for slot, level in levels.items() if slot not in {("shared", pair) for pair in slanted}}
    ranks = {level: rank for rank, level in enumerate(sorted({*levels.values()}))}
    levels = {slot: ranks[level] for slot, level in levels.items()}

    def down(cause: Slot, effect: str, name: Slot = None) -> list[Slot]:
        passed = [_DummyNode(name or cause, effect, level) for level in range(levels[cause] + 1, levels[effect])]
        return [cause, *passed, effect]

    chains: dict[Chain, list[Slot]] = {("arrow", arrow): down(*arrow) for arrow in shape.arrows}
    for pair in shape.shared:
        cause = ("shared", pair)
        if pair in slanted:
            upper, lower = sorted(pair, key=lambda effect: levels[effect])
            chains[cause] = down(upper, lower, cause)[:: 1 if upper == pair[0] else -1]
        else:
            chains[cause] = [*reversed(down(cause, pair[0])), *down(cause, pair[1])[1:]]
    stand_ins = {slot: slot.level for chain in chains.values() for slot in chain if isinstance(slot, _DummyNode)}
    layers: list[list[Slot]] = [[] for _ in range(max(levels.values()) + 1)]
    for slot, level in (levels | stand_ins).items():
        layers[level].append(slot)
    steps = nx.Graph(step for chain in chains.values() for step in pairwise(chain))
    steps.add_nodes_from(slot for layer in layers for slot in layer)
    half = {slot: widths_in[slot] / 2 if isinstance(slot, str) else _TURN_IN for layer in layers for slot in layer}
    layers = _ordered(layers, steps)
    across = _across(layers, steps, half)
    left = min(across[slot] - half[slot] for slot in across)
    places = {
        slot: (across[slot] - left, (len(layers) - 1 - level) * _LAYER_IN)
        for level, layer in enumerate(layers)
        for slot in layer
    }
    ports = _ports(chains, places, half)
    return Layout(
        centres={node: places[node] for node in shape.nodes},
        ways={key: _way(chain, places, (ports[key, chain[0]], ports[key, chain[-1]])) for key, chain in chains.items()},
        width_in=max(places[slot][0] + half[slot] for slot in places),
        height_in=(len(layers) - 1) * _LAYER_IN + NODE_IN,
    )


def _ordered(layers: list[list[Slot]], steps: nx.Graph[Slot]) -> list[list[Slot]]:
    """Order each layer for few crossings: by the mean place of its neighbours in the layer before, down and up."""
    best = now = layers
    for sweep in range(_SWEEPS):
        now = [list(layer) for layer in now]
        order = range(1, len(now)) if sweep % 2 == 0 else range(len(now) - 2, -1, -1)
        for level in order:
            turn = {slot: place for place, slot in enumerate(now[level - 1 if sweep % 2 == 0 else level + 1])}
            own = {slot: place for place, slot in enumerate(now[level])}
            near = {slot: [turn[one] for one in steps[slot] if one in turn] for slot in now[level]}
            now[level].sort(key=lambda slot: float(np.mean(near[slot] or [own[slot]])))
        best = min(best, now, key=lambda order: _crossings(order, steps))
    return best


def _crossings(layers: Sequence[Sequence[Slot]], steps: nx.Graph[Slot]) -> int:
    """Count crossings between adjacent layers."""
    at = {slot: (level, place) for level, layer in enumerate(layers) for place, slot in enumerate(layer)}
    sorted_ends = [sorted((at[one], at[other])) for one, other in steps.edges]
    ends = np.array([(*upper, lower[1]) for upper, lower in sorted_ends]).reshape(-1, 3)
    level, upper, lower = ends.T[:, :, None] - ends.T[:, None, :]
    return int(np.count_nonzero((level == 0) & (upper * lower < 0)) // 2)


def _across(layers: Sequence[Sequence[Slot]], steps: nx.Graph[Slot], half: Mapping[Slot, float]) -> dict[Slot, float]:
    """Horizontal position of each slot: near the mean of its neighbours, in the order of its layer, without overlap."""
    rows: list[tuple[Sequence[Slot], Floats]] = []
    across: dict[Slot, float] = {}
    for layer in layers:
        gaps = [
            half[one] + half[other] + (_APART_IN if isinstance(one, str) and isinstance(other, str) else _PASSING_IN)
            for one, other in pairwise(layer)
        ]
        offsets = np.concatenate([[0.0], np.cumsum(gaps)])
        rows.append((layer, offsets))
        across |= dict(zip(layer, (offsets - offsets[-1] / 2).tolist(), strict=True))
    for sweep in range(_SWEEPS):
        for layer, offsets in rows if sweep % 2 == 0 else rows[::-1]:
            pulls = [
                [(across[one], _STRAIGHT[isinstance(slot, str) + isinstance(one, str)]) for one in steps[slot]]
                or [(across[slot], 1.0)]
                for slot in layer
            ]
            weights = np.array([sum(weight for _, weight in pull) for pull in pulls])
            wanted = np.array([sum(weight * at for at, weight in pull) for pull in pulls]) / weights
            # Isotonic regression of the positions: Robertson, Wright and Dykstra 1988, section 1.2.
            settled = isotonic_regression(wanted - offsets, weights=weights).x + offsets
            across |= dict(zip(layer, settled.tolist(), strict=True))
    return across


def _ports(
    chains: Mapping[Chain, Sequence[Slot]], places: Mapping[Slot, Point], half: Mapping[Slot, float]
) -> dict[tuple[Chain, Slot], Point]:
    """End points of the arrows at their nodes: side by side, ordered by direction."""
    sides: dict[tuple[Slot, int], list[tuple[float, Chain]]] = {}
    for key, chain in chains.items():
        for node, beside in ((chain[0], chain[1]), (chain[-1], chain[-2])):
            sides.setdefault((node, _side(places[node], places[beside])), []).append((places[beside][0], key))
    ports = {}
    for (node, side), ends in sides.items():
        apart = min(_PORT_IN, 2 * (half[node] - _TURN_IN) / max(len(ends) - 1, 1))
        for turn, (_, key) in enumerate(sorted(ends)):
            x, y = places[node]
            ports[key, node] = (x + (turn - (len(ends) - 1) / 2) * apart, y + side * _BAND_IN)
    return ports


def _side(of: Point, other: Point) -> int:
    """1 if the other point is above, -1 if it is below."""
    return 1 if other[1] > of[1] else -1


def _way(chain: Sequence[Slot], places: Mapping[Slot, Point], ends: tuple[Point, Point]) -> Path:
    """Curves between layers, vertical lines within crossed layers, and an arc at the place of a shared cause."""
    points, codes = [ends[0]], [Path.MOVETO]

    def curve(to: Point, leaves_upright: bool, arrives_upright: bool) -> None:
        first, last = np.array(points[-1]), np.array(to)
        upright = np.array([0.0, 1.0]) * (last - first) / 2
        leaving = first + (upright if leaves_upright else (last - first) / 3)
        arriving = last - (upright if arrives_upright else (last - first) / 3)
        points.extend([tuple(leaving.tolist()), tuple(arriving.tolist()), to])
        codes.extend([Path.CURVE4] * 3)

    for before, slot, after in zip(chain, chain[1:], chain[2:], strict=False):
        (x, y), enters, leaves = places[slot], _side(places[slot], places[before]), _side(places[slot], places[after])
        turn = _TURN_IN * (-1 if places[before][0] < places[after][0] else 1) if enters == leaves else 0.0
        curve((x + turn, y + enters * _BAND_IN), before is not chain[0], True)
        if turn:
            top = y - enters * 0.33 * _BAND_IN
            points.extend([(x + turn, top), (x - turn, top), (x - turn, y + leaves * _BAND_IN)])
            codes.extend([Path.CURVE4] * 3)
        else:
            points.append((x, y + leaves * _BAND_IN))
            codes.append(Path.LINETO)
    curve(ends[1], len(chain) > 2, False)
    return Path(points, codes)


def _draw_sheet(shape: GraphShape, title: str) -> Sheet:
    name_in = 1.3 if current_width() > 5 else 0.65
    names = {node: fitted(node, name_in, TEXT_SIZE, "bold") for node in shape.nodes}
    widths = {node: max(text_width(name, TEXT_SIZE, "bold") + 0.16, NODE_IN) for node, name in names.items()}
    layout = lay_out(shape, widths)
    foot = [f"{names[node]}: {meaning}" for node, meaning in shape.meanings.items()]
    sheet = Sheet(title, "", foot, width_in=layout.width_in + 2 * EDGE_IN + 0.1)
    sheet.add_key((words, handle) for there, _, words, handle in _marks(shape) if there)
    axes = sheet.add_subplot()
    axes.set_axis_off()
    sheet.finish([axes], layout.height_in + 0.1)
    box = axes.get_position()  # one unit is one inch
    beyond = (box.width * sheet.width_in - layout.width_in) / 2
    low = -NODE_IN / 2 - 0.05
    axes.set(xlim=(-beyond, layout.width_in + beyond), ylim=(low, low + box.height * sheet.get_figheight()))
    for (kind, pair), way in layout.ways.items():
        look: dict[str, Any] = {"color": _INK, "linewidth": 1.1}
        if kind == "arrow" and pair in shape.causal_arrows:
            look = {"color": _DECIDING, "linewidth": 2.0}
        elif pair in (shape.opened if kind == "arrow" else shape.opened_shared):
            look = {"color": _OPENED, "linewidth": 1.6}
        look |= {"joinstyle": "round", "capstyle": "butt", "zorder": 2}
        look |= {"arrowstyle": "<|-|>", "linestyle": _BROKEN} if kind == "shared" else {"arrowstyle": "-|>"}
        axes.add_patch(FancyArrowPatch(path=way, mutation_scale=9, **look))
    for node, centre in layout.centres.items():
        _draw_node(axes, shape, node, centre, widths[node])
        axes.text(*centre, names[node], size=TEXT_SIZE, weight="bold", ha="center", va="center_baseline", zorder=5)
    return sheet


def _draw_node(axes: Axes, shape: GraphShape, node: str, centre: Point, width: float) -> None:
    shade = _SHADED if node in shape.features or node == shape.label else "white"
    look: dict[str, Any] = {"facecolor": shade, "edgecolor": _INK, "linewidth": 1.2, "zorder": 4}
    x, y = centre[0] - width / 2, centre[1] - NODE_IN / 2
    if node in shape.selection:
        axes.add_patch(Rectangle((x, y), width, NODE_IN, **look))
        inner = look | {"facecolor": "none", "linewidth": 0.8}
        axes.add_patch(Rectangle((x + 0.03, y + 0.03), width - 0.06, NODE_IN - 0.06, **inner))
        return
    if node in shape.latent:
        look |= {"edgecolor": _FAINT, "linestyle": _BROKEN}
    axes.add_patch(FancyBboxPatch((x, y), width, NODE_IN, boxstyle=f"round,pad=0,rounding_size={NODE_IN / 2}", **look))


def _marks(shape: GraphShape) -> list[tuple[Any, str, str, Any]]:
    """For each kind of mark: elements that have it, its look in words, its meaning, and the mark."""
    box: dict[str, Any] = {"marker": "s", "linestyle": "none", "markerfacecolor": "white", "markeredgecolor": _INK}
    selection = (mark(markersize=9, **box), mark(markersize=5.5, markeredgewidth=0.8, **box))
    opened = [*shape.opened, *shape.opened_shared]
    shaded, outline = Patch(facecolor=_SHADED, edgecolor=_INK), Patch(facecolor="white", edgecolor=_FAINT, ls=_BROKEN)
    shared = mark(color=_INK, linewidth=1.1, linestyle=_BROKEN)
    deciding, opens = mark(color=_DECIDING, linewidth=2.0), mark(color=_OPENED, linewidth=1.6)
    return [
        (shape.causal_arrows, "Blue", "leads from the features to the label", deciding),
        (opened, "Orange", "on a path that selection opens, or an arrow that opens it", opens),
        (shape.shared, "Broken line between two nodes", "latent common cause", shared),
        ([*shape.features, *filter(None, [shape.label])], "Shaded", "features and label", shaded),
        (shape.selection, "Double box", "selection: only those with 1 are in the data", selection),
        (shape.latent, "Broken outline", "latent: not observed", outline),
    ]
