"""The run folders that the page lists, opens and compares.

A name from a visitor is looked up in the list and never joined to a path. A folder that links elsewhere, or holds a file that
does, is not listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow._files import parse_json, read_file
from undertow.errors import UndertowError
from undertow.runs.folder.storage import MANIFEST, OBSERVATIONS, PRECISION, RESULTS, read_record
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.inference.runner import Progress
    from undertow.runs.folder.storage import Record

MAX_RUNS, MAX_ENTRIES = 200, 5_000
MAX_MANIFEST_BYTES = 4 * 2**20
MAX_ROWS = 500
MAX_FIGURES, MAX_FIGURE_BYTES, MAX_REPORT_BYTES = 6, 2 * 2**20, 64 * 2**20
MAX_FINDINGS = 12
READ = (MANIFEST, OBSERVATIONS, RESULTS, PRECISION)
"""What is read of a run folder."""
REPORT, FIGURES = "report.html", "figures"
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class RunListing:
    """A run of the list.

    Attributes:
        name: of its folder.
        audit, model, created: as its manifest says.
        n_items: texts that were asked.
    """

    name: str
    audit: str
    model: str
    created: str
    n_items: int


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as the page shows it.

    Attributes:
        about: what was asked of whom, a line each.
        findings: sentences, the strongest first.
        results: a row for each measure, at most `MAX_ROWS`.
        n_results: how many there are in all.
        figures: PNG images.
    """

    about: tuple[str, ...]
    findings: tuple[str, ...]
    results: pd.DataFrame
    n_results: int
    figures: tuple[bytes, ...]


class RunBrowser:
    """The run folders in an operator's folder.

    Args:
        folder: that holds run folders; None for none.

    Raises:
        UndertowError: there is no such folder.
    """

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise UndertowError(f"{folder}: there is no such folder of runs; name the one that holds them with --runs")
        self._root = folder.resolve() if folder is not None else None

    def listed(self) -> list[RunListing]:
        """The newest runs first, at most `MAX_RUNS`; what is corrupt or leads out of the folder is left out.

        Raises:
            UndertowError: the operator's folder cannot be read any more.
        """
        runs = [one for folder in self._folders() if (one := _listed(folder)) is not None]
        return sorted(runs, key=lambda one: one.created, reverse=True)[:MAX_RUNS]

    def _folders(self) -> list[Path]:
        if self._root is None:
            return []
        try:
            entries = sorted(self._root.iterdir())[:MAX_ENTRIES]
        except OSError as error:
            raise UndertowError(
                f"The folder of runs cannot be read ({error.strerror}); tell the operator of this page."
            ) from error
        return [entry for entry in entries if _is_run(entry)]

    def _folder(self, name: object) -> Path:
        """The folder of a run of the list; a name is compared with those that are there, and never joined to a path.

        Raises:
            UndertowError: there is none of this name.
        """
        for folder in self._folders():
            if folder.name == name:
                return folder
        raise UndertowError("There is no such run on the list; choose one of it, or press Look again.")

    def record(self, name: object) -> Record:
        """A run by its name.

        Raises:
            UndertowError: it is not on the list, or is corrupt.
        """
        return _sendable(read_record(self._folder(name)))

    def show(self, name: object) -> RunView:
        """A run, to be looked at.

        Raises:
            UndertowError: as `record`.
        """
        from undertow.runs.pipeline import Run

        folder = self._folder(name)
        run = Run(folder, _sendable(read_record(folder)))
        try:
            findings = run.findings
        except LookupError as error:
            raise UndertowError(
                "The results of this run are not those of its observations; run the audit again."
            ) from error
        results = rows_of(run.record.results)
        return RunView(
            about=_about(run.record),
            findings=tuple(finding.text for finding in findings[:MAX_FINDINGS]),
            results=results.head(MAX_ROWS),
            n_results=len(results),
            figures=tuple(_figures(folder)),
        )

    def report(self, name: object) -> bytes:
        """The report page of a run, for those who want to keep it; b"" where it has none.

        Raises:
            UndertowError: the run is not on the list.
        """
        folder = self._folder(name)
        page = folder / REPORT
        if not page.is_file() or not _within(page, folder) or page.stat().st_size > MAX_REPORT_BYTES:
            return b""
        return page.read_bytes()

    def compare(self, baseline: object, candidate: object, progress: Progress) -> tuple[str, pd.DataFrame]:
        """What differs between two runs: a sentence, and a row for each difference.

        Raises:
            UndertowError: they cannot be compared; says why.
        """
        if baseline == candidate:
            raise UndertowError("Choose two different runs to compare.")
        first, second = self.record(baseline), self.record(candidate)
        from undertow.runs.compare import compare

        comparison = compare(first, second, names=(str(baseline), str(candidate)), progress=progress)
        said = (
            "Both runs have the same answers to all shared items."
            if comparison.identical
            else _describe_differences(comparison.differences)
        )
        return " ".join([said, *comparison.notes]), rows_of(comparison.differences).head(MAX_ROWS)


def _is_run(folder: Path) -> bool:
    """Whether it looks like a run, all of it is files that lie in it, and a page can show its name."""
    try:
        there = [folder / name for name in READ if (folder / name).exists()]
        # What is no file, such as a pipe, would be waited for.
        own = all(path.is_file() and _within(path, folder) for path in there)
        return own and folder / MANIFEST in there and not folder.is_symlink() and showable(folder.name) == folder.name
    except OSError:
        return False  # this account may not look into it


def showable(text: str) -> str:
    """The text without halves of signs, which can be sent to no page."""
    return text.encode("utf-8", "replace").decode()


def _sendable(record: Record) -> Record:
    """A run whose texts are all showable: JSON can hold halves of signs, and a run may be anybody's."""
    results = [
        replace(
            result,
            measure=showable(result.measure),
            group=_all_showable(result.group),
            unit=showable(result.unit),
            note=showable(result.note),
        )
        for result in record.results
    ]
    return replace(record, manifest=_all_showable(record.manifest), results=results)


def _all_showable(value: Any) -> Any:
    if isinstance(value, str):
        return showable(value)
    if isinstance(value, Mapping):
        return {_all_showable(name): _all_showable(one) for name, one in value.items()}
    return [_all_showable(one) for one in value] if isinstance(value, list) else value


def _listed(folder: Path) -> RunListing | None:
    """None where the manifest is corrupt or too large."""
    try:
        manifest = parse_json(read_file(folder / MANIFEST, MAX_MANIFEST_BYTES, "a manifest"))
    except (UndertowError, ValueError):
        return None  # `undertow report` says what is wrong with it; a list shows what can be opened
    if not isinstance(manifest, dict):
        return None
    counts = manifest.get("counts")
    n_items = counts.get("items") if isinstance(counts, dict) else None
    audit, model, created = (showable(str(manifest.get(key, ""))) for key in ("audit", "model", "created"))
    return RunListing(folder.name, audit, model, created, n_items if isinstance(n_items, int) else 0)


def _within(path: Path, folder: Path) -> bool:
    """Whether a file really lies in the folder, whatever links there are."""
    return path.resolve().is_relative_to(folder.resolve())


def moment(created: str) -> str:
    """When a run was made, to the minute, as a person writes it."""
    return created[:16].replace("T", " ")


def _about(record: Record) -> tuple[str, ...]:
    manifest = record.manifest
    return (
        f"Audit: {manifest['audit']}, protocol {manifest['protocol']}, seed {manifest['seed']}",
        f"Model: {manifest['model']}",
        f"Items: {len(record.observations):,}; {moment(manifest['created'])}",
        f"To repeat it: {manifest['command']}",
    )


def rows_of(results: Sequence[Result]) -> pd.DataFrame:
    """Results as a table for reading: measure, what it is about, the value with its interval, and the test."""
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {
            "measure": result.measure.replace("_", " "),
            **{key: level for key, level in result.group.items() if level},
            "value": _rounded(result.value),
            "low": _rounded(result.low),
            "high": _rounded(result.high),
            "unit": result.unit,
            "q": _rounded(result.q),
            "n": result.n,
            "note": result.note,
        }
        for result in results
    ]
    table = pd.DataFrame(rows)
    if table.empty:
        return pd.DataFrame(columns=["measure", "value", "low", "high"])
    # Columns in which nothing stands would only push the others off a small screen.
    used = [name for name in table.columns if name in ("measure", "value") or table[name].map(_says).any()]
    # What is the same in all rows stands last, so that a small screen shows what they differ in.
    keys = {key for result in results for key in result.group}
    same = [name for name in used if name in keys and table[name].nunique(dropna=False) == 1]
    return table[[*(name for name in used if name not in same), *same]]


def _says(cell: object) -> bool:
    return not (cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if math.isfinite(value) else math.nan


def _describe_differences(differences: Sequence[Result]) -> str:
    tested = [one for one in differences if math.isfinite(one.q)]
    significant = [one for one in tested if one.q < 0.05]
    if not differences:
        return "Nothing of these two runs can be compared."
    if not tested:
        return f"{len(differences)} differences; none of them could be tested."
    if not significant:
        return f"None of {len(tested)} tested differences can be told from chance, corrected for that many."
    largest = min(significant, key=lambda one: one.q)
    about = ", ".join(level for level in largest.group.values() if level)
    return (
        f"{len(significant)} of {len(tested)} tested differences can be told from chance, corrected for that many; the surest is that of "
        f"{largest.measure.replace('_', ' ')} ({about}): {_rounded(largest.value):g} {largest.unit}."
    )


def _figures(folder: Path) -> list[bytes]:
    """PNG images of a run's figures, the first ones; anything else that lies there is left alone."""
    place = folder / FIGURES
    if not place.is_dir() or not _within(place, folder):
        return []
    images = []
    for path in sorted(place.glob("*.png"))[: 4 * MAX_FIGURES]:
        if _within(path, folder) and path.is_file() and path.stat().st_size <= MAX_FIGURE_BYTES:
            image = path.read_bytes()
            if image.startswith(PNG):
                images.append(image)
    return images[:MAX_FIGURES]
