from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from matplotlib.transforms import Affine2D

from helpers.figure_checks import assert_readable, words
from helpers.random_graphs import graphs
from helpers.sampled_cases import briefly
from undertow.causal.describe import graph_shape
from undertow.causal.graph import Graph, read_graph
from undertow.causal.published import published
from undertow.report.figures.causal_graph import NODE_IN, draw_graph, lay_out
from undertow.report.page_data import Drawing
from undertow.report.style import COLOURS

BLUE, ORANGE, INK = COLOURS[0].lower(), COLOURS[1].lower(), "#444444"
LONG = (
    "birth_date -> text_of_the_biography_that_somebody_wrote; birth_date -> access; (gender_of_the_person) -> access; "
    "access -> [in_wikipedia]; gender_of_the_person -> pronoun; text_of_the_biography_that_somebody_wrote -> pronoun; "
    "access -> text_of_the_biography_that_somebody_wrote; occupation <-> pronoun; occupation -> in_wikipedia; alone; "
    "features text_of_the_biography_that_somebody_wrote; label pronoun; covariate birth_date\n"
    f"access: {'means, standing and luck ' * 12}\nalone: 门, $x$ and <b>"
)
DENSE = (
    "A -> B -> C -> X -> Y; A -> C; A -> X; A -> Y; B -> X; B -> Y; C -> Y; [S] <- A; S <- B; S <- Y; A <-> S; X <-> Y"
)


def figure_of(graph: Graph, title: str = "a graph") -> Drawing:
    return draw_graph(graph_shape(graph), title)


def colours_of(drawing: Drawing) -> list[str]:
    """Of the arrows, in the order of the graph's arrows and then of its shared causes."""
    patches = drawing.figure.axes[0].patches
    return [to_hex(patch.get_edgecolor()) for patch in patches if isinstance(patch, FancyArrowPatch)]


@pytest.mark.parametrize("text", briefly([LONG, DENSE, *(one.graph.text() for one in published().values())], 2))
def test_every_word_can_be_read(text: str) -> None:
    graph = read_graph(text)
    drawing = figure_of(graph, "A title " * 30)
    assert_readable(drawing.figure)
    shown = words(drawing.figure)
    for node in graph.nodes:
        assert node in shown or len(node) > 15
    assert len(drawing.figure.axes[0].texts) == len(graph.nodes)
    said = " ".join(" ".join(shown).split())
    assert all(" ".join(meaning.split()) in said for _, meaning in graph.meanings)


@given(graph=graphs(), data=st.data())
@settings(max_examples=20)
def test_causes_stand_above_and_arrows_touch_no_other_node(graph: Graph, data: st.DataObject) -> None:
    widths = {node: data.draw(st.sampled_from([NODE_IN, 0.8, 1.6])) for node in graph.nodes}
    layout = lay_out(graph_shape(graph), widths)
    for cause, effect in graph.arrows:
        assert layout.centres[cause][1] > layout.centres[effect][1]
    for one, other in combinations(graph.nodes, 2):
        away = np.abs(np.subtract(layout.centres[one], layout.centres[other]))
        assert away[0] >= (widths[one] + widths[other]) / 2 + 0.2 or away[1] >= NODE_IN + 0.2
    assert set(layout.ways) == {("arrow", pair) for pair in graph.arrows} | {("shared", pair) for pair in graph.shared}
    for (_, ends), path in layout.ways.items():
        (way,) = path.transformed(Affine2D().scale(100)).to_polygons(closed_only=False)  # curves break at 1 unit
        way = np.asarray(way) / 100
        for node, centre in layout.centres.items():
            beyond = np.abs(way - centre) - (widths[node] / 2, NODE_IN / 2)
            assert (beyond.max(axis=1) > 0.01).all(), (graph.text(), ends, node)
        for end, point in zip(ends, way[[0, -1]], strict=True):
            away = np.abs(point - layout.centres[end])
            assert away[0] <= widths[end] / 2
            assert away[1] < NODE_IN / 2 + 0.05
        assert (way[:, 0] >= -0.01).all()
        assert (way[:, 0] <= layout.width_in + 0.01).all()
        assert (np.abs(way[:, 1] - layout.height_in / 2 + NODE_IN / 2) <= layout.height_in / 2 + 0.04).all()


def test_colours_tell_the_task_from_what_selection_opens() -> None:
    names = ("well-specified", "unspecified", "access-masked")
    well, un, masked = (figure_of(published()[name].graph) for name in names)
    # W -> X, W -> S, G -> S, G -> X, G -> Y, X -> Y
    assert colours_of(well) == [ORANGE, ORANGE, ORANGE, INK, ORANGE, BLUE]
    assert colours_of(un) == [ORANGE] * 4
    # W -> Z, Z -> S, W -> X, Z -> X, X -> Y, Z <-> Y
    assert colours_of(masked) == [ORANGE, ORANGE, ORANGE, INK, BLUE, ORANGE]
    # From what selection opens, all ways to selection: C -> D -> S and C -> S, but not C -> E.
    below = read_graph("X -> C; Y -> C; C -> D; D -> [S]; C -> S; C -> E")
    assert colours_of(figure_of(below)) == [ORANGE] * 5 + [INK]
    # An arrow and a shared cause of the same two are told apart.
    both = graph_shape(read_graph("X <-> A; X -> A; A -> [S]; Y -> S; A -> X2; X2 -> Y2; features X, X2; label Y"))
    assert both.opened == (("X", "A"), ("A", "S"), ("Y", "S"), ("A", "X2"))
    assert both.opened_shared == (("X", "A"),)


@pytest.mark.parametrize(
    "text", ["W -> Z; Z -> S; W -> X; Z -> X; X -> Y; Z <-> Y", "W -> X; X -> Y; X <-> Y", "W -> X; X -> Y; Y <-> W"]
)
def test_a_shared_cause_of_two_layers_is_drawn_between_them(text: str) -> None:
    """No hairpin above the upper effect: the way stays between the heights of the two."""
    graph = read_graph(text)
    layout = lay_out(graph_shape(graph), dict.fromkeys(graph.nodes, 0.3))
    ((kind, pair),) = [key for key in layout.ways if key[0] == "shared"]
    heights = [layout.centres[node][1] for node in pair]
    way = np.asarray(layout.ways[kind, pair].vertices)
    assert min(heights) <= way[:, 1].min() <= way[:, 1].max() <= max(heights)
    assert (way[0, 1] - way[-1, 1]) * (heights[0] - heights[1]) > 0  # from the first effect to the second
