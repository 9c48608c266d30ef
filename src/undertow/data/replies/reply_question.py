"""Questions and readings of replies."""

from __future__ import annotations

from dataclasses import dataclass

from undertow.data.replies.answer_rules import rules

YES_NO, CHOICE, WORD, SPAN, REWRITE = "yes-no", "choice", "word", "span", "rewrite"
ANSWER, BOTH, NEITHER, OTHER, REFUSAL, UNCLEAR = "answer", "both", "neither", "other", "refusal", "unclear"
YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a reply.

    Attributes:
        kind: `YES_NO`, `CHOICE`, `WORD`, `SPAN` or `REWRITE`.
        answers: possible answers: "Yes" and "No", names (with "both" and "neither" where these are answers), labels, or words.
        groups: for a word question, the group of each word; two words of a group are one answer.
        prompt: the prompt, which shows whether the question is negated, and the sentence around a blank.
        passage: the text of the span, or the text to rewrite.
    """

    kind: str
    answers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    prompt: str = ""
    passage: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of a reply.

    Attributes:
        outcome: `ANSWER`; `BOTH` or `NEITHER`, if these are not answers; `OTHER`, an unlisted word; `REFUSAL`; `UNCLEAR`.
        text: the answer as the question spells it, the span, or the rewritten text; "" otherwise.
    """

    outcome: str
    text: str = ""


def declines(text: str) -> bool:
    """Whether a text declines to answer for another reason than missing information."""
    known = rules()
    if known.has("refusal.alone", text):
        return True
    return known.has("refusal.hard", text) or (known.has("refusal.soft", text) and not known.has("unclear.lacks", text))
