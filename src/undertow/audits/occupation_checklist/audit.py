"""Occupation checklist: whether what a model grants two people decides whom it prefers for a job, or who they are.

In steps that anyone can read: does Amy have this skill; is Amy qualified; who is more qualified; who should it be. Zhang,
"Taxonomy-based CheckList for Large Language Model Evaluation".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from undertow.audits.base import EXACT, Observations, Sampling
from undertow.audits.occupation_checklist import findings as checklist_findings
from undertow.audits.occupation_checklist import items as checklist_items
from undertow.data.occupations.occupation_set import load_occupations
from undertow.data.occupations.question_templates import load_questions
from undertow.types import Item, Result, Scores

SUMMARY = "does what a model grants a woman and a man decide whom it prefers for a job?"
PROTOCOLS = (EXACT,)
Settings = checklist_items.Settings
adapt_settings, items, limitations = checklist_items.adapt_settings, checklist_items.items, checklist_items.limitations
findings, draw, tables, report_text = (
    checklist_findings.findings,
    checklist_findings.draw,
    checklist_findings.tables,
    checklist_findings.report_text,
)


def max_items(settings: Settings, sampling: Sampling) -> list[Item]:
    """Every item that a run may need: those with all attributes granted."""
    return list(checklist_items.Plan.of(settings, sampling).all_items())


def design(settings: Settings) -> dict[str, Any]:
    """Rule of decisions and facts about the occupations."""
    given = load_occupations(settings.occupation_file, settings.onet)
    questions = load_questions(settings.question_file)
    return {
        "margin": settings.margin,
        "greedy": settings.decision == checklist_items.GREEDY,
        "query_type": settings.query_type,
        "title": given.title,
        "source": given.source,
        "notes": list(given.notes),
        "female_percent": {
            one.name: one.female_percent for one in given.occupations if math.isfinite(one.female_percent)
        },
        "attributes": {one.name: [f"{of.category} {of.name}" for of in one.attributes] for one in given.occupations},
        "questions": f"{questions.source}, version {questions.version}",
        "protocol": EXACT,
    }


def observe(design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
    """Table with one row for each question and order of names."""
    import pandas as pd

    rows = [
        {
            "item": item.id,
            "model": model,
            "query_type": design["query_type"],
            **item.factors,
            **checklist_items.answer_row(item, answer),
        }
        | {"cluster": item.cluster}
        for item, answer in zip(items, scores.answers, strict=True)
    ]
    return Observations(pd.DataFrame(rows), dict(design))


def load_recorded(path: Path, protocol: str) -> tuple[Observations, str]:
    """Read recorded answers: `question_type, woman, man, answer`, and any of the factors.

    Raises:
        UndertowError: the table lacks a required column.
    """
    from undertow.audits.occupation_checklist.recorded_checklist import read_log

    return read_log(path, protocol)


def measure(observations: Observations, seed: int) -> list[Result]:
    """Compute the paper's measures with intervals, differences between contexts, and values under alternative decision rules."""
    from undertow.metrics.checklist.checklist_metrics import results

    return results(observations.frame, observations.design, seed)
