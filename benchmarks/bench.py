"""Times the engine beside other tools, and against the machine it runs on.

    python benchmarks/bench.py                          every part, rows as seeded samples
    python benchmarks/bench.py --rows masked,share      these parts; what others found before stays
    python benchmarks/bench.py --full                   every item

Each part is written as soon as it is taken. `make bench` prepares the environment.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

import engine
import race
from rows import ROWS
from telling import Entry, Promise, grid
from undertow.provenance import circumstances
from undertow.types import UndertowError

RESULTS = Path(__file__).parent / "results"
RECORD, PAGE = "bench.json", "bench.md"
VERDICTS = {True: "yes", False: "missed", None: "does not apply"}


class Part(NamedTuple):
    """One part: takes its record; says what was promised; tells it, from its record and those of the races that there are."""

    measure: Callable[[Namespace], Entry]
    promises: Callable[[Entry], list[Promise]]
    section: Callable[[Entry, Entry], str]


PARTS = {name: Part(partial(race.measure, row), race.promises, race.section) for name, row in ROWS.items()} | {
    "share": Part(engine.measure_share, engine.share_promises, engine.tell_share),
    "growth": Part(engine.measure_growth, engine.growth_promises, engine.tell_growth),
    "memory": Part(engine.measure_memory, engine.memory_promises, engine.tell_memory),
    "startup": Part(engine.measure_startup, engine.startup_promises, engine.tell_startup),
    "bfloat16": Part(engine.measure_bfloat16, engine.bfloat16_promises, engine.tell_bfloat16),
}
"""In the order of the page."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for; exit code 1 if the contenders' numbers differ."""
    plan = _parser().parse_args(arguments)
    try:
        record = bench(plan.rows, plan, plan.results)
    except UndertowError as error:
        sys.exit(f"bench: {error}")
    print(page(record))
    print(f"written to {plan.results / RECORD} and {plan.results / PAGE}")


def bench(names: Sequence[str], plan: Namespace, results: Path) -> Entry:
    """Take these parts, each written into the folder at once beside what is there of others; the whole record.

    Raises:
        UndertowError: the contenders' numbers differ, or one of them failed; parts that were taken before are written.
    """
    path = results / RECORD
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"parts": {}}
    for name in names:
        parts = record["parts"] | {name: _taken(name, plan)}
        parts = {name: parts[name] for name in PARTS if name in parts}
        promises = [{**one._asdict(), "verdict": VERDICTS[one.kept]} for one in _promises(parts)]
        record = {"promises": promises, "parts": parts}
        results.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (results / PAGE).write_text(page(record), encoding="utf-8")
    return record


def _taken(name: str, plan: Namespace) -> Entry:
    """One part's record, with when and on what it was taken: no names of machines, users or folders."""
    before, started = _load_average(), time.perf_counter()
    entry = PARTS[name].measure(plan)
    known = circumstances()
    taken = {
        "created": known["created"],
        "machine": {
            "system": _system(),
            "processor": known["machine"]["processor"],
            "cores": known["machine"]["cores"],
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        },
        "versions": known["versions"] | {package: version(package) for package in entry.pop("packages", [])},
        "code_sha256": known["code_sha256"],
        "load_average": {"before": before, "after": _load_average()},
        "seconds": time.perf_counter() - started,
        "rounds": plan.rounds,
        "seed": plan.seed,
    }
    return {**entry, "taken": taken}


def _load_average() -> list[float]:
    """How busy the machine was over the last 1, 5 and 15 minutes: a busy one makes every rate too low."""
    return [round(load, 2) for load in os.getloadavg()]


def _system() -> str:
    try:
        return f"{platform.system()}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    except (OSError, KeyError):
        return platform.system()


def _promises(parts: Mapping[str, Entry]) -> list[Promise]:
    return [promise for name, entry in parts.items() for promise in PARTS[name].promises(entry)]


def page(record: Entry) -> str:
    """The whole record in Markdown: promises first, then the machine, then a section for each part."""
    parts = record["parts"]
    races = {name: entry for name, entry in parts.items() if name in ROWS}
    kept = [[one.what, one.measured, VERDICTS[one.kept]] for one in _promises(parts)]
    sections = [f"## {name}\n\n{PARTS[name].section(entry, races)}\n\n{_when(entry)}" for name, entry in parts.items()]
    title = "# Undertow beside other tools, and beside the machine"
    return "\n\n".join([title, grid("promise|measured|kept", kept), _machines(parts), *sections]) + "\n"


def _machines(parts: Mapping[str, Entry]) -> str:
    """What the parts were taken on; where they differ in it, which on what."""
    taken = {name: entry["taken"] for name, entry in parts.items()}
    versions: dict[str, set[str]] = {}
    for one in taken.values():
        for package, number in one["versions"].items():
            versions.setdefault(package, set()).add(number)
    machine = "{processor}, {cores} cores, {memory_gib} GiB, {system}"
    told = ", ".join(f"{package} {'/'.join(sorted(numbers))}" for package, numbers in sorted(versions.items()))
    return "\n".join(
        [
            f"- Machine: {_shared({name: machine.format(**one['machine']) for name, one in taken.items()})}.",
            f"- Versions: {told}.",
            f"- Undertow's code (SHA-256): {_shared({name: one['code_sha256'][:12] for name, one in taken.items()})}.",
        ]
    )


def _shared(said: Mapping[str, str]) -> str:
    """What all parts say, or what each says, with its parts."""
    parts_of: dict[str, list[str]] = {}
    for name, one in said.items():
        parts_of.setdefault(one, []).append(name)
    if len(parts_of) == 1:
        return next(iter(parts_of))
    return "; ".join(f"{one} ({', '.join(names)})" for one, names in parts_of.items())


def _when(entry: Entry) -> str:
    taken = entry["taken"]
    before, after = taken["load_average"]["before"][0], taken["load_average"]["after"][0]
    threads = f", {entry['threads']} torch threads in each process" if "threads" in entry else ""
    return (
        f"Taken {taken['created']}, in {taken['seconds']:.0f} s; load average (1 minute) {before:.2f} before, "
        f"{after:.2f} after{threads}."
    )


def _parser() -> ArgumentParser:
    n: dict[str, Any] = {"type": _at_least_one, "metavar": "N"}
    parser = ArgumentParser(description="Time the engine beside other tools, and against the machine.")
    add = parser.add_argument
    add("--rows", type=_parts, default=list(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)} (default: all)")
    add("--full", action="store_true", help="every item instead of a sample; hours for prompts")
    add("--rounds", **n, default=3, help="turns of each (default 3)")
    add(
        "--sample",
        **n,
        default=0,
        help="W values, occupations, sentences or documents to time (default: each row's own)",
    )
    add("--search-sample", **n, default=0, help="the same to find batch sizes on and to warm up with")
    add("--batch-sizes", **n, nargs="+", default=[], help="to try (default: each row's own)")
    add("--seed", type=int, default=0, help="of the samples (default 0)")
    add("--model", default="smollm2", help="a causal model (default smollm2)")
    add("--masked-model", default="", help="a masked model (default: a random one of BERT-base's size)")
    add("--threads", type=int, default=0, help="of torch, in each process (default: torch's choice)")
    add("--results", type=Path, default=RESULTS, help=f"folder for {RECORD} and {PAGE}")
    return parser


def _parts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in PARTS:
            raise ArgumentTypeError(f"there is no part {name!r}; use {', '.join(PARTS)}")
    return [name for name in PARTS if name in names]


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1 up, not {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
