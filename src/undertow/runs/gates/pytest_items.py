"""Pytest items of a gate: a test for each rule and result, collected after all others.

`undertow.pytest_plugin` loads it if rules are given.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest

from undertow.errors import UndertowError
from undertow.runs.gates.evaluate import ERROR, FAILED, SKIPPED, GateReport, RuleResult, RunReport
from undertow.runs.gates.evaluate import gate as check
from undertow.runs.gates.gate_formatting import printable

ROOT = "undertow"
"""First part of every test id, and the mark of all tests."""


class GateSession:
    """Runs the gate when a session starts, and adds its results to the collection."""

    def __init__(self, rules: Path, runs: Sequence[Path], baseline: Path | None) -> None:
        self._arguments = ([_from(Path.cwd(), run) for run in runs], rules, baseline and _from(Path.cwd(), baseline))
        self._gate: GateReport | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Run the gate before pytest starts workers; an error ends the session as a usage error."""
        try:
            self._gate = check(*self._arguments)
        except UndertowError as error:
            raise pytest.UsageError(printable(str(error))) from error

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add a collector to the session, so that its tests are counted and selected like others."""
        report = yield
        if self._gate is not None and isinstance(collector, pytest.Session) and report.passed:
            report.result = [*report.result, GateCollector.from_gate(collector, self._gate)]
        return report


class GateCollector(pytest.Collector):
    """The tests of all runs, or of one of several."""

    gate: GateReport
    runs: Sequence[RunReport]

    @classmethod
    def from_gate(cls, parent: pytest.Collector, gate: GateReport, only: RunReport | None = None) -> GateCollector:
        """The collector under a parent."""
        name = ROOT
        if only is not None:  # relative to the project folder, so that ids are the same on every machine
            name = printable(str(_from(parent.config.rootpath, only.folder.absolute()))).replace("::", ":")
        nodeid = f"{parent.nodeid}::{name}" if only is not None else name
        made: GateCollector = cls.from_parent(parent, name=name, nodeid=nodeid)
        made.gate, made.runs = gate, gate.runs if only is None else (only,)
        return made

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """A test for each rule and result; of several runs, each has its own collector."""
        if len(self.runs) > 1:
            yield from (GateCollector.from_gate(self, self.gate, run) for run in self.runs)
            return
        for one in self.runs[0].judged:
            yield RuleItem.from_result(self, self.gate, one)


class RuleItem(pytest.Item):
    """The outcome of one rule for one result."""

    judged: RuleResult
    rules: Path

    @classmethod
    def from_result(cls, parent: GateCollector, gate: GateReport, judged: RuleResult) -> RuleItem:
        """The test under a collector."""
        name = judged.name.replace("::", ":")
        # An explicit node id, because pytest's own does not treat brackets as parameters, and `--lf` would miss the test.
        item: RuleItem = cls.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}")
        item.judged, item.rules = judged, gate.rules.path
        item.add_marker(ROOT)
        # In pytest's JUnit file.
        facts = {name: value for name, value in judged.as_json().items() if name in ("measure", "of", "number")}
        item.user_properties = [(name, printable(str(facts[name]))) for name in facts if facts[name] is not None]
        return item

    def setup(self) -> None:
        """Report a rule that could not be judged as an error, not a failure."""
        if self.judged.outcome == ERROR:
            pytest.fail(self.judged.message, pytrace=False)

    def runtest(self) -> None:
        """Pass, fail or skip."""
        if self.judged.outcome == SKIPPED:
            pytest.skip(self.judged.sentence)
        if self.judged.outcome == FAILED:
            pytest.fail(self.judged.message, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Location of the test: the rules file."""
        return self.rules, None, self.name


def _from(folder: Path, path: Path) -> Path:
    """The path relative to a parent folder."""
    return path.relative_to(folder) if path.is_relative_to(folder) else path
