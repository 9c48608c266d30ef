"""The occupation checklist as tables to print: its questions, occupations and pairs of names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from undertow.data.occupations.occupation_set import CATEGORIES, load_occupations, load_pairs
from undertow.data.occupations.question_templates import KINDS, load_questions

CHECKLIST_SUMMARIES: Mapping[str, str] = {
    "occupation-checklist": "the questions of the occupation checklist, in every wording",
    "occupations": "62 occupations with the skills, knowledge and abilities that O*NET 30.2 calls most important",
    "name-pairs": "70 pairs of a woman's and a man's given name",
}
"""Descriptions of the tables, by name."""


def checklist_table(name: str) -> list[dict[str, str]]:
    """One of `CHECKLIST_SUMMARIES`, row by row."""
    if name == "name-pairs":
        return [asdict(pair) for pair in load_pairs()]
    if name == "occupations":
        return [
            {
                "occupation": one.name,
                "soc_code": one.soc_code,
                "female_percent": f"{one.female_percent:g}" if math.isfinite(one.female_percent) else "",
                **{kind: "; ".join(of.name for of in one.attributes if of.category == kind) for kind in CATEGORIES},
            }
            for one in load_occupations().occupations
        ]
    questions = load_questions()
    parts = [("all", name, text) for name, text in questions.texts.items()]
    parts += [(str(n), kind, texts[kind]) for n, texts in enumerate(questions.wordings, 1) for kind in KINDS]
    return [dict(zip(("wording", "part", "text"), part, strict=True)) for part in parts]
