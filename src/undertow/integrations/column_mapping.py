"""Read tables whose columns have other names, with a TOML file that maps them.

    unit = "probability"                 percent, probability or logprob (nats); if left out, percent or probability is inferred
    [columns]                            our name = name in the table
    w = "year"
    [groups]                             word group = column of its mass
    female = "p_she"
    [constants]                          our name = value in every row
    model = "gpt-x"

With our column names, the table is read like other recorded tables.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from undertow._schemas import Schema, Text, check
from undertow.audits.base import Audit, Observations
from undertow.data.templates.covariates import dates_of
from undertow.data.text_files import number_between, read_toml
from undertow.errors import UndertowError, closest, shorten_list

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.recorded_tables import Table

PERCENT, PROBABILITY, LOGPROB = "percent", "probability", "logprob"
UNITS = (PERCENT, PROBABILITY, LOGPROB)
ROUNDING_PROB = 6e-3
"""Tolerance for rounded probabilities above 1."""


def _level(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be text or a number")
    return str(value)


def _columns(value: object) -> object:
    columns = tuple(value) if isinstance(value, list) else (value,)
    if not all(isinstance(one, str) and one for one in columns) or (isinstance(value, list) and len(columns) != 2):
        raise ValueError("must be the name of a column, or two: at the first W value and at the last")
    return columns


def _unit(value: object) -> object:
    if value not in UNITS:
        near = closest(value, UNITS) if isinstance(value, str) else ""
        raise ValueError(f"is {value!r}; use {', '.join(UNITS)}{near}")
    return value


class Names(Schema):
    """A column mapping.

    Attributes:
        unit: of the masses; "" to infer percent or probability.
        columns: column of the table for each of our columns.
        groups: columns of the table for each word group: one, or one at the first W value and one at the last.
        constants: columns with one value in every row.
    """

    unit: Annotated[str, BeforeValidator(_unit)] = ""
    columns: dict[str, Text] = Field(default_factory=dict)
    groups: dict[str, Annotated[tuple[str, ...], BeforeValidator(_columns)]] = Field(default_factory=dict)
    constants: dict[str, Annotated[str, BeforeValidator(_level)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Names:
        if both := [name for name in self.columns if name in self.constants]:
            raise ValueError(f"{both[0]!r} is a column and a constant; remove one")
        if len({len(columns) for columns in self.groups.values()}) > 1:
            raise ValueError("some groups have one column and others two; give each the same")
        if self.unit in (PROBABILITY, LOGPROB) and not self.groups:
            raise ValueError(f"unit is {self.unit}, but no column of masses is named; name them in [groups]")
        return self

    @property
    def at_ends(self) -> bool:
        """Whether each word group has a column for both ends of W."""
        return any(len(columns) > 1 for columns in self.groups.values())


def read_mapped(path: Path, mapping: Path, audit: Audit, protocol: str) -> tuple[Observations, str, str]:
    """Read a recorded table through a column mapping: the observations, their protocol, and the SHA-256 of the mapping.

    Raises:
        UndertowError: the mapping is invalid, a column is missing, or the audit cannot read a cell; names file, key and line.
    """
    from undertow.audits.recorded_tables import read_cells

    names = check(Names, read_toml(mapping), str(mapping))
    table = read_cells(path)
    notes = (
        ["The masses of the table are log-probabilities (nats), which were converted to probabilities first."]
        if names.unit == LOGPROB
        else []
    )
    renamed = _renamed(table, names, mapping, notes)
    try:
        observations, recorded = audit.load_recorded(replace(table, cells=renamed, notes=tuple(notes)), protocol)
    except UndertowError as error:
        unit = f', or write unit = "{PERCENT}" or "{PROBABILITY}" in it' if "add a column unit" in str(error) else ""
        raise UndertowError(f"{error} (columns as in {mapping}{unit})") from error
    return observations, recorded, hashlib.sha256(mapping.read_bytes()).hexdigest()


def _renamed(table: Table, names: Names, mapping: Path, notes: list[str]) -> pd.DataFrame:
    """Cells by our column names; without word groups, also the table's other columns. Adds notes on the order of W."""
    import pandas as pd

    from undertow.audits.recorded_masses import OPTIONAL, REQUIRED
    from undertow.audits.recorded_tables import GROUP_MARK, check_index

    own, cells = (*REQUIRED, *OPTIONAL), table.cells.astype(str).map(lambda cell: " ".join(cell.splitlines()))
    given = list(map(str, cells))
    _check_names(names, given, own, mapping)
    sources = {*names.columns.values(), *(column for columns in names.groups.values() for column in columns)}
    kept = [
        name
        for name in given
        if name not in sources and (not names.groups or name in own) and name not in names.constants
    ]
    if not names.groups:
        # The rewritten table has no index columns.
        check_index(table, [name for name in kept if name not in own and not name.startswith(("w_first_", "w_last_"))])
    mapped = cells[kept].assign(**{name: cells[column] for name, column in names.columns.items()})
    if "other_words" in mapped and names.groups:
        mapped["other_words"] = _masses(table, names.columns.get("other_words", "other_words"), names.unit, mapping)
    unit = PROBABILITY if names.unit == LOGPROB else names.unit
    mapped = mapped.assign(**names.constants | ({"unit": unit} if unit and names.groups else {}))
    for group, columns in names.groups.items():
        called = [f"w_first_{group}", f"w_last_{group}"] if len(columns) > 1 else [f"{GROUP_MARK}{group}"]
        for name, column in zip(called, columns, strict=True):
            mapped[name] = _masses(table, column, names.unit, mapping)
    if not names.groups or names.at_ends:
        return mapped
    if "w" in mapped and "w_name" not in mapped:
        mapped["w_name"] = names.columns.get("w", "w")
    if "w" in mapped and "w_index" not in mapped:
        index = pd.Series("", index=mapped.index)
        for w_name, values in mapped.groupby("w_name", sort=False)["w"]:
            distinct = list(dict.fromkeys(values))
            positions = _positions(distinct)
            if not positions:
                notes.append(
                    f"The values of {w_name} are neither numbers nor ISO dates, so their order is that of their first rows; "
                    "give w_index for another order."
                )
            at = np.argsort(np.argsort(positions or range(len(distinct)), kind="stable"))
            index[values.index] = values.map(dict(zip(distinct, at, strict=True))).astype(str)
        mapped["w_index"] = index
    # W comes first: its name and positions follow from it.
    for name in sorted(REQUIRED, key="w".__ne__):
        if name not in mapped:
            raise UndertowError(
                f"{mapping}: {name!r} is missing; name its column in [columns] (the table has {shorten_list(given, 12)}"
                f"{closest(name, given)}), or its value in [constants]"
            )
    return mapped


def _check_names(names: Names, columns: Sequence[str], own: Sequence[str], mapping: Path) -> None:
    keys = {f"columns.{name}": column for name, column in names.columns.items()}
    keys |= {f"groups.{name}": column for name, of_group in names.groups.items() for column in of_group[:1]}
    keys |= {f"groups.{name} (last)": of_group[1] for name, of_group in names.groups.items() if of_group[1:]}
    for key, column in keys.items():
        if column not in columns:
            raise UndertowError(
                f"{mapping}: {key} is {column!r}, but the table has no such column; it has {shorten_list(columns, 12)}"
                f"{closest(column, columns)}"
            )
    for group in names.groups:
        if group in own:
            raise UndertowError(
                f"{mapping}: a word group cannot have the name of the column {group!r}; choose another name"
            )
    strange = [f"columns.{name}" for name in names.columns if name not in own]
    strange += [f"constants.{name}" for name in names.constants if name not in own]
    if strange and names.groups and not names.at_ends:
        near = closest(strange[0].partition(".")[2], own)
        raise UndertowError(f"{mapping}: {strange[0]} is not a known column; use {', '.join(own)}{near}")


def _positions(values: Sequence[str]) -> tuple[float, ...]:
    """The values as numbers or days [w]; () if they are not all finite numbers or ISO dates."""
    try:
        numbers = tuple(map(float, values))
    except ValueError:
        return dates_of(values)
    return numbers if all(map(math.isfinite, numbers)) else ()


def _masses(table: Table, column: str, unit: str, mapping: Path) -> list[str]:
    """A column of masses, log-probabilities as probabilities; empty cells stay empty."""
    from undertow.audits.recorded_tables import NO_VALUE, hint_on_number

    def to_mass(cell: str, place: str) -> str:
        value = number_between(-math.inf, math.inf, cell)
        prob = value if unit == PROBABILITY else math.exp(min(value, 1.0))
        if not 0 <= prob <= 1 + ROUNDING_PROB:
            what = "a probability is a number from 0 to 1"
            what = what if unit == PROBABILITY else "a log-probability is a number up to 0, in nats"
            hint = f'; write unit = "{PERCENT}"' if cell.endswith("%") else hint_on_number(cell)
            raise UndertowError(f"{table.path}, {place}: {column} is {cell!r}; {what} (unit in {mapping}){hint}")
        return cell if unit == PROBABILITY else f"{prob:.12g}"

    cells = [str(cell).strip() for cell in table.cells[column]]
    if unit not in (PROBABILITY, LOGPROB):
        return cells
    return [cell if cell in NO_VALUE else to_mass(cell, at) for cell, at in zip(cells, table.places, strict=True)]
