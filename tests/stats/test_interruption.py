"""Statistics and figures end where their caller wants them to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import undertow
from undertow import audits
from undertow.audits.base import Observations
from undertow.report.style import image_bytes
from undertow.runs.finished_run import observations_of
from undertow.stats.context import interruptible


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
