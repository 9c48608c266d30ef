"""Runs to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from undertow import audits
from undertow.audits.base import Audit, ItemBatches, Observations, Sampling
from undertow.runs.compare import Comparison
from undertow.runs.compare import compare as compare_records
from undertow.runs.compare.equivalence import Margins
from undertow.runs.folder.storage import Record, write_record
from undertow.types import Finding, Item, Result, Scores

AUDIT = "spurious-correlation"


def outside_audit(compute: Callable[[Observations, int], list[Result]]) -> Audit:
    """An audit of another package that measures so; it has no options, and nothing to say of its questions."""

    class Outside(Audit):
        name, summary, Settings = "outside", "an audit of another package", dict

        def items(self, settings: Any, sampling: Sampling) -> ItemBatches:
            yield []

        def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
            return Observations(pd.DataFrame(), design)

        def measure(self, observations: Observations, seed: int) -> list[Result]:
            return compute(observations, seed)

        def findings(self, observations: Observations, results: Sequence[Result]) -> list[Finding]:
            return []

    return Outside()


DESIGN: dict[str, Any] = {
    "groups": ["female", "male"], "gaps": [["female", "male"]], "words": {"female": ["she"], "male": ["he"]}, "title": "A set",
    "source": "", "protocol": "exact", "scoring_method": "likelihood", "normalised": True, "prompts": {},
}  # fmt: skip


def compare(
    baseline: Record, candidate: Record, *, margin: float | Mapping[str, float] | None = None, seed: int = 0
) -> Comparison:
    """Compare two runs, which are called by their models."""
    names = str(baseline.manifest["model"]), str(candidate.manifest["model"])
    return compare_records(baseline, candidate, names=names, margins=Margins.from_value(margin), seed=seed)


def table(female: Mapping[str, Sequence[float]], model: str = "one", w_name: str = "date") -> pd.DataFrame:
    """A row for each cluster and W value, from percents of female words by cluster; NaN is missing."""
    rows = [
        {"item": f"{w_name}/{cluster}/{at}", "w_index": at, "w_value": float(at), "w": str(1900 + at)}
        | {"cluster": cluster, "text": f"In {1900 + at}, ___ was at {cluster}.", "female": value, "male": 100 - value}
        | {"other_words": math.nan if math.isnan(value) else 10.0}
        | {"missing_reason": "no answer came" if math.isnan(value) else ""}
        for cluster, values in female.items()
        for at, value in enumerate(values)
    ]
    return pd.DataFrame(rows).assign(model=model, challenge="set", prompt="", w_name=w_name)


def record(frame: pd.DataFrame, **changed: Any) -> Record:
    """A run with this table, measured."""
    design = DESIGN | changed.pop("design", {})
    names = list(dict.fromkeys(frame["model"]))
    manifest = {
        "schema_version": 1, "audit": AUDIT, "model": ", ".join(names), "design": design, "run_key": "k", "request_key": "a", "seed": 0,
        "limit": 0, "protocol": "exact", "command": "undertow run", "python": "undertow.audit()", "created": "2026-01-02",
        "versions": {"undertow": "1"}, "machine": {}, "challenge_sha256": "asked", "settings": {"challenge": "set"},
        "model_identity": {
            "name": "m", "family": "toy", "dtype": "float32", "source": "local", "revision": "1", "scoring_method": "likelihood",
        },
        "counts": {"items": len(frame)},
    } | changed  # fmt: skip
    results = audits.load(AUDIT).measure(Observations(frame, design), 0) if manifest["audit"] == AUDIT else []
    return Record(manifest, frame, results)


FIRST: dict[str, list[float]] = {"a": [40.0, 50, 60], "b": [40, 50, 60]}
SECOND: dict[str, list[float]] = {"a": [40.0, 52, 64], "b": [40, 54, 68]}


def difference(of: Comparison, measure: str, pronoun: str = "female", **group: str) -> Result:
    wanted = {"pronoun": pronoun} | group
    (found,) = [
        one
        for one in of.differences
        if one.measure == measure and all(one.group.get(key) == level for key, level in wanted.items())
    ]
    return found


def written(run: Record, folder: Path) -> Path:
    write_record(run, folder, lambda place: None)
    return folder
