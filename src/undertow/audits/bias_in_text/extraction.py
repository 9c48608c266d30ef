"""Bias extraction: whether a model finds the biased piece of a text.

Answers are written without limits, from the text's tokens, or as a piece of it. Bauer et al. 2022, "Analyzing the Limits of
Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from undertow.audits.bias_in_text.findings import TextTaskReport
from undertow.audits.bias_in_text.items import EXTRACTION, PROTOCOLS, Task, WrittenSettings
from undertow.types import PASSAGE_TOKENS, SPAN, UNCONSTRAINED

__all__ = ["PROTOCOLS"]

SUMMARY = "does the model find the biased piece of a text?"


@dataclass(frozen=True, slots=True)
class Settings(WrittenSettings):
    """Options of the audit."""

    decoding: str = field(
        default=",".join((UNCONSTRAINED, PASSAGE_TOKENS, SPAN)),
        metadata={"help": "What answers may consist of: unconstrained, document, span, span-exact; comma-separated."},
    )


_task, _report = Task(EXTRACTION), TextTaskReport(EXTRACTION)
items, limitations, design = _task.items, _task.limitations, _task.design
observe, load_recorded = _task.observe, _task.load_recorded
measure, findings, draw, tables, report_text = (
    _report.measure, _report.findings, _report.draw, _report.tables, _report.report_text
)  # fmt: skip
