"""Association of the mass of a word group with W: mean mass, effect of W, slope, Pearson r, log-odds slope and slope gap.

The regression of McMilin 2024 ("Underspecification in Language Modeling Tasks", AAAI), McMilin's anonymous ICLR
submission ("Selection Induced Collider Bias") and McMilin 2022 (ICML workshop): the mass is averaged over the texts of a
W value, and the means are regressed on the index or the value of W. Intervals and tests are those of `undertow.stats.regression.trend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from undertow.errors import UndertowError, counted
from undertow.metrics.drift.cells import Cells, unit_codes
from undertow.metrics.metric import OVER_PROMPTS, make_result
from undertow.stats import MIN_CLUSTERS, Line, fit_line, only_points
from undertow.stats.arrays import Floats
from undertow.stats.intervals.cluster_errors import influence_variance, share_interval
from undertow.stats.regression.power_analysis import detectable_slope
from undertow.stats.regression.trend import (
    MIN_VALUES,
    covariate_effect,
    effect_of_parts,
    sd_of_parts,
    sentences_interval,
    trend,
    trend_of_other_values,
)
from undertow.stats.significance.false_discovery import q_values
from undertow.types import ALPHA, Result

RUN_KEYS = ("model", "challenge", "prompt", "w_name")
"""Keys of one regression; its results add the key `pronoun`."""
OVER_PROMPTS_KEYS = ("model", "challenge", "w_name")
"""Keys of an average over prompts; its results add the key `pronoun`."""
BOUNDS = (".low", ".high")
"""Suffixes of the columns with bounds of a group's mass, if a model hides some of it."""
HIDDEN = "The model returns only its most probable tokens, so the value is the midpoint of its bounds."

APART = "Sentences do not connect all W values, directly or through each other, so the trend cannot be separated from their levels."
ADJUSTED = (
    "Sentences or prompts have unequal numbers of values at the W values, so the means are adjusted for their levels."
)
OUTSIDE = "The adjusted mean is not between 0 and 100%{}, because effects of W differ between sentences."
UNTESTED = "With missing values, hidden probability leaves this effect untested."
UNBOUNDED = "With missing values, hidden probability leaves the interval unknown."
UNORDERED = "none"
"""The scale of a W list without an order."""
STEP = "step"
"""Unit of slopes if W is the index in the list."""


def facets(table: pd.DataFrame) -> Iterator[tuple[dict[str, str], str, pd.DataFrame]]:
    """Group keys, suffix of measures and rows of each run, then of each average over prompts of those with several."""
    # One run, as in most replicates.
    if len(table) and all((table[key] == table[key].iloc[0]).all() for key in RUN_KEYS):
        yield {key: str(table[key].iloc[0]) for key in RUN_KEYS}, "", table
        return
    several = table.groupby(list(OVER_PROMPTS_KEYS), sort=False)["prompt"].transform("nunique") > 1
    for keys, rows, ending in ((RUN_KEYS, table, ""), (OVER_PROMPTS_KEYS, table[several], OVER_PROMPTS)):
        for levels, facet in rows.groupby(list(keys), sort=False):
            yield {key: str(level) for key, level in zip(keys, levels, strict=True)}, ending, facet


def are_deciding(results: Sequence[Result]) -> list[bool]:
    """Whether each result has q: with several prompts, only averages over prompts have [result]."""
    runs = [tuple(one.group[key] for key in OVER_PROMPTS_KEYS) for one in results]
    is_average = [one.measure.endswith(OVER_PROMPTS) for one in results]
    averaged = {run for run, average in zip(runs, is_average, strict=True) if average}
    return [average or run not in averaged for run, average in zip(runs, is_average, strict=True)]


def float_column(observations: pd.DataFrame, name: str) -> Floats:
    """A column as floats [row], NaN for empty cells.

    Raises:
        UndertowError: a number is infinite.
    """
    column: Floats = observations[name].to_numpy(dtype=np.float64, na_value=math.nan)
    if np.isinf(column).any():
        row = int(np.flatnonzero(np.isinf(column))[0]) + 1
        raise UndertowError(f"the observation table has an infinite number in column {name!r}, row {row}")
    return column


def slope_unit(covariate: Mapping[str, Any]) -> str:
    """Unit of W in slopes, from the design entry of a W list."""
    return STEP if covariate.get("scale") != "value" else str(covariate.get("unit", "")) or "unit"


def why_few(n_clusters: int, n_values: int = MIN_VALUES, *, adjusted: bool = False) -> str:
    """Reason why too few sentences or W values have no interval and no test; "" if there are enough."""
    if n_clusters < MIN_CLUSTERS:
        has = counted(n_clusters, "sentence") + " with values at several W values" * adjusted
        return f"There is no interval and no test with {has}; both need at least {MIN_CLUSTERS}."
    if n_values < MIN_VALUES:
        return f"With {n_values} W values there is no test of a trend; it needs at least {MIN_VALUES}."
    return ""


def why_not_crossed(cells: Cells, least: int) -> str:
    """Reason why these cells do not allow a test; "" if a sentence has at least `least` W values."""
    if (cells.counts > 0).sum(axis=1).max(initial=0) >= least:
        return "" if cells.connected or least < MIN_W_VALUES else APART
    return (
        f"No sentence has {least} W values or more, so effects of sentences and values cannot be separated; give rows of one sentence "
        "the same text_index or cluster."
    )


OTHER_WORDS = "other_words"
MEASURES = ("mean_mass", "w_effect", "slope", "pearson_r", "slope_log_odds", "slope_gap")
LEVEL = 0.95
MIN_W_VALUES = 3
"""Minimum number of W values for a line; two points always lie on one."""
SAME_SHARE = 1e-6
"""A standard error below this share of its mean is rounding: all sentences have the same value."""
CERTAIN_P = 0.01
"""Below this p the detectable slope is not computed: the slope is clearly significant."""


def measure_association(
    observations: pd.DataFrame,
    groups: Sequence[str],
    gaps: Sequence[tuple[str, str]],
    *,
    covariates: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int,
) -> list[Result]:
    """All results of each (model, challenge, prompt, w_name), in order of appearance.

    - `mean_mass`, percent: mean over the W means, of each group and of other words. Not tested.
    - `w_effect`, percentage points, of each group and gap: standard deviation of the effects of the W values, without the noise of the
    sentences. Its test asks whether the answers depend on these W values, for other sentences too (`covariate_effect`).
    - `slope`, percent per step or unit of W: least squares through the W means of a group. Interval and test hold for other
    sentences and allow for noise that neighbouring values share (`trend`); the test asks whether the answers follow the order of W.
    - `slope_gap`: the slope of a - b over the rows with both. Its `pronoun` is "a-b".
    - `pearson_r` of the W means: descriptive, without interval or test.
    - `slope_log_odds`, log-odds per step or unit: the slope of the log-odds of the W means. It has an interval but no test, which would
    repeat that of `slope`.

    If sentences (with their prompts) have unequal numbers of values at the W values, for example because some are missing, the W means
    are those of a least-squares fit of sentences and W values (`additive_fit`), so that they do not depend on which sentences are
    present; otherwise they are plain means. Effects and slopes then count only the sentences with several W values. If sentences do not
    connect all W values, the means are plain and slopes have no test.

    With several prompts, all measures are also computed from masses averaged over prompts, with the suffix `_over_prompts`. Only these
    have q, so that a model does not get one test per prompt; results by prompt have p only.

    A W list without an order (scale "none") has means and effects only. q is Benjamini-Hochberg over the deciding tests of one kind in
    the whole table: effects of W, slopes and slope gaps, slopes for other W values. Below six sentences there is no interval and no
    test, below eight W values no test of the order. Missing values are NaN, with the reason in `note`.

    `extras` of slopes and gaps: `corrected_low`, `corrected_high` (interval at the corrected level, which excludes 0 exactly if q is
    below .05: Benjamini and Yekutieli 2005, "False Discovery Rate-Adjusted Multiple Confidence Intervals"), `sentences_low`,
    `sentences_high`, `sentences_df` (interval for other sentences at these W values: `skewed_interval` with these degrees of freedom),
    `values_low`, `values_high`, `values_p`, `values_q` (for other sentences and other, independent W values), `ols_low`, `ols_high`
    (classical t interval), `intercept` (at W = 0 of its scale), `detectable_slope` (power .8 of the test at alpha .05; if p is .01 or
    more), `autocorrelation` (of neighbouring means, estimated), `values_sd` (of the noise of the W values, estimated), `n_w`,
    `n_clusters`, `first`, `last` (the line at the lowest and the highest W with data).

    If a group has columns `NAME.low` and `NAME.high` (a server that returns the most probable tokens only), its mass lies between
    them, and its own column is the midpoint. Means, slopes and gaps then have their bounds in `extras` (`bound_low`, `bound_high`);
    their intervals extend from the interval of the lower to that of the upper bound, and p is the larger of both, or 1 if the bounds
    differ in sign. Effects of W have no interval then, and the p of their lower bound; r is that of the midpoints.

    Args:
        observations: one row per item: `model`, `challenge`, `prompt`, `w_name`, `w_index` (whole number), `cluster`, optionally
            `sentence` (of several in a cluster), `missing_reason`
            ("" if scored), and in percent `other_words` and one column per group; `w_value`, the number of W on its scale, if it
            differs from `w_index`. An all-zero row is a measurement.
        groups: columns of the word groups.
        gaps: pairs of groups to compare.
        covariates: `scale` ("index", "value" or "none") and `unit` of each W list, by name; "index" if not given.
        seed: of the sign flips of `w_effect`; any whole number.
    """
    measured: list[_Measurement] = []
    for run, ending, rows in facets(_table(observations, groups)):
        covariate = (covariates or {}).get(run["w_name"], {})
        for result, interval in _measure(run, rows, (groups, gaps), covariate, seed):
            measured.append((replace(result, measure=f"{result.measure}{ending}"), interval))
    return _with_q(measured)


_Interval: TypeAlias = Callable[[float], tuple[float, float]]
"""Lower and upper limit at a level."""
_Measurement: TypeAlias = tuple[Result, _Interval | None]
"""A result with a 95% interval, and its interval at other levels; None if its interval decides nothing."""


def line_of(observations: pd.DataFrame, group: str) -> Line:
    """The line that `measure_association` fits to one group in the rows of one (model, challenge, prompt, w_name).

    Its `band` is the shaded area of the papers' figures. All values are NaN below three W values with scored rows.
    """
    rows = _table(observations, [group])
    cells = _cells(rows, rows[group].to_numpy())
    return _line(cells.x, cells.means)


def with_adjusted_means(observations: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """The rows of one (model, challenge, prompt, w_name), shifted so that their means by W are those of `measure_association`."""
    rows, shifted = _table(observations, groups), {}
    for group in groups:
        values = rows[group].to_numpy()
        cells = _cells(rows, values)
        if cells.adjusted:
            means = cells.means[np.searchsorted(cells.x, rows["w_value"])]
            plain = rows.groupby("w_value")[group].transform("mean").to_numpy()
            shifted[group] = values - plain + means
    return observations.assign(**shifted) if shifted else observations


def _cells(rows: pd.DataFrame, values: Floats) -> Cells:
    return Cells.from_rows(rows, values, rows["scored"])


def _measure(
    run: dict[str, str],
    rows: pd.DataFrame,
    compared: tuple[Sequence[str], Sequence[tuple[str, str]]],
    covariate: Mapping[str, Any],
    seed: int,
) -> list[_Measurement]:
    """The results of these groups and gaps, in the order of `MEASURES`."""
    groups, gaps = compared
    values: dict[tuple[str, str], Floats] = {("group", group): rows[group].to_numpy() for group in groups}
    values["other_words", OTHER_WORDS] = rows[OTHER_WORDS].to_numpy()
    for a, b in gaps:
        # Differences by row keep the pairing; their slope is the difference of the slopes.
        values["gap", f"{a}-{b}"] = rows[a].to_numpy() - rows[b].to_numpy()
    bounds = _bounds(rows, groups, gaps)
    measured: list[_Measurement] = []
    for (kind, pronoun), of_rows in values.items():
        series = _Series({**run, "pronoun": pronoun}, _cells(rows, of_rows), slope_unit(covariate))
        within = bounds.get((kind, pronoun))
        if kind != "gap":
            measured.append((_bound_mean(series, within), None))
        if kind == "other_words":
            continue
        measured.append((_bound_effect(series, within, seed), None))
        if covariate.get("scale") == UNORDERED:
            continue
        x = series.cells.x
        mixed = within(x - x[series.cells.counts.any(axis=0)].mean()) if within and series.cells.n else ()
        slope, interval = _bound_slope(series, mixed, _slope)
        if kind == "gap":
            measured.append((replace(slope, measure="slope_gap"), interval))
            continue
        measured.append((slope, interval))
        line = _line(series.cells.x, series.cells.means)
        # Descriptive, because noise of sentences and values attenuates it.
        note = _no_line(series) if math.isnan(line.slope) else FLAT if math.isnan(line.r) else ""
        measured.append((series.result("pearson_r", value=line.r, note=note), None))
        measured.append((_bound_slope(series, mixed, _log_odds_slope)[0], None))
    return sorted(measured, key=lambda one: MEASURES.index(one[0].measure))


@dataclass(frozen=True, slots=True)
class _Series:
    """The cells of a group, of other words or of a gap."""

    about: dict[str, str]  # group key of the results
    cells: Cells  # the observations
    step: str  # unit of W in slopes
    at_end: bool = False  # whether these are bounds of hidden masses, which need no power

    def result(self, measure: str, **numbers: Any) -> Result:
        """A result of this series with its counts."""
        return make_result(measure, self.about, n=self.cells.n, n_missing=self.cells.n_missing, **numbers)


_Ends: TypeAlias = Callable[[Floats | None], tuple[Cells, Cells]]
"""Cells with the masses at which a weighted sum of the means [w] is smallest and largest; with the lowest and highest masses for None."""


def _end_cells(rows: pd.DataFrame, low: Floats, high: Floats, weights: Floats | None) -> tuple[Cells, Cells]:
    cells = _cells(rows, low)
    if weights is None:
        return cells, _cells(rows, high)
    if cells.fit is not None:
        grows = np.ones(len(rows), dtype=np.bool_)
        gradient = cells.fit.gradient(np.where(cells.counts.any(axis=0), weights, 0.0))
        grows[~np.isnan(low)] = gradient.ravel()[cells.places] >= 0
    else:
        grows = weights[np.searchsorted(cells.x, rows["w_value"])] >= 0
    return _cells(rows, np.where(grows, low, high)), _cells(rows, np.where(grows, high, low))


def _bounds(rows: pd.DataFrame, groups: Sequence[str], gaps: Sequence[tuple[str, str]]) -> dict[tuple[str, str], _Ends]:
    """Bounds of each group and gap with hidden masses; {} without any."""
    low, high = ({name: rows[f"{name}{end}"].to_numpy() for name in (*groups, OTHER_WORDS)} for end in BOUNDS)
    ends = {("group", group): (low[group], high[group]) for group in groups}
    ends["other_words", OTHER_WORDS] = low[OTHER_WORDS], high[OTHER_WORDS]
    ends |= {("gap", f"{a}-{b}"): (low[a] - high[b], high[a] - low[b]) for a, b in gaps}
    if all(np.array_equal(*both, equal_nan=True) for both in ends.values()):
        return {}
    if np.array_equal(low[OTHER_WORDS], high[OTHER_WORDS], equal_nan=True):
        del ends["other_words", OTHER_WORDS]  # a table may bound its groups alone
    return {key: partial(_end_cells, rows, least, greatest) for key, (least, greatest) in ends.items()}


def _with_bounds(result: Result, ends: Sequence[Result]) -> Result:
    """A result with an interval that covers those of both bounds."""
    least, greatest = ends
    extras = {**result.extras, "bound_low": least.value, "bound_high": greatest.value}
    low, high, p = _outer_interval(ends, *((end.low, end.high, end.p) for end in ends))
    for kind in ("sentences", "values"):
        names = [f"{kind}_{what}" for what in ("low", "high", "p")]
        outer = _outer_interval(ends, *([end.extras.get(name, math.nan) for name in names] for end in ends))
        extras |= {name: number for name, number in zip(names, outer, strict=True) if name in result.extras}
    p = p if math.isfinite(result.p) else math.nan
    return replace(result, low=low, high=high, p=p, extras=extras, note=_join_notes(result.note, HIDDEN))


def _outer_interval(
    ends: Sequence[Result], of_least: Sequence[float], of_greatest: Sequence[float]
) -> tuple[float, float, float]:
    """Lowest end, highest end, and larger p of both bounds: 1 if they differ in sign; NaN if one is missing."""
    (low, _, p), (_, high, other) = of_least, of_greatest
    least, greatest = ends
    low, high = (low, high) if math.isfinite(low + high) else (math.nan, math.nan)
    return low, high, float(np.maximum(p, other)) if least.value * greatest.value > 0 else 1.0


def _bound_mean(series: _Series, ends: _Ends | None) -> Result:
    mean = _mean_mass(series)
    if ends is None or math.isnan(mean.value):
        return mean
    all_w = np.ones(len(series.cells.x))
    least, greatest = (_mean_mass(replace(series, cells=cells)) for cells in ends(all_w))
    if math.isnan(least.value + greatest.value):  # adjusted, and outside
        return replace(mean, low=math.nan, high=math.nan, note=_join_notes(mean.note, HIDDEN, UNBOUNDED))
    if series.cells.n_clusters >= MIN_CLUSTERS and not only_points():  # a mass of other sentences is in 0 to 100 too
        least = replace(least, low=0.0) if least.value == 0 else least
        greatest = replace(greatest, high=100.0) if greatest.value == 100 else greatest
    return _with_bounds(mean, [least, greatest])


def _bound_effect(series: _Series, ends: _Ends | None, seed: int) -> Result:
    """The effect of the midpoints without an interval, because the largest effect is unknown; p is that of the smallest effect.

    The smallest effect has means that are as equal as their bounds allow. Adjusted means depend on all masses, so theirs is unknown.
    """
    effect = _w_effect(series, seed)
    if ends is None or math.isnan(effect.p):
        return effect
    if series.cells.adjusted:
        note = _join_notes(effect.note, HIDDEN, UNTESTED)
        return replace(effect, low=math.nan, high=math.nan, p=math.nan, note=note)
    low, high = (cells.drop_empty() for cells in ends(None))
    least, greatest = low.means, high.means
    width = greatest - least
    level = (least.max() + greatest.min()) / 2
    share = np.divide(np.clip(level, least, greatest) - least, width, out=np.zeros_like(width), where=width > 0)
    p = 1.0
    if least.max() > greatest.min():
        p = covariate_effect(low.sums + share * (high.sums - low.sums), low.counts, seed=seed).p
    return replace(effect, low=math.nan, high=math.nan, p=p, note=_join_notes(effect.note, HIDDEN))


def _bound_slope(
    series: _Series, mixed: Sequence[Cells], measured: Callable[[_Series], tuple[Result, _Interval]]
) -> tuple[Result, _Interval]:
    """Bounds of a slope from the masses at which it is smallest and largest.

    It weights each mean by the distance of W from its mean, so it is smallest if early means are largest. Adjusted log-odds weight
    masses differently, so their slope has no bounds.

    weight  - - - 0 + + +
    least   h h h   l l l        greatest  l l l   h h h
    """
    slope, interval = measured(series)
    if not mixed or math.isnan(slope.value):
        return slope, interval
    if series.cells.adjusted and slope.measure == "slope_log_odds":
        extras = {name: slope.extras[name] for name in ("n_w", "n_clusters", "first", "last")}
        note = _join_notes(slope.note, HIDDEN, UNBOUNDED)
        return replace(slope, low=math.nan, high=math.nan, extras=extras, note=note), _no_limits
    of_ends, intervals = zip(*(measured(replace(series, cells=cells, at_end=True)) for cells in mixed), strict=True)

    def outer(level: float) -> tuple[float, float]:
        (low, _), (_, high) = (of_end(level) for of_end in intervals)
        return (low, high) if math.isfinite(low + high) else (math.nan, math.nan)

    return _with_bounds(slope, of_ends), outer


def _mean_mass(series: _Series) -> Result:
    cells = series.cells.drop_empty()
    if not cells.n:
        return series.result("mean_mass", note=_nothing_scored(series))
    means, of_value = cells.means, cells.counts.sum(axis=0)
    value, low, high = float(means.mean()), math.nan, math.nan
    if cells.adjusted and abs(value - 50) > 50 * (1 + SAME_SHARE):
        return series.result("mean_mass", note=OUTSIDE.format(""))
    if cells.n_clusters >= MIN_CLUSTERS and not only_points():
        influences = ((cells.sums - cells.counts * means) / of_value).mean(axis=1)
        variance, df = influence_variance(influences, np.ones(len(influences), dtype=bool))
        if variance > (SAME_SHARE * value) ** 2:
            low, high = (100 * end for end in share_interval(value / 100, float(variance) / 100**2, float(df)))
    note = _join_notes(_left_out(series, "mean"), _no_interval(series, low), ADJUSTED * cells.adjusted)
    return series.result("mean_mass", value=value, low=low, high=high, note=note)


def _w_effect(series: _Series, seed: int) -> Result:
    cells = series.cells.drop_empty()
    if few := _no_line(series):
        return series.result("w_effect", note=few)
    extras = {"n_w": float(len(cells.x)), "n_clusters": float(cells.n_crossed)}
    if cells.n_crossed < MIN_CLUSTERS or only_points():
        note = "" if only_points() else _few(series) or why_not_crossed(cells, 2)
        note = _join_notes(note, ADJUSTED * cells.adjusted)
        return series.result("w_effect", value=sd_of_parts(cells.effect_parts()[0]), extras=extras, note=note)
    effect = effect_of_parts(*cells.effect_parts(), seed=seed)
    differ = effect.high - effect.low > SAME_SHARE * effect.value
    low, high = (effect.low, effect.high) if differ else (math.nan, math.nan)
    why = why_not_crossed(cells, 2) or _no_interval(series, low)
    note = _join_notes(_left_out(series, "test"), why, ADJUSTED * cells.adjusted)
    return series.result("w_effect", value=effect.value, low=low, high=high, p=effect.p, extras=extras, note=note)


def _no_limits(level: float) -> tuple[float, float]:
    return math.nan, math.nan


def _slope(series: _Series) -> tuple[Result, _Interval]:
    cells, unit = series.cells.drop_empty(), f"percent per {series.step}"
    line = _line(series.cells.x, series.cells.means)
    if math.isnan(line.slope):
        return series.result("slope", unit=unit, note=_no_line(series)), _no_limits
    first, last = line.at(cells.x[[0, -1]])
    extras = {
        "ols_low": line.slope_low,
        "ols_high": line.slope_high,
        "intercept": line.intercept,
        "n_w": float(len(cells.x)),
        "n_clusters": float(cells.n_crossed),
        "first": float(first),
        "last": float(last),
    }
    p, interval, flat = math.nan, _no_limits, math.isnan(line.r)
    if cells.n_crossed >= MIN_CLUSTERS and cells.connected and not (flat or only_points()):
        parts = cells.summary()
        fit = trend(cells.x, parts)
        p = float(fit.p[0])

        def interval(level: float) -> tuple[float, float]:
            low, high = fit.interval(level)
            return float(low[0]), float(high[0])

        ends = sentences_interval(line.slope, parts)
        extras |= dict(zip(("sentences_low", "sentences_high"), ends, strict=True))
        extras["sentences_df"] = float(parts.df[0])
        of_values = (float(one[0]) for one in trend_of_other_values(cells.x, parts))
        extras |= dict(zip(("values_low", "values_high", "values_p"), of_values, strict=True))
        if p >= CERTAIN_P and not series.at_end:
            extras["detectable_slope"] = detectable_slope(cells.x, parts)
        extras |= {"autocorrelation": float(fit.autocorrelation[0]), "values_sd": float(fit.values_sd[0])}
    note = _join_notes(
        _left_out(series, "line"), FLAT if flat else _why_untested(series, cells, p), ADJUSTED * cells.adjusted
    )
    low, high = interval(LEVEL)
    slope = series.result("slope", value=line.slope, low=low, high=high, unit=unit, p=p, extras=extras, note=note)
    return slope, interval


def _log_odds_slope(series: _Series) -> tuple[Result, _Interval]:
    cells, unit = series.cells.drop_empty(), f"log-odds per {series.step}"
    if cells.n and not cells.has_shares:
        note = "The mean is 0 or 100% at a W value, where log-odds are infinite."
        if cells.adjusted and (np.abs(cells.means - 50) > 50 * (1 + SAME_SHARE)).any():
            note = OUTSIDE.format(" at a W value")
        return series.result("slope_log_odds", unit=unit, note=note), _no_limits
    slope, interval = _slope(replace(series, cells=cells.log_odds(), at_end=True))
    names = ("n_w", "n_clusters", "first", "last", "sentences_low", "sentences_high", "sentences_df")
    extras = {name: slope.extras[name] for name in names if name in slope.extras}
    return replace(slope, measure="slope_log_odds", unit=unit, p=math.nan, extras=extras), interval


def _line(x: Floats, means: Floats) -> Line:
    """The line through the available W means [w]; NaN if there are too few."""
    seen = ~np.isnan(means)
    return fit_line(x[seen], means[seen]) if seen.sum() >= MIN_W_VALUES else fit_line([], [])


def _with_q(measured: Sequence[_Measurement]) -> list[Result]:
    """Adjust each deciding p over the tests of its kind: effects of W, order of W, other values of W."""
    results = [result for result, _ in measured]
    family_of = {"slope": "order", "slope_gap": "order", "w_effect": "effect"}
    families, others = [], []
    for one, decides in zip(results, are_deciding(results), strict=True):
        families.append(family_of.get(one.measure.removesuffix(OVER_PROMPTS)) if decides else None)
        others.append("other values" if decides and "values_p" in one.extras else None)
    q = np.array(q_values([one.p for one in results], families))
    values_q = q_values([one.extras.get("values_p", math.nan) for one in results], others)
    for at, (result, interval) in enumerate(measured):
        extras = dict(result.extras)
        if math.isfinite(q[at]) and interval is not None:
            of_family = q[[one == families[at] for one in families]]
            # A further claim would need one more test than was claimed.
            n_selected = int((of_family < ALPHA).sum()) + (not q[at] < ALPHA)
            widened = interval(1 - ALPHA * n_selected / int(np.isfinite(of_family).sum()))
            extras |= dict(zip(("corrected_low", "corrected_high"), widened, strict=True))
        if others[at] is not None:
            extras["values_q"] = values_q[at]
        results[at] = replace(result, q=float(q[at]), extras=extras)
    return results


def _join_notes(*notes: str) -> str:
    return " ".join(filter(None, notes))


def _nothing_scored(series: _Series) -> str:
    return f"None of the {series.cells.n_missing:,} rows has a value for {series.about['pronoun']}."


def _no_line(series: _Series) -> str:
    """Reason why there is no line; "" if there are enough W values."""
    cells = series.cells.drop_empty()
    if not cells.n:
        return _nothing_scored(series)
    has = "1 W value has" if len(cells.x) == 1 else f"{len(cells.x)} W values have"
    return f"Only {has} scored rows, and this needs at least {MIN_W_VALUES}." if len(cells.x) < MIN_W_VALUES else ""


def _left_out(series: _Series, what: str) -> str:
    missing = len(series.cells.x) - len(series.cells.drop_empty().x)
    if not missing:
        return ""
    verbs = "has no scored row and is" if missing == 1 else "have no scored row and are"
    return f"{missing} of {len(series.cells.x)} W values {verbs} excluded from the {what}."


FLAT = "The mean is the same at every W value, so there is no trend to test."


def _why_untested(series: _Series, cells: Cells, p: float) -> str:
    """Reason why a slope has no test; "" if it has one."""
    if only_points():
        return ""
    if few := _few(series, len(cells.x)):
        return few
    if math.isfinite(p):
        return ""
    return why_not_crossed(cells, 3) or "The means lie on the line exactly, so its error is unknown."


def _few(series: _Series, n_values: int = MIN_VALUES) -> str:
    return why_few(series.cells.n_crossed, n_values, adjusted=series.cells.adjusted)


def _no_interval(series: _Series, low: float) -> str:
    """Reason why a mean has no interval; "" if it has one."""
    if only_points() or math.isfinite(low):
        return ""
    return why_few(series.cells.n_clusters) or "All sentences have the same value, so their variance is unknown."


def _table(observations: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """The needed columns as text and numbers, and `scored`; masses of missing rows are NaN."""
    needed = (*RUN_KEYS, "w_index", "cluster", "missing_reason", OTHER_WORDS, *groups)
    if lacking := [name for name in needed if name not in observations]:
        raise UndertowError(f"the observation table has no column {lacking[0]!r}; add it")
    columns: dict[str, Any] = {}
    for name in (*RUN_KEYS, "cluster", "missing_reason"):
        codes, levels = pd.factorize(observations[name].to_numpy(dtype=object))
        # Files write the empty prompt as a missing value, whose code is -1.
        texts = np.array([*map(str, levels), ""], dtype=object)
        columns[name] = pd.Series(texts[codes], dtype=object)
        if name == "cluster":
            columns[name] = pd.factorize(texts, sort=True)[0][codes]  # numbers, in the order of names
    scored = (columns.pop("missing_reason") == "").to_numpy()
    columns["unit"] = unit_codes(observations)
    columns["w_value"] = float_column(observations, "w_value" if "w_value" in observations else "w_index")
    columns["scored"] = scored
    for name in (OTHER_WORDS, *groups):
        masses = np.where(scored, float_column(observations, name), math.nan)
        columns[name] = masses
        for bound in (f"{name}{end}" for end in BOUNDS):
            known = float_column(observations, bound) if bound in observations else masses
            columns[bound] = np.where(scored & ~np.isnan(known), known, masses)
    return pd.DataFrame(columns)
