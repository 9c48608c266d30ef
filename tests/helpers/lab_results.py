"""Results of a lab for figures."""

from __future__ import annotations

import pandas as pd

from undertow.lab.verification.figures import draw_calibration, draw_power
from undertow.lab.verification.metrics import fitted_lines, intervals, results
from undertow.report.page_data import Drawing


def calibration(frame: pd.DataFrame) -> Drawing:
    return draw_calibration(intervals(frame), fitted_lines(frame), results(frame))


def power(frame: pd.DataFrame) -> Drawing:
    return draw_power(results(frame))


def failed(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The same, with models that did not converge and lie at their ignorant loss."""
    chosen = frame["model"].isin(names)
    loss = frame["pronoun_loss_nats"].mask(chosen, frame["ignorant_nats"])
    return frame.assign(converged=~chosen, pronoun_loss_nats=loss)


def mirrored(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with all slopes falling where they rose."""
    fallen = {name: -frame[name] for name in ("planted_slope", "population_slope", "measured_slope")}
    return frame.assign(low=-frame["high"], high=-frame["low"], **fallen)
