"""Equality first: what counts as the same numbers, answers and labels."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_ins import written

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # scripts beside each other, not a package

from gate import ANSWERS, CHOICES, END, FILLED_MASKS, LIKELIHOODS, Agreement, Chosen, Gate, Written
from undertow.types import UndertowError


def test_equal_numbers_pass_with_their_difference() -> None:
    agreed = LIKELIHOODS.require([(-1.0, -2.0), (-3.0,)], [(-1.0, -2.001), (-3.0,)], "a peer")
    assert agreed.difference == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "other",
    [
        [(-1.0, -2.0 - 1.1 * LIKELIHOODS.tolerance), (-3.0,)],
        [(-1.0, -2.0), (3.0,)],
        [(-1.0, math.nan), (-3.0,)],
        [(-1.0, -math.inf), (-3.0,)],
        [(-1.0,), (-3.0,)],
        [(-1.0, -2.0), ()],
        [(-1.0, -2.0)],
    ],
)
def test_unequal_or_missing_numbers_are_refused(other: list[tuple[float, ...]]) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported"):
        LIKELIHOODS.require([(-1.0, -2.0), (-3.0,)], other, "a peer")


@pytest.mark.parametrize("numbers", [[(), ()], []])
def test_two_contenders_without_numbers_are_not_equal(numbers: list[tuple[float, ...]]) -> None:
    assert LIKELIHOODS.compare(numbers, numbers).difference == math.inf
    assert ANSWERS.compare([written()] * len(numbers), [written()] * len(numbers)).difference == math.inf


def test_masks_and_prompts_are_held_to_a_tenth_of_a_thousandth() -> None:
    assert FILLED_MASKS.tolerance == ANSWERS.tolerance == 1e-4


def test_equal_answers_pass_with_their_difference() -> None:
    agreed = ANSWERS.require(
        [written(" she", "."), written()], [written(" she", ".", prob=0.50005), written()], "a peer"
    )
    assert agreed.difference == pytest.approx(5e-5)
    assert agreed.n_ties == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (written(" she", ".", prob=0.5002), "is off by up to 0.0002"),
        (written(" she", ".", prob=math.nan), "is missing numbers"),
        (replace(written(" she", "."), step_probs=((0.5,), (0.5, 0.1))), "is missing numbers"),
        (replace(written(" she", "."), probs=(0.6,)), "is off by up to 0.1"),
        (replace(written(" she", "."), text="She."), "the same tokens make another text"),
        (written(" she", "!"), "answer 1: writes '!' at step 2, where the engine writes '.'"),
        (written(" she", "!", ties=((" she",), ("!", "?"))), "writes '!' at step 2"),
        (written(" she"), "ends at step 2"),
        (written(" she", ties=((" she",), (END,))), "ends at step 2"),
        (written(" she", ".", " "), "writes ' ' at step 3"),
    ],
)
def test_unequal_answers_are_refused(other: Written, why: str) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported") as refused:
        ANSWERS.require([written(" she", ".")], [other], "a peer")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "other",
    [
        written(" she", "!", ties=((" she",), (".", "!"))),
        written(" she", "!", " and", " so", ties=((" she",), ("!", "."), (" and",), (" so",))),
        written(" she", ties=((" she",), (END, "."))),
    ],
)
def test_a_tie_may_go_either_way_and_is_counted(other: Written) -> None:
    same = written(" he")
    agreed = ANSWERS.require([written(" she", "."), same], [other, same], "a peer")
    assert (agreed.difference, agreed.n_ties) == (0.0, 1)


@pytest.mark.parametrize(
    ("gate", "same", "tied"),
    [
        (ANSWERS, (written(" she"),) * 2, (written(" she"), written(" he", ties=((" she", " he"),)))),
        (
            CHOICES,
            (Chosen("race", (-1.0, -1.0)),) * 2,
            (Chosen("race", (-1.0, -1.0)), Chosen("age", (-1.0, -1.0), 0.0)),
        ),
    ],
)
@pytest.mark.parametrize(("n_items", "allowed"), [(10, 1), (99, 1), (100, 2), (250, 5)])
def test_more_ties_than_two_percent_are_refused(
    gate: Gate[Any], same: tuple[Any, Any], tied: tuple[Any, Any], n_items: int, allowed: int
) -> None:
    def parted(n_ties: int) -> Agreement:
        engine, peer = zip(*[tied] * n_ties, *[same] * (n_items - n_ties), strict=True)
        return gate.require(engine, peer, "a peer")

    assert parted(allowed).n_ties == allowed
    with pytest.raises(UndertowError, match=f"parts at a tie in {allowed + 1} of {n_items} items, and {allowed} are"):
        parted(allowed + 1)


def test_the_distribution_at_a_tie_is_compared_and_those_after_it_are_not() -> None:
    ties = ((" she", " he"), (" is",))
    later = replace(written(" he", " is", ties=ties), step_probs=((0.5,), (0.9,)), probs=(0.7,))
    assert ANSWERS.require([written(" she", " was")], [later], "a peer").n_ties == 1
    here = replace(later, step_probs=((0.4,), (0.9,)))
    with pytest.raises(UndertowError, match=r"off by up to 0\.1"):
        ANSWERS.require([written(" she", " was")], [here], "a peer")


def test_equal_labels_pass_with_their_difference() -> None:
    engine = [Chosen("race", (-1.0, -2.0, -9.0)), Chosen("age", (-3.0, -1.0, -9.0))]
    partly = [Chosen("race", (-1.0, -2.0005, math.nan), 1.0), Chosen("age", (math.nan, math.nan, math.nan), 2.0)]
    agreed = CHOICES.require(engine, partly, "a peer")
    assert agreed.difference == pytest.approx(5e-4)
    assert agreed.n_ties == 0
    assert CHOICES.require(engine, engine, "the engine").difference == 0.0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Chosen("age", (-1.0, -2.0), 0.9), "answer 1: chooses 'age', where the engine chooses 'race'"),
        (Chosen("race", (-1.0, -2.002), 1.0), "is off by up to 0.002 nats"),
        (Chosen("race", (-1.0, -math.inf), 1.0), "is missing numbers"),
        (Chosen("race", (math.nan, math.nan), 1.0), "is missing numbers"),
        (Chosen("race", (-1.0,), 1.0), "is missing numbers"),
        (Chosen("", ()), "is missing numbers"),
    ],
)
def test_unequal_labels_are_refused(other: Chosen, why: str) -> None:
    with pytest.raises(UndertowError, match=r"a peer: .* no time is reported") as refused:
        CHOICES.require([Chosen("race", (-1.0, -2.0))], [other], "a peer")
    assert why in str(refused.value)


def test_labels_without_numbers_are_not_equal() -> None:
    unscored, number = Chosen("", ()), Chosen("race", (-1.0, -2.0))
    assert CHOICES.compare([unscored], [unscored]).difference == math.inf
    assert CHOICES.compare([Chosen("race", (math.nan, -2.0))], [number]).difference == math.inf
    assert CHOICES.compare([number], [number] * 2).difference == math.inf


def test_a_label_at_a_tie_may_go_either_way_and_is_counted() -> None:
    engine, peer = Chosen("race", (-1.0, -1.0005)), Chosen("age", (-1.0, -1.0005), 5e-4)
    agreed = CHOICES.require([engine], [peer], "a peer")
    assert (agreed.difference, agreed.n_ties) == (0.0, 1)
