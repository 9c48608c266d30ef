"""Figures of the occupation checklist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from undertow.audits.base import Observations
from undertow.audits.occupation_checklist.findings import main_context
from undertow.types import Result

if TYPE_CHECKING:
    from undertow.report.style import Drawing


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """The paper's Figure 1, and occupations ranked by whom the model prefers."""
    from undertow.report.figures.checklist_panels import draw_aspects, draw_ranking

    context = main_context(results)
    drawing = draw_aspects(results, context)
    if drawing is not None:
        yield drawing
    for model in dict.fromkeys(one.group["model"] for one in results):
        drawing = draw_ranking(results, observations.design.get("female_percent", {}), context, model)
        if drawing is not None:
            yield drawing
