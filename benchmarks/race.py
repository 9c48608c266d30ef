"""A race: the contenders of a row beside each other, equality first, then rounds in which they take turns."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field

from contenders import CONTENDERS, ITS_OWN, Contender
from gate import Agreement, Said
from rows import Row
from telling import Entry, Promise, grid, middle, sample_words, span, spread
from undertow.types import UndertowError
from worker import Answered, Order, Work, Worker, say

SEARCH_PASSES = 2
"""Sizes up, then down: a machine that slows down meanwhile favours neither end."""
SEARCH_SECONDS = 60.0
"""For one peer's batch size: a slow machine tries all sizes on fewer items."""
FEWEST = 24
"""Items of a search, which is as many texts as the larger batches have."""
MEMORY = {
    "peak_mib": "peak MiB",
    "loaded_mib": "loaded MiB",
    "scoring_peak_mib": "peak while scoring MiB",
    "scoring_added_mib": "added by scoring MiB",
}
"""Columns of the table, by their name in the record."""


@dataclass(slots=True)
class Turns:
    """What one contender did over the rounds."""

    contender: Contender
    batch_size: int
    worker: Worker
    answered: list[Answered] = field(default_factory=list)


def measure(row: Row, plan: Namespace) -> Entry:
    """The record of one row.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed.
    """
    work = Work.of(row, plan)
    turns, searches = _line_up(work)
    for number in range(1, plan.rounds + 1):
        for turn in turns:
            say(f"{row.name}: round {number} of {plan.rounds}: {turn.contender.name}")
            turn.answered.append(turn.worker.score(work.sample.places, turn.batch_size))
    agreements = [_agreement(turn, turns[0], work) for turn in turns]
    ready = [turn.worker.ready for turn in turns]
    if len({(one.revision, one.dtype, one.threads) for one in ready}) != 1:
        raise UndertowError(
            f"{row.name}: the contenders had other weights, precision or threads; set --threads, run again"
        )
    n_items = len(work.sample.places)
    entries = [_entry(turn, n_items) for turn in turns]
    ties = {"tie_percent": row.gate.tie_percent, "ties_allowed": row.gate.ties_allowed(n_items)}
    return {
        **work.told(),
        "model": turns[0].worker.model,
        "threads": ready[0].threads,
        "packages": sorted({turn.contender.package for turn in turns}),
        "equality": {"tolerance": row.gate.tolerance, "unit": row.gate.unit, **ties},
        "searches": searches,
        "contenders": entries,
        "comparisons": [
            _compared(entries[0], entry, turn.contender, agreement)
            for turn, entry, agreement in list(zip(turns, entries, agreements, strict=True))[1:]
        ],
    }


def _line_up(work: Work) -> tuple[list[Turns], list[Entry]]:
    """Every contender loaded, warmed up on the smaller sample, and at its best batch size; and how that was found."""
    engine, *peers = CONTENDERS[work.row.name]
    searched = [peer for peer in peers if peer.batch_size is None]
    own, *others = _loaded([engine, *searched], work)
    reference = own.score(work.smaller.places).numbers
    searches = [_search(peer, worker, work, reference) for peer, worker in zip(searched, others, strict=True)]
    best = {search["contender"]: int(search["best"]) for search in searches}
    turns = [Turns(engine, ITS_OWN, own)]
    for peer, worker in zip(peers, _loaded(peers, work), strict=True):
        turns.append(Turns(peer, best[peer.name] if peer.batch_size is None else peer.batch_size, worker))
        worker.score(work.smaller.places, turns[-1].batch_size)
    return turns, searches


def _loaded(contenders: Sequence[Contender], work: Work) -> list[Worker]:
    """Workers that have loaded their models, side by side: that is not timed, and nothing else is meanwhile."""
    say(f"{work.row.name}: {'; '.join(contender.name for contender in contenders)}: models are loaded")
    orders = [Order(one.name, work.row.name, work.model, work.plan.threads) for one in contenders]
    workers = [Worker(order) for order in orders]
    for worker in workers:
        _ = worker.ready
    return workers


def _search(peer: Contender, worker: Worker, work: Work, reference: Sequence[Said]) -> Entry:
    """The rate of a peer at each batch size, in a process that is not used again."""
    sizes = tuple(work.plan.batch_sizes) or work.row.batch_sizes
    places = work.smaller.places
    a_few = places[:FEWEST]
    seconds = worker.score(a_few, sizes[0]).seconds / len(a_few)
    places = places[: max(FEWEST, int(SEARCH_SECONDS / (SEARCH_PASSES * len(sizes) * seconds)))]
    rates = dict.fromkeys(sizes, 0.0)
    for size in [*sizes, *reversed(sizes)]:
        say(f"{work.row.name}: {peer.name}: batch size {size}")
        answered = worker.score(places, size)
        work.row.gate.require(reference[: len(places)], answered.numbers, f"{peer.name} at batch size {size}")
        rates[size] = max(rates[size], len(places) / answered.seconds)
    worker.close()
    return {
        "contender": peer.name,
        "n_items": len(places),
        "passes": SEARCH_PASSES,
        "items_per_s": {str(size): rate for size, rate in rates.items()},
        "best": max(rates, key=rates.__getitem__),
    }


def _agreement(turn: Turns, engine: Turns, work: Work) -> Agreement:
    """How far a contender agrees with the engine's first round, in the worst of its rounds."""
    reference = engine.answered[0].numbers
    found = [work.row.gate.require(reference, answered.numbers, turn.contender.name) for answered in turn.answered]
    return Agreement(max(one.difference for one in found), max(one.n_ties for one in found))


def _entry(turn: Turns, n_items: int) -> Entry:
    memory = turn.worker.close()
    memory["peak_mib"] = max(memory["loading_peak_mib"], memory["scoring_peak_mib"])
    memory["scoring_added_mib"] = memory["scoring_peak_mib"] - memory["loaded_mib"]
    seconds = [answered.seconds for answered in turn.answered]
    rates = [n_items / second for second in seconds]
    name, size = turn.contender.name, turn.batch_size
    return {"name": name, "batch_size": size, "seconds": seconds, "items_per_s": rates, "memory": memory}


def _compared(engine: Entry, peer: Entry, contender: Contender, agreement: Agreement) -> Entry:
    """The ratio of rates round by round, and of memory: the peak since loading ended, the model included."""
    ratios = [one / other for one, other in zip(engine["items_per_s"], peer["items_per_s"], strict=True)]
    return {
        "peer": peer["name"],
        "rate_ratio": spread(ratios),
        "rate_ratios": ratios,
        "memory_ratio": engine["memory"]["scoring_peak_mib"] / peer["memory"]["scoring_peak_mib"],
        "target_ratio": contender.target_ratio,
        "no_more_memory": contender.no_more_memory,
        "largest_difference": agreement.difference,
        "n_ties": agreement.n_ties,
    }


def promises(row: Entry) -> list[Promise]:
    """A row's promises: a rate beside each peer that one was made about, and memory."""
    found = []
    for one in row["comparisons"]:
        target, ratio = one["target_ratio"], one["rate_ratio"]
        if target:
            what = f"{row['row']}: at least {target:g} times the rate of {one['peer']}"
            found.append(Promise(what, f"{middle(ratio)} times", ratio["median"] >= target))
        if one["no_more_memory"]:
            what = f"{row['row']}: no more memory than {one['peer']}"
            found.append(Promise(what, f"{one['memory_ratio']:.2f} times", one["memory_ratio"] <= 1))
    return found


def section(row: Entry, _: Entry) -> str:
    """A row's part of the page."""
    equality, model = row["equality"], row["model"]
    about = (
        f"Model: {model['source']}, {model['dtype']}, the same weights for all. "
        f"An item is {row['about']}. {sample_words(row)}. Rounds, in which they take turns: {row['taken']['rounds']}. "
        f"Numbers compared before any time was reported: at most {equality['tolerance']:g} {equality['unit']} apart is allowed."
    )
    if equality["ties_allowed"]:
        about += (
            f" At most {equality['ties_allowed']:,} of the {row['n_items']:,} items ({equality['tie_percent']}%, one in any case) "
            "may part where rounding turns a tie."
        )
    contenders = []
    for one in row["contenders"]:
        rate, memory = spread(one["items_per_s"]), [f"{one['memory'][name]:.0f}" for name in MEMORY]
        contenders.append(
            [one["name"], one["batch_size"] or "its own", f"{rate['median']:.1f}", span(rate, 1), *memory]
        )
    compared = []
    for one in row["comparisons"]:
        numbers = [f"{one['memory_ratio']:.2f}", f"{one['largest_difference']:.1e}", one["n_ties"]]
        compared.append([one["peer"], f"{one['rate_ratio']['median']:.2f}", span(one["rate_ratio"]), *numbers])
    searches = [
        f"Batch size of {one['contender']}, on {one['n_items']} items beforehand, the better of {one['passes']} passes (items/s): "
        + ", ".join(f"{size}: {rate:.1f}" for size, rate in one["items_per_s"].items())
        + f". Best: {one['best']}."
        for one in row["searches"]
    ]
    rates = "contender|batch size|items/s, median|min to max|" + "|".join(MEMORY.values())
    beside = "engine beside|rate ratio, median|min to max|memory ratio|largest difference|parted at ties"
    return "\n\n".join([about, grid(rates, contenders), grid(beside, compared), *searches])
