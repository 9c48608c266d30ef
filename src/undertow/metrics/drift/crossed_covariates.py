"""Two W in one text: the effect of each over all values of the other, and their interaction.

Each sentence has every combination of a value of the first list (i) and of the second (j). Within sentence s, the interaction
residual is

    r_sij = y_sij - y_si. - y_s.j + y_s..

whose means over sentences are the interaction effects of a two-way layout (Scheffe 1959, "The Analysis of Variance", chapter 4).
Without an interaction, the signs of the r_s are exchangeable: p flips the signs of whole sentences, as for the effect of one W
(`undertow.stats.regression.trend.covariate_effect`), which allows any dependence between the texts of a sentence. The interaction
slope is the linear-by-linear part, c_s = sum_ij x_i z_j y_sij / (sum_i x_i^2 sum_j z_j^2), with x and z centred: one number per
sentence, tested by Student's t over sentences (Ibragimov and Mueller 2010, "t-Statistic Based Correlation and Heterogeneity Robust
Inference"). Both generalise to other sentences, at these values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from undertow.metrics.drift.cells import OTHER_INDEX
from undertow.metrics.drift.covariate_association import (
    BOUNDS,
    HIDDEN,
    UNORDERED,
    are_deciding,
    facets,
    float_column,
    slope_unit,
)
from undertow.metrics.metric import OVER_PROMPTS, Group, make_result
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Floats, t_p_value, t_quantile
from undertow.stats.regression.trend import covariate_effect, effect_sd
from undertow.stats.significance.false_discovery import q_values
from undertow.types import Result

PARTS = "parts"


def with_margins(
    observations: pd.DataFrame, covariates: Mapping[str, Mapping[str, Any]]
) -> tuple[pd.DataFrame, dict[str, Mapping[str, Any]]]:
    """The table with the rows of each crossed list repeated for either list, and the design entries of these lists."""
    tables, facts = [observations], dict(covariates)
    for name, covariate in covariates.items():
        if PARTS not in covariate:
            continue
        rows = observations[observations["w_name"] == name]
        places = _places(rows, covariate)
        for at, (part, other) in enumerate((covariate[PARTS], covariate[PARTS][::-1])):
            called = f"{part['name']} over {other['name']}"
            index, axis = places[at], np.asarray(part["axis"], dtype=np.float64)
            values = np.asarray(part["values"], dtype=object)
            margin = rows.assign(w_name=called, w_index=index, w_value=axis[index], w=values[index])
            tables.append(margin.assign(**{OTHER_INDEX: places[1 - at]}))
            facts[called] = {key: part[key] for key in ("order", "scale", "unit", "uneven")}
    return (pd.concat(tables, ignore_index=True) if len(tables) > 1 else observations), facts


def _places(rows: pd.DataFrame, covariate: Mapping[str, Any]) -> tuple[Any, Any]:
    """The index of each row's W in the first and in the second list."""
    return np.divmod(rows["w_index"].to_numpy(dtype=np.int64), len(covariate[PARTS][1]["values"]))


def measure_interactions(
    observations: pd.DataFrame,
    groups: Sequence[str],
    gaps: Sequence[tuple[str, str]],
    *,
    covariates: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> list[Result]:
    """`w_interaction` of each group and gap by each pair of crossed lists, and `interaction_slope` if both are ordered.

    With several prompts, only averages over prompts have q, which is Benjamini-Hochberg over one kind of test in the table.
    """
    crossed = observations[observations["w_name"].isin([name for name, one in covariates.items() if PARTS in one])]
    if crossed.empty:
        return []
    prompts = crossed["prompt"].astype(object).where(crossed["prompt"].notna(), "").astype(str)
    results = [
        replace(one, measure=f"{one.measure}{ending}")
        for run, ending, rows in facets(crossed.assign(prompt=prompts))
        for one in _measure(run, rows, (groups, gaps), covariates[run["w_name"]], seed)
    ]
    decides = are_deciding(results)
    families = [one.measure.removesuffix(OVER_PROMPTS) if decides[at] else None for at, one in enumerate(results)]
    q = q_values([one.p for one in results], families)
    return [replace(one, q=float(value)) for one, value in zip(results, q, strict=True)]


def _measure(
    run: dict[str, str],
    rows: pd.DataFrame,
    compared: tuple[Sequence[str], Sequence[tuple[str, str]]],
    covariate: Mapping[str, Any],
    seed: int,
) -> list[Result]:
    groups, gaps = compared
    columns = {group: float_column(rows, group) for group in groups}
    series = columns | {f"{first}-{second}": columns[first] - columns[second] for first, second in gaps}
    hidden = any(f"{group}{end}" in rows and rows[f"{group}{end}"].notna().any() for group in groups for end in BOUNDS)
    lists, results = covariate[PARTS], []
    ordered = all(one["scale"] != UNORDERED for one in lists)
    unit = f"percent per {slope_unit(lists[0])} of {lists[0]['name']} and {slope_unit(lists[1])} of {lists[1]['name']}"
    for pronoun, values in series.items():
        cells, kept = _whole_sentences(rows, values, lists, _places(rows, covariate))
        counts = int(np.isfinite(values).sum()), int(np.isnan(values).sum())
        about = {**run, "pronoun": pronoun}
        results.append(_interaction(about, cells, counts, seed))
        if ordered:
            axes = [np.asarray(one["axis"], dtype=np.float64)[at] for one, at in zip(lists, kept, strict=True)]
            results.append(_interaction_slope(about, cells, counts, axes, unit))
    if not hidden:
        return results
    # The model returns its most probable tokens only.
    return [replace(one, low=math.nan, high=math.nan, p=math.nan, note=one.note or HIDDEN) for one in results]


def _whole_sentences(
    rows: pd.DataFrame, values: Floats, lists: Sequence[Mapping[str, Any]], places: tuple[Any, Any]
) -> tuple[Floats, list[Any]]:
    """Mean of each sentence at each combination [sentence, first, second]; and the kept values.

    Only sentences all of whose texts are scored by all prompts at every combination: means of other texts or prompts differ in level.
    """
    kept, at = zip(*(np.unique(place, return_inverse=True) for place in places), strict=True)
    sentences, of = np.unique(rows["cluster"].astype(str).to_numpy(), return_inverse=True)
    shape = len(sentences), len(kept[0]), len(kept[1])
    cell = np.ravel_multi_index((of, at[0], at[1]), shape)
    seen = np.isfinite(values)
    sums, counts = (
        np.bincount(cell[seen], weights=weights, minlength=math.prod(shape)).reshape(shape)
        for weights in (values[seen], np.ones(int(seen.sum())))
    )
    n_texts = np.bincount(cell, minlength=math.prod(shape)).reshape(shape)
    whole = ((counts > 0) & (counts == n_texts)).all(axis=(1, 2))
    return sums[whole] / counts[whole], list(kept)


def _interaction(about: Group, cells: Floats, counts: tuple[int, int], seed: int) -> Result:
    n, n_first, n_second = cells.shape
    free = (n_first - 1) * (n_second - 1)
    note = _why_not(n, free)
    extras = {"n_w": float(n_first * n_second), "n_clusters": float(n)}
    base = make_result("w_interaction", about, extras=extras, note=note, n=counts[0], n_missing=counts[1])
    if n < 2 or free < 1:
        return base
    beyond = cells - cells.mean(axis=2, keepdims=True) - cells.mean(axis=1, keepdims=True)
    beyond += cells.mean(axis=(1, 2), keepdims=True)
    beyond = np.where(np.abs(beyond) > 1e-9 * max(float(np.abs(cells).max()), 1e-300), beyond, 0.0)  # rounding
    parts = beyond.reshape(n, -1)
    ones = np.ones_like(parts)
    # The effects have fewer degrees of freedom than the combinations minus one.
    scale = math.sqrt((parts.shape[1] - 1) / free)
    if note or only_points():
        return replace(base, value=scale * effect_sd(parts, ones))
    effect = covariate_effect(parts, ones, seed=seed)
    return replace(base, value=scale * effect.value, low=scale * effect.low, high=scale * effect.high, p=effect.p)


def _interaction_slope(
    about: Group, cells: Floats, counts: tuple[int, int], axes: Sequence[Floats], unit: str
) -> Result:
    n, n_first, n_second = cells.shape
    note = _why_not(n, (n_first - 1) * (n_second - 1))
    base = make_result("interaction_slope", about, unit=unit, note=note, n=counts[0], n_missing=counts[1])
    if n < 1 or min(n_first, n_second) < 2:
        return base
    x, z = (axis - axis.mean() for axis in axes)
    slopes = np.einsum("sij,i,j->s", cells, x, z) / ((x @ x) * (z @ z))
    moved = np.abs(slopes) * float(np.ptp(x) * np.ptp(z))  # in percent, as the cells are
    slopes = np.where(moved > 1e-9 * float(np.abs(cells).max()), slopes, 0.0)  # rounding
    value = float(slopes.mean())
    if note or only_points() or n < 2:
        return replace(base, value=value)
    error = float(slopes.std(ddof=1)) / math.sqrt(n)
    half = float(t_quantile(n - 1)) * error
    p = float(t_p_value(abs(value) / error, n - 1)) if error > 0 else math.nan
    return replace(base, value=value, low=value - half, high=value + half, p=p)


def _why_not(n: int, free: int) -> str:
    """Reason why there is no test; "" if there is one."""
    if only_points():
        return ""
    if free < 1:
        return "An interaction needs at least two values of either list."
    if n < MIN_CLUSTERS:
        has = "1 sentence has" if n == 1 else f"{n} sentences have"
        return f"{has} every combination; an interval and a test need at least {MIN_CLUSTERS}."
    return ""
