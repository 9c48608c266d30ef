"""Recorded tables of word-group masses, as published with the papers or written by anyone.

Knows the columns; knows nothing about who recorded them. Needed: model, w_name, w_index, w, and one numeric column for
each word group, in percent. Optional: prompt, challenge, text, and cluster or text_index, which says which rows are
the same sentence at another W. A row whose masses are empty is unscored; a row of zeros is a measurement.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO, overload

import numpy as np
import pandas as pd

from undertow.challenge.reading import repeated
from undertow.outside import first_line, is_plain_file, json_of
from undertow.types import UndertowError

NEEDED = ("model", "w_name", "w_index", "w")
OPTIONAL = ("prompt", "challenge", "text", "cluster", "text_index", "item", "unclaimed", "unscored")
NO_VALUE = ("", "nan", "NaN", "NA", "None")
"""What an empty cell of masses looks like in the files of common tools."""
ROUNDING_PERCENT = 0.6
"""Published masses are rounded to a tenth, so three of them may add up to a little more than 100."""
MAX_INDEX = 10**9
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas writes beside the columns of a table of which it took some rows: numbers of rows, and no word group."""
MOST_BYTES, MOST_CELLS = 512 * 2**20, 50_000_000
"""Of a table, unpacked."""
TOO_MANY = "leave out columns that are not used"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it stands in its file, all cells text, so that what a cell holds is checked here: "NA" may be a W value.

    Attributes:
        path: the file.
        cells: a column of text for each column of the file.
        places: where each row stands in the file, for example "line 3" [row].
        index: columns that pandas wrote as the names of rows.
    """

    path: Path
    cells: pd.DataFrame
    places: Sequence[str]
    index: frozenset[str] = frozenset()

    def refuse_first(self, wrong: pd.Series[bool], what: Callable[[int], str]) -> None:
        """Say what is wrong with the first of the wrong rows, if there are any."""
        if wrong.any():
            row = int(np.flatnonzero(wrong.to_numpy())[0])
            raise UndertowError(f"{self.path}, {self.places[row]}: {what(row)}")


def read_recorded(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The table with every column that the measures expect, and the names of its word groups.

    Raises:
        UndertowError: the file cannot be read, or a column or value is not what it must be; names column and line.
    """
    table = read_cells(path)
    columns = list(table.cells.columns)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise UndertowError(
            f"{path}: has no column {missing[0]!r}; a recorded table needs {', '.join(NEEDED)} and a column of percent for each word group"
        )
    if table.cells.empty:
        raise UndertowError(f"{path}: holds no rows; there is nothing to measure")
    groups = [name for name in columns if name not in NEEDED + OPTIONAL and name not in table.index]
    if not groups:
        raise UndertowError(f"{path}: has no column of masses; add one column of percent for each word group")
    frame = _factors(table)
    for group in groups:
        frame[group] = percent_column(table, group)
    check_sums(table, frame[groups])
    # A group that was never recorded takes nothing from the others; a row without any number is unscored.
    empty = frame[groups].isna().all(axis=1).to_numpy()
    left = (100 - frame[groups].sum(axis=1, skipna=False)).clip(lower=0)
    frame["unclaimed"] = percent_column(table, "unclaimed") if "unclaimed" in columns else left
    given = table.cells["unscored"].str.strip() if "unscored" in columns else pd.Series("", index=frame.index)
    said = given.mask(given.isin(NO_VALUE), "")
    frame["unscored"] = np.where((said == "") & empty, "the recorded table has no value", said)
    frame.loc[frame["unscored"] != "", [*groups, "unclaimed"]] = np.nan
    return frame, groups


def read_cells(path: Path) -> Table:
    """The cells of a file, whatever they mean.

    Raises:
        UndertowError: the file cannot be read, or has two columns of one name.
    """
    table = _parsed(path)
    columns = list(table.cells.columns)
    twice = repeated(columns)
    if twice is not None:
        raise UndertowError(f"{path}: has two columns called {twice!r}; give each column a name of its own")
    return table


def _parsed(path: Path) -> Table:
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
    try:
        return _read_parquet(path) if path.name.endswith(".parquet") else _read_lines(path)
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        raise UndertowError(
            f"{path}: is not a table that can be read ({first_line(error)}); use CSV, TSV or Parquet"
        ) from error


def _read_parquet(path: Path) -> Table:
    """Cells as text, of no more rows than there may be: a column of one value over and over takes no room in a file.

    What pandas noted in the file about its own types is left aside: it is for pandas, and may be damaged. Which columns are its
    names of rows is noted there alone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        index = _index_of(file.schema_arrow.metadata)
        n_cells = file.metadata.num_rows * file.metadata.num_columns
        if n_cells > MOST_CELLS:
            raise UndertowError(f"{path}: holds {n_cells:,} cells, and at most {MOST_CELLS:,} are read; {TOO_MANY}")
        table = file.read()
        table = table.select([at for at, name in enumerate(table.column_names) if not _PANDAS_INDEX.fullmatch(name)])
        table.validate(full=True)  # a text that is not UTF-8 would be met later, and anywhere
        found = table.to_pandas(ignore_metadata=True).astype(object).rename(columns=str)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    # A cell that is missing is an empty one; as text, some versions of pandas would call it nan.
    cells = found.where(found.notna(), "").astype(str)
    return Table(path, cells, _Rows(len(cells)), index)


def _index_of(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Columns that pandas noted as the names of rows; none where it noted nothing that can be read."""
    try:
        noted = json_of((metadata or {}).get(b"pandas", b"{}"))
    except ValueError:
        return frozenset()
    names = noted.get("index_columns") if isinstance(noted, dict) else None
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


@dataclass(frozen=True, slots=True)
class _Rows(Sequence[str]):
    """The places of rows that have no lines, written when they are asked for: a short file may have very many rows."""

    n_rows: int

    def __len__(self) -> int:
        return self.n_rows

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        numbers = range(1, self.n_rows + 1)[at]
        return f"row {numbers}" if isinstance(numbers, int) else [f"row {number}" for number in numbers]


def _read_lines(path: Path) -> Table:
    """CSV or TSV, with the line that each row ends on; empty lines are skipped and counted."""
    separator = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    rows, places = [], []
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        header = next(reader, [])
        n_cells = 0
        for row in reader:
            if not row:
                continue
            n_cells += len(row)
            if n_cells > MOST_CELLS:
                raise UndertowError(
                    f"{path}: holds more than {MOST_CELLS:,} cells, which is all that is read; {TOO_MANY}"
                )
            if len(row) != len(header):
                raise UndertowError(
                    f"{path}, line {reader.line_num}: has {len(row)} cells, but the header has {len(header)}; give each column one"
                )
            rows.append(row)
            places.append(f"line {reader.line_num}")
    return Table(path, pd.DataFrame(rows, columns=header, dtype=str), places)


def open_text(path: Path) -> TextIO:
    """A table as text, unpacked if it is packed; what is larger than a table may be ends in an error while it is read.

    Raises:
        OSError: it cannot be opened, or grows beyond `MOST_BYTES` as it is read.
    """
    opened: Any = gzip.GzipFile(path) if path.name.lower().endswith(".gz") else path.open("rb")
    return io.TextIOWrapper(io.BufferedReader(_Bounded(opened, MOST_BYTES)), encoding="utf-8-sig", newline="")


class _Bounded(io.RawIOBase):
    """A stream that gives no more than so many bytes: a small packed file may hold any number of them."""

    def __init__(self, stream: IO[bytes], most_bytes: int) -> None:
        self._stream, self._left = stream, most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        found = self._stream.read(len(into))
        self._left -= len(found)
        if self._left < 0:
            raise OSError(f"it is larger than {MOST_BYTES // 2**20} MiB, which is all that is read")
        into[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _factors(table: Table) -> pd.DataFrame:
    cells = table.cells
    index = pd.to_numeric(cells["w_index"], errors="coerce")
    table.refuse_first(
        index.isna() | (index % 1 != 0) | (index.abs() > MAX_INDEX),
        lambda row: f"w_index is {cells['w_index'].iloc[row]!r}; it must be a whole number, the place of w in its list",
    )
    sentence = next((name for name in ("cluster", "text_index", "text") if name in cells.columns), None)
    frame = pd.DataFrame(
        {
            "model": cells["model"],
            "challenge": cells["challenge"] if "challenge" in cells.columns else "recorded",
            "prompt": cells["prompt"] if "prompt" in cells.columns else "",
            "w_name": cells["w_name"],
            "w_index": index.astype(np.int64),
            "w": cells["w"],
            "cluster": cells[sentence] if sentence else np.arange(len(cells)).astype(str),
        }
    )
    if "text" in cells.columns:
        frame["text"] = cells["text"]
    _check_values(table, frame)
    if sentence:
        _check_repeats(table, frame)
    keys = ["challenge", "model", "prompt", "w_name", "w", "cluster"]
    frame.insert(0, "item", frame[keys].agg("/".join, axis=1))
    return frame


def _check_values(table: Table, frame: pd.DataFrame) -> None:
    """One index, one W value: else the order that the slope is taken over is not known."""
    firsts = frame.groupby(["w_name", "w_index"])["w"].transform("first")
    table.refuse_first(
        firsts != frame["w"],
        lambda row: (
            f"w is {frame['w'].iloc[row]!r}, but w_index {frame['w_index'].iloc[row]} was {firsts.iloc[row]!r} before; "
            "one index must mean one value"
        ),
    )


def _check_repeats(table: Table, frame: pd.DataFrame) -> None:
    keys = ["model", "challenge", "prompt", "w_name", "w_index", "cluster"]

    def repeats(row: int) -> str:
        same = (frame[keys] == frame[keys].iloc[row]).all(axis=1)
        first = int(np.flatnonzero(same.to_numpy())[0])
        return f"repeats the sentence and W of {table.places[first]}; give each once"

    table.refuse_first(frame.duplicated(keys), repeats)


def percent_column(table: Table, group: str) -> pd.Series[float]:
    """A column of masses; NaN where a cell is empty.

    Raises:
        UndertowError: a cell is no number from 0 to 100; names its line.
    """
    text = table.cells[group].str.strip()
    empty = text.isin(NO_VALUE)
    values = pd.to_numeric(text.mask(empty), errors="coerce").astype(np.float64)
    table.refuse_first(
        ~empty & ~values.between(0, 100 + ROUNDING_PERCENT),
        lambda row: f"{group} is {table.cells[group].iloc[row]!r}; a mass must be a number from 0 to 100, in percent",
    )
    return values


def check_sums(table: Table, masses: pd.DataFrame) -> None:
    """Refuse masses that add up to more than 100 percent.

    Raises:
        UndertowError: names the first such line.
    """
    sums = masses.sum(axis=1)
    table.refuse_first(
        sums > 100 + ROUNDING_PERCENT,
        lambda row: (
            f"the masses of {', '.join(masses.columns)} add up to {sums.iloc[row]:.1f} percent; they are parts of 100"
        ),
    )
