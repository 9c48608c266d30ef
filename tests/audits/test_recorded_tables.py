"""Recorded tables through the command line: golden numbers of real ones, and one sentence for each bad one."""

from __future__ import annotations

import datetime
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from helpers.cli_refusal import refused
from helpers.file_refusal import written
from undertow import audits, data
from undertow.audits.recorded_masses import OPTIONAL, REQUIRED, read_recorded
from undertow.audits.recorded_tables import read_cells
from undertow.errors import UndertowError

slow = pytest.mark.slow
DRIFT = audits.load("spurious-correlation")
SCORE = ["score", "--audit", "spurious-correlation", "--out", "run", "--json"]
HEADER = "model,w_name,w_index,w,text_index,xe,ze"
SEASONS = ["spring", "summer", "autumn", "winter"]
ROWS = [
    f"m,season,{index},{season},{text},{10 + 3 * index + text},{40 - 2 * index + text}"
    for index, season in enumerate(SEASONS)
    for text in range(3)
]
PLAIN = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(","))


def table(*changes: tuple[str, str]) -> str:
    """A good table, or one with changes made to its text."""
    text = "\n".join([HEADER, *ROWS, ""])
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def masses_of(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a table, and its word groups."""
    evidence, _ = DRIFT.load_recorded(path, "")
    return evidence.frame, list(evidence.design["groups"])


def results(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "results.json").read_text(encoding="utf-8"))["results"]
    return rows


def test_a_column_that_pandas_calls_rows_by_is_not_lost(tmp_path: Path) -> None:
    """It may hold masses, or anything: nobody knows which, and what the groups leave depends on it."""
    PLAIN.set_index(["text_index", "ze"]).to_parquet(tmp_path / "named.parquet")
    with pytest.raises(UndertowError, match=r"'ze' is an index in this file; reset_index\(\) before .*"):
        masses_of(tmp_path / "named.parquet")
    for how in (PLAIN, PLAIN.iloc[::-1], PLAIN.set_index(["model", "w_name"])):
        how.to_parquet(tmp_path / "known.parquet")
        frame, groups = masses_of(tmp_path / "known.parquet")
        assert groups == ["xe", "ze"]
        assert set(frame["model"]) == {"m"}, "a column that is known is read wherever it stands"
        assert frame["other_words"].tolist() == [100 - x - z for x, z in frame[["xe", "ze"]].to_numpy()]


@pytest.mark.parametrize("group", ["", " xe", "nan", "NA", "xe-ze"])
def test_no_word_group_is_called_like_what_a_reader_of_the_results_takes_for_something_else(
    group: str, tmp_path: Path
) -> None:
    said = "a word group cannot be called .*; rename it"
    with pytest.raises(UndertowError, match=said):
        years_of(tmp_path, **{"group:xe": 10, "group:ze": 20, f"group:{group}": 5})
    words = f'[groups]\nxe = ["xe"]\nze = ["ze"]\n"{group}" = ["they"]\n'
    path = written(tmp_path, f'templates = ["In {{w}}, {{blank}} ran."]\nw = ["date"]\n{words}', "own.toml")
    with pytest.raises(UndertowError, match=said):
        data.load(path)


COLUMNS = {name for audit in ("spurious-correlation", "task-specification") for name in audits.schema_of(audit).columns}
NAMES = sorted(COLUMNS | {"options", "occupation", "xe.low"})


@pytest.mark.parametrize("group", NAMES)
def test_no_word_group_is_called_like_a_column_of_the_run(group: str, tmp_path: Path) -> None:
    """Else the run folder that it is scored into cannot be read."""
    path = tmp_path / "own.csv"
    ends = {"model": "m", "sentence": "s", "w_first_xe": 30, "w_last_xe": 20}
    pd.DataFrame([ends | {f"w_first_{group}": 1, f"w_last_{group}": 2}]).to_csv(path, index=False)
    said = rf"own\.csv: a word group cannot be called {group!r}"
    with pytest.raises(UndertowError, match=said):
        audits.load("task-specification").load_recorded(path, "")
    cells = {"text": "a " + PLAIN["text_index"], "cluster": PLAIN["text_index"]}
    PLAIN.assign(**{group: PLAIN.get(group, cells.get(group, ""))}).to_csv(path, index=False)
    if group in REQUIRED + OPTIONAL:
        assert masses_of(path)[1] == ["xe", "ze"]
        return
    with pytest.raises(UndertowError, match=said):
        masses_of(path)


def test_cells_of_a_parquet_table_are_what_they_would_be_in_lines(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "number": [1.0, None, 0.1], "nan": [math.nan, 1e-7, 2.0], "whole": [1900, None, -3], "truth": [True, None, False],
            "text": ["a", None, "é"], "kind": pa.array(["a", None, "b"]).dictionary_encode(), "bytes": [b"she", None, b"he"],
            "level": pa.array([0.5, None, 1.5]).dictionary_encode(), "none": pa.nulls(3), "small": pa.array([1, 2, 3], pa.uint8()),
            "day": pa.array([datetime.date(1900, 1, 2), None, None]),
        }
    )  # fmt: skip
    pq.write_table(rows, tmp_path / "own.parquet")
    found = read_cells(tmp_path / "own.parquet").cells
    assert {name: found[name].tolist() for name in found} == {
        "number": ["1.0", "", "0.1"], "nan": ["", "1e-07", "2.0"], "whole": ["1900", "", "-3"], "truth": ["True", "", "False"],
        "text": ["a", "", "é"], "kind": ["a", "", "b"], "bytes": ["she", "", "he"], "level": ["0.5", "", "1.5"],
        "none": [""] * 3, "small": ["1", "2", "3"], "day": ["1900-01-02", "", ""],
    }  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("us", "Mars/X"), pa.timestamp("us"), pa.date64(), pa.duration("s"), pa.binary(2), pa.binary_view(), pa.list_(pa.int64())],
    ids=str,
)  # fmt: skip
def test_a_column_that_is_no_text_is_refused_by_name(kind: Any, tmp_path: Path) -> None:
    cell: Any = b"\xff\xfe" if "binary" in str(kind) else [1] if "list" in str(kind) else 86_400_000 * 10**10
    pq.write_table(pa.table({"w": pa.array([cell] * 3, kind)}), tmp_path / "own.parquet")
    with pytest.raises(UndertowError, match=r"own\.parquet: column 'w' "):
        read_cells(tmp_path / "own.parquet")


# Real recorded outputs.


PUBLISHED = {
    ("bert-base-uncased", "", "date", "female"): (0.550, 0.934),
    ("bert-base-uncased", "", "date", "male"): (-0.194, -0.701),
    ("bert-base-uncased", "", "place", "male"): (-0.388, -0.583),
    ("roberta-base", "", "date", "female"): (0.208, 0.845),
    ("text-davinci-002", "A", "date", "male"): (-1.190, -0.873),
}
"""Slope and r of a few, as they were published."""


@slow
def test_every_published_slope_is_least_squares_through_the_means_by_place(
    published_drift: Path, reference_data: Path
) -> None:
    """By pandas and numpy: of 16 runs and three groups, to a ten-thousandth of a point per step and far below."""
    frame = pd.read_csv(reference_data / "recorded/mgc_pronoun_mass.csv.gz").fillna({"prompt": ""})

    def by_place(measure: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        names = ("model", "prompt", "w_name", "pronoun")
        rows = [row for row in results(published_drift) if row["measure"] == measure]
        return {
            tuple(row["group"][name] for name in names): row for row in rows if row["group"]["challenge"] == "recorded"
        }

    slopes, correlations = by_place("slope"), by_place("pearson_r")
    assert len(slopes) == 16 * 3
    for run, rows in frame.groupby(["model", "prompt", "w_name"]):
        means = rows.groupby("w_index")[["female", "male", "neutral"]].mean()
        for group, slope in zip(means, np.polyfit(means.index, means, 1)[0], strict=True):
            row = slopes[*run, group]
            assert row["value"] == pytest.approx(slope, abs=1e-9)
            assert row["unit"] == "percent per step"
            assert row["low"] <= row["value"] <= row["high"]
    for of, published in PUBLISHED.items():
        assert (slopes[of]["value"], correlations[of]["value"]) == pytest.approx(published, abs=0.001)
        assert correlations[of]["low"] is None, "a description of these means"


def test_exact_masses_cannot_be_had_from_the_top_five(reference_data: Path, cli: Cli, tmp_path: Path) -> None:
    path = str(reference_data / "recorded/mgc_pronoun_mass.csv.gz")
    refused(cli(*SCORE, path, "--protocol", "exact"), path, "'exact'", "leave --protocol out")
    assert not (tmp_path / "run").exists()


# A user's own tables.


@pytest.mark.parametrize("kind", ["tsv", "csv.gz", "parquet", "semicolons.csv"])
def test_tables_of_every_kind_are_read_alike(kind: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"own.{kind}", table()
    if kind == "parquet":
        PLAIN.astype({"w_index": int, "xe": float, "ze": float}).to_parquet(path)
    else:
        sign = {"tsv": "\t", "semicolons.csv": ";"}.get(kind, ",")
        written(tmp_path, "\ufeff" + text.replace(",", sign), path.name)
    (frame, groups), (plain, same) = masses_of(path), masses_of(Path(written(tmp_path, text, "plain.csv")))
    assert groups == same == ["xe", "ze"]
    pd.testing.assert_frame_equal(frame, plain)


def years_of(tmp_path: Path, **columns: Any) -> tuple[pd.DataFrame, list[str], list[str]]:
    """What is read of a table of three years with these columns."""
    rows = {"model": "m", "w_name": "year", "w_index": range(3), "w": ["1900", "1950", "2000"], **columns}
    path = tmp_path / "own.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return read_recorded(path)


def test_a_column_that_is_no_word_group_is_left_out_and_named(tmp_path: Path) -> None:
    frame, groups, notes = years_of(tmp_path, step=[1, 2, 3], female=[10, 20, 30], male=40, remark="x", **{"": 7})
    assert groups == ["female", "male"]
    assert frame["other_words"].tolist() == [50, 40, 30]
    assert notes == [
        "Read as word groups, in percent: female, male.",
        "Unused columns: 'step', 'remark', one without a name.",
    ]
    for marked in ({"female": 10, "group:elders": 20}, {"female": 10}, {"group:elders": 20, "ze": 30}):
        _, groups, notes = years_of(tmp_path, step=[1, 2, 3], **marked)
        assert groups == [name.removeprefix("group:") for name in marked if name != "ze"]
        assert "'step'" in notes[1]
    # Groups that add up to 100 may be shares of the listed words.
    assert years_of(tmp_path, female=[40, 50, 60], male=[60, 50, 40])[0]["other_words"].isna().all()
    failed = years_of(tmp_path, female=[40, 50, 0], male=[60, 50, 0], missing_reason=["", "", "failed"])[0]
    assert failed["other_words"].isna().all()
    _, groups, (note,) = years_of(tmp_path, xe=10, ze=20)
    assert groups == ["xe", "ze"]
    assert "group:NAME" in note
    with pytest.raises(UndertowError, match="two columns of the word group 'male'"):
        years_of(tmp_path, female=1, male=2, **{"group:male": 3})


def test_probabilities_are_recognised_or_refused(tmp_path: Path) -> None:
    frame, _, notes = years_of(tmp_path, female=[0.1, 0.2, 0.3], male=0.6)
    assert frame["female"].tolist() == pytest.approx([10, 20, 30])
    assert frame["other_words"].tolist() == pytest.approx([30, 20, 10])
    assert notes == ["Read as word groups, as probabilities, which were multiplied by 100: female, male."]
    small = {"female": [0.01, 0.02, 0.03], "male": 0.1}
    with pytest.raises(UndertowError, match=r"percents or probabilities; add a column unit"):
        years_of(tmp_path, **small)
    with pytest.raises(UndertowError, match=r"a row add up to 1.3; add a column unit that says percent"):
        years_of(tmp_path, female=0.7, male=[0.6, 0.5, 0.4])
    for unit, factor in (("percent", 1), ("probability", 100)):
        frame, _, _ = years_of(tmp_path, unit=unit, **small)
        assert frame["male"].tolist() == pytest.approx([0.1 * factor] * 3)
    frame, _, _ = years_of(tmp_path, other_words=[0.89, 0.88, 0.87], **small)
    assert (frame["male"].iloc[0], frame["other_words"].iloc[0]) == pytest.approx((10, 89))
    with pytest.raises(UndertowError, match=r"line 4: unit is 'percents'; write percent or probability"):
        years_of(tmp_path, unit=["percent", "percent", "percents"], **small)
    with pytest.raises(UndertowError, match=r"line 2: female is 20; a probability is a number from 0 to 1"):
        years_of(tmp_path, unit="probability", female=20, male=0.5)


UNCERTAIN_UNITS: dict[str, tuple[dict[str, Any], str]] = {
    "a model": ({"model": ["m", "m", "n"], "female": [20, 30, 0.2], "male": [10, 5, 0.4]}, "line 4: .* 0.6, as probabilities do"),
    "a value": ({"female": [0.4, 1.4, 0.5], "male": [0.3, 0.3, 0.2]}, "line 3: .* 1.7, and those of most rows to at most 1"),
    "a row": ({"female": [40, 0.4, 50], "male": [20, 0.3, 20]}, "line 3: .* 0.7, as probabilities do"),
    "a column": ({"female": [0.3, 0.35, 0.41], "male": [65, 60, 54]}, "masses of female are at most 0.41, as probabilities are"),
    "a column of large probabilities": ({"female": [0.1, 0.6, 0.3], "male": [40, 30, 25]}, "masses of female are at most 0.6, as prob"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCERTAIN_UNITS)
def test_a_table_in_two_units_is_refused(case: str, tmp_path: Path) -> None:
    columns, said = UNCERTAIN_UNITS[case]
    with pytest.raises(UndertowError, match=f"{said}.*column unit that says percent"):
        years_of(tmp_path, **columns)
    frame, _, _ = years_of(tmp_path, unit="percent", **columns)
    assert frame["female"].tolist() == columns["female"]


@pytest.mark.parametrize(
    "columns",
    [
        {"female": [50, 60, 70], "male": [40, 35, 25], "neutral": [0.7, 0.5, 0.3]},
        {"female": [30, 35, 32], "male": [38, 41, 40], "neutral": [0.12, 0.25, 0.2]},
        {"female": [99.7, 99.8, 99.6], "male": [0.3, 0.2, 0.4]},
        {"female": [8, 9, 10], "male": [14, 15, 14], "neutral": [0.5, 0.57, 0.64]},
        {"female": [0.6, 1.4, 30], "male": [0, 0, 0]},
    ],
)
def test_small_percents_beside_large_ones_are_percents(columns: dict[str, list[float]], tmp_path: Path) -> None:
    frame, _, _ = years_of(tmp_path, **columns)
    assert frame[list(columns)].to_dict("list") == columns


def recorded_list(
    path: Path, name: str, values: list[str], **columns: list[str]
) -> tuple[list[float], dict[str, Any], int]:
    """Where the values of a recorded list stand, what the design says of the list, and how many notes it has."""
    rows = {"model": "m", "w_name": name, "w_index": range(len(values)), "w": values, **columns, "xe": 10, "ze": 20}
    pd.DataFrame(rows).to_csv(path, index=False)
    evidence, _ = DRIFT.load_recorded(path, "")
    (covariate,) = evidence.design["covariates"].values()
    notes = [note for note in evidence.design["w_notes"][1:] if "can be found with" not in note]
    return evidence.frame["w_value"].tolist(), covariate, len(notes)


def test_a_recorded_value_stands_at_its_number_or_its_place(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    even, uneven, shuffled = ["1801", "1808", "1815", "1823"], ["1800", "1990", "2000"], ["2000", "1800", "1990"]
    known = {"order": "years, earliest first", "unit": "year"}
    at_places = {"scale": "index", "uneven": False}
    assert recorded_list(path, "date", even) == ([0, 1, 2, 3], known | at_places, 0)
    for name in ("date", "year"):
        for values in (uneven, shuffled):
            numbers = [float(value) for value in values]
            found, covariate, n_notes = recorded_list(path, name, values)
            assert (found, covariate["scale"], covariate["order"], n_notes) == (numbers, "value", known["order"], 0)
    assert recorded_list(path, "year", even)[1] == known | {"scale": "value", "uneven": False}
    listed = {"order": "as listed", "scale": "index", "unit": "", "uneven": False}
    assert recorded_list(path, "town", ["Rome", "Bonn", "Oslo"]) == ([0, 1, 2], listed, 0)
    order = "Global Gender Gap Report 2021, largest gap first"
    assert recorded_list(path, "place", ["Iran", "Mali", "Iceland"])[1] == listed | {"order": order}
    assert recorded_list(path, "place", ["Mali", "Iran", "Iceland"])[1] == listed


def test_a_recorded_w_value_decides_where_values_stand(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    own = {"order": "w_value, smallest first", "scale": "value", "unit": "", "uneven": False}
    towns = ["Rome", "Bonn", "Oslo"]
    assert recorded_list(path, "town", towns, w_value=["3.5", "-1", "9"]) == ([3.5, -1, 9], own, 0)
    axis, covariate, n_notes = recorded_list(path, "year", ["1800", "1990", "2000"], w_value=["0", "1", "2"])
    assert (axis, covariate["scale"], covariate["uneven"], n_notes) == ([0, 1, 2], "index", True, 1)
    assert recorded_list(path, "year", ["1800", "1990", "2000"], w_value=[""] * 3)[0] == [1800, 1990, 2000]


def test_empty_cells_are_missing_and_counted_and_zeros_are_numbers(cli: Cli, tmp_path: Path) -> None:
    text = table((ROWS[4], "m,season,1,summer,1,,"), (ROWS[5], "m,season,1,summer,2,0,0"))
    (tmp_path / "own.csv").write_text(text, encoding="utf-8")
    done = cli(*SCORE, "own.csv")
    assert json.loads(done.stdout)["counts"] == {"items": 12, "missing": 1}
    slopes = {row["group"]["pronoun"]: row for row in results(tmp_path / "run") if row["measure"] == "slope"}
    assert (slopes["xe"]["n"], slopes["xe"]["n_missing"]) == (11, 1)
    frame = pd.read_parquet(tmp_path / "run/observations.parquet")
    assert frame["xe"].isna().tolist() == [row == 4 for row in range(12)]
    assert frame.loc[4, "missing_reason"] == "the recorded table has no value"
    assert frame.loc[5, "other_words"] == 100
    PLAIN.assign(ze=0.01).to_csv(tmp_path / "own.csv", index=False)
    assert cli(*SCORE, "own.csv", "--overwrite").returncode == 0
    assert "ze words have 0.01" in (tmp_path / "run/manifest.json").read_text()


def with_row(row: str, at: int = 2) -> str:
    """The good table with another row in the place of one."""
    return table((ROWS[at], row))


PACKED = gzip.compress(table().encode())
AXIS = [("w,text", "w,w_value,text"), *((f"{season},", f"{season},{at},") for at, season in enumerate(SEASONS))]
BAD: dict[str, tuple[str | bytes, str, list[str]]] = {
    "no model column": (table(("model,", "who,")), "csv", ["'model'", "model, w_name, w_index, w"]),
    "above 100": (with_row("m,season,0,spring,2,120,0"), "csv", ["line 4", "xe", "'120'"]),
    "text": (with_row("m,season,0,spring,2,much,3"), "csv", ["line 4", "xe", "'much'", "leave the cell empty"]),
    "decimal comma": (
        table().replace(",", ";").replace(ROWS[2].replace(",", ";"), "m;season;0;spring;2;4,5;3"), "csv", ["'4,5'", "decimal point"],
    ),
    "percent sign": (with_row("m,season,0,spring,2,4.5%,3"), "csv", ["line 4", "'4.5%'", "percent sign"]),
    "more than all with other words": (
        table((",xe,ze", ",xe,ze,other_words"), *((row, f"{row},95") for row in ROWS)), "csv", ["line 2", "leave other_words out"],
    ),
    "more than all": (with_row("m,season,0,spring,2,60,50"), "csv", ["line 4", "110.0"]),
    "index not whole": (table(("m,season,1,summer,0", "m,season,1.5,summer,0")), "csv", ["line 5", "w_index", "'1.5'"]),
    "axis is not a number": (table(*AXIS, ("spring,0,", "spring,x,")), "csv", ["line 2", "w_value", "'x'"]),
    "two places on the axis": (
        table(*AXIS, ("summer,1,2", "summer,1.5,2")), "csv", ["line 7", "w_value", "'1.5'", "'summer'"],
    ),
    "an axis of some values": (table(*AXIS, ("winter,3,", "winter,,")), "csv", ["line 11", "w_value", "''", "'winter'"]),
    "two values": (table(("1,summer,1", "1,Summer,1")), "csv", ["line 6", "w_index 1", "'Summer'", "'summer'"]),
    "two indices": (table(("2,autumn", "2,summer")), "csv", ["line 8", "w_index of w 'summer' is 2", "1 before"]),
    "repeated": (with_row(ROWS[6], 7), "csv", ["line 9", "line 8"]),
    "cell too many": (with_row(ROWS[2] + ",1"), "csv", ["line 4", "8", "7"]),
    "column twice": (table((",xe,ze", ",xe,xe")), "csv", ["'xe'"]),
    "line breaks in cells": (
        table((ROWS[0], ROWS[0].replace("m,", '"m\nn",', 1)), (ROWS[2], "m,season,0,spring,2,120,0")), "csv", ["line 5"]
    ),
    "not text": (bytes(range(128, 256)), "csv", []),
    "half a gzip": (PACKED[:60], "csv.gz", []),
    "not parquet": (table(), "parquet", []),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_table_is_refused_with_its_line_and_column(case: str, cli: Cli, tmp_path: Path) -> None:
    content, kind, words = BAD[case]
    path = tmp_path / f"own.{kind}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(cli(*SCORE, path.name), path.name, *words)
    assert list(tmp_path.iterdir()) == [path]


def test_score_of_a_table_needs_a_file_and_an_audit(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(table(), encoding="utf-8")
    refused(cli("score", "no-such-file.csv", "--audit", "spurious-correlation"), "no-such-file.csv")
    refused(cli("score", "own.csv"), "own.csv", "--audit")
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


def test_ends_have_a_name_of_w_a_unit_and_columns_that_are_named(tmp_path: Path) -> None:
    ends = {"w_first_xe": [0.5, 0.4], "w_last_xe": 0.3, "w_first_ze": 0.5, "w_last_ze": 0.7}

    def read(**columns: Any) -> tuple[pd.DataFrame, list[str]]:
        path = tmp_path / "ends.csv"
        pd.DataFrame({"model": "m", "sentence": ["a", "b"], **ends, **columns}).to_csv(path, index=False)
        evidence, _ = audits.load("task-specification").load_recorded(path, "")
        return evidence.frame, evidence.design["w_notes"]

    frame, notes = read(w_name="place", year=1900)
    assert set(frame["w_name"]) == {"place"}
    assert frame["xe"].tolist() == pytest.approx([50, 40, 30, 30])
    assert notes == [
        "Read as word groups, as probabilities, which were multiplied by 100: xe, ze.",
        "Unused columns: 'year'.",
    ]
    assert set(read()[0]["w_name"]) == {"date"}
    with pytest.raises(UndertowError, match=r"line 3: w_name is 'date'; write one name of W"):
        read(w_name=["place", "date"])
    with pytest.raises(UndertowError, match=r"line 3: coreferent is 'x'; write 1"):
        read(coreferent=["1", "x"])
