"""Whether two models drift differently with W: the measures of `correlation` of their differences, row by row.

Both models answered the same texts, so that the slope of the differences is the difference of the slopes (least squares is
linear), and whatever the texts share has gone from it. It is judged by the test of a drift, `undertow.stats.regression.trend`: each model
may have noise of its own at each value of W, which neighbouring values may share.

Knows the columns of the observation table; knows nothing about how they were filled, or what is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from undertow.metrics.covariate_association import (
    BOUNDS,
    MIN_W_VALUES,
    OVER_PROMPTS,
    OVER_PROMPTS_KEYS,
    RUN_KEYS,
    STEP,
    UNORDERED,
    why_not_crossed,
)
from undertow.stats import MIN_CLUSTERS
from undertow.stats.regression.trend import MIN_VALUES, AnyEffect, any_effect, sentence_parts, trend
from undertow.types import Floats, Result

W_EFFECT = "w_effect_of_difference"
"""The effect of W on the difference: not the difference of two effects, which two models may have of one size and at other values."""
ROUNDING_SHARE = 1e-9
"""Answers that are nearer than this share of their size are equal."""
LEVEL, INNER_LEVEL = 0.95, 0.9
Margin: TypeAlias = Callable[[Result], float]
"""The smallest difference of interest, of a result without errors that has unit and `w_span`."""
POINTS, LOG_ODDS = "percentage points", "log-odds"


def drift_differences(
    sides: tuple[pd.DataFrame, pd.DataFrame], design: Mapping[str, Any], *, margin: Margin, seed: int
) -> list[Result]:
    """What W does to the differences of two models, candidate less baseline.

    - `slope`, `slope_gap`, percentage points per step or unit of W: the difference of the slopes, with interval and test of a drift.
    - `slope_log_odds`, log-odds per step or unit: the same of the log-odds of the W means, each sentence as far as it moves them, to
      first order.
    - `w_effect_of_difference`, percentage points, of each group and gap: standard deviation of the W values' effects on the difference
      (`any_effect`), 0 where both models answer W alike.
    - `pearson_r`: no number; it has neither interval nor test, which its note says.

    All of them again with the ending `_over_prompts` where a model was asked by several prompts. p is that of a difference no larger
    than its margin. `detail`: `inner_low` and `inner_high` (90% interval), `n_clusters`, `n_w`, `w_span` (highest less lowest W with data),
    and of slopes `autocorrelation`, `values_sd` (both of the differences), `sentences_low`, `sentences_high` (95%, at these values of W).
    Below six sentences there is no interval and no p, below eight values none of a slope.

    Args:
        sides: observations of the baseline and of the candidate, as `correlate` takes them: the same rows in the same order. Results name
            the models of the baseline.
        design: `groups` (columns in percent), `gaps` (pairs of them) and, if known, `covariates` (`scale` and `unit` of each W list).
        margin: the smallest difference of interest of each result.
        seed: of sign flips.
    """
    rows = _Rows.of(*sides, design)
    covariates = design.get("covariates", {})
    prompts = rows.keys.groupby(["model", "challenge", "w_name"], sort=False)["prompt"].transform("nunique")
    several = rows.some(np.flatnonzero(prompts.to_numpy() > 1))
    results = [one for about, facet in rows.facets(RUN_KEYS) for one in _facet(facet, about, covariates, margin, seed)]
    over_prompts = [
        replace(one, measure=f"{one.measure}{OVER_PROMPTS}")
        for about, facet in several.facets(OVER_PROMPTS_KEYS)
        for one in _facet(facet, about, covariates, margin, seed)
    ]
    return [*results, *over_prompts]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of both models.

    Attributes:
        keys: what each row is of: RUN_KEYS, cluster and x.
        values: of each group and gap, of the baseline and of the candidate [row]; NaN where there is none in either.
        hidden: groups and gaps of which a model did not show all probabilities.
    """

    keys: pd.DataFrame
    values: Mapping[tuple[str, str], tuple[Floats, Floats]]
    hidden: Set[tuple[str, str]]

    @classmethod
    def of(cls, baseline: pd.DataFrame, candidate: pd.DataFrame, design: Mapping[str, Any]) -> _Rows:
        names = [*RUN_KEYS, "cluster"]
        keys = baseline[names].astype(object).where(baseline[names].notna(), "").astype(str).reset_index(drop=True)
        keys["x"] = _numbers(baseline["w_value" if "w_value" in baseline else "w_index"])
        scored = ((baseline["missing_reason"].fillna("") == "").to_numpy()) & (
            candidate["missing_reason"].fillna("") == ""
        ).to_numpy()
        of_group = {group: [_numbers(side[group]) for side in (baseline, candidate)] for group in design["groups"]}
        series = {("group", group): sides for group, sides in of_group.items()}
        for a, b in design["gaps"]:
            series["gap", f"{a}-{b}"] = [of_group[a][at] - of_group[b][at] for at in (0, 1)]
        values = {}
        for key, (first, second) in series.items():
            known = scored & ~np.isnan(first + second)
            values[key] = np.where(known, first, math.nan), np.where(known, second, math.nan)
        hidden = {group for group in of_group if any(_is_bounded(side, group) for side in (baseline, candidate))}
        return cls(
            keys,
            values,
            {("group", group) for group in hidden}
            | {("gap", f"{a}-{b}") for a, b in design["gaps"] if hidden & {a, b}},
        )

    def facets(self, names: Sequence[str]) -> Iterator[tuple[dict[str, str], _Rows]]:
        """Rows of each combination of these keys, in order of appearance."""
        number = self.keys.groupby(list(names), sort=False).ngroup().to_numpy()
        for at in range(number.max(initial=-1) + 1):
            rows = np.flatnonzero(number == at)
            yield {name: str(self.keys[name].iloc[rows[0]]) for name in names}, self.some(rows)

    def some(self, at: NDArray[np.int64]) -> _Rows:
        """Some of the rows."""
        return _Rows(
            self.keys.iloc[at].reset_index(drop=True),
            {key: (first[at], second[at]) for key, (first, second) in self.values.items()},
            self.hidden,
        )


def _is_bounded(frame: pd.DataFrame, group: str) -> bool:
    """Whether a model did not show all of a group's mass."""
    low, high = (f"{group}{end}" for end in BOUNDS)
    if low not in frame or high not in frame:
        return False
    return not np.array_equal(_numbers(frame[low]), _numbers(frame[high]), equal_nan=True)


def _numbers(column: pd.Series[Any]) -> Floats:
    numbers: Floats = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=math.nan)
    return numbers


@dataclass(frozen=True, slots=True)
class _Series:
    """The differences of a group or gap in the cells of the crossed design; clusters and values without any are left out.

    Attributes:
        x: W on its scale, ascending [w].
        sums: of the differences [cluster, w]; 0 where they are within rounding.
        first, second: sums of either model [cluster, w].
        counts: rows in each cell [cluster, w].
        n: rows with a difference.
        n_missing: rows without.
    """

    x: Floats
    sums: Floats
    first: Floats
    second: Floats
    counts: Floats
    n: int
    n_missing: int

    @classmethod
    def of(cls, keys: pd.DataFrame, first: Floats, second: Floats) -> _Series:
        seen = ~np.isnan(first)
        clusters, cluster = np.unique(keys["cluster"].to_numpy(dtype=str)[seen], return_inverse=True)
        x, value = np.unique(keys["x"].to_numpy(dtype=np.float64)[seen], return_inverse=True)
        differences = second - first
        alike = np.abs(differences) <= ROUNDING_SHARE * np.maximum(np.abs(first), np.abs(second))
        shape = len(clusters), len(x)
        cell = cluster * len(x) + value

        def summed(of_rows: Floats) -> Floats:
            totals = np.bincount(cell, weights=of_rows[seen], minlength=shape[0] * shape[1])
            return totals.astype(np.float64).reshape(shape)

        return cls(
            x,
            summed(np.where(alike, 0.0, differences)),
            summed(first),
            summed(second),
            summed(np.ones(len(first))),
            int(seen.sum()),
            int((~seen).sum()),
        )

    @property
    def span(self) -> float:
        """From the lowest to the highest W with data."""
        return float(self.x[-1] - self.x[0]) if len(self.x) else math.nan

    def log_odds(self) -> _Series | None:
        """Cells whose means are the differences of log-odds; None where a mean is 0 or 100%."""
        sides = []
        for sums in (self.first, self.second):
            means = sums.sum(axis=0) / self.counts.sum(axis=0)
            if not ((means > 0) & (means < 100)).all():
                return None
            steepness = 100 / (means * (100 - means))
            sides.append(self.counts * special.logit(means / 100) + (sums - self.counts * means) * steepness)
        return replace(self, sums=sides[1] - sides[0] if self.sums.any() else self.sums)

    def result(self, measure: str, about: Mapping[str, str], **numbers: Any) -> Result:
        """A result with the counts filled in."""
        detail = {"n_clusters": float(len(self.sums)), "n_w": float(len(self.x)), "w_span": self.span}
        return Result(
            measure, dict(about), n=self.n, n_missing=self.n_missing, null_value=0.0, extras=detail, **numbers
        )


def _facet(
    rows: _Rows, about: Mapping[str, str], covariates: Mapping[str, Mapping[str, Any]], margin: Margin, seed: int
) -> Iterator[Result]:
    """Everything that is said of one model, challenge, prompt and W."""
    covariate = covariates.get(about["w_name"], {})
    step = STEP if covariate.get("scale") != "value" else str(covariate.get("unit", "")) or "unit"
    for (kind, pronoun), (first, second) in rows.values.items():
        series, own = _Series.of(rows.keys, first, second), {**about, "pronoun": pronoun}
        if len(series.x) < MIN_W_VALUES:
            continue  # the measures themselves say why there is no number
        effect = _effect(series, own, margin, seed)
        is_open = (kind, pronoun) in rows.hidden and math.isfinite(effect.low)
        yield replace(effect, low=math.nan, high=math.nan, p=math.nan, note=HIDDEN) if is_open else effect
        if covariate.get("scale") == UNORDERED:
            continue
        name = "slope_gap" if kind == "gap" else "slope"
        yield _slope(series, series.result(name, own, value=math.nan, unit=f"{POINTS} per {step}"), margin)
        if kind == "gap":
            continue
        yield series.result("pearson_r", own, value=math.nan, note=DESCRIPTION)
        odds = series.log_odds()
        if odds is not None:
            yield _slope(
                odds, odds.result("slope_log_odds", own, value=math.nan, unit=f"{LOG_ODDS} per {step}"), margin
            )


DESCRIPTION = "Pearson r describes these means; it has neither interval nor test, and nor has its difference."


def _slope(series: _Series, result: Result, margin: Margin) -> Result:
    """The difference of two slopes, with the interval and the test of a drift."""
    of_value = series.counts.sum(axis=0)
    from_mean = series.x - series.x.mean()
    slope = float((series.sums.sum(axis=0) / of_value) @ from_mean / (from_mean @ from_mean))
    if result.extras["n_clusters"] < MIN_CLUSTERS or len(series.x) < MIN_VALUES:
        return replace(result, value=slope, note=_too_few(result.extras))
    if not series.sums.any():
        return replace(result, value=0.0, note=ALIKE)
    parts = sentence_parts(series.x, series.sums[None], series.counts[None])
    least = margin(replace(result, value=slope))
    outer, inner = (trend(series.x, parts, level=level) for level in (LEVEL, INNER_LEVEL))
    p = float(outer.p[0])
    if abs(slope) <= least and least > 0:
        p = 1.0 if math.isfinite(p) else math.nan
    elif least > 0:
        # As far beyond the margin as the slope is: the same noise around another line.
        moved = replace(parts, means=parts.means - math.copysign(least, slope) * from_mean)
        p = float(trend(series.x, moved, level=LEVEL).p[0])
    half = float(special.stdtrit(parts.df[0], (1 + LEVEL) / 2) * np.sqrt(parts.slope_variance[0]))
    detail = {
        **result.extras,
        "inner_low": float(inner.low[0]),
        "inner_high": float(inner.high[0]),
        "sentences_low": slope - half,
        "sentences_high": slope + half,
        "autocorrelation": float(outer.autocorrelation[0]),
        "values_sd": float(outer.values_sd[0]),
    }
    low, high = float(outer.low[0]), float(outer.high[0])
    note = "" if math.isfinite(low) else why_not_crossed(series.counts, 3) or NO_NOISE
    return replace(result, value=slope, low=low, high=high, p=p, extras=detail, note=note)


ALIKE = "All answers to these texts are the same in both, which says little about others: there is no interval."
HIDDEN = (
    "The models do not show all probabilities, which leaves open how large the effect may be: there is no interval."
)
NO_NOISE = "The differences lie on the line exactly, so nothing tells the error of their slope."


def _effect(series: _Series, about: Mapping[str, str], margin: Margin, seed: int) -> Result:
    """How far the W values move the difference, and whether they do."""
    result = series.result(W_EFFECT, about, value=math.nan, unit=POINTS)
    if result.extras["n_clusters"] < MIN_CLUSTERS:
        return replace(result, note=_too_few(result.extras))
    if not series.sums.any():
        return replace(result, value=0.0, note=ALIKE)
    outer, inner = (any_effect(series.sums, series.counts, seed=seed, level=level) for level in (LEVEL, INNER_LEVEL))
    result = replace(result, value=outer.sd)
    least = margin(result)
    p = max(outer.p, _beyond(outer, inner, least)) if least > 0 else outer.p
    detail = {**result.extras, "inner_low": inner.low, "inner_high": inner.high}
    note = why_not_crossed(series.counts, 2)
    return replace(result, low=outer.low, high=outer.high, p=p, extras=detail, note=note)


def _beyond(outer: AnyEffect, inner: AnyEffect, margin: float) -> float:
    """Two-sided p of an effect that is no larger than its margin, from how far the intervals of both levels reach down.

    They are Student's t on the scale of the logarithm; the degrees of freedom are those that give both.
    """
    if not outer.sd > margin or not inner.low > 0:
        return 1.0
    far, near, distance = (math.log(outer.sd / end) if end > 0 else math.inf for end in (outer.low, inner.low, margin))
    if not math.isfinite(far):
        return 1.0  # the test finds no effect at all
    if near == 0:
        return 0.0
    quantiles = [special.stdtrit(np.exp(LOG_DFS), (1 + level) / 2) for level in (LEVEL, INNER_LEVEL)]
    # The ratio of the quantiles falls with the degrees of freedom.
    log_df = float(np.interp(-far / near, -(quantiles[0] / quantiles[1]), LOG_DFS))
    df = math.exp(log_df)
    t = distance / far * float(special.stdtrit(df, (1 + LEVEL) / 2))
    return float(2 * special.stdtr(df, -t))


LOG_DFS: Floats = np.linspace(0.0, math.log(1000.0), 200)
"""Logarithms of the degrees of freedom that are told apart."""


def _too_few(detail: Mapping[str, float]) -> str:
    """Why there is no interval."""
    n_clusters, n_values = int(detail["n_clusters"]), int(detail["n_w"])
    if n_clusters < MIN_CLUSTERS:
        has = "1 sentence" if n_clusters == 1 else f"{n_clusters} sentences"
        return f"There is no interval and no test with {has}; both need at least {MIN_CLUSTERS}."
    return (
        f"With {n_values} W values no trend can be told from what neighbours share; that needs at least {MIN_VALUES}."
    )
