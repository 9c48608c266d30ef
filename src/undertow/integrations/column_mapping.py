"""Read tables whose columns have other names, with a TOML file that maps them.

    unit = "probability"                 percent (if it is left out), probability, or logprob
    [columns]                            our name = the table's
    w = "year"
    [groups]                             word group = the column of its mass
    female = "p_she"
    [constants]                          our name = what it is in every row
    model = "gpt-x"

The table is rewritten with our column names, each row on its old line, and then read like any other recorded table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Audit, Observations
from undertow.data.text_files import closest, read_toml
from undertow.errors import UndertowError

if TYPE_CHECKING:
    from undertow.audits.recorded_tables import Table

PERCENT, PROBABILITY, LOGPROB = "percent", "probability", "logprob"
UNITS = (PERCENT, PROBABILITY, LOGPROB)
PARTS = ("unit", "columns", "groups", "constants")
WRITTEN = "mapped.csv"
ROUNDING_PROB = 6e-3
"""Probabilities are rounded, so one may come out a little above 1."""
_LINE = re.compile(r"\bline (\d+)")


@dataclass(frozen=True, slots=True)
class Names:
    """A column mapping.

    Attributes:
        columns: the table's column for each of our columns.
        groups: the table's columns of each word group: one, or one at the first W value and one at the last.
        constants: columns with one value in every row.
    """

    path: Path
    columns: Mapping[str, str]
    groups: Mapping[str, Sequence[str]]
    constants: Mapping[str, str]
    unit: str
    sha256: str

    @property
    def at_ends(self) -> bool:
        """Whether each word group has a column for either end of W."""
        return any(len(columns) > 1 for columns in self.groups.values())


def read_names(path: Path) -> Names:
    """Read a mapping file.

    Raises:
        UndertowError: the file is not a valid mapping; names the key.
    """
    said = read_toml(path)
    for name in said:
        if name not in PARTS:
            raise UndertowError(f"{path}: {name!r} is not known; use {', '.join(PARTS)}{closest(name, PARTS)}")
    unit = said.get("unit", PERCENT)
    if unit not in UNITS:
        near = closest(unit, UNITS) if isinstance(unit, str) else ""
        raise UndertowError(f"{path}: unit is {unit!r}; use {', '.join(UNITS)}{near}")
    names = Names(
        path=path,
        columns={name: _text(path, f"columns.{name}", value) for name, value in _table(path, said, "columns").items()},
        groups={name: _columns(path, f"groups.{name}", value) for name, value in _table(path, said, "groups").items()},
        constants={
            name: _level(path, f"constants.{name}", value) for name, value in _table(path, said, "constants").items()
        },
        unit=unit,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    both = [name for name in names.columns if name in names.constants]
    if both:
        raise UndertowError(f"{path}: {both[0]!r} is a column and a constant; leave one out")
    if len({len(columns) for columns in names.groups.values()}) > 1:
        raise UndertowError(f"{path}: some groups have one column and others two; give each the same")
    if unit != PERCENT and not names.groups:
        raise UndertowError(f"{path}: unit is {unit}, but no column of masses is named; write them in [groups]")
    return names


def read_mapped(path: Path, names: Names, audit: Audit, protocol: str) -> tuple[Observations, str]:
    """Read a recorded table through a column mapping; returns the observations and their protocol.

    Args:
        path: the table.
        names: the mapping.
        audit: the audit that reads it.
        protocol: as in the audit's `load_recorded`.

    Raises:
        UndertowError: a column is missing, or the audit cannot read a cell; names file, key and line.
    """
    from undertow.audits.recorded_tables import read_cells

    table = read_cells(path)
    by_line = all(place.startswith("line ") for place in table.places)
    written = _written(table, _renamed(table, names))
    with tempfile.TemporaryDirectory(prefix="undertow-") as folder:
        place = Path(folder) / WRITTEN
        place.write_text(written, encoding="utf-8", newline="")
        try:
            observations, recorded = audit.load_recorded(place, protocol)
        except UndertowError as error:
            said = str(error).replace(str(place), str(path))
            # Of Parquet, rows are counted, and its first row is on the second line of what was written.
            message = said if by_line else _LINE.sub(lambda match: f"row {int(match[1]) - 1}", said)
            raise UndertowError(f"{message} (columns as in {names.path})") from error
    design = {
        name: value.replace(WRITTEN, path.name) if isinstance(value, str) else value
        for name, value in observations.design.items()
    }
    return replace(observations, design=design), recorded


def _table(path: Path, said: Mapping[str, Any], part: str) -> dict[str, Any]:
    table = said.get(part, {})
    if not isinstance(table, dict):
        raise UndertowError(f"{path}: {part} must be a table, as in [{part}]")
    return table


def _text(path: Path, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UndertowError(f"{path}: {key} is {value!r}; it must be the name of a column")
    return value


def _level(path: Path, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UndertowError(f"{path}: {key} is {value!r}; it must be text or a number")
    return str(value)


def _columns(path: Path, key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        if len(value) != 2:
            raise UndertowError(
                f"{path}: {key} has {len(value)} columns; a word group has one, or two: at the first W value and at the last"
            )
        return tuple(_text(path, key, one) for one in value)
    return (_text(path, key, value),)


def _renamed(table: Table, names: Names) -> dict[str, list[str]]:
    """Cells by our column names; without word groups, with the table's other columns too."""
    from undertow.audits.recorded_tables import MARK, OPTIONAL, REQUIRED, check_index

    own = (*REQUIRED, *OPTIONAL)
    cells = {name: list(map(str, table.cells[name])) for name in table.cells.columns}
    _check_names(names, list(cells), own)
    sources = {*names.columns.values(), *(column for columns in names.groups.values() for column in columns)}
    kept = {
        name: column
        for name, column in cells.items()
        if name not in sources and (not names.groups or name in own) and name not in names.constants
    }
    if not names.groups:
        # What is written again no longer says which columns were the names of rows.
        check_index(table, [name for name in kept if name not in own and not name.startswith(("w_first_", "w_last_"))])
    mapped = kept | {name: cells[column] for name, column in names.columns.items()}
    if "other_words" in mapped and names.groups:
        mapped["other_words"] = _percents(table, names.columns.get("other_words", "other_words"), names)
    mapped |= {name: [value] * len(table.places) for name, value in names.constants.items()}
    for group, columns in names.groups.items():
        called = [f"w_first_{group}", f"w_last_{group}"] if len(columns) > 1 else [f"{MARK}{group}"]
        for name, column in zip(called, columns, strict=True):
            mapped[name] = _percents(table, column, names)
    if names.groups:
        mapped["unit"] = [PERCENT] * len(table.places)
    if names.groups and not names.at_ends:
        _add_w(mapped, names)
        _check_needed(mapped, names, list(cells), REQUIRED)
    return mapped


def _check_names(names: Names, columns: Sequence[str], own: Sequence[str]) -> None:
    """Refuse columns that the table lacks, and ambiguous names."""
    keys = {f"columns.{name}": column for name, column in names.columns.items()}
    keys |= {f"groups.{name}": column for name, of_group in names.groups.items() for column in of_group[:1]}
    keys |= {f"groups.{name} (last)": of_group[1] for name, of_group in names.groups.items() if of_group[1:]}
    for key, column in keys.items():
        if column not in columns:
            raise UndertowError(
                f"{names.path}: {key} is {column!r}, but the table has no such column; it has {_some(columns)}{closest(column, columns)}"
            )
    for group in names.groups:
        if group in own:
            raise UndertowError(
                f"{names.path}: a word group cannot be called {group!r}, as a column is; choose another name"
            )
    if names.groups and not names.at_ends:
        for part, given in (("columns", names.columns), ("constants", names.constants)):
            for name in given:
                if name not in own:
                    raise UndertowError(
                        f"{names.path}: {part}.{name} is no column of ours; use {', '.join(own)}{closest(name, own)}"
                    )


def _some(columns: Sequence[str]) -> str:
    listed = ", ".join(columns[:12])
    return f"{listed} and {len(columns) - 12} more" if len(columns) > 12 else listed


def _add_w(mapped: dict[str, list[str]], names: Names) -> None:
    """Add `w_name` and `w_index` where the table has none."""
    if "w" not in mapped:
        return
    if "w_name" not in mapped:
        mapped["w_name"] = [names.columns.get("w", "w")] * len(mapped["w"])
    if "w_index" not in mapped:
        lists: dict[str, list[str]] = {}
        for name, value in zip(mapped["w_name"], mapped["w"], strict=True):
            lists.setdefault(name, []).append(value)
        places = {name: {value: at for at, value in enumerate(_ordered(values))} for name, values in lists.items()}
        mapped["w_index"] = [
            str(places[name][value]) for name, value in zip(mapped["w_name"], mapped["w"], strict=True)
        ]


def _ordered(values: Sequence[str]) -> list[str]:
    """Distinct values: by size where all are numbers, else in order of appearance."""
    distinct = list(dict.fromkeys(values))
    try:
        numbers = {value: float(value) for value in distinct}
    except ValueError:
        return distinct
    return sorted(distinct, key=numbers.__getitem__) if all(map(math.isfinite, numbers.values())) else distinct


def _check_needed(mapped: Mapping[str, Any], names: Names, columns: Sequence[str], needed: Sequence[str]) -> None:
    # W comes first: its name and its places follow from it.
    for name in sorted(needed, key="w".__ne__):
        if name not in mapped:
            raise UndertowError(
                f"{names.path}: nothing says {name!r}; name its column in [columns] (the table has {_some(columns)}"
                f"{closest(name, columns)}), or what it is in every row in [constants]"
            )


def _percents(table: Table, column: str, names: Names) -> list[str]:
    """A column of masses in percent; empty cells stay empty."""
    from undertow.audits.recorded_tables import NO_VALUE

    cells = [str(cell).strip() for cell in table.cells[column]]
    if names.unit == PERCENT:
        return cells
    return [
        cell if cell in NO_VALUE else _percent(cell, f"{table.path}, {place}: {column}", names)
        for cell, place in zip(cells, table.places, strict=True)
    ]


def _percent(cell: str, where: str, names: Names) -> str:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if names.unit == PROBABILITY:
        if not 0 <= value <= 1 + ROUNDING_PROB:
            raise UndertowError(f"{where} is {cell!r}; a probability is a number from 0 to 1 (unit in {names.path})")
        return f"{100 * value:.12g}"
    if not value <= ROUNDING_PROB:
        raise UndertowError(
            f"{where} is {cell!r}; a log-probability is a number up to 0, in nats (unit in {names.path})"
        )
    return f"{100 * math.exp(value):.12g}"


def _written(table: Table, columns: Mapping[str, Sequence[str]]) -> str:
    """CSV with each row on the line where it ended before, so that errors name the right line."""
    lines = [_line(list(columns))]
    for row, place in enumerate(table.places):
        number = place.removeprefix("line ")
        at = int(number) if number.isdigit() else row + 2
        lines += [""] * (at - 1 - len(lines))
        lines.append(_line([" ".join(cells[row].splitlines()) for cells in columns.values()]))
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
