"""The run folder: what is wrong with one is said in one sentence, and nothing is overwritten unasked."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import undertow
from conftest import Cli
from refusal import refused
from undertow import records
from undertow.records import (
    MANIFEST,
    OBSERVATIONS,
    RESULTS,
    SCHEMA_VERSION,
    UNFINISHED,
    check_place,
    read_record,
)
from undertow.sharing import DRAFT_PREFIX, OLD_S
from warm import warm

slow = pytest.mark.slow
TOY = ["run", "spurious-correlation", "-m", "toy", "--w", "date", "--limit", "90"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the toy model, and its cache beside it."""
    place = tmp_path_factory.mktemp("finished")
    environment = os.environ | {"UNDERTOW_CACHE": str(place / "cache")}
    warm(place, *TOY, "--out", str(place / "run"), environment=environment).check_returncode()
    return place / "run"


@pytest.fixture
def own_cache(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that holds the toy's answers."""
    monkeypatch.setenv("UNDERTOW_CACHE", str(finished.parent / "cache"))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def half(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str, encoding: str = "utf-8") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text, encoding=encoding)

    return change


def with_entry(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        (folder / MANIFEST).write_text(json.dumps(manifest | {name: value}), encoding="utf-8")

    return change


def without_entry(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        del manifest[name]
        (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")

    return change


def with_column(name: str, cell: object) -> Callable[[Path], None]:
    """The observations with one value all along a column."""

    def change(folder: Path) -> None:
        frame = pd.read_parquet(folder / OBSERVATIONS)
        frame.assign(**{name: pd.Series([cell] * len(frame), dtype=object)}).to_parquet(folder / OBSERVATIONS)

    return change


def flipped(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:300] + bytes(byte ^ 0xFF for byte in whole[300:1500]) + whole[1500:])

    return change


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def replaced_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a letter", encoding="utf-8")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "missing": (removed, ["run: there is no such run folder", "check the path"]),
    "empty": (emptied, [f"run: has no {MANIFEST}"]),
    "no manifest": (without(MANIFEST), [f"run: has no {MANIFEST}", "not finished"]),
    "half a manifest": (half(MANIFEST), [f"run/{MANIFEST}: ", "is damaged", "run the audit again"]),
    "empty manifest": (with_text(MANIFEST, ""), [f"run/{MANIFEST}: ", "is damaged"]),
    "manifest of something else": (
        with_text(MANIFEST, '{"name": "x"}'),
        [f"run/{MANIFEST}: ", "is damaged (it has no"],
    ),
    "manifest that is a list": (with_text(MANIFEST, "[]"), [f"run/{MANIFEST}: ", "not a JSON object"]),
    "manifest without a seed": (with_entry("seed", None), [f"run/{MANIFEST}: ", "it has no seed"]),
    "manifest with a wrong design": (with_entry("design", []), [f"run/{MANIFEST}: ", "it has no design"]),
    "newer": (with_entry("schema_version", SCHEMA_VERSION + 1), [f"run/{MANIFEST}: ", "newer Undertow", "update"]),
    "unknown probe": (with_entry("probe", "nosuch"), ["no probe called 'nosuch'"]),
    "manifest that says one thing twice": (
        with_text(MANIFEST, '{"seed": 0, "seed": 1}'),
        [f"run/{MANIFEST}: ", "is damaged ('seed' is there twice)"],
    ),
    "manifest of another encoding": (with_text(MANIFEST, "{}", "utf-16"), [f"run/{MANIFEST}: ", "is damaged"]),
    "manifest of an older version": (without_entry("asked_key"), [f"run/{MANIFEST}: ", "older Undertow", "asked_key"]),
    "manifest without a seed at all": (without_entry("seed"), [f"run/{MANIFEST}: ", "is damaged (it has no seed"]),
    "text for numbers": (
        with_column("female", "x"),
        [f"run/{OBSERVATIONS}: ", "its column 'female' must hold numbers"],
    ),
    "lists for text": (with_column("model", ["x"]), [f"run/{OBSERVATIONS}: ", "its column 'model' must hold text"]),
    "numbers for text": (with_column("w_name", 1.5), [f"run/{OBSERVATIONS}: ", "its column 'w_name' must hold text"]),
    "places between": (with_column("w_index", 1.5), [f"run/{OBSERVATIONS}: ", "'w_index' must hold whole numbers"]),
    "no observations": (without(OBSERVATIONS), [f"run: has no {OBSERVATIONS}", "run the audit again"]),
    "half the observations": (half(OBSERVATIONS), [f"run/{OBSERVATIONS}: ", "is damaged", "run the audit again"]),
    "flipped observations": (flipped(OBSERVATIONS), [f"run/{OBSERVATIONS}: ", "is damaged"]),
    "observations that are text": (with_text(OBSERVATIONS, "hello"), [f"run/{OBSERVATIONS}: ", "is damaged"]),
    "no results": (without(RESULTS), [f"run: has no {RESULTS}", "run the audit again"]),
    "half the results": (half(RESULTS), [f"run/{RESULTS}: ", "is damaged", "run the audit again"]),
    "results without results": (with_text(RESULTS, "{}"), [f"run/{RESULTS}: ", "is damaged (it lacks 'results')"]),
    "results that are numbers": (with_text(RESULTS, '{"results": [1]}'), [f"run/{RESULTS}: ", "is damaged"]),
    "results without a group": (
        with_text(RESULTS, '{"results": [{"value": 1}]}'),
        [f"run/{RESULTS}: ", "is damaged (it lacks"],
    ),
    "a file in its place": (replaced_by_a_file, ["run: "]),
}
QUICK = ("missing", "half a manifest", "half the observations")


@pytest.mark.parametrize("command", ["report", "score"])
@pytest.mark.parametrize("case", [name if name in QUICK else pytest.param(name, marks=slow) for name in DAMAGE])
def test_a_damaged_run_folder(case: str, command: str, copied: Path, cli: Cli) -> None:
    damage, words = DAMAGE[case]
    damage(copied)
    before = content(copied)
    refused(cli(command, "run"), *words)
    assert content(copied) == before


@slow
def test_observations_of_another_table(copied: Path, cli: Cli) -> None:
    """A table that is whole, but not this run's: a column that the design names is not there."""
    pd.read_parquet(copied / OBSERVATIONS).drop(columns="female").to_parquet(copied / OBSERVATIONS)
    for command in ("report", "score"):
        refused(cli(command, "run"), "female")


@pytest.mark.parametrize("case", [name for name in DAMAGE if name not in ("missing", "unknown probe")])
def test_the_library_says_the_same(case: str, copied: Path) -> None:
    damage, words = DAMAGE[case]
    damage(copied)
    with pytest.raises(undertow.UndertowError) as caught:
        read_record(copied)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_files_that_are_too_large_are_not_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path in (
        ("MOST_MANIFEST_BYTES", MANIFEST), ("MOST_RESULTS_BYTES", RESULTS), ("MOST_OBSERVED_BYTES", OBSERVATIONS),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(records, name, 100)
            with pytest.raises(undertow.UndertowError, match=rf"{path}: .*too large"):
                read_record(copied)
    assert read_record(copied).results


def with_arrow(name: str, make: Callable[[int], pa.Array]) -> Callable[[Path], None]:
    """The observations with another column of this name, of whatever type it is, as other tools may write it."""

    def change(folder: Path) -> None:
        table = pq.read_table(folder / OBSERVATIONS)
        column = make(table.num_rows)
        at = table.column_names.index(name) if name in table.column_names else table.num_columns
        table = table.drop_columns([name]) if at < table.num_columns else table
        pq.write_table(table.add_column(at, name, column), folder / OBSERVATIONS)

    return change


def test_observations_whose_values_take_more_than_their_file(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that stands in every row takes its room in the file once; a list may hold any number of values."""
    monkeypatch.setattr(records, "MOST_VALUE_BYTES", 2**20)
    of_text = pa.array(["x" * 2**16])
    for name, make in (
        ("w", lambda n: of_text.take(pa.array([0] * n))),
        ("template", lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), of_text)),
        ("options", lambda n: pa.array([["x" * 2**10] * 100] * n)),
        ("logprobs_nats", lambda n: pa.array([[1.0] * 2**14] * n)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(records, "MOST_VALUES_OF_A_BYTE", 4)
            with_arrow(name, make)(copied)
            assert (copied / OBSERVATIONS).stat().st_size < 2**18
            with pytest.raises(
                undertow.UndertowError, match=r"is too large .*take more than 1 MiB, .*; ask less in one run"
            ):
                read_record(copied)
        monkeypatch.setattr(records, "MOST_VALUE_BYTES", 2**30)
        assert len(read_record(copied).observations), "which is read where it may be"
        monkeypatch.setattr(records, "MOST_VALUE_BYTES", 2**20)
        with_arrow(name, lambda n: pa.array(["a"] * n))(copied)


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        (
            "w_index",
            lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
            "'w_index' must hold whole numbers of at most 63",
        ),
        ("w_index", lambda n: pa.array([None, *range(n - 1)], pa.int64()), "some of its rows hold nothing"),
        ("w_index", pa.nulls, "'w_index' must hold whole numbers"),
        ("model", pa.nulls, "'model' must hold text"),
        ("options", lambda n: pa.array([{"a": 1}] * n), "'options' must hold values or lists of values"),
        ("options", lambda n: pa.array([[[1]]] * n), "'options' must hold values or lists of values"),
    ],
)
def test_columns_of_other_types(name: str, make: Callable[[int], pa.Array], said: str, copied: Path) -> None:
    with_arrow(name, make)(copied)
    with pytest.raises(undertow.UndertowError, match=said):
        read_record(copied)


def test_types_that_other_tools_choose_are_read(copied: Path) -> None:
    for name, make in (
        ("female", lambda n: pa.array([float(at % 3) for at in range(n)]).dictionary_encode()),
        ("w_index", lambda n: pa.array(range(n), pa.uint64())),
        ("unscored", pa.nulls),
        ("prompt", pa.nulls),
        ("model", lambda n: pa.array(["toy"] * n).dictionary_encode()),
    ):
        with_arrow(name, make)(copied)
    found = read_record(copied).observations
    assert found["female"].sum() > 0
    assert found["female"].dtype == float
    assert found["w_index"].dtype == "int64"
    assert found["unscored"].isna().all()
    assert pd.api.types.is_string_dtype(found["unscored"])
    assert not isinstance(found["model"].dtype, pd.CategoricalDtype)


@pytest.mark.parametrize(
    ("probe", "group"),
    [
        (probe, name)
        for probe in ("spurious-correlation", "task-specification")
        for name in records.CELLS[(probe,)]
        if name not in records._NEVER_MASSES
    ],
)
def test_a_word_group_of_an_older_folder_may_be_called_like_a_column(probe: str, group: str, copied: Path) -> None:
    manifest = json.loads((copied / MANIFEST).read_text(encoding="utf-8"))
    design = manifest["design"] | {"groups": [*manifest["design"]["groups"], group]}
    (copied / MANIFEST).write_text(json.dumps(manifest | {"probe": probe, "design": design}), encoding="utf-8")
    with_arrow(group, lambda n: pa.array([1.5] * n))(copied)
    assert set(read_record(copied).observations[group]) == {1.5}
    without_group = design | {"groups": design["groups"][:-1]}
    (copied / MANIFEST).write_text(json.dumps(manifest | {"probe": probe, "design": without_group}), encoding="utf-8")
    if records.CELLS[(probe,)][group] != records.NUMBER:
        with pytest.raises(undertow.UndertowError, match=rf"{group!r} must hold"):
            read_record(copied)


def test_numbers_may_be_missing_and_texts_may_be_kept_in_other_ways(copied: Path) -> None:
    """An audit from outside has columns of its own, which nobody here knows."""
    before = pd.read_parquet(copied / OBSERVATIONS)
    frame = before.assign(male=None, model=before["model"].astype("category"), female=1)
    frame.to_parquet(copied / OBSERVATIONS)
    assert read_record(copied).observations["male"].isna().all()
    with_entry("probe", "of-others")(copied)
    with_column("model", 3)(copied)
    assert set(read_record(copied).observations["model"]) == {3}


# Where a run goes.


def test_a_name_that_no_folder_can_have_is_refused(finished: Path, tmp_path: Path) -> None:
    for out in (f"{tmp_path}/a\0b", Path(f"{tmp_path}/a\0b/c")):
        for call in (
            partial(undertow.run, "spurious-correlation", "toy", w="date", limit=9),
            partial(undertow.score, finished),
        ):
            with pytest.raises(undertow.UndertowError, match="no folder can be called so") as caught:
                call(out=out)
            assert "\0" not in str(caught.value)


@pytest.mark.parametrize("overwrite", [[], pytest.param(["--overwrite"], marks=slow)])
def test_a_place_that_holds_something_else_is_left_alone(
    overwrite: list[str], own_cache: None, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear", encoding="utf-8")
    refused(cli(*TOY, "--out", "letters", *overwrite), "letters", "holds no run", "--out")
    assert content(tmp_path) == {"letters/a.txt": b"dear"}


@slow
def test_another_run_is_replaced_only_when_asked(own_cache: None, copied: Path, cli: Cli) -> None:
    before = content(copied)
    other = ["run", "spurious-correlation", "-m", "toy:slope=-5", "--w", "date", "--limit", "90", "--out", "run"]
    refused(cli(*other), "run", "holds another run", "--out", "--overwrite")
    assert content(copied) == before
    assert cli(*other, "--overwrite").returncode == 0
    assert read_record(copied).manifest["model"] == "toy:slope=-5"
    stems = {path.stem for path in (copied / "figures").iterdir()}
    assert len(stems) == 1
    assert stems != {"date_mgc_toy"}


@slow
def test_the_same_run_is_written_again(own_cache: None, copied: Path, cli: Cli) -> None:
    (copied / RESULTS).unlink()
    done = cli(*TOY, "--out", "run", "--json")
    assert json.loads(done.stdout)["counts"]["computed"] == 0
    assert (copied / RESULTS).is_file()


@pytest.mark.parametrize("damage", [half(MANIFEST), with_text(MANIFEST, ""), with_entry("schema_version", 99)])
def test_a_run_that_cannot_be_read_is_replaced_only_when_asked(
    damage: Callable[[Path], None], copied: Path, finished: Path
) -> None:
    damage(copied)
    run_key = str(read_record(finished).manifest["run_key"])
    with pytest.raises(undertow.UndertowError, match=r"holds another run, or a damaged one; .* --overwrite"):
        check_place(copied, run_key)
    check_place(copied, run_key, overwrite=True)
    again = undertow.score(finished, out=copied, overwrite=True)
    assert read_record(copied).manifest["run_key"] == again.manifest["run_key"] == run_key


def test_what_a_killed_process_left_is_taken_over_or_removed(copied: Path, finished: Path, tmp_path: Path) -> None:
    (copied / MANIFEST).unlink()
    (copied / UNFINISHED).touch()
    old, fresh = (tmp_path / f"{DRAFT_PREFIX}{name}" for name in ("old", "fresh"))
    for draft in (old, fresh):
        draft.mkdir()
    os.utime(old, (time.time() - 2 * OLD_S,) * 2)
    undertow.score(finished, out=copied)
    assert content(copied).keys() == content(finished).keys()
    assert (old.exists(), fresh.exists()) == (False, True)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("file", ["file: is a file"]),
        pytest.param("file/run", ["file: is a file"], marks=slow),
        pytest.param("x" * 300, ["File name too long", "--out"], marks=slow),
    ],
)
def test_a_place_where_no_folder_can_be(out: str, words: list[str], own_cache: None, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    refused(cli(*TOY, "--out", out), *words)
    assert content(tmp_path) == {"file": b"x"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the root user may write everywhere")
def test_a_folder_that_may_not_be_written_to(own_cache: None, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(cli(*TOY, "--out", "locked/run"), "locked: cannot be written to", "--out")


# Measured and told anew.


def test_scoring_a_run_gives_the_same_numbers(finished: Path, cli: Cli, tmp_path: Path) -> None:
    done = cli("score", str(finished), "--out", "again", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    again = content(tmp_path / "again")
    assert again[RESULTS] == (finished / RESULTS).read_bytes()
    assert again["results.csv"] == (finished / "results.csv").read_bytes()
    assert set(again) == set(content(finished))


@slow
def test_scoring_under_another_name_or_protocol_is_refused(finished: Path, cli: Cli) -> None:
    refused(cli("score", str(finished), "--protocol", "paper"), str(finished), "protocol exact", "cannot be had")
    refused(cli("score", str(finished), "--probe", "nosuch"), str(finished), "leave --probe out")


def test_a_report_is_restored(copied: Path, cli: Cli) -> None:
    before = content(copied)
    shutil.rmtree(copied / "figures")
    (copied / "report.html").unlink()
    done = cli("report", "run")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "run/report.html\n")
    after = content(copied)
    assert set(after) == set(before)
    svg = "figures/date_mgc_toy.svg"
    assert (after["report.html"], after[svg]) == (before["report.html"], before[svg])
