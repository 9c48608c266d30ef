"""Difference in drift between two models: the measures of `covariate_association` on row-wise differences.

Both models answered the same texts, so the slope of the differences is the difference of the slopes (least squares is linear), and
effects of the texts cancel. The test is that of a drift, `undertow.stats.regression.trend`, because each model may have noise at
each value of W, which neighbouring values may share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from undertow.metrics.drift.cells import Cells, unit_codes
from undertow.metrics.drift.covariate_association import (
    ADJUSTED,
    BOUNDS,
    MIN_W_VALUES,
    RUN_KEYS,
    UNORDERED,
    facets,
    float_column,
    slope_unit,
    why_few,
    why_not_crossed,
)
from undertow.metrics.metric import make_result
from undertow.stats.regression.trend import effect_of_parts, p_beyond, sentences_interval, trend
from undertow.types import Result

W_EFFECT = "w_effect_of_difference"
"""The effect of W on the difference, not the difference of two effects, which may have equal size at different values."""
ROUNDING_SHARE = 1e-9
"""Relative difference below which answers are equal."""
LEVEL, INNER_LEVEL = 0.95, 0.9
Margin: TypeAlias = Callable[[Result], float]
"""Maps a result with unit and `w_span` to the smallest difference of interest."""
POINTS, LOG_ODDS = "percentage points", "log-odds"
ALIKE = "All answers to these texts are the same in both, so there is no interval."
HIDDEN = "The models hide some probability, so the largest possible effect is unknown, and there is no interval."
NO_NOISE = "The differences lie on the line exactly, so the error of their slope is unknown."


def drift_differences(
    sides: tuple[pd.DataFrame, pd.DataFrame], design: Mapping[str, Any], *, margin: Margin, seed: int
) -> list[Result]:
    """Effects of W on the differences of two models, candidate minus baseline.

    - `slope`, `slope_gap`, percentage points per step or unit of W: the difference of the slopes, with interval and test of a drift.
    - `slope_log_odds`, log-odds per step or unit: the same for the log-odds of the W means, with the first-order influence of each
      sentence.
    - `w_effect_of_difference`, percentage points, of each group and gap: standard deviation of the W values' effects on the difference
      (`undertow.stats.regression.trend.covariate_effect`), 0 if W affects both models alike.
    - `pearson_r`: no value, with the reason in its note.

    With several prompts, all of them also have the suffix `_over_prompts`. p tests a difference within the margin. `extras`:
    `inner_low` and `inner_high` (90% interval), `n_clusters`, `n_w`, `w_span` (highest minus lowest W with data), and for slopes
    `autocorrelation`, `values_sd` (both of the differences), `sentences_low`, `sentences_high` (95%, at these values of W). Below six
    sentences there is no interval and no p, below eight values none for a slope.

    Args:
        sides: observations of the baseline and of the candidate, as for `measure_association`, with the same rows in the same order.
            Results have the model names of the baseline.
        design: `groups` (columns in percent), `gaps` (pairs of them) and, if known, `covariates` (`scale` and `unit` of each W list).
        margin: the smallest difference of interest of each result.
        seed: of sign flips.
    """
    baseline, _ = sides
    names = [*RUN_KEYS, "cluster"]
    keys = baseline[names].astype(object).where(baseline[names].notna(), "").astype(str).reset_index(drop=True)
    keys["unit"] = unit_codes(baseline)
    keys["w_value"] = float_column(baseline, "w_value" if "w_value" in baseline else "w_index")
    scored = np.all([(side["missing_reason"].fillna("") == "").to_numpy() for side in sides], axis=0)
    masses = {group: [float_column(side, group) for side in sides] for group in design["groups"]}
    series = {("group", group): both for group, both in masses.items()}
    series |= {("gap", f"{a}-{b}"): [masses[a][at] - masses[b][at] for at in (0, 1)] for a, b in design["gaps"]}

    def hides(side: pd.DataFrame, group: str) -> bool:
        if not {f"{group}{end}" for end in BOUNDS} <= set(side):
            return False
        low, high = (float_column(side, f"{group}{end}") for end in BOUNDS)
        return not np.array_equal(low, high, equal_nan=True)

    hidden = {("group", group) for group in masses if any(hides(side, group) for side in sides)}
    hidden |= {("gap", f"{a}-{b}") for a, b in design["gaps"] if hidden & {("group", a), ("group", b)}}
    results: list[Result] = []
    for about, ending, rows in facets(keys):
        covariate = design.get("covariates", {}).get(about["w_name"], {})
        for (kind, pronoun), both in series.items():
            first, second = (np.where(scored & ~np.isnan(sum(both)), one, math.nan)[rows.index] for one in both)
            alike = np.abs(second - first) <= ROUNDING_SHARE * np.maximum(np.abs(first), np.abs(second))
            of_rows = np.where(alike, 0.0, second - first), first, second
            cells = (Cells.from_rows(rows, values).drop_empty() for values in of_rows)
            one = _Series({**about, "pronoun": pronoun}, kind == "gap", *cells)
            measured = _measure(one, covariate, margin, seed, is_hidden=(kind, pronoun) in hidden)
            results += [replace(result, measure=f"{result.measure}{ending}") for result in measured]
    return results


@dataclass(frozen=True, slots=True)
class _Series:
    """The differences of a group or gap in the cells of the crossed design, without empty clusters and values."""

    about: dict[str, str]  # group key of the results
    is_gap: bool  # whether it is the difference of two groups
    cells: Cells  # of the differences; differences of the size of rounding errors are 0
    first: Cells  # of the baseline
    second: Cells  # of the candidate

    def log_odds(self) -> _Series | None:
        """Cells with the differences of log-odds as means; None if a mean is 0 or 100%."""
        if not (self.first.has_shares and self.second.has_shares):
            return None
        first, second = self.first.log_odds(), self.second.log_odds()
        cells = replace(self.cells, sums=second.sums - first.sums, own=second.own - first.own)
        return replace(self, cells=cells) if self.cells.sums.any() else self

    def result(self, measure: str, **numbers: Any) -> Result:
        """A result with the counts."""
        x = self.cells.x
        extras = {"n_clusters": float(self.cells.n_crossed), "n_w": float(len(x)), "w_span": float(x[-1] - x[0])}
        return make_result(
            measure, self.about, n=self.cells.n, n_missing=self.cells.n_missing, extras=extras, **numbers
        )


def _measure(
    series: _Series, covariate: Mapping[str, Any], margin: Margin, seed: int, *, is_hidden: bool
) -> Iterator[Result]:
    if len(series.cells.x) < MIN_W_VALUES:
        return  # the measures themselves have the reason
    effect = _effect(series, margin, seed)
    is_open = is_hidden and math.isfinite(effect.low)
    yield replace(effect, low=math.nan, high=math.nan, p=math.nan, note=HIDDEN) if is_open else effect
    if covariate.get("scale") == UNORDERED:
        return
    unit = slope_unit(covariate)
    yield _slope(series, series.result("slope_gap" if series.is_gap else "slope", unit=f"{POINTS} per {unit}"), margin)
    if series.is_gap:
        return
    yield series.result("pearson_r", note="Pearson r is descriptive, so its difference has neither interval nor test.")
    odds = series.log_odds()
    if odds is not None:
        yield _slope(odds, odds.result("slope_log_odds", unit=f"{LOG_ODDS} per {unit}"), margin)


def _slope(series: _Series, result: Result, margin: Margin) -> Result:
    cells = series.cells
    from_mean = cells.x - cells.x.mean()
    slope = float(cells.means @ from_mean / (from_mean @ from_mean))
    if few := why_few(cells.n_crossed, len(cells.x), adjusted=cells.adjusted):
        return replace(result, value=slope, note=few)
    if not cells.sums.any():
        return replace(result, value=0.0, note=ALIKE)
    if not cells.connected:
        return replace(result, value=slope, note=why_not_crossed(cells, 3))
    parts = cells.summary()
    least = margin(replace(result, value=slope))
    fit = trend(cells.x, parts)
    (low, high), inner = ([float(end[0]) for end in fit.interval(level)] for level in (LEVEL, INNER_LEVEL))
    p = float(fit.p[0])
    if abs(slope) <= least and least > 0:
        p = 1.0 if math.isfinite(p) else math.nan
    elif least > 0:
        # Test of the excess over the margin: the same noise around a line with a smaller slope.
        moved = replace(parts, means=parts.means - math.copysign(least, slope) * from_mean)
        p = float(trend(cells.x, moved).p[0])
    sentences_low, sentences_high = sentences_interval(slope, parts)
    extras = {
        **result.extras,
        "inner_low": inner[0],
        "inner_high": inner[1],
        "sentences_low": sentences_low,
        "sentences_high": sentences_high,
        "autocorrelation": float(fit.autocorrelation[0]),
        "values_sd": float(fit.values_sd[0]),
    }
    note = ADJUSTED * cells.adjusted if math.isfinite(low) else why_not_crossed(cells, 3) or NO_NOISE
    return replace(result, value=slope, low=low, high=high, p=p, extras=extras, note=note)


def _effect(series: _Series, margin: Margin, seed: int) -> Result:
    result, cells = series.result(W_EFFECT), series.cells
    if few := why_few(cells.n_crossed, adjusted=cells.adjusted):
        return replace(result, note=few)
    if not cells.sums.any():
        return replace(result, value=0.0, note=ALIKE)
    parts = cells.effect_parts()
    outer, inner = (effect_of_parts(*parts, seed=seed, level=level) for level in (LEVEL, INNER_LEVEL))
    result = replace(result, value=outer.value)
    least = margin(result)
    p = max(outer.p, p_beyond(parts[0], least)) if least > 0 else outer.p
    extras = {**result.extras, "inner_low": inner.low, "inner_high": inner.high}
    note = why_not_crossed(cells, 2) or ADJUSTED * cells.adjusted
    return replace(result, low=outer.low, high=outer.high, p=p, extras=extras, note=note)
