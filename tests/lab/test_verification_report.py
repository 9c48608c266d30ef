"""The page of a verification: what came of it is told first, broken promises before kept ones, and every model is on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NoReturn

import pandas as pd
import pytest

from helpers.shared_folders import contents
from helpers.trained_models import lab
from undertow.lab.verification.figures import draw_power
from undertow.lab.verification.metrics import fitted_lines, intervals, results
from undertow.lab.verification.promises import verdicts
from undertow.lab.verification.report import FIGURES, FILES, Verification, findings, write
from undertow.report.page_data import Drawing


def told_of(frame: pd.DataFrame) -> Verification:
    found = results(frame)
    return Verification(
        intervals(frame), fitted_lines(frame), found, verdicts(found), command="undertow lab verify", notes=["A note."]
    )


@cache
def usual() -> list[str]:
    """What is found in the usual lab; measured once."""
    return [finding.text for finding in findings(told_of(lab()))]


def without(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    return frame.assign(converged=~frame["model"].isin(names))


def test_page_tables_and_figures_are_written_and_can_be_read_back(tmp_path: Path) -> None:
    """Of a verification with two models that did not converge."""
    folder = tmp_path / "a lab" / "told"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "mine.png").write_bytes(b"")
    assert write(folder, told_of(without(lab(), "masked-2-0", "causal-1-1"))) == folder / "report.html"
    assert {path.name for path in folder.iterdir()} == {*FILES, "figures"}
    assert "findings are significant" not in (folder / "report.html").read_text("utf-8"), "no test decides them"
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {"mine.png", *(f"{name}{end}" for name in FIGURES for end in (".svg", ".png"))}
    models, numbers = pd.read_csv(folder / "models.csv"), pd.read_csv(folder / "results.csv")
    assert len(models) == 48
    assert set(models.loc[models["left_out"].notna(), "model"]) == {"masked-2-0", "causal-1-1"}
    again = intervals(models.drop(columns="left_out"))
    assert again["seed_low"].to_numpy() == pytest.approx(models["seed_low"].to_numpy(), nan_ok=True)
    slope = numbers[(numbers["measure"] == "calibration_slope") & (numbers["architecture"] == "all")]
    assert slope["value"].item() == pytest.approx(1, abs=0.02)
    assert list(numbers.columns[:4]) == ["measure", "architecture", "w_name", "strength"]


def test_a_broken_promise_is_told_first() -> None:
    """Of the same models, read by an audit that loses a third of every slope."""
    frame, names = lab(), ("measured_slope", "low", "high")
    lost = frame["measured_slope"] / 3
    told = findings(told_of(frame.assign(**{name: frame[name] - lost for name in names})))
    first = told[0].text
    assert first.startswith("A promise is not kept. Measured slopes follow planted slopes: 0.67")
    assert first.endswith("calibration slope of 0.8 to 1.2.")
    assert not usual()[0].startswith("A promise")
    strengths = [finding.strength for finding in told]
    assert strengths == sorted(strengths, reverse=True)
    assert all(finding.significant for finding in told)


def test_a_verification_that_is_stopped_leaves_the_one_before_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_of(lab([0, 1], 1, ["masked"]))
    monkeypatch.setattr("undertow.lab.verification.report._drawings", one_drawing)
    write(tmp_path, told)
    before = contents(tmp_path)
    with monkeypatch.context() as stopped:
        stopped.setattr("undertow.lab.verification.report.render_page", stop)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, replace(told, models=told.models.iloc[:2]))
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) == set(before)
    write(tmp_path, told)
    assert contents(tmp_path) == before


def one_drawing(told: Verification) -> list[Drawing]:
    """In place of all of them, which take long."""
    return [draw_power(told.results)]


def stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt
