from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import undertow
from undertow import audits
from undertow.audits.base import Observations
from undertow.report.style import image_bytes
from undertow.runs.finished_run import observations_of
from undertow.stats import only_points, percentile_interval, point_estimates
from undertow.stats.arrays import Estimate
from undertow.stats.classification.agreement import mean_over_cells
from undertow.stats.classification.roc import auroc_p_value
from undertow.stats.context import interruptible
from undertow.stats.correlation import cluster_correlation
from undertow.stats.intervals.cluster_errors import cluster_weights
from undertow.stats.intervals.multiway_cluster import difference_of_ratios, ratio_interval
from undertow.stats.significance.sign_flip import sign_flip_pvalues

RNG = np.random.default_rng(0)


def test_the_switch_ends_with_its_context_and_stays_in_its_thread() -> None:
    seen: list[bool] = []

    def stopped() -> None:
        with point_estimates():
            other = threading.Thread(target=lambda: seen.append(only_points()))
            other.start()
            other.join()
            seen.append(only_points())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    assert seen == [False, True]
    assert not only_points()


def test_nothing_is_drawn() -> None:
    with point_estimates():
        assert cluster_weights(4, 100, RNG).shape == (0, 4)
        assert np.isnan(auroc_p_value([1.0, 2.0, 3.0], [True, False, True], [0, 1, 2], 100, RNG))
        assert np.isnan(sign_flip_pvalues((np.ones((4, 2)),) * 2, (np.ones((4, 2)),) * 2)).all()
        assert np.isnan(percentile_interval([])).all()


def test_values_are_what_they_are_without_it() -> None:
    values, y, ones = RNG.uniform(size=(12, 3)), RNG.uniform(size=12), np.ones(12)
    rows, columns = np.arange(12) // 3, np.arange(12) % 3
    asked: list[Callable[[], Estimate]] = [
        lambda: mean_over_cells(values, (0.0, 1.0)),
        lambda: ratio_interval(y, ones, rows, columns),
        lambda: cluster_correlation(np.arange(12.0), y, np.arange(12), 0),
        lambda: difference_of_ratios(y, ones, 1 - y, ones, rows, columns),
    ]
    plain = [ask() for ask in asked]
    with point_estimates():
        quick = [ask() for ask in asked]
    for one, other in zip(quick, plain, strict=True):
        assert repr((one.value, one.sd, one.n)) == repr((other.value, other.sd, other.n))
        assert np.isnan([one.low, one.high, one.p]).all()
    assert repr([ask() for ask in asked]) == repr(plain), "draws that are kept are none of the context"


class EndedError(Exception):
    """The caller wants no more."""


def end() -> None:
    raise EndedError


@pytest.mark.parametrize("audit", ["spurious-correlation", "bias-diagnosis", "occupation-checklist"])
def test_measuring_and_drawing_end_where_the_caller_says_so(audit: str, finished_run: Callable[..., Path]) -> None:
    run = undertow.load_run(finished_run(audit, "toy", limit=200))
    observations: Observations = observations_of(run.record)
    with interruptible(end), pytest.raises(EndedError):
        audits.load(audit).measure(observations, 0)
    drawing = next(audits.load(audit).draw(observations, run.record.results))
    with interruptible(end), pytest.raises(EndedError):
        image_bytes(drawing.figure, "png")
    # Outside of it both go on.
    assert image_bytes(drawing.figure, "png")
    assert len(audits.load(audit).measure(observations, 0)) > 0
