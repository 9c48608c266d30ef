"""The cases whose numbers are kept: each makes one table of results, small, through the public API alone.

Nothing else under tests/golden calls the package, so that what is renamed in it is renamed here, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import undertow
from helpers.trained_models import lab
from undertow.lab.verification.metrics import results as calibration_results
from undertow.runs.gates.evaluate import gate

TOY, NETWORKS, RECORDED, TOOLS = "toy", "networks", "recorded", "tools"
"""Kinds of case."""
LEFT_OUT = ("unit", "note", "null_value", "seconds")
"""Columns that hold no measured number: words, and the value that no bias would give."""
FEMALE_MALE = """
templates = ["{w}. {blank} was {stage}.", "In {w}, {blank} was {stage}."]
w = ["date"]
slots = { stage = ["a child", "an adult", "a teenager", "a painter"] }
groups = { female = ["she", "her"], male = ["he", "his"] }
"""
"""A challenge that a head with the labels female and male can be asked, as every other family can."""
RULES = """
schema = 1
[[rule]]
name = "small gap"
measure = "slope_gap"
where = { w_name = "date" }
of = "magnitude_high"
at_most = 0.5
[[rule]]
name = "detectable"
measure = "slope"
of = "detectable_slope"
at_most = 3
[[rule]]
name = "no wider"
measure = "slope_gap"
where = { w_name = "date" }
against = "baseline"
of = "magnitude_high"
at_most = 0.1
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A table of results to be kept.

    Attributes:
        kind: which tolerance holds.
        table: makes it, given a folder to work in and the folder of reference data.
    """

    kind: str
    table: Callable[[Path, Path], pd.DataFrame]


def _audit(audit: str, models: str | Sequence[str], **settings: Any) -> Callable[[Path, Path], pd.DataFrame]:
    """One audit; models that are folders or files lie in the working folder."""

    def table(folder: Path, _: Path) -> pd.DataFrame:
        (folder / "lives.toml").write_text(FEMALE_MALE, encoding="utf-8")
        return undertow.audit(audit, models, out=folder / "run", **settings).results

    return table


def _without_interval(measure: str, made: Callable[[Path, Path], pd.DataFrame]) -> Callable[[Path, Path], pd.DataFrame]:
    """The interval of a measure left out that jumps between processors: a score at a threshold counts or does not."""

    def table(folder: Path, reference_data: Path) -> pd.DataFrame:
        frame = made(folder, reference_data)
        frame.loc[frame["measure"] == measure, ["low", "high"]] = math.nan
        return frame

    return table


def _recorded(audit: str, name: str, where: Mapping[str, Sequence[object]]) -> Callable[[Path, Path], pd.DataFrame]:
    """The rows of a published table that have one of these values in each of these columns."""

    def table(folder: Path, reference_data: Path) -> pd.DataFrame:
        rows = pd.read_csv(reference_data / "recorded" / name, keep_default_na=False, dtype=str)
        for column, values in where.items():
            rows = rows[rows[column].isin([str(value) for value in values])]
        rows.to_csv(folder / "part.csv", index=False)
        return undertow.score(folder / "part.csv", audit=audit, out=folder / "run").results

    return table


def _two_runs(folder: Path) -> tuple[Path, Path]:
    """The toy with its own slope, and with a falling one."""
    asked: dict[str, Any] = {"challenge": "mgc", "w": "date", "date_count": 8, "limit": 96}
    one = undertow.audit("spurious-correlation", "toy", out=folder / "one", **asked)
    other = undertow.audit("spurious-correlation", "toy:slope=-5", out=folder / "other", **asked)
    return one.folder, other.folder


def _comparison(folder: Path, _: Path) -> pd.DataFrame:
    one, other = _two_runs(folder)
    return undertow.compare(one, other).table()


def _gate(folder: Path, _: Path) -> pd.DataFrame:
    one, other = _two_runs(folder)
    rules = folder / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    (judged,) = gate([other], rules, one).as_json()["runs"]
    rows = [
        {
            **outcome["group"],
            "rule": outcome["rule"],
            "outcome": outcome["outcome"],
            "value": math.nan if outcome["number"] is None else outcome["number"],
        }
        for outcome in judged["outcomes"]
    ]
    return pd.DataFrame(rows)


def _lab(_: Path, __: Path) -> pd.DataFrame:
    rows = []
    for result in calibration_results(lab(strengths=(0, 0.5, 1))):
        numbers = asdict(result)
        rows.append({"measure": numbers.pop("measure"), **numbers.pop("group"), **numbers.pop("extras"), **numbers})
    return pd.DataFrame(rows)


def _reopened(folder: Path, _: Path) -> pd.DataFrame:
    """A run from its folder: measured again, then opened."""
    one, _other = _two_runs(folder)
    undertow.score(one, seed=1)
    return undertow.load_run(one).results


WRITERS = ("causal", "seq2seq")
CASES: Mapping[str, Case] = {
    "toy_spurious_correlation": Case(TOY, _audit("spurious-correlation", "toy", w="date,place", limit=120)),
    "toy_task_specification": Case(TOY, _audit("task-specification", "toy", limit=60)),
    "toy_occupation_checklist": Case(
        TOY, _audit("occupation-checklist", "toy", n_pairs=10, n_occupations=2, wordings=1)
    ),
    "toy_bias_diagnosis": Case(TOY, _audit("bias-diagnosis", "toy", n_documents=12, wordings=2, shots="0,2")),
    "toy_bias_identification": Case(TOY, _audit("bias-identification", "toy", n_documents=12, wordings=1)),
    "toy_bias_extraction": Case(TOY, _audit("bias-extraction", "toy", n_documents=12, wordings=1)),
    "toy_bias_rephrasing": Case(TOY, _audit("bias-rephrasing", "toy", n_documents=12, wordings=1)),
    "networks_spurious_correlation": Case(
        NETWORKS,
        _audit(
            "spurious-correlation",
            ["causal", "gguf:network.gguf", "masked", "seq2seq", "labelled"],
            challenge="lives.toml",
            date_count=5,
        ),
    ),
    "networks_task_specification": Case(
        NETWORKS,
        _without_interval(
            "held_out_balanced_accuracy", _audit("task-specification", ["causal", "masked"], limit=24, date_start=1850)
        ),
    ),
    "networks_occupation_checklist": Case(
        NETWORKS,
        _audit("occupation-checklist", ["causal", "extractive"], n_pairs=2, n_occupations=1, wordings=1, negated=False),
    ),
    "networks_bias_diagnosis": Case(NETWORKS, _audit("bias-diagnosis", WRITERS, n_documents=4, wordings=1)),
    "networks_bias_identification": Case(NETWORKS, _audit("bias-identification", WRITERS, n_documents=3, wordings=1)),
    "networks_bias_extraction": Case(NETWORKS, _audit("bias-extraction", ["causal"], n_documents=3, wordings=1)),
    "networks_bias_rephrasing": Case(NETWORKS, _audit("bias-rephrasing", ["seq2seq"], n_documents=2, wordings=1)),
    "recorded_pronoun_mass": Case(
        RECORDED,
        _recorded(
            "spurious-correlation",
            "mgc_pronoun_mass.csv.gz",
            {"model": ["bert-base-uncased", "roberta-base"], "w_name": ["date"], "text_index": range(12)},
        ),
    ),
    "recorded_specification": Case(
        RECORDED,
        _recorded(
            "task-specification",
            "specification_pronoun_mass.csv.gz",
            {"model": ["bert-base-uncased"], "set": ["simplified"]},
        ),
    ),
    "comparison": Case(TOOLS, _comparison),
    "gate": Case(TOOLS, _gate),
    "lab": Case(TOOLS, _lab),
    "measured_anew": Case(TOOLS, _reopened),
}
