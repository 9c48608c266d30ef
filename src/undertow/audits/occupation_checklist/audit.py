"""Occupation checklist: whether what a model grants two people decides whom it prefers for a job, or who they are.

In steps that anyone can read: does Amy have this skill; is Amy qualified; who is more qualified; who should it be. Zhang,
"Taxonomy-based CheckList for Large Language Model Evaluation". Knows how the audit is asked and told; knows nothing about models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from undertow.audits.base import EXACT, Observations, Sampling
from undertow.audits.occupation_checklist import checklist_findings as telling
from undertow.audits.occupation_checklist import checklist_items as asking
from undertow.data.occupations.occupation_set import load_occupations
from undertow.data.occupations.question_templates import load_questions
from undertow.types import Item, Result, Scores

SUMMARY = "does what a model grants a woman and a man decide whom it prefers for a job?"
PROTOCOLS = (EXACT,)
Settings = asking.Settings
adapt_settings, items, limited = asking.adapt_settings, asking.items, asking.limited
findings, draw, tables, report_text = telling.findings, telling.draw, telling.tables, telling.report_text


def max_items(settings: Settings, sampling: Sampling) -> list[Item]:
    """All that may be asked, every attribute granted: what a run takes at most."""
    return list(asking.Plan.of(settings, sampling).everything())


def design(settings: Settings) -> dict[str, Any]:
    """How decisions are taken, and facts about the occupations."""
    given = load_occupations(settings.occupation_file, settings.onet)
    questions = load_questions(settings.question_file)
    return {
        "margin": settings.margin,
        "greedy": settings.decision == asking.GREEDY,
        "reading": settings.reading,
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
    """A row for each question, in each order of the names."""
    import pandas as pd

    rows = [
        {"item": item.id, "model": model, "reading": design["reading"], **item.factors, **asking.said_of(item, answer)}
        | {"cluster": item.cluster}
        for item, answer in zip(items, scores.answers, strict=True)
    ]
    return Observations(pd.DataFrame(rows), dict(design))


def load_recorded(path: Path, protocol: str) -> tuple[Observations, str]:
    """Answers that were got elsewhere: `stage, woman, man, answer`, and any of the factors.

    Raises:
        UndertowError: the table lacks what it needs.
    """
    from undertow.audits.occupation_checklist.recorded_checklist import read_log

    return read_log(path, protocol)


def measure(evidence: Observations, seed: int) -> list[Result]:
    """The paper's measures with intervals, those of contexts against each other, and what the other choices would give."""
    from undertow.metrics.checklist.checklist_metrics import results

    return results(evidence.frame, evidence.design, seed)
