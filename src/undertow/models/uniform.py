"""The model that knows nothing: every word is as probable as every other, whatever the text says. `-m uniform`.

A control to stand beside real models: it cannot drift, and cannot tell a sentence that decides from one that does not. What an
audit finds in it is noise. Without torch, and the shortest family there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from undertow.models.base import EXACT, FLOAT32, Effort, Found, LostError, Request, UnscorableError
from undertow.models.steps import Step, answer_of
from undertow.types import (
    BLANK,
    CONTINUATIONS,
    GENERATION,
    Answer,
    Choice,
    Continuations,
    Extraction,
    Generation,
    ModelCard,
    Query,
    UndertowError,
    Writing,
)

SUMMARY = "a control that gives every word the same probability, whatever is asked"
WORDS = 1000
"""How many words it knows; all but the options go unclaimed."""


def find(request: Request) -> Found | None:
    """The control, under its one name.

    Raises:
        UndertowError: it is asked for in a revision or precision, of which it has none.
    """
    if request.name != "uniform":
        return None
    if request.revision or request.dtype != FLOAT32:
        raise UndertowError("uniform has no weights; leave --revision and --dtype out")
    card = ModelCard(request.name, "uniform", "undertow", f"uniform over {WORDS} words", request.dtype, "mask")
    return Found(card, lambda: Uniform(card), dict.fromkeys((BLANK, CONTINUATIONS, GENERATION), (EXACT,)))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Answers without looking; see the module's text."""

    card: ModelCard
    notes: tuple[str, ...] = ("a control: it gives every word the same probability",)

    def answer(
        self, queries: Sequence[Query], protocol: str
    ) -> Iterator[Mapping[int, Answer | UnscorableError | LostError]]:
        """The same to everything."""
        yield {place: _answer(query) for place, query in enumerate(queries)}

    def effort(self, queries: Sequence[Query], protocol: str) -> Effort:
        """Next to nothing."""
        return Effort(len(queries), 1, 0.0, 0)


def _answer(query: Query) -> Answer:
    if isinstance(query, (Choice, Writing, Extraction)):
        return Answer.none("a control that prefers nothing chooses and writes nothing")
    options = query.continuations if isinstance(query, Continuations) else query.options
    if len(options) > WORDS:
        return Answer.none(f"it knows {WORDS} words only")
    if isinstance(query, Generation):
        return answer_of(query, [Step("?", (1 / WORDS,) * len(options))], "?")
    return Answer((-math.log(WORDS),) * len(options), 1 - len(options) / WORDS)
