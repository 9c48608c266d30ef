"""Memory: what the engine takes while it scores, beyond its model's weights, whatever the vocabulary.

Knows rows, workers, and a model with a very large vocabulary that is made on the spot.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import needed
import random_llama
from contenders import ITS_OWN
from rows import ROWS
from telling import Promise, grid, sample_words
from undertow.types import Blank
from work import Plan, Work, say, start_engine, told_model
from worker import MIB, Memory

NAME = "memory"
MB = 10**6
PROMISED_MB = 600.0


def measure(plan: Plan) -> dict[str, Any]:
    """The record of all models."""
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
    worker.score(work.sample.places, ITS_OWN)
    entry = {**work.told(), "model": told_model(worker), "threads": worker.ready.threads}
    return entry | {"vocabulary": max(n_out for _, n_out in shape.head)} | sizes(worker.close(), shape.weights_bytes)


def sizes(memory: Memory, weights_bytes: int) -> dict[str, float]:
    """In MB of a million bytes, as the promise is made; `beyond_mb` is what it is about."""
    weights_mb = weights_bytes / MB
    peak_mb = memory.scoring_peak_mib * MIB / MB
    return {
        "libraries_mb": memory.before_mib * MIB / MB,
        "weights_mb": weights_mb,
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
        "loaded MB",
        "peak MB",
        "peak less weights MB",
    ]
    rows: list[list[object]] = []
    for work in entry["works"]:
        taken = [f"{work[f'{name}_mb']:.0f}" for name in ("libraries", "weights", "loaded", "peak", "beyond")]
        rows.append([work["row"], work["model"]["source"], f"{work['vocabulary']:,}", *taken])
    about = (
        "Resident memory of the engine's process: before the model is loaded (the interpreter and libraries), once it is, and the "
        "peak while scoring. Weights are counted from the network's configuration, each parameter once; a copy of the engine's own "
        "is not part of them."
    )
    samples = {work["row"]: f"`{work['row']}`: {sample_words(work)}." for work in entry["works"]}
    return "\n\n".join([about, grid(heads, rows), *samples.values()])
