"""Memory: what the engine takes while it loads and while it scores, beyond its model's weights, whatever the vocabulary.

Knows rows, workers, and a model with a very large vocabulary that is made on the spot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import needed
import random_llama
from contenders import ITS_OWN
from rows import ROWS, Sample
from telling import Promise, grid, sample_words
from undertow.types import Blank
from work import Plan, Work, say, start_engine, told_model
from worker import MIB, Memory, Worker

NAME = "memory"
MB = 10**6
PROMISED_MB = 600.0
MEASURED = ("libraries", "weights", "loading_peak", "loaded", "peak", "beyond")
"""Columns of the table, by their names in the record."""


def measure(plan: Plan) -> dict[str, Any]:
    """The record of all models.

    Raises:
        UndertowError: the engine gives an item other numbers in another sample.
    """
    likelihood = Work.of(ROWS["likelihood"], plan, alone=True)
    say(f"{NAME}: the model with {random_llama.N_TOKENS:,} tokens is made, if it is not there")
    texts = [text for item in likelihood.items if isinstance(item.query, Blank) for text in item.query.texts()]
    wide = replace(likelihood, model=str(random_llama.prepared(texts)))
    works = [_measured(work, plan) for work in (likelihood, wide, Work.of(ROWS["masked"], plan, alone=True))]
    return {"threads": works[0].pop("threads"), "works": works, "promised_mb": PROMISED_MB}


def _measured(work: Work, plan: Plan) -> dict[str, Any]:
    worker = start_engine(work, plan)
    shape: needed.Shape = worker.do(needed.shape_of)
    say(f"{NAME}: {work.row.name}")
    _require_equal(work, *(_scored(worker, sample) for sample in (work.smaller, work.sample)))
    entry = {**work.told(), "model": told_model(worker), "threads": worker.ready.threads}
    return entry | {"vocabulary": max(n_out for _, n_out in shape.head)} | sizes(worker.close(), shape.weights_bytes)


def _scored(worker: Worker, sample: Sample) -> dict[int, Any]:
    """Numbers by place."""
    return dict(zip(sample.places, worker.score(sample.places, ITS_OWN).numbers, strict=True))


def _require_equal(work: Work, smaller: Mapping[int, Any], all_of_it: Mapping[int, Any]) -> None:
    """Each item beside itself in the other sample, or, where it is in one alone, so that its numbers are not missing."""
    for one, other in ((smaller, all_of_it), (all_of_it, smaller)):
        again = [other.get(place, numbers) for place, numbers in one.items()]
        work.row.gate.require(list(one.values()), again, f"{NAME}: {work.row.name}")


def sizes(memory: Memory, weights_bytes: int) -> dict[str, float]:
    """In MB of a million bytes, as the promise is made; `beyond_mb` is what it is about."""
    weights_mb = weights_bytes / MB
    peak_mb = memory.scoring_peak_mib * MIB / MB
    return {
        "libraries_mb": memory.before_mib * MIB / MB,
        "weights_mb": weights_mb,
        "loading_peak_mb": memory.loading_peak_mib * MIB / MB,
        "loaded_mb": memory.loaded_mib * MIB / MB,
        "peak_mb": peak_mb,
        "beyond_mb": peak_mb - weights_mb,
    }


def promises(entry: dict[str, Any]) -> list[Promise]:
    """No more than so much, for each model."""
    most = entry["promised_mb"]
    return [
        Promise(
            f"memory while scoring `{work['row']}`: at most {most:.0f} MB beyond the weights "
            f"(a vocabulary of {work['vocabulary']:,})",
            f"{work['beyond_mb']:.0f} MB",
            work["beyond_mb"] <= most,
        )
        for work in entry["works"]
    ]


def section(entry: dict[str, Any], _: dict[str, Any]) -> str:
    """The part of the page."""
    heads = [
        "work",
        "model",
        "vocabulary",
        "libraries MB",
        "weights MB",
        "peak while loading MB",
        "loaded MB",
        "peak while scoring MB",
        "that less weights MB",
    ]
    rows: list[list[object]] = []
    for work in entry["works"]:
        taken = [f"{work[f'{name}_mb']:.0f}" for name in MEASURED]
        rows.append([work["row"], work["model"]["source"], f"{work['vocabulary']:,}", *taken])
    about = (
        "Resident memory of the engine's process: before the model is loaded (the interpreter and libraries), the peak while it is "
        "loaded, once it is, and the peak while scoring. The promise is judged on scoring alone: loading is done once, and takes more "
        "where weights are unpacked or laid out anew, since a file and what is made of it (as of a GGUF file) are held together for "
        "a while; a machine needs room for the larger of both peaks. Weights are counted from the network's configuration, each "
        "parameter once; a copy of the engine's own "
        "is not part of them."
    )
    samples = {work["row"]: f"`{work['row']}`: {sample_words(work)}." for work in entry["works"]}
    return "\n\n".join([about, grid(heads, rows), *samples.values()])
