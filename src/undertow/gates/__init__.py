"""Gates: rules on the numbers of a run, judged so that a build can stop where a model got worse.

Knows run folders and their results; asks no model, and measures nothing but the change against a baseline.
"""

from undertow.gates.judging import ERROR, FAILED, OUTCOMES, PASSED, SKIPPED, Gate, Judged, JudgedRun, check
from undertow.gates.junit import write_junit, write_refusal
from undertow.gates.rules import Rule, Rules, read_rules

__all__ = [
    "ERROR",
    "FAILED",
    "OUTCOMES",
    "PASSED",
    "SKIPPED",
    "Gate",
    "Judged",
    "JudgedRun",
    "Rule",
    "Rules",
    "check",
    "read_rules",
    "write_junit",
    "write_refusal",
]
