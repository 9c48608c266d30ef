"""Write an artefact: figures as PDF, SVG and PNG, tables as LaTeX, Markdown and CSV, and a page with all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from undertow.errors import UndertowError
from undertow.reproduction.catalog import Artefact
from undertow.reproduction.contents import Content
from undertow.runs.config import safe_name
from undertow.runs.folder.storage import csv_of

PAGE = "index.html"


def write(artefact: Artefact, content: Content, folder: Path, command: str) -> list[Path]:
    """Write an artefact into a folder, and return the paths of its files, the page first.

    Raises:
        UndertowError: the folder cannot be written.
    """
    import pandas as pd

    from undertow.report.page import render_template
    from undertow.report.page_data import Page
    from undertow.report.paper_table import PaperTable
    from undertow.report.style import FIGURE_FORMATS, file_stem, image_bytes, svg_text

    stem = safe_name(artefact.id.replace(":", "-"))
    files: dict[str, bytes] = {}
    pictures = []
    for drawing in content.drawings:
        name = file_stem(f"{stem}_{drawing.name}")
        files |= {f"{name}.{kind}": image_bytes(drawing.figure, kind, real_text=True) for kind in FIGURE_FORMATS}
        pictures.append({"name": name, "svg": svg_text(drawing), "caption": drawing.caption, "alt": drawing.alt})
    for table in content.tables:
        name = file_stem(f"{stem}_{table.title}" if len(content.tables) > 1 else stem)
        frame = pd.DataFrame(table.rows, columns=list(table.columns))
        printed = PaperTable(name, frame, replace(table, about=f"{artefact.title}. {table.about}".strip()))
        files |= {
            f"{name}.tex": f"{printed.to_latex()}\n".encode(),
            f"{name}.md": f"{printed.to_markdown()}\n".encode(),
            f"{name}.csv": csv_of(frame).encode(),
        }
    page = render_template(
        "reproduction.html.j2",
        page=Page(artefact.title, "", [], []),  # for the style
        artefact=artefact,
        figures=pictures,
        tables=content.tables,
        notes=content.notes,
        files=sorted(files),
        command=command,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in {PAGE: page.encode(), **files}.items():
            (folder / name).write_bytes(body)
    except OSError as error:
        raise UndertowError(f"{folder}: cannot be written ({error.strerror or error}); name another folder") from error
    return [folder / PAGE, *(folder / name for name in sorted(files))]
