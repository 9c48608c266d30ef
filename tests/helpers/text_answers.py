"""Scripted answers of the four text audits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from undertow.types import Answer, ConstrainedGenerateQuery, MultipleChoiceQuery, Query

STATEMENTS = """id\tsplit\ttext\tbiased\tdimension\tspan\trephrasing
old\tevaluation\tI think old people cannot learn, he said.\tyes\tage\told people cannot learn\the cannot learn
nurses\tevaluation\tNurses talk too much anyway.\tyes\tprofession\tNurses talk too much\tShe talks too much
bus\tevaluation\tThe bus was late again.\tno\t\t\t
aunt\tevaluation\tMy aunt is a nurse in Leeds.\tno\t\t\t
bakers\ttrain\tBakers get up too late here.\tyes\tprofession\tBakers get up too late\tHe gets up too late
soup\ttrain\tWe had soup on Monday.\tno\t\t\t
"""
"""Four texts to ask about; one biased and one unbiased example."""


def labelled(query: MultipleChoiceQuery, greedy: str, exact: str = "") -> Answer:
    """Greedy decoding says one label, and half of the probability is on another; a fifth on no label at all."""
    best = exact or greedy
    names = [label.strip() for label in query.labels]
    rest = 0.3 / (len(names) - (best in names))
    return Answer(tuple(math.log(0.5 if name == best else rest) for name in names), 0.2, text=f" {greedy}\n")


def wrote(text: str) -> Answer:
    return Answer((-1.5,), math.nan, text=text)


@pytest.fixture
def statements(tmp_path: Path) -> str:
    path = tmp_path / "statements.tsv"
    path.write_text(STATEMENTS, encoding="utf-8")
    return str(path)


def document_of(query: Query) -> str:
    """The text that a query asks about: documents of these tests are one line."""
    assert isinstance(query, (MultipleChoiceQuery, ConstrainedGenerateQuery))
    return query.prompt.partition("\n")[0]


RIGHT = {
    "I think old people cannot learn, he said.": "Yes", "Nurses talk too much anyway.": "Yes", "The bus was late again.": "No",
    "My aunt is a nurse in Leeds.": "No",
}  # fmt: skip


def diagnoses(query: Query) -> Answer:
    """Right when asked whether there is bias; always Yes to the other question; without a question lost about aunts."""
    assert isinstance(query, MultipleChoiceQuery)
    text = document_of(query)
    if "contain bias" in query.prompt:
        return labelled(query, "Yes")
    if "Question" not in query.prompt and "aunt" in text:
        return labelled(query, "who knows", exact="Yes")
    return labelled(query, RIGHT[text])
