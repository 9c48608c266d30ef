"""Read and write run folders: manifest, observations and results.

    manifest.json          models, settings, time, versions and seed
    observations.parquet   a row per item, factors as columns
    results.json, .csv     the results
    precision.csv          in reduced precision: results of a sample in that precision and in float32
    tables/  figures/  report.html  the report, written by a callback

A folder is written to a draft beside its place and moved there, the manifest last, so a folder with a manifest is complete. Other
kinds of folder, such as comparisons, are written in the same way (`Kind`).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow._files import (
    LONE_SURROGATE,
    TooLargeError,
    csv_cell,
    csv_value,
    file_size,
    first_line,
    is_encodable,
    is_folder,
    is_plain_file,
    parse_json,
    path_exists,
    read_file,
    read_parquet,
    sha256_of,
)
from undertow.errors import UndertowError
from undertow.runs.folder.whole_folder import Kind, write_folder
from undertow.types import Result, as_json

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.record_schema import Column

SCHEMA_VERSION = 1
MANIFEST, OBSERVATIONS, RESULTS, PRECISION = "manifest.json", "observations.parquet", "results.json", "precision.csv"
RESULTS_SHA256 = "results_sha256"
"""Field of the manifest with the hash of the results."""
PRECISION_NUMBERS = ("reduced_value", "float32_value", "difference", "low", "high", "difference_over_halfwidth")
PRECISION_FLAG = "unstable"
"""Numeric columns of the table, and a boolean one; the others except `measure` are group keys."""
MAX_CELLS, MAX_VALUE_BYTES = 200_000_000, 4 * 2**30
"""Limits of the table of observations."""
MAX_MANIFEST_BYTES, MAX_RESULTS_BYTES, MAX_PRECISION_BYTES = 16 * 2**20, 64 * 2**20, 64 * 2**20
MAX_CHALLENGE_BYTES = 2**28
CHALLENGES = ("challenge.toml", "challenge.csv", "challenge.json", "challenge.tsv")
"""Names of a copy of the challenge file, by its kind."""
PARTS = (MANIFEST, OBSERVATIONS, RESULTS, "results.csv", PRECISION, "report.html", "figures", "tables", *CHALLENGES)


class CorruptRunError(UndertowError):
    """A run folder is corrupt: an entry is missing or invalid."""


class ManifestFacts(dict[str, Any]):
    """The contents of a JSON file of a run folder; access to a missing key raises a `CorruptRunError`.

    `where` is the file, and `what` the noun of the error for what lacks the key.
    """

    def __init__(self, held: Mapping[str, Any], where: str, what: str) -> None:
        super().__init__(held)
        self._where, self._what = where, what

    def __missing__(self, name: str) -> Any:
        raise CorruptRunError(f"{self._where}: is corrupt ({self._what} does not say {name}); run the audit again")


@dataclass(frozen=True, slots=True)
class Record:
    """A finished audit.

    Attributes:
        manifest: JSON-serialisable facts, with at least the keys of `json_schema.Manifest`.
        observations: a row per item, factors as columns.
        results: the results.
        precision: in reduced precision, a row for each result of the float32 sample: model, measure and group, the value in reduced
            precision and in float32, their `difference` with its 95% interval, the end of that farther from 0 in half-widths of the
            run's interval, and whether a finding could change; None for other runs.
    """

    manifest: Mapping[str, Any]
    observations: pd.DataFrame
    results: Sequence[Result]
    precision: pd.DataFrame | None = None

    def results_table(self) -> pd.DataFrame:
        """The results with a column for the measure, each group key, each estimate and each extra [result]."""
        import pandas as pd

        rows = [
            {"measure": one.measure, **one.group, **_numbers(one), **one.extras, "note": one.note}
            for one in self.results
        ]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=["measure", "value", "low", "high"])


def _numbers(result: Result) -> dict[str, Any]:
    names = ("value", "low", "high", "n", "n_missing", "unit", "null_value", "p", "q")
    return {name: getattr(result, name) for name in names}


def write_record(
    record: Record, folder: Path, write_report: Callable[[Path], None], *, overwrite: bool = False
) -> None:
    """Write a run folder, all or nothing.

    Args:
        record: the run.
        folder: the run folder; a folder of the same run is replaced.
        write_report: writes figures and report into the folder it is given.
        overwrite: replace a folder of another run too.

    Raises:
        UndertowError: the folder is taken, or cannot be written.
    """

    def fill(draft: Path) -> None:
        results = [
            {"measure": one.measure, "group": one.group, **_numbers(one), "extras": one.extras, "note": one.note}
            for one in record.results
        ]
        head = {"schema_version": SCHEMA_VERSION, "audit": record.manifest["audit"], "model": record.manifest["model"]}
        write_json(draft / RESULTS, head | {"results": results})
        (draft / "results.csv").write_text(csv_of(record.results_table()), encoding="utf-8", newline="")
        record.observations.to_parquet(draft / OBSERVATIONS, index=False)
        if record.precision is not None:
            (draft / PRECISION).write_text(csv_of(record.precision), encoding="utf-8", newline="")
        write_report(draft)
        write_json(draft / MANIFEST, {**record.manifest, RESULTS_SHA256: sha256_of(draft / RESULTS)})

    write_folder(folder, str(record.manifest["run_key"]), fill, RUN, overwrite=overwrite)


RUN = Kind(
    noun="run", last=MANIFEST, parts=PARTS, key=lambda folder: str(read_manifest(folder)["run_key"]), stale=(PRECISION,),
    kept="all answers are kept, so ", replace=", or replace it with --overwrite (in Python: out=..., overwrite=True)",
)  # fmt: skip


def read_challenge(path: Path, name: str) -> tuple[str, bytes] | None:
    """Name and content of the copy of a challenge file in a run folder; None where the path is no such file."""
    is_copy = name in CHALLENGES and is_plain_file(path)
    return (name, read_file(path, MAX_CHALLENGE_BYTES, "a challenge file")) if is_copy else None


def read_record(folder: Path) -> Record:
    """Read a run folder.

    Raises:
        UndertowError: the folder is not a run folder, is corrupt, or was written by a newer version.
    """
    from undertow.runs.folder.json_schema import Results, wrong_field

    manifest = read_manifest(folder)
    results_sha256 = manifest.pop(RESULTS_SHA256, "")
    for name in (OBSERVATIONS, RESULTS):
        if not path_exists(folder / name):
            raise UndertowError(f"{folder}: has no {name}; the run folder is incomplete, run the audit again")
    observations, path = _read_observations(folder / OBSERVATIONS, manifest), folder / RESULTS
    content = read_json(path)
    _refuse_wrong(path, wrong_field(Results, content))
    results = [_result(row, str(path)) for row in content["results"]]
    if results_sha256 and results_sha256 != sha256_of(path):
        _refuse_wrong(path, "it was changed after the run")
    _refuse_wrong(folder / MANIFEST, _unnamed(manifest["design"], observations, results))
    return Record(manifest, observations, results, _read_precision(folder))


def _unnamed(design: Mapping[str, Any], observations: pd.DataFrame, results: Sequence[Result]) -> str:
    """A word group or label that the run uses but the design lacks; "" if none."""
    named = {
        *design.get("words", ()),
        *(
            result.group["score"].removeprefix("delta_")
            for result in results
            if result.group.get("score", "").startswith("delta_")
        ),
    }
    gaps = {group for pair in design.get("gaps", ()) for group in pair}
    lacking = sorted((named | gaps) - set(design["groups"])) if "groups" in design else []
    if lacking:
        return f"design.groups lacks {lacking[0]!r}, which other fields name"
    known = {label.casefold() for label in design.get("labels", ())}
    gold = sorted(set(observations["gold"].dropna().str.casefold()) - known) if known and "gold" in observations else []
    return f"design.labels lacks {gold[0]!r}, which documents have" if gold else ""


def check_observations(record: Record) -> None:
    """Refuse observations without a required column, a name that the results have, or a position of W.

    Metrics of other packages may have results with names of their own. Raises `CorruptRunError`.
    """
    # Not for `undertow --help`, which they would slow.
    from undertow.audits import schema_of
    from undertow.data.templates.covariates import CROSS
    from undertow.metrics.groups import Groups
    from undertow.metrics.metric import METRICS, OVER_PROMPTS

    schema, rows = schema_of(record.manifest["audit"]), record.observations
    needed = [*schema.required, *record.manifest["design"].get("groups", ())] if schema.required else []
    if lacking := [name for name in needed if name not in rows]:
        _refuse_wrong(Path(OBSERVATIONS), f"it has no column {lacking[0]!r}")
    if not schema.columns:
        return
    if "w_value" in rows and rows["w_value"].isna().any():
        _refuse_wrong(Path(OBSERVATIONS), "its column 'w_value' has an empty cell")
    own = [
        result.group
        for result in record.results
        if Groups.of(result.group).code(result.measure).removesuffix(OVER_PROMPTS) in METRICS
    ]
    for column in (name for name in ("model", "challenge", "w_name") if name in rows):
        known = {*rows[column], "", "all"}
        crossed = [str(name).split(CROSS) for name in known if CROSS in str(name)]
        known |= {f"{one} over {other}" for names in crossed for one, other in permutations(names, 2)}
        unknown = {group.get(column, "") for group in own} - known
        if unknown:
            problem = f"it has no row with the {column} {min(unknown)!r}, which {RESULTS} names"
            _refuse_wrong(Path(OBSERVATIONS), problem)


def _read_observations(path: Path, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """The observations with the column types of the audit; ignores pandas metadata."""
    from pyarrow import ArrowException

    from undertow.audits import schema_of  # not for `undertow --help`, which these would slow
    from undertow.audits.record_schema import NUMBER, Column

    if file_size(path) > MAX_VALUE_BYTES:
        raise UndertowError(f"{path}: is too large for the observations of a run; use fewer items in one run")
    known = dict(schema_of(manifest["audit"]).columns)
    for group in [*manifest["design"].get("groups", ()), "other_words"] if known else []:
        known = dict.fromkeys((group, f"{group}.low", f"{group}.high"), Column(NUMBER)) | known
    try:
        with path.open("rb") as file:  # Arrow does not open a path that is not text
            table = read_parquet(file, MAX_CELLS, MAX_VALUE_BYTES, partial(_check_columns, may_nest=not known))
        for name, column in known.items():
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, _cast(table[name], name, column))
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except TooLargeError as error:
        raise UndertowError(
            f"{path}: is too large for the observations of a run ({error}); use fewer items in one run"
        ) from error
    except (ArrowException, LookupError, OSError, OverflowError, ValueError) as error:
        raise UndertowError(f"{path}: is corrupt ({first_line(error)}); run the audit again") from error
    return frame


def _check_columns(schema: Any, *, may_nest: bool) -> None:
    from pyarrow import types

    if len(set(schema.names)) < len(schema.names):
        raise ValueError("it has two columns of one name")
    for field in schema:
        is_list = types.is_list(field.type) or types.is_large_list(field.type)
        if not may_nest and types.is_nested(field.type.value_type if is_list else field.type):
            raise ValueError(f"its column {field.name!r} must hold values or lists of values")


def _cast(cells: Any, name: str, column: Column) -> Any:
    """The cells with their type; other tools write a column that is empty in all rows without one."""
    import pyarrow as pa
    from pyarrow import types

    from undertow.audits.record_schema import NUMBER, TEXT, TRUTH, WHOLE

    target, is_kind = {
        TEXT: (pa.large_string(), types.is_large_string),
        NUMBER: (pa.float64(), lambda kind: types.is_integer(kind) or types.is_floating(kind)),
        WHOLE: (pa.int64(), types.is_integer),
        TRUTH: (pa.bool_(), types.is_boolean),
    }[column.kind]
    try:
        if not (is_kind(cells.type) or (column.may_be_empty and types.is_null(cells.type))):
            raise pa.ArrowInvalid("another kind")
        if cells.null_count and column.kind == WHOLE:
            raise pa.ArrowInvalid("a missing cell")
        return cells.cast(target)
    except pa.ArrowException as error:
        raise ValueError(f"its column {name!r} must hold {column.kind}") from error


def _read_precision(folder: Path) -> pd.DataFrame | None:
    import pandas as pd

    path = folder / PRECISION
    if not path_exists(path):
        return None
    content = read_file(path, MAX_PRECISION_BYTES, "a table of precision errors")
    try:
        read = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        table = read.rename(columns=csv_value).map(csv_value)
        numbers = {name: [float(cell or "nan") for cell in table[name]] for name in PRECISION_NUMBERS}
        return table.assign(**numbers, **{PRECISION_FLAG: table[PRECISION_FLAG] == "True"})
    except (ValueError, KeyError) as error:
        raise UndertowError(f"{path}: is corrupt ({first_line(error)}); run the audit again") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder; raises as `read_record`."""
    path = folder / MANIFEST
    if not is_folder(folder):
        raise UndertowError(f"{folder}: there is no such run folder; check the path")
    if not path_exists(path):
        raise UndertowError(f"{folder}: has no {MANIFEST}, so it is not a run folder, or one that was not finished")
    from undertow.runs.folder.json_schema import wrong_in_manifest

    manifest = read_json(path, MAX_MANIFEST_BYTES)
    version = manifest.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UndertowError(f"{path}: was written by a newer Undertow (schema {version}); update to read it")
    _refuse_wrong(path, wrong_in_manifest(manifest))
    return manifest


def _refuse_wrong(path: Path, wrong: str) -> None:
    if wrong:
        raise CorruptRunError(f"{path}: is corrupt ({wrong}); run the audit again")


def _result(row: Mapping[str, Any], where: str) -> Result:
    def numbers(held: Mapping[str, Any]) -> dict[str, Any]:
        return {name: math.nan if value is None else float(value) for name, value in held.items()}

    what = f"a result of {row['measure']}"
    return Result(
        **numbers({name: row[name] for name in ("value", "low", "high", "null_value", "p", "q")}),
        **{name: row[name] for name in ("measure", "n", "n_missing", "unit")},
        group=ManifestFacts(row["group"], where, f"the group of {what}"),
        extras=ManifestFacts(numbers(row.get("extras", {})), where, f"the extras of {what}"),
        note=row.get("note", ""),
    )


def csv_of(table: pd.DataFrame, float_format: str | None = None) -> str:
    """A table as CSV, each cell as `csv_cell` has it."""
    text = table.rename(columns=csv_cell).map(csv_cell)
    written: str = text.to_csv(index=False, lineterminator="\n", float_format=float_format)
    return written


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, with missing numbers as null."""
    path.write_text(as_json(without_nan(value), indent=2, allow_nan=False) + "\n", encoding="utf-8", newline="")


def without_nan(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def read_json(path: Path, max_bytes: int = MAX_RESULTS_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file of a run folder, of at most `max_bytes` and without repeated keys."""
    content = read_file(path, max_bytes, "a file of a run folder")
    try:
        value = parse_json(content.decode())
        if not is_encodable(json.dumps(value, ensure_ascii=False)):
            raise ValueError(LONE_SURROGATE)
    except ValueError as error:
        raise UndertowError(f"{path}: is corrupt ({first_line(error)}); run the audit again") from error
    if not isinstance(value, dict):
        raise UndertowError(f"{path}: is corrupt (not a JSON object); run the audit again")
    return value
