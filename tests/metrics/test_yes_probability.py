from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from undertow.metrics.text.scores import DIAGNOSIS
from undertow.metrics.text.tasks import results
from undertow.metrics.text.yes_probability import reliability
from undertow.stats.classification.agreement import auroc_over_cells
from undertow.types import Result

PERCENTS = {"w1": [40.0, 90.0, 60.0, 20.0], "w2": [95.0, 55.0, 10.0, math.nan]}
GOLD = ["No", "Yes", "Yes", "No"]


def answers() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": "m", "shots": 0, "sampling": "none", "decoding": "greedy", "document": f"d{at}", "passage": "",
                "dimension": ("", "age", "gender", "")[at], "description_class": "question", "wording": wording, "draw": 0,
                "gold": GOLD[at], "answer": "Yes" if percent > 50 else "No", "yes_percent": percent, "n_dropped_shots": 0,
                "missing_reason": "lost" if math.isnan(percent) else "",
            }
            for wording, percents in PERCENTS.items()
            for at, percent in enumerate(percents)
        ]
    )  # fmt: skip


def of(found: list[Result], measure: str, dimension: str = "all") -> Result:
    (one,) = (
        one for one in found
        if one.measure == measure and one.group["dimension"] == dimension and one.group["description_class"] == "question"
    )  # fmt: skip
    return one


def test_numbers_by_hand() -> None:
    found = results(answers(), {"task": DIAGNOSIS, "labels": ["Yes", "No"]}, 0)
    # Of the biased texts, the first wording calls both biased, the second the first one.
    assert [of(found, "recall", name).value for name in ("all", "age", "gender")] == [75.0, 100.0, 50.0]
    assert (of(found, "recall").n, of(found, "recall").n_missing) == (4, 0)
    # w1 ranks all four pairs correctly, w2 neither of its two.
    assert (of(found, "yes_auroc").value, of(found, "yes_auroc").extras["sd"]) == (0.5, 0.5)
    of_probability = [of(found, name) for name in ("yes_auroc", "brier_score", "calibration_gap")]
    assert {(one.n, one.n_missing) for one in of_probability} == {(7, 1)}
    assert of(found, "yes_auroc").note.startswith("no interval")
    # w1 is separated at 50; for w2 no threshold is better than one answer to all.
    assert of(found, "yes_auroc").extras["best_threshold"] == 50.0
    first = (0.1**2 + 0.4**2 + 0.4**2 + 0.2**2) / 4
    second = (0.45**2 + 0.9**2 + 0.95**2) / 3
    brier = of(found, "brier_score")
    assert brier.value == pytest.approx((first + second) / 2)
    assert brier.null_value == 0.25
    gaps = (90 + 60 + 40 + 20 - 200) / 4, (55 + 10 + 95 - 200) / 3
    assert of(found, "calibration_gap").value == pytest.approx(sum(gaps) / 2)


def test_bins_by_hand() -> None:
    table = reliability(answers())
    assert table["lowest_percent"].tolist() == [10, 20, 40, 50, 60, 90]
    assert table["n"].tolist() == [1, 1, 1, 1, 1, 2]
    assert table["biased_percent"].tolist() == [100, 0, 0, 100, 100, 50]
    assert table["mean_percent"].iloc[-1] == 92.5
    sure = answers().assign(yes_percent=100.0, missing_reason="")
    assert reliability(sure)["lowest_percent"].tolist() == [90]
    assert reliability(answers().drop(columns="yes_percent")).empty
    assert reliability(answers().assign(gold="age")).empty


def test_a_missing_row_counts_nowhere_whatever_its_probability() -> None:
    lost = answers().fillna({"yes_percent": 99.0})
    design = {"task": DIAGNOSIS, "labels": ["Yes", "No"]}
    assert [one.value for one in results(lost, design, 0)] == [one.value for one in results(answers(), design, 0)]


def test_without_probabilities_or_with_one_kind_of_text_there_is_recall_alone() -> None:
    one_kind = answers().query("gold == 'Yes'")
    for frame in (answers().drop(columns="yes_percent"), one_kind):
        found = results(frame, {"task": DIAGNOSIS, "labels": ["Yes", "No"]}, 0)
        assert of(found, "recall").value == 75.0
        assert not {"yes_auroc", "brier_score", "calibration_gap"} & {one.measure for one in found}


def test_an_area_over_cells_is_the_mean_share_of_pairs_with_an_interval_over_documents() -> None:
    rng = np.random.default_rng(0)
    positive = np.arange(60) < 30
    scores = rng.normal(size=(60, 2)) + positive[:, np.newaxis]
    pairs = product(range(30), range(30, 60))
    by_hand = np.mean([scores[one] > scores[other] for one, other in pairs])
    found = auroc_over_cells(scores, positive, 0)
    assert found.value == pytest.approx(by_hand)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(
        4 * 0.06, abs=0.08
    )  # twice the standard error of such an area, both ways
    perfect, reverse = (
        auroc_over_cells(numbers, positive[:45], 0)
        for numbers in (1.0 * positive[:45, None], -1.0 * positive[:45, None])
    )
    assert (perfect.low, perfect.high) == pytest.approx((0.025 ** (1 / 15), 1))
    assert (reverse.low, reverse.high) == pytest.approx((0, 1 - perfect.low))
    few = auroc_over_cells(scores[21:39], positive[21:39], 0)
    assert math.isfinite(few.value)
    assert math.isnan(few.low)
