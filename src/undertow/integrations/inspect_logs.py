"""Read logs of Inspect for a task of `undertow export inspect`, without Inspect.

    logs/2026-01-31T10-00-00_undertow-prompts_ID.eval    a zip file: header.json, and samples/ID_epoch_1.json for each sample
    logs/2026-01-31T10-00-00_undertow-prompts_ID.json    the same in one file, from `inspect log convert --to json`

Each sample contains its prompt (`item_codec`), and its score is the percent of each word group.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from ast import literal_eval
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, cast

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from undertow import audits
from undertow._files import first_line, is_folder, parse_json, read_file
from undertow.audits.base import Observations
from undertow.errors import UndertowError, on_one_line
from undertow.integrations.export_format import AnswerLog, Origin
from undertow.integrations.item_codec import COLUMN, LogReader, read_question, source_note
from undertow.runs.folder.json_schema import wrong_field, wrong_in_design
from undertow.runs.folder.storage import MANIFEST
from undertow.types import GenerateQuery, Item

AUDIT = "spurious-correlation"
"""The audit of the masses in such a log."""
ENDINGS = (".eval", ".json")
IN_FOLDERS = ("*.eval", "*undertow*.json")
HEADERS = ("header.json", "_journal/start.json")
"""Files with the model's name, in a complete and in an incomplete log."""
SCORER = "word_groups"
FACTORS = ("challenge", "prompt", "w_name", "w_index", "w")
MAX_BYTES, MAX_UNPACKED_BYTES = 512 * 2**20, 2**30
ZSTANDARD = 93
"""Compression of Inspect's zip files, which Python's zipfile cannot read before 3.14."""
LOCAL_HEADER = struct.Struct("<26xHH")
"""Lengths of name and extra field, which precede the data of an entry."""
NO_SCORE = "the log has no score for it"
SUCCESS, STARTED = "success", "started"
MAX_ERROR_CHARS = 200
LOWER_BOUNDS = (
    "Masses of word groups are lower bounds, and that of other words an upper bound, because the server showed only the most probable "
    "tokens; a shown token counts as a word, even if it may begin a longer one (he: her)."
)
_REPR = re.compile(r"\w+\(((['\"]).*\2)\)", re.DOTALL)
strict = with_config(ConfigDict(strict=True))


@strict
class EvalSpec(TypedDict):
    """Task and model of the evaluation."""

    model: str


@strict
class Header(TypedDict):
    """The header of a log; for a log in one file, with its samples."""

    eval: EvalSpec
    status: NotRequired[str]
    samples: NotRequired[list[Any] | None]


@strict
class Score(TypedDict):
    """Percent of each word group."""

    value: dict[str, float | None]
    explanation: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any] | None]


@strict
class Sample(TypedDict):
    """One sample."""

    id: str | int
    input: str
    metadata: dict[str, Any]
    scores: NotRequired[dict[str, Any] | None]
    epoch: NotRequired[int]
    error: NotRequired[dict[str, Any] | None]


_HEADER, _SAMPLE, _SCORE = TypeAdapter(Header), TypeAdapter(Sample), TypeAdapter(Score)


def is_log(path: Path) -> bool:
    """Whether a path is a log of Inspect, or a folder that contains some."""
    if is_folder(path):
        return not (path / MANIFEST).is_file() and bool(_files_in(path))
    return path.suffix in ENDINGS


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for pattern in IN_FOLDERS for path in folder.glob(pattern))


def read_log(path: Path, audit: str = "") -> AnswerLog:
    """Read the answers of a log or a folder of logs, of one model or several; `audit` is the expected one, "" for any.

    Raises:
        UndertowError: a file is corrupt or of other tasks, a prompt is answered twice, or the samples belong to several exports.
    """
    logs = _Logs(path)
    for file in _files_in(path) if is_folder(path) else [path]:
        logs.read(file)
    if logs.origin is None:
        raise UndertowError(
            f"{path}: has no samples of a task of undertow export inspect; name a log of such a task (.eval or .json)"
        )
    if audit not in ("", AUDIT) or logs.origin.audit != AUDIT:
        raise UndertowError(
            f"{path}: has answers for {logs.origin.audit}; only those for {AUDIT} can be measured from a log of Inspect"
        )
    observations, recorded = logs.observations(logs.origin)
    design = {**observations.design, "protocol": recorded}
    if logs.bounded:
        design |= {"lower_bounds": list(logs.bounded)}
        design |= {name: [*design.get(name, []), LOWER_BOUNDS] for name in ("w_notes", "limitations")}
    return AnswerLog(
        AUDIT,
        replace(observations, design=design),
        logs.origin.seed,
        [source_note("Inspect")],
        logs.digest.hexdigest(),
        logs.incomplete(logs.origin.n_items, logs.ends),
    )


@dataclass(slots=True)
class _Logs(LogReader):
    """The files read so far.

    Attributes:
        rows, row_places: a row of a recorded table for each sample, and its place.
        ends: how the log of each model ended that Inspect did not finish.
        bounded: models with masses from log-probabilities.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    row_places: list[str] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)
    bounded: dict[str, None] = field(default_factory=dict)

    def read(self, file: Path) -> None:
        """Add the samples of a file; skip files of other tasks."""
        content = read_file(file, MAX_BYTES, "a log of Inspect")
        self.add_file(file, content)
        header, samples = _unpacked(content, file)
        model, n_before = header["eval"]["model"], len(self.rows)
        for name, sample in samples:
            where = f"{file}, {name}"
            _refuse(where, wrong_field(_SAMPLE, sample))
            if (text := sample["metadata"].get(COLUMN)) is None:  # a sample of another task
                continue
            if sample.get("epoch", 1) > 1:
                raise UndertowError(f"{file}: has several epochs, and one is read; run the task again with --epochs 1")
            carried = read_question(text, GenerateQuery, FACTORS, where)
            self.add_sample(carried, model, file, where)
            self.rows.append({"model": model, **_row(sample, carried.item, where)})
            self.row_places.append(where)
            if _is_from_log_probabilities(sample):
                self.bounded[model] = None
        status = header.get("status", SUCCESS)
        if status != SUCCESS and len(self.rows) > n_before:
            self.ends[model] = f" and the status {status!r}, because Inspect did not finish the task"

    def observations(self, origin: Origin) -> tuple[Observations, str]:
        """Observations of the rows, read like other recorded tables, and their protocol."""
        import pandas as pd

        from undertow.audits.recorded_tables import Table

        _refuse(f"{self.first_file}: the carried prompts", wrong_in_design(origin.audit, origin.design))
        cells = pd.DataFrame(self.rows).map(lambda cell: "" if pd.isna(cell) else str(cell))
        try:
            observations, recorded = audits.load(AUDIT).load_recorded(Table(self.path, cells, self.row_places), "")
        except UndertowError as error:
            raise UndertowError(str(error).removeprefix(f"{self.path}, ")) from error  # the place of a row has the path
        known: dict[str, Any] = {
            name: origin.design[name] for name in ("title", "source", "prompts") if name in origin.design
        }
        return replace(observations, design={**observations.design, **known}), recorded


def _refuse(where: object, wrong: str) -> None:
    if wrong:
        raise UndertowError(f"{where} is corrupt ({wrong}); run the task again")


def _is_from_log_probabilities(sample: Mapping[str, Any]) -> bool:
    """Whether the task read the masses of a scored sample from log-probabilities, and not from the text."""
    score = (sample.get("scores") or {}).get(SCORER)
    return score is not None and (score.get("metadata") or {}).get("read") == "log-probabilities"


def _why_not_scored(sample: Mapping[str, Any]) -> str:
    """The first line of the error that ended a sample, without the request that Inspect puts before it, if there was one."""
    message = str((sample.get("error") or {}).get("message") or "")
    if quoted := _REPR.fullmatch(message):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            inner = str(literal_eval(quoted[1]))
            message = inner.rpartition("\n\n")[2] if inner.lstrip().startswith("Request:") else message
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    if line.startswith("CancelledError"):  # its text is an address in memory
        return "Inspect cancelled it"
    return f"Inspect logged an error: {on_one_line(line)[:MAX_ERROR_CHARS]}" if line else NO_SCORE


def _row(sample: Mapping[str, Any], item: Item, where: str) -> dict[str, Any]:
    """A row of a recorded table."""
    factors, query = item.factors, cast(GenerateQuery, item.query)
    for name in ("w_index", "w_value"):
        level = factors.get(name, math.nan)
        _refuse(where, "" if type(level) in (int, float) else f"factor {name!r} is {level!r}, not a number")
    if sample["input"] != query.prompt:
        raise UndertowError(f"{where}: its input differs from the exported prompt; export and run the task again")
    groups = list(dict.fromkeys(option.group for option in query.options))
    score = (sample.get("scores") or {}).get(SCORER)
    masses = dict.fromkeys([*groups, "other_words"], math.nan)
    reason = _why_not_scored(sample)
    if score is not None:
        _refuse(where, wrong_field(_SCORE, score, f"scores.{SCORER}."))
        lacking = next((name for name in masses if name not in score["value"]), None)
        _refuse(where, "" if lacking is None else f"scores.{SCORER}.value has no {lacking!r}")
        given = {name: score["value"][name] for name in masses}
        masses = {name: math.nan if value is None else float(value) for name, value in given.items()}
        reason = "" if any(map(math.isfinite, masses.values())) else str(score.get("explanation") or NO_SCORE)
    return {
        **{name: factors[name] for name in FACTORS},
        "w_value": factors.get("w_value", math.nan),
        "cluster": item.cluster,
        "text_index": " | ".join(str(level) for name, level in factors.items() if name not in ("w", "w_index", "w_value")),
        "text": " ".join(query.prompt.split()),
        **{f"group:{group}": masses[group] for group in groups},
        "other_words": masses["other_words"],
        "unit": "percent",
        "missing_reason": reason,
    }  # fmt: skip


def _unpacked(content: bytes, file: Path) -> tuple[Any, Iterator[tuple[str, Any]]]:
    """The header of a log, and its samples with their names."""
    if file.suffix != ".eval":
        log = _json(content, str(file))
        _refuse(file, wrong_field(_HEADER, log))
        return log, ((f"sample {number}", one) for number, one in enumerate(log.get("samples") or [], 1))
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        entries = {entry.filename: entry for entry in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, OSError, struct.error, NotImplementedError) as error:
        raise UndertowError(
            f"{file}: is not a log of Inspect ({first_line(error)}); name a .eval or .json file"
        ) from error
    if (header := next((name for name in HEADERS if name in entries), None)) is None:
        raise UndertowError(f"{file}: is not a log of Inspect (it has no {HEADERS[0]}); name a .eval or .json file")
    if sum(entry.file_size for entry in entries.values()) > MAX_UNPACKED_BYTES:
        raise UndertowError(
            f"{file}: is larger than {MAX_UNPACKED_BYTES // 2**20:,} MiB when unpacked, the maximum; use smaller runs"
        )
    samples = [name for name in entries if name.startswith("samples/") and name.endswith(".json")]

    def of(name: str) -> Any:
        return _json(_entry(content, archive, entries[name], file), f"{file}, {name}")

    head = of(header)
    _refuse(file, wrong_field(_HEADER, head))
    head |= {} if header == HEADERS[0] else {"status": STARTED}
    return head, ((name, of(name)) for name in samples)


def _entry(content: bytes, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, file: Path) -> bytes:
    """The bytes of an entry, at most as many as its header states."""
    import pyarrow as pa

    try:
        if entry.compress_type != ZSTANDARD:
            return archive.read(entry)
        begin = entry.header_offset + LOCAL_HEADER.size + sum(LOCAL_HEADER.unpack_from(content, entry.header_offset))
        packed = pa.BufferReader(content[begin : begin + entry.compress_size])
        unpacked: bytes = pa.CompressedInputStream(packed, "zstd").read(entry.file_size + 1)
        if len(unpacked) != entry.file_size or zlib.crc32(unpacked) != entry.CRC:
            raise ValueError("its checksum is another")
    except (
        zipfile.BadZipFile,
        ValueError,
        RuntimeError,
        OSError,
        EOFError,
        zlib.error,
        struct.error,
        pa.ArrowException,
    ) as error:
        raise UndertowError(
            f"{file}: {entry.filename} is corrupt ({first_line(error)}); run the task again, or convert the log with inspect log convert "
            "--to json"
        ) from error
    return unpacked


def _json(content: bytes, where: str) -> Any:
    try:
        return parse_json(content.decode(), unique_names=False)
    except ValueError as error:
        raise UndertowError(f"{where}: is corrupt ({first_line(error)}); run the task again") from error
