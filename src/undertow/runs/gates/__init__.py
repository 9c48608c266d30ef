"""Gates: rules on the numbers of a run, so that a build fails when a model gets worse."""

from undertow.runs.gates.evaluate import (
    ERROR,
    FAILED,
    OUTCOMES,
    PASSED,
    SKIPPED,
    GateReport,
    RuleResult,
    RunReport,
    gate,
)
from undertow.runs.gates.junit import write_junit, write_refusal
from undertow.runs.gates.rules import Rule, Rules, read_rules

__all__ = [
    "ERROR",
    "FAILED",
    "OUTCOMES",
    "PASSED",
    "SKIPPED",
    "GateReport",
    "Rule",
    "RuleResult",
    "Rules",
    "RunReport",
    "gate",
    "read_rules",
    "write_junit",
    "write_refusal",
]
