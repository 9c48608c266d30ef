from __future__ import annotations

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import undertow
from conftest import Cli
from helpers.answering import change_json
from helpers.cli_refusal import refused
from helpers.file_refusal import assert_refused
from helpers.sampled_cases import briefly
from helpers.shared_folders import contents
from undertow._folders import DRAFT_PREFIX, STALE_AFTER_S
from undertow.runs.folder import storage
from undertow.runs.folder.storage import MANIFEST, OBSERVATIONS, RESULTS, RUN, read_record
from undertow.runs.folder.whole_folder import UNFINISHED, check_place
from undertow.types import Result

slow = pytest.mark.slow
TOY = ["run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90"]


@pytest.fixture(scope="session")
def finished(finished_run: Callable[..., Path]) -> Path:
    return finished_run("spurious-correlation", "toy", w="date", limit=90)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def half(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(text: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    return lambda folder: (folder / MANIFEST).write_text(text, encoding=encoding)


def with_entry(**entry: object) -> Callable[[Path], None]:
    return lambda folder: change_json(folder / MANIFEST, **entry)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, "run"),
    "no manifest": (without(MANIFEST), MANIFEST),
    "manifest that says one thing twice": (with_text('{"seed": 0, "seed": 1}'), "'seed'"),
    "manifest of another encoding": (with_text("{}", "utf-16"), MANIFEST),
    "unknown audit": (with_entry(audit="nosuch"), "nosuch"),
    "no observations": (without(OBSERVATIONS), OBSERVATIONS),
}


@pytest.mark.parametrize("case", briefly(DAMAGE, 4))
def test_a_damaged_run_folder_is_refused_and_left_as_it_is(case: str, copied: Path, cli: Cli) -> None:
    damage, word = DAMAGE[case]
    damage(copied)
    before = contents(copied)
    for command in ("report", "score"):
        refused(cli(command, "run"), word)
    assert contents(copied) == before
    if case != "unknown audit":
        with pytest.raises(undertow.UndertowError, match=re.escape(word)):
            read_record(copied)


def test_observations_that_are_too_large_are_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_CELLS", "MAX_VALUE_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(storage, limit, 100)
            assert_refused(("too large",), read_record, copied)


def test_types_that_other_tools_choose_are_read(copied: Path) -> None:
    table = pq.read_table(copied / OBSERVATIONS)
    n = table.num_rows
    columns = {
        "female": pa.array([float(at % 3) for at in range(n)]).dictionary_encode(),
        "w_index": pa.array(range(n), pa.uint64()),
        "missing_reason": pa.nulls(n),
        "prompt": pa.nulls(n),
        "model": pa.array(["toy"] * n).dictionary_encode(),
    }
    for name, column in columns.items():
        kept = [other for other in table.column_names if other != name]
        table = table.select(kept).append_column(name, column)
    pq.write_table(table, copied / OBSERVATIONS)
    found = read_record(copied).observations
    assert found["female"].sum() > 0
    assert found["female"].dtype == float
    assert found["w_index"].dtype == "int64"
    assert found["missing_reason"].isna().all()
    assert pd.api.types.is_string_dtype(found["missing_reason"])
    assert not isinstance(found["model"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize(
    ("out", "word"),
    [
        (["letters"], "letters"),
        pytest.param(["letters", "--overwrite"], "letters", marks=slow),
        (["letters/a.txt"], "a.txt"),
        (["letters/a.txt/run"], "a.txt"),
        (["x" * 300], "--out"),
    ],
)
def test_a_place_that_holds_something_else_or_no_folder_is_left_alone(
    out: list[str], word: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear", encoding="utf-8")
    refused(cli(*TOY, "--out", *out), word)
    assert contents(tmp_path) == {"letters/a.txt": b"dear"}


@pytest.mark.page
@slow
def test_another_run_is_replaced_only_when_asked(copied: Path, cli: Cli) -> None:
    before = contents(copied)
    other = ["run", "spurious-correlation", "-m", "toy:slope=-5", "--w", "date", "--limit", "90", "--out", "run"]
    refused(cli(*other), "run", "--out", "--overwrite")
    assert contents(copied) == before
    assert cli(*other, "--overwrite").returncode == 0
    assert read_record(copied).manifest["model"] == "toy:slope=-5"
    stems = {path.stem for path in (copied / "figures").iterdir()}
    assert len(stems) == 1
    assert stems != {"date_mgc_toy"}


@pytest.mark.parametrize("damage", [half(MANIFEST), with_entry(schema_version=99)])
def test_a_run_that_cannot_be_read_is_replaced_only_when_asked(
    damage: Callable[[Path], None], copied: Path, finished: Path
) -> None:
    damage(copied)
    run_key = str(read_record(finished).manifest["run_key"])
    assert_refused(("--overwrite",), check_place, copied, run_key, RUN)
    check_place(copied, run_key, RUN, overwrite=True)
    again = undertow.score(finished, out=copied, overwrite=True)
    assert read_record(copied).manifest["run_key"] == again.manifest["run_key"] == run_key


def test_what_a_killed_process_left_is_taken_over_or_removed(copied: Path, finished: Path, tmp_path: Path) -> None:
    (copied / MANIFEST).unlink()
    (copied / UNFINISHED).touch()
    (copied / "my notes.txt").write_text("mine", encoding="utf-8")
    assert_refused(("was not finished",), undertow.load_run, copied)
    old, fresh = (tmp_path / f"{DRAFT_PREFIX}{name}" for name in ("old", "fresh"))
    for draft in (old, fresh):
        draft.mkdir()
    os.utime(old, (time.time() - 2 * STALE_AFTER_S,) * 2)
    undertow.score(finished, out=copied)
    assert contents(copied).keys() == contents(finished).keys() | {"my notes.txt"}
    assert (copied / RESULTS).read_bytes() == (finished / RESULTS).read_bytes()
    assert (old.exists(), fresh.exists()) == (False, True)


CHANGES = [with_entry(code_sha256="0" * 64), half(OBSERVATIONS), without("report.html")]


@pytest.mark.parametrize("change", briefly(CHANGES, 2))
def test_a_run_of_other_code_or_that_is_not_whole_is_made_anew_from_stored_answers(
    change: Callable[[Path], None], cli: Cli, tmp_path: Path
) -> None:
    folder, command = tmp_path / "run", [*TOY, "--out", "run"]
    first = cli(*command).stdout.splitlines()
    whole, code = contents(folder), read_record(folder).manifest["code_sha256"]
    change(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = cli(*command).stdout.splitlines()
    assert "(0 of 90 queries computed now" in again[0]
    assert again[1:] == first[1:]
    assert all(path.stat().st_mtime_ns != before.get(path) for path in folder.rglob("*") if path.is_file())
    made = contents(folder)
    assert [name for name in (RESULTS, "results.csv", OBSERVATIONS) if made[name] != whole[name]] == []
    assert read_record(folder).manifest["code_sha256"] == code


def test_results_of_a_metric_of_another_package_may_have_a_model_of_their_own(finished: Path) -> None:
    record = read_record(finished)
    mean = Result("ensemble", {"model": "mean of all models"}, 1.0)
    storage.check_observations(dataclasses.replace(record, results=(*record.results, mean)))
