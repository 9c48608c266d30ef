"""Reduced precision: the same likelihood work in bfloat16 beside float32, how much faster and how far off.

Each precision in a process of its own, and both take turns, with the machine's limit in that precision before each. Knows rows,
workers and peaks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import needed
import peak
from contenders import ITS_OWN
from gate import Logprobs
from rows import ROWS
from telling import GIGA, Promise, grid, middle, sample_words, spread
from undertow.models.base import FLOAT32
from work import Plan, Work, say, start_engine, told_model
from worker import Answered, Worker

NAME = "bfloat16"
ROW = "likelihood"
PRECISIONS = (FLOAT32, "bfloat16")
PROMISED_RATIO = 2.0
LEAST_PEAK_RATIO = 2.5
"""How many times faster a machine must multiply in bfloat16 for the promise to be made of it."""


@dataclass(slots=True)
class _Taken:
    """One precision over the rounds."""

    worker: Worker
    visits: list[peak.Rates] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        seconds = [one.seconds for one in self.answered]
        return {"model": told_model(self.worker), "seconds": seconds, "peak": peak.Peak.of(self.visits).told()}


def measure(plan: Plan) -> dict[str, Any]:
    """The record."""
    work = Work.of(ROWS[ROW], plan, alone=True)
    takings = [_Taken(start_engine(work, plan, dtype)) for dtype in PRECISIONS]
    products = peak.products_of(takings[0].worker.do(needed.shape_of))
    for taken in takings:
        taken.worker.do(peak.rates, products)  # warms up
    for number in range(1, plan.engine_rounds + 1):
        for dtype, taken in zip(PRECISIONS, takings, strict=True):
            say(f"{NAME}: round {number} of {plan.engine_rounds}: {dtype}")
            taken.visits.append(taken.worker.do(peak.rates, products))
            taken.answered.append(taken.worker.score(work.sample.places, ITS_OWN))
    exact, reduced = takings
    ratios = [one.seconds / other.seconds for one, other in zip(exact.answered, reduced.answered, strict=True)]
    entry = {
        **work.told(),
        "threads": exact.worker.ready.threads,
        "precisions": [taken.told() for taken in takings],
        "rate_ratios": ratios,
        "peak_ratio": peak.Peak.of(reduced.visits).flop_per_s / peak.Peak.of(exact.visits).flop_per_s,
        "error_nats": errors(exact.answered[0].numbers, reduced.answered[0].numbers),
        "promised_ratio": PROMISED_RATIO,
        "least_peak_ratio": LEAST_PEAK_RATIO,
    }
    for taken in takings:
        taken.worker.close()
    return entry


def errors(exact: Logprobs, reduced: Logprobs) -> dict[str, float]:
    """The largest difference and the root of the mean square, over all items and options, in nats."""
    gaps = _gaps(exact, reduced)
    return {"largest": max(gaps), "root_mean_square": math.sqrt(sum(gap**2 for gap in gaps) / len(gaps))}


def _gaps(exact: Logprobs, reduced: Logprobs) -> Sequence[float]:
    return [
        abs(one - other)
        for item, item_reduced in zip(exact, reduced, strict=True)
        for one, other in zip(item, item_reduced, strict=True)
    ]


def promises(entry: dict[str, Any]) -> list[Promise]:
    """Twice the rate, where the machine is fast at it."""
    ratio, of_peaks, least = spread(entry["rate_ratios"]), entry["peak_ratio"], entry["least_peak_ratio"]
    what = (
        f"bfloat16: at least {entry['promised_ratio']:g} times the rate of float32, "
        f"where the machine multiplies at least {least:g} times as fast in it"
    )
    kept = ratio["median"] >= entry["promised_ratio"] if of_peaks >= least else None
    return [Promise(what, f"{middle(ratio)} times; the machine {of_peaks:.2f} times", kept)]


def section(entry: dict[str, Any], _: dict[str, Any]) -> str:
    """The part of the page."""
    heads = ["precision", "items/s, median", "limit GFLOP/s", "fastest product"]
    rows = []
    for one in entry["precisions"]:
        rate = entry["n_items"] / spread(one["seconds"])["median"]
        rows.append(
            [one["model"]["dtype"], f"{rate:.1f}", f"{one['peak']['flop_per_s'] / GIGA:.0f}", one["peak"]["product"]]
        )
    off = entry["error_nats"]
    about = (
        f"Work of the row `{entry['row']}`, {entry['precisions'][0]['model']['source']}. {sample_words(entry)}. "
        f"Log-probabilities of whole continuations differ by {off['root_mean_square']:.2g} nats (root mean square), "
        f"at most by {off['largest']:.2g}."
    )
    return "\n\n".join([about, grid(heads, rows)])
