"""Bias rephrasing: whether a model rewrites a biased piece of text without its bias, beyond copying it.

The prompt is the biased span alone, and the answer no longer than it. Bauer et al. 2022, "Analyzing the Limits of
Self-Supervision in Handling Bias in Language" (Findings of EMNLP), section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from undertow.audits.bias_in_text.findings import TextTaskReport
from undertow.audits.bias_in_text.items import PROTOCOLS, REPHRASING, Task, WrittenSettings
from undertow.types import UNCONSTRAINED

__all__ = ["PROTOCOLS"]

SUMMARY = "does the model rewrite a biased piece of text without its bias?"


@dataclass(frozen=True, slots=True)
class Settings(WrittenSettings):
    """Options of the audit."""

    rephrasings: str = field(
        default="", metadata={"help": "Table of rephrase pairs (span, rephrasing) for documents that have none."}
    )
    decoding: str = field(
        default=UNCONSTRAINED,
        metadata={"help": "What answers may consist of: unconstrained, document, span, span-exact; comma-separated."},
    )


_task, _report = Task(REPHRASING), TextTaskReport(REPHRASING)
items, limitations, design = _task.items, _task.limitations, _task.design
observe, load_recorded = _task.observe, _task.load_recorded
measure, findings, draw, tables, report_text = (
    _report.measure, _report.findings, _report.draw, _report.tables, _report.report_text
)  # fmt: skip
