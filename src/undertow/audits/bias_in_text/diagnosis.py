"""Bias diagnosis: whether a model tells a biased text from another, better than a guess.

Yes and No are compared by their first tokens after the task description. Bauer et al. 2022, "Analyzing the Limits of
Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3.1.
"""

from __future__ import annotations

from undertow.audits.bias_in_text.findings import TextTaskReport
from undertow.audits.bias_in_text.items import DIAGNOSIS, PROTOCOLS, Task, TextSettings

__all__ = ["PROTOCOLS"]

SUMMARY = "does the model say whether a text is biased, better than a guess?"
Settings = TextSettings
_task, _report = Task(DIAGNOSIS), TextTaskReport(DIAGNOSIS)
items, limitations, design = _task.items, _task.limitations, _task.design
observe, load_recorded = _task.observe, _task.load_recorded
measure, findings, draw, tables, report_text = (
    _report.measure, _report.findings, _report.draw, _report.tables, _report.report_text
)  # fmt: skip
