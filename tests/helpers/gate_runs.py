"""Run folders and rules for gates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd

from undertow.runs.folder.storage import Record, write_record
from undertow.types import Result

MANIFEST: Mapping[str, Any] = {
    "schema_version": 1, "audit": "spurious-correlation", "model": "M", "design": {}, "run_key": "k" * 64, "request_key": "a",
    "seed": 0, "protocol": "exact", "command": "undertow", "python": "undertow", "created": "2026-01-01", "versions": {},
    "machine": {},
}  # fmt: skip
DATE = {"model": "M", "challenge": "mgc", "prompt": "", "w_name": "date", "pronoun": "female-male"}
GAP = Result(
    "slope_gap", DATE, 1.25, 1.0, 1.5, n=90, n_missing=10, unit="percent per step", null_value=0.0, p=0.04, q=0.06,
    extras={"detectable_slope": 0.2},
)  # fmt: skip
RESULTS = [
    GAP,
    replace(GAP, group={**DATE, "w_name": "place"}, value=-0.5, low=-0.75, high=0.25),
    replace(GAP, group={**DATE, "pronoun": "neutral-male"}, value=0.125, low=0.0625, high=0.25),
    Result("mean_mass", {**DATE, "pronoun": "other_words"}, 40.0, 39.0, 41.0, n=100, unit="percent"),
    Result(
        "pearson_r", {**DATE, "pronoun": "female"}, math.nan, n=0, n_missing=100, unit="r", null_value=0.0, note="Nothing was scored."
    ),
]  # fmt: skip


def run_folder(folder: Path, results: Sequence[Result] = RESULTS, **manifest: object) -> Path:
    """A run folder with these results."""
    frame = pd.DataFrame({"item": ["a"], "missing_reason": [""]})
    write_record(Record({**MANIFEST, **manifest}, frame, results), folder, lambda _: None)
    return folder


def rule(**keys: object) -> str:
    """A rule of a file; a measure and a threshold unless it says otherwise."""
    return "\n".join(["[[rule]]", *(f"{key} = {toml(value)}" for key, value in keys.items())]) + "\n"


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


WHERE = {"w_name": "date", "pronoun": "female-male"}


def gap_rule(**keys: object) -> str:
    return rule(**{"name": "gap", "measure": "slope_gap", "where": WHERE, "at_most": 10, **keys})


def parsed(path: Path) -> ET.Element:
    """The file as a parser reads it, its counts those of what is in it."""
    root = ET.parse(path).getroot()
    assert root.tag == "testsuites"
    suites = root.findall("testsuite")
    for suite in suites:
        cases = suite.findall("testcase")
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
        assert int(suite.attrib["tests"]) == len(cases)
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.attrib[name]) == sum(int(suite.attrib[name]) for suite in suites)
    return root


FOUR = gap_rule(name="passes") + gap_rule(name="fails", at_most=1, why="Because\nwe said so.")
FOUR += gap_rule(name="errs", measure="nosuch") + gap_rule(name="skips", measure="nosuch", optional=True)
