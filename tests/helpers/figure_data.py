"""Points of models, covariate curves, checkpoints and clouds for figures."""

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
from undertow.report.figures.scatter import Cloud, Panel
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
YEARS = [f"in {year}" for year in range(1900, 1905)]


def asked(values: Sequence[str] = YEARS, groups: Sequence[str] = GROUPS, base: float = 10.0) -> pd.DataFrame:
    """Two items for each value of W; the mean of group k at place i is base + 10 k + i."""
    index = np.repeat(np.arange(len(values)), 2)
    table = pd.DataFrame({"w": np.repeat(np.array(values, dtype=object), 2), "w_index": index, "w_name": "date"})
    for place, group in enumerate(groups):
        table[group] = base + 10 * place + index + np.tile([-1.5, 1.5], len(values))
    return table


def fit(group: str, mean: Floats, slope: float = 0.5, r: float = 0.9) -> FittedLine:
    return FittedLine(group, slope, r, np.arange(len(mean), dtype=float), mean, mean - 1, mean + 1)


def gridded(panels: Mapping[tuple[str, str], pd.DataFrame], groups: Sequence[str] = GROUPS, **lines: Any) -> Figure:
    return model_grid(panels, groups, lines.get("lines", {}), title="toy · date")


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


def cloud(n: int, r: float, scale: float = 1.0, seed: int = 0, shown: int = 1500) -> Cloud:
    x, y = scale * np.random.default_rng(seed).standard_normal((2, shown))
    return Cloud(x, y, r, r - 0.01, r + 0.011, n)


def panels(scale: float = 1.0, names: tuple[str, str] = ("W", "G")) -> list[Panel]:
    everyone, selected = cloud(1_000_000, 0.001, scale), cloud(37_351, -0.659, scale, seed=1)
    return [Panel(*names, everyone, one) for one in (None, selected)]
