"""Times the scoring engine beside other tools: equality first, then rounds in which the contenders take turns.

    python benchmarks/bench.py              a seeded sample of every job
    python benchmarks/bench.py --full       every item

For each job: find each peer's best batch size on a smaller sample, check that all numbers agree, then score in rounds
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

from contenders import CONTENDERS, Contender
from gate import TOLERANCE_NATS, Logprobs, require_equal
from jobs import JOBS, Job, Sample, draw, requests
from machine import describe, load_average
from summary import compare, table
from undertow.types import UndertowError
from worker import Answered, Memory, Order, Ready, Worker

RESULTS = Path(__file__).parent / "results"
SEARCH_PASSES = 2
"""Sizes up, then down: a machine that slows down meanwhile favours neither end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for; see `--help`."""

    full: bool
    rounds: int
    values: int
    search_values: int
    batch_sizes: tuple[int, ...]
    seed: int
    model: str
    threads: int


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
    results: Path = options.results
    chosen = [job for job in JOBS if job.name in options.jobs]
    del options.results, options.jobs
    plan = Plan(**vars(options) | {"batch_sizes": tuple(options.batch_sizes)})
    try:
        record = bench(chosen, plan)
    except UndertowError as error:
        sys.exit(f"bench: {error}")
    results.mkdir(parents=True, exist_ok=True)
    (results / "bench.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (results / "bench.md").write_text(table(record), encoding="utf-8")
    print(table(record))
    print(f"written to {results / 'bench.json'} and {results / 'bench.md'}")


def _parser() -> argparse.ArgumentParser:
    names = [job.name for job in JOBS]
    parser = argparse.ArgumentParser(description="Time the scoring engine beside other tools.")
    parser.add_argument("--full", action="store_true", help="every item instead of a sample of W values")
    parser.add_argument("--rounds", type=_at_least_one, default=3, help="turns of each contender (default 3)")
    parser.add_argument("--values", type=_at_least_one, default=6, help="W values in the sample (default 6)")
    parser.add_argument(
        "--search-values", type=_at_least_one, default=4, help="W values to find batch sizes on (default 4)"
    )
    parser.add_argument(
        "--batch-sizes", type=_at_least_one, nargs="+", default=[1, 4, 8, 16, 32, 64], help="to try for each peer"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default 0)")
    parser.add_argument("--model", default="smollm2", help="a causal model (default smollm2)")
    parser.add_argument("--threads", type=int, default=0, help="of torch, in each process (default: torch's choice)")
    parser.add_argument("--jobs", nargs="+", choices=names, default=names, help="work sets (default: all)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for bench.json and bench.md")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


def bench(jobs: Sequence[Job], plan: Plan) -> dict[str, Any]:
    """The record of a whole run.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed.
    """
    before = load_average()
    done, ready = [], []
    for job in jobs:
        entry, said = _run_job(job, plan)
        done.append(entry)
        ready += said
    if len({(one.threads, one.revision, one.dtype) for one in ready}) != 1:
        raise UndertowError("the contenders had different threads, weights or precision; set --threads and run again")
    model = {"name": plan.model, "source": ready[0].source, "revision": ready[0].revision, "dtype": ready[0].dtype}
    return {
        **describe([contender.package for contender in CONTENDERS]),
        "load_average": {"before": before, "after": load_average()},
        "model": model,
        "threads": ready[0].threads,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "jobs": done,
    }


def _run_job(job: Job, plan: Plan) -> tuple[dict[str, Any], list[Ready]]:
    items = job.items()
    sample = draw(items, len(items) if plan.full else plan.values, plan.seed)
    turns, searches = _line_up(job, plan, draw(items, plan.search_values, plan.seed))
    _take_turns(turns, sample, plan.rounds)
    differences = _require_equal(turns)
    entries = [_entry(turn, len(sample.places)) for turn in turns]
    about = {
        "job": job.name,
        "n_items": len(sample.places),
        "n_items_in_set": len(items),
        "n_requests": sum(len(requests(items[place].query)) for place in sample.places),
        "w_values": sample.w_values,
        "tolerance_nats": TOLERANCE_NATS,
        "searches": searches,
        "contenders": entries,
        "comparisons": [
            compare(entries[0], entry)
            | {"target_ratio": turn.contender.target_ratio, "largest_difference_nats": differences[turn.contender.name]}
            for turn, entry in zip(turns[1:], entries[1:], strict=True)
        ],
    }
    return about, [turn.worker.ready for turn in turns]


def _line_up(job: Job, plan: Plan, smaller: Sample) -> tuple[list[Turns], list[dict[str, Any]]]:
    """Every contender loaded, warmed up on the smaller sample, and at its best batch size; and how that was found."""
    engine, *peers = CONTENDERS
    turns = [Turns(engine, 0, _start(engine, job, plan))]
    reference = turns[0].worker.score(smaller.places, 0).logprobs
    searches = [_search(peer, _start(peer, job, plan), smaller, plan, reference) for peer in peers if peer.batched]
    best = {search["contender"]: int(search["best"]) for search in searches}
    for peer in peers:
        turns.append(Turns(peer, best.get(peer.name, 0), _start(peer, job, plan)))
        turns[-1].worker.score(smaller.places, turns[-1].batch_size)
    return turns, searches


def _start(contender: Contender, job: Job, plan: Plan) -> Worker:
    _say(f"{job.name}: {contender.name} loads the model")
    return Worker(Order(contender.name, job.name, plan.model, plan.threads))


def _search(peer: Contender, worker: Worker, smaller: Sample, plan: Plan, reference: Logprobs) -> dict[str, Any]:
    """The rate of a peer at each batch size, in a process that is not used again."""
    rates = dict.fromkeys(plan.batch_sizes, 0.0)
    for size in [*plan.batch_sizes, *reversed(plan.batch_sizes)]:
        _say(f"{peer.name}: batch size {size}")
        answered = worker.score(smaller.places, size)
        require_equal(reference, answered.logprobs, f"{peer.name} at batch size {size}")
        rates[size] = max(rates[size], len(smaller.places) / answered.seconds)
    worker.close()
    return {
        "contender": peer.name,
        "n_items": len(smaller.places),
        "w_values": smaller.w_values,
        "passes": SEARCH_PASSES,
        "items_per_s": {str(size): rate for size, rate in rates.items()},
        "best": max(rates, key=rates.__getitem__),
    }


def _take_turns(turns: Sequence[Turns], sample: Sample, rounds: int) -> None:
    for number in range(1, rounds + 1):
        for turn in turns:
            _say(f"round {number} of {rounds}: {turn.contender.name}")
            turn.answered.append(turn.worker.score(sample.places, turn.batch_size))


def _require_equal(turns: Sequence[Turns]) -> dict[str, float]:
    """The largest difference from the engine's first round, by contender, over all rounds.

    Raises:
        UndertowError: it is above the tolerance.
    """
    reference = turns[0].answered[0].logprobs
    return {
        turn.contender.name: max(
            require_equal(reference, answered.logprobs, turn.contender.name) for answered in turn.answered
        )
        for turn in turns
    }


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
