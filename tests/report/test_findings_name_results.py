from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import undertow
from undertow.report.formatting import change_over_list
from undertow.types import Result

AUDITS: dict[str, dict[str, Any]] = {
    "spurious-correlation": {"model": "toy", "limit": 300},
    "spurious-correlation of two": {"model": ["toy", "uniform"], "w": "date", "limit": 90},
    "task-specification": {"model": "toy", "limit": 200},
    "occupation-checklist": {"model": "toy", "n_pairs": 2, "n_occupations": 6},
    "bias-identification": {"model": "toy", "n_documents": 12, "wordings": 2},
    "bias-diagnosis": {"model": "toy", "n_documents": 12, "wordings": 2},
}


def kind_of_test(result: Result) -> str:
    """Tests of one kind are corrected together: of an audit with several, any effect of W and its order."""
    of_drift = result.measure.startswith(("w_effect", "slope")) and "challenge" in result.group
    return result.measure.split("_")[0] if of_drift else ""


@pytest.mark.parametrize("name", AUDITS)
def test_findings_tell_results_of_the_run_and_how_each_was_decided(
    name: str, finished_run: Callable[..., Path]
) -> None:
    run = undertow.load_run(finished_run(name.partition(" ")[0], **AUDITS[name]))
    n_finite = Counter(kind_of_test(one) for one in run.record.results if math.isfinite(one.q))
    assert any(finding.results for finding in run.findings)
    for finding in run.findings:
        assert all(any(one is result for result in run.record.results) for one in finding.results), finding.text
        assert not re.search(r"\([^)]*\d\.\d", finding.text), "numbers in brackets are for its table"
        # What a sentence says to a tenth is a number of its results, or a change over the whole list.
        sizes = {
            abs(size)
            for one in finding.results
            for size in (one.value, one.null_value, change_over_list(one), 100 - one.value)
            if math.isfinite(size)
        }
        for given in map(float, re.findall(r"(?<![\d.])\d+\.\d+", finding.text)):
            told_of = given == 0.5 or any(abs(size - given) <= 0.051 * max(1.0, size) for size in sizes)  # a threshold
            assert told_of, finding.text
        by_q = bool(finding.results) and math.isfinite(finding.results[0].q) and finding.n_tests > 0
        assert by_q or finding.decision_rule, finding.text
        if not finding.decision_rule:
            assert finding.n_tests == n_finite[kind_of_test(finding.results[0])], finding.text
            assert finding.significant is (finding.results[0].q < 0.05), finding.text
