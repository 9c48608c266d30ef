"""How far the masses of each sentence move along W: the sentences that drive a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.errors import UndertowError

if TYPE_CHECKING:
    import pandas as pd


def sentence_slopes(frame: pd.DataFrame, design: Mapping[str, Any], by: Sequence[str] = ("cluster",)) -> pd.DataFrame:
    """Slope and masses of each sentence, a row per model, prompt and W list, the largest movement first.

    The mass is that of the first word group less the second of the first gap, else of the first group. `effect` is how far the line
    through it moves over the whole list, in percentage points. `text` is the cluster's name where a recorded table has no texts.
    `first` and `last` are the values of W at its ends; columns such as `she first` have the answers of the model there, in percent,
    and `reply first` what it said, where it answered in text.

    Args:
        frame: a row per item, with `w`, `w_index` and a column of mass for each group.
        design: `groups` and, where there are any, `gaps`.
        by: columns that make up a sentence.
    """
    import pandas as pd

    groups = [str(group) for group in design["groups"]]
    gap = next(iter(design.get("gaps", [])), groups[:2])
    scale = "w_value" if "w_value" in frame else "w_index"
    keys = [key for key in ("model", "prompt", "w_name", *by) if key in frame]
    rows = []
    if lacking := [group for group in groups if group not in frame]:
        raise UndertowError(f"the observation table has no column {lacking[0]!r}; add it")
    answered = frame[frame[groups].notna().any(axis=1) & frame[scale].notna()]
    for levels, rows_of in answered.groupby(keys, sort=False, dropna=False):
        # A group whose words a tokenizer does not know has no mass anywhere.
        read = [group for group in groups if rows_of[group].notna().any()]
        own = rows_of.dropna(subset=read)
        means = own.groupby(scale, sort=True)[groups].mean()
        if len(means) < 2:
            continue
        first, *second = gap if set(gap) <= set(read) else read[:1]
        at, mass = means.index.to_numpy(np.float64), means[first].to_numpy(np.float64)
        if second:
            mass = mass - means[second[0]].to_numpy(np.float64)
        slope = float(np.polyfit(at, mass, 1)[0])
        ends = [own[own[scale] == end].iloc[0] for end in (at[0], at[-1])]
        rows.append(
            {
                **dict(zip(keys, levels, strict=True)),
                "text": str(ends[0].get("text") or ends[0].get("cluster", "")),
                "effect": slope * (at[-1] - at[0]),
                "slope": slope,
                **{name: str(end["w"]) for name, end in zip(("first", "last"), ends, strict=True)},
                **{
                    f"{group} {name}": means[group].iloc[n]
                    for group in groups
                    for name, n in (("first", 0), ("last", -1))
                },
                **({"other_words": own["other_words"].mean()} if "other_words" in own else {}),
                **{
                    f"reply {name}": str(end["reply"])
                    for name, end in zip(("first", "last"), ends, strict=True)
                    if "reply" in own
                },
            }
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    if "prompt" in table and not (table["prompt"].astype(str) != "").any():
        table = table.drop(columns="prompt")
    return table.sort_values("effect", key=lambda effect: -effect.abs(), kind="stable", ignore_index=True)
