"""Times the engine beside other tools, and against the machine it runs on.

    python benchmarks/bench.py                          every part, rows as seeded samples
    python benchmarks/bench.py --rows masked,share      these parts; earlier results of others stay
    python benchmarks/bench.py --full                   every item

Each part is written as soon as it is measured. `make bench` prepares the environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import engine
import race
from rows import ROWS
from tables import Entry, table
from texts import texts
from undertow.errors import UndertowError
from undertow.models.backend.dtype import CPU
from undertow.runs.folder.provenance import circumstances

RESULTS = Path(__file__).parent / "results"
RECORD, PAGE = "bench.json", "bench.md"
ALONE = (engine.share, engine.growth, engine.memory, engine.startup, engine.bfloat16, texts)
PARTS: dict[str, Callable[[Namespace], Entry]] = {
    **{name: partial(race.measure, row) for name, row in ROWS.items()},
    **{measure.__name__: measure for measure in ALONE},
}
"""In the order of the page."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that the command line names; exit code 1 if the contenders' numbers differ or one of them fails."""
    plan = _parser().parse_args(arguments)
    record, written = plan.results / RECORD, plan.results / PAGE
    parts: dict[str, Entry] = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}
    for name in plan.rows:
        try:
            entry = _measured(name, plan)
        except (UndertowError, BrokenExecutor) as error:
            sys.exit(f"bench: {name}: {error}")
        parts = {part: entry if part == name else parts[part] for part in PARTS if part in {*parts, name}}
        plan.results.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")
        written.write_text(page(parts), encoding="utf-8")
    print(page(parts))
    print(f"written to {record} and {written}")


def _measured(name: str, plan: Namespace) -> Entry:
    """One part's record, with when and on what it was measured: no names of machines, users or folders."""
    before, started = os.getloadavg()[0], time.perf_counter()
    entry = PARTS[name](plan)
    known, gib = circumstances(), psutil.virtual_memory().total / 2**30
    machine = "{processor}, {cores} cores, {gib:.1f} GiB, {system}".format(**known["machine"], gib=gib)
    measured = {
        "part": name,
        "created": known["created"],
        "seconds": time.perf_counter() - started,
        "rounds": plan.rounds,
        "load before": before,
        "load after": os.getloadavg()[0],
        "code (SHA-256)": known["code_sha256"][:12],
        "machine": machine,
    }
    versions = known["versions"] | {package: version(package) for package in entry.pop("packages", [])}
    return {**entry, "measured": measured, "versions": versions}


def page(parts: dict[str, Entry]) -> str:
    """The whole record in Markdown: promises first, then a section for each part, then where each was measured."""
    entries = parts.values()
    sections = [
        "\n\n".join([f"## {name}", *(f"{note}." for note in entry["notes"]), *map(table, entry["tables"])])
        for name, entry in parts.items()
    ]
    versions = sorted({f"{package} {number}" for entry in entries for package, number in entry["versions"].items()})
    blocks = [
        "# Undertow beside other tools, and beside the machine",
        table([one for entry in entries for one in entry["promises"]]),
        "Of several rounds a cell holds the median (smallest to largest).",
        *sections,
        "## Where and when",
        table([entry["measured"] for entry in entries]),
        f"Load is the average of a minute. Versions: {', '.join(versions)}.",
    ]
    return "\n\n".join(blocks) + "\n"


def _parser() -> ArgumentParser:
    n: dict[str, Any] = {"type": _at_least_one, "metavar": "N"}
    parser = ArgumentParser(description="Time the engine beside other tools, and against the machine.")
    add = parser.add_argument
    add("--rows", type=_parts, default=list(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)} (default: all)")
    add("--full", action="store_true", help="every item instead of a sample; hours for prompts")
    add("--rounds", **n, default=3, help="turns of each (default 3)")
    add("--sample", **n, default=0, help="units to time: W values, sentences, documents ... (default: each row's own)")
    add("--search-sample", **n, default=0, help="the same to find batch sizes on and to warm up with")
    add("--batch-sizes", **n, nargs="+", default=[], help="to try (default: each row's own)")
    add("--seed", type=int, default=0, help="of the samples (default 0)")
    add("--model", default="smollm2", help="a causal model (default smollm2)")
    add("--masked-model", default="", help="a masked model (default: a random one of BERT-base's size)")
    add("--device", default=CPU, help="of races, growth and texts, as cuda or cuda:1 (default cpu)")
    add("--threads", type=int, default=0, help="of torch, in each process (default: torch's choice)")
    add("--results", type=Path, default=RESULTS, help=f"folder for {RECORD} and {PAGE}")
    return parser


def _parts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in PARTS]:
        raise ArgumentTypeError(f"there is no part {unknown[0]!r}; use {', '.join(PARTS)}")
    return [name for name in PARTS if name in names]


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
