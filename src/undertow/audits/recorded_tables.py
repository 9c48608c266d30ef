"""Recorded tables of word-group masses.

Required: model, w_name, w_index, w, and one numeric column for each word group, in percent or as probabilities. Word groups are
the columns female, male, neutral and `group:NAME`; without any of these, every unknown column.

Optional: unit (percent or probability; by default inferred from row sums), prompt, challenge, text, cluster or text_index (rows with
the same value are one sentence at different W; with both, a cluster may have several sentences, identified by text_index or text),
and w_value (position of W on its axis; by default w if it is a number, else w_index).

A row with empty masses is missing; a row of zeros is a measurement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from undertow._files import TooLargeError, first_line, is_plain_file, parse_json, read_parquet
from undertow.data import text_files
from undertow.data.sentences.sentence_set import BOUNDS, KNOWN_FACTORS, RESERVED_COLUMNS, check_group_names
from undertow.data.templates.covariates import (
    INDEX,
    VALUE,
    Covariate,
    direction,
    evenly_spaced,
    numbers_of,
    order_by_size,
    published_order,
    uneven_steps,
)
from undertow.data.text_files import find_repeat
from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pyarrow as pa

    from undertow.types import Floats


BY_AXIS = "w_value, smallest first"


def axis_of(frame: pd.DataFrame, given: pd.Series[float]) -> Floats:
    """Position of each row's W value on its axis [row]: the given one, else its number, else its index in the list.

    Evenly spaced numbers in a list called `date` have their indices, as in the built-in list.

    Args:
        frame: `w_name`, `w_index` and `w` [row].
        given: the column `w_value`; NaN in all rows of a list without it [row].
    """
    axis: Floats = np.array(given, dtype=np.float64)
    for name, rows in frame.groupby("w_name", sort=False):
        at = frame.index.get_indexer(rows.index)
        if not np.isnan(axis[at]).all():
            continue
        values, places = _list_values(rows)
        numbers = numbers_of(values)
        by_index = not numbers or (name == "date" and _is_even(values, places))
        place_of = dict(zip(places, places if by_index else numbers, strict=True))
        axis[at] = rows["w_index"].map(place_of).to_numpy(dtype=np.float64)
    return axis


def covariates_of(frame: pd.DataFrame) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Entry of each W list in the design, like `undertow.data.Covariate.design_entry`, and notes on the lists.

    Args:
        frame: `w_name`, `w_index`, `w_value` and `w` [row].
    """
    covariates, notes = {}, []
    for name, rows in frame.groupby("w_name", sort=False):
        values, places = _list_values(rows)
        numbers = numbers_of(values)
        scale = INDEX if (rows["w_value"] == rows["w_index"]).all() else VALUE
        if scale == VALUE:
            order = order_by_size(str(name), 1) if numbers else BY_AXIS
        else:
            way = direction(numbers) if numbers else 0
            order = order_by_size(str(name), way) if way else published_order(str(name), values)
        uneven = bool(numbers) and not _is_even(values, places)
        covariate = Covariate(str(name), tuple(values), order, scale, numbers)
        covariates[str(name)] = {**covariate.design_entry(), "uneven": uneven}
        if uneven and scale == INDEX:
            notes.append(uneven_steps(str(name), numbers))
    return covariates, notes


def _list_values(rows: pd.DataFrame) -> tuple[list[str], list[int]]:
    distinct = rows.drop_duplicates("w_index").sort_values("w_index")
    return distinct["w"].astype(str).tolist(), distinct["w_index"].tolist()


def _is_even(values: Sequence[str], places: Sequence[int]) -> bool:
    return bool(direction(numbers_of(values))) and evenly_spaced(values, places)


REQUIRED = ("model", "w_name", "w_index", "w")
NAMES = ("model", "w_name")
"""Columns with names, which ignore surrounding white space: "m" and "m " are one model."""
OPTIONAL = (
    "prompt", "challenge", "text", "cluster", "text_index", "item", "other_words", "missing_reason", "w_value", "unit",
)  # fmt: skip
KNOWN_GROUPS = ("female", "male", "neutral")
MARK = "group:"
"""Prefix of columns of word groups."""
PERCENT, PROBABILITY = "percent", "probability"
MOST = 0.5
"""A share of the rows beyond which they say what the unit is."""
ROUNDING_PROB = 6e-3
"""Tolerance of row sums of rounded probabilities."""
MIN_PROB = 0.5
"""Largest row sum from which a table (with sums up to 1) holds probabilities; percents are rarely so small."""
LEAST_GAP = 20
"""Rows with sums of 0.5 to 1 are in another unit if all other sums are at least this factor larger."""
NO_VALUE = ("", "nan", "NaN", "NA", "None")
"""Spellings of an empty cell of masses."""
ROUNDING_PERCENT = 0.6
"""Published masses are rounded to a tenth, so three of them may add up to a little more than 100."""
MAX_INDEX = 10**9
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
    """

    path: Path
    cells: pd.DataFrame
    places: Sequence[str]
    index: frozenset[str] = frozenset()

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

    def raise_first(self, wrong: pd.Series[bool], what: Callable[[int], str]) -> None:
        """Raise an error about the first wrong row, if there is one."""
        if wrong.any():
            row = int(np.flatnonzero(wrong.to_numpy())[0])
            raise UndertowError(f"{self.path}, {self.places[row]}: {what(row)}")

    def check_filled(self, *names: str) -> None:
        """Refuse empty cells in these columns."""
        for name in names:
            said = f"{name} is empty; fill it in every row"
            self.raise_first(self.column(name, "-").str.strip() == "", lambda _, said=said: said)  # type: ignore[misc]

    def check_repeats(self, frame: pd.DataFrame, keys: list[str], what: str) -> None:
        """Refuse a row with the same keys as an earlier one."""

        def repeats(row: int) -> str:
            same = (frame[keys] == frame[keys].iloc[row]).all(axis=1)
            return f"repeats the {what} of {self.places[int(np.flatnonzero(same)[0])]}; give each once"

        self.raise_first(frame.duplicated(keys), repeats)

    def check_one_value(self, frame: pd.DataFrame, column: str, *keys: str) -> None:
        """Refuse different values of a column in rows with the same keys; the error names the last key."""
        firsts = frame.groupby(list(keys))[column].transform("first")
        values, names = frame[column].tolist(), frame[keys[-1]].tolist()
        self.raise_first(
            frame[column] != firsts,
            lambda row: (
                f"{column} of {keys[-1]} {names[row]!r} is {values[row]!r}, and was {firsts.tolist()[row]!r} before; keep one"
            ),
        )


def read_recorded(path: Path) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Read a recorded table: observations, names of word groups, and notes."""
    table = read_cells(path)
    table.check_columns(REQUIRED)
    columns = list(table.cells.columns)
    others = [name for name in columns if name not in REQUIRED + OPTIONAL]
    marked = [name for name in others if name in KNOWN_GROUPS or name.startswith(MARK)]
    read = marked or others
    if not read:
        raise UndertowError(f"{path}: has no column of masses; add one for each word group")
    groups = [name.removeprefix(MARK) for name in read]
    twice = find_repeat(groups)
    if twice is not None:
        raise UndertowError(f"{path}: has two columns of the word group {twice!r}; leave one out")
    check_index(table, read)
    check_reserved_names(path, groups)
    frame = _factors(table)
    sources = dict(zip(groups, read, strict=True)) | (
        {"other_words": "other_words"} if "other_words" in columns else {}
    )
    masses = pd.DataFrame({name: mass_column(table, column) for name, column in sources.items()})
    (percents,), unit = to_percent(table, masses)
    check_sums(table, percents[groups])
    frame[groups] = percents[groups]
    # A group without any value does not affect the others; a row without values is missing.
    left = (100 - frame[groups].sum(axis=1, skipna=False)).clip(lower=0)
    frame["other_words"] = percents["other_words"] if "other_words" in columns else left
    said = table.column("missing_reason", "").str.strip()
    said = said.mask(said.isin(NO_VALUE), "")
    empty = frame[groups].isna().all(axis=1).to_numpy()
    frame["missing_reason"] = np.where((said == "") & empty, "the recorded table has no value", said)
    frame.loc[frame["missing_reason"] != "", [*groups, "other_words"]] = np.nan
    notes = [reading_note(groups, unit), *unread_note([name for name in others if name not in read])]
    if not marked:
        notes[0] += f" Every unknown column counts as a word group; to choose them, name their columns {MARK}NAME."
    return frame, groups, notes


def reading_note(groups: Sequence[str], unit: str) -> str:
    """A sentence with the word groups and their unit."""
    units = {PERCENT: "in percent", PROBABILITY: "as probabilities, which were multiplied by 100"}
    return f"Read as word groups, {units[unit]}: {', '.join(groups)}."


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


def check_reserved_names(path: Path, groups: Collection[str]) -> None:
    """Refuse a word group with the name of a column of the observations."""
    with text_files.located(str(path)):
        check_group_names(groups)
    taken = next((name for name in groups if name in RESERVED_COLUMNS | KNOWN_FACTORS or name.endswith(BOUNDS)), None)
    if taken is not None:
        raise UndertowError(
            f"{path}: a word group cannot be called {taken!r}, which results use as a column; rename it"
        )


def read_cells(path: Path) -> Table:
    """Read the cells of a CSV, TSV or Parquet file as text; strips white space in the columns `NAMES`."""
    if not is_plain_file(path):
        raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
    if path.name.endswith(".parquet"):
        table = _read_parquet(path)
    else:
        columns, rows = text_files.read_cells(path, MAX_BYTES)
        cells = pd.DataFrame([row for _, row in rows], columns=columns, dtype=str)
        table = Table(path, cells, [f"line {line}" for line, _ in rows])
    for name in (one for one in NAMES if one in table.cells):
        table.cells[name] = table.cells[name].str.strip()
    return table


def _read_parquet(path: Path) -> Table:
    """Read cells as text, within the size limits.

    Ignores pandas metadata on types, which may be corrupt; uses it only to find index columns.
    """
    import pyarrow as pa

    index: frozenset[str] = frozenset()

    def check(schema: pa.Schema) -> None:
        nonlocal index
        index = _index_of(schema.metadata)
        twice = find_repeat(schema.names)
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
    texts = {name: _as_text(table[name], f"{path}: column {name!r}") for name in names}
    cells = pd.DataFrame(texts, index=pd.RangeIndex(table.num_rows), columns=names, dtype=str)
    read = Table(path, cells, [f"row {number}" for number in range(1, len(cells) + 1)], index)
    for name in names:
        said = f"{name} holds a zero byte; take it out"
        read.raise_first(cells[name].str.contains("\0", regex=False), lambda _, said=said: said)  # type: ignore[misc]
    return read


def _as_text(column: pa.ChunkedArray, place: str) -> list[str]:
    """Cells as Python's `str`; a missing cell is ""."""
    import pyarrow as pa

    texts: dict[object, str] = {None: ""}
    try:
        # Some tools do not mark binary cells as text.
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.large_binary())
        if (
            pa.types.is_binary(column.type)
            or pa.types.is_large_binary(column.type)
            or pa.types.is_binary_view(column.type)
        ):
            column = column.cast(pa.large_string())
        # Convert each distinct value once.
        return [texts.setdefault(cell, "" if cell != cell else str(cell)) for cell in column.to_pylist()]  # noqa: PLR0124 - NaN
    except (
        pa.ArrowException,
        LookupError,
        OverflowError,
        ValueError,
    ) as error:  # a date or time zone that Python does not support
        raise UndertowError(
            f"{place} has values that cannot be converted to text ({first_line(error)}); remove it"
        ) from error


def _index_of(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Index columns in the pandas metadata; empty if the metadata cannot be read."""
    try:
        noted = parse_json((metadata or {})[b"pandas"])["index_columns"]
        return frozenset(name for name in noted if isinstance(name, str))
    except (KeyError, TypeError, ValueError):
        return frozenset()


def _factors(table: Table) -> pd.DataFrame:
    cells = table.cells
    index = pd.to_numeric(cells["w_index"], errors="coerce")
    table.raise_first(
        index.isna() | (index % 1 != 0) | (index.abs() > MAX_INDEX),
        lambda row: f"w_index is {cells['w_index'].iloc[row]!r}; it must be a whole number, the place of w in its list",
    )
    table.check_filled("model", "w_name")
    sentence = next((name for name in ("cluster", "text_index", "text") if name in cells), None)
    frame = pd.DataFrame(
        {
            "model": cells["model"],
            "challenge": table.column("challenge", "recorded"),
            "prompt": table.column("prompt", ""),
            "w_name": cells["w_name"],
            "w_index": index.astype(np.int64),
            "w_value": np.nan,
            "w": cells["w"],
            "cluster": cells[sentence] if sentence else np.arange(len(cells)).astype(str),
        }
    )
    if "text" in cells:
        frame["text"] = cells["text"]
    # Each index must have one W value, else the order of W is unknown.
    table.check_one_value(frame, "w", "w_name", "w_index")
    table.check_one_value(frame, "w_index", "w_name", "w")
    frame["w_value"] = axis_of(frame, _given_axis(table, frame))
    of_cell = ["model", "challenge", "prompt", "w_name", "w_index", "cluster"]
    names = [name for name in ("text_index", "text") if name in cells]
    if sentence == "cluster" and names and frame.duplicated(of_cell).any():
        # A cluster may have several sentences at one W.
        frame["sentence"] = cells[names[0]]
        of_cell.append("sentence")
    if sentence:
        table.check_repeats(frame, of_cell, "sentence and W")
    keys = ["challenge", "model", "prompt", "w_name", "w", *of_cell[5:]]
    frame.insert(0, "item", joined(frame[keys]))
    return frame


def joined(columns: pd.DataFrame) -> list[str]:
    """The cells of each row, joined by slashes."""
    return ["/".join(row) for row in zip(*(columns[name].tolist() for name in columns), strict=True)]


def _given_axis(table: Table, frame: pd.DataFrame) -> pd.Series[float]:
    """The column `w_value`; NaN for W lists without it."""
    text = table.column("w_value", "").str.strip()
    empty = text.isin(NO_VALUE)
    given = pd.to_numeric(text.mask(empty), errors="coerce").astype(np.float64)
    table.raise_first(
        ~empty & ~np.isfinite(given),
        lambda row: f"w_value is {text.iloc[row]!r}; it must be a number, the place of w on its axis",
    )
    firsts = given.groupby([frame["w_name"], frame["w_index"]]).transform("first")
    table.raise_first(
        given.notna().groupby(frame["w_name"]).transform("any") & ~(given == firsts),
        lambda row: (
            f"w_value is {text.iloc[row]!r}, but it must be the same in all rows of {frame['w'].iloc[row]!r}; give each value of "
            f"{frame['w_name'].iloc[row]} one, or leave all of them empty"
        ),
    )
    return given


def mass_column(table: Table, column: str) -> pd.Series[float]:
    """A column of masses in its own unit; NaN for empty cells."""
    text = table.cells[column].str.strip()
    empty = text.isin(NO_VALUE)
    values = pd.to_numeric(text.mask(empty), errors="coerce").astype(np.float64)
    table.raise_first(
        ~empty & ~values.between(0, 100 + ROUNDING_PERCENT),
        lambda row: (
            f"{column.removeprefix(MARK)} is {text.iloc[row]!r}; a mass must be a number from 0 to 100, in percent"
        ),
    )
    return values


def to_percent(table: Table, *ends: pd.DataFrame) -> tuple[list[pd.DataFrame], str]:
    """Masses in percent, and their original unit: from the column `unit`, or inferred from the row sums.

    Raises:
        UndertowError: the unit is unknown, differs between rows, or cannot be inferred.
    """
    if "unit" in table.cells.columns:
        text = table.cells["unit"].str.strip()
        table.raise_first(
            ~text.isin((PERCENT, PROBABILITY)) | (text != text.iloc[0]),
            lambda row: f"unit is {text.iloc[row]!r}; write {PERCENT} or {PROBABILITY}, the same in every row",
        )
        unit = str(text.iloc[0])
        for column in (masses[name] for masses in ends if unit == PROBABILITY for name in masses):
            wrong = column > 1 + ROUNDING_PROB
            if wrong.any():
                first = int(np.flatnonzero(wrong.to_numpy())[0])
                raise UndertowError(
                    f"{table.path}, {table.places[first]}: {column.name} is {column.iloc[first]:g}; a {PROBABILITY} is a number from 0 to 1"
                )
    else:
        largest = max(float(masses.sum(axis=1).max()) for masses in ends)
        unit = PROBABILITY if MIN_PROB <= largest <= 1 + ROUNDING_PROB else PERCENT
        if 0 < largest < MIN_PROB:
            raise UndertowError(
                f"{table.path}: no row has masses of more than {largest:.2g} in all, which may be percents or probabilities; add a "
                f"column unit that says {PERCENT} or {PROBABILITY}"
            )
        if unit == PERCENT:
            for masses in ends:
                _check_one_unit(table, masses)
    return [masses * 100 if unit == PROBABILITY else masses for masses in ends], unit


def _check_one_unit(table: Table, masses: pd.DataFrame) -> None:
    """Refuse percents if a model, some rows or a column may be probabilities."""
    sums = masses.sum(axis=1)
    is_small = sums.between(MIN_PROB, 1 + ROUNDING_PROB)
    of_model = sums.groupby(table.column("model", "")).transform("max").between(MIN_PROB, 1 + ROUNDING_PROB)
    is_apart = is_small & (float(sums[sums > 1 + ROUNDING_PROB].min()) >= LEAST_GAP)
    advice = f"bring all to one unit, or add a column unit that says {PERCENT}"
    table.raise_first(
        (sums > 1 + ROUNDING_PROB) & (is_small.mean() > MOST),
        lambda row: (
            f"the masses of {', '.join(masses.columns)} add up to {sums.iloc[row]:.3g}, and those of most rows to at most 1, as "
            f"probabilities do; correct this row, or add a column unit that says {PERCENT}"
        ),
    )
    table.raise_first(
        is_apart | (is_small & of_model),
        lambda row: (
            f"the masses of {', '.join(masses.columns)} add up to {sums.iloc[row]:.2g}, as probabilities do, and those of other rows to "
            f"percents of up to {sums.max():.3g}; {advice}"
        ),
    )


def check_sums(table: Table, masses: pd.DataFrame) -> None:
    """Refuse masses that add up to more than 100 percent."""
    sums = masses.sum(axis=1)
    table.raise_first(
        sums > 100 + ROUNDING_PERCENT,
        lambda row: (
            f"the masses of {', '.join(masses.columns)} add up to {sums.iloc[row]:.1f} percent; they are parts of 100"
        ),
    )
