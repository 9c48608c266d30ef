"""Audit language models for the bias that flows in when a question does not decide its answer.

    import undertow
    run = undertow.run("spurious-correlation", model="smollm2", challenge="mgc")
    run.results, run.observations, run.figure()

Importing this package loads neither torch nor matplotlib nor pandas nor numpy: each name is fetched when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from undertow.types import (
    Answer,
    Blank,
    Continuations,
    Finding,
    Item,
    ModelCard,
    Option,
    Result,
    Scores,
    UndertowError,
)

if TYPE_CHECKING:
    from undertow import challenge
    from undertow.audit import Run, run
    from undertow.checking import Verdict, guard
    from undertow.comparing.runs import compare
    from undertow.models.pull import pull
    from undertow.rescoring import open_run, retell, score

    __version__: str

_FETCHED = {
    "Run": "undertow.audit",
    "Verdict": "undertow.checking",
    "compare": "undertow.comparing.runs",
    "guard": "undertow.checking",
    "open_run": "undertow.rescoring",
    "pull": "undertow.models.pull",
    "retell": "undertow.rescoring",
    "run": "undertow.audit",
    "score": "undertow.rescoring",
}

__all__ = [
    "Answer",
    "Blank",
    "Continuations",
    "Finding",
    "Item",
    "ModelCard",
    "Option",
    "Result",
    "Run",
    "Scores",
    "UndertowError",
    "Verdict",
    "__version__",
    "challenge",
    "compare",
    "guard",
    "open_run",
    "pull",
    "retell",
    "run",
    "score",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("undertow")
    if name == "challenge":
        return importlib.import_module("undertow.challenge")
    if name in _FETCHED:
        return getattr(importlib.import_module(_FETCHED[name]), name)
    raise AttributeError(f"module 'undertow' has no attribute {name!r}")
