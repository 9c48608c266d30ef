"""A race: the contenders of a row beside each other, equality first, then rounds in which they take turns."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from statistics import median

from contenders import CONTENDERS, Contender
from gate import Output
from rows import Row
from tables import Entry, promise, show
from undertow.errors import UndertowError
from worker import Timed, Work, Worker, say

SEARCH_SECONDS = 60.0
"""For one peer's batch size: a slow machine tries all sizes on fewer items."""
FEWEST = 24
"""Items of a search, which is as many texts as the larger batches have."""
PEAKS = ("peak on the GPU MB", "peak while scoring MB")
"""Columns of memory; the first that there is counts."""


def measure(row: Row, plan: Namespace) -> Entry:
    """The record of one row.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed.
    """
    work = Work.of(row, plan)
    engine, *peers = CONTENDERS[row.name]
    searched = [peer for peer in peers if peer.batch_size is None]
    own, *others = _loaded([engine, *searched], work)
    reference = own.score(work.smaller).outputs
    searches = [_search(peer, worker, work, reference) for peer, worker in zip(searched, others, strict=True)]
    sizes = {contender.name: contender.batch_size or 0 for contender in (engine, *peers)}
    sizes |= {search["peer"]: search["best"] for search in searches}
    workers = {engine: own} | dict(zip(peers, _loaded(peers, work), strict=True))
    ready = [worker.ready for worker in workers.values()]
    if len({one[1:] for one in ready}) != 1:
        raise UndertowError(f"{row.name}: contenders differ in weights, precision or threads; set --threads, run again")
    for peer in peers:
        workers[peer].score(work.smaller, sizes[peer.name])
    timed: dict[Contender, list[Timed]] = {contender: [] for contender in workers}
    for number in range(1, plan.rounds + 1):
        for contender, worker in workers.items():
            say(f"{row.name}: round {number} of {plan.rounds}: {contender.name}")
            timed[contender].append(worker.score(work.sample, sizes[contender.name]))
    memory = {contender: worker.close() for contender, worker in workers.items()}
    seconds = {contender: [one.seconds for one in rounds] for contender, rounds in timed.items()}
    comparisons, promises = [], []
    for peer in (engine, *peers):
        every = [row.gate.require(timed[engine][0].outputs, one.outputs, peer.name) for one in timed[peer]]
        if peer is engine:
            continue
        ratios = [other / own for own, other in zip(seconds[engine], seconds[peer], strict=True)]
        peak = next(name for name in PEAKS if name in memory[engine])
        of_memory = memory[engine][peak] / memory[peer][peak]
        agreement = {"largest difference": max(every)[0], "parted at ties": max(n_ties for _, n_ties in every)}
        comparisons.append({"engine beside": peer.name, "rate ratio": ratios, "memory ratio": of_memory, **agreement})
        if peer.target_ratio:
            what = f"{row.name}: at least {peer.target_ratio:g} times the rate of {peer.name}"
            promises.append(promise(what, f"{show(ratios)} times", median(ratios) >= peer.target_ratio))
        if peer.no_more_memory:
            what = f"{row.name}: no more memory than {peer.name}"
            promises.append(promise(what, f"{show(of_memory)} times", of_memory <= 1))
    rates = [
        {
            "contender": contender.name,
            "batch size": sizes[contender.name] or "its own",
            "items/s": [len(work.sample) / one for one in seconds[contender]],
            **memory[contender],
        }
        for contender in workers
    ]
    return {
        "notes": [work.note(), ready[0].note()],
        "promises": promises,
        "tables": [rates, comparisons, *([searches] if searches else [])],
        "packages": sorted({contender.package for contender in workers}),
    }


def _loaded(contenders: Sequence[Contender], work: Work) -> list[Worker]:
    """Workers that have loaded their models, side by side: that is not timed, and nothing else is meanwhile."""
    say(f"{work.row.name}: {'; '.join(contender.name for contender in contenders)}: models are loaded")
    workers = [Worker(work, contender.name) for contender in contenders]
    for worker in workers:
        _ = worker.ready
    return workers


def _search(peer: Contender, worker: Worker, work: Work, reference: Sequence[Output]) -> Entry:
    """The best rate of a peer at each batch size, sizes up and then down, in a process that is not used again."""
    sizes = [*(work.plan.batch_sizes or work.row.batch_sizes)]
    fewest = work.smaller[:FEWEST]
    seconds = worker.score(fewest, sizes[0]).seconds / len(fewest)
    places = work.smaller[: max(FEWEST, int(SEARCH_SECONDS / (2 * len(sizes) * seconds)))]
    rates = dict.fromkeys(sizes, 0.0)
    for size in [*sizes, *reversed(sizes)]:
        say(f"{work.row.name}: {peer.name}: batch size {size}")
        timed = worker.score(places, size)
        work.row.gate.require(reference[: len(places)], timed.outputs, f"{peer.name} at batch size {size}")
        rates[size] = max(rates[size], len(places) / timed.seconds)
    worker.close()
    by_size = {f"items/s at batch size {size}": rate for size, rate in rates.items()}
    return {"peer": peer.name, "items": len(places), **by_size, "best": max(rates, key=rates.__getitem__)}
