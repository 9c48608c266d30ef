"""Heat map of answered against correct labels, in percent of each row.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language"
(Findings of EMNLP), report only the hits of each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from undertow.report.formatting import named, number, plain
from undertow.report.page_data import Drawing
from undertow.report.sentence_templates import described
from undertow.report.sheet import Sheet, fitted, line_in, text_width
from undertow.report.style import COLOURS, GREY, PALE, SMALL_SIZE, current_width, lettering
from undertow.types import Floats

_BLUES = LinearSegmentedColormap.from_list("share", ["#f7f9fb", "#9cc8e3", "#0072B2", "#00324f"])
_SHADES = _BLUES.with_extremes(bad=PALE)
"""From 0 to 100 percent, through the blue of the other figures, ordered by lightness."""
_WHITE_FROM = 63.0
"""Percent from which white text has more contrast than black; both have at least 4.5 there (WCAG 2, AA)."""
_MIN_IN, _MAX_IN, _HIGH_IN = 0.42, 1.1, 0.4
_NARROW_IN, _NARROW_CELL_IN = 6.0, 0.23
"""Below this width, cells that would not fit have this width and their percent alone."""


def draw_confusion(counts: ArrayLike, gold_names: Sequence[str], predicted_names: Sequence[str], title: str) -> Drawing:
    """Draw how often each label was predicted for each correct label.

    A cell shows its percent of the row, also as a shade, and its count. Cells of correct predictions have a frame.

    `counts` is [gold, predicted]; `predicted_names` may have further ones, as for no answer. The title also names the file.
    """
    table = np.asarray(counts, dtype=np.float64)
    gold, predicted = [named(name) for name in gold_names], [named(name) for name in predicted_names]
    framed = " Framed: correct predictions." if set(gold) & set(predicted) else ""
    with lettering("".join([title, *gold, *predicted])):
        sheet = _draw(table, gold, predicted, (title, framed))
    rows = []  # correct label, its count, and the most frequent predictions
    for name, row in zip(gold, table, strict=True):
        most = [place for place in np.argsort(-row, kind="stable")[:3] if row[place]]
        given = [(predicted[place], _percent(100 * row[place] / row.sum()), row[place]) for place in most]
        rows.append((name, row.sum(), given))
    return Drawing(
        name=title,
        figure=sheet,
        caption=f"{plain(title)}. Rows: correct label; columns: predicted label. Each cell has its percent of the row and, if there is "
        f"room, the count below it; a darker cell is a larger share of its row.{framed}",
        alt=described("confusion", rows),
    )


def _draw(table: Floats, gold: Sequence[str], predicted: Sequence[str], texts: tuple[str, str]) -> Sheet:
    names = [*gold, "right label"]
    word_in = max(text_width(word) for name in names for word in name.split())
    label_in = min(max(map(text_width, names)), max(word_in, 0.19 * current_width()), 1.5) + 0.02
    widest = max(text_width(word) for name in predicted for word in name.split()) + 0.08
    is_narrow = current_width() < min(_NARROW_IN, label_in + _MIN_IN * len(predicted) + 1.0)
    least_in, margin_in = (_NARROW_CELL_IN, 0.6) if is_narrow else (_MIN_IN, 1.0)
    cell_in = max(least_in, min((current_width() - label_in - margin_in) / len(predicted), _MAX_IN))
    content = "Percent of each row." if is_narrow else "Percent of each row, and the count below it."
    sheet = Sheet(
        texts[0], f"{content} Darker: a larger share of the row.{texts[1]}",
        width_in=label_in + cell_in * len(predicted) + margin_in,
    )  # fmt: skip
    labels = [fitted(name, label_in, lines=4) for name in gold]
    row_in = max(_HIGH_IN, *((label.count("\n") + 1) * line_in() + 0.08 for label in labels))
    axes = sheet.add_subplot()
    totals = table.sum(axis=1, keepdims=True)
    shares = 100.0 * np.divide(table, totals, out=np.full_like(table, np.nan), where=totals > 0)
    axes.pcolormesh(np.ma.masked_invalid(shares), cmap=_SHADES, vmin=0, vmax=100, edgecolor="white", linewidth=2)
    for (row, column), share in np.ndenumerate(shares):
        look: dict[str, Any] = {"ha": "center", "color": "white" if share >= _WHITE_FROM else "black", "zorder": 5}
        if gold[row] == predicted[column]:
            frame: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[1], "linewidth": 1.4, "zorder": 4}
            axes.add_patch(Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, **frame))
        if np.isfinite(share) and is_narrow:
            axes.text(column + 0.5, row + 0.5, number(share, 0), size=7, va="center", **look)
        elif np.isfinite(share) and table[row, column]:
            axes.text(column + 0.5, row + 0.48, _percent(share), va="bottom", **look)
            axes.text(column + 0.5, row + 0.54, f"{table[row, column]:,.0f}", size=7.5, va="top", **look)
        elif np.isfinite(share):
            axes.text(column + 0.5, row + 0.5, "0", size=7.5, va="center", **look | {"color": GREY})
    room = (sheet.inner_in - label_in - 0.1) / cell_in  # number of columns that fit
    axes.set(xlim=(0, max(room, len(predicted) + 0.6)), ylim=(len(gold), 0), frame_on=False)
    axes.set_yticks(np.arange(len(gold)) + 0.5, labels)
    axes.xaxis.tick_top()
    upright = widest > cell_in  # else a name would be broken within a word
    heads = [fitted(name, 1.2, lines=1) if upright else fitted(name, cell_in - 0.06, lines=4) for name in predicted]
    axes.set_xticks(np.arange(len(predicted)) + 0.5, heads, rotation=90 if upright else 0)
    axes.tick_params(length=0)
    axes.set_title("label given", size=SMALL_SIZE)
    place: dict[str, Any] = {"textcoords": "offset points", "va": "bottom"}
    axes.annotate("right label", (0, 0), xytext=(-6, 4), ha="right", weight="bold", **place)
    axes.annotate("all", (len(predicted), 0), xytext=(6, 4), color=GREY, **place)
    for row, total in enumerate(totals[:, 0]):
        axes.text(len(predicted) + 0.09, row + 0.5, f"{total:,.0f}", color=GREY, va="center")
    return sheet.finish([axes], row_in * len(gold))


def _percent(share: float) -> str:
    return f"{number(share, 1 if share < 9.95 or 99.5 <= share < 100 else 0)}%"  # less than 100 is never printed as 100
