"""Results of an occupation checklist for figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from undertow.report.figures.checklist_panels import draw_aspects, draw_ranking
from undertow.report.page_data import Drawing
from undertow.types import Result

NAN = math.nan
CONTEXT = "with attributes"
SHARES = {
    "position_bias": (61.0, 50.0), "consistency": (72.5, 50.0), "bias": (30.0, NAN), "preference_female": (40.0, 50.0),
    "preference_male": (60.0, 50.0), "switch_female_to_male": (5.0, NAN), "switch_male_to_female": (100.0, NAN),
}  # fmt: skip
"""Values and null values, not in the order of the figure."""


def share(measure: str, model: str = "m", value: float | None = None, **group: str) -> Result:
    usual, neutral = SHARES[measure]
    value = usual if value is None else value
    where = {"model": model, "occupation": "all", "context": CONTEXT} | group
    n = 1200 if math.isfinite(value) else 0
    return Result(measure, where, value, max(value - 4, 0), min(value + 3, 100), n, 0, "percent", neutral)


def shares(*models: str) -> list[Result]:
    return [share(measure, model) for model in models or ("m",) for measure in SHARES]


def aspects(results: Sequence[Result], context: str = CONTEXT) -> Drawing:
    drawing = draw_aspects(results, context)
    assert drawing is not None
    return drawing


def gap(occupation: str, value: float, q: float = NAN, half: float = 2.0, **group: str) -> Result:
    where = {"model": "m", "occupation": occupation, "context": CONTEXT} | group
    return Result("choice_gap", where, value, value - half, value + half, 70, 0, "percentage points", 0.0, q, q)


GAPS = [gap("nurse", 8.0, 0.01), gap("cook", -0.5, 0.6), gap("plumber", -12.0, 0.049), gap("poet", 3.0, 0.05)]
WOMEN = {"nurse": 90.0, "plumber": 1.0, "cook": 40.0, "pilot": 5.0}


def ranking(results: Sequence[Result] = GAPS, women: Mapping[str, float] = WOMEN, model: str = "m") -> Drawing:
    drawing = draw_ranking(results, women, CONTEXT, model)
    assert drawing is not None
    return drawing
