from __future__ import annotations

import itertools
import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from undertow.metrics.text.overlap import bleu_stats
from undertow.stats import percentile_interval
from undertow.stats.arrays import Estimate
from undertow.stats.classification.agreement import (
    MIN_FOR_BOOTSTRAP,
    N_DRAWS,
    bleu_over_cells,
    confusion,
    f1_over_cells,
    held_out_majority,
    mean_over_cells,
    random_f1,
)
from undertow.stats.intervals.cluster_errors import cluster_weights

pytestmark = pytest.mark.resamples


SEEDS = st.integers(0, 2**31)
UNIT = (0.0, 1.0)


def interval_by_loops(draws: list[float], n: int) -> tuple[float, float]:
    """Percentiles of the draws, further out for few documents; none below six, nor where the draws do not differ."""
    low, high = percentile_interval(draws, n_clusters=n)
    return (low, high) if high - low > 1e-12 * max(abs(low), abs(high)) else (math.nan, math.nan)


def drawn_documents(n: int, seed: int) -> list[list[int]]:
    """The documents of each draw, one as often as it was drawn."""
    weights = cluster_weights(n, N_DRAWS, np.random.default_rng(seed)).astype(int)
    return [[document for document in range(n) for _ in range(row[document])] for row in weights]


def same(found: Estimate, expected: tuple[float, float, float, float, int]) -> bool:
    numbers = found.value, found.low, found.high, found.sd, found.n
    return numbers == pytest.approx(expected, nan_ok=True, abs=1e-9)


def test_a_cell_without_a_number_and_a_document_without_one_change_no_interval() -> None:
    values = np.random.default_rng(1).random((20, 2))
    wider = np.full((22, 3), math.nan)
    wider[1:21, 1:] = values
    found = mean_over_cells(wider, UNIT)
    assert found.low < found.value < found.high
    assert found == mean_over_cells(values, UNIT)


@settings(max_examples=20)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, math.nan]), min_size=3, max_size=3), max_size=9))
@example([])
@example([[math.nan] * 3] * 2)
def test_means_are_those_of_loops(table: list[list[float]]) -> None:
    known = [row for row in table if not all(map(math.isnan, row))]
    columns = [[row[cell] for row in known if not math.isnan(row[cell])] for cell in range(3)]
    means = [sum(column) / len(column) for column in columns if column]
    found = mean_over_cells(np.reshape(table, (-1, 3)), UNIT)
    assert found.n == len(known)
    if not means:
        assert np.isnan(astuple(found)[:3]).all()
        return
    value = sum(means) / len(means)
    sd = math.sqrt(sum((mean - value) ** 2 for mean in means) / len(means))
    assert (found.value, found.sd) == pytest.approx((value, sd), abs=1e-9)


def test_documents_of_a_cluster_are_no_independent_evidence() -> None:
    """Each of twelve, four times over: as four documents of a cluster they say what twelve do."""
    once = np.random.default_rng(4).random((12, 2))
    plain = mean_over_cells(once, UNIT)
    many, clusters = np.repeat(once, 4, axis=0), np.repeat(np.arange(12), 4)
    clustered = mean_over_cells(many, UNIT, clusters)
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high))
    alone = mean_over_cells(many, UNIT)
    assert alone.high - alone.low < 0.7 * (plain.high - plain.low)
    assert math.isnan(mean_over_cells(many, UNIT, np.repeat(np.arange(4), 12)).low)


def f1_by_loops(gold: list[int], said: list[int], positive: int | None) -> float:
    """Precision and recall of each class of gold, and the mean of their harmonic means."""
    scores = []
    for label in sorted(set(gold)) if positive is None else [positive] if positive in gold else []:
        hits = sum(one == label == other for one, other in zip(gold, said, strict=True))
        precision, recall = hits / max(said.count(label), 1), hits / gold.count(label)
        scores.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    return sum(scores) / len(scores) if scores else math.nan


ANSWERS = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(-2, 2)), max_size=9)
"""Of documents: gold, and two cells; -2 is a missing answer."""


@settings(max_examples=20)
@given(ANSWERS, st.sampled_from([None, 0, 2]), SEEDS)
@example([], None, 0)
@example([(0, 0, 0)], 2, 0)
@example([*[(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)] * 2, (0, 1, -2), (0, -2, -2)], 0, 3)
def test_f1_and_its_interval_are_those_of_loops(
    rows: list[tuple[int, int, int]], positive: int | None, seed: int
) -> None:
    answered = [row for row in rows if row[1:] != (-2, -2)]

    def cells(documents: list[int]) -> list[float]:
        known = [[answered[d] for d in documents if answered[d][cell] != -2] for cell in (1, 2)]
        return [
            f1_by_loops([row[0] for row in own], [row[cell] for row in own], positive)
            for cell, own in enumerate(known, 1)
        ]

    once = np.array(cells(list(range(len(answered)))))
    has_f1 = ~np.isnan(once)
    value, sd = (once[has_f1].mean(), once[has_f1].std()) if has_f1.any() else (math.nan, math.nan)
    low, high = math.nan, math.nan
    if len(answered) >= 6 and positive is not None and has_f1.any():
        draws = [np.mean(np.array(cells(documents))[has_f1]) for documents in drawn_documents(len(answered), seed)]
        low, high = interval_by_loops(draws, len(answered))
    said = np.array([row[1:] for row in rows], dtype=int).reshape(-1, 2)
    found = f1_over_cells([row[0] for row in rows], said, 3, positive, seed)
    assert same(found, (value, low, high, sd, len(answered)))


@pytest.mark.parametrize("n_each", [MIN_FOR_BOOTSTRAP - 1, MIN_FOR_BOOTSTRAP])
def test_macro_f1_has_an_interval_where_each_class_has_documents_enough(n_each: int) -> None:
    rng = np.random.default_rng(2)
    gold = np.repeat([0, 1], [n_each, 60])
    found = f1_over_cells(gold, rng.integers(0, 2, (len(gold), 2)), 2, None, seed=3)
    assert math.isfinite(found.low) == (n_each == MIN_FOR_BOOTSTRAP)
    assert math.isnan(found.low) or found.low < found.value < found.high


@settings(max_examples=40)
@given(ANSWERS)
def test_confusion_is_that_of_loops(rows: list[tuple[int, int, int]]) -> None:
    counts = [[0] * 4 for _ in range(3)]
    for gold, *said in rows:
        for answer in (one for one in said if one != -2):
            counts[gold][3 if answer == -1 else answer] += 1
    said_of = np.array([row[1:] for row in rows], dtype=int).reshape(-1, 2)
    assert confusion([row[0] for row in rows], said_of, 3).tolist() == counts


@pytest.mark.parametrize(
    ("gold", "said", "named"), [(2, 0, "gold"), (-1, 0, "gold"), (1, -3, "predicted"), (1, 2, "predicted")]
)
def test_wrong_codes_are_refused(gold: int, said: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        f1_over_cells([0, gold], [[0], [said]], 2, None, seed=0)


TEXTS = st.lists(st.sampled_from("abc"), max_size=7).map(" ".join)


@settings(max_examples=6)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=6), SEEDS)
def test_bleu_and_its_interval_are_those_of_sums_over_drawn_documents(
    rows: list[tuple[str, str, str]], seed: int
) -> None:
    """Two answers, and the reference that both should be; scores of the sums by sacrebleu's own formula."""
    metrics = pytest.importorskip("sacrebleu.metrics.bleu", reason="sacrebleu is not installed")
    references = [row[2] for row in rows]
    statistics = np.stack([bleu_stats([row[cell] for row in rows], references) for cell in (0, 1)], axis=1)

    def cells(documents: list[int]) -> list[float]:
        sums = [[int(total) for total in statistics[documents, cell].sum(axis=0)] for cell in (0, 1)]
        return [metrics.BLEU.compute_bleu(s[2:6], s[6:], s[0], s[1], smooth_method="exp").score for s in sums]

    once = cells(list(range(len(rows))))
    found = bleu_over_cells(statistics, seed)
    assert same(found, (sum(once) / 2, math.nan, math.nan, abs(once[0] - once[1]) / 2, len(rows)))
    many = np.tile(statistics, (MIN_FOR_BOOTSTRAP, 1, 1))
    draws = [
        sum(cells([document % len(rows) for document in documents])) / 2
        for documents in drawn_documents(len(many), seed)
    ]  # fmt: skip
    found = bleu_over_cells(many, seed)
    assert (found.low, found.high) == pytest.approx(interval_by_loops(draws, len(many)), nan_ok=True, abs=1e-9)


def test_bleu_of_missing_answers() -> None:
    whole = np.tile(bleu_stats(["a b c d e"], ["a b c d f g"]).astype(float), (3, 2, 1))
    whole[1, 1] = whole[0] = math.nan
    whole[2, 1, 4] = math.nan  # one number missing makes a pair missing
    found = bleu_over_cells(whole, seed=0)
    assert (found.value, found.sd, found.n) == pytest.approx((100 * 0.2**0.25 * math.exp(-0.2), 0, 2))
    for nothing in (np.empty((0, 2, 10)), np.empty((2, 0, 10)), np.full((2, 2, 10), math.nan)):
        assert np.isnan(astuple(bleu_over_cells(nothing, seed=0))[:3]).all()
    one = bleu_over_cells(whole[1:2], seed=0)
    assert one.value == pytest.approx(found.value)
    assert np.isnan([one.low, one.high]).all()


UNEVEN = [0, 0, 0, 1, 2]


def test_the_most_frequent_class_of_the_others_says_nothing_of_its_own_cluster() -> None:
    """Without one of three, 0 and the others have two and one, or three and none; of equals the lowest."""
    assert held_out_majority(UNEVEN, 4).tolist() == [0, 0, 0, 0, 0]
    assert held_out_majority([1, 0, 2, 2], 3).tolist() == [2, 2, 0, 0]
    assert held_out_majority([0, 1, 2, 3], 4).tolist() == [1, 0, 0, 0]
    assert held_out_majority([0, 1] * 3, 2).tolist() == [1, 0] * 3
    assert held_out_majority([0, 0, 0, 1, 1], 2, ["a", "a", "a", "b", "c"]).tolist() == [1, 1, 1, 0, 0]
    assert held_out_majority([0, 0], 2, ["a", "a"]).tolist() == [-1, -1]
    assert held_out_majority([], 2).tolist() == []


@pytest.mark.parametrize(("positive", "n_classes"), [(0, 3), (1, 3), (2, 3), (None, 3), (None, 4)])
def test_guesses_are_right_as_often_as_over_every_way_to_guess(positive: int | None, n_classes: int) -> None:
    """Every one of 3^5 ways to guess is as likely as any other; a class that no document has is guessed too."""
    ways = itertools.product(range(n_classes), repeat=5)
    expected = np.mean([f1_by_loops(UNEVEN, list(way), positive) for way in ways])
    assert random_f1(UNEVEN, n_classes, positive) == pytest.approx(expected)


def test_guesses_about_many_documents_come_to_the_expected_counts_and_about_none_to_nothing() -> None:
    """Half of 20,000 documents yes: guesses have precision and recall of one half."""
    assert random_f1(np.arange(20_000) % 2, 2, 1) == pytest.approx(0.5, abs=1e-4)
    assert np.isnan([random_f1([], 2, None), random_f1(UNEVEN, 4, 3)]).all()


@pytest.mark.parametrize("n", [6, 40])
def test_intervals_cover_what_other_documents_have(n: int) -> None:
    """Documents differ and cells go with them, so that answers of one document are no independent evidence.

    The interval covers the mean that it should in 95 of 100 samples or more; one that took answers for independent, half as wide with
    40 documents, would do so in some 60, and plain percentiles of six in 89.
    """
    rng = np.random.default_rng(5)
    covered, n_samples = 0, 200
    for _ in range(n_samples):
        easy = rng.beta(0.4, 0.2, n)  # chance of a right answer, two thirds on average
        found = mean_over_cells(rng.random((n, 6)) < easy[:, np.newaxis], UNIT)
        assert found.low < found.high
        assert found.low <= found.value <= found.high
        covered += found.low <= 2 / 3 <= found.high
    assert 0.93 <= covered / n_samples <= 1
