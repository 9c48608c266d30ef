"""A comparison in words, figures and files: what each sentence rests on, what is shown, and what becomes of corrupt folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.compared_runs import DESIGN, FIRST, SECOND, outside_audit, record, table
from helpers.figure_checks import words
from undertow import audits
from undertow.audits.base import Observations
from undertow.errors import UndertowError
from undertow.runs.compare import compare
from undertow.runs.compare.comparison_report import comparison_text, drawings
from undertow.runs.folder.storage import Record
from undertow.types import Result

# What a sentence rests on.


def plain(model: str = "one", values: Mapping[str, list[float]] = FIRST, **changed: Any) -> Record:
    return record(table(values, model), **changed)


def test_figures_show_the_differences_by_name_and_count_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = {name: [one + 2 * at for one in FIRST["a"]] for at, name in enumerate("abcdef")}
    moved = {name: [one + 3 + at for one in row] for at, (name, row) in enumerate(by_hand.items())}
    of = compare(plain("one", by_hand), plain("two", moved))
    made = {one.name: one for one in drawings([of])}
    said = {name: set(words(one.figure)) for name, one in made.items()}
    assert {"female", "male", "other_words (no interval)"} <= said["difference_mean_mass"]
    assert "other_words 0.00 (no interval)" in made["difference_mean_mass"].alt
    assert "of 3" not in made["difference_mean_mass"].caption
    still = [replace(one, value=0.0) for one in of.differences]
    assert drawings([replace(of, differences=still)]) == []
    monkeypatch.setattr("undertow.runs.compare.comparison_report.MAX_ROWS", 2)
    (fewer,) = [one for one in drawings([of]) if one.name == "difference_mean_mass"]
    assert "2 strongest of 3" in fewer.caption


# Runs that are odd, or corrupt.


def without(run: Record, name: str, **instead: Any) -> Record:
    """The run with a fact of its design left out, or exchanged."""
    design = {key: fact for key, fact in DESIGN.items() if key != name}
    return replace(run, manifest={**run.manifest, "design": design | instead})


def test_run_that_lacks_what_its_audit_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UndertowError, match=r"^two: .*gaps"):
        compare(plain(), without(plain("two", SECOND), "gaps"))
    of = compare(without(plain(), "title"), plain("two", SECOND))
    with pytest.raises(UndertowError, match=r"^one: .*title"):
        comparison_text(of)
    for side in (0, 1):
        runs = [plain(), plain("two", SECOND)]
        runs[side] = replace(runs[side], observations=runs[side].observations.iloc[:0])
        with pytest.raises(UndertowError, match=f"{('one', 'two')[side]} has no items"):
            compare(runs[0], runs[1], names=("one", "two"))


def test_answers_that_are_lists_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a difference would be told with an interval from 0 to 0."""

    def measure(evidence: Observations, seed: int) -> list[Result]:
        return [Result("mean", {}, float(np.mean([sum(one) for one in evidence.frame["picks"]])), n=1)]

    def run(picks: Sequence[Sequence[float]]) -> Record:
        frame = pd.DataFrame({"item": [str(at) for at in range(len(picks))], "picks": list(picks), "model": "m"})
        return record(frame, audit="outside", design={"groups": []})

    monkeypatch.setattr(audits, "load", lambda name: outside_audit(measure))
    first = [[1.0, 2.0], [3.0], [0.5, 1.0]] * 2
    of = compare(run(first), run([[2.0, 2.0], [5.0], [0.5, 1.5]] * 2))
    assert not of.identical
    (found,) = of.differences
    assert found.value == pytest.approx(3.5 / 3)
    assert found.low < found.value < found.high
    assert compare(run(first), run(first)).identical
    nearly = [[one * (1 + 1e-12) for one in row] for row in first]
    assert compare(run(first), run(nearly)).identical
    assert not compare(run(first), run([row[:1] for row in first])).identical
