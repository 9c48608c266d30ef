"""The run folders that the page lists, opens and compares.

A name from a visitor is looked up in the list and never joined to a path. Folders with links to other places are not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undertow._files import is_encodable
from undertow.errors import UndertowError
from undertow.runs.compare.pairing import NOT_OF_QUESTIONS
from undertow.runs.finished_run import Run, load_run
from undertow.runs.folder.storage import MANIFEST, OBSERVATIONS, PRECISION, RESULTS, read_manifest
from undertow.types import Finding, Result, digest

if TYPE_CHECKING:
    import pandas as pd

    from undertow.types import Progress

MAX_RUNS, MAX_ENTRIES = 200, 5_000
MAX_ROWS = 500
MAX_REPORT_BYTES = 64 * 2**20
MAX_FINDINGS, MAX_DIFFERENCES = 3, 3
"""Maximum number of sentences about a new run, and about a comparison."""


@dataclass(frozen=True, slots=True)
class RunListing:
    """A run of the list; `questions` is equal for runs with the same kind of questions."""

    name: str
    audit: str
    models: tuple[str, ...]
    created: str
    n_items: int
    questions: str

    @property
    def title(self) -> str:
        """One line on it."""
        return f"{self.audit.replace('-', ' ')}: {self.short_title} · {self.n_items:,} items · {self.name}"

    @property
    def short_title(self) -> str:
        """Its models, without their folders, and its date."""
        models = [name.rsplit("/", 1)[-1] if name.startswith(("/", ".")) else name for name in self.models]
        return f"{', '.join(models)} · {moment(self.created)}"

    def is_comparable(self, other: RunListing) -> bool:
        """Whether two runs have the same kind of questions and models that can be paired."""
        paired = len(self.models) == len(other.models) == 1 or bool({*self.models} & {*other.models})
        return self.name != other.name and self.questions == other.questions and paired


class RunBrowser:
    """The run folders in an operator's folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.root = folder.resolve()

    def list_runs(self) -> list[RunListing]:
        """At most `MAX_RUNS` runs, the newest first; raises `UndertowError` if the operator's folder cannot be read."""
        runs = []
        for folder in self._folders():
            with suppress(UndertowError):  # `undertow report` says why a run cannot be opened
                manifest = read_manifest(folder)
                audit, created, design = manifest["audit"], manifest["created"], manifest["design"]
                models = tuple(part["name"] for part in manifest.get("models", ())) or (manifest["model"],)
                unlike = NOT_OF_QUESTIONS
                if manifest.get("models") or manifest.get("model_identity"):
                    unlike = unlike - {"title"}  # that of a recorded table is the name of its file
                of_questions = {key: design[key] for key in design if key not in unlike}
                n_items = manifest.get("counts", {}).get("items", 0)
                runs.append(RunListing(folder.name, audit, models, created, n_items, digest([audit, of_questions])))
        return sorted(runs, key=lambda one: one.created, reverse=True)[:MAX_RUNS]

    def _folders(self) -> list[Path]:
        if not self.root.exists():
            return []
        try:
            return [entry for entry in sorted(self.root.iterdir())[:MAX_ENTRIES] if _is_run(entry)]
        except OSError as error:
            raise UndertowError(
                f"The folder of runs cannot be read ({error.strerror}); tell the operator of this page."
            ) from error

    def _run(self, name: object) -> Run:
        """The run of this name, if it is on the list."""
        for folder in self._folders():
            if folder.name == name:
                return load_run(folder)
        raise UndertowError("There is no such run on the list; choose another, or press Refresh.")

    def show(self, name: object) -> tuple[tuple[str, ...], pd.DataFrame]:
        """Facts of a run, one per line, and its results; raises `UndertowError` if it is not on the list, or is corrupt."""
        run = self._run(name)
        manifest = run.manifest
        about = (
            f"Audit: {manifest['audit']}, protocol {manifest['protocol']}, seed {manifest['seed']}",
            f"Model: {manifest['model']}",
            f"Items: {len(run.observations):,}; {moment(manifest['created'])}",
            f"Command: {manifest['command']}",
        )
        return about, readable(run.results, run.record.results)

    def report(self, name: object) -> bytes:
        """The report page of a run; b"" where there is none on the list, or it is too large or elsewhere."""
        folder = next((folder for folder in self._folders() if folder.name == name), None)
        page = folder / "report.html" if folder else self.root
        if folder is None or not _within(page, folder) or not page.is_file() or page.stat().st_size > MAX_REPORT_BYTES:
            return b""
        return page.read_bytes().replace(b'<div id="files">', b'<div id="files" hidden>')  # the app does not serve them

    def compare(self, baseline: object, candidate: object, progress: Progress) -> tuple[str, pd.DataFrame]:
        """Compare two runs: a sentence, and a row for each difference. Raises `UndertowError` if they are not comparable."""
        if baseline == candidate or not (baseline and candidate):
            raise UndertowError("Choose two different runs to compare.")
        first, second = (self._run(name).record for name in (baseline, candidate))
        from undertow.runs.compare import compare
        from undertow.runs.compare.comparison_report import findings

        comparison = compare(first, second, names=(str(baseline), str(candidate)), progress=progress)
        strongest = findings([comparison])
        n_significant = sum(finding.significant for finding in strongest)
        lines = [
            f"Significant differences: {n_significant}.",
            *(finding_text(one) for one in strongest[:MAX_DIFFERENCES]),
        ]
        return "\n\n".join([*lines, *comparison.notes]), readable(comparison.table(), comparison.differences)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run without links to other places, with a printable name."""
    try:
        there = [path for name in (MANIFEST, OBSERVATIONS, RESULTS, PRECISION) if (path := folder / name).exists()]
        # Reading a pipe would block.
        own = all(path.is_file() and _within(path, folder) for path in there)
        return own and folder / MANIFEST in there and not folder.is_symlink() and is_encodable(folder.name)
    except OSError:
        return False  # this account may not look into it


def _within(path: Path, folder: Path) -> bool:
    """Whether a file is in the folder after resolving links."""
    return path.resolve().is_relative_to(folder.resolve())


def finding_text(finding: Finding) -> str:
    """A finding, and on the next line what a reader needs beside it."""
    return f"{finding.text}\n   {finding.explanation}" if finding.explanation else finding.text


def moment(created: str) -> str:
    """Date and time of a run, to the minute."""
    return created[:16].replace("T", " ")


def readable(table: pd.DataFrame, results: Sequence[Result]) -> pd.DataFrame:
    """The non-empty columns of a table of results, constant ones last, for small screens."""
    groups = dict.fromkeys(key for result in results for key in result.group)
    names = [name for name in ("measure", *groups, "value", "low", "high", "unit", "q", "n", "note") if name in table]
    kept = [name for name in names if (table[name].notna() & (table[name] != "")).any()]
    same = [name for name in kept if name in groups and table[name].nunique(dropna=False) == 1]
    table = table.assign(measure=table["measure"].str.replace("_", " "))
    return table[[*(name for name in kept if name not in same), *same]]
