"""The model that knows nothing: every word is as probable as every other, whatever the text says. `-m uniform`.

A control to stand beside real models: it cannot drift, and cannot tell a sentence that decides from one that does not. What an
audit finds in it is noise. Without torch, and the shortest family there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from undertow.errors import UndertowError
from undertow.models.base import (
    EXACT,
    FLOAT32,
    CostEstimate,
    ModelHandle,
    ModelRequest,
    RequestFailedError,
    UnsupportedQueryError,
)
from undertow.models.generation.step_readout import Step, answer_of
from undertow.types import (
    BLANK,
    CONTINUATIONS,
    GENERATION,
    Answer,
    ConstrainedGenerateQuery,
    ContinuationQuery,
    GenerateQuery,
    ModelIdentity,
    MultipleChoiceQuery,
    Query,
    SpanQuery,
)

SUMMARY = "a control that gives every word the same probability, whatever is asked"
WORDS = 1000
"""How many words it knows; all but the options are other words."""


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The control, under its one name.

    Raises:
        UndertowError: it is asked for in a revision or precision, of which it has none.
    """
    if request.name != "uniform":
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError("uniform has no weights; leave --revision and --dtype out")
    identity = ModelIdentity(request.name, "uniform", "undertow", f"uniform over {WORDS} words", request.dtype, "mask")
    return ModelHandle(
        identity, lambda: UniformModel(identity), dict.fromkeys((BLANK, CONTINUATIONS, GENERATION), (EXACT,))
    )


@dataclass(frozen=True, slots=True)
class UniformModel:
    """Answers without looking; see the module's text."""

    identity: ModelIdentity
    notes: tuple[str, ...] = ("a control: it gives every word the same probability",)

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnsupportedQueryError | RequestFailedError]]:
        """The same to everything."""
        yield {place: _answer(query) for place, query in enumerate(queries)}

    def estimate_cost(self, queries: Sequence[Query], protocol: str) -> CostEstimate:
        """Next to nothing."""
        return CostEstimate(len(queries), 1, 0.0, 0)


def _answer(query: Query) -> Answer:
    if isinstance(query, (MultipleChoiceQuery, ConstrainedGenerateQuery, SpanQuery)):
        return Answer.none("a control that prefers nothing chooses and writes nothing")
    options = query.continuations if isinstance(query, ContinuationQuery) else query.options
    if len(options) > WORDS:
        return Answer.none(f"it knows {WORDS} words only")
    if isinstance(query, GenerateQuery):
        return answer_of(query, [Step("?", (1 / WORDS,) * len(options))], "?")
    return Answer((-math.log(WORDS),) * len(options), 1 - len(options) / WORDS)
