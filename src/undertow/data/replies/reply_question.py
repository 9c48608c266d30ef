"""What a reply answers, and what may be read in it."""

from __future__ import annotations

from dataclasses import dataclass

from undertow.data.replies.answer_rules import rules

YES_NO, CHOICE, WORD, SPAN, REWRITE = "yes-no", "choice", "word", "span", "rewrite"
ANSWER, BOTH, NEITHER, OTHER, REFUSAL, UNCLEAR = "answer", "both", "neither", "other", "refusal", "unclear"
YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Question:
    """What a reply answers.

    Attributes:
        kind: `YES_NO`, `CHOICE`, `WORD`, `SPAN` or `REWRITE`.
        answers: possible answers: "Yes" and "No", names (with "both" and "neither" where these are answers), labels, or words.
        groups: of a word question, the group of each word; two words of a group are one answer.
        prompt: the prompt, from which the reader takes whether the question is negated, and the sentence around a blank.
        passage: the text that a span is part of, or that is rewritten.
    """

    kind: str
    answers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    prompt: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says.

    Attributes:
        outcome: `ANSWER`; `BOTH` or `NEITHER`, where these are no answers; `OTHER`, a word that is not listed; `REFUSAL`; `UNCLEAR`.
        text: the answer as the question spells it, the span, or the rewritten text; "" otherwise.
    """

    outcome: str
    text: str = ""


def declines(text: str) -> bool:
    """Whether a text declines to answer, and not because information lacks."""
    known = rules()
    if known.has("refusal.alone", text):
        return True
    return known.has("refusal.hard", text) or (known.has("refusal.soft", text) and not known.has("unclear.lacks", text))
