"""Folders and stores that other versions wrote: read as they are, measured anew to the same numbers, or refused in one sentence.

`folders/` keeps one of every schema there has been; its README says which version made them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

import undertow
from conftest import Cli
from refusal import refused
from undertow import records
from undertow.comparing.runs import compare as compare_folders
from undertow.places import store_file
from undertow.scoring import store as stores
from undertow.scoring.store import AnswerStore
from undertow.types import UndertowError

FOLDERS = Path(__file__).parent / "folders"
READ = ("run-1", "run-1-early")
REFUSED = "run-1-first"
ASKED: dict[str, Any] = {"challenge": "mgt", "w": "date", "date_count": 4, "limit": 48}
"""What all of them were asked, of the toy."""
MOST_BYTES = 60_000

Key = tuple[str, tuple[tuple[str, str], ...]]


def print_of(place: Path) -> dict[str, str]:
    """What every file of a folder holds, or the one file."""
    files = sorted(path for path in [place, *place.rglob("*")] if path.is_file())
    return {str(path.relative_to(place.parent)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(autouse=True)
def unaltered() -> Iterator[None]:
    """No test may change what is kept."""
    before = print_of(FOLDERS)
    yield
    assert print_of(FOLDERS) == before


def copied(name: str, folder: Path) -> Path:
    place = folder / name
    if (FOLDERS / name).is_dir():
        shutil.copytree(FOLDERS / name, place)
    else:
        shutil.copyfile(FOLDERS / name, place)
    return place


def rows(folder: Path) -> dict[Key, dict[str, Any]]:
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))["results"]
    return {(row["measure"], tuple(sorted(row["group"].items()))): row for row in found}


def version_of(name: str) -> int:
    if name.endswith(".sqlite"):
        database = sqlite3.connect(f"{(FOLDERS / name).as_uri()}?mode=ro&immutable=1", uri=True)
        version: int = database.execute("PRAGMA user_version").fetchone()[0]
        database.close()
        return version
    written: int = json.loads((FOLDERS / name / "manifest.json").read_text(encoding="utf-8"))["schema_version"]
    return written


# There is one of each.


@pytest.mark.parametrize(
    ("newest", "kept", "name"),
    [(records.SCHEMA_VERSION, "run-{}", "records.py"), (stores.SCHEMA_VERSION, "store-{}.sqlite", "scoring/store.py")],
)
def test_one_of_every_schema_is_kept(newest: int, kept: str, name: str) -> None:
    for version in range(1, newest + 1):
        place = kept.format(version)
        assert (FOLDERS / place).exists(), (
            f"SCHEMA_VERSION of {name} is {newest}: add {place} to {FOLDERS}, and keep the others"
        )
        assert version_of(place) == version


def test_they_are_small_and_hold_no_page() -> None:
    for place in FOLDERS.iterdir():
        assert sum(path.stat().st_size for path in [place, *place.rglob("*")] if path.is_file()) < MOST_BYTES, place
        assert not (place / "report.html").exists()


# Run folders.


@pytest.mark.parametrize("name", READ)
def test_an_old_folder_is_read_as_it_was_written(name: str) -> None:
    run = undertow.open_run(FOLDERS / name)
    assert len(run.observations) == run.manifest["counts"]["items"] == 48
    assert {
        row["measure"]: row["value"] for row in rows(FOLDERS / name).values() if row["group"]["pronoun"] == "female"
    } == {result.measure: result.value for result in run.record.results if result.group["pronoun"] == "female"}
    assert run.findings
    assert run.figure() is not None


@pytest.mark.parametrize("name", READ)
def test_an_old_folder_is_told_anew(name: str, tmp_path: Path) -> None:
    place = copied(name, tmp_path)
    before = print_of(place)
    page = undertow.retell(place).read_text(encoding="utf-8")
    assert "female words" in page
    after = print_of(place)
    kept = [path for path in before if path.endswith((".json", ".parquet", ".csv"))]
    # Parquet files carry the version of the package that wrote them.
    assert {path: after[path] for path in kept if path.endswith(".json")} == {
        path: before[path] for path in kept if path.endswith(".json")
    }
    assert list((place / "figures").iterdir())


def test_the_newest_folder_is_measured_to_the_same_numbers(tmp_path: Path) -> None:
    run = undertow.score(FOLDERS / "run-1", out=tmp_path / "again")
    assert_same(rows(FOLDERS / "run-1"), rows(tmp_path / "again"), but=())
    assert run.manifest["notes"] == undertow.open_run(FOLDERS / "run-1").manifest["notes"]


def test_an_older_folder_is_measured_to_the_same_numbers_but_for_wider_intervals(tmp_path: Path) -> None:
    """Where a measure did not change, its numbers do not; intervals over few clusters have, and only they."""
    old = rows(FOLDERS / "run-1-early")
    run = undertow.score(FOLDERS / "run-1-early", out=tmp_path / "again")
    new = rows(tmp_path / "again")
    assert re.search(
        r"measured anew, \d+ of \d+ results are not as they were recorded \(low, high\): ", run.manifest["notes"][-1]
    )
    again = undertow.score(run.folder, out=tmp_path / "a third time")
    assert not [note for note in again.manifest["notes"] if "measured anew" in note]
    assert_same(old, new, but=("low", "high"))
    wider = [
        (new[key]["high"] - new[key]["low"]) / (row["high"] - row["low"])
        for key, row in old.items()
        if row["measure"] == "slope" and row["high"] - row["low"] > 0.1
    ]
    clusters = {row["detail"]["n_clusters"] for row in old.values() if row["measure"] == "slope"}
    (k,) = clusters
    expected = stats.t.ppf(0.975, k - 1) * math.sqrt(k / (k - 1)) / stats.norm.ppf(0.975)
    # The draws of twelve clusters of two kinds are steps of a sixth.
    assert wider == [pytest.approx(expected, rel=0.25)] * 2


def assert_same(old: dict[Key, dict[str, Any]], new: dict[Key, dict[str, Any]], but: tuple[str, ...]) -> None:
    assert old.keys() == new.keys()
    for key, row in old.items():
        for name, number in row.items():
            assert name in but or near(number, new[key][name]), (key, name, number, new[key][name])


def near(old: Any, new: Any) -> bool:
    """Whether entries are alike, numbers to the ninth digit."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(near(entry, new[name]) for name, entry in old.items())
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12)
    return bool(old == new)


@pytest.mark.parametrize("name", READ)
def test_an_old_folder_is_compared(name: str) -> None:
    (of,) = compare_folders(FOLDERS / name, FOLDERS / name).comparisons
    assert of.identical
    assert of.n_items == of.n_answered == 48
    assert all(one.value == 0 for one in of.differences if math.isfinite(one.value))


def test_a_folder_that_does_not_say_how_masses_were_read_is_compared_with_none_that_does() -> None:
    with pytest.raises(
        UndertowError, match=r"cannot be compared: .* of an older run.*; run the older one again"
    ) as caught:
        compare_folders(FOLDERS / "run-1-early", FOLDERS / "run-1")
    assert "\n" not in str(caught.value)


def test_the_same_question_today_has_the_same_answer(tmp_path: Path) -> None:
    """Of the run that is kept: model, set, sampling and measures are those of its version, or something says otherwise."""
    undertow.run("spurious-correlation", "toy", out=tmp_path / "today", **ASKED)
    assert_same(rows(FOLDERS / "run-1"), rows(tmp_path / "today"), but=())


def test_a_folder_of_the_first_version_is_refused_in_one_sentence(cli: Cli, tmp_path: Path) -> None:
    place = copied(REFUSED, tmp_path)
    before = print_of(place)
    for words in (["score", REFUSED], ["report", REFUSED], ["compare", REFUSED, REFUSED]):
        refused(cli(*words), "manifest.json", "older Undertow", "asked_key", "run the audit again")
    assert print_of(place) == before
    assert [path.name for path in tmp_path.iterdir()] == [REFUSED]


def test_a_folder_of_a_newer_version_is_refused_in_one_sentence(cli: Cli, tmp_path: Path) -> None:
    place = copied("run-1", tmp_path)
    manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    newer = records.SCHEMA_VERSION + 1
    (place / "manifest.json").write_text(json.dumps(manifest | {"schema_version": newer}), encoding="utf-8")
    before = print_of(place)
    for words in (["score", "run-1"], ["report", "run-1"], ["compare", "run-1", "run-1"]):
        refused(cli(*words), f"newer Undertow (schema {newer})", "update")
    assert print_of(place) == before


# Stores.


@pytest.mark.parametrize("version", range(1, stores.SCHEMA_VERSION + 1))
def test_an_old_store_keeps_its_answers(version: int, tmp_path: Path) -> None:
    place = copied(f"store-{version}.sqlite", tmp_path)
    database = sqlite3.connect(place)
    (key,) = database.execute("SELECT key FROM models").fetchone()
    queries = [row[0] for row in database.execute("SELECT query FROM answers ORDER BY query")]
    database.close()
    with AnswerStore(place) as store:
        kept = store.get(key, queries)
        assert [(shelf.model, shelf.n_answers) for shelf in store.shelves()] == [("toy", 48)]
    assert len(kept) == 48
    assert all(len(answer.logprobs_nats) == 3 and not answer.unscored for answer in kept.values())
    # The toy gives they a tenth, she and he the rest of .80, and .20 to words that nobody lists.
    for answer in kept.values():
        shares = [math.exp(number) for number in answer.logprobs_nats]
        assert shares[2] / sum(shares) == pytest.approx(0.125)


@pytest.mark.parametrize("version", range(1, stores.SCHEMA_VERSION + 1))
def test_a_run_over_an_old_store_ends_with_the_same_numbers(version: int, tmp_path: Path) -> None:
    """Answers that an older version read otherwise are asked anew; those of the newest are not."""
    store_file().parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FOLDERS / f"store-{version}.sqlite", store_file())
    run = undertow.run("spurious-correlation", "toy", out=tmp_path / "run", **ASKED)
    assert_same(rows(FOLDERS / "run-1"), rows(tmp_path / "run"), but=())
    assert run.manifest["counts"]["computed"] == (0 if version == stores.SCHEMA_VERSION else 48)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    place = copied(f"store-{stores.SCHEMA_VERSION}.sqlite", tmp_path)
    database = sqlite3.connect(place)
    database.execute(f"PRAGMA user_version={stores.SCHEMA_VERSION + 1}")
    database.close()
    before = print_of(place)
    with pytest.raises(UndertowError, match="newer Undertow") as caught:
        AnswerStore(place)
    assert "update" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert print_of(place) == before
