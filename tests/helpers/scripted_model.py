"""A model that says what its script has, for audits whose numbers are to be known by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from undertow import models
from undertow.models.base import CostEstimate, ModelHandle, ModelRequest, RequestFailedError, UnsupportedQueryError
from undertow.models.families import toy
from undertow.types import BLANK, CHOICE, EXACT, GENERATION, PAPER, WRITING, Answer, ModelIdentity, Query

Said = Answer | UnsupportedQueryError | RequestFailedError
Say = Callable[[Any], Said]
OF_TEXTS: Mapping[str, tuple[str, ...]] = {CHOICE: (EXACT,), WRITING: (EXACT,)}
OF_ALL: Mapping[str, tuple[str, ...]] = {BLANK: (EXACT,), **OF_TEXTS}
OF_PROMPTS: Mapping[str, tuple[str, ...]] = {GENERATION: (EXACT, PAPER)}
"""What a model can be asked, and by which protocols."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model that says what its script has, and remembers what it was asked, and each time that it was opened."""

    identity: ModelIdentity
    say: Say
    notes: tuple[str, ...] = ()
    facts: Mapping[str, str | float] = field(default_factory=dict)
    asked: list[Query] = field(default_factory=list)
    protocols: set[str] = field(default_factory=set)
    opened: list[str] = field(default_factory=list)

    def open(self) -> Scripted:
        self.opened.append(self.identity.name)
        return self

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Said]]:
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
        **about: Any,
    ) -> Scripted:
        identity = ModelIdentity(name, "scripted", "the tests", f"{name} of the tests", dtype, "likelihood")
        model = Scripted(identity, say, **about)
        known[name] = ModelHandle(identity, model.open, capabilities)
        return model

    return add


def partly_hidden(query: Query) -> Answer:
    """What the toy answers to a prompt, as a server shows it that hides a twentieth of each distribution."""
    found = toy.resolve(ModelRequest("toy"))
    assert found is not None
    ((_, answer),) = next(iter(found.open().answer([query], EXACT))).items()
    assert isinstance(answer, Answer)
    return replace(answer, upper_bound_prob=tuple(0.01 for _ in answer.logprobs_nats), truncated_prob=0.05)
