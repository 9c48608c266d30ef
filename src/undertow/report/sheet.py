"""A matplotlib figure in constrained layout with title, lead, key and small print, whose height follows its panels."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation, Transform
from scipy.optimize import isotonic_regression

from undertow.report.formatting import NO_NAME, plain, shortened, shortest
from undertow.report.style import (
    GREY,
    PALE,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    current_width,
    has_title,
    image_bytes,
    style_of,
)
from undertow.types import Floats

EDGE_IN = 0.14
NO_PROMPT = "no prompt"
DASHED = (0, (4, 2))
_LINE = 1.32 / 72
"""Height of a line of text, in inches per point of its size."""
_HANDLE_IN = 0.5
"""Width of a key's mark with its margins."""
_MAX_LETTERS = 400
_MAX_LAYOUTS = 6
HALO = (withStroke(linewidth=2, foreground="white", alpha=0.8),)
"""Keeps words legible in front of lines."""
_DOT_IN = 0.07
"""Half the size of a labelled point."""

Handle = Any
"""Handle of a legend entry."""


class Sheet(Figure):
    """A figure with text above and below its panels.

    Title, lead and key are at the top and small print is at the bottom; constrained layout fills the rest. (Its own margins for
    `suptitle` and "outside" legends overlap, so they cannot hold all three.)

    Attributes:
        width_in: width of the sheet.
        inner_in: width without margins.
        hovers: axes, points and labels of tooltips.
    """

    def __init__(self, title: str, lead: str = "", foot: Sequence[str] = (), width_in: float = 0.0) -> None:
        self.width_in = max(width_in, current_width())
        self.inner_in = self.width_in - 2 * EDGE_IN
        self.hovers: list[tuple[Axes, list[tuple[float, float]], list[str]]] = []
        super().__init__(figsize=(self.width_in, 4.0), layout=ConstrainedLayoutEngine(h_pad=0.05, w_pad=0.03))
        self._above_in = EDGE_IN
        heads = ((title if has_title() else "", TITLE_SIZE, "bold"), (lead, TEXT_SIZE, "normal"))
        for text, size, weight in heads:
            lines = wrapped(plain(text), self.inner_in, size, weight)
            self._write(lines, 1, -self._above_in, size=size, weight=weight, va="top")
            self._above_in += line_in(size) * len(lines) * any(lines) + 0.02
        self._below_in = EDGE_IN - 0.06
        self.add_foot(foot)

    def add_foot(self, foot: Sequence[str]) -> None:
        """Write small print above earlier small print; call it before `finish`."""
        lines = [line for text in foot for line in wrapped(plain(text), self.inner_in)]
        if lines:
            self._write(lines, 0, self._below_in + 0.06, size=SMALL_SIZE, color=GREY, va="bottom")
            self._below_in += line_in(SMALL_SIZE) * len(lines) + 0.12

    def _repr_png_(self) -> bytes:
        """PNG for notebooks."""
        return image_bytes(self, "png")

    def _write(self, lines: Sequence[str], y: float, shift_in: float, **look: Any) -> None:
        self.text(0, y, "\n".join(lines), transform=self._pin(shift_in), linespacing=1.25, **look)

    def _pin(self, up_in: float) -> Transform:
        """A place at the left edge, in inches from the top or the bottom, independent of the sheet's height."""
        return self.transFigure + ScaledTranslation(EDGE_IN, up_in, self.dpi_scale_trans)

    def add_key(self, entries: Iterable[tuple[str, Handle]], columns: int = 0, **look: Any) -> Legend | None:
        """Explain marks below the lead, in as many columns as fit; equal names after shortening get a number."""
        labels: list[str] = []
        handles = []
        for name, handle in entries:
            label = fitted(name, self.inner_in / (columns or 1) - _HANDLE_IN, lines=3 if columns else 2)
            labels.append(f"{label} ({len(labels) + 1})" if label and label in labels else label)
            handles.append(handle)
        if not labels:
            return None
        taken = max(text_width(line) for label in labels for line in label.split("\n")) + _HANDLE_IN
        legend = self.legend(
            handles,
            ["-"] * len(labels),
            ncols=columns or min(max(int(self.inner_in / taken), 1), len(labels)),
            loc="upper left",
            bbox_to_anchor=(0, 1),
            bbox_transform=self._pin(-self._above_in - 0.06),
            alignment="left",
            **{"fontsize": SMALL_SIZE, "labelspacing": 0.45, "handlelength": 1.8, "columnspacing": 1.5} | look,
        )
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_text(label)  # set late, since a legend skips names that begin with _
        self._above_in += legend.get_window_extent().height / self.dpi + 0.1
        return legend

    def key_of_groups(self, groups: Sequence[str], nothing: str = NO_NAME) -> None:
        """Explain colour and marker of each word group."""
        self.add_key((plain(one) or nothing, mark(linewidth=1.6, **style_of(at))) for at, one in enumerate(groups))

    def finish(self, column: Sequence[Axes], height_in: float) -> Sheet:
        """Lay out the sheet so that this column of axes has the given total height, and freeze the layout."""
        self.set_figheight(self._above_in + self._below_in + height_in + 2.0 + 0.5 * len(column))
        engine = self.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        for _ in range(_MAX_LAYOUTS):  # two suffice except for axes of a fixed aspect
            height = self.get_figheight()
            body = (height - self._above_in - self._below_in) / height
            left, width = EDGE_IN / self.width_in, self.inner_in / self.width_in
            engine.set(rect=(left, self._below_in / height, width, body))
            engine.execute(self)
            lack = height_in - sum(axes.get_position(original=True).height for axes in column) * height
            if abs(lack) < 0.02:
                break
            self.set_figheight(round(height + lack, 4))
            if len(self.axes) == 1 and self.axes[0].get_aspect() == "auto":
                # One panel keeps its margins and takes the remaining height: a second layout would give the same.
                left, below, width, _ = self.axes[0].get_position(original=True).bounds
                share = 1 / self.get_figheight()
                self.axes[0].set_position((left, below * height * share, width, height_in * share))
                break
        # "none" would leave a placeholder, for which matplotlib draws each file twice; user settings could set another engine.
        with rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
            self.set_layout_engine(None)
        # The solver's last digits, and with them the names of clip paths, differ between processes.
        for axes in self.axes:
            axes.set_position(tuple(round(one, 6) for one in axes.get_position(original=True).bounds))
            axes.apply_aspect()
        return self


# Words.


def line_in(size: float = SMALL_SIZE) -> float:
    """Height of one line of text of a size in points."""
    return size * _LINE


def text_width(text: str, size: float = SMALL_SIZE, weight: str = "normal") -> float:
    """Width of one line of text in inches: of its words and the spaces between, without kerning at spaces."""
    families = tuple(rcParams["font.family"])
    space, *words = (_width_in(part, size, weight, families) for part in (" ", *text.split(" ")))
    return sum(words) + space * (len(words) - 1)


@lru_cache(maxsize=2**14)
def _width_in(text: str, size: float, weight: str, families: tuple[str, ...]) -> float:
    font = FontProperties(family=families, size=size, weight=weight)
    width: float = RendererAgg(1, 1, 100).get_text_width_height_descent(text, font, False)[0]
    return width / 100


def wrapped(text: str, inches: float, size: float = SMALL_SIZE, weight: str = "normal") -> list[str]:
    """The text in lines no wider than this; long words are broken."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if text_width(joined, size, weight) <= inches:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for sign in word:
            if lines[-1] and text_width(lines[-1] + sign, size, weight) > inches:
                # Break a long word after its last character that is neither letter nor digit, if that is near.
                kept = max((at + 1 for at, one in enumerate(lines[-1]) if not one.isalnum()), default=0)
                kept = kept if 2 * kept > len(lines[-1]) else len(lines[-1])
                lines[-1:] = [lines[-1][:kept], lines[-1][kept:]]
            lines[-1] += sign
    return lines


def fitted(text: str, inches: float, size: float = SMALL_SIZE, weight: str = "normal", lines: int = 1) -> str:
    """A name in at most `lines` lines of this width, shortened in the middle if it is longer."""
    text = shortened(plain(text), _MAX_LETTERS)

    def broken(letters: int) -> list[str]:
        return wrapped(shortened(text, letters), inches, size, weight)

    letters = len(text)
    if len(broken(letters)) > lines:
        letters = bisect_right(range(1, letters + 1), lines, key=lambda n: len(broken(n)))
    return "\n".join(broken(max(letters, 1))[:lines])


def mark(**look: Any) -> Line2D:
    """A mark of the key."""
    return Line2D([], [], **look)


# Axes.


def hover(axes: Axes, x: Iterable[float], y: Iterable[float], labels: Iterable[str]) -> None:
    """Add a tooltip for each point; points without a number have none."""
    rows = [(float(a), float(b), plain(label)) for a, b, label in zip(x, y, labels, strict=True)]
    known = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    sheet = axes.get_figure()
    if known and isinstance(sheet, Sheet):
        sheet.hovers.append((axes, [row[:2] for row in known], [row[2] for row in known]))


NUMBERS = FuncFormatter(lambda value, _: shortest(value))
"""Writes ticks in full, without a power of ten beside the axis."""


def even_ticks(most: int = 6) -> MaxNLocator:
    """Round numbers along an axis."""
    return MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3)


def padded(values: Iterable[float], air: float = 0.06, least: float = 0.0) -> tuple[float, float]:
    """Limits of an axis around the finite values, with margins, that spans at least `least`."""
    finite = np.array([value for value in values if np.isfinite(value)] or [0.0])
    low, high = float(finite.min()), float(finite.max())
    wanting = max(least - (high - low), 0.0) / 2
    room = air * max(high - low, least) or 1.0
    return low - wanting - room, high + wanting + room


def empty_panel(axes: Axes, reason: str) -> None:
    """Write why a panel is empty."""
    axes.set_facecolor(PALE)
    axes.text(0.5, 0.5, reason, color=GREY, ha="center", va="center", transform=axes.transAxes)


def write_above(axes: Axes, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Write lines, each with its look, above an axes; they take height and may extend beyond its right end."""
    height = 72 * line_in(TEXT_SIZE)
    for up, (text, look) in enumerate(reversed(lines)):
        if up == len(lines) - 1:
            # Reserves height but no width.
            axes.set_title(" \n" * text.count("\n") + " ", pad=4 + up * height, **dict(look))
        place: dict[str, Any] = {"xytext": (0, 4 + up * height), "textcoords": "offset points", "va": "baseline"}
        axes.annotate(text, (0, 1), xycoords="axes fraction", **place, **look).set_in_layout(False)


def apart(wanted: Floats, gap: float, low: float, high: float) -> Floats:
    """Least-squares closest places with this gap between neighbours, within `low` and `high` if possible."""
    order = np.argsort(wanted, kind="stable")
    offset = gap * np.arange(len(wanted))
    floor = isotonic_regression(wanted[order] - offset).x
    places = np.empty_like(wanted)
    places[order] = np.clip(floor, low, max(high - offset[-1], low)) + offset
    return places


def side_by_side(axes: Axes, places: Sequence[tuple[float, float]]) -> Floats:
    """How far to the right each point is to be moved, in inches, so that points at one place (equal to 0.1% of the panel) are all visible.

    Call it after the limits of the axes are set.
    """
    spots = (axes.transData + axes.transAxes.inverted()).transform(np.array(places, dtype=np.float64))
    place = np.unique(np.round(spots, 3), axis=0, return_inverse=True)[1].ravel()
    shifts = np.zeros(len(places))
    for one in np.unique(place):
        count = np.count_nonzero(place == one)
        shifts[place == one] = 3 * _DOT_IN * (np.arange(count) - (count - 1) / 2)
    return shifts


def shift_right(
    sheet: Sheet, axes: Axes, places: Sequence[tuple[float, float]], right_in: Floats
) -> list[tuple[float, float]]:
    """Places in data coordinates, moved to the right by inches but not out of the panel; call it after layout."""
    room, at = axes.get_window_extent(), axes.transData.transform(np.array(places, dtype=np.float64))
    at[:, 0] = np.clip(at[:, 0] + right_in * sheet.dpi, room.x0, room.x1)
    new = axes.transData.inverted().transform(at)
    return [(float(x), y) if by else (old, y) for (old, y), x, by in zip(places, new[:, 0], right_in, strict=True)]


def name_points(
    sheet: Sheet,
    axes: Axes,
    places: Sequence[tuple[float, float]],
    names: Sequence[str],
    bars: Sequence[tuple[float, float]],
) -> None:
    """Write each name near its point without overlap of names and with few overlaps of marks; a line connects distant names.

    Call it after layout. Each name is tried to the right, to the left and in the middle of its point, at every height of the panel.
    `bars` are the lower and upper ends of the points' bars.
    """
    inches = sheet.dpi_scale_trans.inverted()
    points = inches.transform(axes.transData.transform(np.array(places, dtype=np.float64)))
    room = inches.transform_bbox(axes.get_window_extent())
    tips = [(x, end) for (x, _), bar in zip(places, bars, strict=True) for end in bar]
    ends = inches.transform(axes.transData.transform(tips))
    zero = inches.transform(axes.transData.transform((places[0][0], 0.0)))[1]
    dots, lines = np.hstack([points - _DOT_IN, points + _DOT_IN]), np.hstack([ends[::2] - 0.01, ends[1::2] + 0.01])
    marks = np.vstack([dots, lines, (room.x0, zero - 0.01, room.x1, zero + 0.01)])
    taken = np.empty((0, 4))
    height = 1.1 * line_in(SMALL_SIZE)
    for place in np.argsort(-points[:, 1], kind="stable"):
        (x, y), width = points[place], text_width(names[place]) + 0.03
        up = np.arange(room.y0 + 0.02 - y, room.y1 - height - y, height / 2)
        up = np.append(up, -height / 2)
        left = [x + _DOT_IN + 0.04, x - _DOT_IN - 0.04 - width, x - width / 2]
        lefts = np.clip(left, room.x0, max(room.x1 - width, room.x0))
        corners = np.array([(x0, y + rise) for x0 in lefts for rise in up])
        boxes = np.hstack([corners, corners + np.array([width, height])])
        near = np.clip((x, y), boxes[:, :2], boxes[:, 2:]) - (x, y)
        cost = (
            np.hypot(*near.T)
            + 0.4 * np.minimum(_touched(boxes, marks), 2)
            + 9 * _touched(boxes, taken)
            + np.repeat([0, 0.01, 0.02], len(up))
        )
        best = int(np.argmin(cost))
        taken = np.vstack([taken, boxes[best]])
        middle = boxes[best, 1] + height / 2
        look: dict[str, Any] = {"va": "center", "zorder": 6, "path_effects": HALO}
        corner = axes.transData.inverted().transform(inches.inverted().transform((boxes[best, 0] + 0.01, middle)))
        axes.text(corner[0], corner[1], names[place], **look)
        way = near[best]
        if np.hypot(*way) > _DOT_IN + 0.08:
            start = points[place] + way * _DOT_IN / np.hypot(*way)
            ends = np.array([start, points[place] + way]) / sheet.get_size_inches()
            look = {"color": "#9a9a9a", "linewidth": 0.7, "transform": sheet.transFigure, "zorder": 2}
            axes.plot(*ends.T, clip_on=False, **look)


def _touched(boxes: Floats, others: Floats) -> Floats:
    """Number of other boxes that each box touches [box]."""
    left, lower, right, upper = boxes.T[:, :, None]
    touching = (left < others[:, 2]) & (right > others[:, 0]) & (lower < others[:, 3]) & (upper > others[:, 1])
    return np.asarray(np.count_nonzero(touching, axis=1), dtype=np.float64)
