"""Reduced precision: the same likelihood work in bfloat16 beside float32, how much faster and how far off.

Each precision in a process of its own, and both take turns, with the machine's limit in that precision before each. Knows rows,
workers and peaks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import needed
import peak
from contenders import ITS_OWN
from gate import Logprobs
from rows import ROWS, Row
from telling import GIGA, Promise, grid, middle, sample_words, spread
from undertow.models.base import FLOAT32
from undertow.models.precision import AUTO, BFLOAT16, CPU, dtype_here
from undertow.types import UndertowError
from work import Plan, Work, say, start_engine, told_model
from worker import Answered, Worker

NAME = "bfloat16"
ROW = "likelihood"
PRECISIONS = (FLOAT32, BFLOAT16)
PROMISED_RATIO = 2.0
MOST_ERROR_NATS = 0.3
"""Root-mean-square difference from float32 beyond which the numbers are no longer those of the same model, and have no rate."""


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
    """The record.

    Raises:
        UndertowError: a precision's numbers change from round to round, or bfloat16's are too far off.
    """
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
    off = _checked(work.row, exact, reduced)
    ratios = [one.seconds / other.seconds for one, other in zip(exact.answered, reduced.answered, strict=True)]
    entry = {
        **work.told(),
        "threads": exact.worker.ready.threads,
        "precisions": [taken.told() for taken in takings],
        "rate_ratios": ratios,
        "error_nats": off,
        "most_error_nats": MOST_ERROR_NATS,
        "promised_ratio": PROMISED_RATIO,
        "auto": dtype_here(AUTO, work.row.family, CPU),
    }
    for taken in takings:
        taken.worker.close()
    return entry


def _checked(row: Row, exact: _Taken, reduced: _Taken) -> dict[str, float]:
    """How far bfloat16 is off, once each precision is known to say the same in every round."""
    for taken, dtype in zip((exact, reduced), PRECISIONS, strict=True):
        for one in taken.answered:
            row.gate.require(taken.answered[0].numbers, one.numbers, f"{NAME}: {row.name} in {dtype}")
    return errors(exact.answered[0].numbers, reduced.answered[0].numbers)


def errors(exact: Logprobs, reduced: Logprobs) -> dict[str, float]:
    """The largest difference and the root of the mean square, over all items and options, in nats.

    Raises:
        UndertowError: a number is missing, or they are so far off that a rate would say nothing.
    """
    if [len(item) for item in exact] != [len(item) for item in reduced] or not any(exact):
        raise UndertowError(f"{NAME}: numbers are missing, so no rate is told; run again")
    with np.errstate(invalid="ignore"):  # two infinite numbers have no difference: counted as missing below
        gaps = np.abs(np.concatenate(exact) - np.concatenate(reduced))
    n_missing = int(np.isnan(gaps).sum())
    if n_missing:
        raise UndertowError(f"{NAME}: {n_missing} of {gaps.size} numbers are missing, so no rate is told; run again")
    root = float(np.sqrt(np.mean(gaps**2)))
    if root > MOST_ERROR_NATS:
        raise UndertowError(
            f"{NAME}: log-probabilities differ from float32's by {root:.2g} nats (root mean square), and {MOST_ERROR_NATS:g} is "
            "allowed, so no rate is told; name a model that keeps its numbers in bfloat16"
        )
    return {"largest": float(gaps.max()), "root_mean_square": root}


def promises(entry: dict[str, Any]) -> list[Promise]:
    """Twice the rate, where `auto` is bfloat16: whoever chooses it for a user has to be right."""
    ratio = spread(entry["rate_ratios"])
    what = (
        f"bfloat16: at least {entry['promised_ratio']:g} times the rate of float32, where `--dtype {AUTO}` chooses it"
    )
    kept = ratio["median"] >= entry["promised_ratio"] if entry["auto"] == BFLOAT16 else None
    return [Promise(what, f"{middle(ratio)} times; {_products(entry)}", kept)]


def _products(entry: dict[str, Any]) -> str:
    """The machine's limits beside each other."""
    exact, reduced = (one["peak"]["flop_per_s"] / GIGA for one in entry["precisions"])
    return f"this processor's own products {reduced / exact:.2f} times ({reduced:.0f} and {exact:.0f} GFLOP/s)"


def _verdict(entry: dict[str, Any]) -> str:
    """What came of the promise, beside what the machine itself can do."""
    (promise,) = promises(entry)
    exact, reduced = (one["peak"]["flop_per_s"] for one in entry["precisions"])
    of_peaks, ratio = reduced / exact, spread(entry["rate_ratios"])["median"]
    # Limits below the promise are a reason to miss it; limits beyond it are none.
    because = "since" if of_peaks < entry["promised_ratio"] else "while"
    only = "only " if because == "since" else ""
    of_machine = (
        f"this processor's own products are {only}{of_peaks:.2f} times as fast in bfloat16 "
        f"({reduced / GIGA:.0f} GFLOP/s, and {exact / GIGA:.0f} in float32)"
    )
    if promise.kept is None:
        return f"The promise does not apply, since `--dtype {AUTO}` is {entry['auto']} here: {ratio:.2f} times, and {of_machine}."
    if promise.kept:
        return f"Kept: {ratio:.2f} times; {of_machine}."
    return f"Missed: {ratio:.2f} times, {because} {of_machine}."


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
        f"at most by {off['largest']:.2g}; a root mean square of {entry['most_error_nats']:g} is allowed, and no number may be missing."
    )
    return "\n\n".join([_verdict(entry), about, grid(heads, rows)])
