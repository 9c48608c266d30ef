"""The figures of a reply: the probability of each word group at every value, the fitted curve and its band.

Figures fit a phone. Each shows one word group of all models. Figures of one reply have y axes of the same length, so slopes are
comparable; an axis that does not start at zero says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from undertow.data import Covariate
from undertow.report.figures.covariate_curve import name_values
from undertow.report.formatting import correlation, plain, shortened, signed, significant_decimals
from undertow.report.page_data import Drawing
from undertow.report.sheet import Sheet, even_ticks, mark
from undertow.report.style import GRID, figure_width, lettering, style_of
from undertow.stats.regression.least_squares import Polynomial
from undertow.types import Floats

WIDTH_IN, HEIGHT_IN, MAX_LABEL_CHARS = 4.4, 2.6, 16
MIN_SPAN = 1.0
"""Shortest axis, in percentage points, so that tiny effects look tiny."""
NO_MOVE = 0.001
FROM_ZERO = 0.7
"""An axis whose range is this share of the largest value starts at zero."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The answers of one word group along the values, and the curve fitted to them.

    Attributes:
        percent: mass at each value [w]; NaN where it is missing.
        axis: position of each value [w], increasing.
        x: positions of the drawn curve, from the first to the last answered value [x].
        fit: the fitted curve.
        line: the fitted straight line.
        q: corrected p-value of the linear trend; NaN if not tested.
    """

    name: str
    words: tuple[str, ...]
    percent: Floats
    axis: Floats
    x: Floats
    fit: Polynomial
    line: Polynomial
    q: float

    @property
    def title(self) -> str:
        """Of the figure."""
        return f"{self.name.capitalize()}: {', '.join(self.words)}"

    @property
    def mean(self) -> Floats:
        """The curve [x]."""
        return self.fit.at(self.x)

    @property
    def ends(self) -> tuple[float, float]:
        """The curve at the first and the last value, clipped to 0 to 100."""
        curve = np.clip(self.mean, 0, 100)
        return float(curve[0]), float(curve[-1])

    @property
    def bounds(self) -> tuple[float, float]:
        """Minimum and maximum of the curve, clipped to 0 to 100."""
        curve = np.clip(self.mean, 0, 100)
        return float(curve.min()), float(curve.max())

    @property
    def spread(self) -> float:
        """Difference between the largest and the smallest mass."""
        return float(np.nanmax(self.percent) - np.nanmin(self.percent))

    @property
    def slope(self) -> tuple[float, float]:
        """Slope of the straight line, per unit of the axis, and Pearson r."""
        first, last = self.line.at(self.x[[0, -1]])
        slope = float((last - first) / (self.x[-1] - self.x[0]))
        return slope, float(np.copysign(np.sqrt(self.line.r_squared), slope))

    @property
    def alt(self) -> str:
        """Alt text, without text of the visitor."""
        (first, last), (least, most) = self.ends, self.bounds
        return (
            f"{self.name.capitalize()} words at {len(self.axis)} values: the fitted curve goes from {first:.1f} to {last:.1f} percent, "
            f"and lies between {least:.1f} and {most:.1f}."
        )


def drawings(curves: Mapping[str, Sequence[Curve]], covariate: Covariate) -> list[Drawing]:
    """A figure of each word group, with a curve of each model."""
    of_groups = [dict(zip(curves, of_group, strict=True)) for of_group in zip(*curves.values(), strict=True)]
    extents = [_extent(of_group.values()) for of_group in of_groups]
    span = max(1.1 * max(high - low for low, high in extents), MIN_SPAN)
    figures = []
    for place, (of_group, extent) in enumerate(zip(of_groups, extents, strict=True)):
        first = next(iter(of_group.values()))
        alt = first.alt if len(of_group) == 1 else " ".join(f"{model}: {one.alt}" for model, one in of_group.items())
        figure = _figure(of_group, covariate, place, _limits(extent, span))
        figures.append(Drawing(first.title, figure, first.title, alt))
    return figures


def _extent(curves: Iterable[Curve]) -> tuple[float, float]:
    """Minimum and maximum of dots and curves."""
    numbers = np.concatenate([part for one in curves for part in (one.percent, np.clip(one.mean, 0, 100))])
    return float(np.nanmin(numbers)), float(np.nanmax(numbers))


def _limits(extent: tuple[float, float], span: float) -> tuple[float, float]:
    """Axis limits of this length around an extent, within 0 and 100, from zero if that is near."""
    low, high = extent
    span = min(max(span, 1.05 * high if high - low > FROM_ZERO * high else span), 105.0)
    start = max((low + high - span) / 2, 0.0)
    start = min(start, max(100 - 0.95 * span, 0.0))
    return (0.0, max(span, 1.05 * high)) if high <= span else (start, start + span)


def _figure(curves: Mapping[str, Curve], covariate: Covariate, place: int, limits: tuple[float, float]) -> Sheet:
    curve = next(iter(curves.values()))
    per = covariate.unit or "unit" if covariate.scale == "value" else "step"
    labels = [shortened(plain(label), MAX_LABEL_CHARS) for label in covariate.values]
    with figure_width(WIDTH_IN), lettering("".join([curve.title, *curves, *labels, covariate.order])):
        sheet = Sheet(shortened(curve.title, 42))
        looks = [style_of(place if len(curves) == 1 else at) for at in range(len(curves))]
        key = []
        for look, (model, one) in zip(looks, curves.items(), strict=True):
            slope, r = one.slope
            moves = f"moves by less than {NO_MOVE} points"
            if one.spread >= NO_MOVE and np.isfinite([slope, r]).all():
                moves = f"slope {signed(slope, significant_decimals(slope, 2))} points per {per}, r = {correlation(r)}"
            key.append((plain(f"{shortened(model, 24)}: {moves}" if len(curves) > 1 else moves), mark(**look)))
        sheet.add_key(key, columns=1)
        axes = sheet.add_subplot()
        for look, one in zip(looks, curves.values(), strict=True):
            axes.fill_between(one.x, *one.fit.band(one.x), color=look["color"], alpha=0.18, linewidth=0)
            axes.plot(one.x, one.mean, color=look["color"], linewidth=2)
            axes.plot(one.axis, one.percent, linestyle="none", clip_on=False, zorder=4, **look)
        axes.set(ylim=limits, ylabel="percent" if limits[0] == 0 else "percent (axis does not start at 0)")
        axes.yaxis.set_major_locator(even_ticks(5))
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        name_values(axes, curve.axis, labels, sheet.inner_in - 0.5)
        if not covariate.numbers:
            axes.set_xlabel(plain(shortened(covariate.order, 60)))
        return sheet.finish([axes], HEIGHT_IN)
