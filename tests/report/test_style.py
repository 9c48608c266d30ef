from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from undertow.report.page_data import Drawing
from undertow.report.style import file_stem, image_bytes, lettering, save_drawing


def drawn(text: str, name: str = "d") -> Drawing:
    with lettering(text):
        figure = Figure(figsize=(2, 1))
        axes = figure.add_subplot()
        axes.plot([0, 1], [1, 0])
        axes.set_title(text)
    return Drawing(name, figure, "caption", "alt")


def test_equal_drawings_give_equal_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        save_drawing(drawn("same"), tmp_path / folder)
    for name in ("d.svg", "d.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert image_bytes(drawn("same").figure, "svg") != image_bytes(drawn("other").figure, "svg")


def test_the_user_s_own_settings_do_not_show_and_are_kept() -> None:
    expected = [image_bytes(drawn("same").figure, kind) for kind in ("png", "svg")]
    own = {"font.size": 20, "lines.linewidth": 9, "savefig.facecolor": "red", "svg.fonttype": "none"}
    with mpl.rc_context(own):
        assert [image_bytes(drawn("same").figure, kind) for kind in ("png", "svg")] == expected
        assert {name: mpl.rcParams[name] for name in own} == own


def test_file_names_are_safe_and_never_shared() -> None:
    for name in ("../../etc/passwd", "C:\\x", "модель 日本", "..", "", "nul.txt", "a" * 300, "\udc80", "a."):
        stem = file_stem(name)
        assert re.fullmatch(r"[a-z0-9_]([a-z0-9._-]{,78}[a-z0-9_])?", stem), name
        assert ".." not in stem
        assert stem.partition(".")[0] not in {"con", "nul"}
        assert stem != file_stem(stem + "x")
        assert file_stem(stem) == stem, "a safe name stays itself"
    names = ["a/b", "a-b", "a\\b", "A-B", "a:b", "a b"]
    assert len({file_stem(name) for name in names}) == len(names)
