"""The run folder: manifest, observations, results. The only file format, and the only module that knows it.

    manifest.json          who was asked what, when, with which versions and seed
    observations.parquet   a row per item, factors as columns
    results.json, .csv     the measures
    precision.csv          of a run in reduced precision: results of a sample in it and in float32
    tables/  figures/  report.html  how it is told, written by whoever tells it

A folder is written beside its place and moved there, the manifest last: a folder with a manifest is complete.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.types import Result, UndertowError

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
MANIFEST, OBSERVATIONS, RESULTS = "manifest.json", "observations.parquet", "results.json"
PRECISION = "precision.csv"
PRECISION_NUMBERS = ("reduced", "float32", "error", "low", "high", "of_half_interval")
PRECISION_FLAG = "could_change"
"""Columns of the table that hold numbers, and one that holds True or False; the others but `measure` are of the group."""
UNFINISHED = ".unfinished"
"""Marks a folder whose files are being replaced."""
DRAFT_PREFIX = ".undertow-draft-"
OLD_S = 24 * 3600.0
PARTS = (MANIFEST, OBSERVATIONS, RESULTS, "results.csv", PRECISION, "report.html", "figures", "tables")
NEEDED: Mapping[str, type] = {
    "schema_version": int, "probe": str, "model": str, "design": dict, "run_key": str, "asked_key": str, "seed": int,
    "protocol": str, "command": str, "python": str, "created": str, "versions": dict, "machine": dict,
}  # fmt: skip
"""What every manifest holds, so that a run can be measured and told anew."""


@dataclass(frozen=True, slots=True)
class Record:
    """A finished audit.

    Attributes:
        manifest: JSON-serialisable facts; holds at least what `NEEDED` names.
        observations: a row per item, factors as columns.
        results: the measures.
        precision: of a run in reduced precision, a row for each result of the sample that was read again: model, measure and
            group, the value in reduced precision and in float32, their difference (`error`) with its 95% interval, the farther end
            of that in halves of the run's interval, and whether a finding could change; None for other runs.
    """

    manifest: Mapping[str, Any]
    observations: pd.DataFrame
    results: Sequence[Result]
    precision: pd.DataFrame | None = None

    def results_table(self) -> pd.DataFrame:
        """The results with a column for the measure, each group key, each number and each detail [result]."""
        import pandas as pd

        rows = [_row(result) for result in self.results]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["measure", "value", "low", "high"])


def write_record(record: Record, folder: Path, tell: Callable[[Path], None], *, overwrite: bool = False) -> None:
    """Write a run folder, all of it or nothing that looks like one.

    Args:
        record: what is written.
        folder: where to; a folder of the same run is replaced.
        tell: writes figures and report into the folder it is given.
        overwrite: replace a folder of another run too.

    Raises:
        UndertowError: the place is taken by something else, or cannot be written.
    """
    _check_place(record, folder, overwrite=overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _forget_old_drafts(folder.parent)
        with tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=folder.parent) as beside:
            draft = Path(beside) / "run"
            draft.mkdir()
            _write_results(record, draft)
            record.observations.to_parquet(draft / OBSERVATIONS, index=False)
            if record.precision is not None:
                record.precision.to_csv(draft / PRECISION, index=False, lineterminator="\n")
            tell(draft)
            _write_json(draft / MANIFEST, dict(record.manifest))
            _move(draft, folder)
    except OSError as error:
        raise UndertowError(
            f"{folder}: the run folder cannot be written ({error.strerror or error}); all answers are kept, "
            "so free space or name another --out and run the same command again"
        ) from error


def check_place(folder: Path, run_key: str, *, overwrite: bool = False) -> None:
    """Refuse, before any work is done, a place that holds something other than this run.

    Raises:
        UndertowError: the place is taken, or no folder can be made there.
    """
    try:
        empty = _is_empty(folder)
    except OSError as error:
        raise UndertowError(f"{folder}: cannot be used ({error.strerror}); name another folder with --out") from error
    if empty:
        return
    if (folder / UNFINISHED).is_file() and not (folder / MANIFEST).is_file():
        return  # its rewriting had begun, and was allowed then
    if not (folder / MANIFEST).is_file() and any(entry.name not in PARTS for entry in folder.iterdir()):
        raise UndertowError(f"{folder}: is not empty and holds no run; name another folder with --out")
    if not overwrite and _held_key(folder) != run_key:
        raise UndertowError(
            f"{folder}: holds another run, or a damaged one; name another folder with --out, or replace it with --overwrite"
        )


def _is_empty(folder: Path) -> bool:
    """Whether a run can be put there without anything making room for it."""
    nearest = next(place for place in [folder, *folder.absolute().parents] if place.exists())
    if not nearest.is_dir():
        raise UndertowError(f"{nearest}: is a file; name a folder with --out")
    if not os.access(nearest, os.W_OK):
        raise UndertowError(f"{nearest}: cannot be written to; name another folder with --out")
    return not folder.exists() or not any(folder.iterdir())


def _held_key(folder: Path) -> str:
    """The key of the run in a folder; "" if there is none that can be read."""
    try:
        return str(_read_manifest(folder)["run_key"])
    except UndertowError:
        return ""


def _check_place(record: Record, folder: Path, *, overwrite: bool) -> None:
    check_place(folder, str(record.manifest["run_key"]), overwrite=overwrite)


def _move(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.rename(folder)
        return
    # The old manifest goes first and the new one comes last: what lies between is marked, and is not taken for a run.
    (folder / UNFINISHED).touch()
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / PRECISION).unlink(missing_ok=True)  # it would be taken for that of a run that has none
    for entry in sorted(draft.iterdir(), key=lambda entry: entry.name == MANIFEST):
        target = folder / entry.name
        if target.is_dir():
            shutil.rmtree(target)
        entry.replace(target)
    (folder / UNFINISHED).unlink()


def _forget_old_drafts(parent: Path) -> None:
    """Drafts of processes that were killed while they wrote; a day is longer than any write."""
    for draft in parent.glob(f"{DRAFT_PREFIX}*"):
        with suppress(FileNotFoundError):  # another process has just moved its draft into place
            if time.time() - draft.stat().st_mtime > OLD_S:
                shutil.rmtree(draft, ignore_errors=True)


def read_record(folder: Path) -> Record:
    """A run folder as it was written.

    Raises:
        UndertowError: it is no run folder, is damaged, or was written by a newer version.
    """
    import pandas as pd
    from pyarrow import ArrowException

    manifest = _read_manifest(folder)
    try:
        observations = pd.read_parquet(folder / OBSERVATIONS)
    except FileNotFoundError as error:
        raise UndertowError(
            f"{folder}: has no {OBSERVATIONS}; the run folder is incomplete, run the audit again"
        ) from error
    except (ArrowException, OSError, ValueError) as error:
        raise UndertowError(
            f"{folder / OBSERVATIONS}: is damaged ({_first_line(error)}); run the audit again"
        ) from error
    return Record(manifest, observations, _read_results(folder), _read_precision(folder))


def _read_precision(folder: Path) -> pd.DataFrame | None:
    import pandas as pd

    path = folder / PRECISION
    if not path.is_file():
        return None
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        numbers = {name: [float(cell or "nan") for cell in table[name]] for name in PRECISION_NUMBERS}
        return table.assign(**numbers, **{PRECISION_FLAG: table[PRECISION_FLAG] == "True"})
    except (OSError, ValueError, KeyError) as error:
        raise UndertowError(f"{path}: is damaged ({_first_line(error)}); run the audit again") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UndertowError(f"{folder}: there is no such run folder; check the path")
    if not path.is_file():
        raise UndertowError(f"{folder}: has no {MANIFEST}, so it is no run folder, or one that was not finished")
    manifest = _read_json(path)
    version = manifest.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UndertowError(f"{path}: was written by a newer Undertow (schema {version}); update to read it")
    wrong = [name for name, kind in NEEDED.items() if not isinstance(manifest.get(name), kind)]
    if wrong:
        raise UndertowError(f"{path}: is damaged (it has no {wrong[0]}, or a wrong one); run the audit again")
    return manifest


def _read_results(folder: Path) -> list[Result]:
    path = folder / RESULTS
    if not path.is_file():
        raise UndertowError(f"{folder}: has no {RESULTS}; the run folder is incomplete, run the audit again")
    try:
        return [_result(row) for row in _read_json(path)["results"]]
    except KeyError as error:
        raise UndertowError(f"{path}: is damaged (it lacks {_first_line(error)}); run the audit again") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise UndertowError(f"{path}: is damaged ({_first_line(error)}); run the audit again") from error


def _result(row: Mapping[str, Any]) -> Result:
    numbers = {
        name: math.nan if row[name] is None else float(row[name])
        for name in ("value", "low", "high", "neutral", "p", "q")
    }
    detail = {name: math.nan if value is None else float(value) for name, value in row.get("detail", {}).items()}
    return Result(
        measure=str(row["measure"]),
        group={str(key): str(value) for key, value in row["group"].items()},
        n=int(row["n"]),
        n_unscored=int(row["n_unscored"]),
        unit=str(row["unit"]),
        detail=detail,
        note=str(row.get("note", "")),
        **numbers,
    )


def _write_results(record: Record, folder: Path) -> None:
    results = [
        {
            "measure": result.measure,
            "group": dict(result.group),
            "value": result.value,
            "low": result.low,
            "high": result.high,
            "n": result.n,
            "n_unscored": result.n_unscored,
            "unit": result.unit,
            "neutral": result.neutral,
            "p": result.p,
            "q": result.q,
            "detail": dict(result.detail),
            "note": result.note,
        }
        for result in record.results
    ]
    head = {"schema_version": SCHEMA_VERSION, "probe": record.manifest["probe"], "model": record.manifest["model"]}
    _write_json(folder / RESULTS, head | {"results": results})
    record.results_table().to_csv(folder / "results.csv", index=False)


def _row(result: Result) -> dict[str, Any]:
    row = {"measure": result.measure, **result.group}
    for name in ("value", "low", "high", "n", "n_unscored", "unit", "neutral", "p", "q"):
        row[name] = getattr(result, name)
    return row | dict(result.detail) | {"note": result.note}


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _plain(value: Any) -> Any:
    """JSON has no NaN: a number that is missing is null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UndertowError(f"{path}: is damaged ({_first_line(error)}); run the audit again") from error
    if not isinstance(value, dict):
        raise UndertowError(f"{path}: is damaged (not a JSON object); run the audit again")
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
