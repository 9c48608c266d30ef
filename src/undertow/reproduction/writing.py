"""Write an artefact: figures as PDF, SVG and PNG, tables as LaTeX, Markdown and CSV, and a page; or an index of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from undertow.errors import UndertowError, counted
from undertow.report.formatting import MISSING
from undertow.report.page_data import Drawing, Page, ReportTable
from undertow.reproduction.catalog import Artefact, artefacts
from undertow.reproduction.contents import Content
from undertow.runs.config import safe_name
from undertow.runs.folder.storage import csv_of

PAGE = "index.html"
STYLE = Page("", "")
"""An empty page, which the template of the style sheet needs."""


def write(
    artefact: Artefact, content: Content, folder: Path, command: str, phone: Sequence[Drawing] = ()
) -> list[Path]:
    """Write an artefact into a folder, and return the paths of its files, the page first.

    `command` repeats it; `phone` has the first figures, drawn for a narrow screen.
    """
    import pandas as pd

    from undertow.report.inline_svg import page_figure
    from undertow.report.page import render_template
    from undertow.report.paper_table import PaperTable
    from undertow.report.style import FIGURE_FORMATS, file_stem, image_bytes

    stem = safe_name(folder_name(artefact.id))
    files: dict[str, bytes] = {}
    for drawing in content.drawings:
        name = file_stem(f"{stem}_{drawing.name}")
        files |= {f"{name}.{kind}": image_bytes(drawing.figure, kind, real_text=True) for kind in FIGURE_FORMATS}
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
        page=STYLE,
        artefact=artefact,
        figures=[page_figure(*pair) for pair in zip_longest(content.drawings, phone)],
        tables=content.tables,
        origin=content.origin,
        notes=content.notes,
        files=sorted(files),
        command=command,
    )
    _write(folder, {PAGE: page.encode(), **files})
    return [folder / PAGE, *(folder / name for name in sorted(files))]


def write_index(made: Mapping[str, Content | str], folder: Path, command: str) -> None:
    """Write a page and a Markdown table with a row for each artefact: what it shows, what it needs, and what was made or why not.

    `made` has the content of each artefact, or the reason why there is none, by id; `command` repeats them.
    """
    import pandas as pd

    from undertow.report.page import render_template
    from undertow.report.paper_table import PaperTable

    known = artefacts()
    columns = ["artefact", "what it shows", "needs", "made"]
    rows = []
    for name, one in made.items():
        contents = one
        if isinstance(one, Content):
            counts = {"figure": len(one.drawings), "table": len(one.tables)}
            contents = ", ".join(counted(n, what) for what, n in counts.items() if n)
        rows.append([name, known[name].title, known[name].needs, MISSING if known[name].why else str(contents)])
    table = ReportTable("Tables and figures of the papers", columns, rows)
    markdown = PaperTable("index", pd.DataFrame(rows, columns=columns), table).to_markdown()
    links = {name: f"{folder_name(name)}/{PAGE}" for name, one in made.items() if isinstance(one, Content)}
    page = render_template("reproduction_index.html.j2", page=STYLE, table=table, links=links, command=command)
    _write(folder, {PAGE: page.encode(), "index.md": f"{markdown}\n".encode()})


def folder_name(artefact: str) -> str:
    """The name of the folder of an artefact."""
    return artefact.replace(":", "-")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, body in files.items():
            (folder / name).write_bytes(body)
    except OSError as error:
        raise UndertowError(f"{folder}: cannot be written ({error.strerror or error}); name another folder") from error
