"""Slopes of single sentences along W."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.audits.shared.model_comparison import is_ordered

if TYPE_CHECKING:
    import pandas as pd


def sentence_slopes(frame: pd.DataFrame, design: Mapping[str, Any], by: Sequence[str] = ("cluster",)) -> pd.DataFrame:
    """Slope and masses of each sentence, a row per model, prompt and ordered W list, the largest effect first.

    The mass is the difference of the groups of the first gap, or that of the first group without gaps. `effect` is the change of its
    fitted line over the whole list, in percentage points. `text` is the cluster's name if a recorded table has no texts. `first` and
    `last` are the end values of W; columns such as `she first` have the answers there in percent, and `reply first` the free reply.

    Args:
        frame: a row per item, with `w`, `w_index` and a column of mass for each group.
        design: `groups`, and optionally `gaps` and `covariates` (`scale` of each W list).
        by: columns that identify a sentence.
    """
    import pandas as pd

    groups = [str(group) for group in design["groups"]]
    gap = next(iter(design.get("gaps", [])), groups[:2])
    scale = "w_value" if "w_value" in frame else "w_index"
    keys = [key for key in ("model", "prompt", "w_name", *by) if key in frame]
    unordered = [name for name in design.get("covariates", {}) if not is_ordered(design, name)]
    has_line = frame[scale].notna() & (~frame["w_name"].isin(unordered) if "w_name" in frame else True)
    answered = frame[frame[groups].notna().any(axis=1) & has_line].reset_index(drop=True)
    all_masses, all_at = answered[groups].to_numpy(np.float64), answered[scale].to_numpy(np.float64)
    columns = {name: answered[name].to_numpy() for name in answered}
    sentence_of = answered.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    order = np.argsort(sentence_of, kind="stable")
    rows = []
    for own in np.split(order, np.flatnonzero(np.diff(sentence_of[order])) + 1) if len(order) else []:
        # A group whose words a tokenizer does not know has no mass anywhere.
        is_read = ~np.isnan(all_masses[own]).all(axis=0)
        own = own[~np.isnan(all_masses[np.ix_(own, is_read)]).any(axis=1)]  # noqa: PLW2901 - the rows with all of these
        at, level = np.unique(all_at[own], return_inverse=True)
        if len(at) < 2:
            continue
        sums = np.stack([np.bincount(level, column) for column in all_masses[own].T], axis=1)
        means = dict(zip(groups, (sums / np.bincount(level)[:, None]).T, strict=True))
        read = [group for group, one in zip(groups, is_read, strict=True) if one]
        first, *second = gap if set(gap) <= set(read) else read[:1]
        mass = means[first] - means[second[0]] if second else means[first]
        centred = at - at.mean()
        slope = float(centred @ mass / (centred @ centred))
        ends = {"first": own[np.argmax(level == 0)], "last": own[np.argmax(level == len(at) - 1)]}
        row = {name: columns[name][own[0]] for name in keys}
        texts = [str(columns[name][ends["first"]]) for name in ("text", "cluster") if name in columns]
        row |= {"text": next(filter(None, texts), ""), "effect": slope * (at[-1] - at[0]), "slope": slope}
        row |= {name: str(columns["w"][end]) for name, end in ends.items()}
        row |= {f"{group} {name}": means[group][n] for group in groups for name, n in (("first", 0), ("last", -1))}
        if "other_words" in columns:
            row["other_words"] = pd.Series(columns["other_words"][own]).mean()
        if "reply" in columns:
            row |= {f"reply {name}": str(columns["reply"][end]) for name, end in ends.items()}
        rows.append(row)
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    if "prompt" in table and not (table["prompt"].astype(str) != "").any():
        table = table.drop(columns="prompt")
    return table.sort_values("effect", key=lambda effect: -effect.abs(), kind="stable", ignore_index=True)
