"""Option probabilities from the decoding steps of a generated answer.

McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), appendix B.3: where exactly one decoded token is one of
the words, the distribution at its step counts; otherwise the distributions of all steps, summed and divided by
their number.

    prompt ... Answer:    She   was    a   child   .        one word decoded: its step counts
                           ^
    prompt ... Answer:    he    or    she               two words decoded: the mean of the steps
    prompt ... Answer:    ze                            a word of several tokens counts where it begins: P(z) P(e | z)
                          ^
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from undertow.models.base import NOT_A_NUMBER
from undertow.types import Answer, GenerateQuery, Option

SPELLINGS = 2
"""Spellings of a word among the tokens that are not shown: with and without a leading space."""
EMPTY = "the answer is empty: the model ended it before a first word"


@dataclass(frozen=True, slots=True)
class Step:
    """One decoded token and its distribution.

    Attributes:
        token: its text, with a leading space if it begins a word.
        probs: probability of each option's tokens, as far as shown [option]; NaN for an option that cannot be read, or counts with
            an earlier option.
        n_seen: number of tokens of each option that were shown [option]; () for a whole distribution.
        truncated_prob: probability that was not shown; 0 for a whole distribution.
        least_prob: smallest probability that was shown.
        spells: number of tokens of the option's word that begins here, 0 for none; None if tokens are known by text only.
    """

    token: str
    probs: tuple[float, ...]
    n_seen: tuple[int, ...] = ()
    truncated_prob: float = 0.0
    least_prob: float = 0.0
    spells: int | None = None


def steps_that_count(steps: Sequence[Step], options: Sequence[Option]) -> Sequence[Step]:
    """The step whose token is one of the words, or all steps if none or several are.

    A part of a longer word does not count: " S" "he" is *She*, not *he*.
    """
    return [steps[at] for at in places_that_count(steps, options)]


def places_that_count(steps: Sequence[Step], options: Sequence[Option]) -> Sequence[int]:
    """The indices of the steps that count."""
    words = {option.fills[0].strip() for option in options}
    places: list[int] = []
    behind = 0  # the last word
    for at in range(len(steps)):
        if at >= behind and (size := _word_size(steps, at, words)):
            places.append(at)
            behind = at + size
    return places if len(places) == 1 else range(len(steps))


MAX_PIECES = 8
"""Tokens of a word, at most, where tokens are known by text only."""


def _word_size(steps: Sequence[Step], at: int, words: Collection[str]) -> int:
    """Number of tokens of the whole word that begins at a step; 0 for none."""
    known = steps[at].spells
    if known is not None:
        return known if known and _is_whole_word(steps, at, known) else 0
    pieces: list[str] = []
    for size, step in enumerate(steps[at : at + MAX_PIECES], start=1):
        pieces.append(step.token)
        if step.token.strip() and "".join(pieces).strip() in words and _is_whole_word(steps, at, size):
            return size
        if not pieces[0].strip() or " " in "".join(pieces).strip():
            break
    return 0


def _is_whole_word(steps: Sequence[Step], at: int, size: int) -> bool:
    """Whether the tokens have no letter on either side."""
    first, last = steps[at].token, steps[at + size - 1].token
    before = next((step.token for step in reversed(steps[:at]) if step.token), "")
    behind = next((step.token for step in steps[at + size :] if step.token), "")
    begins = not first[:1].isalnum() or not before[-1:].isalnum()
    return begins and (not last[-1:].isalnum() or not behind[:1].isalnum())


def answer_of(query: GenerateQuery, steps: Sequence[Step], text: str) -> Answer:
    """The answer from the decoding steps of a text; missing if the text is empty."""
    if not steps:
        return Answer.missing(EMPTY)
    counted = steps_that_count(steps, query.options)
    n_options = len(query.options)
    probs = [sum(step.probs[option] for step in counted) / len(counted) for option in range(n_options)]
    if any(map(math.isinf, probs)) or (probs and all(map(math.isnan, probs))):
        return Answer.missing(NOT_A_NUMBER)
    answer = Answer(
        logprobs_nats=tuple(prob if math.isnan(prob) else math.log(prob) if prob > 0 else -math.inf for prob in probs),
        other_prob=max(0.0, 1.0 - sum(prob for prob in probs if not math.isnan(prob))),
        text=text.encode("utf-8", "replace").decode(),  # half a character can come, which no file can store
    )
    if not any(step.n_seen for step in counted):
        return answer
    # How much more each option may have: no hidden token is more probable than the last one shown.
    bounds = [0.0] * n_options
    for option, prob in enumerate(probs):
        n_hidden = [max(SPELLINGS - step.n_seen[option], 0) if step.n_seen else 0 for step in counted]
        own = [min(n * step.least_prob, step.truncated_prob) for n, step in zip(n_hidden, counted, strict=True)]
        bounds[option] = 0.0 if math.isnan(prob) else sum(own) / len(counted)
    truncated_prob = sum(step.truncated_prob for step in counted) / len(counted)
    return replace(answer, upper_bound_prob=tuple(bounds), truncated_prob=truncated_prob)
