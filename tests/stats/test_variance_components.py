from __future__ import annotations

import itertools
import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

from undertow.stats.variance_components import (
    FACTORS,
    detect_aliases,
    factor_shares,
    level_means,
    one_way,
    population_sd,
    variance_shares,
    welch_p,
)

Floats = NDArray[np.float64]

SEEDS = st.integers(0, 2**31)

SHOTS = [0, 5, 5, 5, 10]
"""One setting without examples, three draws of five, one of ten: groups of unlike sizes."""
CLASSES = [2, 0, 0, 1, 2, 2, 2]


def by_loops(scores: Floats, shots: list[int], classes: list[int]) -> dict[str, float]:
    """Each sum of squares as a sum over cells of squared differences of means, percent of the sum over cells."""
    grand = scores.mean()
    squares = dict.fromkeys(FACTORS, 0.0)
    of_class = {name: scores[:, [one == name for one in classes]].mean() for name in classes}
    of_shots = {name: scores[:, :, [one == name for one in shots]].mean() for name in shots}
    total = 0.0
    for m, w, s in itertools.product(*map(range, scores.shape)):
        model, wording, setting = scores[m].mean(), scores[:, w].mean(), scores[:, :, s].mean()
        squares["model"] += (model - grand) ** 2
        squares["description class"] += (of_class[classes[w]] - grand) ** 2
        squares["wording"] += (wording - of_class[classes[w]]) ** 2
        squares["shots"] += (of_shots[shots[s]] - grand) ** 2
        squares["draw"] += (setting - of_shots[shots[s]]) ** 2
        total += (scores[m, w, s] - grand) ** 2
    squares["interactions"] = total - sum(squares.values())
    return {name: 100 * part / total for name, part in squares.items()}


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 3), st.floats(-1e3, 1e3))
def test_shares_are_those_of_loops_and_add_up(seed: int, n_models: int, place: float) -> None:
    rng = np.random.default_rng(seed)
    scores = place + rng.normal(0, rng.choice([0.1, 1, 30]), (n_models, len(CLASSES), len(SHOTS)))
    shares = variance_shares(scores, SHOTS, CLASSES)
    assert sum(shares.values()) == pytest.approx(100, abs=1e-9)
    assert min(shares.values()) >= 0
    assert shares == pytest.approx(by_loops(scores, SHOTS, CLASSES), abs=1e-6)


@pytest.mark.parametrize("scores", [np.full((2, 7, 5), 0.1 + 0.2), np.zeros((2, 7, 5)), np.zeros((0, 7, 5))])
def test_scores_that_do_not_differ_have_no_shares(scores: Floats) -> None:
    shares = variance_shares(scores, SHOTS, CLASSES)
    assert list(shares) == list(FACTORS)
    assert all(math.isnan(share) for share in shares.values())


def test_a_spread_by_rounding_is_none() -> None:
    scores = np.full((1, 2, 2), 0.3)
    scores[0, 0, 0] = 0.1 + 0.2
    assert math.isnan(variance_shares(scores, [0, 1], [0, 1])["wording"])
    scores[0, 0, 0] = 0.3 + 1e-9
    assert variance_shares(scores, [0, 1], [0, 0])["wording"] == pytest.approx(100 / 3, rel=1e-5)


FACTORIAL = np.array(list(itertools.product(range(3), range(2), range(4))))


@pytest.mark.parametrize("seed", range(4))
def test_in_a_part_of_a_factorial_the_shares_are_type_two(seed: int) -> None:
    """Against statsmodels' type II sums of squares of the additive model."""
    pd = pytest.importorskip("pandas")
    formula = pytest.importorskip("statsmodels.formula.api")
    anova = pytest.importorskip("statsmodels.stats.anova")
    rng = np.random.default_rng(seed)
    kept = FACTORIAL[rng.permutation(len(FACTORIAL))[:15]]
    scores = 10.0 * kept[:, 1] + 3 * kept[:, 0] + rng.normal(0, 2, len(kept))
    table = pd.DataFrame({"score": scores, "a": kept[:, 0], "b": kept[:, 1], "c": kept[:, 2]})
    squares = anova.anova_lm(formula.ols("score ~ C(a) + C(b) + C(c)", table).fit(), typ=2)["sum_sq"]
    total = ((scores - scores.mean()) ** 2).sum()
    shares, interactions = factor_shares(scores, kept)
    assert shares == pytest.approx((100 * squares[["C(a)", "C(b)", "C(c)"]] / total).to_numpy())
    assert interactions == pytest.approx(100 * squares["Residual"] / total)
    assert abs(shares.sum() + interactions - 100) > 0.01


def test_slots_that_change_together_have_nothing_of_their_own() -> None:
    levels = [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]]
    shares, interactions = factor_shares([0.0, 1.0, 10.0, 11.0], levels)
    assert shares.tolist() == [0, 0, pytest.approx(100 / 101)]
    assert interactions == pytest.approx(0, abs=1e-9)


def test_where_wordings_do_not_differ_or_have_no_slot() -> None:
    for scores in ([], [3.0], [0.3, 0.1 + 0.2]):
        shares, interactions = factor_shares(scores, np.zeros((len(scores), 2), dtype=int))
        assert shares.shape == (2,)
        assert np.isnan([*shares, interactions]).all()
    shares, interactions = factor_shares([1.0, 2.0], np.zeros((2, 0), dtype=int))
    assert (shares.size, interactions) == (0, 100.0)


def test_level_means() -> None:
    means = level_means([80, 90, 5, math.nan, 7], [2, 2, 0, 0, 0], 4)
    assert means == pytest.approx([6, math.nan, 85, math.nan], nan_ok=True)
    assert np.isnan(level_means([], [], 2)).all()


def test_population_sd_is_the_one_of_the_paper() -> None:
    """One of three wordings right on everything, two on nothing: the paper prints 33.3 ± 47.1."""
    assert round(population_sd([0, 0, 100]), 1) == 47.1
    assert population_sd([2, math.nan, 4]) == 1
    assert population_sd([5]) == 0
    assert math.isnan(population_sd([]))
    assert math.isnan(population_sd([math.nan]))


@pytest.mark.parametrize(
    ("rows", "sets"),
    [
        (list(itertools.product(range(2), range(3), range(2))), [(0,), (1,), (2,)]),
        ([(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)], [(0, 1), (2,)]),
        ([(0, 0, 0), (1, 1, 1)], [(0, 1, 2)]),
        # Two pairs that change together, each by itself.
        ([(a, b, a, b) for a in range(2) for b in range(2)], [(0, 2), (1, 3)]),
        # The third level of one goes with the second of the other, always.
        ([(0, 0), (1, 0), (2, 1)], [(0, 1)]),
        # It goes with it, and is there without it: the two are told apart.
        ([(0, 0), (1, 0), (2, 1), (2, 0)], [(0,), (1,)]),
        # Half of a factorial tells main effects apart; three of its rows do not.
        ([(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)], [(0,), (1,), (2,)]),
        ([(0, 0, 0), (0, 1, 1), (1, 0, 1)], [(0, 1, 2)]),
        ([(0,), (1,), (2,)], [(0,)]),
    ],
)
def test_factors_that_do_not_vary_alone_are_in_one_set(
    rows: list[tuple[int, ...]], sets: list[tuple[int, ...]]
) -> None:
    assert detect_aliases(np.array(rows)) == sets
    assert detect_aliases(np.array(rows * 3)[::-1]) == sets


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 4), SEEDS)
def test_factors_alone_in_their_set_are_those_that_the_rank_says(n_rows: int, n_factors: int, seed: int) -> None:
    """A factor varies alone where its columns add as much to the rank of all others as there are of them."""
    codes = np.random.default_rng(seed).integers(0, 3, (n_rows, n_factors))

    def columns(factors: list[int]) -> list[NDArray[np.bool_]]:
        return [codes[:, at] == level for at in factors for level in np.unique(codes[:, at])[1:]]

    def rank(factors: list[int]) -> int:
        return int(np.linalg.matrix_rank(np.column_stack([np.ones(n_rows), *columns(factors)]).astype(float)))

    everything = list(range(n_factors))
    found = detect_aliases(codes)
    assert sorted(at for one in found for at in one) == everything
    for at in everything:
        others = [one for one in everything if one != at]
        is_alone = rank(everything) - rank(others) == len(columns([at]))
        assert ((at,) in found) == is_alone


@pytest.mark.parametrize("seed", range(6))
def test_p_is_that_of_the_f_test(seed: int) -> None:
    """Groups of unlike sizes, one of a single point, in any order; in half of the cases they differ."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(list("dacbe"), [7, 3, 12, 1, 5]))
    y = 50 + rng.normal(0, 2, 28) + (seed % 2) * np.char.equal(group, "a") * 4
    found = one_way(y, group)
    expected = stats.f_oneway(*(y[group == name] for name in "abcde"))
    assert found.p == pytest.approx(expected.pvalue)
    between = sum((group == name).sum() * (y[group == name].mean() - y.mean()) ** 2 for name in "abcde")
    assert found.share == pytest.approx(between / ((y - y.mean()) ** 2).sum())
    assert found.expected_share == 4 / 27


def test_groups_without_a_spread_explain_everything_and_a_small_one_is_no_rounding() -> None:
    assert astuple(one_way([1, 1, 2, 2, 5], ["a", "a", "b", "b", "c"])) == (1.0, 2 / 4, 0.0)
    assert one_way([50, 50 + 2e-9, 50 + 4e-9, 50 + 6e-9], [0, 0, 1, 1]).share == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize(
    ("y", "group"),
    [
        ([], []),
        ([1.0], ["a"]),
        ([1.0, 2.0, 3.0], ["a", "a", "a"]),
        ([1.0, 2.0, 3.0], ["a", "b", "c"]),
        ([5.0, 5.0, 5.0, 5.0], ["a", "a", "b", "b"]),
        ([0.3, 0.1 + 0.2, 0.3, 0.3], ["a", "a", "b", "b"]),  # differs by rounding only
    ],
)
def test_where_there_is_nothing_to_say_everything_is_nan(y: list[float], group: list[str]) -> None:
    assert np.isnan(astuple(one_way(y, group))).all()


@pytest.mark.parametrize("seed", range(4))
def test_p_of_unequal_spreads_is_welchs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(list("abc"), [6, 9, 20]))
    y = rng.normal(0, 1, 35) * (1 + 3 * (group == "c")) + 0.8 * (group == "a")
    expected = anova_oneway([y[group == name] for name in "abc"], use_var="unequal").pvalue
    assert welch_p(y, group) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("y", "group"), [([1.0, 2, 3], [0, 0, 0]), ([1.0, 2, 3], [0, 0, 1]), ([1.0, 1, 2, 3], [0, 0, 1, 1]), ([], [])]
)
def test_groups_that_cannot_be_compared_have_no_p(y: list[float], group: list[int]) -> None:
    assert math.isnan(welch_p(y, group))
