from __future__ import annotations

import math
from itertools import permutations

import pytest
from scipy.stats import spearmanr

from undertow.metrics.model_scaling import points, relations
from undertow.types import Result

AREAS = {"a": 0.6, "b": 0.7, "c": 0.9, "d": 0.8}
GAPS = {"a": 0.1, "b": -0.4, "c": 0.9, "d": 0.2}


def area(model: str, value: float, **group: str) -> Result:
    return Result("auroc", {"model": model, "set": "s", "score": "entropy"} | group, value)


def gap(model: str, value: float, **group: str) -> Result:
    keys = {"model": model, "challenge": "mgc", "prompt": "", "w_name": "date", "pronoun": "female-male"}
    return Result("slope_gap", keys | group, value)


def measured() -> list[Result]:
    return [area(model, value) for model, value in AREAS.items()] + [gap(model, value) for model, value in GAPS.items()]


def test_a_model_is_one_point() -> None:
    """Several prompts are averaged, as figure 3b of the paper does; other pairs and other W lists are no date drift."""
    results = [
        *measured(),
        area("a", 0.8, prompt="B"),
        gap("a", 0.3, prompt="B"),
        gap("a", 9.0, pronoun="female-neutral"),
        gap("a", 9.0, w_name="place"),
    ]
    found = {point.model: point for point in points([*results, *results], {"a": 5.0})}
    a = found["a"]
    assert (a.set, a.w_name, a.score, a.size) == ("s", "", "entropy", 5.0)
    assert [a.area, a.slope_gap] == pytest.approx([0.7, 0.2])
    assert found["b"].slope_gap == 0.4
    assert math.isnan(found["b"].size)
    assert len(found) == 4


def test_ranks_are_correlated_and_every_order_is_tried() -> None:
    (relation,) = relations(points(measured(), {}))
    assert relation.group == {"set": "s", "w_name": "", "score": "entropy", "against": "slope_gap"}
    x, y = list(AREAS.values()), [abs(value) for value in GAPS.values()]
    assert relation.value == pytest.approx(spearmanr(x, y).statistic)
    as_far = [abs(spearmanr(order, y).statistic) >= abs(relation.value) - 1e-12 for order in permutations(x)]
    assert relation.p == pytest.approx(sum(as_far) / 24)
    assert relation.n == 4


def test_w_lists_are_related_apart_and_sizes_too() -> None:
    results = [area(model, value, w_name=name) for name in ("date", "place") for model, value in AREAS.items()]
    found = list(relations(points(results, {"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0})))
    assert [(one.group["w_name"], one.group["against"], one.value, one.n) for one in found] == [
        ("date", "size", 1.0, 4),
        ("place", "size", 1.0, 4),
    ]


def test_two_models_have_no_rank_correlation() -> None:
    (relation,) = relations(points([area("a", 0.5), area("b", 0.6), gap("a", 1.0), gap("b", 2.0)], {}))
    assert math.isnan(relation.value)
    assert "at least 3 models" in relation.note
