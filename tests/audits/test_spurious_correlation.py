"""What is claimed of a drift, and what is not: lists in any order or none, short ones, few sentences, several prompts and models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from undertow import audits
from undertow.audits.base import Observations
from undertow.metrics.metric import OVER_PROMPTS
from undertow.types import Finding, Result

Floats = NDArray[np.float64]
DRIFT = audits.load("spurious-correlation")
GROUPS = ("xe", "ze")
DRIFTS = ("slope", "slope_gap")


def masses(seed: int = 0, n_values: int = 12, slope: float = 1.5, noise: float = 0.0) -> dict[str, Floats]:
    """Percent of two groups, of which the first drifts [sentence, value]; noise is that of each value."""
    rng, shape = np.random.default_rng(seed), (12, n_values)
    levels = 20 + rng.normal(0, 4, (12, 1)) + noise * rng.normal(size=n_values)
    return {"xe": levels + slope * np.arange(n_values) + rng.normal(0, 1, shape), "ze": 10 + rng.normal(0, 1, shape)}


def rows(of_groups: dict[str, Floats], w: Sequence[str], **run: str) -> pd.DataFrame:
    """A recorded table: a row for each sentence and value, listed as `w` is."""
    sentence, at = np.indices(of_groups["xe"].shape).reshape(2, -1)
    given: dict[str, Any] = {"model": "m", "prompt": "", "w_name": "year"} | run
    columns = given | {"w_index": at, "w": np.asarray(w)[at], "text_index": sentence}
    return pd.DataFrame(columns | {group: mass.ravel() for group, mass in of_groups.items()})


def scored(frame: pd.DataFrame, folder: Path) -> tuple[Observations, list[Result], list[Finding]]:
    """Of a recorded table."""
    frame.to_csv(folder / "own.csv", index=False)
    return told_of(DRIFT.load_recorded(folder / "own.csv", "")[0])


def told_of(evidence: Observations) -> tuple[Observations, list[Result], list[Finding]]:
    results = DRIFT.measure(evidence, 0)
    return evidence, results, DRIFT.findings(evidence, results)


Key = tuple[str, str]


def key_of(result: Result) -> Key:
    return result.measure, result.group["pronoun"]


def by_name(results: Sequence[Result]) -> dict[Key, Result]:
    return {key_of(one): one for one in results}


def decisive(finding: Finding) -> list[Result]:
    """The results of a finding that decide: drifts, or, of a list without an order, the effects of its values."""
    measure = finding.results[0].measure.removesuffix(OVER_PROMPTS)
    kinds = DRIFTS if measure in DRIFTS else (measure,)
    return [one for one in finding.results if one.measure.removesuffix(OVER_PROMPTS) in kinds]


def named(result: Result) -> str:
    """How a sentence names a group or the lead of one over another."""
    first, _, second = result.group["pronoun"].partition("-")
    return f"lead of {first} over {second} words" if second else f"of {first} words"


def claimed(told: Sequence[Finding]) -> set[Key]:
    """Measure and group of what is claimed of one model, which its text names and nothing else."""
    found = [one for finding in told for one in decisive(finding) if one.q < 0.05]
    assert [finding.significant for finding in told] == [
        any(one.q < 0.05 for one in decisive(finding)) for finding in told
    ]
    for finding in told:
        if finding.significant:
            assert finding.results[0].q < 0.05, "the first decides"
            assert all((named(one) in finding.text) == (one.q < 0.05) for one in decisive(finding)), finding.text
            assert all(named(one) in finding.detail for one in decisive(finding) if not one.q < 0.05), finding.detail
    return {key_of(one) for one in found}


YEARS = [str(1900 + 10 * at) for at in range(12)]


def test_a_planted_drift_is_claimed_by_its_q_and_nothing_else_is(tmp_path: Path) -> None:
    _, results, told = scored(rows(masses(), YEARS), tmp_path)
    assert claimed(told) == {("slope", "xe"), ("slope_gap", "xe-ze")}
    (finding,) = told
    assert [key_of(one) for one in decisive(finding)] == [("slope_gap", "xe-ze"), ("slope", "xe"), ("slope", "ze")]
    assert all(any(one is result for result in results) for one in finding.results)
    assert (finding.significant, finding.n_tests, finding.decision_rule) == (True, 3, "")
    # Along the fitted line, from its first to its last year.
    moves = {key: 110 * by_name(results)[key].value for key in (("slope", "xe"), ("slope_gap", "xe-ze"))}
    assert finding.strength == pytest.approx(max(abs(move) for move in moves.values()))
    assert finding.text == (
        f"With year from 1900 to 2010, the probability of xe words rises by {moves['slope', 'xe']:.1f} percentage points "
        f"and the lead of xe over ze words rises by {moves['slope_gap', 'xe-ze']:.1f}."
    )
    assert by_name(results)["w_effect", "ze"].q < 0.05
    assert (
        "The probability of ze words depends on year, but shows no significant trend from 1900 to 2010"
        in finding.detail
    )


@pytest.mark.parametrize(
    ("years", "ratio"),
    [
        ([*range(1900, 1904), *range(2000, 2004)], 97),
        ([1800, 1900, 1950, 1970, 1980, 1990, 2000, 2010], 0),
        (range(1801, 2016, 7), 0),
    ],
)
def test_a_trend_of_bunched_values_is_not_claimed_for_other_values(
    years: Sequence[int], ratio: int, tmp_path: Path
) -> None:
    of_groups = masses(n_values=len(years), slope=0.0)
    of_groups["xe"] += 0.2 * (np.array(years) - years[0])
    _, results, (finding,) = scored(rows(of_groups, list(map(str, years))), tmp_path)
    assert by_name(results)["slope_gap", "xe-ze"].extras["values_q"] < 0.05
    assert ("generalises to other values of year" in finding.detail) == (ratio == 0)
    assert (f"year are bunched (the largest gap is {ratio} times the median gap)" in finding.detail) == (ratio > 0)


def test_a_model_that_never_moves_is_compared_and_one_without_a_test_is_counted(tmp_path: Path) -> None:
    tables = [rows(masses(slope=slope), YEARS, model=model) for slope, model in ((1.5, "A"), (0.5, "B"))]
    constant = {group: np.full((12, 12), mass) for group, mass in (("xe", 20.0), ("ze", 10.0))}
    few = {group: mass[:3] for group, mass in masses(slope=0.0).items()}
    tables += [rows(constant, YEARS, model="C"), rows(few, YEARS, model="D")]
    _, _, told = scored(pd.concat(tables), tmp_path)
    text = next(one.text for one in told if one.text.startswith("Over"))
    assert text.startswith("Over 3 models")
    assert "least in C, by 0.0" in text
    assert re.search(r"in 2 of 3\b.*\b1 further model\b", text)


def test_a_run_that_cannot_detect_any_possible_change_says_so(tmp_path: Path) -> None:
    jumps = np.tile([1.0, 99.0, 99.0, 1.0, 1.0, 99.0, 99.0, 1.0], (6, 1))
    noise: Floats = jumps + np.random.default_rng(1).uniform(-1, 1, jumps.shape)
    _, _, told = scored(rows({"xe": noise, "ze": 100.0 - noise}, YEARS[:8]), tmp_path)
    (finding,) = told
    assert re.search(r"cannot detect .*lead of xe over ze words \(200 points\)", finding.detail)


@pytest.mark.parametrize("n_values", [4, 7])
def test_few_values_claim_no_drift_and_say_why(n_values: int, tmp_path: Path) -> None:
    """However steep it is, and however small its p would be over four points."""
    _, results, told = scored(rows(masses(n_values=n_values, slope=8.0), YEARS[:n_values]), tmp_path)
    assert claimed(told) == set()
    (finding,) = told
    assert {key_of(one) for one in decisive(finding)} == {("slope", "xe"), ("slope", "ze"), ("slope_gap", "xe-ze")}
    for result in decisive(finding):
        assert np.isnan([result.low, result.high, result.p, result.q]).all()
        assert result.note[1:] in finding.text
    assert not finding.significant
    assert (finding.n_tests, bool(finding.decision_rule)) == (0, True)
    assert by_name(results)["w_effect", "xe"].q < 0.05 <= by_name(results)["w_effect", "ze"].q
    # That these values matter is another statement.
    assert "xe words and the lead of xe over ze words depend on year, but no drift can be claimed" in finding.text
    assert finding.detail == "For the same reason, no drift of the probability of ze words can be claimed."


def unordered(of_groups: dict[str, Floats]) -> tuple[Observations, list[Result], list[Finding]]:
    """A list whose owner says that it has no order."""
    w = [f"town {at}" for at in range(of_groups["xe"].shape[1])]
    frame = rows(of_groups, w, w_name="town")
    frame = frame.assign(challenge="own", cluster=frame["text_index"].astype(str), missing_reason="", other_words=5.0)
    evidence = Observations(
        frame.drop(columns="text_index"),
        {
            "groups": [*GROUPS], "gaps": [[*GROUPS]], "words": {}, "protocol": "exact",
            "covariates": {"town": {"order": "as listed", "scale": "none", "unit": "", "uneven": False}},
        },
    )  # fmt: skip
    return told_of(evidence)


def test_a_list_without_an_order_is_asked_whether_it_matters_and_never_for_a_slope() -> None:
    for of_groups, expected in (
        (masses(1, slope=0.0, noise=3.0), {("w_effect", "xe"), ("w_effect", "xe-ze")}),
        (masses(1, slope=0.0), set()),
    ):
        _, results, told = unordered(of_groups)
        assert {one.measure for one in results} == {"mean_mass", "w_effect"}
        assert claimed(told) == expected
        (finding,) = told
        assert [key_of(one) for one in decisive(finding)] == [("w_effect", group) for group in ("xe-ze", *GROUPS)]
        assert (finding.n_tests, finding.decision_rule) == (3, "")
        assert {one.measure for one in finding.results} == {"w_effect", "mean_mass"}


def test_of_several_prompts_their_average_is_claimed_once(tmp_path: Path) -> None:
    """One prompt drifts the other way: what is claimed of the model is what its prompts have in common."""
    slopes = {"A": 1.5, "B": 1.6, "C": -0.4}
    prompted = [
        rows(masses(seed, slope=slope), YEARS, prompt=prompt) for seed, (prompt, slope) in enumerate(slopes.items())
    ]
    _, results, told = scored(pd.concat(prompted), tmp_path)
    (finding,) = told
    assert [one.measure for one in decisive(finding)] == ["slope_gap_over_prompts", *["slope_over_prompts"] * 2]
    assert all(one.measure.endswith(OVER_PROMPTS) for one in finding.results)
    assert finding.text.startswith("mean over prompts A, B, C: ")
    assert claimed(told) == {("slope_over_prompts", "xe"), ("slope_gap_over_prompts", "xe-ze")}
    over = next(one for one in results if key_of(one) == ("slope_over_prompts", "xe"))
    assert 10 * over.value == pytest.approx(np.mean([*slopes.values()]), abs=0.1)
    assert "prompt" not in over.group
    by_prompt = [one for one in results if one.measure in DRIFTS]
    assert len(by_prompt) == 9
    assert np.isfinite([one.p for one in by_prompt]).all()
    assert np.isnan([one.q for one in by_prompt]).all()
