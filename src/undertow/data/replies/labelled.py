"""The labelled replies of the package, and how often the reader reads them otherwise."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from undertow.data.replies.reader import ANSWER, WORD, Question, read

TUNING, HELD_OUT = "tuning", "held-out"
NO_TEXT = "(none)"


@dataclass(frozen=True, slots=True)
class LabelledReply:
    """A reply, and what a person says that it says.

    Attributes:
        part: `TUNING` or `HELD_OUT`.
        name: of the question.
        question: what was asked.
        label: an answer, a text, an outcome, or `NO_TEXT`; of a word question the group of the word.
        reply: the text.
    """

    part: str
    name: str
    question: Question
    label: str
    reply: str

    @property
    def reading(self) -> str:
        """What the reader says, in the words of labels."""
        got = read(self.question, self.reply)
        if got.outcome != ANSWER:
            return got.outcome
        if self.question.kind == WORD:
            return dict(zip(self.question.answers, self.question.groups, strict=True))[got.text]
        return got.text or NO_TEXT


@cache
def labelled_replies() -> tuple[LabelledReply, ...]:
    """All replies, in the order of the file."""
    content = (
        resources.files("undertow.data").joinpath("resources", "labelled_replies.toml").read_text(encoding="utf-8")
    )
    return tuple(_replies(tomllib.loads(content)))


def _replies(table: dict[str, Any]) -> Iterator[LabelledReply]:
    questions = {
        name: Question(
            entry["kind"],
            tuple(entry.get("answers", ())),
            tuple(entry.get("groups", ())),
            entry["asked"],
            entry.get("passage", ""),
        )
        for name, entry in table["questions"].items()
    }
    for part, by_question in table.items():
        for name, replies in by_question.items() if part != "questions" else ():
            for label, reply in replies:
                yield LabelledReply(HELD_OUT if part == HELD_OUT else TUNING, name, questions[name], label, reply)


def error_table() -> list[dict[str, str | int]]:
    """Replies read and misread, by kind of question and part, with 95% Wilson intervals of the error rate left to the caller."""
    rows: dict[tuple[str, str], list[int]] = {}
    for one in labelled_replies():
        for kind in (one.question.kind, "all"):
            counts = rows.setdefault((one.part, kind), [0, 0])
            counts[0] += 1
            counts[1] += one.reading != one.label
    return [
        {"part": part, "question": kind, "replies": n, "misread": misread}
        for (part, kind), (n, misread) in rows.items()
    ]
