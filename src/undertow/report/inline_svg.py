"""Figures as SVG elements of a page: small, with real text, and a tooltip on each point."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from undertow.errors import on_one_line
from undertow.report.page_data import Drawing, PageFigure
from undertow.report.style import figure_width, image_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SUMMARY_IN, PHONE_IN = 5.6, 3.7
"""Widths of figures of a page: beside the verdict, and on a phone."""
MAX_PHONE_FIGURES = 6
"""Maximum number of figures that are also drawn for narrow screens; drawing takes time."""
MAX_HOVERS = 2000
"""Maximum number of points with tooltips in a figure, to limit the size of the page."""
HOVER_PT = 6.0
"""Radius of a point's tooltip."""
_HEAD = re.compile(r"^.*?(?=<svg\b)|<metadata>.*?</metadata>|<!--.*?-->|<style\b.*?</style>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_SIZE = re.compile(r'(<svg\b[^>]*?) width="[\d.]+pt" height="[\d.]+pt"')
_UNNEEDED = re.compile(
    r" xmlns(?::xlink)?=\"[^\"]*\"| version=\"1.1\"| transform=\"rotate\(-0 [^\"]*\"|font-family: '[^\"]*?; |<defs/>|<g/>"
)
_ID = re.compile(r' id="([^"]*)"')


def page_figure(drawing: Drawing, phone: Drawing | None = None) -> PageFigure:
    """A drawing for a page, optionally with one for narrow screens."""
    narrow = svg_element(phone.figure) if phone is not None else ""
    return PageFigure(drawing.name, svg_element(drawing.figure), drawing.caption, drawing.alt, narrow)


def page_figures(
    draw: Callable[[], Iterable[Drawing]], drawings: Sequence[Drawing], main: int = 0
) -> tuple[PageFigure | None, list[PageFigure]]:
    """The main figure for the place beside the verdict, and the other figures; the first ones also for phones.

    Args:
        draw: draws all of them at the current width.
        drawings: drawings at full width.
        main: index of the figure beside the verdict.
    """
    if not drawings:
        return None, []
    with figure_width(PHONE_IN):
        phone = list(islice(draw(), max(MAX_PHONE_FIGURES, main + 1)))
    with figure_width(SUMMARY_IN):
        beside = next(islice(draw(), main, None))
    pairs = [pair for at, pair in enumerate(zip_longest(drawings, phone)) if at != main]
    return page_figure(beside, phone[main]), [page_figure(*pair) for pair in pairs]


def svg_element(figure: Figure) -> str:
    """The figure as an SVG element without a fixed size; text is in the font of the page."""
    svg = _HEAD.sub("", image_bytes(figure, "svg", real_text=True).decode("utf-8", "replace"))
    svg = _TAG.sub(lambda tag: _LONG_NUMBER.sub(lambda one: f"{float(one[0]):.2f}", tag[0]), svg)
    svg = _UNNEEDED.sub("", re.sub(r"\s*\n\s*", " ", _SIZE.sub(r"\1", svg)))
    # Ids must differ between figures, and most are unused.
    used = set(re.findall(r"(?:url\(|href=\")#([\w.-]+)", svg))
    svg = _ID.sub(lambda one: one[0] if one[1] in used else "", svg)
    own = hashlib.sha256(svg.encode()).hexdigest()[:6]
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>f{own}", svg)
    return svg.replace("> <", "><").replace("</svg>", f"{_hover_marks(figure)}</svg>").strip()


def _hover_marks(figure: Figure) -> str:
    """A transparent circle with a title for each point of `Sheet.hover`."""
    marks: list[str] = []
    height = 72 * figure.get_figheight()
    hovers = getattr(figure, "hovers", ())
    if sum(len(labels) for _, _, labels in hovers) > MAX_HOVERS:
        return ""
    for axes, points, labels in hovers:
        places = 72 * axes.transData.transform(points) / figure.dpi
        for (x, y), label in zip(places.tolist(), labels, strict=True):
            title = f"<title>{escape(on_one_line(label))}</title>"
            marks.append(f'<circle cx="{x:.1f}" cy="{height - y:.1f}" r="{HOVER_PT:g}">{title}</circle>')
    return f'<g class="hover">{"".join(marks)}</g>' if marks else ""
