"""Bias identification: whether a model names the dimension on which a text is biased.

Labels are decoded along their trie, greedily, with the most probable label beside it. Under protocol paper an end of the answer
competes after part of a label too, which is then wrong. Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias
in Language" (Findings of EMNLP), section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from undertow.audits.base import EXACT, PAPER
from undertow.audits.bias_in_text.findings import TextTaskReport
from undertow.audits.bias_in_text.items import IDENTIFICATION, Task, TextSettings
from undertow.data.documents.few_shot import SAMPLINGS

PROTOCOLS = (EXACT, PAPER)
SUMMARY = "does the model name the dimension on which a text is biased?"


@dataclass(frozen=True, slots=True)
class Settings(TextSettings):
    """Options of the audit."""

    shot_selection: str = field(
        default=SAMPLINGS[0],
        metadata={
            "help": "How examples are chosen: random, weak-oracle (of the category of the right answer), or both."
        },
    )


_task, _report = Task(IDENTIFICATION, SAMPLINGS), TextTaskReport(IDENTIFICATION)
items, limitations, design = _task.items, _task.limitations, _task.design
observe, load_recorded = _task.observe, _task.load_recorded
measure, findings, draw, tables, report_text = (
    _report.measure, _report.findings, _report.draw, _report.tables, _report.report_text
)  # fmt: skip
