"""Rates of refusals and unclear replies under protocol `text`, and lower bounds of answer probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.errors import counted
from undertow.metrics.metric import Group, make_result
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Floats
from undertow.stats.intervals.multiway_cluster import ratio_interval
from undertow.stats.significance.sign_flip import permutation_p_value
from undertow.types import ALPHA, Result

if TYPE_CHECKING:
    import pandas as pd

N_SHUFFLES, SHUFFLES_AT_ONCE = 999, 111
"""Shuffles of a permutation test, in all and at once."""
LEVELS_WITHIN = 1.5
"""Mean number of levels of a cluster above which cells are exchanged within clusters; below it, most clusters have nothing to exchange."""
OUTCOMES = {"refusal_rate": ("refusal",), "unclear_rate": ("unclear", "both", "neither")}
"""Outcomes of replies without an answer, by metric."""


def reply_results(frame: pd.DataFrame, factors: Sequence[str]) -> Iterator[Result]:
    """Rates of each model over all its replies, and by level of each factor (a column) with several levels.

    Observations have `reply_outcome`, `first_token_low` and `first_token_high`, empty without a reply; such rows are missing.
    """
    rows = frame.assign(reply_outcome=frame["reply_outcome"].fillna(""))
    for model, of_model in rows.groupby("model", sort=False):
        if not of_model["reply_outcome"].any():
            continue
        yield from _of_part(of_model, {"model": str(model)})
        for factor in factors:
            column = of_model[factor].fillna("").astype(str) if factor in of_model else of_model["model"]
            levels = [level for level in dict.fromkeys(column) if level]
            for level in levels if len(levels) > 1 else ():
                yield from _of_part(of_model[column == level], {"model": str(model), factor: level})


def missing_by_level(
    frame: pd.DataFrame, factors: Sequence[str], seed: int = 0
) -> Iterator[tuple[str, str, float, dict[str, float]]]:
    """Model, factor (a column), p and percent missing by level, where missing answers depend on the factor; of `w`, for each list.

    p, of a permutation test, is below .05 divided by the number of the model's factors. Observations have `model`, `cluster` and
    `missing_reason`.
    """
    for model, of_model in frame.groupby("model", sort=False):
        parts = {name: (name, of_model) for name in factors if name in of_model and name != "w"}
        if "w" in factors and "w" in of_model:
            parts |= {str(w_name): ("w", rows) for w_name, rows in of_model.groupby("w_name", sort=False)}
        for factor, (column, rows) in parts.items():
            cells = rows.assign(_level=rows[column].fillna("").astype(str), _lacks=rows["missing_reason"] != "")
            cells = cells[cells["_level"] != ""]
            p = _dependence_p(cells.groupby(["cluster", "_level"])["_lacks"].agg(["sum", "size"]).reset_index(), seed)
            if p < ALPHA / len(parts):
                percents = 100 * cells.groupby("_level", sort=False)["_lacks"].mean()
                yield str(model), factor, p, dict(zip(map(str, percents.index), percents.tolist(), strict=True))


def _dependence_p(cells: pd.DataFrame, seed: int) -> float:
    """P-value of equal shares at all levels; NaN with too few clusters or levels.

    The statistic is the sum over levels of squared excesses of missing answers, divided by the number of answers. Cells, which are a
    cluster at a level, exchange their excesses: within clusters if these have more than 1.5 levels on average, else among all cells.
    """
    clusters, levels = (np.unique(cells[name].astype(str), return_inverse=True)[1] for name in ("cluster", "_level"))
    n_clusters, n_levels = int(clusters.max(initial=-1)) + 1, int(levels.max(initial=-1)) + 1
    n, n_lacking = cells["size"].to_numpy(np.float64), cells["sum"].to_numpy(np.float64)
    if n_clusters < MIN_CLUSTERS or n_levels < 2 or n_lacking.sum() in (0, n.sum()):
        return math.nan
    strata = clusters if len(cells) > LEVELS_WITHIN * n_clusters else np.zeros_like(clusters)
    excess = n_lacking - n * (np.bincount(strata, n_lacking) / np.bincount(strata, n))[strata]
    order = np.argsort(strata, kind="stable")
    of_level = (levels[order, np.newaxis] == np.arange(n_levels)) / np.sqrt(np.bincount(levels, n))
    strata, excess, rng = strata[order], excess[order], np.random.default_rng(seed)
    observed = float(((excess @ of_level) ** 2).sum())
    shuffled = [
        ((excess[np.argsort(strata + rng.random((SHUFFLES_AT_ONCE, len(strata))), axis=1)] @ of_level) ** 2).sum(axis=1)
        for _ in range(N_SHUFFLES // SHUFFLES_AT_ONCE)
    ]
    return permutation_p_value(observed, np.concatenate(shuffled), tolerance=1e-9 * observed)


def _of_part(rows: pd.DataFrame, group: dict[str, str]) -> Iterator[Result]:
    replies = rows[rows["reply_outcome"] != ""]
    for measure, outcomes in OUTCOMES.items():
        hits = np.array(replies["reply_outcome"].isin(outcomes), dtype=np.float64)
        yield replace(_result(measure, group, replies, hits, {}), n_missing=len(rows) - len(replies))
    bounded = replies[replies["first_token_low"].notna()]
    if len(bounded):
        low, high = (bounded[name].to_numpy(dtype=np.float64) / 100 for name in ("first_token_low", "first_token_high"))
        yield _result("answer_probability", group, bounded, low, {"at_most": 100 * float(high.mean())})


def _result(measure: str, group: Group, rows: pd.DataFrame, values: Floats, extras: dict[str, float]) -> Result:
    jobs = rows["soc_code"].astype(str) if "soc_code" in rows else np.zeros(len(rows))
    estimate = ratio_interval(values, np.ones(len(values)), rows["cluster"].astype(str), jobs)
    n_clusters, note = estimate.n_clusters, ""
    if not len(values):
        note = "no reply"
    elif n_clusters < MIN_CLUSTERS and not only_points():
        note = f"no interval: {counted(n_clusters, 'independent cluster')} of replies, and {MIN_CLUSTERS} are needed"
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    return make_result(measure, group, value, low=low, high=high, n=len(values), extras=extras, note=note)
