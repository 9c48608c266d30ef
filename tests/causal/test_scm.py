"""Equations: read as they are meant, in any order, refused in one sentence, never run; and the graph that they imply."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.file_refusal import assert_refused
from undertow.causal import example_scms
from undertow.causal.expressions import evaluate, names, read_expression, simplify
from undertow.causal.graph import read_graph
from undertow.causal.scm import MAX_NAMES, StructuralCausalModel, implied_graph

Floats = NDArray[np.float64]

A = np.array([-2.0, 0.0, 0.5, 3.0])
B = np.array([1.0, 0.0, 2.0, 3.0])

BASE = """
G := normal()
S := G > 0
select S
compare G, S
"""


def value(text: str) -> Floats:
    """An expression of a and b, at four pairs of them."""

    def no_noise(_: object) -> Floats:
        raise AssertionError("there is no noise here")

    return np.broadcast_to(evaluate(read_expression(text), {"a": A, "b": B}, no_noise), A.shape)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+a + b * 2 - -a / 4", A + B * 2 + A / 4), ("(a - b) ** 2", (A - B) ** 2), ("1e3", np.full(4, 1000.0)),
        ("exp(a) + sqrt(b) + abs(a)", np.exp(A) + np.sqrt(B) + np.abs(A)), ("log(b + 1)", np.log(B + 1)),
        ("sigmoid(a)", 1 / (1 + np.exp(-A))), ("sigmoid(1000 * a)", [0.0, 0.5, 1.0, 1.0]),
        ("where(a > b, a, 10)", [10.0, 10.0, 10.0, 10.0]), ("where(a, 1, 2)", [1.0, 2.0, 1.0, 1.0]),
        ("min(a, b, 1)", [-2.0, 0.0, 0.5, 1.0]), ("a == b", [0.0, 1.0, 0.0, 1.0]), ("a >= 0", [0.0, 1.0, 1.0, 1.0]),
        ("0 <= a < 3", [0.0, 1.0, 1.0, 0.0]), ("a and b", [1.0, 0.0, 1.0, 1.0]),
        ("a > 0 or b == 0 and not a", [0.0, 1.0, 1.0, 1.0]),
    ],
)  # fmt: skip
def test_an_expression_means_what_it_says(text: str, expected: Floats) -> None:
    assert value(text) == pytest.approx(expected)
    assert value(text).dtype == np.float64


def test_a_division_by_zero_is_no_warning_and_no_number() -> None:
    assert not np.isfinite(value("a / (b - b)")).any()
    assert np.isnan(value("log(a - 100)")).all()


def test_every_noise_is_one_of_its_own() -> None:
    drawn: list[tuple[str, int]] = []

    def draw(noise: object) -> Floats:
        drawn.append((noise.kind, noise.place))  # type: ignore[attr-defined]
        return np.array([0.0, 0.25, 0.75])

    found = evaluate(
        read_expression("normal() + 10 * normal(1, 4) + 100 * uniform(2, 6) + 1000 * bernoulli(0.5)"), {}, draw
    )
    assert drawn == [("normal", 0), ("normal", 1), ("uniform", 2), ("bernoulli", 3)]
    assert list(np.asarray(found)) == [10 + 200 + 1000, 0.25 + 20 + 300 + 1000, 0.75 + 40 + 500]


def test_the_order_of_lines_has_no_meaning() -> None:
    lines = example_scms.text(example_scms.SUM).splitlines()
    one, other = (StructuralCausalModel.from_text("\n".join(some)) for some in (lines, lines[::-1]))
    assert dict(one.cases) == dict(other.cases)
    assert (one.selection, one.pairs) == (other.selection, other.pairs)
    expressions = {name: equation.expression for name, equation in one.variables.items()}
    assert {name: equation.expression for name, equation in other.variables.items()} == expressions
    for model in (one, other):
        placed = list(model.variables)
        for at, name in enumerate(placed):
            assert not {cause for cause in names(expressions[name]) if cause in placed} - set(placed[:at])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("X := __import__('os').system('touch ran')", []), ("X := G if S else 1", ["where"]),
        ("X := nromal()", ["'nromal'", "normal, uniform"]), ("X := normal(1)", ["0 or 2"]),
        ("X := min(G)", ["min", "2 to 20"]), ("X := " + "(" * 400 + "1" + ")" * 400, []),
        ("X := " + "1+" * 400 + "1", ["too deep"]), ("select = 2", ["'select'"]),
        ("b = 1\ncase one: b = 1, b = 2", ["line 7", "twice"]), ("X := X + 1", ["X -> X"]),
        ("X := Z\nZ := 2 * X", ["circle"]), ("X := Gg", ["'Gg'", "did you mean 'G'"]), ("G := 1", ["G", "line 2"]),
        ("b = normal()", ["b := normal()"]), ("select G", ["line 4"]), ("case one: b = 1", ["'b'"]),
        ("b = 1\ncase one: b = G", ["'G'"]), ("b = 1\ncase one: b = 1 / 0", ["inf"]),
        ("b = 1\nc = 1 / b\ncase one: b = 0", ["case", "c"]), ("b = 1\ncase one: b = 1\ncase one: b = 2", ["line 7"]),
        ("b = 1\ncase one: b", ["sets no parameter"]), ("select G\nselect S", ["selects already"]),
        ("compare G", ["pair"]), ("compare G, G", ["itself"]), ("b = 1\ncompare G, b", ["b is a parameter"]),
        ("X :=", ["missing"]), ("X := " + "9" * 400, ["too large"]),
        ("\n".join(f"v{n} := 1" for n in range(MAX_NAMES)), [f"{MAX_NAMES}"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_with_its_line(
    line: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(("mine.scm, line ", *words), StructuralCausalModel.from_text, BASE + line, "mine.scm")
    assert not list(tmp_path.iterdir()), "nothing was run"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("G := normal()\ncompare G, G2\nG2 := 1", "there is no selection"),
        ("G := normal()\nselect G", "there is no comparison"),
        ("", "there is no selection"),
        ("G := normal()\nselect T\nH := 1\ncompare G, H", "no variable 'T'"),
    ],
)
def test_what_is_missing_is_said(text: str, word: str) -> None:
    assert_refused((word,), StructuralCausalModel.from_text, text)


def test_a_setting_that_is_none_is_refused() -> None:
    model = example_scms.load(example_scms.SUM)
    assert_refused(("no parameter 'alhpa'", "did you mean 'alpha'"), model.constants, {"alhpa": 1})
    for number in (math.nan, math.inf):
        assert_refused(("finite",), model.constants, {"alpha": number})


# Graphs.

OF_METHODS = {
    1: {("W", "X"), ("W", "S"), ("G", "S"), ("G", "X"), ("G", "Y"), ("X", "Y")},
    0: {("W", "X"), ("W", "S"), ("G", "S"), ("G", "Y")},
}
"""The graphs of well-specified and unspecified tasks as the papers draw them."""


@pytest.mark.parametrize(("name", "gamma"), list(itertools.product(example_scms.NAMES, OF_METHODS)))
def test_the_papers_equations_imply_the_papers_graphs(name: str, gamma: int) -> None:
    graph = read_graph(implied_graph(example_scms.load(name), {"gamma": gamma}))
    assert set(graph.arrows) == OF_METHODS[gamma]
    assert graph.selection == ("S",)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("zero * G", ()), ("G * (one - 1) + H", ("H",)), ("zero / G", ()), ("G ** zero", ()),
        ("where(one > 2, G, H)", ("H",)), ("where(one, G, H)", ("G",)), ("G and one", ("G",)), ("zero + G", ("G",)),
        ("zero * normal(G, 1) + normal(zero * H, 1)", ()), ("G - G", ("G",)),
    ],
)  # fmt: skip
def test_what_a_parameter_switches_off_is_no_cause(text: str, left: tuple[str, ...]) -> None:
    assert names(simplify(read_expression(text), {"zero": 0.0, "one": 1.0})) == left
