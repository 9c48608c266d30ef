"""Rates of refusals and unclear replies under protocol `text`, and lower bounds of answer probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undertow.errors import counted
from undertow.metrics.metric import Group, make_result
from undertow.stats import MIN_CLUSTERS, only_points
from undertow.stats.arrays import Floats
from undertow.stats.intervals.multiway_cluster import ratio_interval
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd

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


def _of_part(rows: pd.DataFrame, group: dict[str, str]) -> Iterator[Result]:
    replies = rows[rows["reply_outcome"] != ""]
    for measure, outcomes in OUTCOMES.items():
        counted = np.array(replies["reply_outcome"].isin(outcomes), dtype=np.float64)
        yield replace(_result(measure, group, replies, counted, {}), n_missing=len(rows) - len(replies))
    bounded = replies[replies["first_token_low"].notna()]
    if len(bounded):
        low, high = (bounded[name].to_numpy(dtype=np.float64) / 100 for name in ("first_token_low", "first_token_high"))
        yield _result("answer_probability", group, bounded, low, {"at_most": 100 * float(high.mean())})


def _result(measure: str, group: Group, rows: pd.DataFrame, values: Floats, extras: dict[str, float]) -> Result:
    clusters = np.unique(rows["cluster"].astype(str), return_inverse=True)[1]
    jobs = np.zeros(len(rows), dtype=np.int64)
    if "soc_code" in rows:
        jobs = np.unique(rows["soc_code"].astype(str), return_inverse=True)[1]
    estimate = ratio_interval(values, np.ones(len(values)), clusters, jobs)
    n_clusters, note = estimate.n_clusters, ""
    if n_clusters < MIN_CLUSTERS and not only_points():
        note = f"no interval: {counted(n_clusters, 'independent cluster')} of replies, and {MIN_CLUSTERS} are needed"
    value, low, high = (100 * one for one in (estimate.value, estimate.low, estimate.high))
    return make_result(measure, group, value, low=low, high=high, n=len(values), extras=extras, note=note)
