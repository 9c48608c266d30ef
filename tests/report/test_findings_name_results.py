"""Every audit of the package says which results its findings tell, and how each was decided."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from undertow.audit import Run
from undertow.probes import spurious_correlation
from undertow.probes.base import Evidence
from undertow.types import Finding, Result

AUDITS: dict[str, dict[str, Any]] = {
    "spurious-correlation": {"model": "toy", "limit": 300},
    "spurious-correlation of two": {"model": ["toy", "uniform"], "limit": 120},
    "task-specification": {"model": "toy", "limit": 200},
    "occupation-checklist": {"model": "toy", "limit": 400},
    "bias-identification": {"model": "toy", "limit": 60},
    "bias-diagnosis": {"model": "toy", "limit": 60},
}


@pytest.fixture(params=AUDITS)
def told(request: pytest.FixtureRequest, finished_run: Callable[..., Path]) -> tuple[Run, list[Finding]]:
    run = undertow.open_run(finished_run(request.param.partition(" ")[0], **AUDITS[request.param]))
    return run, run.findings


def test_findings_tell_results_of_the_run_and_how_each_was_decided(told: tuple[Run, list[Finding]]) -> None:
    run, findings = told
    assert any(finding.of for finding in findings)
    for finding in findings:
        assert all(any(one is result for result in run.record.results) for one in finding.of), finding.text

    for finding in findings:
        many = finding.text.startswith("For ")  # as for which occupations, of which the largest come first
        if not finding.of or not finding.of[0].value or math.isnan(finding.of[0].value) or many:
            continue
        first = finding.of[0]
        numbers = {float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*\.?\d*", finding.text)}
        sizes = {abs(part) for part in (first.value, 100 * first.value, 100 - first.value) if math.isfinite(part)}
        assert any(abs(size - given) <= 0.051 * max(1.0, size) for size in sizes for given in numbers), finding.text

    n_finite = sum(math.isfinite(one.q) for one in run.record.results if one.measure != "pearson_r")
    for finding in findings:
        by_q = bool(finding.of) and math.isfinite(finding.of[0].q) and finding.n_tests > 0
        assert by_q or finding.decided, finding.text
        if not finding.decided:
            assert finding.n_tests == n_finite, finding.text
            assert finding.found is (finding.of[0].q < 0.05), finding.text


@pytest.mark.parametrize(
    ("slopes", "said"),
    [
        # Three sentences rise and one falls: their mean is a straight line, and other sentences may fall.
        (
            (2.0, 1.0, 0.0, -1.0),
            "is not claimed: q is below .001, but its 95% interval includes 0 (+0.50 points a step, 95% interval -",
        ),
        ((0.0, 0.0, 0.0, 0.0), "can be told from chance ("),
    ],
)
@pytest.mark.usefixtures("untold")
def test_a_sentence_that_claims_nothing_names_what_decided(
    slopes: tuple[float, ...], said: str, tmp_path: Path
) -> None:
    """The interval, where it is not q: a small q beside "chance" would contradict it."""
    rows = [
        {"model": "m", "w_name": "date", "w_index": w, "w": str(1900 + w), "text_index": cluster,
         "xe": 20 + slopes[cluster % 4] * w + (w * 5 + cluster) % 7 * 0.1}
        for cluster in range(8)
        for w in range(8)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    run = undertow.score(tmp_path / "t.csv", probe="spurious-correlation", out=tmp_path / "run")
    (drift,) = run.findings
    by_interval = drift.of[0].q < 0.05
    assert not drift.found
    assert said in drift.text
    assert by_interval is ("chance" not in drift.text) is drift.decided.endswith("but its 95% interval includes 0.")


@pytest.mark.parametrize(("q", "low"), [(0.034, -1.31), (0.0004, -1.31), (0.034, math.nan)])
def test_drift_that_is_not_claimed_names_q_and_interval(q: float, low: float) -> None:
    group = {"model": "m", "challenge": "c", "prompt": "", "w_name": "date", "pronoun": "female-male"}
    detail = {"first": 1.0, "last": -2.8, "detectable_slope": 0.3}
    gap = Result("slope_gap", group, -0.42, low, low + 1.47, 60, neutral=0.0, p=q, q=q, detail=detail)
    about = {name: group[name] for name in ("model", "challenge", "prompt", "w_name")}
    frame = pd.DataFrame([{**about, "w": w, "w_index": at, "unscored": ""} for at, w in enumerate(("1801", "2016"))])
    design = {"gaps": [["female", "male"]], "words": {}}
    (finding,) = spurious_correlation.findings(Evidence(frame, design), [gap])
    assert not finding.found
    assert ("q is .034" if q > 0.001 else "q is below .001") in finding.text
    assert "-0.42" in finding.text
    assert ("-1.31" if math.isfinite(low) else "no 95% interval") in finding.text
    assert finding.decided
