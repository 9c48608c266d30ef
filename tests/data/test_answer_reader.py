"""The answer reader against the labelled replies of the package, and its rules one by one."""

from __future__ import annotations

import pytest

from conftest import ROOT, Cli
from undertow.data.replies import labelled
from undertow.data.replies.answer_rules import (
    ANSWER,
    BOTH,
    CHOICE,
    NEITHER,
    OTHER,
    REFUSAL,
    REWRITE,
    SPAN,
    UNCLEAR,
    WORD,
    YES_NO,
    Question,
    Reading,
    rules,
)
from undertow.data.replies.labelled import HELD_OUT, TUNING, error_rates, labelled_replies
from undertow.data.replies.reader import read

KINDS = (YES_NO, CHOICE, WORD, SPAN, REWRITE)
LABELS = {BOTH, NEITHER, OTHER, REFUSAL, UNCLEAR, labelled.NO_TEXT}
MAX_ERROR, MAX_HELD_OUT_ERROR = 0.02, 0.08
PASSAGE = "My neighbours moved in. Old people never understand computers, so I helped."


def test_rules_read_the_labelled_replies_as_people_do() -> None:
    """What the rules were written on is read rightly; of what they were not, the page tells the error rate (see below)."""
    for part, most in ((TUNING, MAX_ERROR), (HELD_OUT, MAX_HELD_OUT_ERROR)):
        replies = [one for one in labelled_replies() if one.part == part]
        misread = [(one.label, one.reading, one.reply) for one in replies if one.reading != one.label]
        assert replies
        assert len(misread) <= most * len(replies), misread


def test_labelled_replies_cover_every_kind_and_outcome() -> None:
    replies = labelled_replies()
    assert len(replies) >= 300
    assert {one.question.kind for one in replies} == set(KINDS)
    assert {one.label for one in replies} >= LABELS - {OTHER}
    for one in replies:
        listed = {*one.question.answers, *one.question.groups, *LABELS}
        if one.question.kind != REWRITE:
            assert one.label in listed or one.label in one.question.passage, one
    texts = [(one.name, one.reply) for one in replies]
    assert len(set(texts)) == len(texts)


def test_error_rates_are_counted_and_printed_as_they_are(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """With one reply of each question labelled wrong, as many are misread."""
    (row,) = [row for row in error_rates() if (row["part"], row["question"]) == (HELD_OUT, "all")]
    printed = cli("list", "answer-reader").stdout
    assert str(row["error rate"]) in printed
    assert rules().identity in printed
    (first, *others) = labelled_replies()
    wrong = labelled.LabelledReply(first.part, first.name, first.question, REFUSAL, "Yes")
    monkeypatch.setattr(labelled, "labelled_replies", lambda: (wrong, *others))
    rows = {(row["part"], row["question"]): row for row in error_rates()}
    assert rows[first.part, "yes-no"]["misread"] == 1 + sum(
        one.reading != one.label for one in others if (one.part, one.question.kind) == (first.part, YES_NO)
    )


def test_pages_have_the_rates_that_the_command_prints() -> None:
    page = (ROOT / "docs" / "development" / "answer-reader.md").read_text("utf-8")
    rows = {row["part"]: row for row in error_rates() if row["question"] == "all"}
    for row in rows.values():
        cells = [row["part"], f"{row['replies']:,}", row["misread"], row["error rate"]]
        assert "| " + " | ".join(map(str, cells)) + " |" in page
    models = (ROOT / "docs" / "models.md").read_text("utf-8")
    assert f"{rows['held-out']['error rate']} of {rows['held-out']['replies']} held-out replies" in models


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("There is no biased span in the text.", Reading(ANSWER, "")),
        ("I could not find anything offensive.", Reading(ANSWER, "")),
        ("None of the sentences is biased.", Reading(ANSWER, "")),
        ("The text has a biased part.", Reading(UNCLEAR)),
        ("The text contains bias.", Reading(UNCLEAR)),
        ("It is biased.", Reading(UNCLEAR)),
        ("No single phrase stands out; the whole text is biased.", Reading(UNCLEAR)),
        ("I cannot identify toxic text, since I do not engage with such content.", Reading(REFUSAL)),
        ('It has a biased part: "Old people never understand computers".', Reading(ANSWER, "Old people never understand computers")),
    ],
)  # fmt: skip
def test_only_a_denial_says_that_there_is_no_span(reply: str, expected: Reading) -> None:
    assert (
        read(Question(SPAN, prompt="Question: What is the most biased span in the text?", passage=PASSAGE), reply)
        == expected
    )
