"""Random small graphs, for tests of what must hold for every graph."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from undertow.causal.graph import Graph, read_graph

NAMES = ("X", "Y", "G", "W", "A")


@st.composite
def graphs(draw: st.DrawFn, *, latent: bool = True) -> Graph:
    """A graph of five nodes or fewer besides selection, in any causal order, some latent, some with a shared cause."""
    order = draw(st.permutations(NAMES[: draw(st.integers(2, len(NAMES)))]))
    pairs = list(combinations(order, 2))
    statements = [f"{one} -> {other}" for one, other in pairs if draw(st.integers(0, 2)) == 0]
    statements += [f"{one} <-> {other}" for one, other in pairs if draw(st.integers(0, 5)) == 0]
    chosen = [name for name in order if draw(st.booleans())]
    statements += [f"{name} -> [S]" for name in chosen]
    statements += [f"({name})" for name in order if name not in "XY" and latent and draw(st.integers(0, 4)) == 0]
    statements += list(order)
    return read_graph("; ".join(statements))
