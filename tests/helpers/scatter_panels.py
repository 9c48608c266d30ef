"""Panels of scatter figures."""

from __future__ import annotations

import numpy as np

from undertow.report.figures.scatter import Cloud, Panel


def cloud(n: int, r: float, scale: float = 1.0, seed: int = 0, shown: int = 1500) -> Cloud:
    x, y = scale * np.random.default_rng(seed).standard_normal((2, shown))
    return Cloud(x, y, r, r - 0.01, r + 0.011, n)


def panels(scale: float = 1.0, names: tuple[str, str] = ("W", "G"), columns: int = 4) -> list[Panel]:
    everyone, selected = cloud(1_000_000, 0.001, scale), cloud(37_351, -0.659, scale, seed=1)
    return [Panel(*names, everyone, selected if place % 2 else None) for place in range(columns)]
