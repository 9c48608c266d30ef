"""Recorded tables of word-group masses, as published with the papers or written by anyone.

Knows the columns; knows nothing about who recorded them. Needed: model, w_name, w_index, w, and one numeric column for
each word group, in percent. Optional: prompt, challenge, text, and cluster or text_index, which says which rows are
the same sentence at another W. A row whose masses are empty is unscored; a row of zeros is a measurement.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from undertow.types import UndertowError

NEEDED = ("model", "w_name", "w_index", "w")
OPTIONAL = ("prompt", "challenge", "text", "cluster", "text_index", "item", "unclaimed", "unscored")
ROUNDING_PERCENT = 0.6
"""Published masses are rounded to a tenth, so three of them may add up to a little more than 100."""


def read_recorded(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The table with every column that the measures expect, and the names of its word groups.

    Raises:
        UndertowError: the file cannot be read, or a column or value is not what it must be; names column and line.
    """
    table = _read(path)
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise UndertowError(
            f"{path}: has no column {missing[0]!r}; a recorded table needs {', '.join(NEEDED)} and a column of percent for each word group"
        )
    if table.empty:
        raise UndertowError(f"{path}: holds no rows; there is nothing to measure")
    groups = [str(name) for name in table.columns if name not in NEEDED + OPTIONAL]
    if not groups:
        raise UndertowError(f"{path}: has no column of masses; add one column of percent for each word group")
    frame = _factors(table, path)
    for group in groups:
        frame[group] = _percent(table, group, path)
    _check_sums(frame, groups, path)
    unscored = frame[groups].isna().any(axis=1)
    frame.loc[unscored, groups] = np.nan
    frame["unclaimed"] = (100 - frame[groups].sum(axis=1, skipna=False)).clip(lower=0)
    frame["unscored"] = np.where(unscored, "the recorded table has no value", "")
    return frame, groups


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise UndertowError(f"{path}: there is no such run folder or recorded table; check the path")
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            return pd.read_parquet(path).astype(str)
        separator = "\t" if name.endswith(".tsv") else ","
        # Everything as text: what a cell holds is checked here, and "None" or "NA" may be a W value.
        return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (OSError, EOFError, ValueError, pd.errors.ParserError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UndertowError(
            f"{path}: is not a table that can be read ({said[:200]}); use CSV, TSV or Parquet"
        ) from error


def _line(row: object) -> int:
    """Line of the file, for one that has a header line and no line breaks in its cells."""
    return int(str(row)) + 2


def _first(where: pd.Series[bool]) -> int:
    return int(np.flatnonzero(where.to_numpy())[0])


def _factors(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    index = pd.to_numeric(table["w_index"], errors="coerce")
    wrong = index.isna() | (index % 1 != 0)
    if wrong.any():
        row = _first(wrong)
        raise UndertowError(
            f"{path}, line {_line(row)}: w_index is {table.loc[row, 'w_index']!r}; it must be a whole number, the place of w in its list"
        )
    sentence = next((name for name in ("cluster", "text_index", "text") if name in table.columns), None)
    frame = pd.DataFrame(
        {
            "model": table["model"],
            "challenge": table["challenge"] if "challenge" in table.columns else "recorded",
            "prompt": table["prompt"] if "prompt" in table.columns else "",
            "w_name": table["w_name"],
            "w_index": index.astype(np.int64),
            "w": table["w"],
            "cluster": table[sentence] if sentence else np.arange(len(table)).astype(str),
        }
    )
    if "text" in table.columns:
        frame["text"] = table["text"]
    _check_values(frame, path)
    if sentence:
        _check_repeats(frame, path)
    keys = ["challenge", "model", "prompt", "w_name", "w", "cluster"]
    frame.insert(0, "item", frame[keys].agg("/".join, axis=1))
    return frame


def _check_values(frame: pd.DataFrame, path: Path) -> None:
    """One index, one W value: else the order that the slope is taken over is not known."""
    firsts = frame.groupby(["w_name", "w_index"])["w"].transform("first")
    clash = firsts != frame["w"]
    if clash.any():
        row = _first(clash)
        raise UndertowError(
            f"{path}, line {_line(row)}: w is {frame.loc[row, 'w']!r}, but w_index {int(frame['w_index'].iloc[row])} "
            f"was {str(firsts.iloc[row])!r} before; one index must mean one value"
        )


def _check_repeats(frame: pd.DataFrame, path: Path) -> None:
    keys = ["model", "challenge", "prompt", "w_name", "w_index", "cluster"]
    repeated = frame.duplicated(keys)
    if repeated.any():
        row = _first(repeated)
        same = np.logical_and.reduce([(frame[key] == frame.loc[row, key]).to_numpy() for key in keys])
        first = int(np.flatnonzero(same)[0])
        raise UndertowError(
            f"{path}, line {_line(row)}: repeats the sentence and W of line {_line(first)}; give each once"
        )


def _percent(table: pd.DataFrame, group: str, path: Path) -> pd.Series[float]:
    text = table[group].str.strip()
    values = pd.to_numeric(text.where(~text.isin(["", "nan", "NaN", "NA", "None"])), errors="coerce")
    wrong = (
        (values.isna() & ~text.isin(["", "nan", "NaN", "NA", "None"]))
        | (values < 0)
        | (values > 100 + ROUNDING_PERCENT)
    )
    if wrong.any():
        row = _first(wrong)
        raise UndertowError(
            f"{path}, line {_line(row)}: {group} is {table.loc[row, group]!r}; a mass must be a number from 0 to 100, in percent"
        )
    return values.astype(np.float64)


def _check_sums(frame: pd.DataFrame, groups: list[str], path: Path) -> None:
    sums = frame[groups].sum(axis=1)
    over = sums > 100 + ROUNDING_PERCENT
    if over.any():
        row = _first(over)
        raise UndertowError(
            f"{path}, line {_line(row)}: the masses of {', '.join(groups)} add up to {sums[row]:.1f} percent; they are parts of 100"
        )
