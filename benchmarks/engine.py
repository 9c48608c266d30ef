"""The engine alone: its share of the machine's limit, growth, memory, start-up and bfloat16. Each part is one function."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, median

import numpy as np

import limit
from networks import random_llama
from rows import LIKELIHOOD, MASKED, SCHEMAS
from tables import GIGA, MEGA, Entry, promise, show
from undertow._folders import cache_folder
from undertow.errors import UndertowError
from undertow.models.backend.dtype import AUTO, BFLOAT16, CPU, supported_dtype
from undertow.models.base import FLOAT32
from worker import Timed, Work, Worker, say, texts_of

LEAST_SHARE = 0.8
"""Of the machine's limit, for the row `likelihood`."""
FACTORS = (1, 2, 4, 8)
SMALLEST = 4
"""W values of the smallest work whose growth is measured."""
LARGEST_SLOPE = 1.1
"""Of the logarithm of seconds over that of distinct tokens: 1 is linear."""
MOST_MB = 600.0
HELP_RUNS, REPEATS = 10, 5
MOST_HELP_S, MOST_REPEAT_S = 0.3, 2.0
LEAST_RATIO = 2.0
MOST_ERROR_NATS = 0.3
"""Root-mean-square difference from float32 beyond which the numbers are no longer those of the same model, and have no rate."""


def share(plan: Namespace) -> Entry:
    """Needed work in a second of scoring, against the limit before and after in the same process, row by row."""
    needed, shares, notes, promises = [], [], [], []
    for row in (LIKELIHOOD, SCHEMAS, MASKED):
        work = Work.of(row, plan, alone=True)
        worker = Worker.of_engine(work)
        required = worker.do(limit.needed, work.sample)
        shape = worker.do(limit.shape_of)
        worker.do(limit.rates, shape)  # warms up
        visits, timed = [], list[Timed]()
        for _ in _rounds(plan, f"share of {row.name}"):
            visits.append(worker.do(limit.rates, shape))
            timed.append(worker.score(work.sample))
        visits.append(worker.do(limit.rates, shape))
        _require_same(work, timed)
        worker.close()
        product, rates = limit.best_of(visits)
        seconds = [one.seconds for one in timed]
        around = [(before + after) / 2 for before, after in pairwise(rates)]
        percent = [100 * required["flop"] / (one * rate) for one, rate in zip(seconds, around, strict=True)]
        gigaflop = {f"{part} GFLOP": required[f"{part}_flop"] / GIGA for part in ("layers", "attention", "head")}
        counts = {name: required[name] for name in ("needed tokens", "fed", "places read")}
        needed.append({"work": row.name, **counts, **gigaflop, "all GFLOP": required["flop"] / GIGA})
        limits = {"limit GFLOP/s": [rate / GIGA for rate in rates], "fastest product": product}
        shares.append({"work": row.name, "seconds": seconds, "% of the limit": percent, **limits})
        notes.append(f"{row.name}: {worker.ready.note()}; {work.note()}")
        if row is LIKELIHOOD:
            what = f"{row.name}: at least {LEAST_SHARE:.0%} of the machine's limit on needed work"
            promises.append(promise(what, f"{show(percent)}%", median(percent) >= 100 * LEAST_SHARE))
    return {"notes": notes, "promises": promises, "tables": [needed, shares]}


def _rounds(plan: Namespace, what: str) -> Sequence[int]:
    """Rounds of the engine alone, which are quick: nearly twice as many as of a race."""
    say(f"{what}: {2 * plan.rounds - 1} rounds")
    return range(2 * plan.rounds - 1)


def _require_same(work: Work, timed: Sequence[Timed]) -> None:
    """Each round gives the numbers of the first; the first is compared with itself, so that none is missing."""
    for one in timed:
        work.row.gate.require(timed[0].outputs, one.outputs, f"the engine alone: {work.row.name}")


def growth(plan: Namespace) -> Entry:
    """Time with once, twice, four and eight times the items, by distinct token, since items share work."""
    work = Work.of(LIKELIHOOD, plan)
    most = len(set(LIKELIHOOD.units(work.items))) // FACTORS[-1]
    least = most if plan.full else min(plan.sample or SMALLEST, most)
    samples = [LIKELIHOOD.draw(work.items, factor * least, plan.seed) for factor in FACTORS]
    worker = Worker.of_engine(work)
    counts = [worker.do(limit.needed, sample) for sample in samples]
    timed: list[list[Timed]] = [[] for _ in samples]
    for number in range(plan.rounds):
        say(f"growth: round {number + 1} of {plan.rounds}")
        for sample, of_size in zip(samples, timed, strict=True):
            of_size.append(worker.score(sample))
    worker.close()
    outputs = dict(zip(samples[-1], timed[-1][0].outputs, strict=True))
    sizes: list[Entry] = []
    for factor, sample, count, of_size in zip(FACTORS, samples, counts, timed, strict=True):
        for one in of_size:
            LIKELIHOOD.gate.require([outputs[at] for at in sample], one.outputs, f"growth: {factor} times the items")
        seconds = [one.seconds for one in of_size]
        tokens = {"distinct tokens": count["needed tokens"], "fed": count["fed"]}
        each = 1e6 * median(seconds) / count["needed tokens"]
        sizes.append({"items": len(sample), **tokens, "seconds": seconds, "microseconds per distinct token": each})
    logs = [(math.log(one["distinct tokens"]), math.log(median(one["seconds"]))) for one in sizes]
    slope = linear_regression(*zip(*logs, strict=True)).slope
    what = f"growth: time is linear in distinct tokens (log-log slope at most {LARGEST_SLOPE:g})"
    return {
        "notes": [
            worker.ready.note(),
            f"Work of the row {LIKELIHOOD.name}, {LIKELIHOOD.unit}s drawn with seed {plan.seed}",
        ],
        "promises": [promise(what, f"{slope:.3f}", slope <= LARGEST_SLOPE)],
        "tables": [sizes],
    }


def memory(plan: Namespace) -> Entry:
    """Memory beyond the model's weights, with a small and with a large vocabulary."""
    likelihood = Work.of(LIKELIHOOD, plan, alone=True)
    wide = replace(likelihood, model=random_llama(texts_of(likelihood.items)))
    rows, notes, promises = [], [], []
    for work in (likelihood, wide, Work.of(MASKED, plan, alone=True)):
        worker = Worker.of_engine(work)
        shape: limit.Shape = worker.do(limit.shape_of)
        first = dict(zip(work.smaller, worker.score(work.smaller).outputs, strict=True))
        outputs = worker.score(work.sample).outputs
        again = [first.get(place, output) for place, output in zip(work.sample, outputs, strict=True)]
        work.row.gate.require(outputs, again, f"memory: {work.row.name}")
        resident, weights = worker.close(), shape.weights_bytes / MEGA
        beyond, vocabulary = resident["peak while scoring MB"] - weights, max(n_out for _, n_out in shape.head)
        of_model: Entry = {"work": work.row.name, "model": worker.ready.source, "vocabulary": vocabulary}
        rows.append({**of_model, "weights MB": weights, **resident, "that less weights MB": beyond})
        notes.append(f"{work.row.name}: {work.note()}")
        what = (
            f"memory while scoring `{work.row.name}`: at most {MOST_MB:.0f} MB beyond the weights "
            f"(a vocabulary of {vocabulary:,})"
        )
        promises.append(promise(what, f"{beyond:.0f} MB", beyond <= MOST_MB))
    return {"notes": list(dict.fromkeys(notes)), "promises": promises, "tables": [rows]}


def startup(plan: Namespace) -> Entry:
    """The time of a command that has nothing to compute, as a whole process, in a folder of its own."""
    model = str(Path(plan.model).resolve()) if Path(plan.model).exists() else plan.model
    run = ["run", "spurious-correlation", "-m", model, "--limit", str(plan.sample or 300)]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder()) as folder:
        cache = Path(folder) / "cache"
        cache.mkdir()
        (cache / "models").symlink_to(cache_folder() / "models")

        def seconds(*arguments: str) -> float:
            say(f"startup: undertow {' '.join(arguments)}")
            command = [str(Path(sys.executable).with_name("undertow")), *arguments]
            environment = {**os.environ, "UNDERTOW_CACHE": str(cache)}
            started = time.perf_counter()
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            taken = time.perf_counter() - started
            if done.returncode:
                raise UndertowError(f"undertow {' '.join(arguments)}: exit code {done.returncode}: {done.stderr}")
            return taken

        helped = [seconds("--help") for _ in range(HELP_RUNS + 1)][1:]  # the first reads files from the disk
        first = seconds(*run)
        repeated = [seconds(*run) for _ in range(REPEATS)]
    commands = {"undertow --help": helped, f"undertow {' '.join([*run[:3], plan.model, *run[4:]])}": [first]}
    commands["the same again"] = repeated
    helps, repeats = (
        f"start-up: {what} in less than {most:g} s"
        for what, most in (("`undertow --help`", MOST_HELP_S), ("repeating a finished run", MOST_REPEAT_S))
    )
    return {
        "notes": ["Whole processes, from start to end, in a folder of their own with an empty answer store"],
        "promises": [
            promise(helps, f"{show(helped)} s", median(helped) < MOST_HELP_S),
            promise(repeats, f"{show(repeated)} s", median(repeated) < MOST_REPEAT_S),
        ],
        "tables": [[{"command": name, "n": len(times), "seconds": times} for name, times in commands.items()]],
    }


def bfloat16(plan: Namespace) -> Entry:
    """The same likelihood work in bfloat16 beside float32, each in a process, in turns, with the machine's limit before each."""
    work = Work.of(LIKELIHOOD, plan, alone=True)
    auto = supported_dtype(AUTO, work.row.family, CPU)
    what = f"bfloat16: at least {LEAST_RATIO:g} times the rate of float32, where `--dtype {AUTO}` chooses it"
    workers = [Worker.of_engine(work)]
    if not workers[0].do(limit.has_bfloat16):
        workers[0].close()
        missing = "this processor has no bfloat16 products, as far as oneDNN may use them"
        return {"notes": [f"Not measured: {missing}"], "promises": [promise(what, missing, None)], "tables": []}
    workers.append(Worker.of_engine(work, BFLOAT16))
    shape = workers[0].do(limit.shape_of)
    for worker in workers:
        worker.do(limit.rates, shape)  # warms up
    visits: list[list[limit.Rates]] = [[], []]
    timed: list[list[Timed]] = [[], []]
    for _ in _rounds(plan, "bfloat16"):
        for at, worker in enumerate(workers):
            visits[at].append(worker.do(limit.rates, shape))
            timed[at].append(worker.score(work.sample))
    rows: list[Entry] = []
    rates = []
    for dtype, visited, of_dtype, worker in zip((FLOAT32, BFLOAT16), visits, timed, workers, strict=True):
        _require_same(work, of_dtype)
        worker.close()
        product, limits = limit.best_of(visited)
        rates.append([len(work.sample) / one.seconds for one in of_dtype])
        limits_here = {"limit GFLOP/s": [rate / GIGA for rate in limits], "fastest product": product}
        rows.append({"precision": dtype, "items/s": rates[-1], **limits_here})
    exact, reduced = (np.concatenate([output.numbers[0] for output in of_dtype[0].outputs]) for of_dtype in timed)
    with np.errstate(invalid="ignore"):  # two infinite numbers have no difference: missing
        gaps = np.abs(exact - reduced)
    root = float(np.sqrt(np.mean(gaps**2)))
    if not root <= MOST_ERROR_NATS:  # or NaN: some are missing
        raise UndertowError(
            f"bfloat16: log-probabilities differ from float32's by {root:.2g} nats (root mean square), and {MOST_ERROR_NATS:g} "
            "is allowed; name a model that keeps its numbers in bfloat16"
        )
    ratios = [other / own for own, other in zip(*rates, strict=True)]
    products = median(rows[1]["limit GFLOP/s"]) / median(rows[0]["limit GFLOP/s"])
    measured = f"{show(ratios)} times; this processor's own products {products:.2f} times"
    kept = median(ratios) >= LEAST_RATIO if auto == BFLOAT16 else None
    apart = (
        f"Log-probabilities of continuations differ by {root:.2g} nats (root mean square), at most by {gaps.max():.2g}"
    )
    return {
        "notes": [f"Here `--dtype {AUTO}` is {auto}", workers[0].ready.note(), work.note(), apart],
        "promises": [promise(what, measured, kept)],
        "tables": [rows],
    }
