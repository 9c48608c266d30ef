"""From a response of a server that speaks OpenAI's interface to the steps of its answer, as far as they were shown.

    shown      she .41   he .33   " she" .05   the .02        she: .46, and of two spellings both were seen
    not shown  .19 in all, none of them above .02             he: .33 to .35, they: 0 to .04

Servers show log-probabilities in two shapes: lists side by side (completions, as they were first), and one list of tokens
(chat, and completions of some servers). Knows both; knows nothing about how a response was got.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from undertow.models.base import PAPER, PAPER_TOP, UnscorableError
from undertow.models.steps import Step, word_of
from undertow.types import Generation

NOT_SHOWN_NATS = -1000.0
"""Servers write a number below this (-9999, the lowest of its type) for a token that they do not show."""
ROUNDING_NATS = 0.01
ROUNDING_PROB = 1e-6
"""Numbers that were rounded may add up to 1 though something is hidden; nothing is said to be impossible for that."""
PIECE_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What some tokenizers write for a space, and some servers pass on."""


class HalfAnswerError(Exception):
    """A response that is no whole answer; the message says what it lacks. Another attempt may bring it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One decoded token as a server shows it.

    Attributes:
        token: its text.
        logprob_nats: its log-probability.
        top: the most probable tokens there with theirs.
    """

    token: str
    logprob_nats: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for in an answer.

    Attributes:
        words: of the options [option]; "" for one that is no single word, or counts with an earlier one.
        top: how many tokens of each step the server was asked to show.
        protocol: `exact` or `paper`.
    """

    words: tuple[str, ...]
    top: int
    protocol: str


def words_of(prompt: Generation) -> tuple[str, ...] | UnscorableError:
    """What a token must spell to count for each option [option], or why the options cannot be told apart."""
    owner: dict[str, str] = {}
    words = []
    for option in prompt.options:
        word = word_of(option.fills[0])
        if owner.get(word, option.group) != option.group:
            return UnscorableError(f"{word!r} is an option of {owner[word]} and one of {option.group}")
        words.append("" if word in owner or len(word.split()) != 1 else word)
        owner[word] = option.group
    return tuple(words)


def answer_in(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer in a response.

    Raises:
        HalfAnswerError: there is none.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise HalfAnswerError("a response without an answer")
    return choices[0]


def text_of(choice: Mapping[str, Any]) -> str:
    """What the model wrote; "" where it wrote nothing.

    Raises:
        HalfAnswerError: it is no text.
    """
    message = choice.get("message")
    holder, name = (message, "content") if isinstance(message, Mapping) else (choice, "text")
    text = holder.get(name) or holder.get("refusal") or ""
    if not isinstance(text, str):
        raise HalfAnswerError("an answer that is no text")
    return text


def shown_of(choice: Mapping[str, Any]) -> list[Shown]:
    """The tokens of an answer with what was shown of each; none, if nothing was.

    Raises:
        HalfAnswerError: a piece is missing, or is not what it should be.
    """
    given = choice.get("logprobs")
    if not isinstance(given, Mapping):
        return []
    try:
        content = given.get("content") or given.get("refusal")
        if content:
            return [_shown(one["token"], one["logprob"], one["top_logprobs"]) for one in content]
        if not given.get("tokens") or given.get("top_logprobs") is None:
            return []
        columns = given["tokens"], given["token_logprobs"], given["top_logprobs"]
        return [_shown(*row) for row in zip(*columns, strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise HalfAnswerError("log-probabilities with pieces missing") from error


def _shown(token: Any, nats: Any, top: Any) -> Shown:
    listed = list(top.items()) if isinstance(top, Mapping) else [(one["token"], one["logprob"]) for one in top]
    pairs = [(token, nats), *listed]
    if not listed or not all(isinstance(text, str) and float(value) < ROUNDING_NATS for text, value in pairs):
        raise ValueError("no token, or no log-probability")
    spelled = [(text.replace(PIECE_SPACE, " "), min(float(value), 0.0)) for text, value in pairs]
    return Shown(*spelled[0], tuple(spelled[1:]))


def without_end(shown: Sequence[Shown], text: str, finish: str) -> Sequence[Shown]:
    """Without the token that ended the answer, which some servers list: no text has it.

    tokens  "Yes"  "."  ""             text "Yes."
    tokens  "Yes"  "."  "<|im_end|>"   text "Yes."
    """
    if not shown or finish != "stop":
        return shown
    tokens = [step.token for step in shown]
    ends = not tokens[-1] or "".join(tokens[:-1]).strip() == text.strip() != "".join(tokens).strip()
    return shown[:-1] if ends else shown


def step_of(shown: Shown, wanted: Wanted) -> Step:
    """The distribution of one step, as far as it was shown."""
    ranked = sorted(shown.top, key=lambda pair: pair[1], reverse=True)
    # A decoded token outside the most probable ones comes on top of their number, and tokens above it may be hidden.
    seen = [(text, math.exp(nats)) for text, nats in ranked[: wanted.top] if nats > NOT_SHOWN_NATS]
    least_prob = min((prob for _, prob in seen), default=1.0)
    if shown.token not in {text for text, _ in seen} and shown.logprob_nats > NOT_SHOWN_NATS:
        seen.append((shown.token, math.exp(shown.logprob_nats)))
    if wanted.protocol == PAPER:
        seen = sorted(seen, key=lambda pair: pair[1], reverse=True)[:PAPER_TOP]
    found = [[prob for text, prob in seen if word_of(text) == word] for word in wanted.words]
    probs = tuple(sum(own) if word else math.nan for word, own in zip(wanted.words, found, strict=True))
    if wanted.protocol == PAPER:
        return Step(shown.token, probs)
    unseen_prob = max(ROUNDING_PROB, 1.0 - sum(prob for _, prob in seen))
    return Step(shown.token, probs, tuple(map(len, found)), unseen_prob, least_prob)
