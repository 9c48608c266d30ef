"""A race: the contenders of a row beside each other, equality first, then rounds in which they take turns.

For a row: find each peer's best batch size on a smaller sample, check that all numbers agree, then score in rounds (A B A B ...), each
contender in a process of its own, one working at a time. Knows workers and gates; how it is told is in `race_told`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from contenders import CONTENDERS, ITS_OWN, Contender
from gate import Agreement, Numbers
from race_told import compare
from rows import Row
from undertow.types import UndertowError
from work import Plan, Work, say, told_model
from worker import Answered, Memory, Order, Worker

SEARCH_PASSES = 2
"""Sizes up, then down: a machine that slows down meanwhile favours neither end."""


@dataclass(slots=True)
class Turns:
    """What one contender did over the rounds."""

    contender: Contender
    batch_size: int
    worker: Worker
    answered: list[Answered] = field(default_factory=list)


def run(row: Row, plan: Plan) -> dict[str, Any]:
    """The record of one row.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed.
    """
    work = Work.of(row, plan)
    turns, searches = _line_up(work, plan)
    _take_turns(turns, work, plan.rounds)
    agreements = [_require_equal(turn, turns[0], work) for turn in turns]
    ready = [turn.worker.ready for turn in turns]
    if len({(one.revision, one.dtype) for one in ready}) != 1:
        raise UndertowError(f"{row.name}: the contenders had different weights or precision; run again")
    if len({one.threads for one in ready}) != 1:
        raise UndertowError("the contenders had different numbers of threads; set --threads and run again")
    entries = [_entry(turn, len(work.sample.places)) for turn in turns]
    return {
        **work.told(),
        "model": told_model(turns[0].worker),
        "threads": ready[0].threads,
        "packages": sorted({turn.contender.package for turn in turns}),
        "equality": {
            "tolerance": row.gate.tolerance,
            "unit": row.gate.unit,
            "tie_percent": row.gate.tie_percent,
            "ties_allowed": row.gate.ties_allowed(len(work.sample.places)),
        },
        "searches": searches,
        "contenders": entries,
        "comparisons": [
            compare(entries[0], entry) | _promised(turn.contender) | _agreed(agreement)
            for turn, entry, agreement in list(zip(turns, entries, agreements, strict=True))[1:]
        ],
    }


def _promised(peer: Contender) -> dict[str, Any]:
    return {"target_ratio": peer.target_ratio, "no_more_memory": peer.no_more_memory}


def _agreed(agreement: Agreement) -> dict[str, Any]:
    return {"largest_difference": agreement.difference, "n_ties": agreement.n_ties}


def _line_up(work: Work, plan: Plan) -> tuple[list[Turns], list[dict[str, Any]]]:
    """Every contender loaded, warmed up on the smaller sample, and at its best batch size; and how that was found."""
    engine, *peers = CONTENDERS[work.row.name]
    searched = [peer for peer in peers if peer.batch_size is None]
    own, *others = _loaded([engine, *searched], work, plan)
    reference = own.score(work.smaller.places, ITS_OWN).numbers
    searches = [_search(peer, worker, work, reference) for peer, worker in zip(searched, others, strict=True)]
    best = {search["contender"]: int(search["best"]) for search in searches}
    turns = [Turns(engine, ITS_OWN, own)]
    for peer, worker in zip(peers, _loaded(peers, work, plan), strict=True):
        turns.append(Turns(peer, best[peer.name] if peer.batch_size is None else peer.batch_size, worker))
        worker.score(work.smaller.places, turns[-1].batch_size)
    return turns, searches


def _loaded(contenders: Sequence[Contender], work: Work, plan: Plan) -> list[Worker]:
    """Workers that have loaded their models, side by side: that is not timed, and nothing else is meanwhile."""
    say(f"{work.row.name}: {'; '.join(contender.name for contender in contenders)}: models are loaded")
    workers = [Worker(Order(contender.name, work.row.name, work.model, plan.threads)) for contender in contenders]
    for worker in workers:
        _ = worker.ready
    return workers


def _search(peer: Contender, worker: Worker, work: Work, reference: Numbers) -> dict[str, Any]:
    """The rate of a peer at each batch size, in a process that is not used again."""
    places = work.smaller.places
    rates = dict.fromkeys(work.batch_sizes, 0.0)
    for size in [*work.batch_sizes, *reversed(work.batch_sizes)]:
        say(f"{work.row.name}: {peer.name}: batch size {size}")
        answered = worker.score(places, size)
        work.row.gate.require(reference, answered.numbers, f"{peer.name} at batch size {size}")
        rates[size] = max(rates[size], len(places) / answered.seconds)
    worker.close()
    return {
        "contender": peer.name,
        "n_items": len(places),
        "passes": SEARCH_PASSES,
        "items_per_s": {str(size): rate for size, rate in rates.items()},
        "best": max(rates, key=rates.__getitem__),
    }


def _take_turns(turns: Sequence[Turns], work: Work, rounds: int) -> None:
    for number in range(1, rounds + 1):
        for turn in turns:
            say(f"{work.row.name}: round {number} of {rounds}: {turn.contender.name}")
            turn.answered.append(turn.worker.score(work.sample.places, turn.batch_size))


def _require_equal(turn: Turns, engine: Turns, work: Work) -> Agreement:
    """How far a contender agrees with the engine's first round, in the worst of its rounds.

    Raises:
        UndertowError: not far enough.
    """
    reference = engine.answered[0].numbers
    found = [work.row.gate.require(reference, answered.numbers, turn.contender.name) for answered in turn.answered]
    return Agreement(max(one.difference for one in found), max(one.n_ties for one in found))


def _entry(turn: Turns, n_items: int) -> dict[str, Any]:
    memory = turn.worker.close()
    seconds = [answered.seconds for answered in turn.answered]
    return {
        "name": turn.contender.name,
        "batch_size": turn.batch_size,
        "seconds": seconds,
        "items_per_s": [n_items / second for second in seconds],
        "memory": _memory(memory),
    }


def _memory(memory: Memory) -> dict[str, float]:
    return asdict(memory) | {
        "peak_mib": max(memory.loading_peak_mib, memory.scoring_peak_mib),
        "scoring_added_mib": memory.scoring_peak_mib - memory.loaded_mib,
    }
