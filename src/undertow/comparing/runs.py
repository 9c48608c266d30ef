"""Run folders compared, and the folder that a comparison is written to.

    comparison.html   the page: what differs in words, figures, tables, what was compared
    comparison.csv    a row for each difference
    comparison.json   the same for machines, and which runs they are of

Knows run folders, comparisons and their words; measures nothing itself.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.comparing.differences import Comparison, Progress, corrected, silent
from undertow.comparing.differences import compare as compare_records
from undertow.comparing.told import drawings, findings, is_found, page_of, strongest_first, told_of
from undertow.records import Kind, Record, check_place, read_json, read_record, write_folder
from undertow.types import Finding, Result, UndertowError, digest

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
PAGE, TABLE, JSON = "comparison.html", "comparison.csv", "comparison.json"
SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class Compared:
    """Runs held against the first of them.

    Attributes:
        comparisons: of each other run with the first.
        of: the runs themselves.
        seed: of groups and permutations.
    """

    comparisons: Sequence[Comparison]
    of: Runs
    seed: int

    def table(self) -> pd.DataFrame:
        """A row for each difference: the two runs, the measure, its group, numbers and details."""
        import pandas as pd

        tables = []
        for one in self.comparisons:
            table = one.table()
            table.insert(0, "candidate_run", one.candidate)
            table.insert(0, "baseline_run", one.baseline)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @property
    def findings(self) -> list[Finding]:
        """What differs, in plain sentences, the strongest first; then how many differences are not told from zero."""
        return findings(self.comparisons, told_of(self.comparisons[0]).titles)

    @property
    def notes(self) -> list[str]:
        """What was left out, and what to keep in mind."""
        several = len(self.comparisons) > 1
        return [f"{one.candidate}: {note}" if several else note for one in self.comparisons for note in one.notes]

    def write(self, folder: str | Path) -> Path:
        """Write page, table and JSON into a folder; returns the page.

        Raises:
            UndertowError: the folder holds something else, or cannot be written.
        """
        return _write(self, Path(folder))

    def _repr_html_(self) -> str:
        """The strongest differences as a table, for notebooks."""
        import pandas as pd

        said = [finding.text for finding in self.findings if not finding.found]
        rows = [row for one in self.comparisons for row in rows_of(one)]
        table = pd.DataFrame(rows[:SHOWN_ROWS]).to_html(index=False, escape=True)
        more = f"<p>And {len(rows) - SHOWN_ROWS:,} more; see .table().</p>" if len(rows) > SHOWN_ROWS else ""
        return f"<p>{_escaped(' '.join(said))}</p>{table}{more}"


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def compare(*runs: str | Path, seed: int = 0, progress: Progress = silent) -> Compared:
    """Compare run folders item by item; the first is the baseline of all others.

    Args:
        runs: two run folders or more, of one audit, asked the same.
        seed: of the groups that clusters are dealt into where there are many, and of permutations.
        progress: called with (tables measured, tables in all), for each run in turn.

    Returns:
        The differences of every measure, with clustered 95% intervals, permutation p and Benjamini-Hochberg q.

    Raises:
        UndertowError: one is no run folder, or they are not comparable, and why.
    """
    return Runs.read(runs).compared(seed, progress)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs that are to be compared.

    Attributes:
        folders: as they were named, the baseline first.
        records: what is in them.
    """

    folders: Sequence[Path]
    records: Sequence[Record]

    @classmethod
    def read(cls, runs: Sequence[str | Path]) -> Runs:
        """Read run folders.

        Raises:
            UndertowError: there are fewer than two, or one is no run folder.
        """
        folders = [Path(run) for run in runs]
        if len(folders) < 2:
            raise UndertowError("a comparison needs two run folders or more, the baseline first; name another")
        return cls(folders, [read_record(folder) for folder in folders])

    @property
    def names(self) -> list[str]:
        """What runs are called: by their models, and by their folders where these are not enough; no two alike."""
        models = [str(record.manifest["model"]) for record in self.records]
        short = [folder.resolve().name for folder in self.folders]
        by_model = {model for model in models if models.count(model) == 1}
        # A folder's own name is enough unless two have the same, or another run's model is called so.
        is_enough = len(set(short)) == len(short) and not by_model.intersection(short)
        places = [_writable(place) for place in (short if is_enough else map(str, self.folders))]
        names: list[str] = []
        for model, place in zip(models, places, strict=True):
            name = model if model in by_model else place
            while name in names:  # one folder, named twice
                name += " (again)"
            names.append(name)
        return names

    def key(self, seed: int) -> str:
        """Equal for equal runs and seed."""
        return digest(["comparison", [str(record.manifest["run_key"]) for record in self.records], seed])

    def folder(self, seed: int) -> Path:
        """Where a comparison goes that nobody has named a place for."""
        names = "_".join(_safe(folder.resolve().name) for folder in self.folders[:2])
        more = f"_and-{len(self.folders) - 2}-more" if len(self.folders) > 2 else ""
        return Path("runs") / f"comparison_{names}{more}_{self.key(seed)[:8]}"

    def compared(self, seed: int = 0, progress: Progress = silent) -> Compared:
        """Each other run held against the first.

        Raises:
            UndertowError: they are not comparable, and why.
        """
        baseline, *others = zip(self.names, self.records, strict=True)
        compared = [
            compare_records(baseline[1], record, seed=seed, names=(baseline[0], name), progress=progress)
            for name, record in others
        ]
        return Compared(corrected(compared), self, seed)


def _safe(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in name).strip("-.")[:40]


# Rows for a reader.


def rows_of(comparison: Comparison) -> list[dict[str, str]]:
    """The differences as rows of text, the strongest first."""
    from undertow.comparing.told import decimals, label, telling_keys
    from undertow.report.words import number, probability

    titles, keys = told_of(comparison).titles, telling_keys(comparison.differences)
    rows = []
    for one in strongest_first(comparison.differences):
        places = decimals(one) if math.isfinite(one.value) else 2
        interval = f"{number(one.low, places)} to {number(one.high, places)}" if math.isfinite(one.low) else ""
        rows.append(
            {
                "what": label(one, titles, keys),
                comparison.baseline: number(one.detail["baseline"], places),
                comparison.candidate: number(one.detail["candidate"], places),
                "difference": number(one.value, places),
                "95% interval": interval,
                "q": probability(one.q),
                "found": "yes" if is_found(one) else "",
            }
        )
    return rows


def plain_of(compared: Compared) -> dict[str, Any]:
    """Everything, as JSON has it: a number that is missing is null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "comparison_key": compared.of.key(compared.seed),
        "seed": compared.seed,
        "comparisons": [
            {
                "probe": one.probe,
                "baseline": _run_of(one.baseline, one.runs[0], compared.of.folders[0]),
                "candidate": _run_of(one.candidate, one.runs[1], folder),
                "items": one.n_items,
                "answered": one.n_answered,
                "alone": {"baseline": one.n_alone[0], "candidate": one.n_alone[1]},
                "identical": one.identical,
                "notes": list(one.notes),
                "differences": [_plain(difference) for difference in one.differences],
            }
            for one, folder in zip(compared.comparisons, compared.of.folders[1:], strict=True)
        ],
    }


def _run_of(name: str, run: Record, folder: Path) -> dict[str, str]:
    facts = {key: str(run.manifest[key]) for key in ("model", "protocol", "run_key", "created", "command")}
    return {
        "name": name,
        "folder": str(folder),
        **facts,
        "challenge_sha256": str(run.manifest.get("challenge_sha256", "")),
    }


def _plain(one: Result) -> dict[str, Any]:
    numbers = {name: _number(getattr(one, name)) for name in ("value", "low", "high", "neutral", "p", "q")}
    return {
        "measure": one.measure,
        "group": dict(one.group),
        **numbers,
        "n": one.n,
        "n_unscored": one.n_unscored,
        "unit": one.unit,
        "detail": {name: _number(value) for name, value in one.detail.items()},
        "note": one.note,
        "found": is_found(one),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


# The folder.


def check_folder(folder: Path, key: str) -> None:
    """Refuse, before any work is done, a place that holds something other than this comparison.

    Raises:
        UndertowError: the place is taken, or no folder can be made there.
    """
    check_place(folder, key, kind=COMPARISON)


def _held_key(folder: Path) -> str:
    """The key of the comparison in a folder; "" if there is none that can be read."""
    try:
        return str(read_json(folder / JSON).get("comparison_key", ""))
    except UndertowError:
        return ""


COMPARISON = Kind(noun="comparison", last=JSON, parts=(PAGE, TABLE, JSON), key=_held_key)


def _write(compared: Compared, folder: Path) -> Path:
    def fill(draft: Path) -> None:
        (draft / PAGE).write_text(_page(compared), encoding="utf-8")
        table = compared.table().to_csv(index=False, lineterminator="\n")
        (draft / TABLE).write_text(_writable(table), encoding="utf-8", newline="")
        text = json.dumps(plain_of(compared), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (draft / JSON).write_text(_writable(text), encoding="utf-8")

    write_folder(folder, compared.of.key(compared.seed), fill, kind=COMPARISON)
    return folder / PAGE


def _writable(text: str) -> str:
    """A text that UTF-8 can hold: the name of a folder may have bytes that are no text."""
    return text.encode("utf-8", "replace").decode()


def _page(compared: Compared) -> str:
    from undertow.provenance import circumstances
    from undertow.report.drawing import svg_text
    from undertow.report.page import PageFigure, render_page

    titles = told_of(compared.comparisons[0]).titles
    pictures = [
        PageFigure(drawing.name, svg_text(drawing), drawing.caption, drawing.alt)
        for drawing in drawings(compared.comparisons, titles)
    ]
    folders = [str(folder) for folder in compared.of.folders]
    seed = ["--seed", str(compared.seed)] if compared.seed else []
    command = f"undertow compare {shlex.join([*folders, *seed])}"
    arguments = [*map(repr, folders), *([f"seed={compared.seed}"] if compared.seed else [])]
    python = f"undertow.compare({', '.join(arguments)})"
    return render_page(
        page_of(compared.comparisons, pictures, command, python, _provenance(circumstances(), compared.seed))
    )


def _provenance(facts: Mapping[str, Any], seed: int) -> dict[str, str]:
    return {
        "made": str(facts["created"]),
        "seed": str(seed),
        "versions": ", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
        "machine": ", ".join(f"{name} {value}" for name, value in facts["machine"].items()),
    }
