"""Heat map of answered against correct labels, in percent of each row.

Bauer et al. 2022, "Analyzing the Limits of Self-Supervision in Handling Bias in Language"
(Findings of EMNLP), print the hits of each dimension alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from undertow.errors import UndertowError
from undertow.report.figures.covariate_curve import WIDTH_PX, text_width_px, wrapped_lines
from undertow.report.formatting import number, plain
from undertow.report.layout import EDGE_PX, GREY, PALE, SMALL_SIZE, Sheet, line_px, named
from undertow.report.style import Drawing, contrast, lettering
from undertow.types import Floats

_SHADES = LinearSegmentedColormap.from_list("share", ["#f7f9fb", "#9cc8e3", "#0072B2", "#00324f"])
"""From nothing to all, through the blue of the other figures; lightness alone orders them."""
_LIGHT, _DARK = "#ffffff", "#000000"
_MIN_PX, _MAX_PX = 52.0, 110.0
_HIGH_PX = 40.0
_LABEL_PX = 150.0
_LABEL_LINES = 4
_CELL_SIZE = 7.5
_TOTAL_PX = 56.0


def draw_confusion(counts: ArrayLike, gold_names: Sequence[str], predicted_names: Sequence[str], title: str) -> Drawing:
    """Draw how often each label was given where each was right.

    A cell's shade is its percent of the row; percent and count stand in it. Where the label given is the right one, the cell
    has a frame.

    Args:
        counts: whole numbers [gold, predicted].
        gold_names: the right labels, from the top [gold].
        predicted_names: the labels given, from the left; may hold more than the right ones, as for no answer [predicted].
        title: of the figure, and its file's name.

    Returns:
        A drawing 800 pixels wide at 100 dots per inch, wider where the labels given need more.

    Raises:
        UndertowError: the counts have another shape than the names, or are none.
    """
    table = _checked(counts, gold_names, predicted_names)
    gold, predicted = [named(name) for name in gold_names], [named(name) for name in predicted_names]
    with lettering("".join([title, *gold, *predicted])):
        sheet = _drawn(table, gold, predicted, title)
    return Drawing(
        name=title,
        figure=sheet.figure,
        caption=f"{plain(title)}. Rows: the right label; columns: the label given. Each cell has its percent of the row, and below "
        f"it the count; a darker cell is a larger share of its row.{_framed(gold, predicted)}",
        alt=_describe(table, gold, predicted),
    )


def _checked(counts: ArrayLike, gold_names: Sequence[str], predicted_names: Sequence[str]) -> Floats:
    table = np.asarray(counts, dtype=np.float64)
    if table.shape != (len(gold_names), len(predicted_names)):
        raise UndertowError(
            f"the confusion of labels cannot be drawn: its counts have the shape {table.shape}, and its names "
            f"{(len(gold_names), len(predicted_names))}; give one name for each row and each column"
        )
    if not table.size or not np.isfinite(table).all() or (table < 0).any():
        raise UndertowError("the confusion of labels cannot be drawn: it needs a count, of 0 or more, in every cell")
    return table


def _shares_percent(table: Floats) -> Floats:
    """Percent of each row [gold, predicted]; NaN in a row without counts."""
    totals = table.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(100.0 * table / totals, dtype=np.float64)


def _drawn(table: Floats, gold: Sequence[str], predicted: Sequence[str], title: str) -> Sheet:
    # Twice: how wide the sheet is depends on its words, and words are measured on a sheet.
    measured = Sheet(title, "")
    widest = max(text_width_px(measured.figure, word, SMALL_SIZE) for name in predicted for word in name.split())
    label_px = max(min(_width_px(measured, name), _LABEL_PX) for name in [*gold, "right label"])
    left = EDGE_PX + label_px + 10
    fitting_px = (WIDTH_PX - left - _TOTAL_PX - EDGE_PX) / len(predicted)
    cell_px = max(_MIN_PX, min(widest + 8, _MAX_PX), min(fitting_px, _MAX_PX))
    width_px = max(WIDTH_PX, left + cell_px * len(predicted) + _TOTAL_PX + EDGE_PX)

    lead = "Percent of each row, and the count below it. Darker: a larger share of the row."
    sheet = Sheet(title, lead + _framed(gold, predicted), width_px=width_px)
    heads = [_lines(sheet, name, cell_px - 6) for name in predicted]
    labels = [_lines(sheet, name, label_px) for name in gold]
    row_px = [max(_HIGH_PX, len(lines) * line_px(SMALL_SIZE) + 8) for lines in labels]
    head_px = (max(map(len, heads)) + 1.6) * line_px(SMALL_SIZE) + 6
    top = sheet.settle(head_px + sum(row_px) + 4)
    _write_heads(sheet, heads, left, top, cell_px)
    top -= head_px
    axes = sheet.axes(left, top - sum(row_px), cell_px * len(predicted), sum(row_px))
    _bare(axes, cell_px * len(predicted), sum(row_px))
    for row, (lines, height) in enumerate(zip(labels, row_px, strict=True)):
        below = sum(row_px[row + 1 :])
        middle = top - sum(row_px) + below + height / 2
        sheet.write(left - 8, middle, "\n".join(lines), size=SMALL_SIZE, ha="right", va="center")
        total = f"{table[row].sum():,.0f}"
        sheet.write(left + cell_px * len(predicted) + 8, middle, total, size=SMALL_SIZE, color=GREY, va="center")
        same = [gold[row] == name for name in predicted]
        _draw_row(axes, table[row], same, (below, cell_px, height))
    return sheet


def _framed(gold: Sequence[str], predicted: Sequence[str]) -> str:
    return " Framed: the right label was given." if set(gold) & set(predicted) else ""


def _width_px(sheet: Sheet, text: str) -> float:
    return text_width_px(sheet.figure, text, SMALL_SIZE) + 2


def _lines(sheet: Sheet, name: str, width_px: float) -> list[str]:
    lines = wrapped_lines(sheet.figure, name, SMALL_SIZE, width_px)
    if len(lines) <= _LABEL_LINES:
        return lines
    last = sheet.fit(" ".join(lines[_LABEL_LINES - 1 :]), width_px)
    return [*lines[: _LABEL_LINES - 1], last]


def _write_heads(sheet: Sheet, heads: Sequence[Sequence[str]], left: float, top: float, cell_px: float) -> None:
    line = line_px(SMALL_SIZE)
    most = max(map(len, heads))
    foot = top - (most + 1.4) * line
    sheet.write(left, top, "label given", size=SMALL_SIZE, weight="bold", va="top")
    sheet.write(left - 8, foot, "right label", size=SMALL_SIZE, weight="bold", ha="right", va="baseline")
    sheet.write(left + cell_px * len(heads) + 8, foot, "all", size=SMALL_SIZE, color=GREY, va="baseline")
    for place, lines in enumerate(heads):
        middle = left + (place + 0.5) * cell_px
        sheet.write(middle, foot, "\n".join(lines), size=SMALL_SIZE, ha="center", va="baseline")


def _bare(axes: Axes, width_px: float, height_px: float) -> None:
    """Axes measured in pixels, from the lower left."""
    axes.set(xlim=(0, width_px), ylim=(0, height_px), xticks=[], yticks=[])
    axes.spines["bottom"].set_visible(False)


def _draw_row(axes: Axes, counts: Floats, same: Sequence[bool], place: tuple[float, float, float]) -> None:
    """Cells from the left; `place` is lower edge, width and height of the first, in pixels."""
    below, width, height = place
    (shares,) = _shares_percent(counts[None])
    for column, (count, share) in enumerate(zip(counts, shares, strict=True)):
        shade = _SHADES(share / 100)[:3] if np.isfinite(share) else to_rgb(PALE)
        box = (column * width + 1, below + 1)
        axes.add_patch(Rectangle(box, width - 2, height - 2, facecolor=shade, edgecolor="none", zorder=2))
        if same[column]:
            frame = Rectangle((box[0] + 0.5, box[1] + 0.5), width - 3, height - 3)
            frame.set(facecolor="none", edgecolor="#D55E00", linewidth=1.4, zorder=4)
            axes.add_patch(frame)
        middle = (column + 0.5) * width, below + height / 2
        colour = _readable_on(shade)
        if not np.isfinite(share):
            continue
        if not count:
            axes.text(*middle, "0", size=_CELL_SIZE, color=GREY, ha="center", va="center")
            continue
        axes.text(middle[0], middle[1] + 1, _percent(share), size=SMALL_SIZE, color=colour, ha="center", va="bottom")
        axes.text(middle[0], middle[1] - 2, f"{count:,.0f}", size=_CELL_SIZE, color=colour, ha="center", va="top")


def _percent(share: float) -> str:
    return f"{number(share, 1 if share < 9.95 or 99.5 <= share < 100 else 0)}%"  # never 100 of what is less


def _readable_on(shade: Sequence[float]) -> str:
    """Black or white, whichever has more contrast: always 4.5 or more, as WCAG asks for."""
    return max(_LIGHT, _DARK, key=lambda ink: contrast(ink, shade))


def _describe(table: Floats, gold: Sequence[str], predicted: Sequence[str]) -> str:
    shares = _shares_percent(table)
    said = []
    for row, name in enumerate(gold):
        if not table[row].any():
            said.append(f"{name}: none.")
            continue
        given = [
            f"{predicted[column]} {_percent(shares[row, column])} ({table[row, column]:,.0f})"
            for column in np.argsort(-table[row], kind="stable")[:3]
            if table[row, column]
        ]
        said.append(f"{name}, {table[row].sum():,.0f} in all: {', '.join(given)}.")
    return " ".join(["The labels given most often, by the right label.", *said])
