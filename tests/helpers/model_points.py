"""Points of models for comparison figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from undertow.report.figures.covariate_curve import FittedLine
from undertow.report.figures.model_grid import model_grid
from undertow.report.figures.model_sizes import ModelPoint, slope_against_size
from undertow.types import Floats

NAN = math.nan


GAP = "female minus male"


def point(name: str, parameters: float = 1e9, gap: float = 0.3, **other: Any) -> ModelPoint:
    plain_one = ModelPoint(name, parameters, "autoregressive", "", gap, gap - 0.2, gap + 0.15, 0.5, 3)
    return replace(plain_one, **other)


def compared(points: Sequence[ModelPoint], title: str = "toy · date") -> Figure:
    return slope_against_size(points, title=title, gap=GAP)


def equal(
    count: int, sizes: Sequence[float], name: str = "/home/me/models/checkpoints/run-{n}/step-{n}"
) -> list[ModelPoint]:
    return [point(name.replace("{n}", f"{n:03}"), sizes[n % len(sizes)], -0.4 + 0.001 * n) for n in range(count)]


GROUPS = ["female", "male", "neutral"]


def asked(n_w: int = 5, groups: Sequence[str] = GROUPS, base: float = 10.0) -> pd.DataFrame:
    """Two items for each W; the mean of group k at place i is base + 10 k + i."""
    index = np.repeat(np.arange(n_w), 2)
    table = pd.DataFrame({"w": [f"in {1900 + place}" for place in index], "w_index": index, "w_name": "date"})
    for place, group in enumerate(groups):
        table[group] = base + 10 * place + index + np.tile([-1.5, 1.5], n_w)
    return table


def fit(group: str, mean: Floats, slope: float = 0.5, r: float = 0.9) -> FittedLine:
    return FittedLine(group, slope, r, np.arange(len(mean), dtype=float), mean, mean - 1, mean + 1)


def gridded(panels: Mapping[tuple[str, str], pd.DataFrame], groups: Sequence[str] = GROUPS, **lines: Any) -> Figure:
    return model_grid(panels, groups, lines.get("lines", {}), title="toy · date")
