"""The page of a verification: what came of it is told first, broken promises before kept ones, and every model is on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from helpers.shared_folders import contents
from helpers.trained_models import lab
from undertow.lab.verification.figures import draw_power
from undertow.lab.verification.metrics import fitted_lines, intervals, results
from undertow.lab.verification.promises import verdicts
from undertow.lab.verification.report import FIGURES, FILES, Verification, findings, write


def told_of(frame: pd.DataFrame) -> Verification:
    found = results(frame)
    return Verification(
        intervals(frame), fitted_lines(frame), found, verdicts(found), command="undertow lab verify", notes=["A note."]
    )


def test_page_tables_and_figures_are_written_and_can_be_read_back(tmp_path: Path) -> None:
    """Of a verification with two models that did not converge."""
    folder = tmp_path / "a lab" / "told"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "mine.png").write_bytes(b"")
    frame = lab().assign(converged=lambda rows: ~rows["model"].isin(["masked-2-0", "causal-1-1"]))
    assert write(folder, told_of(frame)) == folder / "report.html"
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
    assert not findings(told_of(lab()))[0].text.startswith("A promise")
    strengths = [finding.strength for finding in told]
    assert strengths == sorted(strengths, reverse=True)
    assert all(finding.significant for finding in told)


def test_a_verification_that_is_stopped_leaves_the_one_before_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_of(lab([0, 1], 1, ["masked"]))
    # One drawing in place of all of them, which take long.
    monkeypatch.setattr("undertow.lab.verification.report._drawings", lambda told: [draw_power(told.results)])
    write(tmp_path, told)
    before = contents(tmp_path)
    with monkeypatch.context() as stopped:
        stopped.setattr("undertow.lab.verification.report.render_page", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, replace(told, models=told.models.iloc[:2]))
    assert contents(tmp_path) == before
    write(tmp_path, told)
    assert contents(tmp_path) == before
