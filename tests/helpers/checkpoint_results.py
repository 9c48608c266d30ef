"""Results of checkpoints for figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

NAN = math.nan


def checkpoints(
    steps: Sequence[int] = (1000, 2000, 3000, 4000),
    measures: Sequence[str] = ("Slope gap", "Mean mass"),
    groups: Sequence[str] = ("female", "male"),
) -> pd.DataFrame:
    """Value m + g + i for measure m, group g, step i, in steps of 100, 10 and 1; only the first measure has a null value."""
    rows = [
        (step, measure, group, 100.0 * m + 10 * g + i, "percent" if m else "percent per step", NAN if m else -3.0)
        for m, measure in enumerate(measures)
        for g, group in enumerate(groups)
        for i, step in enumerate(steps)
    ]
    table = pd.DataFrame(rows, columns=["step", "measure", "group", "value", "unit", "null_value"])
    return table.assign(low=table["value"] - 1, high=table["value"] + 2)
