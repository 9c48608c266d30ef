"""`undertow run task-specification` as a user types it: what it asks, writes, says, and what it does not do twice."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.planted_guard import OCCUPATIONS, planted_percent, planted_table
from helpers.sampled_cases import briefly
from helpers.workplace import Workplace, shared
from undertow import audits

pytestmark = pytest.mark.slow
RUN = ["run", "task-specification", "-m", "toy"]
PLANTED = [*RUN, "--challenge", "planted.csv"]
FILES = ("results.json", "results.csv", "tables/sentences.csv", "tables/occupations.csv")
GROUPS = ["female", "male", "neutral"]
ENDS = (1901, 2016)
SCORES = ["delta_female", "delta_male", "delta_neutral", "total_variation", "jensen_shannon", "entropy", "combined"]


def no_figures(*_: object) -> Iterator[Any]:
    return iter(())


@pytest.fixture(scope="module")
def work(shared_base: Path) -> Workplace:
    """Runs on the package's own sentences and on sentences that the toy tells apart."""

    def make(work: Workplace) -> None:
        planted_table(work.folder)
        printed = {"planted": work(*PLANTED, "--out", "planted", page=True).stdout}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audits.load("task-specification"), "draw", no_figures)
            printed["own"] = work(*RUN, "--out", "own", "--json", page=True).stdout
        (work.folder / "printed.json").write_text(json.dumps(printed), encoding="utf-8")

    return shared(shared_base, "task-specification", make)


@pytest.fixture(scope="module")
def printed(work: Workplace) -> dict[str, str]:
    """What the commands of these runs printed, by run."""
    said: dict[str, str] = json.loads((work.folder / "printed.json").read_text(encoding="utf-8"))
    return said


@pytest.fixture(scope="module")
def own(printed: dict[str, str]) -> dict[str, Any]:
    """What the run on the package's own sentences prints with --json."""
    said: dict[str, Any] = json.loads(printed["own"])
    return said


@pytest.fixture(scope="module")
def planted(printed: dict[str, str]) -> list[str]:
    return printed["planted"].splitlines()


def table_of(work: Workplace, run: str, name: str = "sentences") -> pd.DataFrame:
    return pd.read_csv(work.folder / run / "tables" / f"{name}.csv", keep_default_na=False, na_values=[""])


def observed(work: Workplace, run: str) -> pd.DataFrame:
    return pd.read_parquet(work.folder / run / "observations.parquet")


def manifest_of(work: Workplace, run: str) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((work.folder / run / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def values_of(work: Workplace, run: str, measure: str) -> dict[str, float]:
    """A measure by score, of the whole set."""
    return {
        row["group"]["score"]: row["value"]
        for row in work.results(run)
        if row["measure"] == measure and not {"against", "occupations", "occupation"} & set(row["group"])
    }


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def moved(before: str) -> float:
    """How far the toy's female share moves between the two dates, by its own formula."""
    first, last = (planted_percent(before.replace("{w}", str(year)), year)["female"] for year in ENDS)
    return last - first


def test_run_prints_one_json_object_and_writes_its_folder(own: dict[str, Any], work: Workplace) -> None:
    assert (own["folder"], own["report"]) == ("own", "own/report.html")
    counts = {name: own["counts"][name] for name in ("items", "queries", "computed", "missing")}
    assert counts == {"items": 960, "queries": 960, "computed": 960, "missing": 0}
    assert all({"text", "significant", "strength", "results"} <= set(finding) for finding in own["findings"])
    folder = work.folder / "own"
    names = ["figures", "manifest.json", "observations.parquet", "report.html", "results.csv", "results.json", "tables"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert sorted(path.name for path in (folder / "tables").iterdir()) == [
        "occupations.csv",
        "sentence_slopes.csv",
        "sentences.csv",
    ]
    figures = {f"{kind}_toy_planted_date.{form}" for kind in ("occupations", "roc") for form in ("png", "svg")}
    assert {path.name for path in (work.folder / "planted" / "figures").iterdir()} == figures
    manifest = manifest_of(work, "own")
    assert (manifest["audit"], manifest["model"], manifest["protocol"]) == ("task-specification", "toy", "exact")
    assert manifest["command"] == "undertow run task-specification -m toy"
    assert manifest["python"] == "undertow.audit('task-specification', model='toy')"


def test_the_table_of_sentences_has_every_score(own: dict[str, Any], work: Workplace) -> None:
    frame, table = observed(work, "own"), table_of(work, "own")
    assert len(table) == 480
    assert set(SCORES) <= set(table)
    wide = frame.pivot_table(index="sentence", columns="w_index", values=GROUPS, sort=False).loc[table["sentence"]]
    first, last = (wide.xs(place, axis=1, level=1)[GROUPS].to_numpy() for place in (0, 1))
    for index, group in enumerate(GROUPS):
        assert table[f"delta_{group}"].to_numpy() == pytest.approx(np.abs(last - first)[:, index], abs=1e-9)
        assert table[f"mean_{group}"].to_numpy() == pytest.approx(((first + last) / 2)[:, index])
    assert table["total_variation"].to_numpy() == pytest.approx(np.abs(last - first).sum(axis=1) / 2, abs=1e-9)
    middle = (first + last) / 200
    assert table["entropy"].to_numpy() == pytest.approx(-100 * (middle * np.log(middle)).sum(axis=1) / math.log(3))
    assert table["combined"].between(0, 100).all()
    assert table[["slope_female", "entropy_plain"]].isna().all(axis=None)
    assert table["missing_reason"].isna().all()
    assert int((table["well_specified"] == True).sum()) == 120  # noqa: E712 - a column of booleans


def test_detection_that_never_fails_is_found(planted: list[str], work: Workplace) -> None:
    """The toy moves *she* and *he* with the date, and *her* and *his* not: the table has the kinds so."""
    n_sentences = 2 * len(OCCUPATIONS)
    assert planted[0].startswith(f"Scored {2 * n_sentences} items (")
    assert "in 100% of pairs" in planted[1]
    areas = values_of(work, "planted", "auroc")
    scores = ("delta_female", "total_variation", "combined", "delta_neutral")
    assert [areas[score] for score in scores] == [1, 1, 1, 0.5]
    for measure in ("tpr", "tnr", "balanced_accuracy", "held_out_balanced_accuracy"):
        assert values_of(work, "planted", measure)["total_variation"] == 1.0
    (effect,) = [row["value"] for row in work.results("planted") if row["measure"] == "mean_movement"]
    expected = np.mean([moved(f"In {{w}}: The {who} said that") for who in OCCUPATIONS])
    assert effect == pytest.approx(expected)
    assert f"{expected:+.1f} points" in "\n".join(planted)


# What was done is not done again.


def without_report(folder: Path) -> None:
    (folder / "report.html").unlink()


def of_other_code(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps(manifest | {"code_sha256": "0" * 64}), encoding="utf-8")


def corrupt(folder: Path) -> None:
    (folder / "observations.parquet").write_bytes(b"PAR1")


@pytest.mark.parametrize("change", briefly([of_other_code, corrupt, without_report], 2))
def test_run_that_is_not_whole_or_of_other_code_is_made_anew(
    change: Any, planted: list[str], work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits.load("task-specification"), "draw", no_figures)
    name = f"{change.__name__} copy"
    folder = work.folder / name
    shutil.copytree(work.folder / "planted", folder)
    change(folder)
    before = stamps(folder)
    said = work(*PLANTED, "--out", name, page=True).stdout.splitlines()
    assert f"(0 of {4 * len(OCCUPATIONS)} queries computed now" in said[0]
    assert said[1:-1] == planted[1:-1]
    # Every file is a new one, made from stored answers.
    after = stamps(folder)
    assert all(after[path] != before.get(path) for path in after if path.is_file())
    for part in FILES:
        assert (folder / part).read_bytes() == (work.folder / "planted" / part).read_bytes()
    assert manifest_of(work, name)["code_sha256"] == manifest_of(work, "planted")["code_sha256"]
    assert len(observed(work, name)) == 4 * len(OCCUPATIONS)
