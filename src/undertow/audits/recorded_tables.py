"""Recorded tables as text: cells of CSV, TSV and Parquet files, with the position of each row for error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from undertow._files import TooLargeError, first_line, is_plain_file, parse_json, read_parquet
from undertow.data import text_files
from undertow.data.text_files import first_repeat
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pyarrow as pa


NAMES = ("model", "w_name")
"""Columns with names, which ignore surrounding white space: "m" and "m " are one model."""
GROUP_MARK = "group:"
"""Prefix of columns of word groups."""
NO_VALUE = ("", "nan", "NaN", "NA", "None")
"""Spellings of an empty cell of masses."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""Index columns that pandas writes for a filtered table; they are not word groups."""
MAX_BYTES, MAX_CELLS = 512 * 2**20, 50_000_000
"""Limits of an unpacked table, and of the values of a Parquet file."""
MAX_NAMED = 8


@dataclass(frozen=True, slots=True)
class Table:
    """A table with all cells as text, because "NA" may be a W value.

    Attributes:
        path: the file.
        cells: a column of text for each column of the file.
        places: position of each row in the file, for example "line 3" [row].
        index: index columns of pandas.
        notes: sentences on how it was read, for the run's notes.
    """

    path: Path
    cells: pd.DataFrame
    places: Sequence[str]
    index: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.name

    def check_columns(self, required: Sequence[str]) -> None:
        """Refuse a table that lacks one of these columns, or has no rows."""
        lacking = [name for name in required if name not in self.cells.columns]
        if lacking:
            raise UndertowError(
                f"{self.path}: has no column {lacking[0]!r}; such a table needs {', '.join(required)}, and this one has "
                f"{', '.join(map(str, self.cells.columns)) or 'none'}"
            )
        if self.cells.empty:
            raise UndertowError(f"{self.path}: the table has no rows")

    def column(self, name: str, default: str) -> pd.Series[str]:
        """A column, or a constant one with the default value."""
        return self.cells[name] if name in self.cells else pd.Series(default, index=self.cells.index, dtype=str)

    def numbers(self, name: str, message: str, low: float, high: float) -> pd.Series[float]:
        """A column of numbers within bounds, NaN for empty cells; the message about another cell formats name and cell."""
        text = self.column(name, "").str.strip()
        is_empty = text.isin(NO_VALUE)
        values = pd.to_numeric(text.mask(is_empty), errors="coerce").astype(np.float64)
        wrong = ~is_empty & ~values.between(low, high)
        if wrong.any():
            self.refuse(wrong, f"{message}{hint_on_number(text[wrong].iloc[0])}", name.removeprefix(GROUP_MARK), text)
        return values

    def refuse(self, wrong: pd.Series[bool], message: str, *values: Any) -> None:
        """Raise an error about the first wrong row, if there is one; `message` formats the values: the cells of columns, or constants."""
        if wrong.any():
            row = int(np.flatnonzero(wrong.to_numpy())[0])
            cells = [one.iloc[row] if isinstance(one, pd.Series) else one for one in values]
            raise UndertowError(f"{self.path}, {self.places[row]}: {message.format(*cells)}")

    def check_filled(self, *names: str) -> None:
        """Refuse empty cells in these columns."""
        for name in names:
            self.refuse(self.column(name, "-").str.strip() == "", "{} is empty; fill it in every row", name)

    def check_repeats(self, frame: pd.DataFrame, keys: list[str], what: str) -> None:
        """Refuse a row with the same keys as an earlier one."""
        places = pd.Series(self.places, index=frame.index)
        firsts = places.groupby([frame[key] for key in keys]).transform("first")
        self.refuse(frame.duplicated(keys), "repeats the {} of {}; give each once", what, firsts)

    def check_one_value(self, frame: pd.DataFrame, column: str, *keys: str) -> None:
        """Refuse different values of a column in rows with the same keys; the error names the last key."""
        firsts = frame.groupby(list(keys))[column].transform("first")
        values = column, keys[-1], *(one.astype(object) for one in (frame[keys[-1]], frame[column], firsts))
        self.refuse(frame[column] != firsts, "{} of {} {!r} is {!r}, and was {!r} before; keep one", *values)


def hint_on_number(text: str) -> str:
    """How to write a cell that is not a number, to append to a sentence; "" if unknown."""
    if re.fullmatch(r"[+-]?\d*,\d+%?", text):
        return "; write a decimal point instead of the comma"
    if re.fullmatch(r"[+-]?[\d.]+ ?%", text):
        return "; leave the percent sign out"
    return "" if re.search(r"\d|inf", text, re.IGNORECASE) else "; leave the cell empty if the value is missing"


def unread_note(columns: Sequence[str]) -> list[str]:
    """A sentence with the unused columns; [] if there are none."""
    if not columns:
        return []
    names = [repr(name) if name.strip() else "one without a name" for name in columns[:MAX_NAMED]]
    more = [f"{len(columns) - MAX_NAMED} more"] if len(columns) > MAX_NAMED else []
    return [f"Unused columns: {', '.join([*names, *more])}."]


def check_index(table: Table, groups: Iterable[str]) -> None:
    """Refuse an index column of pandas among the masses."""
    named = next((name for name in groups if name in table.index), None)
    if named is not None:
        raise UndertowError(f"{table.path}: {named!r} is an index in this file; reset_index() before writing it")


def read_cells(path: Path | Table) -> Table:
    """Read the cells of a CSV, TSV or Parquet file as text, or take those of a table; strips white space in the columns `NAMES`."""
    if isinstance(path, Table):
        table = path
    elif not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
    elif path.name.endswith(".parquet"):
        table = _read_parquet(path)
    else:
        columns, rows = text_files.read_cells(path, MAX_BYTES)
        cells = pd.DataFrame([row for _, row in rows], columns=columns, dtype=str)
        table = Table(path, cells, [f"line {line}" for line, _ in rows])
    for name in table.cells:
        table.refuse(table.cells[name].str.contains("\0", regex=False), "{} holds a zero byte; take it out", name)
    for name in (one for one in NAMES if one in table.cells):
        table.cells[name] = table.cells[name].str.strip()
    return table


def _read_parquet(path: Path) -> Table:
    """Read cells as text, within the size limits.

    Ignores pandas metadata on types, which may be corrupt; uses it only to find index columns.
    """
    import pyarrow as pa

    index: set[str] = set()

    def check(schema: pa.Schema) -> None:
        with suppress(KeyError, TypeError, ValueError):
            noted = parse_json((schema.metadata or {})[b"pandas"])["index_columns"]
            index.update(name for name in noted if isinstance(name, str))
        twice = first_repeat(schema.names)
        if twice is not None:
            raise UndertowError(f"{path}: has two columns called {twice!r}; give each column a name of its own")
        for one in schema:
            if pa.types.is_nested(one.type.value_type if pa.types.is_dictionary(one.type) else one.type):
                raise UndertowError(f"{path}: column {one.name!r} holds lists or tables; leave it out")

    try:
        table = read_parquet(path, MAX_CELLS, MAX_BYTES, check)
    except TooLargeError as error:
        raise UndertowError(f"{path}: {error}; leave out columns that are not used") from error
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise UndertowError(f"{path}: is not a Parquet file that can be read ({first_line(error)})") from error
    names = [name for name in table.column_names if not _PANDAS_INDEX.fullmatch(name)]
    columns = {}
    for name in names:
        texts: dict[object, str] = {None: ""}  # each distinct value is converted once
        column = table[name]
        try:
            if "binary" in str(column.type):  # some tools do not mark binary cells as text
                column = column.cast(pa.large_binary()).cast(pa.large_string())
            columns[name] = [texts.setdefault(one, "" if one != one else str(one)) for one in column.to_pylist()]  # noqa: PLR0124 - NaN
        except (pa.ArrowException, LookupError, OverflowError, ValueError) as error:
            # A date or time zone unknown to Python.
            raise UndertowError(
                f"{path}: column {name!r} has values that cannot be converted to text ({first_line(error)}); remove it"
            ) from error
    cells = pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), columns=names, dtype=str)
    return Table(path, cells, [f"row {number}" for number in range(1, len(cells) + 1)], frozenset(index))


def row_keys(columns: pd.DataFrame) -> list[str]:
    """The cells of each row, joined by slashes."""
    return ["/".join(row) for row in zip(*(columns[name].tolist() for name in columns), strict=True)]
