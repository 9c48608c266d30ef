"""Write JUnit XML: a test suite for each run, a test case for each rule and result."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

from undertow.errors import UndertowError
from undertow.runs.gates.evaluate import ERROR, FAILED, OUTCOMES, SKIPPED, GateReport, RuleResult, RunReport
from undertow.runs.gates.gate_formatting import printable

NAME = "undertow gate"
_TAGS: Mapping[str, str] = {FAILED: "failure", ERROR: "error", SKIPPED: "skipped"}
_NO_TIME = "0.000"
"""Judging takes none; some readers ask for the attribute."""


def write_junit(gate: GateReport, path: Path) -> None:
    """Write the report of a gate atomically; equal reports give equal bytes.

    Raises:
        UndertowError: the file cannot be written.
    """
    root = ET.Element("testsuites", {"name": NAME, **_counted(gate.counts), "time": _NO_TIME})
    for run in gate.runs:
        root.append(_suite(gate, run))
    _write(root, path)


def write_refusal(sentence: str, path: Path) -> None:
    """Write one error, so that a failed gate does not leave an older file that says that all rules passed.

    Raises:
        UndertowError: the file cannot be written.
    """
    counted = _counted({ERROR: 1})
    root = ET.Element("testsuites", {"name": NAME, **counted, "time": _NO_TIME})
    suite = ET.SubElement(root, "testsuite", {"name": NAME, **counted, "time": _NO_TIME})
    case = ET.SubElement(suite, "testcase", {"classname": "undertow", "name": NAME, "time": _NO_TIME})
    said = printable(sentence)
    ET.SubElement(case, "error", {"message": said, "type": "refused"}).text = said
    _write(root, path)


def _suite(gate: GateReport, run: RunReport) -> ET.Element:
    counts = {outcome: sum(one.outcome == outcome for one in run.judged) for outcome in OUTCOMES}
    suite = ET.Element("testsuite", {"name": printable(str(run.folder)), **_counted(counts), "time": _NO_TIME})
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
        suite.append(_case(run, one))
    return suite


def _case(run: RunReport, one: RuleResult) -> ET.Element:
    # Readers show class by class what dots part, so a name keeps its own from being taken for such.
    classname = f"undertow.{printable(run.audit)}.{printable(run.model).replace('.', '_')}"
    case = ET.Element("testcase", {"classname": classname, "name": one.name, "time": _NO_TIME})
    if one.outcome in _TAGS:
        kind = {"message": one.sentence}
        if one.outcome != SKIPPED:
            kind["type"] = "rule" if one.outcome == FAILED else "not judged"
        ET.SubElement(case, _TAGS[one.outcome], kind).text = one.message
    else:
        ET.SubElement(case, "system-out").text = one.message
    return case


def _counted(counts: Mapping[str, int]) -> dict[str, str]:
    return {
        "tests": str(sum(counts.values())),
        "failures": str(counts.get(FAILED, 0)),
        "errors": str(counts.get(ERROR, 0)),
        "skipped": str(counts.get(SKIPPED, 0)),
    }


def _write(root: ET.Element, path: Path) -> None:
    ET.indent(root)
    content = ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            mask = os.umask(0)
            os.umask(mask)
            Path(draft).chmod(
                0o666 & ~mask
            )  # a temporary file is its owner's alone; another step of a workflow may read this one
            Path(draft).replace(path)
        finally:
            with suppress(FileNotFoundError):  # it has been moved
                Path(draft).unlink()
    except OSError as error:
        raise UndertowError(
            f"{path}: cannot be written ({error.strerror or error}); name another file with --junit"
        ) from error
