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
from undertow.stats.classification.roc import auroc_p_value
from undertow.stats.context import interruptible
from undertow.stats.intervals.cluster_errors import cluster_weights
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
