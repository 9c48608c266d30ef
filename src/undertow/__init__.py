"""Audit language models for bias that enters through underspecified tasks and dataset selection.

    import undertow
    run = undertow.audit("spurious-correlation", model="smollm2", challenge="mgc")
    run.results, run.observations, run.figure()

Importing this package loads neither torch nor matplotlib nor pandas nor numpy: each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from undertow.errors import UndertowError
from undertow.types import Answer, ClozeQuery, ContinuationQuery, Finding, Item, ModelIdentity, Option, Result, Scores

if TYPE_CHECKING:
    from undertow import data
    from undertow.models.loading.download import pull
    from undertow.runs.compare.compare_folders import ComparedRuns, compare
    from undertow.runs.finished_run import Run, load_run
    from undertow.runs.gates.evaluate import GateReport, gate
    from undertow.runs.guard import Guard, Verdict, guard
    from undertow.runs.pipeline import audit, register
    from undertow.runs.score import render_report, score
    from undertow.runs.suite import Suite, suite

    __version__: str

_LAZY_IMPORTS = {
    name: module
    for module, names in {
        "undertow.models.loading.download": "pull",
        "undertow.runs.compare.compare_folders": "ComparedRuns compare",
        "undertow.runs.finished_run": "Run load_run",
        "undertow.runs.gates.evaluate": "GateReport gate",
        "undertow.runs.guard": "Guard Verdict guard",
        "undertow.runs.pipeline": "audit register",
        "undertow.runs.score": "render_report score",
        "undertow.runs.suite": "Suite suite",
    }.items()
    for name in names.split()
}

__all__ = [
    "Answer", "ClozeQuery", "ComparedRuns", "ContinuationQuery", "Finding", "GateReport", "Guard", "Item", "ModelIdentity", "Option",
    "Result", "Run", "Scores", "Suite", "UndertowError", "Verdict", "__version__", "audit", "compare", "data", "gate", "guard", "load_run",
    "pull", "register", "render_report", "score", "suite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("undertow")
    if name == "data":
        return importlib.import_module("undertow.data")
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module 'undertow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__") and name.endswith("__"))})
