"""A graph's text: what it says, that it comes back as it was, and one sentence with a place for whatever is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from helpers.file_refusal import assert_refused
from helpers.random_graphs import graphs
from undertow.causal.graph import Graph, read_graph
from undertow.causal.published import published

PUBLISHED = {
    "well-specified": {"W->X", "W->S", "G->S", "G->X", "G->Y", "X->Y"},
    "unspecified": {"W->X", "W->S", "G->S", "G->Y"},
    "access": {"W->Z", "G->Z", "Z->S", "W->X", "Z->X", "X->Y", "G->Y"},
    "access-masked": {"W->Z", "Z->S", "W->X", "Z->X", "X->Y", "Z<->Y"},
}
"""As the papers' texts state them."""


def test_every_kind_of_statement() -> None:
    graph = read_graph(
        """
        # A comment; with a statement in it: A -> B
        W -> X <- Z; Z <-> Y   # and one behind
        G -> [S] <- W; (G) -> Y;; lone
        W: a date,   or a place: both
        [S]: in the data
        """
    )
    assert graph == Graph(
        nodes=("W", "X", "Z", "G", "S", "Y", "lone"),
        arrows=(("W", "X"), ("Z", "X"), ("G", "S"), ("W", "S"), ("G", "Y")),
        shared=(("Z", "Y"),),
        selection=("S",),
        latent=("G",),
        features=("X",),
        label="Y",
        cause="G",
        covariate="W",
        meanings=(("W", "a date, or a place: both"), ("S", "in the data")),
    )
    assert graph.observed == ("W", "X", "Z", "Y", "lone")
    assert graph.text() == (
        "W -> X; Z -> X; G -> S; W -> S; G -> Y; Z <-> Y; (G); [S]; lone\nW: a date, or a place: both\nS: in the data"
    )


@given(graph=graphs())
@settings(max_examples=40)
def test_a_text_comes_back_as_it_was(graph: Graph) -> None:
    again = read_graph(graph.text())
    assert again == graph
    assert again.text() == graph.text()


def test_saying_a_thing_twice_is_saying_it() -> None:
    once = read_graph("X -> Y; Z <-> Y; [S] <- X\nX: text")
    assert read_graph("X -> Y; X -> Y <- X; Z <-> Y; Y <-> Z; X -> [S]; [S]\nX: text\nX:  text") == once


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_papers_graphs(name: str) -> None:
    assert list(published()) == list(PUBLISHED)
    graph = published()[name].graph
    links = {f"{one}->{other}" for one, other in graph.arrows} | {f"{one}<->{other}" for one, other in graph.shared}
    assert links == PUBLISHED[name]
    assert graph.selection == ("S",)
    assert graph.latent == (("Z",) if name.startswith("access") else ())
    assert set(dict(graph.meanings)) == set(graph.nodes)
    assert published()[name].source.startswith("McMilin 20")


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("X -> Y\nW => X", "line 2, 'W => X'", "'=>'"), ("X -> Y; a-b -> Y", "line 1, 'a-b -> Y'", "'-b'"),
        ("X Y", "line 1, 'X Y'", "arrow"), ("X -> Y; W -> X, Z", "'W -> X, Z'", "'W -> X; W -> Z'"),
        ("X -> Y; W -> W", "'W -> W'", "cause"), ("X -> Y\nY -> M\nM -> X", "line 3, 'M -> X'", "X -> Y -> M -> X"),
        ("X -> Y; [S]\nS -> Y", "line 2, 'S -> Y'", "selection"), ("# nothing; at all", "mine.txt", "empty"),
        ("X -> Z", "mine.txt", "label"), ("X -> Y; label Q", "'label Q'", "'Q'"),
        ("X -> Y; label Y\nlabel Y", "line 2, 'label Y'", "earlier statement"),
        ("X -> Y; features X, X", "'features X, X'", "once"), ("X -> Y; features Y", "'features Y'", "label"),
        ("X -> Y; (Y)", "label Y", "latent"), ("Y -> M; X -> Y; cause M", "'cause M'", "M"),
        ("X -> [Y]", "label Y", "selection"), ("X -> Y; covariate X", "'covariate X'", "features"),
        ("X -> Y\nQ: what", "line 2, 'Q: what'", "'Q'"), ("X -> Y; X: a\nX: b", "line 2, 'X: b'", "'a'"),
        ("X -> [S]; (S) -> Y", "'(S) -> Y'", "latent"),
    ],
)  # fmt: skip
def test_text_that_is_no_graph_is_refused_with_its_statement(text: str, place: str, word: str) -> None:
    assert_refused(("mine.txt", place, word), read_graph, text, "mine.txt")
