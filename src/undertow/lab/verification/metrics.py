"""Whether the audit measures the planted bias: slopes of trained models against the slopes of their corpora.

The table has a row for each model and W. The measures are the line of measured on planted slopes, the coverage of intervals, false
alarms in unbiased models, and power in biased ones. A W along which no model is biased is easy to measure: it is reported beside
coverage and false alarms, and not counted in them. McMilin 2024 ("Underspecification in Language Modeling Tasks", AAAI) argues
that selection bias enters models in this way; there the true slope is unknown, here it is known. Models whose training did not
converge are counted but not used: they would measure the training. `undertow.stats.calibration` describes how errors add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from undertow.errors import UndertowError
from undertow.metrics.metric import read_catalog
from undertow.runs.compare.resampling import with_object_columns
from undertow.stats import calibration
from undertow.stats.arrays import Estimate
from undertow.types import ALPHA, Floats, Result, digest

GROUP_KEYS = ("architecture", "w_name", "strength")
ALL = "all"
UNBIASED = "0"
"""The strength of all unbiased rows, regardless of the corpus's parameters."""

N_DRAWS = 2_000
"""Bootstrap draws of models behind the interval of a median."""

STEPS = "percentage points per step of W"

METRICS, EXTRAS = read_catalog(Path(__file__).with_suffix(".toml"))
"""The measures of the audit as an instrument, and the meanings of the other columns of their results; the null value is that of an
audit that reads right."""

_AREAS = ("auroc_delta", "auroc_entropy")
_NUMBERS = (
    "strength", "training_seed", "planted_slope", "population_slope", "learned_slope", "measured_slope", "low", "high", "p", "q",
    "pronoun_loss_nats", "floor_nats", "ignorant_nats", *(f"{area}{end}" for area in _AREAS for end in ("", "_low", "_high")),
)  # fmt: skip
COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("model", "architecture", "w_name"), str),
    **dict.fromkeys(("selected", "found", "converged"), bool),
    **dict.fromkeys(_NUMBERS, float),
}
"""Required columns. `low` and `high` are the audit's interval over sentences, at the values of W of the audit. Its degrees of freedom
(`sentence_df`) or number of clusters (`n_clusters`) are used if the table has them."""

_NOT_CONVERGED = "training did not converge"


def results(frame: pd.DataFrame, seed: int = 0) -> list[Result]:
    """The measures of the audit by architecture, W and strength, "all" where pooled; `METRICS` and `EXTRAS` define each number.

    Strength is the size of the planted bias in either direction. A W is judged if any model of the table is biased along it, or if no
    model is biased at all. Lines, coverage and false alarms are of the judged W; AUROCs are also by strength, because the detector
    needs a model that learned something from W.

    Intervals of shares are exact for independent slopes (Clopper and Pearson). Slopes of one W are of the same sentences, which
    make them hit or miss together, so that they may be narrower than they should.

    Rows with strength 0, of a corpus that was not selected, or whose exact population slope is 0 are unbiased. n counts slopes, for
    AUROC models; n_missing those of models that did not converge or without a number. A
    number that cannot be estimated is NaN, with a note.

    Args:
        frame: a row for each model and W, with `COLUMNS`.
        seed: of the draws of models behind the interval of the median width.
    """
    table = with_object_columns(intervals(frame))
    if not table["converged"].any():
        raise UndertowError(f"none of the {table['model'].nunique():,} models converged; train them longer")
    biased = table[~table["unbiased"]]
    of_strengths = [part for one in _by_strength(biased) for part in _pooled_and_by(one.rows, one.group["strength"])]
    measured = [
        *_lines(table),
        *map(_attenuation, of_strengths),
        *_coverages(table),
        *_widths([*_pooled_and_by(table), *_by_strength(table)], seed),
        *_false_alarms(table),
        *map(_power, of_strengths or [_part(biased)]),
        *map(_direction_errors, [*_pooled_and_by(biased), *_by_strength(biased)]),
        *_areas(table),
    ]
    order = list(METRICS)
    return sorted(measured, key=lambda result: order.index(result.measure))


def intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with the interval of each row that includes the training seed, and the reason if the row does not count.

    Adds `unbiased`, `judged` (whether its W is), `left_out` ("" where the row counts), `planted_strength` (its size as text, "0"
    where unbiased), `seed_low` and `seed_high` (95%), `seed_spread` (all three percentage points per step of W, NaN where there
    are too few models), and `standard_error` and `sentence_df` (over sentences, infinite if unknown).
    """
    table = frame.reset_index(drop=True).astype(dict(COLUMNS))
    table["unbiased"] = (table["strength"] == 0) | ~table["selected"] | (table["population_slope"] == 0)
    biased_along = set(table.loc[~table["unbiased"], "w_name"])
    table["judged"] = table["w_name"].isin(biased_along) if biased_along else True
    table["planted_strength"] = [
        UNBIASED if unbiased else f"{abs(strength):g}"
        for unbiased, strength in zip(table["unbiased"], table["strength"], strict=True)
    ]
    measured = np.isfinite(table[["planted_slope", "measured_slope", "low", "high"]].to_numpy()).all(axis=1)
    not_measured = np.where(measured, "", "the audit gave no slope with an interval")
    table["left_out"] = np.where(~table["converged"], _NOT_CONVERGED, not_measured)
    clusters, df = (
        pd.to_numeric(table.get(name, pd.Series(math.nan, table.index))).replace(math.inf, math.nan)
        for name in ("n_clusters", "sentence_df")
    )
    table["standard_error"], table["sentence_df"] = calibration.standard_errors(
        table["low"], table["high"], clusters, df
    )
    unknown = (table["left_out"] == "") & table["standard_error"].isna()
    table.loc[unknown, "left_out"] = "too few sentences for an error"
    ends = ["seed_low", "seed_high", "seed_spread"]
    table[ends] = math.nan
    for _, rows in table[table["left_out"] == ""].groupby(["architecture", "w_name"], sort=False):
        widened = calibration.with_training_seed(*_readings(rows), alike=rows["unbiased"].to_numpy(dtype=np.int64))
        table.loc[rows.index, ends] = np.column_stack([widened.low, widened.high, widened.spread])
    return table.copy()  # in one piece: it is cut into many parts, which is slow column by column


def fitted_lines(frame: pd.DataFrame, n_points: int = 50) -> pd.DataFrame:
    """The line of measured on planted slopes of each architecture, all judged W together, as points to be drawn.

    Returns:
        `architecture`, `planted_slope`, `fitted`, `low` and `high` (95% band over models and sentences), from the lowest to the
        highest planted slope; no rows of an architecture without a line.
    """
    numbers = dict.fromkeys(("planted_slope", "fitted", "low", "high"), np.zeros(0))
    parts = [pd.DataFrame({"architecture": np.zeros(0, dtype=object), **numbers})]
    table = intervals(frame)
    for architecture, rows in table[table["judged"] & (table["left_out"] == "")].groupby("architecture", sort=False):
        if rows["unbiased"].all():
            continue
        fit = calibration.calibrate(*_readings(rows))
        if math.isnan(fit.line.slope):
            continue
        x = np.linspace(rows["planted_slope"].min(), rows["planted_slope"].max(), n_points)
        low, high = fit.band(x)
        points = {"planted_slope": x, "fitted": fit.line.at(x), "low": low, "high": high}
        parts.append(pd.DataFrame({"architecture": architecture, **points}))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def get_result(results: Sequence[Result], measure: str, *levels: str) -> Result | None:
    """One number by architecture, W and strength ("all" where not given)."""
    wanted = (*levels, ALL, ALL, ALL)[: len(GROUP_KEYS)]
    return next((r for r in results if r.measure == measure and levels_of(r) == wanted), None)


def along(results: Sequence[Result], measure: str) -> list[str]:
    """The W that a measure is of."""
    return [name for name in dict.fromkeys(r.group["w_name"] for r in results if r.measure == measure) if name != ALL]


def levels_of(result: Result) -> tuple[str, ...]:
    """Architecture, W and strength that a number is of."""
    return tuple(result.group.get(key, ALL) for key in GROUP_KEYS)


class _Part(NamedTuple):
    """A selection of the table's rows, with its name."""

    group: dict[str, str]
    rows: pd.DataFrame
    counting: pd.DataFrame

    def result(self, measure: str, estimate: Estimate, note: str = "", **extras: float) -> Result:
        """A result of this part; models that it does not use are missing."""
        if not note and self.counting.empty:
            note = "No model that converged is here."
        metric = METRICS[measure]
        return Result(
            measure, self.group, estimate.value, estimate.low, estimate.high, estimate.n, len(self.rows) - estimate.n,
            metric.unit, metric.null_value, extras=extras, note=note,
        )  # fmt: skip

    def share(self, measure: str, hits: pd.Series[bool], note: str = "", **extras: float) -> Result:
        """The share of these slopes [row] for which something is so."""
        return self.result(measure, calibration.share(hits.to_numpy(dtype=bool)), note, **extras)


def _part(rows: pd.DataFrame, architecture: str = ALL, w_name: str = ALL, strength: str = ALL) -> _Part:
    return _Part(
        dict(zip(GROUP_KEYS, (architecture, w_name, strength), strict=True)), rows, rows[rows["left_out"] == ""]
    )


def _pooled_and_by(table: pd.DataFrame, strength: str = ALL, *, by_w: bool = True) -> Iterator[_Part]:
    """All rows, those of each architecture, and those of each architecture and W."""
    yield _part(table, strength=strength)
    for architecture, rows in table.groupby("architecture", sort=False):
        yield _part(rows, str(architecture), strength=strength)
        for w_name, part in rows.groupby("w_name", sort=False) if by_w else ():
            yield _part(part, str(architecture), str(w_name), strength)


def _by_strength(table: pd.DataFrame) -> Iterator[_Part]:
    for name in sorted(set(table["planted_strength"]), key=float):
        yield _part(table[table["planted_strength"] == name], strength=name)


def _readings(rows: pd.DataFrame, truth: str = "planted_slope") -> tuple[Floats, Floats, Floats, Floats]:
    """What the calibration kernels read: truth, measured, standard error, its degrees of freedom, each [row]."""
    names = (truth, "measured_slope", "standard_error", "sentence_df")
    planted, measured, errors, df = (rows[name].to_numpy(dtype=np.float64) for name in names)
    return planted, measured, errors, df


def _lines(table: pd.DataFrame) -> Iterator[Result]:
    """Lines of judged W together, so that none is made surer by slopes along which nothing was planted; each other W alone."""
    parts = [*_pooled_and_by(table[table["judged"]])]
    for (architecture, w_name), rows in table[~table["judged"]].groupby(["architecture", "w_name"], sort=False):
        parts.append(_part(rows, str(architecture), str(w_name)))
    for part in parts:
        fit, note = _line_of(part.counting, _readings(part.counting))
        ends = {"models_low": fit.line.slope_low, "models_high": fit.line.slope_high, "scatter": fit.line.residual_sd}
        yield part.result("calibration_slope", fit.slope, note, **ends)
        yield part.result("calibration_intercept", fit.intercept, note)
        known = part.counting[part.counting["learned_slope"].notna()]
        # What networks learned is known without sentences.
        planted, learned = (known[name].to_numpy(dtype=np.float64) for name in ("planted_slope", "learned_slope"))
        fit, note = _line_of(known, (planted, learned, np.zeros(len(known)), np.full(len(known), math.inf)))
        yield part.result("training_slope", fit.slope, note)
        fit, note = _line_of(known, _readings(known, "learned_slope"))
        yield part.result("reading_slope", fit.slope, note)


def _line_of(rows: pd.DataFrame, points: tuple[Floats, Floats, Floats, Floats]) -> tuple[calibration.Calibration, str]:
    if rows["unbiased"].all():
        none = Estimate(math.nan, math.nan, math.nan, len(rows))
        nobody = "No biased model is here, so there is nothing that measured slopes could follow."
        why = nobody if len(rows) else "No model that converged is here."
        return replace(calibration.calibrate([], [], [], []), slope=none, intercept=none), why
    fit = calibration.calibrate(*points)
    if math.isnan(fit.slope.value):
        return fit, "The planted slopes do not differ, and a line needs two that do."
    return fit, "Two slopes always lie on a line, so there is no interval." if math.isnan(fit.slope.low) else ""


def _attenuation(part: _Part) -> Result:
    rows = part.counting
    estimate = calibration.attenuation(*_readings(rows)) if len(rows) else Estimate(math.nan, math.nan, math.nan, 0)
    return part.result("attenuation", estimate, _of_one(estimate, "slope"), planted=_mean(rows["planted_slope"].abs()))


def _of_one(estimate: Estimate, what: str) -> str:
    return f"There is no interval of one {what}." if math.isfinite(estimate.value) and math.isnan(estimate.low) else ""


def _coverages(table: pd.DataFrame) -> Iterator[Result]:
    judged, others = table[table["judged"]], table[~table["judged"]]
    for part in [*_pooled_and_by(judged), *_by_strength(judged)]:
        yield _coverage(part, "coverage", ("seed_low", "seed_high"))
        yield _coverage(part, "coverage_sentences_only", ("low", "high"))
    for part in _pooled_and_by(others) if len(others) else ():
        yield _coverage(part, "coverage_beside", ("seed_low", "seed_high"))


def _coverage(part: _Part, measure: str, ends: tuple[str, str]) -> Result:
    known = part.counting[np.isfinite(part.counting[ends[0]])]
    inside = (known[ends[0]] <= known["planted_slope"]) & (known["planted_slope"] <= known[ends[1]])
    note = _too_few(len(part.counting) - len(known))
    return part.share(measure, inside, note, biased=_mean(inside[~known["unbiased"]]))


def _too_few(n: int) -> str:
    if not n:
        return ""
    lack = "1 slope has no interval" if n == 1 else f"{n:,} slopes have no interval"
    return (
        f"{lack}: with the training seed, it takes {calibration.MIN_MODELS} converged models of one architecture and W."
    )


def _widths(parts: Sequence[_Part], seed: int) -> Iterator[Result]:
    """Of parts of which the first is everything."""
    biased = parts[0].counting[~parts[0].counting["unbiased"]]
    largest = biased["planted_slope"].abs().groupby(biased["w_name"]).max()
    for part in parts:
        rows = part.counting
        width = rows["seed_high"] - rows["seed_low"]
        rng = np.random.default_rng(int(digest([int(seed), *part.group.values()]), 16))
        estimate = calibration.median_over_models(width.to_numpy(), rows["model"].to_numpy(dtype=str), N_DRAWS, rng)
        yield part.result(
            "interval_width",
            estimate,
            _too_few(len(rows) - estimate.n),
            of_largest=float((width / rows["w_name"].map(largest).astype(float)).median()),
            audit_width=float((rows["high"] - rows["low"]).median()),
            spread=float(rows["seed_spread"].median()),
        )


def _false_alarms(table: pd.DataFrame) -> Iterator[Result]:
    """Of models without any bias, in the judged W; then of all other unbiased slopes."""
    # Selection can bend the share of women over W without any slope, which is no absence of bias.
    without_bias = table.groupby("model")["unbiased"].transform("all") & ~table["selected"]
    judged = table[without_bias & table["judged"]]
    beside = table[table["unbiased"] & ~(without_bias & table["judged"])]
    for part in _pooled_and_by(judged, UNBIASED):
        rows = _select_tested(part)
        # q is adjusted over all W that were asked, so an alarm along any of them is the model's.
        anywhere = table[(table["left_out"] == "") & table["model"].isin(rows["model"])]
        by_model = (anywhere["q"] < ALPHA).groupby(anywhere["model"]).any()
        yield part.share(
            "false_alarms",
            rows["q"] < ALPHA,
            "" if len(judged) else "No model without any bias was made.",
            claimed=_mean(rows["found"]),
            models=float(len(by_model)),
            models_alarmed=_mean(by_model),
        )
    for part in _pooled_and_by(beside, UNBIASED) if len(beside) else ():
        rows = _select_tested(part)
        yield part.share("false_alarms_beside", rows["q"] < ALPHA, claimed=_mean(rows["found"]))


def _power(part: _Part) -> Result:
    rows = _select_tested(part)
    right = _on_planted_side(rows)
    return part.share(
        "power",
        (rows["q"] < ALPHA) & right,
        "" if len(part.rows) else "No biased model was made.",
        claimed=_mean(rows["found"] & right),
        planted=_mean(rows["planted_slope"].abs()),
    )


def _direction_errors(part: _Part) -> Result:
    note = "" if len(part.rows) else "No biased model was made."
    return part.share("direction_errors", ~_on_planted_side(part.counting), note)


def _select_tested(part: _Part) -> pd.DataFrame:
    return part.counting[part.counting["q"].notna()]


def _on_planted_side(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows["measured_slope"] * rows["planted_slope"] > 0


def _mean(values: pd.Series[bool] | pd.Series[float]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _areas(table: pd.DataFrame) -> Iterator[Result]:
    # One row for each model, at the largest strength that it was given, with the areas that any of its rows has: a model has one
    # area, whatever W.
    rows = table.assign(
        as_planted=table["planted_strength"].astype(float), left_out=np.where(table["converged"], "", _NOT_CONVERGED)
    ).sort_values("as_planted", ascending=False, kind="stable")
    models = rows.groupby("model", sort=False).first().loc[list(dict.fromkeys(table["model"]))].reset_index()
    parts = [*_pooled_and_by(models, by_w=False)]
    for one in _by_strength(models):
        parts += _pooled_and_by(one.rows, one.group["strength"], by_w=False)
    models_values = {name: models[name] for name in _AREAS}
    models_values["auroc_difference"] = models["auroc_delta"] - models["auroc_entropy"]
    for measure, values in models_values.items():
        least = -1.0 if measure == "auroc_difference" else 0.0
        for part in parts:
            mean = calibration.mean_over_models(values[part.counting.index])
            if math.isfinite(mean.low):  # the t interval of two or three models goes beyond
                mean = replace(mean, low=max(mean.low, least), high=min(mean.high, 1.0))
            without = "" if mean.n or part.counting.empty else "No model has this number."
            yield part.result(measure, mean, without or _of_one(mean, "model"))
