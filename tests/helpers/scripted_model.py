"""A model that says what its script has, for audits whose numbers are to be known by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from undertow import models
from undertow.models.base import EXACT, CostEstimate, ModelHandle, RequestFailedError, UnsupportedQueryError
from undertow.types import CHOICE, WRITING, Answer, ModelIdentity, Query

Say = Callable[[Query], "Answer | UnsupportedQueryError"]


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model that says what its script has, and remembers what it was asked."""

    identity: ModelIdentity
    say: Say
    asked: list[Query] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        for place, query in enumerate(queries):
            self.asked.append(query)
            yield {place: self.say(query)}

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        return CostEstimate(7 * len(queries), len(queries), 0.25, 0, passes="requests")


def scripted(name: str, say: Say) -> tuple[ModelHandle, Scripted]:
    identity = ModelIdentity(name, "scripted", "the tests", f"{name} of the tests", "as written", "likelihood")
    model = Scripted(identity, say)
    return ModelHandle(identity, lambda: model, {CHOICE: (EXACT,), WRITING: (EXACT,)}), model


Script = Callable[..., Scripted]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Makes a model of a script, which is then found by its name."""
    known: dict[str, ModelHandle] = {}
    before = models.resolve
    monkeypatch.setattr(models, "resolve", lambda request: known.get(request.name) or before(request))

    def add(say: Say, name: str = "scripted") -> Scripted:
        known[name], model = scripted(name, say)
        return model

    return add
