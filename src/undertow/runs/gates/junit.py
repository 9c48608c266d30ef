"""Write JUnit XML: a test suite for each run, a test case for each rule and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from undertow._folders import write_whole
from undertow.runs.gates.evaluate import ERROR, FAILED, PASSED, SKIPPED, GateReport, RuleResult
from undertow.runs.gates.gate_formatting import printable

NAME = "undertow gate"
_TAGS: Mapping[str, str] = {FAILED: "failure", ERROR: "error", SKIPPED: "skipped", PASSED: "system-out"}
_NO_TIME = {"time": "0.000"}
"""Some readers require the attribute `time`."""


def write_junit(gate: GateReport, path: Path) -> None:
    """Write the report of a gate atomically; equal reports give equal bytes."""
    root = ET.Element("testsuites", {"name": NAME, **_counted([one for run in gate.runs for one in run.judged])})
    for run in gate.runs:
        suite = ET.SubElement(root, "testsuite", {"name": printable(str(run.folder)), **_counted(run.judged)})
        facts = {
            "audit": run.audit,
            "model": run.model,
            "run_key": run.run_key,
            "rules": str(gate.rules.path),
            "rules_sha256": gate.rules.sha256,
            "baseline": str(gate.baseline) if gate.baseline is not None else "",
        }
        properties = ET.SubElement(suite, "properties")
        for name, value in facts.items():
            ET.SubElement(properties, "property", {"name": name, "value": printable(value)})
        for one in run.judged:
            # Readers split class names at dots, so dots of names are replaced.
            classname = f"undertow.{printable(run.audit)}.{printable(run.model).replace('.', '_')}"
            case = ET.SubElement(suite, "testcase", {"classname": classname, "name": one.name, **_NO_TIME})
            kind = {} if one.outcome == PASSED else {"message": one.sentence}
            if one.outcome in (FAILED, ERROR):
                kind["type"] = "rule" if one.outcome == FAILED else "not judged"
            ET.SubElement(case, _TAGS[one.outcome], kind).text = one.message
    _write(root, path)


def write_refusal(sentence: str, path: Path) -> None:
    """Write one error, so that a failed gate does not leave an older file that says that all rules passed."""
    counts = {"name": NAME, "tests": "1", "failures": "0", "errors": "1", "skipped": "0", **_NO_TIME}
    root = ET.Element("testsuites", counts)
    case = ET.SubElement(ET.SubElement(root, "testsuite", counts), "testcase", {"classname": "undertow", "name": NAME})
    case.attrib |= _NO_TIME
    ET.SubElement(case, "error", {"message": printable(sentence), "type": "refused"}).text = printable(sentence)
    _write(root, path)


def _counted(judged: Sequence[RuleResult]) -> dict[str, str]:
    outcomes = [one.outcome for one in judged]
    kinds = {"failures": FAILED, "errors": ERROR, "skipped": SKIPPED}
    counts = {name: str(outcomes.count(kind)) for name, kind in kinds.items()}
    return {"tests": str(len(outcomes)), **counts, **_NO_TIME}


def _write(root: ET.Element, path: Path) -> None:
    ET.indent(root)
    text = f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"
    write_whole(path, text, "name another file with --junit")
