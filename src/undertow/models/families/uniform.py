"""A control model: every word has the same probability, whatever the text. `-m uniform`.

It cannot drift, and cannot distinguish specified from underspecified sentences: any finding about it is noise. Runs without torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from undertow.errors import UndertowError
from undertow.models.base import FLOAT32, CostEstimate, ModelHandle, ModelRequest, Outcome
from undertow.models.generation.step_readout import Step, answer_of
from undertow.types import (
    BLANK,
    CONTINUATIONS,
    EXACT,
    GENERATION,
    Answer,
    ClozeQuery,
    ContinuationQuery,
    GenerateQuery,
    ModelIdentity,
    Query,
)

SUMMARY = "a control that gives every word the same probability, whatever the text"
WORDS = 1000
"""Size of its vocabulary; all words but the options are other words."""


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The control, if the request names it.

    Raises:
        UndertowError: the request has a revision or precision.
    """
    if request.name != "uniform":
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError("uniform has no weights; leave --revision and --dtype out")
    identity = ModelIdentity(request.name, "uniform", "undertow", f"uniform over {WORDS} words", request.dtype, "mask")
    capabilities = dict.fromkeys((BLANK, CONTINUATIONS, GENERATION), (EXACT,))
    return ModelHandle(identity, lambda: UniformModel(identity), capabilities)


@dataclass(frozen=True, slots=True)
class UniformModel:
    """The uniform model; see the module's docstring."""

    identity: ModelIdentity
    notes: tuple[str, ...] = ("a control: it gives every word the same probability",)

    def answer(self, queries: Sequence[Query], protocol: str) -> Iterator[Mapping[int, Outcome]]:
        """The same answer to every query."""
        yield {place: _answer(query) for place, query in enumerate(queries)}

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """Almost no cost."""
        return CostEstimate(len(queries), 1, 0.0, 0)


def _answer(query: Query) -> Answer:
    supported = cast(ClozeQuery | ContinuationQuery | GenerateQuery, query)  # the runner refuses others
    options = supported.continuations if isinstance(supported, ContinuationQuery) else supported.options
    if len(options) > WORDS:
        return Answer.missing(f"it knows {WORDS} words only")
    if isinstance(supported, GenerateQuery):
        return answer_of(supported, [Step("?", (1 / WORDS,) * len(options))], "?")
    return Answer((-math.log(WORDS),) * len(options), 1 - len(options) / WORDS)
