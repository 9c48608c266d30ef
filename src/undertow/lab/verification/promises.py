"""What the audit promises, held against the measures of a verification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from undertow.lab.verification.metrics import ALL, STEPS, UNBIASED, along, get_result, levels_of
from undertow.lab.verification.paragraphs import paragraphs
from undertow.types import Result

SLOPE_TARGET = (0.8, 1.2)
COVERAGE_TARGET, WIDTH_TARGET, POWER_TARGET, FALSE_ALARM_TARGET = 0.9, 0.5, 0.8, 0.1
MIN_UNBIASED_MODELS = 20
"""Of fewer unbiased models, one false alarm is already far more than one in ten, or may be."""

KEPT = {True: "yes", False: "no", None: "not judged"}
Verdict: TypeAlias = tuple[str, str, str, bool | None]
"""Requirement, target and value in words, and whether the target is met; None if there is no number to judge."""


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """Each promise of the audit, judged by `results`.

    Coverage and false alarms are judged along the W along which some model is biased; the other W are reported beside them. False
    alarms are judged where at least 20 models have no bias at all; with fewer there is no such promise in the list.
    """

    def pooled(measure: str, strength: str = ALL) -> Result:
        return next(r for r in results if r.measure == measure and levels_of(r) == (ALL, ALL, strength))

    slope, coverage, width = pooled("calibration_slope"), pooled("coverage"), pooled("interval_width")
    power, alarms, beside = strongest(results), pooled("false_alarms", UNBIASED), get_result(results, "coverage_beside")
    biased, alarmed = coverage.extras["biased"], alarms.extras["models_alarmed"]
    texts = paragraphs(
        "promises.txt.j2",
        along=lambda measure: along(results, measure),
        slope=slope, coverage=coverage, width=width, power=power, alarms=alarms, beside=beside,
        slope_target=SLOPE_TARGET, coverage_target=COVERAGE_TARGET, width_target=WIDTH_TARGET, power_target=POWER_TARGET,
        false_alarm_target=FALSE_ALARM_TARGET, min_unbiased=MIN_UNBIASED_MODELS, steps=STEPS,
    )  # fmt: skip
    relative = width.extras["of_largest"]  # NaN without a planted bias
    judged = {
        "slope": (slope, slope.value, SLOPE_TARGET[0] <= slope.value <= SLOPE_TARGET[1]),
        "coverage": (coverage, coverage.value, coverage.value >= COVERAGE_TARGET and not biased < COVERAGE_TARGET),
        "width": (width, relative, relative < WIDTH_TARGET),
        "power": (power, power.value, power.value >= POWER_TARGET),
        "false alarms": (alarms, alarms.value, max(alarms.value, alarmed) <= FALSE_ALARM_TARGET),
    }
    if alarms.extras["models"] < MIN_UNBIASED_MODELS:
        del judged["false alarms"]
    rows: list[Verdict] = []
    for name, (result, number, met) in judged.items():
        what, target, value = texts[name]
        if not math.isfinite(result.value):
            value = f"no number: {result.note[:1].lower()}{result.note[1:]}"
        rows.append((what, target, value, bool(met) if math.isfinite(number) else None))
    return rows


def strongest(results: Sequence[Result]) -> Result:
    """Power at the largest strength of which a slope counts, in either direction and all models together."""
    powers = [result for result in results if result.measure == "power" and levels_of(result)[:2] == (ALL, ALL)]
    return max(powers, key=lambda result: float(result.group["strength"]) if result.n else -math.inf)
