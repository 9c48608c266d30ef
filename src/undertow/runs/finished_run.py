"""A finished run: results, findings and figures from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow import audits
from undertow.audits.base import Audit, Observations
from undertow.errors import UndertowError, short_traceback
from undertow.report.page_data import ReportTable
from undertow.runs.causal_assumptions import assumptions_of
from undertow.runs.folder.storage import MANIFEST, ManifestFacts, Record, read_record
from undertow.types import Finding

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from undertow.causal.finding_assumptions import FindingAssumptions


@dataclass(frozen=True, slots=True)
class Run:
    """A finished audit, in memory and in its folder."""

    folder: Path
    record: Record

    def __repr__(self) -> str:
        audit, model = str(self.manifest["audit"]), str(self.manifest["model"])
        try:
            findings = self.findings
        except UndertowError:  # the audit is not installed, or the folder does not hold what it needs
            counted = ""
        else:
            counted = f", {len(findings)} findings ({sum(one.significant for one in findings)} significant)"
        items = f"{len(self.observations):,} items{counted}"
        return f"{type(self).__name__}({audit!r}, model={model!r}, {items}, folder={str(self.folder)!r})"

    @property
    def results(self) -> pd.DataFrame:
        """The measures, a row each."""
        return self.record.results_table()

    @property
    def observations(self) -> pd.DataFrame:
        """A row per item, factors as columns."""
        return self.record.observations

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Who was asked what, when, with which versions and seed."""
        return self.record.manifest

    @property
    def report(self) -> Path:
        """The page to open in a browser."""
        return self.folder / "report.html"

    @property
    def findings(self) -> list[Finding]:
        """The results in plain sentences, the strongest first."""
        return audit_of(self.record).findings(observations_of(self.record), self.record.results)

    @property
    def causal_assumptions(self) -> FindingAssumptions | None:
        """What the findings rest on under the graph that the run names; None where it names none."""
        return assumptions_of(self.record)

    @property
    def tables(self) -> list[ReportTable]:
        """Tables that the audit has beside those of its measures, such as a paper's; without those behind a warning."""
        text = audit_of(self.record).report_text(observations_of(self.record), self.record.results)
        return [table for table in text.tables if not table.warning]

    def _repr_html_(self) -> str:
        """What a notebook shows: findings first, then the numbers, every text as text."""
        from undertow.runs.notebook import run_html

        head = f"{self.manifest['audit']}: {self.manifest['model']}"
        return run_html(head, self.findings, self.record.results, self.report)

    def figure(self, index: int = 0) -> Figure:
        """One of the figures, drawn again; figures are numbered in the order of the report.

        Raises:
            IndexError: there are fewer figures.
        """
        drawings = list(audit_of(self.record).draw(observations_of(self.record), self.record.results))
        return drawings[index].figure


@short_traceback
def load_run(folder: str | Path) -> Run:
    """A run folder that was written before.

    Raises:
        UndertowError: it is no run folder, or is corrupt.
    """
    return Run(Path(folder), read_record(Path(folder)))


def audit_of(record: Record) -> Audit:
    """The audit of a run."""
    return audits.load(str(record.manifest["audit"]))


def observations_of(record: Record) -> Observations:
    """The observations of a run."""
    return Observations(record.observations, ManifestFacts(record.manifest["design"], MANIFEST, "its design"))


def finished_run(folder: Path, wanted: Mapping[str, Any]) -> Run | None:
    """The run in a folder, if it is complete and has the wanted key, command and code version; else None."""
    if not (folder / "report.html").is_file() or not (folder / "figures").is_dir():
        return None
    try:
        record = read_record(folder)
    except UndertowError:
        return None  # corrupt: it is made again, from stored answers
    manifest = record.manifest
    if manifest["counts"].get("lost"):
        return None  # what got no answer is asked again
    if any(manifest.get(name) != value for name, value in wanted.items()):
        return None
    counts = {"computed": 0, "tokens": 0}
    manifest = {**manifest, "counts": manifest["counts"] | counts}
    if "models" in manifest:
        manifest["models"] = [part | {"counts": part["counts"] | counts} for part in manifest["models"]]
    return Run(folder, replace(record, manifest=manifest))
