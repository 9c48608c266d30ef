"""A drawing: a figure with its caption and alt text, written to files that are byte-identical on every machine."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from undertow.errors import UndertowError

PNG_DPI = 160
MAX_STEM_LENGTH = 80
TEXT_CONTRAST = 4.5
"""Minimum text contrast of WCAG 2 (AA)."""

_FAMILY = "DejaVu Sans"
"""Bundled with matplotlib, so lines break at the same positions on every machine."""

_INK = "#222222"
_STYLE: dict[str, Any] = {
    "axes.edgecolor": "#8a8a8a",
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.size": 8.5,
    "svg.hashsalt": "undertow",
    "text.color": _INK,
    "text.parse_math": False,  # a dollar sign in a model's or a group's name is a dollar sign
    "text.usetex": False,
    "xtick.color": "#8a8a8a",
    "xtick.labelcolor": _INK,
    "ytick.color": "#8a8a8a",
    "ytick.labelcolor": _INK,
}
_ONE_AT_A_TIME = threading.RLock()
"""matplotlib's settings are global, so two threads must not draw under them at once."""

_RESERVED_ON_WINDOWS = re.compile(r"con|prn|aux|nul|com\d|lpt\d")


@dataclass(frozen=True)
class Drawing:
    """A figure and the words that go with it.

    Attributes:
        name: what it is called; any text, `file_stem` makes it safe.
        figure: drawn under `lettering`.
        caption: what to see in it, for everyone.
        alt: what it shows, for those who cannot see it.
    """

    name: str
    figure: Figure
    caption: str
    alt: str


def save_drawing(drawing: Drawing, folder: Path) -> None:
    """Write a drawing as `<stem>.svg` and `<stem>.png` (160 dpi) into a folder, which is made if need be.

    Equal figures give equal bytes. The signs of the SVG are outlines, so that it looks the same everywhere, unless
    no font of this machine has one of them: then its text stays text, for the reader's own fonts, and the PNG shows
    that sign as a box.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(drawing.name)
    (folder / f"{stem}.svg").write_text(svg_text(drawing), encoding="utf-8", newline="\n")
    (folder / f"{stem}.png").write_bytes(png_bytes(drawing))


def write_figure(drawing: Drawing, out: Path) -> None:
    """Write a drawing into one file, as its suffix says, .png or .svg.

    Raises:
        UndertowError: the file cannot be written.
    """
    try:
        out.write_bytes(png_bytes(drawing) if out.suffix.lower() == ".png" else svg_text(drawing).encode())
    except OSError as error:
        raise UndertowError(f"{out}: cannot be written ({error.strerror or error}); name another file") from error


def svg_text(drawing: Drawing) -> str:
    """The drawing as an SVG document."""
    written = _written(drawing.figure)
    out = io.BytesIO()
    with lettering(written):
        mpl.rcParams["svg.fonttype"] = "none" if _unlettered(written) else "path"
        no_date = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawing.figure.savefig(out, format="svg", metadata=no_date)
    return out.getvalue().decode()


def png_bytes(drawing: Drawing) -> bytes:
    """The drawing as a PNG image at 160 dots per inch."""
    out = io.BytesIO()
    with lettering(_written(drawing.figure)):
        drawing.figure.savefig(out, format="png", dpi=PNG_DPI, metadata={"Software": None})
    return out.getvalue()


def file_stem(name: str) -> str:
    """A file name without suffix, safe on every system, from any text.

    Lower-case ASCII letters, digits, `.`, `_` and `-`. Where that loses anything, a short hash of the whole text is
    added, so that two names never share a file.
    """
    stem = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")
    stem = re.sub(r"\.{2,}", ".", stem)[:MAX_STEM_LENGTH].strip("-.")
    if stem == name and stem and not _RESERVED_ON_WINDOWS.fullmatch(stem.partition(".")[0]):
        return stem
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = stem.replace(".", "-")[: MAX_STEM_LENGTH - len(mark) - 1].strip("-")
    return f"{kept or 'drawing'}-{mark}"


def luminance(colour: Any) -> float:
    """Relative luminance of a colour as WCAG 2 defines it, from 0 (black) to 1 (white)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Any, other: Any) -> float:
    """Contrast of two colours as WCAG 2 defines it, from 1 (none) to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@cache
def as_ink(colour: str) -> str:
    """A colour of lines and dots, as dark as its words must be to be read on white."""
    shares = (share / 100 for share in range(100, -1, -1))
    inks = (to_hex([share * part for part in to_rgb(colour)]) for share in shares)
    return next(ink for ink in inks if contrast(ink, "white") >= TEXT_CONTRAST)


@contextmanager
def lettering(text: str) -> Iterator[None]:
    """Draw under the project's style, with fonts for the signs of this text, whatever the user's own settings.

    A sign that no font here has is no cause for a warning: `save_drawing` says what becomes of it.
    """
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE | {"font.family": _families(text)})
        yield


def _written(figure: Figure) -> str:
    return "".join(text.get_text() for text in figure.findobj(Text))


def _families(text: str) -> list[str]:
    """The project's font, and after it the fonts of this machine that have the signs it lacks."""
    families, lacking = [_FAMILY], _beyond_own_font(text)
    for name, path in _installed_fonts() if lacking else ():
        covered = lacking & _signs(path)
        if covered:
            families.append(name)
            lacking = lacking - covered
        if not lacking:
            break
    return families


def _unlettered(text: str) -> bool:
    """Whether some sign of the text is in no font of this machine."""
    lacking = _beyond_own_font(text)
    paths = dict(_installed_fonts()) if lacking else {}
    return bool(lacking.difference(*(_signs(paths[name]) for name in _families(text) if name in paths)))


def _beyond_own_font(text: str) -> frozenset[int]:
    own = font_manager.findfont(_FAMILY)
    return frozenset(ord(sign) for sign in set(text) if not sign.isspace()) - _signs(own)


@cache
def _installed_fonts() -> Sequence[tuple[str, str]]:
    """Name and file of one upright font for each installed family, by name."""
    upright = [
        font
        for font in font_manager.fontManager.ttflist
        if font.style == "normal"
        and font.weight in {400, "normal", "regular"}
        and not font.name.startswith("Last Resort")
    ]
    return sorted({font.name: font.fname for font in upright}.items())


@cache
def _signs(path: str) -> frozenset[int]:
    """Code points that a font file has; none where it cannot be read or drawn at any size."""
    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # one broken font of the machine must not stop a report
        return frozenset()
    return frozenset(font.get_charmap()) if font.scalable else frozenset()
