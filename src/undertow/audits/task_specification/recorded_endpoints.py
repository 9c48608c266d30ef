"""Recorded tables of one row per sentence, with the masses at the first and at the last W value.

Required: model, and `w_first_<group>` and `w_last_<group>` for every word group, in percent or as probabilities (`unit`). The
sentence is given by occupation, participant, participant_class and coreferent, or by `sentence`; its specification follows from
these or from `well_specified`. Optional: set, prompt, `w_name` (default date), and `cluster` (default: the occupation, else the
sentence). The table published with McMilin 2024 has this format.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from undertow.audits.recorded_masses import check_reserved_names, check_sums, mass_column, reading_note, to_percent
from undertow.audits.recorded_tables import NO_VALUE, Table, read_cells, row_keys, unread_note
from undertow.data.challenges.sentence_sources import decided_group, is_decided
from undertow.data.sentences.schemas import own_shares
from undertow.data.text_files import error_place
from undertow.errors import UndertowError

FIRST, LAST = "w_first_", "w_last_"
PEOPLE = ("occupation", "participant", "participant_class", "coreferent")
ALL_ZERO = "the recording has none of the listed words at one of the W values"
NOTHING_RECORDED = "the recorded table has no value"
OTHERS = ("model", "set", "prompt", "sentence", "cluster", "w_name", "unit", "well_specified", *PEOPLE)


def read_ends(path: Path | Table, *, zeros_count: bool) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Read a table: two rows of observations for each of its rows, the names of the word groups, and notes.

    With `zeros_count`, a sentence with zero masses at one W value counts as recorded, as in the paper; otherwise it is missing.
    """
    table = read_cells(path)
    cells = table.cells
    groups = [name.removeprefix(FIRST) for name in cells.columns if name.startswith(FIRST)]
    lacking = [f"{LAST}{group}" for group in groups if f"{LAST}{group}" not in cells.columns]
    if len(groups) < 2 or lacking:
        raise UndertowError(
            f"{path}: has no column {lacking[0] if lacking else FIRST + '<group>'!r}; each word group, at least two, needs its "
            f"percent in {FIRST}<group> and {LAST}<group>"
        )
    check_reserved_names(path, groups)
    table.check_columns(["model"])
    factors = _factors(table)
    names = table.column("w_name", "date").str.strip()
    wrong = (names == "") | (names != names.iloc[0])
    table.refuse(wrong, "w_name is {!r}; write one name of W, the same in every row", names)
    recorded = [
        pd.DataFrame({group: mass_column(table, f"{prefix}{group}") for group in groups}) for prefix in (FIRST, LAST)
    ]
    ends, unit = to_percent(table, *recorded)
    for masses in ends:
        check_sums(table, masses)
    missing_reason = np.where(ends[0].isna().any(axis=1) | ends[1].isna().any(axis=1), NOTHING_RECORDED, "")
    if not zeros_count:
        zero = (ends[0].sum(axis=1, skipna=False) == 0) | (ends[1].sum(axis=1, skipna=False) == 0)
        missing_reason = np.where((missing_reason == "") & zero, ALL_ZERO, missing_reason)
    frames = []
    for index, (name, masses) in enumerate(zip(("first", "last"), ends, strict=True)):
        frame = factors.assign(part="detect", w_name=names, w_index=index, w=name, **masses)
        frame["other_words"] = np.nan  # not recorded: the masses are shares among the groups
        frame["missing_reason"] = missing_reason
        frame.loc[frame["missing_reason"] != "", groups] = np.nan
        frame.insert(0, "item", row_keys(frame[["challenge", "model", "prompt", "w", "sentence"]]))
        frames.append(frame)
    known = {*OTHERS, *(f"{prefix}{group}" for prefix in (FIRST, LAST) for group in groups)}
    unread = [name for name in cells.columns if name not in known]
    notes = [reading_note(groups, unit), *table.notes, *unread_note(unread)]
    return pd.concat(frames, ignore_index=True), groups, notes


def _factors(table: Table) -> pd.DataFrame:
    cells = table.cells
    table.check_filled("model")
    given = [name for name in PEOPLE if name in cells.columns]
    if "sentence" in cells.columns:
        sentence = cells["sentence"]
    elif given:
        named = [name for name in given if name != "participant" or "participant_class" not in given]
        sentence = pd.Series(row_keys(cells[named]), cells.index)
    else:
        raise UndertowError(f"{table.path}: has no column 'occupation' or 'sentence'; add one")
    frame = pd.DataFrame(
        {
            "model": cells["model"],
            "challenge": table.column("set", "recorded"),
            "prompt": table.column("prompt", ""),
            "sentence": sentence,
            "cluster": cells["occupation"] if "occupation" in cells.columns else sentence,
            **{name: cells[name] for name in given},
        }
    )
    if "cluster" in cells.columns:
        frame["cluster"] = cells["cluster"].str.strip()
        table.refuse(frame["cluster"] == "", "has no cluster; give each row one, or leave the column out")
    table.check_repeats(frame, ["model", "challenge", "prompt", "sentence"], "sentence")
    rows = [{str(name): str(cell) for name, cell in row.items()} for row in cells.to_dict("records")]
    decided = []
    for row, place in zip(rows, table.places, strict=True):
        with error_place(f"{table.path}, {place}"):
            decided.append(is_decided(row))
    if any(one is not None for one in decided):
        problem = "does not say whether the sentence determines its blank; add a column well_specified with yes or no"
        table.refuse(pd.Series([one is None for one in decided]), problem)
        frame["well_specified"] = [bool(one) for one in decided]
        frame["expected"] = [decided_group(row) if one else "" for row, one in zip(rows, decided, strict=True)]
    if "coreferent" in given:
        text = frame["coreferent"].str.strip()
        problem = "coreferent is {!r}; write 1 (the occupation), 0 (the other person), or leave it empty"
        table.refuse(~text.isin(("0", "1", *NO_VALUE)), problem, text)
        frame["coreferent"] = pd.to_numeric(text.mask(text.isin(NO_VALUE)))
    if "occupation" in given:
        frame["percent_female"] = [own_shares().get(name, np.nan) for name in frame["occupation"]]
    return frame
