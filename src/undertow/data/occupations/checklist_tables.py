"""What the occupation checklist is made of, as tables to be printed: its questions, occupations and pairs of names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from undertow.data.occupations.name_pairs import load_pairs
from undertow.data.occupations.occupation_set import CATEGORIES, load_occupations
from undertow.data.occupations.question_templates import KINDS, load_questions

CHECKLIST_SUMMARIES: Mapping[str, str] = {
    "occupation-checklist": "the questions of the occupation checklist, in every wording",
    "occupations": "62 occupations with the skills, knowledge and abilities that O*NET 30.2 calls most important",
    "name-pairs": "70 pairs of a woman's and a man's given name",
}
"""Tables by name, each with a line that says what it holds."""


def checklist_table(name: str) -> list[dict[str, str]]:
    """One of `CHECKLIST_SUMMARIES`, row by row."""
    return _TABLES[name]()


def _questions() -> list[dict[str, str]]:
    questions = load_questions()
    shared = [{"wording": "all", "part": name, "text": text} for name, text in questions.texts.items()]
    questions_by_wording = [
        {"wording": str(number), "part": kind, "text": texts[kind]}
        for number, texts in enumerate(questions.wordings, 1)
        for kind in KINDS
    ]
    return shared + questions_by_wording


def _occupations() -> list[dict[str, str]]:
    return [
        {
            "occupation": one.name,
            "soc_code": one.soc_code,
            "female_percent": f"{one.female_percent:g}" if math.isfinite(one.female_percent) else "",
        }
        | {
            category: "; ".join(attribute.name for attribute in one.attributes if attribute.category == category)
            for category in CATEGORIES
        }
        for one in load_occupations().occupations
    ]


def _pairs() -> list[dict[str, str]]:
    return [{"female": pair.female, "male": pair.male} for pair in load_pairs()]


_TABLES: Mapping[str, Callable[[], list[dict[str, str]]]] = {
    "occupation-checklist": _questions,
    "occupations": _occupations,
    "name-pairs": _pairs,
}
