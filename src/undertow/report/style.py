"""Style of all figures, with colours and fonts, and drawings as files that are byte-identical on every machine."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

from undertow.errors import UndertowError
from undertow.report.page_data import Drawing
from undertow.stats.context import check_interrupted

PNG_DPI = 160
MAX_STEM_LENGTH = 80
WIDTH_IN = 8.0

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A")
"""Okabe and Ito's colours, distinct without full colour vision, with grey instead of yellow, which is too pale on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, GREY, PALE, GRID = "#222222", "#6b6b6b", "#f5f5f5", "#e4e4e4"
BLUE_TEXT, ORANGE_TEXT = COLOURS[0], "#b04d00"
"""The first two colours for text, both with a contrast of at least 4.5 on white (WCAG 2, AA)."""
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.0, 8.5, 8.0

_FAMILY = "DejaVu Sans"
"""Bundled with matplotlib, so that lines break at the same positions on every machine."""
_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#8a8a8a",
    "axes.formatter.useoffset": False,
    "axes.labelcolor": INK,
    "axes.labelsize": SMALL_SIZE,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": TEXT_SIZE,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.size": SMALL_SIZE,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.frameon": False,
    "lines.solid_capstyle": "butt",
    "svg.hashsalt": "undertow",
    "text.color": INK,
    "text.parse_math": False,  # names may have dollar signs
    "text.usetex": False,
    "xtick.color": "#8a8a8a",
    "xtick.labelcolor": INK,
    "xtick.labelsize": SMALL_SIZE,
    "ytick.color": "#8a8a8a",
    "ytick.labelcolor": INK,
    "ytick.labelsize": SMALL_SIZE,
    "ytick.major.size": 0,
}
_ONE_AT_A_TIME = threading.RLock()
"""Lock for matplotlib's global settings."""
_width_in: ContextVar[float] = ContextVar("width_in", default=WIDTH_IN)
_has_title: ContextVar[bool] = ContextVar("has_title", default=True)
FIGURE_FORMATS = ("pdf", "svg", "png")
MIN_WIDTH_IN, MAX_WIDTH_IN = 3.0, 24.0

_RESERVED_ON_WINDOWS = re.compile(r"con|prn|aux|nul|com\d|lpt\d")


@contextmanager
def figure_width(inches: float, *, title: bool = True) -> Iterator[None]:
    """Draw figures of this width instead of 8 inches (a journal's column has 3.3), with or without a title."""
    if not MIN_WIDTH_IN <= inches <= MAX_WIDTH_IN:
        raise UndertowError(
            f"a figure of width {inches:g} cannot be drawn; use {MIN_WIDTH_IN:g} to {MAX_WIDTH_IN:g} inches"
        )
    width, has_title = _width_in.set(inches), _has_title.set(title)
    try:
        yield
    finally:
        _width_in.reset(width)
        _has_title.reset(has_title)


def has_title() -> bool:
    """Whether figures currently have a title."""
    return _has_title.get()


def current_width() -> float:
    """Current width of figures in inches."""
    return _width_in.get()


def style_of(place: int) -> dict[str, Any]:
    """Colour and marker of a group; after eight groups the pairs shift, so that 64 are distinct."""
    marker = MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]
    size = {"*": 8.0, "D": 4.8, "s": 5.0}.get(marker, 5.8)  # so that all look equally large
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    return {"color": COLOURS[place % len(COLOURS)], "marker": marker, "markersize": size, **edge}


def save_drawing(drawing: Drawing, folder: Path) -> None:
    """Write a drawing as `<stem>.svg` and `<stem>.png` (160 dpi) into a folder, created if missing.

    Equal figures give equal bytes. Text of the SVG is converted to outlines, so that it looks the same everywhere. If no font of this
    machine has one of its characters, text stays text, for the reader's fonts, and the PNG shows that character as a box.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(drawing.name)
    for kind in ("svg", "png"):
        (folder / f"{stem}.{kind}").write_bytes(image_bytes(drawing.figure, kind))


def write_figure(figure: Figure, out: Path) -> None:
    """Write a figure into one file in the format of its suffix: .pdf, .svg or .png."""
    image = image_bytes(figure, out.suffix.lower().removeprefix("."))
    try:
        out.write_bytes(image)
    except OSError as error:
        raise UndertowError(f"{out}: cannot be written ({error.strerror or error}); name another file") from error


_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069\u2028\u2029\x7f-\x9f]")
"""Characters in labels that reverse the direction of text or end lines."""


def image_bytes(figure: Figure, format: str, *, real_text: bool = False) -> bytes:  # noqa: A002 - as matplotlib calls it
    """The figure as a file of this format: `pdf` with its text as text, `svg`, or `png` at 160 dots per inch.

    With `real_text`, text of an SVG stays text instead of outlines.

    Raises:
        UndertowError: there is no such format.
    """
    check_interrupted()
    if format not in FIGURE_FORMATS:
        raise UndertowError(f"a figure cannot be written as {format!r}; use {', '.join(FIGURE_FORMATS)}")
    nothing = {
        "svg": ("Date", "Creator", "Format", "Type"),
        "png": ("Software",),
        "pdf": ("CreationDate", "Producer", "Creator"),
    }
    out = io.BytesIO()
    with lettering(_written(figure)):
        mpl.rcParams["svg.fonttype"] = "none" if real_text or _fonts_for(_written(figure))[1] else "path"
        mpl.rcParams["pdf.fonttype"] = 42  # TrueType: text can be selected, and journals accept it
        # Half the time of the usual compression, for a tenth more bytes.
        png: dict[str, Any] = {"dpi": PNG_DPI, "pil_kwargs": {"compress_level": 3}} if format == "png" else {}
        figure.savefig(out, format=format, metadata=dict.fromkeys(nothing[format]), **png)
    return _TURNING.sub("", out.getvalue().decode()).encode() if format == "svg" else out.getvalue()


def file_stem(name: str) -> str:
    """A file name without suffix, safe on every system, for any text.

    It has lower-case ASCII letters, digits, `.`, `_` and `-`. If other characters were dropped, it ends with a short hash of the text,
    so that two names never share a file.
    """
    stem = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")
    stem = re.sub(r"\.{2,}", ".", stem)[:MAX_STEM_LENGTH].strip("-.")
    if stem == name and stem and not _RESERVED_ON_WINDOWS.fullmatch(stem.partition(".")[0]):
        return stem
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = stem.replace(".", "-")[: MAX_STEM_LENGTH - len(mark) - 1].strip("-")
    return f"{kept or 'drawing'}-{mark}"


@contextmanager
def lettering(text: str) -> Iterator[None]:
    """Draw in the project's style, with fonts for the characters of this text, regardless of the user's settings.

    There is no warning for a character that no font has: see `save_drawing`.
    """
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE | {"font.family": _fonts_for(text)[0]})
        yield


def signs_as_boxes(drawing: Drawing) -> str:
    """Characters that no installed font has: a PNG shows boxes for them, an SVG uses the reader's fonts."""
    return "".join(map(chr, sorted(_fonts_for(_written(drawing.figure))[1])))


def _written(figure: Figure) -> str:
    return "".join(text.get_text() for text in figure.findobj(Text))


def _fonts_for(text: str) -> tuple[list[str], frozenset[int]]:
    """The project's font, then installed fonts with the characters that it lacks, and the characters that none has."""
    families = [_FAMILY]
    lacking = frozenset(ord(sign) for sign in text if not sign.isspace()) - _signs(font_manager.findfont(_FAMILY))
    for name, path in _installed_fonts() if lacking else ():
        if lacking & _signs(path):
            families.append(name)
            lacking = lacking - _signs(path)
    return families, lacking


@cache
def _installed_fonts() -> Sequence[tuple[str, str]]:
    """Name and file of one upright font per installed family, by name."""
    upright = {
        font.name: font.fname
        for font in font_manager.fontManager.ttflist
        if font.style == "normal"
        and font.weight in {400, "normal", "regular"}
        and not font.name.startswith("Last Resort")
    }
    return sorted(upright.items())


@cache
def _signs(path: str) -> frozenset[int]:
    """Code points of a font file; none if it cannot be read or scaled."""
    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # a broken font of the machine must not stop a report
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()
