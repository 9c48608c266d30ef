"""Single results of a run, by their measure and what their group says."""

from __future__ import annotations

from undertow.runs.pipeline import Run
from undertow.types import Result


def results_of(run: Run, *measures: str, **group: str) -> list[Result]:
    """Results of these measures, or of any, whose groups say all of this."""
    of_measures = [one for one in run.record.results if not measures or one.measure in measures]
    return [one for one in of_measures if group.items() <= one.group.items()]


def result_of(run: Run, measure: str, **group: str) -> Result:
    """The only one."""
    (found,) = results_of(run, measure, **group)
    return found
