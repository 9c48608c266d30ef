"""Growth: how the engine's time grows with its work, once, twice, four and eight times as many items.

Told per distinct token, since items that share beginnings share work. Knows rows, workers and counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import linear_regression, median
from typing import Any

import needed
from contenders import ITS_OWN
from gate import Numbers
from rows import ROWS, Row, Sample
from telling import Promise, grid
from work import Plan, Work, say, start_engine, told_model

NAME = "growth"
ROW = "likelihood"
FACTORS = (1, 2, 4, 8)
UNITS = 4
"""W values of the smallest work."""
PROMISED_SLOPE = 1.1
"""Of the logarithm of seconds over that of distinct tokens: 1 is linear. With eight times the work, 1.1 makes a token 23% dearer
(8 to the power of 0.1), about as much as a shared machine's rounds differ; a part that grew with the square would make it that from
one thirtieth of the smallest work's time on (1 + 7/30 = 1.23)."""


def measure(plan: Plan) -> dict[str, Any]:
    """The record.

    Raises:
        UndertowError: the engine gives an item other numbers in a larger work.
    """
    row = ROWS[ROW]
    work = Work.of(row, plan)
    samples = _samples(work, plan)
    worker = start_engine(work, plan)
    counts = [worker.do(needed.needed_by, sample.places) for sample in samples]
    seconds: list[list[float]] = [[] for _ in samples]
    numbers: list[list[Numbers]] = [[] for _ in samples]
    for number in range(1, plan.rounds + 1):
        for at, (factor, sample) in enumerate(zip(FACTORS, samples, strict=True)):
            say(f"{NAME}: round {number} of {plan.rounds}: {factor} times the items")
            answered = worker.score(sample.places, ITS_OWN)
            seconds[at].append(answered.seconds)
            numbers[at].append(answered.numbers)
    _require_equal(row, samples, numbers)
    entry = {
        "row": row.name,
        "model": told_model(worker),
        "threads": worker.ready.threads,
        "sizes": [
            {
                "factor": factor,
                "n_units": sample.n_units,
                "n_items": len(sample.places),
                "n_tokens": count.n_tokens,
                "n_fed": count.n_fed,
                "seconds": taken,
            }
            for factor, sample, count, taken in zip(FACTORS, samples, counts, seconds, strict=True)
        ],
        "slope": log_slope([count.n_tokens for count in counts], [median(taken) for taken in seconds]),
        "promised_slope": PROMISED_SLOPE,
        "equality": {"tolerance": row.gate.tolerance, "unit": row.gate.unit},
    }
    worker.close()
    return entry


def _require_equal(row: Row, samples: Sequence[Sample], numbers: Sequence[Sequence[Numbers]]) -> None:
    """Every round beside the first of its size, and its part that is the next smaller size beside the first of that.

    Args:
        row: whose gate it is.
        samples: of each size [size].
        numbers: of each size and round [size][round].

    Raises:
        UndertowError: an item has other numbers, or is missing them.
    """
    for at, (factor, sample, rounds) in enumerate(zip(FACTORS, samples, numbers, strict=True)):
        who = f"{NAME}: {factor} times the items"
        for one in rounds:
            row.gate.require(rounds[0], one, who)
            if at:
                there = dict(zip(sample.places, one, strict=True))
                row.gate.require(numbers[at - 1][0], [there[place] for place in samples[at - 1].places], who)


def _samples(work: Work, plan: Plan) -> list[Sample]:
    """Each part of the next."""
    n_units = work.row.n_units(work.items)
    most = n_units // FACTORS[-1]
    least = most if plan.full else min(plan.sample or UNITS, most)
    return [work.row.draw(work.items, factor * least, plan.seed) for factor in FACTORS]


def log_slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log size, by least squares: the power with which time grows."""
    return linear_regression([math.log(one) for one in sizes], [math.log(one) for one in seconds]).slope


def promises(entry: dict[str, Any]) -> list[Promise]:
    """Linear in distinct tokens."""
    slope, most = entry["slope"], entry["promised_slope"]
    what = f"growth: time is linear in distinct tokens (log-log slope at most {most:g})"
    return [Promise(what, f"{slope:.2f}", slope <= most)]


def section(entry: dict[str, Any], _: dict[str, Any]) -> str:
    """The part of the page."""
    heads = ["items", "W values", "distinct tokens", "fed", "seconds, median", "microseconds per distinct token"]
    rows = []
    for one in entry["sizes"]:
        seconds = median(one["seconds"])
        counts = [f"{one[name]:,}" for name in ("n_items", "n_units", "n_tokens", "n_fed")]
        rows.append([*counts, f"{seconds:.2f}", f"{1e6 * seconds / one['n_tokens']:.0f}"])
    about = (
        f"Work of the row `{entry['row']}`, {entry['model']['source']}, {entry['model']['dtype']}; sizes take turns in "
        f"{entry['taken']['rounds']} rounds, and an item's numbers are the same in each "
        f"(at most {entry['equality']['tolerance']:g} {entry['equality']['unit']} apart). "
        f"Slope of log seconds over log distinct tokens: {entry['slope']:.3f}."
    )
    return "\n\n".join([about, grid(heads, rows)])
