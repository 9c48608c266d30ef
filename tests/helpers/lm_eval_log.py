"""A log as lm-evaluation-harness 0.4.13 writes it, of exported tasks and of numbers that are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DATE = "2026-01-31T10-00-00.123456"
Edit = Callable[[dict[str, Any]], dict[str, Any] | None]
"""What is done to a sample before it is written; None leaves it out."""


def sample_of(doc: Mapping[str, Any], nats: Sequence[float], doc_id: int = 0) -> dict[str, Any]:
    """One logged sample: the harness writes numbers and truth values of answers as text."""
    logged = [[str(one), "False"] for one in nats]
    asked = [{"arg_0": doc["context"], "arg_1": choice} for choice in doc["choices"]]
    said: dict[str, Any] = {"doc_id": doc_id, "doc": dict(doc), "filter": "none", "metrics": ["acc"], "acc": 1.0}
    said |= dict.fromkeys(("target", "doc_hash", "prompt_hash", "target_hash"), "0")
    said["arguments"] = {f"gen_args_{at}": one for at, one in enumerate(asked)}
    return said | {"resps": [[one] for one in logged], "filtered_resps": logged}


def docs_of(exported: Path) -> dict[str, list[dict[str, Any]]]:
    """The data of each task of an exported folder."""
    return {
        path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(exported.glob("*.jsonl"))
    }


def write_log(
    exported: Path,
    out: Path,
    nats_of: Mapping[str, Sequence[float]],
    *,
    model: str = "toy",
    date: str = DATE,
    edit: Edit = lambda sample: sample,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Samples of every task of an exported folder, and the results beside them; gives the model's folder."""
    folder = out / model.replace("/", "__")
    folder.mkdir(parents=True, exist_ok=True)
    for task, docs in docs_of(exported).items():
        samples = [edit(sample_of(doc, nats_of[doc["item"]], at)) for at, doc in enumerate(docs)]
        lines = [json.dumps(sample, ensure_ascii=False) for sample in samples if sample is not None]
        (folder / f"samples_{task}_{date}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    said = {"model_name": model, "config": {"model": "hf", **(config or {})}, "lm_eval_version": "0.4.13"}
    (folder / f"results_{date}.json").write_text(json.dumps(said), encoding="utf-8")
    return folder
