"""The figures of a reply: the probability of each word group at every value, the fitted curve and its band.

Figures fit a phone. Each shows one word group of all models. Figures of one reply have y axes of the same length, so slopes are
comparable; an axis that does not start at zero says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from undertow.data import Covariate
from undertow.report.formatting import correlation, plain, shortened, signed, significant_decimals
from undertow.report.page_data import Drawing
from undertow.report.style import GRID, lettering, style_of
from undertow.stats.regression.least_squares import Polynomial
from undertow.types import Floats

MAX_LABELS, MAX_LABEL_CHARS = 7, 16
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
    """A figure of each word group.

    Args:
        curves: of each model: a curve for each group.
        covariate: the values.
    """
    texts = [shortened(plain(label), MAX_LABEL_CHARS) for label in covariate.values]
    of_groups = [dict(zip(curves, of_group, strict=True)) for of_group in zip(*curves.values(), strict=True)]
    extents = [_extent(of_group.values()) for of_group in of_groups]
    span = max(1.1 * max(high - low for low, high in extents), MIN_SPAN)
    figures = []
    for place, (of_group, extent) in enumerate(zip(of_groups, extents, strict=True)):
        first = next(iter(of_group.values()))
        alt = first.alt if len(of_group) == 1 else " ".join(f"{model}: {one.alt}" for model, one in of_group.items())
        figure = _figure(of_group, covariate, texts, place, _limits(extent, span))
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


def _figure(
    curves: Mapping[str, Curve], covariate: Covariate, texts: list[str], place: int, limits: tuple[float, float]
) -> Figure:
    curve = next(iter(curves.values()))
    with lettering("".join([curve.title, *curves, *texts, covariate.order])):
        figure = Figure(figsize=(4.4, 3.5 + 0.16 * len(curves)), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for at, (model, one) in enumerate(curves.items()):
            look = style_of(place if len(curves) == 1 else at)
            label = f"{plain(shortened(model, 24))}: " if len(curves) > 1 else ""
            slope, r = one.slope
            if one.spread < NO_MOVE or not np.isfinite([slope, r]).all():
                label += f"moves by less than {NO_MOVE} points"
            else:
                per = covariate.unit or "unit" if covariate.scale == "value" else "step"
                label += plain(
                    f"slope {signed(slope, significant_decimals(slope, 2))} points per {per}, r = {correlation(r)}"
                )
            axes.fill_between(one.x, *one.fit.band(one.x), color=look["color"], alpha=0.18, linewidth=0)
            axes.plot(one.x, one.mean, color=look["color"], linewidth=2)
            axes.plot(one.axis, one.percent, linestyle="none", clip_on=False, zorder=4, label=label, **look)
        title = {"title": plain(shortened(curve.title, 42)), "title_fontproperties": {"size": 12, "weight": "bold"}}
        figure.legend(
            loc="outside upper left", fontsize=9, handletextpad=0.3, borderaxespad=1, alignment="left", **title
        )
        axes.set_ylim(*limits)
        axes.set_ylabel("percent" if limits[0] == 0 else "percent (axis does not start at 0)", size=10)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.grid(visible=True, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=10)
        places = labelled(curve.axis)
        slanted = max(len(texts[at]) for at in places) > 5 or bool(
            np.diff(curve.axis[places]).min(initial=np.inf) < 0.6 * np.ptp(curve.axis) / MAX_LABELS
        )
        axes.set_xticks(curve.axis[places], [texts[at] for at in places])
        if not covariate.numbers:
            axes.set_xlabel(plain(shortened(covariate.order, 60)), size=9)
        if slanted:
            axes.tick_params("x", labelrotation=35)
            for tick in axes.get_xticklabels():
                tick.set(ha="right", rotation_mode="anchor")
    return figure


def labelled(axis: Floats) -> list[int]:
    """Indices of labelled values [label]: evenly spaced, including both ends.

    Args:
        axis: position of each value [w], increasing.
    """
    last = len(axis) - 1
    nearest = 0.5 * np.ptp(axis) / MAX_LABELS
    kept = [0]
    for place in np.unique(np.linspace(0, last, min(last + 1, MAX_LABELS)).round().astype(int)):
        if axis[place] - axis[kept[-1]] >= nearest and (place == last or axis[last] - axis[place] >= nearest):
            kept.append(int(place))
    return kept
