"""Models whose answers in reduced precision are those in float32 with a planted error, found by the name `planted`."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from undertow import models
from undertow.errors import UndertowError
from undertow.models.base import CostEstimate, ModelHandle, ModelRequest, RequestFailedError, UnsupportedQueryError
from undertow.models.families import toy
from undertow.types import Answer, ClozeQuery, ModelIdentity, Query

Err = Callable[[Query, Answer], Answer]
"""What reduced precision makes of the answer that float32 gives."""


@dataclass(slots=True)
class Planted:
    """Answers as the toy does; in reduced precision, with an error.

    What it was asked and each loading are told by precision; `refused` says why it cannot be loaded in float32.
    """

    err: Err
    facts: Mapping[str, str | float] = field(default_factory=dict)
    asked: dict[str, list[Query]] = field(default_factory=lambda: {"float32": [], "bfloat16": [], "float16": []})
    opened: list[str] = field(default_factory=list)
    refused: str = ""

    def resolve(self, request: ModelRequest) -> ModelHandle:
        found = toy.resolve(ModelRequest("toy"))
        assert found is not None
        identity = replace(found.identity, name=request.name, family="planted", source=request.name)
        identity = replace(identity, dtype=request.dtype, scoring_method="mask")

        def opened() -> _Open:
            self.opened.append(request.dtype)
            if self.refused and request.dtype == "float32":
                raise UndertowError(self.refused)
            return _Open(identity, self, found.open())

        return ModelHandle(identity, opened, found.capabilities)


@dataclass(frozen=True, slots=True)
class _Open:
    identity: ModelIdentity
    planted: Planted
    toy: toy.ToyModel
    notes: tuple[str, ...] = ()

    @property
    def facts(self) -> Mapping[str, str | float]:
        return self.planted.facts

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        for place, query in enumerate(queries):
            self.planted.asked[self.identity.dtype].append(query)
            yield {place: self._said(query, protocol)}

    def _said(self, query: Query, protocol: str) -> Answer | UnsupportedQueryError | RequestFailedError:
        if isinstance(query, ClozeQuery):
            said: Answer | UnsupportedQueryError | RequestFailedError = at_the_blank(query)
        else:
            ((_, said),) = next(iter(self.toy.answer([query], protocol))).items()
        if self.identity.dtype == "float32" or not isinstance(said, Answer):
            return said
        return self.planted.err(query, said)

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        return CostEstimate(len(queries), 1, 0.0, 0)


def at_the_blank(query: ClozeQuery) -> Answer:
    """Women gain a thousandth a year on men; how they stand, each sentence says for itself."""
    text = query.display_text()
    share = 0.35 + 0.001 * (year_of(text) - 1900) + 0.02 * unit(re.sub(r"\d", "", text))
    return with_probs(query, {"female": share, "male": 0.8 - share, "neutral": 0.1})


def with_probs(query: ClozeQuery, probs: Mapping[str, float]) -> Answer:
    """Each group's probability, in its one word."""
    return Answer(tuple(math.log(probs[option.group]) for option in query.options), 1 - math.fsum(probs.values()))


def moved(query: Query, answer: Answer, points: float) -> Answer:
    """So many percentage points from men to women."""
    assert isinstance(query, ClozeQuery)
    probs = {option.group: math.exp(nats) for option, nats in zip(query.options, answer.logprobs_nats, strict=True)}
    return with_probs(query, {**probs, "female": probs["female"] + points / 100, "male": probs["male"] - points / 100})


def year_of(text: str) -> int:
    year = re.search(r"\d{4}", text)
    return int(year.group()) if year else 1900


def unit(text: str) -> float:
    """A number in 0 to 1 that depends on the text only."""
    return zlib.crc32(text.encode()) / 2**32


def nothing(query: Query, answer: Answer) -> Answer:
    """No error at all."""
    return answer


Plant = Callable[..., Planted]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes a model with an error, which is then found by its name."""
    known: dict[str, Planted] = {}
    before = models.resolve

    def resolve(request: ModelRequest) -> ModelHandle:
        return known[request.name].resolve(request) if request.name in known else before(request)

    monkeypatch.setattr(models, "resolve", resolve)

    def add(err: Err = nothing, name: str = "planted", **parts: Any) -> Planted:
        known[name] = Planted(err, **parts)
        return known[name]

    return add
