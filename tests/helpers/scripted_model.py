"""A model that says what its script has, for audits whose numbers are to be known by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from undertow import models
from undertow.models.base import EXACT, CostEstimate, ModelHandle, RequestFailedError, UnsupportedQueryError
from undertow.types import BLANK, CHOICE, WRITING, Answer, ModelIdentity, Query

Say = Callable[[Any], "Answer | UnsupportedQueryError | RequestFailedError"]
OF_TEXTS: Mapping[str, tuple[str, ...]] = {CHOICE: (EXACT,), WRITING: (EXACT,)}
OF_ALL: Mapping[str, tuple[str, ...]] = {BLANK: (EXACT,), **OF_TEXTS}
"""What a model can be asked, and by which protocols."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model that says what its script has, and remembers what it was asked."""

    identity: ModelIdentity
    say: Say
    asked: list[Query] = field(default_factory=list)
    protocols: set[str] = field(default_factory=set)
    notes: tuple[str, ...] = ()

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        self.protocols.add(protocol)
        for place, query in enumerate(queries):
            self.asked.append(query)
            yield {place: self.say(query)}

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        return CostEstimate(7 * len(queries), len(queries), 0.25, 0, passes="requests")


Script = Callable[..., Scripted]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes a model of a script, which is then found by its name."""
    known: dict[str, ModelHandle] = {}
    before = models.resolve
    monkeypatch.setattr(models, "resolve", lambda request: known.get(request.name) or before(request))

    def add(
        say: Say,
        capabilities: Mapping[str, tuple[str, ...]] = OF_TEXTS,
        *,
        name: str = "scripted",
        dtype: str = "as written",
    ) -> Scripted:
        identity = ModelIdentity(name, "scripted", "the tests", f"{name} of the tests", dtype, "likelihood")
        model = Scripted(identity, say, notes=("as in the script",) if dtype == "as served" else ())
        known[name] = ModelHandle(identity, lambda: model, capabilities)
        return model

    return add
