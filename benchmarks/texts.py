"""What a text costs outside the model: planning, cache, table, manifest. Run as a script, it measures one size and prints JSON."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from tables import MEGA, Entry, promise, show

SIZES = (10_000, 100_000, 1_000_000)
VALUES = 200
"""W values; each sentence is asked with all of them."""
TOKENS_OF_A_PASS = 8192
"""What a causal model is given at once on a GPU; the toy model takes 400, as on a CPU, where the model is what takes the time."""
MOST_MS, MOST_GB, LARGEST_SLOPE = 0.1, 3.0, 1.1


def texts(plan: Namespace) -> Entry:
    """Processor time of a text outside the model, and memory, with 10,000 to 1,000,000 texts of the toy model."""
    sizes = [plan.sample * factor * VALUES for factor in (1, 2, 4)] if plan.sample else SIZES
    rows: list[Entry] = []
    for size in sizes:
        # A large size takes minutes, and its rounds differ little.
        runs = [_measured(size) for _ in range(plan.rounds if size < SIZES[-1] else 1)]
        columns = {name: [run[name] for run in runs] for name in runs[0]}
        rows.append({"texts": size, **columns})
    each = [row["ms of a text outside the model"] for row in rows]
    logs = [(math.log(row["texts"]), math.log(median(row["seconds outside the model"]))) for row in rows]
    slope = linear_regression(*zip(*logs, strict=True)).slope
    largest = median(rows[-1]["peak memory MB"]) / 1000
    return {
        "notes": [
            f"Each sentence with {VALUES} W values, from a file, with `-m toy`; {TOKENS_OF_A_PASS:,} tokens in a pass, as on a GPU",
            "Processor time; encoding and reading are the model's",
        ],
        "promises": [
            promise(
                f"texts: at most {MOST_MS:g} ms of a text outside the model",
                f"{show(each[-1])} ms",
                median(each[-1]) <= MOST_MS,
            ),
            promise(
                f"texts: time is linear in texts (log-log slope at most {LARGEST_SLOPE:g})",
                f"{slope:.3f}",
                slope <= LARGEST_SLOPE,
            ),
            promise(f"texts: {sizes[-1]:,} texts in at most {MOST_GB:g} GB", f"{largest:.2f} GB", largest <= MOST_GB),
        ],
        "tables": [rows],
    }


def _measured(size: int) -> dict[str, float]:
    """One size, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(size)], capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _measure(size: int, folder: Path) -> dict[str, float]:
    from undertow.inference.answer_cache import AnswerCache
    from undertow.inference.engines import engine_of
    from undertow.models.base import BatchLimits
    from undertow.models.families import toy
    from undertow.runs.collect import models_under_test, observe, query_model
    from undertow.runs.config import RunConfig
    from undertow.types import no_progress

    (folder / "w.txt").write_text("\n".join(f"place {value}" for value in range(VALUES)))
    lines = ["sentence", *(f"The {number}th person said {{blank}} was here." for number in range(size // VALUES))]
    (folder / "texts.csv").write_text("\n".join(lines))
    model_s = 0.0

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal model_s
            started = time.process_time()
            try:
                return method(*arguments)
            finally:
                model_s += time.process_time() - started

        return call

    for name in ("encode", "read_tree"):
        setattr(toy.ToyModel, name, timed(getattr(toy.ToyModel, name)))
    toy.ToyModel = partial(toy.ToyModel, limits=BatchLimits(TOKENS_OF_A_PASS, toy.LIMITS.tree_depth))  # type: ignore[assignment, misc]
    options = {"challenge": str(folder / "texts.csv"), "w": str(folder / "w.txt"), "inject": "In {w}: "}
    config = RunConfig.from_keywords("spurious-correlation", "toy", options)
    audit, _, _ = config.resolve()
    import pandas  # noqa: F401 - loading libraries is not a text's cost

    started = time.process_time()
    (subject,), _ = models_under_test(config)
    with AnswerCache(folder / "answers.sqlite") as store:
        responses = query_model(subject, store, no_progress, engine=engine_of(None, subject.request, subject.handle))
    observe(audit, subject, responses)
    responses.manifest_entry(subject, {})
    outside_s = time.process_time() - started - model_s
    n_texts = len(responses.items)
    return {
        "ms of a text outside the model": 1000 * outside_s / n_texts,
        "seconds outside the model": outside_s,
        "seconds of the model": model_s,
        "peak memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGA,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-") as path:
        print(json.dumps(_measure(int(sys.argv[1]), Path(path))))
