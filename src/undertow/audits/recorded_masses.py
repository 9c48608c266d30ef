"""Recorded tables of word-group masses.

Required: model, w_name, w_index, w, and one numeric column for each word group, in percent or as probabilities. Word groups are
the columns female, male, neutral and `group:NAME`; without any of these, every unknown column.

Optional: unit (percent or probability; by default inferred from row sums), prompt, challenge, text, cluster or text_index (rows with
the same value are one sentence at different W; with both, a cluster may have several sentences, identified by text_index or text),
and w_value (position of W on its axis; by default w if it is a number, else w_index).

A row with empty masses is missing; a row of zeros is a measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from undertow.audits.recorded_tables import GROUP_MARK, NO_VALUE, Table, check_index, read_cells, row_keys, unread_note
from undertow.data import text_files
from undertow.data.sentences.sentence_set import BOUNDS, KNOWN_FACTORS, check_group_names
from undertow.data.templates.covariates import (
    BY_DATE,
    INDEX,
    VALUE,
    Covariate,
    dates_of,
    direction,
    evenly_spaced,
    numbers_of,
    order_by_size,
    published_order,
    uneven_steps,
)
from undertow.data.text_files import first_repeat
from undertow.errors import UndertowError
from undertow.types import RESERVED_COLUMNS

if TYPE_CHECKING:
    from undertow.types import Floats

REQUIRED = ("model", "w_name", "w_index", "w")
OPTIONAL = (
    "prompt", "challenge", "text", "cluster", "text_index", "item", "other_words", "missing_reason", "w_value", "unit",
)  # fmt: skip
KNOWN_GROUPS = ("female", "male", "neutral")
PERCENT, PROBABILITY = "percent", "probability"
MOST = 0.5
"""A share of the rows beyond which they say what the unit is."""
ROUNDING_PROB = 6e-3
"""Tolerance of row sums of rounded probabilities."""
MIN_PROB = 0.5
"""Largest row sum from which a table (with sums up to 1) holds probabilities; percents are rarely so small."""
LEAST_GAP = 20
"""Rows with sums of 0.5 to 1 are in another unit if all other sums are at least this factor larger."""
NEAR_ALL = 90
"""A column of values up to 1 may hold probabilities if, as such, some row adds up to at least this percentage."""
ROUNDING = 1e-9
"""Percent below which a remainder is a rounding error."""
ROUNDING_PERCENT = 0.6
"""Published masses are rounded to a tenth, so three of them may add up to a little more than 100."""
MAX_INDEX = 10**9


def covariates_of(frame: pd.DataFrame) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Entry of each W list in the design, like `undertow.data.Covariate.design_entry`, and notes on the lists.

    The frame has `w_name`, `w_index`, `w_value` and `w` [row].
    """
    covariates, notes = {}, []
    for name, rows in frame.groupby("w_name", sort=False):
        values, _, numbers, is_even = _list_values(rows)
        scale = INDEX if (rows["w_value"] == rows["w_index"]).all() else VALUE
        if scale == VALUE:
            order = order_by_size(str(name), 1) if numbers else "w_value, smallest first"
        else:
            way = direction(numbers) if numbers else 0
            order = order_by_size(str(name), way) if way else published_order(str(name), values)
            dates = dates_of(values)
            order = BY_DATE if dates and direction(dates) > 0 else order
        uneven = bool(numbers) and not is_even
        covariate = Covariate(str(name), tuple(values), order, scale, numbers)
        covariates[str(name)] = {**covariate.design_entry(), "uneven": uneven}
        if uneven and scale == INDEX:
            notes.append(uneven_steps(str(name), numbers))
    return covariates, notes


def _list_values(rows: pd.DataFrame) -> tuple[list[str], list[int], tuple[float, ...], bool]:
    """Values of a list, their indices, their numbers, and whether these are evenly spaced."""
    distinct = rows.drop_duplicates("w_index").sort_values("w_index")
    values, places = distinct["w"].astype(str).tolist(), distinct["w_index"].tolist()
    numbers = numbers_of(values)
    is_even = bool(numbers and direction(numbers)) and evenly_spaced(values, places)
    return values, places, numbers, is_even


def read_recorded(path: Path | Table) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Read a recorded table: observations, names of word groups, and notes."""
    table = read_cells(path)
    table.check_columns(REQUIRED)
    columns = list(table.cells.columns)
    others = [name for name in columns if name not in REQUIRED + OPTIONAL]
    marked = [name for name in others if name in KNOWN_GROUPS or name.startswith(GROUP_MARK)]
    read = marked or others
    if not read:
        raise UndertowError(f"{path}: has no column of masses; add one for each word group")
    groups = [name.removeprefix(GROUP_MARK) for name in read]
    twice = first_repeat(groups)
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
    check_sums(table, percents)
    frame[groups] = percents[groups]
    reasons = table.column("missing_reason", "").str.strip()
    reasons = reasons.mask(reasons.isin(NO_VALUE), "")
    empty = frame[groups].isna().all(axis=1).to_numpy()
    frame["missing_reason"] = np.where((reasons == "") & empty, "the recorded table has no value", reasons)
    # A group without any value does not affect the others; a row without values is missing.
    left = (100 - frame[groups].sum(axis=1, skipna=False)).clip(lower=0)
    # Groups of a model that always add up to 100 may be shares of the listed words, which say nothing about others.
    is_part = left.where(frame["missing_reason"] == "").groupby(frame["model"]).transform("max") > ROUNDING_PERCENT
    left = left.mask(left < ROUNDING, 0.0).where(is_part)
    frame["other_words"] = percents["other_words"] if "other_words" in columns else left
    frame.loc[frame["missing_reason"] != "", [*groups, "other_words"]] = np.nan
    notes = [reading_note(groups, unit), *table.notes, *unread_note([name for name in others if name not in read])]
    if not marked:
        notes[0] += (
            f" Every unknown column counts as a word group; to choose them, name their columns {GROUP_MARK}NAME."
        )
    return frame, groups, notes


def reading_note(groups: Sequence[str], unit: str) -> str:
    """A sentence with the word groups and their unit."""
    units = {PERCENT: "in percent", PROBABILITY: "as probabilities, which were multiplied by 100"}
    return f"Read as word groups, {units[unit]}: {', '.join(groups)}."


def check_reserved_names(path: Path | Table, groups: Collection[str]) -> None:
    """Refuse a word group with the name of a column of the observations."""
    with text_files.error_place(str(path)):
        check_group_names(groups)
    taken = next((name for name in groups if name in RESERVED_COLUMNS | KNOWN_FACTORS or name.endswith(BOUNDS)), None)
    if taken is not None:
        raise UndertowError(
            f"{path}: a word group cannot be called {taken!r}, which results use as a column; rename it"
        )


def _factors(table: Table) -> pd.DataFrame:
    cells = table.cells
    index = pd.to_numeric(cells["w_index"], errors="coerce")
    wrong = index.isna() | (index % 1 != 0) | (index.abs() > MAX_INDEX)
    table.refuse(wrong, "w_index is {!r}; it must be a whole number, the place of w in its list", cells["w_index"])
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
    frame["w_value"] = _axis(table, frame)
    of_cell = ["model", "challenge", "prompt", "w_name", "w_index", "cluster"]
    names = [name for name in ("text_index", "text") if name in cells]
    if sentence == "cluster" and names and frame.duplicated(of_cell).any():
        # A cluster may have several sentences at one W.
        frame["sentence"] = cells[names[0]]
        of_cell.append("sentence")
    if sentence:
        table.check_repeats(frame, of_cell, "sentence and W")
    keys = ["challenge", "model", "prompt", "w_name", "w", *of_cell[5:]]
    frame.insert(0, "item", row_keys(frame[keys]))
    return frame


def _axis(table: Table, frame: pd.DataFrame) -> Floats:
    """Position of each row's W value on its axis [row]: the column `w_value`, else its number, else its index in the list.

    Evenly spaced numbers in a list called `date` have their indices, as in the built-in list.
    """
    largest = sys.float_info.max
    given = table.numbers("w_value", "{} is {!r}; it must be a number, the place of w on its axis", -largest, largest)
    firsts = given.groupby([frame["w_name"], frame["w_index"]]).transform("first")
    table.refuse(
        given.notna().groupby(frame["w_name"]).transform("any") & ~(given == firsts),
        "w_value is {!r}, but it must be the same in all rows of {!r}; give each value of {} one, or leave all of them empty",
        *(table.column("w_value", "").str.strip(), frame["w"], frame["w_name"]),
    )
    axis: Floats = np.array(given, dtype=np.float64)
    for name, rows in frame.groupby("w_name", sort=False):
        at = frame.index.get_indexer(rows.index)
        if np.isnan(axis[at]).all():
            _, places, numbers, is_even = _list_values(rows)
            by_index = not numbers or (name == "date" and is_even)
            place_of = dict(zip(places, places if by_index else numbers, strict=True))
            axis[at] = rows["w_index"].map(place_of).to_numpy(dtype=np.float64)
    return axis


def mass_column(table: Table, column: str) -> pd.Series[float]:
    """A column of masses in its own unit; NaN for empty cells."""
    message = "{} is {!r}; a mass must be a number from 0 to 100, in percent"
    return table.numbers(column, message, 0, 100 + ROUNDING_PERCENT)


def to_percent(table: Table, *ends: pd.DataFrame) -> tuple[list[pd.DataFrame], str]:
    """Masses in percent, and their original unit: from the column `unit`, or inferred from the row sums.

    Raises:
        UndertowError: the unit is unknown, differs between rows, or cannot be inferred.
    """
    if "unit" in table.cells.columns:
        text = table.cells["unit"].str.strip()
        wrong = ~text.isin((PERCENT, PROBABILITY)) | (text != text.iloc[0])
        table.refuse(wrong, "unit is {!r}; write {} or {}, the same in every row", text, PERCENT, PROBABILITY)
        unit = str(text.iloc[0])
        for column in (masses[name] for masses in ends if unit == PROBABILITY for name in masses):
            message = "{} is {:g}; a {} is a number from 0 to 1"
            table.refuse(column > 1 + ROUNDING_PROB, message, column.name, column, PROBABILITY)
    else:
        largest = max(float(masses.sum(axis=1).max()) for masses in ends)
        unit = PROBABILITY if MIN_PROB <= largest <= 1 + ROUNDING_PROB else PERCENT
        if 0 < largest < MIN_PROB:
            raise UndertowError(
                f"{table.path}: no row has masses of more than {largest:.2g} in all, which may be percents or probabilities; add a "
                f"column unit that says {PERCENT} or {PROBABILITY}"
            )
        if unit == PERCENT and max(float(np.nan_to_num(masses.to_numpy()).max()) for masses in ends) <= 1 < largest:
            raise UndertowError(
                f"{table.path}: no mass is above 1, and those of a row add up to {largest:.3g}; add a column unit that says {PERCENT} "
                "if they are percents, or correct the row"
            )
        if unit == PERCENT:
            for masses in ends:
                _check_one_unit(table, masses)
                _check_columns(table, masses)
    return [masses * 100 if unit == PROBABILITY else masses for masses in ends], unit


def _check_one_unit(table: Table, masses: pd.DataFrame) -> None:
    """Refuse percents if a model, some rows or a column may be probabilities."""
    sums = masses.sum(axis=1)
    is_small = sums.between(MIN_PROB, 1 + ROUNDING_PROB)
    of_model = sums.groupby(table.column("model", "")).transform("max").between(MIN_PROB, 1 + ROUNDING_PROB)
    is_apart = is_small & (float(sums[sums > 1 + ROUNDING_PROB].min()) >= LEAST_GAP)
    advice = f"bring all to one unit, or add a column unit that says {PERCENT}"
    names = ", ".join(masses.columns)
    table.refuse(
        (sums > 1 + ROUNDING_PROB) & (is_small.mean() > MOST),
        "the masses of {} add up to {:.3g}, and those of most rows to at most 1, as probabilities do; correct this row, or add a column "
        "unit that says {}",
        *(names, sums, PERCENT),
    )
    table.refuse(
        is_apart | (is_small & of_model),
        "the masses of {} add up to {:.2g}, as probabilities do, and those of other rows to percents of up to {:.3g}; {}",
        *(names, sums, sums.max(), advice),
    )


def _check_columns(table: Table, masses: pd.DataFrame) -> None:
    """Refuse a column of values up to 1 beside percents if, as probabilities, all rows add up to at most 100 and nothing speaks against it.

    Evidence for probabilities: values of 0.5 to 1 beside sums of 20 or more, which add up to 90 or more after the conversion, or sums that
    are half as uneven after it.
    """
    sums = masses.sum(axis=1, min_count=1)
    for name, column in masses.items():
        largest, scaled = column.max(), sums + 99 * column.fillna(0)
        others = (sums - column.fillna(0))[column.notna()]
        if not 0 < largest <= 1 + ROUNDING_PROB or scaled.max() > 100 + ROUNDING_PERCENT:
            continue
        is_apart = largest >= MIN_PROB and others.min() >= LEAST_GAP and scaled.max() >= NEAR_ALL
        is_even = len(sums) > 2 and sums.std() > ROUNDING_PERCENT and scaled.std() <= sums.std() / 2
        if is_apart or is_even:
            raise UndertowError(
                f"{table.path}: the masses of {name} are at most {largest:.2g}, as probabilities are, and those of the other word groups "
                f"are percents; bring all to one unit, or add a column unit that says {PERCENT}"
            )


def check_sums(table: Table, masses: pd.DataFrame) -> None:
    """Refuse masses that add up to more than 100 percent."""
    sums = masses.sum(axis=1)
    message = "the masses of {} add up to {:.1f} percent; they are parts of 100"
    if "other_words" in masses:
        message += " (leave other_words out if the others are shares of the listed words)"
    table.refuse(sums > 100 + ROUNDING_PERCENT, message, ", ".join(masses.columns), sums)
