"""The figures of a reply: the probability of each word group at every value, the fitted curve and its band.

Narrow enough to read on a phone; figures of one reply share their scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from undertow.report.formatting import plain, shortened
from undertow.report.style import Drawing, lettering, style_of
from undertow.stats.regression.polynomial import Polynomial
from undertow.types import Floats

MAX_LABELS, MAX_LABEL_CHARS = 7, 16
_BAND_ROOM = 1.3
"""How far above the dots a band can stretch the scale."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The answers of one word group along the values, and the curve fitted to them.

    Attributes:
        percent: mass at each value [w]; NaN where it is missing.
        axis: where each value stands on the axis [w], rising.
        x: where the curve is drawn, from the first to the last answered value [x].
        q: corrected p-value of a trend, whatever curve is drawn; NaN where it was not tested.
    """

    name: str
    words: tuple[str, ...]
    percent: Floats
    axis: Floats
    x: Floats
    fit: Polynomial
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
        """The curve at the first and the last value, between 0 and 100: a line knows no bounds, and a reader does."""
        curve = np.clip(self.mean, 0, 100)
        return float(curve[0]), float(curve[-1])

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most of the curve, between 0 and 100."""
        curve = np.clip(self.mean, 0, 100)
        return float(curve.min()), float(curve.max())

    @property
    def spread(self) -> float:
        """Difference between the least and the largest mass."""
        return float(np.nanmax(self.percent) - np.nanmin(self.percent))

    @property
    def alt(self) -> str:
        """What the figure shows, in words; quotes nothing that the visitor typed."""
        (first, last), (least, most) = self.ends, self.bounds
        return (
            f"{self.name.capitalize()} words at {len(self.axis)} values: the fitted curve goes from {first:.1f} to {last:.1f} percent, "
            f"and lies between {least:.1f} and {most:.1f}."
        )


def drawings(curves: Sequence[Curve], labels: Sequence[str]) -> list[Drawing]:
    """A figure of each curve.

    Args:
        curves: of one reply.
        labels: the values [w].
    """
    dots, bands = (
        float(np.nanmax(np.concatenate(parts), initial=0.0))
        for parts in (
            [part for one in curves for part in (one.percent, one.mean)],
            [one.fit.band(one.x)[1] for one in curves],
        )
    )
    top = 1.08 * max(dots, min(bands, _BAND_ROOM * dots)) or 1.0
    texts = [shortened(plain(label), MAX_LABEL_CHARS) for label in labels]
    return [Drawing(one.title, _figure(one, texts, place, top), one.title, one.alt) for place, one in enumerate(curves)]


def _figure(curve: Curve, texts: Sequence[str], place: int, top: float) -> Figure:
    with lettering("".join([curve.title, *texts])):
        figure = Figure(figsize=(4.4, 3.3), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        look = style_of(place)
        axes.fill_between(curve.x, *curve.fit.band(curve.x), color=look["color"], alpha=0.18, linewidth=0)
        axes.plot(curve.x, curve.mean, color=look["color"], linewidth=2)
        axes.plot(curve.axis, curve.percent, linestyle="none", clip_on=False, zorder=4, **look)
        axes.set_title(plain(curve.title), size=12, weight="bold", loc="left")
        axes.set_ylabel("percent", size=10)
        axes.set_ylim(0, top)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.grid(visible=True, color="#e4e4e4", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=10)
        places = labelled(curve.axis)
        slanted = max(len(texts[at]) for at in places) > 5 or bool(
            np.diff(curve.axis[places]).min(initial=np.inf) < 0.6 * np.ptp(curve.axis) / MAX_LABELS
        )
        axes.set_xticks(curve.axis[places], [texts[at] for at in places])
        if slanted:
            axes.tick_params("x", labelrotation=35)
            for label in axes.get_xticklabels():
                label.set(ha="right", rotation_mode="anchor")
    return figure


def labelled(axis: Floats) -> list[int]:
    """Which values have a label [label]: evenly spread, with the first and the last, and none too near another.

    Args:
        axis: where each value stands [w], rising.
    """
    last = len(axis) - 1
    nearest = 0.5 * np.ptp(axis) / MAX_LABELS
    kept = [0]
    for place in np.unique(np.linspace(0, last, min(last + 1, MAX_LABELS)).round().astype(int)):
        if axis[place] - axis[kept[-1]] >= nearest and (place == last or axis[last] - axis[place] >= nearest):
            kept.append(int(place))
    return kept
