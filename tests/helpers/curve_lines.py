"""Lines of covariate curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from undertow.report.figures.covariate_curve import FittedLine


def observed(values: Sequence[str], groups: Sequence[str], per_value: int = 2) -> pd.DataFrame:
    """Masses that rise by one percent per step for the first group, and fall for the others."""
    index = np.repeat(np.arange(len(values)), per_value)
    table = pd.DataFrame(
        {"w": np.repeat(np.array(values, dtype=object), per_value), "w_index": index, "w_name": "date"}
    )
    for place, group in enumerate(groups):
        table[group] = 10.0 + place + (index if place == 0 else (len(values) - index) / 2)
    return table


def line(group: str, slope: float = -0.561, r: float = -0.784, end: float = 20.0, steps: int = 29) -> FittedLine:
    x = np.linspace(0, steps, 7)
    mean = end - slope * (x[-1] - x)
    return FittedLine(group, slope, r, x, mean, mean - 2, mean + 2)
