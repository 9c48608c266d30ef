"""From an answer that a model wrote, step by step, to what it says of the words that were asked about.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), appendix B.3: where exactly one decoded token is one of
the words, the distribution at its step counts; otherwise the distributions of all steps, summed and divided by
their number.

    prompt ... Answer:    She   was    a   child   .        one word decoded: its step counts
                           ^
    prompt ... Answer:    he    or    she               two words decoded: the mean of the steps
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from undertow.types import Answer, GenerateQuery, Option

SPELLINGS = 2
"""Tokens that one word may have among those that are not shown: with a space before it, and without."""
EMPTY = "the answer is empty: the model ended it before a first word"


@dataclass(frozen=True, slots=True)
class Step:
    """One decoded token, and the distribution that it was chosen from.

    Attributes:
        token: its text, with the space before it where it begins a word.
        probs: probability of each option's tokens, as far as seen [option]; NaN for an option that cannot be seen here, or
            that counts with an earlier one.
        n_seen: how many tokens of each option were seen [option]; () where the whole distribution was.
        unseen_prob: probability that was not shown; 0 where everything was.
        least_prob: probability of the least probable token that was shown.
        spells: whether the token is one of the options'; None where tokens are known by their text only.
    """

    token: str
    probs: tuple[float, ...]
    n_seen: tuple[int, ...] = ()
    unseen_prob: float = 0.0
    least_prob: float = 0.0
    spells: bool | None = None


def word_of(token: str) -> str:
    """The word that a token spells: its text without the space around it."""
    return token.strip()


def steps_that_count(steps: Sequence[Step], options: Sequence[Option]) -> Sequence[Step]:
    """The one step whose token is one of the words, or all of them where none is, or several are.

    A piece of a longer word is none of them: " S" "he" says *She*, and nothing of *he*.
    """
    words = {word_of(option.fills[0]) for option in options}
    said = [
        step
        for at, step in enumerate(steps)
        if (word_of(step.token) in words if step.spells is None else step.spells) and _stands_alone(steps, at)
    ]
    return said if len(said) == 1 else steps


def _stands_alone(steps: Sequence[Step], at: int) -> bool:
    """Whether no letter touches the token on either side."""
    token = steps[at].token
    before = next((step.token for step in reversed(steps[:at]) if step.token), "")
    behind = next((step.token for step in steps[at + 1 :] if step.token), "")
    begins = not token[:1].isalnum() or not before[-1:].isalnum()
    return begins and (not token[-1:].isalnum() or not behind[:1].isalnum())


def answer_of(query: GenerateQuery, steps: Sequence[Step], text: str) -> Answer:
    """What the steps of this text say of the options; missing where nothing was written."""
    if not steps:
        return Answer.none(EMPTY)
    counted = steps_that_count(steps, query.options)
    probs = [sum(step.probs[option] for step in counted) / len(counted) for option in range(len(query.options))]
    if any(math.isinf(prob) for prob in probs) or all(math.isnan(prob) for prob in probs):
        return Answer.none("the model gave a probability that is not a number")
    taken = sum(prob for prob in probs if not math.isnan(prob))
    hidden = any(step.n_seen for step in counted)
    return Answer(
        logprobs_nats=tuple(_log(prob) for prob in probs),
        other_prob=max(0.0, 1.0 - taken),
        text=text.encode(
            "utf-8", "replace"
        ).decode(),  # half a character can come, and nothing could be written with it
        upper_bound_prob=_ceilings(counted, probs) if hidden else (),
        truncated_prob=sum(step.unseen_prob for step in counted) / len(counted) if hidden else 0.0,
    )


def _ceilings(steps: Sequence[Step], probs: Sequence[float]) -> tuple[float, ...]:
    """What each option may have had beyond what was seen: no hidden token is more probable than the last one shown."""
    return tuple(
        0.0 if math.isnan(prob) else sum(_ceiling(step, option) for step in steps) / len(steps)
        for option, prob in enumerate(probs)
    )


def _ceiling(step: Step, option: int) -> float:
    hidden = SPELLINGS - step.n_seen[option] if step.n_seen else 0
    return min(max(hidden, 0) * step.least_prob, step.unseen_prob)


def _log(prob: float) -> float:
    if math.isnan(prob):
        return math.nan
    return math.log(prob) if prob > 0 else -math.inf
