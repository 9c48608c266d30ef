"""The labelled replies of the package, and the error rates of the reader on them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from undertow.data.replies.answer_rules import ANSWER, WORD, Question
from undertow.data.replies.reader import read
from undertow.data.text_files import RESOURCES
from undertow.stats.intervals.bounded_mean import wilson_interval

TUNING, HELD_OUT, REAL = "tuning", "held-out", "real"
FIRST_READ = "first_read"
NO_TEXT, ALL = "(none)", "all"


@dataclass(frozen=True)
class LabelledReply:
    """A reply with its label, of `TUNING`, `HELD_OUT` or `REAL` (of the default model), to a question with a name.

    The label is an answer, a text, an outcome, or `NO_TEXT`; for a word question the group of the word.
    """

    part: str
    name: str
    question: Question
    label: str
    reply: str

    @cached_property
    def reading(self) -> str:
        """The reading in the format of labels."""
        got = read(self.question, self.reply)
        if got.outcome != ANSWER:
            return got.outcome
        if self.question.kind == WORD:
            return dict(zip(self.question.answers, self.question.groups, strict=True))[got.text]
        return got.text or NO_TEXT


@cache
def labelled_replies() -> tuple[LabelledReply, ...]:
    """All replies, in the order of the file."""
    table, replies = _table(), []
    questions = {
        name: Question(
            entry["kind"], tuple(entry.get("answers", ())), tuple(entry.get("groups", ())), entry["prompt"], entry.get("passage", "")
        )
        for name, entry in table["questions"].items()
    }  # fmt: skip
    for part in (key for key in table if key not in ("questions", FIRST_READ)):
        for name, labelled in table[part].items():
            one = part if part in (HELD_OUT, REAL) else TUNING, name, questions[name]
            replies += [LabelledReply(*one, label, reply) for label, reply in labelled]
    return tuple(replies)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((RESOURCES / "labelled_replies.toml").read_text(encoding="utf-8"))


def error_rates() -> list[dict[str, str | int]]:
    """Numbers of replies and misreadings by part and kind of question, with the 95% Wilson interval of the error rate.

    First come parts with a recorded first reading, by the rules of that time, which were written without these replies.
    """
    counts: dict[tuple[str, str], list[bool]] = {}
    for one in labelled_replies():
        misread = one.reading != one.label
        for kind in (one.question.kind, ALL):
            counts.setdefault((one.part, kind), []).append(misread)
    rows = [_row(f"{part}, when new", ALL, n, n_misread) for part, (n, n_misread) in _table()[FIRST_READ].items()]
    for (part, kind), misread_each in sorted(counts.items(), key=lambda entry: (entry[0][0], entry[0][1] == ALL)):
        rows.append(_row(part, kind, len(misread_each), sum(misread_each)))
    return rows


def _row(part: str, kind: str, n: int, n_misread: int) -> dict[str, str | int]:
    low, high = wilson_interval(n_misread / n, n)
    rate = f"{100 * n_misread / n:.1f}% ({100 * low:.1f} to {100 * high:.1f})"
    return {"part": part, "question": kind, "replies": n, "misread": n_misread, "error rate": rate}
