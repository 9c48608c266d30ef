"""The figure of one word group on the page: its probability at every value, the fitted curve and its band.

Narrow enough to read on a phone; figures of one reply share their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from undertow.report.figures.covariate_curve import style_of
from undertow.report.formatting import plain, shortened
from undertow.report.style import lettering
from undertow.types import Floats

WIDTH_INCHES, HEIGHT_INCHES = 4.4, 3.3
MAX_LABELS, MAX_LABEL_CHARS = 7, 16
_TITLE_SIZE, _TEXT_SIZE = 12, 10
_NEAREST, _NEAR = 0.5, 0.6
"""Parts of an even label's room: a label with less to its neighbour is left out, and with less than the second all are aslant."""
_BAND_ROOM = 1.3
"""How far above the dots a band may stretch the scale."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One group along the values.

    Attributes:
        title: what the figure is called.
        percent: mass at each value [w]; NaN where missing.
        axis: where each value stands on the axis [w], rising.
        x: where the curve is drawn, on the same axis [x].
        mean, low, high: the curve and its band [x]; NaN where there is none.
        alt: what the figure shows, in words.
    """

    title: str
    percent: Floats
    axis: Floats
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    alt: str


def top_percent(curves: Sequence[Curve]) -> float:
    """Where the scale that these curves share ends: above every dot and curve, and above the bands unless they dwarf the dots."""
    dots = _largest([part for curve in curves for part in (curve.percent, curve.mean)])
    bands = _largest([curve.high for curve in curves])
    return 1.08 * max(dots, min(bands, _BAND_ROOM * dots)) or 1.0


def _largest(parts: Sequence[Floats]) -> float:
    finite = np.concatenate([part[np.isfinite(part)] for part in parts])
    return float(finite.max()) if finite.size else 0.0


def draw_curve(curve: Curve, labels: Sequence[str], place: int, top: float) -> Figure:
    """The figure.

    Args:
        curve: what is drawn.
        labels: the values [w].
        place: of the group among its like, for its colour and marker.
        top: where the scale ends, in percent.
    """
    texts = [shortened(plain(label), MAX_LABEL_CHARS) for label in labels]
    with lettering("".join([curve.title, *texts])):
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        look = style_of(place)
        if np.isfinite(curve.low).all():
            axes.fill_between(curve.x, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0)
        axes.plot(curve.x, curve.mean, color=look["color"], linewidth=2)
        axes.plot(curve.axis, curve.percent, linestyle="none", clip_on=False, zorder=4, **look)
        axes.set_title(plain(curve.title), size=_TITLE_SIZE, weight="bold", loc="left")
        axes.set_ylabel("percent", size=_TEXT_SIZE)
        axes.set_ylim(0, top)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.grid(visible=True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=_TEXT_SIZE)
        places = labelled(curve.axis)
        near = float(np.diff(curve.axis[places]).min(initial=np.inf)) < _NEAR * _room(curve.axis)
        is_long = near or max(len(texts[at]) for at in places) > 5
        axes.set_xticks(
            curve.axis[places],
            [texts[at] for at in places],
            rotation=35 if is_long else 0,
            ha="right" if is_long else "center",
            rotation_mode="anchor" if is_long else "default",
        )
    return figure


def labelled(axis: Floats) -> list[int]:
    """Which values are named below the axis [label]: evenly spread, the first and the last among them, none too near to another.

    Args:
        axis: where each value stands [w], rising.
    """
    last = len(axis) - 1
    nearest = _NEAREST * _room(axis)
    kept = [0]
    for place in sorted({int(place) for place in np.linspace(0, last, min(last + 1, MAX_LABELS)).round()}):
        if axis[place] - axis[kept[-1]] >= nearest and (place == last or axis[last] - axis[place] >= nearest):
            kept.append(place)
    return kept


def _room(axis: Floats) -> float:
    """Of each label, where they are evenly spread."""
    return float(axis[-1] - axis[0]) / MAX_LABELS
