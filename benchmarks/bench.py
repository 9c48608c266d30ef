"""Times the engine beside other tools, and against the machine it runs on.

    python benchmarks/bench.py                          every part, rows as seeded samples
    python benchmarks/bench.py --rows masked,share      these parts; what others found before stays
    python benchmarks/bench.py --full                   every item

Each part is written as soon as it is taken. `make bench` prepares the environment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import describe, load_average
from parts import PARTS
from rows import ROWS
from summary import in_order, promises, table
from undertow.types import UndertowError
from work import Plan

RESULTS = Path(__file__).parent / "results"
RECORD, PAGE = "bench.json", "bench.md"


def main() -> None:
    """Run what the command line asks for; exit code 1 if the contenders' numbers differ."""
    options = _parser().parse_args()
    results, names = options.results, options.rows
    del options.results, options.rows
    plan = Plan(**vars(options) | {"batch_sizes": tuple(options.batch_sizes)})
    try:
        record = bench(names, plan, results)
    except UndertowError as error:
        sys.exit(f"bench: {error}")
    print(table(record))
    print(f"written to {results / RECORD} and {results / PAGE}")


def bench(names: Sequence[str], plan: Plan, results: Path) -> dict[str, Any]:
    """Take these parts, each written into the folder at once beside what is there of others; the whole record.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed; parts that were taken before are written.
    """
    record = _read(results)
    for name in names:
        taken = _taken(name, plan)
        record = {"parts": in_order(record["parts"] | {name: taken})}
        record = {"promises": [asdict(one) for one in promises(record)], **record}
        _write(record, results)
    return record


def _read(results: Path) -> dict[str, Any]:
    """What is there of other parts; a record of another layout is replaced."""
    path = results / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise UndertowError(
            f"{path}: is no JSON ({error}); remove it, or name another folder with --results"
        ) from error
    return {"parts": in_order(found.get("parts", {}))}


def _write(record: Mapping[str, Any], results: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (results / PAGE).write_text(table(record), encoding="utf-8")


def _taken(name: str, plan: Plan) -> dict[str, Any]:
    """One part's record, with when and on what it was taken."""
    before, started = load_average(), time.perf_counter()
    entry = PARTS[name].measure(plan)
    circumstances = {
        **describe(entry.pop("packages", [])),
        "load_average": {"before": before, "after": load_average()},
        "seconds": time.perf_counter() - started,
        "rounds": plan.rounds,
        "seed": plan.seed,
    }
    return {**entry, "taken": circumstances}


def _parser() -> argparse.ArgumentParser:
    count: dict[str, Any] = {"type": _at_least_one, "default": 0, "metavar": "N"}
    parser = argparse.ArgumentParser(description="Time the engine beside other tools, and against the machine.")
    parser.add_argument(
        "--rows", type=_parts, default=list(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)} (default: all)"
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
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"folder for {RECORD} and {PAGE}")
    return parser


def _told(size: str) -> str:
    return ", ".join(f"{row.name} {getattr(row, size)} {row.unit.name}s" for row in ROWS.values())


def _parts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"there is no part {name!r}; use {', '.join(PARTS)}")
    return [name for name in PARTS if name in names]


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
