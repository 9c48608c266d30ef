"""Times the engine beside other tools: equality first, then rounds in which the contenders take turns.

    python benchmarks/bench.py                          a seeded sample of every row
    python benchmarks/bench.py --rows masked,prompts    these rows
    python benchmarks/bench.py --full                   every item

For each row: find each peer's best batch size on a smaller sample, check that all numbers agree, then score in rounds
(A B A B ...), each contender in a process of its own, one working at a time. `make bench` prepares the environment.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, ITS_OWN, Contender
from gate import Agreement, Numbers
from machine import describe, load_average
from random_bert import prepared
from rows import ROWS, Row, Sample
from summary import compare, table
from undertow.types import Blank, Item, UndertowError
from worker import Answered, Memory, Order, Ready, Worker

RESULTS = Path(__file__).parent / "results"
SEARCH_PASSES = 2
"""Sizes up, then down: a machine that slows down meanwhile favours neither end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for; see `--help`. 0 and () stand for each row's own."""

    full: bool
    rounds: int
    sample: int
    search_sample: int
    batch_sizes: tuple[int, ...]
    seed: int
    model: str
    masked_model: str
    threads: int


@dataclass(frozen=True, slots=True)
class Work:
    """A row as it is run.

    Attributes:
        row: which.
        model: who is asked.
        items: all of the row.
        sample, smaller: those that are timed, and those that batch sizes are found on.
        batch_sizes: to try.
    """

    row: Row
    model: str
    items: Sequence[Item]
    sample: Sample
    smaller: Sample
    batch_sizes: tuple[int, ...]

    @classmethod
    def of(cls, row: Row, plan: Plan) -> Work:
        """Draw the row's samples, and make its model if that is made here."""
        items = row.items()
        n_sample = len(items) if plan.full else plan.sample or row.n_sample
        return cls(
            row,
            _model(row, items, plan),
            items,
            row.draw(items, n_sample, plan.seed),
            row.draw(items, plan.search_sample or row.n_search, plan.seed),
            plan.batch_sizes or row.batch_sizes,
        )


@dataclass(slots=True)
class Turns:
    """What one contender did over the rounds."""

    contender: Contender
    batch_size: int
    worker: Worker
    answered: list[Answered] = field(default_factory=list)


def main() -> None:
    """Run what the command line asks for; exit code 1 if the contenders' numbers differ."""
    options = _parser().parse_args()
    results, rows = options.results, options.rows
    del options.results, options.rows
    plan = Plan(**vars(options) | {"batch_sizes": tuple(options.batch_sizes)})
    try:
        record = bench(rows, plan)
    except UndertowError as error:
        sys.exit(f"bench: {error}")
    results.mkdir(parents=True, exist_ok=True)
    (results / "bench.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (results / "bench.md").write_text(table(record), encoding="utf-8")
    print(table(record))
    print(f"written to {results / 'bench.json'} and {results / 'bench.md'}")


def _parser() -> argparse.ArgumentParser:
    count: dict[str, Any] = {"type": _at_least_one, "default": 0, "metavar": "N"}
    parser = argparse.ArgumentParser(description="Time the engine beside other tools.")
    parser.add_argument(
        "--rows",
        type=_rows,
        default=list(ROWS.values()),
        metavar="ROW,...",
        help=f"of {', '.join(ROWS)} (default: all)",
    )
    parser.add_argument("--full", action="store_true", help="every item instead of a sample; hours for prompts")
    parser.add_argument("--rounds", type=_at_least_one, default=3, metavar="N", help="turns of each (default 3)")
    parser.add_argument("--sample", **count, help=f"how much to time (default: {_told('n_sample')})")
    parser.add_argument(
        "--search-sample",
        **count,
        help=f"how much to find batch sizes on and to warm up with (default: {_told('n_search')})",
    )
    parser.add_argument(
        "--batch-sizes", type=_at_least_one, nargs="+", default=[], metavar="N", help="to try (default: each row's own)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default 0)")
    parser.add_argument("--model", default="smollm2", help="a causal model (default smollm2)")
    parser.add_argument("--masked-model", default="", help="a masked model (default: a random one of BERT-base's size)")
    parser.add_argument("--threads", type=int, default=0, help="of torch, in each process (default: torch's choice)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for bench.json and bench.md")
    return parser


def _told(size: str) -> str:
    return ", ".join(f"{row.name} {getattr(row, size)} {row.unit}s" for row in ROWS.values())


def _rows(text: str) -> list[Row]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in ROWS:
            raise argparse.ArgumentTypeError(f"there is no row {name!r}; use {', '.join(ROWS)}")
    return [row for row in ROWS.values() if row.name in names]


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


def bench(rows: Sequence[Row], plan: Plan) -> dict[str, Any]:
    """The record of a whole run.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed.
    """
    before = load_average()
    done, threads = [], set()
    for row in rows:
        entry, ready = _run(Work.of(row, plan), plan)
        done.append(entry)
        threads |= {one.threads for one in ready}
    if len(threads) != 1:
        raise UndertowError("the contenders had different numbers of threads; set --threads and run again")
    packages = {contender.package: None for row in rows for contender in CONTENDERS[row.name]}
    return {
        **describe(list(packages)),
        "load_average": {"before": before, "after": load_average()},
        "threads": threads.pop(),
        "rounds": plan.rounds,
        "seed": plan.seed,
        "rows": done,
    }


def _model(row: Row, items: Sequence[Item], plan: Plan) -> str:
    if row.family != "masked":
        return plan.model
    if plan.masked_model:
        return plan.masked_model
    _say(f"{row.name}: the model is made, if it is not there")
    return str(prepared(text for item in items if isinstance(item.query, Blank) for text in item.query.texts()))


def _run(work: Work, plan: Plan) -> tuple[dict[str, Any], list[Ready]]:
    turns, searches = _line_up(work, plan)
    _take_turns(turns, work, plan.rounds)
    agreements = [_require_equal(turn, turns[0], work) for turn in turns]
    ready = [turn.worker.ready for turn in turns]
    if len({(one.revision, one.dtype) for one in ready}) != 1:
        raise UndertowError(f"{work.row.name}: the contenders had different weights or precision; run again")
    entries = [_entry(turn, len(work.sample.places)) for turn in turns]
    about = {
        "row": work.row.name,
        "about": work.row.about,
        "model": {"source": ready[0].source, "revision": ready[0].revision, "dtype": ready[0].dtype},
        "n_items": len(work.sample.places),
        "n_items_in_set": len(work.items),
        "drawn": {
            "unit": work.row.unit,
            "n": work.sample.n_units,
            "of": work.sample.of,
            "levels": work.sample.levels,
        },
        "equality": {"tolerance": work.row.gate.tolerance, "unit": work.row.gate.unit},
        "searches": searches,
        "contenders": entries,
        "comparisons": [
            compare(entries[0], entry) | _promised(turn.contender) | _agreed(agreement)
            for turn, entry, agreement in list(zip(turns, entries, agreements, strict=True))[1:]
        ],
    }
    return about, ready


def _promised(peer: Contender) -> dict[str, Any]:
    return {"target_ratio": peer.target_ratio, "no_more_memory": peer.no_more_memory}


def _agreed(agreement: Agreement) -> dict[str, Any]:
    return {"largest_difference": agreement.difference, "n_ties": agreement.n_ties}


def _line_up(work: Work, plan: Plan) -> tuple[list[Turns], list[dict[str, Any]]]:
    """Every contender loaded, warmed up on the smaller sample, and at its best batch size; and how that was found."""
    engine, *peers = CONTENDERS[work.row.name]
    turns = [Turns(engine, ITS_OWN, _start(engine, work, plan))]
    reference = turns[0].worker.score(work.smaller.places, ITS_OWN).numbers
    searches = [_search(peer, _start(peer, work, plan), work, reference) for peer in peers if peer.batch_size is None]
    best = {search["contender"]: int(search["best"]) for search in searches}
    for peer in peers:
        size = best[peer.name] if peer.batch_size is None else peer.batch_size
        turns.append(Turns(peer, size, _start(peer, work, plan)))
        turns[-1].worker.score(work.smaller.places, turns[-1].batch_size)
    return turns, searches


def _start(contender: Contender, work: Work, plan: Plan) -> Worker:
    _say(f"{work.row.name}: {contender.name} loads the model")
    return Worker(Order(contender.name, work.row.name, work.model, plan.threads))


def _search(peer: Contender, worker: Worker, work: Work, reference: Numbers) -> dict[str, Any]:
    """The rate of a peer at each batch size, in a process that is not used again."""
    places = work.smaller.places
    rates = dict.fromkeys(work.batch_sizes, 0.0)
    for size in [*work.batch_sizes, *reversed(work.batch_sizes)]:
        _say(f"{work.row.name}: {peer.name}: batch size {size}")
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
            _say(f"{work.row.name}: round {number} of {rounds}: {turn.contender.name}")
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


def _say(what: str) -> None:
    """What is being done, never how long it took: times wait until the numbers are known to be equal."""
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
