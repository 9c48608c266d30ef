"""Whether the audit reads the bias that was planted: measured slopes of trained models against the slopes of their corpora.

One row a model and W. An instrument is judged by the line of measured on planted slopes, by how often its intervals hold what
was planted, by what it finds in unbiased models, and by what it finds in biased ones, the smaller the bias the harder. A W along
which no model is biased is easy to read: it is told beside coverage and false alarms, and is not counted in them. McMilin
2024 ("Underspecification in Language Modeling Tasks", AAAI) argues that selection bias enters models in this way; there the true
slope is not known, and here it is. Models whose training did not converge are counted, and judge nothing: they would measure the
training. How errors add up is told in `undertow.stats.calibration`.

Knows the columns of the table; knows nothing about how models were trained or asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from undertow.errors import UndertowError
from undertow.stats.arrays import Estimate
from undertow.stats.calibration import (
    MIN_MODELS,
    Calibration,
    attenuation,
    calibrate,
    mean_over_models,
    median_over_models,
    share,
    standard_errors,
    with_training_seed,
)
from undertow.types import Floats, Result, digest, format_interval

GROUP_KEYS = ("architecture", "w_name", "strength")
ALL = "all"
UNBIASED = "0"
"""The strength under which all unbiased rows stand, whatever the parameter of a corpus that was not selected."""

MAX_Q = 0.05
N_DRAWS = 2_000
"""Bootstrap draws of models behind the interval of a median."""

SLOPE_TARGET = (0.8, 1.2)
COVERAGE_TARGET, WIDTH_TARGET, POWER_TARGET, FALSE_ALARM_TARGET = 0.9, 0.5, 0.8, 0.1
MIN_UNBIASED_MODELS = 20
"""Of fewer unbiased models, one false alarm is already far more than one in ten, or may be."""

STEPS = "percentage points per step of W"
SLOPES, MODELS = "share of slopes", "mean over models"

Verdict: TypeAlias = tuple[str, str, str, bool]
"""What is asked for, the target and the value, all in words, and whether it is met."""

_TEXTS = ("model", "architecture", "w_name")
_TRUE_OR_FALSE = ("selected", "found", "converged")
_NUMBERS = (
    "strength", "training_seed", "planted_slope", "population_slope", "learned_slope", "measured_slope", "low", "high", "p", "q",
)  # fmt: skip
_LOSSES = ("pronoun_loss_nats", "floor_nats", "ignorant_nats")
_AREAS = ("auroc_delta", "auroc_entropy")
_AREA_ENDS = tuple(f"{name}_{end}" for name in _AREAS for end in ("low", "high"))
_OPTIONAL = ("n_clusters", "sentence_df")
COLUMNS = (*_TEXTS, *_TRUE_OR_FALSE, *_NUMBERS, *_LOSSES, *_AREAS, *_AREA_ENDS)
"""What the table must have. `low` and `high` are the audit's interval over sentences, at the values of W that were asked. Its degrees of
freedom (`sentence_df`), or how many clusters of sentences are behind it (`n_clusters`), are used where they are there."""

_NOT_CONVERGED = "training did not converge"
_NOT_MEASURED = "the audit gave no slope with an interval"
_TOO_FEW_SENTENCES = "too few sentences for an error"


def results(frame: pd.DataFrame, seed: int = 0) -> list[Result]:
    """What the models say about the audit, by architecture, W and strength; "all" where pooled.

    Strength is the size of what was planted: models that are biased either way are one strength. A W is judged if any
    model of the table is biased along it, and every W is where none is biased at all.

    - `calibration_slope` (neutral 1) and `calibration_intercept` (neutral 0, percentage points per step of W): least squares of
      measured on planted slope in the judged W, interval over models and sentences; `models_low` and `models_high` over models
      that are asked these very sentences, `scatter` how far models lie from the line.
    - `training_slope` (neutral 1): least squares of the slope of each network's own P(female), on texts like its corpus, on the planted
      slope; `reading_slope` (neutral 1) of the measured slope on the network's own. So the calibration slope is told apart into what
      the training lost and what the audit did.
    - `attenuation` (neutral 1), for each strength: mean measured over mean planted slope, towards the side planted.
    - `coverage` (neutral .95): share of slopes whose interval, training seed included, holds the planted slope, in the judged W, so
      that a lab with one such W counts each model once; `biased` that of biased slopes alone, which many unbiased ones would hide.
    - `coverage_sentences_only`: the same of the audit's interval over sentences alone, which leaves out the seed.
    - `coverage_beside`: as `coverage`, of the other W, if there are any.
    - `interval_width`: median width, training seed included; `of_largest` relative to the largest slope planted in that W (without
      a W in which nothing was), `audit_width` without the seed, `spread` the median spread over seeds.
    - `false_alarms` (neutral .05): share of slopes with q below .05, in the judged W, of models that have no bias at all; `claimed`
      what the audit called `found`, `models` how many models these are, `models_alarmed` the share of them with any along any W.
    - `false_alarms_beside` (neutral .05): the same of all other unbiased slopes, if there are any.
    - `power`, for each strength: share of biased slopes with q below .05 on the side that was planted; `claimed` as above,
      `planted` the mean size of what was planted.
    - `direction_errors` (neutral 0): share of biased slopes measured on the wrong side, found or not.
    - `auroc_delta`, `auroc_entropy` (neutral .5), `auroc_difference` (neutral 0): mean over models, and of their paired
      differences, also for each strength, since the detector needs a model that learned something from W.

    Intervals of shares are exact for independent slopes (Clopper and Pearson). Slopes of one W are of the same sentences, which
    make them hit or miss together, so that they may be narrower than they should.

    Rows with strength 0, of a corpus that was not selected, or whose exact population slope is 0 are unbiased. n counts slopes, for
    AUROC models; n_missing those of models that did not converge or without a number. What cannot be had is NaN, and says why.

    Args:
        frame: a row for each model and W, with `COLUMNS`.
        seed: of the draws of models behind the interval of the median width.

    Raises:
        UndertowError: a column is missing or holds something else, a model and W come twice, or no model converged.
    """
    table = intervals(frame)
    if not table["converged"].any():
        raise UndertowError(
            f"none of the {table['model'].nunique():,} models converged: none got its pronoun loss down to its floor, so nothing "
            "can be said about the audit; train them longer"
        )
    pooled, lines = [*_pooled_and_by(table)], [*_of_lines(table)]
    biased, of_strengths = _biased(table), [*_of_strengths(_biased(table))]
    return [
        *_lines(lines),
        *_parts_of_lines(lines),
        *_attenuations(of_strengths),
        *_coverages(table),
        *_widths([*pooled, *_by_strength(table)], seed),
        *_false_alarms(table),
        *_powers(of_strengths),
        *_direction_errors([*_pooled_and_by(biased), *_by_strength(biased)]),
        *_areas(table),
    ]


def intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with what is known of each row: its interval with the training seed, and why it does not count, if so.

    Adds `unbiased`, `judged` (whether its W is), `left_out` ("" where the row counts), `planted_strength` (its size as text, "0"
    where unbiased), `seed_low` and `seed_high` (95%), `seed_spread` (all three percentage points per step of W, NaN where there
    are too few models), and `standard_error` and `sentence_df` (over sentences, infinite where nothing says how many).

    Raises:
        UndertowError: as `results`, but for models that did not converge.
    """
    table = _checked(frame)
    table["unbiased"] = (table["strength"] == 0) | ~table["selected"] | (table["population_slope"] == 0)
    biased_along = set(_biased(table)["w_name"])
    table["judged"] = table["w_name"].isin(biased_along) if biased_along else True
    table["planted_strength"] = [
        UNBIASED if unbiased else f"{abs(strength):g}"
        for unbiased, strength in zip(table["unbiased"], table["strength"], strict=True)
    ]
    measured = np.isfinite(table[["planted_slope", "measured_slope", "low", "high"]].to_numpy()).all(axis=1)
    table["left_out"] = np.where(~table["converged"], _NOT_CONVERGED, np.where(measured, "", _NOT_MEASURED))
    clusters = table["n_clusters"] if "n_clusters" in table else np.full(len(table), math.nan)
    known = standard_errors(table["low"], table["high"], clusters, table.get("sentence_df"))
    table["standard_error"], table["sentence_df"] = known
    unknown = (table["left_out"] == "") & table["standard_error"].isna()
    table.loc[unknown, "left_out"] = _TOO_FEW_SENTENCES
    for name in ("seed_low", "seed_high", "seed_spread"):
        table[name] = math.nan
    for _, rows in table[table["left_out"] == ""].groupby(["architecture", "w_name"], sort=False):
        widened = with_training_seed(*_readings(rows), alike=rows["unbiased"].to_numpy(dtype=np.int64))
        ends = {"seed_low": widened.low, "seed_high": widened.high, "seed_spread": widened.spread}
        for name, values in ends.items():
            table.loc[rows.index, name] = values
    return table.copy()  # in one piece: it is cut into many parts, which is slow column by column


def fitted_lines(frame: pd.DataFrame, n_points: int = 50) -> pd.DataFrame:
    """The line of measured on planted slopes of each architecture, all judged W together, as points to be drawn.

    Returns:
        `architecture`, `planted_slope`, `fitted`, `low` and `high` (95% band over models and sentences), from the lowest to the
        highest planted slope; no rows of an architecture without a line.

    Raises:
        UndertowError: as `intervals`.
    """
    parts = []
    table = intervals(frame)
    for architecture, rows in _counting(table[table["judged"]]).groupby("architecture", sort=False):
        if rows["unbiased"].all():
            continue
        fit = calibrate(*_readings(rows))
        if math.isnan(fit.line.slope):
            continue
        x = np.linspace(rows["planted_slope"].min(), rows["planted_slope"].max(), n_points)
        low, high = fit.band(x)
        points = {"planted_slope": x, "fitted": fit.line.at(x), "low": low, "high": high}
        parts.append(pd.DataFrame({"architecture": architecture, **points}))
    empty = pd.DataFrame(columns=["architecture", "planted_slope", "fitted", "low", "high"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """What the audit promises, held against `results`: (requirement, target, value, whether it is met), each in words.

    Coverage and false alarms are judged along the W along which some model is biased; the other W are told beside them. False
    alarms are judged where at least 20 models have no bias at all; with fewer there is no such promise in the list. A number that
    could not be had does not meet its target.
    """
    required = [
        _slope_verdict(_pooled(results, "calibration_slope")),
        _coverage_verdict(results),
        _width_verdict(_pooled(results, "interval_width")),
        _power_verdict(strongest(results)),
    ]
    enough = _pooled(results, "false_alarms", UNBIASED).extras["models"] >= MIN_UNBIASED_MODELS
    return [*required, _alarm_verdict(results)] if enough else required


def _slope_verdict(slope: Result) -> Verdict:
    least, most = SLOPE_TARGET
    said = _said(slope, f"{slope.value:z.2f} ({format_interval(slope.low, slope.high)})")
    target = f"calibration slope of {least} to {most}"
    return "Measured slopes follow planted slopes", target, said, least <= slope.value <= most


def _coverage_verdict(results: Sequence[Result]) -> Verdict:
    what = "The 95% interval, training seed included, holds the planted slope"
    coverage, along = _pooled(results, "coverage"), _along(results, "coverage")
    biased = coverage.extras["biased"]
    alone = f"; {biased:.0%} of the biased ones" if math.isfinite(biased) else ""
    said = _said(coverage, f"{_share_along(coverage, along)}{alone}{_not_judged(results, 'coverage_beside')}")
    target = f"for at least {COVERAGE_TARGET:.0%} of {_counted(along)}, and of the biased ones alone"
    kept = coverage.value >= COVERAGE_TARGET and not biased < COVERAGE_TARGET
    return what, target, said, kept


def _width_verdict(width: Result) -> Verdict:
    relative = width.extras["of_largest"]
    share_of = f"{relative:.2f} of it" if math.isfinite(relative) else "no number, as nothing was planted"
    said = _said(width, f"{share_of}; over all slopes {width.value:.2f} {STEPS}")
    target = f"median width below {WIDTH_TARGET:g} of the largest planted slope"
    return "The interval is narrow beside the bias to be found", target, said, relative < WIDTH_TARGET


def _power_verdict(power: Result) -> Verdict:
    what = f"The largest planted bias is found: q below {MAX_Q:g}, on the planted side"
    said = _said(power, f"{_share_in_words(power)}, where the mean planted slope is {power.extras['planted']:.2f}")
    return what, f"at least {POWER_TARGET:.0%} of slopes", said, power.value >= POWER_TARGET


def _alarm_verdict(results: Sequence[Result]) -> Verdict:
    what = f"Nothing is found where nothing was planted: false alarms at q below {MAX_Q:g}"
    alarms, along = _pooled(results, "false_alarms", UNBIASED), _along(results, "false_alarms")
    alarmed = alarms.extras["models_alarmed"]
    by_model = f"; {alarmed:.0%} of {alarms.extras['models']:.0f} unbiased models have one along any W"
    said = _said(alarms, f"{_share_along(alarms, along)}{by_model}")
    target = (
        f"at most {FALSE_ALARM_TARGET:.0%} of {_counted(along)}, and of models along any W, over {MIN_UNBIASED_MODELS} unbiased "
        "models or more"
    )
    return what, target, said, max(alarms.value, alarmed) <= FALSE_ALARM_TARGET


def _counted(along: Sequence[str]) -> str:
    """What a share over these W counts: a model has one slope in each."""
    return "models" if len(along) == 1 else "slopes"


def _share_along(result: Result, along: Sequence[str]) -> str:
    counted = _counted(along)
    amount = f"1 {counted[:-1]}" if result.n == 1 else f"{result.n:,} {counted}"
    return f"{result.value:.0%} of {amount} along {' and '.join(along)} ({result.low:.0%} to {result.high:.0%})"


def _not_judged(results: Sequence[Result], measure: str) -> str:
    """The same share where nothing depends on it, if there is one."""
    beside = [result for result in results if result.measure == measure and _levels(result)[:2] == (ALL, ALL)]
    return "".join(
        f"; not judged: {result.value:.0%} of {result.n:,} slopes along {' and '.join(_along(results, measure))}"
        for result in beside
        if result.n
    )


def strongest(results: Sequence[Result]) -> Result:
    """Power at the largest strength of which a slope counts, in either direction and all models together."""
    powers = [result for result in results if result.measure == "power" and _levels(result)[:2] == (ALL, ALL)]
    return max(powers, key=lambda result: float(result.group["strength"]) if result.n else -math.inf)


def _pooled(results: Sequence[Result], measure: str, strength: str = ALL) -> Result:
    return next(r for r in results if r.measure == measure and _levels(r) == (ALL, ALL, strength))


def _along(results: Sequence[Result], measure: str) -> list[str]:
    """The W that a measure is of."""
    return [name for name in dict.fromkeys(r.group["w_name"] for r in results if r.measure == measure) if name != ALL]


def _levels(result: Result) -> tuple[str, ...]:
    return tuple(result.group[key] for key in GROUP_KEYS)


def _said(result: Result, value: str) -> str:
    return value if math.isfinite(result.value) else f"no number: {result.note[:1].lower()}{result.note[1:]}"


def _share_in_words(result: Result) -> str:
    slopes = "1 slope" if result.n == 1 else f"{result.n:,} slopes"
    return f"{result.value:.0%} of {slopes} ({result.low:.0%} to {result.high:.0%})"


class _Part(NamedTuple):
    """Some of the table's rows, and what they are.

    Attributes:
        group: keys of the results.
        rows: all of them.
        counting: those that count.
    """

    group: dict[str, str]
    rows: pd.DataFrame
    counting: pd.DataFrame

    @property
    def n_missing(self) -> int:
        return len(self.rows) - len(self.counting)

    def result(self, measure: str, estimate: Estimate, unit: str) -> Result:
        """A number of this part, with its counts."""
        return Result(
            measure, self.group, estimate.value, estimate.low, estimate.high, estimate.n, self.n_missing, unit
        )


def _part(rows: pd.DataFrame, architecture: str = ALL, w_name: str = ALL, strength: str = ALL) -> _Part:
    return _Part(_group(architecture, w_name, strength), rows, _counting(rows))


def _pooled_and_by(table: pd.DataFrame, strength: str = ALL) -> Iterator[_Part]:
    """All rows, those of each architecture, and those of each architecture and W."""
    yield _part(table, strength=strength)
    for architecture, rows in table.groupby("architecture", sort=False):
        yield _part(rows, str(architecture), strength=strength)
        for w_name, part in rows.groupby("w_name", sort=False):
            yield _part(part, str(architecture), str(w_name), strength)


def _pooled_and_by_architecture(models: pd.DataFrame, strength: str = ALL) -> Iterator[_Part]:
    yield _part(models, strength=strength)
    for architecture, rows in models.groupby("architecture", sort=False):
        yield _part(rows, str(architecture), strength=strength)


def _by_strength(table: pd.DataFrame) -> Iterator[_Part]:
    """The rows of each strength from the weakest, those of both directions together."""
    for name in sorted(set(table["planted_strength"]), key=float):
        yield _part(table[table["planted_strength"] == name], strength=name)


def _group(architecture: str = ALL, w_name: str = ALL, strength: str = ALL) -> dict[str, str]:
    return dict(zip(GROUP_KEYS, (architecture, w_name, strength), strict=True))


def _counting(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["left_out"] == ""]


def _biased(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table["unbiased"]]


def _readings(rows: pd.DataFrame, truth: str = "planted_slope") -> tuple[Floats, Floats, Floats, Floats]:
    """What the calibration kernels read: truth, measured, standard error, its degrees of freedom, each [row]."""
    names = (truth, "measured_slope", "standard_error", "sentence_df")
    planted, measured, errors, df = (rows[name].to_numpy(dtype=np.float64) for name in names)
    return planted, measured, errors, df


def _learned(rows: pd.DataFrame) -> tuple[Floats, Floats, Floats, Floats]:
    """The same of what networks learned, which is known without sentences: planted, learned, 0, inf, each [row]."""
    planted, learned = (rows[name].to_numpy(dtype=np.float64) for name in ("planted_slope", "learned_slope"))
    return planted, learned, np.zeros(len(rows)), np.full(len(rows), math.inf)


def _lines(parts: Sequence[_Part]) -> list[Result]:
    slopes, intercepts = [], []
    for part in parts:
        fit, note = _line_of(part.counting)
        scatter = {"scatter": fit.line.residual_sd}
        over_models = {"models_low": fit.line.slope_low, "models_high": fit.line.slope_high}
        slope = part.result("calibration_slope", fit.slope, "measured per planted")
        slopes.append(replace(slope, null_value=1.0, extras=over_models | scatter, note=note))
        intercept = part.result("calibration_intercept", fit.intercept, STEPS)
        intercepts.append(replace(intercept, null_value=0.0, note=note))
    return [*slopes, *intercepts]


def _of_lines(table: pd.DataFrame) -> Iterator[_Part]:
    """What lines go through: judged W together, so that none is made surer by slopes along which nothing was planted; each W alone."""
    yield from _pooled_and_by(table[table["judged"]])
    for (architecture, w_name), rows in table[~table["judged"]].groupby(["architecture", "w_name"], sort=False):
        yield _part(rows, str(architecture), str(w_name))


def _parts_of_lines(parts: Sequence[_Part]) -> list[Result]:
    trained, read = [], []
    for part in parts:
        rows = part.counting[part.counting["learned_slope"].notna()]
        known = _Part(part.group, part.rows, rows)
        learned, why_not_learned = _line_of(rows, _learned)
        measured, why_not_measured = _line_of(rows, lambda some: _readings(some, "learned_slope"))
        training = known.result("training_slope", learned.slope, "learned per planted")
        trained.append(replace(training, null_value=1.0, note=why_not_learned))
        reading = known.result("reading_slope", measured.slope, "measured per learned")
        read.append(replace(reading, null_value=1.0, note=why_not_measured))
    return [*trained, *read]


def _line_of(
    rows: pd.DataFrame, points: Callable[[pd.DataFrame], tuple[Floats, Floats, Floats, Floats]] = _readings
) -> tuple[Calibration, str]:
    """The line through some slopes, and why it has no slope or no interval."""
    if not len(rows):
        return _no_line(rows), "No model that converged is here."
    if rows["unbiased"].all():
        return _no_line(rows), "No biased model is here, so there is nothing that measured slopes could follow."
    fit = calibrate(*points(rows))
    if math.isnan(fit.slope.value):
        return fit, "The planted slopes do not differ, and a line needs two that do."
    if math.isnan(fit.slope.low):
        return fit, "Two slopes always lie on a line, so there is no interval."
    return fit, ""


def _no_line(rows: pd.DataFrame) -> Calibration:
    return replace(calibrate([], [], [], []), slope=_none(len(rows)), intercept=_none(len(rows)))


def _none(n: int) -> Estimate:
    return Estimate(math.nan, math.nan, math.nan, n)


def _attenuations(parts: Sequence[_Part]) -> Iterator[Result]:
    for part in parts:
        rows = part.counting
        estimate = attenuation(*_readings(rows)) if len(rows) else _none(0)
        note = _why_no_interval(estimate, "slope")
        detail = {"planted": _mean_size(rows)}
        result = part.result("attenuation", estimate, "mean measured per mean planted")
        yield replace(result, null_value=1.0, extras=detail, note=note)


def _of_strengths(table: pd.DataFrame) -> Iterator[_Part]:
    """The rows of each strength: all together, of each architecture, and of each architecture and W."""
    for of_strength in _by_strength(table):
        yield from _pooled_and_by(of_strength.rows, of_strength.group["strength"])


def _mean_size(rows: pd.DataFrame) -> float:
    return float(rows["planted_slope"].abs().mean()) if len(rows) else math.nan


def _why_no_interval(estimate: Estimate, what: str) -> str:
    if not estimate.n:
        return "No model that converged is here."
    return f"There is no interval of one {what}." if math.isfinite(estimate.value) and math.isnan(estimate.low) else ""


def _coverages(table: pd.DataFrame) -> list[Result]:
    judged, others = table[table["judged"]], table[~table["judged"]]
    parts = [*_pooled_and_by(judged), *_by_strength(judged)]
    beside = [*_pooled_and_by(others)] if len(others) else []
    return [
        *(_coverage(part, "coverage", ("seed_low", "seed_high")) for part in parts),
        *(_coverage(part, "coverage_sentences_only", ("low", "high")) for part in parts),
        *(_coverage(part, "coverage_beside", ("seed_low", "seed_high")) for part in beside),
    ]


def _coverage(part: _Part, measure: str, ends: tuple[str, str]) -> Result:
    rows = part.counting
    known = rows[np.isfinite(rows[ends[0]])]
    inside = (known[ends[0]] <= known["planted_slope"]) & (known["planted_slope"] <= known[ends[1]])
    biased = {"biased": _mean(inside[~known["unbiased"]])}
    result = replace(part.result(measure, share(inside), SLOPES), null_value=0.95, extras=biased)
    note = _joined([_nobody(rows), _too_few(len(rows) - len(known))])
    return replace(result, n_missing=len(part.rows) - len(known), note=note)


def _too_few(n: int) -> str:
    if not n:
        return ""
    lack = "1 slope has no interval" if n == 1 else f"{n:,} slopes have no interval"
    return f"{lack}: with the training seed, it takes {MIN_MODELS} converged models of one architecture and W."


def _nobody(rows: pd.DataFrame) -> str:
    return "" if len(rows) else "No model that converged is here."


def _joined(notes: Sequence[str]) -> str:
    return " ".join(note for note in notes if note)


def _widths(parts: Sequence[_Part], seed: int) -> Iterator[Result]:
    """Of parts of which the first is everything."""
    biased = _biased(parts[0].counting)
    largest = biased["planted_slope"].abs().groupby(biased["w_name"]).max()
    for part in parts:
        rows = part.counting
        width = (rows["seed_high"] - rows["seed_low"]).to_numpy(dtype=np.float64)
        rng = np.random.default_rng(int(digest([int(seed), *part.group.values()]), 16))
        estimate = median_over_models(width, rows["model"].to_numpy(dtype=str), N_DRAWS, rng)
        relative = width / rows["w_name"].map(largest).to_numpy(dtype=np.float64)
        detail = {
            "of_largest": _median(relative),
            "audit_width": _median((rows["high"] - rows["low"]).to_numpy(dtype=np.float64)),
            "spread": _median(rows["seed_spread"].to_numpy(dtype=np.float64)),
        }
        result = replace(part.result("interval_width", estimate, STEPS), extras=detail)
        note = _joined([_nobody(rows), _too_few(len(rows) - estimate.n)])
        yield replace(result, n_missing=len(part.rows) - estimate.n, note=note)


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else math.nan


def _false_alarms(table: pd.DataFrame) -> Iterator[Result]:
    """Of models without any bias, in the judged W; then of all other unbiased slopes."""
    # Selection can bend the share of women over W without any slope, which is no absence of bias.
    without_bias = table.groupby("model")["unbiased"].transform("all") & ~table["selected"]
    judged = table[without_bias & table["judged"]]
    beside = table[table["unbiased"] & ~(without_bias & table["judged"])]
    if judged.empty:
        detail = {"claimed": math.nan, "models": 0.0, "models_alarmed": math.nan}
        note = "No model without any bias was made."
        yield Result("false_alarms", _group(strength=UNBIASED), math.nan, unit=SLOPES, extras=detail, note=note)
    for part in _pooled_and_by(judged, UNBIASED) if len(judged) else ():
        rows = _tested(part)
        alarmed = rows["q"] < MAX_Q
        # q is adjusted over all W that were asked, so an alarm along any of them is the model's.
        anywhere = table[(table["left_out"] == "") & table["model"].isin(rows["model"])]
        by_model = (anywhere["q"] < MAX_Q).groupby(anywhere["model"]).any()
        detail = {"claimed": _mean(rows["found"]), "models": float(len(by_model)), "models_alarmed": _mean(by_model)}
        yield _share_of("false_alarms", part, rows, alarmed, detail, null_value=MAX_Q)
    for part in _pooled_and_by(beside, UNBIASED) if len(beside) else ():
        rows = _tested(part)
        detail = {"claimed": _mean(rows["found"])}
        yield _share_of("false_alarms_beside", part, rows, rows["q"] < MAX_Q, detail, null_value=MAX_Q)


def _powers(parts: Sequence[_Part]) -> Iterator[Result]:
    if not parts:
        detail = {"claimed": math.nan, "planted": math.nan}
        yield Result("power", _group(), math.nan, unit=SLOPES, extras=detail, note="No biased model was made.")
        return
    for part in parts:
        rows = _tested(part)
        right = _on_planted_side(rows)
        detail = {"claimed": _mean(rows["found"] & right), "planted": _mean_size(rows)}
        yield _share_of("power", part, rows, (rows["q"] < MAX_Q) & right, detail)


def _direction_errors(parts: Sequence[_Part]) -> Iterator[Result]:
    if not len(parts[0].rows):
        note = "No biased model was made."
        yield Result("direction_errors", _group(), math.nan, unit=SLOPES, null_value=0.0, note=note)
        return
    for part in parts:
        rows = part.counting
        yield _share_of("direction_errors", part, rows, ~_on_planted_side(rows), {}, null_value=0.0)


def _tested(part: _Part) -> pd.DataFrame:
    return part.counting[part.counting["q"].notna()]


def _on_planted_side(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows["measured_slope"] * rows["planted_slope"] > 0


def _share_of(  # noqa: PLR0913 - a share is of something, somewhere, beside something
    measure: str,
    part: _Part,
    rows: pd.DataFrame,
    hits: pd.Series[bool],
    detail: Mapping[str, float],
    *,
    null_value: float = math.nan,
) -> Result:
    result = part.result(measure, share(hits.to_numpy(dtype=bool)), SLOPES)
    n_missing = len(part.rows) - len(rows)
    return replace(result, n_missing=n_missing, extras=detail, null_value=null_value, note=_nobody(rows))


def _mean(hits: pd.Series[bool]) -> float:
    return float(hits.mean()) if len(hits) else math.nan


def _areas(table: pd.DataFrame) -> Iterator[Result]:
    """AUROC over models: all, and those of each strength, of both architectures and of each."""
    models = _models(table)
    parts = [*_pooled_and_by_architecture(models)]
    for part in _by_strength(models):
        parts += _pooled_and_by_architecture(part.rows, part.group["strength"])
    difference = models["auroc_delta"] - models["auroc_entropy"]
    for measure, values in [*((name, models[name]) for name in _AREAS), ("auroc_difference", difference)]:
        for part in parts:
            of = values[part.counting.index]
            estimate = mean_over_models(of)
            result = part.result(measure, estimate, MODELS)
            note = _why_no_interval(estimate, "model") if estimate.n or not len(of) else "No model has this number."
            least, null_value = (-1.0, 0.0) if measure == "auroc_difference" else (0.0, 0.5)
            low, high = (
                max(estimate.low, least),
                min(estimate.high, 1.0),
            )  # the t interval of two or three models goes beyond
            ends = (math.nan, math.nan) if math.isnan(estimate.low) else (low, high)
            known = replace(result, low=ends[0], high=ends[1], n_missing=len(part.rows) - estimate.n)
            yield replace(known, null_value=null_value, note=note)


def _models(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each model, at the largest strength that it was given, with the areas that any of its rows has.

    A model has one area, whatever W. A row in which it is not biased has strength 0, and comes after those in which it is.
    """
    rows = table.assign(
        as_planted=table["planted_strength"].astype(float),
        left_out=np.where(table["converged"], "", _NOT_CONVERGED),
    )
    rows = rows.sort_values("as_planted", ascending=False, kind="stable")
    models = rows.groupby("model", sort=False).first()
    return models.loc[list(dict.fromkeys(table["model"]))].reset_index()


def _checked(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that are measured, as text, numbers and truth values, one row for each model and W."""
    for name in COLUMNS:
        if name not in frame.columns:
            raise UndertowError(
                f"the table of trained models has no column {name!r}; add it, or build the models again"
            )
    if frame.empty:
        raise UndertowError("the table of trained models has no row; build some models before they are verified")
    table = frame.reset_index(drop=True).copy()
    for name in _TEXTS:
        table[name] = [str(level) for level in table[name]]
    for name in _TRUE_OR_FALSE:
        _refuse(table, name, ~table[name].isin([True, False]), "true or false")
        table[name] = table[name].astype(bool)
    optional = [name for name in _OPTIONAL if name in table]
    for name in (*_NUMBERS, *_LOSSES, *_AREAS, *_AREA_ENDS, *optional):
        if name == "sentence_df":  # infinite in a table that was written, where nobody knows it
            table[name] = table[name].replace([math.inf, "inf"], math.nan)
        numbers = pd.to_numeric(table[name], errors="coerce").astype(np.float64)
        _refuse(table, name, (numbers.isna() & table[name].notna()) | np.isinf(numbers), "a number or empty")
        table[name] = numbers
    _refuse(table, "strength", table["strength"].isna(), "a number")
    twice = table.duplicated(["model", "w_name"])
    if twice.any():
        model, w_name = table.loc[twice, ["model", "w_name"]].iloc[0]
        raise UndertowError(f"the table of trained models has two rows of {model} and {w_name}; keep one of them")
    return table


def _refuse(table: pd.DataFrame, name: str, wrong: pd.Series[bool], wanted: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong.to_numpy()))
        raise UndertowError(
            f"column {name!r} of the table of trained models holds {table[name].iloc[row]!r} in row {row + 1} of "
            f"{len(table)}; it must be {wanted}"
        )
