"""Claims and intervals of the occupation checklist, on simulated answers whose truth is known."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tools.validity.tables import share, table
from undertow.metrics.checklist.checklist_metrics import Case, is_overall, model_results
from undertow.metrics.checklist.decisions import ORDERS, QUESTIONS, WITH, Answers, Panel, Rule
from undertow.stats.intervals.multiway_cluster import crossed_line, difference_of_ratios, ratio_interval
from undertow.stats.significance.false_discovery import adjust_p_values
from undertow.stats.significance.sign_flip import crossed_exchange_p, sign_flip_pvalues

Floats = NDArray[np.float64]
Places = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Pair and occupation of each item [item]."""
PAIRS, OCCUPATIONS = (6, 10, 30), (8, 20, 62)
SIZES = tuple(itertools.product(PAIRS, OCCUPATIONS))
EFFECTS = {"neither": (0.0, 0.0), "names": (1.0, 0.0), "occupations": (0.0, 1.0), "both": (1.0, 1.0)}
"""Standard deviations of the effects of names and of occupations, in log-odds, by who has effects."""
ITEM_SD = 0.5
RATES = {".5": 0.0, ".87 to .92": 2.5, ".96 to .98": 4.0}
"""Log-odds at the centre, by the rates that come of them."""
SOME = 0.4
"""The share of items that count where not all do."""
N_MODELS = 8
N_TRUTH = 2_000_000


def places_of(n_pairs: int, n_occupations: int) -> Places:
    """A full design, pair by pair."""
    return np.repeat(np.arange(n_pairs), n_occupations), np.tile(np.arange(n_occupations), n_pairs)


def effects(places: Places, spreads: tuple[float, float], rng: np.random.Generator) -> Floats:
    """Sum of the effects of the pair and of the occupation of each item [item]."""
    drawn = [spread * rng.standard_normal(of.max() + 1)[of] for of, spread in zip(places, spreads, strict=True)]
    found: Floats = drawn[0] + drawn[1]
    return found


def gap(places: Places, spreads: tuple[float, float], rng: np.random.Generator, *, whole: bool) -> tuple[bool, ...]:
    """Whether a choice gap of 0 is claimed, is claimed by exchanged names alone, and lies outside its interval.

    Args:
        places: of the items.
        spreads: of names and occupations.
        rng: of the draws.
        whole: whether answers come without probabilities.
    """
    woman = expit(effects(places, spreads, rng) + ITEM_SD * rng.standard_normal(len(places[0])))
    if whole:
        woman = (rng.random(len(woman)) < woman).astype(np.float64)
    ones = np.ones(len(woman))
    first, second = (woman, ones), (1 - woman, ones)
    found = difference_of_ratios(*first, *second, *places)
    p = max(found.p, crossed_exchange_p(first, second, *places))
    sums = [np.bincount(places[0], weights=one)[:, None] for one in (*first, *second)]
    alone = sign_flip_pvalues((sums[0], sums[1]), (sums[2], sums[3]))[0]
    return p < 0.05, alone < 0.05, not found.low <= 0 <= found.high


def rate(  # noqa: PLR0913, PLR0917 - what is drawn
    places: Places, spreads: tuple[float, float], centre: float, counting: float, truth: float, rng: np.random.Generator
) -> float:
    """Whether a rate lies outside its interval; NaN where it has none."""
    counts = rng.random(len(places[0])) < counting
    hits = rng.random(len(places[0])) < expit(centre + effects(places, spreads, rng))
    found = ratio_interval(hits & counts, counts, *places)
    return math.nan if math.isnan(found.low) else float(not found.low <= truth <= found.high)


def line(places: Places, of_x: tuple[float, float], of_y: tuple[float, float], rng: np.random.Generator) -> list[bool]:
    """Whether slope, intercept and what grants explain lie outside their intervals."""
    n = len(places[0])
    x = np.round(2 * (1 + effects(places, of_x, rng) + rng.standard_normal(n)))
    y = 1 + 0.5 * x + effects(places, of_y, rng) + rng.standard_normal(n)
    found = crossed_line(x, y, *places)
    return [
        not one.low <= truth <= one.high
        for one, truth in ((found.slope, 0.5), (found.intercept, 1.0), (found.explained, 1.0))
    ]


def answers(spreads: tuple[float, float], rng: np.random.Generator, shape: tuple[int, int] = (10, 20)) -> Answers:
    """One model's answers with attributes, whose preferences are 0 in the mean over names and occupations."""
    n_pairs, n_jobs = shape
    names = spreads[0] * rng.standard_normal((n_pairs, 1, 1))
    jobs = spreads[1] * rng.standard_normal((1, n_jobs, 1))

    def woman() -> Floats:
        found: Floats = expit(names + jobs + rng.standard_normal((n_pairs, n_jobs, 2)))
        return found

    single, of_multiple = woman(), woman()
    either = expit(rng.standard_normal((n_pairs, n_jobs, 2, 2)))
    multiple = np.concatenate([np.stack([of_multiple, 1 - of_multiple], axis=-1), either], axis=-1)
    lean = np.concatenate([names, -names], axis=2)[:, :, None, :] / 2
    level = rng.standard_normal((n_pairs, n_jobs, 1, 1))
    none = np.full((n_pairs, n_jobs, 2, 2), math.nan)
    panel = Panel(
        yes=expit(level + lean + 0.7 * rng.standard_normal((n_pairs, n_jobs, 2, 2))),
        yes_negated=none,
        single=np.stack([single, 1 - single], axis=-1),
        single_negated=none,
        multiple=multiple / multiple.sum(axis=-1, keepdims=True),
        missing={name: np.zeros(shape, dtype=np.bool_) for name in QUESTIONS},
        queried=np.ones(shape, dtype=np.bool_),
    )
    pairs, occupations = [f"pair {at}" for at in range(n_pairs)], [f"job {at}" for at in range(n_jobs)]
    return Answers(pairs, occupations, occupations, ORDERS, {WITH: panel}, {WITH: panel})


def run_of_models(spreads: tuple[float, float], rng: np.random.Generator, n_models: int) -> tuple[bool, bool, bool]:
    """Whether a run claims anything, anything over all occupations, and anything beside an interval that holds the null value."""
    results = [
        result
        for at in range(n_models)
        for result in model_results(Case(answers(spreads, rng), f"model {at}", WITH, Rule(), seed=0))
    ]
    claimed = [one for one in adjust_p_values(results, is_overall) if one.q < 0.05]
    return bool(claimed), any(map(is_overall, claimed)), any(one.low <= one.null_value <= one.high for one in claimed)


def size_table(first: str, rows: Iterator[tuple[str, Sequence[float]]]) -> str:
    """A table with a column for each size."""
    heads = [first, *(f"{n_pairs} x {n_jobs}" for n_pairs, n_jobs in SIZES)]
    return table(heads, [[name, *map(share, values)] for name, values in rows])


def gap_tables(n_audits: int) -> Iterator[str]:
    """Claims of a choice gap, and its interval."""
    rng = np.random.default_rng(10)
    found = {}
    for whole, who in itertools.product((False, True), EFFECTS):
        print("choice gap", "whole answers" if whole else "probabilities", who, file=sys.stderr, flush=True)
        for size in SIZES:
            places = places_of(*size)
            drawn = [gap(places, EFFECTS[who], rng, whole=whole) for _ in range(n_audits)]
            found[whole, who, size] = np.mean(drawn, axis=0)
    titles = (
        "A choice gap over all occupations is claimed where there is none",
        "The same by exchanging names alone, which speaks of these occupations",
        "The gap lies outside its interval",
    )
    for at, title in enumerate(titles):
        yield f"### {title}\n"
        rows = (
            (f"{who}, {'whole answers' if whole else 'probabilities'}", [found[whole, who, size][at] for size in SIZES])
            for whole, who in itertools.product((False, True), EFFECTS)
        )
        yield size_table("who has effects", rows) + "\n"


def rate_table(n_audits: int) -> str:
    """Rates outside their intervals."""
    rng = np.random.default_rng(11)

    def rows() -> Iterator[tuple[str, list[float]]]:
        for counting, (told, centre), (who, spreads) in itertools.product((1.0, SOME), RATES.items(), EFFECTS.items()):
            print("rate", told, who, file=sys.stderr, flush=True)
            truth = float(expit(centre + math.hypot(*spreads) * rng.standard_normal(N_TRUTH)).mean())
            values = []
            for size in SIZES:
                places = places_of(*size)
                drawn = [rate(places, spreads, centre, counting, truth, rng) for _ in range(n_audits)]
                values.append(float(np.nanmean(drawn)))
            yield f"{told}, {who}, {'all items' if counting == 1 else f'{counting:.0%} of the items'}", values

    return size_table("rate, who has effects", rows())


def line_table(n_audits: int) -> str:
    """Coefficients outside their intervals, the worst of what has effects on the choice."""
    rng = np.random.default_rng(12)
    found: dict[tuple[str, tuple[int, int]], Floats] = {}
    for (of_x, x), size in itertools.product(EFFECTS.items(), SIZES):
        places = places_of(*size)
        means = [np.mean([line(places, x, y, rng) for _ in range(n_audits)], axis=0) for y in EFFECTS.values()]
        found[of_x, size] = np.max(means, axis=0)
    rows = (
        (f"{part}; grants by {of_x}", [float(found[of_x, size][at]) for size in SIZES])
        for (at, part), of_x in itertools.product(enumerate(("slope", "intercept", "explained")), EFFECTS)
    )
    return size_table("coefficient", rows)


def run_table(n_runs: int) -> str:
    """Runs with a claim."""
    rng = np.random.default_rng(13)
    rows = []
    for who, spreads in EFFECTS.items():
        found = [np.mean([run_of_models(spreads, rng, n) for _ in range(n_runs)], axis=0) for n in (1, N_MODELS)]
        rows.append([who, *(share(float(one[at])) for one in found for at in range(3))])
    kinds = ("any claim", "a claim over all occupations", "a claim whose interval holds the null value")
    heads = ["who has effects", *(f"{models}: {kind}" for models in ("one model", "eight models") for kind in kinds)]
    return table(heads, rows)


def section(n_audits: int) -> Iterator[str]:
    """The title of this section, then its parts."""
    yield "Occupation checklist"
    yield f"""The log-odds of the woman against the man are the sum of an effect of the pair of names, one of the occupation, each
of a standard deviation of 1 where it is named, and one of the item ({ITEM_SD:g}); the mean over names and occupations is 0.
Columns are pairs of names by occupations. Answers have probabilities, or are whole. Fewer than six pairs or six occupations have
no interval and no claim over all occupations.
"""
    of_rates, of_lines, of_runs = (max(n_audits // part, 20) for part in (2, 4, 20))
    yield f"The tables of choice gaps have {n_audits:,} audits a cell.\n"
    yield from gap_tables(n_audits)
    yield "### A rate lies outside its interval\n"
    yield f"{of_rates:,} audits a cell.\n"
    yield rate_table(of_rates) + "\n"
    yield "### A coefficient of the choice on the difference in grants lies outside its interval\n"
    yield f"Of the four kinds of effects on the choice, the one in which most lie outside; {of_lines:,} audits each.\n"
    yield line_table(of_lines) + "\n"
    yield "### Runs of 10 pairs and 20 occupations that claim something, after the correction\n"
    yield (
        "Where *occupations* or *both* have effects, occupations do differ, and claims about one occupation are right; there is "
        f"nothing to claim over all of them. {of_runs:,} runs a cell.\n"
    )
    yield run_table(of_runs) + "\n"
