"""What every figure must be: its words, and whether a reader can read them all."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from undertow.report.style import lettering


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text().strip()]


def only_axes(figure: Figure) -> Any:
    """The figure's only axes, untyped: tests look into what it drew."""
    (axes,) = figure.axes
    return axes


def panels_of(figure: Figure) -> list[Any]:
    """All axes, untyped."""
    return list(figure.axes)


def marks_of(axes: Any) -> list[Any]:
    """What is drawn as marks without a line, in the order drawn."""
    return [line for line in axes.lines if line.get_linestyle() == "None"]


def upright_bars(axes: Any) -> list[tuple[float, float, float]]:
    """Place, lower and upper end of each bar without marks, in the order drawn; leaders and the line at 0 are none."""
    bars = [line for line in axes.lines if line.get_marker() == "None" and line.get_transform() == axes.transData]
    return [(float(bar.get_xdata()[0]), float(bar.get_ydata()[0]), float(bar.get_ydata()[1])) for bar in bars]


def assert_readable(figure: Figure) -> None:
    """No word reaches beyond the sheet, and no two of them touch."""
    with lettering("".join(words(figure))):
        FigureCanvasAgg(figure).draw()
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():  # those beyond its ends are not drawn
                tick.label1.set_visible(tick.label1.get_visible() and bool(low <= tick.get_loc() <= high))
        shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    width, height = figure.get_size_inches() * figure.dpi
    for said, box in boxes:
        assert box.x0 >= 0, said
        assert box.x1 <= width, said
        assert box.y0 >= 0, said
        assert box.y1 <= height, said
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert not (across > 0 and up > 2), (one, other)  # lines may share two pixels of leading
