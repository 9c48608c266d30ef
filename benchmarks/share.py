"""The share of the machine's limit: needed work in a second of scoring, against what the machine multiplies at its best.

The limit is taken before each round and after the last, in the engine's own process, so that both see the same machine. A peer's
share follows from the ratio of rates in its race, since the needed work is the same for all. Knows rows, workers, counts and
peaks; knows nothing about how the engine works.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import needed
import peak
from contenders import ITS_OWN
from rows import ROWS
from telling import GIGA, Promise, grid, middle, sample_words, span, spread
from undertow.types import UndertowError
from work import Plan, Work, say, start_engine, told_model

NAME = "share"
OF_ROWS = ("likelihood", "schemas", "masked")
PROMISED = {"likelihood": 0.8}
"""By row: least median share; the others are told."""


def measure(plan: Plan) -> dict[str, Any]:
    """The record of all rows.

    Raises:
        UndertowError: the engine's numbers change from round to round.
    """
    works = [_measured(Work.of(ROWS[name], plan, alone=True), plan) for name in OF_ROWS]
    return {"threads": works[0].pop("threads"), "works": works}


def _measured(work: Work, plan: Plan) -> dict[str, Any]:
    worker = start_engine(work, plan)
    products = peak.products_of(worker.do(needed.shape_of))
    say(f"{work.row.name}: what it needs is counted")
    required: needed.Needed = worker.do(needed.needed_by, work.sample.places)
    worker.do(peak.rates, products)  # warms up
    visits, answered = [], []
    for number in range(1, plan.engine_rounds + 1):
        say(f"{work.row.name}: round {number} of {plan.engine_rounds}: the machine's limit, the engine")
        visits.append(worker.do(peak.rates, products))
        answered.append(worker.score(work.sample.places, ITS_OWN))
    visits.append(worker.do(peak.rates, products))
    for one in answered:  # the first with itself, so that it is not missing numbers
        work.row.gate.require(answered[0].numbers, one.numbers, f"{NAME}: {work.row.name}")
    limit = peak.Peak.of(visits)
    seconds = [one.seconds for one in answered]
    entry = {
        **work.told(),
        "model": told_model(worker),
        "threads": worker.ready.threads,
        "needed": required.told(),
        "seconds": seconds,
        "peak": limit.told(),
        "shares": shares(required.flop, seconds, limit.by_visit),
        "promised": PROMISED.get(work.row.name, 0.0),
    }
    worker.close()
    return entry


def shares(flop: float, seconds: list[float], limits: tuple[float, ...]) -> list[float]:
    """Share of the limit in each round, the limit being the mean of what it was before and after.

    Args:
        flop: needed operations.
        seconds: of each round [round].
        limits: FLOP/s before each round and after the last [round + 1].
    """
    if len(limits) != len(seconds) + 1:
        raise UndertowError("a limit is taken before each round and after the last; run again")
    around = [(before + after) / 2 for before, after in pairwise(limits)]
    return [flop / (one * limit) for one, limit in zip(seconds, around, strict=True)]


def promises(entry: dict[str, Any]) -> list[Promise]:
    """The promise of each row that has one."""
    return [
        Promise(
            f"{work['row']}: at least {work['promised']:.0%} of the machine's limit on needed work",
            _percent(spread(work["shares"])),
            spread(work["shares"])["median"] >= work["promised"],
        )
        for work in entry["works"]
        if work["promised"]
    ]


def section(entry: dict[str, Any], races: dict[str, Any]) -> str:
    """The part of the page.

    Args:
        entry: the record of this measurement.
        races: records of rows, by name, as far as there are any.
    """
    about = (
        "Needed work is counted from the distinct tokens of all texts together and the places that are read in them, whoever does it: "
        "all layers for all tokens, but of the last layer the keys and values alone where nothing is read; "
        "it is divided by the seconds of the engine's whole way, tokenising and storing included, and by what the same process "
        "multiplies at its best before and after each round. A peer's share is the engine's, divided by how many times faster the "
        "engine was in the row's race."
    )
    told = [_about(work) for work in entry["works"]]
    return "\n\n".join([about, _work_table(entry), _share_table(entry, races), *told])


def _work_table(entry: dict[str, Any]) -> str:
    heads = ["work", "needed tokens", "fed", "places read", "layers GFLOP", "attention GFLOP", "head GFLOP", "in all"]
    rows = []
    for work in entry["works"]:
        of = work["needed"]
        parts = [of[f"{part}flop"] / GIGA for part in ("layers_", "attention_", "head_", "")]
        tokens = [f"{of[name]:,}" for name in ("n_tokens", "n_fed", "n_reads")]
        rows.append([work["row"], *tokens, *(f"{part:,.1f}" for part in parts)])
    return grid(heads, rows)


def _share_table(entry: dict[str, Any], races: dict[str, Any]) -> str:
    heads = ["work", "contender", "share of the limit, median", "min to max", "limit GFLOP/s", "fastest product"]
    rows: list[list[object]] = []
    for work in entry["works"]:
        own, limit = spread(work["shares"]), work["peak"]
        best = [f"{limit['flop_per_s'] / GIGA:.0f}", limit["product"]]
        in_percent = {name: 100 * one for name, one in own.items()}
        rows.append([work["row"], "undertow", f"{in_percent['median']:.0f}%", f"{span(in_percent, 0)}%", *best])
        for peer in races.get(work["row"], {}).get("comparisons", []):
            share = in_percent["median"] / peer["rate_ratio"]["median"]
            rows.append([work["row"], peer["peer"], f"{share:.0f}%", "by its rate", "", ""])
    return grid(heads, rows)


def _about(work: dict[str, Any]) -> str:
    return (
        f"{work['row']}: {work['model']['source']}, {work['model']['dtype']}. {sample_words(work)}. "
        f"Seconds of the engine: {middle(spread(work['seconds']))}."
    )


def _percent(values: dict[str, float]) -> str:
    return middle({name: 100 * one for name, one in values.items()}, 0) + "%"
