"""Protocol `text`: queries as prompts with free replies, which the answer reader parses.

A reply is cached under its prompt, independent of the rules, so other rules can parse it again without a request. Version and digest
of the rules are part of the design, and so of the run's key and its manifest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from undertow.data.replies import answer_rules as replies
from undertow.data.replies.answer_rules import Question
from undertow.data.replies.reader import read
from undertow.errors import UndertowError
from undertow.models.base import CONTENT_FILTER, ModelHandle
from undertow.types import (
    CHOICE,
    EXACT,
    GENERATION,
    TEXT,
    UNCONSTRAINED,
    WRITING,
    Answer,
    ConstrainedGenerateQuery,
    GeneratedQuery,
    GenerateQuery,
    MultipleChoiceQuery,
    Option,
    Query,
    Reply,
)

REPLY_TOKENS = 256
"""Default token limit of a reply to a question with fixed answers; for a span or a rewritten passage, two for each word of it are added."""
MISSING_REASONS: Mapping[str, str] = {
    replies.REFUSAL: "refusal: the model declines to answer",
    replies.UNCLEAR: "unclear: the answer reader finds no answer in the reply",
    replies.BOTH: "unclear: the reply names both, which is not an answer to this question",
    replies.NEITHER: "unclear: the reply names neither, which is not an answer to this question",
}
"""Why a reply has no answer, by its outcome."""
CUT = "the reply was cut off before an answer; raise --max-new-tokens"
TEXT_CAPABILITIES: Mapping[str, tuple[str, ...]] = {GENERATION: (TEXT,), CHOICE: (TEXT,), WRITING: (TEXT,)}
"""Capabilities of a model under protocol text, for an audit's `adapt_settings`."""


def check_text(handle: ModelHandle, queries: Sequence[Query]) -> None:
    """Refuse a model without replies, and queries without prompts."""
    name = handle.identity.name
    if GENERATION not in handle.capabilities:
        raise UndertowError(f"{name}: answers no prompts, so protocol {TEXT} has no replies; use --protocol {EXACT}")
    if not all(isinstance(query, GeneratedQuery) for query in queries):
        raise UndertowError(f"{name}: protocol {TEXT} needs prompts; add --prompts, or remove --query-type")
    if any(isinstance(query, ConstrainedGenerateQuery) and query.temperature for query in queries):
        raise UndertowError(f"{name}: protocol {TEXT} uses one reply at temperature 0; remove --temperature")


def reply_queries(handle: ModelHandle, queries: Sequence[Query], max_tokens: int) -> tuple[list[Query], str]:
    """The prompts of the queries [query], and the protocol under which the model answers them.

    A model with its own protocol `text` also gets the possible answers, to bound their probability. `max_tokens` is the token limit of a
    reply to a query without one.
    """
    protocol = TEXT if TEXT in handle.capabilities[GENERATION] else EXACT
    return [_prompt(query, max_tokens, bounded=protocol == TEXT) for query in queries], protocol


def _prompt(query: Query, max_tokens: int, *, bounded: bool) -> GenerateQuery:
    if isinstance(query, GenerateQuery):
        return query if bounded else replace(query, options=())
    if isinstance(query, MultipleChoiceQuery):
        options = tuple(Option(label, (label.strip(),)) for label in query.labels) if bounded else ()
        return GenerateQuery(query.display_text(), options, max_tokens, query.chat)
    assert isinstance(query, ConstrainedGenerateQuery), "`check_text` has refused other queries"
    return GenerateQuery(query.display_text(), (), max_tokens + 2 * len(query.passage.split()), query.chat)


def read_answer(query: Query, answer: Answer) -> Answer:
    """The answer in a reply; missing with the reason if there is none."""
    if CONTENT_FILTER in answer.missing_reason:
        withheld = Answer.missing(f"refusal: {answer.missing_reason.removeprefix('refusal: ')}")
        return replace(withheld, reply=Reply("", replies.REFUSAL))
    if answer.missing_reason:
        return answer
    question, options = question_of(query)
    reading = read(question, answer.text, is_cut=answer.cut_at_tokens > 0)
    reply = Reply(answer.text, reading.outcome)
    if answer.cut_at_tokens and reading.outcome in MISSING_REASONS and reading.outcome != replies.REFUSAL:
        return replace(Answer.missing(CUT), reply=replace(reply, outcome=""))
    if reading.outcome in MISSING_REASONS:
        return replace(Answer.missing(MISSING_REASONS[reading.outcome]), reply=reply)
    at = options.index(reading.text) if reading.outcome == replies.ANSWER and options else -1
    if at >= 0 and len(answer.upper_bound_prob) == len(options):
        low = math.exp(answer.logprobs_nats[at])
        reply = replace(reply, low_prob=low, high_prob=min(1.0, low + answer.upper_bound_prob[at]))
    if question.kind == replies.WORD:
        # Capitals depend on where a word stands in the reply, so that the spellings of a word are one word, the lower-case one.
        words = [(group, word.casefold()) for group, word in zip(question.groups, options, strict=True)]
        places: dict[tuple[str, str], int] = {}
        for place in sorted(range(len(words)), key=lambda place: (not options[place].islower(), place)):
            places.setdefault(words[place], place)
        at = places[words[at]] if at >= 0 else -1
        nats = tuple(
            math.nan if places[word] != place else 0.0 if place == at else -math.inf for place, word in enumerate(words)
        )
        text = options[at] if at >= 0 else reading.text or answer.text.strip()
        return Answer(nats, float(reading.outcome == replies.OTHER), text=text, reply=reply)
    return Answer((math.nan,) * max(len(options), 1), math.nan, text=reading.text, reply=reply)


def question_of(query: Query) -> tuple[Question, tuple[str, ...]]:
    """The question for the answer reader, and the possible answers; () for generated texts."""
    if isinstance(query, GenerateQuery):
        words = tuple(option.fills[0].strip() for option in query.options)
        groups = tuple(option.group for option in query.options)
        return Question(replies.WORD, words, groups, prompt=query.prompt), words
    if isinstance(query, MultipleChoiceQuery):
        labels = tuple(label.strip() for label in query.labels)
        kind = replies.YES_NO if {label.casefold() for label in labels} == {replies.YES, replies.NO} else replies.CHOICE
        return Question(kind, labels, prompt=query.prompt), labels
    assert isinstance(query, ConstrainedGenerateQuery), "`check_text` has refused other queries"
    kind = replies.REWRITE if query.constraint == UNCONSTRAINED else replies.SPAN
    return Question(kind, prompt=query.prompt, passage=query.passage), ()
