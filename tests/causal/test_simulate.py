"""Drawing from equations: the closed form to the percent, intervals that cover it, and noises that stay where they are."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from helpers.file_refusal import assert_refused
from helpers.sampled_cases import briefly, paired
from undertow.causal import example_scms
from undertow.causal import simulate as simulation
from undertow.causal.scm import StructuralCausalModel
from undertow.causal.simulate import N_SAMPLED, Simulation, simulate

Floats = NDArray[np.float64]

MILLION = 1_000_000
SIGN = {example_scms.SUM: 1.0, example_scms.DIFFERENCE: -1.0}
SIMPLE = "G := normal()\nS := G > 0\nX := G + normal()\nselect S\ncompare G, X"


# The answer: all variables are sums of the five noises, and selection cuts off one such sum from below. What is cut off shrinks the
# variance along that sum and leaves the rest: cov(u, v | S) = cov(u, v) - (1 - var(T | T > c) / var(T)) cov(u, T) cov(v, T) / var(T).


@cache
def exact(sign: float, beta: float, gamma: float, alpha: float = 10.0) -> dict[tuple[str, bool], float]:
    """r of (W, G) and of (X, Y), before and after; and of ("share", True) the share who are selected."""
    noise = np.eye(5)  # of G, W, S, X, Y
    g, w = alpha * noise[0], alpha / 2 * noise[1]
    tendency = w + sign * g + noise[2]
    x = beta * w + gamma * g + noise[3]
    y = gamma * x + g + noise[4]
    variance = float(tendency @ tendency)
    cut = 2 * alpha / math.sqrt(variance)
    share = float(stats.norm.sf(cut))
    mean, square = (
        integrate.quad(lambda t, power=power: t**power * stats.norm.pdf(t), cut, 40)[0] / share for power in (1, 2)
    )
    lost = 1 - (square - mean**2)

    def covariance(u: Floats, v: Floats, selected: bool) -> float:
        return float(u @ v - selected * lost * (u @ tendency) * (v @ tendency) / variance)

    def r(u: Floats, v: Floats, selected: bool) -> float:
        spreads = covariance(u, u, selected) * covariance(v, v, selected)
        return covariance(u, v, selected) / math.sqrt(spreads)

    found = {
        (name, chosen): r(*pair, chosen)
        for name, pair in {"W": (w, g), "X": (x, y)}.items()
        for chosen in (False, True)
    }
    return found | {("share", True): share}


@cache
def drawn(name: str, case: str) -> Simulation:
    model = example_scms.load(name)
    return simulate(model, MILLION, 0, model.cases[case])


@pytest.mark.parametrize(("name", "case"), paired(example_scms.NAMES, example_scms.load(example_scms.NAMES[0]).cases))
def test_every_case_of_the_papers_comes_out_as_it_is_computed(name: str, case: str) -> None:
    found = drawn(name, case)
    truth = exact(SIGN[name], found.settings["beta"], found.settings["gamma"])
    assert found.n_draws == MILLION
    assert found.share == found.n_selected / MILLION == pytest.approx(truth["share", True], abs=0.0006)
    assert found.share_low < found.share < found.share_high
    assert found.share_high - found.share_low == pytest.approx(
        2 * 1.96 * math.sqrt(0.0374 * 0.9626 / MILLION), rel=0.01
    )
    assert len(found.correlations) == 4
    for one in found.correlations:
        assert one.n == (found.n_selected if one.selected else MILLION)
        assert one.r == pytest.approx(truth[one.x, one.selected], abs=0.01)
        z = math.atanh(one.r) - math.atanh(truth[one.x, one.selected])
        half = (math.atanh(one.high) - math.atanh(one.low)) / 2
        assert abs(z) < 2 * half, "four standard errors"


@pytest.mark.parametrize("name", briefly(example_scms.NAMES))
@pytest.mark.parametrize("gamma", briefly([1.0, 0.0]))
def test_intervals_cover_what_is_computed(name: str, gamma: float) -> None:
    """Of 2,000 people about 75 are selected: skewed, and cut off at a line."""
    runs = 1000
    model, truth = example_scms.load(name), exact(SIGN[name], 1.0, gamma)
    covered = dict.fromkeys(truth, 0)
    fishers = dict.fromkeys(truth, 0)
    for seed in range(runs):
        found = simulate(model, 2000, seed, {"gamma": gamma})
        covered["share", True] += found.share_low <= truth["share", True] <= found.share_high
        for one in found.correlations:
            key = one.x, one.selected
            covered[key] += one.low <= truth[key] <= one.high
            fishers[key] += abs(math.atanh(one.r) - math.atanh(truth[key])) <= 1.96 / math.sqrt(one.n - 3)
    for key, count in covered.items():
        assert 0.93 <= count / runs <= 0.97, key
    assert fishers["W", True] / runs < 0.92, "Fisher's interval takes the selected for normal"


def test_correlations_are_of_the_people_who_are_kept() -> None:
    """At as many draws as are kept, everything can be computed by hand."""
    model = example_scms.load(example_scms.SUM)
    found = simulate(model, N_SAMPLED, 3, {"gamma": 1})
    everyone = found.everyone
    assert {name: len(values) for name, values in everyone.items()} == dict.fromkeys("WGXY", N_SAMPLED)
    for people, selected in ((found.everyone, False), (found.selected, True)):
        for x, y in model.pairs:
            one = found.correlation(x, y, selected=selected)
            assert one.r == pytest.approx(np.corrcoef(people[x], people[y])[0, 1], abs=1e-12)
            assert one.n == len(people[x])
    kept = set(zip(everyone["W"], everyone["G"], strict=True))
    assert set(zip(found.selected["W"], found.selected["G"], strict=True)) <= kept
    with pytest.raises(KeyError):
        found.correlation("G", "W", selected=True)


# Noises.


def test_noises_of_one_equation_and_of_like_names_are_independent() -> None:
    text = "A := normal()\nAA := normal()\nB := normal()\nC := normal() - normal()\nS := A > -9\nselect S\ncompare A, AA; A, B; AA, B; A, C"
    found = simulate(StructuralCausalModel.from_text(text), 100_000)
    assert all(abs(one.r) < 0.015 for one in found.correlations)
    assert np.std(found.everyone["C"]) == pytest.approx(math.sqrt(2), rel=0.1)


@pytest.mark.parametrize(
    ("noise", "mean", "sd"),
    [
        ("normal()", 0, 1), ("normal(3, 2)", 3, 2), ("uniform()", 0.5, math.sqrt(1 / 12)),
        ("uniform(-1, 5)", 2, 6 * math.sqrt(1 / 12)), ("bernoulli(0.3)", 0.3, math.sqrt(0.21)),
    ],
)  # fmt: skip
def test_noises_have_their_mean_and_spread(noise: str, mean: float, sd: float) -> None:
    text = f"G := {noise}\nS := normal() > 0\nselect S\ncompare G, S"
    values = np.concatenate(
        [simulate(StructuralCausalModel.from_text(text), 2000, seed).everyone["G"] for seed in range(20)]
    )
    assert values.mean() == pytest.approx(mean, abs=4 * sd / math.sqrt(len(values)))
    assert values.std() == pytest.approx(sd, rel=0.02)


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = example_scms.load(example_scms.SUM)
    whole = simulate(model, 30_000)
    monkeypatch.setattr(simulation, "_PIECE", 999)
    pieces = simulate(model, 30_000)
    assert pieces.n_selected == whole.n_selected
    for one, other in zip(pieces.correlations, whole.correlations, strict=True):
        assert [one.r, one.low, one.high] == pytest.approx([other.r, other.low, other.high], abs=1e-10)
    for of_one, of_other in ((pieces.everyone, whole.everyone), (pieces.selected, whole.selected)):
        for name, values in of_one.items():
            assert values.tolist() == of_other[name].tolist()
            assert len(values) <= N_SAMPLED


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Z := 1 / (G - G)", "line 6: Z is not a finite number for everyone"),
        ("Z := log(G)", "line 6: Z is not a finite number for some people"),
        ("Z := bernoulli(G)", "line 6: bernoulli takes a probability"),
        ("Z := normal(0, G)", "line 6: normal takes a mean and a standard deviation of 0 or more"),
        ("Z := uniform(G, 1)", "line 6: uniform takes its lower end first"),
    ],
)
def test_a_value_that_is_no_number_is_refused_with_its_line(line: str, words: str) -> None:
    assert_refused((words,), simulate, StructuralCausalModel.from_text(f"{SIMPLE}\n{line}", "mine.scm"), 1000)


def test_who_has_no_number_is_said_of_all_people_and_not_of_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last piece is one person, who has none."""
    lone = float(simulate(StructuralCausalModel.from_text(SIMPLE), 100).everyone["G"][-1])
    text = f"{SIMPLE}\nZ := 1 / (G - {lone!r})"
    monkeypatch.setattr(simulation, "_PIECE", 99)
    assert_refused(
        ("line 6: Z is not a finite number for some people",), simulate, StructuralCausalModel.from_text(text), 100
    )


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ("G + 0", "line 2: S selects people, so it must be 0 or 1"),
        ("G > 2", "of 1,000 people are selected, and 30 are needed"),
        ("0", "line 2: S is 0 for all of 1,000 people"),
    ],
)
def test_selection_of_too_few_or_by_no_truth_is_refused(selection: str, words: str) -> None:
    assert_refused((words,), simulate, StructuralCausalModel.from_text(SIMPLE.replace("G > 0", selection)), 1000)


def test_what_is_constant_among_the_selected_alone_is_named_there_alone() -> None:
    found = simulate(StructuralCausalModel.from_text(SIMPLE.replace("compare G, X", "compare S, G; G, X")), 1000)
    assert {(one.x, one.y, one.selected): one.constant for one in found.correlations} == {
        ("S", "G", False): (),
        ("S", "G", True): ("S",),
        ("G", "X", False): (),
        ("G", "X", True): (),
    }


@pytest.mark.parametrize(("draws", "seed", "word"), [(99, 0, "99"), (2 * 10**8, 0, "200,000,000"), (1000, -1, "seed")])
def test_draws_and_seed_have_their_limits(draws: int, seed: int, word: str) -> None:
    assert_refused((word,), simulate, StructuralCausalModel.from_text(SIMPLE), draws, seed)


# Equations of a heavy-tailed variable: Student's t with 2 degrees of freedom, Cauchy, lognormal.
HEAVY = ("normal() / sqrt(-log(uniform(0, 1)))", "normal() / normal()", "exp(3 * normal())")
LIGHT = ("normal()", "uniform()", "bernoulli(0.3)")


@pytest.mark.parametrize(
    ("noise", "share"), [*((one, (0.75, 1.0)) for one in HEAVY), *((one, (0.0, 0.0)) for one in LIGHT)]
)
@pytest.mark.parametrize("n", [200, 2_000])
def test_heavy_tails_are_warned_of_with_few_and_with_many_people(
    noise: str, share: tuple[float, float], n: int
) -> None:
    equations = f"A := {noise}\nB := A + normal()\nS := normal() > 0\nselect S\ncompare A, B\n"
    model = StructuralCausalModel.from_text(equations, "model.scm")
    told = [{one.partition(":")[0] for one in simulate(model, n, seed).warnings} for seed in range(20)]
    before, after = (np.mean([f"A and B {when} selection" in some for some in told]) for when in ("before", "after"))
    assert share[0] <= before <= share[1]
    assert n == 200 or share[0] <= after
