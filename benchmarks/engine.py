"""The engine alone: its share of the machine's limit, growth, memory, start-up and bfloat16.

Each part is three functions: one takes it, one says what was promised of it, one tells it; the last two from the plain record.
"""

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
from typing import Any

import numpy as np

import limit
from gate import Said
from networks import random_llama
from rows import LIKELIHOOD, MASKED, SCHEMAS
from telling import GIGA, Entry, Promise, grid, middle, sample_words, span, spread
from undertow.models.base import FLOAT32
from undertow.models.precision import AUTO, BFLOAT16, CPU, dtype_here
from undertow.places import cache_folder
from undertow.types import UndertowError
from worker import MIB, Answered, Work, Worker, say, texts_of

PROMISED_SHARE = {"likelihood": 0.8}
"""By row: least median share; the others are told."""
FACTORS = (1, 2, 4, 8)
SMALLEST = 4
"""W values of the smallest work whose growth is measured."""
PROMISED_SLOPE = 1.1
"""Of the logarithm of seconds over that of distinct tokens: 1 is linear."""
MB = 10**6
PROMISED_MB = 600.0
HELP_RUNS, REPEATS = 10, 5
PROMISED_HELP_S, PROMISED_REPEAT_S = 0.3, 2.0
PRECISIONS = (FLOAT32, BFLOAT16)
PROMISED_RATIO = 2.0
MOST_ERROR_NATS = 0.3
"""Root-mean-square difference from float32 beyond which the numbers are no longer those of the same model, and have no rate."""


def _rounds(plan: Namespace) -> range:
    """Rounds of the engine alone, which are quick: nearly twice as many as of a race."""
    return range(2 * plan.rounds - 1)


def measure_share(plan: Namespace) -> Entry:
    """Needed work in a second of scoring, against the limit before and after in the same process, row by row."""
    works = [_share(Work.of(row, plan, alone=True)) for row in (LIKELIHOOD, SCHEMAS, MASKED)]
    return {"threads": works[0].pop("threads"), "works": works}


def _share(work: Work) -> Entry:
    worker = Worker.of_engine(work)
    shape = worker.do(limit.shape_of)
    required = worker.do(limit.needed, work.sample.places)
    worker.do(limit.rates, shape)  # warms up
    visits, answered = [], list[Answered]()
    for number in _rounds(work.plan):
        say(f"{work.row.name}: round {number + 1}: the machine's limit, the engine")
        visits.append(worker.do(limit.rates, shape))
        answered.append(worker.score(work.sample.places))
    visits.append(worker.do(limit.rates, shape))
    for one in answered:  # the first with itself, so that it is not missing numbers
        work.row.gate.require(answered[0].numbers, one.numbers, f"share: {work.row.name}")
    peak = limit.best_of(visits)
    seconds = [one.seconds for one in answered]
    around = [(before + after) / 2 for before, after in pairwise(peak["flop_per_s_by_visit"])]
    entry = {
        **work.told(),
        "model": worker.model,
        "threads": worker.ready.threads,
        "needed": required,
        "seconds": seconds,
        "peak": peak,
        "shares": [required["flop"] / (one * rate) for one, rate in zip(seconds, around, strict=True)],
        "promised": PROMISED_SHARE.get(work.row.name, 0.0),
    }
    worker.close()
    return entry


def _percent(shares: Sequence[float]) -> dict[str, float]:
    return {name: 100 * one for name, one in spread(shares).items()}


def share_promises(entry: Entry) -> list[Promise]:
    """Of each row that has one."""
    what = "{row}: at least {promised:.0%} of the machine's limit on needed work"
    return [
        Promise(
            what.format(**work), f"{middle(_percent(work['shares']), 0)}%", median(work["shares"]) >= work["promised"]
        )
        for work in entry["works"]
        if work["promised"]
    ]


def tell_share(entry: Entry, races: Entry) -> str:
    """What is needed, and the share of it; a peer's follows from its race, since the needed work is the same for all."""
    counts, shares, about = [], [], []
    for work in entry["works"]:
        of, own, peak = work["needed"], _percent(work["shares"]), work["peak"]
        tokens = [f"{of[name]:,}" for name in ("n_tokens", "n_fed", "n_reads")]
        flop = [f"{of[f'{part}flop'] / GIGA:,.1f}" for part in ("layers_", "attention_", "head_", "")]
        counts.append([work["row"], *tokens, *flop])
        best = [f"{peak['flop_per_s'] / GIGA:.0f}", peak["product"]]
        shares.append([work["row"], "undertow", f"{own['median']:.0f}%", f"{span(own, 0)}%", *best])
        for peer in races.get(work["row"], {}).get("comparisons", []):
            of_peer = own["median"] / peer["rate_ratio"]["median"]
            shares.append([work["row"], peer["peer"], f"{of_peer:.0f}%", "by its rate", "", ""])
        model, seconds = work["model"], middle(spread(work["seconds"]))
        about.append(
            f"{work['row']}: {model['source']}, {model['dtype']}. {sample_words(work)}. Seconds of the engine: {seconds}."
        )
    needed = "work|needed tokens|fed|places read|layers GFLOP|attention GFLOP|head GFLOP|in all"
    of_limit = "work|contender|share of the limit, median|min to max|limit GFLOP/s|fastest product"
    return "\n\n".join([grid(needed, counts), grid(of_limit, shares), *about])


def measure_growth(plan: Namespace) -> Entry:
    """Time with once, twice, four and eight times the items; told per distinct token, since items share work."""
    row, work = LIKELIHOOD, Work.of(LIKELIHOOD, plan)
    most = row.draw(work.items, len(work.items), plan.seed).n_units // FACTORS[-1]
    least = most if plan.full else min(plan.sample or SMALLEST, most)
    samples = [row.draw(work.items, factor * least, plan.seed) for factor in FACTORS]
    worker = Worker.of_engine(work)
    counts = [worker.do(limit.needed, sample.places) for sample in samples]
    answered: list[list[Answered]] = [[] for _ in samples]
    for number in range(plan.rounds):
        for factor, sample, of_size in zip(FACTORS, samples, answered, strict=True):
            say(f"growth: round {number + 1} of {plan.rounds}: {factor} times the items")
            of_size.append(worker.score(sample.places))
    numbers = dict(zip(samples[-1].places, answered[-1][0].numbers, strict=True))
    for factor, sample, of_size in zip(FACTORS, samples, answered, strict=True):
        for one in of_size:
            row.gate.require([numbers[at] for at in sample.places], one.numbers, f"growth: {factor} times the items")
    seconds = [[one.seconds for one in of_size] for of_size in answered]
    sizes = [
        {
            "factor": factor,
            "n_units": sample.n_units,
            "n_items": len(sample.places),
            "n_tokens": count["n_tokens"],
            "n_fed": count["n_fed"],
            "seconds": taken,
        }
        for factor, sample, count, taken in zip(FACTORS, samples, counts, seconds, strict=True)
    ]
    logs = [math.log(count["n_tokens"]) for count in counts], [math.log(median(taken)) for taken in seconds]
    entry = {
        "row": row.name,
        "model": worker.model,
        "threads": worker.ready.threads,
        "sizes": sizes,
        "slope": linear_regression(*logs).slope,
        "promised_slope": PROMISED_SLOPE,
        "equality": {"tolerance": row.gate.tolerance, "unit": row.gate.unit},
    }
    worker.close()
    return entry


def growth_promises(entry: Entry) -> list[Promise]:
    """Linear in distinct tokens."""
    slope, most = entry["slope"], entry["promised_slope"]
    what = f"growth: time is linear in distinct tokens (log-log slope at most {most:g})"
    return [Promise(what, f"{slope:.2f}", slope <= most)]


def tell_growth(entry: Entry, _: Entry) -> str:
    """Seconds of each size."""
    rows = []
    for one in entry["sizes"]:
        counts = [f"{one[name]:,}" for name in ("n_items", "n_units", "n_tokens", "n_fed")]
        seconds = median(one["seconds"])
        rows.append([*counts, f"{seconds:.2f}", f"{1e6 * seconds / one['n_tokens']:.0f}"])
    about = (
        f"Work of the row `{entry['row']}`, {entry['model']['source']}, {entry['model']['dtype']}; sizes take turns in "
        f"{entry['taken']['rounds']} rounds, and an item's numbers are the same in each "
        f"(at most {entry['equality']['tolerance']:g} {entry['equality']['unit']} apart). "
        f"Slope of log seconds over log distinct tokens: {entry['slope']:.3f}."
    )
    heads = "items|W values|distinct tokens|fed|seconds, median|microseconds per distinct token"
    return "\n\n".join([about, grid(heads, rows)])


def measure_memory(plan: Namespace) -> Entry:
    """What the engine takes beyond its model's weights, whatever the vocabulary."""
    likelihood = Work.of(LIKELIHOOD, plan, alone=True)
    wide = replace(likelihood, model=random_llama(texts_of(likelihood.items)))
    works = [_memory(work) for work in (likelihood, wide, Work.of(MASKED, plan, alone=True))]
    return {"threads": works[0].pop("threads"), "works": works, "promised_mb": PROMISED_MB}


def _memory(work: Work) -> Entry:
    worker = Worker.of_engine(work)
    shape: limit.Shape = worker.do(limit.shape_of)
    smaller, whole = ((sample.places, worker.score(sample.places).numbers) for sample in (work.smaller, work.sample))
    first = dict(zip(*smaller, strict=True))
    again = [first.get(place, said) for place, said in zip(*whole, strict=True)]
    work.row.gate.require(whole[1], again, f"memory: {work.row.name}")
    entry = {**work.told(), "model": worker.model, "threads": worker.ready.threads}
    entry["vocabulary"] = max(n_out for _, n_out in shape.head)
    memory = {name.removesuffix("_mib"): one * MIB / MB for name, one in worker.close().items()}
    weights = shape.weights_bytes / MB
    return entry | {
        "libraries_mb": memory["before"],
        "weights_mb": weights,
        "loading_peak_mb": memory["loading_peak"],
        "loaded_mb": memory["loaded"],
        "peak_mb": memory["scoring_peak"],
        "beyond_mb": memory["scoring_peak"] - weights,
    }


def memory_promises(entry: Entry) -> list[Promise]:
    """No more than so much, for each model."""
    most = entry["promised_mb"]
    what = "memory while scoring `{row}`: at most {most:.0f} MB beyond the weights (a vocabulary of {vocabulary:,})"
    return [
        Promise(what.format(most=most, **work), f"{work['beyond_mb']:.0f} MB", work["beyond_mb"] <= most)
        for work in entry["works"]
    ]


def tell_memory(entry: Entry, _: Entry) -> str:
    """Each model's."""
    names = ("libraries", "weights", "loading_peak", "loaded", "peak", "beyond")
    rows = [
        [
            work["row"],
            work["model"]["source"],
            f"{work['vocabulary']:,}",
            *(f"{work[f'{name}_mb']:.0f}" for name in names),
        ]
        for work in entry["works"]
    ]
    about = (
        "Resident memory of the engine's process: before the model is loaded, the peak while it is loaded, once it is, and the "
        "peak while scoring, on which the promise is judged. A machine needs room for the larger of both peaks."
    )
    heads = "work|model|vocabulary|libraries MB|weights MB|peak while loading MB|loaded MB|peak while scoring MB|that less weights MB"
    samples = {work["row"]: f"`{work['row']}`: {sample_words(work)}." for work in entry["works"]}
    return "\n\n".join([about, grid(heads, rows), *samples.values()])


def measure_startup(plan: Namespace) -> Entry:
    """How long a command takes that has nothing to compute, as a whole process, in a folder of its own."""
    model = str(Path(plan.model).resolve()) if Path(plan.model).exists() else plan.model
    options = ["--limit", str(plan.sample or 300)]
    run = ["run", "spurious-correlation", "-m", model, *options]
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
                raise UndertowError(
                    f"undertow {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}"
                )
            return taken

        return {
            "command": f"undertow {' '.join([*run[:3], plan.model, *options])}",
            "help_s": [seconds("--help") for _ in range(HELP_RUNS + 1)][1:],  # the first reads files from the disk
            "first_s": seconds(*run),
            "repeat_s": [seconds(*run) for _ in range(REPEATS)],
            "promised_help_s": PROMISED_HELP_S,
            "promised_repeat_s": PROMISED_REPEAT_S,
        }


def startup_promises(entry: Entry) -> list[Promise]:
    """Both commands."""
    return [
        Promise(
            f"start-up: {what} in less than {entry[f'promised_{name}']:g} s",
            f"{middle(spread(entry[name]))} s",
            median(entry[name]) < entry[f"promised_{name}"],
        )
        for what, name in (("`undertow --help`", "help_s"), ("repeating a finished run", "repeat_s"))
    ]


def tell_startup(entry: Entry, _: Entry) -> str:
    """Each command's seconds."""
    first, again = f"`{entry['command']}`", "the same again"
    named = [("`undertow --help`", entry["help_s"]), (first, [entry["first_s"]]), (again, entry["repeat_s"])]
    rows = [[name, len(taken), f"{median(taken):.2f}", span(spread(taken))] for name, taken in named]
    about = "Whole processes, from start to end, in a folder of their own with an empty answer store."
    return "\n\n".join([about, grid("command|processes|seconds, median|min to max", rows)])


def measure_bfloat16(plan: Namespace) -> Entry:
    """The same likelihood work in bfloat16 beside float32, each in a process, in turns, with the machine's limit before each."""
    work = Work.of(LIKELIHOOD, plan, alone=True)
    first = Worker.of_engine(work)
    entry = {**work.told(), "threads": first.ready.threads, "auto": dtype_here(AUTO, work.row.family, CPU)}
    if not first.do(limit.has_bfloat16):
        first.close()
        return entry | {"precisions": [], "promised_ratio": PROMISED_RATIO}
    workers = [first, Worker.of_engine(work, BFLOAT16)]
    shape = first.do(limit.shape_of)
    for worker in workers:
        worker.do(limit.rates, shape)  # warms up
    visits: list[list[limit.Rates]] = [[], []]
    answered: list[list[Answered]] = [[], []]
    for number in _rounds(plan):
        for at, worker in enumerate(workers):
            say(f"bfloat16: round {number + 1}: {PRECISIONS[at]}")
            visits[at].append(worker.do(limit.rates, shape))
            answered[at].append(worker.score(work.sample.places))
    for dtype, taken in zip(PRECISIONS, answered, strict=True):
        for one in taken:
            work.row.gate.require(taken[0].numbers, one.numbers, f"bfloat16: {work.row.name} in {dtype}")
    entry |= {
        "error_nats": errors(*(taken[0].numbers for taken in answered)),
        "precisions": [
            {"model": worker.model, "seconds": [one.seconds for one in taken], "peak": limit.best_of(visited)}
            for worker, taken, visited in zip(workers, answered, visits, strict=True)
        ],
        "rate_ratios": [exact.seconds / reduced.seconds for exact, reduced in zip(*answered, strict=True)],
        "most_error_nats": MOST_ERROR_NATS,
        "promised_ratio": PROMISED_RATIO,
    }
    for worker in workers:
        worker.close()
    return entry


def errors(exact: Sequence[Said], reduced: Sequence[Said]) -> dict[str, float]:
    """The largest difference and the root of the mean square, over all items and options, in nats.

    Raises:
        UndertowError: a number is missing, or they are so far off that a rate would say nothing.
    """
    ours, theirs = (np.concatenate([said.numbers[0] for said in one]) for one in (exact, reduced))
    with np.errstate(invalid="ignore"):  # two infinite numbers have no difference: missing
        gaps = np.abs(ours - theirs) if ours.shape == theirs.shape else np.array([math.nan])
    root = float(np.sqrt(np.mean(gaps**2)))
    if not root <= MOST_ERROR_NATS:
        raise UndertowError(
            f"bfloat16: log-probabilities differ from float32's by {root:.2g} nats (root mean square; nan: some are missing), "
            f"and {MOST_ERROR_NATS:g} is allowed, so no rate is told; name a model that keeps its numbers in bfloat16"
        )
    return {"largest": float(gaps.max()), "root_mean_square": root}


def bfloat16_promises(entry: Entry) -> list[Promise]:
    """Twice the rate, where `auto` is bfloat16: whoever chooses it for a user has to be right."""
    what = (
        f"bfloat16: at least {entry['promised_ratio']:g} times the rate of float32, where `--dtype {AUTO}` chooses it"
    )
    if not entry["precisions"]:
        return [Promise(what, "this processor has no bfloat16 products", None)]
    ratio = spread(entry["rate_ratios"])
    kept = ratio["median"] >= entry["promised_ratio"] if entry["auto"] == BFLOAT16 else None
    exact, reduced = (one["peak"]["flop_per_s"] for one in entry["precisions"])
    own = f"this processor's own products {reduced / exact:.2f} times ({reduced / GIGA:.0f} and {exact / GIGA:.0f} GFLOP/s)"
    return [Promise(what, f"{middle(ratio)} times; {own}", kept)]


def tell_bfloat16(entry: Entry, _: Entry) -> str:
    """Both precisions."""
    if not entry["precisions"]:
        return "Not measured: this processor has no bfloat16 products, as far as oneDNN may use them."
    rows: list[Any] = []
    for one in entry["precisions"]:
        rate, peak = entry["n_items"] / median(one["seconds"]), one["peak"]
        rows.append([one["model"]["dtype"], f"{rate:.1f}", f"{peak['flop_per_s'] / GIGA:.0f}", peak["product"]])
    off = entry["error_nats"]
    about = (
        f"Here `--dtype {AUTO}` is {entry['auto']}. Work of the row `{entry['row']}`, "
        f"{entry['precisions'][0]['model']['source']}. {sample_words(entry)}. "
        f"Log-probabilities of whole continuations differ by {off['root_mean_square']:.2g} nats (root mean square), "
        f"at most by {off['largest']:.2g}; a root mean square of {entry['most_error_nats']:g} is allowed."
    )
    return "\n\n".join([about, grid("precision|items/s, median|limit GFLOP/s|fastest product", rows)])
