"""Claims and intervals of comparisons of two models, and of all pairs of eight, on simulated audits whose truth is known."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tools.validity.drift import AT_ONCE, NOISES, SIGMAS, SKEWED_SENTENCES, TREND_SDS, _t_p, audits
from tools.validity.tables import share, table
from undertow.stats import benjamini_hochberg
from undertow.stats.regression.trend import ClusterSummary, cluster_summary, trend
from undertow.stats.significance.sign_flip import JackknifeReplicates, paired_errors

VALUES, SENTENCES = (8, 12, 20, 30, 60), (6, 8, 20, 60)
USUAL_VALUES, USUAL_SENTENCES = 30, 20
MOST_GROUPS = 50
"""Sentences that are left out one by one; more are dealt into as many groups."""
N_MODELS, MASSES = 8, 2
RUNS_SHARE = 8
"""Runs of eight models take 112 tests each: a cell has so many times fewer of them than audits."""
MARGINS = {"four standard errors": 4.0, "eight standard errors": 8.0}
"""Of equivalence: standard errors of the slope that white noise of this size would have."""


@dataclass(frozen=True)
class Cell:
    """What simulated comparisons of one kind came to, as shares.

    Attributes:
        slope: differences of slopes with p < .05 where there is none.
        outside: true differences of slopes outside the 95% interval.
        mean: differences of means with p < .05, where the mean over all values there might be is the same.
        here: differences of means at these values of W outside the 95% interval.
        power: differences of slopes of one standard deviation with p < .05.
        t_power: the same by the plain t test over the means.
        equivalent: by margin, differences that are as large as the margin and called equivalent within it.
        alike: by margin, differences of 0 that are called equivalent.
        beyond: by margin, differences that are as large as the margin and called larger.
    """

    slope: float
    outside: float
    mean: float
    here: float
    power: float
    t_power: float
    equivalent: tuple[float, ...]
    alike: tuple[float, ...]
    beyond: tuple[float, ...]


def cell(noise: str, n_sentences: int, n_values: int, n_audits: int, seed: int) -> Cell:
    """Simulate comparisons of two models that differ in nothing but noise, which each has of its own."""
    rng, x = np.random.default_rng(seed), np.arange(n_values) - (n_values - 1) / 2
    rows = []
    for start in range(0, n_audits, AT_ONCE):
        shape = min(AT_ONCE, n_audits - start), n_sentences, n_values
        (first, at_first), (second, at_second) = audits(noise, shape, rng), audits(noise, shape, rng)
        y, of_values = second - first, at_second - at_first
        parts = cluster_summary(x, y, np.ones_like(y))
        null = trend(x, parts)
        inner_low, inner_high = null.interval(0.9)
        off = parts.means - parts.means.mean(axis=1, keepdims=True)
        planted = TREND_SDS * off.std() / x.std()
        tilted = _moved(parts, planted * x)
        error = off.std() / math.sqrt(x @ x)
        mean, truth = y.mean(axis=(1, 2)), of_values.mean(axis=1)
        errors = paired_errors(mean, [_left(y)], seed=start, sizes=np.abs(first).mean(axis=(1, 2)))
        row = [
            null.p < 0.05,
            _misses(0.0, null.low, null.high),
            errors.p < 0.05,
            _misses(truth, errors.low, errors.high),
        ]
        row += [trend(x, tilted).p < 0.05, _t_p(x, tilted.means) < 0.05]
        for times in MARGINS.values():
            margin = times * error
            # A true difference as large as the margin moves interval and slope by as much; p is that of what lies beyond it.
            row += [
                (inner_low + margin >= -margin) & (inner_high + margin <= margin),
                (inner_low >= -margin) & (inner_high <= margin),
                (null.p < 0.05) & (null.low > 0),
            ]
        rows.append(np.array(row, dtype=np.float64))
    shares = np.concatenate(rows, axis=1).mean(axis=1).tolist()
    equivalent, alike, beyond = (tuple(shares[6 + at :: 3]) for at in range(3))
    slope, outside, mean, here, power, t_power = shares[:6]
    return Cell(slope, outside, mean, here, power, t_power, equivalent, alike, beyond)


def _moved(parts: ClusterSummary, by: np.ndarray) -> ClusterSummary:
    """The same noise around another line."""
    return replace(parts, means=parts.means + by)


def _misses(truth: float | np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return ~((low <= truth) & (truth <= high))


def _left(y: np.ndarray) -> JackknifeReplicates:
    """Means of all that is left without each sentence, or each group of sentences [group, audit]."""
    n = y.shape[1]
    groups = np.arange(n) if n <= MOST_GROUPS else np.random.default_rng(0).permutation(n) % MOST_GROUPS
    without = np.stack([y[:, groups != group].mean(axis=(1, 2)) for group in range(groups.max() + 1)])
    return JackknifeReplicates(without, np.ones_like(without, dtype=bool))


def runs_with_a_false_claim(noise: str, n_sentences: int, n_runs: int, seed: int) -> tuple[float, float]:
    """Of runs of eight models without drift, the shares in which a difference of slopes, or one of means, is claimed.

    Slopes are those of two masses, of a third that takes what they leave, and of the gap of the first two, for each of 28 pairs; one
    correction is over all of them, another over the means.
    """
    rng, x = np.random.default_rng(seed), np.arange(USUAL_VALUES) - (USUAL_VALUES - 1) / 2
    slopes = means = 0
    pairs = list(combinations(range(N_MODELS), 2))
    for run in range(n_runs):
        masses = audits(noise, (N_MODELS * MASSES, n_sentences, USUAL_VALUES), rng)[0]
        masses = masses.reshape(N_MODELS, MASSES, n_sentences, USUAL_VALUES)
        rest, gap = -masses.sum(axis=1, keepdims=True), masses[:, :1] - masses[:, 1:]
        y = np.concatenate([masses, rest, gap], axis=1)
        differences = np.concatenate([y[second] - y[first] for first, second in pairs])
        p = trend(x, cluster_summary(x, differences, np.ones_like(differences))).p
        slopes += bool((benjamini_hochberg(p) < 0.05).any())
        of_masses = np.concatenate([y[second, :-1] - y[first, :-1] for first, second in pairs])
        p_means = paired_errors(of_masses.mean(axis=(1, 2)), [_left(of_masses)], seed=run).p
        means += bool((benjamini_hochberg(p_means) < 0.05).any())
    return slopes / n_runs, means / n_runs


def multiplied_table(n_audits: int) -> str:
    """Differences of means outside their interval, and called equivalent, if the candidate has twice the mass of the baseline."""
    rng, rows = np.random.default_rng(5), []
    for sigma in SIGMAS:
        missed, equivalent = [], []
        for n in SKEWED_SENTENCES:
            mass = np.exp(sigma * rng.standard_normal((n_audits, n, 1)) - sigma**2 / 2)
            # The difference is 1, and the margin too.
            errors = paired_errors(mass.mean(axis=(1, 2)), [_left(mass)], margins=1.0)
            missed.append(share(float(_misses(1.0, errors.low, errors.high).mean())))
            equivalent.append(share(float(((errors.inner_low >= -1) & (errors.inner_high <= 1)).mean())))
        rows.append([f"log-normal, sigma {sigma:g}", *missed, *equivalent])
    heads = [f"{what}{n} sentences" for what in ("", "equivalent: ") for n in SKEWED_SENTENCES]
    return table(["mass of a sentence", *heads], rows)


def section(n_audits: int) -> Iterator[str]:
    """The title of this section, then its parts."""
    yield "Comparisons"
    yield f"""Two models answer the same texts. Neither drifts, and each has noise of its own, drawn as in the section on spurious
correlation: the difference of their slopes is 0. Each cell has {n_audits:,} pairs. The left columns have {USUAL_SENTENCES} sentences,
the right ones {USUAL_VALUES} values. Margins are 0 where no other is named; a standard error is that of a slope of independent means of the
same spread. From *values* to *random walk* each model has a mean of
its own at these values of W, which a difference of means is about.
"""
    designs = [(USUAL_SENTENCES, values) for values in VALUES] + [(sentences, USUAL_VALUES) for sentences in SENTENCES]
    found = {}
    begun = time.monotonic()
    for noise in NOISES:
        for sentences, values in dict.fromkeys(designs):
            found[noise, sentences, values] = cell(noise, sentences, values, n_audits, seed=7)
        print(noise, f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    heads = [
        "noise",
        *(f"{values} values" for values in VALUES),
        *(f"{sentences} sentences" for sentences in SENTENCES),
    ]
    tables: list[tuple[str, Callable[[Cell], float]]] = [
        ("A difference of slopes is claimed where there is none", lambda one: one.slope),
        ("The difference of slopes lies outside its interval", lambda one: one.outside),
        ("A difference of slopes of one standard deviation of noise is claimed", lambda one: one.power),
        ("The same by the plain t test, which does not hold its level in most rows", lambda one: one.t_power),
        (
            "A difference as large as a margin of four standard errors is claimed to be larger",
            lambda one: one.beyond[0],
        ),
        (
            "A difference as large as a margin of four standard errors is called equivalent",
            lambda one: one.equivalent[0],
        ),
        ("A difference as large as a margin of eight is called equivalent", lambda one: one.equivalent[1]),
        ("No difference of slopes is called equivalent within four standard errors", lambda one: one.alike[0]),
        ("No difference of slopes is called equivalent within eight", lambda one: one.alike[1]),
        ("A difference of means is claimed, where other values would show none", lambda one: one.mean),
        ("The difference of means at these values lies outside its interval", lambda one: one.here),
    ]
    for title, of in tables:
        rows = [[noise, *(share(of(found[noise, *design])) for design in designs)] for noise in NOISES]
        yield f"### {title}\n"
        yield table(heads, rows) + "\n"
    n_runs = max(n_audits // RUNS_SHARE, 50)
    yield f"### Of {N_MODELS} models without drift, a difference is claimed of some pair, after the correction\n"
    yield f"""Each cell has {n_runs:,} runs of {N_MODELS} models, at {USUAL_VALUES} values: {4 * math.comb(N_MODELS, 2)} differences
of slopes under one correction, and {3 * math.comb(N_MODELS, 2)} of means under another.
"""
    rows = []
    for noise in NOISES:
        shares = [runs_with_a_false_claim(noise, sentences, n_runs, seed=8) for sentences in (8, 20)]
        rows.append([noise, *(share(of[0]) for of in shares), *(share(of[1]) for of in shares)])
        print("eight models", noise, f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    yield table(["noise", "slopes, 8 sentences", "slopes, 20", "means, 8 sentences", "means, 20"], rows) + "\n"
    yield "### The difference of means of rare groups lies outside its interval, and is called equivalent\n"
    yield "The candidate has twice the mass of the baseline in every sentence, and the difference is as large as the margin.\n"
    yield multiplied_table(n_audits) + "\n"
