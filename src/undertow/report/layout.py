"""A sheet of panels: title and lead at the top, small print at the bottom, and a body as high as its parts need."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from undertow.report.figures.covariate_curve import DPI, WIDTH_PX, style_of, text_width_px, wrapped_lines
from undertow.report.formatting import MINUS, number, plain, shortened, significant_decimals

if TYPE_CHECKING:
    pass

EDGE_PX = 14
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.0, 8.5, 8.0
GREY, PALE, GRID = "#6b6b6b", "#f5f5f5", "#e4e4e4"
NO_PROMPT, NO_NAME = "no prompt", "(no name)"

Handle = Any
"""Handle of a legend entry."""


# A sheet, in pixels from its lower left corner: title and lead at the top, small print at the bottom, the body between.


class Sheet:
    """A figure whose parts are placed in pixels of 1/100 inch, with as much height as they turn out to need.

    Attributes:
        figure: what is drawn on.
        width_px: of the whole sheet.
    """

    def __init__(self, title: str, lead: str, foot: Sequence[str] = (), width_px: float = WIDTH_PX) -> None:
        self.width_px = width_px
        self.figure = Figure(figsize=(width_px / DPI, 1), dpi=DPI)
        self._title = self._lines(title, TITLE_SIZE)
        self._lead = self._lines(lead, TEXT_SIZE)
        self._foot = [line for text in foot for line in self._lines(text, SMALL_SIZE)]

    def _lines(self, text: str, size: float) -> list[str]:
        return wrapped_lines(self.figure, plain(text), size, self.width_px - 2 * EDGE_PX)

    def fit(self, text: str, width_px: float, size: float = SMALL_SIZE, weight: str = "normal") -> str:
        """The text, or as much of its beginning and end as this width holds."""
        lengths = range(1, min(len(text), 90) + 1)
        if not lengths:
            return text

        def taken_px(letters: int) -> float:
            return text_width_px(self.figure, shortened(text, letters), size, weight)

        fitting = len(lengths) if taken_px(lengths[-1]) <= width_px else bisect_right(lengths, width_px, key=taken_px)
        return shortened(text, lengths[max(fitting, 1) - 1])

    def settle(self, body_px: float) -> float:
        """Give the sheet its height, write title, lead and small print, and return the top of the body."""
        blocks = ((self._title, TITLE_SIZE, "bold"), (self._lead, TEXT_SIZE, "normal"))
        head_px = EDGE_PX + sum(len(lines) * line_px(size) for lines, size, _ in blocks) + 10
        foot_px = EDGE_PX + (len(self._foot) * line_px(SMALL_SIZE) + 10 if self._foot else 0)
        self.figure.set_size_inches(self.width_px / DPI, (head_px + body_px + foot_px) / DPI)
        top = head_px + body_px + foot_px - EDGE_PX
        for lines, size, weight in blocks:
            self.write(EDGE_PX, top, "\n".join(lines), size=size, weight=weight, va="top")
            top -= len(lines) * line_px(size) + 2
        self.write(EDGE_PX, foot_px - 10, "\n".join(self._foot), size=SMALL_SIZE, color=GREY, va="top")
        return body_px + foot_px

    def write(self, x_px: float, y_px: float, text: str, **look: Any) -> None:
        """Text at a place."""
        self.figure.text(*self._share(x_px, y_px), text, linespacing=1.25, **look)

    def axes(self, left_px: float, bottom_px: float, width_px: float, height_px: float) -> Axes:
        """Axes that fill this box, bare but for the line below."""
        axes = self.figure.add_axes((*self._share(left_px, bottom_px), *self._share(width_px, height_px)))
        axes.spines["left"].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelsize=SMALL_SIZE)
        axes.tick_params(axis="x", length=4, width=0.8, labelsize=SMALL_SIZE)
        return axes

    def legend(self, entries: Mapping[str, Handle], title: str = "", columns: int = 1, air: float = 0.45) -> Any:
        """A legend, to be measured now and put in its place once the sheet has its height."""
        made = self.figure.legend(
            list(entries.values()),
            ["-"] * len(entries),
            ncols=columns,
            title=title or None,
            loc="upper left",
            alignment="left",
            frameon=False,
            fontsize=SMALL_SIZE,
            borderpad=0,
            borderaxespad=0,
            labelspacing=air,
            handlelength=1.8,
        )
        made.get_title().set(size=SMALL_SIZE, weight="bold")
        for text, label in zip(made.get_texts(), entries, strict=True):
            text.set_text(label)  # here and not above, where a name that begins with _ would be left out
        return made

    def put(self, legend: Any, x_px: float, top_px: float) -> None:
        """Move a legend's upper left corner to a place."""
        legend.set_bbox_to_anchor(self._share(x_px, top_px), self.figure.transFigure)

    def group_legend(self, groups: Sequence[str], nothing: str = NO_NAME) -> Any:
        """Colour and marker of each word group, in as many columns as fit."""
        names = [self.fit(plain(group) or nothing, 260) for group in groups]
        widest = max(text_width_px(self.figure, name, SMALL_SIZE) for name in names)
        handles = [Line2D([], [], linewidth=1.6, **style_of(place)) for place in range(len(groups))]
        columns = max(int((self.width_px - 2 * EDGE_PX) // (widest + 50)), 1)
        return self.legend(distinct_labels(zip(names, handles, strict=True)), columns=min(columns, len(groups)))

    def _share(self, x_px: float, y_px: float) -> tuple[float, float]:
        width, height = self.figure.get_size_inches() * DPI
        return x_px / width, y_px / height


def line_px(size: float) -> float:
    """Height of one line of text of a size in points."""
    return size * 1.32 * DPI / 72


def height_px(artist: Any) -> float:
    """Height of something already drawn on a sheet."""
    return float(artist.get_window_extent().height)


def even_ticks(low: float, high: float, most: int = 6) -> dict[float, str]:
    """Round numbers from `low` to `high`, three or more of them, and how each is written."""
    for bins in range(most, most + 8):
        values = MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        within = [float(value) for value in values if low <= value <= high]
        if len(within) >= 3:
            break
    step = float(values[1] - values[0])
    decimals = significant_decimals(step, 1 if math.isclose(step, float(f"{step:.0e}")) else 2)
    plainly = step >= 10.0**-decimals / 2 and max(abs(low), abs(high)) < 1e7
    exact = {value if abs(value) > step / 1000 else 0.0: None for value in within}
    return {value: number(value, decimals) if plainly else f"{value:.3g}".replace("-", MINUS) for value in exact}


def amount(count: float) -> str:
    """A large number in three digits and a letter, as models are named: 124M, 1.3B, 175B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"


def named(text: str) -> str:
    """A name as a reader sees it; never nothing."""
    return plain(text) or NO_NAME


def distinct_labels(named: Iterable[tuple[str, Handle]]) -> dict[str, Handle]:
    """Legend entries of names that may be alike once they are cut: the later ones get their number."""
    entries: dict[str, Handle] = {}
    for place, (name, handle) in enumerate(named, 1):
        entries[f"{name} ({place})" if name in entries else name] = handle
    return entries


def say(axes: Axes, text: str) -> None:
    """Write why a panel is empty."""
    axes.set_facecolor(PALE)
    axes.text(0.5, 0.5, text, size=SMALL_SIZE, color=GREY, ha="center", va="center", transform=axes.transAxes)
