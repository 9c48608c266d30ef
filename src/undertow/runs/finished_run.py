"""A finished run: results, findings and figures from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from undertow import audits
from undertow.audits.base import Audit, Observations, SentenceTable
from undertow.errors import UndertowError, closest, counted, short_traceback
from undertow.report.citation import Citation, cite
from undertow.report.page_data import Drawing, ReportTable
from undertow.report.paper_table import PaperTable, choose, paper_tables
from undertow.report.sentence_templates import sentences
from undertow.runs.causal_assumptions import assumptions_of
from undertow.runs.folder.storage import MANIFEST, ManifestFacts, Record, check_observations, read_manifest, read_record
from undertow.types import Finding

OWN_ITEMS = "items of its own"
"""Title of the data of an audit whose design names none."""

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from undertow.causal.assumptions import FindingAssumptions


@dataclass(frozen=True, slots=True)
class Run:
    """A finished audit, in memory and in its folder; functions that take a run folder take it, too."""

    folder: Path
    record: Record

    def __repr__(self) -> str:
        audit, model = str(self.manifest["audit"]), str(self.manifest["model"])
        try:
            findings = self.findings
        except UndertowError:  # the audit is not installed, or the folder lacks data
            summary = ""
        else:
            summary = f", {counted(len(findings), 'finding')} ({sum(one.significant for one in findings)} significant)"
        items = f"{len(self.observations):,} items{summary}"
        return f"{type(self).__name__}({audit!r}, model={model!r}, {items}, folder={str(self.folder)!r})"

    def __fspath__(self) -> str:
        return str(self.folder)

    def summary(self) -> str:
        """The findings as text, a line each with its details below: * if significant, else -."""
        return "\n".join(
            f"{'*' if one.significant else '-'} {one.text}" + (f"\n  {one.explanation}" if one.explanation else "")
            for one in self.findings
        )

    @property
    def results(self) -> pd.DataFrame:
        """The results, a row each."""
        return self.record.results_table()

    @property
    def observations(self) -> pd.DataFrame:
        """The observations, a row per item, factors as columns."""
        return self.record.observations

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Models, settings, date, versions and seed."""
        return self.record.manifest

    @property
    def report(self) -> Path:
        """The report page."""
        return self.folder / "report.html"

    @property
    def findings(self) -> list[Finding]:
        """The results in plain sentences, the strongest first."""
        return audit_of(self.record).findings(observations_of(self.record), self.record.results)

    @property
    def causal_assumptions(self) -> FindingAssumptions | None:
        """The assumptions of the findings under the causal graph of the run; None without a graph."""
        return assumptions_of(self.record)

    @property
    def tables(self) -> list[ReportTable]:
        """Further tables of the audit, such as a paper's, without those behind a warning."""
        text = audit_of(self.record).report_text(observations_of(self.record), self.record.results)
        return [table for table in text.tables if not table.warning]

    def _repr_html_(self) -> str:
        """HTML for notebooks: findings, then results, with escaped text."""
        from undertow.report.notebook import run_html

        head = f"{self.manifest['audit']}: {self.manifest['model']}"
        return run_html(head, self.findings, self.record.results, self.report)

    @property
    def paper_tables(self) -> dict[str, PaperTable]:
        """Tables for papers by name, the main one first."""
        audit, manifest = audit_of(self.record), self.manifest
        clusters = self.observations["cluster"].nunique() if "cluster" in self.observations else 0
        title = str(manifest["design"].get("title", OWN_ITEMS))
        counts = {"items": len(self.observations), "missing": self._n_missing}
        about = sentences("papers").about(str(manifest["audit"]), title, counts, clusters)
        return paper_tables(self.record.results, audit.table_layouts, self.tables, about)

    def table(self, name: str = "") -> pd.DataFrame:
        """A table for a paper as numbers, a row for each model and group: estimate, interval, p, q; see `paper_tables`.

        Raises:
            UndertowError: there is no such table.
        """
        return choose(self.paper_tables, name).frame

    def sentences(self) -> pd.DataFrame:
        """The sentences, texts or questions behind the findings with the answers; `sentence_table` says in which order and columns.

        Empty where the audit has no numbers by sentence.
        """
        return audit_of(self.record).sentences(observations_of(self.record))

    @property
    def sentence_table(self) -> SentenceTable:
        """What a row of `sentences` is."""
        return audit_of(self.record).sentence_table_of(observations_of(self.record))

    def cite(self) -> Citation:
        """A methods paragraph with the numbers of the run, and BibTeX of Undertow and of the papers behind the audit."""
        manifest, findings, rows = self.manifest, self.findings, self.observations
        parts = manifest.get("models") or [{"name": manifest["model"], "identity": manifest.get("model_identity", {})}]
        design, audit = manifest["design"], audit_of(self.record)
        version = str(manifest["versions"].get("undertow", ""))
        w_lists = [
            {
                "name": name,
                "n": own["w"].nunique(),
                "first": own["w"].iloc[0],
                "last": own["w"].iloc[-1],
                "order": design.get("covariates", {}).get(name, {}).get("order", ""),
            }
            for name, own in _by_w(rows)
        ]
        facts = {
            "audit": manifest["audit"],
            "method": audit.method,
            "version": version,
            # A recorded table is one part, with all its models.
            "models": [
                {**_NO_IDENTITY, **part["identity"], "name": name}
                for part in parts
                for name in ([part["name"]] if part["identity"] else rows["model"].unique())
            ],
            "title": design.get("title", OWN_ITEMS),
            "source": design.get("source", ""),
            "n_items": len(rows),
            "n_missing": self._n_missing,
            "n_clusters": _n_levels(rows, "cluster"),
            "n_prompts": _n_levels(rows, "prompt"),
            "n_wordings": _n_levels(rows, "wording"),
            "w_lists": w_lists,
            "words": design.get("words", {}),
            "n_tests": max((one.n_tests for one in findings), default=0),
            "n_findings": len(findings),
            "n_significant": sum(one.significant for one in findings),
            "protocol": manifest["protocol"],
            "seed": manifest["seed"],
            "limit": manifest.get("limit", 0),
            "challenge_sha256": str(manifest.get("challenge_sha256", "")),
            "versions": ", ".join(f"{name} {number}" for name, number in manifest["versions"].items()),
            "command": manifest.get("command", ""),
        }
        return cite(facts, audit.references, version)

    @property
    def _n_missing(self) -> int:
        rows = self.observations
        return int((rows["missing_reason"] != "").sum()) if "missing_reason" in rows else 0

    @property
    def figure_names(self) -> list[str]:
        """Names of the figures, in the order of the report."""
        return [drawing.name for drawing in self._drawings()]

    @overload
    def figure(self, which: int | str = 0, *, width: float = ..., title: bool = ...) -> Figure: ...
    @overload
    def figure(self, which: int | str = 0, *, width: float = ..., title: bool = ..., format: str) -> bytes: ...
    def figure(
        self,
        which: int | str = 0,
        *,
        width: float = 8.0,
        title: bool = True,
        format: str = "",  # noqa: A002 - as matplotlib calls it
    ) -> Figure | bytes:
        """Draw one of the figures; a notebook shows it.

        Args:
            which: its index in the report, or its name (`figure_names`).
            width: in inches; 3.3 is a column of a journal.
            title: whether to draw the title, which papers have in the caption.
            format: `pdf`, `svg` or `png` for the bytes of such a file; "" for a matplotlib figure.

        Raises:
            UndertowError: there is no such figure, width or format.
        """
        from undertow.report.style import figure_width, image_bytes

        with figure_width(width, title=title):
            drawings = self._drawings()
        names = [drawing.name for drawing in drawings]
        if which not in (names if isinstance(which, str) else range(len(names))):
            hint = closest(which, names) if isinstance(which, str) else ""
            raise UndertowError(f"{self.folder}: has no figure {which!r}{hint}; it has {', '.join(names) or 'none'}")
        figure = drawings[names.index(which) if isinstance(which, str) else which].figure
        return image_bytes(figure, format) if format else figure

    def _drawings(self) -> list[Drawing]:
        return list(audit_of(self.record).draw(observations_of(self.record), self.record.results))


_NO_IDENTITY = dict.fromkeys(("family", "source", "revision", "dtype", "scoring_method"), "")


def _n_levels(rows: pd.DataFrame, column: str) -> int:
    return int(rows[column].nunique()) if column in rows else 0


def _by_w(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each W list, in its order."""
    if not {"w_name", "w", "w_index"} <= {*rows.columns}:
        return []
    own = rows[rows["w"].astype(str) != ""].sort_values("w_index", kind="stable")
    return [(str(name), part) for name, part in own.groupby("w_name", sort=False) if str(name)]


@short_traceback
def load_run(folder: str | PathLike[str]) -> Run:
    """Open a run folder.

    Raises:
        UndertowError: the folder is not a run folder, or is corrupt.
    """
    return Run(Path(folder), read_record(Path(folder)))


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """The run folders in a folder, the newest first: audit, model, items, date, state."""
    if not folder.is_dir():
        raise UndertowError(f"{folder}: there is no such folder; name the one that holds run folders")
    rows = []
    for place in sorted(folder.iterdir()):
        if not (place / MANIFEST).is_file():
            continue
        row: dict[str, Any] = {"run": str(place), "audit": "", "model": "", "items": None}
        row |= {"created": "", "state": "complete"}
        try:
            manifest = read_manifest(place)
            row |= {name: str(manifest.get(name, "")) for name in ("audit", "model", "created")}
            row["items"] = manifest.get("counts", {}).get("items")
        except UndertowError as error:
            row["state"] = f"corrupt: {error}"
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["created"]), reverse=True)


def audit_of(record: Record) -> Audit:
    """The audit of a run."""
    return audits.load(str(record.manifest["audit"]))


def observations_of(record: Record) -> Observations:
    """The observations of a run; corrupt ones are refused."""
    check_observations(record)
    return Observations(record.observations, ManifestFacts(record.manifest["design"], MANIFEST, "its design"))


def finished_run(folder: Path, wanted: Mapping[str, Any]) -> Run | None:
    """The run in a folder, if it is complete and has the wanted key, command and code version; else None."""
    if not (folder / "report.html").is_file() or not (folder / "figures").is_dir():
        return None
    try:
        record = read_record(folder)
    except UndertowError:
        return None  # corrupt: computed again from cached answers
    manifest = record.manifest
    if manifest["counts"].get("lost"):
        return None  # lost queries are repeated
    if any(manifest.get(name) != value for name, value in wanted.items()):
        return None
    counts = {"computed": 0, "tokens": 0}
    manifest = {**manifest, "counts": manifest["counts"] | counts}
    if "models" in manifest:
        manifest["models"] = [part | {"counts": part["counts"] | counts} for part in manifest["models"]]
    return Run(folder, replace(record, manifest=manifest))
