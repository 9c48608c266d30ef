"""Compare run folders, and write the comparison folder.

comparison.html   the page: findings, figures, tables, the compared runs
comparison.csv    a row for each difference
comparison.json   the differences and the runs as JSON
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.errors import UndertowError, on_one_line, short_traceback
from undertow.report.formatting import MISSING, probability, significant
from undertow.report.page import render_page
from undertow.report.sentence_templates import sentences
from undertow.runs.compare.comparison_report import (
    counted,
    decimals,
    digits,
    distinguishing_keys,
    drawings,
    findings,
    label,
    notes_of,
    page_of,
    pair_name,
    pairs_of,
)
from undertow.runs.compare.differences import Comparison, corrected
from undertow.runs.compare.differences import compare as compare_records
from undertow.runs.compare.equivalence import MARGIN, Margins, is_significant, verdict
from undertow.runs.compare.pairing import IncomparablePairError, Matched, matchings, models_of
from undertow.runs.config import safe_name
from undertow.runs.folder.provenance import circumstances, command_line, python_call
from undertow.runs.folder.storage import Record, csv_of, read_json, read_record, without_nan
from undertow.runs.folder.whole_folder import Kind, write_folder
from undertow.runs.run_report import provenance_rows
from undertow.types import Finding, Progress, Result, as_json, digest, no_progress

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
PAGE, TABLE, JSON = "comparison.html", "comparison.csv", "comparison.json"
MAX_ROWS = 20


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Comparisons of runs, or of the models of a run.

    Attributes:
        pairs: what each comparison compares.
        reasons: why other pairs could not be compared.
    """

    comparisons: Sequence[Comparison]
    of: Runs
    options: CompareOptions
    pairs: Sequence[Pair]
    reasons: Sequence[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(map(repr, self.comparisons))})"

    def table(self) -> pd.DataFrame:
        """A row for each difference: the two runs, verdict, measure, group, estimates and extras."""
        import pandas as pd

        tables = []
        for one in self.comparisons:
            table = one.table()
            table.insert(0, "verdict", [verdict(difference) for difference in one.differences])
            table.insert(0, "candidate_run", one.candidate)
            table.insert(0, "baseline_run", one.baseline)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @property
    def findings(self) -> list[Finding]:
        """Significant differences as sentences, the strongest first; then the number of equivalent and inconclusive ones."""
        return findings(self.comparisons)

    @property
    def excluded(self) -> list[str]:
        """Sentences on pairs that could not be compared."""
        return list(map(sentences("comparison").not_compared, self.reasons))

    @property
    def notes(self) -> list[str]:
        """Exclusions and caveats."""
        return [*self.excluded, *notes_of(self.comparisons)]

    @short_traceback
    def write(self, folder: str | Path) -> Path:
        """Write page, table and JSON into a folder; returns the page.

        Raises:
            UndertowError: the folder has other content, or cannot be written.
        """

        def fill(draft: Path) -> None:
            (draft / PAGE).write_text(_page(self), encoding="utf-8")
            (draft / TABLE).write_text(_writable(csv_of(self.table())), encoding="utf-8", newline="")
            text = as_json(plain_of(self), indent=2, allow_nan=False) + "\n"
            (draft / JSON).write_text(_writable(text), encoding="utf-8")

        write_folder(Path(folder), self.of.key(self.options), fill, COMPARISON)
        return Path(folder) / PAGE

    def _repr_html_(self) -> str:
        """The strongest differences as a table, for notebooks."""
        import pandas as pd

        texts = [finding.text for finding in self.findings if not finding.significant]
        rows = [{name: on_one_line(str(cell)) for name, cell in row.items()} for row in rows_of(self.comparisons)]
        table = pd.DataFrame(rows[:MAX_ROWS]).to_html(index=False, escape=True)
        more = f"<p>And {len(rows) - MAX_ROWS:,} more; see .table().</p>" if len(rows) > MAX_ROWS else ""
        return f"<p>{escape(' '.join(texts))}</p>{table}{more}"


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        seed: of random groups of clusters, and of flipped signs.
        margins: smallest differences of interest.
        within: whether to compare also the models of each run with each other.
    """

    seed: int = 0
    margins: Margins = field(default_factory=Margins)
    within: bool = False


@short_traceback
def compare(
    *runs: str | PathLike[str],
    seed: int = 0,
    margin: float | Mapping[str, float] | None = None,
    within: bool = False,
    progress: Progress = no_progress,
) -> ComparedRuns:
    """Compare every pair of run folders item by item, with the earlier one as baseline, or the models of one run with each other.

    Args:
        runs: run folders or finished runs of one audit with the same questions, or one run of several models.
        seed: of random groups of clusters, and of flipped signs.
        margin: the smallest difference of interest: one number in the unit of each measure, or numbers by measure ("" for all others).
            If not given, 0.05 percentage points, 0.1 points over a W list for slopes, .005 for shares; see docs/comparing.md.
        within: whether to compare also the models of each run with each other; always true for a single run.
        progress: called with (tables measured, tables in all), for each pair in turn.

    Returns:
        The differences of every measure, with 95% intervals, p of a difference within its margin, Benjamini-Hochberg q over all
        pairs, and a verdict.

    Raises:
        UndertowError: a folder is not a run folder, the runs are not comparable, or a margin is invalid.
    """
    return Runs.from_folders(runs).compare(CompareOptions(seed, Margins.from_value(margin), within), progress)


class Pair(NamedTuple):
    """Two sides to compare.

    Attributes:
        at: indices of the baseline's run and of the candidate's.
        models: pairs of models, the baseline's first.
    """

    at: tuple[int, int]
    models: Matched
    names: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs to compare, by the paths that the user named, the baseline first."""

    folders: Sequence[Path]
    records: Sequence[Record]

    @classmethod
    def from_folders(cls, runs: Sequence[str | PathLike[str]]) -> Runs:
        """Read run folders: two or more, or one of a run of several models."""
        folders = [Path(run) for run in runs]
        records = [read_record(folder) for folder in folders]
        if not records or (len(records) == 1 and len(models_of(records[0])) < 2):
            raise UndertowError(
                "a comparison needs two run folders or more, the baseline first, or one run of several models; name another"
            )
        return cls(folders, records)

    @property
    def names(self) -> list[str]:
        """Unique names of the runs: by model, or by folder if models are not unique."""
        models = [str(record.manifest["model"]) for record in self.records]
        short = [folder.resolve().name for folder in self.folders]
        alone = [len(models_of(record)) == 1 for record in self.records]
        by_model = {model for model, single in zip(models, alone, strict=True) if single and models.count(model) == 1}
        # The folder's name is enough unless it is also that of another folder or model.
        is_enough = len(set(short)) == len(short) and not by_model.intersection(short)
        places = [_writable(place) for place in (short if is_enough else map(str, self.folders))]
        names: list[str] = []
        for model, place in zip(models, places, strict=True):
            name = model if model in by_model else place
            while name in names:  # the same folder twice
                name += " (again)"
            names.append(name)
        return names

    def key(self, options: CompareOptions) -> str:
        """Key of the comparison: equal for equal runs and options."""
        keys = [str(record.manifest["run_key"]) for record in self.records]
        return digest(["comparison", keys, options.seed, options.margins.texts, options.within])

    def folder(self, options: CompareOptions) -> Path:
        """The default folder of the comparison."""
        names = "_".join(safe_name(folder.resolve().name, "-._")[:40] for folder in self.folders[:2])
        more = f"_and-{len(self.folders) - 2}-more" if len(self.folders) > 2 else ""
        return Path("runs") / f"comparison_{names}{more}_{self.key(options)[:8]}"

    def pairs(self, *, within: bool) -> list[Pair]:
        """Every pair of runs; with `within`, or for a single run, also the pairs of models within a run."""
        names, pairs = self.names, []
        for one in range(len(self.records)):
            if within or len(self.records) == 1:
                own = models_of(self.records[one])
                called = own if len(self.records) == 1 else [f"{model} ({names[one]})" for model in own]
                pairs += [
                    Pair((one, one), [(own[a], own[b])], (called[a], called[b]))
                    for a, b in combinations(range(len(own)), 2)
                ]
            for other in range(one + 1, len(self.records)):
                pairs += self._of_runs(one, other, names)
        return pairs

    def _of_runs(self, one: int, other: int, names: Sequence[str]) -> Iterator[Pair]:
        for models in matchings(self.records[one], self.records[other]):
            called = []
            for at, place in enumerate((one, other)):
                is_whole = len(models) == len(models_of(self.records[place])) or len(models) > 1
                called.append(names[place] if is_whole else f"{models[0][at]} ({names[place]})")
            yield Pair((one, other), models, (called[0], called[1]))

    def compare(self, options: CompareOptions, progress: Progress = no_progress) -> ComparedRuns:
        """Compare every pair; runs that are not comparable are refused, as are two models if no other pair is left."""
        compared: list[tuple[Pair, Comparison]] = []
        failures: list[IncomparablePairError] = []
        for pair in self.pairs(within=options.within):
            try:
                comparison = compare_records(
                    self.records[pair.at[0]],
                    self.records[pair.at[1]],
                    seed=options.seed,
                    names=pair.names,
                    progress=progress,
                    margins=options.margins,
                    models=pair.models,
                )
                compared.append((pair, comparison))
            except IncomparablePairError as error:
                failures.append(error)
        if not compared:
            raise failures[0]
        pairs, comparisons = zip(*compared, strict=True)
        reasons = list(dict.fromkeys(error.reason for error in failures))
        return ComparedRuns(corrected(comparisons), self, options, pairs, reasons)


# Rows as text.


def rows_of(comparisons: Sequence[Comparison]) -> list[dict[str, str]]:
    """The differences as rows of text, the strongest first; with the names of the runs if there are several comparisons."""
    if len(comparisons) == 1:
        return [_row_of(of, one) for of, one in pairs_of(comparisons)]
    return [
        {"runs": pair_name(of), **_row_of(replace(of, baseline="baseline", candidate="candidate"), one)}
        for of, one in pairs_of(comparisons)
    ]


def _row_of(comparison: Comparison, one: Result) -> dict[str, str]:
    keys = distinguishing_keys(comparison.differences)
    places = decimals(one) if math.isfinite(one.value) else 2
    margin = one.extras.get(MARGIN, math.nan)
    return {
        "what": label(one, keys),
        comparison.baseline: digits(one.extras["baseline"], places),
        comparison.candidate: digits(one.extras["candidate"], places),
        "difference": digits(one.value, places),
        "95% interval": f"{digits(one.low, places)} to {digits(one.high, places)}" if math.isfinite(one.low) else "",
        "margin": significant(margin) if margin > 0 or math.isfinite(one.low) else MISSING,
        "q": probability(one.q),
        "verdict": verdict(one) if math.isfinite(one.value) else "",
    }


def counts_of(comparisons: Sequence[Comparison]) -> list[dict[str, str]]:
    """Number of differences by comparison and verdict, as rows of text."""
    return [
        {"runs": pair_name(of), **{name: f"{n:,}" for name, n in counted(of.differences).items()}} for of in comparisons
    ]


def plain_of(compared: ComparedRuns) -> dict[str, Any]:
    """The whole comparison as JSON values; missing numbers are None."""
    return {
        "schema_version": SCHEMA_VERSION,
        "comparison_key": compared.of.key(compared.options),
        "seed": compared.options.seed,
        "margins": compared.options.margins.texts,
        "excluded": compared.reasons,
        "comparisons": [
            {
                "audit": one.audit,
                "baseline": _run_of(one.baseline, one.runs[0], compared.of.folders[pair.at[0]]),
                "candidate": _run_of(one.candidate, one.runs[1], compared.of.folders[pair.at[1]]),
                "models": [list(models) for models in pair.models],
                "items": one.n_items,
                "answered": one.n_answered,
                "alone": {"baseline": one.n_alone[0], "candidate": one.n_alone[1]},
                "identical": one.identical,
                "notes": list(one.notes),
                "differences": [
                    without_nan(asdict(row)) | {"verdict": verdict(row), "significant": is_significant(row)}
                    for row in one.differences
                ],
            }
            for one, pair in zip(compared.comparisons, compared.pairs, strict=True)
        ],
    }


def _run_of(name: str, run: Record, folder: Path) -> dict[str, str]:
    facts = ("model", "protocol", "run_key", "created", "command", "challenge_sha256")
    return {"name": name, "folder": str(folder), **{key: str(run.manifest.get(key, "")) for key in facts}}


# The folder.


COMPARISON = Kind(
    noun="comparison", last=JSON, parts=(PAGE, TABLE, JSON), key=lambda folder: str(read_json(folder / JSON).get("comparison_key"))
)  # fmt: skip


def _writable(text: str) -> str:
    """Text that UTF-8 can encode: a folder name may contain invalid bytes."""
    return text.encode("utf-8", "replace").decode()


def _page(compared: ComparedRuns) -> str:
    from undertow.report.inline_svg import page_figures

    main, pictures = page_figures(lambda: drawings(compared.comparisons), drawings(compared.comparisons))
    folders, options = [str(folder) for folder in compared.of.folders], compared.options
    margin = {} if options.margins.value is None else {"margin": options.margins.value}
    changed = ({"seed": options.seed} if options.seed else {}) | margin | ({"within": True} if options.within else {})
    python = python_call("compare", ", ".join(map(repr, folders)), changed)
    given = changed | ({"margin": ",".join(options.margins.texts)} if margin else {})
    command = command_line(["compare", *folders], given)
    provenance = provenance_rows({**circumstances(), "seed": options.seed})
    page, excluded = page_of(compared.comparisons, pictures, command, python, provenance), compared.excluded
    return render_page(replace(page, main=main, caveats=[*excluded, *page.caveats], notes=[*excluded, *page.notes]))
